"""An arrangement build: a new arrangement of a trace, filled a slice at a time.

When a join is planned again, it may read a relation in another column order. To sort all rows at
once takes time in proportion to the relation: seconds, for 10 million rows. So the new arrangement
is built while steps go on, and the join keeps its old plan until the build is complete::

    rows at the start    0 ......... copied ......... n      copied in slices, sorted, appended
    later deltas         appended as they are committed

    arrangement = rows at the start + later deltas

The runs of the start are immutable, so they are read while the trace changes.

Cost: O(slice log n) for each slice, and the merges of a spine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["ArrangementBuild"]

ColumnOrder = tuple[int, ...]

# A slice copies this many rows for each row of the step, but not less than the minimum.
COPIED_ROWS_PER_ROW: Final = 16
MIN_COPIED_ROWS: Final = 1 << 11


class ArrangementBuild:
    """An arrangement that does not have all rows yet.

    Args:
        order: Its column order, as an array.
        source_order: The column order of the runs that are copied.
        runs: The runs that are copied.

    Attributes:
        spine: The rows copied so far, and all deltas since the start.
    """

    __slots__ = ("_next_row", "_order", "_runs", "_source_order", "spine")

    def __init__(self, order: Int64Array, source_order: ColumnOrder, runs: Sequence[Run]) -> None:
        self._order = order
        self._source_order = list(source_order)
        # The runs with rows to copy, and the next row of the last of them.
        self._runs = list(runs)
        self._next_row = 0
        self.spine = Spine()

    @property
    def is_complete(self) -> bool:
        """Return whether all rows are copied."""
        return not self._runs

    def add(self, run: Run) -> None:
        """Add the run of a committed step, in the new column order."""
        self.spine.append(run)

    def copy_slice(self, rows: int) -> None:
        """Copy the slice of a step with ``rows`` changed rows."""
        self._copy(max(COPIED_ROWS_PER_ROW * rows, MIN_COPIED_ROWS))

    def copy_all(self) -> None:
        """Copy all rows that are left."""
        while self._runs:
            self._copy(self._runs[-1].rows)

    def _copy(self, count: int) -> None:
        while count > 0 and self._runs:
            source = self._runs[-1]
            first = self._next_row
            end = min(first + count, source.rows)
            columns, weights = source.read_rows(first, end)
            rows = np.empty_like(columns)
            rows[self._source_order] = columns
            self.spine.append(Run.of(consolidated_rows(rows, weights), self._order))
            count -= end - first
            self._next_row = end
            if end == source.rows:
                self._runs.pop()
                self._next_row = 0
