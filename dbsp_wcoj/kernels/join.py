"""Generic join, compiled: one kernel for every query, any number of atoms, columns and runs.

    for each variable in order:
        count:      the atom with the fewest extensions of the prefix
        propose:    walks them,
        intersect:  every other atom seeks each of them from its last position

depth first, so that memory is the stack (Ngo, Ré, Rudra, "Skew Strikes Back", SIGMOD Record 42(4),
2013, section 3; the seeks within a level are those of Veldhuizen, "Leapfrog Triejoin", ICDT 2014,
section 3). An atom is the sum of its runs, each a weighted trie: it proposes the union of their
values and a value's weight is the sum of theirs. The weight of a prefix is multiplied by an atom's
weight where the atom binds its last needed column; columns that nothing else needs are never
walked, their subtree's weight is read from the running sums. Variables after the last head variable
are summed, and at the innermost of them two lists are multiplied without listing their
intersection (`dbsp_wcoj.kernels.intersect`).

Comparisons with bound variables and constants narrow the range of a level before it is walked.
"""

import numpy as np
from numba import njit

from dbsp_wcoj.kernels import layout
from dbsp_wcoj.kernels.arithmetic import add, fits, multiply
from dbsp_wcoj.kernels.compiled import compiled
from dbsp_wcoj.kernels.intersect import count_common, dot_checked, dot_common
from dbsp_wcoj.kernels.memory import load, store
from dbsp_wcoj.kernels.program import (
    AT_LEAST,
    AT_MOST,
    ATOM_DEPTHS,
    ATOMS,
    BLOCKS,
    CELL_BYTES,
    COMPARISON_WORDS,
    CONSTANT,
    DELTA,
    DEPTHS,
    DONE,
    EMITTED,
    END,
    ENTERING,
    EQUAL,
    FIRST_SLOT,
    FULL,
    GREATER,
    HEAD,
    HEAD_SIZE,
    HIGH,
    INTERSECTIONS,
    LESS,
    LEVEL,
    LEVEL_STATE_WORDS,
    LEVELS,
    LOW,
    MATCHED,
    OFFSETS,
    OVERFLOW,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    PROPOSER,
    RESUMED,
    RUN,
    SOURCE_WORDS,
    SPLIT,
    SUMMED,
    TABLE,
    TOTAL,
    UNEQUAL,
    VALUE,
    VALUES,
    WEIGHT,
    WITH_DELTA,
    WRITTEN,
)
from dbsp_wcoj.kernels.search import root_seek, seek

LOWEST = np.int64(-(2**63))
HIGHEST = np.int64(2**63 - 1)

# Small functions that the walk calls for every value.
inlined = njit(nogil=True, forceinline=True)


@inlined
def count_up(counters, counter, amount):
    """Add to a counter."""
    store(counters, counter, load(counters, counter) + amount)


@inlined
def advance(state, cell, depth, low, value):
    """Return the first position from ``low`` on whose value is at least ``value``."""
    if depth == 0:
        return root_seek(load(cell, RUN), low, load(cell, END), value)
    return seek(load(cell, VALUES), low, load(cell, END), value)


@njit(nogil=True)
def subtree_weight(run, depth, first, last):
    """Return ``(weight, overflowed)`` of all rows under the nodes ``[first, last)`` at ``depth``."""
    for level in range(depth, load(run, layout.ARITY) - 1):
        entry = layout.LEVELS + layout.LEVEL_WORDS * level
        offsets = load(run, entry + layout.LEVEL_OFFSETS)
        first = load(run, offsets + first)
        last = load(run, offsets + last)
    sums = load(run, layout.WEIGHTS)
    if sums == 0:
        return last - first, False
    if fits(last - first, load(run, layout.MAX_ABS_WEIGHT), 1):
        return load(run, sums + last) - load(run, sums + first), False
    total = np.int64(0)
    overflowed = False
    for row in range(first, last):
        weight = load(run, sums + row + 1) - load(run, sums + row)
        total, passed = add(total, weight)
        overflowed |= passed
    return total, overflowed


