"""Scalar subqueries: a subquery is joined to the plan, so that its value is a column.

::

    x < (SELECT max(y) FROM s WHERE s.k = r.k)
                        OuterJoin(plan, Aggregate(s by k), r.k = k), then x < max

Rows without a match get the value of the aggregate over no rows: NULL, and 0 for ``count``. A
subquery that can have several rows passes through a `SingleRow`, which fails if it does.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import (
    Column,
    Expression,
    Literal,
    shift_columns,
    substitute,
)
from circuits.plan.json_values import json_kind_of
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    CurrentTime,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    TopK,
    Union,
    Values,
    columns,
)
from circuits.plan.single_row import SingleRow
from circuits.plan.window import Window
from circuits.sql.aggregation.grouping import ONE_ROW, Grouping, is_grouped, is_padded_aggregate
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import (
    is_correlated,
    is_outer_column,
)
from circuits.sql.binding.select_builder import SelectBuilder, SubqueryValue
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.queries.decorrelation import filter_all, links_between, plan_correlated_query
from circuits.sql.queries.subqueries import (
    CORRELATION_ADVICE,
    add_condition_keys,
    number_over_join,
    read_subquery,
)
from circuits.sql.syntax.nodes import strip_parentheses
from circuits.sql.syntax.source import CorrelatedSqlError
from circuits.types.functions import conjunction

__all__ = ["join_scalar", "read_scalar"]

RowCount = typing.Literal["one", "at most one"]


def join_scalar(builder: SelectBuilder, node: exp.Expr) -> tuple[PlanNode, Expression]:
    """Return the builder's plan joined to a scalar subquery, and the value of the subquery."""
    try:
        return _join_simple_scalar(builder, node)
    except CorrelatedSqlError:
        return _read_correlated_scalar(builder, node).join(builder.plan, _unchanged)


def read_scalar(builder: SelectBuilder, node: exp.Expr) -> SubqueryValue:
    """Return the value of a scalar subquery of a query that groups.

    Unlike `join_scalar`, it joins nothing: the caller joins the value to the groups, once they are
    planned.
    """
    environment = builder.environment.with_unreachable_scope(builder.scope)
    one_row_builder = SelectBuilder(environment, ONE_ROW)
    try:
        plan, value = _join_simple_scalar(one_row_builder, node)
    except CorrelatedSqlError:
        return _read_correlated_scalar(builder, node)
    # The subquery is joined to one row, so the join has one row even if the subquery has none.
    return _ScalarValue(plan, value, (), always_has_row=True)


def _unchanged(expression: Expression) -> Expression:
    return expression


@dataclass(frozen=True)
class _ScalarValue:
    """A scalar subquery: at most one row for each combination of the outer values that it names.

    Args:
        plan: The columns of the outer values, then that of the value of the subquery.
        value: The value of the subquery, over ``plan``.
        outer_values: The outer values, over the plan of the enclosing query.
        always_has_row: True if each combination has a row.
    """

    plan: PlanNode
    value: Expression
    outer_values: tuple[Expression, ...]
    always_has_row: bool

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    @property
    def json_kind(self) -> str:
        return json_kind_of(self.value, self.plan.fields)

    def join(
        self, plan: PlanNode, rewrite: Callable[[Expression], Expression]
    ) -> tuple[PlanNode, Expression]:
        """Implement `SubqueryValue.join`."""
        width = len(plan.fields)
        outer_values = [rewrite(value) for value in self.outer_values]
        links = links_between(outer_values, columns(self.plan)[: len(outer_values)], width)
        value = shift_columns(self.value, width)
        if self.always_has_row:
            return filter_all(CrossJoin((plan, self.plan)), links), value
        return OuterJoin(plan, self.plan, conjunction(links)), value


def _read_correlated_scalar(builder: SelectBuilder, node: exp.Expr) -> _ScalarValue:
    query = strip_parentheses(node)
    correlated = plan_correlated_query(builder, query)
    width = correlated.width
    _check_one_column(builder, node, len(correlated.plan.fields) - width)
    plan, always_has_row = _with_single_row(correlated.plan, width)
    return _ScalarValue(plan, columns(plan)[width], correlated.outer_values, always_has_row)


def _with_single_row(plan: PlanNode, key_width: int) -> tuple[PlanNode, bool]:
    """Return a plan that fails if a key has several rows, and whether a join always finds a row.

    With a key it does not always: the rows that the plan is joined to may have other keys.

    Args:
        plan: The rows.
        key_width: The number of its first columns that are the key; 0 for a single row in total.
    """
    row_count = _count_rows(plan, key_width)
    if row_count is None:
        names = tuple(field.name for field in plan.fields[:key_width])
        return SingleRow(plan, key_width, names), False
    return plan, row_count == "one" and not key_width


