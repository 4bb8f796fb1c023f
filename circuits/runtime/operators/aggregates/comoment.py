"""Co-moments: the exact linear state behind variances, covariances, correlations and regressions.

::

    comoment(x, y) = Σ (x - mean x)(y - mean y) = Σ x y - Σ x Σ y / n         n pairs

Both columns are NULL in the same rows: the front end masks each by the other.

The three sums are exact (`exact_sum`): a product of two floats has at most 106 bits, so it is split
into digits without rounding. Deletions therefore undo insertions, and the result depends only on
the rows of the group. It is rounded when it is read: ``n Σ x y - Σ x Σ y`` is computed with two
floats per number, about 106 bits. If most of these bits cancel, as in a group of equal values, the
group is computed again with exact integers, so the variance of equal values is exactly 0.

The relative error of a result is below 2**-50. Products below 2**-1074 are rounded.

Cost: a few numpy operations per read, and some microseconds for each group that cancels.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from circuits.runtime.operators.aggregates.exact_sum import (
    FIRST_SPECIAL_POSITION,
    Digits,
    ExactSum,
)
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL
from dbsp_wcoj.values.bitcast import codes_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["comoment_codes"]

Float64Array = npt.NDArray[np.float64]

# The digits of a sum of floats count multiples of 2**-_UNIT_BITS.
_UNIT_BITS: Final = 1074
# A difference that is smaller than its operands by this factor is computed exactly.
_MIN_SHARE: Final = 2.0**-45
# Outside of these limits, `_two_product` may lose the low half of a product.
_MIN_PRODUCT: Final = 2.0**-900
_MAX_PRODUCT: Final = 2.0**960
_SPLITTER: Final = 2.0**27 + 1  # Dekker's constant, which splits a float into two halves

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
        values = difference / n
    for index in np.flatnonzero(has_pairs & ~is_accurate).tolist():
        values[index] = _exact_value(index, x, y, xy, int(counts[index]))
    return np.where(has_pairs, codes_of(values), NULL)


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


def _two_product(a: Float64Array, b: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the rounded product and its error (Dekker)."""
    product = a * b
    scaled_a, scaled_b = a * _SPLITTER, b * _SPLITTER
    high_a, high_b = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    return product, error


def _times_count(number: TwoFloats, n: Float64Array) -> TwoFloats:
    high, low = number
    product, error = _two_product(high, n)
    return product, error + low * n


def _product(a: TwoFloats, b: TwoFloats) -> TwoFloats:
    (high_a, low_a), (high_b, low_b) = a, b
    product, error = _two_product(high_a, high_b)
    return product, error + (high_a * low_b + low_a * high_b)


def _exact_value(index: int, x: Digits, y: Digits, xy: Digits, n: int) -> float:
    """Return the co-moment of one group, computed with integers and rounded once."""
    sums = [_integer(digits, index) for digits in (x, y, xy)]
    if any(value is None for value in sums):
        return float("nan")
    sum_x, sum_y, sum_xy = (value or 0 for value in sums)
    numerator = ((n * sum_xy) << _UNIT_BITS) - sum_x * sum_y
    try:
        return numerator / (n << (2 * _UNIT_BITS))
    except OverflowError:
        return float("inf") if (numerator > 0) == (n > 0) else float("-inf")


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
