"""Graph: the operators of a circuit in execution order, and one step through them.

A graph is built from physical plans by the chain rule: each plan node becomes the incremental form
of its operator, and equal plan nodes (`circuits.plan.structural_hash`) become one graph node. In
every step each graph node receives the deltas of its inputs; if all are empty, it does not run. A
node that a join reads has a trace, which all such joins share: its delta is staged in this trace
before any join reads it. No state changes until the step is committed.

::

    prepare     the incremental form: deltas of the inputs -> deltas of all nodes
    evaluate    the non-incremental form: whole inputs -> whole views

Tests compare the two: the sum of the deltas equals the whole view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from logging import getLogger
from operator import add
from typing import Final, NamedTuple

from circuits.inputs.checked_input import CheckedInput
from circuits.inputs.encoded_rows import EncodedRows
from circuits.inputs.missing_deletions import MissingRowCounter
from circuits.inputs.rejected_rows import RejectedCodes
from circuits.phases import GRAPH
from circuits.plan.fixpoint import ITERATION
from circuits.plan.frontier import GivenStateBound
from circuits.plan.nodes import (
    Fields,
    Fixpoint,
    PlanNode,
    RecursiveDistinct,
    RecursiveReference,
    Scan,
)
from circuits.plan.rewrite.iterated_rows import add_iterations
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.structural_hash import PlanHasher, hash_values, structural_hash
from circuits.runtime.delta_release import UnreadDeltas
from circuits.runtime.filter_chain import FilterChain, find_chains
from circuits.runtime.graph_node import Node, prepare_node
from circuits.runtime.grouped_inputs import find_grouped_inputs
from circuits.runtime.linear_stage import (
    AggregatingOperator,
    LinearStage,
    find_stages,
    find_unsorted_nodes,
    run_stage,
)
from circuits.runtime.nested_circuit import NestedCircuit, NestedCircuitStep
from circuits.runtime.operator_names import operator_name
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator, JoinOptions
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator
from circuits.runtime.operators.linear import MapOperator
from circuits.runtime.operators.operator import Operator, Result, StepContext
from circuits.runtime.operators.registry import (
    BUDGETED_OPERATORS,
    OperatorContext,
    OperatorRegistry,
    builtin_operators,
)
from circuits.runtime.publication import publish
from circuits.runtime.read_columns import read_columns
from circuits.runtime.row_batch import UnsortedRows
from circuits.runtime.state_bounds import BoundedStep, StateBounds, check_window_close
from circuits.runtime.task_order import NodeTasks, TaskOrder, order_tasks
from circuits.state.registry import StateRegistry
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import DeltaQuery, Relations, Trace, ZSet
from dbsp_wcoj.errors import LimitError
from dbsp_wcoj.generic_join import relation_to_zset
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.observer import OBSERVERS, observed
from dbsp_wcoj.planning.formula_candidates import parse_formula
from dbsp_wcoj.storage.grouped_rows import GroupedPairs
from dbsp_wcoj.storage.pair_sort import MIN_PAIRS
from dbsp_wcoj.storage.relations import RelationsStep
from dbsp_wcoj.storage.trace import Staged, TraceStep
from dbsp_wcoj.workers import (
    MIN_DIVIDED_ROWS,
    MIN_PARALLEL_ROWS,
    Job,
    Workers,
    count_jobs,
    current_workers,
    raise_interrupt,
    run_tasks,
    working_with,
)
from dbsp_wcoj.zset import reusing_sort_scratch

__all__ = ["NOW", "Graph", "GraphStep", "watermark_of"]

_LOG: Final = getLogger("dbsp_wcoj")

Clock = Callable[[], float]

#: The name under which the state stores the time of the last step.
NOW: Final = "now"

# A node with fewer input rows runs in the task that lets it run: another thread would take longer
# to begin than the node takes.
MIN_TASK_ROWS: Final = 1 << 11
# The digits of a structural hash in the name of state: 64 bits.
_HASH_DIGITS = 16


@dataclass(frozen=True)
class GraphStep(Staged):
    """A computed step of a graph.

    Attributes:
        deltas: The delta of each node, without the deletions of rows that expired if their results
            are kept (`circuits.runtime.publication`). It is empty for a node in a chain of filters,
            for a node whose rows need no order (`circuits.runtime.linear_stage`), and if a large
            step has freed it, which it does only for nodes that are no input, view, or integral.
        staged: The changes of the state, which `commit` applies.
        rows: The number of rows that each node has emitted, in all iterations of a recursion. Equal
            rows count separately if the delta is left out.
        seconds: The seconds that each node has taken.
        graph: The graph that computed the step.
        watermarks: The watermark of each input with an event time, after the step.
        rejected: By input, the rows that its options reject.
        missing: By input, the number of rows that are deleted more often than they were inserted
            (`circuits.inputs.missing_deletions`).
        drop_limits: By bound of the state, the code before which the rows that it bounds are
            dropped (`circuits.runtime.state_bounds.BoundedStep`).
    """

    deltas: Sequence[ZSet]
    staged: Sequence[Staged]
    rows: Sequence[int]
    seconds: Sequence[float]
    graph: Graph
    watermarks: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, Sequence[RejectedCodes]] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    drop_limits: Mapping[object, int] = field(default_factory=dict)

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of all traces that change."""
        return chain.from_iterable(change.changes for change in self.staged)

    def commit(self) -> None:
        """Apply the step to the state of all operators."""
        self.graph.restore_traces()
        if sum([change.rows for change in self.changes]) >= MIN_PARALLEL_ROWS:
            for change in self.staged:
                if isinstance(change, RelationsStep):
                    change.check(self.graph.relations)
            for step in self.changes:
                step.check_version()
            run_tasks([change.commit for change in self.staged])
        else:
            for change in self.staged:
                change.commit()
        graph = self.graph
        graph.watermarks = self.watermarks
        graph.drop_limits = self.drop_limits
        graph.rows = list(map(add, graph.rows or repeat(0), self.rows))
        graph.seconds = list(map(add, graph.seconds or repeat(0.0), self.seconds))
        graph.steps += 1


