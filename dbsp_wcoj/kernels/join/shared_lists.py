"""Detecting that the last two variables of a clique read the same lists, below the same prefix.

In that case the values of the last variable but one are those of the intersection that both share
(`dbsp_wcoj.kernels.join.clique_sums`).
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.join.join_layout import (
    CELL_BYTES,
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
def next_list(state, cells, depths, depth, slot, end):
    """Return the first slot from ``slot`` on with a non-empty list, or ``end``."""
    while slot < end:
        cell = cells + CELL_BYTES * (slot * depths + depth)
        if load(cell, LOW) < load(cell, HIGH):
            return slot
        slot += 1
    return end


@subroutine
def have_same_lists(program, state, cells, word, other_word):
    """Return whether two participants read the same lists in memory."""
    depths = load(program, MAX_ATOM_DEPTH)
    atom, depth = load(program, word), load(program, word + 1)
    other, other_depth = load(program, other_word), load(program, other_word + 1)
    end, other_end = load(state, FIRST_SLOT + atom + 1), load(state, FIRST_SLOT + other + 1)
    slot = next_list(state, cells, depths, depth, load(state, FIRST_SLOT + atom), end)
    first = load(state, FIRST_SLOT + other)
    other_slot = next_list(state, cells, depths, other_depth, first, other_end)
    while slot < end and other_slot < other_end:
        cell = cells + CELL_BYTES * (slot * depths + depth)
        same = cells + CELL_BYTES * (other_slot * depths + other_depth)
        if load(cell, VALUES) != load(same, VALUES) or load(cell, LOW) != load(same, LOW):
            return False
        slot = next_list(state, cells, depths, depth, slot + 1, end)
        other_slot = next_list(state, cells, depths, other_depth, other_slot + 1, other_end)
    return slot == end and other_slot == other_end


@subroutine
def are_leaves(program, state, cells, block):
    """Return whether all participants that are complete at a level are at their leaves there."""
    depths = load(program, MAX_ATOM_DEPTH)
    for index in range(load(program, block + PARTICIPANTS)):
        word = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom, depth = load(program, word), load(program, word + 1)
        slot = load(state, FIRST_SLOT + atom)
        empty = slot == load(state, FIRST_SLOT + atom + 1)
        if empty or load(program, word + 2) == 0:
            continue
        cell = cells + CELL_BYTES * (slot * depths + depth)
        if load(load(cell, RUN), run_layout.ARITY) != depth + 1:
            return False
    return True


@subroutine
def are_shared(program, state, cells, block, fixed, moving):
    """Return whether a level reads exactly the lists of the product and has no comparison."""
    first = block + PARTICIPANTS + 1
    participants = load(program, block + PARTICIPANTS)
    other_first = fixed + PARTICIPANTS + 1
    others = load(program, fixed + PARTICIPANTS)
    if participants - 1 != others:
        return False
    if load(program, first + PARTICIPANT_WORDS * participants) != 0:
        return False
    if load(program, other_first + PARTICIPANT_WORDS * others) != 0:
        return False
    used = np.int64(0)
    for index in range(participants):
        word = first + PARTICIPANT_WORDS * index
        if load(program, word) == moving:
            continue
        found = False
        for other in range(others):
            if (used >> other) & 1 == 0 and not found:
                found = have_same_lists(
                    program, state, cells, word, other_first + PARTICIPANT_WORDS * other
                )
                if found:
                    used |= np.int64(1) << other
        if not found:
            return False
    return True
