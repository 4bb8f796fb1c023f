"""The rows of a delta, one after another: the first variables of a term that starts at a delta.

The variables of a delta are bound first. Its run is read from the first row to the last, and every
other atom looks its values up. There is no choice of a proposer and no leap, and the data for the
look-ups of the next rows is prefetched. A delta must be read anyway, so this costs no more than
its rows. If the delta is the proposer, as it nearly always is, this costs far less.

If the last of these variables can be summed together with the following ones and has many values
below one prefix, the walk of `dbsp_wcoj.kernels.join.join` takes over for that prefix.
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
    BLOCKS,
    CELL_BYTES,
    COUNTER_BYTES,
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
    MEMO_KEY_LEVEL,
    OFFSETS,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    SPLIT_LEVEL,
    SUM_KIND,
    SUM_LAST,
    SUM_NONE,
    VALUE,
    VALUES,
    WEIGHT,
)
from dbsp_wcoj.kernels.memory import increment, load, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import bisect, root_find
from dbsp_wcoj.kernels.values.arithmetic import add, multiply

# Results of `next_row`: no more rows, a row, or a prefix with many rows that are summed at once.
NO_ROW, ROW, GROUP = range(3)

# Least number of rows of a prefix that are summed at once.
MIN_GROUP_ROWS = 4
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
def open_level(program, state, cells, levels, level, low, high):
    """Set the driver's cursor to its values below the prefix; ``[low, high]`` at the split."""
    block = load(program, load(program, BLOCKS) + level)
    slot = load(state, FIRST_SLOT + load(program, DRIVER))
    cell = cells + CELL_BYTES * (slot * load(program, MAX_ATOM_DEPTH) + level)
    least, most = MIN_INT64, MAX_INT64
    if level == load(program, SPLIT_LEVEL):
        least, most = low, high
    least, most = value_range(program, state, block, levels, least, most)
    first, last = load(cell, LOW), load(cell, HIGH)
    store(cell, END, last)
    if least > most:
        last = first
    if first < last and least > MIN_INT64:
        first = advance(state, cell, level, first, least)
    if first < last and most < MAX_INT64:
        last = advance(state, cell, level, first, most + 1)
    store(cell, POSITION, first)
    store(cell, END, last)


@subroutine
def bind_other_atoms(program, state, cells, block, value, values, position, last, counters):
    """Bind ``value`` in every atom but the driver; return the weight of the complete atoms."""
    depths = load(program, MAX_ATOM_DEPTH)
    driver = load(program, DRIVER)
    weight = np.int64(1)
    for index in range(load(program, block + PARTICIPANTS)):
        word = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom = load(program, word)
        if atom == driver:
            continue
        depth = load(program, word + 1)
        complete = load(program, word + 2) != 0
        increment(counters, INTERSECTIONS, 1)
        found = False
        factor = np.int64(0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cell = cells + CELL_BYTES * (slot * depths + depth)
            run = load(cell, RUN)
            low, high = load(cell, LOW), load(cell, HIGH)
            if depth == 0:
                if high > MIN_PREFETCH_NODES:
                    prefetch_lookup(run, cell, values, position, last, not complete)
                at, matched = root_find(run, low, high, value)
            else:
                at = bisect(load(cell, VALUES), low, high, value)
                matched = at < high and load(load(cell, VALUES), at) == value
            found |= matched
            if complete:
                if matched:
                    factor = add(factor, subtree_weight(run, depth, at, at + 1))
                continue
            below = cell + CELL_BYTES
            if matched:
                store(below, LOW, load(load(cell, OFFSETS), at))
                store(below, HIGH, load(load(cell, OFFSETS), at + 1))
            else:
                store(below, LOW, 0)
                store(below, HIGH, 0)
        if not found:
            return np.int64(0)
        if complete:
            weight = multiply(weight, factor)
    return weight


@subroutine
def next_row(program, state, cells, levels, level, low, high, counters):
    """Bind the next row of the driver, from ``level`` on, and return its kind.

    ``ROW`` sets the weight of the level after the driver levels. ``GROUP`` sets that of the last
    driver level, and `dbsp_wcoj.kernels.join.join` enters the driver's values there.
    """
    slot = load(state, FIRST_SLOT + load(program, DRIVER))
    bottom = load(program, DRIVER_LEVELS) - 1
    first_cell = cells + CELL_BYTES * slot * load(program, MAX_ATOM_DEPTH)
    run = load(first_cell, RUN)
    while True:
        cell = first_cell + CELL_BYTES * level
        position = load(cell, POSITION)
        if position >= load(cell, END):
            if level == 0:
                return NO_ROW
            level -= 1
            continue
        store(cell, POSITION, position + 1)
        block = load(program, load(program, BLOCKS) + level)
        here = levels + LEVEL_STATE_WORDS * level
        values = load(cell, VALUES)
        value = load(values, position)
        entry = (
            run_layout.LEVEL_HEADERS
            + run_layout.LEVEL_HEADER_WORDS * level
            + run_layout.LEVEL_NODES
        )
        last = load(run, entry) - 1
        store(state, here + VALUE, value)
        counted = counters + COUNTER_BYTES * level
        increment(counted, PROPOSALS, 1)
        weight = bind_other_atoms(
            program, state, cells, block, value, values, position, last, counted
        )
        if weight == 0 or is_excluded(program, state, block, levels, value):
            continue
        weight = multiply(load(state, here + WEIGHT), weight)
        if level == bottom:
            weight = multiply(weight, subtree_weight(run, level, position, position + 1))
            store(state, here + LEVEL_STATE_WORDS + WEIGHT, weight)
            return ROW
        store(state, here + LEVEL_STATE_WORDS + WEIGHT, weight)
        offsets = load(cell, OFFSETS)
        first, end = load(offsets, position), load(offsets, position + 1)
        level += 1
        store(cell + CELL_BYTES, LOW, first)
        store(cell + CELL_BYTES, HIGH, end)
        open_level(program, state, cells, levels, level, low, high)
        if level == bottom and end - first >= MIN_GROUP_ROWS:
            block = load(program, load(program, BLOCKS) + level)
            if load(program, block + SUM_KIND) != SUM_NONE:
                store(cell + CELL_BYTES, POSITION, load(cell + CELL_BYTES, END))
                return GROUP


@subroutine
def is_pair_sum(program, level):
    """Return whether a level is the last, a sum over two atoms, and has no comparison."""
    if level != load(program, LEVELS) - 1 or level == load(program, SPLIT_LEVEL):
        return False
    block = load(program, load(program, BLOCKS) + level)
    if load(program, block + SUM_KIND) != SUM_LAST or load(program, block + MEMO_KEY_LEVEL) >= 0:
        return False
    after = block + PARTICIPANTS + 1 + 2 * PARTICIPANT_WORDS
    return load(program, block + PARTICIPANTS) == 2 and load(program, after) == 0
