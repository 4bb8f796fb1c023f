"""Short lists with weights: the product of the lists that several atoms read below a prefix.

An atom is the sum of its runs, so it has one list per run. The lists of the atom with the fewest
values are added up. Every other atom then gives each of these values a weight, the sum over its
lists, and a value without weight is dropped. No union of long lists is formed.

The ``room`` of a product holds its values, then its weights; ``scratch`` holds intermediate lists.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.join.cursors import is_excluded
from dbsp_wcoj.kernels.join.intersect import GALLOP_RATIO, leaf_weight
from dbsp_wcoj.kernels.join.join_layout import (
    CELL_BYTES,
    END,
    FIRST_SLOT,
    INTERSECTIONS,
    LIST_WORDS,
    MAX_ATOM_DEPTH,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    VALUES,
)
from dbsp_wcoj.kernels.memory import increment, load, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add, multiply

# Start of the weights in a room, and of the parts of the scratch, in words.
LIST_WEIGHTS = LIST_WORDS
OTHER_VALUES = 0
OTHER_WEIGHTS = LIST_WORDS
FACTORS = 2 * LIST_WORDS


@subroutine
def add_list(room, scratch, size, run, values, first, end):
    """Add a list to the list in ``room``; return the new size. The room can hold both."""
    if size == 0:
        for position in range(first, end):
            store(room, position - first, load(values, position))
            store(room, LIST_WEIGHTS + position - first, leaf_weight(run, position))
        return end - first
    for position in range(size):
        store(scratch, OTHER_VALUES + position, load(room, position))
        store(scratch, OTHER_WEIGHTS + position, load(room, LIST_WEIGHTS + position))
    i = np.int64(0)
    written = np.int64(0)
    while i < size or first < end:
        if first == end:
            take_left, take_right = True, False
        elif i == size:
            take_left, take_right = False, True
        else:
            x, y = load(scratch, OTHER_VALUES + i), load(values, first)
            take_left, take_right = x <= y, y <= x
        weight = np.int64(0)
        value = np.int64(0)
        if take_left:
            value = load(scratch, OTHER_VALUES + i)
            weight = load(scratch, OTHER_WEIGHTS + i)
            i += 1
        if take_right:
            value = load(values, first)
            weight = add(weight, leaf_weight(run, first))
            first += 1
        if weight != 0:
            store(room, written, value)
            store(room, LIST_WEIGHTS + written, weight)
            written += 1
    return written


@subroutine
def add_factors(room, scratch, size, run, values, j, end):
    """Add the weights of a list to the factors of the values that it shares with ``room``."""
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
            factor = add(load(scratch, FACTORS + i), leaf_weight(run, j))
            store(scratch, FACTORS + i, factor)
        i += np.int64(x <= y)
        j += np.int64(y <= x)


@subroutine
def apply_factors(room, scratch, size):
    """Multiply the weights by the factors; return how many values remain."""
    kept = np.int64(0)
    for position in range(size):
        factor = load(scratch, FACTORS + position)
        if factor != 0:
            weight = multiply(load(room, LIST_WEIGHTS + position), factor)
            store(room, kept, load(room, position))
            store(room, LIST_WEIGHTS + kept, weight)
            kept += 1
    return kept


@subroutine
def drop_excluded(program, state, block, levels, room, size):
    """Drop the values that a ``!=`` of the block excludes; return how many remain."""
    kept = np.int64(0)
    for position in range(size):
        value = load(room, position)
        if not is_excluded(program, state, block, levels, value):
            store(room, kept, value)
            store(room, LIST_WEIGHTS + kept, load(room, LIST_WEIGHTS + position))
            kept += 1
    return kept


@subroutine
def find_only_list(program, state, cells, word):
    """Return the cell of a participant's only list if it has uniform weight, else 0."""
    depths = load(program, MAX_ATOM_DEPTH)
    atom, depth = load(program, word), load(program, word + 1)
    only = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        if load(cell, POSITION) < load(cell, END):
            if only != 0 or load(load(cell, RUN), run_layout.WEIGHT_SUMS) != 0:
                return np.int64(0)
            only = cell
    return only


@subroutine
def write_common(a, i, end_a, b, j, end_b, out):
    """Write the common values of two lists, and return how many there are.

    ``out`` may be ``a`` itself: writing never gets ahead of ``i``.
    """
    common = np.int64(0)
    if (end_a - i) * GALLOP_RATIO < end_b - j:
        while i < end_a:
            value = load(a, i)
            j = seek(b, j, end_b, value)
            if j >= end_b:
                break
            if load(b, j) == value:
                store(out, common, value)
                common += 1
            i += 1
    else:
        while i < end_a and j < end_b:
            x = load(a, i)
            y = load(b, j)
            if x == y:
                store(out, common, x)
            common += np.int64(x == y)
            i += np.int64(x <= y)
            j += np.int64(y <= x)
    return common


