"""Products of lists: the common values of several atoms, each with the product of its weights.

    product(v) = Π over the atoms of ( Σ over the runs of the atom of weight(run, v) )

An atom is the sum of its runs, so it has one list per run. The lists of the atom with the fewest
values are added up. Every other atom then gives each of these values a weight, the sum over its
lists, and a value without weight is dropped. No union of long lists is formed. Values that are not
in an atom of one column with a bitmap are dropped before all of this.

``product`` is the address of the result: `LIST_WORDS` values, then their weights. ``scratch`` is
the address of an intermediate list of the same form, then of one factor for each value of the
product.

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.join.cursors import is_excluded, open_filter
from dbsp_wcoj.kernels.join.intersect import GALLOP_RATIO, leaf_weight
from dbsp_wcoj.kernels.join.join_layout import (
    CURSOR_BYTES,
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
from dbsp_wcoj.kernels.memory import increment, load, load_value, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.bitmap import count_bits, find_bitmap, has_bit
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.search import seek
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add, multiply

# product[...]: the values, then from this word on their weights
LIST_WEIGHTS = LIST_WORDS
# scratch[...]
OTHER_VALUES = 0
OTHER_WEIGHTS = LIST_WORDS
FACTORS = 2 * LIST_WORDS


@subroutine
def add_list(product, scratch, size, run, values, first, end):
    """Add a list to the list in ``product``; return the new size. There is space for both."""
    if size == 0:
        for position in range(first, end):
            store(product, position - first, load_value(values, position))
            store(product, LIST_WEIGHTS + position - first, leaf_weight(run, position))
        return end - first
    for position in range(size):
        store(scratch, OTHER_VALUES + position, load(product, position))
        store(scratch, OTHER_WEIGHTS + position, load(product, LIST_WEIGHTS + position))
    i = np.int64(0)
    written = np.int64(0)
    while i < size or first < end:
        if first == end:
            take_left, take_right = True, False
        elif i == size:
            take_left, take_right = False, True
        else:
            x, y = load(scratch, OTHER_VALUES + i), load_value(values, first)
            take_left, take_right = x <= y, y <= x
        weight = np.int64(0)
        value = np.int64(0)
        if take_left:
            value = load(scratch, OTHER_VALUES + i)
            weight = load(scratch, OTHER_WEIGHTS + i)
            i += 1
        if take_right:
            value = load_value(values, first)
            weight = add(weight, leaf_weight(run, first))
            first += 1
        if weight != 0:
            store(product, written, value)
            store(product, LIST_WEIGHTS + written, weight)
            written += 1
    return written


@subroutine
def add_factors(product, scratch, size, run, values, j, end):
    """Add the weights of a list to the factors of the values that it shares with ``product``."""
    i = np.int64(0)
    gallop = size * GALLOP_RATIO < end - j
    while i < size and j < end:
        x = load(product, i)
        if gallop:
            j = seek(values, j, end, x)
            if j == end:
                return
        y = load_value(values, j)
        if x == y:
            factor = add(load(scratch, FACTORS + i), leaf_weight(run, j))
            store(scratch, FACTORS + i, factor)
        i += np.int64(x <= y)
        j += np.int64(y <= x)


@subroutine
def apply_factors(product, scratch, size):
    """Multiply the weights by the factors; return how many values remain."""
    remaining = np.int64(0)
    for position in range(size):
        factor = load(scratch, FACTORS + position)
        if factor != 0:
            weight = multiply(load(product, LIST_WEIGHTS + position), factor)
            store(product, remaining, load(product, position))
            store(product, LIST_WEIGHTS + remaining, weight)
            remaining += 1
    return remaining


@subroutine
def drop_excluded(program, state, block, level_states, product, size):
    """Drop the values that a comparison of the block rules out; return how many remain."""
    remaining = np.int64(0)
    for position in range(size):
        value = load(product, position)
        if not is_excluded(program, state, block, level_states, value):
            store(product, remaining, value)
            store(product, LIST_WEIGHTS + remaining, load(product, LIST_WEIGHTS + position))
            remaining += 1
    return remaining


@subroutine
def leaf_values(run):
    """Return the tagged address of the values of the second column of a run."""
    return values_of(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS)


@subroutine
def find_only_list(program, state, cursors, participant):
    """Return the cursor of a participant's only list if it has uniform weight, else 0."""
    max_depth = load(program, MAX_ATOM_DEPTH)
    atom, depth = load(program, participant), load(program, participant + 1)
    only_cursor = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        if load(cursor, POSITION) < load(cursor, END):
            if only_cursor != 0 or load(load(cursor, RUN), run_layout.WEIGHT_SUMS) != 0:
                return np.int64(0)
            only_cursor = cursor
    return only_cursor


