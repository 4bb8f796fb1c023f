"""Long lists: sums over the common values of two lists, of which at least one has a bitmap.

    sum over v of a(v) * b(v)        a and b are the weights of v in the two lists

The longest lists of the oldest run of a spine have bitmaps, once joins have read such lists often
enough (`dbsp_wcoj.kernels.storage.list_bitmaps`):

- If both lists have a bitmap, their words are compared. If the weights of each list are all equal,
  the common bits are counted. Otherwise each common bit gives two positions, by the number of bits
  before it, and the weights there are multiplied.
- If one list has a bitmap and the other one is at most half as long, each value of the shorter list
  is looked up in the bitmap.

The weights of the other runs, such as the rows that later steps have deleted, are in sums of their
own: a sum over two atoms is the sum over all pairs of their runs.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.join.intersect import count_in_bitmap, leaf_weight
from dbsp_wcoj.kernels.join.join_layout import (
    LIST_BITMAPS,
    LIST_MISSES,
    MISSED_RUN,
    RUN,
    VALUES,
)
from dbsp_wcoj.kernels.memory import count_ones, increment, load, load_value, store
from dbsp_wcoj.kernels.storage.list_bitmaps import (
    FIRST_WORD,
    MIN_LIST_VALUES,
    NO_BITMAPS,
    NOT_BUILT,
    SHORTEST,
    WORDS_PER_VALUE,
    count_common_bits,
    find_list,
    mask_of,
    word_address,
)
from dbsp_wcoj.kernels.storage.run_layout import UNIFORM_WEIGHT, WEIGHT_SUMS
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.values.arithmetic import add, multiply, wrapping_subtract

# A list is looked up in the bitmap of one that is at least this many times as long.
MIN_LOOKUP_RATIO = 2


@subroutine
def find_long_list(cursor, first, end):
    """Return the slot of the bitmap of the list at positions ``[first, end)``; 0 if it has none.

    The list is one of the run of a cursor at the last column.
    """
    bitmaps = load(cursor, LIST_BITMAPS)
    if bitmaps in (NO_BITMAPS, NOT_BUILT) or end - first < load(bitmaps, SHORTEST):
        return np.int64(0)
    return find_list(bitmaps, first)


@subroutine
def count_miss(cursor, first, end, bitmap_buffer):
    """Count a list that has no bitmap only because those of its run are not built yet."""
    if end - first >= MIN_LIST_VALUES and load(cursor, LIST_BITMAPS) == NOT_BUILT:
        values = load(cursor, VALUES)
        words = (load_value(values, end - 1) >> 6) - (load_value(values, first) >> 6) + 1
        if words <= WORDS_PER_VALUE * (end - first):
            increment(bitmap_buffer, LIST_MISSES, 1)
            store(bitmap_buffer, MISSED_RUN, load(cursor, RUN))


@subroutine
def is_looked_up(run, length, other_run, other_length):
    """Return whether the values of another list are to be looked up in the bitmap of a list."""
    has_equal_weights = load(run, WEIGHT_SUMS) == 0 and load(other_run, WEIGHT_SUMS) == 0
    return has_equal_weights and other_length * MIN_LOOKUP_RATIO <= length


@subroutine
def look_up_list(a, i, end_a, slot_a, b, j, end_b):
    """Return the sum for the cursor ``a``, whose list has a bitmap, and a shorter list.

    All values of each list have the same weight.
    """
    values_a, values_b = load(a, VALUES), load(b, VALUES)
    # Positions outside of the range to read have bits as well.
    if load_value(values_b, j) < load_value(values_a, i):
        j = seek(values_b, j, end_b, load_value(values_a, i))
    if j >= end_b:
        return np.int64(0)
    words = word_address(load(a, LIST_BITMAPS), slot_a, load(slot_a, FIRST_WORD))
    lowest = load(slot_a, FIRST_WORD) << 6
    highest = load_value(values_a, end_a - 1)
    common = count_in_bitmap(words, lowest, highest, values_b, j, end_b)
    weight = multiply(load(load(a, RUN), UNIFORM_WEIGHT), load(load(b, RUN), UNIFORM_WEIGHT))
    return multiply(common, weight)


@subroutine
def dot_bits(a, run_a, i, b, run_b, j, low, high):
    """Return the sum over the values from ``low`` to ``high`` that are in both bitmaps.

    The parameters are those of `count_common_bits`, and for each list its run and the position of
    its first value that is at least ``low``. The sum may be `OVERFLOWED`.
    """
    total = np.int64(0)
    first_word = low >> 6
    for word in range((high >> 6) - first_word + 1):
        mask = mask_of(first_word + word, low, high)
        bits_a, bits_b = load(a, word) & mask, load(b, word) & mask
        common = bits_a & bits_b
        while common != 0:
            rest = common & wrapping_subtract(common, np.int64(1))
            below = wrapping_subtract(common ^ rest, np.int64(1))
            weight_a = leaf_weight(run_a, i + count_ones(bits_a & below))
            weight_b = leaf_weight(run_b, j + count_ones(bits_b & below))
            total = add(total, multiply(weight_a, weight_b))
            common = rest
        i += count_ones(bits_a)
        j += count_ones(bits_b)
    return total


@subroutine
def dot_long_lists(a, i, end_a, slot_a, b, j, end_b, slot_b):
    """Return ``(sum, words)`` for two cursors whose lists have bitmaps.

    The sum may be `OVERFLOWED`. ``words`` is the number of words read of each bitmap.
    """
    run_a, run_b = load(a, RUN), load(b, RUN)
    values_a, values_b = load(a, VALUES), load(b, VALUES)
    low = max(load_value(values_a, i), load_value(values_b, j))
    high = min(load_value(values_a, end_a - 1), load_value(values_b, end_b - 1))
    if low > high:
        return np.int64(0), np.int64(0)
    words_a = word_address(load(a, LIST_BITMAPS), slot_a, low >> 6)
    words_b = word_address(load(b, LIST_BITMAPS), slot_b, low >> 6)
    words = (high >> 6) - (low >> 6) + 1
    if load(run_a, WEIGHT_SUMS) == 0 and load(run_b, WEIGHT_SUMS) == 0:
        common = count_common_bits(words_a, words_b, low, high)
        weight = multiply(load(run_a, UNIFORM_WEIGHT), load(run_b, UNIFORM_WEIGHT))
        return multiply(common, weight), words
    i, j = seek(values_a, i, end_a, low), seek(values_b, j, end_b, low)
    return dot_bits(words_a, run_a, i, words_b, run_b, j, low, high), words
