"""Pair sort: sort a large binary relation by counting, if its first values are dense numbers.

A load of a graph is such a relation: its vertices are numbers from 0 on, and have several edges
each. See `dbsp_wcoj.kernels.storage.pair_sort`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.pair_sort import count_pairs, sort_pairs

__all__ = ["MIN_PAIRS", "sort_dense_pairs"]

Int64Array = npt.NDArray[np.int64]

#: Fewer pairs fit in the cache, and are sorted as other rows.
MIN_PAIRS: Final = 1 << 17
# The least number of pairs for each number from the least to the greatest first value.
MIN_PAIRS_PER_NUMBER: Final = 4
# The differences of second values have at most this many bits.
MAX_SECOND_BITS: Final = 62
# If so many first pairs are in order, all of them may be.
PREFIX_PAIRS: Final = 1 << 10


def sort_dense_pairs(
    first: Int64Array, second: Int64Array
) -> tuple[Int64Array, Int64Array | None] | None:
    """Sort pairs that occur once each, or more often, and count the equal ones.

    Args:
        first: The first values, at least one.
        second: The second values, as many.

    Returns:
        The different pairs, shape ``(2, n)``, and how often each occurs, or None if each occurs
        once. None instead of both if the pairs may be in order, or their values are not suitable.

    Complexity:
        O(n + range of the first values), plus the sort of the second values of each first value.

    >>> pairs = np.array([[0, 1, 0, 0, 1, 0, 1, 0], [7, 8, 9, 7, 5, 6, 8, 7]])
    >>> rows, counts = sort_dense_pairs(*pairs)
    >>> rows.tolist(), counts.tolist()
    ([[0, 0, 0, 1, 1], [6, 7, 9, 5, 8]], [1, 3, 1, 1, 2])
    """
    a, b = first[:PREFIX_PAIRS], second[:PREFIX_PAIRS]
    if ((a[1:] > a[:-1]) | ((a[1:] == a[:-1]) & (b[1:] > b[:-1]))).all():
        return None
    lowest, lowest_second = int(first.min()), int(second.min())
    numbers = int(first.max()) - lowest + 1
    bits = (int(second.max()) - lowest_second).bit_length()
    if MIN_PAIRS_PER_NUMBER * numbers > len(first) or bits > MAX_SECOND_BITS:
        return None
    # Kernels are compiled for contiguous arrays that are writable; those of Arrow are not.
    first, second = (np.require(array, requirements=["C", "W"]) for array in (first, second))
    columns = np.empty((2, len(first)), np.int64)
    ends = np.zeros(numbers, np.int64)
    different = sort_pairs(first, second, lowest, lowest_second, bits, ends, columns)
    if different == len(first):
        return columns, None
    counts = np.empty(different, np.int64)
    count_pairs(columns, counts)
    return columns[:, :different].copy(), counts
