"""ORDER BY and LIMIT as a TopK.

A view has no order, so ORDER BY alone is checked (its names must exist) and dropped. LIMIT without
ORDER BY takes the first rows in the order of all columns; SQL allows any rows here.
NULLs are ordered as in the dialect; in DuckDB they are last in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.plan.nodes import Filter, Map, Order, PlanNode, TopK, columns
from circuits.plan.window import Window, WindowCall
from circuits.sql.binding.enums import (
    enum_of_position,
    enums_of_positions,
    is_enum,
    position_of_enum,
)
from circuits.sql.binding.nested_order import has_order_key, order_key
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions
from circuits.types.enum_type import EnumType
from dbsp_wcoj.zset import MAX_INT64

__all__ = [
    "Limit",
    "SortKey",
    "limit_rows",
    "order_columns",
    "position_of",
    "read_argument_order",
    "read_limit",
    "read_order",
    "read_position",
    "reverse_order",
]

INT64: Final = pa.int64()


@dataclass(frozen=True)
class SortKey:
    """An expression to order by.

    Attributes:
        expression: The expression; for values of an ENUM, their positions.
        descending: True from the greatest value to the least.
        nulls_first: True if NULL is before all values.
        enum: The ENUM; None for other types.
    """

    expression: Expression
    descending: bool
    nulls_first: bool
    enum: EnumType | None = None

    @classmethod
    def of(cls, value: Expression, *, descending: bool = False) -> SortKey:
        """Return the key of a value, with NULL last."""
        if isinstance(value.type, EnumType):
            return cls(position_of_enum(value), descending, False, value.type)
        return cls(value, descending, False)

    def map(self, change: Callable[[Expression], Expression]) -> SortKey:
        """Return the key with another expression."""
        return replace(self, expression=change(self.expression))

    def restore(self, value: Expression) -> Expression:
        """Return the value to order by, of a value of the expression."""
        return value if self.enum is None else enum_of_position(value, self.enum)

    def restore_list(self, values: Expression) -> Expression:
        """Return the list of values to order by, of a list of values of the expression."""
        return values if self.enum is None else enums_of_positions(values, self.enum)


@dataclass(frozen=True)
class Limit:
    """The number of rows to return (None: all) and the number of rows to skip before them.

    Attributes:
        limit: The number of rows to return; None for all.
        offset: The number of rows to skip before them.
        with_ties: True if all rows that are equal to the last row in the order are returned, too.
        percent: The number of rows to return, as a part of all rows from 0 to 100, rounded down;
            None without one. Then ``limit`` is None.
    """

    limit: int | None
    offset: int
    with_ties: bool = False
    percent: Decimal | None = None


def read_order(
    source: SqlSource,
    node: exp.Order,
    read: Callable[[exp.Expr], Expression],
    columns: Sequence[Expression] = (),
) -> tuple[SortKey, ...]:
    """Return the sort keys of an ORDER BY; for ORDER BY ALL and ``*``, these are ``columns``."""
    source.allow_arguments(node, "expressions")
    sort_keys = []
    for key in node.expressions:
        source.allow_arguments(key, "this", "desc", "nulls_first")
        descending, nulls_first = bool(key.args.get("desc")), bool(key.args.get("nulls_first"))
        is_star = isinstance(key.this, exp.Star) and bool(columns)
        if is_star:
            source.refuse_arguments(key.this)
        if is_star or isinstance(key.this, exp.Var):
            if not (is_star or key.this.name.upper() == "ALL") or not columns:
                raise source.unsupported(
                    key, f"ORDER BY {key.this.name}", "name the columns", word="order by"
                )
            values = columns
        else:
            values = [read(key.this)]
        for value in values:
            if source.is_spark and has_order_key(value.type):
                value = order_key(value)
            elif not is_enum(value.type):
                source.refuse_order(key, value.type, "ORDER BY")
            sort_key = SortKey.of(value, descending=descending)
            sort_keys.append(replace(sort_key, nulls_first=nulls_first))
    return tuple(sort_keys)


def order_columns(
    sort_keys: Sequence[SortKey], expressions: Sequence[Expression]
) -> tuple[Order, ...]:
    """Return the order of a plan whose columns are ``expressions``, which contain the sort keys.

    Only the first sort key on a column has an effect.
    """
    orders: dict[int, Order] = {}
    for key in sort_keys:
        column = expressions.index(key.expression)
        orders.setdefault(column, Order(column, key.descending, key.nulls_first))
    return tuple(orders.values())


def read_argument_order(
    source: SqlSource, node: exp.Order, read: Callable[[exp.Expr], Expression]
) -> tuple[SortKey, ...]:
    """Return the sort keys of the ORDER BY after the last argument of a call."""
    # In sqlglot, this ORDER BY contains the argument before it. Read a copy without it, and restore
    # the parents of the keys, which the copy has changed.
    only_keys = exp.Order(expressions=node.expressions)
    for key in node.expressions:
        key.parent = node
    source.allow_arguments(node, "this", "expressions")
    return read_order(source, only_keys, read)


def reverse_order(sort_keys: Sequence[SortKey]) -> tuple[SortKey, ...]:
    """Return the sort keys of the opposite order."""
    return tuple(
        replace(key, descending=not key.descending, nulls_first=not key.nulls_first)
        for key in sort_keys
    )


def read_position(source: SqlSource, node: exp.Expr, count: int) -> int:
    """Return the index of a column that is named by its position: 0 for ``ORDER BY 1``.

    Raises:
        SqlError: There are fewer columns.
    """
    number = str(node.this)
    if not number.isdecimal() or not 1 <= int(number) <= count:
        raise source.error(node, f"unknown column {number}; the list has columns 1 to {count}")
    return int(number) - 1


def position_of(source: SqlSource, node: exp.Expr) -> exp.Literal | None:
    """Return the number of ``ORDER BY 1`` or ``ORDER BY (1)``; None for any other sort key."""
    number = node.unnest()
    if not isinstance(number, exp.Literal) or number.is_string:
        return None
    while isinstance(node, exp.Paren):
        source.allow_arguments(node, "this")
        node = node.this
    return number


def read_limit(source: SqlSource, node: exp.Expr) -> Limit | None:
    """Return LIMIT and OFFSET of a query, None if it has neither."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is None and offset is None:
        return None
    with_ties = False
    percent: Decimal | None = None
    for clause in (limit, offset):
        if isinstance(clause, exp.Limit) and _is_percent(source, clause):
            percent = _read_percent(source, clause)
        elif isinstance(clause, exp.Limit | exp.Offset):
            source.allow_arguments(clause, "expression")
        elif isinstance(clause, exp.Fetch):
            source.allow_arguments(clause, "direction", "count", "limit_options")
            options = clause.args.get("limit_options")
            if options is not None:
                if options.args.get("percent"):
                    raise source.unsupported(clause, "FETCH PERCENT", "use LIMIT", word="FETCH")
                source.allow_arguments(options, "rows", "with_ties")
                with_ties = bool(options.args.get("with_ties"))
                if with_ties and not node.args.get("order"):
                    raise source.error(clause, "FETCH WITH TIES needs ORDER BY", word="FETCH")
    skipped = _read_count(source, offset, "OFFSET") or 0
    if percent is not None:
        return Limit(None, skipped, percent=percent)
    return Limit(_read_count(source, limit, "LIMIT"), skipped, with_ties)


