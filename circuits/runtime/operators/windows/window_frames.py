"""Frames: the rows of its partition that a window function reads for each row.

All arrays are over the rows of whole partitions in order, one partition after the other. A frame is
up to three index ranges per row, because EXCLUDE cuts rows out of the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from circuits.plan.window import Frame, MonthShift
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.functions.dates.date_shifts import add_months
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.zset import Int64Array

__all__ = ["FrameRanges", "Partitions", "RangeOrder", "RowBounds", "frame_ranges"]


class IndexRange(NamedTuple):
    """For each row the rows from ``start`` to before ``stop``; empty if they are equal."""

    start: Int64Array
    stop: Int64Array


FrameRanges = Sequence[IndexRange]


@dataclass(frozen=True)
class Partitions:
    """Where partitions, and groups of rows that are equal in the order, begin.

    Attributes:
        partition_begins: A mask of the rows that begin a partition.
        group_begins: A mask of the rows that begin a group; includes all beginnings of partitions.

    >>> starts = np.array([True, False, False, True])
    >>> groups = np.array([True, False, True, True])
    >>> partitions = Partitions(starts, groups)
    >>> partitions.start.tolist(), partitions.stop.tolist()
    ([0, 0, 0, 3], [3, 3, 3, 4])
    >>> partitions.group_start.tolist(), partitions.group_stop.tolist()
    ([0, 0, 2, 3], [2, 2, 3, 4])
    """

    partition_begins: BoolArray
    group_begins: BoolArray

    def __len__(self) -> int:
        return len(self.partition_begins)

    @cached_property
    def row(self) -> Int64Array:
        """The index of each row."""
        return np.arange(len(self), dtype=np.int64)

    @cached_property
    def partition_index(self) -> Int64Array:
        """The number of each row's partition, from 0."""
        return np.cumsum(self.partition_begins) - 1

    @cached_property
    def group_index(self) -> Int64Array:
        """The number of each row's group, from 0, counted through all partitions."""
        return np.cumsum(self.group_begins) - 1

    @cached_property
    def start(self) -> Int64Array:
        """The first row of each row's partition."""
        return np.flatnonzero(self.partition_begins)[self.partition_index]

    @cached_property
    def stop(self) -> Int64Array:
        """The row after the last one of each row's partition."""
        return self._bounds(self.partition_begins)[self.partition_index + 1]

    @cached_property
    def group_start(self) -> Int64Array:
        """The first row of each row's group."""
        return self.group_bounds[self.group_index]

    @cached_property
    def group_stop(self) -> Int64Array:
        """The row after the last one of each row's group."""
        return self.group_bounds[self.group_index + 1]

    @cached_property
    def group_bounds(self) -> Int64Array:
        """The first row of every group, then the number of rows."""
        return self._bounds(self.group_begins)

    def _bounds(self, begins: BoolArray) -> Int64Array:
        return np.append(np.flatnonzero(begins), len(self))


@dataclass(frozen=True)
class RangeOrder:
    """The order column of a frame of mode ``range`` with an offset.

    Attributes:
        values: Numbers that ascend within each partition where ``present`` is true; int64 or a
            type of floats. An offset is rounded to this type, and added in it. NaN is the greatest
            value of the column, so it is last, or first if descending.
        present: A mask of the rows whose value is not NULL.
        descending: True if the values are the negated values of the column.
    """

    values: Int64Array | np.ndarray
    present: BoolArray
    descending: bool = False


@dataclass(frozen=True)
class RowBounds:
    """A bound of the frame of each row, which is no constant of the plan.

    Attributes:
        values: The signed number of rows or groups; in mode ``range`` the value at the bound, as
            in `RangeOrder`.
        present: A mask of the rows whose bound is not NULL. NULL is the current row.
        beyond: In mode ``range``, 1 for a bound above all integers of 64 bits, -1 for one below
            them, else 0; ``values`` is then the nearest integer. None if no bound is.
    """

    values: Int64Array | np.ndarray
    present: BoolArray
    beyond: Int64Array | None = None


def frame_ranges(
    frame: Frame,
    partitions: Partitions,
    range_order: RangeOrder | None,
    starts: RowBounds | None = None,
    ends: RowBounds | None = None,
) -> FrameRanges:
    """Return the index ranges of each row's frame; ranges are in the order of the rows.

    Args:
        frame: The frame.
        partitions: The rows.
        range_order: The order column, needed for mode ``range`` with an offset.
        starts: The first bound of each row, if it is no constant.
        ends: The last bound of each row, if it is no constant.

    Complexity:
        O(n); with an offset of mode ``range`` O(n log n).
    """
    start = _bound(frame, frame.start, starts, partitions, range_order, is_end=False)
    stop = _bound(frame, frame.end, ends, partitions, range_order, is_end=True)
    start = np.clip(start, partitions.start, partitions.stop)
    stop = np.maximum(np.clip(stop, partitions.start, partitions.stop), start)
    if frame.exclude == "none":
        return [IndexRange(start, stop)]
    if frame.exclude == "current row":
        first, last = partitions.row, partitions.row + 1
    else:
        first, last = partitions.group_start, partitions.group_stop
    before = IndexRange(start, np.clip(first, start, stop))
    after = IndexRange(np.clip(last, start, stop), stop)
    if frame.exclude != "ties":
        return [before, after]
    row = partitions.row
    inside = (start <= row) & (row < stop)
    return [before, IndexRange(row, row + inside), after]


