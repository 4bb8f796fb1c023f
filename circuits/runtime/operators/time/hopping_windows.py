"""Hopping windows: each row once per window that contains its time.

::

    hop(Z)[row, s] = Z[row]  for each s = offset + i * slide with s <= time(row) < s + size

Linear, so it is its own incremental form, and without state. An example stream of rows (time), with
size 10 and slide 5:

    delta     {7: +1}                       {12: -1}
    output    {(7, 0): +1, (7, 5): +1}      {(12, 5): -1, (12, 10): -1}

Cost: O(size / slide) per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.errors import EvaluationError
from circuits.plan.time_windows import HoppingWindows
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.codec import NULL
from dbsp_wcoj import Budget, ZSet

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
        # All differences are of numbers from 0 to slide - 1, so none leaves int64.
        since_last_start = (time % plan.slide - plan.offset % plan.slide) % plan.slide
        # The windows of a row start at last_start, last_start - slide, ..., but after time - size.
        # So a row has `most` windows, or all of them but the earliest.
        most = -(-plan.size // plan.slide)
        has_all = since_last_start < plan.size - (most - 1) * plan.slide
        count = len(time) * (most - 1) + int(np.count_nonzero(has_all))
        if budget is not None:
            budget.add_rows(count, len(rows) + 1)
        # The earliest window of each row comes first.
        window_starts = plan.slide * np.arange(most - 1, -1, -1)
        before_time = (since_last_start[:, np.newaxis] + window_starts).ravel()
        repeated = np.repeat(np.arange(len(time)), most)
        if count < len(repeated):
            is_window = np.ones((len(time), most), np.bool_)
            is_window[:, 0] = has_all
            before_time, repeated = before_time[is_window.ravel()], repeated[is_window.ravel()]
        result = np.empty((len(rows) + 1, len(repeated)), np.int64)
        rows.take(repeated, axis=1, out=result[:-1], mode="clip")
        repeated_time = result[plan.time]
        is_too_early = repeated_time <= NULL + before_time
        if is_too_early.any():
            row = int(is_too_early.argmax())
            raise EvaluationError(
                f"a window that contains the time {repeated_time[row]} starts before the least "
                f"value of {plan.input.fields[plan.time].type}; exclude such rows"
            )
        np.subtract(repeated_time, before_time, out=result[-1])
        # The rows are sorted, and the starts of each row as well.
        return ZSet(result, weights.take(repeated))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Assign the windows of a delta.

        Raises:
            LimitError: The rows exceed a limit.
            EvaluationError: A window starts before the least time.
        """
        return self.evaluate(deltas, context.budget), None
