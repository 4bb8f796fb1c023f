"""Subqueries in conditions: EXISTS, IN, comparisons with ANY and ALL, and scalar subqueries.

::

    EXISTS (q)          Semi(rows, q)
    x IN (q)            Semi(rows, q, x = q.y)
    x NOT IN (q)        Semi(rows, q, x = q.y or x is null or q.y is null, anti)
    x < ALL (q)         Semi(rows, q, x >= q.y or x is null or q.y is null, anti)
    x < (SELECT max(y) FROM s WHERE s.k = r.k)
                        Outer(rows, Aggregate(s by k), r.k = k), then x < max

A correlated condition of the subquery becomes a part of the predicate. Below an aggregate it must
be an equality, whose inner side becomes a key of the aggregate (Galindo-Legaria and Joshi,
Orthogonal Optimization of Subqueries and Aggregation, SIGMOD 2001). Rows without a match get the
value of the aggregate over no rows: NULL, and 0 for ``count``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal, columns_of, substitute
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    Filter,
    Map,
    OuterJoin,
    Plan,
    Semijoin,
    TopK,
    Values,
    columns,
)
from circuits.plan.window import Window
from circuits.sql.expressions import Clause, integer
from circuits.sql.grouping import Grouping, is_grouped
from circuits.sql.rows import Rows
from circuits.sql.scope import OUTER, is_correlated, is_outer

__all__ = ["add_condition_keys", "is_membership", "join_scalar", "plan_semijoin", "row_bound"]

COMPARISONS: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.EQ: ("eq", "ne"),
    exp.GT: ("gt", "le"),
    exp.GTE: ("ge", "lt"),
    exp.LT: ("lt", "ge"),
    exp.LTE: ("le", "gt"),
    exp.NEQ: ("ne", "eq"),
}
HOW_TO_CORRELATE: Final = "correlate it by conditions of its WHERE, joined by AND"


@dataclass(frozen=True)
class _Subquery:
    """A subquery: its rows, its outputs and its correlated conditions.

    The expressions are over the columns of ``plan`` and, from ``OUTER`` on, those of the enclosing
    query.
    """

    plan: Plan
    outputs: tuple[Expression, ...]
    conditions: tuple[Expression, ...] = ()


def is_membership(node: exp.Expr) -> bool:
    """Return whether a condition is EXISTS, IN, or a comparison with ANY or ALL of a subquery."""
    node = _without_brackets(node)
    if isinstance(node, exp.Not):
        return is_membership(node.this)
    if isinstance(node, exp.Exists):
        return True
    if isinstance(node, exp.In):
        return _subquery_of_in(node) is not None
    return type(node) in COMPARISONS and isinstance(node.args["expression"], exp.Any | exp.All)


def _subquery_of_in(node: exp.In) -> exp.Expr | None:
    """Return the subquery of IN; VALUES is in place of the list of values."""
    query, items = node.args.get("query"), node.expressions
    if query is not None:
        return None if items else query
    return items[0] if len(items) == 1 and isinstance(items[0], exp.Values) else None


def plan_semijoin(rows: Rows, clause: Clause, node: exp.Expr, negated: bool = False) -> Plan:
    """Return the rows for which a membership condition is true."""
    node = _without_brackets(node)
    source = rows.source
    if isinstance(node, exp.Not):
        source.accept(node, "this")
        return plan_semijoin(rows, clause, node.this, not negated)
    if isinstance(node, exp.Exists):
        source.accept(node, "this")
        inner = _read_subquery(rows, node.this, exists=True)
        return _plan_semijoin(rows, clause, node, inner, (), negated)
    if isinstance(node, exp.In) and (query := _subquery_of_in(node)) is not None:
        source.accept(node, "this", "query", "expressions")
        return _plan_comparison(rows, clause, node, query, "eq", every=False, negated=negated)
    source.accept(node, "this", "expression")
    quantifier = node.args["expression"]
    source.accept(quantifier, "this")
    every = isinstance(quantifier, exp.All)
    function = COMPARISONS[type(node)][every]
    return _plan_comparison(rows, clause, node, quantifier.this, function, every, negated)


def _plan_comparison(
    rows: Rows,
    clause: Clause,
    node: exp.Expr,
    query: exp.Expr,
    function: str,
    every: bool,
    negated: bool,
) -> Plan:
    """Plan ``x function ANY (query)``; with ``every``, it must be false for all rows.

    ``x < ALL`` means that no row has ``x >= y`` true or NULL; ``NOT (x < ALL)`` means that some row
    has ``x >= y`` true.
    """
    if not isinstance(_without_brackets(query), exp.Query | exp.Values):
        raise rows.source.unsupported(query, "ANY or ALL of a list", "use IN")
    inner = _read_subquery(rows, query)
    left = node.this
    tuple_ = isinstance(left, exp.Tuple)
    if tuple_:
        rows.source.accept(left, "expressions")
    if tuple_ and (negated or every or function != "eq"):
        raise rows.source.unsupported(
            left, "a negated comparison of rows", "use NOT EXISTS with a condition per column"
        )
    parts = left.expressions if tuple_ else [left]
    if len(parts) != len(inner.outputs):
        raise rows.source.error(
            query, f"the subquery has {len(inner.outputs)} columns, {len(parts)} are compared"
        )
    values = [clause.read(part) for part in parts]
    width = rows.width
    conditions = []
    for value, output in zip(values, inner.outputs, strict=True):
        other = _columns_beside(output, width)
        condition = clause.call(node, function, value, other)
        if every != negated:
            nulls = [clause.call(node, "is_null", side) for side in (value, other)]
            condition = clause.call(node, "or", condition, *nulls)
        conditions.append(condition)
    return _plan_semijoin(rows, clause, node, inner, conditions, every != negated)


def _plan_semijoin(
    rows: Rows,
    clause: Clause,
    node: exp.Expr,
    inner: _Subquery,
    conditions: Sequence[Expression],
    anti: bool,
) -> Plan:
    width = rows.width
    parts = [*(_columns_beside(condition, width) for condition in inner.conditions), *conditions]
    if any(is_correlated(part) for part in parts):
        raise rows.source.unsupported(
            node, "a condition that spans three queries", "compare columns of the two nearest"
        )
    return Semijoin(rows.plan, inner.plan, _conjoin(clause, node, parts), anti)


def join_scalar(rows: Rows, node: exp.Expr) -> tuple[Plan, Expression]:
    """Return the rows with a scalar subquery beside them, and its value there.

    Raises:
        UnsupportedSqlError: The subquery can have several rows, or its correlation is not by
            equalities below a single aggregate.
    """
    source = rows.source
    query = _without_brackets(node)
    clause = rows.clause("a scalar subquery")
    if isinstance(query, exp.Select) and is_grouped(query) and len(query.expressions) == 1:
        rest = ("group", "having", "distinct", "qualify", "limit", "offset", "order", "with_")
        if not any(query.args.get(name) for name in rest):
            return _join_aggregate(rows, clause, query)
    if not isinstance(query, exp.Query):
        raise source.unsupported(node, f"{query.key.upper()} as a value")
    inner = _read_subquery(rows, query)
    if inner.conditions or any(map(is_correlated, inner.outputs)):
        raise source.unsupported(
            node,
            "a correlated scalar subquery that is no single aggregate",
            _HOW_TO_SELECT_ONE_VALUE,
        )
    if len(inner.outputs) != 1:
        raise source.error(node, f"a scalar subquery has one column, not {len(inner.outputs)}")
    rows_at_most = row_bound(inner.plan)
    if rows_at_most is None:
        raise source.unsupported(
            node, "a scalar subquery that can have several rows", _HOW_TO_SELECT_ONE_VALUE
        )
    value = _columns_beside(inner.outputs[0], rows.width)
    if rows_at_most == "one":
        return CrossJoin((rows.plan, inner.plan)), value
    return OuterJoin(rows.plan, inner.plan, Literal(True, pa.bool_())), value


_HOW_TO_SELECT_ONE_VALUE: Final = "select one aggregate, as max(x), or join the subquery in FROM"


def row_bound(plan: Plan) -> str | None:
    """Return ``one`` or ``at most`` if a plan has exactly or at most one row, else None."""
    if isinstance(plan, Map | Window):
        return row_bound(plan.input)
    if isinstance(plan, Filter):
        return row_bound(plan.input) and "at most"
    if isinstance(plan, Aggregate):
        return None if plan.keys else "one"
    if isinstance(plan, TopK):
        few = not plan.keys and plan.limit is not None and plan.limit <= 1
        return "at most" if few else row_bound(plan.input) and "at most"
    if isinstance(plan, Values) and len(plan.rows) == 1:
        return "one"
    return None


def _join_aggregate(rows: Rows, clause: Clause, query: exp.Select) -> tuple[Plan, Expression]:
    """Join a single aggregate, grouped by the inner sides of its correlated equalities."""
    source = rows.source
    source.accept(query, "expressions", "from_", "joins", "where")
    inner = rows.queries.read_rows(rows.environment, query, rows.scope)
    item = query.expressions[0]
    if isinstance(item, exp.Alias):
        source.accept(item, "this", "alias")
        item = item.this
    grouping = Grouping(inner)
    value = grouping.clause("SELECT").read(item)
    conditions = [add_condition_keys(grouping, *condition) for condition in inner.correlated]
    plan, value = grouping.plan(), grouping.rewrite_over_groups(item, value)
    conditions = [grouping.rewrite_over_groups(query, condition) for condition in conditions]
    width, outer = rows.width, bool(conditions)

    def place(column: Column) -> Expression:
        if is_outer(column.index):
            return Column(column.index - OUTER, column.type)
        moved = Column(column.index + width, column.type)
        if outer and grouping.is_count(column.index):
            return clause.call(query, "coalesce", moved, integer(0))
        return moved

    value = substitute(value, place)
    if not outer:
        return CrossJoin((rows.plan, plan)), value
    parts = [_columns_beside(condition, width) for condition in conditions]
    if any(map(is_correlated, parts)):
        raise source.unsupported(query, "a condition that spans three queries", HOW_TO_CORRELATE)
    return OuterJoin(rows.plan, plan, _conjoin(clause, query, parts)), value


def add_condition_keys(grouping: Grouping, node: exp.Expr, condition: Expression) -> Expression:
    """Rewrite a correlated condition below an aggregate over keys that are added for it."""
    if all(map(is_outer, columns_of(condition))):
        return condition
    if isinstance(condition, Call) and condition.function in ("eq", "same"):
        for inner, around in (condition.arguments, condition.arguments[::-1]):
            free = columns_of(around)
            if free and all(map(is_outer, free)) and not is_correlated(inner):
                return Call(condition.function, (grouping.key(inner), around), condition.type)
    raise grouping.rows.source.unsupported(
        node,
        "a correlated condition below an aggregate that does not equate an inner with an outer "
        "value",
        "join the tables and aggregate the join",
    )


def _read_subquery(rows: Rows, query: exp.Expr, exists: bool = False) -> _Subquery:
    query = _without_brackets(query)
    environment = rows.environment
    if not isinstance(query, exp.Select):
        apart = environment.without_outer_columns(rows.scope)
        plan = apart.queries.plan_query(apart, query)
        return _Subquery(plan, columns(plan))
    selection = rows.queries.read_selection(environment, query, rows.scope)
    if not selection.conditions and not any(map(is_correlated, selection.outputs)):
        plan = rows.queries.finish_selection(selection)
        return _Subquery(plan, columns(plan))
    for name in ("qualify", "limit", "offset"):
        part = query.args.get(name)
        some = exists and name == "limit" and isinstance(part, exp.Limit) and _is_positive(part)
        if part is not None and not some:
            raise rows.source.unsupported(
                part, f"{name.upper()} in a correlated subquery", HOW_TO_CORRELATE, word=name
            )
    distinct = query.args.get("distinct")
    if distinct is not None:
        rows.source.accept(distinct)
    # DISTINCT and ORDER BY do not change whether there is a row.
    return _Subquery(selection.plan, selection.outputs, selection.conditions)


def _is_positive(limit: exp.Limit) -> bool:
    plain = [name for name, value in limit.args.items() if value not in (None, False, [])]
    number = limit.expression
    return plain == ["expression"] and isinstance(number, exp.Literal) and number.this > "0"


def _columns_beside(expression: Expression, width: int) -> Expression:
    """Renumber inner and outer columns as those of both plans side by side, outer first."""

    def place(column: Column) -> Column:
        if is_outer(column.index):
            return Column(column.index - OUTER, column.type)
        return Column(column.index + width, column.type)

    return substitute(expression, place)


def _conjoin(clause: Clause, node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    if not parts:
        return Literal(True, pa.bool_())
    return parts[0] if len(parts) == 1 else clause.call(node, "and", *parts)


def _without_brackets(node: exp.Expr) -> exp.Expr:
    """Return the node inside of brackets, if the brackets have nothing else."""
    while True:
        plain = [name for name, value in node.args.items() if value not in (None, False, [])]
        if isinstance(node, exp.Paren | exp.Subquery) and plain == ["this"]:
            node = node.this
        else:
            return node
