"""Intersect: the sum over the common values of two sorted lists, without listing the values.

    sum over v of a(v) * b(v)        a and b are the weights of v in the two lists

Lists are addresses of int64 values, strictly increasing. A cyclic join spends its time here. The
lengths ``m <= n`` choose one of two strategies:

- Lengths within a factor `GALLOP_RATIO`: compare blocks of values with blocks of values. This takes
  O(m + n) vector comparisons; a count has no branch that depends on the values. A block has eight
  values if all values are within a range of 2**32, so that 32 bits of each decide; else four.
- Otherwise, for each value of the shorter list: gallop over the last values of the blocks of the
  longer list, then compare one block at once. This takes O(m log(n / m)).

If the weights of each list are all equal, the common values are only counted. Otherwise the weights
are multiplied at each common value.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.memory import (
    NARROW_LANES,
    VECTOR_LANES,
    block_contains,
    count_block_matches,
    count_narrow_matches,
    load,
)
from dbsp_wcoj.kernels.storage.run_layout import UNIFORM_WEIGHT, WEIGHT_SUMS
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.values.arithmetic import add, multiply, wrapping_subtract

# A list longer than this many times the other one is searched by galloping.
GALLOP_RATIO = 12
# Values are within a narrow range if they differ by less than this.
NARROW_RANGE = 1 << 32


@subroutine
def are_narrow(a, i, end_a, b, j, end_b):
    """Return whether all values of two lists that are not empty are within a narrow range."""
    lowest = min(load(a, i), load(b, j))
    highest = max(load(a, end_a - 1), load(b, end_b - 1))
    return np.uint64(highest) - np.uint64(lowest) < np.uint64(NARROW_RANGE)


@subroutine
def seek_block(values, low, blocks, value):
    """Return the first block whose last value is at least ``value``; block 0 starts at ``low``.

    Returns ``blocks`` if there is no such block.
    """
    last = low + VECTOR_LANES - 1
    if load(values, last) >= value:
        return np.int64(0)
    below = np.int64(0)
    step = np.int64(1)
    while below + step < blocks and load(values, last + (below + step) * VECTOR_LANES) < value:
        below += step
        step += step
    high = min(below + step, blocks)
    low_block = below + 1
    while low_block < high:
        middle = (low_block + high) >> 1
        if load(values, last + middle * VECTOR_LANES) < value:
            low_block = middle + 1
        else:
            high = middle
    return low_block


@subroutine
def count_common(a, i, end_a, b, j, end_b):
    """Return how many values ``a[i:end_a]`` and ``b[j:end_b]`` have in common."""
    if end_a - i > end_b - j:
        a, i, end_a, b, j, end_b = b, j, end_b, a, i, end_a
    common = np.int64(0)
    if (end_a - i) * GALLOP_RATIO < end_b - j:
        while i < end_a and j + VECTOR_LANES <= end_b:
            value = load(a, i)
            blocks = (end_b - j) // VECTOR_LANES
            skipped = seek_block(b, j, blocks, value)
            j += skipped * VECTOR_LANES
            if skipped < blocks:
                common += block_contains(b, j, value)
                i += 1
    else:
        if end_a - i >= NARROW_LANES and are_narrow(a, i, end_a, b, j, end_b):
            while i + NARROW_LANES <= end_a and j + NARROW_LANES <= end_b:
                common += count_narrow_matches(a, i, b, j)
                last_a = load(a, i + NARROW_LANES - 1)
                last_b = load(b, j + NARROW_LANES - 1)
                i += NARROW_LANES * np.int64(last_a <= last_b)
                j += NARROW_LANES * np.int64(last_b <= last_a)
        while i + VECTOR_LANES <= end_a and j + VECTOR_LANES <= end_b:
            common += count_block_matches(a, i, b, j)
            last_a = load(a, i + VECTOR_LANES - 1)
            last_b = load(b, j + VECTOR_LANES - 1)
            i += VECTOR_LANES * np.int64(last_a <= last_b)
            j += VECTOR_LANES * np.int64(last_b <= last_a)
    while i < end_a and j < end_b:
        x = load(a, i)
        y = load(b, j)
        common += np.int64(x == y)
        i += np.int64(x <= y)
        j += np.int64(y <= x)
    return common


@subroutine
def count_in_bitmap(bitmap, lowest, highest, values, first, last):
    """Return how many values at positions ``[first, last)`` are in the bitmap.

    The bitmap covers the values from ``lowest`` to ``highest``.
    """
    if load(values, first) < lowest:
        first = seek(values, first, last, lowest)
    if first < last and load(values, last - 1) > highest:
        last = seek(values, first, last, highest + 1)
    common = np.int64(0)
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
            value = load(a, i)
            j = seek(b, j, end_b, value)
            if j >= end_b:
                return total
            if load(b, j) == value:
                total += leaf_weight(run_a, i) * leaf_weight(run_b, j)
            i += 1
        return total
    while i < end_a and j < end_b:
        if (
            i + VECTOR_LANES <= end_a
            and j + VECTOR_LANES <= end_b
            and count_block_matches(a, i, b, j) == 0
        ):
            last_a = load(a, i + VECTOR_LANES - 1)
            last_b = load(b, j + VECTOR_LANES - 1)
            i += VECTOR_LANES * np.int64(last_a <= last_b)
            j += VECTOR_LANES * np.int64(last_b <= last_a)
            continue
        stop_a = min(i + VECTOR_LANES, end_a)
        stop_b = min(j + VECTOR_LANES, end_b)
        while i < stop_a and j < stop_b:
            x = load(a, i)
            y = load(b, j)
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
        x = load(a, i)
        y = load(b, j)
        if x == y:
            total = add(total, multiply(leaf_weight(run_a, i), leaf_weight(run_b, j)))
        i += np.int64(x <= y)
        j += np.int64(y <= x)
    return total
