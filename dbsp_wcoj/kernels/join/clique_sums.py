"""Clique sums: the sum over the last two variables v and c of a clique, for a given prefix.

    sum over v of  w(v) * ( sum over c of  m(v, c) * f(c) * g(c) * … )

Each letter is the weight of an atom. The closing atom ``m`` contains both variables, as in
`dbsp_wcoj.kernels.join.cycle_sums`. But here several other atoms contain ``c``: ``f``, ``g`` and so
on, which do not depend on ``v``. Their product ``f * g * …`` is computed once for the prefix, as a
list of values with weights. Then the list of ``m`` for each ``v`` is intersected with this product.
In a clique the values of ``v`` often are that same product: then they are not computed again. A
join of whole relations can then count in the subgraph that a list of the product induces
(`dbsp_wcoj.kernels.join.induced_subgraph`).

Cost: one intersection for the prefix, then for each ``v`` the length of the shorter list: it is
scanned against a bitmap or searched by galloping. Computed without the product, a k-clique would
intersect k - 1 lists for each clique of size k - 1.

A product of more than `LIST_WORDS` values is processed in pieces, because the sum is linear in it.

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.cursors import (
    MAX_INT64,
    MIN_INT64,
    bind_value,
    enter_level,
    is_excluded,
    next_value,
    prefetch_lookup,
    value_range,
)
from dbsp_wcoj.kernels.join.induced_subgraph import sum_subgraph
from dbsp_wcoj.kernels.join.intersect import count_common, count_in_bitmap, leaf_weight
from dbsp_wcoj.kernels.join.join_layout import (
    BITMAP_BITS,
    BLOCKS,
    COUNTER_BYTES,
    CURSOR_BYTES,
    END,
    FIRST_LIST,
    FIRST_SLOT,
    HIGH,
    INTERSECTIONS,
    LEVEL_STATE_WORDS,
    LEVELS,
    LIST_WORDS,
    LOW,
    MAX_ATOM_DEPTH,
    OFFSETS,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    SCRATCH,
    SECOND_LIST,
    SUBGRAPH,
    VALUE,
    VALUES,
)
from dbsp_wcoj.kernels.join.lists import collect_lists
from dbsp_wcoj.kernels.join.shared_lists import are_leaves, are_shared
from dbsp_wcoj.kernels.join.sums import (
    MAX_SCAN_RATIO,
    MIN_MARKED_USES,
    MIN_MARKED_VALUES,
    update_bitmap,
)
from dbsp_wcoj.kernels.memory import increment, load, load_value, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add, multiply


@subroutine
def collect_piece(program, state, cursors, level_states, fixed_block, proposer, product, counters):
    """Write the next values of the product and their weights to ``product``.

    ``fixed_block`` is the block of the innermost variable without the closing atom.

    Returns ``(size, weight)``: the number of values, and the weight of each; 0 if they differ.
    """
    size = np.int64(0)
    weight = np.int64(0)
    while size < LIST_WORDS:
        has_value, value = next_value(program, state, cursors, fixed_block, proposer, counters)
        if not has_value:
            break
        value_weight = bind_value(program, state, cursors, fixed_block, np.int64(1))
        if value_weight == 0 or is_excluded(program, state, fixed_block, level_states, value):
            continue
        if size == 0:
            weight = value_weight
        if value_weight != weight or value_weight == OVERFLOWED:
            weight = np.int64(0)
        store(product, size, value)
        store(product, LIST_WORDS + size, value_weight)
        size += 1
    return size, weight


@subroutine
def dot_product(run, values, i, end, product, size, weight):
    """Return the sum over the common values of a list and the product, in checked arithmetic."""
    total = np.int64(0)
    j = np.int64(0)
    while i < end and j < size:
        x = load_value(values, i)
        y = load(product, j)
        if x == y:
            factor = weight if weight != 0 else load(product, LIST_WORDS + j)
            total = add(total, multiply(leaf_weight(run, i), factor))
            i += 1
            j += 1
        elif x < y:
            i = seek(values, i, end, y)
        else:
            j = seek(product, j, size, x)
    return total


@subroutine
def sum_list(run, values, first, last, product, size, weight, bitmap, lowest, highest):
    """Return the sum over the common values of one list of ``m`` and the product."""
    if weight == 0 or load(run, run_layout.WEIGHT_SUMS) != 0:
        return dot_product(run, values, first, last, product, size, weight)
    if bitmap != 0 and last - first <= MAX_SCAN_RATIO * size:
        common = count_in_bitmap(bitmap, lowest, highest, values, first, last)
    else:
        common = count_common(product, np.int64(0), size, values, first, last)
    return multiply(multiply(common, weight), load(run, run_layout.UNIFORM_WEIGHT))


@subroutine
def sum_values(
    program,
    state,
    cursors,
    participant,
    values,
    length,
    values_weight,
    product,
    size,
    weight,
    bitmap,
    lowest,
    highest,
    counters,
):
    """Return the sum over ``length`` listed ``values`` of the level, themselves a product of lists.

    ``participant`` is that of the closing atom. ``product`` has ``size`` values. ``values_weight``
    and ``weight`` are the weight of each value of the two lists, or 0 if the weights differ.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    closing_atom = load(program, participant)
    depth = load(program, participant + 1)
    total = np.int64(0)
    increment(counters, PROPOSALS, length)
    increment(counters, INTERSECTIONS, length)
    inner_proposals = np.int64(0)
    for slot in range(
        load(state, FIRST_SLOT + closing_atom), load(state, FIRST_SLOT + closing_atom + 1)
    ):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        run, nodes, offsets = load(cursor, RUN), load(cursor, VALUES), load(cursor, OFFSETS)
        child_values = load(cursor + CURSOR_BYTES, VALUES)
        candidate, end = load(cursor, POSITION), load(cursor, END)
        position = np.int64(0)
        has_directory = depth == 0 and load(run, run_layout.DIRECTORY) != 0
        while position < length and candidate < end:
            value = load(values, position)
            if has_directory:
                prefetch_lookup(run, cursor, values, position, length - 1, True)
                candidate = root_seek(run, candidate, end, value)
            else:
                candidate = seek(nodes, candidate, end, value)
            if candidate >= end:
                break
            node = load(nodes, candidate)
            if node != value:
                position = seek(values, position, length, node)
                continue
            child, child_end = load(offsets, candidate), load(offsets, candidate + 1)
            inner_proposals += min(child_end - child, size)
            part = sum_list(
                run, child_values, child, child_end, product, size, weight, bitmap, lowest, highest
            )
            factor = values_weight if values_weight != 0 else load(values, LIST_WORDS + position)
            total = add(total, multiply(part, factor))
            position += 1
            candidate += 1
    increment(counters + COUNTER_BYTES, PROPOSALS, inner_proposals)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner_proposals)
    return total


