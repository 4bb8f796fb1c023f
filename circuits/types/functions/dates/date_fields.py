"""Fields of dates, timestamps and intervals: year to second, ISO weeks, epochs, names of days.

The fields of a timestamp with a time zone are those of its local time. A date counts as its
midnight. The fields of an infinite date or timestamp are NULL. Text literals are parsed as
timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions.argument_rows import relabel_scale
from circuits.types.functions.casting.all_years import calendar_field, iso_year, year
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.time_units import Int64s, infinite_rows
from circuits.types.functions.dates.date_patterns import DAYS, MONTHS
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
from circuits.types.functions.signatures import Signature, column_kernel
from circuits.types.functions.type_rules import is_temporal, is_text

__all__ = ["FUNCTIONS", "as_date_or_timestamp"]

_INT, _TEXT = pa.int64(), pa.string()
_SECONDS = pa.decimal128(8, 6)
_JULIAN_DAY_OF_1970 = 2440588.0
_NO_LIMIT = 2**40  # more days than an interval can have
_FROM_SUNDAY: dict[str, Any] = {"count_from_zero": True, "week_start": 7}


def as_date_or_timestamp(name: str, arguments: Arguments, argument: Expression) -> Expression:
    """Return an argument as a date or timestamp.

    NULL and text literals are cast to timestamps, and date64 is cast to date32.

    Raises:
        FunctionError: The argument is neither a date nor a timestamp.
    """
    is_text_literal = isinstance(argument, Literal) and is_text(argument.type)
    if is_text_literal or arrow.is_null(argument.type):
        return cast_to(argument, pa.timestamp("us"))
    if not is_temporal(argument.type):
        raise argument_error(
            name, arguments, "it takes a date or a timestamp; cast the argument to one"
        )
    return cast_to(argument, pa.date32()) if arrow.is_date(argument.type) else argument


def _date_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    return (as_date_or_timestamp(name, arguments, arguments[0]),), pa.int64()


def _time_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    if arrow.is_time(arguments[0].type):
        return arguments, pa.int64()
    value = as_date_or_timestamp(name, arguments, arguments[0])
    is_date = arrow.is_date(value.type)  # a date means its midnight
    return (cast_to(value, pa.timestamp("s")) if is_date else value,), pa.int64()


def _arrow_kernel(function: Callable[..., Any], **options: Any) -> Kernel:
    """Return a kernel that calls a function of Arrow with these options."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        values = arguments[0]
        if not is_temporal(values.type):  # a time of day
            return pc.cast(function(values, **options), result_type)
        field = pc.cast(calendar_field(function, values, **options), result_type)
        is_infinite = infinite_rows(values)
        return field if is_infinite is None else pc.if_else(is_infinite, None, field)

    return kernel


