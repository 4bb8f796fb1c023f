"""Merge two runs into one, in pieces of bounded work.

    out[row] = a[row] + b[row], without rows of weight zero

A run is a trie (`dbsp_wcoj.kernels.storage.run_layout`), and an int64 array here. The two tries are
traversed together, depth first. Where they have no common node, ranges of siblings are copied with
all of their descendants: siblings are contiguous at every level, so a range takes one copy per
level. The traversal descends only into common nodes and adds the weights of a common leaf. If the
sum is zero, the row is dropped, and its parent if this has no other child.

From the *unique level* on, each node has one leaf, so a range of nodes is a range of rows: the
offsets are 0, 1, 2, … and all these levels share one section. There the traversal only notes which
range of which run comes next, and the ranges are copied column by column, some hundreds at a time.
For wide rows this takes half the memory and a third of the time, because a column is read and
written in order. The unique level is the deeper one of both runs. If two different rows turn out to
have a common node at this level, the unique level moves below that node, and the levels above it
get offsets.

The walk writes no weights as long as all rows have the same one, and no offsets from the unique
level on. When a row with another weight comes, or the unique level moves, the weights or offsets of
the rows written so far are missing. They are written after the walk, in slices like everything
else.

Ranges are found by galloping search. Where they are short, or the common nodes are small, the walk
merges some hundred rows at once, level by level (`dbsp_wcoj.kernels.storage.block_merge`). A merge
that is done at once needs no walk if `dbsp_wcoj.kernels.storage.splice` can do it.

The position is kept in ``state``, so the caller chooses how much ``fuel`` (rows copied) to spend
per call, and no step has to merge a large run as a whole (McSherry, Lattuada, Schwarzkopf, Roscoe,
"Shared Arrangements", PVLDB 13(10), 2020, section 4.2, which calls this proportional merging).

Cost: O(rows) words copied for disjoint ranges; O(log) per switch between the two runs.
"""

import numpy as np
from numba import carray

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive, load_value, pointer_to_words
from dbsp_wcoj.kernels.storage.bitmap import fill_bitmap, open_bitmap
from dbsp_wcoj.kernels.storage.block_merge import (
    SCRATCH_WORDS,
    merge_block,
    merge_leaves,
)
from dbsp_wcoj.kernels.storage.level_values import (
    TAG,
    array_values,
    clear_last_half,
    words_of_values,
)
from dbsp_wcoj.kernels.storage.merge_output import (
    CURSOR_WORDS,
    CURSORS,
    DEPTH,
    DONE,
    FILL,
    FILL_BITMAP,
    FILL_SKIPPED,
    LEFT,
    NEXT_ENTRY,
    NODES_WRITTEN,
    PHASE,
    PIECES,
    RIGHT,
    SHORT_RANGES,
    SMALL_NODES,
    UNIQUE_LEVEL,
    WALK,
    WEIGHTS_START,
    add_leaves,
    add_piece,
    copy_siblings,
    count_leaves,
    fill_skipped,
    has_one_weight,
    level_header,
    lower_unique_level,
    write_pieces,
)
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    DIRECTORY_SIZE,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    MAX_ABS_WEIGHT,
    NARROW,
    ROWS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.storage.splice import can_splice, splice
from dbsp_wcoj.kernels.storage.trie import (
    describe_run,
    fill_directory,
    open_directory,
    share_offsets,
)

# A range of at most this many siblings is short.
SHORT_RANGE = 4
# A common node with at most this many rows in both runs is small.
SMALL_NODE_ROWS = 256
# After this many short ranges in a row, or small nodes, the merge tries to merge a block of rows.
ENOUGH_SHORT_RANGES = 2
# If that is not possible, this many more of them come before the next attempt.
RANGES_BETWEEN_ATTEMPTS = 16

# Enough fuel for any merge.
UNLIMITED_FUEL = np.int64(1 << 62)


@subroutine
def find_unique_level(run):
    """Return the first level at which each node has one leaf."""
    level = run[ARITY] - 1
    while level > 0 and run[level_header(level - 1) + LEVEL_NODES] == run[ROWS]:
        level -= 1
    return level


