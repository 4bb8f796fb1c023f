"""A deferred trace: the newest rows are in an unsorted log until somebody reads the trace.

::

    append(delta)     log: copy the rows, no sort, no merge
    read()            trace += sum of the log

It is for a relation that changes in each step and is seldom read. A step then costs one copy of its
rows. When the log is full, its sum is added to the trace: one sort for many steps. The trace merges
such a run late (`dbsp_wcoj.storage.spine`), because nobody looks up its rows. The log has room
for one row per `ROWS_PER_LOG_ROW` rows of the trace, and for at least `MIN_LOG_ROWS`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np

from dbsp_wcoj.kernels.storage import row_log
from dbsp_wcoj.storage.trace import Trace
from dbsp_wcoj.zset import MAX_INT64, Int64Array, ZSet, consolidated_rows

__all__ = ["DeferredTrace"]

MIN_LOG_ROWS: Final = 4096
ROWS_PER_LOG_ROW: Final = 16


class DeferredTrace:
    """A trace with a log.

    Attributes:
        log_address: The address of the words that describe the log to the kernels
            (`dbsp_wcoj.kernels.storage.row_log`); it never changes.

    >>> trace = DeferredTrace(Trace(2))
    >>> trace.append(ZSet.from_rows([(1, 2)]), 1)
    >>> trace.append(ZSet.from_rows([(1, 2), (3, 4)]), 1)
    >>> trace.logged_rows, trace.read().to_zset()
    (3, ZSet({(1, 2): 2, (3, 4): 1}))
    """

    __slots__ = ("_log", "_trace", "_words", "log_address")

    def __init__(self, trace: Trace) -> None:
        """Defer changes of a trace that has at least one arrangement."""
        self._trace = trace
        # The columns and the weights of the logged rows.
        self._log: Int64Array = np.empty((trace.arity + 1, 0), np.int64)
        # The kernels read and write these words by their address; this reference keeps them alive.
        self._words: Int64Array = np.zeros(row_log.LOG_WORDS, np.int64)
        self.log_address: int = self._words.__array_interface__["data"][0]
        self._start_log()

    @property
    def logged_rows(self) -> int:
        """The number of rows of the log; a row that was logged twice counts twice."""
        return int(self._words[row_log.LOG_ROWS])

    @property
    def rows(self) -> int:
        """An upper bound of the number of rows; a row counts once per run and per log entry."""
        return self._trace.rows + self.logged_rows

    @property
    def log_bytes(self) -> int:
        """Bytes of the log."""
        return self._log.nbytes

    @property
    def unread_trace(self) -> Trace:
        """The trace without the rows of the log."""
        return self._trace

    def check(self, delta: ZSet, largest: int) -> None:
        """Check that a delta keeps every weight within int64.

        Args:
            delta: At least one row.
            largest: Its largest absolute weight.

        Raises:
            WeightOverflowError: The weight of a row would leave int64.
            DbspWcojError: An earlier commit has failed.
        """
        self._trace.check_committed()
        if self._bound + largest > MAX_INT64:
            self.read().prepare(delta)

    def append(self, delta: ZSet, largest: int) -> None:
        """Add a delta that has passed `check`; the arguments are the same.

        Raises:
            DbspWcojError: An earlier commit has failed.

        Complexity:
            O(rows of the delta); and amortised O(log n) row copies per row and arrangement.
        """
        self._trace.check_committed()
        count = len(delta.weight_array)
        words = self._words
        start = self.logged_rows
        if start + count > self._log.shape[1] or self._bound + largest > MAX_INT64:
            self._flush()
            start = 0
            if count > self._log.shape[1] or self._bound + largest > MAX_INT64:
                self._add(delta)
                self._start_log()
                return
        end = start + count
        self._log[:-1, start:end] = delta.row_array
        self._log[-1, start:end] = delta.weight_array
        words[row_log.LOG_ROWS] = end
        words[row_log.LOG_BOUND] += largest

    def read(self) -> Trace:
        """Add the log to the trace, and return the trace; the caller must not change it.

        Raises:
            DbspWcojError: An earlier commit has failed.

        Complexity:
            O(n) in the rows of the log, plus the merges of the trace.
        """
        self._trace.check_committed()
        self._flush()
        return self._trace

    @property
    def _bound(self) -> int:
        """A bound of the absolute weights of the trace and the log together."""
        return int(self._words[row_log.LOG_BOUND])

    def _flush(self) -> None:
        """Add the log to the trace."""
        rows = self.logged_rows
        if rows:
            columns = np.ascontiguousarray(self._log[:-1, :rows])
            total = consolidated_rows(columns, self._log[-1, :rows].copy())
            if len(total):
                self._add(total)
        self._start_log()

    def _add(self, delta: ZSet) -> None:
        """Add rows to the trace; their run is merged late, because nobody looks rows up."""
        trace = self._trace
        step = trace.prepare(delta)
        step.lookups = 0
        version = trace.version
        try:
            step.commit()
        finally:
            # The rows of the log are among those of the step. An interrupt may have come before the
            # commit began, or after it; within it, the trace cannot be read any more.
            if trace.version != version:
                self._words[row_log.LOG_ROWS] = 0

    def _start_log(self) -> None:
        """Begin an empty log, whose capacity depends on the rows of the trace if memory allows."""
        capacity = max(MIN_LOG_ROWS, self._trace.rows // ROWS_PER_LOG_ROW)
        # A log of about the right capacity is used again.
        if not capacity <= self._log.shape[1] <= 2 * capacity:
            with suppress(MemoryError):  # the old log is empty, and can be used again
                self._log = np.empty((self._trace.arity + 1, capacity), np.int64)
        bounds = [a.spine.weight_bound for a in self._trace.arrangements]
        words = self._words
        words[row_log.LOG_ROWS] = 0
        words[row_log.LOG_CAPACITY] = self._log.shape[1]
        words[row_log.LOG_BOUND] = max(bounds, default=0)
        words[row_log.LOG_MEMORY] = self._log.__array_interface__["data"][0]