@subroutine
def collect_single(program, state, cells, block, proposer, without, room, counters):
    """Like `collect_lists` if each participant has one list of uniform weight.

    Returns ``(done, values, weight)``; ``weight`` applies to all values and is not written.
    """
    first = block + PARTICIPANTS + 1
    shortest = find_only_list(program, state, cells, first + PARTICIPANT_WORDS * proposer)
    if shortest == 0:
        return False, np.int64(0), np.int64(0)
    weight = load(load(shortest, RUN), run_layout.UNIFORM_WEIGHT)
    values, low, high = load(shortest, VALUES), load(shortest, POSITION), load(shortest, END)
    participants = load(program, block + PARTICIPANTS)
    for index in range(participants):
        word = first + PARTICIPANT_WORDS * index
        if index == proposer or load(program, word) == without:
            continue
        cell = find_only_list(program, state, cells, word)
        if cell == 0:
            return False, np.int64(0), np.int64(0)
        weight = multiply(weight, load(load(cell, RUN), run_layout.UNIFORM_WEIGHT))
        increment(counters, PROPOSALS, high - low)
        increment(counters, INTERSECTIONS, high - low)
        others = load(cell, VALUES)
        high = write_common(values, low, high, others, load(cell, POSITION), load(cell, END), room)
        values, low = room, np.int64(0)
    if values != room:
        for position in range(low, high):
            store(room, position - low, load(values, position))
    return weight != OVERFLOWED, high - low, weight


@subroutine
def count_values(program, state, cells, word):
    """Return how many values the lists of a participant have between their cursors."""
    depths = load(program, MAX_ATOM_DEPTH)
    atom, depth = load(program, word), load(program, word + 1)
    length = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        length += load(cell, END) - load(cell, POSITION)
    return length


@subroutine
def collect_lists(program, state, cells, levels, block, without, room, scratch, counters):
    """Write the product of a block's participants, whose cursors are set, to ``room``.

    All participants except the atom ``without`` (-1: none) are complete, at their leaves.

    Returns:
        ``(done, values, weight)``: whether the product fits in the room, its number of values, and
        the weight of each value, or 0 if the weights differ and have been written.
    """
    depths = load(program, MAX_ATOM_DEPTH)
    participants = load(program, block + PARTICIPANTS)
    first = block + PARTICIPANTS + 1
    proposer: Any = np.int64(-1)
    fewest: Any = np.int64(LIST_WORDS + 1)
    for index in range(participants):
        word = first + PARTICIPANT_WORDS * index
        if load(program, word) != without:
            length = count_values(program, state, cells, word)
            if length < fewest:
                proposer, fewest = index, length
    if proposer < 0:
        return False, np.int64(0), np.int64(0)
    compared = load(program, first + PARTICIPANT_WORDS * participants) != 0
    if not compared:
        done, size, weight = collect_single(
            program, state, cells, block, proposer, without, room, counters
        )
        if done:
            return True, size, weight
    size = np.int64(0)
    word = first + PARTICIPANT_WORDS * proposer
    atom, depth = load(program, word), load(program, word + 1)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        low, high = load(cell, POSITION), load(cell, END)
        if low < high:
            size = add_list(room, scratch, size, load(cell, RUN), load(cell, VALUES), low, high)
    for index in range(participants):
        word = first + PARTICIPANT_WORDS * index
        atom, depth = load(program, word), load(program, word + 1)
        if index == proposer or atom == without or size == 0:
            continue
        increment(counters, PROPOSALS, size)
        increment(counters, INTERSECTIONS, size)
        for position in range(size):
            store(scratch, FACTORS + position, 0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cell = cells + CELL_BYTES * (slot * depths + depth)
            low, high = load(cell, POSITION), load(cell, END)
            if low < high:
                add_factors(room, scratch, size, load(cell, RUN), load(cell, VALUES), low, high)
        size = apply_factors(room, scratch, size)
    if compared:
        size = drop_excluded(program, state, block, levels, room, size)
    weight = np.int64(0)
    if size > 0:
        weight = load(room, LIST_WEIGHTS)
        for position in range(size):
            if load(room, LIST_WEIGHTS + position) != weight or weight == OVERFLOWED:
                weight = np.int64(0)
    return True, size, weight
