"""Latest time: each left row with the time of the latest right row of its key (as-of joins).

::

    latest(A, B)[a, t] = A[a],  t = max { b.time | b in B, b.key = a.key, b.time <= a.time } or NULL

An example stream of rows (time), the left ones, then the right ones:

    left      {5: +1, 9: +1}          {}
    right     {3: +1}                 {7: +1}
    output    {(5,3): +1, (9,3): +1}  {(9,3): -1, (9,7): +1}

A join by the key and this time then finds the right rows. A mark is the key and time of a right row
(`latest_marks`): the result of a left row depends on the last mark at or before it. State and cost
are those of `latest_marks`: a right row that is inserted or deleted changes the left rows up to the
next one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.time_windows import LatestTime
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.time.latest_marks import MarkedRows
from circuits.types.codecs.codec import NULL, Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.nearest import NearestRows
from dbsp_wcoj.storage.trace import Staged, StagedGroup
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["LatestTimeOperator"]


class LatestTimeOperator:
    """Appends the time of the latest right row to each left row.

    Args:
        plan: The node; `circuits.plan.time_windows.LatestTime` defines the result.
        codecs: Encode values as int64 codes.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Scan
    >>> left, right = (Scan(name, (Field("t", pa.int64()),)) for name in "ab")
    >>> operator = LatestTimeOperator(LatestTime(left, right, keys=(), time=0), Codecs())
    >>> operator.evaluate([ZSet.from_rows([(5,), (9,)]), ZSet.from_rows([(3,), (7,)])])
    ZSet({(5, 3): 1, (9, 7): 1})
    """

    def __init__(self, plan: LatestTime, codecs: Codecs) -> None:
        columns = [codecs.codec(field.type) for field in plan.left.fields]
        # With ``forwards``, the result is the earliest right row at or after the left row. With
        # ``strict``, a right row at the same time does not count.
        self._sign = -1 if plan.forwards else 1
        self._strict = plan.strict
        self._rows = MarkedRows(columns, plan.keys, plan.time, sign=self._sign, strict=plan.strict)
        self.arity = self._rows.arity + 1
        self.traces: tuple[Trace, ...] = (self._rows.rows, self._rows.marks)
        self.coded_columns = (self._rows.coded_rows, self._rows.coded_marks)

    @property
    def rows_read(self) -> int:
        """The number of rows that all steps have read from the state."""
        return self._rows.rows_read

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Find the latest times for whole Z-sets."""
        left_rows = self._rows.to_stored_rows(inputs[0])
        mark_trace = Trace(self._rows.width)
        mark_trace.update(self._to_marks(inputs[1]))
        rows = left_rows.row_array
        nearest = NearestRows(mark_trace).before(
            rows[: self._rows.width], inclusive=not self._strict
        )
        times = np.where(nearest.exists, nearest.values, NULL)
        return self._rows.append_marks(rows, times, left_rows.weight_array)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Find the latest times of changed left rows, and of those after changed right rows.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        if not any(map(len, deltas)):
            return ZSet.empty(self.arity), None
        left_delta, mark_delta = self._rows.to_stored_rows(deltas[0]), self._to_marks(deltas[1])
        staged: list[Staged] = []
        rows_step = marks_step = None
        # The marks that appear or disappear, a column for each.
        changed_marks: Int64Array = np.empty((self._rows.width, 0), np.int64)
        if len(left_delta):
            rows_step = self._rows.rows.prepare(left_delta)
            staged.append(rows_step)
        if len(mark_delta):
            old = self._rows.marks.weights_of(mark_delta)
            marks_step = self._rows.marks.prepare(mark_delta)
            staged.append(marks_step)
            has_changed = (old != 0) != (old + mark_delta.weight_array != 0)
            changed_marks = np.ascontiguousarray(mark_delta.row_array[:, has_changed])
        change = self._rows.compute_change(left_delta, rows_step, changed_marks, marks_step)
        return change, StagedGroup(staged)

    def _to_marks(self, zset: ZSet) -> ZSet:
        """Return the right rows with a time as marks; with ``forwards``, times are negated."""
        valid = zset.row_array[-1] != NULL
        rows = zset.row_array[:, valid]
        rows[-1] *= self._sign
        return consolidated_rows(rows, zset.weight_array[valid])
