"""Packed lists: lists of values as pairs (word, bits), for a join that reads whole relations.

A pair stands for up to 64 values: bit i of ``bits`` is set if the list contains ``64 * word + i``.

    values 3, 5, 64    ->    (0, bits 3 and 5), (1, bit 0)

To count the cycles of a whole graph, the join intersects the neighbours of each vertex ``a`` with
those of each neighbour ``b`` of ``a``::

    sum over b in the list of a  of  | bitmap(a) AND packed list of b |

The list of ``a`` is a bitmap, and each list of ``b`` is packed, so one AND and one bit count
process all values of a pair. There are never more pairs than values. There are far fewer if
neighbours have close numbers, as in web graphs and communities, or if the graph has few vertices.

Cost: O(rows) to pack, about as much as one pass over the lists; each intersection then takes time
in proportion to the pairs of a list. Lists are not packed for the join of a delta, which reads few
lists of a large state. They are not stored in a run either, because merging would have to maintain
them and the run of a delta is seldom read twice.

The packed form is one int64 array: the address of the run; for each node of the root, the word
where its pairs begin and where its children begin (and once more for the end); then the pairs.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.intersect import count_common
from dbsp_wcoj.kernels.join.join_layout import BITMAP_WORDS
from dbsp_wcoj.kernels.join.lists import leaf_values
from dbsp_wcoj.kernels.memory import count_ones, load, load_value, prefetch, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import bisect

# The words of the array.
RUN = 0
FIRST_NODE = 1
NODE_WORDS = 2  # start of its pairs, start of its children

# Number of values that are looked up together, so that their cache misses overlap.
LOOKUP_BATCH_VALUES = 64
# Number of lists that prefetching is ahead.
PREFETCH_DISTANCE = 4
# More pairs than this are narrowed to the range of the bitmap first; fewer are scanned as a whole.
MIN_PAIRS_TO_NARROW = 32
# A list with more pairs than this times the values of the marked list is searched by galloping.
MAX_SCAN_RATIO = 32


def packed_words(nodes: int, rows: int) -> int:
    """Return the maximum number of words of a packed run; it leaves unused words untouched."""
    return FIRST_NODE + NODE_WORDS * (nodes + 1) + 2 * rows


@kernel
def pack_run(run, packed):
    """Pack the lists below the root of a run; return whether the run can be packed.

    It needs two columns, a uniform weight and a directory.

    Args:
        run: its address.
        packed: address of an array of at least `packed_words`.
    """
    is_packable = load(run, run_layout.DIRECTORY) != 0 and load(run, run_layout.WEIGHT_SUMS) == 0
    if not is_packable or load(run, run_layout.ARITY) != 2:
        return False
    nodes = load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES)
    offsets = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_OFFSETS)
    leaves = leaf_values(run)
    store(packed, RUN, run)
    end = FIRST_NODE + NODE_WORDS * (nodes + 1)
    child = load(offsets, 0)
    for node in range(nodes):
        store(packed, FIRST_NODE + NODE_WORDS * node, end)
        store(packed, FIRST_NODE + NODE_WORDS * node + 1, child)
        last = load(offsets, node + 1)
        word = load_value(leaves, child) >> 6
        bits = np.int64(0)
        # Each value writes, so that no branch asks whether it is the last value of its word.
        while child < last:
            value = load_value(leaves, child)
            is_same_word = np.int64(value >> 6 == word)
            end += 2 * (1 - is_same_word)
            bits = (bits & -is_same_word) | (np.int64(1) << (value & 63))
            word = value >> 6
            store(packed, end, word)
            store(packed, end + 1, bits)
            child += 1
        end += 2
    store(packed, FIRST_NODE + NODE_WORDS * nodes, end)
    store(packed, FIRST_NODE + NODE_WORDS * nodes + 1, child)
    return True


@subroutine
def mark_words(bitmap, values, first, last, lowest, is_erasing):
    """Set or erase the values at positions ``[first, last)`` in a bitmap.

    Word 0 of the bitmap is for the 64 values from ``64 * lowest`` on.
    """
    for position in range(first, last):
        value = load_value(values, position)
        word = (value >> 6) - lowest
        if is_erasing:
            store(bitmap, word, 0)
        else:
            store(bitmap, word, load(bitmap, word) | (np.int64(1) << (value & 63)))


@subroutine
def seek_word(packed, pair, end, word):
    """Return the first pair in ``[pair, end)`` whose word is at least ``word``."""
    low, high = np.int64(0), (end - pair) >> 1
    while low < high:
        middle = (low + high) >> 1
        if load(packed, pair + 2 * middle) < word:
            low = middle + 1
        else:
            high = middle
    return pair + 2 * low


@subroutine
def count_packed(bitmap, lowest, highest, packed, pair, end):
    """Return how many values of a packed list are marked in the words ``lowest`` to ``highest``."""
    if end - pair > 2 * MIN_PAIRS_TO_NARROW:
        pair = seek_word(packed, pair, end, lowest)
        end = seek_word(packed, pair, end, highest + 1)
    # Words out of range are compared with the word after the last, which is zero.
    outside = np.uint64(highest) - np.uint64(lowest) + np.uint64(1)
    common = np.int64(0)
    while pair < end:
        word = min(np.uint64(load(packed, pair)) - np.uint64(lowest), outside)
        common += count_ones(load(bitmap, np.int64(word)) & load(packed, pair + 1))
        pair += 2
    return common


@subroutine
def find_nodes(
    run, table, first_entry, entry_words, values, position, size, low, high, node_entries
):
    """Write where the entries of the nodes of some values are; return how many have a node.

    Args:
        run: Address of the run.
        table: Address of a table with an entry for each node of the root; entries are prefetched.
        first_entry: Position of the first entry.
        entry_words: Number of words of an entry.
        values: Ascending values, looked up from ``position`` on.
        position: Index of the first value.
        size: Number of values.
        low: Nodes before this one are left out.
        high: Nodes from this one on are left out.
        node_entries: Result.
    """
    nodes = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_VALUES)
    directory = run + 8 * load(run, run_layout.DIRECTORY)
    buckets = load(run, run_layout.DIRECTORY_SIZE) - 1
    lowest = np.uint64(load(run, run_layout.LOWEST_VALUE))
    shift = np.uint64(load(run, run_layout.DIRECTORY_SHIFT))
    written = np.int64(0)
    for index in range(position, position + size):
        value = load_value(values, index)
        # As unsigned numbers, values below the first node are far beyond the last bucket.
        bucket = np.int64(min((np.uint64(value) - lowest) >> shift, np.uint64(buckets)))
        bucket = min(bucket, buckets - 1)
        node = load(directory, bucket)
        next_node = load(directory, bucket + 1)
        if shift != np.uint64(0):
            node = bisect(nodes, node, next_node, value)
        is_in_range = node < next_node and load(nodes, node) == value and low <= node < high
        entry = first_entry + entry_words * node
        prefetch(table, entry)
        store(node_entries, written, entry)
        written += np.int64(is_in_range)
    return written


@subroutine
def sum_packed(packed, bitmap, node_entries, fixed, first, last, values, start, end, low, high):
    """Count the common values of a fixed list and the list of each node of the packed run.

    Args:
        packed: Address of the packed form of a run.
        bitmap: Bitmap, all zero before and after.
        node_entries: Scratch of `LOOKUP_BATCH_VALUES` words.
        fixed: The values of the fixed list.
        first: Position of its first value.
        last: Position after its last value; it is not empty.
        values: The values of the nodes.
        start: Position of the first one.
        end: Position after the last one.
        low: Nodes before this one are left out.
        high: Nodes from this one on are left out.

    Returns:
        ``(common values, proposals)``, one proposal per value of the shorter list; -1 common
        values if the range of the fixed list is too wide for the bitmap.
    """
    lowest = load_value(fixed, first) >> 6
    highest = load_value(fixed, last - 1) >> 6
    if np.uint64(highest) - np.uint64(lowest) >= np.uint64(BITMAP_WORDS - 1):
        return np.int64(-1), np.int64(0)
    run = load(packed, RUN)
    leaves = leaf_values(run)
    mark_words(bitmap, fixed, first, last, lowest, False)
    length = last - first
    common = np.int64(0)
    proposals = np.int64(0)
    position = start
    while position < end:
        size = min(end - position, LOOKUP_BATCH_VALUES)
        count = find_nodes(
            run,
            packed,
            np.int64(FIRST_NODE),
            np.int64(NODE_WORDS),
            values,
            position,
            size,
            low,
            high,
            node_entries,
        )
        position += size
        for index in range(count):
            prefetched = load(packed, load(node_entries, min(index + PREFETCH_DISTANCE, count - 1)))
            prefetch(packed, prefetched)
            entry = load(node_entries, index)
            pair, child = load(packed, entry), load(packed, entry + 1)
            pair_end, child_end = load(packed, entry + 2), load(packed, entry + 3)
            proposals += min(child_end - child, length)
            if pair_end - pair > 2 * MAX_SCAN_RATIO * length:
                common += count_common(fixed, first, last, leaves, child, child_end)
            else:
                common += count_packed(bitmap, lowest, highest, packed, pair, pair_end)
    mark_words(bitmap, fixed, first, last, lowest, True)
    return common, proposals
