"""Grouped rows: the rows that the first step inserts into a large binary relation.

Joins look them up by the first column: a recursion that follows edges reads, for each source that
it reaches, the list of its targets. It never searches a list. So the lists need no order, and the
rows are only grouped by their first value (`dbsp_wcoj.kernels.storage.group_pairs`), which takes a
fraction of the time of a sort::

    rows (4, 5), (1, 6), (1, 5)      grouped   1: 6 5   4: 5        sorted   1: 5 6   4: 5

The rows are deferred: the first reader that needs their order sorts them.
"""

from __future__ import annotations

import numpy as np

from dbsp_wcoj.kernels.storage.group_pairs import group_pairs, grouped_run_words
from dbsp_wcoj.storage.deferred_rows import DeferredRows
from dbsp_wcoj.storage.pair_sort import MIN_PAIRS_PER_NUMBER
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["GroupedPairs"]


class GroupedPairs(DeferredRows):
    """Deferred rows of two columns that are grouped by the first one.

    Attributes:
        grouped: A run whose lists of second values are not sorted and may contain a value several
            times. A reader may find a first value, and read its whole list; nothing else. None as
            soon as the rows have been sorted.

    >>> first, second = np.array([2, 1, 1, 1, 1, 2, 2, 2]), np.array([5, 6, 5, 6, 7, 9, 8, 7])
    >>> rows = GroupedPairs.of(first, second)
    >>> rows.grouped.read()[0].tolist()
    [[1, 1, 1, 1, 2, 2, 2, 2], [6, 5, 6, 7, 5, 9, 8, 7]]
    >>> columns, weights = rows.run((0, 1)).read()
    >>> columns.tolist(), weights.tolist()
    ([[1, 1, 1, 2, 2, 2, 2], [5, 6, 7, 5, 7, 8, 9]], [1, 2, 1, 1, 1, 1, 1])
    """

    __slots__ = ("grouped",)

    def __init__(self, grouped: Run) -> None:
        super().__init__(grouped.rows, lambda: ZSet.from_columns([*grouped.read()[0]]))
        self.grouped: Run | None = grouped

    def run(self, order: tuple[int, ...]) -> Run:
        """Return the sorted run of the rows in a column order; the grouped run is freed."""
        run = super().run(order)
        self.grouped = None
        return run

    @staticmethod
    def of(first: Int64Array, second: Int64Array) -> GroupedPairs | None:
        """Group rows of weight 1, if their first values are dense.

        Args:
            first: The first values, at least one.
            second: The second values, as many.

        Returns:
            None if there are fewer than `MIN_PAIRS_PER_NUMBER` rows for each number from the least
            to the greatest first value.

        Complexity:
            O(n + range of the first values).
        """
        lowest = int(first.min())
        numbers = int(first.max()) - lowest + 1
        if MIN_PAIRS_PER_NUMBER * numbers > len(first):
            return None
        first, second = np.ascontiguousarray(first), np.ascontiguousarray(second)
        buffer = np.empty(grouped_run_words(numbers, len(first)), np.int64)
        places = np.zeros(numbers, np.int64)
        # The columns of Arrow are read-only, so they are passed by their addresses.
        first_address, second_address = (int(column.ctypes.data) for column in (first, second))
        described = group_pairs(first_address, second_address, len(first), lowest, places, buffer)
        return GroupedPairs(Run(buffer, *described))
