"""Subqueries in conditions: EXISTS, IN, comparisons with ANY and ALL, and scalar subqueries.

A *membership* condition becomes a semijoin, or an antijoin if it is negated. A scalar subquery is
joined, so that its value is a column::

    EXISTS (q)          Semijoin(plan, q)
    x IN (q)            Semijoin(plan, q, x = q.y)
    x NOT IN (q)        Semijoin(plan, q, x = q.y or x is null or q.y is null, anti)
    x < ALL (q)         Semijoin(plan, q, x >= q.y or x is null or q.y is null, anti)
    x < (SELECT max(y) FROM s WHERE s.k = r.k)
                        OuterJoin(plan, Aggregate(s by k), r.k = k), then x < max

A correlated condition of the subquery (one that names outer columns, see `circuits.sql.scope`)
becomes a part of the join predicate. If the subquery aggregates, the condition must be an equality,
whose inner side becomes a key of the aggregate (Galindo-Legaria and Joshi, Orthogonal Optimization
of Subqueries and Aggregation, SIGMOD 2001). Rows without a match get the value of the aggregate
over no rows: NULL, and 0 for ``count``.

To support another kind of membership condition, extend `is_membership` and `plan_semijoin`.
"""

from __future__ import annotations

import typing
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
    PlanNode,
    Semijoin,
    TopK,
    Values,
    columns,
)
from circuits.sql.clause import Clause
from circuits.sql.grouping import Grouping, is_grouped
from circuits.sql.literals import integer_literal
from circuits.sql.scope import FIRST_OUTER_COLUMN, is_correlated, is_outer_column
from circuits.sql.select_builder import SelectBuilder

__all__ = ["add_condition_keys", "is_membership", "join_scalar", "plan_semijoin"]

# For each comparison: the function for ANY, and its negation for ALL.
COMPARISONS: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.EQ: ("eq", "ne"),
    exp.GT: ("gt", "le"),
    exp.GTE: ("ge", "lt"),
    exp.LT: ("lt", "ge"),
    exp.LTE: ("le", "gt"),
    exp.NEQ: ("ne", "eq"),
}
HOW_TO_CORRELATE: Final = "correlate it by conditions of its WHERE, joined by AND"
HOW_TO_SELECT_ONE_VALUE: Final = "select one aggregate, as max(x), or join the subquery in FROM"

RowCount = typing.Literal["one", "at most one"]


@dataclass(frozen=True)
class _Subquery:
    """A subquery; the expressions are over the columns of ``plan`` and over outer columns."""

    plan: PlanNode
    outputs: tuple[Expression, ...]
    correlated_conditions: tuple[Expression, ...] = ()


def is_membership(node: exp.Expr) -> bool:
    """Return whether a condition is EXISTS, IN, or a comparison with ANY or ALL of a subquery."""
    node = _strip_parentheses(node)
    if isinstance(node, exp.Not):
        return is_membership(node.this)
    if isinstance(node, exp.Exists):
        return True
    if isinstance(node, exp.In):
        return _subquery_of_in(node) is not None
    return type(node) in COMPARISONS and isinstance(node.args["expression"], exp.Any | exp.All)


def _subquery_of_in(node: exp.In) -> exp.Expr | None:
    """Return the subquery of IN; None for a list of values. sqlglot has VALUES as an item."""
    query, items = node.args.get("query"), node.expressions
    if query is not None:
        return None if items else query
    is_values = len(items) == 1 and isinstance(items[0], exp.Values)
    return items[0] if is_values else None


def plan_semijoin(
    builder: SelectBuilder, clause: Clause, node: exp.Expr, negated: bool = False
) -> PlanNode:
    """Return the rows for which a membership condition is true."""
    node = _strip_parentheses(node)
    source = builder.source
    if isinstance(node, exp.Not):
        source.allow_arguments(node, "this")
        return plan_semijoin(builder, clause, node.this, not negated)
    if isinstance(node, exp.Exists):
        source.allow_arguments(node, "this")
        inner = _read_subquery(builder, node.this, exists=True)
        return _build_semijoin(builder, clause, node, inner, (), negated)
    if isinstance(node, exp.In) and (query := _subquery_of_in(node)) is not None:
        source.allow_arguments(node, "this", "query", "expressions")
        return _plan_comparison(builder, clause, node, query, "eq", is_all=False, negated=negated)
    source.allow_arguments(node, "this", "expression")
    quantifier = node.args["expression"]
    source.allow_arguments(quantifier, "this")
    any_function, all_function = COMPARISONS[type(node)]
    is_all = isinstance(quantifier, exp.All)
    function = all_function if is_all else any_function
    return _plan_comparison(
        builder, clause, node, quantifier.this, function, is_all=is_all, negated=negated
    )


