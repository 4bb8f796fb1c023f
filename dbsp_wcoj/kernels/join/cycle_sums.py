"""Cycle sums: the sum over the last two variables v and c of a cycle, for a given prefix.

    sum over v of  w(v) * ( sum over c of  m(v, c) * f(c) )

Each letter is the weight of an atom. Exactly two atoms contain ``v``: the leaf atom ``w``, which
does not contain ``c``, and the closing atom ``m``, which contains both variables. Exactly two atoms
contain ``c``: the closing atom and the fixed atom ``f``, which does not depend on ``v``. In the
triangle ``e(a, b), e(b, c), e(a, c)`` with v = b, these are w, m and f in this order. Every longer
cycle ends in the same way. Counting cycles spends most of its time here.

The sum is linear in each atom and each atom is the sum of its runs. So the code loops over three
runs, one of each atom, and forms no union; the innermost loop has its variables in registers. A
join of whole relations reads ``m`` in another form: packed into bitmap words
(`dbsp_wcoj.kernels.join.packed_lists`), or as numbers of 32 bits, where some intersections are
deferred (`dbsp_wcoj.kernels.join.narrow_lists`).

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.cursors import is_excluded, prefetch_lookup, subtree_weight
from dbsp_wcoj.kernels.join.join_layout import (
    BLOCKS,
    CAN_DEFER,
    COUNTER_BYTES,
    CURSOR_BYTES,
    END,
    FIRST_LIST,
    FIRST_SLOT,
    HIGH,
    INTERSECTIONS,
    LEVEL_STATE_WORDS,
    LOW,
    MAX_ATOM_DEPTH,
    NARROW_LISTS,
    OFFSETS,
    PACKED_RUN,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    VALUE,
    VALUES,
    WEIGHT,
)
from dbsp_wcoj.kernels.join.long_lists import dot_long_lists, find_long_list
from dbsp_wcoj.kernels.join.narrow_lists import FIXED_RUN, sum_narrow
from dbsp_wcoj.kernels.join.packed_lists import sum_packed
from dbsp_wcoj.kernels.join.sums import choose_marked, dot_lists, erase_list, mark_list
from dbsp_wcoj.kernels.memory import increment, load, load_value, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import add, multiply


@subroutine
def find_only_cursor(state, cursors, max_depth, atom, depth):
    """Return the cursor of the only run of an atom at a depth, 0 if it has several or none."""
    slot = load(state, FIRST_SLOT + atom)
    if load(state, FIRST_SLOT + atom + 1) - slot != 1:
        return np.int64(0)
    return cursors + CURSOR_BYTES * (slot * max_depth + depth)


@subroutine
def sum_whole_cycle(
    program,
    state,
    cursors,
    max_depth,
    leaf_atom,
    leaf_depth,
    closing_atom,
    fixed_atom,
    fixed_depth,
    prefix_weight,
    bitmap_buffer,
    counters,
):
    """Compute `sum_cycle` if ``m`` is packed or narrow, and each atom is one run of equal weights.

    Args:
        program: The program.
        state: The stack of the join.
        cursors: The part of the stack that has the cursors.
        max_depth: Number of cursors of each run, one per depth.
        leaf_atom: The atom ``w``; it proposes.
        leaf_depth: The depth of ``v`` in it.
        closing_atom: The atom ``m``; ``v`` is its first column.
        fixed_atom: The atom ``f``.
        fixed_depth: The depth of ``c`` in it.
        prefix_weight: The weight of the prefix that is bound.
        bitmap_buffer: The bitmap, space for a list, and the addresses of the packed form of ``m``
            and of narrow lists.
        counters: The counters of the level.

    Returns:
        ``(is_computed, sum)``; the first is False if the condition does not hold.
    """
    zero = np.int64(0)
    packed, narrow = load(bitmap_buffer, PACKED_RUN), load(bitmap_buffer, NARROW_LISTS)
    closing_cursor = find_only_cursor(state, cursors, max_depth, closing_atom, zero)
    leaf_cursor = find_only_cursor(state, cursors, max_depth, leaf_atom, leaf_depth)
    fixed_cursor = find_only_cursor(state, cursors, max_depth, fixed_atom, fixed_depth)
    if closing_cursor == 0 or leaf_cursor == 0 or fixed_cursor == 0:
        return False, zero
    closing_run = load(closing_cursor, RUN)
    is_packed = packed != 0 and closing_run == load(packed, zero)
    # The weight of the prefix would be lost if a summand is deferred.
    is_narrow = (
        narrow != 0
        and closing_run == load(narrow, zero)
        and load(fixed_cursor, RUN) == load(narrow, FIXED_RUN)
        and fixed_depth == 1
        and load(program, CAN_DEFER) != 0
        and prefix_weight == 1
    )
    if not is_packed and not is_narrow:
        return False, zero
    leaf_run, fixed_run = load(leaf_cursor, RUN), load(fixed_cursor, RUN)
    if load(leaf_run, run_layout.WEIGHT_SUMS) != 0 or load(fixed_run, run_layout.WEIGHT_SUMS) != 0:
        return False, zero
    if leaf_depth != load(leaf_run, run_layout.ARITY) - 1:
        return False, zero
    start, end = load(leaf_cursor, POSITION), load(leaf_cursor, END)
    weight = multiply(
        load(leaf_run, run_layout.UNIFORM_WEIGHT), load(closing_run, run_layout.UNIFORM_WEIGHT)
    )
    weight = multiply(weight, load(fixed_run, run_layout.UNIFORM_WEIGHT))
    if is_packed:
        common, inner_proposals = sum_packed(
            packed,
            bitmap_buffer,
            bitmap_buffer + 8 * FIRST_LIST,
            load(fixed_cursor, VALUES),
            load(fixed_cursor, LOW),
            load(fixed_cursor, HIGH),
            load(leaf_cursor, VALUES),
            start,
            end,
            load(closing_cursor, POSITION),
            load(closing_cursor, END),
        )
        if common < 0:
            return False, zero
        total = multiply(common, weight)
    else:
        total, inner_proposals = sum_narrow(
            narrow,
            bitmap_buffer,
            bitmap_buffer + 8 * FIRST_LIST,
            load(fixed_cursor, LOW),
            load(fixed_cursor, HIGH),
            load(leaf_cursor, VALUES),
            start,
            end,
            load(closing_cursor, POSITION),
            load(closing_cursor, END),
            weight,
        )
    increment(counters, PROPOSALS, end - start)
    increment(counters, INTERSECTIONS, end - start)
    increment(counters + COUNTER_BYTES, PROPOSALS, inner_proposals)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner_proposals)
    return True, total


@kernel
def sum_cycle(
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
    """Return the sum of a cycle for the prefix that is bound.

    The variable of ``level`` is v, and that of the next level is c. The cursors of ``level`` are
    set. ``proposer`` is the position (0 or 1) of the proposing atom among the two of this level; it
    has ``count`` extensions. The bitmap, at the start of ``bitmap_buffer``, is all zero before and
    after. ``least_value`` and ``greatest_value`` are not used: all kernels of sums have the same
    parameters.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    block = load(program, load(program, BLOCKS) + level)
    inner_block = load(program, load(program, BLOCKS) + level + 1)
    first = block + PARTICIPANTS + 1
    participant = first + PARTICIPANT_WORDS * proposer
    other_participant = first + PARTICIPANT_WORDS * (1 - proposer)
    depth = load(program, participant + 1)
    other_depth = load(program, other_participant + 1)
    is_proposer_complete = load(program, participant + 2) != 0
    closing_atom = (
        load(program, other_participant) if is_proposer_complete else load(program, participant)
    )
    fixed_participant = inner_block + PARTICIPANTS + 1
    if load(program, fixed_participant) == closing_atom:
        fixed_participant += PARTICIPANT_WORDS
    fixed_atom = load(program, fixed_participant)
    fixed_depth = load(program, fixed_participant + 1)
    fixed_first = load(state, FIRST_SLOT + fixed_atom)
    fixed_end = load(state, FIRST_SLOT + fixed_atom + 1)
    has_comparisons = load(program, first + 2 * PARTICIPANT_WORDS) != 0
    fixed_length = np.int64(0)
    for slot in range(fixed_first, fixed_end):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + fixed_depth)
        fixed_length += load(cursor, HIGH) - load(cursor, LOW)
    if fixed_length == 0:
        return np.int64(0)
    can_be_whole = is_proposer_complete and other_depth == 0 and not has_comparisons
    has_lists = load(bitmap_buffer, PACKED_RUN) != 0 or load(bitmap_buffer, NARROW_LISTS) != 0
    if can_be_whole and has_lists:
        is_computed, whole_sum = sum_whole_cycle(
            program,
            state,
            cursors,
            max_depth,
            load(program, participant),
            depth,
            closing_atom,
            fixed_atom,
            fixed_depth,
            load(state, level_states + LEVEL_STATE_WORDS * level + WEIGHT),
            bitmap_buffer,
            counters,
        )
        if is_computed:
            return whole_sum

    marked_cursor = choose_marked(program, state, cursors, block, inner_block, count, bitmap_buffer)
    marked_slot: Any = np.int64(0)
    bitmap: Any = np.int64(0)
    lowest: Any = np.int64(0)
    highest: Any = np.int64(0)
    if marked_cursor != 0:
        bitmap, lowest, highest = mark_list(marked_cursor, bitmap_buffer)
        marked_slot = find_long_list(
            marked_cursor, load(marked_cursor, LOW), load(marked_cursor, HIGH)
        )

    total: Any = np.int64(0)
    proposals = np.int64(0)
    intersections = np.int64(0)
    inner_proposals = np.int64(0)
    # The words that are read in place of values, minus these values.
    words_read = np.int64(0)
    proposer_atom = load(program, participant)
    other_atom = load(program, other_participant)
    for slot in range(
        load(state, FIRST_SLOT + proposer_atom), load(state, FIRST_SLOT + proposer_atom + 1)
    ):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        start = load(cursor, POSITION)
        end = load(cursor, END)
        if start >= end:
            continue
        run = load(cursor, RUN)
        values = load(cursor, VALUES)
        level_header = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * depth
        last = load(run, level_header + run_layout.LEVEL_NODES) - 1
        for other_slot in range(
            load(state, FIRST_SLOT + other_atom), load(state, FIRST_SLOT + other_atom + 1)
        ):
            other = cursors + CURSOR_BYTES * (other_slot * max_depth + other_depth)
            other_position = load(other, POSITION)
            other_end = load(other, END)
            if other_position >= other_end:
                continue
            other_run = load(other, RUN)
            other_values = load(other, VALUES)
            has_directory = other_depth == 0 and load(other_run, run_layout.DIRECTORY) != 0
            # All values of the leaf atom have the same weight if each value is one row, and all
            # rows have the same weight.
            weighted_run = run if is_proposer_complete else other_run
            weighted_depth = depth if is_proposer_complete else other_depth
            has_uniform_weight = load(weighted_run, run_layout.WEIGHT_SUMS) == 0
            has_uniform_weight &= weighted_depth == load(weighted_run, run_layout.ARITY) - 1
            proposals += end - start
            intersections += end - start
            for position in range(start, end):
                value = load_value(values, position)
                if has_directory:
                    prefetch_lookup(other_run, other, values, position, last, is_proposer_complete)
                    other_position = root_seek(other_run, other_position, other_end, value)
                else:
                    other_position = seek(other_values, other_position, other_end, value)
                if other_position >= other_end:
                    break
                if load_value(other_values, other_position) != value:
                    continue
                if has_comparisons:
                    store(state, level_states + LEVEL_STATE_WORDS * level + VALUE, value)
                    if is_excluded(program, state, block, level_states, value):
                        continue
                if is_proposer_complete:
                    leaf_run, leaf_depth, leaf_node = run, depth, position
                    closing_cursor, closing_node = other, other_position
                else:
                    leaf_run, leaf_depth, leaf_node = other_run, other_depth, other_position
                    closing_cursor, closing_node = cursor, position
                if has_uniform_weight:
                    weight = load(leaf_run, run_layout.UNIFORM_WEIGHT)
                else:
                    weight = subtree_weight(leaf_run, leaf_depth, leaf_node, leaf_node + 1)
                child = load(load(closing_cursor, OFFSETS), closing_node)
                child_end = load(load(closing_cursor, OFFSETS), closing_node + 1)
                inner_proposals += min(child_end - child, fixed_length)
                for fixed_slot in range(fixed_first, fixed_end):
                    fixed_cursor = cursors + CURSOR_BYTES * (fixed_slot * max_depth + fixed_depth)
                    low = load(fixed_cursor, LOW)
                    high = load(fixed_cursor, HIGH)
                    if low >= high:
                        continue
                    if marked_slot != 0 and fixed_cursor == marked_cursor:
                        child_cursor = closing_cursor + CURSOR_BYTES
                        child_slot = find_long_list(child_cursor, child, child_end)
                        if child_slot != 0:
                            part, words = dot_long_lists(
                                fixed_cursor,
                                low,
                                high,
                                marked_slot,
                                child_cursor,
                                child,
                                child_end,
                                child_slot,
                            )
                            words_read += words - min(child_end - child, high - low)
                            total = add(total, multiply(part, weight))
                            continue
                    part = dot_lists(
                        load(fixed_cursor, RUN),
                        load(fixed_cursor, VALUES),
                        low,
                        high,
                        load(closing_cursor, RUN),
                        load(closing_cursor + CURSOR_BYTES, VALUES),
                        child,
                        child_end,
                        bitmap if fixed_cursor == marked_cursor else np.int64(0),
                        lowest,
                        highest,
                    )
                    total = add(total, multiply(part, weight))
    increment(counters, PROPOSALS, proposals)
    increment(counters, INTERSECTIONS, intersections)
    increment(counters + COUNTER_BYTES, PROPOSALS, inner_proposals)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, max(inner_proposals + words_read, 0))
    if marked_cursor != 0:
        erase_list(marked_cursor, bitmap_buffer)
    return total
