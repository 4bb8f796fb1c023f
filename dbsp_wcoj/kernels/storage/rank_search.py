"""Find the row at a rank among the rows with the same prefix, in several runs together.

The rank of a row is the weight of all rows of its prefix before it. The runs together have no
negative weights, although one run may have. So the weight of all rows up to a row, summed over the
runs, does not fall from row to row, and a binary search finds the row at a rank. A row whose
weights add up to zero does not raise the sum, so it is never the result.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import load, load_value
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.row_ranges import weight_before
from dbsp_wcoj.kernels.storage.run_layout import (
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
)
from dbsp_wcoj.kernels.storage.search import bisect, find_children


@subroutine
def read_suffix(run, leaf, depth, arity, suffix):
    """Write the columns from ``depth`` on of the row at a leaf."""
    node = leaf
    for level in range(arity - 1, depth - 1, -1):
        entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        suffix[level - depth] = load_value(values_of(run, entry), node)
        if level > depth:
            # The parent is the last node whose children begin at or before this one.
            parent = entry - LEVEL_HEADER_WORDS
            offsets = run + (load(run, parent + LEVEL_OFFSETS) << 3)
            node = bisect(offsets, np.int64(0), load(run, parent + LEVEL_NODES), node + 1) - 1


@subroutine
def find_suffix(run, first, last, depth, arity, suffix):
    """Return the position of the first leaf at or after a suffix, and True if it is equal.

    Args:
        run: The address of a run.
        first: The first child of the prefix.
        last: The position after its last child.
        depth: The number of columns of the prefix.
        arity: The number of columns of the run.
        suffix: The values of the columns after the prefix.
    """
    level = depth
    while True:
        entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        nodes = values_of(run, entry)
        value = suffix[level - depth]
        node = bisect(nodes, first, last, value)
        is_equal = node < last and load_value(nodes, node) == value
        if level == arity - 1 or not is_equal:
            break
        offsets = load(run, entry + LEVEL_OFFSETS)
        first = load(run, offsets + node)
        last = load(run, offsets + node + 1)
        level += 1
    while level < arity - 1:
        offsets = load(run, LEVEL_HEADERS + LEVEL_HEADER_WORDS * level + LEVEL_OFFSETS)
        node = load(run, offsets + node)
        level += 1
    return node, is_equal


@kernel
def find_ranks(runs, keys, ranks, arity, rows):
    """Find for each prefix the row at a rank: the weight up to this row first exceeds the rank.

    Args:
        runs: Addresses of runs of one column order, shape ``(runs,)``.
        keys: Prefixes, shape ``(depth, n)``, ``depth < arity``.
        ranks: The rank of each row, shape ``(n,)``: at least 0, below the weight of the prefix.
        arity: Columns of the runs.
        rows: Result, shape ``(arity - depth, n)``: the columns of the rows after the prefix.

    Returns:
        The number of searches in a run.
    """
    depth, n = keys.shape
    count = runs.shape[0]
    first_child = np.empty(count, np.int64)
    last_child = np.empty(count, np.int64)
    # The leaves of a run that may have the result.
    low = np.empty(count, np.int64)
    high = np.empty(count, np.int64)
    # The positions before and after the candidate.
    before = np.empty(count, np.int64)
    after = np.empty(count, np.int64)
    candidate = np.empty(arity - depth, np.int64)
    searches = 0
    for i in range(n):
        weight_of_earlier_prefixes = np.int64(0)
        for r in range(count):
            run = runs[r]
            first, last = find_children(run, keys, i)
            first_child[r] = first
            last_child[r] = last
            for level in range(depth, arity - 1):
                offsets = load(run, LEVEL_HEADERS + LEVEL_HEADER_WORDS * level + LEVEL_OFFSETS)
                first = load(run, offsets + first)
                last = load(run, offsets + last)
            low[r] = first
            high[r] = last
            weight_of_earlier_prefixes += weight_before(run, first)
            searches += 1
        while True:
            # The run with the most leaves that may have the result; the middle one is a candidate.
            longest = 0
            for r in range(1, count):
                if high[r] - low[r] > high[longest] - low[longest]:
                    longest = r
            if count == 0 or low[longest] >= high[longest]:
                break
            middle = (low[longest] + high[longest]) >> 1
            read_suffix(runs[longest], middle, depth, arity, candidate)
            # The weight of the rows of the prefix up to the candidate.
            weight = -weight_of_earlier_prefixes
            for r in range(count):
                run = runs[r]
                before[r] = low[r]
                after[r] = low[r]
                if low[r] < high[r]:
                    leaf, is_equal = find_suffix(
                        run, first_child[r], last_child[r], depth, arity, candidate
                    )
                    before[r] = leaf
                    after[r] = leaf + 1 if is_equal else leaf
                    searches += 1
                weight += weight_before(run, after[r])
            if weight > ranks[i]:
                high[:] = before
                rows[:, i] = candidate
            else:
                low[:] = after
    return searches
