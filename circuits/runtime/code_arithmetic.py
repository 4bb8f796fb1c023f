"""Sums, differences and products of numbers, computed from their codes without decoding.

================================ ==================================================================
int64                            the numbers are the codes
decimals of up to 18 digits      the unscaled integers are the codes; the terms of a sum are scaled
                                 to the scale of the result
double                           the codes are bit casts of the numbers (`dbsp_wcoj.values.bitcast`)
cast to double                   of integers and decimals whose digits are exact in a double
================================ ==================================================================

Integers are computed only if the least and the greatest argument show that every result fits its
type. Otherwise there is no result here, and Arrow computes the expression and raises its errors.

Cost: a few passes of numpy per call, without an Arrow array.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.types.codecs.codec import NULL
from circuits.types.codecs.decimals import MAX_NARROW_DIGITS
from dbsp_wcoj.values.bitcast import codes_of, values_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["columns_that_make_null", "compute_codes", "is_arithmetic"]

_FUNCTIONS: Final = frozenset({"add", "subtract", "multiply"})

_MAX_INT64: Final = 2**63 - 1
_MAX_EXACT: Final = 2**53  # integers up to this are exact in a double
_MAX_EXACT_POWER: Final = 22  # and so is 10**22
_FLOAT64: Final = np.dtype(np.float64)

Codes = Int64Array | int
Mask = npt.NDArray[np.bool_]


def compute_codes(call: Call, arguments: list[Codes]) -> Codes | None:
    """Return the codes of a sum, difference, product or cast; None if it is not computed here.

    Args:
        call: The call.
        arguments: The codes of its arguments; an argument that is one code has it in all rows.
    """
    if all(isinstance(argument, int) for argument in arguments):
        return None
    if call.function == "cast":
        return _to_double(call, arguments[0])
    if any(isinstance(argument, int) and argument == NULL for argument in arguments):
        return None
    left, right = arguments
    if call.type == pa.float64():
        return _of_doubles(call.function, left, right)
    types = [argument.type for argument in call.arguments]
    scale, limit = 0, _MAX_INT64
    if _is_narrow_decimal(call.type):
        scale, limit = call.type.scale, 10**call.type.precision - 1
    scales = [_scale_of(type) for type in types]
    product_scale = sum(scales)
    if call.function == "multiply":
        return _multiply(left, right, limit) if product_scale == scale else None
    factors = [10 ** (scale - own) if own <= scale else 0 for own in scales]
    return _add(call.function, left, right, factors, limit) if all(factors) else None


def is_arithmetic(call: Call) -> bool:
    """Return whether `compute_codes` can compute a call, if the results fit."""
    types = [argument.type for argument in call.arguments]
    if call.function == "cast":
        (source,) = types
        return call.type == pa.float64() and (_is_integer(source) or _is_narrow_decimal(source))
    if call.function not in _FUNCTIONS:
        return False
    if _is_narrow_decimal(call.type):
        return all(map(_is_narrow_decimal, types))
    return call.type in (pa.int64(), pa.float64()) and all(type == call.type for type in types)


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
        case Call() if expression.type == pa.float64() and is_arithmetic(expression):
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


def _to_double(call: Call, codes: Codes) -> Codes | None:
    assert isinstance(codes, np.ndarray)
    numbers, is_null, size = _numbers(codes)
    scale = _scale_of(call.arguments[0].type)
    if size > _MAX_EXACT or scale > _MAX_EXACT_POWER:
        return None
    assert isinstance(numbers, np.ndarray)
    return _with_nulls(codes_of(numbers / 10.0**scale), is_null)


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
    return _with_nulls(codes_of(result), is_null)


def _multiply(left: Codes, right: Codes, limit: int) -> Codes | None:
    a, a_is_null, a_size = _numbers(left)
    b, b_is_null, b_size = _numbers(right)
    if a_size * b_size > limit:
        return None
    return _with_nulls(np.asarray(a * b), _either(a_is_null, b_is_null))


def _add(function: str, left: Codes, right: Codes, factors: list[int], limit: int) -> Codes | None:
    """Return ``left * factors[0] ± right * factors[1]``."""
    a, a_is_null, a_size = _numbers(left)
    b, b_is_null, b_size = _numbers(right)
    if a_size * factors[0] + b_size * factors[1] > limit:
        return None
    a, b = (x if factor == 1 else x * factor for x, factor in zip((a, b), factors, strict=True))
    result = a + b if function == "add" else a - b
    return _with_nulls(np.asarray(result), _either(a_is_null, b_is_null))


def _numbers(codes: Codes) -> tuple[Codes, Mask | None, int]:
    """Return the integers of codes with 0 for NULL, the rows with NULL, and the greatest size."""
    if isinstance(codes, int):
        return codes, None, abs(codes)
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


def _with_nulls(codes: Int64Array, is_null: Mask | None) -> Int64Array:
    return codes if is_null is None else np.where(is_null, NULL, codes)
