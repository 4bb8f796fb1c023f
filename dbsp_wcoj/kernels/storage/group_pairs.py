"""Group pairs: a run of a binary relation whose lists are in the order of the rows, not sorted.

    count     the rows of each first value
    move      the second values, to the list of their first value

`dbsp_wcoj.kernels.storage.pair_sort` has one pass more, and sorts each list; this kernel does not.
The first level of the run is as in any other run. A list of the second level has
the values in the order of the rows, equal ones several times.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.memory import borrow, keep_alive, load, store_narrow
from dbsp_wcoj.kernels.storage.level_values import TAG, are_narrow_values, array_values
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    DIRECTORY,
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    MAX_ABS_WEIGHT,
    ROWS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.trie import (
    describe_run,
    fill_directory,
    open_directory,
    place_leaves,
)


@kernel
def group_pairs(first, second, rows, lowest, places, run):
    """Write a run of pairs of weight 1, and describe it.

    Args:
        first: The address of the first values, int64.
        second: The address of the second values, int64.
        rows: The number of pairs, at least 1.
        lowest: The least first value.
        places: int64, zeros; one for each number from the least to the greatest first value.
        run: int64, at least `grouped_run_words` long; its header is zero.
    """
    places_of = borrow(places)
    least = greatest = load(second, 0)
    for i in range(rows):
        places_of[load(first, i) - lowest] += 1
        value = load(second, i)
        least = min(least, value)
        greatest = max(greatest, value)
    nodes = np.int64(0)
    longest = np.int64(0)
    for number in range(places_of.shape[0]):
        nodes += places_of[number] > 0
        longest = max(longest, places_of[number])
    values = np.int64(LEVEL_HEADERS + 2 * LEVEL_HEADER_WORDS)
    offsets = values + nodes
    run[ARITY] = 2
    run[ROWS] = rows
    run[MAX_ABS_WEIGHT] = longest  # a pair may occur so often
    run[UNIFORM_WEIGHT] = 1
    run[WEIGHT_SUMS] = 0
    run[LEVEL_HEADERS + LEVEL_NODES] = nodes
    run[LEVEL_HEADERS + LEVEL_VALUES] = values
    run[LEVEL_HEADERS + LEVEL_OFFSETS] = offsets
    node = np.int64(0)
    total = np.int64(0)
    for number in range(places_of.shape[0]):
        count = places_of[number]
        places_of[number] = total
        if count > 0:
            run[values + node] = lowest + number
            run[offsets + node] = total
            node += 1
            total += count
    run[offsets + nodes] = rows
    start = offsets + nodes + 1
    end = place_leaves(run, start, are_narrow_values(least, greatest))
    end = open_directory(run, end)
    if run[DIRECTORY] > 0:
        fill_directory(run, np.int64(0), np.int64(1) << 62)
    leaves = array_values(run, LEVEL_HEADERS + LEVEL_HEADER_WORDS)
    if leaves & TAG != 0:
        for i in range(rows):
            place = places_of[load(first, i) - lowest]
            places_of[load(first, i) - lowest] = place + 1
            store_narrow(leaves - TAG, place, load(second, i))
    else:
        for i in range(rows):
            place = places_of[load(first, i) - lowest]
            places_of[load(first, i) - lowest] = place + 1
            run[start + place] = load(second, i)
    keep_alive(places)
    return describe_run(run)


def grouped_run_words(numbers: int, rows: int) -> int:
    """Return the maximum number of words of a run of `group_pairs`, for a range of numbers."""
    header = LEVEL_HEADERS + 2 * LEVEL_HEADER_WORDS
    directory = 2 * numbers + 2
    return header + 2 * numbers + 1 + rows + directory
