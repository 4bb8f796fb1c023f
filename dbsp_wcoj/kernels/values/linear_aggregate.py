"""Linear aggregates: the sums of groups, and results that are computed from them.

::

    sum_quantities(rows)[key, slot]  =  Σ over the rows of the key of weight · value for the slot
    results(state)[call, group]      =  the code of the result of each call

Each is one call instead of about ten calls for each aggregate, which matters for small steps. They
compute the quantities and results that occur most: counts, and sums and means of integers, decimals
and doubles. If a value or result needs anything else, they return `UNSUPPORTED`, and the caller
computes all of it in another way (`circuits.runtime.operators.aggregates.linear_aggregate`). The
sums are the same in both ways, digit by digit, because both change the same state.

A slot is the number of a quantity of a group: the first slot of a sum is that of its digit 0
(`dbsp_wcoj.kernels.values.digits`).
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive
from dbsp_wcoj.kernels.storage.sort import compare_rows, row_permutation
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add
from dbsp_wcoj.kernels.values.digits import (
    MAX_LIMBS,
    carry_digits,
    fits_in,
    split_product,
    strip_zeros,
    sum_to_float,
)

NULL = -(2**63)

OK = 0
UNSUPPORTED = 1

# quantities[i, ...] of `sum_quantities`, in the order of their slots
KIND = 0
COLUMN = 1
FIRST_SLOT = 2
QUANTITY_WORDS = 3
# The kinds of quantities.
ROWS = 0  # 1 for each row
NULLS = 1  # 1 where the column is NULL
INTEGERS = 2  # the digits of the column
WIDE_DECIMALS = 3  # the digits of the column, whose codes are shifted
DOUBLES = 4  # the digits of the column

# calls[i, ...] of `compute_results`; the kind is in word 0
COUNT_SLOT = 1  # the slot from which the count of the argument is computed; -1 for count(*)
IS_DISTINCT = 2  # 1 if this slot has the number of values; 0 if it has the number of NULLs
SUM_SLOT = 3  # the first slot of the sum
MAX_MAGNITUDE = 4  # of an integer
SCALE = 5  # the power of ten by which a float is divided
UNIT_EXPONENT = 6  # the digit 0 of a sum that becomes a float is a multiple of 2**UNIT_EXPONENT
CALL_WORDS = 7
# The kinds of results.
COUNT = 0
INTEGER = 1
WIDE_DECIMAL = 2
DOUBLE = 3
MEAN = 4

# The digits of an integer times a weight, or of a double with a digit range of one position.
DIGITS = 5
# The most positions of the digits of a column of doubles.
MAX_POSITIONS = 24
# The most sums of all groups and positions.
MAX_TOTALS = 1 << 22
# Positions of a sum from here on count infinities and NaN.
FIRST_SPECIAL_POSITION = 120
# The least positive double is 2**-1074.
MIN_EXPONENT = -1074

_LOW = np.uint64(0xFFFFFFFF)
_MANTISSA_BITS = 52
_MANTISSA_MASK = (1 << 52) - 1
_EXPONENT_MASK = 0x7FF
_SIGN_MASK = 2**63 - 1


@subroutine
def group_sorted_rows(rows, key_columns, permutation, groups, first_rows):
    """Number the groups of rows in the order of their keys; return the number of groups."""
    count = np.int64(0)
    for i in range(permutation.shape[0]):
        row = permutation[i]
        if i == 0 or compare_rows(rows, key_columns, permutation[i - 1], row) != 0:
            first_rows[count] = row
            count += 1
        groups[row] = count - 1
    return count


@subroutine
def double_exponent(code):
    """Return the exponent field of the double with a code; the greatest is not finite."""
    bits = code ^ ((code >> 63) & _SIGN_MASK)
    return (bits >> _MANTISSA_BITS) & _EXPONENT_MASK


@subroutine
def double_shift(exponent):
    """Return the position of the lowest bit of a double's mantissa, in multiples of 2**-1074."""
    return max(exponent - 1, 0)


