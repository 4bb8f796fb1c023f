"""Rows with marks: each row gets the latest mark of its key at or before its time.

Marks are times: the starts of sessions (`session_bound`), or the times of the right rows of an
as-of join (`latest_time`). The mark of a row is a step function of its time. So a mark that appears
or disappears changes the rows from it up to the next mark, and no others. Here the mark 20
disappears::

    marks            10          20          30              10                      30
    rows             | 12  17    | 21  26    |       →       | 12  17      21  26    |
    their marks        10  10      20  20                      10  10      10  10

State: the rows, in the order (keys, time, other columns), and the marks, in the order (keys, time).
A mark is present if its weight is not 0.

Cost: O(log N) per changed row, mark and run, and O(1) per row whose mark changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec, dictionary_columns
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.nearest import NearestRows
from dbsp_wcoj.storage.row_ranges import KeyPositions, RowRanges
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import MAX_INT64, Int64Array, consolidated_rows

__all__ = ["MarkedRows", "sum_by_prefix"]


class MarkedRows:
    """The rows of an input, and the marks that they get.

    Args:
        codecs: The codecs of the columns of the input.
        keys: The columns of the input in which a row and its mark are equal.
        time: The column that is compared with the marks; its codes are ordered.
        sign: 1, or -1 to negate all times: then a row gets the earliest mark at or after its time.
        strict: True to leave out marks at the time of the row itself.

    Attributes:
        width: The number of columns of a mark: the keys and the time.
        rows_read: The number of rows that were read from the state.
    """

    def __init__(
        self,
        codecs: Sequence[Codec],
        keys: Sequence[int],
        time: int,
        *,
        sign: int,
        strict: bool = False,
    ) -> None:
        self._sign, self._strict = sign, strict
        self._keys, self._time = tuple(keys), time
        others = [column for column in range(len(codecs)) if column not in (*keys, time)]
        self._columns = [*keys, time, *others]
        self.width = len(keys) + 1
        self.arity = len(codecs)
        self.rows = Trace(len(self._columns))
        self.marks = Trace(self.width)
        self.rows_read = 0
        self.coded_rows: Mapping[int, Codec] = dictionary_columns(
            [codecs[c] for c in self._columns]
        )
        self.coded_marks: Mapping[int, Codec] = dictionary_columns([codecs[c] for c in keys])

    def to_stored_rows(self, zset: ZSet) -> ZSet:
        """Return rows of the input in the layout of the trace."""
        rows = zset.row_array[self._columns]
        if self._sign < 0:
            rows[self.width - 1] *= -1  # NULL, the least integer, wraps to itself
        return consolidated_rows(rows, zset.weight_array.copy())

    def find_marks(self, rows: Int64Array, step: TraceStep | None) -> Int64Array:
        """Return the mark of each row of the trace's layout; NULL where there is none."""
        return self._last_marks(rows[: self.width], step, inclusive=not self._strict)

    def _last_marks(
        self, positions: Int64Array, step: TraceStep | None, *, inclusive: bool
    ) -> Int64Array:
        """Return the last mark before each key and time; NULL where there is none."""
        marks = NearestRows(self.marks, step)
        nearest = marks.before(positions, inclusive=inclusive)
        self.rows_read += marks.rows_read
        return np.where(nearest.exists, nearest.values, NULL)

    def append_marks(self, rows: Int64Array, marks: Int64Array, weights: Int64Array) -> ZSet:
        """Return rows of the trace's layout in the columns of the input, with their marks."""
        result = np.empty((self.arity + 1, rows.shape[1]), np.int64)
        # If the time is a key, too, its column is in the layout twice. The keys are written last,
        # because the sign has changed only the other one.
        for column, row in reversed(list(zip(self._columns, rows, strict=True))):
            result[column] = row
        if self._sign < 0:
            result[self._time] *= -1
            for key, row in zip(self._keys, rows, strict=False):
                result[key] = row
        result[-1] = self._sign * marks
        return consolidated_rows(result, weights)

    def compute_change(
        self,
        delta: ZSet,
        rows_step: TraceStep | None,
        changed_marks: Int64Array,
        marks_step: TraceStep | None,
    ) -> ZSet:
        """Return the change of the output.

        Args:
            delta: The delta of the rows, in the layout of the trace.
            rows_step: The staged step of the trace of rows.
            changed_marks: The marks that appear or disappear, sorted, shape ``(width, n)``.
            marks_step: The staged step of the trace of marks.
        """
        rows, weights = delta.row_array, delta.weight_array
        marks = self.find_marks(rows, marks_step)
        if not changed_marks.shape[1]:
            return self.append_marks(rows, marks, weights)
        # Rows of the delta whose mark changes are among the rows that are read below.
        unaffected = np.flatnonzero(marks == self.find_marks(rows, None))
        # The rows from each changed mark (if strict, after it) up to the next one, or to the end of
        # the key.
        old_next = NearestRows(self.marks).after(changed_marks)
        new_next = NearestRows(self.marks, marks_step).after(changed_marks)
        has_next = old_next.exists | new_next.exists
        next_time = np.minimum(
            np.where(old_next.exists, old_next.values, np.iinfo(np.int64).max),
            np.where(new_next.exists, new_next.values, np.iinfo(np.int64).max),
        )
        ranges = RowRanges(self.rows, rows_step)
        keys = changed_marks[:-1]
        start = ranges.seek(changed_marks, after=self._strict)
        before_next = ranges.seek(np.concatenate((keys, next_time[np.newaxis])), after=self._strict)
        end_of_key = ranges.seek(keys, after=True)
        stop_positions = np.where(has_next, before_next.positions, end_of_key.positions)
        # ``read`` uses the positions only, so any ``old`` and ``new`` will do.
        stop = KeyPositions(stop_positions, end_of_key.old, end_of_key.new)
        affected = ranges.read(start, stop)
        self.rows_read += len(affected.ranges)
        old_marks = self._last_marks(changed_marks, None, inclusive=True)[affected.ranges]
        new_marks = self._last_marks(changed_marks, marks_step, inclusive=True)[affected.ranges]
        return self.append_marks(
            np.concatenate((rows[:, unaffected], affected.rows, affected.rows), axis=1),
            np.concatenate((marks[unaffected], old_marks, new_marks)),
            np.concatenate((weights[unaffected], -affected.old, affected.new)),
        )


def sum_by_prefix(zset: ZSet, width: int) -> ZSet:
    """Return the distinct first ``width`` columns of sorted rows, with the sums of the weights.

    Raises:
        WeightOverflowError: A sum leaves int64.
    """
    rows, weights = zset.row_array[:width], zset.weight_array
    if not len(zset):
        return ZSet.empty(width)
    if int(np.abs(weights).max()) * len(weights) > MAX_INT64:
        return consolidated_rows(rows.copy(), weights.copy())  # checks each sum
    begins: BoolArray = np.ones(len(zset), np.bool_)
    begins[1:] = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    starts = np.flatnonzero(begins)
    sums = np.add.reduceat(weights, starts)
    nonzero = np.flatnonzero(sums)
    return ZSet(np.ascontiguousarray(rows[:, starts[nonzero]]), sums[nonzero])
