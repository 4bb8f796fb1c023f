"""Row intervals: the parts of changed partitions whose window functions a step computes again.

A changed row affects rows near it only, if every call of the window has a *reach*: the most rows,
or the greatest difference of the order column, between a row and another row that it reads. So a
step reads an interval of rows around changed rows, wide enough that the results of all affected
rows can be computed from it. Ranks and running sums reach back to the start of the partition, but
need only the total of the rows before the interval, which the trace returns without reading them.

=================================== ================================ ============================
call                                affected rows                    read in addition
=================================== ================================ ============================
lag(x, 3)                           up to 3 rows after the change    3 rows before these
sum(x) ROWS BETWEEN a PRECEDING     from b rows before to a after    a rows before, b after
AND b FOLLOWING
the same with RANGE                 the same, by value               the same, by value
the same with GROUPS                the same, by group               the same, by group
row_number, rank, dense_rank        all rows after the change        number of rows before
sum(x) OVER (ORDER BY t)            all rows after the change        sum of the rows before
min(x) OVER (ORDER BY t)            the change, and later rows up to the min of the rows before
                                    the next value as small
first_value(x) OVER (ORDER BY t)    the change; all if it is first   the first row
last_value(x) OVER (ORDER BY t)     the rows equal to it             nothing
percent_rank, ntile, all others     the partition                    nothing
=================================== ================================ ============================

`running_extremes` finds the rows that a change of a running min or max affects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from circuits.plan.window import Window, WindowCall
from circuits.runtime.operators.windows.order_groups import find_groups
from circuits.runtime.operators.windows.running_extremes import (
    Effects,
    RunningExtreme,
    is_running_extreme,
)
from circuits.runtime.operators.windows.window_functions import reads_first_row
from circuits.types.codecs.arrow_buffers import BoolArray
from dbsp_wcoj.storage.row_ranges import KeyPositions, RangeRows, RowRanges
from dbsp_wcoj.zset import Int64Array

__all__ = [
    "Reach",
    "RowIntervals",
    "find_row_intervals",
    "reach_of",
]

_LEAST_INT64: Final = -(2**63)
_GREATEST_INT64: Final = 2**63 - 1


@dataclass(frozen=True)
class Reach:
    """How far a window reads around a row.

    Attributes:
        rows_before: The number of rows before it that are read.
        rows_after: The number of rows after it that are read.
        values_before: The greatest difference of the order column between it and a row before it
            that is read; None if no call reads by value.
        values_after: The same for rows after it.
        groups_before: The number of groups of equal rows before its group that are read.
        groups_after: The same after it.
        own_group: True if a call reads the rows that are equal to it in the order.
        from_start: True if a call needs a total over all rows before it, which the trace returns
            without reading them.
        first_row: True if a call reads the first row of the partition.
    """

    rows_before: int = 0
    rows_after: int = 0
    values_before: int | None = None
    values_after: int | None = None
    groups_before: int = 0
    groups_after: int = 0
    own_group: bool = False
    from_start: bool = False
    first_row: bool = False

    def union(self, other: Reach) -> Reach:
        """The reach of both."""
        return Reach(
            max(self.rows_before, other.rows_before),
            max(self.rows_after, other.rows_after),
            _greater(self.values_before, other.values_before),
            _greater(self.values_after, other.values_after),
            max(self.groups_before, other.groups_before),
            max(self.groups_after, other.groups_after),
            self.own_group or other.own_group,
            self.from_start or other.from_start,
            self.first_row or other.first_row,
        )


def reach_of(plan: Window, *, can_search_values: bool) -> Reach | None:
    """Return how far the calls of a window read; None if one needs its whole partition.

    Args:
        plan: The window.
        can_search_values: True if the order column can be searched for a value plus a difference,
            because its sort column has the same differences as its values.
    """
    if not plan.order:
        return None
    reach = Reach()
    for call in plan.calls:
        call_reach = _call_reach(call, can_search_values)
        if call_reach is None:
            return None
        reach = reach.union(call_reach)
    return reach


def _call_reach(call: WindowCall, can_search_values: bool) -> Reach | None:
    function, frame = call.function, call.frame
    if function == "row_number":
        return Reach(from_start=True)
    if function in ("rank", "dense_rank"):
        return Reach(own_group=True, from_start=True)
    if function in ("lag", "lead"):
        distance = call.number if function == "lag" else -call.number
        if call.ignore_nulls or call.number_column is not None:
            return None
        return Reach(max(distance, 0), max(-distance, 0))
    if function in ("percent_rank", "cume_dist", "ntile"):
        return None
    if frame.end is None or frame.has_columns or call.ignore_nulls:
        return None
    own_group = frame.mode in ("range", "groups") or frame.exclude in ("group", "ties")
    from_start = first_row = False
    if frame.start is None:
        if frame.exclude != "none":
            return None
        first_row = reads_first_row(call)
        from_start = function in ("count", "sum", "avg") and not call.distinct
        # last_value reads one row near the current row, unless its frame of mode RANGE ends before
        # that row: the last row that far back can be at any distance.
        is_near = function == "last_value" and (frame.mode != "range" or frame.end >= 0)
        if not (first_row or from_start or is_near or is_running_extreme(call)):
            return None
    # A bound before the current row is negative. Both bounds can be on one side of it.
    start = 0 if frame.start is None else frame.start
    before, after = max(-start, -frame.end, 0), max(frame.end, start, 0)
    reach = Reach(own_group=own_group, from_start=from_start, first_row=first_row)
    if frame.mode == "rows":
        return replace(reach, rows_before=int(before), rows_after=int(after))
    if frame.mode == "groups":
        return replace(reach, groups_before=int(before), groups_after=int(after))
    if not before and not after:
        return reach
    if not can_search_values:
        return None
    return replace(reach, values_before=int(before), values_after=int(after))


class RowIntervals(NamedTuple):
    """Intervals of the rows of partitions, in order.

    Attributes:
        rows: The rows of the intervals, without and with the step.
        partition: The number of each interval's partition.
        start: The position of each interval's first row.
        partition_start: The position of the first row of its partition.
        partition_stop: The position after its last row.
        first_affected: The position of its first row whose results can change.
        last_affected: The position after the last one.
    """

    rows: RangeRows
    partition: Int64Array
    start: KeyPositions
    partition_start: KeyPositions
    partition_stop: KeyPositions
    first_affected: KeyPositions
    last_affected: KeyPositions


def find_row_intervals(
    ranges: RowRanges,
    changed: Int64Array,
    partition: Int64Array,
    prefixes: Int64Array,
    order_columns: int,
    reach: Reach,
    extremes: Sequence[RunningExtreme] = (),
    groups: RowRanges | None = None,
    *,
    nulls_first: bool = False,
    tie_width: int | None = None,
) -> RowIntervals:
    """Return the row intervals around changed rows.

    Args:
        ranges: The rows of all partitions, without and with the step.
        changed: The changed rows, sorted, shape ``(columns, n)``; partition columns are first.
        partition: The number of each changed row's partition.
        prefixes: The partition columns of each changed partition, shape ``(keys, partitions)``.
        order_columns: The number of sort columns after the partition columns.
        reach: What the calls read.
        extremes: The running extremes that calls read.
        groups: The groups of equal rows (`order_groups`), if a call reads by group.
        nulls_first: True if NULL is the first value of the order; used if a call reads by value.
        tie_width: Rows that are equal in this many first columns are tied: the caller may put them
            in another order. Then all positions are before or after all rows of a tie.
    """
    search = _IntervalSearch(
        ranges,
        changed,
        partition,
        prefixes,
        order_columns,
        reach,
        extremes,
        groups,
        nulls_first,
        tie_width,
    )
    first_affected, last_affected = search.find_affected()
    start, stop = search.extend(first_affected, last_affected)
    # Merge intervals that overlap or touch. Positions over all runs ascend with the rows.
    begin, end = start.positions.sum(axis=0), stop.positions.sum(axis=0)
    # `RowRanges.neighbour` may return a farther row for a later change than for an earlier one. So
    # take the least start of each change and the later ones: positions ascend over partitions too.
    begin = np.minimum.accumulate(begin[::-1])[::-1]
    begins_interval = np.ones(len(partition), np.bool)
    end_so_far = np.maximum.accumulate(end)
    begins_interval[1:] = (begin[1:] > end_so_far[:-1]) | (partition[1:] != partition[:-1])
    firsts = np.flatnonzero(begins_interval)  # the first of the merged ones
    start, stop = _reduce(np.minimum, start, firsts), _reduce(np.maximum, stop, firsts)
    return RowIntervals(
        ranges.read(start, stop),
        partition[firsts],
        start,
        search.partition_start.take(firsts),
        search.partition_stop.take(firsts),
        _reduce(np.minimum, first_affected, firsts),
        _reduce(np.maximum, last_affected, firsts),
    )


class _IntervalSearch:
    """The search of one interval of rows around each changed row.

    The arguments are those of `find_row_intervals`. All positions have an entry per changed row.

    Attributes:
        partition_start: The position of the first row of its partition.
        partition_stop: The position after the last row of its partition.
    """

    def __init__(
        self,
        ranges: RowRanges,
        changed: Int64Array,
        partition: Int64Array,
        prefixes: Int64Array,
        order_columns: int,
        reach: Reach,
        extremes: Sequence[RunningExtreme],
        groups: RowRanges | None,
        nulls_first: bool,
        tie_width: int | None,
    ) -> None:
        self._ranges = ranges
        self._nulls_first = nulls_first
        self._reach = reach
        self._groups = groups
        self._key_count = len(prefixes)
        # Rows that are equal in this many first columns are equal in the order of a partition.
        self._width = self._key_count + order_columns
        # If a call reads groups, an interval begins and ends with a group: so `RowRanges.neighbour`
        # finds the bounds of groups, which are rows that are equal in this number of columns.
        # Rows that are tied change places together, so a tie is in an interval as a whole.
        self._depth = self._width if reach.own_group else tie_width
        self.partition_start = ranges.seek(prefixes).take(partition)
        self.partition_stop = ranges.seek(prefixes, after=True).take(partition)
        ties = changed[:tie_width]
        self._before_row, self._after_row = ranges.seek(ties), ranges.seek(ties, after=True)
        self._effects = Effects(self._after_row, changed)
        # With ``from_start`` all rows after a change are affected anyway.
        for extreme in () if reach.from_start else extremes:
            self._effects = self._effects.union(
                extreme.find_effects(
                    ranges,
                    changed,
                    partition,
                    self.partition_stop,
                    tie_width,
                )
            )
        # The bounds of an interval by value, as the columns of a group: at first the changed row,
        # and the row that its effect reaches. `find_affected` widens them to the affected rows,
        # and `extend` to the rows that these read.
        self._low = changed[: self._width].copy()
        self._high = self._effects.reached[: self._width].copy()
        self._changed_groups = changed[: self._width]

    def find_affected(self) -> tuple[KeyPositions, KeyPositions]:
        """Return the positions of the first affected row, and after the last one.

        A row is affected if it reads the changed row.
        """
        ranges, reach = self._ranges, self._reach
        first, last = self._before_row, self._effects.stop
        if reach.rows_after:
            first = self._rows_before(first, reach.rows_after)
        if reach.rows_before:
            last = self._rows_after(last, reach.rows_before)
        if reach.own_group:
            if reach.values_before is not None and reach.values_after is not None:
                self._low[-1] = self._add_to_values(self._low[-1], -reach.values_after)
                self._high[-1] = self._add_to_values(self._high[-1], reach.values_before)
            first = _least(first, ranges.seek(self._low))
            last = _greatest(last, ranges.seek(self._high, after=True))
        if reach.groups_after:
            first = self._groups_before(first, self._changed_groups, reach.groups_after)
        if reach.groups_before:
            last = self._groups_after(
                last, self._effects.reached[: self._width], reach.groups_before
            )
        if reach.from_start:
            last = self.partition_stop
        if reach.first_row:
            # A change of the first row of a partition changes all its rows. ``old`` of a position
            # is the sum of the weights of all rows before it.
            is_first = self._before_row.old == self.partition_start.old
            first = _where(is_first, self.partition_start, first)
            last = _where(is_first, self.partition_stop, last)
        return first, last

    def extend(
        self, first_affected: KeyPositions, last_affected: KeyPositions
    ) -> tuple[KeyPositions, KeyPositions]:
        """Return the start and the stop of the rows that affected rows read."""
        ranges, reach, width = self._ranges, self._reach, self._width
        start, stop = first_affected, last_affected
        if reach.rows_before:
            start = self._rows_before(start, reach.rows_before)
        if reach.rows_after:
            stop = self._rows_after(stop, reach.rows_after)
        if reach.values_before is not None and reach.values_after is not None:
            low, high = self._low, self._high
            # Rows that are affected by position or group can have any value.
            if reach.rows_after or reach.groups_after:
                first_rows = _first_rows(ranges, first_affected, self._after_row)
                low[-1] = np.minimum(low[-1], first_rows[width - 1])
            if reach.rows_before or reach.groups_before:
                last_rows = _last_rows(ranges, self._before_row, last_affected)
                high[-1] = np.maximum(high[-1], last_rows[width - 1])
            low[-1] = self._add_to_values(low[-1], -reach.values_before)
            high[-1] = self._add_to_values(high[-1], reach.values_after)
            start = _least(start, ranges.seek(low))
            stop = _greatest(stop, ranges.seek(high, after=True))
        if reach.groups_before:
            first_rows = _first_rows(ranges, first_affected, self._after_row)
            start = self._groups_before(start, first_rows[:width], reach.groups_before)
        if reach.groups_after:
            last_rows = _last_rows(ranges, self._before_row, last_affected)
            stop = self._groups_after(stop, last_rows[:width], reach.groups_after)
        return start, stop

    def _add_to_values(self, sort_columns: Int64Array, offset: int) -> Int64Array:
        return _add_to_values(sort_columns, offset, nulls_first=self._nulls_first)

    def _rows_before(self, positions: KeyPositions, count: int) -> KeyPositions:
        """Return for each position one that is at least ``count`` rows before it."""
        return self._ranges.neighbour(positions, self.partition_start, count, depth=self._depth)

    def _rows_after(self, positions: KeyPositions, count: int) -> KeyPositions:
        """Return for each position one that is at least ``count`` rows after it."""
        return self._ranges.neighbour(
            positions, self.partition_stop, count, depth=self._depth, after=True
        )

    def _groups_before(self, positions: KeyPositions, rows: Int64Array, count: int) -> KeyPositions:
        """Return the start of the group ``count`` groups before each row.

        If the given position is before this start, return the given position.
        """
        assert self._groups is not None
        groups, exists = find_groups(
            self._groups, self._key_count, np.ascontiguousarray(rows), count
        )
        return _least(positions, _where(exists, self._ranges.seek(groups), self.partition_start))

    def _groups_after(self, positions: KeyPositions, rows: Int64Array, count: int) -> KeyPositions:
        """Return the end of the group ``count`` groups after each row.

        If the given position is after this end, return the given position.
        """
        assert self._groups is not None
        groups, exists = find_groups(
            self._groups, self._key_count, np.ascontiguousarray(rows), count, after=True
        )
        group_end = self._ranges.seek(groups, after=True)
        return _greatest(positions, _where(exists, group_end, self.partition_stop))


def _least(left: KeyPositions, right: KeyPositions) -> KeyPositions:
    return KeyPositions(*(np.minimum(a, b) for a, b in zip(left, right, strict=True)))


def _greatest(left: KeyPositions, right: KeyPositions) -> KeyPositions:
    return KeyPositions(*(np.maximum(a, b) for a, b in zip(left, right, strict=True)))


def _where(mask: BoolArray, left: KeyPositions, right: KeyPositions) -> KeyPositions:
    return KeyPositions(*(np.where(mask, a, b) for a, b in zip(left, right, strict=True)))


def _reduce(function: np.ufunc, positions: KeyPositions, firsts: Int64Array) -> KeyPositions:
    """Return the least or greatest position of merged intervals, given the first of each."""
    return KeyPositions(
        function.reduceat(positions.positions, firsts, axis=1),
        function.reduceat(positions.old, firsts),
        function.reduceat(positions.new, firsts),
    )


def _greater(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)


def _first_rows(ranges: RowRanges, start: KeyPositions, bound: KeyPositions) -> Int64Array:
    """Return the first row at or after each position. Such a row must exist before the bound."""
    read = ranges.read(start, ranges.neighbour(start, bound, 1, after=True))
    return read.rows[:, np.unique(read.ranges, return_index=True)[1]]


def _last_rows(ranges: RowRanges, bound: KeyPositions, stop: KeyPositions) -> Int64Array:
    """Return the last row before each position. Such a row must exist at or after the bound."""
    read = ranges.read(ranges.neighbour(stop, bound, 1), stop)
    return read.rows[:, np.append(np.flatnonzero(np.diff(read.ranges)), len(read.ranges) - 1)]


def _add_to_values(keys: Int64Array, offset: int, *, nulls_first: bool) -> Int64Array:
    """Add to sort columns; NULL stays, and other sums are at most the greatest sort column.

    The sort column of NULL is the least integer with ``nulls_first``, else the greatest one. All
    other integers are sort columns of values (`circuits.runtime.operators.sort_columns`).
    """
    null = _LEAST_INT64 if nulls_first else _GREATEST_INT64
    least = _LEAST_INT64 + (1 if nulls_first else 0)
    greatest = _GREATEST_INT64 - (0 if nulls_first else 1)
    offset = max(-_GREATEST_INT64, min(offset, _GREATEST_INT64))
    with np.errstate(over="ignore"):
        total = keys + np.int64(offset)
    if offset > 0:
        total = np.where(total < keys, greatest, np.minimum(total, greatest))
    else:
        total = np.where(total > keys, least, np.maximum(total, least))
    return np.where(keys == null, keys, total)