@subroutine
def double_mantissa(code):
    """Return the mantissa of the double with a code, an integer with its sign."""
    bits = code ^ ((code >> 63) & _SIGN_MASK)
    exponent = (bits >> _MANTISSA_BITS) & _EXPONENT_MASK
    mantissa = (bits & _MANTISSA_MASK) | (np.int64(exponent != 0) << _MANTISSA_BITS)
    return -mantissa if bits < 0 else mantissa


@subroutine
def position_range(codes):
    """Return the least and greatest digit of a column of doubles; (0, -1) if one is not finite.

    NULL has no digits, and neither has 0.0, whose code is 0.
    """
    least, greatest = np.int64(2048), np.int64(-1)
    for row in range(codes.shape[0]):
        if codes[row] == NULL or codes[row] == 0:
            continue
        exponent = double_exponent(codes[row])
        if exponent == _EXPONENT_MASK:
            return np.int64(0), np.int64(-1)
        position = double_shift(exponent) >> 5
        least = min(least, position)
        greatest = max(greatest, position)
    return (least, greatest) if greatest >= 0 else (np.int64(0), np.int64(0))


@subroutine
def add_digits(number, is_negative, bits, totals, group, column):
    """Add the digits of ``number * 2**bits``, or subtract them; ``column`` is that of digit 0."""
    magnitude = np.uint64(abs(number))
    sign = np.int64(-1) if (number < 0) != is_negative else np.int64(1)
    totals[group, column] += sign * np.int64((magnitude << np.uint64(bits)) & _LOW)
    totals[group, column + 1] += sign * np.int64((magnitude >> np.uint64(32 - bits)) & _LOW)
    if bits > 0:
        totals[group, column + 2] += sign * np.int64(magnitude >> np.uint64(64 - bits))


@subroutine
def add_product(number, weight, bits, totals, group, column, word, limbs, product):
    """Add the digits of ``number * weight * 2**bits``; ``column`` is that of digit 0."""
    word[0, 0] = number
    is_negative = split_product(word, 0, weight, bits, limbs, product)
    for j in range(DIGITS):
        amount = np.int64(product[j])
        totals[group, column + j] += -amount if is_negative else amount