def _plan_comparison(
    builder: SelectBuilder,
    clause: Clause,
    node: exp.Expr,
    query: exp.Expr,
    function: str,
    *,
    is_all: bool,
    negated: bool,
) -> PlanNode:
    """PlanNode ``x < ANY (query)`` or ``x < ALL (query)``.

    ANY and NOT ALL are semijoins: a row exists for which ``function`` is true. ALL and NOT ANY are
    antijoins: no row exists for which ``function`` is true or NULL. For ``< ALL``, the function is
    ``>=``.
    """
    if not isinstance(_strip_parentheses(query), exp.Query | exp.Values):
        raise builder.source.unsupported(query, "ANY or ALL of a list", "use IN")
    inner = _read_subquery(builder, query)
    is_anti = is_all != negated
    left = [node.this]
    if isinstance(node.this, exp.Tuple):
        builder.source.allow_arguments(node.this, "expressions")
        if is_all or negated or function != "eq":
            raise builder.source.unsupported(
                node.this,
                "a negated comparison of rows",
                "use NOT EXISTS with a condition per column",
            )
        left = node.this.expressions
    if len(left) != len(inner.outputs):
        raise builder.source.error(
            query, f"the subquery has {len(inner.outputs)} columns, {len(left)} are compared"
        )
    values = [clause.read(part) for part in left]
    width = builder.width
    conditions = []
    for value, output in zip(values, inner.outputs, strict=True):
        other = _number_side_by_side(output, width)
        condition = clause.call(node, function, value, other)
        if is_anti:
            nulls = [clause.call(node, "is_null", side) for side in (value, other)]
            condition = clause.call(node, "or", condition, *nulls)
        conditions.append(condition)
    return _build_semijoin(builder, clause, node, inner, conditions, is_anti)


def _build_semijoin(
    builder: SelectBuilder,
    clause: Clause,
    node: exp.Expr,
    inner: _Subquery,
    conditions: Sequence[Expression],
    anti: bool,
) -> PlanNode:
    width = builder.width
    parts = [_number_side_by_side(part, width) for part in inner.correlated_conditions]
    parts += conditions
    if any(is_correlated(part) for part in parts):
        raise builder.source.unsupported(
            node, "a condition that spans three queries", "compare columns of the two nearest"
        )
    return Semijoin(builder.plan, inner.plan, _conjoin(clause, node, parts), anti)


def join_scalar(builder: SelectBuilder, node: exp.Expr) -> tuple[PlanNode, Expression]:
    """Return the builder's plan joined to a scalar subquery, and the value of the subquery.

    Raises:
        UnsupportedSqlError: The subquery can have several rows; or it is correlated, and is not a
            single aggregate over equalities with outer columns.
    """
    source = builder.source
    query = _strip_parentheses(node)
    clause = builder.clause("a scalar subquery")
    if isinstance(query, exp.Select) and is_grouped(query) and len(query.expressions) == 1:
        other_clauses = (
            *("group", "having", "distinct", "qualify"),
            *("limit", "offset", "order", "with_"),
        )
        if not any(query.args.get(name) for name in other_clauses):
            return _join_aggregate(builder, clause, query)
    if not isinstance(query, exp.Query):
        raise source.unsupported(node, f"{query.key.upper()} as a value")
    inner = _read_subquery(builder, query)
    if inner.correlated_conditions or any(map(is_correlated, inner.outputs)):
        raise source.unsupported(
            node,
            "a correlated scalar subquery other than a single aggregate",
            HOW_TO_SELECT_ONE_VALUE,
        )
    if len(inner.outputs) != 1:
        raise source.error(node, f"a scalar subquery has one column, not {len(inner.outputs)}")
    row_count = _count_rows(inner.plan)
    if row_count is None:
        raise source.unsupported(
            node, "a scalar subquery that can have several rows", HOW_TO_SELECT_ONE_VALUE
        )
    value = _number_side_by_side(inner.outputs[0], builder.width)
    if row_count == "one":
        return CrossJoin((builder.plan, inner.plan)), value
    return OuterJoin(builder.plan, inner.plan, Literal(True, pa.bool_())), value


def _count_rows(plan: PlanNode) -> RowCount | None:
    """Return whether a plan always has one row, or at most one; None if it can have several."""
    if isinstance(plan, Map):
        return _count_rows(plan.input)
    if isinstance(plan, Filter):
        return "at most one" if _count_rows(plan.input) else None
    if isinstance(plan, Aggregate):
        return None if plan.keys else "one"
    if isinstance(plan, TopK):
        limits_to_one = not plan.keys and plan.limit is not None and plan.limit <= 1
        return "at most one" if limits_to_one or _count_rows(plan.input) else None
    if isinstance(plan, Values) and len(plan.rows) == 1:
        return "one"
    return None


