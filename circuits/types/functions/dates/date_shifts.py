"""Functions that compute dates and timestamps: add months, next Monday, months between, make_date.

The number of months, days or microseconds may be a column. The kernels compute with numpy arrays of
days and of microseconds since 1970. ``months_between`` counts 31 days per month, as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions import exact_integers
from circuits.types.functions.argument_rows import array_function, by_constants
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.time_units import INFINITE, INFINITE_DAY, check_finite
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    argument_error,
    require,
)
from circuits.types.functions.signatures import Signature, column_kernel

__all__ = ["FUNCTIONS", "shift_by_parts"]

_INT, _DATE, _TIMESTAMP, _FLOAT = pa.int64(), pa.date32(), pa.timestamp("us"), pa.float64()
_DAY_US = 86_400_000_000
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: The maximum number of months, and of days, of an interval.
_MAX_UNITS = 2**31 - 1
#: A year beyond the dates, whose last year is 5,881,580.
_MAX_YEAR = 5_900_000
#: The last whole day of the timestamps in microseconds, in the year 294,247.
_MAX_TIMESTAMP_DAY = (2**63 - 1) // _DAY_US - 1
Numbers = np.ndarray[Any, Any]


def _is_infinite(timestamps: Numbers) -> Numbers:
    """Return a mask of the timestamps in microseconds that are infinite."""
    return np.asarray(np.abs(timestamps) == INFINITE)


def _null_if_infinite(function: Callable[..., Numbers]) -> Callable[..., tuple[Numbers, Numbers]]:
    """Wrap a function of timestamps, so that its result is NULL if one of them is infinite."""

    def apply(*timestamps: Numbers) -> tuple[Numbers, Numbers]:
        is_infinite = np.logical_or.reduce([_is_infinite(column) for column in timestamps])
        finite = (np.where(is_infinite, 0, column) for column in timestamps)
        return function(*finite), is_infinite

    return apply


def _split_days(days: Numbers) -> tuple[Numbers, Numbers]:
    """Split days since 1970 into months since 1970 and days of the month, from 0."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    return months.astype(np.int64), (dates - months.astype("datetime64[D]")).astype(np.int64)


def _first_day(months: Numbers) -> Numbers:
    """Return the first days of months, as days since 1970."""
    return np.asarray(months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64))


def add_months(days: Numbers, count: Numbers) -> Numbers:
    """Add months to dates; a day beyond the end of the new month becomes its last day.

    Args:
        days: The dates, in days since 1970.
        count: The number of months to add to each; it may be negative.

    Returns:
        The new dates, in days since 1970.
    """
    months, day_of_month = _split_days(days)
    first = _first_day(months + count)
    length = _first_day(months + count + 1) - first
    return np.asarray(first + np.minimum(day_of_month, length - 1))


def shift_by_parts(timestamps: Numbers, months: Numbers, days: Numbers, micros: Numbers) -> Numbers:
    """Add months, then days, then microseconds; an infinite timestamp remains infinite.

    Raises:
        ArrowInvalid: A result is out of range, or a number of months or days exceeds 32 bits.
    """
    for count in (months, days):
        if ((count > _MAX_UNITS) | (count < -_MAX_UNITS - 1)).any():
            raise pa.ArrowInvalid(f"an interval has up to {_MAX_UNITS:,} months and days")
    is_infinite = _is_infinite(timestamps)
    months, days, micros = (np.where(is_infinite, 0, count) for count in (months, days, micros))
    day, time = np.divmod(np.where(is_infinite, 0, timestamps), _DAY_US)
    midnight = exact_integers.multiply(add_months(day, months) + days, _DAY_US)
    shifted = exact_integers.add(exact_integers.add(midnight, time), micros)
    check_finite(pa.array(shifted), _TIMESTAMP)
    return np.where(is_infinite, timestamps, shifted)


def _last_day(days: Numbers) -> Numbers:
    months, _ = _split_days(days)
    return _first_day(months + 1) - 1


def _last_day_or_null(days: Numbers) -> tuple[Numbers, Numbers]:
    """Return the last days of the months of dates, and a mask of the infinite dates."""
    return _last_day(days), np.abs(days) == INFINITE_DAY


def _next_day(values: pa.Array, name: str) -> pa.Array:
    """Return the first day after each date that has this name, such as ``Mon`` or ``monday``.

    Raises:
        ArrowInvalid: No day of the week has the name.
    """
    word = name.strip().lower()
    weekdays = [i for i, day in enumerate(_WEEKDAYS) if word in (day, day[:3], day[:2])]
    if not weekdays:
        raise pa.ArrowInvalid(f"{name!r} is no day of the week; write one as 'Mon'")

    def next_day(days: Numbers) -> Numbers:
        tomorrow = days + 1
        weekday = (tomorrow + 3) % 7  # 0 is Monday; day 0, 1970-01-01, is a Thursday
        return np.asarray(tomorrow + (weekdays[0] - weekday) % 7)

    return array_function(next_day, _DATE)(values)