class Schedule(NamedTuple):
    """Which nodes a step runs.

    Attributes:
        readers: For each node, the nodes that read its delta; all of them are after it.
        always: The nodes that run in every step: inputs, recursions, and operators whose result or
            state depends on the time of the step.
        is_plain: For each node, whether it is an operator that runs only if an input changes, and
            whose change of state is committed without dropping rows. Integrals are not plain.
        chains: For each node, the filter chain that begins there, if any.
        no_deltas: An empty delta of each node.
        reads_now: True if the rows of a node depend on the time of the step.
        stages: The inputs whose rows can be taken in slices, by name.
        grouped_inputs: The inputs whose rows a first step may group
            (`circuits.runtime.grouped_inputs`).
        unsorted_nodes: The nodes whose rows need no order (`find_unsorted_nodes`).
        task_order: Which nodes may run at the same time; None if all run one after the other.
        can_release: True if the delta of a node may be freed once all nodes that read it have run;
            `GraphStep.deltas` then has an empty delta instead.
    """

    readers: Sequence[Sequence[int]]
    always: Sequence[int]
    is_plain: Sequence[bool]
    chains: Sequence[FilterChain | None]
    no_deltas: Sequence[ZSet]
    reads_now: bool
    stages: Mapping[str, LinearStage]
    grouped_inputs: frozenset[int]
    unsorted_nodes: frozenset[int]
    task_order: TaskOrder | None
    can_release: bool


