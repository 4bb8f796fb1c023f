"""Columns of time windows: the start and the end of the windows of each row, as plan nodes.

Window tables in FROM (`circuits.sql.queries.window_tables`) and window functions in GROUP BY
(`circuits.sql.queries.group_windows`) are both made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyarrow import types as arrow

from circuits.plan.columns import Order
from circuits.plan.expression_text import column_names
from circuits.plan.expressions import Column, Expression, Literal
from circuits.plan.nodes import Filter, Map, PlanNode, columns
from circuits.plan.time_windows import HoppingWindows, SessionBound
from circuits.plan.window import Frame, Window, WindowCall
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.expressions.time_amounts import TICKS_PER_SECOND
from circuits.types import functions

__all__ = [
    "WindowColumns",
    "cumulating",
    "dynamic_session",
    "hopping",
    "last_moment",
    "session",
    "starting_at",
    "tumbling",
    "with_columns",
]


@dataclass(frozen=True)
class WindowColumns:
    """A plan whose first columns are those of its input, and the bounds of the windows over it."""

    plan: PlanNode
    start: Expression
    end: Expression


def tumbling(plan: PlanNode, time: Expression, size: int, offset: int) -> WindowColumns:
    """Return the windows of a size; a row without a time is left out."""
    plan = _without_nulls(plan, time)
    start = functions.call("time_bucket", time, integer_literal(size), integer_literal(offset))
    return WindowColumns(plan, start, _shift(start, size))


def starting_at(plan: PlanNode, time: Expression, size: int) -> WindowColumns:
    """Return the windows of a size that start at each time; a row without a time is left out."""
    return WindowColumns(_without_nulls(plan, time), time, _shift(time, size))


def hopping(plan: PlanNode, time: Expression, size: int, slide: int, offset: int) -> WindowColumns:
    """Return the windows of a size that start once per slide."""
    plan, (time_column,) = with_columns(plan, [time])
    plan = HoppingWindows(plan, time_column, size, slide, offset)
    start = columns(plan)[-1]
    return WindowColumns(plan, start, _shift(start, size))


def cumulating(
    plan: PlanNode, time: Expression, step: int, size: int, offset: int
) -> WindowColumns:
    """Return the windows from the start of each tumbling window of ``size`` to each ``step`` in it.

    For each row they are its hopping windows of ``size`` and slide ``step`` that start at or before
    the start of its tumbling window of ``size``, and they are cut at this start.
    """
    windows = hopping(plan, time, size, step, offset)
    start = functions.call("time_bucket", time, integer_literal(size), integer_literal(offset))
    kept = Filter(windows.plan, functions.call("le", windows.start, start))
    return WindowColumns(kept, start, windows.end)


def session(
    plan: PlanNode, time: Expression, keys: Sequence[Expression], gap: int, *, with_end: bool
) -> WindowColumns:
    """Return the sessions of rows with equal keys.

    Without ``with_end`` the end is not computed, and ``end`` is the start.
    """
    plan, (time_column, *key_columns) = with_columns(plan, [time, *keys])
    plan = SessionBound(plan, tuple(dict.fromkeys(key_columns)), time_column, gap)
    start: Expression = columns(plan)[-1]
    end = start
    if with_end:
        plan = SessionBound(plan, tuple(dict.fromkeys(key_columns)), time_column, gap, last=True)
        last_time = columns(plan)[-1]
        end = _shift(last_time, gap)
    return WindowColumns(plan, start, end)


def dynamic_session(
    plan: PlanNode, time: Expression, end: Expression, keys: Sequence[Expression]
) -> WindowColumns:
    """Return the sessions of rows with equal keys, of which each has an end of its own.

    A row begins a session if its time is after the ends of all rows of its key before it. The start
    of a session is the latest of these times so far::

        time   end   greatest end before   begins   start
          10    15                           10        10
          12    13            15                       10
          15    30            15                       10
          31    40            30             31        31

    Both are running maxima. So a step computes a row again only if a session is closed or opened
    before it. A row without a time or an end, or with an end that is not after its time, is left
    out. ``end`` of the result is the end of the row.
    """
    plan = Filter(_without_nulls(plan, time), functions.call("gt", end, time))
    plan, (time_column, end_column, *key_columns) = with_columns(plan, [time, end, *keys])
    partition, order = tuple(dict.fromkeys(key_columns)), (Order(time_column),)

    def with_greatest(plan: PlanNode, column: int, last: int) -> PlanNode:
        call = WindowCall(
            "max", (column,), plan.fields[column].type, "greatest", Frame("range", None, last)
        )
        return Window(plan, partition, order, (call,))

    plan = with_greatest(plan, end_column, -1)
    all_columns = columns(plan)
    own_time, greatest_end = all_columns[time_column], all_columns[-1]
    begins = functions.call(
        "or",
        functions.call("is_null", greatest_end),
        functions.call("lt", greatest_end, own_time),
    )
    begin = functions.call("if", begins, own_time, Literal(None, own_time.type))
    plan, (begin_column,) = with_columns(plan, [begin])
    plan = with_greatest(plan, begin_column, 0)
    return WindowColumns(plan, columns(plan)[-1], all_columns[end_column])


def last_moment(end: Expression) -> Expression:
    """Return the last millisecond before an end, or the last tick of an integer or a date."""
    ticks_per_second = TICKS_PER_SECOND[end.type.unit] if arrow.is_timestamp(end.type) else 1
    return _shift(end, -max(1, ticks_per_second // 1000))


def _shift(value: Expression, amount: int) -> Expression:
    """Return a time plus a number of its ticks, of the same type."""
    data_type = value.type
    if arrow.is_integer(data_type):
        return functions.call("add", value, integer_literal(amount))
    days = amount if arrow.is_date(data_type) else 0
    microseconds = (
        0 if arrow.is_date(data_type) else amount * 10**6 // TICKS_PER_SECOND[data_type.unit]
    )
    parts = (integer_literal(part) for part in (0, days, microseconds))
    shifted = functions.call("date_add", value, *parts)
    return shifted if shifted.type == data_type else functions.call("cast", shifted, type=data_type)


def _without_nulls(plan: PlanNode, time: Expression) -> PlanNode:
    if isinstance(time, Column) and not plan.is_nullable(time.index):
        return plan
    return Filter(plan, functions.call("not", functions.call("is_null", time)))


def with_columns(plan: PlanNode, values: Sequence[Expression]) -> tuple[PlanNode, tuple[int, ...]]:
    """Return the plan with further columns for values, and the position of each value."""
    expressions: list[Expression] = [*columns(plan)]
    expressions += [value for value in dict.fromkeys(values) if value not in expressions]
    positions = tuple(map(expressions.index, values))
    if len(expressions) > len(plan.fields):
        plan = Map(plan, tuple(expressions), column_names(expressions, plan.fields))
    return plan, positions
