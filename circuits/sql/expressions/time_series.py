"""The series of times in dialect duckdb and all others: ``generate_series(day, day, interval)``.

::

    generate_series(start, stop, INTERVAL 1 DAY)   times from start to stop
    range(start, stop, INTERVAL 1 DAY)             the same without stop

Dates are read as timestamps. The step is an interval of days or shorter units, so the times have
equal distances in microseconds, and the series is that of integers. Steps of months are refused:
DuckDB adds them one after the other, so that the day of the month never grows again after a short
month.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import integer_literal
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.nested.lambdas import lambda_call

__all__ = ["is_time_series", "read_time_series"]

#: The columns of an element and its position in the lambda of this module. No plan and no lambda of
#: the text has columns of these numbers. The position is not read.
_ELEMENT: Final = (1 << 40) - 1
_POSITION: Final = _ELEMENT - 1


def is_time_series(start: Expression, stop: Expression) -> bool:
    """Return whether an end of a series is a date or a timestamp."""
    return any(arrow.is_date(end.type) or arrow.is_timestamp(end.type) for end in (start, stop))


def read_time_series(
    clause: Clause,
    node: exp.GenerateSeries,
    start: Expression,
    stop: Expression,
    function: str,
) -> Expression:
    """Return the list of times.

    Args:
        clause: The clause.
        node: The call.
        start: The first time.
        stop: The last time.
        function: ``series``, or ``series_before`` to leave out the stop.

    Raises:
        UnsupportedSqlError: The step has months.
        SqlError: There is no step.
    """
    source = clause.source
    step = node.args.get("step")
    if step is None:
        raise source.error(node, "a series of times needs a step; add one, such as INTERVAL 1 DAY")
    has_zone = any(arrow.is_timestamp(end.type) and end.type.tz for end in (start, stop))
    element = pa.timestamp("us", "UTC") if has_zone else pa.timestamp("us")
    ends = [
        clause.call(node, "epoch_microsecond", clause.call(node, "cast", end, type=element))
        for end in (start, stop)
    ]
    micros = _read_step(clause, step)
    numbers = clause.call(node, function, *ends, micros)
    moment = clause.call(node, "timestamp_of_micros", Column(_ELEMENT, pa.int64()))
    with source.errors_at(node):
        return lambda_call(
            "list_transform",
            numbers,
            clause.call(node, "cast", moment, type=element),
            (_ELEMENT, _POSITION),
        )


def _read_step(clause: Clause, step: exp.Expr) -> Expression:
    """Return the microseconds of an interval; a day has 24 hours.

    Raises:
        UnsupportedSqlError: The interval has months, or is computed in a way that may add months.
    """
    value = clause.read(step)
    if isinstance(value, Literal) and value.type == INTERVAL and value.value is not None:
        months, days, nanoseconds = value.value
        if not months:
            return integer_literal(days * 86_400 * 10**6 + nanoseconds // 1000)
    elif isinstance(value, Call) and value.function == "make_interval":
        months, days, micros = value.arguments
        if months == integer_literal(0):
            micros_of_days = clause.call(step, "multiply", days, integer_literal(86_400 * 10**6))
            return clause.call(step, "add", micros_of_days, micros)
    elif value.type != INTERVAL:
        return clause.call(step, "micros_of_duration", value)
    raise clause.source.unsupported(
        step, "a step with months", "write an interval of days or shorter units"
    )
