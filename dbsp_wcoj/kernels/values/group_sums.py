"""Group sums: number the groups of rows in any order, and add up amounts by group.

::

    group_of[i] = group_of[j]  if and only if the keys of the rows i and j are equal
    totals[p, g]               = Σ of the amounts at position p of the rows of group g

The groups are found with a hash table, in one pass over the rows. If there are few groups, this is
cheaper than to sort the rows: the caller sorts one row for each group and position.

Keys are int64 columns of shape ``(keys, n)``.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add

_EMPTY = -1
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, as in Knuth 6.4
_HALF = np.uint64(32)


@subroutine
def hash_key(keys, row):
    """Return a hash of the key of a row."""
    value = np.uint64(keys.shape[0])
    for k in range(keys.shape[0]):
        value = (value ^ np.uint64(keys[k, row])) * _FACTOR
        value ^= value >> _HALF
    return value


@subroutine
def has_key_of(keys, row, other):
    """Return whether two rows have the same key."""
    k = 0
    while k < keys.shape[0] and keys[k, row] == keys[k, other]:
        k += 1
    return k == keys.shape[0]


@kernel
def number_groups(keys, rows, slots, group_of, first_rows):
    """Number the groups of rows with equal keys, in the order of their first rows.

    Args:
        keys: int64, shape ``(keys, rows)``; a key may have no columns.
        rows: The number of rows.
        slots: The hash table: int64, its length is a power of 2 and greater than that of
            ``first_rows``, and each element is -1.
        group_of: Result: the group of each row.
        first_rows: Result: the first row of each group.

    Returns:
        The number of groups; -1 if there are more than ``first_rows`` has elements.
    """
    mask = slots.shape[0] - 1
    groups = np.int64(0)
    for row in range(rows):
        slot = np.int64(hash_key(keys, row) >> np.uint64(1)) & mask
        while slots[slot] != _EMPTY and not has_key_of(keys, first_rows[slots[slot]], row):
            slot = (slot + 1) & mask
        if slots[slot] == _EMPTY:
            if groups == first_rows.shape[0]:
                return np.int64(-1)
            slots[slot] = groups
            first_rows[groups] = row
            groups += 1
        group_of[row] = slots[slot]
    return groups


@kernel
def add_by_group(group_of, rows, positions, amounts, first_position, totals):
    """Add amounts to the totals of their groups and positions.

    Args:
        group_of: int64, the group of each row.
        rows: int64, the row of each amount.
        positions: int64, the position of each amount.
        amounts: int64.
        first_position: The position of the first row of ``totals``.
        totals: Result: int64, shape ``(positions, groups)``, with zeros.

    Returns:
        False if a sum does not fit in int64; the totals are then undefined.
    """
    for i in range(amounts.shape[0]):
        position = positions[i] - first_position
        group = group_of[rows[i]]
        total = add(totals[position, group], amounts[i])
        if total == OVERFLOWED:
            return False
        totals[position, group] = total
    return True
