"""Sums, differences, products, quotients and remainders of numbers, dates and durations.

Integers give int64 and an overflow is an error. A float makes all float64. Decimals are exact; the
result's digits follow DuckDB: a sum has the larger scale and one more digit, a product the sum of
the scales and of the digits; a result of operands of at most 18 digits stays at 18 (one machine
word), other results at 38; a value that does not fit is an error when it occurs. A product whose
scale is beyond 38 is refused when the expression is made.

Division by zero, of integers, decimals and floats alike, is NULL (DuckDB: with
``ieee_floating_point_ops`` and ``error_on_division_by_zero`` off). ``divide`` is always float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.expression import Expression, Literal
from circuits.functions.coercion import adapt, cast_to
from circuits.functions.conversion import convert
from circuits.functions.function import Arguments, Function, Typed, Values, refuse, require
from circuits.functions.types import common_type, digits_of, is_number

__all__ = ["FUNCTIONS", "exact_type", "numbers"]

_WORD, _WIDEST = 18, 38


def numbers(name: str, arguments: Arguments, least: int, most: int | None) -> Arguments:
    """The arguments as numbers: text literals read, NULL as int64; FunctionError for others."""
    require(name, arguments, least, most)
    read = tuple(
        cast_to(a, pa.int64()) if arrow.is_null(a.type) else a for a in adapt_text(arguments)
    )
    if not all(is_number(argument.type) for argument in read):
        raise refuse(name, arguments, "it takes numbers; cast the arguments to a numeric type")
    return read


def adapt_text(arguments: Arguments) -> Arguments:
    """The arguments with text literals in the type of the others; numbers are left as they are."""
    read = adapt(arguments)
    return tuple(
        new if isinstance(old.type, type(pa.string())) and old.type in (pa.string(),) else old
        for new, old in zip(read, arguments, strict=True)
    )


def _digits(argument: Expression) -> tuple[int, int]:
    """Precision and scale of a number; those of its value for an integer literal."""
    if isinstance(argument, Literal) and arrow.is_integer(argument.type) and argument.value:
        return len(str(abs(argument.value))), 0
    if isinstance(argument, Literal) and arrow.is_integer(argument.type):
        return 1, 0
    return digits_of(argument.type)


def exact_type(precision: int, scale: int, operands: Sequence[tuple[int, int]]) -> pa.DataType:
    """The decimal of a result that needs ``precision`` digits, held to a word or to 38."""
    small = all(digits <= _WORD for digits, _ in operands) and scale < _WORD
    return pa.decimal128(min(precision, _WORD if small else _WIDEST), scale)


def _decimals(name: str, arguments: Arguments) -> Typed:
    """Operands as decimals of their own scales, and the type of a sum, product or remainder."""
    operands = [_digits(argument) for argument in arguments]
    (precision, scale), (other_precision, other_scale) = operands
    if max(precision, other_precision) > _WIDEST:
        raise refuse(
            name, arguments, "decimals of more than 38 digits are not computed with; cast first"
        )
    if name == "multiply":
        result_scale, digits = scale + other_scale, precision + other_precision
        if result_scale > _WIDEST:
            raise refuse(
                name,
                arguments,
                f"the product has {result_scale} digits after the point, a decimal at most 38; "
                "cast a factor to a smaller scale or to double",
            )
    else:
        result_scale = max(scale, other_scale)
        whole = max(precision - scale, other_precision - other_scale)
        digits = whole + result_scale + (name in ("add", "subtract"))
    typed = tuple(
        cast_to(argument, pa.decimal128(*pair))
        for argument, pair in zip(arguments, operands, strict=True)
    )
    return typed, exact_type(digits, result_scale, operands)


def _rule(name: str, arguments: Arguments, of: pa.DataType | None) -> Typed:
    given = numbers(name, arguments, 2, 2)
    if any(arrow.is_floating(argument.type) for argument in given):
        return tuple(cast_to(argument, pa.float64()) for argument in given), pa.float64()
    if any(arrow.is_decimal(argument.type) for argument in given):
        return _decimals(name, given)
    return tuple(cast_to(argument, pa.int64()) for argument in given), pa.int64()


def _sum_rule(name: str, arguments: Arguments, of: pa.DataType | None) -> Typed:
    require(name, arguments, 2, 2)
    temporal = _temporal_rule(name, arguments)
    return temporal or _rule(name, arguments, of)


def _temporal_rule(name: str, arguments: Arguments) -> Typed | None:
    """Dates and integers of days, timestamps and durations; None if no argument is of time."""
    left, right = arguments
    if not any(_of_time(argument.type) for argument in arguments):
        return None
    if name == "subtract" and not arrow.is_duration(left.type):
        left, right = adapt(arguments)
    if name == "add" and not arrow.is_date(left.type) and not arrow.is_timestamp(left.type):
        left, right = right, left
    if arrow.is_date(left.type):
        left = cast_to(left, pa.date32())
        if arrow.is_integer(right.type) or arrow.is_null(right.type):
            return (left, cast_to(right, pa.int64())), pa.date32()
        if name == "subtract" and arrow.is_date(right.type):
            return (left, cast_to(right, pa.date32())), pa.int64()
        if arrow.is_duration(right.type):
            left = cast_to(left, pa.timestamp("us"))
    if arrow.is_timestamp(left.type) and arrow.is_duration(right.type):
        unit = common_type((pa.duration(left.type.unit), right.type)).unit
        left = cast_to(left, pa.timestamp(unit, left.type.tz))
        return (left, cast_to(right, pa.duration(unit))), left.type
    if name == "subtract" and _moment(left.type) and _moment(right.type):
        target = common_type((left.type, right.type))
        return (cast_to(left, target), cast_to(right, target)), pa.duration(target.unit)
    if arrow.is_duration(left.type) and arrow.is_duration(right.type):
        target = common_type((left.type, right.type))
        return (cast_to(left, target), cast_to(right, target)), target
    raise refuse(
        name,
        arguments,
        "a date takes days (an integer), a timestamp takes a duration, and two of a kind are "
        "subtracted; use date_add for months",
    )


def _of_time(of: pa.DataType) -> bool:
    return bool(arrow.is_date(of) or arrow.is_timestamp(of) or arrow.is_duration(of))


def _moment(of: pa.DataType) -> bool:
    return bool(arrow.is_date(of) or arrow.is_timestamp(of))


def _divide_rule(name: str, arguments: Arguments, of: pa.DataType | None) -> Typed:
    given = numbers(name, arguments, 2, 2)
    return tuple(cast_to(argument, pa.float64()) for argument in given), pa.float64()


def _add(arguments: Sequence[Values], of: pa.DataType) -> Values:
    return _linear(pc.add_checked, *arguments, of)


def _subtract(arguments: Sequence[Values], of: pa.DataType) -> Values:
    return _linear(pc.subtract_checked, *arguments, of)


def _linear(function: pc.Function, left: Values, right: Values, of: pa.DataType) -> Values:
    if arrow.is_decimal(of):
        wide = pa.decimal256(_WIDEST + 1, of.scale)
        return pc.cast(function(pc.cast(left, wide), pc.cast(right, wide)), of)
    if arrow.is_date(left.type):
        days = [pc.cast(pc.cast(side, pa.int32()), pa.int64()) for side in (left,)]
        if arrow.is_date(right.type):
            return function(days[0], pc.cast(pc.cast(right, pa.int32()), pa.int64()))
        return pc.cast(pc.cast(function(days[0], right), pa.int32()), pa.date32())
    return function(left, right)


def _multiply(arguments: Sequence[Values], of: pa.DataType) -> Values:
    left, right = arguments
    if not arrow.is_decimal(of):
        return pc.multiply_checked(left, right)
    if left.type.precision + right.type.precision < _WIDEST:
        return pc.cast(pc.multiply(left, right), of)
    product = pc.multiply(_wide(left, _WIDEST), _wide(right, _WIDEST - 1))
    return pc.cast(product, of)


def _wide(values: Values, precision: int) -> Values:
    """In 256 bits, said to have ``precision`` digits: Arrow asks for 77 for 38 times 38."""
    if isinstance(values, pa.Scalar):
        return _wide(pa.array([values.as_py()], values.type), precision)[0]
    wide = pc.cast(values, pa.decimal256(values.type.precision, values.type.scale))
    of = pa.decimal256(max(precision, values.type.scale), values.type.scale)
    return pa.Array.from_buffers(of, len(wide), wide.buffers(), offset=wide.offset)


def _divide(arguments: Sequence[Values], of: pa.DataType) -> Values:
    left, right = arguments
    return pc.divide(left, nonzero(right))


def nonzero(divisor: Values) -> Values:
    """The divisor, NULL where it is zero."""
    return pc.if_else(pc.equal(divisor, pa.scalar(0).cast(divisor.type)), None, divisor)


def _int_divide(arguments: Sequence[Values], of: pa.DataType) -> Values:
    left, right = arguments
    if arrow.is_floating(of):
        return pc.trunc(pc.divide(left, nonzero(right)))
    return pc.divide_checked(left, nonzero(right))


def _modulo(arguments: Sequence[Values], of: pa.DataType) -> Values:
    left, right = arguments
    if arrow.is_floating(of):
        quotient = np.fmod(_floats(left), _floats(nonzero(right)))
        valid = pc.and_(pc.is_valid(left), pc.is_valid(nonzero(right)))
        return pc.if_else(valid, pa.array(np.atleast_1d(quotient)), None)
    if arrow.is_decimal(of):
        return _decimal_modulo(left, nonzero(right), of)
    # x % -1 is 0 for all x, also where x // -1 overflows.
    right = nonzero(pc.if_else(pc.equal(right, -1), 1, right))
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _floats(values: Values) -> np.ndarray:
    if isinstance(values, pa.Scalar):
        return np.array([values.as_py() if values.is_valid else np.nan])
    return values.to_numpy(zero_copy_only=False)


def _decimal_modulo(left: Values, right: Values, of: pa.DataType) -> Values:
    wide = pa.decimal256(_WIDEST, of.scale)
    left, right = pc.cast(left, wide), pc.cast(right, wide)
    whole = pa.decimal256(_WIDEST, 0)
    quotient = pc.trunc(pc.divide(left, right))
    raise NotImplementedError(str((whole, quotient)))


FUNCTIONS = (
    Function("add", "a + b", _sum_rule, _add),
    Function("subtract", "a - b", _sum_rule, _subtract),
    Function("multiply", "a * b", _rule, _multiply),
    Function("divide", "a / b as a float64, NULL where b is 0", _divide_rule, _divide),
    Function("int_divide", "a / b without its fraction, NULL where b is 0", _rule, _int_divide),
    Function("modulo", "what a leaves over b, with a's sign; NULL where b is 0", _rule, _modulo),
)
_ = convert
