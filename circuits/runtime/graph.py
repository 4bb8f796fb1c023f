"""Graph: the operators of a circuit in execution order, and one step through them.

A graph is built from physical plans by the chain rule: each plan node becomes the incremental form
of its operator, and equal nodes (`circuits.plan.structural_hash`) become one. In every step each
node gets the deltas of its inputs. Nodes that joins read are relations, too: their deltas are
staged in the shared traces before any join reads them. Nothing changes until the step is committed.

::

    prepare     the incremental form: deltas of the inputs to deltas of all nodes
    evaluate    the non-incremental form: whole inputs to whole views; the right side of every law
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from operator import add

from circuits.inputs.checked_input import CheckedInput
from circuits.inputs.missing_deletions import DeletionWitnesses
from circuits.inputs.rejected_rows import RejectedCodes
from circuits.phases import GRAPH
from circuits.plan.fixpoint import ITERATION
from circuits.plan.nodes import Fields, Fixpoint, Plan, RecursiveDistinct, RecursiveReference, Scan
from circuits.plan.rewrite.iterated_rows import add_iterations
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.structural_hash import PlanHasher, hash_values, structural_hash
from circuits.runtime.graph_node import Node, prepare_node
from circuits.runtime.nested_circuit import NestedCircuit, NestedCircuitStep
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator, JoinOptions
from circuits.runtime.operators.operator import Operator, StepContext
from circuits.runtime.operators.registry import (
    OperatorContext,
    OperatorRegistry,
    builtin_operators,
)
from circuits.runtime.publication import publish
from circuits.state.registry import StateRegistry
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import DeltaQuery, Relations, Trace, ZSet
from dbsp_wcoj.generic_join import relation_to_zset
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.observer import observed
from dbsp_wcoj.planning.formula_candidates import parse_formula
from dbsp_wcoj.storage.trace import Staged, TraceStep

__all__ = ["Graph", "GraphStep", "watermark_of"]

Clock = Callable[[], float]

# The digits of a structural hash in the name of state: 64 bits.
_HASH_DIGITS = 16


@dataclass(frozen=True)
class GraphStep(Staged):
    """A computed step of a graph.

    Attributes:
        deltas: The delta of each node, as views publish it (`circuits.runtime.publication`).
        staged: The changes of the state.
        rows: The number of rows that each node has emitted, in all iterations of a recursion.
        spent: The seconds that each node has taken.
        graph: The graph.
        marks: The watermark of each input with retention, after the step.
        rejected: By input, the rows that its options reject.
        missing: By input, the number of rows that are deleted more often than they were inserted
            (`circuits.inputs.missing_deletions`).
    """

    deltas: Sequence[ZSet]
    staged: Sequence[Staged]
    rows: Sequence[int]
    seconds: Sequence[float]
    graph: Graph
    marks: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, Sequence[RejectedCodes]] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of all traces that change."""
        return chain.from_iterable(one.changes for one in self.staged)

    def commit(self) -> None:
        """Make the step the state of all operators."""
        for one in self.staged:
            one.commit()
        graph = self.graph
        graph.marks = self.marks
        graph.rows = list(map(add, graph.rows or repeat(0), self.rows))
        graph.seconds = list(map(add, graph.seconds or repeat(0.0), self.seconds))
        graph.steps += 1


