"""Semijoins of a delta with unary relations: the rows whose columns have all required values.

    for each semijoin:   out = the rows with row[column] in unary relation, for all its conditions

A condition is a column and the spine of a unary relation (`dbsp_wcoj.kernels.storage.spine`). Each
distinct condition is tested once per row, and its result is one bit. A semijoin keeps the
rows that have the bits of all its conditions.

Cost: O(1) per row and condition if the unary relation is one run with a bitmap, else O(runs).
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, load
from dbsp_wcoj.kernels.storage.bitmap import count_bits, find_bitmap, has_bit
from dbsp_wcoj.kernels.storage.run_layout import (
    LEVEL_HEADERS,
    LEVEL_NODES,
    LOWEST_VALUE,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.search import root_find
from dbsp_wcoj.kernels.storage.spine import FIRST_RUN, RUN_COUNT
from dbsp_wcoj.kernels.values.arithmetic import wrapping_add, wrapping_subtract

# filters[...]: the number of conditions; for each condition, a column and the address of the table
# of a spine; then, for each semijoin, a word with the bits of its conditions.
CONDITIONS = 0
FIRST_CONDITION = 1
CONDITION_WORDS = 2

#: Bits of a word, without the sign.
MAX_CONDITIONS = 63


@subroutine
def weight_in(table, value):
    """Return the weight of a value in a unary relation, 0 if it is absent."""
    weight = np.int64(0)
    for index in range(load(table, RUN_COUNT)):
        run = load(table, FIRST_RUN + index)
        nodes = load(run, LEVEL_HEADERS + LEVEL_NODES)
        node, is_found = root_find(run, np.int64(0), nodes, value)
        if is_found:
            sums = load(run, WEIGHT_SUMS)
            if sums == 0:
                weight = wrapping_add(weight, load(run, UNIFORM_WEIGHT))
            else:
                end = load(run, sums + node + 1)
                weight = wrapping_add(weight, wrapping_subtract(end, load(run, sums + node)))
    return weight


@subroutine
def mark_members(column, table, bit, met):
    """Set a bit of ``met[i]`` if the unary relation contains ``column[i]``."""
    if load(table, RUN_COUNT) == 0:
        return
    run = load(table, FIRST_RUN)
    bitmap = find_bitmap(run)
    if load(table, RUN_COUNT) == 1 and bitmap != 0:
        lowest = load(run, LOWEST_VALUE)
        bits = count_bits(run)
        for i in range(column.shape[0]):
            if has_bit(bitmap, lowest, bits, column[i]):
                met[i] |= bit
        return
    for i in range(column.shape[0]):
        if weight_in(table, column[i]) != 0:
            met[i] |= bit


@subroutine
def test_rows(columns, filters):
    """Return the results of the conditions of each row: bit k is that of condition k."""
    met = np.zeros(columns.shape[1], np.int64)
    for index in range(filters[CONDITIONS]):
        entry = FIRST_CONDITION + CONDITION_WORDS * index
        bit = np.int64(1) << index
        mark_members(columns[filters[entry]], filters[entry + 1], bit, borrow(met))
    return met


@subroutine
def count_rows(met, filters):
    """Return the number of rows of each semijoin, given the result of `test_rows`."""
    first = FIRST_CONDITION + CONDITION_WORDS * filters[CONDITIONS]
    counts = np.zeros(filters.shape[0] - first, np.int64)
    for index in range(counts.shape[0]):
        needed = filters[first + index]
        for i in range(met.shape[0]):
            counts[index] += (met[i] & needed) == needed
    return counts


@subroutine
def needed_bits(filters, semijoin):
    """Return a word with the bits of all conditions of a semijoin."""
    return filters[FIRST_CONDITION + CONDITION_WORDS * filters[CONDITIONS] + semijoin]


@subroutine
def largest_weight(weights):
    """Return the largest absolute weight."""
    largest = np.int64(0)
    for i in range(weights.shape[0]):
        largest = max(largest, abs(weights[i]))
    return largest


@kernel
def semijoin_rows(columns, weights, filters):
    """Return ``(out, counts, largest)``: the rows of each semijoin, and the largest |weight|.

    Args:
        columns: int64, shape ``(arity, n)``.
        weights: int64, shape ``(n,)``.
        filters: int64; the words above.

    Returns:
        ``counts`` has the number of rows of each semijoin. ``out`` has, for each semijoin, its
        columns one after the other and then its weights; the rows are in the order of ``columns``.
    """
    columns, filters = borrow(columns), borrow(filters)
    arity, rows = columns.shape
    met = test_rows(columns, filters)
    counts = count_rows(met, filters)
    out = np.empty(counts.sum() * (arity + 1), np.int64)
    start = np.int64(0)
    for index in range(counts.shape[0]):
        count = counts[index]
        if count == 0:
            continue
        needed = needed_bits(filters, index)
        position = start
        for i in range(rows):
            if (met[i] & needed) == needed:
                for column in range(arity):
                    out[position + column * count] = columns[column, i]
                out[position + arity * count] = weights[i]
                position += 1
        start += (arity + 1) * count
    return out, counts, largest_weight(weights)
