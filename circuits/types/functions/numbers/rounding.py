"""Rounding functions with a mode (half to even, up, down), and buckets of equal width.

``round``, ``floor`` and ``ceil`` are in `circuits.types.functions.numbers.mathematics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.numbers.arithmetic import as_numbers
from circuits.types.functions.numbers.trigonometry import float_function
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row

__all__ = ["FUNCTIONS"]


def _rounding_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 2)
    digits = arguments[1] if len(arguments) > 1 else Literal(0, pa.int64())
    if not isinstance(digits, Literal) or not isinstance(digits.value, int):
        raise argument_error(name, arguments, "the digits to round to are an integer literal")
    (value,) = as_numbers(name, arguments[:1], 1, 1)
    target = pa.float64()
    if arrow.is_integer(value.type):
        target = pa.int64()
    elif arrow.is_decimal(value.type):
        scale = min(max(digits.value, 0), value.type.scale)
        integer_digits = value.type.precision - value.type.scale
        # Rounding up may add a digit: 99 to 100. Rounding 7 up to -3 digits makes 1000.
        precision = min(38, max(integer_digits + 1 + scale, 1 - digits.value))
        target = pa.decimal128(precision, scale)
        return (value, Literal(digits.value, pa.int64())), target
    return (cast_to(value, target), Literal(digits.value, pa.int64())), target


def _rounding_kernel(mode: str) -> Kernel:
    """Return a kernel that rounds to a number of digits; ``mode`` is Arrow's round mode."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        values, digits = arguments[0], int(arguments[1].as_py())
        if arrow.is_floating(result_type):
            return _round_floats(values, digits, mode)
        if arrow.is_integer(result_type):
            if digits >= 0:
                return values
            decimals = pc.cast(values, pa.decimal256(40, 0))
            # An int64 has 19 digits. At -30 digits or below the result is 0, or it overflows.
            digits = max(digits, -30)
            return pc.cast(pc.round(decimals, ndigits=digits, round_mode=mode), result_type)
        scale = values.type.scale
        decimals = pc.cast(values, pa.decimal256(76, scale))
        # Arrow can round off at most 75 of the 76 digits of the type. That is enough, because a
        # value has at most 38 digits.
        digits = min(max(digits, scale - 75), scale)
        return pc.cast(pc.round(decimals, ndigits=digits, round_mode=mode), result_type)

    return kernel


def _round_floats(values: pa.Array, digits: int, mode: str) -> pa.Array:
    if not digits:
        return pc.round(values, round_mode=mode)
    if digits > 308:
        return values
    if digits < -308:
        # The unit 10**-digits is above the greatest float, so a value becomes 0 or infinite.
        quotient = pc.round(pc.multiply(values, 1e-309), round_mode=mode)
        return pc.if_else(pc.equal(quotient, 0.0), quotient, pc.multiply(quotient, math.inf))
    return pc.divide(pc.round(pc.multiply(values, 10.0**digits), round_mode=mode), 10.0**digits)


def _decimal_rounder(rounding: str) -> Callable[[float, int], float]:
    """Return a function that rounds a float by its shortest decimal text, as BigDecimal of Java.

    Doubles have exponents from -324 to 308: beyond 330 digits there is nothing to round.
    """

    def round_decimal(value: float, digits: int) -> float:
        if not math.isfinite(value) or digits > 330:
            return value
        if digits < -330:
            return 0.0
        with localcontext() as context:
            context.prec = 800  # more digits than any result has
            unit = Decimal(1).scaleb(-digits)
            return float(Decimal(repr(value)).quantize(unit, rounding=rounding))

    return round_decimal


def _bucket(value: Any, low: Any, high: Any, count: Any) -> Any:
    """Return the bucket of a value, from 1; 0 before the first and ``count + 1`` after the last.

    If ``low`` is greater than ``high``, the buckets are numbered downwards.
    """
    is_rising = low < high
    position = np.where(is_rising, (value - low) / (high - low), (low - value) / (low - high))
    bucket = np.floor(position * count) + 1
    is_before = np.where(is_rising, value < low, value > low)
    is_after = np.where(is_rising, value >= high, value <= high)
    return np.where(is_before, 0, np.where(is_after, count + 1, bucket))


def _bucket_domain(value: Any, low: Any, high: Any, count: Any) -> Any:
    """Return a mask of the rows for which `_bucket` is defined."""
    return (count > 0) & (low != high) & np.isfinite(low) & np.isfinite(high) & ~np.isnan(value)


# In a signature, f is a float and i an integer.
FUNCTIONS = (
    Function(
        "round_half_even",
        "a rounded to b digits, half to even",
        _rounding_rule,
        _rounding_kernel("half_to_even"),
    ),
    Function("round_up", "a rounded upwards, to b digits", _rounding_rule, _rounding_kernel("up")),
    Function(
        "round_down", "a rounded downwards, to b digits", _rounding_rule, _rounding_kernel("down")
    ),
    Function(
        "round_to_zero",
        "a rounded to b digits, towards zero",
        _rounding_rule,
        _rounding_kernel("towards_zero"),
    ),
    Function(
        "round_text_to_zero",
        "the shortest decimal that reads as the float a, rounded to b digits towards zero",
        Signature("fi", pa.float64()),
        per_distinct_row(_decimal_rounder(ROUND_DOWN)),
    ),
    Function(
        "round_text_half_up",
        "the shortest decimal that reads as the float a, rounded to b digits, half away from zero",
        Signature("fi", pa.float64()),
        per_distinct_row(_decimal_rounder(ROUND_HALF_UP)),
    ),
    Function(
        "round_text_half_even",
        "the shortest decimal that reads as the float a, rounded to b digits, half to even",
        Signature("fi", pa.float64()),
        per_distinct_row(_decimal_rounder(ROUND_HALF_EVEN)),
    ),
    Function(
        "width_bucket",
        "the bucket of a among d buckets of equal width from b to c",
        Signature("ffff", pa.int64()),
        column_kernel(float_function(_bucket, _bucket_domain)),
    ),
)