#: Digits after the point of LIMIT n%: the products with numbers of rows fit int64.
_MAX_PERCENT_SCALE: Final = 6


def _is_percent(source: SqlSource, node: exp.Limit) -> bool:
    """Return whether a limit is ``LIMIT 10%`` of DuckDB."""
    options = node.args.get("limit_options")
    if options is None or source.dialect != "duckdb":
        return False
    return bool(options.args.get("percent")) and not options.args.get("with_ties")


def _read_percent(source: SqlSource, node: exp.Limit) -> Decimal:
    """Return the number of ``LIMIT 10%`` or ``LIMIT 10 PERCENT``."""
    source.allow_arguments(node, "expression", "limit_options")
    options, number = node.args["limit_options"], node.expression
    source.allow_arguments(options, "percent", "rows")
    if not isinstance(number, exp.Literal) or number.is_string:
        raise source.unsupported(number, f"LIMIT {number.sql()}%", "write a number")
    percent = Decimal(number.this)
    if not 0 <= percent <= 100:
        raise source.error(number, f"LIMIT {percent}% is not from 0% to 100%")
    if -int(percent.as_tuple().exponent) > _MAX_PERCENT_SCALE:
        advice = f"round it to {_MAX_PERCENT_SCALE} digits after the point"
        raise source.unsupported(number, f"LIMIT {number.sql()}%", advice)
    return percent


