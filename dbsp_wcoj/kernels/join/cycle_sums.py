"""The last two variables of a cycle, summed in one loop: where live counting spends its time.

    sum over v of  w(v) * ( sum over c of  m(v, c) * f(c) )

At the first of the two variables exactly two atoms meet: one is complete there (weight ``w``), the
other, ``m``, goes on to the innermost variable, where it meets an atom ``f`` that ``v`` does not
move. A triangle closes this way (``e(a, b)`` complete at b, ``e(b, c)`` goes on, ``e(a, c)`` is
fixed), and so does every longer cycle.

The sum is linear in each atom and each atom is the sum of its runs, so the runs are taken one by
one: no union is formed, and for one triple of runs everything but the cursor is in registers. A
join of whole relations gets ``m`` packed and takes it word by word
(`dbsp_wcoj.kernels.join.packed_lists`).
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compiled import compiled, subroutine
from dbsp_wcoj.kernels.join.cursors import excluded, fetch, subtree_weight
from dbsp_wcoj.kernels.join.packed_lists import sum_packed
from dbsp_wcoj.kernels.join.program import (
    BLOCKS,
    CELL_BYTES,
    COUNTER_BYTES,
    DEPTHS,
    END,
    FIRST_SLOT,
    HIGH,
    INTERSECTIONS,
    LEVEL_STATE_WORDS,
    LOW,
    MARK_WORDS,
    OFFSETS,
    PACKED,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    VALUE,
    VALUES,
)
from dbsp_wcoj.kernels.join.sums import choose_marked, multiply_lists, set_marks
from dbsp_wcoj.kernels.memory import count_up, load, store
from dbsp_wcoj.kernels.storage import run_layout as layout
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import add, multiply


@subroutine
def only_cell(state, cells, depths, atom, depth):
    """Return the cell of the only run of an atom at a depth, 0 when it has several or none."""
    slot = load(state, FIRST_SLOT + atom)
    if load(state, FIRST_SLOT + atom + 1) - slot != 1:
        return np.int64(0)
    return cells + CELL_BYTES * (slot * depths + depth)


@subroutine
def sum_whole(state, cells, depths, leaf, leaf_depth, moving, fixed, fixed_depth, marks, counters):
    """`sum_closing` where the atom that goes on is packed, and each atom one run of one weight.

    Args:
        state: The stack.
        cells: Its cells.
        depths: How many for each run.
        leaf: The atom that is complete, and proposes.
        leaf_depth: Its depth.
        moving: The atom that goes on from its root.
        fixed: The atom that is met at the innermost variable.
        fixed_depth: Its depth.
        marks: Bitmap, room for a list, and the packed run.
        counters: Of the level.

    Returns:
        ``(done, sum)``.
    """
    nothing = np.int64(0)
    packed = load(marks, PACKED)
    to = only_cell(state, cells, depths, moving, nothing)
    proposed = only_cell(state, cells, depths, leaf, leaf_depth)
    held = only_cell(state, cells, depths, fixed, fixed_depth)
    if to == 0 or proposed == 0 or held == 0 or load(to, RUN) != load(packed, nothing):
        return False, nothing
    leaf_run, fixed_run = load(proposed, RUN), load(held, RUN)
    if load(leaf_run, layout.WEIGHTS) != 0 or load(fixed_run, layout.WEIGHTS) != 0:
        return False, nothing
    if leaf_depth != load(leaf_run, layout.ARITY) - 1:
        return False, nothing
    start, end = load(proposed, POSITION), load(proposed, END)
    common, inner = sum_packed(
        packed,
        marks,
        marks + 8 * MARK_WORDS,
        load(held, VALUES),
        load(held, LOW),
        load(held, HIGH),
        load(proposed, VALUES),
        start,
        end,
        load(to, POSITION),
        load(to, END),
    )
    if common < 0:
        return False, nothing
    count_up(counters, PROPOSALS, end - start)
    count_up(counters, INTERSECTIONS, end - start)
    count_up(counters + COUNTER_BYTES, PROPOSALS, inner)
    count_up(counters + COUNTER_BYTES, INTERSECTIONS, inner)
    total = multiply(common, load(leaf_run, layout.UNIFORM))
    total = multiply(total, load(load(to, RUN), layout.UNIFORM))
    return True, multiply(total, load(fixed_run, layout.UNIFORM))


@compiled
def sum_closing(
    program, state, cells, levels, level, proposer, count, least, most, marks, counters
):
    """As `dbsp_wcoj.kernels.join.sums.sum_pairs`, for a level that is ``SUM_CLOSING``."""
    depths = load(program, DEPTHS)
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
    if direct and load(marks, PACKED) != 0:
        leaf = load(program, word)
        done, whole = sum_whole(
            state, cells, depths, leaf, depth, moving, fixed, fixed_depth, marks, counters
        )
        if done:
            return whole

    marked = choose_marked(program, state, cells, block, inner, count)
    mark_first: Any = np.int64(0)
    mark_last: Any = np.int64(0)
    lowest: Any = np.int64(0)
    highest: Any = np.int64(0)
    if marked != 0:
        mark_first, mark_last = load(marked, LOW), load(marked, HIGH)
        lowest = load(load(marked, VALUES), mark_first)
        highest = load(load(marked, VALUES), mark_last - 1)
        set_marks(marks, load(marked, VALUES), mark_first, mark_last, lowest, False)

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
        entry = layout.LEVELS + layout.LEVEL_WORDS * depth + layout.LEVEL_SIZE
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
            direct = other_depth == 0 and load(other_run, layout.DIRECTORY) != 0
            complete = run if proposer_complete else other_run
            complete_depth = depth if proposer_complete else other_depth
            plain = load(complete, layout.WEIGHTS) == 0
            plain &= complete_depth == load(complete, layout.ARITY) - 1
            proposals += end - start
            looked_up += end - start
            for position in range(start, end):
                value = load(values, position)
                if direct:
                    fetch(other_run, other, values, position, last, proposer_complete)
                    at = root_seek(other_run, at, other_end, value)
                else:
                    at = seek(other_values, at, other_end, value)
                if at >= other_end:
                    break
                if load(other_values, at) != value:
                    continue
                if compared:
                    store(state, levels + LEVEL_STATE_WORDS * level + VALUE, value)
                    if excluded(program, state, block, levels, value):
                        continue
                if proposer_complete:
                    leaf_run, leaf_depth, leaf = run, depth, position
                    going, node = other, at
                else:
                    leaf_run, leaf_depth, leaf = other_run, other_depth, at
                    going, node = cell, position
                if plain:
                    weight = load(leaf_run, layout.UNIFORM)
                else:
                    weight = subtree_weight(leaf_run, leaf_depth, leaf, leaf + 1)
                child = load(load(going, OFFSETS), node)
                child_end = load(load(going, OFFSETS), node + 1)
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
                        load(going, RUN),
                        load(going + CELL_BYTES, VALUES),
                        child,
                        child_end,
                        marks if fixed_cell == marked else np.int64(0),
                        lowest,
                        highest,
                    )
                    total = add(total, multiply(part, weight))
    count_up(counters, PROPOSALS, proposals)
    count_up(counters, INTERSECTIONS, looked_up)
    count_up(counters + COUNTER_BYTES, PROPOSALS, inner_proposals)
    count_up(counters + COUNTER_BYTES, INTERSECTIONS, inner_proposals)
    if marked != 0:
        set_marks(marks, load(marked, VALUES), mark_first, mark_last, lowest, True)
    return total
