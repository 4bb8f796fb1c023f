"""Row sums: for each row of a delta, a sum over the common values of two lists.

    sum over the rows (x, y) of  d(x, y) * ( sum over z of a(x, z) * b(y, z) )

Each letter is the weight of an atom. The delta formula of a triangle has three such terms: the
delta binds two variables, and the third one is summed. `dbsp_wcoj.kernels.join.join` computes the
same sum for any query, but it interprets the program for each row. This kernel reads the rows in
chunks of `CHUNK_ROWS`, and each chunk in two passes::

    for each run of a and b:    look up all x or y of the chunk: where do their lists begin and end?
    for each row of the chunk:  intersect each list of x with each list of y

A look-up of the first pass does not depend on the one before it, so the processor overlaps the
cache misses of several rows. Each look-up prefetches the list that it finds for the second pass.

Cost: O(1) for each row and run, if the values of the first column are evenly spread (else
O(log n)), and the intersections.

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, kernel, subroutine
from dbsp_wcoj.kernels.join.cursors import subtree_weight
from dbsp_wcoj.kernels.join.join_layout import (
    BITMAP_BITS,
    BLOCKS,
    COUNTER_BYTES,
    CURSOR_BYTES,
    DRIVER,
    END,
    FIRST_LIST,
    FIRST_SLOT,
    INTERSECTIONS,
    LIST_WORDS,
    MAX_ATOM_DEPTH,
    OFFSETS,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    VALUES,
    WEIGHT,
)
from dbsp_wcoj.kernels.join.long_lists import (
    count_miss,
    dot_long_lists,
    find_long_list,
    is_looked_up,
    look_up_list,
)
from dbsp_wcoj.kernels.join.sums import MIN_MARKED_USES, dot_lists, update_bitmap
from dbsp_wcoj.kernels.memory import (
    NARROW_LANES,
    count_words_below,
    increment,
    load,
    load_value,
    store,
)
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.level_values import prefetch_value
from dbsp_wcoj.kernels.storage.search import bisect
from dbsp_wcoj.kernels.values.arithmetic import add, multiply

# The lists of so many rows are looked up, and prefetched, before the first two are intersected.
CHUNK_ROWS = 128
# The nodes of a bucket of a directory are compared with a value, some at once, if they are at most
# this many.
MAX_COMPARED_NODES = 64
# A list is marked in the bitmap if it has at least so many values.
MIN_MARKED_VALUES = 64

# found[...]: the positions of the first value of a list and after its last one, by a look-up.
LIST_FIRST = 0
LIST_END = 1
FOUND_WORDS = 2
# left[...]: a list of x that is not empty, its cursor, and the slot of its bitmap or 0.
LEFT_FIRST = 0
LEFT_END = 1
LEFT_CURSOR = 2
LEFT_SLOT = 3
LEFT_WORDS = 4
# The words for the lists of x and for the found lists of a chunk.
SCRATCH_WORDS = 7 * LIST_WORDS

ZERO = np.int64(0)


@inline_subroutine
def store_list(found, offsets, leaves, node, is_found):
    """Write and prefetch the list of a node; an empty one if the node was not found."""
    first, end = load(offsets, node), load(offsets, node + 1)
    prefetch_value(leaves, first, 0)
    prefetch_value(leaves, first, 1)
    store(found, LIST_FIRST, first)
    store(found, LIST_END, end if is_found else first)


@inline_subroutine
def find_in_bucket(parents, node, end, value):
    """Return the first node in ``[node, end)`` whose value is at least ``value``, or ``end``."""
    if end - node > MAX_COMPARED_NODES:
        return bisect(parents, node, end, value)
    below = count_words_below(parents, node, end, value)
    while below == NARROW_LANES:
        node += below
        below = count_words_below(parents, node, end, value)
    return node + below


@subroutine
def find_lists(cursor, values, position, end, found):
    """Write where the list of each value of a chunk begins and ends in a run.

    Few branches depend on a value, so that the processor looks up several values at once.

    Args:
        cursor: The cursor of the run at its first column.
        values: The tagged address of the values.
        position: The position of the first value.
        end: The position after the last value.
        found: The result, `FOUND_WORDS` for each value.
    """
    run, parents, offsets = load(cursor, RUN), load(cursor, VALUES), load(cursor, OFFSETS)
    leaves = load(cursor + CURSOR_BYTES, VALUES)
    last_node = load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES) - 1
    if load(run, run_layout.DIRECTORY) == 0:  # a few nodes: compare with all of them
        for index in range(position, end):
            value = load_value(values, index)
            node = min(find_in_bucket(parents, ZERO, last_node + 1, value), last_node)
            store_list(found, offsets, leaves, node, load(parents, node) == value)
            found += 8 * FOUND_WORDS
        return
    directory = run + (load(run, run_layout.DIRECTORY) << 3)
    shift = np.uint64(load(run, run_layout.DIRECTORY_SHIFT))
    lowest = np.uint64(load(run, run_layout.LOWEST_VALUE))
    buckets = np.uint64(load(run, run_layout.DIRECTORY_SIZE) - 1)
    if shift == np.uint64(0):  # one entry for each value
        for index in range(position, end):
            # As an unsigned number, a value before the first node is beyond the last bucket.
            bucket = np.uint64(load_value(values, index)) - lowest
            is_inside = bucket < buckets
            entry = np.int64(bucket) if is_inside else ZERO
            node = load(directory, entry)
            is_found = is_inside & (node < load(directory, entry + 1))
            store_list(found, offsets, leaves, min(node, last_node), is_found)
            found += 8 * FOUND_WORDS
        return
    for index in range(position, end):
        value = load_value(values, index)
        bucket = (np.uint64(value) - lowest) >> shift
        is_inside = bucket < buckets
        entry = np.int64(bucket) if is_inside else ZERO
        bucket_end = load(directory, entry + 1)
        node = find_in_bucket(parents, load(directory, entry), bucket_end, value)
        is_inside &= node < bucket_end
        node = min(node, last_node)
        store_list(found, offsets, leaves, node, is_inside & (load(parents, node) == value))
        found += 8 * FOUND_WORDS


@subroutine
def dot_pair(a, i, end_a, slot_a, b, j, end_b, slot_b, bitmap, lowest, highest):
    """Return ``(sum, words)`` for two lists that are not empty, at the cursors ``a`` and ``b``.

    ``slot_a`` and ``slot_b`` are the slots of their bitmaps, or 0. ``bitmap`` contains the first
    list, from ``lowest`` to ``highest``, or is 0. ``words`` is the number of words that are
    compared in place of values, or -1.
    """
    if slot_a != 0 or slot_b != 0:
        if slot_a != 0 and slot_b != 0:
            return dot_long_lists(a, i, end_a, slot_a, b, j, end_b, slot_b)
        if slot_a != 0 and is_looked_up(load(a, RUN), end_a - i, load(b, RUN), end_b - j):
            return look_up_list(a, i, end_a, slot_a, b, j, end_b), np.int64(-1)
        if slot_b != 0 and is_looked_up(load(b, RUN), end_b - j, load(a, RUN), end_a - i):
            return look_up_list(b, j, end_b, slot_b, a, i, end_a), np.int64(-1)
    part = dot_lists(
        load(a, RUN),
        load(a, VALUES),
        i,
        end_a,
        load(b, RUN),
        load(b, VALUES),
        j,
        end_b,
        bitmap if end_b - j <= end_a - i else ZERO,
        lowest,
        highest,
    )
    return part, np.int64(-1)


@subroutine
def collect_left(state, cursors, max_depth, atom, found, chunk_bytes, lefts, bitmap_buffer):
    """Write the lists of one x that are not empty; return how many there are, and their length.

    Args:
        state: The stack of the join.
        cursors: The part of the stack that has the cursors.
        max_depth: Number of cursors of each run, one per depth.
        atom: The atom a.
        found: Where the list in the first run was found; those of the other runs follow.
        chunk_bytes: The distance from the list in one run to that in the next run.
        lefts: The result, `LEFT_WORDS` for each list.
        bitmap_buffer: Counts the long lists without a bitmap.
    """
    count, length = ZERO, ZERO
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        first, end = load(found, LIST_FIRST), load(found, LIST_END)
        found += chunk_bytes
        if first == end:
            continue
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + 1)
        count_miss(cursor, first, end, bitmap_buffer)
        left = lefts + 8 * LEFT_WORDS * count
        store(left, LEFT_FIRST, first)
        store(left, LEFT_END, end)
        store(left, LEFT_CURSOR, cursor)
        store(left, LEFT_SLOT, find_long_list(cursor, first, end))
        count += 1
        length += end - first
    return count, length


@subroutine
def choose_left(lefts, count):
    """Return the longest list to mark in the bitmap; 0 if none has to be marked or fits."""
    chosen = ZERO
    length = np.int64(MIN_MARKED_VALUES - 1)
    for index in range(count):
        left = lefts + 8 * LEFT_WORDS * index
        first, end, cursor = load(left, LEFT_FIRST), load(left, LEFT_END), load(left, LEFT_CURSOR)
        has_weights = load(load(cursor, RUN), run_layout.WEIGHT_SUMS) != 0
        if end - first <= length or load(left, LEFT_SLOT) != 0 or has_weights:
            continue
        values = load(cursor, VALUES)
        span = np.uint64(load_value(values, end - 1)) - np.uint64(load_value(values, first))
        if span < np.uint64(BITMAP_BITS - 1):
            chosen, length = left, end - first
    return chosen


@subroutine
def other_atom(program, level):
    """Return the atom of a level besides the driver; there is one."""
    participant = load(program, load(program, BLOCKS) + level) + PARTICIPANTS + 1
    if load(program, participant) == load(program, DRIVER):
        participant += PARTICIPANT_WORDS
    return load(program, participant)


@kernel
def sum_rows(program, state, cursors, level_states, bitmap_buffer, counters, max_work):
    """Return the sum over the rows of the driver, times the weight of the prefix, or `OVERFLOWED`.

    The driver is the atom whose rows bind the first two levels. Its cursors have the node of the
    first column (`POSITION`, up to `END`) and the row (`POSITION`) to continue with, and are moved.
    The kernel ends after a chunk if its rows and proposals together are ``max_work`` or more; it
    adds the proposals and intersections to ``counters``.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    left, right = other_atom(program, 0), other_atom(program, 1)
    left_first, left_end = load(state, FIRST_SLOT + left), load(state, FIRST_SLOT + left + 1)
    right_first, right_end = load(state, FIRST_SLOT + right), load(state, FIRST_SLOT + right + 1)
    slots = (left_end - left_first) + (right_end - right_first)
    driver = cursors + CURSOR_BYTES * load(state, FIRST_SLOT + load(program, DRIVER)) * max_depth
    run = load(driver, RUN)
    parents, offsets = load(driver, VALUES), load(driver, OFFSETS)
    values = load(driver + CURSOR_BYTES, VALUES)
    node, end_node = load(driver, POSITION), load(driver, END)
    row = load(driver + CURSOR_BYTES, POSITION)
    end_row = load(offsets, end_node)
    is_uniform = load(run, run_layout.WEIGHT_SUMS) == 0 and load(run, run_layout.ARITY) == 2
    row_weight = load(run, run_layout.UNIFORM_WEIGHT)
    prefix_weight = load(state, level_states + WEIGHT)
    lefts = bitmap_buffer + 8 * FIRST_LIST
    scratch = lefts + 8 * LEFT_WORDS * slots
    free_words = SCRATCH_WORDS - LEFT_WORDS * slots
    chunk_rows = min(np.int64(CHUNK_ROWS), free_words // (FOUND_WORDS * max(slots, 1)))
    chunk_bytes = 8 * FOUND_WORDS * chunk_rows
    right_found = scratch + chunk_bytes * (left_end - left_first)
    total = ZERO
    work = ZERO
    parent_count = ZERO
    row_count = ZERO
    proposals = ZERO
    intersections = ZERO
    lowest, highest = ZERO, ZERO
    while row < end_row and work < max_work:
        stop_row = min(row + chunk_rows, end_row)
        stop_node = node + 1
        while load(offsets, stop_node) < stop_row:
            stop_node += 1
        for slot in range(left_first, left_end):
            cursor = cursors + CURSOR_BYTES * slot * max_depth
            found = scratch + chunk_bytes * (slot - left_first)
            find_lists(cursor, parents, node, stop_node, found)
        for slot in range(right_first, right_end):
            cursor = cursors + CURSOR_BYTES * slot * max_depth
            found = right_found + chunk_bytes * (slot - right_first)
            find_lists(cursor, values, row, stop_row, found)
        first_node, first_row = node, row
        while row < stop_row:
            group_end = min(load(offsets, node + 1), stop_row)
            parent_count += np.int64(row == load(offsets, node))
            left_found = scratch + 8 * FOUND_WORDS * (node - first_node)
            left_count, left_length = collect_left(
                state, cursors, max_depth, left, left_found, chunk_bytes, lefts, bitmap_buffer
            )
            node += np.int64(group_end == load(offsets, node + 1))
            if left_count == 0:
                row = group_end
                continue
            row_count += group_end - row
            marked = ZERO
            if group_end - row >= MIN_MARKED_USES:
                marked = choose_left(lefts, left_count)
            if marked != 0:
                i, end_a = load(marked, LEFT_FIRST), load(marked, LEFT_END)
                marked_values = load(load(marked, LEFT_CURSOR), VALUES)
                lowest = load_value(marked_values, i)
                highest = load_value(marked_values, end_a - 1)
                update_bitmap(bitmap_buffer, marked_values, i, end_a, lowest, False)
            while row < group_end:
                right_length = ZERO
                words_read = ZERO
                values_left_out = ZERO
                part = ZERO
                for other in range(right_first, right_end):
                    found = right_found + chunk_bytes * (other - right_first)
                    found += 8 * FOUND_WORDS * (row - first_row)
                    j, end_b = load(found, LIST_FIRST), load(found, LIST_END)
                    if j == end_b:
                        continue
                    right_length += end_b - j
                    b = cursors + CURSOR_BYTES * (other * max_depth + 1)
                    count_miss(b, j, end_b, bitmap_buffer)
                    slot_b = find_long_list(b, j, end_b)
                    for index in range(left_count):
                        a = lefts + 8 * LEFT_WORDS * index
                        i, end_a = load(a, LEFT_FIRST), load(a, LEFT_END)
                        pair_sum, words = dot_pair(
                            load(a, LEFT_CURSOR),
                            i,
                            end_a,
                            load(a, LEFT_SLOT),
                            b,
                            j,
                            end_b,
                            slot_b,
                            bitmap_buffer if a == marked else ZERO,
                            lowest,
                            highest,
                        )
                        part = add(part, pair_sum)
                        if words >= 0:
                            words_read += words
                            values_left_out += min(end_a - i, end_b - j)
                count = min(left_length, right_length)
                proposals += count
                intersections += max(count - values_left_out, 0) + words_read
                if part != 0:
                    if not is_uniform:
                        row_weight = subtree_weight(run, np.int64(1), row, row + 1)
                    total = add(total, multiply(part, row_weight))
                row += 1
            if marked != 0:
                i, end_a = load(marked, LEFT_FIRST), load(marked, LEFT_END)
                marked_values = load(load(marked, LEFT_CURSOR), VALUES)
                update_bitmap(bitmap_buffer, marked_values, i, end_a, lowest, True)
        work = row_count + proposals
    store(driver, POSITION, node)
    store(driver + CURSOR_BYTES, POSITION, row)
    increment(counters, PROPOSALS, parent_count)
    increment(counters, INTERSECTIONS, parent_count)
    increment(counters + COUNTER_BYTES, PROPOSALS, row_count)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, row_count)
    increment(counters + 2 * COUNTER_BYTES, PROPOSALS, proposals)
    increment(counters + 2 * COUNTER_BYTES, INTERSECTIONS, intersections)
    return multiply(total, prefix_weight)
