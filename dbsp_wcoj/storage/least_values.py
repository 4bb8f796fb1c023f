"""LeastValues: the least value of each group, of rows that are packed into keys.

The last column of a row is its value, the columns before it are its group
(`dbsp_wcoj.storage.row_keys`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj.kernels.storage.least_values import EMPTY, lower_least_values
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.zset import Int64Array

__all__ = ["LeastValues"]

MIN_SLOTS: Final = 1 << 10


class LeastValues:
    """The least value of each group so far, in a hash table of 16 bytes per slot.

    Args:
        value_bits: The number of bits of a value; a key has the value in its lowest bits.

    >>> least = LeastValues(4)
    >>> least.lower(np.array([0x15, 0x17, 0x28])).tolist()
    [0, 2]
    >>> least.lower(np.array([0x14, 0x28, 0x31])).tolist()
    [0, 2]
    >>> [hex(key) for key in least.keys().tolist()]
    ['0x14', '0x28', '0x31']
    """

    def __init__(self, value_bits: int) -> None:
        self._value_bits = value_bits
        self._count = 0
        self._groups: Int64Array = np.full(MIN_SLOTS, EMPTY, np.int64)
        self._values: Int64Array = np.empty(MIN_SLOTS, np.int64)

    def __len__(self) -> int:
        return self._count

    def lower(self, keys: Int64Array) -> Int64Array:
        """Add keys; return the positions of those that lower the least value of their group.

        The first key of a new group counts, too.

        Args:
            keys: Ascending.

        Complexity:
            O(keys), amortised.
        """
        improved = np.empty(len(keys), np.int64)
        position, total = 0, 0
        while True:
            position, self._count, written = lower_least_values(
                keys,
                position,
                self._value_bits,
                self._groups,
                self._values,
                self._count,
                improved[total:],
            )
            total += written
            if position == len(keys):
                return improved[:total]
            self._enlarge()

    def keys(self) -> Int64Array:
        """Return the key of the least value of each group, ascending; O(groups log groups)."""
        used = np.flatnonzero(self._groups != EMPTY)
        keys = self._groups[used]
        keys <<= self._value_bits
        keys |= self._values[used]
        keys.sort()
        return keys

    def translated(self, old: KeyLayout, new: KeyLayout) -> LeastValues:
        """Return the least values with the keys of another layout for the same rows."""
        result = LeastValues(new.bits[-1])
        if self._count:
            result.lower(new.encode(old.decode(self.keys())))
        return result

    def _enlarge(self) -> None:
        """Make the table four times as large."""
        keys = self.keys()
        slots = 4 * len(self._groups)
        self._groups = np.full(slots, EMPTY, np.int64)
        self._values = np.empty(slots, np.int64)
        self._count = 0
        self.lower(keys)
