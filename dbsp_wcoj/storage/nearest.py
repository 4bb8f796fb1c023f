"""Nearest rows: the row before or after a given row, among the rows with the same prefix.

The prefix is all columns but the last one. The last column is the position within the prefix, for
example the time of an event. The rows are those of a trace, without or with a staged step.

Cost: O(log N) per given row and run. A stored row whose weights in the runs add up to zero is
skipped, at one read per run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.nearest import find_nearest
from dbsp_wcoj.storage.trace import Trace, TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["NearestRows", "NearestValues"]


class NearestValues(NamedTuple):
    """The result of a search, one element per given row.

    Attributes:
        values: The last column of the nearest row; 0 if there is none.
        exists: True if there is such a row.
    """

    values: Int64Array
    exists: npt.NDArray[np.bool_]


class NearestRows:
    """Searches the rows of a trace, in its own column order.

    Args:
        trace: The rows.
        step: A staged step of the trace, to find rows as they are after it; or None.

    Attributes:
        rows_read: The number of rows that all searches have read.

    >>> from dbsp_wcoj import ZSet
    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(7, 3), (7, 5), (8, 4)]))
    >>> rows = NearestRows(trace)
    >>> nearest = rows.before(np.array([[7, 8], [5, 4]]))
    >>> nearest.values.tolist(), nearest.exists.tolist()
    ([3, 0], [True, False])
    """

    def __init__(self, trace: Trace, step: TraceStep | None = None) -> None:
        order = tuple(range(trace.arity))
        self._arity = trace.arity
        runs = [*trace.arrange(order).spine.runs, *([] if step is None else [step.run(order)])]
        self._runs = runs  # the kernel reads them by their addresses; this keeps them alive
        self._addresses: Int64Array = np.array([run.address for run in runs], np.int64)
        self.rows_read = 0

    def before(self, rows: Int64Array, *, inclusive: bool = False) -> NearestValues:
        """Find the nearest rows before the given rows.

        Args:
            rows: The given rows, shape ``(arity, n)``.
            inclusive: True to accept the given row itself.
        """
        return self._find(rows, True, inclusive)

    def after(self, rows: Int64Array, *, inclusive: bool = False) -> NearestValues:
        """Find the nearest rows after the given rows; the arguments are those of `before`."""
        return self._find(rows, False, inclusive)

    def _find(self, rows: Int64Array, backwards: bool, inclusive: bool) -> NearestValues:
        n = rows.shape[1]
        values, exists = np.empty(n, np.int64), np.empty(n, np.bool_)
        self.rows_read += find_nearest(
            self._addresses,
            np.ascontiguousarray(rows),
            self._arity,
            backwards,
            inclusive,
            values,
            exists,
        )
        return NearestValues(values, exists)
