"""Products and quotients of intervals of days and shorter units with numbers, as in Spark.

The unit of an interval is a microsecond. A product with an integer is exact; another product or a
quotient is rounded half away from zero. An overflow of 64 bits is an error, and so is a division by
zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
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

_DURATION = pa.duration("us")


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    interval, number = arguments
    if not arrow.is_duration(interval.type) or not is_number(number.type):
        raise argument_error(name, arguments, "it takes an interval and a number")
    is_exact = arrow.is_integer(number.type) and name == "multiply_interval"
    target = pa.int64() if is_exact else pa.float64()
    return (cast_to(interval, _DURATION), cast_to(number, target)), _DURATION


def _multiply(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    micros, number = _microseconds_and_number(arguments)
    if arrow.is_integer(number.type):
        return pc.cast(pc.multiply_checked(micros, number), result_type)
    return _round(pc.multiply(pc.cast(micros, pa.float64(), safe=False), number), result_type)


def _divide(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    micros, number = _microseconds_and_number(arguments)
    if pc.any(pc.and_(pc.equal(number, 0.0), pc.is_valid(micros))).as_py():
        raise pa.ArrowInvalid("division by zero")
    return _round(pc.divide(pc.cast(micros, pa.float64(), safe=False), number), result_type)


def _microseconds_and_number(arguments: Sequence[Values]) -> list[Any]:
    rows = row_count(arguments)
    interval, number = (fill_rows(values, rows) for values in arguments)
    return [pc.cast(interval, pa.int64()), number]


def _round(micros: pa.Array, data_type: pa.DataType) -> pa.Array:
    whole = pc.round(micros, round_mode="half_towards_infinity")
    return pc.cast(pc.cast(whole, pa.int64()), data_type)


FUNCTIONS = (
    Function("multiply_interval", "the interval a times the number b", _rule, _multiply),
    Function(
        "divide_interval", "the interval a by the number b; an error where b is 0", _rule, _divide
    ),
)
