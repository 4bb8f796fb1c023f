"""Sums over the last one or two variables of a join, without an output row per value.

    last variable c, one atom:     sum over c of a(c)          a difference of running sums
    last variable c, two atoms:    sum over c of a(c) * b(c)   `dbsp_wcoj.kernels.join.intersect`
    last variable c, more atoms:   sum over c of a(c) * b(c) * …
    last two variables v and c:    sum over v of w(v) * (sum over c of a(v, c) * b(v, c))

Here w(v) is the product of the weights of the atoms whose last variable is ``v``. An atom is the
sum of its runs, so a sum over two atoms is the sum over all pairs of their runs. The *list* of a
run has its values of the last variable for the bound prefix, sorted.

If one of the two lists does not depend on ``v``, its values are marked once in a bitmap, and each
other list is scanned against the bitmap: one load and one test per value, no branch. A triangle
query does this with the neighbours of one vertex. The bitmap covers `BITMAP_BITS` values. A list
with a wider range of values is not marked, and a list that is much longer than the marked one is
not scanned: both are intersected directly. A run of one column may have a bitmap of its own
(`dbsp_wcoj.kernels.storage.bitmap`), and so may a long list (`dbsp_wcoj.kernels.join.long_lists`).

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.cursors import (
    MAX_INT64,
    MIN_INT64,
    bind_value,
    enter_level,
    is_excluded,
    next_value,
    open_filter,
    subtree_weight,
    value_range,
)
from dbsp_wcoj.kernels.join.intersect import (
    count_common,
    count_in_bitmap,
    dot_checked,
    dot_common,
    leaf_weight,
)
from dbsp_wcoj.kernels.join.join_layout import (
    BITMAP_BITS,
    BLOCKS,
    COUNTER_BYTES,
    CURSOR_BYTES,
    END,
    FIRST_SLOT,
    HIGH,
    INTERSECTIONS,
    LEVEL_STATE_WORDS,
    LIST_BITMAPS,
    LOW,
    MAX_ATOM_DEPTH,
    PARTICIPANT_WORDS,
    PARTICIPANTS,
    POSITION,
    PROPOSALS,
    RUN,
    VALUE,
    VALUES,
)
from dbsp_wcoj.kernels.join.long_lists import (
    count_miss,
    dot_long_lists,
    find_long_list,
    is_looked_up,
    look_up_list,
)
from dbsp_wcoj.kernels.memory import increment, load, load_value, store
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.bitmap import find_bitmap, has_bit
from dbsp_wcoj.kernels.storage.list_bitmaps import FIRST_WORD, word_address
from dbsp_wcoj.kernels.storage.search import root_find, seek
from dbsp_wcoj.kernels.values.arithmetic import add, is_product_safe, multiply

# A list is marked if it has this many values and is intersected with this many lists.
MIN_MARKED_VALUES = 8
MIN_MARKED_USES = 4
# A list longer than this many times the marked one is intersected by galloping, not scanned.
MAX_SCAN_RATIO = 32

# Typed constants, because numba would compile a function again for each literal argument.
ZERO = np.int64(0)
# The word of a cursor with the first position to read; the next word has the end. `FROM_CURSOR`
# reads from the current position of the cursor on, `WHOLE_LIST` all values for the prefix.
FROM_CURSOR = np.int64(POSITION)
WHOLE_LIST = np.int64(LOW)
# Stands for the proposer of a level whose cursors are not set.
NO_PROPOSER = np.int64(-1)


@subroutine
def update_bitmap(bitmap, values, first, last, lowest, is_erasing):
    """Set the bits of the values at positions ``[first, last)``; bit 0 stands for ``lowest``.

    With ``is_erasing``, set the words that contain these bits to 0 instead.
    """
    for position in range(first, last):
        bit = load_value(values, position) - lowest
        word = bit >> 6
        if is_erasing:
            store(bitmap, word, 0)
        else:
            store(bitmap, word, load(bitmap, word) | (np.int64(1) << (bit & 63)))


@subroutine
def dot_lists(run_a, values_a, i, end_a, run_b, values_b, j, end_b, bitmap, lowest, highest):
    """Return the sum over the common values of two lists of the product of their weights.

    ``bitmap`` contains the first list, from ``lowest`` on, or is 0. A run whose ``WEIGHT_SUMS`` is
    0 has the same weight in all rows.
    """
    if load(run_a, run_layout.WEIGHT_SUMS) == 0 and load(run_b, run_layout.WEIGHT_SUMS) == 0:
        if bitmap != 0 and end_b - j <= MAX_SCAN_RATIO * (end_a - i):
            common = count_in_bitmap(bitmap, lowest, highest, values_b, j, end_b)
        else:
            common = count_common(values_a, i, end_a, values_b, j, end_b)
        return multiply(
            multiply(common, load(run_a, run_layout.UNIFORM_WEIGHT)),
            load(run_b, run_layout.UNIFORM_WEIGHT),
        )
    length = min(end_a - i, end_b - j)
    largest_a = load(run_a, run_layout.MAX_ABS_WEIGHT)
    largest_b = load(run_b, run_layout.MAX_ABS_WEIGHT)
    if is_product_safe(length, largest_a, largest_b):
        return dot_common(values_a, run_a, i, end_a, values_b, run_b, j, end_b)
    return dot_checked(values_a, run_a, i, end_a, values_b, run_b, j, end_b)


@subroutine
def choose_marked(program, state, cursors, block, inner_block, count, bitmap_buffer):
    """Return the cursor of the list to mark in the bitmap, or 0.

    Only atoms of the innermost level (``inner_block``) are considered that do not contain the
    variable of the level before it (``block``), and only runs whose rows all have the same weight.
    A list is chosen if it or its run has a bitmap: then nothing needs to be marked (`mark_list`).
    Otherwise the longest list whose values fit in the bitmap is chosen, of the first
    atom with such a list. ``count`` is the number of extensions at the level before.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    for index in range(load(program, inner_block + PARTICIPANTS)):
        participant = inner_block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom = load(program, participant)
        is_in_block = False
        for other in range(load(program, block + PARTICIPANTS)):
            other_atom = load(program, block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * other)
            is_in_block |= other_atom == atom
        if is_in_block:
            continue
        longest_cursor = np.int64(0)
        length = np.int64(MIN_MARKED_VALUES - 1)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + load(program, participant + 1))
            first, last = load(cursor, LOW), load(cursor, HIGH)
            run = load(cursor, RUN)
            if last <= first or load(run, run_layout.WEIGHT_SUMS) != 0:
                continue
            if find_bitmap(run) != 0 or find_long_list(cursor, first, last) != 0:
                return cursor
            count_miss(cursor, first, last, bitmap_buffer)
            if last - first > length and count >= MIN_MARKED_USES:
                values = load(cursor, VALUES)
                value_span = np.uint64(load_value(values, last - 1)) - np.uint64(
                    load_value(values, first)
                )
                if value_span < np.uint64(BITMAP_BITS - 1):
                    longest_cursor = cursor
                    length = last - first
        if longest_cursor != 0:
            return longest_cursor
    return np.int64(0)