def _bound(
    frame: Frame,
    offset: int | float | None,
    row_bounds: RowBounds | None,
    partitions: Partitions,
    range_order: RangeOrder | None,
    *,
    is_end: bool,
) -> Int64Array:
    """Return the start of each frame, or its end: the index after its last row."""
    if row_bounds is None and offset is None:
        return partitions.stop if is_end else partitions.start
    if offset == 0 and frame.mode != "rows":
        return partitions.group_stop if is_end else partitions.group_start
    if frame.mode != "range":
        offsets: int | Int64Array = int(offset or 0)
        if row_bounds is not None:
            offsets = np.where(row_bounds.present, row_bounds.values, 0)
        if frame.mode == "groups":
            return _group_bound(offsets, partitions, is_end=is_end)
        # Clipped to a number of rows that no partition has, so that the sum is an int64.
        row: Int64Array = partitions.row + np.clip(offsets, -(2**62), 2**62)
        return row + 1 if is_end else row
    assert range_order is not None
    values = range_order.values
    if row_bounds is None:
        wanted: Int64Array | np.ndarray
        beyond: Int64Array | None = None
        shift = frame.end_shift if is_end else frame.start_shift
        if shift is not None:  # it replaces the offset
            wanted, beyond = _shift_months(values, shift, descending=range_order.descending)
        elif values.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                wanted = values + np.asarray(float(offset or 0)).astype(values.dtype)
        else:
            wanted, beyond = _add_saturating(values, int(offset or 0))
        row_bounds = RowBounds(wanted, range_order.present, beyond)
    return _value_bound(row_bounds, partitions, range_order, is_end=is_end)


def _group_bound(offsets: int | Int64Array, partitions: Partitions, *, is_end: bool) -> Int64Array:
    groups = len(partitions.group_bounds) - 1
    offsets = np.clip(offsets, -groups - 1, groups + 1)
    group: Int64Array = partitions.group_index + offsets + is_end
    first = partitions.group_index[partitions.start]
    last = partitions.group_index[partitions.stop - 1] + 1
    return partitions.group_bounds[np.clip(group, first, last)]


def _value_bound(
    row_bounds: RowBounds, partitions: Partitions, order: RangeOrder, *, is_end: bool
) -> Int64Array:
    """Return the bounds of frames of mode ``range``: search the wanted values in the partition.

    The frame of a row without a value, or without a bound, is its group.
    """
    bounds = (partitions.group_stop if is_end else partitions.group_start).copy()
    rows = np.flatnonzero(order.present)
    searching = np.flatnonzero(row_bounds.present & order.present)
    n = len(rows)
    if not len(searching):
        return bounds
    # Sort the values of the rows and the wanted values together, by partition. Among equal values,
    # a wanted value is first if it begins a frame (the equal rows are in it), last if it ends one.
    # A bound beyond the integers is after the greatest, or before the least, in either case.
    values, wanted = order.values[rows], row_bounds.values[searching]
    partition = partitions.partition_index[rows]
    searched_partition = partitions.partition_index[searching]
    tie_breaker = np.repeat([0, 1 if is_end else -1], (n, len(searching)))
    if row_bounds.beyond is not None:
        beyond = row_bounds.beyond[searching]
        tie_breaker[n:] = np.where(beyond == 0, tie_breaker[n:], beyond)
    both_values = np.concatenate((values, wanted))
    both_partitions = np.concatenate((partition, searched_partition))
    keys = [tie_breaker, both_values, both_partitions]
    if order.descending and both_values.dtype.kind == "f":
        keys.insert(2, ~np.isnan(both_values))  # NaN is first; `lexsort` has it last
    sorted_indices = np.lexsort(keys)
    is_row = sorted_indices < n
    searched = np.flatnonzero(~is_row)
    # The number of rows that are before each wanted value.
    rows_before = np.empty(len(searching), np.int64)
    rows_before[sorted_indices[searched] - n] = np.cumsum(is_row)[searched]
    # A bound is the index after the last row that is before the wanted value. If no such row is in
    # the partition, it is the first row with a value: NULLs are first or last in a partition.
    first_row = rows[np.searchsorted(partition, searched_partition)]
    bounds[searching] = np.maximum(np.concatenate(([0], rows + 1))[rows_before], first_row)
    return bounds


def _shift_months(
    values: Int64Array, shift: MonthShift, *, descending: bool
) -> tuple[Int64Array, Int64Array]:
    """Return times, as codes or as negated codes, shifted by months and then by ticks.

    Returns:
        The nearest codes, and which are beyond the integers, as in `RowBounds`.
    """
    # Among negated times, a bound before the current row is a later time.
    sign = -1 if descending else 1
    times = sign * values
    days = times // shift.ticks_per_day
    time_of_day = times - days * shift.ticks_per_day
    limit = (2**63 - 2) // shift.ticks_per_day - 1
    months_later = add_months(days, np.array(sign * shift.months))
    new_days = np.clip(months_later, -limit, limit)
    moved, beyond = _add_saturating(
        new_days * shift.ticks_per_day + time_of_day, sign * shift.ticks
    )
    beyond = np.where(new_days == months_later, beyond, np.sign(months_later))
    moved = np.where(new_days == months_later, moved, np.sign(months_later) * (2**63 - 1))
    is_infinite = np.abs(days) > limit  # such a time stays what it is
    return (
        sign * np.where(is_infinite, times, moved),
        sign * np.where(is_infinite, 0, beyond),
    )


def _add_saturating(values: Int64Array, offset: int) -> tuple[Int64Array, Int64Array]:
    """Return the nearest integers to the sums, and which sums are beyond the integers."""
    limit = 2**63 - 1
    sign = 1 if offset > 0 else -1
    spare = limit - abs(offset)  # the greatest value, or the least negated one, with a sum
    is_beyond = sign * values > spare if spare >= -limit else np.ones(len(values), np.bool_)
    sums = (values.astype(np.uint64) + np.uint64(offset % 2**64)).astype(np.int64)
    return np.where(is_beyond, np.int64(sign * limit), sums), np.where(is_beyond, sign, 0)
