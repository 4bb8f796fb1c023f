"""Division as ANSI SQL and Spark have it: an error for zero, and decimals stay exact.

Decimals with the precisions p1 and p2 and the scales s1 and s2 have a quotient with the scale
``max(6, s1 + p2 + 1)`` and the precision ``p1 - s1 + s2 + scale``, reduced to 38 digits with at
least six of them after the point [1]. It is rounded half up. A caller may give another decimal type
for the quotient, to which it is rounded once.

References:
    [1] Apache Spark, DecimalPrecision and DecimalType.adjustPrecisionScale.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
)
from circuits.types.functions.numbers.ansi_arithmetic import (
    adjusted_decimal,
    ansi_rule,
    spark_digits,
)
from circuits.types.functions.numbers.arithmetic import as_numbers
from circuits.types.functions.numbers.division import int_divide, modulo, null_if_zero, zero_of

__all__ = ["FUNCTIONS"]

_MIN_SCALE = 6
_MAX_DIGITS = 76  # of Arrow's widest decimals


def _divide_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    operands = as_numbers(name, arguments, 2, 2)
    has_decimals = any(arrow.is_decimal(argument.type) for argument in operands)
    if not has_decimals or any(arrow.is_floating(argument.type) for argument in operands):
        return tuple(cast_to(argument, pa.float64()) for argument in operands), pa.float64()
    (precision, scale), (other_precision, other_scale) = (
        spark_digits(operand) for operand in operands
    )
    target_scale = max(_MIN_SCALE, scale + other_precision + 1)
    integer_digits = precision - scale + other_scale
    left, right = operands
    return (
        cast_to(left, pa.decimal128(min(precision, 38), scale)),
        cast_to(right, pa.decimal128(min(other_precision, 38), other_scale)),
    ), target_type or adjusted_decimal(integer_digits + target_scale, target_scale)


def _check_divisors(arguments: Sequence[Values]) -> None:
    """Raise ArrowInvalid if a divisor is zero and its dividend is not NULL."""
    rows = row_count(arguments)
    left, right = (fill_rows(values, rows) for values in arguments)
    zero = zero_of(right.type)
    if pc.any(pc.and_(pc.equal(right, zero), pc.is_valid(left))).as_py():
        raise pa.ArrowInvalid("division by zero")


def _divide(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    _check_divisors(arguments)
    left, right = arguments[0], null_if_zero(arguments[1])
    if arrow.is_floating(result_type):
        return pc.divide(left, right)
    # Arrow truncates the quotient to the scale s1 + p2 - s2 + 1. The dividend is first cast to the
    # scale s1 with which the quotient has one digit more than the result. The last digit decides
    # how to round.
    left, right = _narrow(left, right)
    precision, divisor_scale = right.type.precision, right.type.scale
    scale = max(result_type.scale + divisor_scale - precision, left.type.scale)
    dividend_digits = left.type.precision + scale - left.type.scale
    wide = pc.divide(
        pc.cast(left, pa.decimal256(dividend_digits, scale)),
        pc.cast(right, pa.decimal256(precision, divisor_scale)),
    )
    rounded = pc.round(wide, ndigits=result_type.scale, round_mode="half_towards_infinity")
    return pc.cast(rounded, result_type)


def _narrow(left: Values, right: Values) -> tuple[Values, Values]:
    """Return decimals with the precisions that their values need, if Arrow cannot divide the types.

    A quotient of the dividend with its own scale has the digits of both sides, and one more.
    """
    if left.type.precision + right.type.precision < _MAX_DIGITS:
        return left, right
    narrow = (
        pc.cast(side, pa.decimal256(_digits_of(side), side.type.scale)) for side in (left, right)
    )
    left, right = narrow
    return left, right


def _digits_of(values: Values) -> int:
    """Return the most digits of decimals without their point, at least 1."""
    extremes = pc.min_max(values).as_py()
    digits = (len(v.as_tuple().digits) for v in extremes.values() if v is not None)
    return max([1, *digits])


def _with_zero_check(function: Kernel) -> Kernel:
    """Return a kernel that raises an error where a divisor is zero, then calls ``function``."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        _check_divisors(arguments)
        return function(arguments, result_type)

    return kernel


def _int_divide_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    operands = as_numbers(name, arguments, 2, 2)
    if all(arrow.is_integer(argument.type) for argument in operands):
        return tuple(cast_to(argument, pa.int64()) for argument in operands), pa.int64()
    typed, _ = _divide_rule(name, arguments, target_type)
    return typed, pa.int64()


def _int_divide(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    _check_divisors(arguments)
    if arrow.is_integer(arguments[0].type):
        return int_divide(arguments, result_type)
    if arrow.is_floating(arguments[0].type):
        return pc.cast(pc.trunc(pc.divide(*arguments)), result_type)
    left, right = (
        pc.cast(side, pa.decimal256(side.type.precision, side.type.scale))
        for side in _narrow(*arguments)
    )
    quotient = pc.divide(left, right)
    return pc.cast(pc.round(quotient, ndigits=0, round_mode="towards_zero"), result_type)


def _positive_modulo(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Return the remainder of Spark's pmod: a non-zero remainder has the sign of the divisor."""
    _check_divisors(arguments)
    _, right = arguments
    remainder = modulo(arguments, result_type)
    zero = zero_of(result_type)
    divisor = pc.cast(right, result_type)
    shifted = modulo([pc.cast(pc.add(remainder, divisor), result_type), divisor], result_type)
    return pc.if_else(pc.less(remainder, zero), shifted, remainder)


FUNCTIONS = (
    Function(
        "divide_ansi", "a / b, exact for decimals; an error where b is 0", _divide_rule, _divide
    ),
    Function(
        "int_divide_ansi",
        "the whole part of a / b; an error where b is 0",
        _int_divide_rule,
        _int_divide,
    ),
    Function(
        "modulo_ansi",
        "the remainder of a / b with the sign of a; an error where b is 0",
        ansi_rule,
        _with_zero_check(modulo),
    ),
    Function(
        "positive_modulo",
        "the remainder of a / b that is not negative for b > 0; an error where b is 0",
        ansi_rule,
        _positive_modulo,
    ),
)
