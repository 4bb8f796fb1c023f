"""Short lists with weights: the product of the lists that several atoms read below a prefix.

An atom is the sum of its runs, so it has a list in each of them. The lists of the atom with the
fewest values are added up; every other atom then gives each of these values a weight, the sum of
what its lists have, and values that get none are dropped. No union of long lists is formed.

``room`` holds `LIST_ROOMS` arrays of `LIST_WORDS` words: values and weights of the product, and
what is needed on the way.
"""

import numpy as np
from numba import njit

from dbsp_wcoj.kernels.arithmetic import OVERFLOWED, add, multiply
from dbsp_wcoj.kernels.cursors import count_up, excluded
from dbsp_wcoj.kernels.intersect import GALLOP_RATIO, leaf_weight
from dbsp_wcoj.kernels.memory import load, store
from dbsp_wcoj.kernels.program import (
    CELL_BYTES,
    DEPTHS,
    END,
    FIRST_SLOT,
    INTERSECTIONS,
    LIST_WORDS,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    VALUES,
)
from dbsp_wcoj.kernels.search import seek

# Where the parts of the room begin, in words.
WEIGHTS = LIST_WORDS
OTHER_VALUES = 2 * LIST_WORDS
OTHER_WEIGHTS = 3 * LIST_WORDS
FACTORS = 4 * LIST_WORDS


@njit(nogil=True)
def add_list(room, size, run, values, first, end):
    """Add a list to the one in ``room``; return the new size. The room holds both together."""
    if size == 0:
        for position in range(first, end):
            store(room, position - first, load(values, position))
            store(room, WEIGHTS + position - first, leaf_weight(run, position))
        return end - first
    for position in range(size):
        store(room, OTHER_VALUES + position, load(room, position))
        store(room, OTHER_WEIGHTS + position, load(room, WEIGHTS + position))
    i = np.int64(0)
    written = np.int64(0)
    while i < size or first < end:
        if first == end:
            take_left, take_right = True, False
        elif i == size:
            take_left, take_right = False, True
        else:
            x, y = load(room, OTHER_VALUES + i), load(values, first)
            take_left, take_right = x <= y, y <= x
        weight = np.int64(0)
        value = np.int64(0)
        if take_left:
            value = load(room, OTHER_VALUES + i)
            weight = load(room, OTHER_WEIGHTS + i)
            i += 1
        if take_right:
            value = load(values, first)
            weight = add(weight, leaf_weight(run, first))
            first += 1
        if weight != 0:
            store(room, written, value)
            store(room, WEIGHTS + written, weight)
            written += 1
    return written


@njit(nogil=True)
def add_factors(room, size, run, values, j, end):
    """Add a list's weights to the factors of the values in ``room`` that it has."""
    i = np.int64(0)
    gallop = size * GALLOP_RATIO < end - j
    while i < size and j < end:
        x = load(room, i)
        if gallop:
            j = seek(values, j, end, x)
            if j == end:
                return
        y = load(values, j)
        if x == y:
            factor = add(load(room, FACTORS + i), leaf_weight(run, j))
            store(room, FACTORS + i, factor)
        i += np.int64(x <= y)
        j += np.int64(y <= x)


@njit(nogil=True)
def apply_factors(room, size):
    """Multiply the weights by the factors; return how many values are left."""
    kept = np.int64(0)
    for position in range(size):
        factor = load(room, FACTORS + position)
        if factor != 0:
            weight = multiply(load(room, WEIGHTS + position), factor)
            store(room, kept, load(room, position))
            store(room, WEIGHTS + kept, weight)
            kept += 1
    return kept


@njit(nogil=True)
def drop_excluded(program, state, block, levels, room, size):
    """Drop the values that a ``!=`` of the block rules out; return how many are left."""
    kept = np.int64(0)
    for position in range(size):
        value = load(room, position)
        if not excluded(program, state, block, levels, value):
            store(room, kept, value)
            store(room, WEIGHTS + kept, load(room, WEIGHTS + position))
            kept += 1
    return kept


@njit(nogil=True)
def collect_lists(program, state, cells, levels, block, proposer, room, counters):
    """Write the product of a block's participants, whose cursors have been set, to ``room``.

    Returns:
        ``(done, values, weight)``: whether there was room for it, how many values it has, and the
        weight of each of them, or 0 where they differ.
    """
    depths = load(program, DEPTHS)
    first = block + PARTICIPANTS + 1
    size = np.int64(0)
    word = first + PARTICIPANT_WORDS * proposer
    atom, depth = load(program, word), load(program, word + 1)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        low, high = load(cell, POSITION), load(cell, END)
        if low < high:
            if size + high - low > LIST_WORDS:
                return False, np.int64(0), np.int64(0)
            size = add_list(room, size, load(cell, RUN), load(cell, VALUES), low, high)
    for index in range(load(program, block + PARTICIPANTS)):
        if index == proposer or size == 0:
            continue
        count_up(counters, PROPOSALS, size)
        count_up(counters, INTERSECTIONS, size)
        word = first + PARTICIPANT_WORDS * index
        atom, depth = load(program, word), load(program, word + 1)
        for position in range(size):
            store(room, FACTORS + position, 0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cell = cells + CELL_BYTES * (slot * depths + depth)
            low, high = load(cell, POSITION), load(cell, END)
            if low < high:
                add_factors(room, size, load(cell, RUN), load(cell, VALUES), low, high)
        size = apply_factors(room, size)
    compared = first + PARTICIPANT_WORDS * load(program, block + PARTICIPANTS)
    if load(program, compared) != 0:
        size = drop_excluded(program, state, block, levels, room, size)
    weight = np.int64(0)
    if size > 0:
        weight = load(room, WEIGHTS)
        for position in range(size):
            if load(room, WEIGHTS + position) != weight or weight == OVERFLOWED:
                weight = np.int64(0)
    return True, size, weight