@subroutine
def mark_list(cursor, bitmap):
    """Mark the list of a cursor in the bitmap, unless the list or its run has a bitmap.

    Returns ``(bitmap, lowest, highest)``: the bitmap with the values, and the range of the values.
    """
    first, last, values = load(cursor, LOW), load(cursor, HIGH), load(cursor, VALUES)
    lowest, highest = load_value(values, first), load_value(values, last - 1)
    own_bitmap = find_bitmap(load(cursor, RUN))
    if own_bitmap != 0:
        return own_bitmap, lowest, highest
    slot = find_long_list(cursor, first, last)
    if slot != 0:
        first_word = load(slot, FIRST_WORD)
        return word_address(load(cursor, LIST_BITMAPS), slot, first_word), first_word << 6, highest
    update_bitmap(bitmap, values, first, last, lowest, False)
    return bitmap, lowest, highest


@subroutine
def erase_list(cursor, bitmap):
    """Erase the values that `mark_list` has marked in the bitmap."""
    first, last, values = load(cursor, LOW), load(cursor, HIGH), load(cursor, VALUES)
    if find_bitmap(load(cursor, RUN)) == 0 and find_long_list(cursor, first, last) == 0:
        update_bitmap(bitmap, values, first, last, load_value(values, first), True)


@kernel
def sum_pairs(
    program,
    state,
    cursors,
    level_states,
    level,
    proposer,
    count,
    least_value,
    greatest_value,
    bitmap_buffer,
    counters,
):
    """Return the sum over the extensions of ``level`` and of the innermost level after it.

    The summand is the product of the weights of the atoms that are complete at these two levels.
    The cursors of ``level`` are set, and ``proposer`` has ``count`` extensions there. The bitmap,
    at the start of ``bitmap_buffer``, is all zero before and after. ``least_value`` and
    ``greatest_value`` are not used: all kernels of sums have the same parameters.
    """
    block = load(program, load(program, BLOCKS) + level)
    inner_block = load(program, load(program, BLOCKS) + level + 1)
    marked_cursor = choose_marked(program, state, cursors, block, inner_block, count, bitmap_buffer)
    bitmap = lowest = highest = np.int64(0)
    if marked_cursor != 0:
        bitmap, lowest, highest = mark_list(marked_cursor, bitmap_buffer)
    total = np.int64(0)
    while True:
        has_value, value = next_value(program, state, cursors, block, proposer, counters)
        if not has_value:
            break
        store(state, level_states + LEVEL_STATE_WORDS * level + VALUE, value)
        weight = bind_value(program, state, cursors, block, np.int64(1))
        if weight == 0 or is_excluded(program, state, block, level_states, value):
            continue
        low, high = value_range(program, state, inner_block, level_states, MIN_INT64, MAX_INT64)
        if low > high:
            continue
        _, extensions = enter_level(program, state, cursors, inner_block, low, high)
        if extensions == 0:
            continue
        increment(counters + COUNTER_BYTES, PROPOSALS, extensions)
        increment(counters + COUNTER_BYTES, INTERSECTIONS, extensions)
        part = sum_two(program, state, cursors, inner_block, marked_cursor, bitmap, lowest, highest)
        total = add(total, multiply(weight, part))
    if marked_cursor != 0:
        erase_list(marked_cursor, bitmap_buffer)
    return total


