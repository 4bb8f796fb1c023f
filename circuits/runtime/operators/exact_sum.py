"""Exact sums of the numbers of a column, as weighted digits.

::

    value * weight  ->  {digit: amount}      linear: the digits of a sum are the sum of the digits
    {digit: amount} ->  an integer, or the float nearest to the sum

A sum is a Z-set with one row for each nonzero digit (base 2**32), stored in a trace like any other
Z-set. The sum is exact and does not depend on the order of the rows, and deletions undo insertions
exactly. Small integers and decimals have one digit, floats two or three. Infinities and NaN have
separate rows, which count them.

Alternatives considered: adding floats. The result depends on the order, and 1e16 + 1 - 1e16 is 0.

Source: Kulisch's long accumulator, see `dbsp_wcoj.kernels.values.digits`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.types.codecs.arrow_buffers import numbers_of, plain
from circuits.types.codecs.codec import Codec
from dbsp_wcoj.kernels.values.digits import split_numbers, sum_to_floats, sum_to_integers
from dbsp_wcoj.values.bitcast import values_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["DIGITS", "Digits", "ExactSum", "is_wide_decimal"]

# The number of digit positions; each digit of a sum has a position below this number.
DIGITS: Final = 128
_INFINITY: Final = 120
_MINUS_INFINITY: Final = 121
_NAN: Final = 122
# The exponent of the least positive double.
_MIN_EXPONENT: Final = -1074
_MANTISSA_BITS: Final = 53

Float64Array = npt.NDArray[np.float64]


class Digits(NamedTuple):
    """Sums as digits, one row per digit: the index of the sum, the digit's position, its amount."""

    places: Int64Array
    digits: Int64Array
    amounts: Int64Array


def is_wide_decimal(type_: pa.DataType) -> bool:
    """True for a decimal type wider than 64 bits, whose codes are not its numbers."""
    return bool(pa.types.is_decimal(type_) and type_.precision > 18)