@dataclass
class Graph:
    """Operators over named inputs.

    Args:
        codecs: Encode values as int64 codes; shared by the whole circuit.
        join_options: The options of all joins.
        clock: Returns the current time in seconds; measures ``seconds``.
        operators: Maps each class of plan nodes to the operator that executes it.

    Attributes:
        nodes: The nodes in execution order.
        views: The position in ``nodes`` of each view, by its name.
        nested_circuits: The nested circuit of each fixpoint node, by its position. The nodes of one
            recursion have the same nested circuit.
        relations: The traces of the nodes that joins read.
        steps: The number of committed steps.
        watermarks: The watermark of each input with an event time, by `watermark_of`, and the
            time of the last step, by `NOW`, if a node reads it.
        checked_inputs: The inputs that check their rows, by name.
        retained: The positions of the `Integrate` nodes that contain only the unexpired rows of an
            input, because expired rows are deleted without a published deletion.
        state_bounds: The frontiers of the nodes, and which rows of the state are dropped; None if
            no input has lateness and no bound is given.
        drop_limits: As `GraphStep.drop_limits`, of the last committed step of this graph.
        values_after_sweep: The number of values in all dictionaries after the last sweep
            (`circuits.state.dictionary_sweep`).
        rows: The number of rows that each node has emitted in all steps; empty before the first
            step. A commit replaces the list, so a reader may keep it.
        seconds: The seconds that each node has taken in all steps; a list like ``rows``.
        observer: Called with the position of each node before it is run. A step does not run the
            operators whose inputs have not changed.
    """

    codecs: Codecs
    join_options: JoinOptions
    clock: Clock
    operators: OperatorRegistry = field(default_factory=builtin_operators)
    nodes: list[Node] = field(default_factory=list)
    views: dict[str, int] = field(default_factory=dict)
    nested_circuits: dict[int, NestedCircuit] = field(default_factory=dict)
    relations: Relations = field(default_factory=Relations)
    steps: int = 0
    watermarks: Mapping[str, int] = field(default_factory=dict)
    checked_inputs: dict[str, CheckedInput] = field(default_factory=dict)
    retained: set[int] = field(default_factory=set)
    state_bounds: StateBounds | None = None
    drop_limits: Mapping[object, int] = field(default_factory=dict)
    values_after_sweep: int = 0
    rows: Sequence[int] = ()
    seconds: Sequence[float] = ()
    observer: Callable[[int], object] | None = None
    # The position of each node by its structural hash, and of each input by its name.
    _positions: dict[str, int] = field(default_factory=dict)
    _inputs: dict[str, int] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    # By the ``id`` of a plan: the position of its node, and the plan. The reference to the plan
    # keeps its id from being used for another one.
    _by_plan_id: dict[int, tuple[int, PlanNode]] = field(default_factory=dict)
    # The nested circuit of each recursion, by the structural hash of the recursion.
    _recursions: dict[str, NestedCircuit] = field(default_factory=dict)
    # The hash of the recursion that is being built, and the positions of its references by name.
    _current_recursion: str = ""
    _references: dict[str, int] = field(default_factory=dict)
    # Caches, each with the size of the graph for which it is valid.
    _cached_registry: StateRegistry | None = None
    _registry_size: tuple[int, int] = (0, 0)
    _cached_missing_row_counter: MissingRowCounter | None = None
    _cached_schedule: tuple[tuple[int, int], StateBounds | None, Schedule] | None = None
    # By input: the number of nodes and of views for which the columns are valid, and the columns.
    _read_columns: dict[str, tuple[int, int, frozenset[int]]] = field(default_factory=dict)

    def add_input(self, name: str, fields: Fields) -> int:
        """Add an input relation and return its position."""
        if name not in self._inputs:
            plan = Scan(name, fields)
            node = Node(name, name, structural_hash(plan, ()), plan, (), None)
            self._inputs[name] = self._append(node)
        return self._inputs[name]

    def add_checked_input(self, name: str, checked: CheckedInput) -> None:
        """Check the rows of an input by its options; the check may read the trace of the input."""
        self.checked_inputs[name] = checked
        if checked.reads_rows:
            self.nodes[self._inputs[name]].is_arranged = True

    def add_view(self, name: str, plan: PlanNode) -> int:
        """Add a view, given its physical plan, and return its position."""
        self.views[name] = self.add(plan)
        return self.views[name]

    def add(self, plan: PlanNode) -> int:
        """Return the position of the node of a physical plan; add it unless an equal one exists.

        A plan is a DAG with far more paths than nodes, so each of its nodes is visited once.
        """
        entry = self._by_plan_id.get(id(plan))
        if entry is None:
            entry = self._by_plan_id[id(plan)] = (self._add(plan), plan)
        return entry[0]

    def _add(self, plan: PlanNode) -> int:
        if isinstance(plan, Scan):
            return self._position_of_scan(plan)
        if isinstance(plan, RecursiveReference):
            return self._references[plan.name]
        if isinstance(plan, Fixpoint):
            return self._add_fixpoint(plan)
        inputs = tuple(map(self.add, plan.inputs))
        references = [self.nodes[self.add(reference)] for reference in plan.references]
        input_hashes = [self.nodes[i].hash for i in inputs]
        hash = structural_hash(plan, input_hashes, [node.hash for node in references])
        if isinstance(plan, RecursiveDistinct):
            # Its state belongs to one recursion, even if its input is outside of the recursion.
            hash = hash_values(hash, self._current_recursion)
        position = self._positions.get(hash)
        if position is not None:
            return position
        if type(plan) in self.operators.joins:
            for i in inputs:
                self.nodes[i].is_arranged = True
        context = OperatorContext(
            self.codecs,
            self.relations,
            self.join_options,
            tuple(self.nodes[i].name for i in inputs),
            tuple(node.operator for node in references),
        )
        return self._append_new(hash, plan, inputs, self.operators.operator(plan, context))

    def _position_of_scan(self, scan: Scan) -> int:
        """Return the position of the input or view that a scan reads."""
        if scan.relation in self._inputs:
            return self._inputs[scan.relation]
        return self.views[scan.relation]

    def _add_fixpoint(self, plan: Fixpoint) -> int:
        """Return the position of the node of one relation of a recursion.

        The first call for a recursion builds its nested circuit.
        """
        hash = self._hash_of_recursion(plan)
        circuit = self._recursions.get(hash)
        if circuit is None:
            circuit = self._recursions[hash] = self._build_recursion(plan, hash)
        index = circuit.names.index(plan.names[plan.index])
        node_hash = hash_values("Fixpoint", hash, circuit.names[index])
        position = self._positions.get(node_hash)
        if position is None:
            position = self._append_new(node_hash, plan, (circuit.results[index],), None)
            self.nested_circuits[position] = circuit
        return position

    def _hash_of_recursion(self, plan: Fixpoint) -> str:
        def resolve(plan: PlanNode) -> str | None:
            return self.nodes[self._position_of_scan(plan)].hash if isinstance(plan, Scan) else None

        return PlanHasher(resolve).hash_recursion(plan)

    def _build_recursion(self, plan: Fixpoint, hash: str) -> NestedCircuit:
        outer = self._references, self._current_recursion
        self._references, self._current_recursion = {}, hash
        for name, body in zip(plan.names, plan.bodies, strict=True):
            reference = RecursiveReference(name, (*body.fields, ITERATION))
            node_hash = hash_values("RecursiveReference", hash, name)
            self._references[name] = self._append_new(node_hash, reference, (), None)
        references = tuple(self._references.values())
        circuit = NestedCircuit(
            plan.names, references, self.join_options.max_iterations, self.views
        )
        results = []
        for body, mode in zip(plan.bodies, plan.modes, strict=True):
            results.append(self.add(rewrite_plan(add_iterations(body, mode))))
        circuit.find_nodes(self.nodes, results)
        self._references, self._current_recursion = outer
        return circuit

    def integrate(self, position: int, *, retained: bool = False) -> Integrate:
        """Add an `Integrate` node, which materializes the sum of a node's deltas.

        Args:
            position: The position of the node.
            retained: True for an input whose expired rows are deleted without being published.
        """
        plan = self.nodes[position].plan
        hash = hash_values("Integrate", self.nodes[position].hash, retained)
        integral = self._positions.get(hash)
        if integral is None:
            integral = self._append_new(hash, plan, (position,), Integrate(len(plan.fields)))
        if retained:
            self.retained.add(integral)
        operator = self.nodes[integral].operator
        assert isinstance(operator, Integrate)
        return operator

    def _append_new(
        self, hash: str, plan: PlanNode, inputs: tuple[int, ...], operator: Operator | None
    ) -> int:
        name = operator_name(hash, self._names)
        state_name = self._distinct_from_inputs(f"#{hash[:_HASH_DIGITS]}")
        return self._append(Node(name, state_name, hash, plan, inputs, operator))

    def _distinct_from_inputs(self, name: str) -> str:
        while name in self._inputs:
            name += "'"
        return name

    def _append(self, node: Node) -> int:
        position = self._positions[node.hash] = len(self.nodes)
        self._names.add(node.name)
        self.nodes.append(node)
        return position

    def bound_state(self, given_bounds: Sequence[GivenStateBound] = ()) -> None:
        """Find the frontiers of all nodes; call this when the graph is complete.

        Args:
            given_bounds: The bounds of the state whose values the caller of each step gives.

        Raises:
            InputOptionsError: A view with EMIT ON WINDOW CLOSE has no rows that become final.
        """
        if given_bounds or any(
            checked.bounded_column is not None or checked.bounds_computed_time
            for checked in self.checked_inputs.values()
        ):
            self.state_bounds = StateBounds(
                self.nodes,
                self.operators.joins,
                self.relations,
                self.checked_inputs,
                self.codecs,
                given_bounds,
            )
        keyed_inputs = [
            name
            for name, checked in self.checked_inputs.items()
            if checked.options.lateness and checked.bounded_column is None and checked.options.keys
        ]
        check_window_close(self.nodes, self.state_bounds, keyed_inputs, self.views_of)

    @observed(GRAPH)
    def prepare(
        self,
        inputs: Mapping[str, ZSet | EncodedRows],
        source_watermarks: Mapping[str, int] | None = None,
        budget: Budget | None = None,
        now: int | None = None,
    ) -> GraphStep:
        """Compute all deltas of one step; no state changes until it is committed.

        Args:
            inputs: The rows of each changed input, before its options are applied. They may be
                `EncodedRows` if `takes_slices` is true for the input.
            source_watermarks: The watermark of each input with an event time, computed from the
                rows of the step.
            budget: The limits of the step; no limits by default.
            now: The time of the step in microseconds since 1970, if a node reads it. An earlier
                time than that of the step before counts as the same time.

        Raises:
            LimitError: The step exceeds a limit; ``budget.operator`` is the node that did.
        """
        self.restore_traces()
        budget = Budget(StepLimits.off()) if budget is None else budget
        arguments = self, inputs, source_watermarks or {}, budget, now
        workers = current_workers()
        if workers is None:
            return _GraphStepExecution(*arguments).run()
        lengths, jobs = self.registry.lengths(), count_jobs()
        unexpected: Exception | None = None
        try:
            is_parallel = self._has_parallel_work(inputs)
            return _GraphStepExecution(*arguments).run(workers if is_parallel else None)
        except Exception as error:
            raise_interrupt(error)
            if count_jobs() == jobs:  # one thread has computed the step
                raise
            # Parts of an operator count some rows twice, and need more memory.
            if not isinstance(error, (LimitError, MemoryError)):
                unexpected = error
        # No state has changed. One thread computes the step again, and raises the error of the
        # first node in the order of the program that fails. The statistics of joins, which decide
        # when to plan again, count both runs.
        self.registry.truncate(lengths)
        budget.restart()
        with working_with(None):
            step = _GraphStepExecution(*arguments).run()
        if unexpected is not None:
            _LOG.warning("A step failed in several threads, but not in one", exc_info=unexpected)
        return step

    def _has_parallel_work(self, inputs: Mapping[str, ZSet | EncodedRows]) -> bool:
        """Return whether several nodes may run at the same time in a step with many rows."""
        if self.schedule.task_order is None or self.observer is not None:
            return False
        return sum(map(len, inputs.values())) >= MIN_DIVIDED_ROWS

    def backfill(
        self,
        contents: Mapping[int, ZSet],
        needed: Collection[int],
        now: int | None,
        skipped_traces: Collection[int] = (),
    ) -> GraphStep:
        """Compute nodes from rows of other nodes, without the options of inputs.

        The first call computes whole rows, as a first step does. Each later call computes the
        changes for further rows (`circuits.state.sliced_backfill`).

        Args:
            contents: The rows, or their changes since the last call, by the position of the node.
            needed: The positions of the nodes to compute, and of those in ``contents``. All others
                are left out, and so is their state.
            now: The time of the rows, if a node reads it.
            skipped_traces: Some of the nodes in ``contents``: their traces remain as they are.
        """
        budget = Budget(StepLimits.off())
        backfill = _BackfillArguments(contents, needed, skipped_traces)
        return _GraphStepExecution(self, {}, {}, budget, now, backfill).run()

    def count_rows_to_drop(self, watermarks: Mapping[str, int]) -> int:
        """Return the number of rows of the state that a step with these watermarks drops.

        Rows of sessions that are not closed yet do not count.

        Args:
            watermarks: As ``watermarks``.

        Complexity:
            O(bounds * runs * log N).
        """
        if self.state_bounds is None:
            return 0
        return BoundedStep(
            self.state_bounds, lambda name: watermarks.get(watermark_of(name)), self.drop_limits
        ).count_rows_to_drop()

    def read_columns(self, name: str) -> frozenset[int]:
        """Return the columns of an input that operators read."""
        size = len(self.nodes), len(self.views)
        cached = self._read_columns.get(name)
        if cached is None or cached[:2] != size:
            columns = read_columns(self.nodes, set(self.views.values()), self._inputs[name])
            cached = self._read_columns[name] = (*size, columns)
        return cached[2]

    def position_of_input(self, name: str) -> int:
        """Return the position of an input."""
        return self._inputs[name]

    def takes_slices(self, name: str) -> bool:
        """True if no operator needs the Z-set of all rows of an input (`LinearStage`)."""
        if name not in self.schedule.stages or name in self.checked_inputs:
            return False
        return self._inputs[name] not in self.schedule.grouped_inputs or not self.steps

    @property
    def schedule(self) -> Schedule:
        """Which nodes a step runs; computed again after nodes or bounds have been added."""
        cached, size = self._cached_schedule, (len(self.nodes), len(self.views))
        if cached is None or cached[0] != size or cached[1] is not self.state_bounds:
            cached = size, self.state_bounds, self._new_schedule()
            self._cached_schedule = cached
        return cached[2]

    def _new_schedule(self) -> Schedule:
        readers: list[list[int]] = [[] for _ in self.nodes]
        always = []
        is_plain = [False] * len(self.nodes)
        bounds = self.state_bounds
        for position, node in enumerate(self.nodes):
            if node.is_nested:
                continue
            for source in node.inputs:
                readers[source].append(position)
            depends_on_time = node.plan.reads_now or node.plan.reads_watermarks
            drops_rows = bounds is not None and (
                position in bounds.operators or position in bounds.sessions
            )
            if node.operator is None or depends_on_time or drops_rows:
                always.append(position)
            elif bounds is None:
                is_plain[position] = not isinstance(node.operator, Integrate)
        reads_now = any(node.plan.reads_now for node in self.nodes)
        published = set(self.views.values())
        grouped_inputs: frozenset[int] = frozenset()
        if bounds is None:
            grouped_inputs = find_grouped_inputs(self.nodes, published)
        stages = find_stages(self.nodes, published, self.codecs, grouped_inputs)
        chains: list[FilterChain | None] = [None] * len(self.nodes)
        # Chains and unsorted nodes leave out deltas, and large steps free some. They are needed if
        # the state of a node is bounded, or if the results of expired rows are kept.
        keeps_results = any(checked.keeps_results for checked in self.checked_inputs.values())
        unsorted_nodes: frozenset[int] = frozenset()
        task_order: TaskOrder | None = None
        can_release = bounds is None and not keeps_results
        if can_release:
            task_order = order_tasks(self.nodes, self.codecs)
            unsorted_nodes = find_unsorted_nodes(self.nodes, published)
            for position, chain in find_chains(self.nodes, published, self.codecs).items():
                chains[position] = chain
        no_deltas = [node.empty for node in self.nodes]
        return Schedule(
            readers,
            always,
            is_plain,
            chains,
            no_deltas,
            reads_now,
            stages,
            grouped_inputs,
            unsorted_nodes,
            task_order,
            can_release,
        )

    @property
    def missing_row_counter(self) -> MissingRowCounter:
        """Counts the deleted rows that do not exist; built again after nodes have been added."""
        counter = self._cached_missing_row_counter
        if counter is None or counter.node_count != len(self.nodes):
            keyed = [name for name, input in self.checked_inputs.items() if input.options.keys]
            traces = dict(self.relations.traces)
            for position in (
                self.state_bounds.relation_bounds if self.state_bounds is not None else ()
            ):
                del traces[self.nodes[position].name]  # its dropped rows would count as missing
            counter = MissingRowCounter.of(self.nodes, traces, keyed)
            self._cached_missing_row_counter = counter
        return counter

    def position_of(self, integral: Integrate) -> int:
        """Return the position of the node of an operator that `integrate` returned; O(nodes)."""
        return next(i for i, node in enumerate(self.nodes) if node.operator is integral)

    def relation_index(self, circuit: NestedCircuit, position: int) -> int:
        """Return which relation of a nested circuit a fixpoint node outputs."""
        return circuit.results.index(self.nodes[position].inputs[0])

    @property
    def reads_now(self) -> bool:
        """True if the rows of a node depend on the time of the step."""
        return self.schedule.reads_now

    def views_of(self) -> list[tuple[str, ...]]:
        """Return, for each node, the views that depend on it: O(nodes · views)."""
        views: list[list[str]] = [[] for _ in self.nodes]
        for view, root in self.views.items():
            reached: set[int] = set()
            unvisited = [root]
            while unvisited:
                position = unvisited.pop()
                if position not in reached:
                    reached.add(position)
                    unvisited += self.nodes[position].inputs
            for position in reached:
                views[position].append(view)
        return [tuple(names) for names in views]

    def evaluate(
        self, inputs: Mapping[str, ZSet | Trace], budget: Budget | None = None
    ) -> dict[str, ZSet]:
        """Compute the views of whole inputs by the non-incremental forms of the operators.

        No state is read or changed. If an input is a trace, a join reads its arrangement in the
        column order that the join needs. Without such an arrangement, the join sorts the rows
        itself (`dbsp_wcoj.generic_join`).

        Args:
            inputs: The rows of each input; an input that is not listed is empty.
            budget: The limits; no limits by default.

        Raises:
            LimitError: The evaluation exceeds a limit; ``budget.operator`` is the node that did.
            IterationError: A recursion does not converge.
        """
        budget = Budget(StepLimits.off()) if budget is None else budget
        values: list[ZSet | Trace] = []
        recursions: dict[int, Sequence[ZSet]] = {}

        def zset_of(position: int) -> ZSet:
            return relation_to_zset(values[position], len(self.nodes[position].plan.fields))

        for position, node in enumerate(self.nodes):
            if node.is_nested:
                values.append(node.empty)
                continue
            if node.operator is None and position not in self.nested_circuits:
                rows = inputs.get(node.name, node.empty)
                budget.add_input_rows(
                    rows.rows if isinstance(rows, Trace) else len(rows), rows.arity
                )
                values.append(rows)
                continue
            budget.start_operator(position)
            if node.operator is None:
                circuit = self.nested_circuits[position]
                if id(circuit) not in recursions:
                    outside_rows = {i: zset_of(i) for i in circuit.outside}
                    recursions[id(circuit)] = self._evaluate_recursion(
                        circuit, outside_rows, budget
                    )
                value = recursions[id(circuit)][self.relation_index(circuit, position)]
            elif isinstance(node.operator, JoinOperator):
                value = node.operator.evaluate([values[i] for i in node.inputs], budget)
            elif isinstance(node.operator, BUDGETED_OPERATORS):
                value = node.operator.evaluate([zset_of(i) for i in node.inputs], budget)
            else:
                value = node.operator.evaluate([zset_of(i) for i in node.inputs])
            budget.finish_operator(len(value), value.arity)
            values.append(value)
        results = {}
        for name, position in self.views.items():
            budget.start_operator(position)
            results[name] = zset_of(position)
        return results

    def _evaluate_recursion(
        self, circuit: NestedCircuit, values: Mapping[int, ZSet], budget: Budget
    ) -> Sequence[ZSet]:
        """Evaluate a recursion over whole inputs.

        A graph without state computes it as the delta of a first step, in which each iteration
        joins only new rows. A graph with state cannot, so it evaluates the recursion naively.
        """
        if self.steps:
            return circuit.evaluate_naive(self.nodes, values)
        return circuit.evaluate_semi_naive(self.nodes, values, self.relations, budget)

    @property
    def joins(self) -> dict[str, DeltaQuery]:
        """The maintained joins, by the names of their nodes."""
        return {
            node.name: node.operator.delta_query
            for node in self.nodes
            if isinstance(node.operator, JoinOperator)
        }

    def restore_traces(self) -> None:
        """Remove what a step that was interrupted several times has left in the traces."""
        for circuit in self._recursions.values():
            circuit.restore_traces()

    @property
    def recursions(self) -> tuple[NestedCircuit, ...]:
        """The recursions, in the order in which they run."""
        return tuple(self._recursions.values())

    @property
    def registry(self) -> StateRegistry:
        """The traces and dictionaries by name; computed once per size of the graph."""
        size = len(self.nodes), len(self.relations.traces)
        if self._cached_registry is None or self._registry_size != size:
            self._registry_size = size
            self._cached_registry = StateRegistry(
                self.nodes, self.relations, self.codecs, parse_formula(self.join_options.formula)
            )
        return self._cached_registry

    def forget_registry(self) -> None:
        """Compute `registry` again, after operators have got other dictionaries."""
        self._cached_registry = None

    @property
    def traces(self) -> Mapping[str, Trace]:
        """All traces by name: those that joins share, and those that an operator owns."""
        return self.registry.traces


