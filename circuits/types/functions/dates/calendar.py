"""Calendar arithmetic: date_trunc, date_add, date_diff.

``date_add`` adds months first (a day beyond the end of the month becomes its last day), then days,
both in the local time of the timestamp's zone, then microseconds of elapsed time. ``date_diff``
counts the boundaries of the unit between two timestamps; for weeks, it divides the number of day
boundaries by seven instead (both as DuckDB does). ``date_trunc`` and ``date_add`` return
timestamps, also for dates, as in DuckDB. An infinite timestamp remains infinite, and its
``date_diff`` to any timestamp is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.all_years import (
    assume_timezone,
    calendar_field,
    floor_temporal,
    local_timestamp,
    year,
)
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.time_units import (
    INFINITE,
    PER_SECOND,
    check_finite,
    infinite_rows,
)
from circuits.types.functions.dates.date_fields import as_date_or_timestamp
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import common_type

__all__ = ["FUNCTIONS"]

_MICROSECONDS_PER_UNIT = {
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_UNITS = ("year", "quarter", "month", "week", "day", *_MICROSECONDS_PER_UNIT)


def _unit_literal(name: str, arguments: Arguments) -> Literal:
    unit = arguments[0]
    value = unit.value if isinstance(unit, Literal) else None
    if not isinstance(value, str) or value.lower().removesuffix("s") not in _UNITS:
        raise argument_error(name, arguments, f"the unit {unit} is not one of {', '.join(_UNITS)}")
    return Literal(value.lower().removesuffix("s"), pa.string())


def _as_timestamp(argument: Expression) -> Expression:
    """Cast a date to a timestamp; return a timestamp unchanged."""
    return cast_to(argument, pa.timestamp("us")) if arrow.is_date(argument.type) else argument


def _trunc_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    value = _as_timestamp(as_date_or_timestamp(name, arguments, arguments[1]))
    return (_unit_literal(name, arguments), value), value.type


def _diff_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 3, 3)
    unit = _unit_literal(name, arguments)
    start, end = (as_date_or_timestamp(name, arguments, argument) for argument in arguments[1:])
    target = common_type((start.type, end.type))
    if unit.value in _MICROSECONDS_PER_UNIT and arrow.is_date(target):
        target = pa.timestamp("us")
    return (unit, cast_to(start, target), cast_to(end, target)), pa.int64()


def _add_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 4, 4)
    value = _as_timestamp(as_date_or_timestamp(name, arguments, arguments[0]))
    for amount in arguments[1:]:
        if not isinstance(amount, Literal) or not isinstance(amount.value, int):
            raise argument_error(
                name, arguments, "months, days and microseconds are integer literals"
            )
    target = common_type((value.type, pa.timestamp("us", value.type.tz)))
    amounts = tuple(cast_to(amount, pa.int64()) for amount in arguments[1:])
    return (cast_to(value, target), *amounts), target


def _trunc(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    unit, values = arguments
    if isinstance(unit, pa.Array):
        unit = unit[0]
    return floor_temporal(fill_rows(values, row_count(arguments)), unit.as_py())


def _diff(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    unit, *sides = (fill_rows(values, rows) for values in arguments)
    start, end = map(_null_if_infinite, sides)
    unit_name = unit[0].as_py()
    # The fixed time for weeks is the start, so the start has passed 0 boundaries.
    return pc.subtract_checked(
        _boundaries(end, start, unit_name), _boundaries(start, start, unit_name)
    )


def _null_if_infinite(values: pa.Array) -> pa.Array:
    is_infinite = infinite_rows(values)
    return values if is_infinite is None else pc.if_else(is_infinite, None, values)


def _boundaries(values: pa.Array, origin: pa.Array, unit: str) -> pa.Array:
    """Return the number of boundaries of the unit from a fixed time up to each timestamp.

    For weeks, the fixed time is the day of ``origin``; for other units, it is a constant.
    """
    if arrow.is_timestamp(values.type) and values.type.tz is not None:
        values, origin = local_timestamp(values), local_timestamp(origin)
    if unit == "week":
        return pc.divide(pc.subtract(_boundaries(values, origin, "day"), _days(origin)), 7)
    if unit == "day":
        return _days(values)
    if unit in _MICROSECONDS_PER_UNIT:
        return _ticks(values, unit)
    units_per_year = {"year": 1, "quarter": 4, "month": 12}
    units_before_year = pc.multiply(year(values), units_per_year[unit])
    if unit == "year":
        return units_before_year
    field = pc.quarter if unit == "quarter" else pc.month
    return pc.add(units_before_year, calendar_field(field, values))


def _days(values: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(pc.cast(values, pa.date32()), pa.int32()), pa.int64())


def _ticks(values: pa.Array, unit: str) -> pa.Array:
    """Return timestamps as whole numbers of the unit, rounded down.

    If the timestamps are coarser than the unit, each tick is several units.
    """
    ticks_per_second = PER_SECOND[values.type.unit]
    ticks = pc.cast(values, pa.int64())
    microseconds_per_second = 1_000_000
    # The ticks of a unit, times a million: a whole number, even if a tick is longer than the unit.
    millionths = _MICROSECONDS_PER_UNIT[unit] * ticks_per_second
    if millionths < microseconds_per_second:
        return pc.multiply_checked(ticks, microseconds_per_second // millionths)
    # The remainder has the sign of the dividend, so a negative quotient is corrected downwards.
    ticks_per_unit = pa.scalar(millionths // microseconds_per_second)
    remainder = pc.remainder(ticks, ticks_per_unit)
    correction = pc.cast(pc.less(remainder, 0), pa.int64())
    return pc.subtract(pc.divide(pc.subtract(ticks, remainder), ticks_per_unit), correction)


def _add(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    original = fill_rows(arguments[0], row_count(arguments))
    months, days, microseconds = (int(amount.as_py()) for amount in arguments[1:])
    values = _null_if_infinite(original)
    if months or days:
        local = values if result_type.tz is None else local_timestamp(values)
        sums = _add_interval(local, months, days)
        values = sums if result_type.tz is None else assume_timezone(sums, result_type.tz)
    per_microsecond = PER_SECOND[result_type.unit] // 1_000_000
    if abs(microseconds) > INFINITE // per_microsecond:
        raise pa.ArrowInvalid(f"{microseconds} microseconds are out of range of {result_type}")
    ticks = pc.add_checked(pc.cast(values, pa.int64()), microseconds * per_microsecond)
    check_finite(ticks, result_type)
    is_infinite = infinite_rows(original)
    sums = pc.cast(ticks, result_type)
    return sums if is_infinite is None else pc.if_else(is_infinite, original, sums)


def _add_interval(values: pa.Array, months: int, days: int) -> pa.Array:
    """Add months, limit the day to the last day of the month, add days; keep the time of day."""
    date = pc.cast(values, pa.date32())
    midnight = pc.cast(pc.cast(date, values.type), pa.int64())
    time = pc.subtract(pc.cast(values, pa.int64()), midnight)
    old_day = pc.fill_null(pc.cast(date, pa.int32()), 0).to_numpy().astype("datetime64[D]")
    old_month = old_day.astype("datetime64[M]")
    first_day = (old_month + months).astype("datetime64[D]")  # of the new month
    days_in_month = (old_month + months + 1).astype("datetime64[D]") - first_day
    day_of_month = np.minimum(old_day - old_month.astype("datetime64[D]"), days_in_month - 1)
    new_day = (first_day + day_of_month + days).astype(np.int64)
    per_day = pa.scalar(86_400 * PER_SECOND[values.type.unit])
    # The day of a row with NULL must not overflow.
    midnights = pc.multiply_checked(pc.if_else(pc.is_valid(values), pa.array(new_day), 0), per_day)
    ticks = pc.add_checked(midnights, time)
    return pc.cast(ticks, values.type)


FUNCTIONS = (
    Function(
        "date_trunc", "the start of the unit a (a literal) that contains b", _trunc_rule, _trunc
    ),
    Function("date_add", "a plus b months, c days and d microseconds", _add_rule, _add),
    Function("date_diff", "the number of boundaries of unit a between b and c", _diff_rule, _diff),
)