def _year(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _null_for_infinite(year)(arguments[0])


def _null_for_infinite(function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Wrap a function, so that its result is NULL for infinite timestamps."""

    def apply(values: pa.Array) -> pa.Array:
        is_infinite = infinite_rows(values)
        result = function(values)
        return result if is_infinite is None else pc.if_else(is_infinite, None, result)

    return apply


def _micros(values: pa.Array) -> pa.Array:
    """Return timestamps as microseconds since 1970, intervals as their microseconds."""
    return pc.cast(values, _INT)


def _map_integers(values: pa.Array, function: Callable[[Int64s], Int64s]) -> pa.Array:
    """Return a function of integers, which computes NULL as 1; its result is NULL."""
    integers = pc.fill_null(values, 1).to_numpy(zero_copy_only=False)
    return pc.if_else(pc.is_valid(values), pa.array(function(integers)), None)


def _epoch_in(unit: int) -> Callable[[pa.Array], pa.Array]:
    """Return a function for the whole units since 1970; a unit is given in microseconds."""

    def apply(values: pa.Array) -> pa.Array:
        return _map_integers(_micros(values), lambda micros: micros // unit)

    return apply


def _part_of_minute(unit: int) -> Callable[[pa.Array], pa.Array]:
    """Return a function for the time since the start of the minute.

    Args:
        unit: The unit of the result, in microseconds.
    """

    def apply(values: pa.Array) -> pa.Array:
        return _map_integers(_micros(values), lambda micros: micros % 60_000_000 // unit)

    return apply


def _seconds(values: pa.Array) -> pa.Array:
    micros = pc.cast(_part_of_minute(1)(values), pa.decimal128(19, 0))
    return pc.cast(relabel_scale(micros, 19, 6), _SECONDS)


def _epoch(values: pa.Array) -> pa.Array:
    return pc.divide(pc.cast(_micros(values), pa.float64(), safe=False), 1e6)


def _function_of_year(function: Callable[[Any], Any]) -> Callable[[pa.Array], pa.Array]:
    def apply(values: pa.Array) -> pa.Array:
        return _map_integers(year(values), lambda years: function(years).astype(np.int64))

    return apply


def _truncate(numbers: Int64s, divisor: int) -> Int64s:
    """Return quotients without their fraction."""
    return np.asarray(np.sign(numbers) * (np.abs(numbers) // divisor))


def _periods(length: int) -> Callable[[Int64s], Int64s]:
    """Return a function for the number of a period of years: 1 from year 1 on, -1 before it."""

    def number(years: Int64s) -> Int64s:
        return np.where(years > 0, (years - 1) // length + 1, _truncate(years, length) - 1)

    return number


def _yearweek(values: pa.Array) -> pa.Array:
    years, weeks = iso_year(values), calendar_field(pc.iso_week, values)
    # Before year 1, the weeks are subtracted: week 52 of the year -12 is -1252.
    signed_weeks = pc.if_else(pc.greater(years, 0), weeks, pc.negate(weeks))
    return pc.add(pc.multiply(years, 100), signed_weeks)


def _days(values: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(pc.cast(values, pa.date32(), safe=False), pa.int32()), _INT)


def _julian(values: pa.Array) -> pa.Array:
    return pc.add(
        pc.divide(pc.cast(_micros(values), pa.float64(), safe=False), 86_400e6),
        _JULIAN_DAY_OF_1970,
    )


_DAY_NAMES = pa.array(DAYS)
_MONTH_NAMES = pa.array(MONTHS)


def _day_name(values: pa.Array) -> pa.Array:
    return _DAY_NAMES.take(calendar_field(pc.day_of_week, values))


def _month_name(values: pa.Array) -> pa.Array:
    return _MONTH_NAMES.take(pc.subtract(calendar_field(pc.month, values), 1))


def _iso_weekday(values: pa.Array) -> pa.Array:
    return pc.add(calendar_field(pc.day_of_week, values), 1)


def _interval_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not pa.types.is_duration(arguments[0].type):
        raise argument_error(name, arguments, "it takes an interval")
    result_type = _SECONDS if name == "interval_seconds" else _INT
    return (cast_to(arguments[0], pa.duration("us")),), result_type


def _interval_field(size: int, limit: int) -> Callable[[pa.Array], pa.Array]:
    """Return a function for one field of intervals.

    Args:
        size: The microseconds of the unit of the field.
        limit: The number of these units in the next longer unit.
    """

    def apply(values: pa.Array) -> pa.Array:
        return _map_integers(
            _micros(values), lambda micros: np.sign(micros) * (np.abs(micros) // size % limit)
        )

    return apply


def _interval_seconds(values: pa.Array) -> pa.Array:
    micros_of_minute = _map_integers(
        _micros(values), lambda micros: np.sign(micros) * (np.abs(micros) % 60_000_000)
    )
    return pc.cast(relabel_scale(pc.cast(micros_of_minute, pa.decimal128(19, 0)), 19, 6), _SECONDS)


def _calendar_rule(data_type: pa.DataType) -> Rule:
    """Return the rule of a function of a date or a timestamp."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        return _date_rule(name, arguments, target_type)[0], data_type

    return rule


def _calendar_function(
    name: str,
    description: str,
    function: Callable[[pa.Array], pa.Array],
    data_type: pa.DataType = _INT,
) -> Function:
    """Return a function of the day; a date may be out of range of timestamps."""
    kernel = column_kernel(_null_for_infinite(function))
    return Function(name, description, _calendar_rule(data_type), kernel)


def _field(
    name: str,
    description: str,
    function: Callable[[pa.Array], pa.Array],
    data_type: pa.DataType = _INT,
) -> Function:
    return Function(
        name, description, Signature("m", data_type), column_kernel(_null_for_infinite(function))
    )


# In a signature, m is a timestamp.
FUNCTIONS = (
    Function("year", "the year", _date_rule, _year),
    Function("quarter", "the quarter of the year, 1 to 4", _date_rule, _arrow_kernel(pc.quarter)),
    Function("month", "the month, 1 to 12", _date_rule, _arrow_kernel(pc.month)),
    Function("week", "the ISO week of the year", _date_rule, _arrow_kernel(pc.iso_week)),
    Function("day", "the day of the month", _date_rule, _arrow_kernel(pc.day)),
    Function(
        "day_of_week",
        "the day of the week, 0 (Sunday) to 6",
        _date_rule,
        _arrow_kernel(pc.day_of_week, **_FROM_SUNDAY),
    ),
    Function(
        "day_of_year", "the day of the year, from 1", _date_rule, _arrow_kernel(pc.day_of_year)
    ),
    Function("hour", "the hour, 0 to 23", _time_rule, _arrow_kernel(pc.hour)),
    Function("minute", "the minute, 0 to 59", _time_rule, _arrow_kernel(pc.minute)),
    Function(
        "second", "the second, 0 to 59, without fraction", _time_rule, _arrow_kernel(pc.second)
    ),
    _calendar_function("iso_year", "the year of the ISO week", iso_year),
    _calendar_function("iso_day_of_week", "the day of the week, 1 (Monday) to 7", _iso_weekday),
    _calendar_function("year_week", "the ISO year and the ISO week as yyyyww", _yearweek),
    _calendar_function(
        "decade", "the year divided by 10", _function_of_year(lambda years: _truncate(years, 10))
    ),
    _calendar_function(
        "century", "the century, 1 or -1 around year 1", _function_of_year(_periods(100))
    ),
    _calendar_function(
        "millennium", "the millennium, 1 or -1 around year 1", _function_of_year(_periods(1000))
    ),
    _calendar_function(
        "era", "1 for years from 1 on, else 0", _function_of_year(lambda years: years > 0)
    ),
    _calendar_function("day_name", "the English name of the day", _day_name, _TEXT),
    _calendar_function("month_name", "the English name of the month", _month_name, _TEXT),
    _field("second_of_minute", "the seconds of the minute with their fraction", _seconds, _SECONDS),
    _field("millisecond", "the milliseconds of the minute", _part_of_minute(1000)),
    _field("microsecond", "the microseconds of the minute", _part_of_minute(1)),
    _field("epoch", "the seconds since 1970", _epoch, pa.float64()),
    _field("epoch_second", "the whole seconds since 1970", _epoch_in(1_000_000)),
    _field("epoch_millisecond", "the whole milliseconds since 1970", _epoch_in(1000)),
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
            column_kernel(_interval_field(size, limit)),
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
)
