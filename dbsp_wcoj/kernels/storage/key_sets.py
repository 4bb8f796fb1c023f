"""Sets of rows that are packed into keys, as sorted arrays of distinct int64 keys.

A batch of sorted keys is compared with a set by galloping: each search starts where the last one
ended. So a batch takes time in proportion to its keys, times the logarithm of the distances in the
set between them.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import count_ones

# Keys are decoded column by column, for this many words of bits at a time: they fit in the cache.
WORDS_AT_ONCE = 64


@kernel
def mark_absent_keys(keys, known, is_absent):
    """Set ``is_absent`` to False for the keys that the set ``known`` contains.

    Args:
        keys: int64, strictly ascending; those that are marked absent are searched.
        known: int64, strictly ascending.
        is_absent: One bool per key.
    """
    size = known.shape[0]
    position = np.int64(0)
    for i in range(keys.shape[0]):
        if not is_absent[i]:
            continue
        key = keys[i]
        # Gallop: known[position:] has all keys that are not less than the previous key.
        step = np.int64(1)
        low = position
        high = position
        while high < size and known[high] < key:
            low = high + 1
            high += step
            step += step
        high = min(high, size)
        while low < high:
            middle = (low + high) >> 1
            if known[middle] < key:
                low = middle + 1
            else:
                high = middle
        position = low
        if position == size:
            return
        is_absent[i] = known[position] != key


@kernel
def merge_keys(one, other, out):
    """Write the keys of two sorted arrays without common keys to ``out``, sorted."""
    i = np.int64(0)
    j = np.int64(0)
    n = one.shape[0]
    m = other.shape[0]
    for k in range(n + m):
        if j == m or (i < n and one[i] < other[j]):
            out[k] = one[i]
            i += 1
        else:
            out[k] = other[j]
            j += 1


@kernel
def add_absent_bits(keys, bits, is_absent):
    """Set the bits of keys; set ``is_absent`` to whether the bit of each key was not set.

    Args:
        keys: int64, not negative.
        bits: uint64, with 64 keys per word.
        is_absent: One bool per key.
    """
    for i in range(keys.shape[0]):
        word = keys[i] >> 6
        bit = np.uint64(1) << np.uint64(keys[i] & 63)
        is_absent[i] = bits[word] & bit == 0
        bits[word] |= bit


@kernel
def add_new_rows(rows, weights, after, max_weight, layout, bits, keys, new_rows):
    """Add rows of one iteration to a set, if they fit: keys of 32 bits at most, positive weights.

    Args:
        rows: int64, shape ``(columns + 1, n)``, n at least 1; the last column is the iteration.
        weights: int64, shape ``(n,)``.
        after: The iteration must be later.
        max_weight: The weights must not be greater.
        layout: int64, shape ``(2, columns)``: the lowest value and the bits of each column.
        bits: uint64, the set, with 64 keys per word.
        keys: uint32, shape ``(n,)``; the keys are written to it.
        new_rows: int64, shape ``(columns + 1, n)``; the rows that are new are written to it.

    Returns:
        The greatest weight, and the number of new rows; ``(0, 0)`` if the rows do not fit, and then
        the set has not changed.
    """
    columns = layout.shape[1]
    iteration = rows[columns, 0]
    if iteration <= after:
        return np.int64(0), np.int64(0)
    greatest = np.int64(1)
    for i in range(rows.shape[1]):
        weight = weights[i]
        if weight < 1 or weight > max_weight or rows[columns, i] != iteration:
            return np.int64(0), np.int64(0)
        greatest = max(greatest, weight)
        key = np.uint64(0)
        for k in range(columns):
            # A value below the lowest one wraps around to a number with more bits.
            offset = np.uint64(rows[k, i]) - np.uint64(layout[0, k])
            width = np.uint64(layout[1, k])
            if offset >> width != 0:
                return np.int64(0), np.int64(0)
            key = (key << width) | offset
        keys[i] = key
    count = np.int64(0)
    for i in range(rows.shape[1]):
        word = keys[i] >> 6
        bit = np.uint64(1) << np.uint64(keys[i] & 63)
        if bits[word] & bit == 0:
            bits[word] |= bit
            for k in range(columns + 1):
                new_rows[k, count] = rows[k, i]
            count += 1
    return greatest, count


@kernel
def decode_bits(bits, lowest, shifts, masks, rows):
    """Write the rows of the keys whose bits are set, in ascending order of the keys.

    Args:
        bits: uint64, with 64 keys per word.
        lowest: int64, the lowest value of each column of a key.
        shifts: int64, the position of the lowest bit of each column in a key.
        masks: int64, for each column, the mask of its bits after the shift.
        rows: int64, shape ``(columns, keys)``.
    """
    row = np.int64(0)
    for begin in range(0, bits.shape[0], WORDS_AT_ONCE):
        first = row
        for word in range(begin, min(begin + WORDS_AT_ONCE, bits.shape[0])):
            rest = np.int64(bits[word])
            while rest != 0:
                lowest_bit = rest & -rest
                rest ^= lowest_bit
                rows[0, row] = (word << 6) + count_ones(lowest_bit - 1)
                row += 1
        decode_columns(rows[0, first:row], lowest, shifts, masks, rows[:, first:row])


@kernel
def decode_keys(keys, lowest, shifts, masks, rows):
    """Write the rows of keys.

    Args:
        keys: uint32.
        lowest: int64, the lowest value of each column of a key.
        shifts: int64, the position of the lowest bit of each column in a key.
        masks: int64, for each column, the mask of its bits after the shift.
        rows: int64, shape ``(columns, keys)``.
    """
    decode_columns(keys, lowest, shifts, masks, rows)


@subroutine
def decode_columns(keys, lowest, shifts, masks, rows):
    """As `decode_keys`; the keys may be in the first column."""
    for k in range(rows.shape[0] - 1, -1, -1):
        low = lowest[k]
        shift = shifts[k]
        mask = masks[k]
        column = rows[k]
        for i in range(keys.shape[0]):
            column[i] = ((np.int64(keys[i]) >> shift) & mask) + low
