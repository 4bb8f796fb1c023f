"""``time_bucket`` and ``date_bin``: the start of the bucket of a timestamp.

::

    time_bucket(INTERVAL '10 minutes', ts)              from Monday, 2000-01-03, as in DuckDB
    time_bucket(INTERVAL '1 day', ts, INTERVAL '6 hours')   moved by an offset
    date_bin(INTERVAL '10 minutes', ts, origin)         from an origin

Buckets of months and years count from January 2000.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.runtime.evaluation import evaluate
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.intervals import read_interval
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.expressions.time_amounts import (
    TICKS_PER_SECOND,
    check_time,
    interval_of,
    read_ticks,
    ticks_of_interval,
)

__all__ = ["READERS", "READERS_BY_NAME"]

_EPOCH: Final = datetime(1970, 1, 1)
_ORIGIN_DAYS: Final = (datetime(2000, 1, 3) - _EPOCH).days
_ORIGIN_MONTHS: Final = 12 * 30  # from 1970 to 2000


def _read_bucket(
    clause: Clause, node: exp.Expr, width: exp.Expr, time: exp.Expr, origin: exp.Expr | None
) -> Expression:
    """Return the start of the bucket of a time, in buckets of ``width`` from an origin on."""
    value = clause.read(time)
    if arrow.is_null(value.type) or arrow.is_string(value.type):
        value = clause.call(time, "cast", value, type=pa.timestamp("us"))
    check_time(clause, time, value.type)
    time_type = value.type
    if arrow.is_date(time_type):
        value = clause.call(time, "cast", value, type=pa.timestamp("us"))
    interval = interval_of(width)
    months = 0
    if interval is not None:
        if interval is not width:  # a text, which is read as an interval
            clause.source.mark_read(width)
        months, days, microseconds = read_interval(clause, interval)
        if months and (days or microseconds):
            raise clause.source.error(width, "a bucket of months and of days; use one of them")
    if months < 0:
        raise clause.source.error(width, "a bucket that is not longer than 0; make it longer")
    if months:
        if origin is not None:
            raise clause.source.unsupported(
                origin, "an origin of buckets of months", "add the offset to the timestamp"
            )
        month_counts = integer_literal(months), integer_literal(_ORIGIN_MONTHS)
        bucket = clause.call(node, "month_bucket", value, *month_counts)
    else:
        size = read_ticks(clause, width, value.type)
        bucket = clause.call(
            node,
            "time_bucket",
            value,
            integer_literal(size),
            integer_literal(_origin_ticks(clause, value.type, origin)),
        )
    return clause.call(node, "cast", bucket, type=time_type) if time_type != bucket.type else bucket


def _origin_ticks(clause: Clause, data_type: pa.DataType, origin: exp.Expr | None) -> int:
    """Return the start of one of the buckets, in ticks since 1970."""
    if arrow.is_integer(data_type):
        if origin is None:
            return 0
        return read_ticks(clause, origin, data_type, may_be_negative=True)
    day = TICKS_PER_SECOND[data_type.unit] * 86_400
    if origin is None:
        return _ORIGIN_DAYS * day
    if isinstance(origin, exp.Interval):
        return _ORIGIN_DAYS * day + ticks_of_interval(clause, origin, origin, data_type)
    value = clause.call(origin, "cast", clause.read(origin), type=data_type)
    try:
        (ticks,) = evaluate(value, (), 1).cast(pa.int64()).to_pylist()
    except (IndexError, KeyError):  # the expression reads a column
        ticks = None
    if ticks is None:
        raise clause.source.unsupported(
            origin,
            "an origin of buckets that is not a constant",
            "write it as TIMESTAMP '2000-01-01'",
        )
    return int(ticks)


def _read_date_bin(clause: Clause, node: exp.DateBin) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "unit")
    origin = node.args.get("unit")  # sqlglot's name for the third argument
    if isinstance(origin, exp.Var):  # a text, or the name of a column
        is_name = origin.name.isidentifier()
        value = exp.column(origin.name) if is_name else exp.Literal.string(origin.name)
        value.meta.update(node.meta)
        origin = value
    return _read_bucket(clause, node, node.this, node.expression, origin)


def _read_by_name(clause: Clause, node: exp.Anonymous) -> Expression:
    if not 2 <= len(node.expressions) <= 3:
        raise clause.source.error(node, f"{node.name}() takes a width, a timestamp and an origin")
    origin = node.expressions[2] if len(node.expressions) == 3 else None
    return _read_bucket(clause, node, node.expressions[0], node.expressions[1], origin)


def _read_window_time(clause: Clause, node: exp.Anonymous) -> Expression:
    """Return the last microsecond of a window of Spark, which is a struct of its bounds."""
    if len(node.expressions) != 1:
        raise clause.source.error(node, f"{node.name}() takes a window")
    end = clause.field(node, clause.read(node.expressions[0]), "end")
    return clause.call(node, "date_add", end, *map(integer_literal, (0, 0, -1)))


READERS: Final[dict[type[exp.Expr], Reader]] = {exp.DateBin: _read_date_bin}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "date_bin": _read_by_name,
    "time_bucket": _read_by_name,
    "window_time": _read_window_time,
}