class _BackfillArguments(NamedTuple):
    """The arguments of `Graph.backfill` except ``now``."""

    contents: Mapping[int, ZSet]
    needed: Collection[int]
    skipped_traces: Collection[int]


class _GraphStepExecution:
    """The execution of one step: the deltas of the nodes so far, and the staged changes of state.

    Args:
        graph: The graph, which does not change.
        inputs: As for `Graph.prepare`.
        source_watermarks: As for `Graph.prepare`.
        budget: The limits of the step.
        now: As for `Graph.prepare`.
        backfill: The rows of a backfill (`Graph.backfill`); None for an ordinary step.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, ZSet | EncodedRows],
        source_watermarks: Mapping[str, int],
        budget: Budget,
        now: int | None,
        backfill: _BackfillArguments | None = None,
    ) -> None:
        self._graph = graph
        self._backfill = backfill
        self._inputs = inputs
        self._source_watermarks = source_watermarks
        self._watermarks = dict(graph.watermarks)
        previous_now = self._watermarks.get(NOW)
        if now is not None:
            now = self._watermarks[NOW] = now if previous_now is None else max(now, previous_now)
        self._shared = graph.relations.stage({})
        self._context = StepContext(graph.steps == 0, self._shared, budget, now, previous_now)
        self._bounded_step: BoundedStep | None = None
        if graph.state_bounds is not None:
            self._bounded_step = BoundedStep(
                graph.state_bounds,
                lambda name: self._watermarks.get(watermark_of(name)),
                graph.drop_limits,
            )
        # By position; those of nodes that do not run stay empty and 0.
        self._deltas: list[ZSet] = []
        self._seconds: list[float] = []
        # The changes of the state of operators, by position.
        self._changes: dict[int, Staged] = {}
        # The changes of the integrals of materialized relations, by position.
        self._integrals: dict[int, Staged] = {}
        # The step of each nested circuit, by the ``id`` of the circuit.
        self._recursions: dict[int, NestedCircuitStep] = {}
        # By input: its delta without the deletions of expired rows, if it has such rows.
        self._as_if_kept: dict[int, ZSet] = {}
        self._rejected: dict[str, Sequence[RejectedCodes]] = {}
        # The results of linear stages, and the number of rows of their inputs, filters and maps.
        self._stage_results: dict[int, ZSet] = {}
        self._stage_rows: dict[int, int] = {}
        # The rows of nodes whose rows need no order, instead of their deltas.
        self._unsorted: dict[int, UnsortedRows] = {}
        self._rows: list[int] = []
        # 1 for each node to run. Its delta can be empty, because its inputs may cancel out.
        self._pending = bytearray()
        # A backfill and observers need the delta of each node.
        self._leaves_out_deltas = backfill is None and graph.observer is None and not OBSERVERS
        self._unread_deltas: UnreadDeltas | None = None

    def run(self, workers: Workers | None = None) -> GraphStep:
        """Compute the deltas of all nodes, in execution order; or in task order, with workers."""
        graph = self._graph
        schedule = graph.schedule
        self._deltas = list(schedule.no_deltas)
        self._seconds = [0.0] * len(graph.nodes)
        rows = self._rows = [0] * len(graph.nodes)
        is_first = self._context.first or self._backfill is not None
        pending = self._pending = bytearray([is_first]) * len(graph.nodes)
        for position in schedule.always:
            pending[position] = 1
        is_large = sum(map(len, self._inputs.values())) >= MIN_PARALLEL_ROWS
        if is_large and self._leaves_out_deltas and schedule.can_release:
            self._unread_deltas = UnreadDeltas(graph.nodes, schedule.readers, graph.views)
        with reusing_sort_scratch() if is_large else nullcontext():
            if workers is not None and schedule.task_order is not None:
                self._run_with(workers, schedule.task_order)
            else:
                self._run_in_order()
        if self._as_if_kept:
            self._publish_as_if_kept()
            rows = [len(delta) for delta in self._deltas]
        changes = [self._shared, *self._changes.values(), *self._integrals.values()]
        for step in self._recursions.values():
            changes.append(step)
            for position, emitted in step.rows.items():
                rows[position], self._seconds[position] = emitted, step.seconds[position]
        missing = {} if self._backfill else graph.missing_row_counter.count(self._deltas)
        drop_limits = graph.drop_limits
        if self._bounded_step is not None:
            self._bounded_step.drop_relation_rows(self._shared, [node.name for node in graph.nodes])
            drop_limits = self._bounded_step.limits
        return GraphStep(
            self._deltas,
            changes,
            rows,
            self._seconds,
            graph,
            self._watermarks,
            self._rejected,
            missing,
            drop_limits,
        )

    def _run_in_order(self) -> None:
        """Compute the pending nodes in execution order."""
        graph, schedule, pending = self._graph, self._graph.schedule, self._pending
        context, clock, observer = self._context, graph.clock, graph.observer
        position = pending.find(1)
        end = clock()
        while position >= 0:
            start = end
            if observer is not None:
                observer(position)
            self._run_node(position, context, schedule)
            end = clock()
            self._seconds[position] += end - start
            position = pending.find(1, position + 1)

    def _run_with(self, workers: Workers, order: TaskOrder) -> None:
        """Compute the deltas of all nodes; each one runs when the nodes before it have ended."""
        nodes, pending, budget = self._graph.nodes, self._pending, self._context.budget
        tasks = NodeTasks(order, pending)
        # The inputs come first, one after the other, because they add to the limits of the step.
        for position in tasks.begin():
            if nodes[position].is_input:
                self._run_task(position, None)
                tasks.end(position)

        def begin(job: Job) -> None:
            tasks.job = job
            self._add_tasks(job, tasks)

        try:
            workers.run_job(begin)
        finally:
            tasks.job = None  # it refers to this object
        tasks.add_budgets(budget)
        # The order of the program, whatever the order in which the nodes have ended.
        self._changes = dict(sorted(self._changes.items()))
        self._integrals = dict(sorted(self._integrals.items()))
        self._shared.sort([node.name for node in nodes])

    def _add_tasks(self, job: Job, tasks: NodeTasks) -> None:
        """Add tasks for the nodes that wait for no other one."""
        small, large = self._take_ready(tasks)
        if small or large:
            job.add(partial(self._run_nodes, small, large[:1], tasks))
        for position in large[1:]:
            job.add(partial(self._run_nodes, (), [position], tasks))

    def _run_nodes(self, small: Sequence[int], large: Sequence[int], tasks: NodeTasks) -> None:
        """Run nodes, then those that they let run, but only one node with many rows at a time.

        All others with many rows become tasks. So a step without two such nodes is one task, and
        wakes no other thread.

        Args:
            small: Nodes with few input rows.
            large: At most one node with many.
            tasks: The nodes that can run.
        """
        own, own_large = deque(small), deque(large)
        while own or own_large:
            self._run_task((own or own_large).popleft(), tasks)
            job = tasks.job
            if job is None or job.errors:  # the step has failed
                return
            ready, ready_large = self._take_ready(tasks)
            own += ready
            if ready_large and not own_large:
                own_large.append(ready_large.pop(0))
            for reader in ready_large:
                job.add(partial(self._run_nodes, (), [reader], tasks))

    def _take_ready(self, tasks: NodeTasks) -> tuple[list[int], list[int]]:
        """Return the nodes that can run now, once: those with few input rows, and with many."""
        small: list[int] = []
        large: list[int] = []
        for position in tasks.take_ready():
            is_large = self._count_input_rows(position) >= MIN_TASK_ROWS
            (large if is_large else small).append(position)
        return small, large

    def _count_input_rows(self, position: int) -> int:
        """Return the number of rows that a node reads, or has from a stage, in this step."""
        result = self._stage_results.get(position)
        rows = 0 if result is None else len(result)
        for source in self._graph.nodes[position].inputs:
            rows += len(self._unsorted.get(source, self._deltas[source]).weight_array)
        return rows

    def _run_task(self, position: int, tasks: NodeTasks | None) -> None:
        """Compute the delta of a node, with a budget of its own."""
        graph, context = self._graph, self._context
        start = graph.clock()
        if tasks is not None and graph.nodes[position].operator is not None:
            context = replace(context, budget=tasks.budget_of(position, context.budget))
        elif tasks is not None and position in graph.nested_circuits:
            # A recursion runs alone, after the nodes before it.
            tasks.add_budgets(context.budget)
        self._run_node(position, context, graph.schedule)
        self._seconds[position] += graph.clock() - start
        if tasks is not None:
            tasks.end(position)

    def _run_node(self, position: int, context: StepContext, schedule: Schedule) -> None:
        """Compute the delta of a node, and let the nodes that read it run."""
        node, stage_rows = self._graph.nodes[position], self._stage_rows
        is_in_stage = position in stage_rows or position in self._stage_results
        if self._leaves_out_deltas and not is_in_stage:
            chain = schedule.chains[position]
            if chain is not None:
                self._run_chain(chain, context)
                if self._unread_deltas is not None:
                    self._release_inputs(chain.positions, self._unread_deltas)
                return
            if position in schedule.unsorted_nodes:
                self._run_unsorted(position, node, context)
                if self._unread_deltas is not None:
                    self._release_inputs((position,), self._unread_deltas)
                return
        # An input of a plain operator has changed, or this is the first step.
        if schedule.is_plain[position] and not is_in_stage and self._backfill is None:
            deltas, inputs = self._deltas, node.inputs
            input_deltas = [deltas[inputs[0]]] if len(inputs) == 1 else [deltas[i] for i in inputs]
            prepare = self._prepare_unsorted(node) if self._unsorted else None
            release_inputs: Callable[[], None] | None = None
            if self._unread_deltas is not None:
                unread = self._unread_deltas

                def release_inputs() -> None:
                    input_deltas.clear()
                    self._release_inputs((position,), unread)

            delta, staged = prepare_node(
                position, node, input_deltas, context, 0, prepare, release_inputs
            )
            if staged is not None:
                self._changes[position] = staged
        else:
            delta = self._delta_of(position, node, context)
            if self._unread_deltas is not None:
                self._release_inputs((position,), self._unread_deltas)
        self._deltas[position] = delta
        emitted = len(delta.weight_array)
        self._emit(position, stage_rows.get(position, emitted) if stage_rows else emitted)

    def _release_inputs(self, positions: Collection[int], unread: UnreadDeltas) -> None:
        """In a large step, free the deltas that only these nodes still had to read."""
        graph = self._graph
        counted = graph.missing_row_counter.counted_nodes
        for source in unread.end(positions):
            weights = self._deltas[source].weight_array
            # Those with negative weights may be needed to count the deletions of missing rows.
            if source not in counted or not len(weights) or weights.min() > 0:
                self._deltas[source] = graph.nodes[source].empty
                self._unsorted.pop(source, None)
                step = self._shared.by_name.get(graph.nodes[source].name)
                if step is not None:
                    step.forget_delta()

    def _emit(self, position: int, rows: int) -> None:
        """Record the number of rows that a node has emitted; let the nodes that read them run."""
        if rows:
            self._rows[position] = rows
            for reader in self._graph.schedule.readers[position]:
                self._pending[reader] = 1

    def _run_chain(self, chain: FilterChain, context: StepContext) -> None:
        """Compute the delta of the last node of a chain, and the rows that each node emits."""
        graph, budget = self._graph, context.budget
        last = chain.positions[-1]
        for member in chain.positions:
            self._pending[member] = 0
        input_delta = self._deltas[graph.nodes[chain.positions[0]].inputs[0]]
        if not len(input_delta.weight_array):  # in a first step
            return
        if budget.has_deadline:
            budget.check_time()
        budget.operator = last
        delta, row_counts = chain.run(input_delta)
        for member, passed in zip(chain.positions, row_counts, strict=False):
            self._rows[member] = passed
        if delta is None:
            return
        emitted = len(delta.weight_array)
        budget.finish_operator(emitted, chain.arity)
        self._deltas[last] = delta
        node = graph.nodes[last]
        if node.is_arranged:
            self._shared.add(node.name, delta)
        self._emit(last, emitted)

    def _run_unsorted(self, position: int, node: Node, context: StepContext) -> None:
        """Compute the rows of a node, which need no order."""
        operator, source, budget = node.operator, node.inputs[0], context.budget
        assert isinstance(operator, MapOperator | RowIdDecodeOperator)
        delta = self._deltas[source]
        rows = self._unsorted.get(source, delta)
        self._pending[position] = 0
        if not len(rows.weight_array):  # in a first step
            return
        budget.start_operator(position)
        if isinstance(operator, MapOperator):
            result = operator.map_unsorted(rows, budget)
        else:
            result = operator.decode_unsorted(delta)
        self._unsorted[position] = result
        emitted = len(result.weight_array)
        budget.finish_operator(emitted, node.empty.arity)
        self._emit(position, emitted)

    def _prepare_unsorted(
        self, node: Node
    ) -> Callable[[Sequence[ZSet], StepContext], Result] | None:
        """Return how to prepare an aggregate whose rows have no order; None for other nodes."""
        operator = node.operator
        rows = self._unsorted.get(node.inputs[0]) if node.inputs else None
        if rows is None:
            return None
        assert isinstance(operator, AggregatingOperator)
        return lambda _, context: operator.prepare([rows], context)

    def _delta_of(self, position: int, node: Node, context: StepContext) -> ZSet:
        """Return the delta of a node; stage the change of its state, and of its shared trace."""
        if node.is_nested:
            return node.empty  # it runs in the iterations of its nested circuit
        backfill = self._backfill
        if backfill is not None and position not in backfill.needed:
            return node.empty
        if position in self._stage_results:
            return self._stage_delta(position, node, context)
        if position in self._stage_rows:
            return node.empty  # only operators of the same stage read its rows
        known = None if backfill is None else backfill.contents.get(position)
        if node.operator is not None and known is None:
            return self._operator_delta(position, node, context)
        if known is not None:
            delta = known
        elif isinstance(node.plan, Fixpoint):
            delta = self._recursion_delta(position)
        else:
            delta = self._input_delta(position, node)
        is_kept = backfill is not None and position in backfill.skipped_traces
        if node.is_arranged and len(delta) and not is_kept:
            self._shared.add(node.name, delta)
        return delta

    def _operator_delta(self, position: int, node: Node, context: StepContext) -> ZSet:
        deltas, bounded_step = self._deltas, self._bounded_step
        reads_time = node.plan.reads_now or node.plan.reads_watermarks
        delta, staged = node.empty, None
        input_deltas = [deltas[i] for i in node.inputs]
        # A result changes only if an input changes, with two exceptions: the first step inserts
        # constants, which have no inputs; and some results depend on the time of the step. The rows
        # of an unsorted map are not in ``input_deltas``.
        prepare = self._prepare_unsorted(node) if self._unsorted else None
        if context.first or reads_time or prepare is not None or any(map(len, input_deltas)):
            if node.plan.reads_watermarks and bounded_step is not None:
                context = replace(context, closing=bounded_step.closing(position))
            delta, staged = prepare_node(position, node, input_deltas, context, prepare=prepare)
        if bounded_step is not None:
            staged = bounded_step.drop_operator_rows(position, staged)
        if staged is not None and isinstance(node.operator, Integrate):
            self._integrals[position] = staged
        elif staged is not None:
            self._changes[position] = staged
        return delta

    def _recursion_delta(self, position: int) -> ZSet:
        """Return the delta of one relation of a recursion; the first call runs the recursion."""
        graph = self._graph
        circuit = graph.nested_circuits[position]
        step = self._recursions.get(id(circuit))
        if step is None:
            step = self._recursions[id(circuit)] = circuit.prepare(
                graph.nodes,
                self._deltas,
                graph.relations,
                self._shared,
                self._context.budget,
                graph.clock,
            )
        return step.outputs[graph.relation_index(circuit, position)]

    def _input_delta(self, position: int, node: Node) -> ZSet:
        """Return the delta of an input after its options are applied."""
        name = node.name
        delta = self._inputs.get(name, node.empty)
        if isinstance(delta, EncodedRows):
            is_grouped = position in self._graph.schedule.grouped_inputs
            if not is_grouped or self._stage_grouped(node, delta):
                self._run_stage(position, node, delta)
                return node.empty
            delta = delta.zset
        checked_input = self._graph.checked_inputs.get(name)
        if checked_input is not None and (name in self._inputs or name in self._source_watermarks):
            checked = checked_input.prepare(
                delta if name in self._inputs else None,
                self._graph.watermarks.get(watermark_of(name)),
                self._source_watermarks.get(name),
            )
            delta = checked.delta
            if checked.published is not None:
                self._as_if_kept[position] = checked.published
            if checked.rejected:
                self._rejected[name] = checked.rejected
            if checked.watermark is not None and name in self._source_watermarks:
                self._watermarks[watermark_of(name)] = checked.watermark
        self._context.budget.add_input_rows(len(delta), delta.arity)
        return delta

    def _stage_grouped(self, node: Node, rows: EncodedRows) -> bool:
        """Stage the rows of an input, grouped by the first column; return False if they cannot be.

        The readers of the input need no order of its rows.
        """
        traces = self._graph.relations.traces.values()
        is_first = self._context.first and all(trace.is_empty for trace in traces)
        if not is_first or not rows.has_unit_weights or len(rows) < MIN_PAIRS:
            return False
        grouped = GroupedPairs.of(*rows.columns)
        if grouped is None:
            return False
        self._shared.add_deferred(node.name, grouped)
        return True

    def _run_stage(self, position: int, node: Node, rows: EncodedRows) -> None:
        """Run the operators over an input that take its rows in slices."""
        graph, budget = self._graph, self._context.budget
        budget.add_input_rows(len(rows), node.empty.arity)
        stage = graph.schedule.stages[node.name]
        unsorted_nodes = graph.schedule.unsorted_nodes
        result = run_stage(stage, graph.nodes, rows, budget, graph.clock, unsorted_nodes)
        budget.start_operator(position)  # the rows and bytes of the members no longer count
        self._stage_results.update(result.results)
        self._unsorted.update(result.unsorted)
        self._stage_rows.update({**result.rows, position: len(rows)})
        for member, seconds in result.seconds.items():
            self._seconds[member] += seconds
        self._seconds[position] -= sum(result.seconds.values())

    def _stage_delta(self, position: int, node: Node, context: StepContext) -> ZSet:
        """Return the delta of an operator that has taken its input in slices."""
        operator, result = node.operator, self._stage_results.pop(position)

        def prepare(_: Sequence[ZSet], context: StepContext) -> Result:
            if isinstance(operator, AggregatingOperator):
                return operator.prepare_partial(result, context)
            return result, None

        delta, staged = prepare_node(position, node, (), context, prepare=prepare)
        if self._bounded_step is not None:
            staged = self._bounded_step.drop_operator_rows(position, staged)
        if staged is not None:
            self._changes[position] = staged
        return delta

    def _publish_as_if_kept(self) -> None:
        """Replace the deltas by those that views publish: as if no row had expired."""
        graph = self._graph
        context = replace(self._context, shared=graph.relations.stage({}))
        publication = publish(
            graph.nodes, graph.retained, self._deltas, self._as_if_kept, context, graph.clock
        )
        self._deltas = list(publication.deltas)
        self._seconds = [a + b for a, b in zip(self._seconds, publication.seconds, strict=True)]
        for position, change in publication.integrals.items():
            self._integrals.pop(position, None)
            if change is not None:
                self._integrals[position] = change


def watermark_of(name: str) -> str:
    """Return the name under which the state stores the watermark of an input."""
    return f"input {name} watermark"
