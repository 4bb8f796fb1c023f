"""SQL functions for the parts of dates and times: year to second, day of the week, ISO week.

All results are int64. The parts of a timestamp with a time zone are those of its local time. Sunday
is day 0 of the week. Text literals are parsed as timestamps. The parts of an infinite date or
timestamp are NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.time_units import infinite_rows
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import is_temporal, is_text

__all__ = ["FUNCTIONS", "as_date_or_timestamp"]


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


def _clock_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    if arrow.is_time(arguments[0].type):
        return arguments, pa.int64()
    value = as_date_or_timestamp(name, arguments, arguments[0])
    is_date = arrow.is_date(value.type)  # a date means its midnight
    return (cast_to(value, pa.timestamp("s")) if is_date else value,), pa.int64()


def _part_kernel(function: Callable[..., Any], **options: Any) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        values = arguments[0]
        part = pc.cast(function(values, **options), result_type)
        is_infinite = infinite_rows(values) if is_temporal(values.type) else None
        return part if is_infinite is None else pc.if_else(is_infinite, None, part)

    return kernel


_SUNDAY: dict[str, Any] = {"count_from_zero": True, "week_start": 7}

FUNCTIONS = (
    Function("year", "the year", _date_rule, _part_kernel(pc.year)),
    Function("quarter", "the quarter of the year, 1 to 4", _date_rule, _part_kernel(pc.quarter)),
    Function("month", "the month, 1 to 12", _date_rule, _part_kernel(pc.month)),
    Function("week", "the ISO week of the year", _date_rule, _part_kernel(pc.iso_week)),
    Function("day", "the day of the month", _date_rule, _part_kernel(pc.day)),
    Function(
        "day_of_week",
        "the day of the week, 0 (Sunday) to 6",
        _date_rule,
        _part_kernel(pc.day_of_week, **_SUNDAY),
    ),
    Function(
        "day_of_year", "the day of the year, from 1", _date_rule, _part_kernel(pc.day_of_year)
    ),
    Function("hour", "the hour, 0 to 23", _clock_rule, _part_kernel(pc.hour)),
    Function("minute", "the minute, 0 to 59", _clock_rule, _part_kernel(pc.minute)),
    Function(
        "second", "the second, 0 to 59, without fraction", _clock_rule, _part_kernel(pc.second)
    ),
)
