"""Sort pairs by counting: the rows of a binary relation whose first values are dense numbers.

    count     the rows of each first value
    move      the second values, to the place of their first value
    sort      the second values of each first value, in the cache

This reads and writes each row a few times. A radix sort of packed rows moves all rows once for each
digit, and each move misses the cache if there are millions of rows.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.memory import borrow, keep_alive
from dbsp_wcoj.kernels.storage.sort import FIRST_BIT, radix_sort

# Up to this many values, insertion sort is faster than radix sort.
MAX_INSERTION_VALUES = 32


@kernel
def sort_pairs(first, second, lowest_first, lowest_second, bits, ends, columns):
    """Sort pairs; return the number of different ones.

    Args:
        first: int64, n values.
        second: int64, n values.
        lowest_first: The least first value.
        lowest_second: The least second value.
        bits: The number of bits of the differences of second values from the least one, at most 62.
        ends: int64, zeros; one for each number from the least to the greatest first value.
        columns: int64, shape ``(2, n)``; receives the sorted pairs, equal ones several times.
    """
    rows = first.shape[0]
    places, firsts, seconds = borrow(ends), borrow(columns)[0], borrow(columns)[1]
    for i in range(rows):
        places[first[i] - lowest_first] += 1
    total = np.int64(0)
    longest = np.int64(0)
    for number in range(places.shape[0]):
        count = places[number]
        places[number] = total
        total += count
        longest = max(longest, count)
    for i in range(rows):
        number = first[i] - lowest_first
        place = places[number]
        places[number] = place + 1
        seconds[place] = second[i] - lowest_second
    keys = np.empty((2, longest), np.uint64)
    no_payload = np.empty(0, np.int64)
    repeated = np.int64(0)
    begin = np.int64(0)
    for number in range(places.shape[0]):
        end = places[number]
        if end - begin <= MAX_INSERTION_VALUES:
            for i in range(begin + 1, end):
                value = seconds[i]
                j = i
                while j > begin and seconds[j - 1] > value:
                    seconds[j] = seconds[j - 1]
                    j -= 1
                seconds[j] = value
        else:
            count = end - begin
            for i in range(count):
                keys[0, i] = np.uint64(seconds[begin + i])
            result, _ = radix_sort(
                keys[0, :count], keys[1, :count], no_payload, no_payload, FIRST_BIT, bits
            )
            for i in range(count):
                seconds[begin + i] = np.int64(result[i])
        for i in range(begin, end):
            firsts[i] = number + lowest_first
            repeated += i > begin and seconds[i] == seconds[i - 1]
        begin = end
    for i in range(rows):
        seconds[i] += lowest_second
    keep_alive(ends)
    keep_alive(columns)
    return rows - repeated


@kernel
def count_pairs(columns, counts):
    """Keep each of some sorted pairs once, and write how often it occurs.

    Args:
        columns: int64, shape ``(2, n)``, n at least 1; the different pairs become its first rows.
        counts: int64; one number per different pair is written.
    """
    target = 0
    counts[0] = 1
    for i in range(1, columns.shape[1]):
        if columns[0, i] == columns[0, target] and columns[1, i] == columns[1, target]:
            counts[target] += 1
            continue
        target += 1
        columns[0, target] = columns[0, i]
        columns[1, target] = columns[1, i]
        counts[target] = 1
