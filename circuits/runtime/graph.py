"""Graph: the operators of a circuit in the order in which they run, and one step through them.

Made from lowered plans by the chain rule: each plan node becomes the incremental form of its
operator, equal nodes become one. For every step each node gets the deltas of its inputs; nodes that
are inputs of joins are relations too, whose deltas are staged in the shared traces before any join
reads them. Nothing changes until the step is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import repeat
from operator import add

from circuits.inputs.checked_input import CheckedInput
from circuits.inputs.missing_deletions import DeletionWitnesses
from circuits.inputs.rejected_rows import RejectedCodes
from circuits.plan.fixpoint import ITERATION, MAX_ITERATIONS, DistinctMode
from circuits.plan.nodes import (
    Aggregate,
    Distinct,
    Fields,
    Filter,
    FinalAggregate,
    Fixpoint,
    Join,
    Map,
    Negate,
    PartialAggregate,
    Plan,
    Positive,
    RecursiveDistinct,
    RecursiveReference,
    RowIdDecode,
    RowIdEncode,
    Scan,
    TopK,
    Union,
    Values,
)
from circuits.plan.rewrite import rewrite_plan
from circuits.plan.rewrite.iterated_rows import iterated
from circuits.plan.structural_key import structural_key
from circuits.runtime.nested_circuit import NestedCircuit, NestedCircuitStep
from circuits.runtime.operators.aggregate import AggregateOperator
from circuits.runtime.operators.distinct import DistinctOperator, to_bag, to_set
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator, RowIdEncodeOperator
from circuits.runtime.operators.linear import (
    FilterOperator,
    MapOperator,
    NegateOperator,
    UnionOperator,
)
from circuits.runtime.operators.operator import Operator, Prepared, StepContext
from circuits.runtime.operators.partial_aggregate import (
    FinalAggregateOperator,
    PartialAggregateOperator,
)
from circuits.runtime.operators.recursive_distinct import RecursiveBagOperator, RecursiveSetOperator
from circuits.runtime.operators.recursive_min_max import RecursiveMinMaxOperator
from circuits.runtime.operators.top_k import TopKOperator
from circuits.runtime.operators.values import ValuesOperator
from circuits.runtime.publication import published
from circuits.state.registry import StateRegistry
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Formula, Relations, Trace, ZSet
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.planning.formula_candidates import FormulaName, parse_formula

__all__ = ["Graph", "GraphStep", "JoinOptions", "Node", "watermark_of"]

Clock = Callable[[], float]


@dataclass(frozen=True)
class JoinOptions:
    """How the joins of a graph are made, and how often its recursions may go round."""

    formula: FormulaName | str = Formula.collapsed
    executor: Executor | None = None
    parts: int = 1
    max_iterations: int = MAX_ITERATIONS


@dataclass
class Node:
    """One operator, or an input (which has none).

    A node that is ``inner`` is one of a loop, which runs it.
    """

    name: str
    plan: Plan
    inputs: tuple[int, ...]
    operator: Operator | None
    arranged: bool = False
    inner: bool = False
    loop: NestedCircuit | None = None
    nothing: ZSet = field(init=False)

    def __post_init__(self) -> None:
        self.nothing = ZSet.empty(len(self.plan.fields))


@dataclass(frozen=True)
class GraphStep:
    """The computed deltas of all nodes, what commits them, and the marks after the step.

    ``deltas`` are what views publish (`circuits.runtime.publication`).
    ``rows`` has how many rows each node gave, those of a loop in all iterations.
    ``refused`` has, by input, the rows that its rules did not take; ``missing`` how many rows of an
    input are deleted more often than they are there (`circuits.inputs.missing_deletions`).
    """

    deltas: Sequence[ZSet]
    prepared: Sequence[Prepared]
    rows: Sequence[int]
    spent: Sequence[float]
    graph: Graph
    marks: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, Sequence[RejectedCodes]] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)

    def commit(self) -> None:
        """Make the step the state of all operators."""
        for prepared in self.prepared:
            prepared.commit()
        graph = self.graph
        graph.marks = self.marks
        graph.rows = list(map(add, graph.rows or repeat(0), self.rows))
        graph.seconds = list(map(add, graph.seconds or repeat(0.0), self.spent))
        graph.steps += 1


@dataclass
class Graph:
    """Operators over named inputs.

    Args:
        codecs: The codes of values, shared by the whole circuit.
        joining: How joins are made.
        clock: Seconds, for ``seconds``.

    ``rows`` and ``seconds`` have what each node has put out and taken over all steps; empty before
    the first. A commit replaces them, so whoever has them may read them at any time.
    """

    codecs: Codecs
    joining: JoinOptions
    clock: Clock
    nodes: list[Node] = field(default_factory=list)
    views: dict[str, int] = field(default_factory=dict)
    relations: Relations = field(default_factory=Relations)
    steps: int = 0
    # Numbers that the rules of inputs keep.
    marks: Mapping[str, int] = field(default_factory=dict)
    checked_inputs: dict[str, CheckedInput] = field(default_factory=dict)
    # The integrals of materialized inputs that drop expired rows unseen, by their numbers.
    retained: set[int] = field(default_factory=set)
    rows: Sequence[int] = ()
    seconds: Sequence[float] = ()
    _numbers: dict[object, int] = field(default_factory=dict)
    # The nodes of plans by their ``id``, which stays theirs as long as they are kept here.
    _places: dict[int, tuple[int, Plan]] = field(default_factory=dict)
    # Loops by the ``id`` of their bodies, and the nodes of what recurs in the one that is made.
    _loops: dict[int, NestedCircuit] = field(default_factory=dict)
    _feeds: dict[str, int] = field(default_factory=dict)
    # Called with the number of each node before it is evaluated.
    observer: Callable[[int], object] | None = None
    _registry: StateRegistry | None = None
    _size: tuple[int, int] = (0, 0)
    _found_witnesses: DeletionWitnesses | None = None

    def add_input(self, name: str, fields: Fields) -> int:
        """An input relation."""
        return self._add(("input", name), name, Scan(name, fields), ())

    def add_checked_input(self, name: str, ruled: CheckedInput) -> None:
        """Add the checks of an input, which read the trace of its relation."""
        self.checked_inputs[name] = ruled
        self.nodes[self._numbers["input", name]].arranged = True

    def add_view(self, name: str, plan: Plan) -> int:
        """A named view, by its lowered plan."""
        self.views[name] = self.add(plan)
        return self.views[name]

    def add(self, plan: Plan) -> int:
        """The node of a lowered plan, new if there is no equal one.

        A plan is a DAG with far more paths than nodes, so each of its nodes is looked at once.
        """
        known = self._places.get(id(plan))
        if known is None:
            known = self._places[id(plan)] = (self._placed(plan), plan)
        return known[0]

    def _placed(self, plan: Plan) -> int:
        match plan:
            case Scan(relation):
                known = self._numbers.get(("input", relation))
                return self.views[relation] if known is None else known
            case RecursiveReference(name):
                return self._feeds[name]
            case Fixpoint():
                return self._fixpoint(plan)
            case Join(inputs) | Union(inputs):
                below = tuple(map(self.add, inputs))
            case Values():
                below = ()
            case _:
                below = (self.add(plan.input),)  # type: ignore[union-attr]
        key = structural_key(plan, below)
        if isinstance(plan, RowIdDecode):
            key = "unpack", below, tuple((c, self.add(pack)) for c, pack in plan.payloads)
        return self._add(key, self._fresh(), plan, below)

    def _fixpoint(self, plan: Fixpoint) -> int:
        """The node of one relation of a recursion; the loop is made with the first one."""
        loop = self._loops.get(id(plan.bodies))
        if loop is None:
            around, self._feeds = self._feeds, {}
            for name, body in zip(plan.names, plan.bodies, strict=True):
                feed = RecursiveReference(name, (*body.fields, ITERATION))
                self._feeds[name] = self._add(("recur", len(self.nodes)), self._fresh(), feed, ())
            feeds = tuple(self._feeds.values())
            loop = NestedCircuit(plan.names, feeds, self.joining.max_iterations, self.views)
            self._loops[id(plan.bodies)] = loop
            bodies = zip(plan.bodies, plan.cuts, strict=True)
            settles = [self.add(rewrite_plan(iterated(body, cut))) for body, cut in bodies]
            loop.close(self.nodes, settles)
            self._feeds = around
        key = ("fixpoint", loop.feeds[plan.index])
        place = self._add(key, self._fresh(), plan, (loop.settles[plan.index],))
        self.nodes[place].loop = loop
        return place

    def integrate(self, number: int, *, retained: bool = False) -> Integrate:
        """Keep the sum of a node's deltas; ``retained``: of an input, without expired rows."""
        plan = self.nodes[number].plan
        key = ("integrate", number, "retained") if retained else ("integrate", number)
        place = self._add(key, self._fresh(), plan, (number,))
        if retained:
            self.retained.add(place)
        operator = self.nodes[place].operator
        assert isinstance(operator, Integrate)
        return operator

    def prepare(
        self,
        inputs: Mapping[str, ZSet],
        moved: Mapping[str, int] | None = None,
        budget: Budget | None = None,
    ) -> GraphStep:
        """Compute all deltas of one step; nothing changes until it is committed.

        Args:
            inputs: The rows given, before the rules of their inputs.
            moved: The horizons of retained inputs that rows or watermarks move to.
            budget: What the step may use; without it there is no limit.

        Raises:
            LimitError: It uses more; ``budget.operator`` is the node that did.
        """
        budget = Budget(StepLimits.off()) if budget is None else budget
        moved = moved or {}
        marks = dict(self.marks)
        refused: dict[str, Sequence[RejectedCodes]] = {}
        shared = self.relations.stage({})
        context = StepContext(self.steps == 0, shared, budget)
        deltas: list[ZSet] = []
        prepared: list[Prepared] = [shared]
        spent = []
        looped: dict[int, NestedCircuitStep] = {}
        integrals: dict[int, Prepared] = {}
        unexpired: dict[int, ZSet] = {}
        for number, node in enumerate(self.nodes):
            start = self.clock()
            if self.observer is not None:
                self.observer(number)
            if node.inner:
                delta = node.nothing
            elif node.loop is not None:
                delta = self._looped(node, deltas, context, looped)
            elif node.operator is None:
                given = inputs.get(node.name)
                ruled = self.checked_inputs.get(node.name)
                if ruled is not None and (given is not None or node.name in moved):
                    mark, move = watermark_of(node.name), moved.get(node.name)
                    found = ruled.prepare(given, self.marks.get(mark), move)
                    given = found.delta
                    if found.published is not None:
                        unexpired[number] = found.published
                    if found.refused:
                        refused[node.name] = found.refused
                    if found.horizon is not None and move is not None:
                        marks[mark] = found.horizon
                delta = node.nothing if given is None else given
                budget.add_input_rows(len(delta), delta.arity)
            elif not context.first and not any([len(deltas[i]) for i in node.inputs]):
                # Of no change comes no change, but for what is there from the first step on.
                delta = node.nothing
            else:
                budget.start_operator(number)
                delta, state = node.operator.prepare([deltas[i] for i in node.inputs], context)
                budget.finish_operator(len(delta), delta.arity)
                if state is not None and isinstance(node.operator, Integrate):
                    integrals[number] = state
                elif state is not None:
                    prepared.append(state)
            if node.arranged and len(delta):
                shared.add(node.name, delta)
            deltas.append(delta)
            spent.append(self.clock() - start)
        if unexpired:
            publication = published(self, deltas, unexpired, context)
            deltas = list(publication.deltas)
            spent = [a + b for a, b in zip(spent, publication.spent, strict=True)]
            for number, change in publication.integrals.items():
                integrals.pop(number, None)
                if change is not None:
                    integrals[number] = change
        prepared += integrals.values()
        rows = [len(delta) for delta in deltas]
        for step in looped.values():
            prepared.append(step.prepared)
            for number, given_out in step.rows.items():
                rows[number], spent[number] = given_out, step.spent[number]
        missing = self._witnesses.missing(deltas)
        return GraphStep(deltas, prepared, rows, spent, self, marks, refused, missing)

    @property
    def _witnesses(self) -> DeletionWitnesses:
        """The traces that show deletions of absent rows, by input; found once."""
        if self._found_witnesses is None or self._found_witnesses.size != len(self.nodes):
            keyed = [name for name, ruled in self.checked_inputs.items() if ruled.options.keys]
            self._found_witnesses = DeletionWitnesses.of(self.nodes, self.relations.traces, keyed)
        return self._found_witnesses

    def _looped(
        self,
        node: Node,
        deltas: Sequence[ZSet],
        context: StepContext,
        looped: dict[int, NestedCircuitStep],
    ) -> ZSet:
        """The delta of a relation of a loop, which is run for the first one asked for."""
        loop = node.loop
        assert loop is not None and isinstance(node.plan, Fixpoint)
        if id(loop) not in looped:
            shared = context.shared
            looped[id(loop)] = loop.prepare(
                self.nodes, deltas, self.relations, shared, context.budget, self.clock
            )
        return looped[id(loop)].outputs[node.plan.index]

    def views_of(self) -> list[tuple[str, ...]]:
        """The views that each node is a part of: O(nodes · views)."""
        found: list[list[str]] = [[] for _ in self.nodes]
        for view, top in self.views.items():
            reached, waiting = set[int](), [top]
            while waiting:
                number = waiting.pop()
                if number not in reached:
                    reached.add(number)
                    waiting += self.nodes[number].inputs
            for number in reached:
                found[number].append(view)
        return list(map(tuple, found))

    def evaluate(self, inputs: Mapping[str, ZSet]) -> dict[str, ZSet]:
        """The views of whole inputs, by what the operators mean; no state is used or changed."""
        values: list[ZSet] = []
        for node in self.nodes:
            if node.inner:
                value = node.nothing
            elif node.loop is not None and isinstance(node.plan, Fixpoint):
                value = node.loop.evaluate(self.nodes, values)[node.plan.index]
            elif node.operator is None:
                value = inputs.get(node.name, ZSet.empty(len(node.plan.fields)))
            else:
                value = node.operator.evaluate([values[i] for i in node.inputs])
            values.append(value)
        return {name: values[number] for name, number in self.views.items()}

    @property
    def loops(self) -> tuple[NestedCircuit, ...]:
        """The recursions, in the order in which they run."""
        return tuple(self._loops.values())

    @property
    def registry(self) -> StateRegistry:
        """What holds the state, by name; found once."""
        size = len(self.nodes), len(self.relations.traces)
        if self._registry is None or self._size != size:
            operators = {node.name: node.operator for node in self.nodes}
            self._size = size
            self._registry = StateRegistry(
                operators, self.relations, self.codecs, parse_formula(self.joining.formula)
            )
        return self._registry

    @property
    def traces(self) -> Mapping[str, Trace]:
        """The joined relations' traces and those of the operators, by name."""
        return self.registry.traces

    def _fresh(self) -> str:
        """The name of the next operator, which is that of no input."""
        name = f"#{len(self.nodes)}"
        while ("input", name) in self._numbers:
            name += "'"
        return name

    def _add(self, key: object, name: str, plan: Plan, inputs: tuple[int, ...]) -> int:
        number = self._numbers.get(key)
        if number is None:
            integrates = isinstance(key, tuple) and key[0] == "integrate"
            operator = Integrate(len(plan.fields)) if integrates else self._operator(plan, inputs)
            number = self._numbers[key] = len(self.nodes)
            self.nodes.append(Node(name, plan, inputs, operator))
        return number

    def _operator(self, plan: Plan, inputs: tuple[int, ...]) -> Operator | None:
        match plan:
            case Values():
                return ValuesOperator(plan, self.codecs)
            case Filter(below, predicate):
                return FilterOperator(predicate, below.fields, self.codecs)
            case Map(below, expressions):
                return MapOperator(expressions, below.fields, self.codecs)
            case Union():
                return UnionOperator(len(plan.fields))
            case Negate():
                return NegateOperator()
            case Distinct():
                return DistinctOperator(len(plan.fields), to_set)
            case RecursiveDistinct(cut=DistinctMode(kind="set")):
                return RecursiveSetOperator(len(plan.fields))
            case RecursiveDistinct(cut=DistinctMode(kind="bag")):
                return RecursiveBagOperator()
            case RecursiveDistinct(cut=DistinctMode(kind, column)) if column is not None:
                return RecursiveMinMaxOperator(len(plan.fields), column, least=kind == "min")
            case Positive():
                return DistinctOperator(len(plan.fields), to_bag)
            case Aggregate():
                return AggregateOperator(plan, self.codecs)
            case TopK():
                return TopKOperator(plan, self.codecs)
            case PartialAggregate():
                return PartialAggregateOperator(plan, self.codecs)
            case FinalAggregate():
                return FinalAggregateOperator(plan, self.codecs)
            case RowIdEncode(below, kept):
                return RowIdEncodeOperator(kept, len(below.fields) - kept)
            case RowIdDecode(_, payloads):
                packs = [(c, self.nodes[self.add(pack)].operator) for c, pack in payloads]
                found = [(c, pack) for c, pack in packs if isinstance(pack, RowIdEncodeOperator)]
                return RowIdDecodeOperator(found, len(plan.fields))
            case Join():
                for number in inputs:
                    self.nodes[number].arranged = True
                names = [self.nodes[number].name for number in inputs]
                joining = self.joining
                return JoinOperator(
                    plan,
                    names,
                    self.relations,
                    formula=joining.formula,
                    executor=joining.executor,
                    parts=joining.parts,
                )
        return None


def watermark_of(name: str) -> str:
    """The name of the mark of an input's horizon."""
    return f"input {name} horizon"