@subroutine
def sum_one(program, state, cursors, block):
    """Return the sum of the weights of all extensions of a block's only participant."""
    max_depth = load(program, MAX_ATOM_DEPTH)
    participant = block + PARTICIPANTS + 1
    atom = load(program, participant)
    depth = load(program, participant + 1)
    total = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        first = load(cursor, POSITION)
        last = load(cursor, END)
        if first < last:
            total = add(total, subtree_weight(load(cursor, RUN), depth, first, last))
    return total


@subroutine
def find_weight(state, cursors, max_depth, atom, depth, value):
    """Return the weight of a value in the lists of an atom, whose last column is at ``depth``.

    Each list is searched from the position of its cursor on. Unless ``depth`` is 0, the cursor then
    moves to the value.
    """
    weight = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
        position, end = load(cursor, POSITION), load(cursor, HIGH)
        if position >= end:
            continue
        run = load(cursor, RUN)
        if depth == 0:
            position, is_found = root_find(run, position, end, value)
        else:
            values = load(cursor, VALUES)
            position = seek(values, position, end, value)
            store(cursor, POSITION, position)
            is_found = position < end and load_value(values, position) == value
        if is_found:
            weight = add(weight, leaf_weight(run, position))
    return weight


@subroutine
def bound_values(program, state, cursors, block, proposer, start_word):
    """Return the least and the greatest value that every participant but the proposer may have."""
    max_depth = load(program, MAX_ATOM_DEPTH)
    low, high = MIN_INT64, MAX_INT64
    for index in range(load(program, block + PARTICIPANTS)):
        if index == proposer:
            continue
        participant = block + PARTICIPANTS + 1 + PARTICIPANT_WORDS * index
        atom, depth = load(program, participant), load(program, participant + 1)
        least, greatest = MAX_INT64, MIN_INT64
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
            first, end = load(cursor, start_word), load(cursor, start_word + 1)
            if first < end:
                least = min(least, load_value(load(cursor, VALUES), first))
                greatest = max(greatest, load_value(load(cursor, VALUES), end - 1))
        low, high = max(low, least), min(high, greatest)
    return low, high


