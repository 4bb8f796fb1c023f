"""Halves of many rows in any order, to be sorted at the same time.

Rows whose columns fit in 64 bits together are packed into keys, as `dbsp_wcoj.kernels.storage.sort`
does, and cut by a value of the first column, a median of some of them. Each half is packed, sorted
and summed up in a thread of its own; then both are unpacked to where they stand, one after the
other: nothing is merged, and equal rows are in one half. Not taken: cutting by position, whose
halves would have to be merged, which takes longer and has to be cut in its turn.

Halves of very different size are not worth it: where most rows have one first value, or where the
rows look sorted, which is found out in one pass, there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, wait

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.sort import OVERFLOW, sorted_half, take_half, write_rows

__all__ = ["ParallelSort", "split_rows"]

Int64Array = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

# Fewer rows are sorted before another thread has begun.
LARGE = 1 << 18
# First values that the median is of.
SAMPLED = 1 << 10
# A half has at least one row in so many.
SMALLEST = 8


class ParallelSort:
    """Rows that are cut in two.

    Args:
        columns: Contiguous, of one length.
        weights: None where each is 1.
        pivot: The half 0 has the rows whose first value is below it.
        lowest: The least value of each column.
        bits: How many bits the values of each column need, less that.
    """

    __slots__ = ("_bits", "_columns", "_lowest", "_pivot", "_shifts", "_sizes", "_weights")

    def __init__(
        self,
        columns: Sequence[Int64Array],
        weights: Int64Array | None,
        pivot: int,
        lowest: Sequence[int],
        bits: Sequence[int],
    ) -> None:
        self._columns = columns
        self._weights = weights
        self._pivot = pivot
        self._lowest = np.array(lowest, np.int64)
        # The last column is lowest.
        self._bits = sum(bits)
        self._shifts = self._bits - np.cumsum([*bits, 0], dtype=np.int64)
        below = int(np.count_nonzero(columns[0] < pivot))
        self._sizes = (below, len(columns[0]) - below)

    @property
    def smallest(self) -> int:
        """How many rows the smaller half has."""
        return min(self._sizes)

    def sorted(self, executor: Executor) -> tuple[Int64Array, Int64Array | None] | None:
        """All rows sorted and their weights, None where each is 1; half of it in the executor.

        Returns:
            None if the weights of a row add up to more than int64 holds.
        """
        other = executor.submit(self._summed, 1)
        try:
            keys, weights, status = self._summed(0)
        finally:
            wait([other])
        more, others, second = other.result()
        if OVERFLOW in (status, second):
            return None
        rows = np.empty((len(self._columns), len(keys) + len(more)), np.int64)
        after = executor.submit(self._write, more, rows, len(keys))
        self._write(keys, rows, 0)
        after.result()
        if not len(weights) and not len(others):
            return rows, None
        given = [weights if len(weights) else np.ones(len(keys), np.int64)]
        given += [others if len(others) else np.ones(len(more), np.int64)]
        return rows, np.concatenate(given)

    def _write(self, keys: Keys, rows: Int64Array, first: int) -> None:
        write_rows(keys, self._lowest, self._shifts, self._bits, rows, first)

    def _summed(self, half: int) -> tuple[Keys, Int64Array, int]:
        """The sorted keys of a half, their weights if not all are 1, and whether they are right."""
        size, key = self._sizes[half], self._columns[0]
        # A word more for what is written behind the last row.
        keys = np.zeros(size + 1, np.uint64)
        for column, low, shift in zip(self._columns, self._lowest, self._shifts, strict=False):
            where = np.uint64(min(shift, 63))
            take_half(
                key, column, self._pivot, half == 1, np.uint64(int(low) % (1 << 64)), where, keys
            )
        weights = np.empty(0, np.int64)
        if self._weights is not None:
            taken = np.zeros(size + 1, np.uint64)
            zero = np.uint64(0)
            take_half(key, self._weights, self._pivot, half == 1, zero, zero, taken)
            weights = taken[:-1].view(np.int64)
        scratch = np.empty((2, size), np.int64)
        found: tuple[Keys, Int64Array, int] = sorted_half(keys[:-1], weights, scratch, self._bits)
        return found


def split_rows(columns: Sequence[Int64Array], weights: Int64Array | None) -> ParallelSort | None:
    """The halves of rows, or None where sorting all at once is as good.

    Args:
        columns: At least one.
        weights: None where each is 1.

    Complexity:
        O(rows).
    """
    rows = len(columns[0])
    if rows < LARGE:
        return None
    columns = [np.ascontiguousarray(column) for column in columns]
    some = columns[0][:: rows // SAMPLED]
    if (some[1:] >= some[:-1]).all():
        return None
    lowest = [int(column.min()) for column in columns]
    bits = [
        (int(column.max()) - low).bit_length() for column, low in zip(columns, lowest, strict=True)
    ]
    if sum(bits) > 64:
        return None
    pivot = int(np.partition(some, len(some) // 2)[len(some) // 2])
    found = ParallelSort(columns, weights, pivot, lowest, bits)
    return found if found.smallest * SMALLEST >= rows else None
