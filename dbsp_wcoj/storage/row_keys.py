"""Row keys: rows packed into one non-negative int64 each, in the order of the rows.

    key = Σ_k (column k - lowest_k) << shift_k          the last column has the lowest bits

A `KeyLayout` says how. A set of rows (`RowKeySet`) then takes 8 bytes per row whatever the number
of columns, and one comparison compares two rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.key_sets import (
    add_absent_bits,
    add_new_rows,
    decode_bits,
    decode_keys,
    mark_absent_keys,
    merge_keys,
)
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["KeyLayout", "RowKeySet"]

# A key is a non-negative int64.
MAX_KEY_BITS: Final = 63
# Two arrays of a set are merged if the older one is at most this many times as large.
GROWTH_FACTOR: Final = 4
# A set is a bitmap if that takes at most this many bits per key, or this many bits.
MAX_BITS_PER_KEY: Final = 64
MAX_SMALL_BITS: Final = 1 << 16
NO_KEYS: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class KeyLayout:
    """The least value of each column, and the number of its bits in a key.

    >>> layout = KeyLayout.covering(np.array([[3, 5], [-1, 0]]))
    >>> layout.encode(np.array([[3, 5], [-1, 0]])).tolist()
    [0, 5]
    >>> layout.decode(np.array([0, 5])).tolist()
    [[3, 5], [-1, 0]]
    """

    lowest: tuple[int, ...]
    bits: tuple[int, ...]

    @staticmethod
    def covering(rows: Int64Array, other: KeyLayout | None = None) -> KeyLayout | None:
        """Return a layout for some rows and all rows that another layout fits.

        Columns that exceed the other layout get one bit more than they need, if the key has room.
        So the layout of growing columns rarely changes.

        Returns:
            None if such rows do not fit in `MAX_KEY_BITS` bits.
        """
        lowest = [int(column.min()) for column in rows]
        highest = [int(column.max()) for column in rows]
        grown = [0] * len(rows)
        if other is not None:
            for k, (low, bits) in enumerate(zip(other.lowest, other.bits, strict=True)):
                top = low + (1 << bits) - 1
                if lowest[k] >= low and highest[k] <= top:
                    lowest[k], highest[k] = low, top
                    continue
                lowest[k], highest[k] = min(lowest[k], low), max(highest[k], top)
                grown[k] = 1
        needed = [(high - low).bit_length() for low, high in zip(lowest, highest, strict=True)]
        roomy = [count + extra for count, extra in zip(needed, grown, strict=True)]
        bits_of_columns = roomy if sum(roomy) <= MAX_KEY_BITS else needed
        if sum(bits_of_columns) > MAX_KEY_BITS:
            return None
        return KeyLayout(tuple(lowest), tuple(bits_of_columns))

    @property
    def total_bits(self) -> int:
        """The number of bits of a key."""
        return sum(self.bits)

    @property
    def shifts(self) -> Int64Array:
        """The position of the lowest bit of each column in a key."""
        return np.cumsum([0, *self.bits[:0:-1]])[::-1].astype(np.int64)

    @property
    def masks(self) -> Int64Array:
        """For each column, the mask of its bits after the shift."""
        return (np.int64(1) << np.array(self.bits, np.int64)) - 1

    def fits(self, rows: Int64Array) -> bool:
        """Return whether every value of some rows is in the range of its column."""
        return all(
            low <= column.min() and int(column.max()) - low < 1 << bits
            for column, low, bits in zip(rows, self.lowest, self.bits, strict=True)
        )

    def encode(self, rows: Int64Array) -> Int64Array:
        """Return the keys of rows that `fits` accepts; the order of the rows stays the same."""
        keys = np.empty(rows.shape[1], np.int64)
        self.encode_columns(rows, keys)
        return keys

    def encode_columns(self, columns: Sequence[Int64Array] | Int64Array, keys: Int64Array) -> None:
        """Write the keys of the rows with these columns to ``keys``; as `encode` otherwise."""
        if not self.bits:
            keys[:] = 0
        for k, (low, bits) in enumerate(zip(self.lowest, self.bits, strict=True)):
            if k:
                keys <<= bits
                keys += columns[k]
                if low:
                    keys -= low
            else:
                np.subtract(columns[0], low, out=keys)

    def decode(self, keys: Int64Array) -> Int64Array:
        """Return the rows of keys."""
        rows: Int64Array = np.empty((len(self.bits), len(keys)), np.int64)
        shift = 0
        for k in reversed(range(len(self.bits))):
            shifted = np.right_shift(keys, shift, out=rows[k]) if shift else keys
            # The first column has all bits that are left.
            if k:
                np.bitwise_and(shifted, (1 << self.bits[k]) - 1, out=rows[k])
            elif not shift:
                rows[0] = keys
            if self.lowest[k]:
                rows[k] += self.lowest[k]
            shift += self.bits[k]
        return rows

    def decode_narrow(self, keys: npt.NDArray[np.uint32]) -> Int64Array:
        """Return the rows of keys of at most 32 bits, of shape ``(columns, n)``."""
        # Always of one memory order: for another one, the kernel would be compiled again.
        rows: Int64Array = np.empty((len(self.bits), len(keys)), np.int64)
        decode_keys(keys, np.array(self.lowest, np.int64), self.shifts, self.masks, rows)
        return rows


class RowKeySet:
    """A set of keys to which batches are added.

    State: a few sorted arrays of geometrically growing sizes, and batches of new keys that were not
    sorted yet; or, once it takes no more memory or at most `MAX_SMALL_BITS`, a bitmap of all
    possible keys.

    Args:
        key_bits: The number of bits of a key.

    Complexity:
        Amortised O(log n) per added key of a large batch, O(log^2 n) for a lone key, which is
        searched in O(log n) arrays; O(1) in a bitmap.

    >>> keys = RowKeySet(3)
    >>> keys.add_absent(np.array([1, 5])).tolist(), keys.add_absent(np.array([5, 7])).tolist()
    ([True, True], [False, True])
    """

    def __init__(self, key_bits: int) -> None:
        self._key_bits = key_bits
        self._size = 0
        self._arrays: list[Int64Array] = []
        # Keys that are in no other array, in any order; sorted when keys are compared with the set.
        self._unsorted: list[Int64Array] = []
        self._bitmap: npt.NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return self._size

    def add_absent(self, keys: Int64Array) -> npt.NDArray[np.bool_]:
        """Add keys; return for each whether it was absent.

        Args:
            keys: Strictly ascending.
        """
        is_absent = np.ones(len(keys), np.bool_)
        bound = max(MAX_BITS_PER_KEY * (self._size + len(keys)), MAX_SMALL_BITS)
        bitmap = self.bitmap(bound)
        if bitmap is not None:
            add_absent_bits(keys, bitmap, is_absent)
            self._size += int(np.count_nonzero(is_absent))
            return is_absent
        self._sort_unsorted()
        for known in self._arrays:
            mark_absent_keys(keys, known, is_absent)
        self._append(keys if is_absent.all() else keys[is_absent])
        return is_absent

    def add_new(self, keys: Int64Array) -> None:
        """Add keys that are not in the set, in any order."""
        if self._bitmap is None:
            self._unsorted.append(keys)
            self._size += len(keys)
        else:  # in a bitmap, keys may have any order
            self.add_absent(keys)

    @property
    def keys(self) -> Int64Array:
        """All keys, ascending."""
        keys: Int64Array
        if self._bitmap is None:
            keys = np.sort(np.concatenate([NO_KEYS, *self._arrays, *self._unsorted]))
        else:
            (keys,) = self.rows(KeyLayout((0,), (self._key_bits,)))
        return keys

    def _append(self, added: Int64Array) -> None:
        """Add keys that are not in the set, which is not a bitmap."""
        self._size += len(added)
        self._append_sorted(added)

    def _sort_unsorted(self) -> None:
        """Sort the keys that were added in any order."""
        if self._unsorted:
            added = np.sort(np.concatenate(self._unsorted))
            self._unsorted = []  # after an error, the recursion drops the set
            self._append_sorted(added)

    def _append_sorted(self, added: Int64Array) -> None:
        """Append an array of keys that are counted; merge it with arrays of similar size."""
        if len(added):
            self._arrays.append(added)
        while len(self._arrays) > 1 and (
            len(self._arrays[-2]) <= GROWTH_FACTOR * len(self._arrays[-1])
        ):
            older, newer = self._arrays[-2:]
            merged = np.empty(len(older) + len(newer), np.int64)
            merge_keys(older, newer, merged)
            self._arrays[-2:] = [merged]

    def add_rows(
        self,
        rows: ZSet,
        words: Int64Array,
        keys: npt.NDArray[np.uint32],
        *,
        after: int,
        max_weight: int,
    ) -> tuple[Int64Array, int] | None:
        """Add the rows of an iteration in one pass; None, without new keys, if they do not fit.

        They fit if the set is a bitmap, or becomes one, if they have one iteration, the last
        column, and if their weights are positive. The caller ensures that keys have at most 32
        bits.

        Args:
            rows: At least one row.
            words: The lowest value and the bits of each column, as the layout of the keys has them;
                of shape ``(2, columns)``, without the iteration.
            keys: The keys are written to it; of shape ``(rows,)``.
            after: The iteration of the rows must be later.
            max_weight: Their weights must not be greater.

        Returns:
            The rows that were absent; and the greatest weight.
        """
        size, columns, weights = len(keys), rows.row_array, rows.weight_array
        bitmap = self.bitmap(max(MAX_BITS_PER_KEY * (self._size + size), MAX_SMALL_BITS))
        if bitmap is None or not (columns.flags.carray and weights.flags.carray):
            return None
        absent = np.empty_like(columns)
        greatest, count = add_new_rows(
            columns, weights, after, max_weight, words, bitmap, keys, absent
        )
        if not greatest:
            return None
        self._size += count
        return (columns if count == size else absent[:, :count].copy()), greatest

    def bitmap(self, max_bits: int) -> npt.NDArray[np.uint64] | None:
        """Return the set as a bitmap, which becomes its form if it has at most ``max_bits`` bits.

        Whoever sets bits calls `count_added`. None if the set stays as arrays.
        """
        if self._bitmap is None and 1 << self._key_bits <= max_bits:
            bitmap = np.zeros(((1 << self._key_bits) >> 6) + 1, np.uint64)
            for known in (*self._arrays, *self._unsorted):
                add_absent_bits(known, bitmap, np.empty(len(known), np.bool_))
            self._bitmap, self._arrays, self._unsorted = bitmap, [], []
        return self._bitmap

    def count_added(self, keys: int) -> None:
        """Count keys whose bits were set in the bitmap."""
        self._size += keys

    def rows(self, layout: KeyLayout) -> Int64Array:
        """Return the rows of all keys, sorted, given the layout of the keys."""
        if self._bitmap is None or not layout.bits:
            return layout.decode(self.keys)
        rows: Int64Array = np.empty((len(layout.bits), self._size), np.int64)
        lowest = np.array(layout.lowest, np.int64)
        decode_bits(self._bitmap, lowest, layout.shifts, layout.masks, rows)
        return rows

    def translated(self, old: KeyLayout, new: KeyLayout) -> RowKeySet:
        """Return the set with the keys of another layout for the same rows."""
        result = RowKeySet(new.total_bits)
        if self._size:
            result.add_absent(new.encode(self.rows(old)))
        return result
