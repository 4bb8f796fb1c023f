"""Partial sums: the sum of the partial aggregates of many slices, in little memory.

If the groups of a table are in no order, each slice has rows of almost as many groups as it has
rows. A list of the partial aggregates of all slices then has more rows than the table, and one sort
of them takes about three times their memory. So they are added up in two stages::

    slices   --buffer-->   a few sorted sums   --ranges of the first column-->   the sum

The rows of a single slice are the sum as they are. Else a buffer is sorted when it is full. If at
most half of its rows remain, because slices have groups in common, the sum begins the next buffer;
so the sum of few groups never leaves the buffer. Otherwise the sum begins a larger buffer, or, if
the buffer already has the greatest size, it is stored. `add_in_ranges` adds up the stored sums, a
range of values at a time.

The caller divides `BUFFER_BYTES` among the first buffers of the sums that exist at once
(`circuits.runtime.linear_stage`). A larger buffer is begun with a sum that fills more than an
eighth of it. So the buffers take no more than a few times the memory of the results, however many
there are.

Meanwhile a sum is stored with its rows packed into keys (`dbsp_wcoj.storage.row_keys`), if they
fit, which takes 16 bytes per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.workers import current_workers
from dbsp_wcoj.zset import Int64Array, SortedRows, add_in_order, consolidated_rows, sum_ranges

__all__ = ["PackedSum", "PartialSum", "add_in_ranges", "store"]

#: The size of the first buffers of all sums that exist at once, and of the largest buffer of a sum
#: in all threads together; and of the rows that `add_in_ranges` sorts at a time.
BUFFER_BYTES: Final = 80 << 20
#: A larger buffer has so many times the size.
BUFFER_GROWTH: Final = 4
#: The number of rows of the result that are unpacked at a time.
UNPACKED_ROWS: Final = 1 << 18
_WORD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class PackedSum(SortedRows):
    """Sorted rows that are packed into one column of keys.

    >>> rows = ZSet.from_rows([(5, 1), (5, 3), (8, 2)])
    >>> stored = store(rows)
    >>> stored.columns.shape, stored.find(np.array([4, 6, 9])), stored.read(0, 3) == rows
    ((1, 3), [0, 2, 3], True)
    """

    layout: KeyLayout

    def read(self, first: int, end: int) -> ZSet:
        return ZSet(self.layout.decode(self.columns[0, first:end]), self.weights[first:end])

    def sample(self, step: int) -> Int64Array:
        values: Int64Array = self.layout.decode(self.columns[0, ::step].copy())[0]
        return values

    def find(self, values: Int64Array) -> list[int]:
        low, shift = self.layout.lowest[0], int(self.layout.shifts[0])
        highest = low + (1 << self.layout.bits[0]) - 1
        return [
            self.rows
            if value > highest
            else int(np.searchsorted(self.columns[0], max(value - low, 0) << shift))
            for value in values.tolist()
        ]


def store(zset: ZSet) -> SortedRows:
    """Pack the rows of a Z-set with at least one row and one column, if they fit into keys."""
    layout = KeyLayout.covering(zset.row_array)
    if layout is None:
        return SortedRows(zset.row_array, zset.weight_array)
    memory = np.empty((2, len(zset)), np.int64)
    layout.encode_columns(zset.row_array, memory[0])
    memory[1] = zset.weight_array
    return PackedSum(memory[:1], memory[1], layout)


class PartialSum:
    """The sum of Z-sets that are appended one by one.

    Each buffer is added up by itself, so the sum of a row over a part of the Z-sets may leave int64
    although that over all of them fits, if it has positive and negative weights. This is an error.
    The same holds for each slice: its partial aggregate is computed before it is appended.

    Args:
        arity: The number of columns, at least 1.
        buffer_bytes: The greatest size of the buffer; there is none for a single Z-set.
        first_bytes: The greatest size of a buffer that does not begin with a large sum; by default
            as ``buffer_bytes``.
        summands: About how many Z-sets will be appended. The buffer begins with space for as many
            of the size of the first one, and grows if that is too little.

    Complexity:
        O(r log r) time for r appended rows; O(1) for a single Z-set. Memory for the buffer and the
        sums of the buffers that have few rows in common.

    >>> total = PartialSum(1)
    >>> for row in (3, 1, 3):
    ...     total.append(ZSet.from_rows([(row,)]))
    >>> [stored.read(0, 9) for stored in total.finish()]
    [ZSet({(1,): 1, (3,): 2})]
    """

    def __init__(
        self,
        arity: int,
        buffer_bytes: int = BUFFER_BYTES,
        summands: int = 1,
        *,
        first_bytes: int | None = None,
    ) -> None:
        row_bytes = _WORD_BYTES * (arity + 1)
        self._summands = summands
        self._arity = arity
        self._max_capacity = max(buffer_bytes // row_bytes, 1)
        # The number of rows after which the buffer is added up.
        self._capacity = self._max_capacity
        if first_bytes is not None:
            self._capacity = min(max(first_bytes // row_bytes, 1), self._max_capacity)
        self._sums: list[SortedRows] = []
        # The Z-set that was appended while the buffer was empty.
        self._kept: ZSet | None = None
        # The columns and, last, the weights; None if the buffer is empty.
        self._buffer: Int64Array | None = None
        self._count = 0
        # The number of rows that the next buffer holds at least; at most the capacity.
        self._buffer_rows = 0

    def append(self, rows: ZSet) -> None:
        """Add a Z-set.

        Raises:
            WeightOverflowError: The weight of a row leaves int64 in the sum of a buffer.
        """
        if not len(rows):
            return
        if self._kept is None and not self._count:
            self._kept = rows
            return
        kept, self._kept = self._kept, None
        if kept is not None:
            expected = min(self._summands * len(kept), self._capacity)
            self._buffer_rows = max(self._buffer_rows, expected)
            self._copy(kept)
        self._copy(rows)

    def _copy(self, rows: ZSet) -> None:
        """Copy rows to the buffer, and add it up whenever it is full."""
        begin = 0
        while begin < len(rows):
            end = min(len(rows), begin + self._capacity - self._count)
            free = slice(self._count, self._count + end - begin)
            buffer = self._reserve(free.stop)
            buffer[:-1, free] = rows.row_array[:, begin:end]
            buffer[-1, free] = rows.weight_array[begin:end]
            self._count, begin = free.stop, end
            if self._count == self._capacity:
                del buffer  # its memory is free before the sum is copied
                total = self._add_up()
                if len(total) > self._capacity // 2:
                    if self._capacity == self._max_capacity:
                        self._sums.append(store(total))
                        continue
                    self._capacity = min(BUFFER_GROWTH * self._capacity, self._max_capacity)
                self._copy(total)

    def _reserve(self, rows: int) -> Int64Array:
        """Return a buffer with space for some rows, at most the capacity."""
        buffer = self._buffer
        if buffer is not None and buffer.shape[1] >= rows:
            return buffer
        if rows > self._buffer_rows:
            self._buffer_rows = min(max(rows, 2 * self._buffer_rows), self._capacity)
        self._buffer = np.empty((self._arity + 1, self._buffer_rows), np.int64)
        if buffer is not None:
            self._buffer[:, : self._count] = buffer[:, : self._count]
        return self._buffer

    def finish(self) -> list[SortedRows]:
        """Return the sum of all that were appended, in parts; nothing may be appended later.

        Raises:
            WeightOverflowError: The weight of a row leaves int64 in the sum of a buffer.
        """
        if self._kept is not None:
            self._sums.append(SortedRows(self._kept.row_array, self._kept.weight_array))
            self._kept = None
        if self._count:
            total = self._add_up()
            if len(total):
                self._sums.append(store(total))
        return self._sums

    def _add_up(self) -> ZSet:
        """Remove the rows of the buffer and return their sum."""
        buffer, count = self._buffer, self._count
        assert buffer is not None
        self._buffer, self._count = None, 0
        if count < buffer.shape[1]:
            buffer = np.ascontiguousarray(buffer[:, :count])
        return consolidated_rows(buffer[:-1], buffer[-1])


def add_in_ranges(sums: list[SortedRows], arity: int, range_bytes: int = BUFFER_BYTES) -> ZSet:
    """Add up large sums, a range of values of the first column at a time.

    A range is sorted in memory that the next range uses again. One sort of all rows would take as
    much memory for a copy of the rows, and more for the sort. Workers sort the rows in parts
    anyway, and rows in order need no sort: these are added up at once.

    Args:
        sums: The sums. The list is emptied, so that their memory is free as soon as possible.
        arity: The number of columns.
        range_bytes: About the size of a range.

    Raises:
        WeightOverflowError: The weight of a row of the sum leaves int64.

    Complexity:
        O(r log r) time for r rows. Memory for the result and for a range, or for all rows with the
        most frequent value of the first column if these take more.
    """
    parts = [stored for stored in sums if stored.rows]
    sums.clear()
    range_rows = max(range_bytes // (_WORD_BYTES * (arity + 1)), 1)
    if sum(part.rows for part in parts) <= range_rows or current_workers() is not None:
        return add_in_order([part.read(0, part.rows) for part in parts], arity)
    if _are_in_order(parts):
        return _concatenate(parts, arity)
    totals = [store(total) for total in sum_ranges(parts, range_rows)]
    del parts
    return _concatenate(totals, arity)


def _are_in_order(parts: Sequence[SortedRows]) -> bool:
    """Return whether all rows of a sum are before those of the next one."""
    return all(
        before.read(before.rows - 1, before.rows).row_array[:, 0].tolist()
        < after.read(0, 1).row_array[:, 0].tolist()
        for before, after in pairwise(parts)
    )


def _concatenate(parts: list[SortedRows], arity: int) -> ZSet:
    """Return the rows of sums that are in order and have no row in common; empties the list."""
    row_count = sum(part.rows for part in parts)
    columns, weights = np.empty((arity, row_count), np.int64), np.empty(row_count, np.int64)
    parts.reverse()
    begin = 0
    while parts:
        part = parts.pop()  # its memory is free before the next one is read
        for first in range(0, part.rows, UNPACKED_ROWS):
            source = part.read(first, first + UNPACKED_ROWS)
            end = begin + len(source)
            columns[:, begin:end], weights[begin:end] = source.row_array, source.weight_array
            begin = end
    return ZSet(columns, weights)
