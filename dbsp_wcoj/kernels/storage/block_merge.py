"""Merge blocks of rows of two runs, without branches that depend on the values.

Where the next rows are now of one run and now of the other, a processor mispredicts a branch at
each change: up to 20 ns, more than it takes to copy a row. Here, each step of a loop takes the
smaller of two values by arithmetic. `merge_leaves` does so for the last column. `merge_block`
merges the next siblings of a level with all of their descendants, some hundred rows, level by
level::

    rows of a     (1, 5) (1, 9) (4, 5)        level 0    1 of both    3 of b    4 of a
    rows of b     (1, 7) (3, 2)               level 1    5 a, 7 b, 9 a    2 b    5 a

A block is a list of merged nodes for each run: the position in the run before each merged node, and
after the last one. So merged node t consists of the nodes ``[A[t], A[t + 1])`` of a, none or one,
and ``[B[t], B[t + 1])`` of b. The children of a level are merged in one loop, ordered by the merged
parent and then by value. If rows cancel, they and the nodes that lose all children are removed
from the block at the end.

Long ranges of one run are copied faster as ranges, so `dbsp_wcoj.kernels.storage.merge` calls
`merge_block` after short ranges and small common nodes only.

Cost: O(columns) per row, without a mispredicted branch for most rows.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.memory import (
    load,
    load_narrow,
    load_value,
    store,
    store_narrow,
    store_value,
)
from dbsp_wcoj.kernels.storage.level_values import TAG, array_values, copy_values, value_address
from dbsp_wcoj.kernels.storage.merge_output import (
    BLOCK_NODES,
    CURSOR_WORDS,
    CURSORS,
    END_OF_PIECES,
    NODES_WRITTEN,
    UNIQUE_LEVEL,
    has_one_weight,
    level_header,
    lower_unique_level,
    start_weights,
    write_pieces,
)
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    MAX_ABS_WEIGHT,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.values.arithmetic import wrapping_add, wrapping_subtract

# At most so many rows are merged in a block; fewer siblings than the minimum are not worth it.
MAX_BLOCK_ROWS = 512
MIN_NODES = 4
# The scratch space after the noted ranges of rows has eight lists. Three have the merged nodes of
# the current level: A, B, and a list of one node of each merged node, node i of a as 2 i, node j of
# b as 2 j + 1. Three have those of the next level. Two are used for several things. The positions
# are no literals, because numba compiles a function again for each literal argument.
LIST_WORDS = MAX_BLOCK_ROWS + 8
NODES = np.int64(END_OF_PIECES)
CHILDREN = NODES + 3 * LIST_WORDS
SPARE_A = CHILDREN + 3 * LIST_WORDS
SPARE_B = SPARE_A + LIST_WORDS
SCRATCH_WORDS = SPARE_B + LIST_WORDS


def _make_leaf_merge(read: Any, write: Any) -> Any:
    """Return the loop of `merge_leaves` for lists that ``read`` and ``write`` access."""

    @subroutine
    def merge_lists(a, i, end_a, b, j, end_b, out, target, stop):
        while target < stop and i < end_a and j < end_b:
            left = read(a, i)
            right = read(b, j)
            if left == right:
                break
            write(out, target, min(left, right))
            i += left < right
            j += right < left
            target += 1
        return i, j, target

    return merge_lists


_merge_words = _make_leaf_merge(load, store)
_merge_narrow = _make_leaf_merge(load_narrow, store_narrow)
_merge_mixed = _make_leaf_merge(load_value, store_value)


@subroutine
def merge_leaves(a, b, out, state, fuel):
    """Merge leaves for about ``fuel`` rows, up to a common one; return the number of rows written.

    The level of the leaves is the unique level, and all rows have one weight.
    """
    level = a[ARITY] - 1
    cursor = CURSORS + CURSOR_WORDS * level
    entry = level_header(level)
    i, end_a, j, end_b = state[cursor], state[cursor + 1], state[cursor + 2], state[cursor + 3]
    values_a, values_b = array_values(a, entry), array_values(b, entry)
    values = array_values(out, entry)
    start = state[cursor + NODES_WRITTEN]
    stop = start + fuel
    if (values_a | values_b) & TAG == 0:
        i, j, target = _merge_words(values_a, i, end_a, values_b, j, end_b, values, start, stop)
    elif values & TAG != 0:  # all three lists are narrow
        left, right, merged = values_a - TAG, values_b - TAG, values - TAG
        i, j, target = _merge_narrow(left, i, end_a, right, j, end_b, merged, start, stop)
    else:
        i, j, target = _merge_mixed(values_a, i, end_a, values_b, j, end_b, values, start, stop)
    if i == end_a:
        count = min(end_b - j, stop - target)
        copy_values(values, target, values_b, j, j + count)
        j += count
        target += count
    elif j == end_b:
        count = min(end_a - i, stop - target)
        copy_values(values, target, values_a, i, i + count)
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
    """List up to ``limit`` of the next siblings of a level by value; return their number."""
    cursor = CURSORS + CURSOR_WORDS * level
    i, end_a, j, end_b = state[cursor], state[cursor + 1], state[cursor + 2], state[cursor + 3]
    entry = level_header(level)
    values_a, values_b = array_values(a, entry), array_values(b, entry)
    nodes_b = NODES + LIST_WORDS
    one_node = nodes_b + LIST_WORDS
    count = np.int64(0)
    while count < limit and i < end_a and j < end_b:
        left = load_value(values_a, i)
        right = load_value(values_b, j)
        is_right = np.int64(right < left)
        scratch[NODES + count] = i
        scratch[nodes_b + count] = j
        scratch[one_node + count] = 2 * (i + (j - i) * is_right) + is_right
        i += left <= right
        j += right <= left
        count += 1
    scratch[NODES + count] = i
    scratch[nodes_b + count] = j
    return count


@subroutine
def first_leaf(run, level, unique_level, node):
    """Return the position of the first row under a node, in order of the rows."""
    for depth in range(level, unique_level):
        node = run[run[level_header(depth) + LEVEL_OFFSETS] + node]
    return node


@subroutine
def limit_to_leaves(a, b, level, unique_level, scratch, count, limit):
    """Return how many of the first ``count`` listed nodes have at most ``limit`` rows in all."""
    nodes_b = NODES + LIST_WORDS
    before = first_leaf(a, level, unique_level, scratch[NODES])
    before += first_leaf(b, level, unique_level, scratch[nodes_b])
    low = np.int64(0)
    high = count
    middle = count  # most often, all nodes fit
    while low < high:
        rows = first_leaf(a, level, unique_level, scratch[NODES + middle]) - before
        rows += first_leaf(b, level, unique_level, scratch[nodes_b + middle])
        if rows <= limit:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) >> 1
    return low


@subroutine
def write_siblings(a, b, out, level, state, scratch, count):
    """Write the values of the listed siblings, which are the first level of the block."""
    entry = level_header(level)
    cursor = CURSORS + CURSOR_WORDS * level
    written = state[cursor + NODES_WRITTEN]
    values_a, values_b = array_values(a, entry), array_values(b, entry)
    target = array_values(out, entry)
    one_node = NODES + 2 * LIST_WORDS
    for t in range(count):
        node = scratch[one_node + t]
        store_value(target, written + t, load_value(values_b if node & 1 else values_a, node >> 1))
    state[cursor + BLOCK_NODES] = count


@subroutine
def list_parents(run, offsets, scratch, nodes, parents, count):
    """List the merged parent of each child of one run; return the first child and their number.

    The list ends with a parent after all others.
    """
    first = run[offsets + scratch[nodes]]
    children = run[offsets + scratch[nodes + count]] - first
    for child in range(children + 1):
        scratch[parents + child] = 0
    for t in range(count):
        scratch[parents + run[offsets + scratch[nodes + t]] - first] += 1
    parent = np.int64(-1)
    for child in range(children):
        parent += scratch[parents + child]
        scratch[parents + child] = parent
    scratch[parents + children] = count
    return first, children


@subroutine
def merge_children(a, b, out, level, state, scratch, nodes, children, count):
    """Merge and list the children of the listed nodes of a level; return their number.

    This writes the offsets of the level, and the values of the children. ``nodes`` and ``children``
    are where the lists begin in the scratch space.
    """
    header = level_header(level)
    cursor = CURSORS + CURSOR_WORDS * level
    child_cursor = cursor + CURSOR_WORDS
    first_a, count_a = list_parents(a, a[header + LEVEL_OFFSETS], scratch, nodes, SPARE_A, count)
    first_b, count_b = list_parents(
        b, b[header + LEVEL_OFFSETS], scratch, nodes + LIST_WORDS, SPARE_B, count
    )
    written = state[child_cursor + NODES_WRITTEN]
    child_entry = level_header(level + 1)
    values_a = value_address(array_values(a, child_entry), first_a)
    values_b = value_address(array_values(b, child_entry), first_b)
    target = value_address(array_values(out, child_entry), written)
    offsets = out[header + LEVEL_OFFSETS] + state[cursor + NODES_WRITTEN]
    out[offsets] = written
    children_b = children + LIST_WORDS
    one_child = children_b + LIST_WORDS
    i = np.int64(0)
    j = np.int64(0)
    t = np.int64(0)
    while i < count_a and j < count_b:
        parent_a = scratch[SPARE_A + i]
        parent_b = scratch[SPARE_B + j]
        left = load_value(values_a, i)
        right = load_value(values_b, j)
        is_same = parent_a == parent_b
        is_left = np.int64((parent_a < parent_b) | (is_same & (left < right)))
        is_right = np.int64((parent_b < parent_a) | (is_same & (right < left)))
        node_a = first_a + i
        node_b = first_b + j
        scratch[children + t] = node_a
        scratch[children_b + t] = node_b
        scratch[one_child + t] = 2 * (node_a + (node_b - node_a) * is_right) + is_right
        store_value(target, t, right if is_right else left)
        i += 1 - is_right
        j += 1 - is_left
        t += 1
        # The last child of a parent sets where the children of the next parent begin.
        out[offsets + min(parent_a, parent_b) + 1] = written + t
    for child in range(i, count_a):
        scratch[children + t] = first_a + child
        scratch[children_b + t] = first_b + j
        scratch[one_child + t] = 2 * (first_a + child)
        store_value(target, t, load_value(values_a, child))
        t += 1
        out[offsets + scratch[SPARE_A + child] + 1] = written + t
    for child in range(j, count_b):
        scratch[children + t] = first_a + count_a
        scratch[children_b + t] = first_b + child
        scratch[one_child + t] = 2 * (first_b + child) + 1
        store_value(target, t, load_value(values_b, child))
        t += 1
        out[offsets + scratch[SPARE_B + child] + 1] = written + t
    scratch[children + t] = first_a + count_a
    scratch[children_b + t] = first_b + count_b
    state[child_cursor + BLOCK_NODES] = t
    return t


@subroutine
def have_common_values(a, b, level, scratch, nodes, count):
    """Return whether the listed common nodes of a level, of one row each, are common rows."""
    nodes_b = nodes + LIST_WORDS
    rows = scratch[nodes + count] - scratch[nodes] + scratch[nodes_b + count] - scratch[nodes_b]
    if rows == count:
        return True  # there are no common nodes
    for t in range(count):
        i = scratch[nodes + t]
        j = scratch[nodes_b + t]
        if scratch[nodes + t + 1] > i and scratch[nodes_b + t + 1] > j:
            for depth in range(level + 1, a[ARITY]):
                entry = level_header(depth)
                left = load_value(array_values(a, entry), i)
                if left != load_value(array_values(b, entry), j):
                    return False
    return True


@inline_subroutine
def weight_of(run, first, last):
    """Return the weight of the rows from ``first`` to before ``last``, none or one."""
    sums = run[WEIGHT_SUMS]
    if sums > 0:
        return wrapping_subtract(run[sums + last], run[sums + first])
    return (last - first) * run[UNIFORM_WEIGHT]


@subroutine
def list_weights(a, b, scratch, nodes, weights, count):
    """List the weights of the merged nodes, which are rows."""
    nodes_b = nodes + LIST_WORDS
    for t in range(count):
        weight_a = weight_of(a, scratch[nodes + t], scratch[nodes + t + 1])
        weight_b = weight_of(b, scratch[nodes_b + t], scratch[nodes_b + t + 1])
        scratch[weights + t] = wrapping_add(weight_a, weight_b)


@subroutine
def remove_cancelled_rows(out, level, state, scratch, rows, weights, positions):
    """Remove the rows of weight 0 from the block, and the nodes that lose all of their children.

    ``rows`` lists a node of each row, and ``positions`` is a list for the new positions.
    """
    unique_level = state[UNIQUE_LEVEL]
    cursor = CURSORS + CURSOR_WORDS * unique_level
    values = array_values(out, level_header(unique_level))
    target = value_address(values, state[cursor + NODES_WRITTEN])
    count = state[cursor + BLOCK_NODES]
    kept = np.int64(0)
    for t in range(count):
        weight = scratch[weights + t]
        scratch[positions + t] = kept
        scratch[weights + kept] = weight
        scratch[rows + kept] = scratch[rows + t]
        store_value(target, kept, load_value(target, t))
        kept += weight != 0
    scratch[positions + count] = kept
    state[cursor + BLOCK_NODES] = kept
    for depth in range(unique_level - 1, level - 1, -1):
        children_written = state[cursor + NODES_WRITTEN]
        cursor -= CURSOR_WORDS
        written = state[cursor + NODES_WRITTEN]
        header = level_header(depth)
        nodes = out[header + LEVEL_VALUES] + written
        offsets = out[header + LEVEL_OFFSETS] + written
        count = state[cursor + BLOCK_NODES]
        kept = np.int64(0)
        # The new positions of the children are replaced by those of their parents: a parent is
        # never after its first child.
        begin = scratch[positions + out[offsets] - children_written]
        for t in range(count):
            end = scratch[positions + out[offsets + t + 1] - children_written]
            scratch[positions + t] = kept
            out[offsets + kept] = children_written + begin
            out[nodes + kept] = out[nodes + t]
            kept += end > begin
            begin = end
        scratch[positions + count] = kept
        state[cursor + BLOCK_NODES] = kept


@subroutine
def copy_columns(a, b, out, state, scratch, rows):
    """Write the columns after the unique level of the rows of a list of nodes."""
    arity = a[ARITY]
    unique_level = state[UNIQUE_LEVEL]
    cursor = CURSORS + CURSOR_WORDS * unique_level
    count = state[cursor + BLOCK_NODES]
    start = state[cursor + NODES_WRITTEN]
    for level in range(unique_level + 1, arity):
        entry = level_header(level)
        values_a, values_b = array_values(a, entry), array_values(b, entry)
        target = array_values(out, entry)
        for t in range(count):
            row = scratch[rows + t]
            store_value(target, start + t, load_value(values_b if row & 1 else values_a, row >> 1))
    if unique_level <= arity - 2:
        target = out[level_header(arity - 2) + LEVEL_OFFSETS]
        for row in range(start, start + count):
            out[target + row] = row


@subroutine
def write_weights(out, state, scratch, weights):
    """Write the weights of the rows of the block."""
    cursor = CURSORS + CURSOR_WORDS * state[UNIQUE_LEVEL]
    count = state[cursor + BLOCK_NODES]
    start = state[cursor + NODES_WRITTEN]
    largest = np.int64(0)
    is_uniform = True
    for t in range(count):
        weight = scratch[weights + t]
        largest = max(largest, abs(weight))
        is_uniform &= weight == out[UNIFORM_WEIGHT]
    out[MAX_ABS_WEIGHT] = max(out[MAX_ABS_WEIGHT], largest)
    if not is_uniform and out[WEIGHT_SUMS] == 0:
        start_weights(out, state, start)
    if out[WEIGHT_SUMS] > 0:
        target = out[WEIGHT_SUMS] + start
        total = out[target]
        for t in range(count):
            total = wrapping_add(total, scratch[weights + t])
            out[target + t + 1] = total


@subroutine
def merge_block(a, b, out, level, state, scratch, fuel):
    """Merge the next siblings of a level with their descendants; return the number of rows read.

    ``fuel`` is the greatest number of rows. Where it is not faster than to copy ranges, nothing is
    done, and the number is 0.
    """
    unique_level = state[UNIQUE_LEVEL]
    cursor = CURSORS + CURSOR_WORDS * level
    siblings = state[cursor + 1] - state[cursor] + state[cursor + 3] - state[cursor + 2]
    if siblings < 4 * MIN_NODES:
        return np.int64(0)
    limit = min(MAX_BLOCK_ROWS, fuel)
    count = list_siblings(a, b, level, state, scratch, limit)
    count = limit_to_leaves(a, b, level, unique_level, scratch, count, limit)
    if count < MIN_NODES:
        return np.int64(0)
    write_pieces(a, b, out, state, scratch)
    write_siblings(a, b, out, level, state, scratch, count)
    state[cursor] = scratch[NODES + count]
    state[cursor + 2] = scratch[NODES + LIST_WORDS + count]
    nodes = NODES
    children = CHILDREN
    depth = level
    while True:
        if depth == state[UNIQUE_LEVEL]:
            if have_common_values(a, b, depth, scratch, nodes, count):
                break
            lower_unique_level(out, state, depth + 1)
        count = merge_children(a, b, out, depth, state, scratch, nodes, children, count)
        nodes, children = children, nodes
        depth += 1
    nodes_b = nodes + LIST_WORDS
    one_node = nodes_b + LIST_WORDS
    rows = scratch[nodes + count] - scratch[nodes] + scratch[nodes_b + count] - scratch[nodes_b]
    if rows == count and has_one_weight(a, b, out):
        out[MAX_ABS_WEIGHT] = max(out[MAX_ABS_WEIGHT], abs(out[UNIFORM_WEIGHT]))
    else:
        list_weights(a, b, scratch, nodes, SPARE_A, count)
        if rows > count:
            remove_cancelled_rows(out, level, state, scratch, one_node, SPARE_A, SPARE_B)
        write_weights(out, state, scratch, SPARE_A)
    copy_columns(a, b, out, state, scratch, one_node)
    for depth in range(level, state[UNIQUE_LEVEL] + 1):
        cursor = CURSORS + CURSOR_WORDS * depth
        state[cursor + NODES_WRITTEN] += state[cursor + BLOCK_NODES]
    return rows
