"""``sequence(start, stop[, step])`` of numbers, dates and timestamps in dialect spark.

A sequence of moments is a list of numbers, turned into moments by a lambda::

    step of days or microseconds     start, start + step, start + 2 * step, ... up to the stop
    step with months                 start + i * step for i = 0, 1, 2, ... up to the stop

With months, the elements have different distances, so element i is computed from the start (the
31st of January plus two months is the 31st of March). The last i follows from the number of months
between start and stop; a filter removes elements beyond the stop.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Column, Expression
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import FIRST_HIDDEN_PARAMETER
from circuits.sql.expressions.intervals import Interval, interval_operand, read_interval
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import coerce
from circuits.types import functions
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.type_rules import is_temporal, is_text

__all__ = ["read_sequence"]

#: The columns of an element and its position in the lambdas of this module. No plan and no lambda
#: of the text has columns of these numbers. The position is not read.
_ELEMENT: Final = FIRST_HIDDEN_PARAMETER
_POSITION: Final = FIRST_HIDDEN_PARAMETER + 1
_DAY_MICROS: Final = 86_400_000_000


def read_sequence(clause: Clause, node: exp.Expr) -> Expression:
    """Read a sequence; its elements have the common type of the start and the stop."""
    clause.source.allow_arguments(node, "start", "end", "step", "is_end_exclusive")
    start, stop = (clause.read(node.args[name]) for name in ("start", "end"))
    step = node.args.get("step")
    if is_temporal(start.type) or is_temporal(stop.type):
        return _read_moments(clause, node, start, stop, step)
    numbers = [start, stop, *([] if step is None else [clause.read(step)])]
    numbers = coerce(clause, node, numbers, "i" * len(numbers))
    types = [number.type for number in numbers if not arrow.is_null(number.type)]
    values = clause.call(node, "sequence", *numbers)
    if not types:
        return values
    element = functions.common_type(types)
    return clause.call(node, "cast", values, type=pa.list_(element))


def _read_moments(
    clause: Clause, node: exp.Expr, start: Expression, stop: Expression, step: exp.Expr | None
) -> Expression:
    with clause.source.errors_at(node):
        types = [side.type for side in (start, stop) if not is_text(side.type)]
        zones = {each.tz for each in types if arrow.is_timestamp(each)}
        # A TIMESTAMP_NTZ (zone None) next to a TIMESTAMP becomes a TIMESTAMP.
        element = pa.timestamp("us", "UTC") if len(zones) > 1 else functions.common_type(types)
    start, stop = (clause.call(node, "cast", side, type=element) for side in (start, stop))
    if step is None:
        return _build_equidistant(clause, node, start, stop, None)
    operand = interval_operand(step)
    if operand is None or operand[1] is not None:
        micros = clause.call(node, "micros_of_duration", clause.read(step))
        return _build_equidistant(clause, node, start, stop, micros)
    interval = read_interval(clause, operand[0])
    clause.source.mark_read(step)
    if interval.months:
        return _build_by_months(clause, node, start, stop, interval)
    total = interval.days * _DAY_MICROS + interval.microseconds
    if arrow.is_date(element) and abs(total) < _DAY_MICROS:
        raise clause.source.error(node, "the step of a sequence of dates is a day or more")
    return _build_equidistant(clause, node, start, stop, integer_literal(total))


def _build_equidistant(
    clause: Clause, node: exp.Expr, start: Expression, stop: Expression, micros: Expression | None
) -> Expression:
    """Return the moments at equal distances; the default is one day towards the stop."""
    ends = [clause.call(node, "epoch_microsecond", side) for side in (start, stop)]
    if micros is None:
        is_down = clause.call(node, "lt", ends[1], ends[0])
        steps = (integer_literal(-_DAY_MICROS), integer_literal(_DAY_MICROS))
        micros = clause.call(node, "case", is_down, *steps)
    numbers = clause.call(node, "sequence", *ends, micros)
    moment = clause.call(node, "timestamp_of_micros", Column(_ELEMENT, pa.int64()))
    return _transform(clause, node, numbers, clause.call(node, "cast", moment, type=start.type))


def _build_by_months(
    clause: Clause, node: exp.Expr, start: Expression, stop: Expression, step: Interval
) -> Expression:
    def call(function: str, *arguments: Expression) -> Expression:
        return clause.call(node, function, *arguments)

    months = [
        call(
            "add",
            call("multiply", call("year", side), integer_literal(12)),
            call("month", side),
        )
        for side in (start, stop)
    ]
    # Two elements are at least a month apart if the parts of the step have one sign.
    if min(step.months * step.days, step.months * step.microseconds) < 0:
        raise clause.source.unsupported(
            node, "sequence() by months and days of different signs", "write a step of one sign"
        )
    distance = call("subtract", months[1], months[0])
    count = call("int_divide", distance, integer_literal(step.months))
    up_to, beyond = ("le", "gt") if step.months > 0 else ("ge", "lt")
    message = string_literal("the step of sequence() does not lead from the start to the stop")
    error = clause.call(node, "cast", call("raise_error", message), type=pa.int64())
    count = call("case", call(beyond, start, stop), error, count)
    positions = call("sequence", integer_literal(0), count, integer_literal(1))
    position = Column(_ELEMENT, pa.int64())
    parts = [call("multiply", position, integer_literal(part)) for part in step]
    moment = clause.call(node, "cast", call("shift_timestamp", start, *parts), type=start.type)
    moments = _transform(clause, node, positions, moment)
    condition = call(up_to, Column(_ELEMENT, start.type), stop)
    with clause.source.errors_at(node):
        return lambda_call("list_filter", moments, condition, (_ELEMENT, _POSITION))


def _transform(clause: Clause, node: exp.Expr, values: Expression, body: Expression) -> Expression:
    with clause.source.errors_at(node):
        return lambda_call("list_transform", values, body, (_ELEMENT, _POSITION))