@njit(nogil=True)
def bind_run(state, cells, slot, depths, run):
    """Make ``run`` the given slot: fill its cells with what the walk needs of the header."""
    arity = load(run, layout.ARITY)
    for depth in range(depths):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        store(cell, RUN, run)
        store(cell, LOW, 0)
        store(cell, HIGH, 0)
        if depth < arity:
            entry = layout.LEVELS + layout.LEVEL_WORDS * depth
            store(cell, VALUES, run + (load(run, entry + layout.LEVEL_VALUES) << 3))
            store(cell, OFFSETS, run + (load(run, entry + layout.LEVEL_OFFSETS) << 3))
            if depth == 0:
                store(cell, HIGH, load(run, entry + layout.LEVEL_SIZE))


@njit(nogil=True)
def open_join(program, sources, deltas, state, cells, levels):
    """Bind all runs to slots; return ``overflowed``. The weight of level 0 is that of the atoms
    of which no column is bound."""
    depths = load(program, DEPTHS)
    slot = np.int64(0)
    weight = np.int64(1)
    overflowed = False
    for atom in range(load(program, ATOMS)):
        store(state, FIRST_SLOT + atom, slot)
        table = load(sources, atom * SOURCE_WORDS + TABLE)
        runs = load(table, 0) if table != 0 else np.int64(0)
        delta = np.int64(0)
        if load(sources, atom * SOURCE_WORDS + WITH_DELTA) != 0:
            delta = load(deltas, load(sources, atom * SOURCE_WORDS + DELTA))
        factor = np.int64(0)
        for index in range(runs + 1):
            run = load(table, 1 + index) if index < runs else delta
            if run == 0:
                continue
            if load(program, load(program, ATOM_DEPTHS) + atom) > 0:
                bind_run(state, cells, slot, depths, run)
            else:
                nodes = load(run, layout.LEVELS + layout.LEVEL_SIZE)
                part, passed = subtree_weight(run, 0, 0, nodes)
                factor, passed_too = add(factor, part)
                overflowed |= passed | passed_too
            slot += 1
        if load(program, load(program, ATOM_DEPTHS) + atom) == 0:
            weight, passed = multiply(weight, factor)
            overflowed |= passed
    store(state, FIRST_SLOT + load(program, ATOMS), slot)
    store(state, levels + WEIGHT, weight)
    return overflowed


@inlined
def value_range(program, state, block, levels, low, high):
    """Return the inclusive range of values that the comparisons of a level allow."""
    start = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * load(program, block + PARTICIPANTS)
    for index in range(load(program, start)):
        word = start + 1 + COMPARISON_WORDS * index
        operator = load(program, word)
        other = load(program, word + 2)
        if load(program, word + 1) != CONSTANT:
            other = load(state, levels + LEVEL_STATE_WORDS * other + VALUE)
        if operator == LESS:
            if other == LOWEST:
                return HIGHEST, LOWEST
            high = min(high, other - 1)
        elif operator == AT_MOST:
            high = min(high, other)
        elif operator == GREATER:
            if other == HIGHEST:
                return HIGHEST, LOWEST
            low = max(low, other + 1)
        elif operator == AT_LEAST:
            low = max(low, other)
        elif operator == EQUAL:
            low = max(low, other)
            high = min(high, other)
    return low, high


@inlined
def excluded(program, state, block, levels, value):
    """Return whether a ``!=`` of the level rules ``value`` out."""
    start = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * load(program, block + PARTICIPANTS)
    for index in range(load(program, start)):
        word = start + 1 + COMPARISON_WORDS * index
        if load(program, word) == UNEQUAL:
            other = load(program, word + 2)
            if load(program, word + 1) != CONSTANT:
                other = load(state, levels + LEVEL_STATE_WORDS * other + VALUE)
            if other == value:
                return True
    return False


