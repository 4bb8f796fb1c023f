"""Sums, differences and products of numbers; sums and differences of dates and durations.

The result of integers is int64, and an overflow is an error. If an operand is a float, the result
is a float64. Decimals are exact, and the digits of the result are those of DuckDB: a sum has the
larger scale and one more digit, a product the sum of the scales and of the digits. If the operands
have at most 18 digits, the result has at most 18 (one machine word), else at most 38. A value that
does not fit is an error when it occurs. A product with a scale of more than 38 is an error when the
expression is built. An integer literal counts as a decimal with exactly its digits.

Deviation from DuckDB: a sum or product of small integers, or of float32, is computed in 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.argument_rows import fill_rows, relabel_scale, row_count
from circuits.types.functions.casting.coercion import adapt, cast_to
from circuits.types.functions.dates import date_arithmetic
from circuits.types.functions.dates.interval_values import add_interval_parts
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import digits_of, is_number, is_text

__all__ = ["FUNCTIONS", "arithmetic_rule", "as_numbers"]

_WORD_DIGITS, _MAX_DIGITS = 18, 38


def as_numbers(name: str, arguments: Arguments, min_count: int, max_count: int | None) -> Arguments:
    """Return the arguments as numbers: text literals are parsed, and NULL becomes int64.

    Raises:
        FunctionError: An argument is neither a number nor a text literal nor NULL.
    """
    require(name, arguments, min_count, max_count)

    def as_number(argument: Expression, adapted: Expression) -> Expression:
        if arrow.is_null(argument.type):
            return cast_to(argument, pa.int64())
        return adapted if is_text(argument.type) else argument

    # `adapt` gives each literal the type of the other arguments, if its value fits.
    operands = tuple(map(as_number, arguments, adapt(arguments)))
    if not all(is_number(argument.type) for argument in operands):
        raise argument_error(
            name, arguments, "it takes numbers; cast the arguments to a numeric type"
        )
    return operands


def arithmetic_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    """Type rule of two numbers: float64 if one is a float, else decimal if one is, else int64."""
    operands = as_numbers(name, arguments, 2, 2)
    if any(arrow.is_floating(argument.type) for argument in operands):
        return tuple(cast_to(argument, pa.float64()) for argument in operands), pa.float64()
    if any(arrow.is_decimal(argument.type) for argument in operands):
        return _decimal_rule(name, operands)
    return tuple(cast_to(argument, pa.int64()) for argument in operands), pa.int64()


def _digits(argument: Expression) -> tuple[int, int]:
    """Return precision and scale of a number; for an integer literal, those of its value."""
    if isinstance(argument, Literal) and arrow.is_integer(argument.type):
        return len(str(abs(argument.value or 0))), 0
    return digits_of(argument.type)


def _decimal_rule(name: str, arguments: Arguments) -> TypedArguments:
    """Return the operands as decimals with their own scales, and the type of the result."""
    digit_counts = [_digits(argument) for argument in arguments]
    (precision, scale), (other_precision, other_scale) = digit_counts
    if max(precision, other_precision) > _MAX_DIGITS:
        raise argument_error(name, arguments, "it computes with at most 38 digits; cast to fewer")
    if name == "multiply":
        result_scale, digits = scale + other_scale, precision + other_precision
        if result_scale > _MAX_DIGITS:
            raise argument_error(
                name,
                arguments,
                f"the product has {result_scale} digits after the point, a decimal at most 38; "
                "cast a factor to a smaller scale or to double",
            )
    else:
        result_scale = max(scale, other_scale)
        integer_digits = max(precision - scale, other_precision - other_scale)
        digits = integer_digits + result_scale + (name != "modulo")
    typed = tuple(
        cast_to(argument, pa.decimal128(*pair))
        for argument, pair in zip(arguments, digit_counts, strict=True)
    )
    fits_word = max(precision, other_precision) <= _WORD_DIGITS and result_scale < _WORD_DIGITS
    return typed, pa.decimal128(
        min(digits, _WORD_DIGITS if fits_word else _MAX_DIGITS), result_scale
    )


def _sum_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    if any(date_arithmetic.is_date_or_duration(argument.type) for argument in arguments):
        return date_arithmetic.sum_rule(name, arguments)
    return arithmetic_rule(name, arguments, target_type)


def _add(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _add_or_subtract(pc.add_checked, arguments, result_type)


def _subtract(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _add_or_subtract(pc.subtract_checked, arguments, result_type)


def _add_or_subtract(function: Any, arguments: Sequence[Values], data_type: pa.DataType) -> Values:
    left, right = arguments
    if arrow.is_decimal(data_type):
        left, right = (
            pc.cast(side, _scaled_type(side.type, data_type.scale)) for side in (left, right)
        )
        return pc.cast(function(left, right), data_type)
    if data_type == INTERVAL:
        return add_interval_parts(1 if function is pc.add_checked else -1, left, right)
    if arrow.is_date(left.type):
        return date_arithmetic.add_days(function, left, right, data_type)
    if arrow.is_timestamp(left.type) and arrow.is_duration(right.type):
        return date_arithmetic.shift_timestamps(function, left, right, data_type)
    if arrow.is_timestamp(left.type):
        return date_arithmetic.subtract_timestamps(left, right)
    return function(left, right)


def _scaled_type(data_type: pa.DataType, scale: int) -> pa.DataType:
    """Return the type of an operand of a sum, for decimals of a type that are scaled up.

    It has at most 75 digits, because Arrow declares one digit more for the sum, and 76 are the
    maximum. A value that needs all 76 digits is an error.
    """
    digits = min(data_type.precision - data_type.scale + scale, 75)
    return (pa.decimal128 if digits < _MAX_DIGITS else pa.decimal256)(digits, scale)


def _multiply(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    left, right = arguments
    if not arrow.is_decimal(result_type):
        return pc.multiply_checked(left, right)
    if left.type.precision + right.type.precision < _MAX_DIGITS:
        return pc.cast(pc.multiply(left, right), result_type)
    rows = row_count(arguments)
    return pc.cast(pc.multiply(_wide(left, rows, 38), _wide(right, rows, 37)), result_type)


def _wide(values: Values, rows: int, precision: int) -> pa.Array:
    """Return decimals of 256 bits with a declared precision of ``precision`` digits.

    With the true precisions, Arrow requires 77 digits for a product of 38 and 38 digits.
    """
    values = fill_rows(values, rows)
    wide = pc.cast(values, pa.decimal256(values.type.precision, values.type.scale))
    return relabel_scale(wide, precision, values.type.scale)


FUNCTIONS = (
    Function("add", "a + b", _sum_rule, _add),
    Function("subtract", "a - b", _sum_rule, _subtract),
    Function("multiply", "a * b", arithmetic_rule, _multiply),
)
