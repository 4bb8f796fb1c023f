"""Sizes of windows: an interval, a text such as ``'10 minutes'``, or a number, as ticks of a type.

The ticks of a type are the unit of its values: days of a date, seconds to nanoseconds of a
timestamp, 1 of an integer.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.intervals import read_interval

__all__ = [
    "TICKS_PER_SECOND",
    "check_time",
    "interval_of",
    "read_ticks",
    "read_time",
    "ticks_of_interval",
]

#: The ticks of a second by the unit of a timestamp.
TICKS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_US: Final = 86_400 * 10**6


def read_time(clause: Clause, node: exp.Expr) -> Expression:
    """Return the value of the time of a window: an integer, a date or a timestamp."""
    value = clause.read(node)
    check_time(clause, node, value.type)
    return value


def check_time(clause: Clause, node: exp.Expr, data_type: pa.DataType) -> None:
    """Refuse a type that is not a time."""
    if not (
        arrow.is_integer(data_type) or arrow.is_date32(data_type) or arrow.is_timestamp(data_type)
    ):
        raise clause.source.error(
            node,
            f"a window of a column of type {data_type}; cast it to a timestamp, or to an integer",
        )


def interval_of(node: exp.Expr) -> exp.Interval | None:
    """Return a node as an interval; a text such as ``'10 minutes'`` is one, too. Else None."""
    if isinstance(node, exp.Interval):
        return node
    if isinstance(node, exp.Literal) and node.is_string:
        text = node.this.strip()
        if text[:8].lower() == "interval":  # Spark's text may begin with the keyword
            text = text[8:].strip()
        return exp.Interval(this=exp.Literal.string(text))
    return None


def read_ticks(
    clause: Clause, node: exp.Expr, data_type: pa.DataType, *, may_be_negative: bool = False
) -> int:
    """Read a length of time as a number of ticks of a type.

    Args:
        clause: The clause of the node.
        node: An interval, its text, or a number.
        data_type: The type of the time.
        may_be_negative: True to accept a length that is not positive, as for an offset.

    Raises:
        SqlError: The length is not a constant, has no fixed number of ticks, or is not positive.
    """
    if isinstance(node, exp.Neg | exp.Paren):
        clause.source.allow_arguments(node, "this")
        ticks = read_ticks(clause, node.this, data_type, may_be_negative=True)
        ticks = -ticks if isinstance(node, exp.Neg) else ticks
    elif (interval := interval_of(node)) is not None:
        if interval is not node:  # a text, which is read as an interval
            clause.source.mark_read(node)
        ticks = ticks_of_interval(clause, node, interval, data_type)
    else:
        value = clause.read(node)
        number = value.value if isinstance(value, Literal) else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise clause.source.unsupported(
                node, "a length of a window that is not a constant", "write it as INTERVAL '1' HOUR"
            )
        if not arrow.is_integer(data_type):
            raise clause.source.error(
                node, f"a number as a length of time of {data_type}; write it as INTERVAL '1' HOUR"
            )
        ticks = number
    if ticks < 1 and not may_be_negative:
        raise clause.source.error(node, "a window that is not longer than 0; make it longer")
    if abs(ticks) >= 2**62:
        raise clause.source.error(node, "a window of more than 2**62 ticks; make it shorter")
    return ticks


def ticks_of_interval(
    clause: Clause, node: exp.Expr, interval: exp.Interval, data_type: pa.DataType
) -> int:
    """Return the length of an interval in ticks of a type."""
    months, days, microseconds = read_interval(clause, interval)
    if months:
        raise clause.source.unsupported(
            node,
            "a window of months or years, which differ in length,",
            "group by date_trunc('month', ...)",
        )
    total = days * _DAY_US + microseconds
    if arrow.is_integer(data_type):
        raise clause.source.error(
            node,
            "an interval for a time that is an integer, whose unit is not known; write the number "
            "in the unit of the column, or make a timestamp of the column",
        )
    if arrow.is_date(data_type):
        if total % _DAY_US:
            raise clause.source.error(node, "dates have windows of whole days; cast to a timestamp")
        return total // _DAY_US
    ticks, remainder = divmod(total * TICKS_PER_SECOND[data_type.unit], 10**6)
    if remainder:
        raise clause.source.error(node, f"a window that is shorter than the unit of {data_type}")
    return ticks
