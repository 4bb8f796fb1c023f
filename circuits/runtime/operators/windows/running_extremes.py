"""Running extremes: the min or max of a column from the start of a partition to each row.

A *record* is a row whose value is better (of min: less) than the values of all rows before it::

    records(Z) = the rows of positive weight that are records, each with weight 1

    t        1  2  3  4  5  6
    x        7  9  4  4  8  2
    min      7  7  4  4  4  2
    record   *     *        *

The running extreme before a row is the value of the last record before it, one search per run. So a
step need not read the rows before a change.

A change of a row of value v has an effect only if v is better than the running extreme before the
row. The effect ends at the first later row that is in the partition both before and after the
step, and whose value is v or better. The results of the rows between may change.

A step can change several rows of a partition. A change is ignored if an earlier change has a value
that is as good: it affects only rows that the earlier change affects, too. The search for the end
of an effect stops at the next change that is not ignored, so a step reads each row once.

Cost: O(log N) per changed row and run, and O(1) per row whose result changes. State: the records,
expected O(log n) of n rows in random order, and n if each row is better than the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from circuits.plan.window import WindowCall
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.operators.sort_columns import OrderedColumn
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import Trace
from dbsp_wcoj.storage.row_ranges import KeyPositions, RowRanges
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["Effects", "RunningExtreme", "is_running_extreme"]

# The number of rows after a change that are read at once; then 4 times as many, and so on.
_FIRST_READ_ROWS: Final = 16


def is_running_extreme(call: WindowCall) -> bool:
    """Return True if a call is the min or max from the start of the partition on."""
    frame = call.frame
    is_extreme = call.function in ("min", "max") and not call.distinct
    return is_extreme and frame.start is None and frame.end is not None and frame.exclude == "none"


class Effects(NamedTuple):
    """How far the effects of changed rows reach.

    Attributes:
        stop: The position after the last row whose result the change may alter.
        reached: For each change, the last row before ``stop``, shape ``(columns, n)``. The search
            does not read this row if the effect ends at another change or at the end of the
            partition: then it is the changed row instead.
    """

    stop: KeyPositions
    reached: Int64Array

    def union(self, other: Effects) -> Effects:
        """Return the effect that reaches further, for each changed row."""
        # A KeyPositions has a position in each run. A later row has a greater sum of positions.
        is_further = other.stop.positions.sum(axis=0) > self.stop.positions.sum(axis=0)
        stop = (np.where(is_further, b, a) for a, b in zip(self.stop, other.stop, strict=True))
        return Effects(KeyPositions(*stop), np.where(is_further, other.reached, self.reached))


class RunningExtreme:
    """The running min or max of one column.

    Args:
        order: The layout of the rows; the order must be exact (`RowOrder.is_exact`).
        column: The column of the input.
        codec: Its codec.
        is_max: True for max.
    """

    def __init__(self, order: RowOrder, column: int, codec: Codec, *, is_max: bool) -> None:
        self._order = order
        self._ordered_column = OrderedColumn(column, codec, descending=is_max)
        self.trace = Trace(order.width)
        self.coded_columns: Mapping[int, Codec] = order.coded_columns

    def before(self, rows: Int64Array) -> Int64Array:
        """Return the codes of the running extremes before rows, without the staged step."""
        result = np.full(rows.shape[1], NULL)
        ranges = RowRanges(self.trace)
        row_start, partition_start = ranges.seek(rows), ranges.seek(rows[: self._order.key_count])
        # At least one record is between this position and the row, more if the trace has several
        # runs. The last one that is read is the last one before the row.
        before_last_record = ranges.neighbour(row_start, partition_start, 1)
        read = ranges.read(before_last_record, row_start)
        is_last = np.ones(len(read.ranges), np.bool)
        is_last[:-1] = read.ranges[1:] != read.ranges[:-1]
        result[read.ranges[is_last]] = self._codes(read.rows[:, is_last])
        return result

    def find_effects(
        self,
        ranges: RowRanges,
        changed: Int64Array,
        partition: Int64Array,
        partition_stop: KeyPositions,
        tie_width: int | None = None,
    ) -> Effects:
        """Return how far the effects of changed rows on the running extreme reach.

        Args:
            ranges: The rows of all partitions, without and with the step.
            changed: The changed rows, sorted, shape ``(columns, n)``.
            partition: The number of each changed row's partition.
            partition_stop: The positions after the last rows of their partitions.
            tie_width: Rows that are equal in this many first columns are tied, see
                `find_row_intervals`. An effect that ends at a row ends after those tied with it.
        """
        row_start, row_stop = ranges.seek(changed), ranges.seek(changed, after=True)
        codes = self._codes(changed)
        n = len(codes)
        ranks, ranks_before = np.split(self._ranks(codes, self.before(changed)), [n])
        # A change has an effect if it inserts or deletes a row, and is a record among the changes.
        # A row is present if the weight of all rows up to it exceeds that of the rows before it,
        # which ``old`` and ``new`` of a position are.
        was_present, is_present = row_stop.old > row_start.old, row_stop.new > row_start.new
        is_presence_changed = was_present != is_present
        ranks = np.where(is_presence_changed, ranks, 2 * n)  # greater than all ranks
        effective = np.flatnonzero(_are_records(ranks, partition, ranks_before))
        stop = KeyPositions(*(part.copy() for part in row_stop))
        reached = changed.copy()
        # An effect is searched up to the next effective change.
        limit = partition_stop.take(effective)
        has_next = np.flatnonzero(partition[effective[1:]] == partition[effective[:-1]])
        _put(limit, has_next, row_start.take(effective[has_next + 1]))
        cursor = row_stop.take(effective)
        pending, rows_to_read = np.arange(len(effective)), _FIRST_READ_ROWS
        # Read the next rows of all pending changes. A change ends at its first row in both versions
        # whose value is at least as good, or at its limit.
        while len(pending):
            bound = limit.take(pending)
            start = cursor.take(pending)
            end = ranges.neighbour(start, bound, rows_to_read)
            read = ranges.read(start, end)
            present = np.flatnonzero((read.old > 0) & (read.new > 0))
            read_codes = self._codes(read.rows[:, present])
            change_of_row = read.ranges[present]  # an index into pending
            row_ranks, change_ranks = np.split(
                self._ranks(read_codes, codes[effective[pending]]), [len(present)]
            )
            hits = np.flatnonzero(row_ranks <= change_ranks[change_of_row])
            ended, first = np.unique(change_of_row[hits], return_index=True)
            rows = np.ascontiguousarray(read.rows[:, present[hits[first]]])
            _put(stop, effective[pending[ended]], ranges.seek(rows[:tie_width], after=True))
            reached[:, effective[pending[ended]]] = rows
            is_pending = np.ones(len(pending), np.bool)
            is_pending[ended] = False
            is_at_limit = (end.positions == bound.positions).all(axis=0)
            at_limit = np.flatnonzero(is_pending & is_at_limit)
            _put(stop, effective[pending[at_limit]], bound.take(at_limit))
            _put(cursor, pending, end)
            pending = pending[is_pending & ~is_at_limit]
            rows_to_read *= 4
        return Effects(stop, reached)

    def prepare(
        self,
        rows: Int64Array,
        group: Int64Array,
        was_present: BoolArray,
        is_present: BoolArray,
        before: Int64Array,
    ) -> TraceStep | None:
        """Stage the change of the records among consecutive rows.

        Args:
            rows: The rows whose result may change, by group, in order.
            group: The number of each row's group, ascending. A group is an interval of consecutive
                rows of a partition.
            was_present: A mask of the rows of positive weight without the step.
            is_present: The same with the step.
            before: The code of the running extreme before each group.
        """
        codes = self._codes(rows)
        ranks, ranks_before_groups = np.split(self._ranks(codes, before), [len(codes)])
        rank_of_absent = 2 * len(codes) + len(before)  # greater than all ranks
        ranks_before = ranks_before_groups[group]
        change = np.zeros(len(codes), np.int64)
        for sign, present in ((-1, was_present), (1, is_present)):
            ranks_of_present = np.where(present, ranks, rank_of_absent)
            change += sign * _are_records(ranks_of_present, group, ranks_before)
        changed = np.flatnonzero(change)
        if not len(changed):
            return None
        return self.trace.prepare(consolidated_rows(rows[:, changed], change[changed]))

    def _codes(self, rows: Int64Array) -> Int64Array:
        codes: Int64Array = self._order.to_input(rows)[self._ordered_column.column]
        return codes

    def _ranks(self, *parts: Int64Array) -> Int64Array:
        """Return the ranks of the values of all parts; the best is 0, NULL has the greatest."""
        codes = np.concatenate(parts)
        ranks = np.unique(self._ordered_column.ranks(codes), return_inverse=True)[1].reshape(-1)
        return np.where(codes == NULL, len(codes), ranks)


def _are_records(ranks: Int64Array, group: Int64Array, ranks_before: Int64Array) -> BoolArray:
    """Return a mask of the rows with a lower rank than all rows before them in their group.

    Args:
        ranks: The ranks of rows, by group, in order.
        group: The number of each row's group, ascending.
        ranks_before: For each row, the lowest rank of the rows before it that are not in ``ranks``.

    >>> ranks, group = np.array([3, 4, 2, 3]), np.array([0, 0, 0, 1])
    >>> _are_records(ranks, group, np.array([9, 9, 9, 3])).tolist()
    [True, False, True, False]
    """
    if not len(ranks):
        return np.zeros(0, np.bool)
    # Each group has lower numbers than all groups before it, so one running minimum serves all.
    offset = group * (max(int(ranks.max()), int(ranks_before.max())) + 1)
    ranks, best = ranks - offset, ranks_before - offset
    best[1:] = np.minimum(best[1:], np.minimum.accumulate(ranks)[:-1])
    is_record: BoolArray = ranks < best
    return is_record


def _put(positions: KeyPositions, index: Int64Array, values: KeyPositions) -> None:
    for target, source in zip(positions, values, strict=True):
        target[..., index] = source
