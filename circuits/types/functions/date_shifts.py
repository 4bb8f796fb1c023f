"""Moments computed from others: months added, the next Monday, the end of a month, time zones.

Amounts may be columns. All kernels are numpy over days and microseconds; years are those of numpy's
calendar. ``months_between`` has 31 days per month, as Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import by_constants
from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, column_kernel

__all__ = ["FUNCTIONS"]

_INT, _DATE, _MOMENT, _FLOAT = pa.int64(), pa.date32(), pa.timestamp("us"), pa.float64()
_DAY = 86_400_000_000
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
Numbers = np.ndarray[Any, Any]


def _numpy(function: Callable[..., Any], result: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function of Arrow columns from one of int64 or float64 arrays.

    Dates are days and timestamps microseconds. The function may return a mask of invalid rows, too,
    whose result is NULL.
    """

    def apply(*columns: pa.Array) -> pa.Array:
        valid = np.ones(len(columns[0]), np.bool_)
        arrays = []
        for column in columns:
            valid &= np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
            if pa.types.is_date(column.type):
                column = pc.cast(column, pa.int32())
            if pa.types.is_boolean(column.type) or not pa.types.is_floating(column.type):
                column = pc.cast(column, _INT)
            arrays.append(pc.fill_null(column, 1).to_numpy(zero_copy_only=False))
        found = function(*arrays)
        if isinstance(found, tuple):
            found, invalid = found
            valid &= ~invalid
        if pa.types.is_date(result):
            return pc.cast(pa.array(found.astype(np.int64), _INT, mask=~valid), pa.int32()).cast(
                result
            )
        if pa.types.is_timestamp(result):
            return pa.array(found.astype(np.int64), _INT, mask=~valid).cast(result)
        return pa.array(found, result, mask=~valid)

    return apply


def _month_start(days: Numbers) -> tuple[Numbers, Numbers]:
    """Return the months since 1970 of days, and the days of their months, from 0."""
    moments = days.astype("datetime64[D]")
    months = moments.astype("datetime64[M]")
    return months.astype(np.int64), (moments - months.astype("datetime64[D]")).astype(np.int64)


def _first_day(months: Numbers) -> Numbers:
    return np.asarray(months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64))


def _shift_months(days: Numbers, count: Numbers) -> Numbers:
    months, day = _month_start(days)
    first = _first_day(months + count)
    length = _first_day(months + count + 1) - first
    return np.asarray(first + np.minimum(day, length - 1))


def _shift(moments: Numbers, months: Numbers, days: Numbers, micros: Numbers) -> Numbers:
    day, time = np.divmod(moments, _DAY)
    return (_shift_months(day, months) + days) * _DAY + time + micros


def _last_day(days: Numbers) -> Numbers:
    months, _ = _month_start(days)
    return _first_day(months + 1) - 1


def _next_day(values: pa.Array, name: str) -> pa.Array:
    """Return the first day after each date with this name; NULL if no day has it."""
    word = name.strip().lower()
    known = [i for i, day in enumerate(_WEEKDAYS) if word in (day, day[:3], day[:2])]
    if not known:
        raise pa.ArrowInvalid(f"{name!r} is no day of the week; write one as 'Mon'")
    return _numpy(lambda days: days + 1 + (known[0] - (days + 4)) % 7, _DATE)(values)


