"""Cast floats to decimals by their shortest decimal text, as Java's BigDecimal.valueOf and Spark.

The shortest text of 1.005 is ``1.005``, so it is 1.01 with two digits after the point, although the
float is a little below 1.005. Texts are slow. Two rules of arithmetic find the digits of most
values without them. Let D be the decimal of the shortest text of x, and s the scale:

1. ``p = x * 10**s``, as a float64, differs from ``D * 10**s`` by less than 4 units in the last
   place: half a unit of x, and the roundings of the power and of the product. If p is further than
   that from a half, both round to the same integer.
2. If an integer m of at most 15 digits and a t of at most 22 have ``m / 10**t == x``, then D is
   ``m / 10**t``, because no two decimals of 15 digits read as the same float64, and D has no more
   digits than another decimal that reads as x. With ``t <= s`` there is nothing to round.

Cost: array operations for values that one of the rules decides, O(1) each; the text and a parser
of decimals for the others: values close to a half, and values of 16 or 17 digits with
``x * 10**s`` of at least 2**49.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.plan.expressions import Literal
from circuits.types.functions.argument_rows import fill_rows, relabel_scale, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.text_formatting import write_text
from circuits.types.functions.casting.text_parsing import read_text
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import is_number

__all__ = ["FUNCTIONS"]

#: The digits of the result: one more than a decimal of Spark has, for the value after the largest.
_DIGITS: Final = 39
_MAX_PRODUCT: Final = 2.0**49
_MAX_EXACT_POWER: Final = 22
_POWERS: Final = np.array([float(f"1e{power}") for power in range(_DIGITS)])
_DECIMAL_POWERS: Final = pa.array([10**power for power in range(_DIGITS)], pa.decimal256(39, 0))

Floats = np.ndarray[Any, np.dtype[np.float64]]


def _shortest_decimals(values: pa.Array, scale: int) -> pa.Array:
    """Return floats as decimals of 39 digits, rounded half away from zero.

    Raises:
        ArrowInvalid: A float is not below ``10**(38 - scale)``, or is not a number.
    """
    floats = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.abs(floats * _POWERS[scale])
        from_half = np.abs(product - np.floor(product) - 0.5)
        is_rounded = (product < _MAX_PRODUCT) & (from_half > 4 * np.spacing(product))
        is_in_range = np.abs(floats) < float(f"1e{38 - scale}")
    if not is_in_range.all():
        raise pa.ArrowInvalid(
            f"{floats[~is_in_range][0]} has no decimal of 38 digits, {scale} after the point"
        )
    digits = np.zeros(len(floats), np.int64)
    digits[is_rounded] = np.copysign(np.rint(product), floats)[is_rounded].astype(np.int64)
    power = np.zeros(len(floats), np.int64)
    rest = np.flatnonzero(~is_rounded)
    if len(rest):
        is_exact, digits[rest], power[rest] = _exact_digits(floats[rest], scale)
        rest = rest[~is_exact]
    unscaled = pc.cast(pa.array(digits), pa.decimal256(19, 0))
    if power.any():
        unscaled = pc.multiply(unscaled, _DECIMAL_POWERS.take(pa.array(power)))
    result = relabel_scale(unscaled, _DIGITS, scale)
    if len(rest):
        texts = write_text(pa.array(floats[rest]), pa.string())
        is_rest = np.zeros(len(floats), np.bool_)
        is_rest[rest] = True
        result = pc.replace_with_mask(result, pa.array(is_rest), read_text(texts, result.type))
    return pc.if_else(values.is_valid(), result, None) if values.null_count else result


def _exact_digits(floats: Floats, scale: int) -> tuple[Any, Any, Any]:
    """Find the digits of floats with up to 15 digits, none of them after ``scale`` digits.

    Returns:
        Three arrays: whether the digits were found, the digits as an integer, and the power of ten
        to multiply them with.
    """
    magnitude = np.abs(floats)
    exponent = np.floor(np.log10(np.where(magnitude > 0, magnitude, 1.0))).astype(np.int64)
    places = np.clip(14 - exponent, 0, min(scale, _MAX_EXACT_POWER))
    digits = np.rint(floats * _POWERS[places])
    is_exact = (np.abs(digits) < 1e15) & (digits / _POWERS[places] == floats)
    return is_exact, np.where(is_exact, digits, 0).astype(np.int64), scale - places


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    value, scale = arguments
    digits = scale.value if isinstance(scale, Literal) else None
    if digits not in range(_DIGITS) or not is_number(value.type):
        raise argument_error(name, arguments, "a is a number, and b is a literal from 0 to 38")
    return (cast_to(value, pa.float64()), scale), pa.decimal256(_DIGITS, digits)


def _kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _shortest_decimals(fill_rows(arguments[0], row_count(arguments)), result_type.scale)


FUNCTIONS = (
    Function(
        "shortest_decimal",
        "the shortest decimal that reads as the float a, rounded to b digits, half away from zero,"
        " as a decimal",
        _rule,
        _kernel,
    ),
)
