"""Bitmaps of the longest lists of a run: one bit for each value between the ends of a list.

The *list* of a prefix has its values of the last column, sorted. If two lists have bitmaps, one AND
compares 64 values, so their intersection takes time in proportion to words and not to values::

    list 3, 5, 70    ->    words 0b101000, 1 << 6    the first word stands for the values 0 to 63

Bit ``v & 63`` of a word stands for the value ``v``, and word ``w`` of the list for the values from
``64 * (first_word + w)`` on. So the words of two lists are aligned, wherever the lists begin.

The bitmaps of a run are one int64 array, apart from the run: a hash table with open addressing by
the position of the list, and the words. `dbsp_wcoj.storage.list_bitmaps` chooses the lists.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import count_ones, load, load_value
from dbsp_wcoj.kernels.values.arithmetic import wrapping_subtract

# bitmaps[...]
SLOT_MASK = 0  # number of slots of the hash table, a power of two, minus 1
SHORTEST = 1  # number of values of the shortest list that has a bitmap
FIRST_SLOT = 2  # the slots; the words of the lists follow
# slot[...]
POSITION = 0  # position of the list among the values of the last column, plus 1; 0 if free
FIRST_WORD = 1  # the least value of the list, divided by 64
START = 2  # position in the array of the first word of the list
SLOT_WORDS = 3

# The table of a spine has the address of the bitmaps of its oldest run, or one of these values:
# the run needs no bitmaps, or they are not built yet.
NO_BITMAPS = 0
NOT_BUILT = 1

# Shorter lists are intersected with blocks of values as fast as with a bitmap.
MIN_LIST_VALUES = 64
# A bitmap has at most this many words for each value. To compare a word takes less time than to
# compare a value with blocks of values.
WORDS_PER_VALUE = 2


@subroutine
def slot_of(position, mask):
    """Return the first slot to look at for the list at a position."""
    mixed = np.uint64(position) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(32)) & mask


@kernel
def fill_bitmaps(bitmaps, values, firsts, ends, starts):
    """Insert lists into the hash table, and set their bits.

    Args:
        bitmaps: int64, with `SLOT_MASK` and `SHORTEST` set and zeros after them.
        values: The tagged address of the values of the last column.
        firsts: The positions in ``values`` at which the lists begin.
        ends: The positions after their last values.
        starts: The positions in ``bitmaps`` at which their words begin.
    """
    mask = bitmaps[SLOT_MASK]
    for index in range(len(firsts)):
        first = firsts[index]
        slot = slot_of(first, mask)
        while bitmaps[FIRST_SLOT + SLOT_WORDS * slot + POSITION] != 0:
            slot = (slot + 1) & mask
        entry = FIRST_SLOT + SLOT_WORDS * slot
        first_word = load_value(values, first) >> 6
        bitmaps[entry + POSITION] = first + 1
        bitmaps[entry + FIRST_WORD] = first_word
        bitmaps[entry + START] = starts[index]
        for position in range(first, ends[index]):
            value = load_value(values, position)
            word = starts[index] + (value >> 6) - first_word
            bitmaps[word] |= np.int64(1) << (value & 63)


@subroutine
def find_list(bitmaps, first):
    """Return the address of the slot of the list that begins at a position; 0 if it has none."""
    mask = load(bitmaps, SLOT_MASK)
    slot = slot_of(first, mask)
    while True:
        entry = bitmaps + 8 * (FIRST_SLOT + SLOT_WORDS * slot)
        position = load(entry, POSITION)
        if position == first + 1:
            return entry
        if position == 0:
            return np.int64(0)
        slot = (slot + 1) & mask


@subroutine
def word_address(bitmaps, entry, word):
    """Return the address of the word of a list that stands for the values from 64 * word on."""
    return bitmaps + 8 * (load(entry, START) + word - load(entry, FIRST_WORD))


@subroutine
def mask_of(word, low, high):
    """Return the bits of the values from ``low`` to ``high`` in a word of a list."""
    mask = np.int64(-1)
    if word == low >> 6:
        mask = mask << (low & 63)
    if word == high >> 6:
        # The bits up to that of `high`.
        mask &= wrapping_subtract(np.int64(2) << (high & 63), np.int64(1))
    return mask


@subroutine
def count_common_bits(a, b, low, high):
    """Return how many values from ``low`` to ``high`` two lists have in common.

    Args:
        a: The address of the word of one list that stands for the value ``low``.
        b: The same for the other list.
        low: The least value; both lists have words for it.
        high: The greatest value, at least ``low``; both lists have words for it.
    """
    last = (high >> 6) - (low >> 6)
    common = count_ones(load(a, 0) & load(b, 0) & mask_of(low >> 6, low, high))
    if last > 0:
        common += count_ones(load(a, last) & load(b, last) & mask_of(high >> 6, low, high))
    for word in range(1, last):
        common += count_ones(load(a, word) & load(b, word))
    return common
