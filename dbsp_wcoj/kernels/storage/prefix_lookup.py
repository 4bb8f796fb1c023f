"""Prefix lookup: the first rows that begin with each of many prefixes, before and after a delta.

    old[row] = Σ over the runs of the spine of run[row]        new[row] = old[row] + delta[row]

The tries of the runs are traversed together below the prefix, depth first. At each level the least
value at any cursor is next; the cursors of the runs that contain it descend, and at the leaf their
weights are added. Each row is visited once, with its old and its new weight, so one traversal
returns the first rows of both.

Cost: O(runs log N) to find a prefix, then O(runs) per level of each visited row. Rows of weight
zero or below are visited and skipped. If the first rows of a prefix are deleted again and again, it
begins with many rows of weight zero, until the runs are merged. A caller that knows the first row
of positive weight passes it in ``starts``; the traversal then starts there, or at the first row of
the delta if that is earlier.

A recursive minimum reads up to the first value that the group has when its delta begins. The last
column is then a time: the value is present at a time if its weights up to then add up to more than
0. The ``times`` are those at which the deltas begin.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, load, load_value
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.run_layout import (
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_OFFSETS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.search import find_children, seek
from dbsp_wcoj.kernels.values.arithmetic import add, wrapping_subtract

# Room for so many rows, at first.
MIN_CAPACITY = 64


@subroutine
def resized(numbers, count, capacity):
    """Return a new array of length ``capacity`` that begins with the first numbers."""
    result = np.empty(capacity, np.int64)
    for i in range(count):
        result[i] = numbers[i]
    return result


@subroutine
def resized_rows(rows, count, capacity):
    """Return new rows, shape ``(columns, capacity)``, that begin with the first rows."""
    result = np.empty((rows.shape[0], capacity), np.int64)
    for column in range(rows.shape[0]):
        for row in range(count):
            result[column, row] = rows[column, row]
    return result


@subroutine
def lower_to_first(run, values, offsets, k, first, bound):
    """Lower ``bound`` to the first row of ``run`` below node ``first``, if that row is less.

    Args:
        run: The address of a run.
        values: The tagged address of the values of each level.
        offsets: Of each level, the word of the run at which its offsets start.
        k: The number of columns of the prefix.
        first: A node of level k.
        bound: Values of the columns after the prefix.
    """
    depth = bound.shape[0]
    is_less = False
    for level in range(depth):
        value = load_value(values[k + level], first)
        if not is_less and value > bound[level]:
            return
        is_less = is_less or value < bound[level]
        bound[level] = value
        if level < depth - 1:
            first = load(run, offsets[k + level] + first)


@kernel
def look_up_prefixes(
    table,
    delta_run,
    prefixes,
    starts,
    times,
    arity,
    limit,
    tie_columns,
    include_negative,
):
    """Return the first rows of each prefix.

    Args:
        table: The number of runs, then their addresses; all runs have one column order.
        delta_run: The address of the delta's run, 0 for none; it counts as the last run.
        prefixes: int64, shape ``(k, n)``, ``k < arity``.
        starts: For each prefix, a lower bound of its first row: no smaller row has a positive
            weight without the delta. Shape ``(arity - k, n)``, or ``(arity - k, 0)`` for no bounds.
        times: For each prefix, a time, shape ``(n,)``, or ``(0,)`` for none. The last column is a
            time as well. Stop when one row was present at this time or earlier without the delta,
            and one with it: the weights up to then of the rows that differ from it only in the time
            add up to more than 0. Only with ``include_negative``.
        arity: Levels of the runs.
        limit: Stop when the weights of the rows add up to this; at least 1, or -1 for all rows.
        tie_columns: Then continue with rows that equal the last one in this many columns after the
            prefix.
        include_negative: Return rows of negative weight as well; only with ``limit`` -1.

    Returns:
        ``(prefix_index, rows, old, new)``: the index of each row's prefix; the other columns of
        each row, shape ``(arity - k, rows)``; the weight of each row without the delta, and with
        it. With a limit, a weight is 0 if the row is not among the first rows without, or with, the
        delta.
    """
    prefixes = borrow(prefixes)
    k, n = prefixes.shape
    depth = arity - k
    runs = table[0] + (1 if delta_run != 0 else 0)
    # Per level and run: the address of the values, and the word of the run at which the offsets
    # start.
    values = np.empty((arity, runs + 1), np.int64)
    offsets = np.empty((arity, runs + 1), np.int64)
    address = np.empty(runs + 1, np.int64)
    for r in range(runs):
        run = delta_run if r == table[0] else table[1 + r]
        address[r] = run
        for level in range(arity):
            entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
            values[level, r] = values_of(run, entry)
            offsets[level, r] = load(run, entry + LEVEL_OFFSETS)
    # Per level below the prefix: the runs that contain the path, each with a range of siblings.
    run_indices = np.empty((depth, runs + 1), np.int64)
    cursors = np.empty((depth, runs + 1), np.int64)
    ends = np.empty((depth, runs + 1), np.int64)
    active = np.zeros(depth, np.int64)
    path = np.empty(depth, np.int64)
    bound = np.empty(depth, np.int64)
    has_starts = starts.shape[1] > 0
    has_times = times.shape[0] > 0
    capacity = max(MIN_CAPACITY, 4 * n)
    prefix_index = np.empty(capacity, np.int64)
    rows = np.empty((depth, capacity), np.int64)
    old = np.empty(capacity, np.int64)
    new = np.empty(capacity, np.int64)
    written = 0
    for prefix in range(n):
        count = 0
        for r in range(runs):
            first, last = find_children(address[r], prefixes, prefix)
            if first < last:
                run_indices[0, count] = r
                cursors[0, count] = first
                ends[0, count] = last
                count += 1
        active[0] = count
        # The number of levels in the path while all of them equal the bound, which then limits the
        # next level; -1 after a level that differs, and without a bound.
        bounded_levels = -1
        if has_starts:
            bounded_levels = 0
            bound[:] = starts[:, prefix]
            if delta_run != 0 and count > 0 and run_indices[0, count - 1] == table[0]:
                r = table[0]
                lower_to_first(
                    delta_run, values[:, r], offsets[:, r], k, cursors[0, count - 1], bound
                )
            for j in range(count):
                cursors[0, j] = seek(
                    values[k, run_indices[0, j]], cursors[0, j], ends[0, j], bound[0]
                )
        # Without and with the delta: the weight of the rows so far, and whether more are needed.
        old_sum = np.int64(0)
        new_sum = np.int64(0)
        is_old_open = True
        is_new_open = True
        # Without and with the delta: the weight of the rows so far that differ only in the time.
        old_presence = np.int64(0)
        new_presence = np.int64(0)
        level = 0
        while True:
            has_value = False
            value = np.int64(0)
            for j in range(active[level]):
                if cursors[level, j] < ends[level, j]:
                    candidate = load_value(
                        values[k + level, run_indices[level, j]], cursors[level, j]
                    )
                    if not has_value or candidate < value:
                        value = candidate
                    has_value = True
            if not has_value:
                if level == 0:
                    break
                level -= 1
                continue
            if level < tie_columns:
                # The next row differs from the last one in a tie column: no tie is left.
                is_old_open = is_old_open and old_sum != limit
                is_new_open = is_new_open and new_sum != limit
                if not (is_old_open or is_new_open):
                    break
            path[level] = value
            if level < depth - 1:
                count = 0
                for j in range(active[level]):
                    i = cursors[level, j]
                    r = run_indices[level, j]
                    if i < ends[level, j] and load_value(values[k + level, r], i) == value:
                        cursors[level, j] = i + 1
                        run_indices[level + 1, count] = r
                        cursors[level + 1, count] = load(address[r], offsets[k + level, r] + i)
                        ends[level + 1, count] = load(address[r], offsets[k + level, r] + i + 1)
                        count += 1
                bounded_levels = (
                    level + 1 if bounded_levels == level and value == bound[level] else -1
                )
                level += 1
                active[level] = count
                old_presence = np.int64(0)
                new_presence = np.int64(0)
                if bounded_levels == level:
                    for j in range(count):
                        first = cursors[level, j]
                        level_values = values[k + level, run_indices[level, j]]
                        cursors[level, j] = seek(level_values, first, ends[level, j], bound[level])
                continue
            before = np.int64(0)
            change = np.int64(0)
            for j in range(active[level]):
                i = cursors[level, j]
                r = run_indices[level, j]
                if i < ends[level, j] and load_value(values[k + level, r], i) == value:
                    cursors[level, j] = i + 1
                    weight = load(address[r], UNIFORM_WEIGHT)
                    sums = load(address[r], WEIGHT_SUMS)
                    if sums != 0:
                        weight = wrapping_subtract(
                            load(address[r], sums + i + 1), load(address[r], sums + i)
                        )
                    if r == table[0]:
                        change = weight
                    else:
                        before = add(before, weight)
            after = add(before, change)
            if not include_negative:
                before = before if is_old_open and before > 0 else np.int64(0)
                after = after if is_new_open and after > 0 else np.int64(0)
            if before == 0 and after == 0:
                continue
            if written == capacity:
                capacity *= 2
                prefix_index = resized(prefix_index, written, capacity)
                rows = resized_rows(rows, written, capacity)
                old = resized(old, written, capacity)
                new = resized(new, written, capacity)
            prefix_index[written] = prefix
            for j in range(depth):
                rows[j, written] = path[j]
            old[written] = before
            new[written] = after
            written += 1
            if has_times:
                old_presence = add(old_presence, before)
                new_presence = add(new_presence, after)
                is_in_time = value <= times[prefix]
                is_old_open = is_old_open and not (is_in_time and old_presence > 0)
                is_new_open = is_new_open and not (is_in_time and new_presence > 0)
                if not (is_old_open or is_new_open):
                    break
            if limit >= 0:
                # The sums are capped at the limit, so they cannot overflow.
                old_sum = limit if before >= limit - old_sum else old_sum + before
                new_sum = limit if after >= limit - new_sum else new_sum + after
    return (
        prefix_index[:written],
        resized_rows(rows, written, written),
        old[:written],
        new[:written],
    )
