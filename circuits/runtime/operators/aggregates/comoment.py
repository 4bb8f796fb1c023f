"""Co-moments: the exact linear state behind variances, covariances, correlations and regressions.

::

    comoment(x, y) = Σ (x - mean x)(y - mean y) = Σ x y - Σ x Σ y / n         n pairs
    moment(x, 3)   = Σ (x - mean x)³ = S3 - 3 S1 S2 / n + 2 S1³ / n²          S2 is Σ x², ...
    moment(x, 4)   = Σ (x - mean x)⁴ = S4 - 4 S1 S3 / n + 6 S1² S2 / n² - 3 S1⁴ / n³

The columns of a co-moment are NULL in the same rows: the front end masks each by the other.
Moments are those behind skewness and kurtosis.

The sums are exact (`exact_sum`): a product of two floats has at most 106 bits, so it is split into
digits without rounding, and so are powers. Deletions therefore undo insertions, and the result
depends only on the rows of the group. It is rounded when it is read: ``n Σ x y - Σ x Σ y`` is
computed with two floats per number, about 106 bits. If most of these bits cancel, as in a group of
several equal values, the group is computed again with exact integers, so the variance of equal
values is exactly 0. Moments are computed in the same way.

The relative error of a result is below 2**-50. Products below 2**-1074 are rounded.

Cost: a few numpy operations per read, and some microseconds for each group that cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from circuits.runtime.operators.aggregates.exact_sum import (
    FIRST_SPECIAL_POSITION,
    Digits,
    ExactSum,
    two_product,
)
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL
from dbsp_wcoj.values.bitcast import codes_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["comoment_codes", "moment_codes"]

Float64Array = npt.NDArray[np.float64]

# The digits of a sum of floats count multiples of 2**-_UNIT_BITS.
_UNIT_BITS: Final = 1074
# A difference that is smaller than its operands by this factor is computed exactly.
_MIN_SHARE: Final = 2.0**-45
# Outside of these limits, `two_product` may lose the low half of a product.
_MIN_PRODUCT: Final = 2.0**-900
_MAX_PRODUCT: Final = 2.0**960

# The float nearest to a number, and the float nearest to the remainder.
TwoFloats = tuple[Float64Array, Float64Array]


def comoment_codes(
    float_sums: ExactSum, x: Digits, y: Digits, xy: Digits, counts: Int64Array, has_pairs: BoolArray
) -> Int64Array:
    """Return the code of the co-moment of each group; NULL for a group without pairs.

    Args:
        float_sums: The exact sums of a float64 column; converts their digits to floats.
        x: The digits of Σ x, by group.
        y: The digits of Σ y.
        xy: The digits of Σ x y.
        counts: The number of pairs of each group.
        has_pairs: A mask of the groups that have pairs.
    """
    values = np.zeros(len(counts))
    n = np.where(has_pairs, counts, 1)
    with np.errstate(all="ignore"):
        # n Σ x y and Σ x Σ y
        left, left_error = _times_count(_two_floats(float_sums, xy, len(n)), n.astype(np.float64))
        right, right_error = _product(
            _two_floats(float_sums, x, len(n)), _two_floats(float_sums, y, len(n))
        )
        high, low = _two_sum(left, -right)
        difference = high + (low + (left_error - right_error))
        scale = abs(left) + abs(right)
        is_in_range = (scale == 0) | ((scale > _MIN_PRODUCT) & (scale < _MAX_PRODUCT))
        is_accurate = (abs(difference) >= _MIN_SHARE * scale) & is_in_range & (abs(n) < 2**52)
        # The two floats of a single row are exact. Most new groups have one.
        is_single = (counts == 1) & (difference == 0) & is_in_range
        values = difference / n
    for index in np.flatnonzero(has_pairs & ~is_accurate & ~is_single).tolist():
        values[index] = _exact_value(index, x, y, xy, int(counts[index]))
    return np.where(has_pairs, codes_of(values), NULL)


def moment_codes(
    float_sums: ExactSum, sums: Sequence[Digits], counts: Int64Array, has_values: BoolArray
) -> Int64Array:
    """Return the code of the third or fourth moment of each group; NULL for one without values.

    Args:
        float_sums: The exact sums of a float64 column; converts their digits to floats.
        sums: The digits of Σ x, Σ x², Σ x³ and, for the fourth moment, Σ x⁴, by group.
        counts: The number of values of each group.
        has_values: A mask of the groups that have values.
    """
    n = np.where(has_values, counts, 1).astype(np.float64)
    with np.errstate(all="ignore"):
        floats = [_two_floats(float_sums, digits, len(n)) for digits in sums]
        terms = _moment_terms(floats, n)
        high, low = np.zeros(len(n)), np.zeros(len(n))
        for term_high, term_low in terms:
            high, error = _two_sum(high, term_high)
            low += error + term_low
        numerators = high + low
        scale = sum(abs(term_high) for term_high, _ in terms)
        is_in_range = (scale == 0) | ((scale > _MIN_PRODUCT) & (scale < _MAX_PRODUCT))
        is_accurate = (abs(numerators) >= _MIN_SHARE * scale) & is_in_range & (abs(n) < 2**52)
        # A single row: Σ x² and (Σ x)² are equal, as far as two floats tell.
        square, square_error = _product(floats[0], floats[0])
        spread, error = _two_sum(floats[1][0], -square)
        spread += error + (floats[1][1] - square_error)
        is_single = (counts == 1) & (spread == 0) & is_in_range
        values = np.where(is_single, 0.0, numerators / n ** (len(sums) - 1))
    for index in np.flatnonzero(has_values & ~is_accurate & ~is_single).tolist():
        values[index] = _exact_moment(index, sums, int(counts[index]))
    return np.where(has_values, codes_of(values), NULL)


def _moment_terms(sums: list[TwoFloats], n: Float64Array) -> list[TwoFloats]:
    """Return the terms of ``n² moment`` for three sums, and of ``n³ moment`` for four."""
    s1, s2 = sums[:2]
    s1_squared = _product(s1, s1)
    if len(sums) == 3:
        return [
            _times_count(_times_count(sums[2], n), n),
            _times_count(_product(s1, s2), -3 * n),
            _times_count(_product(s1_squared, s1), np.full(len(n), 2.0)),
        ]
    return [
        _times_count(_times_count(_times_count(sums[3], n), n), n),
        _times_count(_times_count(_product(s1, sums[2]), n), -4 * n),
        _times_count(_product(s1_squared, s2), 6 * n),
        _times_count(_product(s1_squared, s1_squared), np.full(len(n), -3.0)),
    ]


def _two_floats(float_sums: ExactSum, sums: Digits, n: int) -> TwoFloats:
    """Return each of n sums as two floats, the second for what the first one leaves out."""
    divisors = np.ones(n, np.int64)
    high = float_sums.floats(sums, divisors)
    finite = np.flatnonzero(np.isfinite(high) & (high != 0))
    parts = float_sums.split(codes_of(high[finite]), np.full(len(finite), -1))
    indices = np.concatenate((sums.sum_indices, finite[parts.sum_indices]))
    positions = np.concatenate((sums.positions, parts.positions))
    amounts = np.concatenate((sums.amounts, parts.amounts))
    order = np.lexsort((positions, indices))
    indices, positions, amounts = indices[order], positions[order], amounts[order]
    is_same_digit = np.zeros(len(order), np.bool)
    is_same_digit[1:] = (indices[1:] == indices[:-1]) & (positions[1:] == positions[:-1])
    first = np.flatnonzero(~is_same_digit)
    if len(first):
        amounts = np.add.reduceat(amounts, first)
    remainder = Digits(indices[first], positions[first], amounts)
    return high, float_sums.floats(remainder, divisors)


def _two_sum(a: Float64Array, b: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the rounded sum and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _times_count(number: TwoFloats, n: Float64Array) -> TwoFloats:
    high, low = number
    product, error = two_product(high, n)
    return product, error + low * n


def _product(a: TwoFloats, b: TwoFloats) -> TwoFloats:
    (high_a, low_a), (high_b, low_b) = a, b
    product, error = two_product(high_a, high_b)
    return product, error + (high_a * low_b + low_a * high_b)


def _exact_value(index: int, x: Digits, y: Digits, xy: Digits, n: int) -> float:
    """Return the co-moment of one group, computed with integers and rounded once."""
    sums = _integers((x, y, xy), index)
    if sums is None:
        return float("nan")
    sum_x, sum_y, sum_xy = sums
    numerator = ((n * sum_xy) << _UNIT_BITS) - sum_x * sum_y
    return _quotient(numerator, n << (2 * _UNIT_BITS))


def _exact_moment(index: int, digits: Sequence[Digits], n: int) -> float:
    """Return a moment of one group, computed with integers and rounded once."""
    sums = _integers(digits, index)
    if sums is None:
        return float("nan")
    # In units of 2**-_UNIT_BITS: a product of k sums has the unit to the power of k.
    s1, s2, s3 = sums[:3]
    bits = _UNIT_BITS
    if len(sums) == 3:
        numerator = (n * n * s3 << 2 * bits) - (3 * n * s1 * s2 << bits) + 2 * s1**3
        return _quotient(numerator, n * n << 3 * bits)
    numerator = (
        (n**3 * sums[3] << 3 * bits)
        - (4 * n * n * s1 * s3 << 2 * bits)
        + (6 * n * s1 * s1 * s2 << bits)
        - 3 * s1**4
    )
    return _quotient(numerator, n**3 << 4 * bits)


def _quotient(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if (numerator > 0) == (denominator > 0) else float("-inf")


def _integers(sums: Sequence[Digits], index: int) -> list[int] | None:
    """Return sums of one group in units of 2**-1074; None if one has an infinity or NaN."""
    integers = [_integer(digits, index) for digits in sums]
    numbers = [value for value in integers if value is not None]
    return numbers if len(numbers) == len(integers) else None


def _integer(digits: Digits, index: int) -> int | None:
    """Return a sum in units of 2**-1074; None if it contains an infinity or NaN."""
    low, high = np.searchsorted(digits.sum_indices, [index, index + 1]).tolist()
    pairs = zip(digits.positions[low:high].tolist(), digits.amounts[low:high].tolist(), strict=True)
    total = 0
    for position, amount in pairs:
        if position >= FIRST_SPECIAL_POSITION:
            return None
        total += amount << (32 * position)
    return total