@kernel
def sum_quantities(
    rows, weights, key_columns, group_of, group_rows, quantities, shift, inline, scratch
):
    """Add up the quantities of rows by group.

    Args:
        rows: int64, shape ``(columns, n)``, in any order; columns and n are at least 1.
        weights: int64, shape ``(n,)``.
        key_columns: The columns that identify a group.
        group_of: The group of each row, if known; else empty.
        group_rows: A row of each group; empty if the groups are not known.
        quantities: int64, shape ``(quantities, QUANTITY_WORDS)``.
        shift: The code of the wide decimal 0.
        inline: Codes of wide decimals below ``shift - inline`` are not numbers.
        scratch: int64, shape ``(SCRATCH_ARRAYS, m)`` for m known groups, or n rows; may be shorter
            if these are at most `MAX_INSERTION_ROWS`.

    Returns:
        ``(status, rows, weights)``: the sums that are not 0 as rows (keys, slot), sorted; and the
        sums. The arrays are empty if the status is `UNSUPPORTED`.
    """
    rows, weights = borrow(rows), borrow(weights)
    n = weights.shape[0]
    key_count = key_columns.shape[0]
    nothing = np.empty((0, 0), np.int64), np.empty(0, np.int64)
    groups = np.zeros(n, np.int64)
    first_rows = np.zeros(n if group_rows.shape[0] == 0 else group_rows.shape[0], np.int64)
    group_count = np.int64(1)
    if group_rows.shape[0] > 0:
        group_count = np.int64(group_rows.shape[0])
        if key_count > 0:
            keys = np.empty((key_count, group_count), np.int64)
            for k in range(key_count):
                for group in range(group_count):
                    keys[k, group] = rows[key_columns[k], group_rows[group]]
            permutation = row_permutation(keys, np.arange(key_count), scratch)
            ranks = np.empty(group_count, np.int64)
            for rank in range(group_count):
                ranks[permutation[rank]] = rank
                first_rows[rank] = group_rows[permutation[rank]]
            for row in range(n):
                groups[row] = ranks[group_of[row]]
    elif key_count > 0:
        permutation = row_permutation(rows, key_columns, scratch)
        group_count = group_sorted_rows(rows, key_columns, permutation, groups, first_rows)
    # The totals of a group: one for each quantity and position.
    quantity_count = quantities.shape[0]
    columns = np.empty(quantity_count + 1, np.int64)
    positions = np.zeros(quantity_count, np.int64)  # of the first total
    columns[0] = 0
    for q in range(quantity_count):
        width = np.int64(1)
        if quantities[q, KIND] >= INTEGERS:
            width = np.int64(DIGITS)
        if quantities[q, KIND] == DOUBLES:
            least, greatest = position_range(rows[quantities[q, COLUMN]])
            if greatest < least or greatest - least + DIGITS > MAX_POSITIONS:
                return UNSUPPORTED, nothing[0], nothing[1]
            positions[q] = least
            width += greatest - least
        columns[q + 1] = columns[q] + width
    if group_count * columns[quantity_count] > MAX_TOTALS:
        return UNSUPPORTED, nothing[0], nothing[1]
    owned_totals = np.zeros((group_count, columns[quantity_count]), np.int64)
    owned_word = np.empty((1, 1), np.int64)
    owned_limbs, owned_product = np.empty(DIGITS, np.uint64), np.empty(DIGITS, np.uint64)
    totals, word = borrow(owned_totals), borrow(owned_word)
    limbs, product = borrow(owned_limbs), borrow(owned_product)
    for q in range(quantity_count):
        kind = quantities[q, KIND]
        first = columns[q]
        codes = rows[quantities[q, COLUMN]]
        if kind <= NULLS:
            for row in range(n):
                if kind == NULLS and codes[row] != NULL:
                    continue
                total = add(totals[groups[row], first], weights[row])
                if total == OVERFLOWED:
                    return UNSUPPORTED, nothing[0], nothing[1]
                totals[groups[row], first] = total
            continue
        for row in range(n):
            number = codes[row]
            if number == NULL:
                continue
            lowest_bit = np.int64(0)
            if kind == WIDE_DECIMALS:
                if number < shift - inline:
                    return UNSUPPORTED, nothing[0], nothing[1]
                number -= shift
            elif kind == DOUBLES:
                if number == 0:
                    continue
                lowest_bit = double_shift(double_exponent(number)) - 32 * positions[q]
                number = double_mantissa(number)
            weight, group, column = weights[row], groups[row], first + (lowest_bit >> 5)
            if weight == 1 or weight == -1:
                add_digits(number, weight < 0, lowest_bit & 31, totals, group, column)
            else:
                add_product(
                    number, weight, lowest_bit & 31, totals, group, column, word, limbs, product
                )
    keep_alive(owned_word)
    keep_alive(owned_limbs)
    keep_alive(owned_product)
    size = np.int64(0)
    for group in range(group_count):
        for column in range(totals.shape[1]):
            size += totals[group, column] != 0
    slot_rows = np.empty((key_count + 1, size), np.int64)
    amounts = np.empty(size, np.int64)
    written = np.int64(0)
    for group in range(group_count):
        for q in range(quantity_count):
            for column in range(columns[q], columns[q + 1]):
                if totals[group, column] != 0:
                    for k in range(key_count):
                        slot_rows[k, written] = rows[key_columns[k], first_rows[group]]
                    slot_rows[key_count, written] = (
                        quantities[q, FIRST_SLOT] + positions[q] + column - columns[q]
                    )
                    amounts[written] = totals[group, column]
                    written += 1
    keep_alive(owned_totals)
    return OK, slot_rows, amounts


