"""Parallel sort: sort two halves of many rows at the same time.

Rows whose columns fit in 64 bits together are packed into keys, as `dbsp_wcoj.kernels.storage.sort`
does, and split by a value of the first column, the median of a sample. Each half is packed, sorted
and summed in its own thread. Then both are unpacked to their positions, one after the other:
nothing is merged, because equal rows are in one half. Alternatives considered: splitting by
position. The halves would have to be merged, which takes longer and would need a split itself.

Halves of very different size do not pay off. There is no split if most rows have one first value,
or if the rows look sorted, which one pass determines.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, wait

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.sort import OVERFLOW, collect_half, sort_half, write_rows

__all__ = ["ParallelSort", "split_rows"]

Int64Array = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

# Fewer rows are sorted before another thread has started.
MIN_PARALLEL_ROWS = 1 << 18
# The median is that of this many first values.
SAMPLE_ROWS = 1 << 10
# The smaller half has at least one in this many rows.
MAX_IMBALANCE = 8


class ParallelSort:
    """Rows that are split into two halves.

    Args:
        columns: Contiguous, of one length.
        weights: None if each is 1.
        pivot: Half 0 has the rows whose first value is below it.
        lowest: The least value of each column.
        bits: The number of bits of each column's values, less its lowest value.
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
    def smaller_size(self) -> int:
        """The number of rows of the smaller half."""
        return min(self._sizes)

    def sort(self, executor: Executor) -> tuple[Int64Array, Int64Array | None] | None:
        """Sort all rows, half of them in the executor; return rows and weights, None if each is 1.

        Returns:
            None if the weights of a row add up to more than int64 holds.
        """
        other = executor.submit(self._sort_half, 1)
        try:
            keys, weights, status = self._sort_half(0)
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

    def _sort_half(self, half: int) -> tuple[Keys, Int64Array, int]:
        """Sort a half: its keys, their weights if not all are 1, and the kernel's status."""
        size, key = self._sizes[half], self._columns[0]
        # One more word, because the kernel writes behind the last row.
        keys = np.zeros(size + 1, np.uint64)
        for column, low, shift in zip(self._columns, self._lowest, self._shifts, strict=False):
            where = np.uint64(min(shift, 63))
            collect_half(
                key, column, self._pivot, half == 1, np.uint64(int(low) % (1 << 64)), where, keys
            )
        weights = np.empty(0, np.int64)
        if self._weights is not None:
            taken = np.zeros(size + 1, np.uint64)
            zero = np.uint64(0)
            collect_half(key, self._weights, self._pivot, half == 1, zero, zero, taken)
            weights = taken[:-1].view(np.int64)
        scratch = np.empty((2, size), np.int64)
        found: tuple[Keys, Int64Array, int] = sort_half(keys[:-1], weights, scratch, self._bits)
        return found


def split_rows(columns: Sequence[Int64Array], weights: Int64Array | None) -> ParallelSort | None:
    """Split rows into halves; None if one sort of all rows is as fast.

    Args:
        columns: At least one.
        weights: None if each is 1.

    Complexity:
        O(rows).
    """
    rows = len(columns[0])
    if rows < MIN_PARALLEL_ROWS:
        return None
    columns = [np.ascontiguousarray(column) for column in columns]
    some = columns[0][:: rows // SAMPLE_ROWS]
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
    return found if found.smaller_size * MAX_IMBALANCE >= rows else None
