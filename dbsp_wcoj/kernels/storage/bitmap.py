"""The bitmap of a run of one column: one bit for each value in its range.

    values 3, 5, 70    ->    lowest 3    bits 0, 2, 67    words 0b101, 1 << 3

A test whether such a run contains a value is one load. The bitmap covers the range of the directory
(`dbsp_wcoj.kernels.storage.run_layout`), so bit 0 stands for the lowest value. A run has a bitmap
if this takes at most one word for two values.

The functions that write a bitmap take the run as an int64 array; those that read it take addresses.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.memory import load
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    BITMAP,
    DIRECTORY,
    DIRECTORY_SHIFT,
    DIRECTORY_SIZE,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_VALUES,
    LOWEST_VALUE,
    MAX_BITMAP_SHIFT,
)
from dbsp_wcoj.kernels.values.arithmetic import wrapping_subtract


def bitmap_words(directory_size: int, directory_shift: int) -> int:
    """Return the number of words of a bitmap that covers the range of a directory.

    >>> bitmap_words(directory_size=3, directory_shift=6)
    2
    """
    return (((directory_size - 1) << directory_shift) + 63) >> 6


#: `bitmap_words`, for kernels.
words_of_bitmap = subroutine(bitmap_words)


@subroutine
def open_bitmap(run, start):
    """Place the bitmap at word ``start``, if the run has one; return its number of words."""
    if run[ARITY] != 1:
        return np.int64(0)
    run[BITMAP] = 0
    if run[DIRECTORY] == 0 or run[DIRECTORY_SHIFT] > MAX_BITMAP_SHIFT:
        return np.int64(0)
    words = words_of_bitmap(run[DIRECTORY_SIZE], run[DIRECTORY_SHIFT])
    if 2 * words > run[LEVEL_HEADERS + LEVEL_NODES]:
        return np.int64(0)
    run[BITMAP] = start
    return words


@subroutine
def fill_bitmap(run, node, fuel):
    """Set the bits of the values from ``node`` on, about ``fuel`` of them.

    Returns the next node, or the number of nodes if the bitmap is complete.
    """
    nodes = run[LEVEL_HEADERS + LEVEL_NODES]
    values = run[LEVEL_HEADERS + LEVEL_VALUES]
    bitmap = run[BITMAP]
    lowest = run[LOWEST_VALUE]
    # The words up to that of the previous value are written.
    written = np.int64(0) if node == 0 else ((run[values + node - 1] - lowest) >> 6) + 1
    end = min(nodes, node + max(fuel, 1))
    for position in range(node, end):
        bit = run[values + position] - lowest
        word = bit >> 6
        while written <= word:
            run[bitmap + written] = 0
            written += 1
        run[bitmap + word] |= np.int64(1) << (bit & 63)
    if end == nodes:
        for word in range(written, words_of_bitmap(run[DIRECTORY_SIZE], run[DIRECTORY_SHIFT])):
            run[bitmap + word] = 0
    return end


@inline_subroutine
def find_bitmap(run):
    """Return the address of the bitmap of a run, 0 if it has none."""
    if load(run, ARITY) != 1 or load(run, BITMAP) == 0:
        return np.int64(0)
    return run + (load(run, BITMAP) << 3)


@inline_subroutine
def count_bits(run):
    """Return the number of bits that the bitmap of a run covers."""
    return (load(run, DIRECTORY_SIZE) - 1) << load(run, DIRECTORY_SHIFT)


@inline_subroutine
def has_bit(bitmap, lowest, bits, value):
    """Return whether ``value`` is in a bitmap of ``bits`` bits from the value ``lowest`` on."""
    bit = wrapping_subtract(value, lowest)
    if value < lowest or bit < 0 or bit >= bits:
        return False
    return (load(bitmap, bit >> 6) >> (bit & 63)) & 1 != 0
