"""Splice: merge two runs by copying the ranges of the longer one between the rows of the other one.

    rows of the longer run      (1, 5) (1, 9) (2, 3) (4, 5) (4, 6)
    rows of the shorter run     (1, 7)        (3, 2)
    copied ranges               (1, 5)      | (1, 9) (2, 3)      | (4, 5) (4, 6)

Both runs have two columns, narrow values in the second one, and one weight each. All rows of the
shorter run are new, or each of them cancels a row of the longer run. The nodes and rows of the
longer run keep their order, so each one moves by a number of places that changes at the rows of the
shorter run only. A row is found by comparing some values at once with it, and a range is copied
some values at once, so there are few branches.

`dbsp_wcoj.kernels.storage.merge` merges all other runs, and does the merges in slices, level by
level.

Cost: for each row of the shorter run, O(log of the distance to the row before it) to find its
place; O(rows) values copied, with a vector instruction for up to 16 of them.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.memory import (
    NARROW_LANES,
    WIDE_LANES,
    copy_narrow,
    copy_words,
    count_narrow_below,
    count_words_below,
    load,
    load_narrow,
    store,
    store_narrow,
)
from dbsp_wcoj.kernels.storage.level_values import TAG, array_values
from dbsp_wcoj.kernels.storage.merge_output import (
    CURSOR_WORDS,
    CURSORS,
    LEFT,
    NODES_WRITTEN,
    RIGHT,
    UNIQUE_LEVEL,
    level_header,
)
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    MAX_ABS_WEIGHT,
    ROWS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.values.arithmetic import wrapping_add

# A value is compared with so many blocks of values before it is searched by galloping.
MAX_COMPARED_BLOCKS = 4

ZERO = np.int64(0)


@inline_subroutine
def offsets_of(run):
    """Return the address of the offsets of the first level of a run."""
    return np.int64(run.ctypes.data) + 8 * run[level_header(ZERO) + LEVEL_OFFSETS]


@inline_subroutine
def find_word(values, position, end, value):
    """Return the first position in ``[position, end)`` whose word is at least ``value``."""
    for _ in range(MAX_COMPARED_BLOCKS):
        below = count_words_below(values, position, end, value)
        position += below
        if below < NARROW_LANES:
            return position
    return seek(values, position, end, value)


@inline_subroutine
def find_narrow(values, position, end, value):
    """Like `find_word`, for narrow values at an address without a tag."""
    for _ in range(MAX_COMPARED_BLOCKS):
        below = count_narrow_below(values, position, end, value)
        position += below
        if below < WIDE_LANES:
            return position
    return seek(values + TAG, position, end, value)


@inline_subroutine
def copy_nodes(values, offsets, shift, source_values, source_offsets, first, end, row_shift):
    """Copy the nodes ``[first, end)``, ``shift`` places further, and their offsets.

    Their rows are ``row_shift`` places further.
    """
    while first < end:
        copy_words(values, first + shift, source_values, first, end, ZERO)
        copy_words(offsets, first + shift, source_offsets, first, end, row_shift)
        first += NARROW_LANES


@inline_subroutine
def copy_rows(values, shift, source, first, end):
    """Copy the narrow values ``[first, end)``, ``shift`` places further."""
    while first < end:
        copy_narrow(values, first + shift, source, first, end, ZERO)
        first += WIDE_LANES


@subroutine
def can_splice(a, b):
    """Return whether `splice` may be called for the runs ``a`` and ``b``."""
    if a[ARITY] != 2 or b[ARITY] != 2 or a[WEIGHT_SUMS] != 0 or b[WEIGHT_SUMS] != 0:
        return False
    leaves = level_header(np.int64(1))
    if array_values(a, leaves) & array_values(b, leaves) & TAG == 0:
        return False
    if a[UNIFORM_WEIGHT] == b[UNIFORM_WEIGHT]:
        return True
    return a[ROWS] >= b[ROWS] and wrapping_add(a[UNIFORM_WEIGHT], b[UNIFORM_WEIGHT]) == 0


@subroutine
def splice(a, b, out, state):
    """Begin the merge of ``a`` and ``b`` into ``out``; the caller has checked `can_splice`.

    All rows are merged, or those before the first node of the shorter run that has an unsuitable
    row: one that is not new, if the weights are equal, or that cancels nothing, if they are
    opposite. The walk of `dbsp_wcoj.kernels.storage.merge` does the rest.
    """
    is_cancelling = a[UNIFORM_WEIGHT] != b[UNIFORM_WEIGHT]
    side, other_side = LEFT, RIGHT
    if a[ROWS] < b[ROWS]:
        a, b = b, a
        side, other_side = RIGHT, LEFT
    leaf_entry = level_header(np.int64(1))
    nodes_a, nodes_b = a[level_header(ZERO) + LEVEL_NODES], b[level_header(ZERO) + LEVEL_NODES]
    values_a, values_b = array_values(a, level_header(ZERO)), array_values(b, level_header(ZERO))
    offsets_a, offsets_b = offsets_of(a), offsets_of(b)
    leaves_a, leaves_b = array_values(a, leaf_entry) - TAG, array_values(b, leaf_entry) - TAG
    values, offsets = array_values(out, level_header(ZERO)), offsets_of(out)
    leaves = array_values(out, leaf_entry) - TAG
    # The nodes before `node` and the rows before `row` of a are written, `shift` and `row_shift`
    # places further.
    node = row = shift = row_shift = ZERO
    found_node = ZERO
    node_b = ZERO
    while node_b < nodes_b:
        value = load(values_b, node_b)
        found_node = find_word(values_a, node, nodes_a, value)
        is_common = found_node < nodes_a and load(values_a, min(found_node, nodes_a - 1)) == value
        place, end_row = load(offsets_a, found_node), load(offsets_a, found_node + is_common)
        row_b, end_row_b = load(offsets_b, node_b), load(offsets_b, node_b + 1)
        shift_before, row_shift_before = shift, row_shift
        end_node = found_node + is_common
        if is_cancelling and end_row - place == end_row_b - row_b:  # no row is left
            end_node = found_node
        copy_nodes(values, offsets, shift, values_a, offsets_a, node, end_node, row_shift)
        if not is_common:
            store(values, found_node + shift, value)
            store(offsets, found_node + shift, place + row_shift)
            shift += 1
        elif end_node == found_node:
            shift -= 1
        while row_b < end_row_b:
            leaf = load_narrow(leaves_b, row_b)
            place = find_narrow(leaves_a, place, end_row, leaf)
            is_found = place < end_row and load_narrow(leaves_a, place) == leaf
            if is_found != is_cancelling:
                break
            copy_rows(leaves, row_shift, leaves_a, row, place)
            row = place
            if is_cancelling:
                row += 1
                row_shift -= 1
                place += 1
            else:
                store_narrow(leaves, place + row_shift, leaf)
                row_shift += 1
            row_b += 1
        if row_b < end_row_b:
            shift, row_shift = shift_before, row_shift_before
            break
        node = found_node + is_common
        node_b += 1
    if node_b == nodes_b:
        copy_nodes(values, offsets, shift, values_a, offsets_a, node, nodes_a, row_shift)
        found_node = nodes_a
    end_row = load(offsets_a, found_node)
    copy_rows(leaves, row_shift, leaves_a, row, end_row)
    cursor = CURSORS
    state[UNIQUE_LEVEL] = 1  # the nodes of the first level have offsets
    state[cursor + side] = found_node
    state[cursor + other_side] = node_b
    state[cursor + NODES_WRITTEN] = found_node + shift
    state[cursor + CURSOR_WORDS + NODES_WRITTEN] = end_row + row_shift
    if end_row + row_shift > 0:
        out[MAX_ABS_WEIGHT] = abs(out[UNIFORM_WEIGHT])
