"""Top-k per group: ``row_number() OVER (PARTITION BY p ORDER BY o)``, bounded by a constant.

The bound is in QUALIFY, or in the WHERE around a query in FROM or WITH::

    SELECT ... QUALIFY row_number() OVER (PARTITION BY p ORDER BY o) <= 3
    SELECT ... FROM (SELECT ..., row_number() OVER (PARTITION BY p ORDER BY o) AS n ...)
        WHERE n <= 3

Both are one TopK node, which reads the first rows of each group only. If the number is selected, a
Window numbers the rows that the TopK keeps; a rewrite rule makes one node of both
(`circuits.plan.rewrite.numbered_rows`). A row_number() without a bound, or a second one of the
same query, is a Window over all rows (`circuits.sql.aggregation.windows`).

The bound in WHERE is not pushed below an outer, semi, anti or ASOF join, nor below PIVOT or
UNPIVOT, because it would change the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeGuard

from sqlglot import exp

from circuits.sql.aggregation.windows import Windows
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.environment import Environment, RowNumberBounds, RowNumberRange
from circuits.sql.binding.ordering import read_order
from circuits.sql.binding.select_builder import conjuncts_of
from circuits.sql.binding.selection import BoundedRowNumber

__all__ = [
    "Bound",
    "RowNumberConditions",
    "find_row_number_conditions",
    "is_row_number",
    "read_bound",
    "read_row_number",
]

# The comparison with its sides exchanged: 3 >= n is n <= 3.
FLIPPED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.EQ: exp.EQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


class Bound(NamedTuple):
    """A condition that keeps the rows in which an expression is one of some numbers.

    Args:
        value: The expression.
        kept_numbers: The numbers.
    """

    value: exp.Expr
    kept_numbers: RowNumberRange


class RowNumberConditions(NamedTuple):
    """The conditions of a WHERE that bound a row_number() of a query in FROM.

    Args:
        bounds_by_table: For a table of FROM, by the ``id`` of its node: the column that is a
            row_number(), and the numbers that the condition keeps.
        column_by_condition: For a condition, by the ``id`` of its node: this column.
    """

    bounds_by_table: Mapping[int, RowNumberBounds]
    column_by_condition: Mapping[int, exp.Column]


def is_row_number(node: exp.Expr) -> TypeGuard[exp.Window]:
    """Return whether a node is a call of row_number()."""
    return isinstance(node, exp.Window) and isinstance(node.this, exp.RowNumber)


def read_row_number(
    clause: Clause, node: exp.Window, kept_numbers: RowNumberRange, windows: Windows
) -> BoundedRowNumber:
    """Read the window of a row_number()."""
    source = clause.source
    source.refuse_arguments(node.this)  # row_number() takes no arguments
    partition, order, frame = windows.window_parts(clause, node)
    if frame is not None:
        # SQL allows a frame here, but row_number() does not depend on it. An argument of the frame
        # that is not listed is an error.
        source.allow_arguments(frame, "kind", "start", "start_side", "end", "end_side")
    partition_by = tuple(clause.read(key) for key in partition)
    order_by = read_order(source, order, clause.read) if order else ()
    return BoundedRowNumber(partition_by, order_by, kept_numbers)


def read_bound(node: exp.Expr) -> Bound | None:
    """Return the bound that a condition sets: ``n <= 3``, ``3 >= n``, ``n BETWEEN 2 AND 5``.

    None if the condition is of another form, or has no upper bound.
    """
    if isinstance(node, exp.Between):
        low, high = _integer_value(node.args["low"]), _integer_value(node.args["high"])
        if low is None or high is None or node.args.get("symmetric"):
            return None
        return Bound(node.this, RowNumberRange(max(low, 1), high))
    comparison = type(node)
    if comparison not in FLIPPED:
        return None
    value, limit = node.this, _integer_value(node.args["expression"])
    if limit is None:
        value, limit = node.args["expression"], _integer_value(node.this)
        comparison = FLIPPED[comparison]
    if limit is None:
        return None
    if comparison is exp.EQ:
        return Bound(value, RowNumberRange(max(limit, 1), limit))
    if comparison is exp.LT:
        return Bound(value, RowNumberRange(1, limit - 1))
    if comparison is exp.LTE:
        return Bound(value, RowNumberRange(1, limit))
    return None


def find_row_number_conditions(environment: Environment, node: exp.Select) -> RowNumberConditions:
    """Return the conditions of WHERE that bound a row_number() of a query in FROM."""
    bounds_by_table: dict[int, dict[str, RowNumberRange]] = {}
    column_by_condition: dict[int, exp.Column] = {}
    where, joins = node.args.get("where"), node.args.get("joins") or []
    from_ = node.args.get("from_")
    if where is None or from_ is None or not all(map(_is_inner_join, joins)):
        return RowNumberConditions(bounds_by_table, column_by_condition)
    tables = [from_.this, *(join.this for join in joins)]
    names_by_table = {id(table): set(_row_number_names(environment, table)) for table in tables}
    for condition in conjuncts_of(where.this):
        bound = read_bound(condition)
        if bound is None or not isinstance(bound.value, exp.Column):
            continue
        column = bound.value
        environment.source.allow_arguments(column, "this", "table")  # any other is an error
        name, qualifier = column.name.casefold(), column.table.casefold()
        matches = [
            id(table)
            for table in tables
            if name in names_by_table[id(table)]
            and qualifier in ("", table.alias_or_name.casefold())
        ]
        if len(matches) != 1:
            continue
        # A table has one bound; further conditions on its row_number() remain in the WHERE.
        if matches[0] not in bounds_by_table:
            bounds_by_table[matches[0]] = {name: bound.kept_numbers}
            column_by_condition[id(condition)] = column
            environment.source.allow_arguments(condition, "this", "expression", "low", "high")
    return RowNumberConditions(bounds_by_table, column_by_condition)


def _is_inner_join(join: exp.Join) -> bool:
    """Return whether a filter of one side may be applied before the join."""
    # In dialect clickhouse, ASOF is a kind of join.
    is_asof = "ASOF" in ((join.args.get("method") or "").upper(), join.kind)
    is_temporal = join.this.args.get("version")
    return not (join.args.get("side") or join.kind in ("SEMI", "ANTI") or is_asof or is_temporal)


def _row_number_names(environment: Environment, table: exp.Expr) -> Iterator[str]:
    """Yield the names of the columns of a query in FROM that are a row_number()."""
    alias = table.args.get("alias")
    if _has_later_clause(table) or (alias is not None and alias.args.get("columns")):
        return
    query: exp.Expr = table
    if isinstance(table, exp.Table):
        common = environment.find_common_table(table)
        if common is None or common.node.args["alias"].args.get("columns"):
            return
        query = common.node.this
    while isinstance(query, exp.Subquery) and not _has_later_clause(query):
        query = query.this
    if isinstance(query, exp.Select) and not _has_later_clause(query):
        windows = [_window_parts(window) for window in query.find_all(exp.Window)]
        for item in query.expressions:
            if not (isinstance(item, exp.Alias) and is_row_number(item.this)):
                continue
            # Functions of one window must see one order of the rows with equal keys.
            if windows.count(_window_parts(item.this)) == 1:
                yield item.alias.casefold()


def _window_parts(window: exp.Window) -> tuple[object, ...]:
    """Return what equal windows have in common, frames excepted."""
    return tuple(window.args.get(name) for name in ("partition_by", "order", "alias"))


def _has_later_clause(query: exp.Expr) -> bool:
    """Return whether a clause that is evaluated later reads the numbered rows.

    Examples are DISTINCT, LIMIT and PIVOT. The bound must not be applied before such a clause,
    because the clause would read fewer rows. In ``a JOIN q RIGHT JOIN b ON ... ON ...``, the
    inner join with b is such a clause of q.
    """
    names = ("distinct", "qualify", "limit", "offset", "pivots")
    has_joins = not isinstance(query, exp.Select) and bool(query.args.get("joins"))
    return has_joins or any(query.args.get(name) for name in names)


def _integer_value(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal():
        return int(node.this)
    return None