@subroutine
def write_common(a, i, end_a, b, j, end_b, out):
    """Write the common values of two lists, and return how many there are.

    ``out`` may be ``a`` itself: writing never gets ahead of ``i``.
    """
    common = np.int64(0)
    if (end_a - i) * GALLOP_RATIO < end_b - j:
        while i < end_a:
            value = load_value(a, i)
            j = seek(b, j, end_b, value)
            if j >= end_b:
                break
            if load_value(b, j) == value:
                store(out, common, value)
                common += 1
            i += 1
    else:
        while i < end_a and j < end_b:
            x = load_value(a, i)
            y = load_value(b, j)
            if x == y:
                store(out, common, x)
            common += np.int64(x == y)
            i += np.int64(x <= y)
            j += np.int64(y <= x)
    return common


@subroutine
def write_marked(values, first, end, bitmap, lowest, bits, out):
    """Write the values of a list that are in a bitmap, and return how many there are.

    ``out`` may be ``values`` itself, if ``first`` is 0.
    """
    written = np.int64(0)
    for position in range(first, end):
        value = load_value(values, position)
        store(out, written, value)
        written += np.int64(has_bit(bitmap, lowest, bits, value))
    return written


@subroutine
def add_marked_factors(product, scratch, size, run):
    """Like `add_factors` for a run of one column that has a bitmap and uniform weight."""
    bitmap, lowest, bits = find_bitmap(run), load(run, run_layout.LOWEST_VALUE), count_bits(run)
    weight = load(run, run_layout.UNIFORM_WEIGHT)
    for position in range(size):
        if has_bit(bitmap, lowest, bits, load(product, position)):
            store(scratch, FACTORS + position, add(load(scratch, FACTORS + position), weight))


@subroutine
def collect_single(program, state, cursors, block, proposer, excluded_atom, product, counters):
    """Like `collect_lists` if each participant has one list of uniform weight.

    Returns ``(done, size, weight)``; ``weight`` applies to all values and is not written. ``done``
    is False if a participant has several lists or weights, or if the weight overflows; then nothing
    may be read from ``product``.
    """
    first = block + PARTICIPANTS + 1
    shortest = find_only_list(program, state, cursors, first + PARTICIPANT_WORDS * proposer)
    if shortest == 0:
        return False, np.int64(0), np.int64(0)
    weight = load(load(shortest, RUN), run_layout.UNIFORM_WEIGHT)
    values, low, high = load(shortest, VALUES), load(shortest, POSITION), load(shortest, END)
    participants = load(program, block + PARTICIPANTS)
    for index in range(participants):
        participant = first + PARTICIPANT_WORDS * index
        if index == proposer or load(program, participant) == excluded_atom:
            continue
        cursor = find_only_list(program, state, cursors, participant)
        if cursor == 0:
            return False, np.int64(0), np.int64(0)
        run = load(cursor, RUN)
        weight = multiply(weight, load(run, run_layout.UNIFORM_WEIGHT))
        increment(counters, PROPOSALS, high - low)
        bitmap = find_bitmap(run)
        if bitmap != 0:
            lowest, bits = load(run, run_layout.LOWEST_VALUE), count_bits(run)
            high = write_marked(values, low, high, bitmap, lowest, bits, product)
        else:
            increment(counters, INTERSECTIONS, high - low)
            other_values = load(cursor, VALUES)
            high = write_common(
                values, low, high, other_values, load(cursor, POSITION), load(cursor, END), product
            )
        values, low = product, np.int64(0)
    if values != product:
        for position in range(low, high):
            store(product, position - low, load_value(values, position))
    return weight != OVERFLOWED, high - low, weight


