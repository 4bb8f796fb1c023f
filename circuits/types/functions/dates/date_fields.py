"""Fields of dates and timestamps: epochs, ISO years, fractions of seconds, names of days.

The more common fields (year to second) are in `circuits.types.functions.dates.date_parts`.

A date counts as its midnight. The fields of an infinite timestamp are NULL, as those of
`circuits.types.functions.dates.date_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import relabel_scale
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.time_units import infinite_rows
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    argument_error,
    require,
)
from circuits.types.functions.signatures import Signature, column_kernel

__all__ = ["FUNCTIONS"]

_INT, _TEXT = pa.int64(), pa.string()
_SECONDS = pa.decimal128(8, 6)
_JULIAN_DAY_OF_1970 = 2440588.0
_NO_LIMIT = 2**40  # more days than an interval can have


def _null_for_infinite(function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Wrap a function, so that its result is NULL for infinite timestamps."""

    def apply(values: pa.Array) -> pa.Array:
        is_infinite = infinite_rows(values)
        result = function(values)
        return result if is_infinite is None else pc.if_else(is_infinite, None, result)

    return apply


def _micros(values: pa.Array) -> pa.Array:
    return pc.cast(values, _INT)


def _floor_divider(divisor: int) -> Callable[[pa.Array], pa.Array]:
    def apply(values: pa.Array) -> pa.Array:
        numbers = pc.fill_null(_micros(values), 0).to_numpy(zero_copy_only=False) // divisor
        return pc.if_else(pc.is_valid(values), pa.array(numbers), None)

    return apply


def _part_of_minute(unit: int) -> Callable[[pa.Array], pa.Array]:
    """Return a function for the time since the start of the minute.

    Args:
        unit: The unit of the result, in microseconds.
    """

    def apply(values: pa.Array) -> pa.Array:
        numbers = pc.fill_null(_micros(values), 0).to_numpy(zero_copy_only=False)
        parts = numbers % 60_000_000 // unit
        return pc.if_else(pc.is_valid(values), pa.array(parts), None)

    return apply


def _seconds(values: pa.Array) -> pa.Array:
    micros = pc.cast(_part_of_minute(1)(values), pa.decimal128(19, 0))
    return pc.cast(relabel_scale(micros, 19, 6), _SECONDS)


def _epoch(values: pa.Array) -> pa.Array:
    return pc.divide(pc.cast(_micros(values), pa.float64(), safe=False), 1e6)


def _function_of_year(function: Callable[[Any], Any]) -> Callable[[pa.Array], pa.Array]:
    def apply(values: pa.Array) -> pa.Array:
        years = pc.fill_null(pc.year(values), 1).to_numpy(zero_copy_only=False)
        return pc.if_else(pc.is_valid(values), pa.array(function(years).astype(np.int64)), None)

    return apply


def _yearweek(values: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(pc.iso_year(values), 100), pc.iso_week(values))


def _days(values: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(pc.cast(values, pa.date32(), safe=False), pa.int32()), _INT)


def _julian(values: pa.Array) -> pa.Array:
    return pc.add(
        pc.divide(pc.cast(_micros(values), pa.float64(), safe=False), 86_400e6),
        _JULIAN_DAY_OF_1970,
    )


def _names(*names: str) -> pa.Array:
    return pa.array(names)


_DAYS = _names("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = _names(
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)


def _day_name(values: pa.Array) -> pa.Array:
    return _DAYS.take(pc.day_of_week(values))


def _month_name(values: pa.Array) -> pa.Array:
    return _MONTHS.take(pc.subtract(pc.month(values), 1))


def _iso_weekday(values: pa.Array) -> pa.Array:
    return pc.add(pc.day_of_week(values), 1)


def _interval_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not pa.types.is_duration(arguments[0].type):
        raise argument_error(name, arguments, "it takes an interval")
    results = {"interval_seconds": _SECONDS, "interval_epoch": pa.float64()}
    return (cast_to(arguments[0], pa.duration("us")),), results.get(name, _INT)


def _interval_part(size: int, limit: int) -> Callable[[pa.Array], pa.Array]:
    def apply(values: pa.Array) -> pa.Array:
        micros = pc.fill_null(_micros(values), 0).to_numpy(zero_copy_only=False)
        parts = np.sign(micros) * (np.abs(micros) // size % limit)
        return pc.if_else(pc.is_valid(values), pa.array(parts), None)

    return apply


def _interval_seconds(values: pa.Array) -> pa.Array:
    micros = pc.fill_null(_micros(values), 0).to_numpy(zero_copy_only=False)
    micros_of_minute = np.sign(micros) * (np.abs(micros) % 60_000_000)
    exact = relabel_scale(pc.cast(pa.array(micros_of_minute), pa.decimal128(19, 0)), 19, 6)
    return pc.if_else(pc.is_valid(values), pc.cast(exact, _SECONDS), None)


def _field(
    name: str,
    description: str,
    function: Callable[[pa.Array], pa.Array],
    data_type: pa.DataType = _INT,
) -> Function:
    return Function(
        name, description, Signature("m", data_type), column_kernel(_null_for_infinite(function))
    )


FUNCTIONS = (
    _field("iso_year", "the year of the ISO week", pc.iso_year),
    _field("iso_day_of_week", "the day of the week, 1 (Monday) to 7", _iso_weekday),
    _field("year_week", "the ISO year and the ISO week as yyyyww", _yearweek),
    _field("decade", "the year divided by 10", _function_of_year(lambda year: year // 10)),
    _field("century", "the century, from 1", _function_of_year(lambda year: (year + 99) // 100)),
    _field(
        "millennium", "the millennium, from 1", _function_of_year(lambda year: (year + 999) // 1000)
    ),
    _field("era", "1 for years from 1 on, else 0", _function_of_year(lambda year: year > 0)),
    _field("day_name", "the English name of the day", _day_name, _TEXT),
    _field("month_name", "the English name of the month", _month_name, _TEXT),
    _field("second_of_minute", "the seconds of the minute with their fraction", _seconds, _SECONDS),
    _field("millisecond", "the milliseconds of the minute", _part_of_minute(1000)),
    _field("microsecond", "the microseconds of the minute", _part_of_minute(1)),
    _field("epoch", "the seconds since 1970", _epoch, pa.float64()),
    _field("epoch_second", "the whole seconds since 1970", _floor_divider(1_000_000)),
    _field("epoch_millisecond", "the whole milliseconds since 1970", _floor_divider(1000)),
    _field("epoch_microsecond", "the microseconds since 1970", _micros),
    _field("epoch_day", "the days since 1970", _days),
    _field(
        "julian_day", "the days since the Julian epoch, with their fraction", _julian, pa.float64()
    ),
    *(
        Function(
            f"interval_{unit}",
            f"the {unit} of an interval, without the longer units",
            _interval_rule,
            column_kernel(_interval_part(size, limit)),
        )
        for unit, size, limit in (
            ("days", 86_400_000_000, _NO_LIMIT),
            ("hours", 3_600_000_000, 24),
            ("minutes", 60_000_000, 60),
        )
    ),
    Function(
        "interval_seconds",
        "the seconds of an interval with their fraction, without the longer units",
        _interval_rule,
        column_kernel(_interval_seconds),
    ),
    Function(
        "interval_epoch",
        "all seconds of an interval, with their fraction",
        _interval_rule,
        column_kernel(_epoch),
    ),
)
