"""Shared lists: detect that the last two variables of a clique extend the prefix by equal lists.

In the 4-clique a, b, c, d, both c and d are in the intersection of the neighbours of a and of b. If
the join reads both from the same memory, one intersection serves both variables
(`dbsp_wcoj.kernels.join.clique_sums`). All functions read the state and the program only.

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.join.join_layout import (
    CURSOR_BYTES,
    FIRST_SLOT,
    HIGH,
    LOW,
    MAX_ATOM_DEPTH,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    RUN,
    VALUES,
)
from dbsp_wcoj.kernels.memory import load
from dbsp_wcoj.kernels.storage import run_layout


@subroutine
def next_list(state, cursors, max_depth, depth, slot, end):
    """Return the first slot from ``slot`` on with a non-empty list, or ``end``."""
    while slot < end:
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        if load(cursor, LOW) < load(cursor, HIGH):
            return slot
        slot += 1
    return end


@subroutine
def have_same_lists(program, state, cursors, participant, other_participant):
    """Return whether two participants read the same lists in memory."""
    max_depth = load(program, MAX_ATOM_DEPTH)
    atom, depth = load(program, participant), load(program, participant + 1)
    other, other_depth = load(program, other_participant), load(program, other_participant + 1)
    end, other_end = load(state, FIRST_SLOT + atom + 1), load(state, FIRST_SLOT + other + 1)
    slot = next_list(state, cursors, max_depth, depth, load(state, FIRST_SLOT + atom), end)
    first = load(state, FIRST_SLOT + other)
    other_slot = next_list(state, cursors, max_depth, other_depth, first, other_end)
    while slot < end and other_slot < other_end:
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        other_cursor = cursors + CURSOR_BYTES * (other_slot * max_depth + other_depth)
        if load(cursor, VALUES) != load(other_cursor, VALUES) or load(cursor, LOW) != load(
            other_cursor, LOW
        ):
            return False
        slot = next_list(state, cursors, max_depth, depth, slot + 1, end)
        other_slot = next_list(state, cursors, max_depth, other_depth, other_slot + 1, other_end)
    return slot == end and other_slot == other_end


@subroutine
def are_leaves(program, state, cursors, block):
    """Return whether the level is the last column of all participants that are complete at it."""
    max_depth = load(program, MAX_ATOM_DEPTH)
    for index in range(load(program, block + PARTICIPANTS)):
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom, depth = load(program, participant), load(program, participant + 1)
        slot = load(state, FIRST_SLOT + atom)
        is_empty = slot == load(state, FIRST_SLOT + atom + 1)
        if is_empty or load(program, participant + 2) == 0:
            continue
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        if load(load(cursor, RUN), run_layout.ARITY) != depth + 1:
            return False
    return True


@subroutine
def are_shared(program, state, cursors, block, fixed_block, closing_atom):
    """Return whether the last two variables are extended by the same lists, without comparisons.

    Args:
        program: The program.
        state: The stack.
        cursors: Its cursors.
        block: The block of the last variable but one.
        fixed_block: The block of the last variable without the atom ``closing_atom``.
        closing_atom: The atom that contains both variables; it is left out of both blocks.
    """
    first = block + PARTICIPANTS + 1
    participants = load(program, block + PARTICIPANTS)
    other_first = fixed_block + PARTICIPANTS + 1
    other_participants = load(program, fixed_block + PARTICIPANTS)
    if participants - 1 != other_participants:
        return False
    if load(program, first + PARTICIPANT_WORDS * participants) != 0:
        return False
    if load(program, other_first + PARTICIPANT_WORDS * other_participants) != 0:
        return False
    used_participants = np.int64(0)
    for index in range(participants):
        participant = first + PARTICIPANT_WORDS * index
        if load(program, participant) == closing_atom:
            continue
        is_shared = False
        for other in range(other_participants):
            if (used_participants >> other) & 1 == 0 and not is_shared:
                is_shared = have_same_lists(
                    program, state, cursors, participant, other_first + PARTICIPANT_WORDS * other
                )
                if is_shared:
                    used_participants |= np.int64(1) << other
        if not is_shared:
            return False
    return True
