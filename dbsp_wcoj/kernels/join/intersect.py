"""Intersect: the sum over the common values of two sorted lists, without listing the values.

    sum over v of a(v) * b(v)        a and b are the weights of v in the two lists

Lists are strictly increasing, and given by tagged addresses
(`dbsp_wcoj.kernels.storage.level_values`): their values are words, or narrow, 32 bits each. A
cyclic join spends its time here. The lengths ``m <= n`` choose the strategy:

- Lengths within a factor `GALLOP_RATIO` (`NARROW_GALLOP_RATIO` for narrow lists): compare blocks of
  values with blocks of values. This takes O(m + n) vector comparisons; a count has no branch that
  depends on the values. If the lists are narrow, or if all values are within a range of 2**32, so
  that 32 bits of each decide, eight values are compared with sixteen, and the last values of both
  lists too. Otherwise, four are compared with four.
- At most eight values, if both lists are narrow and the longer one has at most
  `MAX_SCANNED_VALUES`: compare all of them with each block of the longer list.
- Otherwise, for each value of the shorter list: gallop over the last values of the blocks of the
  longer list, then compare one block at once. This takes O(m log(n / m)).

If the weights of each list are all equal, the common values are only counted. Otherwise the weights
are multiplied at each common value.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.memory import (
    NARROW_LANES,
    VECTOR_LANES,
    WIDE_LANES,
    block_contains,
    count_block_matches,
    count_short_matches,
    load,
    load_bit,
    load_narrow,
    load_value,
    make_list_count,
    narrow_block_contains,
)
from dbsp_wcoj.kernels.storage.level_values import MAX_NARROW_VALUE, MIN_NARROW_VALUE, TAG
from dbsp_wcoj.kernels.storage.run_layout import UNIFORM_WEIGHT, WEIGHT_SUMS
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.values.arithmetic import add, multiply, wrapping_subtract

# A list longer than this many times the other one is searched by galloping.
GALLOP_RATIO = 12
# The same for two narrow lists, of which more values are compared at once.
NARROW_GALLOP_RATIO = 32
# A narrow list with more values is not compared as a whole with a short one.
MAX_SCANNED_VALUES = 512
# 32 bits of each value decide if the values differ by less than this.
MAX_NEAR_RANGE = 1 << 32


@subroutine
def are_near(a, i, end_a, b, j, end_b):
    """Return whether all values of two lists that are not empty are within a range of 2**32."""
    lowest = min(load_value(a, i), load_value(b, j))
    highest = max(load_value(a, end_a - 1), load_value(b, end_b - 1))
    return np.uint64(highest) - np.uint64(lowest) < np.uint64(MAX_NEAR_RANGE)


def _make_block_search(read: Any, lanes: int, contains: Any) -> Any:
    """Return a function that counts the values of a short list in a much longer one.

    Args:
        read: Reads a value of the longer list.
        lanes: The number of values of a block of the longer list.
        contains: Returns 1 if a block contains a value, else 0.
    """

    @subroutine
    def seek_block(values, low, blocks, value):
        # The first block whose last value is at least the value; block 0 starts at `low`.
        last = low + lanes - 1
        if read(values, last) >= value:
            return np.int64(0)
        below = np.int64(0)
        step = np.int64(1)
        while below + step < blocks and read(values, last + (below + step) * lanes) < value:
            below += step
            step += step
        high = min(below + step, blocks)
        low_block = below + 1
        while low_block < high:
            middle = (low_block + high) >> 1
            if read(values, last + middle * lanes) < value:
                low_block = middle + 1
            else:
                high = middle
        return low_block

    @subroutine
    def count_searched(a, i, end_a, b, j, end_b):
        # Returns the number of common values, and where the search ends in both lists.
        common = np.int64(0)
        while i < end_a and j + lanes <= end_b:
            value = load_value(a, i)
            blocks = (end_b - j) // lanes
            skipped = seek_block(b, j, blocks, value)
            j += skipped * lanes
            if skipped < blocks:
                common += contains(b, j, value)
                i += 1
        return common, i, j

    return count_searched


_count_searched_words = _make_block_search(load, VECTOR_LANES, block_contains)
_count_searched_narrow = _make_block_search(load_narrow, NARROW_LANES, narrow_block_contains)


@subroutine
def _count_words(a, i, end_a, b, j, end_b):
    # Returns the count as long as both have a block, and where it ends in both lists.
    common = np.int64(0)
    while i + VECTOR_LANES <= end_a and j + VECTOR_LANES <= end_b:
        common += count_block_matches(a, i, b, j)
        last_a = load(a, i + VECTOR_LANES - 1)
        last_b = load(b, j + VECTOR_LANES - 1)
        i += VECTOR_LANES * np.int64(last_a <= last_b)
        j += VECTOR_LANES * np.int64(last_b <= last_a)
    return common, i, j


def _make_count(*, is_narrow_a: bool, is_narrow_b: bool) -> Any:
    """Return a function that counts the common values of two lists by 32 bits of each value.

    It takes fewer steps if the second list is the longer one.
    """
    read_a, read_b = (load_narrow if narrow else load for narrow in (is_narrow_a, is_narrow_b))
    widths = {"is_narrow_a": is_narrow_a, "is_narrow_b": is_narrow_b}
    count_whole = make_list_count(NARROW_LANES, **widths, is_whole_a=True, is_whole_b=True)
    count_part = make_list_count(NARROW_LANES, **widths, is_whole_a=False, is_whole_b=False)

    @subroutine
    def count_lists(a, i, end_a, b, j, end_b):
        common = np.int64(0)
        while i + NARROW_LANES <= end_a and j + WIDE_LANES <= end_b:
            common += count_whole(a, i, end_a, b, j, end_b)
            last_a = read_a(a, i + NARROW_LANES - 1)
            last_b = read_b(b, j + WIDE_LANES - 1)
            i += NARROW_LANES * np.int64(last_a <= last_b)
            j += WIDE_LANES * np.int64(last_b <= last_a)
        while i < end_a and j < end_b:
            common += count_part(a, i, end_a, b, j, end_b)
            last_a = read_a(a, min(i + NARROW_LANES, end_a) - 1)
            last_b = read_b(b, min(j + WIDE_LANES, end_b) - 1)
            i += NARROW_LANES * np.int64(last_a <= last_b)
            j += WIDE_LANES * np.int64(last_b <= last_a)
        return common

    return count_lists


_count_narrow = _make_count(is_narrow_a=True, is_narrow_b=True)
_count_near = _make_count(is_narrow_a=False, is_narrow_b=False)
_count_mixed = _make_count(is_narrow_a=False, is_narrow_b=True)


def _make_scan(repeated: int) -> Any:
    """Return a function that counts the values of a narrow list of at most ``repeated`` values."""
    widths = {"is_narrow_a": True, "is_narrow_b": True, "is_whole_a": False}
    count_whole = make_list_count(repeated, **widths, is_whole_b=True)
    count_part = make_list_count(repeated, **widths, is_whole_b=False)

    @subroutine
    def count_scanned(a, i, end_a, b, j, end_b):
        common = np.int64(0)
        while j + WIDE_LANES <= end_b:
            common += count_whole(a, i, end_a, b, j, end_b)
            j += WIDE_LANES
        if j < end_b:
            common += count_part(a, i, end_a, b, j, end_b)
        return common

    return count_scanned


_count_four = _make_scan(NARROW_LANES // 2)
_count_eight = _make_scan(NARROW_LANES)


@subroutine
def count_one_by_one(a, i, end_a, b, j, end_b):
    """Return the number of common values by comparing single values."""
    common = np.int64(0)
    while i < end_a and j < end_b:
        x = load_value(a, i)
        y = load_value(b, j)
        common += np.int64(x == y)
        i += np.int64(x <= y)
        j += np.int64(y <= x)
    return common


@subroutine
def count_common(a, i, end_a, b, j, end_b):
    """Return how many values ``a[i:end_a]`` and ``b[j:end_b]`` have in common."""
    if end_a - i > end_b - j:
        a, i, end_a, b, j, end_b = b, j, end_b, a, i, end_a
    shorter, longer = end_a - i, end_b - j
    common = np.int64(0)
    if shorter == 0:
        return common
    if a & b & TAG != 0:
        narrow_a, narrow_b = a - TAG, b - TAG
        if longer <= MAX_SCANNED_VALUES:
            if shorter <= NARROW_LANES // 2:
                return _count_four(narrow_a, i, end_a, narrow_b, j, end_b)
            if shorter <= NARROW_LANES:
                return _count_eight(narrow_a, i, end_a, narrow_b, j, end_b)
        if shorter * NARROW_GALLOP_RATIO < longer:
            common, i, j = _count_searched_narrow(a, i, end_a, narrow_b, j, end_b)
        return common + _count_narrow(narrow_a, i, end_a, narrow_b, j, end_b)
    is_searched = shorter * GALLOP_RATIO < longer
    if not is_searched and shorter >= VECTOR_LANES and are_near(a, i, end_a, b, j, end_b):
        if b & TAG != 0:
            return _count_mixed(a, i, end_a, b - TAG, j, end_b)
        if a & TAG != 0:
            return _count_mixed(b, j, end_b, a - TAG, i, end_a)
        return _count_near(a, i, end_a, b, j, end_b)
    if is_searched and b & TAG != 0:
        # A word that does not fit in 32 bits is beyond all values of a block, or before them.
        i = seek(a, i, end_a, np.int64(MIN_NARROW_VALUE))
        end_a = seek(a, i, end_a, np.int64(MAX_NARROW_VALUE) + 1)
        common, i, j = _count_searched_narrow(a, i, end_a, b - TAG, j, end_b)
    elif is_searched:
        common, i, j = _count_searched_words(a, i, end_a, b, j, end_b)
    elif (a | b) & TAG == 0:
        common, i, j = _count_words(a, i, end_a, b, j, end_b)
    return common + count_one_by_one(a, i, end_a, b, j, end_b)


@subroutine
def count_in_bitmap(bitmap, lowest, highest, values, first, last):
    """Return how many values at positions ``[first, last)`` are in the bitmap.

    The bitmap covers the values from ``lowest`` to ``highest``.
    """
    if load_value(values, first) < lowest:
        first = seek(values, first, last, lowest)
    if first < last and load_value(values, last - 1) > highest:
        last = seek(values, first, last, highest + 1)
    # The number of found values, at most one more than this, must fit in 32 bits as well.
    span = np.uint64(highest) - np.uint64(lowest)
    if values & TAG != 0 and span < np.uint64(MAX_NEAR_RANGE - 1):
        narrow = values - TAG
        found = np.uint32(0)
        for position in range(first, last):
            found = np.uint32(found + load_bit(bitmap, lowest, narrow, position))
        return np.int64(found)
    common = np.int64(0)
    for position in range(first, last):
        bit = load_value(values, position) - lowest
        common += (load(bitmap, bit >> 6) >> (bit & 63)) & 1
    return common


@subroutine
def leaf_weight(run, leaf):
    """Return the weight of a leaf of a run."""
    sums = load(run, WEIGHT_SUMS)
    if sums == 0:
        return load(run, UNIFORM_WEIGHT)
    return wrapping_subtract(load(run, sums + leaf + 1), load(run, sums + leaf))


@inline_subroutine
def has_no_match(a, i, b, j):
    """Return whether the four values at ``a[i:]`` surely have none in common with ``b[j:]``."""
    if a & b & TAG != 0:
        return count_short_matches(a - TAG, i, b - TAG, j) == 0
    if (a | b) & TAG != 0:
        return False
    return count_block_matches(a, i, b, j) == 0


@subroutine
def dot_common(a, run_a, i, end_a, b, run_b, j, end_b):
    """Return the sum over the common values of the products of their weights, unchecked.

    The caller guarantees that the length of the shorter list, times the largest absolute weight of
    each of the two, fits in int64.
    """
    if end_a - i > end_b - j:
        a, run_a, i, end_a, b, run_b, j, end_b = b, run_b, j, end_b, a, run_a, i, end_a
    total = np.int64(0)
    if (end_a - i) * GALLOP_RATIO < end_b - j:
        while i < end_a:
            value = load_value(a, i)
            j = seek(b, j, end_b, value)
            if j >= end_b:
                return total
            if load_value(b, j) == value:
                total += leaf_weight(run_a, i) * leaf_weight(run_b, j)
            i += 1
        return total
    while i < end_a and j < end_b:
        if i + VECTOR_LANES <= end_a and j + VECTOR_LANES <= end_b and has_no_match(a, i, b, j):
            last_a = load_value(a, i + VECTOR_LANES - 1)
            last_b = load_value(b, j + VECTOR_LANES - 1)
            i += VECTOR_LANES * np.int64(last_a <= last_b)
            j += VECTOR_LANES * np.int64(last_b <= last_a)
            continue
        stop_a = min(i + VECTOR_LANES, end_a)
        stop_b = min(j + VECTOR_LANES, end_b)
        while i < stop_a and j < stop_b:
            x = load_value(a, i)
            y = load_value(b, j)
            if x == y:
                total += leaf_weight(run_a, i) * leaf_weight(run_b, j)
            i += np.int64(x <= y)
            j += np.int64(y <= x)
    return total


@subroutine
def dot_checked(a, run_a, i, end_a, b, run_b, j, end_b):
    """Like `dot_common`, for weights of any size; the sum may be `OVERFLOWED`."""
    total = np.int64(0)
    while i < end_a and j < end_b:
        x = load_value(a, i)
        y = load_value(b, j)
        if x == y:
            total = add(total, multiply(leaf_weight(run_a, i), leaf_weight(run_b, j)))
        i += np.int64(x <= y)
        j += np.int64(y <= x)
    return total
