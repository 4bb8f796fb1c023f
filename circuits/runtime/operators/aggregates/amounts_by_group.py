"""Amounts by group: add up the quantities of many rows by group, before they are sorted.

Linear aggregates are a Z-set with a row for each group and quantity. A delta of n rows has up to n
amounts of each quantity. They are added by group in one pass for each quantity, so that only one
row for each group and quantity is sorted. This pays if the groups have several rows each; otherwise
the amounts are sorted as they are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from dbsp_wcoj.kernels.values.group_sums import add_by_group, number_groups
from dbsp_wcoj.zset import Int64Array

__all__ = ["MIN_GROUPED_ROWS", "RowGroups", "find_groups"]

#: For fewer rows, the calls of the kernels take longer than the sort.
MIN_GROUPED_ROWS: Final = 128
#: A group has at least this many rows, on average.
MIN_ROWS_PER_GROUP: Final = 4
#: The most positions of a quantity; the digits of floats of very different sizes have more.
MAX_POSITIONS: Final = 8


class RowGroups(NamedTuple):
    """The groups of some rows.

    Attributes:
        group_of: The group of each row.
        first_rows: The first row of each group.
    """

    group_of: Int64Array
    first_rows: Int64Array

    def add(
        self, rows: Int64Array, positions: Int64Array, amounts: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Add the amounts of each group and position.

        Args:
            rows: The row of each amount.
            positions: The position of each amount.
            amounts: The amounts.

        Returns:
            For each sum that is not 0, a row of its group, the position and the sum. The arguments
            themselves if there are many positions, or a sum does not fit in int64.

        Complexity:
            O(amounts + groups).

        >>> groups = find_groups(np.arange(256).reshape(1, -1) % 2)
        >>> numbers = np.arange(256)
        >>> rows, positions, sums = groups.add(numbers, 0 * numbers, numbers)
        >>> rows.tolist(), positions.tolist(), sums.tolist()
        ([0, 1], [0, 0], [16256, 16384])
        """
        if not len(amounts):
            return rows, positions, amounts
        first, last = int(positions.min()), int(positions.max())
        if last - first >= MAX_POSITIONS:
            return rows, positions, amounts
        totals = np.zeros((last - first + 1, len(self.first_rows)), np.int64)
        if not add_by_group(self.group_of, rows, positions, amounts, first, totals):
            return rows, positions, amounts
        sum_positions, groups = totals.nonzero()
        return self.first_rows[groups], sum_positions + first, totals[sum_positions, groups]


def find_groups(keys: Int64Array) -> RowGroups | None:
    """Find the groups of rows with equal keys; None if there are few rows or many groups.

    Args:
        keys: The keys, of shape ``(keys, n)``, with at least one column.

    Complexity:
        O(n).
    """
    n = keys.shape[1]
    if n < MIN_GROUPED_ROWS:
        return None
    first_rows = np.empty(n // MIN_ROWS_PER_GROUP, np.int64)
    slots = np.full(1 << len(first_rows).bit_length() + 1, -1)
    group_of = np.empty(n, np.int64)
    count = number_groups(np.ascontiguousarray(keys), n, slots, group_of, first_rows)
    return None if count < 0 else RowGroups(group_of, first_rows[:count])
