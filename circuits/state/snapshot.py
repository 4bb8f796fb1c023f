"""Snapshot: all state of a circuit as one value, to go back to or to carry elsewhere.

It holds the rows of every trace, the tables of codes, and a fingerprint of the views and inputs
that they belong to. How the joins are made (formula, arrangements, threads) is not part of it: the
same state serves all. So equal states have equal snapshots, however they came to be. Going back
builds the arrangements again; `circuits.state.circuit_state` is for state that is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from circuits.errors import SnapshotError
from circuits.runtime.circuit_version import CircuitVersion
from circuits.state.circuit_state import State, Strings
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import build_run
from dbsp_wcoj.zset import Int64Array

__all__ = ["Snapshot", "open_snapshot", "take_snapshot"]

FORMAT: Final = 4


@dataclass(frozen=True)
class Snapshot:
    """The state of a circuit after ``steps`` steps.

    Attributes:
        format: The version of this layout.
        fingerprint: What the state belongs to (`circuits.circuit_spec`).
        steps: How many steps made it.
        traces: Rows, of shape ``(columns, n)``, and weights of each trace.
        tables: The values of each table of codes that has any, in the order of their codes.
        marks: The numbers that the rules of the inputs keep.
    """

    format: int
    fingerprint: str
    steps: int
    traces: Mapping[str, tuple[Int64Array, Int64Array]]
    tables: Mapping[str, Strings]
    marks: Mapping[str, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The size of the rows, weights and values."""
        rows = sum(rows.nbytes + weights.nbytes for rows, weights in self.traces.values())
        return rows + sum(offsets.nbytes + data.nbytes for offsets, data in self.tables.values())

    def state(self) -> State:
        """The same state, to be loaded: one run per trace."""
        traces = {}
        for name, (rows, weights) in self.traces.items():
            order = tuple(range(len(rows)))
            some = len(weights) > 0
            traces[name] = {order: [build_run(ZSet(rows, weights), order)]} if some else {}
        tables = {name: [strings] for name, strings in self.tables.items()}
        return State(self.steps, traces, tables, self.marks)


def take_snapshot(state: CircuitVersion, belongs_to: str) -> Snapshot:
    """The snapshot of a version."""
    traces = {}
    for name in state.traces:
        trace = state.trace(name)
        zset = ZSet.empty(trace.arity) if trace.is_empty else trace.to_zset()
        traces[name] = (zset.row_array, zset.weight_array)
    return Snapshot(FORMAT, belongs_to, state.steps, traces, state.tables(), dict(state.marks))


def open_snapshot(snapshot: Snapshot, wanted: str) -> State:
    """The state of a snapshot, once it is known to fit.

    Raises:
        SnapshotError: It is of another format, or of other views or inputs.
    """
    if not isinstance(snapshot, Snapshot):
        raise SnapshotError(
            f"{type(snapshot).__name__} is no snapshot: give what snapshot() returned, unpickled"
        )
    if snapshot.format != FORMAT:
        raise SnapshotError(
            f"the snapshot has format {snapshot.format}, this version reads {FORMAT}: "
            "use the version that wrote it"
        )
    if snapshot.fingerprint != wanted:
        raise SnapshotError(
            f"the snapshot belongs to views with fingerprint {snapshot.fingerprint}, these have "
            f"{wanted}: compile the text and schemas that it was taken with"
        )
    return snapshot.state()
