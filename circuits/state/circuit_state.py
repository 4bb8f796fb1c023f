"""State: all that a circuit keeps, as runs and tables, out step by step and in again at once.

::

    state of a circuit  =  per trace and column order the runs whose sum it is
                           per table of codes its values, in the order of their codes
                           steps, marks of the inputs' rules, and how the joins are planned

    StateStep   what one step adds:  a run per changed arrangement, the new values of each table
    State       all of it, to go on from (`load_state`)

A store that appends what each `StateStep` has, and merges runs as it likes, has the state: writing
a step costs what its delta is long, and loading takes the runs as they lie in mapped files. Nothing
is sorted, merged or built, but the hash tables of the codes; and arrangements that were not stored,
which another formula may need.

What the store has to watch: arrangements come and go as joins are planned anew (`StateStep.orders`,
`StateStep.whole`), and where weights are so large that a sum of some runs might leave int64, the
runs are one from then on (`StateStep.compacted`).
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

__all__ = ["State", "StateStep", "Strings", "codecs_of", "load_state", "step_state", "whole_state"]

#: Byte strings as Arrow lays them out: n + 1 offsets from 0 on, and the bytes.
Strings = tuple[Int64Array, Bytes]


@dataclass(frozen=True)
class StateStep:
    """What a step adds to the state.

    Attributes:
        steps: How many steps the circuit has made after it.
        runs: Per trace that changes, and column order, the run of the delta.
        orders: The arrangements of every trace after the step.
        compacted: Traces with weights so large that their runs must be summed into one.
        tables: What was added to each table of codes beyond the lengths given.
        marks: Numbers that the rules of the inputs keep, after the step.
        plans: How the joins are planned, of plain lists, dicts, numbers and texts; the same object
            as in the step before unless a join was planned anew.
    """

    steps: int
    runs: Mapping[str, Mapping[ColumnOrder, Run]]
    orders: Mapping[str, tuple[ColumnOrder, ...]]
    compacted: frozenset[str]
    tables: Mapping[str, Strings]
    marks: Mapping[str, int]
    plans: object
    _graph: Graph = field(repr=False)

    def whole(self, name: str, order: ColumnOrder) -> tuple[Run, ...]:
        """The runs of an arrangement before the step, oldest first.

        Raises:
            StaleStepError: The step is the state by now.
        """
        if self._graph.steps >= self.steps:
            raise StaleStepError(
                f"step {self.steps} is committed, so the runs before it are gone: ask before that"
            )
        return self._graph.traces[name].arrange(order).spine.runs


@dataclass(frozen=True)
class State:
    """The state of a circuit after ``steps`` steps.

    Attributes:
        steps: How many steps made it.
        traces: Per trace and column order the runs, oldest first.
        tables: Per table of codes its values in pieces, oldest first.
        marks: As `StateStep.marks`.
        plans: As `StateStep.plans`; None to plan by what the relations are like.
    """

    steps: int
    traces: Mapping[str, Mapping[ColumnOrder, Sequence[Run]]]
    tables: Mapping[str, Sequence[Strings]]
    marks: Mapping[str, int] = field(default_factory=dict)
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
        # An arrangement may have come after the step was prepared.
        runs[name] = {order: change.run(order) for order in change.trace.orders}
        if change.must_compact:
            compacted.add(name)
    return StateStep(
        steps=graph.steps + 1,
        runs=runs,
        orders={name: trace.orders for name, trace in graph.traces.items()},
        compacted=frozenset(compacted),
        tables=_added(graph, stored),
        marks=step.marks,
        plans=graph.registry.plans,
        _graph=graph,
    )


def whole_state(graph: Graph) -> StateStep:
    """All that a graph keeps, as what one more step adds to nothing."""
    return StateStep(
        steps=graph.steps + 1,
        runs={},
        orders={name: trace.orders for name, trace in graph.traces.items()},
        compacted=frozenset(),
        tables=_added(graph, {}),
        marks=graph.marks,
        plans=graph.registry.plans,
        _graph=graph,
    )


def codecs_of(state: State) -> Codecs:
    """Codecs with the tables of a state.

    Raises:
        SnapshotError: A table is none of codecs, or holds what it cannot hold.
    """
    codecs = Codecs()
    for name, pieces in state.tables.items():
        if not is_row_ids(name):
            try:
                _append(codecs.table(name), name, pieces)
            except SchemaError as error:
                raise SnapshotError(str(error)) from error
    return codecs


def load_state(graph: Graph, state: State) -> None:
    """Put a state into a new graph, which has the codecs of `codecs_of`.

    Raises:
        SnapshotError: The graph keeps other things: it is of other views, or another version of
            this library lowered the plans.
    """
    if state.traces or state.steps:
        _check_names(graph, state)
        for name, pieces in state.tables.items():
            if is_row_ids(name):
                _append(graph.registry.tables[name], name, pieces)
        for name, arrangements in state.traces.items():
            try:
                graph.traces[name].load(arrangements)
            except ArityError as error:
                raise SnapshotError(f"trace {name!r}: {error}") from error
        graph.registry.resume(state.plans)
    graph.steps = state.steps
    graph.marks = dict(state.marks)


def _check_names(graph: Graph, state: State) -> None:
    row_ids = {name for name in state.tables if is_row_ids(name)}
    # A trace without arrangements keeps nothing, so nothing may be stored of it.
    needed = {name for name, trace in graph.traces.items() if trace.orders}
    other = needed - state.traces.keys() | state.traces.keys() - graph.traces.keys()
    other |= row_ids - graph.registry.tables.keys()
    if other:
        raise SnapshotError(
            f"the state and the circuit differ in {', '.join(sorted(other))}: load it with the "
            "views and the version that wrote it"
        )


def _append(table: Interner, name: str, pieces: Sequence[Strings]) -> None:
    """Give codes to the strings of all pieces, in one call."""
    ends = np.cumsum([0, *[int(offsets[-1]) for offsets, _ in pieces]])
    offsets = [piece[1:] + end for (piece, _), end in zip(pieces, ends.tolist(), strict=False)]
    data = [data[: int(offsets[-1])] for offsets, data in pieces]
    if not data:
        return
    one = len(pieces) == 1
    try:
        table.append(
            pieces[0][0] if one else np.concatenate([np.zeros(1, np.int64), *offsets]),
            data[0] if one else np.concatenate(data),
        )
    except ColumnTypeError as error:
        raise SnapshotError(f"table {name!r}: {error}") from error


def _added(graph: Graph, stored: Mapping[str, int]) -> dict[str, Strings]:
    """The values of the tables beyond the given lengths."""
    added = {}
    tables = graph.registry.tables
    for name, length in stored.items():
        size = len(tables[name]) if name in tables else 0
        if not 0 <= length <= size:
            raise SnapshotError(
                f"table {name!r} has {size} values, not {length}: give lengths that it had"
            )
    for name, table in tables.items():
        length = stored.get(name, 0)
        if length < len(table):
            added[name] = table.arena(length)
    return added
