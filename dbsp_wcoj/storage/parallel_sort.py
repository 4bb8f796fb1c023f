"""Parallel sort: sort many rows in parts, at the same time.

Rows whose columns fit in 64 bits together are packed into keys, as `dbsp_wcoj.kernels.storage.sort`
does, and divided by value::

    pack      slices of the rows      keys, and the part of each key
    move      slices of the rows      the keys of part 0, then those of part 1, and so on
    sort      parts                   sorted keys; the weights of equal keys are added up
    unpack    parts                   rows

Each line is a list of tasks, which workers share. The bounds of the parts are quantiles of a sample
of the keys, so the parts are about even, also if many rows have one first value. Nothing is merged,
because equal rows are in one part.

If the columns do not fit, the keys consist of the leading columns that do. The positions of the
rows are moved with the keys, and a part gathers its rows and sorts them as one thread would.

Cost: as one sort. The keys of a part agree in their first bits, so the pass that moves keys to
parts usually replaces a pass of the sort.

Alternatives considered: dividing by position. The parts would have to be merged, which takes longer
and would need a division itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.sort import (
    OVERFLOW,
    SCRATCH_ARRAYS,
    consolidate,
    find_parts,
    move_to_parts,
    pack_column,
    sort_part,
    write_rows,
)
from dbsp_wcoj.workers import TASKS_PER_THREAD, current_workers, run_tasks

__all__ = ["MIN_SPLIT_ROWS", "ParallelSort", "split_rows"]

Int64Array = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

#: Fewer rows are sorted by one thread.
MIN_SPLIT_ROWS: Final = 1 << 17
#: The rows that a task packs and moves: their keys stay in the second-level cache.
SLICE_ROWS: Final = 1 << 16
#: A part has about so many rows or more.
MIN_PART_ROWS: Final = 1 << 13
#: Each key is compared with all bounds.
MAX_PARTS: Final = 1 << 5
MAX_KEY_BITS: Final = 64
#: The bounds are chosen from so many keys for each part.
SAMPLED_KEYS_PER_PART: Final = 1 << 7
GOLDEN_RATIO: Final = (5**0.5 - 1) / 2


class SortedPart(NamedTuple):
    """A sorted part.

    Attributes:
        rows: Keys; or columns of shape ``(arity, rows)``.
        weights: The weights; empty if each is 1.
        status: The status of the kernel.
    """

    rows: npt.NDArray[Any]
    weights: Int64Array
    status: int


class ParallelSort:
    """Rows that are sorted in parts.

    Args:
        columns: Contiguous, of one length, at least one row; the first column is the most
            significant one.
        weights: None if each is 1.
        bounds: The keys at which the parts after the first one begin, at most 255.
        lowest: The least value of each leading column that is in the keys.
        bits: The number of bits of the differences from the least value, for each of them.
        sorted_columns: The rows are sorted by so many of the last columns, and distinct in all.
    """

    __slots__ = ("_bits", "_bounds", "_columns", "_low_bit", "_lowest", "_shifts", "_weights")

    def __init__(
        self,
        columns: Sequence[Int64Array],
        weights: Int64Array | None,
        bounds: Keys,
        lowest: Sequence[int],
        bits: Sequence[int],
        sorted_columns: int = 0,
    ) -> None:
        self._columns = columns
        self._weights = weights
        self._bounds = bounds
        self._lowest = np.array(lowest, np.int64)
        self._bits = sum(bits)
        self._shifts = _shifts_of(bits)
        self._low_bit = sum(bits[len(bits) - sorted_columns :])

    @property
    def has_whole_rows(self) -> bool:
        """True if all columns are in the keys."""
        return len(self._lowest) == len(self._columns)

    @property
    def part_sizes(self) -> list[int]:
        """The number of rows of each part; O(rows)."""
        return np.diff(self._divide(None)[2]).tolist()

    def sort(self) -> tuple[Int64Array, Int64Array | None] | None:
        """Sort all rows and sum the weights of equal rows.

        Returns:
            The rows and their weights; instead of the weights None if each is 1. None instead of
            both if the weights of a row add up to more than int64 holds.
        """
        positions = None if self.has_whole_rows else np.arange(len(self._columns[0]))
        keys, payload, bounds = self._divide(self._weights if positions is None else positions)
        sort = self._sort_keys if positions is None else self._sort_rows
        parts = run_tasks(
            [
                partial(sort, keys[first:end], payload[first:end])
                for first, end in pairwise(bounds)
                if end > first
            ]
        )
        if any(part.status == OVERFLOW for part in parts):
            return None
        firsts = np.cumsum([0, *[part.rows.shape[-1] for part in parts]]).tolist()
        rows = np.empty((len(self._columns), firsts[-1]), np.int64)
        write = self._write_keys if positions is None else self._write_rows
        run_tasks(
            [
                partial(write, part.rows, rows, first)
                for part, first in zip(parts, firsts[:-1], strict=True)
            ]
        )
        if not any(len(part.weights) for part in parts):
            return rows, None
        return rows, np.concatenate(
            [
                part.weights if len(part.weights) else np.ones(part.rows.shape[-1], np.int64)
                for part in parts
            ]
        )

    def _divide(self, payload: Int64Array | None) -> tuple[Keys, Int64Array, list[int]]:
        """Return the keys and their payload part by part, where each part begins, and the end."""
        rows, parts = len(self._columns[0]), len(self._bounds) + 1
        keys = np.zeros(rows, np.uint64)
        numbers = np.empty(rows, np.uint8)
        slices = list(pairwise([*range(0, rows, SLICE_ROWS), rows]))
        counts = np.zeros((len(slices), parts), np.int64)
        run_tasks(
            [
                partial(self._pack, first, end, keys, numbers, counts[number])
                for number, (first, end) in enumerate(slices)
            ]
        )
        ends = np.cumsum(counts.T.ravel()).reshape(parts, len(slices))
        positions = np.ascontiguousarray((ends - counts.T).T)
        moved_keys = np.empty(rows, np.uint64)
        moved_payload = np.empty(0 if payload is None else rows, np.int64)
        run_tasks(
            [
                partial(
                    move_to_parts,
                    keys,
                    0 if payload is None else _address_of(payload),
                    numbers,
                    first,
                    end,
                    positions[number],
                    moved_keys,
                    moved_payload,
                )
                for number, (first, end) in enumerate(slices)
            ]
        )
        return moved_keys, moved_payload, [0, *ends[:, -1].tolist()]

    def _pack(
        self, first: int, end: int, keys: Keys, numbers: npt.NDArray[np.uint8], counts: Int64Array
    ) -> None:
        for column, low, shift in zip(self._columns, self._lowest, self._shifts, strict=False):
            unsigned = np.uint64(int(low) % (1 << 64))
            pack_column(_address_of(column), unsigned, np.uint64(min(shift, 63)), first, end, keys)
        find_parts(keys, self._bounds, first, end, numbers, counts)

    def _sort_keys(self, keys: Keys, weights: Int64Array) -> SortedPart:
        scratch = np.empty((2, len(keys)), np.int64)
        return SortedPart(*sort_part(keys, weights, scratch, self._low_bit))

    def _sort_rows(self, _: Keys, positions: Int64Array) -> SortedPart:
        """Sort the rows at some positions."""
        rows = np.empty((len(self._columns), len(positions)), np.int64)
        for column, values in zip(rows, self._columns, strict=True):
            np.take(values, positions, out=column, mode="clip")  # other modes copy once more
        size = len(positions)
        weights = np.ones(size, np.int64) if self._weights is None else self._weights[positions]
        scratch = np.empty((SCRATCH_ARRAYS, size), np.int64)
        return SortedPart(*consolidate(rows, weights, scratch))

    def _write_keys(self, keys: Keys, rows: Int64Array, first: int) -> None:
        write_rows(keys, self._lowest, self._shifts, self._bits, rows, first)

    def _write_rows(self, part: Int64Array, rows: Int64Array, first: int) -> None:
        rows[:, first : first + part.shape[1]] = part


def split_rows(
    columns: Sequence[Int64Array], weights: Int64Array | None, sorted_columns: int = 0
) -> ParallelSort | None:
    """Divide rows into parts; None without workers, or if one sort of all rows is as fast.

    Args:
        columns: At least one, the most significant one first.
        weights: None if each is 1.
        sorted_columns: As for `ParallelSort`.

    Complexity:
        O(rows).
    """
    rows = len(columns[0])
    workers = current_workers()
    if rows < MIN_SPLIT_ROWS or workers is None:
        return None
    columns = [np.ascontiguousarray(column) for column in columns]
    sample = columns[0][:: max(rows // 1024, 1)]
    if not sorted_columns and (sample[1:] >= sample[:-1]).all():
        return None  # sorted rows take only one pass
    ranges = run_tasks([partial(_range_of, column) for column in columns])
    lowest = [low for low, _ in ranges]
    bits = [(high - low).bit_length() for low, high in ranges]
    while sum(bits) > MAX_KEY_BITS:
        bits.pop()
    lowest = lowest[: len(bits)]
    wanted = min(workers.threads * TASKS_PER_THREAD, rows // MIN_PART_ROWS, MAX_PARTS)
    if weights is not None:
        weights = None if (weights == 1).all() else np.ascontiguousarray(weights)
    bounds = _choose_bounds(columns, lowest, bits, max(wanted, 1))
    return ParallelSort(columns, weights, bounds, lowest, bits, sorted_columns)


def _choose_bounds(
    columns: Sequence[Int64Array], lowest: Sequence[int], bits: Sequence[int], parts: int
) -> Keys:
    """Return the quantiles of a sample of the keys."""
    count = parts * SAMPLED_KEYS_PER_PART
    # Multiples of the golden ratio: they are even, but have no period that the rows may have, too.
    positions = (np.arange(count) * GOLDEN_RATIO % 1 * len(columns[0])).astype(np.int64)
    keys = np.zeros(count, np.uint64)
    for column, low, shift in zip(columns, lowest, _shifts_of(bits), strict=False):
        differences = column[positions].view(np.uint64) - np.uint64(low % (1 << 64))
        keys |= differences << np.uint64(min(shift, 63))
    keys.sort()
    return keys[np.arange(1, parts) * len(keys) // parts]


def _shifts_of(bits: Sequence[int]) -> Int64Array:
    """Return the bit position of each column in the key, and the end of the last one.

    The last column has the least significant bits.
    """
    return sum(bits) - np.cumsum([*bits, 0], dtype=np.int64)


def _range_of(column: Int64Array) -> tuple[int, int]:
    return int(column.min()), int(column.max())


def _address_of(array: Int64Array) -> int:
    return int(array.__array_interface__["data"][0])
