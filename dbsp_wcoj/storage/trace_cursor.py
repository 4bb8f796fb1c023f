"""Trace cursor: reads the rows of a trace in slices while steps change the trace.

::

    rows of the trace, in the order of one arrangement
        1 1    1 2    2 1    2 5  |  3 1    4 2    4 7    9 9
        these have been read      ^  these are still to be read
                                  cursor

A slice has the next rows as the trace is now. The rows of a later delta are either at or before the
cursor, so that the reader has to apply them (`TraceCursor.passed`), or after it, so that a later
slice has them. At any time, the slices and the passed deltas add up to the rows of the trace at or
before the cursor. So the reader needs neither a copy of the trace nor a queue of deltas.

This is the method by which change data capture reads a table in chunks while it is written, without
the log positions, because here a delta is either before or after a slice [1].

References:
    [1] Andreakis, Papapanagiotou. DBLog: A Watermark Based Change-Data-Capture Framework. 2020,
        arXiv:2010.12597.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbsp_wcoj.storage.trace import Trace
from dbsp_wcoj.zset import Int64Array, ZSet, consolidated_rows

__all__ = ["TraceCursor"]


class TraceCursor:
    """A position in the rows of a trace, at first before all of them.

    Args:
        trace: A trace with an arrangement.

    Attributes:
        trace: As given.
        is_complete: True if all rows have been read; then every delta has been passed.

    >>> trace = Trace(1)
    >>> trace.update(ZSet.from_rows([(1,), (2,), (3,)]))
    >>> cursor = TraceCursor(trace)
    >>> cursor.next_rows(2)
    ZSet({(1,): 1, (2,): 1})
    >>> cursor.passed(ZSet.from_rows([(0,), (7,)]))
    ZSet({(0,): 1})
    >>> cursor.next_rows(2), cursor.is_complete
    (ZSet({(3,): 1}), True)
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.is_complete = False
        self._order = trace.orders[0]
        # The columns of the last row that was read, in the order of the arrangement.
        self._last: tuple[int, ...] | None = None

    def passed(self, delta: ZSet) -> ZSet:
        """Return the rows of a delta of the trace that are at or before the cursor; O(rows)."""
        if self.is_complete or not len(delta):
            return delta
        if self._last is None:
            return ZSet.empty(delta.arity)
        rows = delta.row_array
        mask = _is_up_to(rows[list(self._order)], self._last)
        return ZSet(np.ascontiguousarray(rows[:, mask]), delta.weight_array[mask])

    def next_rows(self, max_rows: int) -> ZSet:
        """Return the next rows of the trace, and move the cursor behind them.

        The result may be empty although more rows follow, because rows of several runs can cancel
        each other.

        Args:
            max_rows: The limit on the rows, at least 1.

        Complexity:
            O(runs * (arity * log rows + 1) + max_rows * log rows).
        """
        if self.is_complete:
            return ZSet.empty(self.trace.arity)
        runs = [run for run in self.trace.arrange(self._order).spine.runs if run.rows]
        firsts = [0 if self._last is None else run.count_up_to(self._last) for run in runs]
        counts = [run.rows - first for run, first in zip(runs, firsts, strict=True)]
        parts, limits = [], []
        for run, first, count, quota in zip(
            runs, firsts, counts, _quotas(counts, max_rows), strict=True
        ):
            columns, weights = run.read_rows(first, first + quota)
            parts.append((columns, weights))
            if quota < count:
                limits.append(tuple(columns[:, -1].tolist()))
        if not parts:
            self.is_complete = True
            return ZSet.empty(self.trace.arity)
        columns = np.concatenate([columns for columns, _ in parts], axis=1)
        weights = np.concatenate([weights for _, weights in parts])
        if columns.shape[1] > max_rows:  # as each run gives at least one row
            smallest = np.lexsort(columns[::-1])[max_rows - 1]
            limits.append(tuple(columns[:, smallest].tolist()))
        if limits:
            # All runs have been read up to here.
            self._last = min(limits)
            mask = _is_up_to(columns, self._last)
            columns, weights = columns[:, mask], weights[mask]
        else:
            self.is_complete = True
        rows = np.empty_like(columns)
        rows[list(self._order)] = columns
        return consolidated_rows(rows, weights)


def _quotas(counts: Sequence[int], max_rows: int) -> list[int]:
    """Return how many rows to read of each run: at least 1, together about ``max_rows``.

    One half is shared by the rows of the runs, so that the slice ends at about the same row in all
    of them. The other half is shared equally, so that small runs end soon.
    """
    total = sum(counts)
    if total <= max_rows:
        return list(counts)
    half = max_rows // 2
    return [min(count, max(1, half * count // total + half // len(counts))) for count in counts]


def _is_up_to(columns: Int64Array, key: Sequence[int]) -> np.ndarray:
    """Return which rows are at most a key, compared column by column."""
    is_less = np.zeros(columns.shape[1], np.bool_)
    is_equal = ~is_less
    for column, value in zip(columns, key, strict=True):
        is_less |= is_equal & (column < value)
        is_equal &= column == value
    return is_less | is_equal
