"""Merge two runs into one, in pieces of bounded work.

    out[row] = a[row] + b[row], without rows of weight zero

A run is a trie (`dbsp_wcoj.kernels.storage.run_layout`), and an int64 array here. The two tries are
traversed together, depth first. Where they have no common node, ranges of siblings are copied with
all of their descendants: siblings are contiguous at every level, so a range takes one copy per
level. The traversal descends only into common nodes and adds the weights of a common leaf. If the
sum is zero, the row is dropped, and its parent if this has no other child.

The position is kept in ``state``, so the caller chooses how much ``fuel`` (rows copied) to spend
per call, and no step has to merge a large run as a whole (McSherry, Lattuada, Schwarzkopf, Roscoe,
"Shared Arrangements", PVLDB 13(10), 2020, section 4.2, which calls this proportional merging).

Cost: O(rows) words copied for disjoint ranges; O(log) per switch between the two runs.
"""

import numpy as np
from numba import carray

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import pointer_to_words
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    DIRECTORY_SIZE,
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
from dbsp_wcoj.kernels.storage.trie import describe_run, fill_directory, open_directory
from dbsp_wcoj.kernels.values.arithmetic import wrapping_add, wrapping_subtract

# state[PHASE] is WALK (the tries), FILL (the directory) or DONE.
PHASE = 0
DEPTH = 1
NEXT_ENTRY = 2
WEIGHTS_START = 3
CURSORS = 4  # then per level: cursor and end in a, cursor and end in b, nodes written
CURSOR_WORDS = 5
# Words of the cursor in a and of the cursor in b. They are not literals, because numba compiles a
# function again for each literal argument.
LEFT = np.int64(0)
RIGHT = np.int64(2)

WALK = 0
FILL = 1
DONE = 2

# Enough fuel for any merge.
UNLIMITED_FUEL = np.int64(1 << 62)


@subroutine
def level_header(level):
    """Return the header word at which the entry of ``level`` starts."""
    return LEVEL_HEADERS + LEVEL_HEADER_WORDS * level


@subroutine
def start_weights(out, start, rows):
    """Start to store weights: the ``rows`` leaves written so far have the uniform weight."""
    total = np.int64(0)
    for i in range(rows + 1):
        out[start + i] = total
        total = wrapping_add(total, out[UNIFORM_WEIGHT])
    out[WEIGHT_SUMS] = start


@subroutine
def copy_siblings(run, out, level, first, last, state):
    """Append the nodes ``[first, last)`` of ``level`` and their descendants to ``out``."""
    arity = run[ARITY]
    for depth in range(level, arity):
        entry = level_header(depth)
        written = state[CURSORS + CURSOR_WORDS * depth + 4]
        source = run[entry + LEVEL_VALUES] + first
        target = out[entry + LEVEL_VALUES] + written
        count = last - first
        for i in range(count):
            out[target + i] = run[source + i]
        state[CURSORS + CURSOR_WORDS * depth + 4] = written + count
        if depth < arity - 1:
            source = run[entry + LEVEL_OFFSETS]
            target = out[entry + LEVEL_OFFSETS] + written
            first_child = run[source + first]
            last_child = run[source + last]
            children_written = state[CURSORS + CURSOR_WORDS * (depth + 1) + 4]
            for i in range(count):
                out[target + i] = run[source + first + i] - first_child + children_written
            first = first_child
            last = last_child
        else:
            copy_weights(run, out, first, last, written, state)


@subroutine
def copy_weights(run, out, first, last, written, state):
    """Append the weights of the leaves ``[first, last)`` of ``run`` after ``written`` leaves."""
    source = run[WEIGHT_SUMS]
    largest = abs(run[UNIFORM_WEIGHT])
    is_uniform = run[UNIFORM_WEIGHT] == out[UNIFORM_WEIGHT]
    if source > 0:
        largest = np.int64(0)
        is_uniform = True
        for i in range(first, last):
            weight = wrapping_subtract(run[source + i + 1], run[source + i])
            is_uniform &= weight == out[UNIFORM_WEIGHT]
            largest = max(largest, abs(weight))
    if not is_uniform and out[WEIGHT_SUMS] == 0 and first < last:
        start_weights(out, state[WEIGHTS_START], written)
    out[MAX_ABS_WEIGHT] = max(out[MAX_ABS_WEIGHT], largest)
    target = out[WEIGHT_SUMS]
    if target > 0:
        total = out[target + written]
        if source > 0:
            shift = wrapping_subtract(total, run[source + first])
            for i in range(first + 1, last + 1):
                out[target + written + i - first] = wrapping_add(run[source + i], shift)
        else:
            for i in range(1, last - first + 1):
                total = wrapping_add(total, run[UNIFORM_WEIGHT])
                out[target + written + i] = total


