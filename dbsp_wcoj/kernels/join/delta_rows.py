"""Delta rows: bind the first variables of a join by reading the rows of a delta one after another.

If the first variables of a join are those of a delta (the driver), its run is read from the first
row to the last, and the values of each row are looked up in the other atoms::

    for each row of the delta:
        for each other atom:   look up the values of the row; skip the row if one is absent
        the weight of the row  =  its weight in the delta * the weights of the atoms it completes

This is cheaper than the general search: no atom is chosen to propose, and the data for the look-ups
of the next rows is prefetched.

The last driver variable may belong to a sum over several variables. If it has many values for one
prefix, `dbsp_wcoj.kernels.join.join` computes the sum for that prefix instead of reading its rows.
A delta of two columns with one more variable, such as that of a triangle, has a kernel that reads
all of its rows (`dbsp_wcoj.kernels.join.row_sums`).

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.join.cursors import (
    MAX_INT64,
    MIN_INT64,
    advance,
    is_excluded,
    prefetch_lookup,
    subtree_weight,
    value_range,
)
from dbsp_wcoj.kernels.join.join_layout import (
    ACTIVE_DRIVER_LEVELS,
    BLOCKS,
    COUNTER_BYTES,
    CURSOR_BYTES,
    DRIVER,
    DRIVER_LEVELS,
    END,
    FIRST_SLOT,
    HIGH,
    INTERSECTIONS,
    LEVEL_STATE_WORDS,
    LEVELS,
    LOW,
    MAX_ATOM_DEPTH,
    MEMO_KIND,
    MEMO_NONE,
    NARROW_LISTS,
    NO_KERNEL,
    OFFSETS,
    PACKED_RUN,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    ROW_SUM_KERNEL,
    RUN,
    SPLIT_LEVEL,
    SUM_KIND,
    SUM_LAST,
    SUM_NONE,
    VALUES,
    WEIGHT,
)
from dbsp_wcoj.kernels.join.memo import bind
from dbsp_wcoj.kernels.memory import increment, load, load_value, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.bitmap import count_bits, find_bitmap, has_bit
from dbsp_wcoj.kernels.storage.search import bisect, root_find
from dbsp_wcoj.kernels.values.arithmetic import add, multiply

# Results of `bind_next_row`: no row is left; all driver variables are bound; or all but the last
# one, and the caller sums over its values.
NO_ROW_LEFT, ROW_IS_BOUND, PREFIX_IS_BOUND = range(3)

# The rows of a prefix are summed over if there are at least this many.
MIN_SUMMED_ROWS = 4
# A run with fewer values at level 0 is in the cache anyway.
MIN_PREFETCH_NODES = 1 << 10


@subroutine
def is_driven(program, state):
    """Return whether the driver of the program reads exactly one run in this join."""
    driver = load(program, DRIVER)
    if load(program, DRIVER_LEVELS) == 0:
        return False
    return load(state, FIRST_SLOT + driver + 1) - load(state, FIRST_SLOT + driver) == 1


@subroutine
def open_level(program, state, cursors, level_states, level, low, high):
    """Set the driver's cursor to its extensions of the prefix.

    At the split level, only the values from ``low`` to ``high`` count.
    """
    block = load(program, load(program, BLOCKS) + level)
    slot = load(state, FIRST_SLOT + load(program, DRIVER))
    cursor = cursors + CURSOR_BYTES * (slot * load(program, MAX_ATOM_DEPTH) + level)
    least_value, greatest_value = MIN_INT64, MAX_INT64
    if level == load(program, SPLIT_LEVEL):
        least_value, greatest_value = low, high
    least_value, greatest_value = value_range(
        program, state, block, level_states, least_value, greatest_value
    )
    first, last = load(cursor, LOW), load(cursor, HIGH)
    store(cursor, END, last)
    if least_value > greatest_value:
        last = first
    if first < last and least_value > MIN_INT64:
        first = advance(state, cursor, level, first, least_value)
    if first < last and greatest_value < MAX_INT64:
        last = advance(state, cursor, level, first, greatest_value + 1)
    store(cursor, POSITION, first)
    store(cursor, END, last)


@subroutine
def bind_other_atoms(program, state, cursors, block, value, values, position, last, counters):
    """Bind ``value`` in every atom but the driver; return the weight of the complete atoms.

    For prefetching: ``value`` is at ``position`` of the driver's ``values``, the last one at
    ``last``.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    driver = load(program, DRIVER)
    weight = np.int64(1)
    for index in range(load(program, block + PARTICIPANTS)):
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom = load(program, participant)
        if atom == driver:
            continue
        depth = load(program, participant + 1)
        is_complete = load(program, participant + 2) != 0
        is_present = False
        is_searched = False
        atom_weight = np.int64(0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
            run = load(cursor, RUN)
            low, high = load(cursor, LOW), load(cursor, HIGH)
            if depth == 0 and load(run, run_layout.WEIGHT_SUMS) == 0:
                bitmap = find_bitmap(run)
                if bitmap != 0:
                    lowest = load(run, run_layout.LOWEST_VALUE)
                    if has_bit(bitmap, lowest, count_bits(run), value):
                        is_present = True
                        atom_weight = add(atom_weight, load(run, run_layout.UNIFORM_WEIGHT))
                    continue
            is_searched = True
            if depth == 0:
                if high > MIN_PREFETCH_NODES:
                    prefetch_lookup(run, cursor, values, position, last, not is_complete)
                node, is_matched = root_find(run, low, high, value)
            else:
                node = bisect(load(cursor, VALUES), low, high, value)
                is_matched = node < high and load_value(load(cursor, VALUES), node) == value
            is_present |= is_matched
            if is_complete:
                if is_matched:
                    node_weight = subtree_weight(run, depth, node, node + 1)
                    atom_weight = add(atom_weight, node_weight)
                continue
            child_cursor = cursor + CURSOR_BYTES
            if is_matched:
                store(child_cursor, LOW, load(load(cursor, OFFSETS), node))
                store(child_cursor, HIGH, load(load(cursor, OFFSETS), node + 1))
            else:
                store(child_cursor, LOW, 0)
                store(child_cursor, HIGH, 0)
        increment(counters, INTERSECTIONS, np.int64(is_searched))
        if not is_present:
            return np.int64(0)
        if is_complete:
            weight = multiply(weight, atom_weight)
    return weight


@subroutine
def bind_next_row(program, state, cursors, level_states, level, low, high, counters):
    """Bind the values of the driver's next row, from ``level`` on.

    Returns ``NO_ROW_LEFT``, ``ROW_IS_BOUND`` or ``PREFIX_IS_BOUND``. The weight of the bound values
    is stored as that of the first level that is not bound.
    """
    slot = load(state, FIRST_SLOT + load(program, DRIVER))
    last_driver_level = load(program, DRIVER_LEVELS) - 1
    first_cursor = cursors + CURSOR_BYTES * slot * load(program, MAX_ATOM_DEPTH)
    run = load(first_cursor, RUN)
    while True:
        cursor = first_cursor + CURSOR_BYTES * level
        position = load(cursor, POSITION)
        if position >= load(cursor, END):
            if level == 0:
                return NO_ROW_LEFT
            level -= 1
            continue
        store(cursor, POSITION, position + 1)
        block = load(program, load(program, BLOCKS) + level)
        level_state = level_states + LEVEL_STATE_WORDS * level
        values = load(cursor, VALUES)
        value = load_value(values, position)
        entry = (
            run_layout.LEVEL_HEADERS
            + run_layout.LEVEL_HEADER_WORDS * level
            + run_layout.LEVEL_NODES
        )
        last = load(run, entry) - 1
        bind(state, level_state, value)
        level_counters = counters + COUNTER_BYTES * level
        increment(level_counters, PROPOSALS, 1)
        weight = bind_other_atoms(
            program, state, cursors, block, value, values, position, last, level_counters
        )
        if weight == 0 or is_excluded(program, state, block, level_states, value):
            continue
        weight = multiply(load(state, level_state + WEIGHT), weight)
        if level == last_driver_level:
            weight = multiply(weight, subtree_weight(run, level, position, position + 1))
            store(state, level_state + LEVEL_STATE_WORDS + WEIGHT, weight)
            return ROW_IS_BOUND
        store(state, level_state + LEVEL_STATE_WORDS + WEIGHT, weight)
        offsets = load(cursor, OFFSETS)
        first, end = load(offsets, position), load(offsets, position + 1)
        level += 1
        store(cursor + CURSOR_BYTES, LOW, first)
        store(cursor + CURSOR_BYTES, HIGH, end)
        open_level(program, state, cursors, level_states, level, low, high)
        if level == last_driver_level and end - first >= MIN_SUMMED_ROWS:
            block = load(program, load(program, BLOCKS) + level)
            if load(program, block + SUM_KIND) != SUM_NONE:
                # The caller reads all rows of the prefix, so the next call continues after them.
                store(cursor + CURSOR_BYTES, POSITION, load(cursor + CURSOR_BYTES, END))
                return PREFIX_IS_BOUND


@subroutine
def is_sum_of_whole_lists(program, level):
    """Return whether a level sums over the common values of atoms, without any other condition.

    It is the last level and has no comparison, so `dbsp_wcoj.kernels.join.sums.sum_last` can read
    the lists as a whole, without cursors.
    """
    if level != load(program, LEVELS) - 1 or level == load(program, SPLIT_LEVEL):
        return False
    block = load(program, load(program, BLOCKS) + level)
    if load(program, block + SUM_KIND) != SUM_LAST or load(program, block + MEMO_KIND) != MEMO_NONE:
        return False
    participants = load(program, block + PARTICIPANTS)
    comparisons = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * participants
    return participants > 1 and load(program, comparisons) == 0


@subroutine
def is_row_sum(program, state, bitmap_buffer):
    """Return whether one kernel sums over all rows of the driver (`row_sums`).

    It is not used for a join of whole relations, which reads other forms of the lists.
    """
    is_whole = load(bitmap_buffer, PACKED_RUN) != 0 or load(bitmap_buffer, NARROW_LISTS) != 0
    has_kernel = load(program, ROW_SUM_KERNEL) != NO_KERNEL
    return has_kernel and load(state, ACTIVE_DRIVER_LEVELS) > 0 and not is_whole


@subroutine
def open_rows(program, state, cursors):
    """Set the driver's cursor at its second column to the first row of its current node."""
    slot = load(state, FIRST_SLOT + load(program, DRIVER))
    cursor = cursors + CURSOR_BYTES * slot * load(program, MAX_ATOM_DEPTH)
    store(cursor + CURSOR_BYTES, POSITION, load(load(cursor, OFFSETS), load(cursor, POSITION)))


@subroutine
def are_rows_read(program, state, cursors):
    """Return whether no node of the driver is left."""
    slot = load(state, FIRST_SLOT + load(program, DRIVER))
    cursor = cursors + CURSOR_BYTES * slot * load(program, MAX_ATOM_DEPTH)
    return load(cursor, POSITION) >= load(cursor, END)
