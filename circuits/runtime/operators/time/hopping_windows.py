"""Hopping windows: each row once per window that contains its time.

::

    hop(Z)[row, s] = Z[row]  for each s = offset + i * slide with s <= time(row) < s + size

Rows with a NULL time are left out. A row with an infinite time is in one window, which starts at
this time. The operator is linear, so it is applied to a delta as it is,
and it has no state. An example stream of rows (time), with size 10 and slide 5:

    delta     {7: +1}                       {12: -1}
    output    {(7, 0): +1, (7, 5): +1}      {(12, 5): -1, (12, 10): -1}

Cost: O(size / slide) per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from circuits.errors import EvaluationError
from circuits.plan.time_windows import HoppingWindows
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL
from circuits.types.functions.casting.time_units import INFINITE, INFINITE_DAY
from dbsp_wcoj import Budget, ZSet
from dbsp_wcoj.zset import Int64Array

__all__ = ["HoppingWindowsOperator"]


class HoppingWindowsOperator:
    """Appends the start of each window to each row.

    Args:
        plan: The node; `circuits.plan.time_windows.HoppingWindows` defines the result.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Scan
    >>> plan = HoppingWindows(Scan("r", (Field("t", pa.int64()),)), time=0, size=10, slide=5)
    >>> HoppingWindowsOperator(plan).evaluate([ZSet.from_rows([(7,), (12,)])])
    ZSet({(7, 0): 1, (7, 5): 1, (12, 5): 1, (12, 10): 1})
    """

    def __init__(self, plan: HoppingWindows) -> None:
        self._plan = plan
        # The greatest code below those of the type: no window may start there.
        type = plan.input.fields[plan.time].type
        self._below_type = NULL
        if type.bit_width < 64:
            is_unsigned = pa.types.is_unsigned_integer(type)
            self._below_type = -1 if is_unsigned else -(1 << (type.bit_width - 1)) - 1
        self._infinite: int | None = None
        if pa.types.is_timestamp(type):
            self._infinite = INFINITE
        elif type == pa.date32():
            self._infinite = INFINITE_DAY

    def evaluate(self, inputs: Sequence[ZSet], budget: Budget | None = None) -> ZSet:
        """Assign the windows of a Z-set.

        Raises:
            LimitError: The rows exceed a limit.
            EvaluationError: A window starts before the least time.
        """
        (zset,) = inputs
        plan = self._plan
        rows, weights = zset.row_array, zset.weight_array
        is_null = rows[plan.time] == NULL
        if is_null.any():
            present = np.flatnonzero(~is_null)
            rows, weights = rows[:, present], weights[present]
        time = rows[plan.time]
        if not len(time):
            return ZSet.empty(len(rows) + 1)
        if self._infinite is not None and (
            time.max() == self._infinite or time.min() == -self._infinite
        ):
            return self._evaluate_with_infinite(ZSet(rows, weights), budget)
        since_last_start = time % plan.slide
        if plan.offset % plan.slide:
            # A difference of numbers from 0 to slide - 1 does not leave int64.
            since_last_start = (since_last_start - plan.offset % plan.slide) % plan.slide
        # The windows of a row start at last_start, last_start - slide, ..., but after time - size.
        # So a row has `most` windows, or all of them but the earliest.
        most = -(-plan.size // plan.slide)
        in_earliest = since_last_start < plan.size - (most - 1) * plan.slide
        missing = len(time) - int(np.count_nonzero(in_earliest))
        count = len(time) * most - missing
        if budget is not None:
            budget.add_rows(count, len(rows) + 1)  # before the arrays of this size are made
        # The earliest window of each row comes first.
        before_last_start = plan.slide * np.arange(most - 1, -1, -1)
        is_window = None
        counts: int | Int64Array = most
        if missing:
            is_window = np.ones((len(time), most), np.bool_)
            is_window[:, 0] = in_earliest
            counts = most - 1 + in_earliest
        self._check_starts(time, since_last_start, before_last_start, is_window)
        starts = (time - since_last_start)[:, np.newaxis] - before_last_start
        if is_window is not None:
            starts = starts[is_window]
        result = np.empty((len(rows) + 1, count), np.int64)
        result[:-1] = rows.repeat(counts, axis=1)
        result[-1] = starts.ravel()
        # The rows are sorted, and the starts of each row as well.
        return ZSet(result, weights.repeat(counts))

    def _evaluate_with_infinite(self, zset: ZSet, budget: Budget | None) -> ZSet:
        """Assign the windows of rows of which some have an infinite time."""
        rows, weights, time = zset.row_array, zset.weight_array, zset.row_array[self._plan.time]
        is_infinite = np.abs(time) == self._infinite
        finite, infinite = np.flatnonzero(~is_infinite), np.flatnonzero(is_infinite)
        if budget is not None:
            budget.add_rows(len(infinite), len(rows) + 1)
        starts = ZSet(np.vstack((rows[:, infinite], time[infinite])), weights[infinite])
        return starts + self.evaluate([ZSet(rows[:, finite], weights[finite])], budget)

    def _check_starts(
        self,
        time: Int64Array,
        since_last_start: Int64Array,
        before_last_start: Int64Array,
        is_window: BoolArray | None,
    ) -> None:
        """Raise an error if a window starts before the least time; arguments as in `evaluate`."""
        plan = self._plan
        if time.min() > self._below_type + plan.size + plan.slide:
            return
        # Each sum is at most size + slide above the number, so none leaves int64.
        is_too_early = time[:, np.newaxis] <= self._below_type + (
            since_last_start[:, np.newaxis] + before_last_start
        )
        if is_window is not None:
            is_too_early &= is_window
        if is_too_early.any():
            row = int(is_too_early.any(axis=1).argmax())
            raise EvaluationError(
                f"a window that contains the time with the code {time[row]} starts before the "
                f"least value of {plan.input.fields[plan.time].type}; exclude such rows"
            )

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Assign the windows of a delta.

        Raises:
            LimitError: The rows exceed a limit.
            EvaluationError: A window starts before the least time.
        """
        return self.evaluate(deltas, context.budget), None