@subroutine
def sum_many(program, state, cursors, block, start_word, counters):
    """Return the sum over the common values of all participants of a block.

    The variable of the block is the last column of each participant. The participant with the
    fewest values proposes. The sum is linear in its runs, so its lists are read one after another,
    without their union, and each value is looked up in the other participants. ``start_word`` is
    `FROM_CURSOR` or `WHOLE_LIST`.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    participants = load(program, block + PARTICIPANTS)
    first_participant = block + PARTICIPANTS + 1
    proposer: Any = np.int64(0)
    fewest: Any = MAX_INT64
    for index in range(participants):
        participant = first_participant + PARTICIPANT_WORDS * index
        atom, depth = load(program, participant), load(program, participant + 1)
        length = np.int64(0)
        for slot in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
            cursor = cursors + CURSOR_BYTES * (slot * max_depth + depth)
            length += max(load(cursor, start_word + 1) - load(cursor, start_word), 0)
        if length < fewest:
            proposer, fewest = index, length
    if fewest == 0:
        return np.int64(0)
    low, high = bound_values(program, state, cursors, block, proposer, start_word)
    bitmap, lowest, bits, filter_weight = open_filter(program, state, cursors, block, proposer)
    participant = first_participant + PARTICIPANT_WORDS * proposer
    proposer_atom, proposer_depth = load(program, participant), load(program, participant + 1)
    total = np.int64(0)
    proposals = np.int64(0)
    intersections = np.int64(0)
    for slot in range(
        load(state, FIRST_SLOT + proposer_atom), load(state, FIRST_SLOT + proposer_atom + 1)
    ):
        cursor = cursors + CURSOR_BYTES * (slot * max_depth + proposer_depth)
        run, values = load(cursor, RUN), load(cursor, VALUES)
        position, end = load(cursor, start_word), load(cursor, start_word + 1)
        if position < end and load_value(values, position) < low:
            position = seek(values, position, end, low)
        if position < end and load_value(values, end - 1) > high:
            end = seek(values, position, end, high + 1)
        if position >= end:
            continue
        # This list begins again with small values, so the other cursors start again.
        for index in range(participants):
            participant = first_participant + PARTICIPANT_WORDS * index
            atom, depth = load(program, participant), load(program, participant + 1)
            if index == proposer:
                continue
            for other in range(load(state, FIRST_SLOT + atom), load(state, FIRST_SLOT + atom + 1)):
                other_cursor = cursors + CURSOR_BYTES * (other * max_depth + depth)
                store(other_cursor, POSITION, load(other_cursor, LOW))
        proposals += end - position
        while position < end:
            value = load_value(values, position)
            if bitmap != 0 and not has_bit(bitmap, lowest, bits, value):
                position += 1
                continue
            weight: Any = leaf_weight(run, position)
            position += 1
            first_searched = np.int64(0)
            if bitmap != 0 and filter_weight != 0:
                weight = multiply(weight, filter_weight)
                first_searched = np.int64(1)
            for index in range(first_searched, participants):
                participant = first_participant + PARTICIPANT_WORDS * index
                if index == proposer or weight == 0:
                    continue
                intersections += 1
                factor = find_weight(
                    state,
                    cursors,
                    max_depth,
                    load(program, participant),
                    load(program, participant + 1),
                    value,
                )
                weight = multiply(weight, factor)
            total = add(total, weight)
    increment(counters, PROPOSALS, proposals)
    increment(counters, INTERSECTIONS, intersections)
    return total


@kernel
def sum_last(
    program,
    state,
    cursors,
    level_states,
    level,
    proposer,
    count,
    least_value,
    greatest_value,
    bitmap_buffer,
    counters,
):
    """Return the sum over the innermost variable, which is the last column of two or more atoms.

    The parameters are those of `sum_pairs`.

    If ``proposer`` is `NO_PROPOSER`, the cursors are not set, and the lists are read whole.

    Two lists with bitmaps count as many intersections as their common words.
    """
    start_word = WHOLE_LIST if proposer == NO_PROPOSER else FROM_CURSOR
    max_depth = load(program, MAX_ATOM_DEPTH)
    block = load(program, load(program, BLOCKS) + level)
    if load(program, block + PARTICIPANTS) > 2:
        return sum_many(program, state, cursors, block, start_word, counters)
    participant = block + PARTICIPANTS + 1
    left, left_depth = load(program, participant), load(program, participant + 1)
    participant += PARTICIPANT_WORDS
    right, right_depth = load(program, participant), load(program, participant + 1)
    total = np.int64(0)
    left_count = np.int64(0)
    right_count = np.int64(0)
    words_read = np.int64(0)
    values_left_out = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + left), load(state, FIRST_SLOT + left + 1)):
        a = cursors + CURSOR_BYTES * (slot * max_depth + left_depth)
        i, end_a = load(a, start_word), load(a, start_word + 1)
        if i >= end_a:
            continue
        run_a, values_a = load(a, RUN), load(a, VALUES)
        left_count += end_a - i
        count_miss(a, load(a, LOW), load(a, HIGH), bitmap_buffer)
        slot_a = find_long_list(a, load(a, LOW), load(a, HIGH))
        # The program lists an atom of one column first. Its bitmap is used if all rows are read.
        bitmap = find_bitmap(run_a) if end_a - i == load(run_a, run_layout.ROWS) else ZERO
        lowest, highest = load_value(values_a, i), load_value(values_a, end_a - 1)
        right_count = np.int64(0)
        for other in range(load(state, FIRST_SLOT + right), load(state, FIRST_SLOT + right + 1)):
            b = cursors + CURSOR_BYTES * (other * max_depth + right_depth)
            j, end_b = load(b, start_word), load(b, start_word + 1)
            if j >= end_b:
                continue
            right_count += end_b - j
            run_b, values_b = load(b, RUN), load(b, VALUES)
            count_miss(b, load(b, LOW), load(b, HIGH), bitmap_buffer)
            slot_b = find_long_list(b, load(b, LOW), load(b, HIGH))
            if slot_a != 0 and slot_b != 0:
                part, words = dot_long_lists(a, i, end_a, slot_a, b, j, end_b, slot_b)
                words_read += words
                values_left_out += min(end_a - i, end_b - j)
            elif slot_a != 0 and is_looked_up(run_a, end_a - i, run_b, end_b - j):
                part = look_up_list(a, i, end_a, slot_a, b, j, end_b)
            elif slot_b != 0 and is_looked_up(run_b, end_b - j, run_a, end_a - i):
                part = look_up_list(b, j, end_b, slot_b, a, i, end_a)
            else:
                part = dot_lists(
                    run_a,
                    values_a,
                    i,
                    end_a,
                    run_b,
                    values_b,
                    j,
                    end_b,
                    bitmap,
                    lowest,
                    highest,
                )
            total = add(total, part)
    count = min(left_count, right_count)
    increment(counters, PROPOSALS, count)
    increment(counters, INTERSECTIONS, max(count - values_left_out, 0) + words_read)
    return total


@subroutine
def sum_two(program, state, cursors, block, marked_cursor, bitmap, lowest, highest):
    """Return the sum over the common extensions of the two participants of a block.

    The variable of the block is the last column of both. ``marked_cursor`` is the cursor whose list
    is in ``bitmap``, from ``lowest`` on, or 0.
    """
    max_depth = load(program, MAX_ATOM_DEPTH)
    participant = block + PARTICIPANTS + 1
    left = load(program, participant)
    left_depth = load(program, participant + 1)
    right = load(program, participant + PARTICIPANT_WORDS)
    right_depth = load(program, participant + PARTICIPANT_WORDS + 1)
    total = np.int64(0)
    for slot in range(load(state, FIRST_SLOT + left), load(state, FIRST_SLOT + left + 1)):
        a = cursors + CURSOR_BYTES * (slot * max_depth + left_depth)
        i = load(a, POSITION)
        end_a = load(a, END)
        if i >= end_a:
            continue
        run_a = load(a, RUN)
        for other in range(load(state, FIRST_SLOT + right), load(state, FIRST_SLOT + right + 1)):
            b = cursors + CURSOR_BYTES * (other * max_depth + right_depth)
            j = load(b, POSITION)
            end_b = load(b, END)
            if j >= end_b:
                continue
            run_b = load(b, RUN)
            if b == marked_cursor:
                part = dot_lists(
                    run_b,
                    load(b, VALUES),
                    j,
                    end_b,
                    run_a,
                    load(a, VALUES),
                    i,
                    end_a,
                    bitmap,
                    lowest,
                    highest,
                )
            else:
                part = dot_lists(
                    run_a,
                    load(a, VALUES),
                    i,
                    end_a,
                    run_b,
                    load(b, VALUES),
                    j,
                    end_b,
                    bitmap if a == marked_cursor else ZERO,
                    lowest,
                    highest,
                )
            total = add(total, part)
    return total