def _months_between(end: Numbers, start: Numbers, rounded: Numbers) -> Numbers:
    end_day, end_time = np.divmod(end, _DAY)
    start_day, start_time = np.divmod(start, _DAY)
    end_month, end_of = _month_start(end_day)
    start_month, start_of = _month_start(start_day)
    months = (end_month - start_month).astype(np.float64)
    both_last = (_last_day(end_day) == end_day) & (_last_day(start_day) == start_day)
    whole = (end_of == start_of) | both_last
    seconds = (end_of - start_of) * 86_400 + (end_time // 1_000_000) - (start_time // 1_000_000)
    exact = months + seconds / (31 * 86_400.0)
    found = np.where(rounded != 0, np.round(exact * 1e8) / 1e8, exact)
    return np.where(whole, months, found)


def _make_days(year: Numbers, month: Numbers, day: Numbers) -> tuple[Numbers, Numbers]:
    invalid = (month < 1) | (month > 12) | (np.abs(year) > 200_000)
    months = (np.where(invalid, 1970, year) - 1970) * 12 + np.where(invalid, 1, month) - 1
    first = _first_day(months)
    length = _first_day(months + 1) - first
    invalid |= (day < 1) | (day > length)
    return first + day - 1, invalid


def _checked(function: Callable[..., tuple[Numbers, Numbers]], what: str) -> Callable[..., Any]:
    """Return the function with an error instead of a mask of invalid rows."""

    def apply(*arrays: Numbers) -> Numbers:
        found, invalid = function(*arrays)
        if invalid.any():
            raise pa.ArrowInvalid(f"the fields are no {what}")
        return found

    return apply


def _make_moment(
    year: Numbers, month: Numbers, day: Numbers, hour: Numbers, minute: Numbers, second: Numbers
) -> tuple[Numbers, Numbers]:
    days, invalid = _make_days(year, month, day)
    micros = np.round(second * 1e6)
    invalid = invalid | (hour < 0) | (hour > 23) | (minute < 0) | (minute > 59)
    invalid |= ~((micros >= 0) & (micros <= 60_000_000))
    micros = np.where(invalid, 0, micros).astype(np.int64)
    return days * _DAY + (hour * 60 + minute) * 60_000_000 + micros, invalid


def _elapsed(unit: str) -> Callable[[Numbers, Numbers], Numbers]:
    """Return the number of whole units from a start to an end, towards zero."""
    sizes = {"week": 7 * _DAY, "day": _DAY, "hour": 3_600_000_000, "minute": 60_000_000}
    sizes |= {"second": 1_000_000, "millisecond": 1000, "microsecond": 1}
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}

    def elapsed(start: Numbers, end: Numbers) -> Numbers:
        if unit in sizes:
            difference = end - start
            return np.asarray(np.sign(difference) * (np.abs(difference) // sizes[unit]))
        start_month, start_of = _month_start(start // _DAY)
        end_month, end_of = _month_start(end // _DAY)
        start_rest = start_of * _DAY + start % _DAY
        end_rest = end_of * _DAY + end % _DAY
        count = end_month - start_month
        count = (
            count
            - ((count > 0) & (end_rest < start_rest))
            + ((count < 0) & (end_rest > start_rest))
        )
        return np.asarray(np.sign(count) * (np.abs(count) // months[unit]))

    if unit not in sizes and unit not in months:
        raise pa.ArrowInvalid(f"no unit {unit!r}; there are {', '.join([*months, *sizes])}")
    return elapsed


def _elapsed_units(end: pa.Array, start: pa.Array, unit: pa.Array) -> pa.Array:
    return _numpy(_elapsed(unit[0].as_py() if len(unit) else "day"), _INT)(start, end)


def _to_zone(values: pa.Array, zone: str) -> pa.Array:
    """Return moments of UTC in the local time of a zone."""
    return pc.local_timestamp(
        values.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", _zone(zone)))
    )


def _from_zone(values: pa.Array, zone: str) -> pa.Array:
    """Return moments of the local time of a zone in UTC."""
    known = pc.assume_timezone(values, _zone(zone), ambiguous="earliest", nonexistent="latest")
    return known.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


_SHORT_ZONES = {"PST": "America/Los_Angeles", "CST": "America/Chicago", "JST": "Asia/Tokyo"}


def _zone(name: str) -> str:
    known = _SHORT_ZONES.get(name, name)
    offset = known.removeprefix("UTC").removeprefix("GMT")
    if not offset or offset.upper() == "Z":
        return "UTC"
    if offset[0] in "+-":
        hours, _, minutes = offset[1:].partition(":")
        return f"{offset[0]}{int(hours):02}:{int(minutes or 0):02}"
    return known


def _moment_of_micros(micros: Numbers) -> Numbers:
    return micros


def _duration(count: pa.Array, unit: pa.Array) -> pa.Array:
    return pc.cast(pc.multiply_checked(count, unit), pa.duration("us"))


def _function(
    name: str, description: str, parameters: str, result: pa.DataType, function: Callable[..., Any]
) -> Function:
    return Function(
        name, description, Signature(parameters, result), column_kernel(_numpy(function, result))
    )


FUNCTIONS = (
    _function(
        "add_months",
        "a plus b months, at most the last day of the month",
        "di",
        _DATE,
        _shift_months,
    ),
    _function(
        "shift_moment",
        "a plus b months, c days and d microseconds, which may be columns",
        "miii",
        _MOMENT,
        _shift,
    ),
    _function("last_day", "the last day of the month", "d", _DATE, _last_day),
    Function(
        "next_day",
        "the first day after a with the name b",
        Signature("dt", _DATE),
        by_constants(_next_day),
    ),
    _function(
        "months_between",
        "the months from b to a, of 31 days; to 8 digits if c",
        "mmb",
        _FLOAT,
        _months_between,
    ),
    _function(
        "make_date",
        "the date of year a, month b and day c",
        "iii",
        _DATE,
        _checked(_make_days, "date"),
    ),
    _function(
        "try_make_date", "as make_date; NULL if there is no such date", "iii", _DATE, _make_days
    ),
    _function(
        "make_timestamp",
        "the moment of year, month, day, hour, minute and second",
        "iiiiif",
        _MOMENT,
        _checked(_make_moment, "moment"),
    ),
    _function(
        "try_make_timestamp",
        "as make_timestamp; NULL if there is no such moment",
        "iiiiif",
        _MOMENT,
        _make_moment,
    ),
    _function(
        "moment_of_micros", "the moment a microseconds after 1970", "i", _MOMENT, _moment_of_micros
    ),
    _function("date_of_days", "the date a days after 1970", "i", _DATE, _moment_of_micros),
    Function(
        "elapsed_units",
        "the whole units c from b to a",
        Signature("mmt", _INT),
        column_kernel(_elapsed_units),
    ),
    Function(
        "to_zone",
        "a moment of UTC in the local time of zone b",
        Signature("mt", _MOMENT),
        by_constants(_to_zone),
    ),
    Function(
        "from_zone",
        "the moment of UTC when the local time in zone b is a",
        Signature("mt", _MOMENT),
        by_constants(_from_zone),
    ),
    Function(
        "duration_of_micros",
        "the interval of a times b microseconds",
        Signature("ii", pa.duration("us")),
        column_kernel(_duration),
    ),
)
