"""Circuit state: the state of a circuit, exported step by step and loaded at once.

A trace is a relation that operators keep: one arrangement (sorted copy) per column order, each of
them a list of runs (immutable sorted pieces). The state consists of::

    per trace and column order    the runs whose sum is the arrangement
    per dictionary                its values, with their codes
    once                          steps, watermarks of the inputs, and the plans of the joins

    StateStep   the change by one step: a run per changed arrangement, new values per dictionary
    State       the whole state, from which a circuit resumes (`load_state`, `replace_state`)

A store that appends the contents of every `StateStep` has the whole state; it may merge runs at any
time. The cost of writing a step is proportional to its delta. Loading uses the runs in place, in
memory-mapped files, without sorting or merging. It builds only the hash tables of the dictionaries,
and arrangements that were not stored, which another delta formula may need.

A store must handle two cases:

- Arrangements are created and dropped when joins are planned again (`StateStep.orders`,
  `StateStep.runs_before`).
- If weights are so large that a sum of some runs might leave int64, the arrangement consists of one
  run from then on (`StateStep.compacted`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from circuits.errors import SchemaError, SnapshotError, StaleStepError
from circuits.runtime.graph import Graph, GraphStep
from circuits.state.registry import is_row_ids
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj.errors import ArityError, ColumnTypeError
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.values.array_memory import PROCESS_MEMORY, ArrayMemory
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.values.interner import Interner, InternerArrays
from dbsp_wcoj.zset import MAX_INT64

__all__ = [
    "State",
    "StateStep",
    "find_different_parts",
    "load_codecs",
    "load_state",
    "replace_state",
    "step_state",
    "whole_state",
]


@dataclass(frozen=True)
class StateStep:
    """The change of the state by one step.

    Attributes:
        steps: The number of steps of the circuit, including this one.
        runs: The run of the delta, per changed trace and column order.
        orders: The column orders of the arrangements of every trace after the step.
        compacted: The traces whose weights are so large that their runs must be merged into one.
        dictionaries: The values of each dictionary beyond the stored length.
        watermarks: The watermarks of the inputs after the step.
        values_after_sweep: The number of values in all dictionaries after the last sweep
            (`circuits.state.dictionary_sweep`).
        plans: The plans of the joins, as lists, dicts, numbers and strings. It is the same object
            as in the previous step, unless a join was planned again.
    """

    steps: int
    runs: Mapping[str, Mapping[ColumnOrder, Run]]
    orders: Mapping[str, tuple[ColumnOrder, ...]]
    compacted: frozenset[str]
    dictionaries: Mapping[str, CodedStrings]
    watermarks: Mapping[str, int]
    plans: object
    values_after_sweep: int
    _graph: Graph = field(repr=False)

    def dictionary(self, name: str) -> InternerArrays:
        """Return all values of a dictionary, including those of the step; O(1)."""
        return self._graph.registry.dictionaries[name].share()

    def runs_before(self, name: str, order: ColumnOrder) -> tuple[Run, ...]:
        """Return the runs of an arrangement before the step, oldest first.

        Raises:
            StaleStepError: The step is already committed, or another state was loaded.
        """
        if self._graph.steps >= self.steps:
            raise StaleStepError(
                f"step {self.steps} is committed, or another state was loaded, so the runs before "
                "it no longer exist: read them before the commit"
            )
        return self._graph.traces[name].arrange(order).spine.runs


@dataclass(frozen=True)
class State:
    """The state of a circuit after ``steps`` steps.

    Attributes:
        steps: The number of steps that led to the state.
        traces: The runs, oldest first, per trace and column order.
        dictionaries: The values of each dictionary, in parts, in the order of their codes. The
            parts are read several times.
        watermarks: As `StateStep.watermarks`.
        plans: As `StateStep.plans`; None if the joins are to be planned from statistics.
        lengths: The number of codes of each dictionary, including removed ones; by default, up to
            the last code of its values.
        values_after_sweep: As `StateStep.values_after_sweep`.
        memories: The memory for the values of each dictionary, by default memory of the process.
    """

    steps: int
    traces: Mapping[str, Mapping[ColumnOrder, Sequence[Run]]]
    dictionaries: Mapping[str, Iterable[CodedStrings]]
    watermarks: Mapping[str, int] = field(default_factory=dict)
    plans: object = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    values_after_sweep: int = 0
    memories: Mapping[str, ArrayMemory] = field(default_factory=dict)

    @staticmethod
    def empty() -> State:
        """Return the state before the first step."""
        return State(0, {}, {})


def step_state(step: GraphStep, stored_lengths: Mapping[str, int]) -> StateStep:
    """Return the state that a computed step adds; see `CircuitStep.state`.

    Args:
        step: The step, not yet committed.
        stored_lengths: The number of values that the store has of each dictionary; 0 by default.
    """
    graph = step.graph
    names = graph.registry.names
    runs: dict[str, dict[ColumnOrder, Run]] = {}
    compacted: set[str] = set()
    for change in step.changes:
        name = names[id(change.trace)]
        # An arrangement may have been created after the step was prepared.
        runs[name] = {order: change.run(order) for order in change.trace.orders}
        if change.must_compact:
            compacted.add(name)
    return replace(
        whole_state(graph, stored_lengths),
        runs=runs,
        compacted=frozenset(compacted),
        watermarks=step.watermarks,
    )


def whole_state(
    graph: Graph, stored_lengths: Mapping[str, int] = MappingProxyType({})
) -> StateStep:
    """Return the whole state of a graph, in the form of a further step whose delta is empty.

    `StateStep.runs_before` returns all runs.

    Args:
        graph: The graph.
        stored_lengths: The number of values that the store has of each dictionary and that are left
            out; 0 by default.
    """
    return StateStep(
        steps=graph.steps + 1,
        runs={},
        orders={name: trace.orders for name, trace in graph.traces.items()},
        compacted=frozenset(),
        dictionaries=_new_values(graph, stored_lengths),
        watermarks=graph.watermarks,
        plans=graph.registry.plans,
        values_after_sweep=graph.values_after_sweep,
        _graph=graph,
    )


def load_codecs(state: State) -> Codecs:
    """Return codecs with the dictionaries of a state.

    Raises:
        SnapshotError: A dictionary belongs to no codec, or has values that it cannot contain.
    """
    codecs = Codecs()
    for name in state.dictionaries:
        if not is_row_ids(name):  # row ids belong to an operator, and `load_state` loads them
            try:
                _fill(codecs.dictionary(name), name, state)
            except SchemaError as error:
                raise SnapshotError(str(error)) from error
    return codecs


def load_state(graph: Graph, state: State) -> None:
    """Load a state into a new graph, which has the codecs of `load_codecs`.

    Raises:
        SnapshotError: The graph has other traces or dictionaries, because it has other views or
            another version of this library compiled the plans.
    """
    if state.traces or state.steps:
        _check_names(graph, state)
        for name in state.dictionaries:
            if is_row_ids(name):
                _fill(graph.registry.dictionaries[name], name, state)
        for name, arrangements in state.traces.items():
            _check_runs(graph, name, arrangements)
            graph.traces[name].load(arrangements)
        graph.registry.resume(state.plans)
    _set_counters(graph, state)


def replace_state(graph: Graph, state: State, codecs: Codecs) -> Callable[[], Graph] | None:
    """Return a function that replaces the state of a graph, and keeps its operators.

    The function returns the graph with the state, which has the operators and the codecs of the old
    graph. It does not check anything: if it fails, the state of the old graph is undefined.

    Args:
        graph: The graph. The operators contain no codes of constants: these would be codes of the
            dictionaries before the load (`circuits.state.current_state.CurrentState`).
        state: The new state.
        codecs: The result of `load_codecs`, which is used up.

    Returns:
        The function; None if the state needs another graph, because it lacks a part, or because its
        joins are planned in another way. Nothing has changed then.

    Raises:
        SnapshotError: A dictionary or a run does not fit; nothing has changed.

    Complexity:
        O(runs + bytes of the row ids).
    """
    registry = graph.registry
    if (
        not all(state.traces.get(name) for name, trace in graph.traces.items() if trace.orders)
        or find_different_parts(graph, state.traces.keys(), state.dictionaries.keys())
        or not registry.has_orders_of(state.plans)
    ):
        return None
    dictionaries = dict(codecs.interners)
    for name, dictionary in registry.dictionaries.items():
        if is_row_ids(name):
            dictionaries[name] = dictionary.new_empty()
            if name in state.dictionaries:
                _fill(dictionaries[name], name, state)
    for name, arrangements in state.traces.items():
        _check_runs(graph, name, arrangements)

    def replace_all() -> Graph:
        graph.restore_traces()
        for name, arrangements in state.traces.items():
            graph.traces[name].load(arrangements)
        for name in codecs.interners:
            graph.codecs.dictionary(name)  # which may be missing
        for name, dictionary in registry.dictionaries.items():
            new = dictionaries.get(name)
            dictionary.replace_strings(dictionary.new_empty() if new is None else new)
        if graph.state_bounds is not None:
            graph.state_bounds.given = {}
        registry.resume(state.plans)
        # Another object, as for a graph that is built again.
        loaded = replace(graph, rows=(), seconds=(), drop_limits={})
        _set_counters(loaded, state)
        graph.steps = MAX_INT64  # its prepared steps can no longer read the runs before them
        return loaded

    return replace_all


def find_different_parts(
    graph: Graph, traces: Collection[str], dictionaries: Collection[str]
) -> set[str]:
    """Return the traces and row ids that only one of a graph and a stored state has.

    Row ids that only the graph has are empty, so they are left out.

    Args:
        graph: The graph.
        traces: The names of the stored traces.
        dictionaries: The names of the stored dictionaries.
    """
    row_ids = {name for name in dictionaries if is_row_ids(name)}
    # A trace without arrangements has no state, so the stored state may lack it.
    needed = {name for name, trace in graph.traces.items() if trace.orders}
    surplus_traces = set(traces) - graph.traces.keys()
    surplus_row_ids = row_ids - graph.registry.dictionaries.keys()
    return (needed - set(traces)) | surplus_traces | surplus_row_ids


def _check_names(graph: Graph, state: State) -> None:
    different = find_different_parts(graph, state.traces.keys(), state.dictionaries.keys())
    if different:
        raise SnapshotError(
            f"the state and the circuit differ in {', '.join(sorted(different))}: load it with the "
            "views and the version that wrote it"
        )


def _check_runs(graph: Graph, name: str, arrangements: Mapping[ColumnOrder, Sequence[Run]]) -> None:
    """Check that the runs of a trace can be loaded."""
    try:
        graph.traces[name].check_loadable(arrangements)
    except ArityError as error:
        raise SnapshotError(f"trace {name!r}: {error}") from error


def _set_counters(graph: Graph, state: State) -> None:
    """Set the parts of a state that are neither traces nor dictionaries."""
    graph.steps = state.steps
    graph.values_after_sweep = state.values_after_sweep
    graph.watermarks = dict(state.watermarks)


def _fill(dictionary: Interner, name: str, state: State) -> None:
    """Load the strings of a dictionary, with their codes."""
    dictionary.move(state.memories.get(name, PROCESS_MEMORY))
    try:
        dictionary.load(state.dictionaries[name], state.lengths.get(name, 0))
    except ColumnTypeError as error:
        raise SnapshotError(f"dictionary {name!r}: {error}") from error


def _new_values(graph: Graph, stored_lengths: Mapping[str, int]) -> dict[str, CodedStrings]:
    """Return the values of the dictionaries beyond the stored lengths."""
    new_values = {}
    dictionaries = graph.registry.dictionaries
    for name, length in stored_lengths.items():
        size = len(dictionaries[name]) if name in dictionaries else 0
        if not 0 <= length <= size:
            raise SnapshotError(
                f"stored length {length} of dictionary {name!r} must be from 0 to {size}, its "
                "number of values: give a length that it had at an earlier step"
            )
    for name, dictionary in dictionaries.items():
        length = stored_lengths.get(name, 0)
        if length < len(dictionary):
            new_values[name] = dictionary.arena(length)
    return new_values
