"""Group changes: the groups of a delta, their rows before and after it, and the change of results.

An aggregate computes a step for all changed groups together::

    distinct_keys        the groups of the delta
    split_at_step        their rows before the step and after it, from one pass over the trace
                         (for linear aggregates, `dbsp_wcoj.storage.group_lookup` returns them)
    first_slot_weights   the weight of each quantity's first slot, and
    rows_of_slots        the rows of one quantity, for linear aggregates
    replaced_results     the old results of weight -1 and the new results of weight 1

Each is one loop instead of about ten operations on arrays, which matters for small steps.

Group i before the step has the index i, after the step n + i, where n is the number of groups.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine


@kernel
def distinct_keys(rows, key_count):
    """Return the distinct values of the first columns of sorted rows, shape ``(key_count, n)``.

    Args:
        rows: int64, shape ``(columns, rows)``, sorted.
        key_count: The number of columns of a key, at least 1.
    """
    count = rows.shape[1]
    is_first = np.ones(count, np.bool_)
    groups = min(count, 1)
    for row in range(1, count):
        column = 0
        while column < key_count and rows[column, row] == rows[column, row - 1]:
            column += 1
        is_first[row] = column < key_count
        groups += is_first[row]
    keys = np.empty((key_count, groups), np.int64)
    for column in range(key_count):
        group = 0
        for row in range(count):
            if is_first[row]:
                keys[column, group] = rows[column, row]
                group += 1
    return keys


@kernel
def split_at_step(group_indices, rows, old, new, groups):
    """Return the rows that exist before a step, followed by those that exist after it.

    Args:
        group_indices: int64, the group of each row.
        rows: int64, shape ``(columns, rows)``.
        old: int64, the weight of each row before the step.
        new: int64, the weight of each row after the step.
        groups: The number of groups n.

    Returns:
        ``(group_indices, rows, weights)`` of the rows with weights that are not 0; n is added to
        the groups of the rows after the step.
    """
    columns, count = rows.shape
    size = 0
    for row in range(count):
        size += (old[row] != 0) + (new[row] != 0)
    indices = np.empty(size, np.int64)
    split_rows = np.empty((columns, size), np.int64)
    weights = np.empty(size, np.int64)
    written = 0
    for is_new in range(2):
        row_weights = new if is_new else old
        for row in range(count):
            if row_weights[row] != 0:
                indices[written] = group_indices[row] + is_new * groups
                weights[written] = row_weights[row]
                for column in range(columns):
                    split_rows[column, written] = rows[column, row]
                written += 1
    return indices, split_rows, weights


@kernel
def first_slot_weights(group_indices, slots, weights, quantities, groups, slots_per_quantity):
    """Return the weight of the first slot of each quantity, shape ``(quantities, groups)``.

    Args:
        group_indices: int64, the group of each row of the state.
        slots: int64, the slot of each row.
        weights: int64, the weight of each row.
        quantities: The number of quantities.
        groups: The number of groups.
        slots_per_quantity: The number of slots of a quantity.
    """
    totals = np.zeros((quantities, groups), np.int64)
    for row in range(slots.shape[0]):
        if slots[row] % slots_per_quantity == 0:
            totals[slots[row] // slots_per_quantity, group_indices[row]] = weights[row]
    return totals


@kernel
def rows_of_slots(group_indices, slots, weights, first_slot, end_slot):
    """Return the groups, the positions and the weights of the rows with slots in a range.

    Args:
        group_indices: int64, the group of each row of the state.
        slots: int64, the slot of each row.
        weights: int64, the weight of each row.
        first_slot: The first slot, which has the position 0.
        end_slot: The slot after the last one.
    """
    count = 0
    for row in range(slots.shape[0]):
        count += first_slot <= slots[row] < end_slot
    indices = np.empty(count, np.int64)
    positions = np.empty(count, np.int64)
    amounts = np.empty(count, np.int64)
    written = 0
    for row in range(slots.shape[0]):
        if first_slot <= slots[row] < end_slot:
            indices[written] = group_indices[row]
            positions[written] = slots[row] - first_slot
            amounts[written] = weights[row]
            written += 1
    return indices, positions, amounts


@subroutine
def compare_results(results, left, right):
    """Return a negative, zero or positive number as one result is less, equal or greater."""
    for column in range(results.shape[0]):
        if results[column, left] != results[column, right]:
            return -1 if results[column, left] < results[column, right] else 1
    return 0


@subroutine
def write_result(keys, group, results, index, weight, rows, weights, written):
    """Write a key and a result as a row with a weight."""
    key_count = keys.shape[0]
    for column in range(key_count):
        rows[column, written] = keys[column, group]
    for column in range(results.shape[0]):
        rows[key_count + column, written] = results[column, index]
    weights[written] = weight


@kernel
def replaced_results(keys, exists, results, is_initial):
    """Return the delta that replaces old results by new ones, for the groups that differ.

    Args:
        keys: int64, shape ``(keys, n)``, sorted and distinct.
        exists: bool: whether each group had a result before the step, then after it.
        results: int64, shape ``(results, 2 n)``: the old results, then the new ones.
        is_initial: True if no group had a result before the step, regardless of ``exists``.

    Returns:
        ``(rows, weights)``, sorted.
    """
    key_count, n = keys.shape
    size = 0
    # -1: only deleted; 1: only inserted; -2 and 2: both, the deleted or the inserted row first.
    changes = np.zeros(n, np.int8)
    for group in range(n):
        had_result = exists[group] and not is_initial
        has_result = exists[n + group]
        if had_result and has_result:
            order = compare_results(results, group, n + group)
            if order != 0:
                changes[group] = 2 * order
                size += 2
        elif had_result or has_result:
            changes[group] = -1 if had_result else 1
            size += 1
    rows = np.empty((key_count + results.shape[0], size), np.int64)
    weights = np.empty(size, np.int64)
    written = 0
    for group in range(n):
        change = changes[group]
        if change == -1 or change == -2:
            write_result(keys, group, results, group, -1, rows, weights, written)
            written += 1
        if change != 0 and change != -1:
            write_result(keys, group, results, n + group, 1, rows, weights, written)
            written += 1
        if change == 2:
            write_result(keys, group, results, group, -1, rows, weights, written)
            written += 1
    return rows, weights
