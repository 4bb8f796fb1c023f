"""The generic join: one kernel for all queries, with any number of atoms, columns and runs.

It computes the rows of the head, or their total weight, of::

    Q(head) = Σ over the other variables of R₁(…) * R₂(…) * … * Rₙ(…)        R(…) is a weight

as follows::

    for each variable in order:
        count:      choose the atom with the fewest extensions of the prefix
        propose:    iterate over its extensions
        intersect:  every other atom seeks each extension from its last position

The search is depth first, so its memory is the stack (Ngo, Ré, Rudra, "Skew Strikes Back", SIGMOD
Record 42(4), 2013, section 3; the seeks within a level are those of Veldhuizen, "Leapfrog
Triejoin", ICDT 2014, section 3). An atom is the sum of its runs, each a weighted trie: it proposes
the union of their values, and the weight of a value is the sum of its weights in the runs. An
atom contributes its weight at the last of its columns that the query uses. Later columns are not
read, because running sums give the weight of all rows with the prefix. The join sums over the
variables after the last head variable. Special kernels sum over the last one or two of them without
listing their values (`dbsp_wcoj.kernels.join.sums`), and a sum that does not depend on all bound
values is memoized (`dbsp_wcoj.kernels.join.memo`).

Comparisons with bound variables and constants narrow the range of values of a level first.

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.calls import call_sum
from dbsp_wcoj.kernels.join.cursors import (
    MAX_INT64,
    MIN_INT64,
    bind_value,
    enter_level,
    is_excluded,
    next_value,
    open_join,
    value_range,
)
from dbsp_wcoj.kernels.join.delta_rows import (
    NO_ROW_LEFT,
    PREFIX_IS_BOUND,
    are_rows_read,
    bind_next_row,
    is_driven,
    is_row_sum,
    is_sum_of_whole_lists,
    open_level,
    open_rows,
)
from dbsp_wcoj.kernels.join.join_layout import (
    ACTIVE_DRIVER_LEVELS,
    ATOMS,
    BLOCKS,
    COUNTER_BYTES,
    DONE,
    DRIVER_LEVELS,
    EMITTED_LEVELS,
    FIRST_SLOT,
    FULL,
    GENERATION,
    HEAD_LEVELS,
    HEAD_SIZE,
    IS_ENTERING,
    IS_MEMOIZED,
    LEVEL,
    LEVEL_STATE_WORDS,
    LEVELS,
    MEMO_KIND,
    MEMO_NONE,
    OVERFLOW,
    PAUSED,
    PROPOSALS,
    PROPOSER,
    ROW_SUM_KERNEL,
    ROWS_WRITTEN,
    SPLIT_LEVEL,
    SUM_KERNEL,
    SUM_KIND,
    SUM_NONE,
    TOTAL,
    TOTAL_BEFORE,
    VALUE,
    WEIGHT,
    WEIGHT_BEFORE,
)
from dbsp_wcoj.kernels.join.memo import bind, forget_sums, look_up_sum, memoize_sum
from dbsp_wcoj.kernels.join.sums import NO_PROPOSER, sum_one
from dbsp_wcoj.kernels.memory import increment, load, store
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add, multiply


@subroutine
def emit(program, state, level_states, weight, out, capacity):
    """Append the bound head values and the weight to ``out``, of shape ``(head + 1, capacity)``."""
    row = load(state, ROWS_WRITTEN)
    size = load(program, HEAD_SIZE)
    for column in range(size):
        level = load(program, load(program, HEAD_LEVELS) + column)
        value = load(state, level_states + LEVEL_STATE_WORDS * level + VALUE)
        store(out, capacity * column + row, value)
    store(out, capacity * size + row, weight)
    store(state, ROWS_WRITTEN, row + 1)


@subroutine
def proposals_of_two(counters, level, level_count):
    """Return the number of proposals so far at a level and at the next one."""
    counters += COUNTER_BYTES * level
    proposals = load(counters, PROPOSALS)
    if level + 1 < level_count:
        proposals += load(counters + COUNTER_BYTES, PROPOSALS)
    return proposals


@kernel
def join(
    program,
    sources,
    deltas,
    low,
    high,
    is_resumed,
    state,
    out,
    capacity,
    bitmap_buffer,
    memo,
    counters,
    remaining_work,
):
    """Run or resume a join until it is done, ``out`` is full or the work limit is reached.

    All arguments are int64; arrays are given by their addresses.

    Args:
        program: the plan; `dbsp_wcoj.kernels.join.join_layout` has the layout of all arrays.
        sources: the runs that each atom reads: a spine, a delta run, or both.
        deltas: addresses of the step's delta runs, 0 for none.
        low: least value of the level ``program[SPLIT_LEVEL]``.
        high: greatest value of that level.
        is_resumed: 0 to start, 1 to continue after ``FULL`` or ``PAUSED``.
        state: the stack.
        out: array of shape ``(head + 1, capacity)``; the last row holds weights.
        capacity: number of rows that fit in ``out``.
        bitmap_buffer: scratch memory of the sums; its bitmap is all zero before and after.
        memo: memoized sums (`dbsp_wcoj.kernels.join.memo`); 0 if no level memoizes.
        counters: the proposals and intersections of each level; the join adds to them.
        remaining_work: number of values that the join may bind or propose before it pauses. It does
            not pause inside a sum over the two innermost variables.

    Returns:
        ``(status, rows written, total)``: ``DONE``, ``FULL`` or ``PAUSED`` (take the rows, call
        again), or ``OVERFLOW``. With an empty head the weight of the empty row is the total.
    """
    level_count, emitted_levels = load(program, LEVELS), load(program, EMITTED_LEVELS)
    # The position of the level states in the state, and the address of the cursors behind them.
    level_states = FIRST_SLOT + load(program, ATOMS) + 1
    cursors = state + 8 * (level_states + LEVEL_STATE_WORDS * (level_count + 1))
    store(state, ROWS_WRITTEN, 0)
    if is_resumed == 0:
        store(state, TOTAL, 0)
        forget_sums(state, level_states, level_count)
        if memo != 0:
            store(memo, GENERATION, load(memo, GENERATION) + 1)
        open_join(program, sources, deltas, state, cursors, level_states)
        weight = load(state, level_states + WEIGHT)
        if level_count == 0 or weight == 0:
            return OVERFLOW if weight == OVERFLOWED else DONE, 0, weight
        # The rows of a delta, the driver, may bind the first variables, without a search.
        driver_levels = load(program, DRIVER_LEVELS) if is_driven(program, state) else np.int64(0)
        store(state, ACTIVE_DRIVER_LEVELS, driver_levels)
        store(state, LEVEL, 0)
        store(state, IS_ENTERING, 1)
        if driver_levels > 0:
            open_level(program, state, cursors, level_states, np.int64(0), low, high)
            # A sum over the driver's only variable is entered like any other sum.
            is_summed = driver_levels == 1 and load(
                program, load(program, load(program, BLOCKS)) + SUM_KIND
            )
            store(state, IS_ENTERING, 1 if is_summed else 0)
        if is_row_sum(program, state, bitmap_buffer):
            open_rows(program, state, cursors)
    if is_row_sum(program, state, bitmap_buffer):
        arguments = (program, state, cursors, level_states, bitmap_buffer, counters, remaining_work)
        part = call_sum(load(program, ROW_SUM_KERNEL), arguments)
        total = add(load(state, TOTAL), part)
        store(state, TOTAL, total)
        if total == OVERFLOWED:
            return OVERFLOW, 0, 0
        return DONE if are_rows_read(program, state, cursors) else PAUSED, 0, total
    driver_levels = load(state, ACTIVE_DRIVER_LEVELS)
    sums_whole_lists = (
        driver_levels > 0 and emitted_levels == 0 and is_sum_of_whole_lists(program, driver_levels)
    )
    level = load(state, LEVEL)
    is_entering = load(state, IS_ENTERING) != 0
    # The sum over the levels that are not emitted: for the current row of the head, or in total.
    total = load(state, TOTAL)
    while True:
        if emitted_levels > 0 and load(state, ROWS_WRITTEN) == capacity:
            store(state, LEVEL, level)
            store(state, IS_ENTERING, 1 if is_entering else 0)
            store(state, TOTAL, total)
            return FULL, capacity, 0
        remaining_work -= 1
        if remaining_work < 0:
            store(state, LEVEL, level)
            store(state, IS_ENTERING, 1 if is_entering else 0)
            store(state, TOTAL, total)
            return PAUSED, load(state, ROWS_WRITTEN), 0
        # The next row of the driver binds the first levels.
        if level < driver_levels and not is_entering:
            status = bind_next_row(
                program, state, cursors, level_states, level, low, high, counters
            )
            if status == NO_ROW_LEFT:
                if total == OVERFLOWED and emitted_levels == 0:
                    return OVERFLOW, 0, 0
                return DONE, load(state, ROWS_WRITTEN), total
            level = driver_levels - 1
            if status == PREFIX_IS_BOUND:
                is_entering = True
            else:
                weight = load(state, level_states + LEVEL_STATE_WORDS * driver_levels + WEIGHT)
                if sums_whole_lists:
                    store(state, LEVEL, driver_levels)
                    block = load(program, load(program, BLOCKS) + driver_levels)
                    level_counters = counters + COUNTER_BYTES * driver_levels
                    arguments = (
                        program,
                        state,
                        cursors,
                        level_states,
                        driver_levels,
                        NO_PROPOSER,
                        np.int64(0),
                    )
                    more_arguments = (MIN_INT64, MAX_INT64, bitmap_buffer, level_counters)
                    part = call_sum(load(program, block + SUM_KERNEL), arguments + more_arguments)
                    total = add(total, multiply(weight, part))
                    continue
                # Enter the next level; or emit the row or add its weight, if all levels are bound.
                if driver_levels < level_count:
                    level = driver_levels
                    is_entering = True
                elif emitted_levels == level_count:
                    if weight == OVERFLOWED:
                        return OVERFLOW, 0, 0
                    emit(program, state, level_states, weight, out, capacity)
                    continue
                else:
                    total = add(total, weight)
                    continue
        # For the sampler, `dbsp_wcoj.kernels.join.progress_board`.
        store(state, LEVEL, level)
        block = load(program, load(program, BLOCKS) + level)
        level_state = level_states + LEVEL_STATE_WORDS * level
        # Becomes false when the level has no value left to bind, or its sum is known.
        has_value = True
        is_memoized = load(program, block + MEMO_KIND) != MEMO_NONE
        if is_entering:
            is_entering = False
            if is_memoized:
                store(state, level_state + IS_MEMOIZED, 0)
                is_stored, part = look_up_sum(program, state, level_states, memo, block, level)
                if is_stored:
                    total = add(total, multiply(load(state, level_state + WEIGHT), part))
                    has_value = False
            if has_value:
                least_value = low if level == load(program, SPLIT_LEVEL) else MIN_INT64
                greatest_value = high if level == load(program, SPLIT_LEVEL) else MAX_INT64
                least_value, greatest_value = value_range(
                    program, state, block, level_states, least_value, greatest_value
                )
                has_value = least_value <= greatest_value
            if has_value:
                proposer, count = enter_level(
                    program, state, cursors, block, least_value, greatest_value
                )
                store(state, level_state + PROPOSER, proposer)
                has_value = count > 0
                sum_kind = load(program, block + SUM_KIND)
                if has_value and sum_kind == SUM_NONE and is_memoized:
                    # Start a sum of its own, with weight 1, to be memoized when the level is done.
                    store(state, level_state + IS_MEMOIZED, 1)
                    store(state, level_state + TOTAL_BEFORE, total)
                    store(state, level_state + WEIGHT_BEFORE, load(state, level_state + WEIGHT))
                    store(state, level_state + WEIGHT, 1)
                    total = np.int64(0)
                if has_value and sum_kind != SUM_NONE:
                    proposals_before = proposals_of_two(counters, level, level_count)
                    kernel = load(program, block + SUM_KERNEL)
                    level_counters = counters + COUNTER_BYTES * level
                    if kernel == 0:
                        increment(level_counters, PROPOSALS, count)
                        part = sum_one(program, state, cursors, block)
                    else:
                        arguments = (program, state, cursors, level_states, level, proposer, count)
                        more_arguments = (
                            least_value,
                            greatest_value,
                            bitmap_buffer,
                            level_counters,
                        )
                        part = call_sum(kernel, arguments + more_arguments)
                    remaining_work -= (
                        proposals_of_two(counters, level, level_count) - proposals_before
                    )
                    memoize_sum(program, state, level_states, memo, block, level, part)
                    total = add(total, multiply(load(state, level_state + WEIGHT), part))
                    has_value = False
        if has_value:
            has_value, value = next_value(
                program,
                state,
                cursors,
                block,
                load(state, level_state + PROPOSER),
                counters + COUNTER_BYTES * level,
            )
        if not has_value:
            # All extensions of this prefix are done: return to the previous level.
            if is_memoized and load(state, level_state + IS_MEMOIZED) != 0:
                memoize_sum(program, state, level_states, memo, block, level, total)
                part = multiply(load(state, level_state + WEIGHT_BEFORE), total)
                total = add(load(state, level_state + TOTAL_BEFORE), part)
            # At the first summed level, or before it, the total is a weight of the result.
            if total == OVERFLOWED and level <= emitted_levels:
                return OVERFLOW, 0, 0
            if level == 0:
                return DONE, load(state, ROWS_WRITTEN), total
            level -= 1
            if level == emitted_levels - 1 and total != 0:
                emit(program, state, level_states, total, out, capacity)
                total = np.int64(0)
            continue
        bind(state, level_state, value)
        weight = bind_value(program, state, cursors, block, load(state, level_state + WEIGHT))
        if weight == 0 or is_excluded(program, state, block, level_states, value):
            continue
        if level < level_count - 1:
            level += 1
            store(state, level_state + LEVEL_STATE_WORDS + WEIGHT, weight)
            is_entering = True
        elif emitted_levels == level_count:
            if weight == OVERFLOWED:
                return OVERFLOW, 0, 0
            emit(program, state, level_states, weight, out, capacity)
        else:
            total = add(total, weight)
