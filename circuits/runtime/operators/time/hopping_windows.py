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
from dbsp_wcoj.zset import consolidated_rows

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
        rows = np.flatnonzero(zset.row_array[plan.time] != NULL)
        time = zset.row_array[plan.time, rows]
        # All differences are of numbers from 0 to slide - 1, so none leaves int64.
        since_last_start = (time % plan.slide - plan.offset % plan.slide) % plan.slide
        # The windows of a row start at last_start, last_start - slide, ..., but after time - size.
        counts = np.maximum(-((since_last_start - plan.size) // plan.slide), 0)
        if budget is not None:
            budget.add_rows(int(counts.sum(dtype=np.float64)), len(zset.row_array) + 1)
        repeated = np.repeat(rows, counts)
        window_index = np.arange(len(repeated)) - np.repeat(np.cumsum(counts) - counts, counts)
        before_time = np.repeat(since_last_start, counts) + window_index * plan.slide
        repeated_time = np.repeat(time, counts)
        is_too_early = repeated_time <= NULL + before_time
        if is_too_early.any():
            row = int(is_too_early.argmax())
            raise EvaluationError(
                f"a window that contains the time {repeated_time[row]} starts before the least "
                f"value of {plan.input.fields[plan.time].type}; exclude such rows"
            )
        starts = repeated_time - before_time
        result = np.concatenate((zset.row_array[:, repeated], starts[np.newaxis]))
        return consolidated_rows(result, zset.weight_array[repeated])

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Assign the windows of a delta.

        Raises:
            LimitError: The rows exceed a limit.
            EvaluationError: A window starts before the least time.
        """
        return self.evaluate(deltas, context.budget), None
