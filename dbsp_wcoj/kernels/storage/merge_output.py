"""The state of a merge of two runs, and the functions that append to its result.

`dbsp_wcoj.kernels.storage.merge` says how two runs are merged, what the unique level is, and why
ranges of rows are noted before they are copied. The argument ``scratch`` of these functions has the
noted ranges; `dbsp_wcoj.kernels.storage.block_merge` uses the words after them.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.memory import load_value, store_value
from dbsp_wcoj.kernels.storage.level_values import array_values, copy_values
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    MAX_ABS_WEIGHT,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.values.arithmetic import wrapping_add, wrapping_subtract

# state[...]
PHASE = 0  # WALK (the tries), FILL_SKIPPED (words that the walk has skipped), FILL (the directory),
# FILL_BITMAP or DONE
DEPTH = 1  # the level at which the walk is
NEXT_ENTRY = 2  # before FILL the word where the directory starts, in FILL the entry to fill next,
# in FILL_BITMAP the value to mark next
WEIGHTS_START = 3  # the word where the weights start
UNIQUE_LEVEL = 4  # from this level on, each node that was written has one leaf
SKIPPED_WEIGHTS = 5  # the number of leaves, from the first on, whose weights are not stored yet
CURSORS = 6  # CURSOR_WORDS words per level
CURSOR_WORDS = 7
# The words of a level: the cursor in a and its end, the cursor in b and its end, the number of
# nodes written to out, the number of nodes, from the first on, whose offsets are not stored yet,
# and the number of nodes of the block that is merged (`block_merge`). LEFT and RIGHT, also used as
# the names of a and b, are not literals, because numba compiles a function again for each literal
# argument.
LEFT = np.int64(0)
RIGHT = np.int64(2)
NODES_WRITTEN = 4
SKIPPED_OFFSETS = 5
BLOCK_NODES = 6

WALK = 0
FILL_SKIPPED = 1
FILL = 2
FILL_BITMAP = 3
DONE = 4

# scratch[...]
PIECES = 0  # the number of ranges of rows that are noted before they are copied
SHORT_RANGES = 1  # how many short ranges were copied since the last long one
SMALL_NODES = 2  # how many small common nodes were met since the last block
FIRST_PIECE = 3  # PIECE_WORDS words per noted range: its side, first row, and row after the last
PIECE_WORDS = 3
MAX_PIECES = 256
END_OF_PIECES = FIRST_PIECE + PIECE_WORDS * MAX_PIECES


@subroutine
def level_header(level):
    """Return the header word at which the entry of ``level`` starts."""
    return LEVEL_HEADERS + LEVEL_HEADER_WORDS * level


@subroutine
def sum_of_uniform(out, rows):
    """Return the sum of the weights of ``rows`` leaves of the uniform weight, modulo 2**64."""
    return np.int64(np.uint64(rows) * np.uint64(out[UNIFORM_WEIGHT]))


@subroutine
def start_weights(out, state, rows):
    """Start to store weights: the ``rows`` leaves written so far have the uniform weight.

    Their own sums are stored by `fill_skipped` later, because there may be many.
    """
    start = state[WEIGHTS_START]
    out[start + rows] = sum_of_uniform(out, rows)
    state[SKIPPED_WEIGHTS] = rows
    out[WEIGHT_SUMS] = start


@subroutine
def fill_skipped(out, state, fuel):
    """Store up to ``fuel`` words that the walk has skipped; return the fuel left.

    The fuel is 0 if words are left.
    """
    weights = state[SKIPPED_WEIGHTS]
    first = max(weights - fuel, 0)
    for leaf in range(first, weights):
        out[state[WEIGHTS_START] + leaf] = sum_of_uniform(out, leaf)
    state[SKIPPED_WEIGHTS] = first
    fuel -= weights - first
    for level in range(out[ARITY]):
        cursor = CURSORS + CURSOR_WORDS * level
        nodes = state[cursor + SKIPPED_OFFSETS]
        first = max(nodes - fuel, 0)
        offsets = out[level_header(level) + LEVEL_OFFSETS]
        for node in range(first, nodes):
            out[offsets + node] = node
        state[cursor + SKIPPED_OFFSETS] = first
        fuel -= nodes - first
    return fuel


@subroutine
def count_leaves(run, level, unique_level, first, last):
    """Return how many rows lie under the nodes ``[first, last)`` of ``level``.

    From level ``unique_level`` on, each node has one leaf.
    """
    for depth in range(level, unique_level):
        offsets = run[level_header(depth) + LEVEL_OFFSETS]
        first = run[offsets + first]
        last = run[offsets + last]
    return last - first


@subroutine
def copy_siblings(a, b, out, side, level, first, last, state, scratch):
    """Append the nodes ``[first, last)`` of ``level`` and their descendants to ``out``.

    They are nodes of ``a`` or ``b``, as ``side`` says.
    """
    run = a if side == LEFT else b
    unique_level = state[UNIQUE_LEVEL]
    for depth in range(level, unique_level):
        entry = level_header(depth)
        written = state[CURSORS + CURSOR_WORDS * depth + NODES_WRITTEN]
        source = run[entry + LEVEL_VALUES] + first
        target = out[entry + LEVEL_VALUES] + written
        count = last - first
        for i in range(count):
            out[target + i] = run[source + i]
        state[CURSORS + CURSOR_WORDS * depth + NODES_WRITTEN] = written + count
        source = run[entry + LEVEL_OFFSETS]
        target = out[entry + LEVEL_OFFSETS] + written
        first_child = run[source + first]
        last_child = run[source + last]
        children_written = state[CURSORS + CURSOR_WORDS * (depth + 1) + NODES_WRITTEN]
        for i in range(count):
            out[target + i] = run[source + first + i] - first_child + children_written
        first = first_child
        last = last_child
    add_piece(a, b, out, side, first, last, state, scratch)


@subroutine
def add_piece(a, b, out, side, first, last, state, scratch):
    """Note that the rows ``[first, last)`` of ``a`` or ``b`` come next.

    If only the last column is left to copy, it is copied at once.
    """
    unique_level = state[UNIQUE_LEVEL]
    written = state[CURSORS + CURSOR_WORDS * unique_level + NODES_WRITTEN]
    state[CURSORS + CURSOR_WORDS * unique_level + NODES_WRITTEN] = written + last - first
    if unique_level == a[ARITY] - 1:
        run = a if side == LEFT else b
        entry = level_header(unique_level)
        copy_values(array_values(out, entry), written, array_values(run, entry), first, last)
        copy_weights(run, out, first, last, written, state)
        return
    position = FIRST_PIECE + PIECE_WORDS * scratch[PIECES]
    scratch[position] = side
    scratch[position + 1] = first
    scratch[position + 2] = last
    scratch[PIECES] += 1
    if scratch[PIECES] == MAX_PIECES:
        write_pieces(a, b, out, state, scratch)


@subroutine
def write_pieces(a, b, out, state, scratch):
    """Append the rows that are noted to the levels from the unique level on, and forget them."""
    if scratch[PIECES] == 0:
        return
    arity = a[ARITY]
    unique_level = state[UNIQUE_LEVEL]
    stop = FIRST_PIECE + PIECE_WORDS * scratch[PIECES]
    rows = np.int64(0)
    for piece in range(FIRST_PIECE, stop, PIECE_WORDS):
        rows += scratch[piece + 2] - scratch[piece + 1]
    start = state[CURSORS + CURSOR_WORDS * unique_level + NODES_WRITTEN] - rows
    for level in range(unique_level, arity):
        entry = level_header(level)
        values_a, values_b = array_values(a, entry), array_values(b, entry)
        target = array_values(out, entry)
        written = start
        for piece in range(FIRST_PIECE, stop, PIECE_WORDS):
            first, last = scratch[piece + 1], scratch[piece + 2]
            source = values_a if scratch[piece] == LEFT else values_b
            copy_values(target, written, source, first, last)
            written += last - first
    if unique_level <= arity - 2:
        target = out[level_header(arity - 2) + LEVEL_OFFSETS]
        for row in range(start, start + rows):
            out[target + row] = row
    for piece in range(FIRST_PIECE, stop, PIECE_WORDS):
        first = scratch[piece + 1]
        last = scratch[piece + 2]
        if scratch[piece] == LEFT:
            copy_weights(a, out, first, last, start, state)
        else:
            copy_weights(b, out, first, last, start, state)
        start += last - first
    scratch[PIECES] = 0


@subroutine
def lower_unique_level(out, state, level):
    """Give offsets to the levels before ``level``, which becomes the unique level.

    The offsets of the nodes written so far are stored by `fill_skipped` later.
    """
    arity = out[ARITY]
    old_level = state[UNIQUE_LEVEL]
    written = state[CURSORS + CURSOR_WORDS * old_level + NODES_WRITTEN]
    for depth in range(old_level, level):
        if depth < arity - 2:  # the last but one level always has offsets
            state[CURSORS + CURSOR_WORDS * depth + SKIPPED_OFFSETS] = written
        state[CURSORS + CURSOR_WORDS * (depth + 1) + NODES_WRITTEN] = written
    state[UNIQUE_LEVEL] = level


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
        start_weights(out, state, written)
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
def has_one_weight(a, b, out):
    """Return whether all rows of both runs, and all rows written so far, have the same weight."""
    return (
        a[WEIGHT_SUMS] == 0
        and b[WEIGHT_SUMS] == 0
        and out[WEIGHT_SUMS] == 0
        and a[UNIFORM_WEIGHT] == out[UNIFORM_WEIGHT]
        and b[UNIFORM_WEIGHT] == out[UNIFORM_WEIGHT]
    )


@subroutine
def add_leaves(a, b, out, i, j, state, scratch):
    """Write the row that is leaf ``i`` of ``a`` and leaf ``j`` of ``b``, unless the sum is zero.

    The nodes of the row before the unique level are written already.
    """
    weight = np.int64(0)
    for run, leaf in ((a, i), (b, j)):
        start = run[WEIGHT_SUMS]
        part = run[UNIFORM_WEIGHT]
        if start > 0:
            part = wrapping_subtract(run[start + leaf + 1], run[start + leaf])
        weight = wrapping_add(weight, part)
    if weight == 0:
        return
    write_pieces(a, b, out, state, scratch)
    arity = a[ARITY]
    unique_level = state[UNIQUE_LEVEL]
    written = state[CURSORS + CURSOR_WORDS * unique_level + NODES_WRITTEN]
    for level in range(unique_level, arity):
        entry = level_header(level)
        value = load_value(array_values(a, entry), i)
        store_value(array_values(out, entry), written, value)
    if unique_level <= arity - 2:
        out[out[level_header(arity - 2) + LEVEL_OFFSETS] + written] = written
    if weight != out[UNIFORM_WEIGHT] and out[WEIGHT_SUMS] == 0:
        start_weights(out, state, written)
    out[MAX_ABS_WEIGHT] = max(out[MAX_ABS_WEIGHT], abs(weight))
    if out[WEIGHT_SUMS] > 0:
        out[out[WEIGHT_SUMS] + written + 1] = wrapping_add(out[out[WEIGHT_SUMS] + written], weight)
    state[CURSORS + CURSOR_WORDS * unique_level + NODES_WRITTEN] = written + 1