@subroutine
def gallop(run, position, end, value):
    """Return the first word in ``[position, end)`` of ``run`` that is at least ``value``."""
    if position >= end or run[position] >= value:
        return position
    step = 1
    below = position
    while below + step < end and run[below + step] < value:
        below += step
        step += step
    low = below + 1
    high = min(below + step, end)
    while low < high:
        middle = (low + high) >> 1
        if run[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@subroutine
def count_leaves(run, level, first, last):
    """Return how many rows lie under the nodes ``[first, last)`` of ``level``."""
    for depth in range(level, run[ARITY] - 1):
        offsets = run[level_header(depth) + LEVEL_OFFSETS]
        first = run[offsets + first]
        last = run[offsets + last]
    return last - first


@subroutine
def init_merge(a, b, out):
    """Lay out the merge of runs ``a`` and ``b`` in ``out`` and return its state."""
    arity = a[ARITY]
    state = np.zeros(CURSORS + CURSOR_WORDS * arity, np.int64)
    out[ARITY] = arity
    out[WEIGHT_SUMS] = 0
    # Most rows come from the older run, so its uniform weight becomes that of the result.
    out[UNIFORM_WEIGHT] = a[UNIFORM_WEIGHT] if a[WEIGHT_SUMS] == 0 else 1
    out[MAX_ABS_WEIGHT] = 0
    end = level_header(arity)
    for level in range(arity):
        entry = level_header(level)
        nodes = a[entry + LEVEL_NODES] + b[entry + LEVEL_NODES]
        out[entry + LEVEL_VALUES] = end
        end += nodes
        out[entry + LEVEL_OFFSETS] = 0
        if level < arity - 1:
            out[entry + LEVEL_OFFSETS] = end
            end += nodes + 1
    # The size of the directory depends on level 0: weights start after its maximum size.
    state[WEIGHTS_START] = (
        end + 2 * (a[LEVEL_HEADERS + LEVEL_NODES] + b[LEVEL_HEADERS + LEVEL_NODES]) + 3
    )
    state[NEXT_ENTRY] = end
    state[CURSORS + 1] = a[LEVEL_HEADERS + LEVEL_NODES]
    state[CURSORS + 3] = b[LEVEL_HEADERS + LEVEL_NODES]
    return state


@subroutine
def copy_range(run, out, level, side, limit, state, fuel):
    """Copy siblings up to position ``limit`` from one run, about ``fuel`` rows; return the cost.

    A single subtree that exceeds the fuel is descended into, with no cursor in the other run.
    """
    cursor = CURSORS + CURSOR_WORDS * level
    first = state[cursor + side]
    last = limit
    rows = count_leaves(run, level, first, last)
    while rows > fuel and last - first > 1:
        last = first + (last - first + 1) // 2
        rows = count_leaves(run, level, first, last)
    if rows > fuel and rows > 1024 and level < run[ARITY] - 1:
        entry = level_header(level)
        written = state[cursor + 4]
        out[out[entry + LEVEL_VALUES] + written] = run[run[entry + LEVEL_VALUES] + first]
        out[out[entry + LEVEL_OFFSETS] + written] = state[cursor + CURSOR_WORDS + 4]
        offsets = run[entry + LEVEL_OFFSETS]
        for word in range(4):
            state[cursor + CURSOR_WORDS + word] = 0
        state[cursor + CURSOR_WORDS + side] = run[offsets + first]
        state[cursor + CURSOR_WORDS + side + 1] = run[offsets + first + 1]
        state[cursor + side] = first + 1
        state[DEPTH] = level + 1
        return 1
    copy_siblings(run, out, level, first, last, state)
    state[cursor + side] = last
    return rows + 1


@subroutine
def merge_tries(a, b, out, state, fuel):
    """Walk both tries for about ``fuel`` rows; return the fuel left, positive when finished."""
    arity = a[ARITY]
    while fuel > 0:
        level = state[DEPTH]
        cursor = CURSORS + CURSOR_WORDS * level
        entry = level_header(level)
        i, end_a, j, end_b = state[cursor], state[cursor + 1], state[cursor + 2], state[cursor + 3]
        if i == end_a and j == end_b:
            if level == 0:
                return fuel
            # Back to the parent, which is kept only if a child was written.
            parent_cursor = cursor - CURSOR_WORDS
            written = state[parent_cursor + 4]
            offsets = out[level_header(level - 1) + LEVEL_OFFSETS]
            if state[cursor + 4] > out[offsets + written]:
                state[parent_cursor + 4] = written + 1
            state[DEPTH] = level - 1
            continue
        values_a = a[entry + LEVEL_VALUES]
        values_b = b[entry + LEVEL_VALUES]
        if j == end_b:
            fuel -= copy_range(a, out, level, LEFT, end_a, state, fuel)
        elif i == end_a:
            fuel -= copy_range(b, out, level, RIGHT, end_b, state, fuel)
        elif a[values_a + i] < b[values_b + j]:
            limit = gallop(a, values_a + i, values_a + end_a, b[values_b + j]) - values_a
            fuel -= copy_range(a, out, level, LEFT, limit, state, fuel)
        elif b[values_b + j] < a[values_a + i]:
            limit = gallop(b, values_b + j, values_b + end_b, a[values_a + i]) - values_b
            fuel -= copy_range(b, out, level, RIGHT, limit, state, fuel)
        else:
            written = state[cursor + 4]
            out[out[entry + LEVEL_VALUES] + written] = a[values_a + i]
            state[cursor] = i + 1
            state[cursor + 2] = j + 1
            fuel -= 1
            if level < arity - 1:
                out[out[entry + LEVEL_OFFSETS] + written] = state[cursor + CURSOR_WORDS + 4]
                offsets_a = a[entry + LEVEL_OFFSETS]
                offsets_b = b[entry + LEVEL_OFFSETS]
                state[cursor + CURSOR_WORDS] = a[offsets_a + i]
                state[cursor + CURSOR_WORDS + 1] = a[offsets_a + i + 1]
                state[cursor + CURSOR_WORDS + 2] = b[offsets_b + j]
                state[cursor + CURSOR_WORDS + 3] = b[offsets_b + j + 1]
                state[DEPTH] = level + 1
            else:
                add_leaves(a, b, out, i, j, written, state)
    return fuel


@subroutine
def add_leaves(a, b, out, i, j, written, state):
    """Write the sum of leaf ``i`` of ``a`` and leaf ``j`` of ``b``, unless it is zero."""
    weight = np.int64(0)
    for run, leaf in ((a, i), (b, j)):
        start = run[WEIGHT_SUMS]
        part = run[UNIFORM_WEIGHT]
        if start > 0:
            part = wrapping_subtract(run[start + leaf + 1], run[start + leaf])
        weight = wrapping_add(weight, part)
    if weight == 0:
        return
    if weight != out[UNIFORM_WEIGHT] and out[WEIGHT_SUMS] == 0:
        start_weights(out, state[WEIGHTS_START], written)
    out[MAX_ABS_WEIGHT] = max(out[MAX_ABS_WEIGHT], abs(weight))
    if out[WEIGHT_SUMS] > 0:
        out[out[WEIGHT_SUMS] + written + 1] = wrapping_add(out[out[WEIGHT_SUMS] + written], weight)
    state[CURSORS + CURSOR_WORDS * (a[ARITY] - 1) + 4] = written + 1


@subroutine
def advance_merge(a, b, out, state, fuel):
    """Merge about ``fuel`` more rows into ``out``; return whether the merge is done."""
    arity = a[ARITY]
    if state[PHASE] == WALK:
        fuel = merge_tries(a, b, out, state, fuel)
        if fuel <= 0:
            return False
        for level in range(arity):
            entry = level_header(level)
            written = state[CURSORS + CURSOR_WORDS * level + 4]
            out[entry + LEVEL_NODES] = written
            if level < arity - 1:
                children_written = state[CURSORS + CURSOR_WORDS * (level + 1) + 4]
                out[out[entry + LEVEL_OFFSETS] + written] = children_written
        out[ROWS] = out[level_header(arity - 1) + LEVEL_NODES]
        open_directory(out, state[NEXT_ENTRY])
        state[NEXT_ENTRY] = 0
        state[PHASE] = FILL
    if state[PHASE] == FILL:
        state[NEXT_ENTRY] = fill_directory(out, state[NEXT_ENTRY], fuel)
        if state[NEXT_ENTRY] < out[DIRECTORY_SIZE]:
            return False
        state[PHASE] = DONE
    return True


@kernel
def begin_merge(a, b, out):
    """Return the initial state of a merge of runs ``a`` and ``b`` into ``out``.

    ``out`` has at least `dbsp_wcoj.kernels.storage.trie.run_words` words for the rows of both.
    """
    return init_merge(a, b, out)


@kernel
def continue_merge(a, b, out, state, fuel):
    """Merge about ``fuel`` more rows; return whether the merge is done."""
    return advance_merge(a, b, out, state, fuel)


@kernel
def merge_runs(a, b, out):
    """Merge ``a`` and ``b`` into ``out`` and describe the result."""
    state = init_merge(a, b, out)
    advance_merge(a, b, out, state, UNLIMITED_FUEL)
    return describe_run(out)


@kernel
def merge_tail(table, first, longest, out):
    """Merge all runs from ``first`` on into ``out``, one after another; describe the result.

    Args:
        table: Number of runs, then their addresses.
        first: Position of the first run to merge; at least one more follows.
        longest: `dbsp_wcoj.kernels.storage.trie.run_words` of the sum of all these runs.
        out: int64, of length ``longest``.
    """
    merged = carray(pointer_to_words(table[1 + first]), (longest,))
    for position in range(first + 1, table[0]):
        run = carray(pointer_to_words(table[1 + position]), (longest,))
        target = np.empty(longest, np.int64) if position < table[0] - 1 else out
        state = init_merge(merged, run, target)
        advance_merge(merged, run, target, state, UNLIMITED_FUEL)
        merged = target
    return describe_run(out)
