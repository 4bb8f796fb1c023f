"""The series of times in dialect duckdb and all others: ``generate_series(day, day, interval)``.

::

    generate_series(start, stop, INTERVAL 1 DAY)   times from start to stop
    range(start, stop, INTERVAL 1 DAY)             the same without stop

Dates are read as timestamps. If the step is an interval of days or shorter units, the times have
equal distances in microseconds, and the series is that of integers. Steps of months are added one
after the other, so that the day of the month never grows again after a short month
(`circuits.types.functions.dates.time_series`).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import FIRST_HIDDEN_PARAMETER
from circuits.sql.expressions.literals import integer_literal
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.nested.lambdas import lambda_call

__all__ = ["is_time_series", "read_time_series"]

#: The columns of an element and its position in the lambda of this module. No plan and no lambda of
#: the text has columns of these numbers. The position is not read.
_ELEMENT: Final = FIRST_HIDDEN_PARAMETER
_POSITION: Final = FIRST_HIDDEN_PARAMETER + 1


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
        SqlError: There is no step.
    """
    source = clause.source
    step = node.args.get("step")
    if step is None:
        raise source.error(node, "a series of times needs a step; add one, such as INTERVAL 1 DAY")
    has_zone = any(arrow.is_timestamp(end.type) and end.type.tz for end in (start, stop))
    if source.is_postgres and all(arrow.is_date(end.type) for end in (start, stop)):
        has_zone = True  # as in PostgreSQL, which prefers timestamps with a zone
    element = pa.timestamp("us", "UTC") if has_zone else pa.timestamp("us")
    moments = [clause.call(node, "cast", end, type=element) for end in (start, stop)]
    step_value = clause.read(step)
    parts = _parts_of_step(clause, step, step_value)
    if parts is not None and parts[0] != integer_literal(0):
        local = [clause.call(node, "cast", end, type=pa.timestamp("us")) for end in moments]
        name = "time_series" if function == "series" else "time_series_before"
        series = clause.call(node, name, *local, *parts)
        return clause.call(node, "cast", series, type=pa.list_(element))
    ends = [clause.call(node, "epoch_microsecond", moment) for moment in moments]
    micros = _micros_of_step(clause, step, step_value, parts)
    numbers = clause.call(node, function, *ends, micros)
    moment = clause.call(node, "timestamp_of_micros", Column(_ELEMENT, pa.int64()))
    with source.errors_at(node):
        return lambda_call(
            "list_transform",
            numbers,
            clause.call(node, "cast", moment, type=element),
            (_ELEMENT, _POSITION),
        )


def _parts_of_step(
    clause: Clause, step: exp.Expr, value: Expression
) -> tuple[Expression, ...] | None:
    """Return the months, days and microseconds of a step; None if it is no interval."""
    if isinstance(value, Literal) and value.type == INTERVAL and value.value is not None:
        months, days, nanoseconds = value.value
        return tuple(map(integer_literal, (months, days, nanoseconds // 1000)))
    if isinstance(value, Call) and value.function == "make_interval":
        return value.arguments
    if value.type == INTERVAL:
        raise clause.source.unsupported(
            step, "a step that is computed", "write a literal, or make_interval(...)"
        )
    return None


def _micros_of_step(
    clause: Clause, step: exp.Expr, value: Expression, parts: tuple[Expression, ...] | None
) -> Expression:
    """Return the microseconds of a step without months; a day has 24 hours."""
    if parts is None:
        return clause.call(step, "micros_of_duration", value)
    _, days, micros = parts
    if isinstance(days, Literal) and isinstance(micros, Literal):
        return integer_literal(days.value * 86_400 * 10**6 + micros.value)
    micros_of_days = clause.call(step, "multiply", days, integer_literal(86_400 * 10**6))
    return clause.call(step, "add", micros_of_days, micros)
