"""Induced subgraphs: a join of whole relations counts cliques among the neighbours of a vertex.

To count the 4-cliques of a whole graph, the join computes for each edge (a, b)::

    S = list(a) AND list(b)        sum over c in S of  | list(c) AND S |

All S of one vertex a are subsets of list(a), the *base list*. The *index* of a value is its
position in the base list. The join represents S and each ``list(c) AND list(a)`` by one bit for
each index. The second bitmap is the *row* of c in the adjacency matrix of the induced subgraph. It
does not depend on b, so it is computed once for all b, and each term of the sum is the bit count of
an AND. S itself is the row of b. In larger cliques, S is the AND of several rows.

A list becomes the base list when it takes part in two products, one after the other, and is a list
of the same run as list(c). The rows whose AND is S are computed at their first use. Any other row
is computed when the intersections without it have taken about as long as its computation.

Cost of ``| list(c) AND S |``: the words between the first and the last bit of S, or the number of
values of S if they are far fewer. Cost of a row: the length of list(c), or a search for each value
of a much shorter base list.

The state is one int64 array, whose words are zero at first: the header below; a bitmap of the base
list, and for each word of it the index of the first value in it; the state of each row; the rows.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.join.intersect import count_common
from dbsp_wcoj.kernels.join.join_layout import (
    BITMAP_BITS,
    BITMAP_WORDS,
    BLOCKS,
    COUNTER_BYTES,
    CURSOR_BYTES,
    FIRST_SLOT,
    HIGH,
    INTERSECTIONS,
    LEVEL_STATE_WORDS,
    LOW,
    MAX_ATOM_DEPTH,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    PROPOSALS,
    RUN,
    VALUE,
    VALUES,
)
from dbsp_wcoj.kernels.join.lists import find_only_list, leaf_values
from dbsp_wcoj.kernels.memory import count_ones, increment, load, load_value, prefetch, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.level_values import value_address
from dbsp_wcoj.kernels.storage.search import root_find, seek
from dbsp_wcoj.kernels.values.arithmetic import multiply, wrapping_subtract

# The header of the array.
CLOSING_RUN = 0  # address of the run with the lists of c, which are also the base lists
CAPACITY = 1  # maximum number of values of a base list
BASE_LIST = 2  # tagged address of the first value of the base list, 0 if there is none
BASE_SIZE = 3  # number of its values
BASE_GENERATION = 4  # number of base lists so far
LAST_LISTS = 5  # for each participant of the last product: address and number of values
MAX_PARTICIPANTS = 4
MARKS = LAST_LISTS + 2 * MAX_PARTICIPANTS
RANKS = MARKS + BITMAP_WORDS
ROW_STATES = RANKS + BITMAP_WORDS

# row_state[...]
ROW_GENERATION = 0  # the BASE_GENERATION for which the other words are valid
FIRST_VALUE = 1  # position of the first value of list(c)
LAST_VALUE = 2  # position after its last value
COST = 3  # number of values read so far without the row; `COMPUTED` if the row is computed
ROW_STATE_WORDS = 4
COMPUTED = -1

# A base list has at least this many values.
MIN_BASE_VALUES = 8
# Searching a value takes about as long as scanning this many.
SEARCH_COST = 16
# S is tested value by value if its bits are in more words than this for each value.
MAX_WORDS_PER_VALUE = 4
# Number of rows that prefetching is ahead.
PREFETCH_DISTANCE = 4


def subgraph_words(capacity: int) -> int:
    """Return the number of words of the array."""
    return ROW_STATES + capacity * (ROW_STATE_WORDS + ((capacity + 63) >> 6))


@subroutine
def mark_base_list(subgraph, is_erasing):
    """Mark the values of the base list, or erase them."""
    base, size = load(subgraph, BASE_LIST), load(subgraph, BASE_SIZE)
    lowest = load_value(base, 0) >> 6
    for position in range(size):
        value = load_value(base, position)
        word = (value >> 6) - lowest
        marks = load(subgraph, MARKS + word)
        if is_erasing:
            store(subgraph, MARKS + word, 0)
            continue
        if marks == 0:
            store(subgraph, RANKS + word, position)
        store(subgraph, MARKS + word, marks | (np.int64(1) << (value & 63)))


@subroutine
def bits_below(bit):
    """Return a word whose bits before ``bit``, which is less than 64, are set."""
    return wrapping_subtract(np.int64(1) << bit, np.int64(1))


@subroutine
def index_of(subgraph, word, value):
    """Return the index of a value of the base list, which is marked in ``word``."""
    below = load(subgraph, MARKS + word) & bits_below(value & 63)
    return load(subgraph, RANKS + word) + count_ones(below)


@subroutine
def set_base_list(subgraph, base, size):
    """Replace the base list by ``size`` values at the tagged address ``base``."""
    if load(subgraph, BASE_LIST) != 0:
        mark_base_list(subgraph, True)
    store(subgraph, BASE_LIST, base)
    store(subgraph, BASE_SIZE, size)
    store(subgraph, BASE_GENERATION, load(subgraph, BASE_GENERATION) + 1)
    mark_base_list(subgraph, False)


@subroutine
def choose_base_list(program, state, cursors, block, subgraph):
    """Replace the base list if a list of a product should become it.

    Returns whether a list of the product is the base list then.

    ``block`` is the block of the innermost variable without the closing atom.
    """
    participants = load(program, block + PARTICIPANTS)
    if participants > MAX_PARTICIPANTS:
        return False
    is_base = False
    chosen = chosen_size = np.int64(0)
    for index in range(participants):
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        cursor = find_only_list(program, state, cursors, participant)
        if cursor == 0:
            return False
        first = value_address(load(cursor, VALUES), load(cursor, LOW))
        size = load(cursor, HIGH) - load(cursor, LOW)
        is_base |= first == load(subgraph, BASE_LIST) and size == load(subgraph, BASE_SIZE)
        is_candidate = load(cursor, RUN) == load(subgraph, CLOSING_RUN)
        if is_base or not is_candidate or not MIN_BASE_VALUES <= size <= load(subgraph, CAPACITY):
            continue
        span = np.uint64(load_value(first, size - 1)) - np.uint64(load_value(first, 0))
        for other in range(MAX_PARTICIPANTS):
            last_list = LAST_LISTS + 2 * other
            is_repeated = first == load(subgraph, last_list)
            is_repeated &= size == load(subgraph, last_list + 1)
            if chosen == 0 and is_repeated and span < np.uint64(BITMAP_BITS - 64):
                chosen, chosen_size = first, size
    for index in range(participants):
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        cursor = find_only_list(program, state, cursors, participant)
        first = value_address(load(cursor, VALUES), load(cursor, LOW))
        store(subgraph, LAST_LISTS + 2 * index, first)
        store(subgraph, LAST_LISTS + 2 * index + 1, load(cursor, HIGH) - load(cursor, LOW))
    if is_base:
        return True
    if chosen == 0:
        return False
    set_base_list(subgraph, chosen, chosen_size)
    return True


@subroutine
def compute_row(subgraph, row, row_words, values, first, last):
    """Set the bits of the values at positions ``[first, last)`` that are in the base list."""
    base, size = load(subgraph, BASE_LIST), load(subgraph, BASE_SIZE)
    for word in range(row_words):
        store(row, word, 0)
    if size * SEARCH_COST < last - first:
        for index in range(size):
            value = load_value(base, index)
            first = seek(values, first, last, value)
            if first >= last:
                return
            if load_value(values, first) == value:
                word = index >> 6
                store(row, word, load(row, word) | (np.int64(1) << (index & 63)))
        return
    lowest, highest = load_value(base, 0), load_value(base, size - 1)
    if load_value(values, first) < lowest:
        first = seek(values, first, last, lowest)
    if first < last and load_value(values, last - 1) > highest:
        last = seek(values, first, last, highest + 1)
    lowest >>= 6
    for position in range(first, last):
        value = load_value(values, position)
        word = (value >> 6) - lowest
        if (load(subgraph, MARKS + word) >> (value & 63)) & 1 != 0:
            index = index_of(subgraph, word, value)
            word = index >> 6
            store(row, word, load(row, word) | (np.int64(1) << (index & 63)))


@subroutine
def find_list_of_row(subgraph, run, index, row_state):
    """Find the list of the value at ``index``, if its row is used for the first time."""
    generation = load(subgraph, BASE_GENERATION)
    if load(row_state, ROW_GENERATION) == generation:
        return
    nodes = load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES)
    value = load_value(load(subgraph, BASE_LIST), index)
    node, is_found = root_find(run, np.int64(0), nodes, value)
    first = last = np.int64(0)
    if is_found:
        offsets = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_OFFSETS)
        first, last = load(offsets, node), load(offsets, node + 1)
    store(row_state, ROW_GENERATION, generation)
    store(row_state, FIRST_VALUE, first)
    store(row_state, LAST_VALUE, last)
    store(row_state, COST, 0)


@subroutine
def find_first_value(program, state, level_states, level, atom):
    """Return the bound value of the first column of an atom, at a level before ``level``."""
    for earlier in range(level):
        block = load(program, load(program, BLOCKS) + earlier)
        for index in range(load(program, block + PARTICIPANTS)):
            participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
            if load(program, participant) == atom and load(program, participant + 1) == 0:
                return True, load(state, level_states + LEVEL_STATE_WORDS * earlier + VALUE)
    return False, np.int64(0)


@subroutine
def intersect_rows(program, state, cursors, level_states, level, block, subgraph, values, bits):
    """Write the product of the lists of a block as one bit for each index of the base list.

    Returns whether this was possible: each of the lists is the base list, or a list of
    `CLOSING_RUN` below a value of the base list, and not so short that a bitmap does not pay off.
    """
    base, base_size = load(subgraph, BASE_LIST), load(subgraph, BASE_SIZE)
    run = load(subgraph, CLOSING_RUN)
    row_words = (base_size + 63) >> 6
    row_states = subgraph + 8 * ROW_STATES
    rows = row_states + 8 * ROW_STATE_WORDS * load(subgraph, CAPACITY)
    lowest, highest = load_value(base, 0), load_value(base, base_size - 1)
    for word in range(row_words):
        store(bits, word, -1)
    if base_size & 63 != 0:
        store(bits, row_words - 1, bits_below(base_size & 63))
    for other in range(load(program, block + PARTICIPANTS)):
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * other
        cursor = find_only_list(program, state, cursors, participant)
        first, last = load(cursor, LOW), load(cursor, HIGH)
        list_address = value_address(load(cursor, VALUES), first)
        if list_address == base and last - first == base_size:
            continue
        if load(cursor, RUN) != run or load(program, participant + 1) != 1:
            return False
        if row_words > SEARCH_COST * (last - first):
            return False
        is_bound, value = find_first_value(
            program, state, level_states, level, load(program, participant)
        )
        if not is_bound or value < lowest or value > highest:
            return False
        word = (value >> 6) - (lowest >> 6)
        if (load(subgraph, MARKS + word) >> (value & 63)) & 1 == 0:
            return False
        index = index_of(subgraph, word, value)
        row_state = row_states + 8 * ROW_STATE_WORDS * index
        row = rows + 8 * row_words * index
        find_list_of_row(subgraph, run, index, row_state)
        if load(row_state, COST) != COMPUTED:
            compute_row(subgraph, row, row_words, values, first, last)
            store(row_state, COST, COMPUTED)
        for word in range(row_words):
            store(bits, word, load(bits, word) & load(row, word))
    return True


@subroutine
def list_indexes(bits, words, indexes):
    """Write the indexes whose bits are set; return how many there are."""
    size = np.int64(0)
    for word in range(words):
        rest = load(bits, word)
        while rest != 0:
            before_lowest = wrapping_subtract(rest, np.int64(1))
            store(indexes, size, (word << 6) + count_ones(before_lowest & ~rest))
            size += 1
            rest &= before_lowest
    return size


@subroutine
def count_in_row(row, bits, indexes, size, first_word, last_word):
    """Return how many of the indexes are in the row; ``bits`` has them as well."""
    common = np.int64(0)
    if last_word - first_word > MAX_WORDS_PER_VALUE * size:
        for position in range(size):
            index = load(indexes, position)
            common += (load(row, index >> 6) >> (index & 63)) & 1
    else:
        for word in range(first_word, last_word):
            common += count_ones(load(row, word) & load(bits, word))
    return common


@subroutine
def sum_subgraph(
    program,
    state,
    cursors,
    level_states,
    level,
    block,
    participant,
    product,
    indexes,
    bits,
    subgraph,
    counters,
):
    """Sum over two variables that extend the prefix by the same lists, without comparisons.

    Args:
        program: The program.
        state: The stack of the join.
        cursors: The part of the stack that has the cursors.
        level_states: The part of the stack that has the bound values.
        level: The level of the first of the two variables.
        block: The block of the second one without the closing atom.
        participant: The participant of the closing atom.
        product: Space for the values of both variables.
        indexes: Space for their indexes.
        bits: Space for a bit for each value of the base list.
        subgraph: The array.
        counters: The counters of the level.

    Returns:
        ``(is_computed, sum)``. The sum may be `OVERFLOWED`. ``is_computed`` is False if the closing
        atom is not exactly the run `CLOSING_RUN`, or if the lists are not those of
        `intersect_rows`.
    """
    zero = np.int64(0)
    run = load(subgraph, CLOSING_RUN)
    closing_atom = load(program, participant)
    slot = load(state, FIRST_SLOT + closing_atom)
    if (
        load(state, FIRST_SLOT + closing_atom + 1) - slot != 1
        or load(program, participant + 1) != 0
    ):
        return False, zero
    if load(cursors + CURSOR_BYTES * slot * load(program, MAX_ATOM_DEPTH), RUN) != run:
        return False, zero
    if not choose_base_list(program, state, cursors, block, subgraph):
        return False, zero
    values = leaf_values(run)
    if not intersect_rows(
        program, state, cursors, level_states, level, block, subgraph, values, bits
    ):
        return False, zero
    base, base_size = load(subgraph, BASE_LIST), load(subgraph, BASE_SIZE)
    row_words = (base_size + 63) >> 6
    row_states = subgraph + 8 * ROW_STATES
    rows = row_states + 8 * ROW_STATE_WORDS * load(subgraph, CAPACITY)
    size = list_indexes(bits, row_words, indexes)
    for position in range(size):
        store(product, position, load_value(base, load(indexes, position)))
    common = np.int64(0)
    inner_proposals = np.int64(0)
    first_word = last_word = zero
    if size > 0:
        first_word, last_word = load(indexes, 0) >> 6, (load(indexes, size - 1) >> 6) + 1
    for position in range(size):
        later = load(indexes, min(position + PREFETCH_DISTANCE, size - 1))
        prefetch(row_states, ROW_STATE_WORDS * later)
        prefetch(rows, row_words * later + first_word)
        index = load(indexes, position)
        row_state = row_states + 8 * ROW_STATE_WORDS * index
        find_list_of_row(subgraph, run, index, row_state)
        first, last = load(row_state, FIRST_VALUE), load(row_state, LAST_VALUE)
        length = last - first
        inner_proposals += min(length, size)
        if length == 0:
            continue
        row = rows + 8 * row_words * index
        cost = load(row_state, COST)
        if cost != COMPUTED:
            cost += min(length + size, SEARCH_COST * min(length, size))
            store(row_state, COST, cost)
            if cost < min(length, SEARCH_COST * base_size) + row_words // SEARCH_COST:
                common += count_common(product, zero, size, values, first, last)
                continue
            compute_row(subgraph, row, row_words, values, first, last)
            store(row_state, COST, COMPUTED)
        common += count_in_row(row, bits, indexes, size, first_word, last_word)
    # One proposal per value of the shortest list of the product for each of its other lists.
    shortest = base_size
    participants = load(program, block + PARTICIPANTS)
    weight = load(run, run_layout.UNIFORM_WEIGHT)
    factor = weight
    for position in range(participants):
        other = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * position
        cursor = find_only_list(program, state, cursors, other)
        shortest = min(shortest, load(cursor, HIGH) - load(cursor, LOW))
        factor = multiply(factor, multiply(weight, weight))
    inner_proposals += shortest * (participants - 1)
    increment(counters, PROPOSALS, size)
    increment(counters, INTERSECTIONS, size)
    increment(counters + COUNTER_BYTES, PROPOSALS, inner_proposals)
    increment(counters + COUNTER_BYTES, INTERSECTIONS, inner_proposals)
    return True, multiply(common, factor)