@subroutine
def init_merge(a, b, out):
    """Lay out the merge of runs ``a`` and ``b`` in ``out`` and return its state."""
    arity = a[ARITY]
    state = np.zeros(CURSORS + CURSOR_WORDS * arity, np.int64)
    out[ARITY] = arity
    out[WEIGHT_SUMS] = 0
    # Most rows come from `a`, the larger run, so its uniform weight becomes that of the result.
    out[UNIFORM_WEIGHT] = a[UNIFORM_WEIGHT] if a[WEIGHT_SUMS] == 0 else 1
    out[MAX_ABS_WEIGHT] = 0
    unique_level = max(find_unique_level(a), find_unique_level(b))
    state[UNIQUE_LEVEL] = unique_level
    rows = a[ROWS] + b[ROWS]
    end = level_header(arity)
    for level in range(arity):
        entry = level_header(level)
        nodes = a[entry + LEVEL_NODES] + b[entry + LEVEL_NODES]
        # The result is narrow if both runs are: then all values fit.
        is_narrow = array_values(a, entry) & array_values(b, entry) & TAG != 0
        out[entry + LEVEL_VALUES] = end + NARROW if is_narrow else end
        end += words_of_values(nodes, is_narrow)
        out[entry + LEVEL_OFFSETS] = 0
        if (level < unique_level and level < arity - 1) or level == arity - 2:
            out[entry + LEVEL_OFFSETS] = end
            end += nodes + 1
    # The size of the directory depends on level 0: weights start after its maximum size.
    state[WEIGHTS_START] = (
        end + 2 * (a[LEVEL_HEADERS + LEVEL_NODES] + b[LEVEL_HEADERS + LEVEL_NODES]) + 3
    )
    # The offsets that `lower_unique_level` may write come last: they are seldom written, and would
    # else leave unused words between the other sections.
    unused = state[WEIGHTS_START] + rows + 1
    for level in range(unique_level, arity - 2):
        out[level_header(level) + LEVEL_OFFSETS] = unused
        unused += rows + 1
    state[NEXT_ENTRY] = end
    state[CURSORS + 1] = a[LEVEL_HEADERS + LEVEL_NODES]
    state[CURSORS + 3] = b[LEVEL_HEADERS + LEVEL_NODES]
    return state


@subroutine
def count_short_ranges(scratch, length):
    """Count a range as one more short range, or begin to count again after a longer one."""
    scratch[SHORT_RANGES] = scratch[SHORT_RANGES] + 1 if length <= SHORT_RANGE else 0


@subroutine
def copy_range(a, b, out, level, side, limit, state, scratch, fuel):
    """Copy siblings up to position ``limit`` from one run, about ``fuel`` rows; return the cost.

    If a single subtree exceeds the fuel, the walk descends into it, where the other run has no
    nodes. The level is before the unique level.
    """
    run = a if side == LEFT else b
    cursor = CURSORS + CURSOR_WORDS * level
    unique_level = state[UNIQUE_LEVEL]
    first = state[cursor + side]
    last = limit
    rows = count_leaves(run, level, unique_level, first, last)
    while rows > fuel and last - first > 1:
        last = first + (last - first + 1) // 2
        rows = count_leaves(run, level, unique_level, first, last)
    if rows > fuel and rows > 1024:
        entry = level_header(level)
        written = state[cursor + NODES_WRITTEN]
        out[out[entry + LEVEL_VALUES] + written] = run[run[entry + LEVEL_VALUES] + first]
        out[out[entry + LEVEL_OFFSETS] + written] = state[cursor + CURSOR_WORDS + NODES_WRITTEN]
        offsets = run[entry + LEVEL_OFFSETS]
        for word in range(4):
            state[cursor + CURSOR_WORDS + word] = 0
        state[cursor + CURSOR_WORDS + side] = run[offsets + first]
        state[cursor + CURSOR_WORDS + side + 1] = run[offsets + first + 1]
        state[cursor + side] = first + 1
        state[DEPTH] = level + 1
        return 1
    copy_siblings(a, b, out, side, level, first, last, state, scratch)
    state[cursor + side] = last
    return rows + 1