@dataclass
class Graph:
    """Operators over named inputs.

    Args:
        codecs: The codes of values, shared by the whole circuit.
        joining: How joins are computed.
        clock: Seconds, for ``seconds``.
        operators: Which operator executes which plan node.

    Attributes:
        nodes: The nodes in execution order.
        views: The position of each view.
        relations: The traces that joins share.
        steps: The number of committed steps.
        marks: The watermark of each input with retention, by `watermark_of`.
        checked_inputs: The inputs that check their rows, by name.
        retained: The positions of integrals of materialized inputs whose expired rows are deleted
            without being published.
        rows: The number of rows that each node has emitted in all steps; empty before the first. A
            commit replaces the list, so a reader may keep it.
        seconds: The seconds that each node has taken in all steps; as ``rows``.
        observer: Called with the position of each node before it is run.
    """

    codecs: Codecs
    joining: JoinOptions
    clock: Clock
    operators: OperatorRegistry = field(default_factory=builtin_operators)
    nodes: list[Node] = field(default_factory=list)
    views: dict[str, int] = field(default_factory=dict)
    relations: Relations = field(default_factory=Relations)
    steps: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    checked_inputs: dict[str, CheckedInput] = field(default_factory=dict)
    retained: set[int] = field(default_factory=set)
    rows: Sequence[int] = ()
    seconds: Sequence[float] = ()
    observer: Callable[[int], object] | None = None
    # The position of each node, by its structural hash.
    _numbers: dict[str, int] = field(default_factory=dict)
    _inputs: dict[str, int] = field(default_factory=dict)
    # The nodes of plans by their ``id``, which stays unique as long as they are referenced here.
    _places: dict[int, tuple[int, Plan]] = field(default_factory=dict)
    # Recursions by their structural hash, and by the position of each of their fixpoint nodes.
    _recursions: dict[str, NestedCircuit] = field(default_factory=dict)
    _nested: dict[int, NestedCircuit] = field(default_factory=dict)
    # Of the recursion that is being built: its hash, and the node of each recursive reference.
    _recursion: str = ""
    _references: dict[str, int] = field(default_factory=dict)
    _registry: StateRegistry | None = None
    _size: tuple[int, int] = (0, 0)
    _found_witnesses: DeletionWitnesses | None = None

    def add_input(self, name: str, fields: Fields) -> int:
        """Add an input relation; return its position."""
        if name not in self._inputs:
            plan = Scan(name, fields)
            node = Node(name, name, structural_hash(plan, ()), plan, (), None)
            self._inputs[name] = self._append(node)
        return self._inputs[name]

    def add_checked_input(self, name: str, checked: CheckedInput) -> None:
        """Check the rows of an input; the check reads the trace of its relation."""
        self.checked_inputs[name] = checked
        self.nodes[self._inputs[name]].is_arranged = True

    def add_view(self, name: str, plan: Plan) -> int:
        """Add a named view, by its physical plan; return its position."""
        self.views[name] = self.add(plan)
        return self.views[name]

    def add(self, plan: Plan) -> int:
        """The position of the node of a physical plan, new if there is no equal one.

        A plan is a DAG with far more paths than nodes, so each of its nodes is visited once.
        """
        known = self._places.get(id(plan))
        if known is None:
            known = self._places[id(plan)] = (self._add(plan), plan)
        return known[0]

    def _add(self, plan: Plan) -> int:
        if isinstance(plan, Scan):
            return self._read(plan)
        if isinstance(plan, RecursiveReference):
            return self._references[plan.name]
        if isinstance(plan, Fixpoint):
            return self._add_fixpoint(plan)
        inputs = tuple(map(self.add, plan.inputs))
        references = [self.nodes[self.add(one)] for one in plan.references]
        hashes = [self.nodes[number].hash for number in inputs]
        hash = structural_hash(plan, hashes, [one.hash for one in references])
        if isinstance(plan, RecursiveDistinct):
            # It belongs to one recursion, also if its input does not.
            hash = hash_values(hash, self._recursion)
        number = self._numbers.get(hash)
        if number is not None:
            return number
        if type(plan) in self.operators.joins:
            for below in inputs:
                self.nodes[below].is_arranged = True
        context = OperatorContext(
            self.codecs,
            self.relations,
            self.joining,
            tuple(self.nodes[below].name for below in inputs),
            tuple(one.operator for one in references),
        )
        return self._append_new(hash, plan, inputs, self.operators.operator(plan, context))

    def _read(self, scan: Scan) -> int:
        known = self._inputs.get(scan.relation)
        return self.views[scan.relation] if known is None else known

    def _add_fixpoint(self, plan: Fixpoint) -> int:
        """The node of one relation of a recursion; the first one builds the nested circuit."""
        hash = self._hash_of_recursion(plan)
        circuit = self._recursions.get(hash)
        if circuit is None:
            circuit = self._recursions[hash] = self._build_recursion(plan, hash)
        index = circuit.names.index(plan.names[plan.index])
        own = hash_values("Fixpoint", hash, circuit.names[index])
        number = self._numbers.get(own)
        if number is None:
            number = self._append_new(own, plan, (circuit.results[index],), None)
            self._nested[number] = circuit
        return number

    def _hash_of_recursion(self, plan: Fixpoint) -> str:
        def resolve(below: Plan) -> str | None:
            return self.nodes[self._read(below)].hash if isinstance(below, Scan) else None

        return PlanHasher(resolve).hash_recursion(plan)

    def _build_recursion(self, plan: Fixpoint, hash: str) -> NestedCircuit:
        around = self._references, self._recursion
        self._references, self._recursion = {}, hash
        for name, body in zip(plan.names, plan.bodies, strict=True):
            reference = RecursiveReference(name, (*body.fields, ITERATION))
            own = hash_values("RecursiveReference", hash, name)
            self._references[name] = self._append_new(own, reference, (), None)
        references = tuple(self._references.values())
        circuit = NestedCircuit(plan.names, references, self.joining.max_iterations, self.views)
        bodies = zip(plan.bodies, plan.modes, strict=True)
        results = [self.add(rewrite_plan(add_iterations(body, mode))) for body, mode in bodies]
        circuit.close(self.nodes, results)
        self._references, self._recursion = around
        return circuit

    def integrate(self, number: int, *, retained: bool = False) -> Integrate:
        """Keep the sum of a node's deltas.

        Args:
            number: The position of the node.
            retained: True for an input whose expired rows are deleted without being published.
        """
        below = self.nodes[number]
        hash = hash_values("Integrate", below.hash, retained)
        place = self._numbers.get(hash)
        if place is None:
            integrate = Integrate(len(below.plan.fields))
            place = self._append_new(hash, below.plan, (number,), integrate)
        if retained:
            self.retained.add(place)
        operator = self.nodes[place].operator
        assert isinstance(operator, Integrate)
        return operator

    def _append_new(
        self, hash: str, plan: Plan, inputs: tuple[int, ...], operator: Operator | None
    ) -> int:
        name = self._unlike_inputs(f"#{len(self.nodes)}")
        state_name = self._unlike_inputs(f"#{hash[:_HASH_DIGITS]}")
        return self._append(Node(name, state_name, hash, plan, inputs, operator))

    def _unlike_inputs(self, name: str) -> str:
        while name in self._inputs:
            name += "'"
        return name

    def _append(self, node: Node) -> int:
        number = self._numbers[node.hash] = len(self.nodes)
        self.nodes.append(node)
        return number

    @observed(GRAPH)
    def prepare(
        self,
        inputs: Mapping[str, ZSet],
        moved: Mapping[str, int] | None = None,
        budget: Budget | None = None,
    ) -> GraphStep:
        """Compute all deltas of one step; nothing changes until it is committed.

        Args:
            inputs: The rows given, before the rules of their inputs.
            moved: The watermarks of the inputs with retention after the rows of the step.
            budget: What the step may use; without it there is no limit.

        Raises:
            LimitError: It uses more; ``budget.operator`` is the node that did.
        """
        budget = Budget(StepLimits.off()) if budget is None else budget
        moved = moved or {}
        marks = dict(self.marks)
        rejected: dict[str, Sequence[RejectedCodes]] = {}
        shared = self.relations.stage({})
        context = StepContext(self.steps == 0, shared, budget)
        deltas: list[ZSet] = []
        changes: list[Staged] = [shared]
        seconds = []
        recursions: dict[int, NestedCircuitStep] = {}
        integrals: dict[int, Staged] = {}
        unexpired: dict[int, ZSet] = {}
        for number, node in enumerate(self.nodes):
            start = self.clock()
            if self.observer is not None:
                self.observer(number)
            if node.is_nested:
                delta = node.empty
            elif node.operator is not None:
                if not context.first and not any([len(deltas[i]) for i in node.inputs]):
                    # No change of the inputs is no change of the result, except for constants,
                    # which the first step inserts.
                    delta = node.empty
                else:
                    inner = [deltas[i] for i in node.inputs]
                    delta, staged = prepare_node(number, node, inner, context)
                    if staged is not None and isinstance(node.operator, Integrate):
                        integrals[number] = staged
                    elif staged is not None:
                        changes.append(staged)
            else:
                if isinstance(node.plan, Fixpoint):
                    delta = self._prepare_recursion(number, deltas, context, recursions)
                else:
                    given = inputs.get(node.name)
                    checked = self.checked_inputs.get(node.name)
                    if checked is not None and (given is not None or node.name in moved):
                        mark, move = watermark_of(node.name), moved.get(node.name)
                        found = checked.prepare(given, self.marks.get(mark), move)
                        given = found.delta
                        if found.published is not None:
                            unexpired[number] = found.published
                        if found.rejected:
                            rejected[node.name] = found.rejected
                        if found.watermark is not None and move is not None:
                            marks[mark] = found.watermark
                    delta = node.empty if given is None else given
                    budget.add_input_rows(len(delta), delta.arity)
                if node.is_arranged and len(delta):
                    shared.add(node.name, delta)
            deltas.append(delta)
            seconds.append(self.clock() - start)
        if unexpired:
            again = replace(context, shared=self.relations.stage({}))
            publication = publish(self.nodes, self.retained, deltas, unexpired, again, self.clock)
            deltas = list(publication.deltas)
            seconds = [a + b for a, b in zip(seconds, publication.seconds, strict=True)]
            for number, change in publication.integrals.items():
                integrals.pop(number, None)
                if change is not None:
                    integrals[number] = change
        changes += integrals.values()
        rows = [len(delta) for delta in deltas]
        for step in recursions.values():
            changes.append(step)
            for number, emitted in step.rows.items():
                rows[number], seconds[number] = emitted, step.seconds[number]
        missing = self._witnesses.missing(deltas)
        return GraphStep(deltas, changes, rows, seconds, self, marks, rejected, missing)

    def _prepare_recursion(
        self,
        number: int,
        deltas: Sequence[ZSet],
        context: StepContext,
        steps: dict[int, NestedCircuitStep],
    ) -> ZSet:
        """The delta of a relation of a recursion, which is run for the first of its relations."""
        circuit = self._nested[number]
        if id(circuit) not in steps:
            steps[id(circuit)] = circuit.prepare(
                self.nodes, deltas, self.relations, context.shared, context.budget, self.clock
            )
        return steps[id(circuit)].outputs[self._index_in(circuit, number)]

    def _index_in(self, circuit: NestedCircuit, number: int) -> int:
        return circuit.results.index(self.nodes[number].inputs[0])

    @property
    def _witnesses(self) -> DeletionWitnesses:
        """The traces that show deletions of absent rows, by input; found once."""
        if self._found_witnesses is None or self._found_witnesses.size != len(self.nodes):
            keyed = [name for name, one in self.checked_inputs.items() if one.options.keys]
            self._found_witnesses = DeletionWitnesses.of(self.nodes, self.relations.traces, keyed)
        return self._found_witnesses

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

    def evaluate(
        self, inputs: Mapping[str, ZSet | Trace], budget: Budget | None = None
    ) -> dict[str, ZSet]:
        """The views of whole inputs, by the non-incremental forms; no state is read or changed.

        A join reads the arrangements of a trace that exist, and sorts for itself what is arranged
        in no order that it needs (`dbsp_wcoj.generic_join`).

        Args:
            inputs: The rows of each input; none for those that are not in it.
            budget: The limits; without it there are none.

        Raises:
            LimitError: It uses more than the budget allows; ``budget.operator`` is the node.
            IterationError: A recursion does not converge.
        """
        budget = Budget(StepLimits.off()) if budget is None else budget
        values: list[ZSet | Trace] = []
        recursions: dict[int, Sequence[ZSet]] = {}

        def whole(number: int) -> ZSet:
            return relation_to_zset(values[number], len(self.nodes[number].plan.fields))

        for number, node in enumerate(self.nodes):
            if node.is_nested:
                values.append(node.empty)
                continue
            if node.operator is None and number not in self._nested:
                given = inputs.get(node.name, node.empty)
                budget.add_input_rows(
                    given.rows if isinstance(given, Trace) else len(given), given.arity
                )
                values.append(given)
                continue
            budget.start_operator(number)
            if node.operator is None:
                circuit = self._nested[number]
                if id(circuit) not in recursions:
                    read = {below: whole(below) for below in circuit.outside}
                    recursions[id(circuit)] = self._evaluate_recursion(circuit, read, budget)
                value = recursions[id(circuit)][self._index_in(circuit, number)]
            elif isinstance(node.operator, JoinOperator):
                value = node.operator.evaluate([values[i] for i in node.inputs], budget)
            else:
                value = node.operator.evaluate([whole(i) for i in node.inputs])
            budget.finish_operator(len(value), value.arity)
            values.append(value)
        found = {}
        for name, number in self.views.items():
            budget.start_operator(number)
            found[name] = whole(number)
        return found

    def _evaluate_recursion(
        self, circuit: NestedCircuit, values: Mapping[int, ZSet], budget: Budget
    ) -> Sequence[ZSet]:
        """By the change from nothing, which joins only new rows, or naively beside a state."""
        if self.steps:
            return circuit.evaluate(self.nodes, values)
        return circuit.solve(self.nodes, values, self.relations, budget)

    @property
    def joins(self) -> dict[str, DeltaQuery]:
        """The maintained joins, by the names of their nodes."""
        return {
            node.name: node.operator.delta_query
            for node in self.nodes
            if isinstance(node.operator, JoinOperator)
        }

    @property
    def recursions(self) -> tuple[NestedCircuit, ...]:
        """The recursions, in the order in which they run."""
        return tuple(self._recursions.values())

    @property
    def registry(self) -> StateRegistry:
        """The state by name; computed once per shape of the graph."""
        size = len(self.nodes), len(self.relations.traces)
        if self._registry is None or self._size != size:
            self._size = size
            self._registry = StateRegistry(
                self.nodes, self.relations, self.codecs, parse_formula(self.joining.formula)
            )
        return self._registry

    @property
    def traces(self) -> Mapping[str, Trace]:
        """The joined relations' traces and those of the operators, by name."""
        return self.registry.traces


def watermark_of(name: str) -> str:
    """The name under which the state keeps the watermark of an input."""
    return f"input {name} watermark"
