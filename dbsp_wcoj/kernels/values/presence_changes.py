"""Presence changes: how a step changes the iterations at which rows are present.

A row is present after an iteration if its weights up to this iteration add up to more than 0. The
iterations of a row ascend, so one pass over its history finds all changes of a step::

    present(i)  = [Σ over j ≤ i of weight[j] > 0]
    change(i)   = (present_new(i) - present_new(i - 1)) - (present_old(i) - present_old(i - 1))
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add


@kernel
def change_presence(rows, row_indices, iterations, old, new):
    """Find how a step changes the iterations at which rows become present or absent.

    Args:
        rows: int64, shape ``(columns, n)``; there may be no columns.
        row_indices: int64, shape ``(m,)``: the row of each entry of a history, not descending.
        iterations: int64, its iteration, ascending within a row.
        old: int64, its weight before the step.
        new: int64, its weight after the step.

    Returns:
        ``(changed_rows, weights, is_overflow)``: a row for each change, with the iteration as its
        last column, in the order of the histories; their weights, from -2 to 2, without 0; and
        whether a sum of weights does not fit in int64, so that the changes are not valid.
    """
    columns = rows.shape[0]
    entries = row_indices.shape[0]
    positions = np.empty(entries, np.int64)
    changes = np.empty(entries, np.int64)
    count = 0
    old_sum = np.int64(0)
    new_sum = np.int64(0)
    is_overflow = False
    for i in range(entries):
        if i == 0 or row_indices[i] != row_indices[i - 1]:
            old_sum = np.int64(0)
            new_sum = np.int64(0)
        old_before = np.int64(old_sum > 0)
        new_before = np.int64(new_sum > 0)
        old_sum = add(old_sum, old[i])
        new_sum = add(new_sum, new[i])
        is_overflow |= old_sum == OVERFLOWED or new_sum == OVERFLOWED
        change = np.int64(new_sum > 0) - new_before - np.int64(old_sum > 0) + old_before
        if change != 0:
            positions[count] = i
            changes[count] = change
            count += 1
    changed_rows = np.empty((columns + 1, count), np.int64)
    weights = np.empty(count, np.int64)
    for k in range(count):
        i = positions[k]
        for column in range(columns):
            changed_rows[column, k] = rows[column, row_indices[i]]
        changed_rows[columns, k] = iterations[i]
        weights[k] = changes[k]
    return changed_rows, weights, is_overflow