class ExactSum:
    """Conversion of the numbers of one codec to digits, and of digits to sums.

    The numbers are floats if ``floating`` is true, else integers times 10**-``scale``.

    >>> from circuits.types.codecs.codec import Codecs
    >>> from dbsp_wcoj import ZSet
    >>> codec = Codecs().codec(pa.float64())
    >>> exact = ExactSum(codec)
    >>> codes = codec.encode(pa.array([1e100, 1.0, 1e100]))
    >>> digits = exact.split(codes, np.array([1, 3, -1]))
    >>> total = ZSet.from_columns([digits.digits], digits.amounts)
    >>> sums = Digits(np.zeros(len(total), np.int64), total.columns[0], total.weights)
    >>> exact.floats(sums, np.array([1])).tolist()
    [3.0]
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.type = codec.type.value_type if pa.types.is_dictionary(codec.type) else codec.type
        self.floating = bool(pa.types.is_floating(self.type))
        self.scale = int(self.type.scale) if pa.types.is_decimal(self.type) else 0

    def split(self, codes: Int64Array, weights: Int64Array) -> Digits:
        """The digits of each number times its weight; no number may be NULL."""
        if self.floating:
            return self._split_floats(codes, weights)
        return _split_integers(self._words(codes), np.empty(0, np.int64), weights)

    def integers(self, sums: Digits, n: int, words: int) -> tuple[Int64Array, npt.NDArray[np.bool]]:
        """The sums as integers of ``words`` 64-bit words, and a mask of those that fit.

        The least significant word is first.
        """
        out = np.zeros((words, n), np.int64)
        fits = np.ones(n, np.bool)
        sum_to_integers(*sums, out, fits)
        return out, fits

    def floats(self, sums: Digits, divisors: Int64Array) -> Float64Array:
        """The nearest float to each sum divided by a nonzero integer.

        The quotient is rounded once, so a mean can be finite although its sum, as a float, is not.
        """
        n = len(divisors)
        special = None
        if self.floating and len(sums.digits) and sums.digits.max() >= _INFINITY:
            special = _non_finite_sums(sums, divisors)
            finite = np.flatnonzero(sums.digits < _INFINITY)
            sums = Digits(*(part[finite] for part in sums))
        mantissas, exponents = np.zeros(n), np.zeros(n, np.int64)
        unit = _MIN_EXPONENT if self.floating else 0
        sum_to_floats(*sums, divisors, self.scale, _MIN_EXPONENT - unit, mantissas, exponents)
        with np.errstate(over="ignore"):
            values = np.ldexp(mantissas, (exponents + unit).astype(np.int32))
        if special is not None:
            values = np.where(special == 0, values, special)
        return values

    def _words(self, codes: Int64Array) -> Int64Array:
        """The numbers in two's complement, shape ``(words, n)``."""
        type_ = self.type
        if type_ == pa.uint64():
            # A code is the number minus 2**63 - 1; the addition wraps to the correct bits.
            low = (codes.view(np.uint64) + np.uint64(2**63 - 1)).view(np.int64)
            return np.stack((low, np.zeros_like(low)))
        if not is_wide_decimal(type_):
            return np.ascontiguousarray(codes)[np.newaxis]
        values = plain(self.codec.decode(codes))
        words = numbers_of(values, np.dtype(np.int64), type_.bit_width // 64)
        return np.ascontiguousarray(words.T)

    def _split_floats(self, codes: Int64Array, weights: Int64Array) -> Digits:
        dtype = np.dtype(f"f{self.type.bit_width // 8}")
        values = values_of(codes, dtype).astype(np.float64)
        finite = np.isfinite(values)
        kept = None if finite.all() else np.flatnonzero(finite)
        numbers = values if kept is None else values[kept]
        # value = fraction * 2**exponent = (fraction * 2**53) * 2**(exponent - 53), which is exact.
        fractions, exponents = np.frexp(numbers)
        mantissas = (fractions * 2.0**_MANTISSA_BITS).astype(np.int64)
        shifts = exponents.astype(np.int64) - (_MANTISSA_BITS + _MIN_EXPONENT)
        # For a subnormal number, the bits that this shifts out are zeros.
        mantissas >>= np.maximum(-shifts, 0)
        np.maximum(shifts, 0, out=shifts)
        if kept is None:
            return _split_integers(mantissas[np.newaxis], shifts, weights)
        digits = _split_integers(mantissas[np.newaxis], shifts, weights[kept])
        rest = np.flatnonzero(~finite)
        special = np.where(
            np.isnan(values[rest]), _NAN, np.where(values[rest] > 0, _INFINITY, _MINUS_INFINITY)
        )
        return Digits(
            np.concatenate((kept[digits.places], rest)),
            np.concatenate((digits.digits, special)),
            np.concatenate((digits.amounts, weights[rest])),
        )


def _split_integers(words: Int64Array, shifts: Int64Array, weights: Int64Array) -> Digits:
    count, n = words.shape
    out = np.empty((3, (2 * count + 3) * n), np.int64)
    written = split_numbers(words, shifts, np.ascontiguousarray(weights), out[0], out[1], out[2])
    return Digits(*out[:, :written])


def _non_finite_sums(sums: Digits, divisors: Int64Array) -> Float64Array:
    """Per sum inf, -inf or nan if it contains such numbers, else 0."""
    found = np.zeros((3, len(divisors)), np.int64)
    for row, digit in enumerate((_INFINITY, _MINUS_INFINITY, _NAN)):
        is_digit = sums.digits == digit
        found[row, sums.places[is_digit]] = np.sign(sums.amounts[is_digit])
    up = (found[0] > 0) | (found[1] < 0)
    down = (found[0] < 0) | (found[1] > 0)
    special = np.where(up, np.inf, np.where(down, -np.inf, 0.0)) * np.sign(divisors)
    special[(found[2] != 0) | (up & down)] = np.nan
    return special
