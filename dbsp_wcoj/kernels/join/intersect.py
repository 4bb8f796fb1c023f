"""Intersect: the sum over the common values of two sorted lists, without listing the values.

    sum over v of a(v) * b(v)        a and b are the weights of v in the two lists

Lists are strictly increasing, and given by tagged addresses
(`dbsp_wcoj.kernels.storage.level_values`): their values are words, or narrow, 32 bits each. A
cyclic join spends its time here. The lengths ``m <= n`` choose one of two strategies:

- Lengths within a factor `GALLOP_RATIO`: compare blocks of values with blocks of values. This takes
  O(m + n) vector comparisons; a count has no branch that depends on the values. A block has eight
  values if the lists are narrow, or if all values are within a range of 2**32, so that 32 bits of
  each decide; else four. The last values of two narrow lists are compared in one step, too.
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
    block_contains,
    count_block_matches,
    count_mixed_matches,
    count_narrow_matches,
    count_near_matches,
    count_partial_matches,
    count_short_matches,
    load,
    load_narrow,
    load_value,
    narrow_block_contains,
)
from dbsp_wcoj.kernels.storage.level_values import MAX_NARROW_VALUE, MIN_NARROW_VALUE, TAG
from dbsp_wcoj.kernels.storage.run_layout import UNIFORM_WEIGHT, WEIGHT_SUMS
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.values.arithmetic import add, multiply, wrapping_subtract

# A list longer than this many times the other one is searched by galloping.
GALLOP_RATIO = 12
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


def _make_block_count(read_a: Any, read_b: Any, lanes: int, count_matches: Any) -> Any:
    """Return a function that counts common values block by block, as long as both have a block.

    It returns the count, and where it ends in both lists.
    """

    @subroutine
    def count_blocks(a, i, end_a, b, j, end_b):
        common = np.int64(0)
        while i + lanes <= end_a and j + lanes <= end_b:
            common += count_matches(a, i, b, j)
            last_a = read_a(a, i + lanes - 1)
            last_b = read_b(b, j + lanes - 1)
            i += lanes * np.int64(last_a <= last_b)
            j += lanes * np.int64(last_b <= last_a)
        return common, i, j

    return count_blocks


_count_words = _make_block_count(load, load, VECTOR_LANES, count_block_matches)
_count_near = _make_block_count(load, load, NARROW_LANES, count_near_matches)
_count_mixed = _make_block_count(load_narrow, load, NARROW_LANES, count_mixed_matches)
_count_narrow = _make_block_count(load_narrow, load_narrow, NARROW_LANES, count_narrow_matches)


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
def count_partial_blocks(a, i, end_a, b, j, end_b):
    """Return the number of common values of two narrow lists, at least one of which ends soon."""
    common = np.int64(0)
    while i < end_a and j < end_b:
        common += count_partial_matches(a, i, end_a, b, j, end_b)
        last_a = load_narrow(a, min(i + NARROW_LANES, end_a) - 1)
        last_b = load_narrow(b, min(j + NARROW_LANES, end_b) - 1)
        i += NARROW_LANES * np.int64(last_a <= last_b)
        j += NARROW_LANES * np.int64(last_b <= last_a)
    return common


@subroutine
def count_common(a, i, end_a, b, j, end_b):
    """Return how many values ``a[i:end_a]`` and ``b[j:end_b]`` have in common."""
    if end_a - i > end_b - j:
        a, i, end_a, b, j, end_b = b, j, end_b, a, i, end_a
    is_searched = (end_a - i) * GALLOP_RATIO < end_b - j
    if a & b & TAG != 0:
        narrow_a, narrow_b = a - TAG, b - TAG
        if is_searched:
            common, i, j = _count_searched_narrow(a, i, end_a, narrow_b, j, end_b)
        else:
            common, i, j = _count_narrow(narrow_a, i, end_a, narrow_b, j, end_b)
        return common + count_partial_blocks(narrow_a, i, end_a, narrow_b, j, end_b)
    if (a | b) & TAG == 0:
        if is_searched:
            common, i, j = _count_searched_words(a, i, end_a, b, j, end_b)
        else:
            near = np.int64(0)
            if end_a - i >= NARROW_LANES and are_near(a, i, end_a, b, j, end_b):
                near, i, j = _count_near(a, i, end_a, b, j, end_b)
            common, i, j = _count_words(a, i, end_a, b, j, end_b)
            common += near
        return common + count_one_by_one(a, i, end_a, b, j, end_b)
    common = np.int64(0)
    if is_searched:
        if b & TAG != 0:
            # A word that does not fit in 32 bits is beyond all values of a block, or before them.
            i = seek(a, i, end_a, np.int64(MIN_NARROW_VALUE))
            end_a = seek(a, i, end_a, np.int64(MAX_NARROW_VALUE) + 1)
            common, i, j = _count_searched_narrow(a, i, end_a, b - TAG, j, end_b)
        else:
            common, i, j = _count_searched_words(a, i, end_a, b, j, end_b)
    elif end_a - i >= NARROW_LANES and are_near(a, i, end_a, b, j, end_b):
        if a & TAG != 0:
            common, i, j = _count_mixed(a - TAG, i, end_a, b, j, end_b)
        else:
            common, j, i = _count_mixed(b - TAG, j, end_b, a, i, end_a)
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
    common = np.int64(0)
    if values & TAG != 0:
        narrow = values - TAG
        for position in range(first, last):
            bit = load_narrow(narrow, position) - lowest
            common += (load(bitmap, bit >> 6) >> (bit & 63)) & 1
        return common
    for position in range(first, last):
        bit = load(values, position) - lowest
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
