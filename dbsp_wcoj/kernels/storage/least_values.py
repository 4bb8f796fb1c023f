"""The least value of each group, in a hash table, from rows that are packed into sorted keys.

A key has a group in its upper bits and a value in its lower bits::

    key = group << value_bits | value

So the first key of a group in sorted keys has the least value of the group.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.values.arithmetic import wrapping_subtract

# The group of an empty slot.
EMPTY = -1
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, as in Knuth 6.4


@kernel
def lower_least_values(keys, begin, value_bits, groups, values, count, improved):
    """Update the least value of each group from its first key.

    Stops before the table is more than half full, so that the caller can enlarge it and continue.

    Args:
        keys: int64, not negative, ascending.
        begin: The key to start at.
        value_bits: The number of bits of the value in a key.
        groups: int64, the group of each slot of the table, or `EMPTY`. The length is a power of 2,
            at least 2.
        values: int64, the least value of the group of each slot.
        count: The number of groups in the table.
        improved: int64; receives the positions of the keys that are the first of their group or
            have a lower value than all keys of the group before; room for one per key from
            ``begin`` on.

    Returns:
        ``(next, count, written)``: the key to continue at, which is ``len(keys)`` at the end; the
        new number of groups; and the number of positions written.
    """
    size = keys.shape[0]
    slots = groups.shape[0]
    mask = slots - 1
    value_mask = wrapping_subtract(np.int64(1) << value_bits, np.int64(1))
    written = np.int64(0)
    # No group is negative, so the first key begins a group.
    last = np.int64(EMPTY)
    for i in range(begin, size):
        group = keys[i] >> value_bits
        if group == last:
            continue
        last = group
        # A block of 64 groups is in 64 slots side by side, because the keys are sorted.
        product = np.uint64(group >> 6) * _FACTOR
        slot = (group ^ np.int64(product >> np.uint64(32))) & mask
        while groups[slot] != group and groups[slot] != EMPTY:
            slot = (slot + 1) & mask
        value = keys[i] & value_mask
        if groups[slot] == EMPTY:
            if 2 * (count + 1) > slots:
                return np.int64(i), count, written
            groups[slot] = group
            count += 1
        elif value >= values[slot]:
            continue
        values[slot] = value
        improved[written] = i
        written += 1
    return np.int64(size), count, written
