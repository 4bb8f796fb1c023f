"""Narrow lists: a join of whole relations intersects two lists by scanning the shorter one.

To count the triangles of a whole graph, the join intersects two lists for each edge (a, b)::

    sum over a, b of  | list(a) AND list(b) |

The longer list is marked in a bitmap, and the values of the shorter one are tested one after
another. All edges of a vertex a are processed together, so marking list(a) once serves each list(b)
that is not longer. But in a skewed graph most edges lead to a vertex with a longer list. These
intersections are deferred, and then sorted by b, so that marking list(b) once serves them as well::

    list(b) not longer than list(a):   mark list(a), scan list(b)
    longer:                            defer; later mark list(b), scan each such list(a)

A list is marked only if the lists to scan are not much shorter together
(`MAX_MARKED_PER_SCANNED`). Otherwise their values are searched in it by galloping.

The values are numbers of 32 bits, because reading them from memory is most of the work. Bit 0 of
the bitmap stands for the least value of all lists. The deferred intersections are computed when
there are `CAPACITY` of them, when they have `MAX_DEFERRED_VALUES` values to scan, and at the end of
the join (`sum_deferred`).

Cost: the sum of the lengths of the shorter lists; O(1) for each edge, and O(nodes) each time that
deferred intersections are computed.

The list of a is called the *fixed list*; it may be of another run than the lists of b. All of them
are described by one int64 array: the header below; a counter for each node of the root and one
more; the deferred intersections, two words each: node of the marked list and length of the scanned
one in one word, and the position of the scanned list; then space to sort them.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.intersect import count_common
from dbsp_wcoj.kernels.join.lists import leaf_values
from dbsp_wcoj.kernels.join.packed_lists import LOOKUP_BATCH_VALUES, PREFETCH_DISTANCE, find_nodes
from dbsp_wcoj.kernels.memory import load, load_narrow, prefetch, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.values.arithmetic import add, multiply

# The header of the array.
RUN = 0  # address of the run with the lists of b
VALUES = 1  # address of the values of its lists, as signed numbers of 32 bits
NODES = 2  # number of nodes of its root
FIXED_RUN = 3  # address of the run with the lists of a
FIXED_VALUES = 4  # address of the values of its lists
CAPACITY = 5  # number of intersections that can be deferred
DEFERRED = 6  # number of deferred intersections
DEFERRED_VALUES = 7  # number of values to scan for them
WEIGHT = 8  # the weight of each common value of a deferred intersection
LOWEST = 9  # the least value of all lists
FIRST_COUNTER = 10

DEFERRED_WORDS = 2
LENGTH_BITS = 32
LENGTH_MASK = (1 << LENGTH_BITS) - 1

# Deferred intersections are computed when they have this many values to scan, so that a join that
# pauses does not take much longer than `dbsp_wcoj.kernels.join.join_layout.MAX_WORK_PER_CALL` says.
MAX_DEFERRED_VALUES = 1 << 26
# A list is marked if it has at most this many values for each value of the lists to scan.
MAX_MARKED_PER_SCANNED = 8


def narrow_words(nodes: int, capacity: int) -> int:
    """Return the number of words of the array."""
    return FIRST_COUNTER + nodes + 1 + DEFERRED_WORDS * (2 * capacity + PREFETCH_DISTANCE)


@subroutine
def mark_narrow(bitmap, lowest, values, first, last, is_erasing):
    """Set or erase the bits of the narrow values at positions ``[first, last)``."""
    for position in range(first, last):
        bit = load_narrow(values, position) - lowest
        if is_erasing:
            store(bitmap, bit >> 6, 0)
        else:
            store(bitmap, bit >> 6, load(bitmap, bit >> 6) | (np.int64(1) << (bit & 63)))


@subroutine
def count_marked(bitmap, lowest, values, first, last):
    """Return how many narrow values at positions ``[first, last)`` are marked."""
    common = np.int64(0)
    for position in range(first, last):
        bit = load_narrow(values, position) - lowest
        common += (load(bitmap, bit >> 6) >> (bit & 63)) & 1
    return common


@subroutine
def sort_deferred(lists, deferred, by_node):
    """Write the position and the length of each scanned list, sorted by the marked lists.

    Afterwards the counter of a node is the end of its intersections among the sorted ones.
    """
    counters = lists + 8 * FIRST_COUNTER
    nodes = load(lists, NODES)
    for node in range(nodes + 1):
        store(counters, node, 0)
    for index in range(load(lists, DEFERRED)):
        node = load(deferred, DEFERRED_WORDS * index) >> LENGTH_BITS
        store(counters, node + 1, load(counters, node + 1) + 1)
    for node in range(nodes):
        store(counters, node + 1, load(counters, node + 1) + load(counters, node))
    for index in range(load(lists, DEFERRED)):
        node_and_length = load(deferred, DEFERRED_WORDS * index)
        node = node_and_length >> LENGTH_BITS
        place = load(counters, node)
        store(counters, node, place + 1)
        store(by_node, DEFERRED_WORDS * place, load(deferred, DEFERRED_WORDS * index + 1))
        store(by_node, DEFERRED_WORDS * place + 1, node_and_length & LENGTH_MASK)
    for place in range(PREFETCH_DISTANCE):  # read by the prefetching
        store(by_node, DEFERRED_WORDS * (load(lists, DEFERRED) + place), 0)


@subroutine
def compute_deferred(lists, bitmap):
    """Return the sum of all deferred intersections, of which none is left then."""
    run, values, fixed_values = load(lists, RUN), load(lists, VALUES), load(lists, FIXED_VALUES)
    lowest = load(lists, LOWEST)
    offsets = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_OFFSETS)
    leaves, fixed_leaves = leaf_values(run), leaf_values(load(lists, FIXED_RUN))
    counters = lists + 8 * FIRST_COUNTER
    deferred = counters + 8 * (load(lists, NODES) + 1)
    by_node = deferred + 8 * DEFERRED_WORDS * load(lists, CAPACITY)
    sort_deferred(lists, deferred, by_node)
    common = np.int64(0)
    place = np.int64(0)
    for node in range(load(lists, NODES)):
        end = load(counters, node)
        if place == end:
            continue
        first, last = load(offsets, node), load(offsets, node + 1)
        scanned_values = np.int64(0)
        for later in range(place, end):
            scanned_values += load(by_node, DEFERRED_WORDS * later + 1)
        if scanned_values * MAX_MARKED_PER_SCANNED < last - first:
            for later in range(place, end):
                start = load(by_node, DEFERRED_WORDS * later)
                stop = start + load(by_node, DEFERRED_WORDS * later + 1)
                common += count_common(fixed_leaves, start, stop, leaves, first, last)
        else:
            mark_narrow(bitmap, lowest, values, first, last, False)
            for later in range(place, end):
                prefetched = load(by_node, DEFERRED_WORDS * (later + PREFETCH_DISTANCE))
                prefetch(fixed_values, prefetched >> 1)
                start = load(by_node, DEFERRED_WORDS * later)
                stop = start + load(by_node, DEFERRED_WORDS * later + 1)
                common += count_marked(bitmap, lowest, fixed_values, start, stop)
            mark_narrow(bitmap, lowest, values, first, last, True)
        place = end
    store(lists, DEFERRED, 0)
    store(lists, DEFERRED_VALUES, 0)
    return multiply(common, load(lists, WEIGHT))


@kernel
def sum_deferred(lists, bitmap):
    """Return the sum of all intersections deferred at the end of a join; it may be `OVERFLOWED`.

    Args:
        lists: Address of the array.
        bitmap: Address of the bitmap, all zero before and after.
    """
    return compute_deferred(lists, bitmap)


@subroutine
def sum_narrow(lists, bitmap, nodes, first, last, values, start, end, low, high, weight):
    """Count the common values of a fixed list and the list of each node; some are deferred.

    Args:
        lists: Address of the array.
        bitmap: Bitmap, all zero before and after.
        nodes: Scratch of `LOOKUP_BATCH_VALUES` words.
        first: Position of the first value of the fixed list.
        last: Position after its last value; it is not empty.
        values: The values of the nodes.
        start: Position of the first one.
        end: Position after the last one.
        low: Nodes before this one are left out.
        high: Nodes from this one on are left out.
        weight: The weight of each common value.

    Returns:
        ``(sum, proposals)``: the sum of the intersections that were computed, and one proposal per
        value of the shorter list of each intersection.
    """
    run, narrow_values, fixed_values = (
        load(lists, RUN),
        load(lists, VALUES),
        load(lists, FIXED_VALUES),
    )
    lowest = load(lists, LOWEST)
    offsets = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_OFFSETS)
    leaves, fixed_leaves = leaf_values(run), leaf_values(load(lists, FIXED_RUN))
    counters = lists + 8 * FIRST_COUNTER
    deferred = counters + 8 * (load(lists, NODES) + 1)
    length = last - first
    total = np.int64(0)
    common = np.int64(0)
    proposals = np.int64(0)
    if load(lists, DEFERRED) != 0 and load(lists, WEIGHT) != weight:
        total = compute_deferred(lists, bitmap)
    store(lists, WEIGHT, weight)
    is_marked = False
    searched_values = np.int64(0)  # in the fixed list, while it is not marked
    position = start
    while position < end:
        size = min(end - position, LOOKUP_BATCH_VALUES)
        count = find_nodes(
            run, offsets, np.int64(0), np.int64(1), values, position, size, low, high, nodes
        )
        position += size
        for index in range(count):
            later = load(nodes, min(index + PREFETCH_DISTANCE, count - 1))
            prefetch(narrow_values, load(offsets, later) >> 1)
            node = load(nodes, index)
            child, child_end = load(offsets, node), load(offsets, node + 1)
            if child_end - child > length:
                proposals += length
                place = load(lists, DEFERRED)
                store(deferred, DEFERRED_WORDS * place, (node << LENGTH_BITS) | length)
                store(deferred, DEFERRED_WORDS * place + 1, first)
                store(lists, DEFERRED, place + 1)
                deferred_values = load(lists, DEFERRED_VALUES) + length
                store(lists, DEFERRED_VALUES, deferred_values)
                if place + 1 == load(lists, CAPACITY) or deferred_values >= MAX_DEFERRED_VALUES:
                    if is_marked:
                        mark_narrow(bitmap, lowest, fixed_values, first, last, True)
                        is_marked = False
                    total = add(total, compute_deferred(lists, bitmap))
                continue
            proposals += child_end - child
            if not is_marked:
                searched_values += child_end - child
                if searched_values * MAX_MARKED_PER_SCANNED < length:
                    common += count_common(leaves, child, child_end, fixed_leaves, first, last)
                    continue
                mark_narrow(bitmap, lowest, fixed_values, first, last, False)
                is_marked = True
            common += count_marked(bitmap, lowest, narrow_values, child, child_end)
    if is_marked:
        mark_narrow(bitmap, lowest, fixed_values, first, last, True)
    return add(total, multiply(common, weight)), proposals