@subroutine
def merge_rows(a, b, out, state, scratch, fuel):
    """Merge siblings of the unique level for about ``fuel`` rows; return the fuel left.

    It ends early after enough short ranges, or if two different rows have a common node; the unique
    level is then a later one.
    """
    arity = a[ARITY]
    level = state[UNIQUE_LEVEL]
    cursor = CURSORS + CURSOR_WORDS * level
    values_a = array_values(a, level_header(level))
    values_b = array_values(b, level_header(level))
    i, end_a, j, end_b = state[cursor], state[cursor + 1], state[cursor + 2], state[cursor + 3]
    if level == arity - 1 and has_one_weight(a, b, out):
        fuel -= merge_leaves(a, b, out, state, fuel)
        i, j = state[cursor], state[cursor + 2]
    while fuel > 0 and (i < end_a or j < end_b) and scratch[SHORT_RANGES] < ENOUGH_SHORT_RANGES:
        if j == end_b or (i < end_a and load_value(values_a, i) < load_value(values_b, j)):
            limit = min(end_a, i + fuel)
            if j < end_b:
                limit = seek(values_a, i, limit, load_value(values_b, j))
            add_piece(a, b, out, LEFT, i, limit, state, scratch)
            count_short_ranges(scratch, limit - i)
            fuel -= limit - i + 1
            i = limit
        elif i == end_a or load_value(values_b, j) < load_value(values_a, i):
            limit = min(end_b, j + fuel)
            if i < end_a:
                limit = seek(values_b, j, limit, load_value(values_a, i))
            add_piece(a, b, out, RIGHT, j, limit, state, scratch)
            count_short_ranges(scratch, limit - j)
            fuel -= limit - j + 1
            j = limit
        else:
            differing_level = level + 1
            while differing_level < arity:
                entry = level_header(differing_level)
                left = load_value(array_values(a, entry), i)
                if left != load_value(array_values(b, entry), j):
                    break
                differing_level += 1
            if differing_level < arity:
                write_pieces(a, b, out, state, scratch)
                lower_unique_level(out, state, differing_level)
                break
            add_leaves(a, b, out, i, j, state, scratch)
            i += 1
            j += 1
            fuel -= 1
    state[cursor] = i
    state[cursor + 2] = j
    return fuel


@subroutine
def merge_tries(a, b, out, state, fuel):
    """Walk both tries for about ``fuel`` rows; return the fuel left, positive when finished."""
    scratch_memory = np.empty(SCRATCH_WORDS, np.int64)
    scratch = borrow(scratch_memory)
    scratch[PIECES] = 0
    scratch[SHORT_RANGES] = 0
    scratch[SMALL_NODES] = 0
    while fuel > 0:
        level = state[DEPTH]
        cursor = CURSORS + CURSOR_WORDS * level
        entry = level_header(level)
        i, end_a, j, end_b = state[cursor], state[cursor + 1], state[cursor + 2], state[cursor + 3]
        if i == end_a and j == end_b:
            if level == 0:
                break
            # Back to the parent, which is kept only if a child was written.
            parent_cursor = cursor - CURSOR_WORDS
            written = state[parent_cursor + NODES_WRITTEN]
            offsets = out[level_header(level - 1) + LEVEL_OFFSETS]
            if state[cursor + NODES_WRITTEN] > out[offsets + written]:
                state[parent_cursor + NODES_WRITTEN] = written + 1
            state[DEPTH] = level - 1
            continue
        if scratch[SHORT_RANGES] >= ENOUGH_SHORT_RANGES:
            rows = merge_block(a, b, out, level, state, scratch, fuel)
            if rows > 0:
                fuel -= rows + 1
                continue
            scratch[SHORT_RANGES] = -RANGES_BETWEEN_ATTEMPTS
            scratch[SMALL_NODES] = -RANGES_BETWEEN_ATTEMPTS
        if level == state[UNIQUE_LEVEL]:
            fuel = merge_rows(a, b, out, state, scratch, fuel)
            continue
        values_a = a[entry + LEVEL_VALUES]
        values_b = b[entry + LEVEL_VALUES]
        if j == end_b:
            fuel -= copy_range(a, b, out, level, LEFT, end_a, state, scratch, fuel)
        elif i == end_a:
            fuel -= copy_range(a, b, out, level, RIGHT, end_b, state, scratch, fuel)
        elif a[values_a + i] < b[values_b + j]:
            limit = seek(array_values(a, entry), i, end_a, b[values_b + j])
            count_short_ranges(scratch, limit - i)
            fuel -= copy_range(a, b, out, level, LEFT, limit, state, scratch, fuel)
        elif b[values_b + j] < a[values_a + i]:
            limit = seek(array_values(b, entry), j, end_b, a[values_a + i])
            count_short_ranges(scratch, limit - j)
            fuel -= copy_range(a, b, out, level, RIGHT, limit, state, scratch, fuel)
        else:
            unique_level = state[UNIQUE_LEVEL]
            rows = count_leaves(a, level, unique_level, i, i + 1)
            rows += count_leaves(b, level, unique_level, j, j + 1)
            scratch[SMALL_NODES] += rows <= SMALL_NODE_ROWS
            if scratch[SMALL_NODES] >= ENOUGH_SHORT_RANGES:
                scratch[SHORT_RANGES] = ENOUGH_SHORT_RANGES
                continue
            written = state[cursor + NODES_WRITTEN]
            out[out[entry + LEVEL_VALUES] + written] = a[values_a + i]
            state[cursor] = i + 1
            state[cursor + 2] = j + 1
            fuel -= 1
            out[out[entry + LEVEL_OFFSETS] + written] = state[cursor + CURSOR_WORDS + NODES_WRITTEN]
            offsets_a = a[entry + LEVEL_OFFSETS]
            offsets_b = b[entry + LEVEL_OFFSETS]
            state[cursor + CURSOR_WORDS] = a[offsets_a + i]
            state[cursor + CURSOR_WORDS + 1] = a[offsets_a + i + 1]
            state[cursor + CURSOR_WORDS + 2] = b[offsets_b + j]
            state[cursor + CURSOR_WORDS + 3] = b[offsets_b + j + 1]
            state[DEPTH] = level + 1
    write_pieces(a, b, out, state, scratch)
    keep_alive(scratch_memory)
    return fuel


