"""Columns of time windows: the start and the end of the windows of each row, as plan nodes.

Window tables in FROM (`circuits.sql.window_tables`) and window functions in GROUP BY
(`circuits.sql.group_windows`) are both made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyarrow import types as arrow

from circuits.plan.expressions import Column, Expression
from circuits.plan.nodes import Filter, Map, PlanNode, columns
from circuits.plan.time_windows import HoppingWindows, SessionBound
from circuits.sql.literals import integer_literal
from circuits.types import functions

__all__ = ["WindowColumns", "hopping", "last_moment", "session", "tumbling", "with_columns"]

_MILLISECOND: Final = {"s": 0, "ms": 1, "us": 1000, "ns": 1_000_000}


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


def hopping(plan: PlanNode, time: Expression, size: int, slide: int, offset: int) -> WindowColumns:
    """Return the windows of a size that start once per slide."""
    plan, (place,) = with_columns(plan, [time])
    plan = HoppingWindows(plan, place, size, slide, offset)
    start = columns(plan)[-1]
    return WindowColumns(plan, start, _shift(start, size))


def session(
    plan: PlanNode, time: Expression, keys: Sequence[Expression], gap: int, *, with_end: bool
) -> WindowColumns:
    """Return the sessions of rows with equal keys.

    Without ``with_end`` the end is not computed, and ``end`` is the start.
    """
    plan, (place, *key_places) = with_columns(plan, [time, *keys])
    plan = SessionBound(plan, tuple(dict.fromkeys(key_places)), place, gap)
    start = end = columns(plan)[-1]
    if with_end:
        plan = SessionBound(plan, tuple(dict.fromkeys(key_places)), place, gap, last=True)
        end = _shift(columns(plan)[-1], gap)
    return WindowColumns(plan, start, end)


def last_moment(end: Expression) -> Expression:
    """Return the last millisecond before an end, or the last tick of an integer or a date."""
    unit = end.type.unit if arrow.is_timestamp(end.type) else None
    return _shift(end, -(_MILLISECOND[unit] or 1 if unit else 1))


def _shift(value: Expression, by: int) -> Expression:
    return functions.call("time_shift", value, integer_literal(by))


def _without_nulls(plan: PlanNode, time: Expression) -> PlanNode:
    if isinstance(time, Column) and not plan.is_nullable(time.index):
        return plan
    return Filter(plan, functions.call("not", functions.call("is_null", time)))


def with_columns(plan: PlanNode, values: Sequence[Expression]) -> tuple[PlanNode, tuple[int, ...]]:
    """Return the plan with values as columns behind its own, and the places of the values."""
    every = [*columns(plan)]
    every += [value for value in dict.fromkeys(values) if value not in every]
    places = tuple(map(every.index, values))
    if len(every) > len(plan.fields):
        names = [field.name for field in plan.fields]
        names += [f"value_{number}" for number in range(len(every) - len(names))]
        plan = Map(plan, tuple(every), tuple(names))
    return plan, places
