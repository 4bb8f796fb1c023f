"""Sums, differences, products and remainders in the types of Spark; an overflow is an error.

The result of two integers has the wider of their types: INT + INT is an INT, and an error where
it has more than 32 bits. Decimals follow the rules of Spark [1]: a sum has one digit more than its
operands need, a product the digits of both and one more, a remainder those of the operand with
fewer digits before the point. A result of more than 38 digits loses digits after the point, down to
six, and is rounded half up. A FLOAT beside another number is a DOUBLE.

References:
    [1] Apache Spark, DecimalPrecision and DecimalType.adjustPrecisionScale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions.argument_rows import fill_rows, relabel_scale, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import Arguments, Function, Kernel, TypedArguments, Values
from circuits.types.functions.numbers.arithmetic import as_numbers
from circuits.types.functions.type_rules import common_type, digits_of

__all__ = ["FUNCTIONS", "adjusted_decimal", "ansi_rule", "spark_digits"]

_MAX_DIGITS, _MIN_SCALE = 38, 6
# The precisions of the operands as decimals of 256 bits (`_widen` sets them). Arrow derives the
# precision of a result from them: their sum plus 1 for a product, the larger one plus 1 for a sum,
# and rejects more than 76. With the true precisions it would reject a product of 38 and 38 digits,
# although its 76 digits fit.
_FACTOR_DIGITS = (38, 37)
_SUMMAND_DIGITS = 75


def spark_digits(argument: Expression) -> tuple[int, int]:
    """Return precision and scale of a number; for an integer literal, those of its value.

    Spark counts 20 digits for a BIGINT, although its values have at most 19.
    """
    if isinstance(argument, Literal) and arrow.is_integer(argument.type):
        return len(str(abs(argument.value or 0))), 0
    precision, scale = digits_of(argument.type)
    return (20 if arrow.is_integer(argument.type) and precision == 19 else precision), scale


def adjusted_decimal(precision: int, scale: int) -> pa.DataType:
    """Return a decimal of at most 38 digits; to fit, digits after the point are dropped.

    At least six digits after the point remain, or all if there are fewer.
    """
    if precision > _MAX_DIGITS:
        whole = precision - scale
        scale = max(_MAX_DIGITS - whole, min(scale, _MIN_SCALE))
        precision = _MAX_DIGITS
    return pa.decimal128(max(precision, 1), scale)


def ansi_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    """Return two numbers in Spark's types, and the type of the result, as described above."""
    operands = as_numbers(name, arguments, 2, 2)
    types = [operand.type for operand in operands]
    if any(map(arrow.is_floating, types)):
        target = pa.float32() if types[0] == types[1] == pa.float32() else pa.float64()
        return tuple(cast_to(operand, target) for operand in operands), target
    if not any(map(arrow.is_decimal, types)):
        target = common_type(types)
        return tuple(cast_to(operand, target) for operand in operands), target
    pairs = [spark_digits(operand) for operand in operands]
    typed = tuple(
        cast_to(operand, pa.decimal128(min(precision, _MAX_DIGITS), scale))
        for operand, (precision, scale) in zip(operands, pairs, strict=True)
    )
    (left_precision, left_scale), (right_precision, right_scale) = pairs
    larger_scale = max(left_scale, right_scale)
    if name.startswith("multiply"):
        product_digits = left_precision + right_precision + 1
        return typed, adjusted_decimal(product_digits, left_scale + right_scale)
    whole_digits = left_precision - left_scale, right_precision - right_scale
    if "modulo" in name:
        return typed, adjusted_decimal(min(whole_digits) + larger_scale, larger_scale)
    return typed, adjusted_decimal(max(whole_digits) + larger_scale + 1, larger_scale)


def _checked_kernel(function: Callable[..., Any]) -> Kernel:
    """Return a kernel of a checked function of Arrow.

    Decimals are computed exactly, in 256 bits, then rounded and cast; the cast fails on overflow.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        if not arrow.is_decimal(result_type):
            return function(*arguments)
        rows = row_count(arguments)
        if function is pc.multiply_checked:
            sides = [
                _widen(side, rows, side.type.scale, digits)
                for side, digits in zip(arguments, _FACTOR_DIGITS, strict=True)
            ]
        else:
            scale = max(side.type.scale for side in arguments)
            sides = [_widen(side, rows, scale, _SUMMAND_DIGITS) for side in arguments]
        exact = function(*sides)
        if exact.type.scale > result_type.scale:
            exact = pc.round(exact, ndigits=result_type.scale, round_mode="half_towards_infinity")
        return pc.cast(exact, result_type)

    return kernel


def _widen(values: Values, rows: int, scale: int, digits: int) -> pa.Array:
    """Return decimals of 256 bits with this scale and a precision of ``digits``.

    The cast only appends zeros after the point, so every value fits. Then the precision of the
    type is replaced without a check of the values.
    """
    values = fill_rows(values, rows)
    wide = pa.decimal256(values.type.precision + scale - values.type.scale, scale)
    return relabel_scale(pc.cast(values, wide), digits, scale)


FUNCTIONS = (
    Function(
        "add_ansi",
        "a + b, in the type of Spark's sum",
        ansi_rule,
        _checked_kernel(pc.add_checked),
    ),
    Function(
        "subtract_ansi",
        "a - b, in the type of Spark's difference",
        ansi_rule,
        _checked_kernel(pc.subtract_checked),
    ),
    Function(
        "multiply_ansi",
        "a * b, in the type of Spark's product",
        ansi_rule,
        _checked_kernel(pc.multiply_checked),
    ),
)
