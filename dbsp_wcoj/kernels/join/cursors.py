"""Cursors of a join: count, propose and intersect the extensions of a prefix.

A prefix is the values of the variables bound so far; an extension is a value of the next variable.
A slot is one run of one atom. It has one cursor per depth (`dbsp_wcoj.kernels.join.join_layout`):
its position among the extensions of the prefix. An atom is the sum of its slots: it proposes the
union of their values, and the weight of a value is the sum of its weights in the slots::

    extensions(prefix) = ∩ over the participants of ∪ over their slots of values(slot, prefix)

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.join.join_layout import (
    AT_LEAST,
    AT_MOST,
    ATOM_DEPTHS,
    ATOMS,
    COMPARISON_WORDS,
    CONSTANT,
    CURSOR_BYTES,
    DELTA_INDEX,
    END,
    EQUAL,
    FIRST_SLOT,
    GREATER,
    HIGH,
    INTERSECTIONS,
    IS_MATCHED,
    LESS,
    LEVEL_STATE_WORDS,
    LIST_BITMAPS,
    LOW,
    MAX_ATOM_DEPTH,
    OFFSETS,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    READS_DELTA,
    RUN,
    SOURCE_WORDS,
    TABLE,
    UNEQUAL,
    VALUE,
    VALUES,
    WEIGHT,
)
from dbsp_wcoj.kernels.memory import increment, load, load_value, prefetch, store
from dbsp_wcoj.kernels.storage import run_layout, spine
from dbsp_wcoj.kernels.storage.bitmap import count_bits, find_bitmap, has_bit
from dbsp_wcoj.kernels.storage.level_values import prefetch_value, values_of
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import add, is_product_safe, multiply, wrapping_subtract

MIN_INT64 = np.int64(-(2**63))
MAX_INT64 = np.int64(2**63 - 1)
# The finite values: a shift does not change the others (`dbsp_wcoj.query.Comparison`).
MIN_FINITE = np.int64(-(2**63) + 2)
MAX_FINITE = np.int64(2**63 - 2)
ROOT = np.int64(0)

# Number of values that each stage of prefetching is ahead of the next one.
PREFETCH_DISTANCE = 4


@inline_subroutine
def advance(state, cursor, depth, low, value):
    """Return the first position from ``low`` on whose value is at least ``value``."""
    if depth == 0:
        return root_seek(load(cursor, RUN), low, load(cursor, END), value)
    return seek(load(cursor, VALUES), low, load(cursor, END), value)


@subroutine
def subtree_weight(run, depth, first, last):
    """Return the weight of the rows under the nodes ``[first, last)`` at ``depth``."""
    for level in range(depth, load(run, run_layout.ARITY) - 1):
        entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
        offsets = load(run, entry + run_layout.LEVEL_OFFSETS)
        first = load(run, offsets + first)
        last = load(run, offsets + last)
    sums = load(run, run_layout.WEIGHT_SUMS)
    if sums == 0:
        return multiply(last - first, load(run, run_layout.UNIFORM_WEIGHT))
    if is_product_safe(last - first, load(run, run_layout.MAX_ABS_WEIGHT), 1):
        return wrapping_subtract(load(run, sums + last), load(run, sums + first))
    total = np.int64(0)
    for row in range(first, last):
        weight = wrapping_subtract(load(run, sums + row + 1), load(run, sums + row))
        total = add(total, weight)
    return total


@subroutine
def bind_run(state, cursors, slot, max_depth, run, list_bitmaps):
    """Bind ``run`` to a slot: copy the header fields that the search needs to its cursors.

    ``list_bitmaps`` is the word of that name for the cursor at the last column.
    """
    arity = load(run, run_layout.ARITY)
    for depth in range(max_depth):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        store(cursor, RUN, run)
        store(cursor, LOW, 0)
        store(cursor, HIGH, 0)
        if depth < arity:
            entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * depth
            store(cursor, VALUES, values_of(run, entry))
            if depth == arity - 1:
                store(cursor, LIST_BITMAPS, list_bitmaps)
            else:
                store(cursor, OFFSETS, run + (load(run, entry + run_layout.LEVEL_OFFSETS) << 3))
            if depth == 0:
                store(cursor, HIGH, load(run, entry + run_layout.LEVEL_NODES))


@subroutine
def open_join(program, sources, deltas, state, cursors, level_states):
    """Bind all runs to slots; level 0 gets the weight of the atoms that bind no column."""
    max_depth = load(program, MAX_ATOM_DEPTH)
    slot = np.int64(0)
    weight = np.int64(1)
    for atom in range(load(program, ATOMS)):
        store(state, FIRST_SLOT + atom, slot)
        table = load(sources, atom * SOURCE_WORDS + TABLE)
        run_count = load(table, 0) if table != 0 else np.int64(0)
        delta = np.int64(0)
        if load(sources, atom * SOURCE_WORDS + READS_DELTA) != 0:
            delta = load(deltas, load(sources, atom * SOURCE_WORDS + DELTA_INDEX))
        atom_weight = np.int64(0)
        for index in range(run_count + 1):
            run = load(table, 1 + index) if index < run_count else delta
            if run == 0:
                continue
            if load(program, load(program, ATOM_DEPTHS) + atom) > 0:
                is_oldest = index == 0 and run_count > 0
                list_bitmaps = load(table, spine.LIST_BITMAPS) if is_oldest else np.int64(0)
                bind_run(state, cursors, slot, max_depth, run, list_bitmaps)
            else:
                nodes = load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES)
                atom_weight = add(atom_weight, subtree_weight(run, ROOT, ROOT, nodes))
            slot += 1
        if load(program, load(program, ATOM_DEPTHS) + atom) == 0:
            weight = multiply(weight, atom_weight)
    store(state, FIRST_SLOT + load(program, ATOMS), slot)
    store(state, level_states + WEIGHT, weight)


@inline_subroutine
def beyond_finite(value, shift):
    """Return where a value plus a shift is: 1 above all finite values, -1 below them, else 0.

    It is 0 for a value that is not finite, because a shift does not change it.
    """
    if value < MIN_FINITE or value > MAX_FINITE:
        return 0
    if shift > 0 and value > MAX_FINITE - shift:
        return 1
    return -1 if shift < 0 and value < MIN_FINITE - shift else 0


@subroutine
def value_range(program, state, block, level_states, low, high):
    """Return the inclusive range of values that the comparisons of a level allow."""
    start = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * load(program, block + PARTICIPANTS)
    for index in range(load(program, start)):
        word = start + 1 + COMPARISON_WORDS * index
        operator = load(program, word)
        bound = load(program, word + 2)
        if load(program, word + 1) != CONSTANT:
            bound = load(state, level_states + LEVEL_STATE_WORDS * bound + VALUE)
            shift = load(program, word + 3)
            side = beyond_finite(bound, shift)
            if side > 0:
                if operator in (LESS, AT_MOST):
                    high = min(high, MAX_FINITE)
                elif operator in (GREATER, AT_LEAST):
                    low = max(low, MAX_FINITE + 1)
                elif operator == EQUAL:
                    return MAX_INT64, MIN_INT64
                continue
            if side < 0:
                if operator in (LESS, AT_MOST):
                    high = min(high, MIN_FINITE - 1)
                elif operator in (GREATER, AT_LEAST):
                    low = max(low, MIN_FINITE)
                elif operator == EQUAL:
                    return MAX_INT64, MIN_INT64
                continue
            if MIN_FINITE <= bound <= MAX_FINITE:
                bound += shift
        if operator == LESS:
            if bound == MIN_INT64:
                return MAX_INT64, MIN_INT64
            high = min(high, bound - 1)
        elif operator == AT_MOST:
            high = min(high, bound)
        elif operator == GREATER:
            if bound == MAX_INT64:
                return MAX_INT64, MIN_INT64
            low = max(low, bound + 1)
        elif operator == AT_LEAST:
            low = max(low, bound)
        elif operator == EQUAL:
            low = max(low, bound)
            high = min(high, bound)
    return low, high


@inline_subroutine
def is_excluded(program, state, block, level_states, value):
    """Return whether a ``!=`` comparison of the level excludes ``value``."""
    start = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * load(program, block + PARTICIPANTS)
    for index in range(load(program, start)):
        word = start + 1 + COMPARISON_WORDS * index
        if load(program, word) == UNEQUAL:
            excluded = load(program, word + 2)
            if load(program, word + 1) != CONSTANT:
                excluded = load(state, level_states + LEVEL_STATE_WORDS * excluded + VALUE)
                shift = load(program, word + 3)
                if beyond_finite(excluded, shift) != 0:
                    continue
                if MIN_FINITE <= excluded <= MAX_FINITE:
                    excluded += shift
            if excluded == value:
                return True
    return False


@subroutine
def enter_level(program, state, cursors, block, low, high):
    """Count: restrict the cursors of every participant to the values from ``low`` to ``high``.

    Returns ``(proposer, count)``: the participant with the fewest extensions.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    proposer: Any = np.int64(-1)
    fewest = MAX_INT64
    for index in range(load(program, block + PARTICIPANTS)):
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom = load(program, participant)
        depth = load(program, participant + 1)
        count = np.int64(0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
            first = load(cursor, LOW)
            last = load(cursor, HIGH)
            store(cursor, END, last)
            if first < last and low > MIN_INT64:
                first = advance(state, cursor, depth, first, low)
            if first < last and high < MAX_INT64:
                last = advance(state, cursor, depth, first, high + 1)
            store(cursor, POSITION, first)
            store(cursor, END, last)
            count += last - first
        if count < fewest:
            fewest = count
            proposer = index
    return proposer, fewest


@inline_subroutine
def find_least(state, cursors, atom, depth, max_depth):
    """Return ``(has_value, value)``: the least value under the cursors of an atom, if any."""
    has_value = False
    value = MAX_INT64
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        position = load(cursor, POSITION)
        if position < load(cursor, END):
            has_value = True
            value = min(value, load_value(load(cursor, VALUES), position))
    return has_value, value


@inline_subroutine
def move_cursors(state, cursors, atom, depth, max_depth, value):
    """Move the cursors of an atom to ``value`` or beyond, and mark the runs that contain it.

    Returns ``(is_matched, has_value, least)``: whether any run contains the value; whether there is
    a value at or after it; and the least such value.
    """
    is_matched = False
    has_value = False
    least = MAX_INT64
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        store(cursor, IS_MATCHED, 0)
        position = load(cursor, POSITION)
        if position >= load(cursor, END):
            continue
        position = advance(state, cursor, depth, position, value)
        store(cursor, POSITION, position)
        if position < load(cursor, END):
            has_value = True
            current = load_value(load(cursor, VALUES), position)
            least = min(least, current)
            if current == value:
                is_matched = True
                store(cursor, IS_MATCHED, 1)
    return is_matched, has_value, least


@inline_subroutine
def find_bucket(run, value):
    """Return the directory entry of ``value`` at the root of ``run``, or -1 out of its range."""
    distance = wrapping_subtract(value, load(run, run_layout.LOWEST_VALUE))
    shift = load(run, run_layout.DIRECTORY_SHIFT)
    if shift > 0:
        distance = (distance >> shift) & ((1 << (64 - shift)) - 1)
    return distance if 0 <= distance < load(run, run_layout.DIRECTORY_SIZE) - 1 else np.int64(-1)


@subroutine
def prefetch_lookup(run, cursor, values, position, last, reads_children):
    """Prefetch the data for the look-ups of the next values, in three stages.

    A look-up at the root of a large run misses the cache three times in a row (directory, node,
    list). The next values to look up are known, so each of the three is prefetched some values
    ahead.

    Args:
        run: The run in which the values are looked up.
        cursor: Its cursor at the root.
        values: The values to look up.
        position: The position of the current one.
        last: The position of the last one.
        reads_children: True if the children of a found node are read next.
    """
    directory = load(run, run_layout.DIRECTORY)
    bucket = find_bucket(run, load_value(values, min(position + 3 * PREFETCH_DISTANCE, last)))
    prefetch(run, directory + bucket)
    bucket = find_bucket(run, load_value(values, min(position + 2 * PREFETCH_DISTANCE, last)))
    if bucket >= 0:
        node = load(run, directory + bucket)
        prefetch(load(cursor, VALUES), node)
        prefetch(load(cursor, OFFSETS), node)
    bucket = find_bucket(run, load_value(values, min(position + PREFETCH_DISTANCE, last)))
    if bucket >= 0 and reads_children:
        node = load(run, directory + bucket)
        if node < load(cursor, HIGH):
            first = load(load(cursor, OFFSETS), node)
            child_values = load(cursor + CURSOR_BYTES, VALUES)
            prefetch_value(child_values, first, 0)
            prefetch_value(child_values, first, 1)


@subroutine
def prefetch_next(program, state, cursors, block, proposer):
    """Prefetch the data for the look-ups of the next values of the proposer.

    The nodes of the proposer are contiguous across parents, so this reaches beyond the prefix.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    first_participant = block + PARTICIPANTS + 1
    participant = first_participant + PARTICIPANT_WORDS * proposer
    slot = load(state, FIRST_SLOT + load(program, participant))
    if load(state, FIRST_SLOT + load(program, participant) + 1) - slot != 1:
        return
    depth = load(program, participant + 1)
    cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
    entry = (
        run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * depth + run_layout.LEVEL_NODES
    )
    last = load(load(cursor, RUN), entry) - 1
    values = load(cursor, VALUES)
    position = load(cursor, POSITION)
    for index in range(load(program, block + PARTICIPANTS)):
        participant = first_participant + PARTICIPANT_WORDS * index
        slot = load(state, FIRST_SLOT + load(program, participant))
        is_empty = slot == load(state, FIRST_SLOT + load(program, participant) + 1)
        if index == proposer or load(program, participant + 1) != 0 or is_empty:
            continue
        # The oldest run is the largest, and the one that is unlikely to be in the cache.
        cursor = cursors + CURSOR_BYTES * (slot * max_depth)
        run = load(cursor, RUN)
        if load(run, run_layout.DIRECTORY) != 0 and find_bitmap(run) == 0:
            prefetch_lookup(
                run, cursor, values, position, last, load(program, participant + 2) == 0
            )


@subroutine
def open_filter(program, state, cursors, block, proposer):
    """Return ``(bitmap, lowest, bits, weight)`` of an atom of one column that restricts a level.

    It is the first participant, because the program lists atoms of one column first. The bitmap is
    0 if there is no such atom besides the proposer, or if its values are not in one bitmap. The
    weight is that of all values, or 0 if their weights differ.
    """
    participant = block + PARTICIPANTS + 1
    atom = load(program, participant)
    slot = load(state, FIRST_SLOT + atom)
    is_only_slot = load(state, FIRST_SLOT + atom + 1) - slot == 1
    if proposer == 0 or load(program, participant + 1) != 0 or not is_only_slot:
        return np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    run = load(cursors + CURSOR_BYTES * slot * load(program, MAX_ATOM_DEPTH), RUN)
    is_uniform = load(run, run_layout.WEIGHT_SUMS) == 0
    weight = load(run, run_layout.UNIFORM_WEIGHT) if is_uniform else np.int64(0)
    return find_bitmap(run), load(run, run_layout.LOWEST_VALUE), count_bits(run), weight


@subroutine
def skip_absent(state, cursors, atom, depth, max_depth, bitmap, lowest, bits):
    """Move each cursor of an atom to its next value that is in a bitmap.

    Returns the number of values that the cursors skip.
    """
    skipped = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        first, end, values = load(cursor, POSITION), load(cursor, END), load(cursor, VALUES)
        position = first
        while position < end and not has_bit(bitmap, lowest, bits, load_value(values, position)):
            position += 1
        store(cursor, POSITION, position)
        skipped += position - first
    return skipped


@subroutine
def next_value(program, state, cursors, block, proposer, counters):
    """Propose and intersect: move all cursors to the next common value.

    A value that a bitmap excludes counts as proposed, but not as looked up in other atoms.

    Returns ``(has_value, value)``.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    participants = load(program, block + PARTICIPANTS)
    first_participant = block + PARTICIPANTS + 1
    participant = first_participant + PARTICIPANT_WORDS * proposer
    prefetch_next(program, state, cursors, block, proposer)
    bitmap, lowest, bits, _ = open_filter(program, state, cursors, block, proposer)
    while True:
        atom, depth = load(program, participant), load(program, participant + 1)
        if bitmap != 0:
            skipped = skip_absent(state, cursors, atom, depth, max_depth, bitmap, lowest, bits)
            increment(counters, PROPOSALS, skipped)
        has_value, value = find_least(state, cursors, atom, depth, max_depth)
        if not has_value:
            return False, value
        increment(counters, PROPOSALS, 1)
        is_common = True
        target = value
        for index in range(participants):
            if index == proposer:
                continue
            other_participant = first_participant + PARTICIPANT_WORDS * index
            increment(counters, INTERSECTIONS, 1)
            is_matched, has_value, least = move_cursors(
                state,
                cursors,
                load(program, other_participant),
                load(program, other_participant + 1),
                max_depth,
                value,
            )
            if not has_value:
                return False, value
            if not is_matched:
                is_common = False
                target = least
                break
        # If another atom does not have the value, the proposer skips to that atom's next value.
        move_cursors(
            state,
            cursors,
            load(program, participant),
            load(program, participant + 1),
            max_depth,
            target,
        )
        if is_common:
            return True, value


@subroutine
def bind_value(program, state, cursors, block, weight):
    """Descend below the matched value and move every cursor past it.

    Returns ``weight`` times the weights of the atoms that are complete at this level.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    for index in range(load(program, block + PARTICIPANTS)):
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom = load(program, participant)
        depth = load(program, participant + 1)
        is_complete = load(program, participant + 2) != 0
        atom_weight = np.int64(0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
            position = load(cursor, POSITION)
            is_matched = position < load(cursor, END) and load(cursor, IS_MATCHED) != 0
            if is_complete:
                if is_matched:
                    run = load(cursor, RUN)
                    node_weight = subtree_weight(run, depth, position, position + 1)
                    atom_weight = add(atom_weight, node_weight)
            else:
                child_cursor = cursor + CURSOR_BYTES
                store(child_cursor, LOW, 0)
                store(child_cursor, HIGH, 0)
                if is_matched:
                    offsets = load(cursor, OFFSETS)
                    store(child_cursor, LOW, load(offsets, position))
                    store(child_cursor, HIGH, load(offsets, position + 1))
            if is_matched:
                store(cursor, POSITION, position + 1)
                store(cursor, IS_MATCHED, 0)
        if is_complete:
            weight = multiply(weight, atom_weight)
    return weight
