"""Group lookup: the states of groups in a trace, before and after a delta.

A row of the trace is the key of a group and one more column, the number of an accumulator of the
group (its *slot*); the weight is the value of the accumulator. The state of a group is its slots::

    old[group, slot] = Σ over the runs of the spine of run[group, slot]
    new[group, slot] = old[group, slot] + delta[group, slot]

`prefix_lookup` would return the same, but its traversal of any number of columns takes several
times as long for one.

Cost: O(log N) per group and run to find the group, O(runs) per slot.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.memory import borrow, load_value
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.row_ranges import weight_before
from dbsp_wcoj.kernels.storage.search import find_children
from dbsp_wcoj.kernels.values.arithmetic import add, wrapping_subtract


@kernel
def look_up_groups(table, delta_run, keys):
    """Return the slots of each group before a delta, followed by those after it.

    Args:
        table: The number of runs, then their addresses.
        delta_run: The address of the delta's run; 0 for none.
        keys: int64, shape ``(k, n)``, fastest when sorted; the runs have ``k + 1`` columns.

    Returns:
        ``(group_indices, slots, weights)`` of the slots that are not 0, sorted: index i is group i
        before the delta, n + i is group i after it.
    """
    keys = borrow(keys)
    k, n = keys.shape
    runs = table[0] + (delta_run != 0)
    # The slots of each group in each run: nodes [first, last) of the last level.
    firsts = np.zeros((runs, n), np.int64)
    lasts = np.zeros((runs, n), np.int64)
    size = 0
    for r in range(runs):
        run = delta_run if r == table[0] else table[1 + r]
        for group in range(n):
            first, last = find_children(run, keys, group)
            firsts[r, group] = first
            lasts[r, group] = last
            size += last - first
    entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * k
    # The slots after the delta are written behind all those before it, and moved at the end.
    group_indices = np.empty(2 * size, np.int64)
    slots = np.empty(2 * size, np.int64)
    weights = np.empty(2 * size, np.int64)
    old_count = 0
    new_end = size
    for group in range(n):
        while True:
            slot = np.int64(0)
            is_open = False
            for r in range(runs):
                if firsts[r, group] < lasts[r, group]:
                    run = delta_run if r == table[0] else table[1 + r]
                    values = values_of(run, entry)
                    value = load_value(values, firsts[r, group])
                    slot = min(slot, value) if is_open else value
                    is_open = True
            if not is_open:
                break
            old = np.int64(0)
            new = np.int64(0)
            for r in range(runs):
                first = firsts[r, group]
                if first < lasts[r, group]:
                    run = delta_run if r == table[0] else table[1 + r]
                    values = values_of(run, entry)
                    if load_value(values, first) == slot:
                        firsts[r, group] = first + 1
                        # The sums may wrap around; the difference of two is still exact.
                        weight = wrapping_subtract(
                            weight_before(run, first + 1), weight_before(run, first)
                        )
                        new = add(new, weight)
                        if r < table[0]:
                            old = new
            group_indices[old_count] = group
            slots[old_count] = slot
            weights[old_count] = old
            old_count += old != 0
            group_indices[new_end] = n + group
            slots[new_end] = slot
            weights[new_end] = new
            new_end += new != 0
    count = old_count
    for i in range(size, new_end):
        group_indices[count] = group_indices[i]
        slots[count] = slots[i]
        weights[count] = weights[i]
        count += 1
    return group_indices[:count], slots[:count], weights[:count]
