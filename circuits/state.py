"""State: all that a circuit keeps, as runs and tables, out step by step and in again at once.

::

    state of a circuit  =  per trace and column order the runs whose sum it is
                           per table of codes its values, in the order of their codes
                           steps, marks of the inputs' rules, and how the joins are planned

    StateStep   what one step adds:  a run per changed arrangement, the new values of each table
    State       all of it, to go on from (`loaded`)

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

from circuits.codec_buffers import Bytes, Int64Array
from circuits.errors import SnapshotError, StaleStepError
from circuits.graph import Graph, GraphStep
from dbsp_wcoj.run import Run
from dbsp_wcoj.trace import ColumnOrder

__all__ = ["State", "StateStep", "Strings", "staged"]

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


def staged(step: GraphStep, stored: Mapping[str, int]) -> StateStep:
    """What a computed step adds to the state; see `circuits.step.CircuitStep.state`."""
    graph = step.graph
    names = graph.holdings.names
    changes = [change for prepared in step.prepared for change in prepared.changes]
    runs: dict[str, dict[ColumnOrder, Run]] = {}
    compacted: set[str] = set()
    for change in changes:
        name = names[id(change.trace)]
        runs[name] = change.runs
        if change.compact:
            compacted.add(name)
    return StateStep(
        steps=graph.steps + 1,
        runs=runs,
        orders={name: trace.orders for name, trace in graph.traces.items()},
        compacted=frozenset(compacted),
        tables=_added(graph, stored),
        marks=step.marks,
        plans=graph.plans,
        _graph=graph,
    )


def _added(graph: Graph, stored: Mapping[str, int]) -> dict[str, Strings]:
    """The values of the tables beyond the given lengths."""
    added = {}
    tables = graph.tables
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
