"""Parallel sort: sort two halves of many rows at the same time.

Rows whose columns fit in 64 bits together are packed into keys, as `dbsp_wcoj.kernels.storage.sort`
does, and split by a value of the first column, the median of a sample. Each half is packed, sorted
and summed in its own thread. Then both are unpacked into one array, the lower half first: nothing
is merged, because equal rows are in one half. Alternatives considered: splitting by position. The
halves would have to be merged, which takes longer and would need a split itself.

Halves of very different size do not pay off. There is no split if most rows have one first value,
or if the sample is sorted: sorted rows take only one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.sort import OVERFLOW, collect_half, sort_half, write_rows
from dbsp_wcoj.workers import current_workers, run_tasks

__all__ = ["MIN_SPLIT_ROWS", "ParallelSort", "split_rows"]

Int64Array = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

# Sorting fewer rows takes less time than waking another thread.
MIN_SPLIT_ROWS = 1 << 18
# The number of values of the first column from which the median is computed.
SAMPLE_ROWS = 1 << 10
# The smaller half has at least one row of this many.
MAX_IMBALANCE = 8


class SortedHalf(NamedTuple):
    """A sorted half: its keys, their weights (empty if each is 1), and the kernel's status."""

    keys: Keys
    weights: Int64Array
    status: int


class ParallelSort:
    """Rows that are split into two halves.

    Args:
        columns: Contiguous, of one length.
        weights: None if each is 1.
        pivot: Half 0 has the rows whose first value is below it.
        lowest: The least value of each column.
        bits: The number of bits of the differences from the least value, for each column.
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
        # The last column has the least significant bits of the key.
        self._bits = sum(bits)
        self._shifts = self._bits - np.cumsum([*bits, 0], dtype=np.int64)
        below = int(np.count_nonzero(columns[0] < pivot))
        self._sizes = (below, len(columns[0]) - below)

    @property
    def smaller_size(self) -> int:
        """The number of rows of the smaller half."""
        return min(self._sizes)

    def sort(self) -> tuple[Int64Array, Int64Array | None] | None:
        """Sort all rows, each half by one worker, and sum the weights of equal rows.

        Returns:
            The rows and their weights; instead of the weights None if each is 1. None instead of
            both if the weights of a row add up to more than int64 holds.
        """
        lower, upper = run_tasks([partial(self._sort_half, half) for half in (0, 1)])
        if OVERFLOW in (lower.status, upper.status):
            return None
        rows = np.empty((len(self._columns), len(lower.keys) + len(upper.keys)), np.int64)
        run_tasks(
            [
                partial(self._write, lower.keys, rows, 0),
                partial(self._write, upper.keys, rows, len(lower.keys)),
            ]
        )
        if not len(lower.weights) and not len(upper.weights):
            return rows, None
        weights = [
            half.weights if len(half.weights) else np.ones(len(half.keys), np.int64)
            for half in (lower, upper)
        ]
        return rows, np.concatenate(weights)

    def _write(self, keys: Keys, rows: Int64Array, first: int) -> None:
        write_rows(keys, self._lowest, self._shifts, self._bits, rows, first)

    def _sort_half(self, half: int) -> SortedHalf:
        size, first_column = self._sizes[half], self._columns[0]
        # Pack the columns into one key per row. The kernel writes one word behind the last row.
        keys = np.zeros(size + 1, np.uint64)
        for column, low, shift in zip(self._columns, self._lowest, self._shifts, strict=False):
            collect_half(
                first_column,
                column,
                self._pivot,
                half == 1,
                np.uint64(int(low) % (1 << 64)),
                np.uint64(min(shift, 63)),
                keys,
            )
        weights = np.empty(0, np.int64)
        if self._weights is not None:
            half_weights = np.zeros(size + 1, np.uint64)
            # Weights are collected as they are: nothing is subtracted, and nothing shifted.
            zero = np.uint64(0)
            collect_half(
                first_column, self._weights, self._pivot, half == 1, zero, zero, half_weights
            )
            weights = half_weights[:-1].view(np.int64)
        scratch = np.empty((2, size), np.int64)
        return SortedHalf(*sort_half(keys[:-1], weights, scratch, self._bits))


def split_rows(columns: Sequence[Int64Array], weights: Int64Array | None) -> ParallelSort | None:
    """Split rows into halves; None without workers, or if one sort of all rows is as fast.

    Args:
        columns: At least one.
        weights: None if each is 1.

    Complexity:
        O(rows).
    """
    rows = len(columns[0])
    if rows < MIN_SPLIT_ROWS or current_workers() is None:
        return None
    columns = [np.ascontiguousarray(column) for column in columns]
    sample = columns[0][:: rows // SAMPLE_ROWS]
    if (sample[1:] >= sample[:-1]).all():
        return None
    lowest = [int(column.min()) for column in columns]
    bits = [
        (int(column.max()) - low).bit_length() for column, low in zip(columns, lowest, strict=True)
    ]
    if sum(bits) > 64:
        return None
    pivot = int(np.partition(sample, len(sample) // 2)[len(sample) // 2])
    split = ParallelSort(columns, weights, pivot, lowest, bits)
    return split if split.smaller_size * MAX_IMBALANCE >= rows else None
