"""The last two variables of a clique, summed with the intersection that they share.

    sum over v of  w(v) * ( sum over c of  m(v, c) * f(c) * g(c) * … )

As in `dbsp_wcoj.kernels.join.cycle_sums`, one atom, ``m``, continues from the first of the two
variables to the innermost one. But there it meets several atoms that do not depend on ``v``. Their
product ``f * g * …`` is computed once for the prefix, as a list of values with weights, and the
list of ``m`` for each ``v`` is intersected with it. In a clique the values of ``v`` are often that
same list: the same runs are read below the same prefix, so the levels share the intersection as
well.

Cost: one intersection for the prefix, then for each ``v`` the shorter of the two lists, scanned
against a bitmap or searched by galloping. Without the sharing, a k-clique intersects k - 1 lists
for each clique of size k - 1.

A product of more than `LIST_WORDS` values is processed in pieces, because the sum is linear in it.
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
from dbsp_wcoj.kernels.join.intersect import count_common, leaf_weight
from dbsp_wcoj.kernels.join.join_layout import (
    BITMAP_BITS,
    BITMAP_WORDS,
    BLOCKS,
    CELL_BYTES,
    COUNTER_BYTES,
    END,
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
    VALUE,
    VALUES,
)
from dbsp_wcoj.kernels.join.lists import collect_lists
from dbsp_wcoj.kernels.join.shared_lists import are_leaves, are_shared
from dbsp_wcoj.kernels.join.sums import (
    MAX_SCAN_RATIO,
    MIN_MARKED_USES,
    MIN_MARKED_VALUES,
    count_in_bitmap,
    update_bitmap,
)
from dbsp_wcoj.kernels.memory import increment, load, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add, multiply


@subroutine
def collect_piece(program, state, cells, levels, fixed, proposer, room, counters):
    """Write the next values of the product and their weights.

    Returns ``(values, weight)``: their number, and the weight of each value, 0 if they differ.
    """
    size = np.int64(0)
    weight = np.int64(0)
    while size < LIST_WORDS:
        found, value = next_value(program, state, cells, fixed, proposer, counters)
        if not found:
            break
        here = bind_value(program, state, cells, fixed, np.int64(1))
        if here == 0 or is_excluded(program, state, fixed, levels, value):
            continue
        if size == 0:
            weight = here
        if here != weight or here == OVERFLOWED:
            weight = np.int64(0)
        store(room, size, value)
        store(room, LIST_WORDS + size, here)
        size += 1
    return size, weight


@subroutine
def dot_product(run, values, i, end, room, size, weight):
    """Return the sum over the common values of a list and the product, in checked arithmetic."""
    total = np.int64(0)
    j = np.int64(0)
    while i < end and j < size:
        x = load(values, i)
        y = load(room, j)
        if x == y:
            factor = weight if weight != 0 else load(room, LIST_WORDS + j)
            total = add(total, multiply(leaf_weight(run, i), factor))
            i += 1
            j += 1
        elif x < y:
            i = seek(values, i, end, y)
        else:
            j = seek(room, j, size, x)
    return total


@subroutine
def sum_list(run, values, first, last, room, size, weight, bitmap, lowest, highest):
    """Return the sum over one list of ``m`` against the product, or against its bitmap."""
    if weight == 0 or load(run, run_layout.WEIGHT_SUMS) != 0:
        return dot_product(run, values, first, last, room, size, weight)
    if bitmap != 0 and last - first <= MAX_SCAN_RATIO * size:
        part = count_in_bitmap(bitmap, lowest, highest, values, first, last)
    else:
        part = count_common(room, np.int64(0), size, values, first, last)
    return multiply(multiply(part, weight), load(run, run_layout.UNIFORM_WEIGHT))


@subroutine
def sum_values(
    program,
    state,
    cells,
    word,
    values,
    length,
    bound,
    room,
    size,
    weight,
    bitmap,
    lowest,
    highest,
    counters,
):
    """Return the sum over the ``values`` of the level, themselves a product of lists.

    ``bound`` is the weight of each value, 0 if the weights differ; ``weight`` the same in ``room``.
    """
    depths = load(program, MAX_ATOM_DEPTH)
    moving = load(program, word)
    depth = load(program, word + 1)
    total = np.int64(0)
    increment(counters, PROPOSALS, length)
    increment(counters, INTERSECTIONS, length)
    inner = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + moving), load(state, FIRST_SLOT + moving + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        run, nodes, offsets = load(cell, RUN), load(cell, VALUES), load(cell, OFFSETS)
        below = load(cell + CELL_BYTES, VALUES)
        at, end = load(cell, POSITION), load(cell, END)
        position = np.int64(0)
        direct = depth == 0 and load(run, run_layout.DIRECTORY) != 0
        while position < length and at < end:
            value = load(values, position)
            if direct:
                prefetch_lookup(run, cell, values, position, length - 1, True)
                at = root_seek(run, at, end, value)
            else:
                at = seek(nodes, at, end, value)
            if at >= end:
                break
            node = load(nodes, at)
            if node != value:
                position = seek(values, position, length, node)
                continue
            child, child_end = load(offsets, at), load(offsets, at + 1)
            inner += min(child_end - child, size)
            part = sum_list(
                run, below, child, child_end, room, size, weight, bitmap, lowest, highest
            )
            factor = bound if bound != 0 else load(values, LIST_WORDS + position)
            total = add(total, multiply(part, factor))
            position += 1
            at += 1
    increment(counters + COUNTER_BYTES, PROPOSALS, inner)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner)
    return total


@subroutine
def sum_extensions(
    program,
    state,
    cells,
    levels,
    level,
    proposer,
    moving,
    moving_depth,
    room,
    size,
    weight,
    bitmap,
    lowest,
    highest,
    counters,
):
    """Return the sum over the extensions of the level, whose cursors are set."""
    depths = load(program, MAX_ATOM_DEPTH)
    block = load(program, load(program, BLOCKS) + level)
    total = np.int64(0)
    inner = np.int64(0)
    while True:
        found, value = next_value(program, state, cells, block, proposer, counters)
        if not found:
            break
        store(state, levels + LEVEL_STATE_WORDS * level + VALUE, value)
        bound = bind_value(program, state, cells, block, np.int64(1))
        if bound == 0 or is_excluded(program, state, block, levels, value):
            continue
        for slot in range(load(state, FIRST_SLOT + moving), load(state, FIRST_SLOT + moving + 1)):
            cell = cells + CELL_BYTES * (slot * depths + moving_depth + 1)
            child, child_end = load(cell, LOW), load(cell, HIGH)
            if child >= child_end:
                continue
            inner += min(child_end - child, size)
            part = sum_list(
                load(cell, RUN),
                load(cell, VALUES),
                child,
                child_end,
                room,
                size,
                weight,
                bitmap,
                lowest,
                highest,
            )
            total = add(total, multiply(part, bound))
    increment(counters + COUNTER_BYTES, PROPOSALS, inner)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner)
    return total


@kernel
def sum_clique(
    program, state, cells, levels, level, proposer, count, least, most, bitmap, counters
):
    """Like `dbsp_wcoj.kernels.join.sums.sum_pairs`, for a level of kind ``SUM_CLIQUE``.

    ``least`` and ``most`` are the bounds of the values of the level.
    """
    block = load(program, load(program, BLOCKS) + level)
    fixed = load(program, load(program, BLOCKS) + load(program, LEVELS))
    room = bitmap + 8 * BITMAP_WORDS
    inner_counters = counters + COUNTER_BYTES
    low, high = value_range(program, state, fixed, levels, MIN_INT64, MAX_INT64)
    if low > high:
        return np.int64(0)
    fixed_proposer, extensions = enter_level(program, state, cells, fixed, low, high)
    if extensions == 0:
        return np.int64(0)
    # The only participant that is not complete at this level continues to the innermost one.
    word = block + PARTICIPANTS + 1
    while load(program, word + 2) != 0:
        word += PARTICIPANT_WORDS
    moving, moving_depth = load(program, word), load(program, word + 1)
    values = room + 16 * LIST_WORDS
    scratch = room + 32 * LIST_WORDS
    nothing = np.int64(-1)
    done, size, weight = collect_lists(
        program, state, cells, levels, fixed, nothing, room, scratch, inner_counters
    )
    listed = False
    length = np.int64(0)
    bound = np.int64(0)
    if done and size == 0:
        return size
    alone = load(program, block + PARTICIPANTS) == 1
    if done and not alone and are_leaves(program, state, cells, block):
        free = least == MIN_INT64 and most == MAX_INT64
        if free and are_shared(program, state, cells, block, fixed, moving):
            values, length, bound = room, size, weight
            listed = True
        else:
            listed, length, bound = collect_lists(
                program, state, cells, levels, block, moving, values, scratch, counters
            )
        if listed:
            count = length
    whole = done
    total = np.int64(0)
    while True:
        if not whole:
            size, weight = collect_piece(
                program, state, cells, levels, fixed, fixed_proposer, room, inner_counters
            )
            done = size < LIST_WORDS
        if size == 0:
            return total
        lowest, highest = load(room, 0), load(room, size - 1)
        active_bitmap = np.int64(0)
        spread = np.uint64(highest) - np.uint64(lowest)
        often = size >= MIN_MARKED_VALUES and count >= MIN_MARKED_USES
        if often and weight != 0 and spread < np.uint64(BITMAP_BITS - 1):
            active_bitmap = bitmap
            update_bitmap(bitmap, room, np.int64(0), size, lowest, False)
        if listed:
            part = sum_values(
                program,
                state,
                cells,
                word,
                values,
                length,
                bound,
                room,
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
                cells,
                levels,
                level,
                proposer,
                moving,
                moving_depth,
                room,
                size,
                weight,
                active_bitmap,
                lowest,
                highest,
                counters,
            )
        total = add(total, part)
        if active_bitmap != 0:
            update_bitmap(bitmap, room, np.int64(0), size, lowest, True)
        if done:
            return total
        proposer, count = enter_level(program, state, cells, block, least, most)