@inlined
def enter(program, state, cells, block, low, high):
    """Count: set every participant's cursors to ``[low, high]``.

    Returns ``(proposer, count)``: the participant with the fewest extensions.
    """
    depths = load(program, DEPTHS)
    proposer = np.int64(-1)
    fewest = HIGHEST
    for index in range(load(program, block + PARTICIPANTS)):
        word = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom = load(program, word)
        depth = load(program, word + 1)
        count = np.int64(0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cell = cells + CELL_BYTES * (slot * depths + depth)
            first = load(cell, LOW)
            last = load(cell, HIGH)
            store(cell, END, last)
            if first < last and low > LOWEST:
                first = advance(state, cell, depth, first, low)
            if first < last and high < HIGHEST:
                last = advance(state, cell, depth, first, high + 1)
            store(cell, POSITION, first)
            store(cell, END, last)
            count += last - first
        if count < fewest:
            fewest = count
            proposer = index
    return proposer, fewest


@inlined
def smallest(state, cells, atom, depth, depths):
    """Return ``(found, value)``: the least value under the cursors of an atom."""
    found = False
    value = HIGHEST
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        position = load(cell, POSITION)
        if position < load(cell, END):
            found = True
            value = min(value, load(load(cell, VALUES), position))
    return found, value


@inlined
def move(state, cells, atom, depth, depths, value):
    """Move an atom's cursors to ``value`` or beyond, and mark the runs that have it.

    Returns ``(matched, found, least)``: whether any run has the value, and the least value at or
    after it if there is one.
    """
    matched = False
    found = False
    least = HIGHEST
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        store(cell, MATCHED, 0)
        position = load(cell, POSITION)
        if position >= load(cell, END):
            continue
        position = advance(state, cell, depth, position, value)
        store(cell, POSITION, position)
        if position < load(cell, END):
            found = True
            here = load(load(cell, VALUES), position)
            least = min(least, here)
            if here == value:
                matched = True
                store(cell, MATCHED, 1)
    return matched, found, least


@inlined
def next_value(program, state, cells, block, proposer, counters):
    """Propose and intersect: return ``(found, value)``, all participants' cursors on the value."""
    depths = load(program, DEPTHS)
    participants = load(program, block + PARTICIPANTS)
    first = block + PARTICIPANTS + 1
    word = first + PARTICIPANT_WORDS * proposer
    while True:
        found, value = smallest(state, cells, load(program, word), load(program, word + 1), depths)
        if not found:
            return False, value
        count_up(counters, PROPOSALS, 1)
        agreed = True
        target = value
        for index in range(participants):
            if index == proposer:
                continue
            other = first + PARTICIPANT_WORDS * index
            count_up(counters, INTERSECTIONS, 1)
            matched, found, least = move(
                state, cells, load(program, other), load(program, other + 1), depths, value
            )
            if not found:
                return False, value
            if not matched:
                agreed = False
                target = least
                break
        # On a miss the proposer leaps to the value that the other atom has next.
        move(state, cells, load(program, word), load(program, word + 1), depths, target)
        if agreed:
            return True, value


@inlined
def bind_value(program, state, cells, block, weight):
    """Descend below the matched value; return ``(weight, overflowed)`` with the factors of the
    atoms that are complete. Every cursor leaves the value."""
    depths = load(program, DEPTHS)
    overflowed = False
    for index in range(load(program, block + PARTICIPANTS)):
        word = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom = load(program, word)
        depth = load(program, word + 1)
        last = load(program, word + 2) != 0
        factor = np.int64(0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cell = cells + CELL_BYTES * (slot * depths + depth)
            position = load(cell, POSITION)
            matched = position < load(cell, END) and load(cell, MATCHED) != 0
            if last:
                if matched:
                    run = load(cell, RUN)
                    part, passed = subtree_weight(run, depth, position, position + 1)
                    factor, passed_too = add(factor, part)
                    overflowed |= passed | passed_too
            else:
                below = cell + CELL_BYTES
                store(below, LOW, 0)
                store(below, HIGH, 0)
                if matched:
                    offsets = load(cell, OFFSETS)
                    store(below, LOW, load(offsets, position))
                    store(below, HIGH, load(offsets, position + 1))
            if matched:
                store(cell, POSITION, position + 1)
                store(cell, MATCHED, 0)
        if last:
            weight, passed = multiply(weight, factor)
            overflowed |= passed
    return weight, overflowed


@njit(nogil=True)
def sum_one(program, state, cells, block):
    """Return ``(sum, overflowed)`` of the weights of all extensions of the only participant."""
    depths = load(program, DEPTHS)
    word = block + PARTICIPANTS + 1
    atom = load(program, word)
    depth = load(program, word + 1)
    total = np.int64(0)
    overflowed = False
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cell = cells + CELL_BYTES * (slot * depths + depth)
        first = load(cell, POSITION)
        last = load(cell, END)
        if first < last:
            part, passed = subtree_weight(load(cell, RUN), depth, first, last)
            total, passed_too = add(total, part)
            overflowed |= passed | passed_too
    return total, overflowed


@njit(nogil=True)
def sum_two(program, state, cells, block):
    """Return ``(sum, overflowed)`` over the common extensions of two participants at their leaves.

    A product of sums of runs is the sum over the pairs of runs.
    """
    depths = load(program, DEPTHS)
    word = block + PARTICIPANTS + 1
    left = load(program, word)
    left_depth = load(program, word + 1)
    right = load(program, word + PARTICIPANT_WORDS)
    right_depth = load(program, word + PARTICIPANT_WORDS + 1)
    total = np.int64(0)
    overflowed = False
    for slot in range(load(state, FIRST_SLOT + left), load(state, FIRST_SLOT + left + 1)):
        a = cells + CELL_BYTES * (slot * depths + left_depth)
        i = load(a, POSITION)
        end_a = load(a, END)
        if i >= end_a:
            continue
        run_a = load(a, RUN)
        sums_a = load(run_a, layout.WEIGHTS)
        for other in range(load(state, FIRST_SLOT + right), load(state, FIRST_SLOT + right + 1)):
            b = cells + CELL_BYTES * (other * depths + right_depth)
            j = load(b, POSITION)
            end_b = load(b, END)
            if j >= end_b:
                continue
            run_b = load(b, RUN)
            sums_b = load(run_b, layout.WEIGHTS)
            if sums_a == 0 and sums_b == 0:
                part = count_common(load(a, VALUES), i, end_a, load(b, VALUES), j, end_b)
            else:
                length = min(end_a - i, end_b - j)
                largest_a = load(run_a, layout.MAX_ABS_WEIGHT)
                largest_b = load(run_b, layout.MAX_ABS_WEIGHT)
                first = 0 if sums_a == 0 else run_a + (sums_a << 3)
                second = 0 if sums_b == 0 else run_b + (sums_b << 3)
                left_values = load(a, VALUES)
                right_values = load(b, VALUES)
                if fits(length, largest_a, largest_b):
                    part = dot_common(left_values, first, i, end_a, right_values, second, j, end_b)
                else:
                    part, passed = dot_checked(
                        left_values, first, i, end_a, right_values, second, j, end_b
                    )
                    overflowed |= passed
            total, passed = add(total, part)
            overflowed |= passed
    return total, overflowed


@njit(nogil=True)
def emit(program, state, levels, weight, out, capacity):
    """Append the bound head values and the weight to ``out``, of shape ``(head + 1, capacity)``."""
    row = load(state, WRITTEN)
    size = load(program, HEAD_SIZE)
    for column in range(size):
        level = load(program, load(program, HEAD) + column)
        value = load(state, levels + LEVEL_STATE_WORDS * level + VALUE)
        store(out, capacity * column + row, value)
    store(out, capacity * size + row, weight)
    store(state, WRITTEN, row + 1)


@compiled
def join(program, sources, deltas, low, high, state, out, capacity, counters):
    """Run or resume a join until it is done or ``out`` is full.

    All arguments are int64; arrays are given by their addresses.

    Args:
        program, sources, state: see `dbsp_wcoj.kernels.program`.
        deltas: addresses of the step's delta runs, 0 for none.
        low, high: inclusive range of the values of the level ``program[SPLIT]``.
        out: array of shape ``(head + 1, capacity)``; the last row holds weights.
        capacity: how many rows fit in ``out``.
        counters: proposals and intersections are added here.

    Returns:
        ``DONE``, ``FULL`` (take ``state[WRITTEN]`` rows, set it to 0, call again), or ``OVERFLOW``.
        With an empty head the weight is ``state[TOTAL]``.
    """
    depth_count = load(program, LEVELS)
    emitted = load(program, EMITTED)
    levels = FIRST_SLOT + load(program, ATOMS) + 1
    cells = state + 8 * (levels + LEVEL_STATE_WORDS * (depth_count + 1))
    if load(state, RESUMED) == 0:
        store(state, TOTAL, 0)
        store(state, WRITTEN, 0)
        if open_join(program, sources, deltas, state, cells, levels):
            return OVERFLOW
        if depth_count == 0:
            store(state, TOTAL, load(state, levels + WEIGHT))
            return DONE
        if load(state, levels + WEIGHT) == 0:
            return DONE
        store(state, LEVEL, 0)
        store(state, ENTERING, 1)
        store(state, RESUMED, 1)
    level = load(state, LEVEL)
    entering = load(state, ENTERING) != 0
    total = load(state, TOTAL)
    while True:
        if emitted > 0 and load(state, WRITTEN) == capacity:
            store(state, LEVEL, level)
            store(state, ENTERING, 1 if entering else 0)
            store(state, TOTAL, total)
            return FULL
        block = load(program, load(program, BLOCKS) + level)
        here = levels + LEVEL_STATE_WORDS * level
        found = True
        if entering:
            entering = False
            least = low if level == load(program, SPLIT) else LOWEST
            most = high if level == load(program, SPLIT) else HIGHEST
            least, most = value_range(program, state, block, levels, least, most)
            found = least <= most
            if found:
                proposer, count = enter(program, state, cells, block, least, most)
                store(state, here + PROPOSER, proposer)
                found = count > 0
                if found and load(program, block + SUMMED) != 0:
                    count_up(counters, PROPOSALS, count)
                    if load(program, block + PARTICIPANTS) == 1:
                        part, passed = sum_one(program, state, cells, block)
                    else:
                        count_up(counters, INTERSECTIONS, count)
                        part, passed = sum_two(program, state, cells, block)
                    part, passed_too = multiply(load(state, here + WEIGHT), part)
                    total, passed_again = add(total, part)
                    if passed or passed_too or passed_again:
                        return OVERFLOW
                    found = False
        if found:
            found, value = next_value(
                program, state, cells, block, load(state, here + PROPOSER), counters
            )
        if not found:
            # All extensions of this prefix are done: back to the level above.
            if level == 0:
                store(state, TOTAL, total)
                return DONE
            level -= 1
            if level == emitted - 1 and total != 0:
                emit(program, state, levels, total, out, capacity)
                total = np.int64(0)
            continue
        store(state, here + VALUE, value)
        weight, passed = bind_value(program, state, cells, block, load(state, here + WEIGHT))
        if passed:
            return OVERFLOW
        if weight == 0 or excluded(program, state, block, levels, value):
            continue
        if level < depth_count - 1:
            level += 1
            store(state, here + LEVEL_STATE_WORDS + WEIGHT, weight)
            entering = True
        elif emitted == depth_count:
            emit(program, state, levels, weight, out, capacity)
        else:
            total, passed = add(total, weight)
            if passed:
                return OVERFLOW