def _join_aggregate(
    builder: SelectBuilder, clause: Clause, query: exp.Select
) -> tuple[PlanNode, Expression]:
    """Join a single aggregate, grouped by the inner sides of its correlated equalities."""
    source = builder.source
    source.allow_arguments(query, "expressions", "from_", "joins", "where")
    inner = builder.queries.read_from_and_where(builder.environment, query, builder.scope)
    item = query.expressions[0]
    if isinstance(item, exp.Alias):
        source.allow_arguments(item, "this", "alias")
        item = item.this
    grouping = Grouping(inner)
    value = grouping.clause("SELECT").read(item)
    conditions = [add_condition_keys(grouping, *part) for part in inner.correlated_conditions]
    plan = grouping.build_plan()
    value = grouping.rewrite_over_groups(item, value)
    width = builder.width
    if not conditions:
        return CrossJoin((builder.plan, plan)), _number_side_by_side(value, width)

    def count_no_rows_as_zero(column: Column) -> Expression:
        joined_column = _number_side_by_side(column, width)
        if not is_outer_column(column.index) and grouping.is_count(column.index):
            return clause.call(query, "coalesce", joined_column, integer_literal(0))
        return joined_column

    value = substitute(value, count_no_rows_as_zero)
    conditions = [grouping.rewrite_over_groups(query, condition) for condition in conditions]
    parts = [_number_side_by_side(condition, width) for condition in conditions]
    if any(map(is_correlated, parts)):
        raise source.unsupported(query, "a condition that spans three queries", HOW_TO_CORRELATE)
    return OuterJoin(builder.plan, plan, _conjoin(clause, query, parts)), value


def add_condition_keys(grouping: Grouping, node: exp.Expr, condition: Expression) -> Expression:
    """Make the inner side of a correlated equality a key of the groups; return the new equality.

    Raises:
        UnsupportedSqlError: The condition is not an equality of an inner with an outer value.
    """
    if all(map(is_outer_column, columns_of(condition))):
        return condition
    if isinstance(condition, Call) and condition.function in ("eq", "same"):
        for inner, outer in (condition.arguments, condition.arguments[::-1]):
            outer_columns = columns_of(outer)
            is_all_outer = bool(outer_columns) and all(map(is_outer_column, outer_columns))
            if is_all_outer and not is_correlated(inner):
                return Call(condition.function, (grouping.add_key(inner), outer), condition.type)
    raise grouping.source.unsupported(
        node,
        "a correlated condition below an aggregate that does not equate an inner with an outer "
        "value",
        "join the tables and aggregate the join",
    )


def _read_subquery(builder: SelectBuilder, query: exp.Expr, exists: bool = False) -> _Subquery:
    query = _strip_parentheses(query)
    environment = builder.environment
    if not isinstance(query, exp.Select):
        environment = environment.without_outer_scope(builder.scope)
        plan = environment.queries.plan_query(environment, query).require_all_columns(
            builder.source, query
        )
        return _Subquery(plan, columns(plan))
    selection = builder.queries.read_selection(environment, query, builder.scope)
    if not selection.correlated_conditions and not any(map(is_correlated, selection.outputs)):
        plan = builder.queries.finish_selection(selection).require_all_columns(
            builder.source, query
        )
        return _Subquery(plan, columns(plan))
    for name in ("qualify", "limit", "offset"):
        part = query.args.get(name)
        if part is None or (exists and name == "limit" and _is_positive_limit(part)):
            continue
        raise builder.source.unsupported(
            part, f"{name.upper()} in a correlated subquery", HOW_TO_CORRELATE, word=name
        )
    distinct = query.args.get("distinct")
    if distinct is not None:
        builder.source.allow_arguments(distinct)
    # DISTINCT and ORDER BY do not change whether there is a row.
    return _Subquery(selection.plan, selection.outputs, selection.correlated_conditions)


def _is_positive_limit(node: exp.Expr) -> bool:
    """Return whether a LIMIT leaves at least one row, so that it does not change EXISTS."""
    if not isinstance(node, exp.Limit) or _set_arguments(node) != ["expression"]:
        return False
    return isinstance(node.expression, exp.Literal) and node.expression.this > "0"


def _number_side_by_side(expression: Expression, width: int) -> Expression:
    """Return an expression of a subquery over the join of the enclosing plan with the subquery's.

    The ``width`` columns of the enclosing plan are on the left.
    """

    def renumber(column: Column) -> Column:
        if is_outer_column(column.index):
            return Column(column.index - FIRST_OUTER_COLUMN, column.type)
        return Column(column.index + width, column.type)

    return substitute(expression, renumber)


def _conjoin(clause: Clause, node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    if not parts:
        return Literal(True, pa.bool_())
    return parts[0] if len(parts) == 1 else clause.call(node, "and", *parts)


def _strip_parentheses(node: exp.Expr) -> exp.Expr:
    """Return the node inside of parentheses that have no alias and no clause of their own."""
    while isinstance(node, exp.Paren | exp.Subquery) and _set_arguments(node) == ["this"]:
        node = node.this
    return node


def _set_arguments(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value not in (None, False, [])]
