"""Deferred rows: the delta of an empty trace, which is sorted into runs when somebody reads it.

A load that nobody changes afterwards never needs the state that only changes read. So a step can
stage deferred rows, and its commit leaves them as they are (`dbsp_wcoj.storage.trace.Trace.defer`).
The first reader sorts them. Versions of the trace share the rows, and so the runs.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import ZSet, consolidated_rows

__all__ = ["DeferredRows"]


class DeferredRows:
    """Rows with their weights, and a function that computes them; any thread may read.

    Args:
        rows: The number of rows, at least 1.
        compute: Returns the rows: as a Z-set, or as a run in the order of their columns. If it
            fails, the next reader calls it again.

    >>> rows = DeferredRows(1, lambda: ZSet.from_rows([(1, 2)]))
    >>> rows.run((1, 0)).read()[0].tolist()
    [[2], [1]]
    """

    __slots__ = ("_compute", "_lock", "_runs", "_zset", "rows")

    def __init__(self, rows: int, compute: Callable[[], ZSet | Run]) -> None:
        self.rows = rows
        self._lock = Lock()
        self._compute: Callable[[], ZSet | Run] | None = compute
        # None before they are computed, and as soon as there is a run.
        self._zset: ZSet | None = None
        # By column order.
        self._runs: dict[tuple[int, ...], Run] = {}

    def run(self, order: tuple[int, ...]) -> Run:
        """Return the run of the rows in a column order.

        Complexity:
            O(n log n) for the first call in each order.
        """
        with self._lock:
            if self._compute is not None:
                computed = self._compute()
                if isinstance(computed, ZSet):
                    self._zset = computed
                else:
                    self._runs[tuple(range(computed.arity))] = computed
                self._compute = None
            run = self._runs.get(order)
            if run is None:
                rows = self._zset if self._zset is not None else self._read_run()
                run = self._runs[order] = Run.of(rows, np.array(order, np.int64))
                self._zset = None
            return run

    def _read_run(self) -> ZSet:
        """Return the rows of a run that has been built."""
        order, run = next(iter(self._runs.items()))
        columns, weights = run.read()
        if order == tuple(range(len(order))):
            return ZSet(columns, weights)
        rows = np.empty_like(columns)
        rows[list(order)] = columns
        return consolidated_rows(rows, weights)
