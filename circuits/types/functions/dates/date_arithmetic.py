"""Sums and differences with dates, timestamps and durations: the operators ``+`` and ``-``.

::

    date ± integer           date         the integer is a number of days
    date - date              int64        days
    timestamp ± duration     timestamp    a date counts as its midnight
    timestamp - timestamp    duration     one of them may be a date, which counts as its midnight
    duration ± duration      duration
    interval ± interval      interval     one of them may be a duration

Months and years have no fixed length: `date_add` adds them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.casting.coercion import adapt, cast_to
from circuits.types.functions.casting.time_units import INFINITE, INFINITE_DAY, check_finite
from circuits.types.functions.dates.interval_values import interval_sum_rule
from circuits.types.functions.function import Arguments, TypedArguments, Values, argument_error
from circuits.types.functions.type_rules import common_type, is_interval, is_temporal

__all__ = [
    "add_days",
    "is_date_or_duration",
    "shift_timestamps",
    "subtract_timestamps",
    "sum_rule",
]


def is_date_or_duration(data_type: pa.DataType) -> bool:
    """Return True for a date, a timestamp, a duration or an interval."""
    return is_temporal(data_type) or is_interval(data_type)


def sum_rule(name: str, arguments: Arguments) -> TypedArguments:
    """Type rule of ``add`` and ``subtract`` for dates, timestamps and durations."""
    # Both sides of a difference may be dates, so only there a text literal becomes a date.
    left, right = adapt(arguments) if name == "subtract" else arguments
    if name == "add" and not is_temporal(left.type):
        left, right = right, left
    if arrow.is_date(left.type) and not arrow.is_timestamp(right.type):
        left = cast_to(left, pa.date32())
        if arrow.is_integer(right.type) or arrow.is_null(right.type):
            return (left, cast_to(right, pa.int64())), pa.date32()
        if name == "subtract" and arrow.is_date(right.type):
            return (left, cast_to(right, pa.date32())), pa.int64()
        left = cast_to(left, pa.timestamp("us"))
    if arrow.is_timestamp(left.type) and arrow.is_duration(right.type):
        unit = common_type((pa.duration(left.type.unit), right.type)).unit
        left = cast_to(left, pa.timestamp(unit, left.type.tz))
        return (left, cast_to(right, pa.duration(unit))), left.type
    if name == "subtract" and is_temporal(left.type) and is_temporal(right.type):
        pair, target = _cast_to_common(left, right)
        return pair, pa.duration(target.unit)
    if is_interval(left.type) and is_interval(right.type):
        if INTERVAL in (left.type, right.type):
            return interval_sum_rule(name, (left, right) if name == "subtract" else arguments)
        return _cast_to_common(left, right)
    raise argument_error(
        name,
        arguments,
        "a date takes days (an integer), a timestamp takes a duration, and two of a kind are "
        "subtracted; use date_add for months",
    )


def _cast_to_common(left: Expression, right: Expression) -> TypedArguments:
    target = common_type((left.type, right.type))
    return (cast_to(left, target), cast_to(right, target)), target


def add_days(function: Any, left: Values, right: Values, result_type: pa.DataType) -> Values:
    """Compute ``date ± days`` (a date) or ``date - date`` (days); infinite dates stay infinite.

    Args:
        function: The Arrow function that adds or subtracts two int64 arguments.
        left: Dates.
        right: Days or dates.
        result_type: The type of the result.
    """
    days = _days(left)
    if arrow.is_date(right.type):
        return function(days, _days(right))
    is_infinite = pc.equal(pc.abs(days), INFINITE_DAY)
    sums = function(pc.if_else(is_infinite, 0, days), pc.if_else(is_infinite, 0, right))
    if pc.any(pc.greater_equal(pc.abs(sums), INFINITE_DAY)).as_py():
        raise pa.ArrowInvalid("the date is out of range")
    unchanged = pc.if_else(pc.is_valid(right), days, None)
    return pc.cast(pc.cast(pc.if_else(is_infinite, unchanged, sums), pa.int32()), result_type)


def shift_timestamps(
    function: Any, timestamps: Values, durations: Values, result_type: pa.DataType
) -> Values:
    """Compute ``timestamp ± duration``; an infinite timestamp remains infinite.

    Args:
        function: The Arrow function that adds or subtracts two int64 arguments.
        timestamps: Timestamps.
        durations: Durations of the same unit.
        result_type: The type of the result.
    """
    ticks, shifts = pc.cast(timestamps, pa.int64()), pc.cast(durations, pa.int64())
    is_infinite = pc.equal(pc.abs(ticks), INFINITE)
    sums = function(pc.if_else(is_infinite, 0, ticks), pc.if_else(is_infinite, 0, shifts))
    check_finite(sums, result_type)
    unchanged = pc.if_else(pc.is_valid(shifts), ticks, None)
    return pc.cast(pc.if_else(is_infinite, unchanged, sums), result_type)


def subtract_timestamps(left: Values, right: Values) -> Values:
    """Compute ``timestamp - timestamp``, a duration; ArrowInvalid for an infinite timestamp."""
    for side in (left, right):
        if pc.any(pc.equal(pc.abs(pc.cast(side, pa.int64())), INFINITE)).as_py():
            raise pa.ArrowInvalid("an infinite timestamp has no difference to another one")
    return pc.subtract_checked(left, right)


def _days(dates: Values) -> Values:
    return pc.cast(pc.cast(dates, pa.int32()), pa.int64())