@subroutine
def find_slot(slots, slot, first, last):
    """Return the first position from ``first`` to ``last`` with at least this slot."""
    while first < last and slots[first] < slot:
        first += 1
    return first


@kernel
def compute_results(
    group_indices, slots, weights, groups, calls, always_exists, slots_per_sum, shift, inline
):
    """Compute the results of groups from their states.

    Args:
        group_indices: int64, the group of each row of the state, ascending.
        slots: int64, the slot of each row, ascending within a group.
        weights: int64, the weight of each row.
        groups: The number of groups.
        calls: int64, shape ``(calls, CALL_WORDS)``.
        always_exists: True if a group without rows has a result, too.
        slots_per_sum: The number of slots of a sum.
        shift: The code of the wide decimal 0.
        inline: A wide decimal from ``-inline`` to ``inline - 1`` has the code ``shift`` more.

    Returns:
        ``(status, exists, codes)``: whether each group exists, and the codes of the results, shape
        ``(calls, groups)``.
    """
    call_count = calls.shape[0]
    exists = np.empty(groups, np.bool_)
    codes = np.empty((call_count, groups), np.int64)
    slots, weights = borrow(slots), borrow(weights)
    owned_limbs = np.zeros(MAX_LIMBS, np.uint64)
    limbs = borrow(owned_limbs)
    double = np.zeros(1)
    bits_of_double = double.view(np.int64)
    end = np.int64(0)
    for group in range(groups):
        start = end
        while end < slots.shape[0] and group_indices[end] == group:
            end += 1
        row_count = np.int64(0)
        if start < end and slots[start] == 0:
            row_count = weights[start]
        exists[group] = always_exists or row_count > 0
        for c in range(call_count):
            kind = calls[c, KIND]
            count = row_count
            count_slot = calls[c, COUNT_SLOT]
            if count_slot >= 0:
                i = find_slot(slots, count_slot, start, end)
                counted = np.int64(0)
                if i < end and slots[i] == count_slot:
                    counted = weights[i]
                count = counted if calls[c, IS_DISTINCT] else row_count - counted
            if kind == COUNT:
                codes[c, group] = count
                continue
            if not exists[group] or count == 0:
                codes[c, group] = NULL
                continue
            zero = calls[c, SUM_SLOT]
            first = find_slot(slots, zero, start, end)
            last = find_slot(slots, zero + slots_per_sum, first, end)
            if last > first and slots[last - 1] >= zero + FIRST_SPECIAL_POSITION:
                return UNSUPPORTED, exists, codes
            if kind >= DOUBLE:
                double[0] = 0.0
                unit = calls[c, UNIT_EXPONENT]
                if first < last:
                    mantissa, exponent = sum_to_float(
                        slots,
                        weights,
                        first,
                        last,
                        zero,
                        count if kind == MEAN else np.int64(1),
                        calls[c, SCALE],
                        MIN_EXPONENT - unit,
                        limbs,
                    )
                    # -0.0 + 0.0 is 0.0
                    double[0] = np.ldexp(mantissa, exponent + unit) + 0.0
                bits = bits_of_double[0]
                codes[c, group] = bits ^ ((bits >> 63) & _SIGN_MASK)
                continue
            number = np.int64(0)
            if first < last:
                is_negative, size = carry_digits(slots, weights, first, last, zero, limbs)
                size = strip_zeros(limbs, size)
                if not fits_in(limbs, size, 2):
                    return UNSUPPORTED, exists, codes
                if size > 0:
                    number = np.int64(limbs[0])
                if size > 1:
                    number |= np.int64(limbs[1]) << 32
                if is_negative:
                    number = -number
            if kind == WIDE_DECIMAL:
                if number < -inline or number >= inline:
                    return UNSUPPORTED, exists, codes
                number += shift
            elif abs(number) > calls[c, MAX_MAGNITUDE]:
                return UNSUPPORTED, exists, codes
            codes[c, group] = number
    keep_alive(owned_limbs)
    return OK, exists, codes
