"""Sums, differences, products and casts to double of numbers, from their codes without decoding.

================================ ==================================================================
int64                            the numbers are the codes
decimals of up to 18 digits      the unscaled integers are the codes; the terms of a sum are scaled
                                 to the scale of the result
double                           the codes are bit casts of the numbers (`dbsp_wcoj.values.bitcast`)
cast to double                   of integers and decimals whose digits are exact in a double
================================ ==================================================================

Integers and decimals are computed only if the greatest absolute values of the arguments show that
every result fits its type, or is exact in a double. Otherwise there is no result here, and Arrow
computes the expression and raises its errors.

Cost: a few passes of numpy per call, without an Arrow array.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.types.codecs.codec import NULL
from circuits.types.codecs.decimals import MAX_NARROW_DIGITS
from dbsp_wcoj.values.bitcast import codes_of, values_of
from dbsp_wcoj.zset import Int64Array

__all__ = [
    "Arithmetic",
    "arithmetic_of",
    "columns_that_make_null",
    "numbers_of_codes",
    "with_nulls",
]

_FUNCTIONS: Final = frozenset({"add", "subtract", "multiply"})

_MAX_INT64: Final = 2**63 - 1
_MAX_EXACT: Final = 2**53  # integers up to this are exact in a double
_MAX_EXACT_POWER: Final = 22  # and so is 10**22
_FLOAT64: Final = np.dtype(np.float64)

Codes = Int64Array | int
Mask = npt.NDArray[np.bool_]


class Arithmetic(NamedTuple):
    """How the codes of a sum, difference, product or cast are computed.

    Attributes:
        function: The function of the call.
        is_double: True if the arguments and the result are doubles.
        scale: The scale of the number that is cast to a double.
        factors: What the arguments of a sum or difference are multiplied with, so that all numbers
            have the scale of the result.
        limit: The greatest absolute value of the result.
    """

    function: str
    is_double: bool = False
    scale: int = 0
    factors: tuple[int, ...] = ()
    limit: int = _MAX_INT64

    def compute(self, arguments: list[Codes]) -> Codes | None:
        """Return the codes of the results; None if they are not computed here.

        Args:
            arguments: The codes of the arguments; an argument that is one code has it in all rows.
        """
        constants = [argument for argument in arguments if isinstance(argument, int)]
        if len(constants) == len(arguments):
            return None
        if self.function == "cast":
            return _to_double(arguments[0], self.scale)
        if NULL in constants:
            return None
        left, right = arguments
        if self.is_double:
            return _of_doubles(self.function, left, right)
        if self.function == "multiply":
            return _multiply(left, right, self.limit)
        return _add(self.function, left, right, self.factors, self.limit)


def arithmetic_of(call: Call) -> Arithmetic | None:
    """Return how a call is computed if the results fit; None if it is not arithmetic on codes."""
    types = [argument.type for argument in call.arguments]
    if call.function == "cast":
        (source,) = types
        if call.type != pa.float64() or not (_is_integer(source) or _is_narrow_decimal(source)):
            return None
        return Arithmetic("cast", scale=_scale_of(source))
    if call.function not in _FUNCTIONS:
        return None
    if call.type == pa.float64():
        is_double = all(type == call.type for type in types)
        return Arithmetic(call.function, is_double=True) if is_double else None
    scale, limit = 0, _MAX_INT64
    if _is_narrow_decimal(call.type):
        if not all(map(_is_narrow_decimal, types)):
            return None
        scale, limit = call.type.scale, 10**call.type.precision - 1
    elif call.type != pa.int64() or any(type != call.type for type in types):
        return None
    scales = [_scale_of(type) for type in types]
    if call.function == "multiply":
        return Arithmetic("multiply", limit=limit) if sum(scales) == scale else None
    if max(scales) > scale:
        return None
    factors = tuple(10 ** (scale - own) for own in scales)
    return Arithmetic(call.function, factors=factors, limit=limit)


def columns_that_make_null(expression: Expression) -> frozenset[int] | None:
    """Return the columns such that an expression is NULL if and only if one of them is.

    None if the expression may fail, or may be NULL for other reasons. Arithmetic of doubles does
    not fail: the result of an overflow is infinite.
    """
    match expression:
        case Column():
            return frozenset((expression.index,))
        case Literal() if expression.value is not None:
            return frozenset()
        case Call() if expression.type == pa.float64() and arithmetic_of(expression) is not None:
            parts = [columns_that_make_null(argument) for argument in expression.arguments]
            found = [part for part in parts if part is not None]
            return frozenset().union(*found) if len(found) == len(parts) else None
    return None


def _is_integer(type: pa.DataType) -> bool:
    """Return whether the codes of a type are its integers."""
    return bool(pa.types.is_integer(type) and type != pa.uint64())


def _is_narrow_decimal(type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type) and type.precision <= MAX_NARROW_DIGITS)


def _scale_of(type: pa.DataType) -> int:
    return int(type.scale) if pa.types.is_decimal(type) else 0


def _to_double(codes: Codes, scale: int) -> Codes | None:
    numbers, is_null, size = numbers_of_codes(codes)
    if size > _MAX_EXACT or scale > _MAX_EXACT_POWER:
        return None
    assert isinstance(numbers, np.ndarray)
    return with_nulls(codes_of(numbers / 10.0**scale), is_null)


def _of_doubles(function: str, left: Codes, right: Codes) -> Codes:
    is_null = _either(_nulls(left), _nulls(right))
    a, b = _doubles(left), _doubles(right)
    with np.errstate(all="ignore"):
        match function:
            case "multiply":
                result = a * b
            case "add":
                result = a + b
            case _:
                result = a - b
    return with_nulls(codes_of(result), is_null)


def _multiply(left: Codes, right: Codes, limit: int) -> Codes | None:
    a, a_is_null, a_size = numbers_of_codes(left)
    b, b_is_null, b_size = numbers_of_codes(right)
    if a_size * b_size > limit:
        return None
    return with_nulls(np.asarray(a * b), _either(a_is_null, b_is_null))


def _add(
    function: str, left: Codes, right: Codes, factors: tuple[int, ...], limit: int
) -> Codes | None:
    """Return ``left * factors[0] ± right * factors[1]``."""
    a, a_is_null, a_size = numbers_of_codes(left)
    b, b_is_null, b_size = numbers_of_codes(right)
    if a_size * factors[0] + b_size * factors[1] > limit:
        return None
    a, b = (x if factor == 1 else x * factor for x, factor in zip((a, b), factors, strict=True))
    result = a + b if function == "add" else a - b
    return with_nulls(np.asarray(result), _either(a_is_null, b_is_null))


def numbers_of_codes(codes: Codes) -> tuple[Codes, Mask | None, int]:
    """Return the integers of codes with 0 for NULL, the rows with NULL, and the greatest size.

    The size is the absolute value, 0 if there are no codes.
    """
    if isinstance(codes, int):
        return codes, None, abs(codes)
    if not codes.size:
        return codes, None, 0
    least = int(codes.min())
    is_null = None
    if least == NULL:
        is_null = codes == NULL
        codes = np.where(is_null, 0, codes)
        least = int(codes.min())
    return codes, is_null, max(-least, int(codes.max()))


def _doubles(codes: Codes) -> npt.NDArray[np.float64]:
    array = np.array([codes]) if isinstance(codes, int) else codes
    return values_of(np.ascontiguousarray(array), _FLOAT64)


def _nulls(codes: Codes) -> Mask | None:
    if isinstance(codes, int):
        return None
    is_null = codes == NULL
    return is_null if is_null.any() else None


def _either(left: Mask | None, right: Mask | None) -> Mask | None:
    if left is None:
        return right
    return left if right is None else left | right


def with_nulls(codes: Int64Array, is_null: Mask | None) -> Int64Array:
    """Return the codes with NULL in the rows of a mask; None stands for no rows."""
    return codes if is_null is None else np.where(is_null, NULL, codes)
