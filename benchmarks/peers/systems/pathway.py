"""Pathway: differential dataflow behind Python tables; each atom after the first is one join.

Its engine runs in a thread of this process. A step puts rows into its Python connector and commits
them. Its output is one table of the count and of a checksum of the edges, which changes in every
step even when the count does not; a step is done when a time is closed at which the checksum was
new. Rows are keyed by both ends, so a delete is exact.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources

_PRIME = 1_000_003
_Step = tuple[Edges, NDArray[np.int64]]


class _Maintainer:
    """The caller's side of the engine's thread."""

    def __init__(self, steps: queue.Queue[_Step | None]) -> None:
        self._steps = steps
        self._answers: queue.Queue[int | BaseException] = queue.Queue()
        self._count, self._marked = 0, False

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        self._steps.put((edges, weights))
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise RuntimeError("Pathway's engine failed") from answer
        return answer

    def changed(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if row["kind"] == "checksum":
            self._marked = True
        elif is_addition:
            self._count = row["value"]

    def closed(self, time: int) -> None:
        if self._marked:
            self._marked = False
            self._answers.put(self._count)

    def failed(self, failure: BaseException) -> None:
        self._answers.put(failure)


@contextmanager
def maintainer(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Maintainer]:
    os.environ["PATHWAY_THREADS"] = str(resources.threads)
    import pathway as pw

    class Edge(pw.Schema):  # type: ignore[misc]
        src: int = pw.column_definition(primary_key=True)
        dst: int = pw.column_definition(primary_key=True)

    steps: queue.Queue[_Step | None] = queue.Queue()

    class Subject(pw.io.python.ConnectorSubject):  # type: ignore[misc]
        def run(self) -> None:
            while (taken := steps.get()) is not None:
                for source, target, weight in zip(
                    *taken[0].tolist(), taken[1].tolist(), strict=True
                ):
                    if weight > 0:
                        self.next(src=source, dst=target)
                    else:
                        self.delete(src=source, dst=target)
                self.commit()

    table = pw.io.python.read(Subject(), schema=Edge, autocommit_duration_ms=None)
    one = _Maintainer(steps)
    checksum = table.reduce(value=pw.reducers.sum(table.src * _PRIME + table.dst))
    count = _count(pw, table, pattern)
    output = pw.Table.concat_reindex(
        count.select(kind="count", value=count.value),
        checksum.select(kind="checksum", value=checksum.value),
    )
    pw.io.subscribe(output, one.changed, on_time_end=one.closed)

    def engine() -> None:
        try:
            pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        except BaseException as failure:
            one.failed(failure)

    thread = threading.Thread(target=engine, daemon=True)
    thread.start()
    one.step(edges, np.ones(edges.shape[1], np.int64))
    yield one
    steps.put(None)
    thread.join(timeout=10)


def _count(pw: Any, table: Any, pattern: Pattern) -> Any:
    """The joins in the order of the atoms, and the count of their rows."""
    x, y = pattern.atoms[0]
    joined = table.select(**{x: table.src, y: table.dst})
    bound = [x, y]

    def compared(rows: Any, before: list[str]) -> Any:
        """With the comparisons whose second variable was bound just now."""
        for left, sign, other in pattern.comparisons:
            if {left, other} <= set(bound) and not {left, other} <= set(before):
                less = rows[left] < rows[other]
                rows = rows.filter(less if sign == "<" else rows[left] != rows[other])
        return rows

    joined = compared(joined, [])
    for atom in pattern.atoms[1:]:
        right = table.copy()
        columns = dict(zip(atom, (right.src, right.dst), strict=True))
        shared = [joined[name] == column for name, column in columns.items() if name in bound]
        fresh = {name: column for name, column in columns.items() if name not in bound}
        kept = {name: joined[name] for name in bound}
        before, bound = bound, [*bound, *fresh]
        joined = compared(joined.join(right, *shared).select(**kept, **fresh), before)
    return joined.reduce(value=pw.reducers.count())
