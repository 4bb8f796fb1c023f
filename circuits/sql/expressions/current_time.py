"""The current time: ``now()`` and its relatives, in comparisons that are conditions of WHERE.

Each step has one time (`Circuit.prepare`). ``WHERE ts > now() - INTERVAL '1 hour'`` becomes a
`TemporalFilter`, which inserts and deletes rows as the time advances. The normal form is a
comparison whose one side is a non-decreasing function of ``now()`` and of nothing else, and whose
other side does not contain it. BETWEEN and ``=`` are two comparisons. Any other use of ``now()`` is
refused: its result would change for all rows in every step. The time of day (``current_time``)
decreases at midnight, so it is always refused.

While a condition is read, the time is the column `NOW_COLUMN`, so that functions apply to it as to
any other value. Times are in UTC. Compared with a timestamp without a time zone, ``now()`` is the
time in UTC without a time zone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import SqlError, UnsupportedSqlError
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    columns_of,
    conjuncts,
    substitute,
)
from circuits.plan.monotone_functions import adds_months_to_times, monotone_argument
from circuits.plan.nodes import TemporalFilter
from circuits.plan.temporal_filter import TemporalComparison
from circuits.sql.binding.clause import NOW_ADVICE, Clause, Reader
from circuits.sql.binding.scope import is_correlated
from circuits.sql.binding.select_builder import SelectBuilder

__all__ = [
    "READERS",
    "READERS_BY_NAME",
    "add_temporal_filter",
    "is_local_timestamp",
    "reads_now",
]

#: The number of the column that stands for the time of the step; no relation has as many columns.
NOW_COLUMN: Final = 1 << 48
_UTC_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_NAIVE_TIMESTAMP: Final = pa.timestamp("us")
_WITH_SIDES_SWAPPED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_COMPARISONS: Final[dict[str, tuple[TemporalComparison, ...]]] = {
    "lt": ("lt",),
    "le": ("le",),
    "gt": ("gt",),
    "ge": ("ge",),
    "eq": ("ge", "le"),
}
_NOW_NAMES: Final = ("now", "transaction_timestamp", "get_current_timestamp", "mz_now")
_ADVICE: Final = (
    "compare it with an expression that does not contain it, as a condition of WHERE: "
    "WHERE ts > now() - INTERVAL '1 hour'"
)


def is_local_timestamp(node: exp.Expr) -> bool:
    """Return whether a node is LOCALTIMESTAMP, unless there is a column of that name."""
    if not isinstance(node, exp.Column) or node.table or node.this.args.get("quoted"):
        return False
    return node.name.casefold() == "localtimestamp"


def reads_now(condition: exp.Expr) -> bool:
    """Return whether a condition contains the current time, outside of subqueries."""
    return any(
        isinstance(part, tuple(READERS))
        or is_local_timestamp(part)
        or (isinstance(part, exp.Anonymous) and part.name.lower() in READERS_BY_NAME)
        for part in condition.walk(prune=lambda part: isinstance(part, exp.Query))
    )


def add_temporal_filter(builder: SelectBuilder, node: exp.Expr, name: str) -> None:
    """Keep the rows for which a condition with ``now()`` is true, at the time of each step.

    Args:
        builder: The plan to restrict.
        node: The condition.
        name: The name of the clause, for errors.

    Raises:
        UnsupportedSqlError: The condition is not a comparison as described above.
    """
    try:
        condition = builder.clause(name, read_now=_time_reader(_UTC_TIMESTAMP)).read_condition(node)
    except UnsupportedSqlError:
        raise
    except SqlError as error:
        # The other side may be a timestamp without a time zone: read ``now()`` without one.
        try:
            condition = builder.clause(
                name, read_now=_time_reader(_NAIVE_TIMESTAMP)
            ).read_condition(node)
        except SqlError:
            raise error from None
    for part in conjuncts([condition]):
        if NOW_COLUMN in columns_of(part):
            _add_comparison(builder, node, part)
        else:
            builder.add_filter(node, part)


def _add_comparison(builder: SelectBuilder, node: exp.Expr, condition: Expression) -> None:
    match condition:
        case Call(function, (value, bound)) if function in _WITH_SIDES_SWAPPED:
            if NOW_COLUMN in columns_of(value):  # move it to the right
                function, value, bound = _WITH_SIDES_SWAPPED[function], bound, value
        case _:
            raise builder.source.unsupported(node, "now() in such a condition", _ADVICE)
    if NOW_COLUMN in columns_of(value):
        raise builder.source.unsupported(node, "now() on both sides of a comparison", _ADVICE)
    if adds_months_to_times(bound):
        raise builder.source.unsupported(
            node,
            "now() plus or minus months",
            "the sum can decrease at the end of a month: truncate first, as in "
            "date_trunc('day', now()) - INTERVAL '1 month', or use days",
        )
    if monotone_argument(bound) is None:
        raise builder.source.unsupported(
            node, "a function of now() that can decrease, or that reads other values,", _ADVICE
        )
    if is_correlated(value):
        raise builder.source.unsupported(
            node,
            "a comparison of now() with a column of the enclosing query",
            "put it in the WHERE of the enclosing query",
        )
    if not (pa.types.is_timestamp(value.type) or pa.types.is_date(value.type)):
        raise builder.source.unsupported(
            node, f"a comparison of now() with a value of type {value.type}", _ADVICE
        )
    if value.type != bound.type:
        value = builder.clause("WHERE").call(node, "cast", value, type=bound.type)
    # In a TemporalFilter, the time is column 0 of the bound.
    bound = substitute(bound, lambda column: Column(0, column.type))
    for comparison in _COMPARISONS[function]:
        builder.plan = TemporalFilter(builder.plan, value, comparison, bound)


def _time_reader(type: pa.DataType) -> Reader:
    """Return the reader of the current time, as a timestamp of a type."""

    def read(clause: Clause, node: exp.Expr) -> Expression:
        if isinstance(node, exp.CurrentDate):
            local = Column(NOW_COLUMN, _NAIVE_TIMESTAMP)
            return clause.call(node, "cast", local, type=pa.date32())
        if isinstance(node, exp.Localtimestamp):
            return Column(NOW_COLUMN, _NAIVE_TIMESTAMP)
        return Column(NOW_COLUMN, type)

    return read


def _refuse_time_of_day(clause: Clause, node: exp.Expr) -> Expression:
    """Raise an error for ``current_time`` and ``localtime``."""
    raise clause.source.unsupported(node, clause.source.name_in_text(node), NOW_ADVICE)


def _read_now(clause: Clause, node: exp.Expr) -> Expression:
    clause.source.allow_arguments(node, *(("this",) if isinstance(node, exp.Anonymous) else ()))
    return clause.read_now(clause, node)


READERS: Final[dict[type[exp.Expr], Callable[[Clause, exp.Expr], Expression]]] = {
    exp.CurrentDate: _read_now,
    exp.CurrentTime: _refuse_time_of_day,
    exp.CurrentTimestamp: _read_now,
    exp.Localtime: _refuse_time_of_day,
    exp.Localtimestamp: _read_now,
}
READERS_BY_NAME: Final[dict[str, Reader]] = dict.fromkeys(_NOW_NAMES, _read_now)