@subroutine
def count_values(program, state, cursors, participant):
    """Return how many values the lists of a participant have between their cursors."""
    max_depth = load(program, MAX_ATOM_DEPTH)
    atom, depth = load(program, participant), load(program, participant + 1)
    length = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        length += load(cursor, END) - load(cursor, POSITION)
    return length


@subroutine
def collect_lists(
    program, state, cursors, level_states, block, excluded_atom, product, scratch, counters
):
    """Write the product of a block's participants, whose cursors are set, to ``product``.

    The atom ``excluded_atom`` (-1 for none) is left out. Every other participant is at the last
    column of its runs, so each of its values is one row.

    Returns:
        ``(done, size, weight)``: whether the product fits in its space, its number of values, and
        the weight of each value, or 0 if the weights differ and have been written.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    participants = load(program, block + PARTICIPANTS)
    first = block + PARTICIPANTS + 1
    proposer: Any = np.int64(-1)
    fewest: Any = np.int64(LIST_WORDS + 1)
    for index in range(participants):
        participant = first + PARTICIPANT_WORDS * index
        if load(program, participant) != excluded_atom:
            length = count_values(program, state, cursors, participant)
            if length < fewest:
                proposer, fewest = index, length
    if proposer < 0:
        return False, np.int64(0), np.int64(0)
    has_comparisons = load(program, first + PARTICIPANT_WORDS * participants) != 0
    if not has_comparisons:
        done, size, weight = collect_single(
            program, state, cursors, block, proposer, excluded_atom, product, counters
        )
        if done:
            return True, size, weight
    size = np.int64(0)
    bitmap, lowest, bits, _ = open_filter(program, state, cursors, block, proposer)
    participant = first + PARTICIPANT_WORDS * proposer
    atom, depth = load(program, participant), load(program, participant + 1)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        low, high = load(cursor, POSITION), load(cursor, END)
        if low >= high:
            continue
        run, values = load(cursor, RUN), load(cursor, VALUES)
        if bitmap != 0 and load(run, run_layout.WEIGHT_SUMS) == 0:
            # All weights are equal, so a copy of the values will do.
            increment(counters, PROPOSALS, high - low)
            copied = scratch + 8 * FACTORS
            high = write_marked(values, low, high, bitmap, lowest, bits, copied)
            values, low = copied, np.int64(0)
        if low < high:
            size = add_list(product, scratch, size, run, values, low, high)
    for index in range(participants):
        participant = first + PARTICIPANT_WORDS * index
        atom, depth = load(program, participant), load(program, participant + 1)
        if index == proposer or atom == excluded_atom or size == 0:
            continue
        increment(counters, PROPOSALS, size)
        searched = np.int64(0)
        for position in range(size):
            store(scratch, FACTORS + position, 0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
            low, high = load(cursor, POSITION), load(cursor, END)
            if low >= high:
                continue
            run = load(cursor, RUN)
            # A bitmap has all values, so the level must not be restricted.
            is_whole = high - low == load(run, run_layout.ROWS)
            is_uniform = load(run, run_layout.WEIGHT_SUMS) == 0
            if is_whole and is_uniform and find_bitmap(run) != 0:
                add_marked_factors(product, scratch, size, run)
            else:
                searched = size
                add_factors(product, scratch, size, run, load(cursor, VALUES), low, high)
        increment(counters, INTERSECTIONS, searched)
        size = apply_factors(product, scratch, size)
    if has_comparisons:
        size = drop_excluded(program, state, block, level_states, product, size)
    weight = np.int64(0)
    if size > 0:
        weight = load(product, LIST_WEIGHTS)
        for position in range(size):
            if load(product, LIST_WEIGHTS + position) != weight or weight == OVERFLOWED:
                weight = np.int64(0)
    return True, size, weight
