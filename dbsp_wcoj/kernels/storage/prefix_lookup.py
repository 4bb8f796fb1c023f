"""The first rows below each of many prefixes, in a sum of runs, with and without a delta run.

The tries of the runs are walked together below the prefix, depth first. At each level the least
value under any cursor comes next; the runs that contain it descend, and at the leaf their weights
are added. Each row is visited once, with its weight in the old sum (the spine) and in the new sum
(the spine plus the delta), so one walk returns the first rows of both.

Cost: O(runs log N) to find a prefix, then O(runs) per level of each visited row. Rows of weight
zero or below are visited and skipped. Many of them stand at the front of a group whose least rows
are deleted again and again, until the runs are merged. A caller that knows the position of the
first positive row lets the walk start there, or at the first row of the delta if that is earlier.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import load
from dbsp_wcoj.kernels.storage.run_layout import (
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import add, wrapping_subtract


@subroutine
def lower_to_first(run, values, offsets, k, first, bound):
    """Lower ``bound`` to the first row of ``run`` from node ``first`` on, if that row is less."""
    depth = bound.shape[0]
    less = False
    for level in range(depth):
        value = load(values[k + level], first)
        if not less and value > bound[level]:
            return
        less = less or value < bound[level]
        bound[level] = value
        if level < depth - 1:
            first = load(run, offsets[k + level] + first)


@kernel
def look_up_prefixes(
    table,
    extra,
    prefixes,
    starts,
    arity,
    start,
    limit,
    tie_columns,
    include_negative,
    places,
    rows,
    old,
    new,
):
    """Write the first rows of the prefixes from ``start`` on until the result arrays are full.

    Args:
        table: Number of runs, then their addresses; all in one column order.
        extra: Address of the run of the delta, 0 for none.
        prefixes: int64, shape ``(k, n)``, ``k < arity``.
        starts: Shape ``(arity - k, n)``: no row before it has a positive weight without the delta;
            or shape ``(arity - k, 0)``, for unknown.
        arity: Levels of the runs.
        start: The first prefix to answer.
        limit: Stop when the weights of the rows add up to this; at least 1, or -1 for all rows.
        tie_columns: Then continue with rows that equal the last one in this many columns after k.
        include_negative: Return rows of negative weight as well; only with ``limit`` -1.
        places: Result: the prefix of each row.
        rows: Result: its other columns, shape ``(arity - k, capacity)``.
        old: Result: its weight without the delta, 0 if it is not among the first rows.
        new: Result: its weight with the delta, likewise.

    Returns:
        ``(next, written)``: the first prefix without an answer, and the rows of those before it.
    """
    k, n = prefixes.shape
    depth = arity - k
    runs = table[0] + (1 if extra != 0 else 0)
    capacity = old.shape[0]
    # Per level and run: the address of the values and the word of the offsets.
    values = np.empty((arity, runs + 1), np.int64)
    offsets = np.empty((arity, runs + 1), np.int64)
    address = np.empty(runs + 1, np.int64)
    for r in range(runs):
        run = extra if r == table[0] else table[1 + r]
        address[r] = run
        for level in range(arity):
            entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
            values[level, r] = run + (load(run, entry + LEVEL_VALUES) << 3)
            offsets[level, r] = load(run, entry + LEVEL_OFFSETS)
    # Per level below the prefix: the runs that contain the path, each with a range of siblings.
    who = np.empty((depth, runs + 1), np.int64)
    at = np.empty((depth, runs + 1), np.int64)
    end = np.empty((depth, runs + 1), np.int64)
    active = np.zeros(depth, np.int64)
    path = np.empty(depth, np.int64)
    bound = np.empty(depth, np.int64)
    bounded = starts.shape[1] > 0
    written = 0
    for prefix in range(start, n):
        begin = written
        count = 0
        for r in range(runs):
            run = address[r]
            first = np.int64(0)
            last = load(run, LEVEL_HEADERS + LEVEL_NODES)
            for level in range(k):
                value = prefixes[level, prefix]
                if level == 0:
                    first = root_seek(run, first, last, value)
                else:
                    first = seek(values[level, r], first, last, value)
                if first >= last or load(values[level, r], first) != value:
                    last = first
                    break
                last = load(run, offsets[level, r] + first + 1)
                first = load(run, offsets[level, r] + first)
            if first < last:
                who[0, count] = r
                at[0, count] = first
                end[0, count] = last
                count += 1
        active[0] = count
        # The number of path levels that equal the bound; the bound then limits the next level.
        tight = -1
        if bounded:
            tight = 0
            bound[:] = starts[:, prefix]
            if extra != 0 and count > 0 and who[0, count - 1] == table[0]:
                r = table[0]
                lower_to_first(extra, values[:, r], offsets[:, r], k, at[0, count - 1], bound)
            for j in range(count):
                at[0, j] = seek(values[k, who[0, j]], at[0, j], end[0, j], bound[0])
        old_sum = np.int64(0)
        new_sum = np.int64(0)
        old_open = True
        new_open = True
        level = 0
        while True:
            found = False
            value = np.int64(0)
            for j in range(active[level]):
                if at[level, j] < end[level, j]:
                    other = load(values[k + level, who[level, j]], at[level, j])
                    if not found or other < value:
                        value = other
                    found = True
            if not found:
                if level == 0:
                    break
                level -= 1
                continue
            if level < tie_columns:
                # All later rows differ from the last row in a tie column.
                old_open = old_open and old_sum != limit
                new_open = new_open and new_sum != limit
                if not (old_open or new_open):
                    break
            path[level] = value
            if level < depth - 1:
                count = 0
                for j in range(active[level]):
                    i = at[level, j]
                    r = who[level, j]
                    if i < end[level, j] and load(values[k + level, r], i) == value:
                        at[level, j] = i + 1
                        who[level + 1, count] = r
                        at[level + 1, count] = load(address[r], offsets[k + level, r] + i)
                        end[level + 1, count] = load(address[r], offsets[k + level, r] + i + 1)
                        count += 1
                tight = level + 1 if tight == level and value == bound[level] else -1
                level += 1
                active[level] = count
                if tight == level:
                    for j in range(count):
                        first = at[level, j]
                        below = values[k + level, who[level, j]]
                        at[level, j] = seek(below, first, end[level, j], bound[level])
                continue
            before = np.int64(0)
            change = np.int64(0)
            for j in range(active[level]):
                i = at[level, j]
                r = who[level, j]
                if i < end[level, j] and load(values[k + level, r], i) == value:
                    at[level, j] = i + 1
                    weight = load(address[r], UNIFORM_WEIGHT)
                    sums = load(address[r], WEIGHT_SUMS)
                    if sums > 0:
                        weight = wrapping_subtract(
                            load(address[r], sums + i + 1), load(address[r], sums + i)
                        )
                    if r == table[0]:
                        change = weight
                    else:
                        before = add(before, weight)
            after = add(before, change)
            if not include_negative:
                before = before if old_open and before > 0 else np.int64(0)
                after = after if new_open and after > 0 else np.int64(0)
            if before == 0 and after == 0:
                continue
            if written == capacity:
                return prefix, begin
            places[written] = prefix
            for j in range(depth):
                rows[j, written] = path[j]
            old[written] = before
            new[written] = after
            written += 1
            if limit >= 0:
                # The sums are capped at the limit, so they cannot overflow.
                old_sum = limit if before >= limit - old_sum else old_sum + before
                new_sum = limit if after >= limit - new_sum else new_sum + after
    return n, written
