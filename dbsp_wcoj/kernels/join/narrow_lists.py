"""Narrow lists: a join of whole relations counts each pair of lists from the longer one.

To count the triangles of a whole graph, the join intersects two lists for each edge (a, b)::

    sum over a, b of  | list(a) AND list(b) |

One of the two is marked in a bitmap, and the other one is scanned: its values are tested one after
another. If all b of a vertex a are processed together, a marked list serves all of them. But then
the scanned lists are those of b, and in a skewed graph most edges lead to a vertex with a long
list. So the two sides share the edges::

    list(b) at most `MAX_SCAN_RATIO` times as long as list(a):   mark list(a), scan list(b), now
    longer:   the pair waits. Later, the waiting pairs are sorted by b, and all pairs of one b are
              counted together: mark list(b), scan each list(a)

The values are numbers of 32 bits, counted from the least value of all lists, because reading them
from memory is most of the work. The pairs that wait are counted when there are `CAPACITY` of them,
when they have `MAX_WAITING_VALUES` values to scan, and at the end of the join
(`sum_waiting_pairs`).

Cost: the sum of the lengths of the shorter lists, up to the factor `MAX_SCAN_RATIO`; O(1) for each
edge, and O(nodes) each time that the waiting pairs are counted.

The lists of a and of b may be of two runs. They are described by one int64 array: the header below;
a counter for each node of the root and one more; the pairs, two words each: node of the marked list
and length of the scanned one in one word, and the position of the scanned list; then space for the
sorted pairs.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.intersect import count_common
from dbsp_wcoj.kernels.join.packed_lists import LOOKUP_BATCH_VALUES, PREFETCH_DISTANCE, find_nodes
from dbsp_wcoj.kernels.memory import load, load_half, prefetch, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.values.arithmetic import add, multiply

# The header of the array.
RUN = 0  # address of the run with the lists of b
VALUES = 1  # address of its narrow values, 4 bytes each
NODES = 2  # number of nodes of its root
FIXED_RUN = 3  # address of the run with the lists of a
FIXED_VALUES = 4  # address of its narrow values
CAPACITY = 5  # number of pairs that there is space for
PAIRS = 6  # number of pairs that wait
WAITING_VALUES = 7  # number of values to scan for them
WEIGHT = 8  # the weight of each common value of a waiting pair
FIRST_COUNTER = 9

PAIR_WORDS = 2
LENGTH_BITS = 32
LENGTH_MASK = (1 << LENGTH_BITS) - 1

# A list at most this many times as long as the marked one is scanned.
MAX_SCAN_RATIO = 1
# The waiting pairs are counted when they have this many values to scan, so that a join that pauses
# does not take much longer than `dbsp_wcoj.kernels.join.join_layout.MAX_WORK_PER_CALL` says.
MAX_WAITING_VALUES = 1 << 26
# Waiting pairs whose marked list is this many times as long as their scanned lists together are
# searched by galloping instead.
MIN_GALLOP_RATIO = 8


def waiting_words(nodes: int, capacity: int) -> int:
    """Return the number of words of the array."""
    return FIRST_COUNTER + nodes + 1 + PAIR_WORDS * (2 * capacity + PREFETCH_DISTANCE)


@subroutine
def leaves_of(run):
    """Return the address of the values of the second column of a run."""
    return run + 8 * load(
        run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS + run_layout.LEVEL_VALUES
    )


@subroutine
def mark_narrow(bitmap, values, first, last, is_erasing):
    """Set or erase the bits of the narrow values at positions ``[first, last)``."""
    for position in range(first, last):
        bit = load_half(values, position)
        if is_erasing:
            store(bitmap, bit >> 6, 0)
        else:
            store(bitmap, bit >> 6, load(bitmap, bit >> 6) | (np.int64(1) << (bit & 63)))


@subroutine
def count_marked(bitmap, values, first, last):
    """Return how many narrow values at positions ``[first, last)`` are marked."""
    common = np.int64(0)
    for position in range(first, last):
        bit = load_half(values, position)
        common += (load(bitmap, bit >> 6) >> (bit & 63)) & 1
    return common


@subroutine
def sort_pairs(lists, pairs, sorted_pairs):
    """Write the position and the length of each scanned list, sorted by the marked lists.

    Afterwards the counter of a node is the end of its pairs among the sorted ones.
    """
    counters = lists + 8 * FIRST_COUNTER
    nodes = load(lists, NODES)
    for node in range(nodes + 1):
        store(counters, node, 0)
    for pair in range(load(lists, PAIRS)):
        node = load(pairs, PAIR_WORDS * pair) >> LENGTH_BITS
        store(counters, node + 1, load(counters, node + 1) + 1)
    for node in range(nodes):
        store(counters, node + 1, load(counters, node + 1) + load(counters, node))
    for pair in range(load(lists, PAIRS)):
        node_and_length = load(pairs, PAIR_WORDS * pair)
        node = node_and_length >> LENGTH_BITS
        place = load(counters, node)
        store(counters, node, place + 1)
        store(sorted_pairs, PAIR_WORDS * place, load(pairs, PAIR_WORDS * pair + 1))
        store(sorted_pairs, PAIR_WORDS * place + 1, node_and_length & LENGTH_MASK)
    for place in range(PREFETCH_DISTANCE):  # read by the prefetching
        store(sorted_pairs, PAIR_WORDS * (load(lists, PAIRS) + place), 0)


@subroutine
def sum_waiting(lists, bitmap):
    """Return the sum of all waiting pairs, which then wait no longer."""
    run, values, fixed_values = load(lists, RUN), load(lists, VALUES), load(lists, FIXED_VALUES)
    offsets = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_OFFSETS)
    leaves, fixed_leaves = leaves_of(run), leaves_of(load(lists, FIXED_RUN))
    counters = lists + 8 * FIRST_COUNTER
    pairs = counters + 8 * (load(lists, NODES) + 1)
    sorted_pairs = pairs + 8 * PAIR_WORDS * load(lists, CAPACITY)
    sort_pairs(lists, pairs, sorted_pairs)
    common = np.int64(0)
    place = np.int64(0)
    for node in range(load(lists, NODES)):
        end = load(counters, node)
        if place == end:
            continue
        first, last = load(offsets, node), load(offsets, node + 1)
        scanned_values = np.int64(0)
        for later in range(place, end):
            scanned_values += load(sorted_pairs, PAIR_WORDS * later + 1)
        if scanned_values * MIN_GALLOP_RATIO < last - first:
            for later in range(place, end):
                start = load(sorted_pairs, PAIR_WORDS * later)
                stop = start + load(sorted_pairs, PAIR_WORDS * later + 1)
                common += count_common(fixed_leaves, start, stop, leaves, first, last)
        else:
            mark_narrow(bitmap, values, first, last, False)
            for later in range(place, end):
                prefetched = load(sorted_pairs, PAIR_WORDS * (later + PREFETCH_DISTANCE))
                prefetch(fixed_values, prefetched >> 1)
                start = load(sorted_pairs, PAIR_WORDS * later)
                stop = start + load(sorted_pairs, PAIR_WORDS * later + 1)
                common += count_marked(bitmap, fixed_values, start, stop)
            mark_narrow(bitmap, values, first, last, True)
        place = end
    store(lists, PAIRS, 0)
    store(lists, WAITING_VALUES, 0)
    return multiply(common, load(lists, WEIGHT))


@kernel
def sum_waiting_pairs(lists, bitmap):
    """Return the sum of all pairs that wait at the end of a join; it may be `OVERFLOWED`.

    Args:
        lists: Address of the array.
        bitmap: Address of the bitmap, all zero before and after.
    """
    return sum_waiting(lists, bitmap)


@subroutine
def sum_narrow(lists, bitmap, node_entries, first, last, values, start, end, low, high, weight):
    """Count the common values of a fixed list and the list of each node; some pairs wait.

    Args:
        lists: Address of the array.
        bitmap: Bitmap, all zero before and after.
        node_entries: Scratch of `LOOKUP_BATCH_VALUES` words.
        first: Position of the first value of the fixed list.
        last: Position after its last value; it is not empty.
        values: The values of the nodes.
        start: Position of the first one.
        end: Position after the last one.
        low: Nodes before this one are left out.
        high: Nodes from this one on are left out.
        weight: The weight of each common value.

    Returns:
        ``(sum, proposals)``: the sum of the pairs that were counted, and one proposal per value of
        the shorter list of each pair.
    """
    run, narrow_values, fixed_values = (
        load(lists, RUN),
        load(lists, VALUES),
        load(lists, FIXED_VALUES),
    )
    offsets = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_OFFSETS)
    counters = lists + 8 * FIRST_COUNTER
    pairs = counters + 8 * (load(lists, NODES) + 1)
    length = last - first
    max_length = MAX_SCAN_RATIO * length
    total = np.int64(0)
    common = np.int64(0)
    proposals = np.int64(0)
    if load(lists, PAIRS) != 0 and load(lists, WEIGHT) != weight:
        total = sum_waiting(lists, bitmap)
    store(lists, WEIGHT, weight)
    is_marked = False
    position = start
    while position < end:
        size = min(end - position, LOOKUP_BATCH_VALUES)
        count = find_nodes(
            run, offsets, np.int64(0), np.int64(1), values, position, size, low, high, node_entries
        )
        position += size
        has_space = load(lists, PAIRS) + count <= load(lists, CAPACITY)
        if not has_space or load(lists, WAITING_VALUES) >= MAX_WAITING_VALUES:
            if is_marked:
                mark_narrow(bitmap, fixed_values, first, last, True)
                is_marked = False
            total = add(total, sum_waiting(lists, bitmap))
        waiting = load(lists, PAIRS)
        for index in range(count):
            later = load(node_entries, min(index + PREFETCH_DISTANCE, count - 1))
            prefetch(narrow_values, load(offsets, later) >> 1)
            node = load(node_entries, index)
            child, child_end = load(offsets, node), load(offsets, node + 1)
            if child_end - child > max_length:
                store(pairs, PAIR_WORDS * waiting, (node << LENGTH_BITS) | length)
                store(pairs, PAIR_WORDS * waiting + 1, first)
                waiting += 1
                continue
            proposals += child_end - child
            if not is_marked:
                mark_narrow(bitmap, fixed_values, first, last, False)
                is_marked = True
            common += count_marked(bitmap, narrow_values, child, child_end)
        waiting_values = (waiting - load(lists, PAIRS)) * length
        proposals += waiting_values
        store(lists, PAIRS, waiting)
        store(lists, WAITING_VALUES, load(lists, WAITING_VALUES) + waiting_values)
    if is_marked:
        mark_narrow(bitmap, fixed_values, first, last, True)
    return add(total, multiply(common, weight)), proposals