@subroutine
def advance_merge(a, b, out, state, fuel):
    """Merge about ``fuel`` more rows into ``out``; return whether the merge is done."""
    arity = a[ARITY]
    if state[PHASE] == WALK:
        fuel = merge_tries(a, b, out, state, fuel)
        if fuel <= 0:
            return False
        unique_level = state[UNIQUE_LEVEL]
        for level in range(arity):
            entry = level_header(level)
            written = state[CURSORS + CURSOR_WORDS * min(level, unique_level) + NODES_WRITTEN]
            out[entry + LEVEL_NODES] = written
            if level < unique_level or level == arity - 2:
                children_written = state[
                    CURSORS + CURSOR_WORDS * min(level + 1, unique_level) + NODES_WRITTEN
                ]
                out[out[entry + LEVEL_OFFSETS] + written] = children_written
        out[ROWS] = out[level_header(arity - 1) + LEVEL_NODES]
        clear_last_half(array_values(out, level_header(arity - 1)), out[ROWS])
        state[PHASE] = FILL_SKIPPED
    if state[PHASE] == FILL_SKIPPED:
        fuel = fill_skipped(out, state, fuel)
        if fuel <= 0:
            return False
        share_offsets(out)
        open_directory(out, state[NEXT_ENTRY])
        state[NEXT_ENTRY] = 0
        state[PHASE] = FILL
    if state[PHASE] == FILL:
        state[NEXT_ENTRY] = fill_directory(out, state[NEXT_ENTRY], fuel)
        if state[NEXT_ENTRY] < out[DIRECTORY_SIZE]:
            return False
        has_bitmap = open_bitmap(out, state[WEIGHTS_START] + out[ROWS] + 1) > 0
        state[NEXT_ENTRY] = 0
        state[PHASE] = FILL_BITMAP if has_bitmap else DONE
    if state[PHASE] == FILL_BITMAP:
        state[NEXT_ENTRY] = fill_bitmap(out, state[NEXT_ENTRY], fuel)
        if state[NEXT_ENTRY] < out[ROWS]:
            return False
        state[PHASE] = DONE
    return True


@subroutine
def merge_at_once(a, b, out):
    """Merge ``a`` and ``b`` into ``out``, all of them borrowed."""
    state = init_merge(a, b, out)
    if can_splice(a, b):
        splice(a, b, out, borrow(state))
    advance_merge(a, b, out, borrow(state), UNLIMITED_FUEL)
    keep_alive(state)


@kernel
def begin_merge(a, b, out):
    """Return the initial state of a merge of runs ``a`` and ``b`` into ``out``.

    ``out`` has at least `dbsp_wcoj.storage.run.Merge.max_words` words for the two runs.
    """
    return init_merge(a, b, out)


@kernel
def continue_merge(a, b, out, state, fuel):
    """Merge about ``fuel`` more rows; return whether the merge is done."""
    return advance_merge(borrow(a), borrow(b), borrow(out), borrow(state), fuel)


@kernel
def merge_runs(a, b, out):
    """Merge ``a`` and ``b`` into ``out`` and describe the result."""
    merge_at_once(borrow(a), borrow(b), borrow(out))
    return describe_run(out)


@kernel
def sum_runs(table, words, out):
    """Merge runs into ``out``, one after another; describe the result.

    Args:
        table: Number of runs, at least two, then their addresses.
        words: The number of words that the sum of these runs can have
            (`dbsp_wcoj.kernels.storage.trie.run_words`).
        out: int64, of length ``words``.
    """
    merged = carray(pointer_to_words(table[1]), (words,))
    for position in range(1, table[0]):
        run = carray(pointer_to_words(table[1 + position]), (words,))
        target = np.empty(words, np.int64) if position < table[0] - 1 else out
        merge_at_once(borrow(merged), run, borrow(target))
        keep_alive(merged)
        merged = target
    return describe_run(out)
