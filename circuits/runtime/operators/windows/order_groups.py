"""Order groups: the groups of rows that are equal in the order of a partition.

::

    groups(Z)[partition, sort columns] = 1 if Z has rows of positive weight with these columns

The number of groups before a row, its dense_rank() minus 1, is one search per run
(`dbsp_wcoj.storage.row_ranges`). A frame of mode GROUPS begins or ends some groups away from a row;
`find_groups` returns that group.

Cost: O(1) state per group; O(log N) per changed group and run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from circuits.runtime.operators.row_order import RowOrder
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import Codec
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.row_ranges import RowRanges
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["OrderGroups", "find_groups"]


class OrderGroups:
    """The groups of all partitions.

    Args:
        order: The layout of the rows; the order must be exact (`RowOrder.is_exact`).
    """

    def __init__(self, order: RowOrder) -> None:
        self._key_count = order.key_count
        self._width = order.key_count + order.order_width
        self.trace = Trace(self._width)
        self.coded_columns: Mapping[int, Codec] = {
            column: codec for column, codec in order.coded_columns.items() if column < self._width
        }

    def prepare(
        self, changed: Int64Array, rows: RowRanges, negative: RowRanges | None
    ) -> TraceStep | None:
        """Stage the change of the groups.

        Args:
            changed: The changed rows, sorted, in the layout of the trace of rows.
            rows: All rows, without and with the step.
            negative: The negative weights of all rows, without and with the step; None if no row
                has one.
        """
        groups = changed[: self._width]
        differs = np.any(groups[:, 1:] != groups[:, :-1], axis=0)
        groups = groups[:, np.concatenate((np.ones(min(groups.shape[1], 1), np.bool), differs))]
        old, new = _weights(rows, groups)
        if negative is not None:
            old_negative, new_negative = _weights(negative, groups)
            old, new = old - old_negative, new - new_negative
        change = np.subtract(new > 0, old > 0, dtype=np.int64)
        nonzero = np.flatnonzero(change)
        if not len(nonzero):
            return None
        return self.trace.prepare(ZSet(np.ascontiguousarray(groups[:, nonzero]), change[nonzero]))

    def before(self, rows: Int64Array, step: TraceStep | None) -> tuple[Int64Array, Int64Array]:
        """Return the numbers of groups before those of some rows, without and with a step."""
        ranges = RowRanges(self.trace, step)
        partition_start = ranges.seek(rows[: self._key_count])
        group = ranges.seek(rows[: self._width])
        return group.old - partition_start.old, group.new - partition_start.new


def find_groups(
    groups: RowRanges, key_count: int, rows: Int64Array, count: int, *, after: bool = False
) -> tuple[Int64Array, BoolArray]:
    """Return for each row the group ``count`` groups before its own, and a mask of the found ones.

    A step may change the group at this distance. Then the result is the more distant of the group
    before the step and the group after it.

    Args:
        groups: The trace of groups, without and with a step.
        key_count: The number of partition columns.
        rows: The first columns of rows: those of a group.
        count: The number of groups, at least 1.
        after: True for groups after those of the rows, False for groups before them.

    Returns:
        The groups, a column per row; and a mask, False for a row with fewer groups before it.
    """
    n = rows.shape[1]
    own_group = groups.seek(rows, after=after)
    end_of_partition = groups.seek(rows[:key_count], after=after)
    # At least ``count`` groups are between the own group and this position.
    far_position = groups.neighbour(own_group, end_of_partition, count, after=after)
    read = groups.read(own_group, far_position) if after else groups.read(far_position, own_group)
    result, exists = rows.copy(), np.ones(n, np.bool)
    more_distant = np.maximum if after else np.minimum
    # For each row, the index of the result among the groups that were read.
    result_index = np.full(n, -1 if after else len(read.ranges))
    for weights in (read.old, read.new):
        present = np.flatnonzero(weights > 0)
        row = read.ranges[present]  # the row that the group was read for
        first, last = np.searchsorted(row, row), np.searchsorted(row, row, side="right") - 1
        distance = np.arange(len(row)) - first if after else last - np.arange(len(row))
        at_distance = np.flatnonzero(distance == count - 1)
        reached_rows = row[at_distance]
        is_reached = np.zeros(n, np.bool)
        is_reached[reached_rows] = True
        exists &= is_reached
        result_index[reached_rows] = more_distant(result_index[reached_rows], present[at_distance])
    result[:, exists] = read.rows[:, result_index[exists]]
    return result, exists


def _weights(ranges: RowRanges, prefixes: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the weight of the rows that begin with each prefix, without and with the step."""
    start, stop = ranges.seek(prefixes), ranges.seek(prefixes, after=True)
    return stop.old - start.old, stop.new - start.new
