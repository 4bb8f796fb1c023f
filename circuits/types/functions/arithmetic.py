"""Sums, differences and products of numbers; sums and differences of dates and durations.

Integers give int64 and an overflow is an error. A float makes all float64. Decimals are exact; the
result's digits follow DuckDB: a sum has the larger scale and one more digit, a product the sum of
the scales and of the digits; a result of operands of at most 18 digits stays at 18 (one machine
word), other results at 38; a value that does not fit is an error when it occurs. A product whose
scale is beyond 38 is refused when the expression is made. An integer literal counts as a decimal of
just its digits.

Deviation from DuckDB: a sum or product of small integers, or of float32, is computed in 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions import date_arithmetic as moments
from circuits.types.functions.argument_rows import fill_rows, relabel_scale
from circuits.types.functions.coercion import adapt, cast_to
from circuits.types.functions.function import Arguments, Function, Typed, Values, refuse, require
from circuits.types.functions.type_rules import digits_of, is_number, is_text

__all__ = ["FUNCTIONS", "arithmetic_rule", "numbers"]

_WORD, _WIDEST = 18, 38


def numbers(name: str, arguments: Arguments, least: int, most: int | None) -> Arguments:
    """The arguments as numbers: text literals read, NULL as int64; FunctionError for others."""
    require(name, arguments, least, most)
    read = tuple(
        cast_to(old, pa.int64()) if arrow.is_null(old.type) else new if is_text(old.type) else old
        for old, new in zip(arguments, adapt(arguments), strict=True)
    )
    if not all(is_number(argument.type) for argument in read):
        raise refuse(name, arguments, "it takes numbers; cast the arguments to a numeric type")
    return read


def arithmetic_rule(name: str, arguments: Arguments, of: pa.DataType | None) -> Typed:
    """Two numbers: float64 if one is a float, else decimal if one is, else int64."""
    given = numbers(name, arguments, 2, 2)
    if any(arrow.is_floating(argument.type) for argument in given):
        return tuple(cast_to(argument, pa.float64()) for argument in given), pa.float64()
    if any(arrow.is_decimal(argument.type) for argument in given):
        return _decimals(name, given)
    return tuple(cast_to(argument, pa.int64()) for argument in given), pa.int64()


def _digits(argument: Expression) -> tuple[int, int]:
    """Precision and scale of a number; those of its value for an integer literal."""
    if isinstance(argument, Literal) and arrow.is_integer(argument.type):
        return len(str(abs(argument.value or 0))), 0
    return digits_of(argument.type)


def _decimals(name: str, arguments: Arguments) -> Typed:
    """Operands as decimals of their own scales, and the type of a sum, product or remainder."""
    operands = [_digits(argument) for argument in arguments]
    (precision, scale), (other_precision, other_scale) = operands
    if max(precision, other_precision) > _WIDEST:
        raise refuse(name, arguments, "it computes with at most 38 digits; cast to fewer")
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
        digits = whole + result_scale + (name != "modulo")
    typed = tuple(
        cast_to(argument, pa.decimal128(*pair))
        for argument, pair in zip(arguments, operands, strict=True)
    )
    small = max(precision, other_precision) <= _WORD and result_scale < _WORD
    return typed, pa.decimal128(min(digits, _WORD if small else _WIDEST), result_scale)


def _sum_rule(name: str, arguments: Arguments, of: pa.DataType | None) -> Typed:
    require(name, arguments, 2, 2)
    if any(moments.of_time(argument.type) for argument in arguments):
        return moments.sum_rule(name, arguments)
    return arithmetic_rule(name, arguments, of)


def _add(arguments: Sequence[Values], of: pa.DataType) -> Values:
    return _linear(pc.add_checked, arguments, of)


def _subtract(arguments: Sequence[Values], of: pa.DataType) -> Values:
    return _linear(pc.subtract_checked, arguments, of)


def _linear(function: Any, arguments: Sequence[Values], of: pa.DataType) -> Values:
    left, right = arguments
    if arrow.is_decimal(of):
        # Scaled up, 38 digits with 38 behind the point need 76; a sum one more than the larger.
        left, right = (pc.cast(side, _roomy(side.type, of.scale)) for side in (left, right))
        return pc.cast(function(left, right), of)
    if arrow.is_date(left.type):
        return moments.days_linear(function, left, right, of)
    return function(left, right)


def _roomy(of: pa.DataType, scale: int) -> pa.DataType:
    digits = min(of.precision - of.scale + scale, 75)
    return (pa.decimal128 if digits < _WIDEST else pa.decimal256)(digits, scale)


def _multiply(arguments: Sequence[Values], of: pa.DataType) -> Values:
    left, right = arguments
    if not arrow.is_decimal(of):
        return pc.multiply_checked(left, right)
    if left.type.precision + right.type.precision < _WIDEST:
        return pc.cast(pc.multiply(left, right), of)
    rows = max(len(side) for side in arguments if isinstance(side, pa.Array))
    return pc.cast(pc.multiply(_wide(left, rows, 38), _wide(right, rows, 37)), of)


def _wide(values: Values, rows: int, precision: int) -> pa.Array:
    """In 256 bits, said to have ``precision`` digits: Arrow asks for 77 for 38 times 38."""
    values = fill_rows(values, rows)
    wide = pc.cast(values, pa.decimal256(values.type.precision, values.type.scale))
    return relabel_scale(wide, precision, values.type.scale)


FUNCTIONS = (
    Function("add", "a + b", _sum_rule, _add),
    Function("subtract", "a - b", _sum_rule, _subtract),
    Function("multiply", "a * b", arithmetic_rule, _multiply),
)