def _check_one_column(builder: SelectBuilder, node: exp.Expr, count: int) -> None:
    if count != 1:
        raise builder.source.error(node, f"a scalar subquery has one column, not {count}")


def _join_simple_scalar(builder: SelectBuilder, node: exp.Expr) -> tuple[PlanNode, Expression]:
    """Join a scalar subquery that is not correlated, or is a single aggregate; or the current time.

    Raises:
        CorrelatedSqlError: It is correlated in another form.
    """
    if isinstance(node, exp.CurrentTimestamp):
        time = CurrentTime()
        return CrossJoin((builder.plan, time)), Column(builder.width, time.fields[0].type)
    source = builder.source
    query = strip_parentheses(node)
    clause = builder.clause("a scalar subquery")
    if isinstance(query, exp.Select) and is_grouped(query) and len(query.expressions) == 1:
        # With one of these clauses, it is read like any other subquery.
        other_clauses = (
            *("group", "having", "distinct", "qualify", "windows"),
            *("limit", "offset", "order", "with_"),
        )
        if not any(query.args.get(name) for name in other_clauses):
            return _join_aggregate(builder, clause, query)
    if not isinstance(query, exp.Query):
        raise source.unsupported(node, f"{query.key.upper()} as a value")
    inner = read_subquery(builder, query, may_correlate=False)
    _check_one_column(builder, node, len(inner.outputs))
    value = number_over_join(inner.outputs[0], builder.width)
    plan, always_has_row = _with_single_row(inner.plan, 0)
    if always_has_row:
        return CrossJoin((builder.plan, plan)), value
    return OuterJoin(builder.plan, plan, Literal(True, pa.bool_())), value


def _count_rows(plan: PlanNode, key_width: int = 0) -> RowCount | None:
    """Return whether a plan always has one row, or at most one; None if it can have several.

    Args:
        plan: The rows.
        key_width: The number of first columns that are a key. The rows of each key are counted; a
            key without rows does not count. With 0, all rows are counted.
    """
    own_keys = tuple(range(key_width))
    if isinstance(plan, Window):
        return _count_rows(plan.input, key_width)
    if isinstance(plan, Map):
        if plan.expressions[:key_width] != columns(plan.input)[:key_width]:
            return None
        return _count_rows(plan.input, key_width)
    if isinstance(plan, Filter):
        return "at most one" if _count_rows(plan.input, key_width) else None
    if isinstance(plan, Aggregate):
        return "one" if plan.keys == own_keys else None
    # An aggregate with a row for each key, even for one without rows.
    if isinstance(plan, Union) and is_padded_aggregate(plan, key_width):
        return "one"
    if isinstance(plan, TopK):
        limits_to_one = plan.keys == own_keys and plan.limit is not None and plan.limit <= 1
        return "at most one" if limits_to_one or _count_rows(plan.input, key_width) else None
    if isinstance(plan, Values) and len(plan.rows) == 1 and not key_width:
        return "one"
    return None


def _join_aggregate(
    builder: SelectBuilder, clause: Clause, query: exp.Select
) -> tuple[PlanNode, Expression]:
    """Join a single aggregate, grouped by the inner sides of its correlated equalities."""
    source = builder.source
    source.allow_arguments(query, "expressions", "from_", "joins", "laterals", "where")
    inner = builder.queries.read_from_and_where(builder.environment, query, builder.scope)
    item = query.expressions[0]
    if isinstance(item, exp.Alias):
        source.allow_arguments(item, "this", "alias")
        item = item.this
    grouping = Grouping(inner)
    value = grouping.clause("SELECT").read(item)
    conditions = [
        add_condition_keys(grouping, condition_node, condition)
        for condition_node, condition in inner.correlated_conditions
    ]
    if conditions and grouping.has_subqueries:
        # A subquery in the item is joined to the groups, so it has no value for a row without a
        # group. The plan with a domain has a group for each row.
        raise source.correlated(
            query, "a subquery beside an aggregate in a correlated subquery", CORRELATION_ADVICE
        )
    plan = grouping.build_plan()
    value = grouping.rewrite_over_groups(item, value)
    width = builder.width
    if not conditions:
        return CrossJoin((builder.plan, plan)), number_over_join(value, width)

    def count_no_rows_as_zero(column: Column) -> Expression:
        joined_column = number_over_join(column, width)
        if not is_outer_column(column.index) and grouping.is_count(column.index):
            return clause.call(query, "coalesce", joined_column, integer_literal(0))
        return joined_column

    value = substitute(value, count_no_rows_as_zero)
    conditions = [grouping.rewrite_over_groups(query, condition) for condition in conditions]
    parts = [number_over_join(condition, width) for condition in conditions]
    if any(map(is_correlated, parts)):
        raise source.correlated(query, "a condition that spans three queries", CORRELATION_ADVICE)
    return OuterJoin(builder.plan, plan, conjunction(parts)), value
