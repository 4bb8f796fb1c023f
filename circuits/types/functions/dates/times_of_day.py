"""Times of day: made of numbers, truncated to a unit, and subtracted, as in Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Rule,
    TypedArguments,
    argument_error,
    require,
)
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row

__all__ = ["FUNCTIONS"]

_TIME: Final = pa.time64("us")
_INT: Final = pa.int64()
#: The microseconds of the units to which times of day are truncated.
_UNITS: Final = {
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1000,
    "MICROSECOND": 1,
}


def _micros_of_time(hour: int, minute: int, second: Decimal | float) -> int:
    micros = round(Decimal(str(second)) * 1_000_000)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= micros < 60_000_000):
        raise ValueError(f"no time of day has hour {hour}, minute {minute} and second {second}")
    return (hour * 60 + minute) * 60_000_000 + micros


def _rule(parameters: str, result: pa.DataType) -> Rule:
    """Return the rule of a function: a letter per parameter, u for a unit, t for a time of day."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, len(parameters), len(parameters))
        targets = {"u": pa.string(), "t": _TIME}
        tests = {"u": arrow.is_string, "t": arrow.is_time}
        typed: list[Expression] = []
        for letter, argument in zip(parameters, arguments, strict=True):
            if not tests[letter](argument.type) and not arrow.is_null(argument.type):
                raise argument_error(
                    name, arguments, f"argument {len(typed) + 1} is a {targets[letter]}"
                )
            typed.append(cast_to(argument, targets[letter]))
        return tuple(typed), result

    return rule


def _unit_micros(names: pa.Array) -> pa.Array:
    """Return the microseconds of units by their names."""
    upper = pc.utf8_upper(names)
    indices = pc.index_in(upper, pa.array(list(_UNITS)))
    unknown = upper.filter(pc.and_(pc.is_null(indices), pc.is_valid(upper)))
    if len(unknown):
        raise pa.ArrowInvalid(f"no unit of a time {unknown[0]}; there are {', '.join(_UNITS)}")
    return pa.array(list(_UNITS.values()), _INT).take(indices)


def _truncate(units: pa.Array, times: pa.Array) -> pa.Array:
    micros = pc.cast(times, _INT)
    return pc.cast(pc.subtract(micros, _modulo(micros, _unit_micros(units))), _TIME)


def _difference(units: pa.Array, starts: pa.Array, ends: pa.Array) -> pa.Array:
    micros = pc.subtract(pc.cast(ends, _INT), pc.cast(starts, _INT))
    return pc.divide(micros, _unit_micros(units))


def _modulo(values: pa.Array, divisors: pa.Array) -> pa.Array:
    valid = pc.and_(values.is_valid(), divisors.is_valid())
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    non_null_divisors = pc.fill_null(divisors, 1).to_numpy(zero_copy_only=False)
    return pc.if_else(valid, pa.array(np.mod(numbers, non_null_divisors)), None)


# In a signature, i is an integer and n a number.
FUNCTIONS = (
    Function(
        "micros_of_time",
        "the microseconds from midnight to hour a, minute b and second c",
        Signature("iin", _INT),
        per_distinct_row(_micros_of_time),
    ),
    Function(
        "time_of_micros",
        "the time of day a microseconds after midnight",
        Signature("i", _TIME),
        column_kernel(lambda micros: pc.cast(micros, _TIME)),
    ),
    Function(
        "time_trunc",
        "the time of day b, cut to the unit a",
        _rule("ut", _TIME),
        column_kernel(_truncate),
    ),
    Function(
        "time_diff",
        "the whole units a from the time of day b to c",
        _rule("utt", _INT),
        column_kernel(_difference),
    ),
)
