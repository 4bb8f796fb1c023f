"""The last two variables of a cycle, summed in one loop, where live counting spends its time.

    sum over v of  w(v) * ( sum over c of  m(v, c) * f(c) )

Exactly two atoms meet at the first of the two variables. One is complete there (weight ``w``). The
other, ``m``, continues to the innermost variable, where it meets an atom ``f`` that does not depend
on ``v``. A triangle closes this way (``e(a, b)`` is complete at b, ``e(b, c)`` continues, and
``e(a, c)`` is fixed), and so does every longer cycle.

The sum is linear in each atom and each atom is the sum of its runs, so the runs are processed one
by one: no union is formed, and for one triple of runs everything but the cursor is in registers. A
join of whole relations packs ``m`` and processes it word by word
(`dbsp_wcoj.kernels.join.packed_lists`).
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.cursors import is_excluded, prefetch_lookup, subtree_weight
from dbsp_wcoj.kernels.join.join_layout import (
    BITMAP_WORDS,
    BLOCKS,
    CELL_BYTES,
    COUNTER_BYTES,
    END,
    FIRST_SLOT,
    HIGH,
    INTERSECTIONS,
    LEVEL_STATE_WORDS,
    LOW,
    MAX_ATOM_DEPTH,
    OFFSETS,
    PACKED_RUN,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    VALUE,
    VALUES,
)
from dbsp_wcoj.kernels.join.packed_lists import sum_packed
from dbsp_wcoj.kernels.join.sums import choose_marked, multiply_lists, update_bitmap
from dbsp_wcoj.kernels.memory import increment, load, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import add, multiply


@subroutine
def find_only_cell(state, cells, depths, atom, depth):
    """Return the cell of the only run of an atom at a depth, 0 if it has several or none."""
    slot = load(state, FIRST_SLOT + atom)
    if load(state, FIRST_SLOT + atom + 1) - slot != 1:
        return np.int64(0)
    return cells + CELL_BYTES * (slot * depths + depth)


@subroutine
def sum_packed_cycle(
    state, cells, depths, leaf, leaf_depth, moving, fixed, fixed_depth, bitmap, counters
):
    """Compute `sum_cycle` if ``m`` is packed and each atom is one run of uniform weight.

    Args:
        state: The stack.
        cells: Its cells.
        depths: Number of cells of each run.
        leaf: The atom that is complete; it proposes.
        leaf_depth: Its depth.
        moving: The atom that continues, from its root.
        fixed: The other atom of the innermost variable.
        fixed_depth: Its depth.
        bitmap: Bitmap, room for a list, and the packed run.
        counters: Of the level.

    Returns:
        ``(done, sum)``.
    """
    nothing = np.int64(0)
    packed = load(bitmap, PACKED_RUN)
    moving_cell = find_only_cell(state, cells, depths, moving, nothing)
    leaf_cell = find_only_cell(state, cells, depths, leaf, leaf_depth)
    fixed_cell = find_only_cell(state, cells, depths, fixed, fixed_depth)
    if (
        moving_cell == 0
        or leaf_cell == 0
        or fixed_cell == 0
        or load(moving_cell, RUN) != load(packed, nothing)
    ):
        return False, nothing
    leaf_run, fixed_run = load(leaf_cell, RUN), load(fixed_cell, RUN)
    if load(leaf_run, run_layout.WEIGHT_SUMS) != 0 or load(fixed_run, run_layout.WEIGHT_SUMS) != 0:
        return False, nothing
    if leaf_depth != load(leaf_run, run_layout.ARITY) - 1:
        return False, nothing
    start, end = load(leaf_cell, POSITION), load(leaf_cell, END)
    common, inner = sum_packed(
        packed,
        bitmap,
        bitmap + 8 * BITMAP_WORDS,
        load(fixed_cell, VALUES),
        load(fixed_cell, LOW),
        load(fixed_cell, HIGH),
        load(leaf_cell, VALUES),
        start,
        end,
        load(moving_cell, POSITION),
        load(moving_cell, END),
    )
    if common < 0:
        return False, nothing
    increment(counters, PROPOSALS, end - start)
    increment(counters, INTERSECTIONS, end - start)
    increment(counters + COUNTER_BYTES, PROPOSALS, inner)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner)
    total = multiply(common, load(leaf_run, run_layout.UNIFORM_WEIGHT))
    total = multiply(total, load(load(moving_cell, RUN), run_layout.UNIFORM_WEIGHT))
    return True, multiply(total, load(fixed_run, run_layout.UNIFORM_WEIGHT))


@kernel
def sum_cycle(program, state, cells, levels, level, proposer, count, least, most, bitmap, counters):
    """Like `dbsp_wcoj.kernels.join.sums.sum_pairs`, for a level of kind ``SUM_CYCLE``."""
    depths = load(program, MAX_ATOM_DEPTH)
    block = load(program, load(program, BLOCKS) + level)
    inner = load(program, load(program, BLOCKS) + level + 1)
    first = block + PARTICIPANTS + 1
    word = first + PARTICIPANT_WORDS * proposer
    other_word = first + PARTICIPANT_WORDS * (1 - proposer)
    depth = load(program, word + 1)
    other_depth = load(program, other_word + 1)
    proposer_complete = load(program, word + 2) != 0
    moving = load(program, other_word) if proposer_complete else load(program, word)
    fixed_word = inner + PARTICIPANTS + 1
    if load(program, fixed_word) == moving:
        fixed_word += PARTICIPANT_WORDS
    fixed = load(program, fixed_word)
    fixed_depth = load(program, fixed_word + 1)
    fixed_first = load(state, FIRST_SLOT + fixed)
    fixed_end = load(state, FIRST_SLOT + fixed + 1)
    compared = load(program, first + 2 * PARTICIPANT_WORDS) != 0
    fixed_length = np.int64(0)
    for slot in range(fixed_first, fixed_end):
        cell = cells + CELL_BYTES * (slot * depths + fixed_depth)
        fixed_length += load(cell, HIGH) - load(cell, LOW)
    if fixed_length == 0:
        return np.int64(0)
    direct = proposer_complete and other_depth == 0 and not compared
    if direct and load(bitmap, PACKED_RUN) != 0:
        leaf = load(program, word)
        done, whole = sum_packed_cycle(
            state, cells, depths, leaf, depth, moving, fixed, fixed_depth, bitmap, counters
        )
        if done:
            return whole

    marked_cell = choose_marked(program, state, cells, block, inner, count)
    mark_first: Any = np.int64(0)
    mark_last: Any = np.int64(0)
    lowest: Any = np.int64(0)
    highest: Any = np.int64(0)
    if marked_cell != 0:
        mark_first, mark_last = load(marked_cell, LOW), load(marked_cell, HIGH)
        lowest = load(load(marked_cell, VALUES), mark_first)
        highest = load(load(marked_cell, VALUES), mark_last - 1)
        update_bitmap(bitmap, load(marked_cell, VALUES), mark_first, mark_last, lowest, False)

    total: Any = np.int64(0)
    proposals = np.int64(0)
    looked_up = np.int64(0)
    inner_proposals = np.int64(0)
    proposer_atom = load(program, word)
    other_atom = load(program, other_word)
    for slot in range(
        load(state, FIRST_SLOT + proposer_atom), load(state, FIRST_SLOT + proposer_atom + 1)
    ):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        start = load(cell, POSITION)
        end = load(cell, END)
        if start >= end:
            continue
        run = load(cell, RUN)
        values = load(cell, VALUES)
        entry = (
            run_layout.LEVEL_HEADERS
            + run_layout.LEVEL_HEADER_WORDS * depth
            + run_layout.LEVEL_NODES
        )
        last = load(run, entry) - 1
        for other_slot in range(
            load(state, FIRST_SLOT + other_atom), load(state, FIRST_SLOT + other_atom + 1)
        ):
            other = cells + CELL_BYTES * (other_slot * depths + other_depth)
            at = load(other, POSITION)
            other_end = load(other, END)
            if at >= other_end:
                continue
            other_run = load(other, RUN)
            other_values = load(other, VALUES)
            direct = other_depth == 0 and load(other_run, run_layout.DIRECTORY) != 0
            complete = run if proposer_complete else other_run
            complete_depth = depth if proposer_complete else other_depth
            plain = load(complete, run_layout.WEIGHT_SUMS) == 0
            plain &= complete_depth == load(complete, run_layout.ARITY) - 1
            proposals += end - start
            looked_up += end - start
            for position in range(start, end):
                value = load(values, position)
                if direct:
                    prefetch_lookup(other_run, other, values, position, last, proposer_complete)
                    at = root_seek(other_run, at, other_end, value)
                else:
                    at = seek(other_values, at, other_end, value)
                if at >= other_end:
                    break
                if load(other_values, at) != value:
                    continue
                if compared:
                    store(state, levels + LEVEL_STATE_WORDS * level + VALUE, value)
                    if is_excluded(program, state, block, levels, value):
                        continue
                if proposer_complete:
                    leaf_run, leaf_depth, leaf = run, depth, position
                    moving_cell, node = other, at
                else:
                    leaf_run, leaf_depth, leaf = other_run, other_depth, at
                    moving_cell, node = cell, position
                if plain:
                    weight = load(leaf_run, run_layout.UNIFORM_WEIGHT)
                else:
                    weight = subtree_weight(leaf_run, leaf_depth, leaf, leaf + 1)
                child = load(load(moving_cell, OFFSETS), node)
                child_end = load(load(moving_cell, OFFSETS), node + 1)
                inner_proposals += min(child_end - child, fixed_length)
                for fixed_slot in range(fixed_first, fixed_end):
                    fixed_cell = cells + CELL_BYTES * (fixed_slot * depths + fixed_depth)
                    low = load(fixed_cell, LOW)
                    high = load(fixed_cell, HIGH)
                    if low >= high:
                        continue
                    part = multiply_lists(
                        load(fixed_cell, RUN),
                        load(fixed_cell, VALUES),
                        low,
                        high,
                        load(moving_cell, RUN),
                        load(moving_cell + CELL_BYTES, VALUES),
                        child,
                        child_end,
                        bitmap if fixed_cell == marked_cell else np.int64(0),
                        lowest,
                        highest,
                    )
                    total = add(total, multiply(part, weight))
    increment(counters, PROPOSALS, proposals)
    increment(counters, INTERSECTIONS, looked_up)
    increment(counters + COUNTER_BYTES, PROPOSALS, inner_proposals)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner_proposals)
    if marked_cell != 0:
        update_bitmap(bitmap, load(marked_cell, VALUES), mark_first, mark_last, lowest, True)
    return total