@subroutine
def sum_extensions(
    program,
    state,
    cursors,
    level_states,
    level,
    proposer,
    closing_atom,
    closing_depth,
    product,
    size,
    weight,
    bitmap,
    lowest,
    highest,
    counters,
):
    """Return the sum over the extensions of the level, whose cursors are set.

    The arguments from ``product`` on are those of `sum_values`.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    block = load(program, load(program, BLOCKS) + level)
    total = np.int64(0)
    inner_proposals = np.int64(0)
    while True:
        has_value, value = next_value(program, state, cursors, block, proposer, counters)
        if not has_value:
            break
        store(state, level_states + LEVEL_STATE_WORDS * level + VALUE, value)
        value_weight = bind_value(program, state, cursors, block, np.int64(1))
        if value_weight == 0 or is_excluded(program, state, block, level_states, value):
            continue
        for slot in range(
            load(state, FIRST_SLOT + closing_atom), load(state, FIRST_SLOT + closing_atom + 1)
        ):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + closing_depth + 1)
            child, child_end = load(cursor, LOW), load(cursor, HIGH)
            if child >= child_end:
                continue
            inner_proposals += min(child_end - child, size)
            part = sum_list(
                load(cursor, RUN),
                load(cursor, VALUES),
                child,
                child_end,
                product,
                size,
                weight,
                bitmap,
                lowest,
                highest,
            )
            total = add(total, multiply(part, value_weight))
    increment(counters + COUNTER_BYTES, PROPOSALS, inner_proposals)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner_proposals)
    return total


@kernel
def sum_clique(
    program,
    state,
    cursors,
    level_states,
    level,
    proposer,
    count,
    least_value,
    greatest_value,
    bitmap_buffer,
    counters,
):
    """Like `dbsp_wcoj.kernels.join.sums.sum_pairs`, for a level of kind ``SUM_CLIQUE``.

    ``least_value`` and ``greatest_value`` are the bounds of the values of the level.
    """
    block = load(program, load(program, BLOCKS) + level)
    fixed_block = load(program, load(program, BLOCKS) + load(program, LEVELS))
    bitmap = bitmap_buffer
    product = bitmap_buffer + 8 * FIRST_LIST
    values = bitmap_buffer + 8 * SECOND_LIST
    scratch = bitmap_buffer + 8 * SCRATCH
    inner_counters = counters + COUNTER_BYTES
    low, high = value_range(program, state, fixed_block, level_states, MIN_INT64, MAX_INT64)
    if low > high:
        return np.int64(0)
    fixed_proposer, extensions = enter_level(program, state, cursors, fixed_block, low, high)
    if extensions == 0:
        return np.int64(0)
    # The only participant that is not complete at this level continues to the innermost one.
    participant = block + PARTICIPANTS + 1
    while load(program, participant + 2) != 0:
        participant += PARTICIPANT_WORDS
    closing_atom, closing_depth = load(program, participant), load(program, participant + 1)
    is_unrestricted = least_value == MIN_INT64 and greatest_value == MAX_INT64
    has_one_participant = load(program, block + PARTICIPANTS) == 1
    subgraph = load(bitmap_buffer, SUBGRAPH)
    if (
        subgraph != 0
        and is_unrestricted
        and not has_one_participant
        and are_leaves(program, state, cursors, block)
        and are_shared(program, state, cursors, block, fixed_block, closing_atom)
    ):
        is_computed, part = sum_subgraph(
            program,
            state,
            cursors,
            level_states,
            level,
            fixed_block,
            participant,
            product,
            values,
            scratch,
            subgraph,
            counters,
        )
        if is_computed:
            return part
    no_atom = np.int64(-1)
    is_whole, size, weight = collect_lists(
        program,
        state,
        cursors,
        level_states,
        fixed_block,
        no_atom,
        product,
        scratch,
        inner_counters,
    )
    is_listed = False
    length = np.int64(0)
    values_weight = np.int64(0)
    if is_whole and size == 0:
        return np.int64(0)
    # List the values of the level, too, if each is in several lists.
    if is_whole and not has_one_participant and are_leaves(program, state, cursors, block):
        if is_unrestricted and are_shared(
            program, state, cursors, block, fixed_block, closing_atom
        ):
            values, length, values_weight = product, size, weight
            is_listed = True
        else:
            is_listed, length, values_weight = collect_lists(
                program,
                state,
                cursors,
                level_states,
                block,
                closing_atom,
                values,
                scratch,
                counters,
            )
        if is_listed:
            count = length
    is_last_piece = is_whole
    total = np.int64(0)
    while True:
        if not is_whole:
            size, weight = collect_piece(
                program,
                state,
                cursors,
                level_states,
                fixed_block,
                fixed_proposer,
                product,
                inner_counters,
            )
            is_last_piece = size < LIST_WORDS
        if size == 0:
            return total
        lowest, highest = load(product, 0), load(product, size - 1)
        active_bitmap = np.int64(0)
        value_span = np.uint64(highest) - np.uint64(lowest)
        is_used_often = size >= MIN_MARKED_VALUES and count >= MIN_MARKED_USES
        if is_used_often and weight != 0 and value_span < np.uint64(BITMAP_BITS - 1):
            active_bitmap = bitmap
            update_bitmap(bitmap, product, np.int64(0), size, lowest, False)
        if is_listed:
            part = sum_values(
                program,
                state,
                cursors,
                participant,
                values,
                length,
                values_weight,
                product,
                size,
                weight,
                active_bitmap,
                lowest,
                highest,
                counters,
            )
        else:
            part = sum_extensions(
                program,
                state,
                cursors,
                level_states,
                level,
                proposer,
                closing_atom,
                closing_depth,
                product,
                size,
                weight,
                active_bitmap,
                lowest,
                highest,
                counters,
            )
        total = add(total, part)
        if active_bitmap != 0:
            update_bitmap(bitmap, product, np.int64(0), size, lowest, True)
        if is_last_piece:
            return total
        # The next piece is multiplied with all values of the level again.
        proposer, count = enter_level(program, state, cursors, block, least_value, greatest_value)