def limit_rows(
    plan: PlanNode, keys: tuple[int, ...], order: tuple[Order, ...], limit: Limit
) -> PlanNode:
    """Return the rows of a plan that a LIMIT returns, for each value of some key columns."""
    if limit.percent is not None:
        return _limit_to_percent(plan, keys, order, limit.offset, limit.percent)
    if not (limit.with_ties and limit.limit):
        return TopK(plan, keys, order, limit.limit, limit.offset)
    calls = [WindowCall(name, (), INT64, name) for name in ("rank", "row_number")]
    numbered = Window(plan, keys, order, tuple(calls))
    *values, rank, number = columns(numbered)
    last = Literal(min(limit.offset + limit.limit, MAX_INT64), INT64)
    first = functions.call("gt", number, Literal(limit.offset, INT64))
    rows = Filter(Filter(numbered, functions.call("le", rank, last)), first)
    return Map(rows, tuple(values), tuple(field.name for field in plan.fields))


def _limit_to_percent(
    plan: PlanNode,
    keys: tuple[int, ...],
    order: tuple[Order, ...],
    offset: int,
    percent: Decimal,
) -> PlanNode:
    """Return a part of the rows; a step that changes their number can move the end."""
    counted = Window(plan, keys, (), (WindowCall("count", (), INT64, "count"),))
    numbered = Window(counted, keys, order, (WindowCall("row_number", (), INT64, "row_number"),))
    *values, count, number = columns(numbered)
    # number - offset <= count * percent / 100, in whole numbers
    scale = 10 ** max(0, -int(percent.as_tuple().exponent))
    left = functions.call("subtract", number, Literal(offset, INT64))
    rows = Filter(
        Filter(
            numbered,
            functions.call(
                "le",
                functions.call("multiply", left, Literal(100 * scale, INT64)),
                functions.call("multiply", count, Literal(int(percent * scale), INT64)),
            ),
        ),
        functions.call("gt", left, Literal(0, INT64)),
    )
    return Map(rows, tuple(values), tuple(field.name for field in plan.fields))


def _read_count(source: SqlSource, node: exp.Expr | None, name: str) -> int | None:
    if node is None:
        return None
    if isinstance(node, exp.Fetch):
        if node.args.get("count") is None:  # FETCH FIRST ROW ONLY
            return 1
        number, name = node.args["count"], "FETCH"
    else:
        number = node.args["expression"]
    is_all = isinstance(number, exp.Var) and number.name.upper() == "ALL"
    if name == "LIMIT" and (is_all or isinstance(number, exp.Null)):
        return None
    count = _read_constant(source, number)
    if count is None or count < 0:
        raise source.unsupported(
            number, f"{name} {number.sql()}", "write a whole number", word=name
        )
    if count >= 2**63:
        raise source.error(number, f"{name} {count} does not fit 64 bits")
    return count


def _read_constant(source: SqlSource, node: exp.Expr) -> int | None:
    """Return the value of whole numbers with +, - and *; None for anything else."""
    match node:
        case exp.Literal():
            return int(node.this) if not node.is_string and node.this.isdecimal() else None
        case exp.Paren():
            source.allow_arguments(node, "this")
            return _read_constant(source, node.this)
        case exp.Subquery(this=exp.Select(expressions=[item]) as query) if not source.is_spark:
            source.allow_arguments(node, "this")
            source.allow_arguments(query, "expressions")
            return _read_constant(source, item.unalias())
        case exp.Add() | exp.Sub() | exp.Mul():
            source.allow_arguments(node, "this", "expression")
            left, right = (_read_constant(source, side) for side in (node.this, node.expression))
            if left is None or right is None:
                return None
            operators = {exp.Add: int.__add__, exp.Sub: int.__sub__, exp.Mul: int.__mul__}
            return operators[type(node)](left, right)
    return None
