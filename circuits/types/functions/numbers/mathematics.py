"""Functions of numbers: sign, absolute value, rounding, powers, roots and logarithms.

``round`` rounds half away from zero, as DuckDB does; its number of digits is a literal. ``negate``,
``abs`` and the rounding functions return int64 for integers and a decimal for decimals. Roots and
logarithms follow IEEE: the root of a negative number is NaN, the logarithm of zero is -inf (as in
DuckDB with its default settings).

Deviations from DuckDB: ``floor`` and ``ceil`` of an integer stay integers; ``sign`` is int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.casting.casts import round_half_away
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.dates.interval_values import negate_parts
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    Rule,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.numbers.arithmetic import as_numbers
from circuits.types.functions.type_rules import decimal_type

__all__ = ["FUNCTIONS"]

_HALF_AWAY_FROM_ZERO: Final = "half_towards_infinity"
MAX_INT64_DIGITS: Final = 19


def _number_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    """Type rule: int64 for integers, a decimal of at least 128 bits for decimals, else float64."""
    require(name, arguments, 1, 1)
    if arguments[0].type == INTERVAL and name == "negate":
        return arguments, INTERVAL
    if arrow.is_duration(arguments[0].type) and name in ("negate", "abs"):
        return arguments, arguments[0].type
    (value,) = as_numbers(name, arguments, 1, 1)
    target = pa.int64() if arrow.is_integer(value.type) else value.type
    if arrow.is_floating(target):
        target = pa.float64()
    if arrow.is_decimal(target):
        target = decimal_type(target.precision, target.scale)
    return (cast_to(value, target),), target


def _round_to_integer_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    typed, target = _number_rule(name, arguments, target_type)
    return typed, decimal_type(target.precision, 0) if arrow.is_decimal(target) else target


def _sign_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    return _number_rule(name, arguments, target_type)[0], pa.int64()


def _round_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 2)
    digits = arguments[1] if len(arguments) > 1 else Literal(0, pa.int64())
    if not isinstance(digits, Literal) or not isinstance(digits.value, int):
        raise argument_error(name, arguments, "the digits to round to are an integer literal")
    (value,), target = _number_rule(name, arguments[:1], target_type)
    if arrow.is_decimal(target):
        scale = min(max(digits.value, 0), target.scale)
        target = decimal_type(target.precision, scale)
    return (value, Literal(digits.value, pa.int64())), target


def _float_rule(count: int) -> Rule:
    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        operands = as_numbers(name, arguments, count, count)
        return tuple(cast_to(argument, pa.float64()) for argument in operands), pa.float64()

    return rule


def _negate(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    (value,) = arguments
    if result_type == INTERVAL:
        return negate_parts(value)
    if arrow.is_duration(result_type):
        return pc.cast(pc.negate_checked(pc.cast(value, pa.int64())), result_type)
    return pc.negate_checked(value) if arrow.is_integer(result_type) else pc.negate(value)


def _abs(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    (value,) = arguments
    if arrow.is_duration(result_type):
        return pc.cast(pc.abs_checked(pc.cast(value, pa.int64())), result_type)
    return pc.abs_checked(value)


def _sign(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    (value,) = arguments
    if arrow.is_floating(value.type):
        value = pc.if_else(pc.is_nan(value), 0.0, value)
    return pc.cast(pc.sign(value), result_type)


def _round(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    values, digits = arguments[0], int(arguments[1].as_py())
    if arrow.is_floating(result_type):
        return _round_floats(values, digits)
    if arrow.is_decimal(result_type):
        if -digits > values.type.precision - values.type.scale:
            return _zeros(values, pa.scalar(Decimal(0), result_type))
        return pc.cast(round_half_away(values, min(digits, values.type.scale)), result_type)
    if digits >= 0:
        return values
    if digits < -MAX_INT64_DIGITS:
        return _zeros(values, pa.scalar(0, result_type))
    decimals = pc.cast(values, pa.decimal128(MAX_INT64_DIGITS, 0))
    return pc.cast(round_half_away(decimals, digits), result_type)


def _zeros(values: Values, zero: pa.Scalar) -> Values:
    """Return zero for each value that is not NULL."""
    return pc.if_else(pc.is_valid(values), zero, pa.scalar(None, zero.type))


def _round_floats(values: pa.Array, digits: int) -> pa.Array:
    """Scale by a power of ten, round and scale back, as DuckDB does.

    A value for which that overflows is returned unchanged.
    """
    if digits == 0:
        return pc.round(values, round_mode=_HALF_AWAY_FROM_ZERO)
    if abs(digits) > 308:
        return values if digits > 0 else pc.multiply(values, 0.0)
    factor = pa.scalar(10.0 ** abs(digits))
    scale_up, scale_back = (pc.multiply, pc.divide) if digits > 0 else (pc.divide, pc.multiply)
    result = scale_back(pc.round(scale_up(values, factor), round_mode=_HALF_AWAY_FROM_ZERO), factor)
    return pc.if_else(pc.is_finite(result), result, values)


def _round_to_integer_kernel(function: Callable[..., Any]) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        (value,) = arguments
        if arrow.is_integer(result_type):
            return value
        if not arrow.is_decimal(result_type) or value.type.scale == 0:
            return function(value)
        wider = decimal_type(min(value.type.precision + 1, 76), value.type.scale)
        return pc.cast(function(pc.cast(value, wider)), result_type)

    return kernel


def _float_kernel(function: Callable[..., Any]) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        return function(*arguments)

    return kernel


FUNCTIONS = (
    Function("negate", "-a", _number_rule, _negate),
    Function("abs", "the absolute value", _number_rule, _abs),
    Function("sign", "the sign: -1, 0 or 1", _sign_rule, _sign),
    Function(
        "round", "a rounded to b digits (default 0), half away from zero", _round_rule, _round
    ),
    Function(
        "floor",
        "a rounded down to a whole number",
        _round_to_integer_rule,
        _round_to_integer_kernel(pc.floor),
    ),
    Function(
        "ceil",
        "a rounded up to a whole number",
        _round_to_integer_rule,
        _round_to_integer_kernel(pc.ceil),
    ),
    Function(
        "trunc", "the integer part", _round_to_integer_rule, _round_to_integer_kernel(pc.trunc)
    ),
    Function("power", "a to the power of b, as a float64", _float_rule(2), _float_kernel(pc.power)),
    Function("sqrt", "the square root", _float_rule(1), _float_kernel(pc.sqrt)),
    Function("exp", "e to the power of a", _float_rule(1), _float_kernel(pc.exp)),
    Function("ln", "the natural logarithm", _float_rule(1), _float_kernel(pc.ln)),
    Function("log10", "the logarithm to base 10", _float_rule(1), _float_kernel(pc.log10)),
)
