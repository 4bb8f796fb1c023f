"""Merge runs whose rows alternate, without branches that depend on the values.

Where the next rows are now of one run and now of the other, a processor mispredicts a branch at
each change: up to 20 ns, more than it takes to copy a row. Here, each step of a loop takes the
smaller of two values by arithmetic. `merge_leaves` does so for the last column;
`merge_alternating` first lists the siblings of a level in order, then copies all of them level by
level.

Long ranges of one run are copied faster as ranges, so `dbsp_wcoj.kernels.storage.merge` calls
`merge_alternating` after short ranges only.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.memory import load
from dbsp_wcoj.kernels.storage.merge_output import (
    CURSOR_WORDS,
    CURSORS,
    END_OF_PIECES,
    NODES_WRITTEN,
    UNIQUE_LEVEL,
    copy_values,
    copy_weights,
    has_one_weight,
    level_header,
    write_pieces,
)
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    MAX_ABS_WEIGHT,
    UNIFORM_WEIGHT,
)

# At most so many nodes, with at most so many leaves, are listed at a time; fewer than the minimum
# are not worth it.
MAX_NODES = 256
MAX_LEAVES = 1024
MIN_NODES = 8
# The scratch space: the noted ranges of rows, a list of nodes, and a list of their children. Node n
# of a is listed as 2 n, and node n of b as 2 n + 1.
FIRST_LIST = END_OF_PIECES
SECOND_LIST = FIRST_LIST + MAX_LEAVES
SCRATCH_WORDS = SECOND_LIST + MAX_LEAVES


@subroutine
def merge_leaves(a, b, out, state, fuel):
    """Merge leaves for about ``fuel`` rows, up to a common one; return the number of rows written.

    The level of the leaves is the unique level, and all rows have one weight.
    """
    level = a[ARITY] - 1
    cursor = CURSORS + CURSOR_WORDS * level
    values = level_header(level) + LEVEL_VALUES
    i, end_a, j, end_b = state[cursor], state[cursor + 1], state[cursor + 2], state[cursor + 3]
    values_a, values_b = a[values], b[values]
    start = out[values] + state[cursor + NODES_WRITTEN]
    target = start
    stop = start + fuel
    while target < stop and i < end_a and j < end_b:
        left = a[values_a + i]
        right = b[values_b + j]
        if left == right:
            break
        out[target] = min(left, right)
        i += left < right
        j += right < left
        target += 1
    if i == end_a:
        count = min(end_b - j, stop - target)
        for position in range(count):
            out[target + position] = b[values_b + j + position]
        j += count
        target += count
    elif j == end_b:
        count = min(end_a - i, stop - target)
        for position in range(count):
            out[target + position] = a[values_a + i + position]
        i += count
        target += count
    if target > start:
        out[MAX_ABS_WEIGHT] = max(out[MAX_ABS_WEIGHT], abs(out[UNIFORM_WEIGHT]))
    state[cursor] = i
    state[cursor + 2] = j
    state[cursor + NODES_WRITTEN] += target - start
    return target - start


@subroutine
def list_siblings(a, b, level, state, scratch, limit):
    """List the next siblings of a level by value, up to a common one; return their number."""
    cursor = CURSORS + CURSOR_WORDS * level
    i, end_a, j, end_b = state[cursor], state[cursor + 1], state[cursor + 2], state[cursor + 3]
    values = level_header(level) + LEVEL_VALUES
    values_a, values_b = a[values], b[values]
    count = np.int64(0)
    while count < limit and i < end_a and j < end_b:
        left = a[values_a + i]
        right = b[values_b + j]
        if left == right:
            break
        is_right = np.int64(right < left)
        scratch[FIRST_LIST + count] = 2 * (i + (j - i) * is_right) + is_right
        i += 1 - is_right
        j += is_right
        count += 1
    return count


@subroutine
def limit_to_leaves(a, b, level, unique_level, scratch, count, limit):
    """Return how many of the first ``count`` listed nodes have at most ``limit`` leaves in all."""
    words_a = np.int64(a.ctypes.data)
    words_b = np.int64(b.ctypes.data)
    leaves = np.int64(0)
    for position in range(count):
        node = scratch[FIRST_LIST + position]
        first = node >> 1
        last = first + 1
        for depth in range(level, unique_level):
            offsets = level_header(depth) + LEVEL_OFFSETS
            address_a = words_a + 8 * a[offsets]
            address_b = words_b + 8 * b[offsets]
            address = address_b if node & 1 else address_a
            first = load(address, first)
            last = load(address, last)
        leaves += last - first
        if leaves > limit:
            return position
    return count


@subroutine
def copy_nodes(a, b, out, level, state, scratch, nodes, children, count):
    """Append listed nodes of a level before the unique one; return the number of their children.

    ``nodes`` and ``children`` are where the two lists begin in the scratch space; the children are
    listed, too.
    """
    header = level_header(level)
    cursor = CURSORS + CURSOR_WORDS * level
    written = state[cursor + NODES_WRITTEN]
    state[cursor + NODES_WRITTEN] = written + count
    copy_values(a, b, out, level, written, scratch, nodes, count)
    target = out[header + LEVEL_OFFSETS] + written
    address_a = np.int64(a.ctypes.data) + 8 * a[header + LEVEL_OFFSETS]
    address_b = np.int64(b.ctypes.data) + 8 * b[header + LEVEL_OFFSETS]
    children_written = state[cursor + CURSOR_WORDS + NODES_WRITTEN]
    child_count = np.int64(0)
    for position in range(count):
        node = scratch[nodes + position]
        side = node & 1
        address = address_b if side else address_a
        first = load(address, node >> 1)
        last = load(address, (node >> 1) + 1)
        out[target + position] = children_written + child_count
        scratch[children + child_count] = 2 * first + side  # most nodes have one child
        child_count += 1
        for child in range(first + 1, last):
            scratch[children + child_count] = 2 * child + side
            child_count += 1
    return child_count


@subroutine
def copy_rows(a, b, out, state, scratch, nodes, count):
    """Append listed rows: their values from the unique level on, and their weights."""
    arity = a[ARITY]
    unique_level = state[UNIQUE_LEVEL]
    cursor = CURSORS + CURSOR_WORDS * unique_level
    start = state[cursor + NODES_WRITTEN]
    state[cursor + NODES_WRITTEN] = start + count
    for level in range(unique_level, arity):
        copy_values(a, b, out, level, start, scratch, nodes, count)
    if unique_level <= arity - 2:
        target = out[level_header(arity - 2) + LEVEL_OFFSETS]
        for row in range(start, start + count):
            out[target + row] = row
    if has_one_weight(a, b, out):
        out[MAX_ABS_WEIGHT] = max(out[MAX_ABS_WEIGHT], abs(out[UNIFORM_WEIGHT]))
        return
    for position in range(count):
        row = scratch[nodes + position] >> 1
        if scratch[nodes + position] & 1:
            copy_weights(b, out, row, row + 1, start + position, state)
        else:
            copy_weights(a, out, row, row + 1, start + position, state)


@subroutine
def merge_alternating(a, b, out, level, state, scratch, fuel):
    """Merge siblings one by one, up to a common one; return the number of rows written.

    ``fuel`` is the greatest number of rows. Where it is not faster than to copy ranges, nothing is
    done, and the number is 0.
    """
    unique_level = state[UNIQUE_LEVEL]
    cursor = CURSORS + CURSOR_WORDS * level
    siblings = state[cursor + 1] - state[cursor] + state[cursor + 3] - state[cursor + 2]
    if siblings < 2 * MIN_NODES:
        return np.int64(0)
    count = list_siblings(a, b, level, state, scratch, min(MAX_NODES, fuel))
    if count >= MIN_NODES and level < unique_level:
        limit = min(MAX_LEAVES, fuel)
        count = limit_to_leaves(a, b, level, unique_level, scratch, count, limit)
    if count < MIN_NODES:
        return np.int64(0)
    write_pieces(a, b, out, state, scratch)
    taken_from_b = np.int64(0)
    for position in range(FIRST_LIST, FIRST_LIST + count):
        taken_from_b += scratch[position] & 1
    state[cursor] += count - taken_from_b
    state[cursor + 2] += taken_from_b
    nodes = FIRST_LIST
    children = SECOND_LIST
    for depth in range(level, unique_level):
        count = copy_nodes(a, b, out, depth, state, scratch, nodes, children, count)
        nodes, children = children, nodes
    copy_rows(a, b, out, state, scratch, nodes, count)
    return count
