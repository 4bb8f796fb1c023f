"""Circuit state: all state of a circuit, exported step by step and imported at once.

::

    state of a circuit  =  per trace and column order the runs whose sum is the arrangement
                           per dictionary its values, in the order of their codes
                           steps, watermarks of the inputs, and the plans of the joins

    StateStep   the change by one step: a run per changed arrangement, new values per dictionary
    State       the whole state, from which a circuit resumes (`load_state`)

A store that appends the contents of each `StateStep`, and merges runs at any time, has the state.
The cost of writing a step is proportional to its delta. Loading uses the runs in place, in
memory-mapped files. It sorts and merges nothing. It builds only the hash tables of the
dictionaries, and arrangements that were not stored, which another formula may need.

A store must handle two cases:

- Arrangements are created and dropped when joins are planned again (`StateStep.orders`,
  `StateStep.runs_before`).
- If weights are so large that a sum of some runs might leave int64, the arrangement consists of one
  run from then on (`StateStep.compacted`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from circuits.errors import SchemaError, SnapshotError, StaleStepError
from circuits.runtime.graph import Graph, GraphStep
from circuits.state.registry import is_row_ids
from circuits.types.codecs.arrow_buffers import Bytes, Int64Array
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj.errors import ArityError, ColumnTypeError
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.values.interner import Interner

__all__ = [
    "State",
    "StateStep",
    "Strings",
    "load_codecs",
    "load_state",
    "step_state",
    "whole_state",
]

#: Byte strings in Arrow's layout: n + 1 offsets, the first of which is 0, and the bytes.
Strings = tuple[Int64Array, Bytes]


@dataclass(frozen=True)
class StateStep:
    """The change of the state by one step.

    Attributes:
        steps: The number of steps of the circuit, including this one.
        runs: The run of the delta, per changed trace and column order.
        orders: The column orders of the arrangements of every trace after the step.
        compacted: The traces with weights so large that their runs must be summed into one.
        dictionaries: The values of each dictionary beyond the stored length.
        watermarks: The watermarks of the inputs after the step.
        plans: The plans of the joins, made of lists, dicts, numbers and strings; the same object as
            in the previous step unless a join was planned again.
    """

    steps: int
    runs: Mapping[str, Mapping[ColumnOrder, Run]]
    orders: Mapping[str, tuple[ColumnOrder, ...]]
    compacted: frozenset[str]
    dictionaries: Mapping[str, Strings]
    watermarks: Mapping[str, int]
    plans: object
    _graph: Graph = field(repr=False)

    def runs_before(self, name: str, order: ColumnOrder) -> tuple[Run, ...]:
        """The runs of an arrangement before the step, oldest first.

        Raises:
            StaleStepError: The step is already committed.
        """
        if self._graph.steps >= self.steps:
            raise StaleStepError(
                f"step {self.steps} is committed, so the runs before it no longer exist: read "
                "them before the commit"
            )
        return self._graph.traces[name].arrange(order).spine.runs


@dataclass(frozen=True)
class State:
    """The state of a circuit after ``steps`` steps.

    Attributes:
        steps: The number of steps that led to the state.
        traces: The runs, oldest first, per trace and column order.
        dictionaries: The values of each dictionary, in parts, oldest first.
        watermarks: As `StateStep.watermarks`.
        plans: As `StateStep.plans`; None to plan by statistics of the relations.
    """

    steps: int
    traces: Mapping[str, Mapping[ColumnOrder, Sequence[Run]]]
    dictionaries: Mapping[str, Sequence[Strings]]
    watermarks: Mapping[str, int] = field(default_factory=dict)
    plans: object = None

    @staticmethod
    def empty() -> State:
        """The state before the first step."""
        return State(0, {}, {})


def step_state(step: GraphStep, stored: Mapping[str, int]) -> StateStep:
    """The state that a computed step adds; see `CircuitStep.state`."""
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
    return StateStep(
        steps=graph.steps + 1,
        runs=runs,
        orders={name: trace.orders for name, trace in graph.traces.items()},
        compacted=frozenset(compacted),
        dictionaries=_new_values(graph, stored),
        watermarks=step.watermarks,
        plans=graph.registry.plans,
        _graph=graph,
    )


def whole_state(graph: Graph) -> StateStep:
    """The whole state of a graph, as the change by one more step of an empty state."""
    return StateStep(
        steps=graph.steps + 1,
        runs={},
        orders={name: trace.orders for name, trace in graph.traces.items()},
        compacted=frozenset(),
        dictionaries=_new_values(graph, {}),
        watermarks=graph.watermarks,
        plans=graph.registry.plans,
        _graph=graph,
    )


def load_codecs(state: State) -> Codecs:
    """Codecs with the dictionaries of a state.

    Raises:
        SnapshotError: A dictionary belongs to no codec, or has values that it cannot contain.
    """
    codecs = Codecs()
    for name, parts in state.dictionaries.items():
        if not is_row_ids(name):
            try:
                _append(codecs.dictionary(name), name, parts)
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
        for name, parts in state.dictionaries.items():
            if is_row_ids(name):
                _append(graph.registry.dictionaries[name], name, parts)
        for name, arrangements in state.traces.items():
            try:
                graph.traces[name].load(arrangements)
            except ArityError as error:
                raise SnapshotError(f"trace {name!r}: {error}") from error
        graph.registry.resume(state.plans)
    graph.steps = state.steps
    graph.watermarks = dict(state.watermarks)


def _check_names(graph: Graph, state: State) -> None:
    row_ids = {name for name in state.dictionaries if is_row_ids(name)}
    # A trace without arrangements has no state, so the stored state may lack it.
    needed = {name for name, trace in graph.traces.items() if trace.orders}
    other = needed - state.traces.keys() | state.traces.keys() - graph.traces.keys()
    other |= row_ids - graph.registry.dictionaries.keys()
    if other:
        raise SnapshotError(
            f"the state and the circuit differ in {', '.join(sorted(other))}: load it with the "
            "views and the version that wrote it"
        )


def _append(table: Interner, name: str, parts: Sequence[Strings]) -> None:
    """Assign codes to the strings of all parts, in one call."""
    ends = np.cumsum([0, *[int(offsets[-1]) for offsets, _ in parts]])
    offsets = [piece[1:] + end for (piece, _), end in zip(parts, ends.tolist(), strict=False)]
    data = [data[: int(offsets[-1])] for offsets, data in parts]
    if not data:
        return
    one = len(parts) == 1
    try:
        table.append(
            parts[0][0] if one else np.concatenate([np.zeros(1, np.int64), *offsets]),
            data[0] if one else np.concatenate(data),
        )
    except ColumnTypeError as error:
        raise SnapshotError(f"dictionary {name!r}: {error}") from error


def _new_values(graph: Graph, stored: Mapping[str, int]) -> dict[str, Strings]:
    """The values of the dictionaries beyond the stored lengths."""
    new_values = {}
    dictionaries = graph.registry.dictionaries
    for name, length in stored.items():
        size = len(dictionaries[name]) if name in dictionaries else 0
        if not 0 <= length <= size:
            raise SnapshotError(
                f"dictionary {name!r} has {size} values, so {length} cannot be a stored length: "
                "give a length that it had at an earlier step"
            )
    for name, table in dictionaries.items():
        length = stored.get(name, 0)
        if length < len(table):
            new_values[name] = table.arena(length)
    return new_values
