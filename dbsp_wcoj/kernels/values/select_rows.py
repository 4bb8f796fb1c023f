"""Select rows: run filters over columns of codes, and copy columns of the rows that pass.

::

    select(rows) = {(chosen columns of x, weight of x) | x in rows, every filter is TRUE for x}

A filter is a program of instructions that keep masks of the rows on a stack. A comparison pushes a
mask; `AND`, `OR` and `NOT` combine the masks on top. After the instructions of each filter, `COUNT`
records how many rows have passed all filters so far. One call runs all filters, because for a few
rows the overhead of a call per filter dominates.

`NULL`, the least int64, is the code of an SQL NULL. `NOT_EQUAL` and the comparisons of two columns
are false for it, as in SQL, except `SAME` and `DISTINCT`. `BETWEEN` and `DISTINCT_FROM` compare it
like any other code: `BETWEEN` is true for it only if ``LOW`` is `NULL`.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.storage.sort import (
    MAX_INSERTION_ROWS,
    OVERFLOW,
    insertion_permutation,
    is_sorted,
    sum_equal_rows,
)

# program[i, ...]
OPERATION = 0
LEFT = 1  # a column
RIGHT = 2  # another column, for the operations on two columns
LOW = 3  # a constant
HIGH = 4  # a constant
INSTRUCTION_WORDS = 5

# The operations on a column x and constants.
BETWEEN = 0  # LOW <= x <= HIGH
NOT_EQUAL = 1  # x != LOW, and x is not NULL
DISTINCT_FROM = 2  # x != LOW
# The operations on two columns x and y.
LESS = 3
LESS_OR_EQUAL = 4
EQUAL = 5
UNEQUAL = 6
SAME = 7  # equal, or both NULL
DISTINCT = 8  # not SAME
# The operations on masks.
AND = 9
OR = 10
NOT = 11
COUNT = 12

NULL = -(2**63)
# `select_rows` returns this if a sum of weights leaves int64.
OVERFLOWED_WEIGHT = -1


@subroutine
def compare_with_constants(operation, x, low, high, mask):
    """Write the mask of an operation on a column and constants."""
    if operation == BETWEEN:
        for i in range(x.shape[0]):
            mask[i] = (x[i] >= low) & (x[i] <= high)
    elif operation == NOT_EQUAL:
        for i in range(x.shape[0]):
            mask[i] = (x[i] != low) & (x[i] != NULL)
    else:
        for i in range(x.shape[0]):
            mask[i] = x[i] != low


@subroutine
def compare_columns(operation, x, y, mask):
    """Write the mask of an operation on two columns.

    NULL is the least code, so if x < y then y is not NULL.
    """
    if operation == LESS:
        for i in range(x.shape[0]):
            mask[i] = (x[i] < y[i]) & (x[i] != NULL)
    elif operation == LESS_OR_EQUAL:
        for i in range(x.shape[0]):
            mask[i] = (x[i] <= y[i]) & (x[i] != NULL)
    elif operation == EQUAL:
        for i in range(x.shape[0]):
            mask[i] = (x[i] == y[i]) & (x[i] != NULL)
    elif operation == UNEQUAL:
        for i in range(x.shape[0]):
            mask[i] = (x[i] != y[i]) & (x[i] != NULL) & (y[i] != NULL)
    elif operation == SAME:
        for i in range(x.shape[0]):
            mask[i] = x[i] == y[i]
    else:
        for i in range(x.shape[0]):
            mask[i] = x[i] != y[i]


@subroutine
def combine_masks(operation, mask, other):
    """Combine two masks into the first one, or negate the first one."""
    if operation == AND:
        for i in range(mask.shape[0]):
            mask[i] &= other[i]
    elif operation == OR:
        for i in range(mask.shape[0]):
            mask[i] |= other[i]
    else:
        for i in range(mask.shape[0]):
            mask[i] = not mask[i]


@subroutine
def count_true(mask):
    """Return the number of rows for which a mask is true."""
    total = np.int64(0)
    for i in range(mask.shape[0]):
        total += mask[i]
    return total


@subroutine
def run_program(rows, program, masks, counts):
    """Write the mask of the rows that pass to ``masks[0]``; return their number."""
    top = -1
    filters = 0
    passing = np.int64(masks.shape[1])
    for k in range(program.shape[0]):
        operation = program[k, OPERATION]
        if operation < LESS:
            top += 1
            column = rows[program[k, LEFT]]
            compare_with_constants(operation, column, program[k, LOW], program[k, HIGH], masks[top])
        elif operation < AND:
            top += 1
            left, right = rows[program[k, LEFT]], rows[program[k, RIGHT]]
            compare_columns(operation, left, right, masks[top])
        elif operation == COUNT:
            passing = count_true(masks[0])
            counts[filters] = passing
            filters += 1
        elif operation == NOT:
            combine_masks(operation, masks[top], masks[top])
        else:
            top -= 1
            combine_masks(operation, masks[top], masks[top + 1])
    return passing


@subroutine
def add_equal_rows(columns, weights):
    """Sort a few rows in place and add up the weights of equal ones.

    Returns:
        The number of rows of the result, which are at the start of both arrays;
        `OVERFLOWED_WEIGHT` if a sum leaves int64.
    """
    order = np.arange(columns.shape[0])
    if is_sorted(columns, order):
        return weights.shape[0]
    permutation = insertion_permutation(columns, order)
    kept, summed, status = sum_equal_rows(columns, weights, order, permutation)
    if status == OVERFLOW:
        return OVERFLOWED_WEIGHT
    sorted_columns = columns[:, permutation[:kept]]
    flat = columns.reshape(columns.size)
    for k in range(columns.shape[0]):
        for i in range(kept):
            flat[k * kept + i] = sorted_columns[k, i]
    weights[:kept] = summed
    return kept


@kernel
def select_rows(rows, weights, program, columns, masks, out, out_weights, counts):
    """Run filters over rows, and copy columns of those that pass.

    If all columns are copied in their order, the result has the order of the rows. Otherwise up to
    `MAX_INSERTION_ROWS` rows are sorted, and the weights of equal rows are added up; more rows are
    left for the caller to sort.

    Args:
        rows: int64, shape ``(columns, n)``, n at least 1.
        weights: int64, shape ``(n,)``; none is 0.
        program: int64, shape ``(instructions, INSTRUCTION_WORDS)``; it ends with `COUNT`.
        columns: The columns to copy; none for all in their order.
        masks: bool, shape ``(masks of the program, n)``, for the stack.
        out: int64, room for n rows; the result is in the first words, column after column. It is
            not written to if all rows pass and all columns are copied.
        out_weights: int64, shape ``(n,)``, as ``out``.
        counts: Result: for each filter, the number of rows that pass it and those before it.

    Returns:
        The number of rows of the result; `OVERFLOWED_WEIGHT` if a sum of weights leaves int64.
    """
    passing = run_program(rows, program, masks, counts)
    has_all_columns = columns.shape[0] == 0
    if passing == 0 or (has_all_columns and passing == weights.shape[0]):
        return passing
    width = rows.shape[0] if has_all_columns else columns.shape[0]
    mask = masks[0]
    for k in range(width):
        column = rows[k] if has_all_columns else rows[columns[k]]
        position = k * passing
        # Every row is written; if it does not pass, the next one overwrites it. A mispredicted
        # branch per row would cost more. The last such write may be one word after the result. That
        # word is in ``out``, which has room for n rows, and then fewer than n rows pass.
        for i in range(mask.shape[0]):
            out[position] = column[i]
            position += mask[i]
    position = 0
    for i in range(mask.shape[0]):
        out_weights[position] = weights[i]
        position += mask[i]
    if has_all_columns or passing > MAX_INSERTION_ROWS:
        return passing
    result = out[: width * passing].reshape(width, passing)
    return add_equal_rows(result, out_weights[:passing])
