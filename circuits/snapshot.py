"""Snapshot: all state of a circuit as one value, to go back to or to carry elsewhere.

It holds the rows of every trace, the tables of codes and of payloads, and a fingerprint of the
views and inputs that they belong to. How the joins are made (formula, arrangements, threads) is not
part of it: the same state serves all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.codec import Codecs
from circuits.errors import SnapshotError
from circuits.graph import Graph
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array

__all__ = ["Snapshot", "restored", "taken"]

FORMAT: Final = 3


@dataclass(frozen=True)
class Snapshot:
    """The state of a circuit after ``steps`` steps.

    Attributes:
        format: The version of this layout.
        fingerprint: What the state belongs to (`circuits.definition`).
        steps: How many steps made it.
        traces: Rows, of shape ``(columns, n)``, and weights of each trace.
        tables: The values of each table of codes, in the order of their codes.
        payloads: The packed columns of each table of payloads, of shape ``(columns, n)``.
        marks: The numbers that the rules of the inputs keep.
    """

    format: int
    fingerprint: str
    steps: int
    traces: Mapping[str, tuple[Int64Array, Int64Array]]
    tables: Mapping[str, pa.Array]
    payloads: Mapping[str, Int64Array]
    marks: Mapping[str, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The size of the rows, weights and values."""
        rows = sum(rows.nbytes + weights.nbytes for rows, weights in self.traces.values())
        tables = sum(int(table.nbytes) for table in self.tables.values())
        return rows + tables + sum(payload.nbytes for payload in self.payloads.values())

    def fill(self, graph: Graph) -> None:
        """Put the state into a new graph of the same plans.

        Raises:
            SnapshotError: The graph keeps other things: another version lowered the plans.
        """
        traces, tables = graph.traces, graph.holdings.payloads
        if traces.keys() != self.traces.keys() or tables.keys() != self.payloads.keys():
            other = traces.keys() ^ self.traces.keys() | tables.keys() ^ self.payloads.keys()
            raise SnapshotError(
                f"the snapshot and the circuit differ in {', '.join(sorted(other))}: restore it "
                "with the version that wrote it"
            )
        for name, (rows, weights) in self.traces.items():
            if len(weights):
                traces[name].update(ZSet(rows, weights))
        for name, columns in self.payloads.items():
            if columns.shape[1]:
                tables[name].intern_rows(columns)
        graph.steps = self.steps
        graph.marks = dict(self.marks)


def taken(graph: Graph, belongs_to: str) -> Snapshot:
    """The state of a graph."""
    traces = {}
    for name, trace in graph.traces.items():
        zset = ZSet.empty(trace.arity) if trace.is_empty else trace.to_zset()
        traces[name] = (zset._rows, zset._weights)
    payloads = {
        name: table.rows(np.arange(len(table))) if len(table) else np.empty((0, 0), np.int64)
        for name, table in graph.holdings.payloads.items()
    }
    tables = dict(graph.codecs.tables())
    marks = dict(graph.marks)
    return Snapshot(FORMAT, belongs_to, graph.steps, traces, tables, payloads, marks)


def restored(snapshot: Snapshot, wanted: str) -> Codecs:
    """The codes of a snapshot, once it is known to fit.

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
    codecs = Codecs()
    codecs.append(dict(snapshot.tables))
    return codecs
