"""Exact sums of the numbers of a column, as weighted digits.

::

    value * weight      ->  {position: amount}    linear: add the amounts at each position
    {position: amount}  ->  an integer, or the float nearest to the sum

An example: 5 * 2**32 + 7 has the digits {0: 7, 1: 5} in base 2**32. The amount of a digit in a sum
may be negative, or greater than the base.

A sum is a Z-set with one row for each nonzero digit, stored in a trace like any other Z-set. The
sum is exact and does not depend on the order of the rows, and deletions undo insertions exactly.
Small integers and decimals have one digit, floats two or three. Infinities and NaN are counted, in
separate rows, as if they were digits at positions that no number reaches.

Alternatives considered: adding floats. The result depends on the order, and 1e16 + 1 - 1e16 is 0.

Source: Kulisch's long accumulator, see `dbsp_wcoj.kernels.values.digits`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.types.codecs.arrow_buffers import expand_encoding, numbers_of
from circuits.types.codecs.codec import Codec
from dbsp_wcoj.kernels.values.digits import split_numbers, sum_to_floats, sum_to_integers
from dbsp_wcoj.values.bitcast import values_of
from dbsp_wcoj.zset import Int64Array

__all__ = [
    "FIRST_SPECIAL_POSITION",
    "MAX_DIGITS",
    "Digits",
    "ExactSum",
    "is_wide_decimal",
    "split_integers",
    "split_powers",
    "split_products",
    "two_product",
    "unit_exponent",
]

# The maximal number of digits of a sum; the position of a digit is less than this.
MAX_DIGITS: Final = 128
# The positions from here on count infinities and NaN.
FIRST_SPECIAL_POSITION: Final = 120
_INFINITY: Final = FIRST_SPECIAL_POSITION
_MINUS_INFINITY: Final = 121
_NAN: Final = 122
# The exponent of the least positive double.
_MIN_EXPONENT: Final = -1074
_MANTISSA_BITS: Final = 53
# Greater powers than 2**_MAX_POWER_EXPONENT count as infinite: a sum has no digits for them.
_MAX_POWER_EXPONENT: Final = 1984
_SPLITTER: Final = 2.0**27 + 1  # Dekker's constant, which splits a float into two halves

Float64Array = npt.NDArray[np.float64]


class Digits(NamedTuple):
    """The digits of several sums, one entry of each array per digit.

    Attributes:
        sum_indices: The index of the sum (or number) to which the digit belongs.
        positions: The position of the digit: i for the multiples of 2**(32 * i).
        amounts: The digit itself; it may be negative or exceed the base.
    """

    sum_indices: Int64Array
    positions: Int64Array
    amounts: Int64Array


def is_wide_decimal(type_: pa.DataType) -> bool:
    """True for a decimal type wider than 64 bits, whose codes are not its numbers."""
    return bool(pa.types.is_decimal(type_) and type_.precision > 18)


class ExactSum:
    """Conversion of the numbers of one codec to digits, and of digits to sums.

    The numbers are floats if ``is_floating`` is true, else integers times 10**-``scale``.

    >>> from circuits.types.codecs.codec import Codecs
    >>> from dbsp_wcoj import ZSet
    >>> codec = Codecs().codec(pa.float64())
    >>> exact = ExactSum(codec)
    >>> codes = codec.encode(pa.array([1e100, 1.0, 1e100]))
    >>> digits = exact.split(codes, np.array([1, 3, -1]))
    >>> total = ZSet.from_columns([digits.positions], digits.amounts)
    >>> positions, amounts = total.columns[0].copy(), total.weights.copy()  # not read-only
    >>> sums = Digits(np.zeros(len(total), np.int64), positions, amounts)
    >>> exact.floats(sums, np.array([1])).tolist()
    [3.0]
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.type = codec.type.value_type if pa.types.is_dictionary(codec.type) else codec.type
        self.is_floating = bool(pa.types.is_floating(self.type))
        self.scale = int(self.type.scale) if pa.types.is_decimal(self.type) else 0

    @property
    def has_one_word(self) -> bool:
        """True if the numbers are integers, and the code of a number is the number."""
        return not (self.is_floating or self.type == pa.uint64() or is_wide_decimal(self.type))

    def split(self, codes: Int64Array, weights: Int64Array) -> Digits:
        """Split each number times its weight into digits; no number may be NULL."""
        if self.is_floating:
            return self._split_floats(codes, weights)
        no_shifts = np.empty(0, np.int64)
        return split_integers(self._words(codes), no_shifts, weights)

    def integers(self, sums: Digits, n: int, words: int) -> tuple[Int64Array, npt.NDArray[np.bool]]:
        """Convert n sums to integers of ``words`` 64-bit words each.

        Returns:
            The integers, of shape ``(words, n)``, least significant word first; and a mask of those
            that fit.
        """
        out = np.zeros((words, n), np.int64)
        fits = np.ones(n, np.bool)
        sum_to_integers(*sums, out, fits)
        return out, fits

    def floats(self, sums: Digits, divisors: Int64Array) -> Float64Array:
        """Return the float nearest to each sum divided by a nonzero integer.

        The quotient is rounded once, so a mean can be finite although its sum, as a float, is not.
        """
        n = len(divisors)
        non_finite = None
        if self.is_floating and (sums.positions >= FIRST_SPECIAL_POSITION).any():
            non_finite = _non_finite_quotients(sums, divisors)
            finite = np.flatnonzero(sums.positions < FIRST_SPECIAL_POSITION)
            sums = Digits(*(part[finite] for part in sums))
        mantissas, exponents = np.zeros(n), np.zeros(n, np.int64)
        unit = unit_exponent(self)
        min_exponent = _MIN_EXPONENT - unit  # of the least positive float, in this unit
        sum_to_floats(*sums, divisors, self.scale, min_exponent, mantissas, exponents)
        with np.errstate(over="ignore"):
            values = np.ldexp(mantissas, (exponents + unit).astype(np.int32))
        if non_finite is not None:
            values = np.where(non_finite == 0, values, non_finite)
        return values

    def _words(self, codes: Int64Array) -> Int64Array:
        """Return the numbers in two's complement, of shape ``(words, n)``."""
        type_ = self.type
        if type_ == pa.uint64():
            # A code is the number minus 2**63 - 1; the addition wraps to the correct bits.
            low = (codes.view(np.uint64) + np.uint64(2**63 - 1)).view(np.int64)
            return np.stack((low, np.zeros_like(low)))
        if not is_wide_decimal(type_):
            return np.ascontiguousarray(codes)[np.newaxis]
        values = expand_encoding(self.codec.decode(codes))
        words = numbers_of(values, np.dtype(np.int64), type_.bit_width // 64)
        return np.ascontiguousarray(words.T)

    def numbers(self, codes: Int64Array) -> Float64Array:
        """Return the floats of codes of a float type."""
        dtype = np.dtype(f"f{self.type.bit_width // 8}")
        return values_of(codes, dtype).astype(np.float64)

    def _split_floats(self, codes: Int64Array, weights: Int64Array) -> Digits:
        return _split_float_values(self.numbers(codes), weights)


def unit_exponent(exact: ExactSum) -> int:
    """Return the exponent e of the unit: a digit at position 0 counts multiples of 2**e."""
    return _MIN_EXPONENT if exact.is_floating else 0


def _split_float_values(values: Float64Array, weights: Int64Array) -> Digits:
    finite = np.isfinite(values)
    finite_rows = None if finite.all() else np.flatnonzero(finite)
    numbers = values if finite_rows is None else values[finite_rows]
    mantissas, shifts = _mantissas(numbers)
    # For a subnormal number, the bits that this shifts out are zeros.
    mantissas >>= np.maximum(-shifts, 0)
    np.maximum(shifts, 0, out=shifts)
    if finite_rows is None:
        return split_integers(mantissas[np.newaxis], shifts, weights)
    digits = split_integers(mantissas[np.newaxis], shifts, weights[finite_rows])
    special_rows = np.flatnonzero(~finite)
    special_values = values[special_rows]
    infinities = np.where(special_values > 0, _INFINITY, _MINUS_INFINITY)
    special_positions = np.where(np.isnan(special_values), _NAN, infinities)
    return Digits(
        np.concatenate((finite_rows[digits.sum_indices], special_rows)),
        np.concatenate((digits.positions, special_positions)),
        np.concatenate((digits.amounts, weights[special_rows])),
    )


def split_powers(x: Float64Array, power: int, weights: Int64Array) -> Digits:
    """Split each ``x**power * weight`` into the digits of a sum of floats, exactly.

    Only the bits of a power below the least positive float are lost. Powers beyond 2**1984 count as
    infinite.

    Args:
        x: The floats.
        power: 3 or 4.
        weights: The weights.

    >>> digits = split_powers(np.array([3.0]), 4, np.array([2]))
    >>> pairs = zip(digits.positions.tolist(), digits.amounts.tolist())
    >>> sum(amount * 2 ** (32 * position - 1074) for position, amount in pairs)
    162.0
    """
    fractions, exponents = np.frexp(x)
    shifts = exponents.astype(np.int64) * power
    infinities = np.copysign(np.inf, fractions)
    fractions = np.where(shifts > _MAX_POWER_EXPONENT, infinities, fractions)
    # x**2 = (square + error) * 2**(2 * exponent), so a power is a sum of products of two floats.
    with np.errstate(invalid="ignore"):
        square, error = two_product(fractions, fractions)
    # The first product is the infinity or NaN of such a number. The others are 0, not 0 times inf.
    is_finite = np.isfinite(fractions)
    error = np.where(is_finite, error, 0.0)
    factors = [(fractions, square), (np.where(is_finite, fractions, 0.0), error)]
    if power == 4:
        doubled = np.where(is_finite, 2 * square, 0.0)
        factors = [(square, square), (doubled, error), (error, error)]
    parts = [split_products(a, b, weights, shifts) for a, b in factors]
    return Digits(*map(np.concatenate, zip(*parts, strict=True)))


def two_product(a: Float64Array, b: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the rounded product and its error (Dekker)."""
    product = a * b
    scaled_a, scaled_b = a * _SPLITTER, b * _SPLITTER
    high_a, high_b = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    return product, error


def split_products(
    x: Float64Array, y: Float64Array, weights: Int64Array, exponents: Int64Array | None = None
) -> Digits:
    """Split each ``x * y * weight`` into the digits of a sum of floats, exactly.

    If there are exponents, each product is multiplied by 2**exponent, too.

    A product of more than 53 bits is not rounded, and a product beyond the greatest float has
    digits, too. Only the bits of a product below the least positive float are lost.

    >>> digits = split_products(np.array([3.0]), np.array([5.0]), np.array([2]))
    >>> pairs = zip(digits.positions.tolist(), digits.amounts.tolist())
    >>> sum(amount * 2 ** (32 * position - 1074) for position, amount in pairs)
    30.0
    """
    mantissas_x, shifts_x = _mantissas(np.where(np.isfinite(x), x, 0.0))
    mantissas_y, shifts_y = _mantissas(np.where(np.isfinite(y), y, 0.0))
    shifts = shifts_x + shifts_y + _MIN_EXPONENT
    if exponents is not None:
        shifts += exponents
    # Products that are not finite, zero or too small are computed with floats.
    is_exact = (
        np.isfinite(x) & np.isfinite(y) & (shifts >= 0) & (mantissas_x != 0) & (mantissas_y != 0)
    )
    exact_rows, float_rows = np.flatnonzero(is_exact), np.flatnonzero(~is_exact)
    words = _multiply(mantissas_x[exact_rows], mantissas_y[exact_rows])
    digits = split_integers(words, shifts[exact_rows], weights[exact_rows])
    if not len(float_rows):
        return digits
    with np.errstate(all="ignore"):
        products = x[float_rows] * y[float_rows]
        if exponents is not None:
            products = np.ldexp(products, exponents[float_rows].astype(np.int32))
    rounded = _split_float_values(products, weights[float_rows])
    return Digits(
        np.concatenate((exact_rows[digits.sum_indices], float_rows[rounded.sum_indices])),
        np.concatenate((digits.positions, rounded.positions)),
        np.concatenate((digits.amounts, rounded.amounts)),
    )


def _mantissas(numbers: Float64Array) -> tuple[Int64Array, Int64Array]:
    """Return m and s with ``number = m * 2**(s - 1074)``; s is negative for subnormal numbers."""
    # value = fraction * 2**exponent = (fraction * 2**53) * 2**(exponent - 53), which is exact.
    fractions, exponents = np.frexp(numbers)
    mantissas = (fractions * 2.0**_MANTISSA_BITS).astype(np.int64)
    return mantissas, exponents.astype(np.int64) - (_MANTISSA_BITS + _MIN_EXPONENT)


def _multiply(a: Int64Array, b: Int64Array) -> Int64Array:
    """Return the products of integers below 2**53, as two words of two's complement each."""
    magnitudes = np.abs(a).view(np.uint64), np.abs(b).view(np.uint64)
    half, mask = np.uint64(27), np.uint64(2**27 - 1)
    (high_a, low_a), (high_b, low_b) = ((m >> half, m & mask) for m in magnitudes)
    middle = high_a * low_b + low_a * high_b  # below 2**54
    top = high_a * high_b + (middle >> half)  # the product is top * 2**54 + bottom
    bottom = ((middle & mask) << half) + low_a * low_b  # below 2**55
    low = (top << np.uint64(54)) + bottom
    carry = (low < bottom).astype(np.uint64)
    high = (top >> np.uint64(10)) + carry
    negative = (a < 0) != (b < 0)
    low_negated = ~low + np.uint64(1)
    high_negated = ~high + (low == 0).astype(np.uint64)
    words = np.where(negative, (low_negated, high_negated), (low, high))
    return np.ascontiguousarray(words.view(np.int64))


def split_integers(words: Int64Array, shifts: Int64Array, weights: Int64Array) -> Digits:
    """Split each ``number * weight * 2**shift``; an empty array of shifts means that all are 0.

    The numbers are in two's complement, of shape ``(words, n)``, least significant word first.
    """
    count, n = words.shape
    out = np.empty((3, (2 * count + 3) * n), np.int64)
    written = split_numbers(words, shifts, np.ascontiguousarray(weights), out[0], out[1], out[2])
    return Digits(*out[:, :written])


def _non_finite_quotients(sums: Digits, divisors: Int64Array) -> Float64Array:
    """Return inf, -inf or nan for each sum that contains such numbers, divided; else 0."""
    # The signs of the counts of inf, of -inf and of NaN in each sum.
    signs = np.zeros((3, len(divisors)), np.int64)
    for row, position in enumerate((_INFINITY, _MINUS_INFINITY, _NAN)):
        is_counted = sums.positions == position
        signs[row, sums.sum_indices[is_counted]] = np.sign(sums.amounts[is_counted])
    is_infinite = (signs[0] > 0) | (signs[1] < 0)
    is_minus_infinite = (signs[0] < 0) | (signs[1] > 0)
    infinities = np.where(is_infinite, np.inf, np.where(is_minus_infinite, -np.inf, 0.0))
    quotients = infinities * np.sign(divisors)
    quotients[(signs[2] != 0) | (is_infinite & is_minus_infinite)] = np.nan
    return quotients