def _months_between(end: Numbers, start: Numbers, is_rounded: Numbers) -> Numbers:
    """Return the months between timestamps, with a fraction in months of 31 days.

    The result is whole if both are the same day of their months, or both the last day. Where
    ``is_rounded`` is not 0, the result has 8 digits after the point.
    """
    end_day, end_time = np.divmod(end, _DAY_US)
    start_day, start_time = np.divmod(start, _DAY_US)
    end_month, end_day_of_month = _split_days(end_day)
    start_month, start_day_of_month = _split_days(start_day)
    months = (end_month - start_month).astype(np.float64)
    are_last_days = (_last_day(end_day) == end_day) & (_last_day(start_day) == start_day)
    is_whole = (end_day_of_month == start_day_of_month) | are_last_days
    seconds = (
        (end_day_of_month - start_day_of_month) * 86_400
        + (end_time // 1_000_000)
        - (start_time // 1_000_000)
    )
    exact = months + seconds / (31 * 86_400.0)
    fractional = np.where(is_rounded != 0, np.round(exact * 1e8) / 1e8, exact)
    return np.where(is_whole, months, fractional)


def _make_days(year: Numbers, month: Numbers, day: Numbers) -> tuple[Numbers, Numbers]:
    """Return the days since 1970 of dates, and a mask of the rows that are not a date."""
    is_invalid = (month < 1) | (month > 12) | (year < -_MAX_YEAR) | (year > _MAX_YEAR)
    months = (np.where(is_invalid, 1970, year) - 1970) * 12 + np.where(is_invalid, 1, month) - 1
    first = _first_day(months)
    length = _first_day(months + 1) - first
    is_invalid |= (day < 1) | (day > length)
    days = np.where(is_invalid, 0, first + np.where(is_invalid, 1, day) - 1)
    is_out_of_range = np.abs(days) >= INFINITE_DAY
    return np.where(is_out_of_range, 0, days), is_invalid | is_out_of_range


def _raise_if_invalid(
    function: Callable[..., tuple[Numbers, Numbers]], kind: str
) -> Callable[..., Any]:
    """Wrap a function that returns a mask of invalid rows, so that it raises an error for them."""

    def apply(*arrays: Numbers) -> Numbers:
        result, invalid = function(*arrays)
        if invalid.any():
            raise pa.ArrowInvalid(f"the fields are not a valid {kind}")
        return result

    return apply


def _make_timestamp(
    year: Numbers, month: Numbers, day: Numbers, hour: Numbers, minute: Numbers, second: Numbers
) -> tuple[Numbers, Numbers]:
    """Return timestamps in microseconds, and a mask of the rows that are not a timestamp."""
    days, is_invalid = _make_days(year, month, day)
    micros = np.round(second * 1e6)
    is_invalid |= np.abs(days) > _MAX_TIMESTAMP_DAY
    is_invalid = is_invalid | (hour < 0) | (hour > 23) | (minute < 0) | (minute > 59)
    is_invalid |= ~((micros >= 0) & (micros <= 60_000_000))
    micros, days = np.where(is_invalid, 0, micros).astype(np.int64), np.where(is_invalid, 0, days)
    hour, minute = np.where(is_invalid, 0, hour), np.where(is_invalid, 0, minute)
    return days * _DAY_US + (hour * 60 + minute) * 60_000_000 + micros, is_invalid


def _unit_counter(unit: str) -> Callable[[Numbers, Numbers], Numbers]:
    """Return a function for the number of whole units from a start to an end, towards zero."""
    unit_us = {"week": 7 * _DAY_US, "day": _DAY_US, "hour": 3_600_000_000, "minute": 60_000_000}
    unit_us |= {"second": 1_000_000, "millisecond": 1000, "microsecond": 1}
    unit_months = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
    if unit not in unit_us and unit not in unit_months:
        raise pa.ArrowInvalid(f"no unit {unit!r}; there are {', '.join([*unit_months, *unit_us])}")

    def count_units(start: Numbers, end: Numbers) -> Numbers:
        if unit in unit_us:
            difference = exact_integers.subtract(end, start)
            return np.asarray(np.sign(difference) * (np.abs(difference) // unit_us[unit]))
        start_month, start_day_of_month = _split_days(start // _DAY_US)
        end_month, end_day_of_month = _split_days(end // _DAY_US)
        start_us_of_month = start_day_of_month * _DAY_US + start % _DAY_US
        end_us_of_month = end_day_of_month * _DAY_US + end % _DAY_US
        months = end_month - start_month
        # The last month does not count if it is incomplete.
        is_incomplete_forwards = (months > 0) & (end_us_of_month < start_us_of_month)
        is_incomplete_backwards = (months < 0) & (end_us_of_month > start_us_of_month)
        whole_months = months - is_incomplete_forwards + is_incomplete_backwards
        return np.asarray(np.sign(whole_months) * (np.abs(whole_months) // unit_months[unit]))

    return count_units


def _elapsed_units(end: pa.Array, start: pa.Array, unit: pa.Array) -> pa.Array:
    """Count whole units; the front ends pass a constant unit, so all rows have the same."""
    count_units = _unit_counter(unit[0].as_py() if len(unit) else "day")
    return array_function(_null_if_infinite(count_units), _INT)(start, end)


def _complete_months(end: Numbers, start: Numbers) -> Numbers:
    """Return the number of whole months from a start to an end, towards zero, as DuckDB counts.

    The last day of a month completes a month that began on a later day: from January 31 to
    February 28 is one month.
    """
    is_reversed = start > end
    start, end = np.where(is_reversed, end, start), np.where(is_reversed, start, end)
    start_month, start_day = _split_days(start // _DAY_US)
    end_month, end_day = _split_days(end // _DAY_US)
    is_last_day = _split_days(end // _DAY_US + 1)[0] > end_month
    start_day = np.where(is_last_day, np.minimum(start_day, end_day), start_day)
    is_incomplete = end_day * _DAY_US + end % _DAY_US < start_day * _DAY_US + start % _DAY_US
    months = end_month - start_month - is_incomplete
    return np.asarray(np.where(is_reversed, -months, months))


def _unchanged(numbers: Numbers) -> Numbers:
    """Return days since 1970, which `array_function` converts."""
    return numbers


def _finite_timestamps(micros: Numbers) -> Numbers:
    """Return microseconds since 1970; ArrowInvalid for those that mean an infinite timestamp."""
    if _is_infinite(micros).any():
        raise pa.ArrowInvalid("the timestamp is out of range")
    return micros


def _duration(count: pa.Array, unit: pa.Array) -> pa.Array:
    return pc.cast(pc.multiply_checked(count, unit), pa.duration("us"))


def _duration_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not pa.types.is_duration(arguments[0].type):
        raise argument_error(name, arguments, "it takes an interval of days or shorter units")
    return (cast_to(arguments[0], pa.duration("us")),), _INT


def _function(
    name: str, description: str, parameters: str, result: pa.DataType, function: Callable[..., Any]
) -> Function:
    # NULL is computed as 1, which is a valid year, month, day, hour, minute and second.
    return Function(
        name,
        description,
        Signature(parameters, result),
        column_kernel(array_function(function, result, null_value=1)),
    )


def _time_on_date_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    day, clock = arguments
    if not pa.types.is_date(day.type) or not pa.types.is_time(clock.type):
        raise argument_error(name, arguments, "it takes a date and a time")
    return (cast_to(day, _DATE), cast_to(clock, pa.time64("us"))), _TIMESTAMP


def _time_on_date(days: pa.Array, clocks: pa.Array) -> pa.Array:
    return pc.add(pc.cast(days, _TIMESTAMP), pc.cast(pc.cast(clocks, _INT), pa.duration("us")))


# In a signature, b is a condition, d a date, f a float, i an integer, m a timestamp and t a text.
FUNCTIONS = (
    Function(
        "time_on_date",
        "the timestamp of the date a and the time b",
        _time_on_date_rule,
        column_kernel(_time_on_date),
    ),
    _function(
        "add_months",
        "a plus b months, at most the last day of the month",
        "di",
        _DATE,
        add_months,
    ),
    _function(
        "shift_timestamp",
        "a plus b months, c days and d microseconds, which may be columns",
        "miii",
        _TIMESTAMP,
        shift_by_parts,
    ),
    _function("last_day", "the last day of the month", "d", _DATE, _last_day_or_null),
    Function(
        "next_day",
        "the first day after a with the name b",
        Signature("dt", _DATE),
        by_constants(_next_day),
    ),
    _function(
        "months_between",
        "the months from b to a, with a fraction in months of 31 days; rounded to 8 digits if c",
        "mmb",
        _FLOAT,
        _months_between,
    ),
    _function(
        "make_date",
        "the date of year a, month b and day c",
        "iii",
        _DATE,
        _raise_if_invalid(_make_days, "date"),
    ),
    _function(
        "try_make_date", "as make_date; NULL if there is no such date", "iii", _DATE, _make_days
    ),
    _function(
        "make_timestamp",
        "the timestamp of year, month, day, hour, minute and second",
        "iiiiif",
        _TIMESTAMP,
        _raise_if_invalid(_make_timestamp, "timestamp"),
    ),
    _function(
        "try_make_timestamp",
        "as make_timestamp; NULL if there is no such timestamp",
        "iiiiif",
        _TIMESTAMP,
        _make_timestamp,
    ),
    _function(
        "timestamp_of_micros",
        "the timestamp a microseconds after 1970",
        "i",
        _TIMESTAMP,
        _finite_timestamps,
    ),
    _function("date_of_days", "the date a days after 1970", "i", _DATE, _unchanged),
    _function(
        "complete_months",
        "the whole months from b to a",
        "mm",
        _INT,
        _null_if_infinite(_complete_months),
    ),
    Function(
        "elapsed_units",
        "the number of whole units of length c from b to a",
        Signature("mmt", _INT),
        column_kernel(_elapsed_units),
    ),
    Function(
        "duration_of_micros",
        "the interval of a times b microseconds",
        Signature("ii", pa.duration("us")),
        column_kernel(_duration),
    ),
    Function(
        "micros_of_duration",
        "the microseconds of an interval of days and shorter units",
        _duration_rule,
        column_kernel(lambda values: pc.cast(values, pa.int64())),
    ),
)
