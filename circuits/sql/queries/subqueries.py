"""Subqueries: how a query inside an expression is read, with its correlated conditions.

`circuits.sql.queries.memberships` and `circuits.sql.queries.scalar_subqueries` plan them.

A correlated condition of the subquery (one that names outer columns, see
`circuits.sql.binding.scope`) becomes a part of the join predicate. If the subquery aggregates, the
condition must be an equality, whose inner side becomes a key of the aggregate (Galindo-Legaria and
Joshi, Orthogonal Optimization of Subqueries and Aggregation, SIGMOD 2001).

Any other correlated subquery is planned for all values of the outer columns that it names
(`circuits.sql.queries.decorrelation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    columns_of,
    shift_columns,
    substitute,
)
from circuits.plan.nodes import PlanNode, columns
from circuits.sql.aggregation.grouping import Grouping
from circuits.sql.binding.scope import (
    FIRST_OUTER_COLUMN,
    is_correlated,
    is_outer_column,
)
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.queries.decorrelation import plan_correlated_query
from circuits.sql.syntax.nodes import names_of_arguments, strip_parentheses
from circuits.sql.syntax.source import CorrelatedSqlError
from circuits.types.functions import call

__all__ = [
    "CORRELATION_ADVICE",
    "Subquery",
    "add_condition_keys",
    "number_over_join",
    "read_subquery",
]

CORRELATION_ADVICE: Final = "correlate it by conditions of its WHERE, joined by AND"


@dataclass(frozen=True)
class Subquery:
    """A subquery; the expressions are over the columns of ``plan`` and over outer columns."""

    plan: PlanNode
    outputs: tuple[Expression, ...]
    correlated_conditions: tuple[Expression, ...] = ()


def add_condition_keys(grouping: Grouping, node: exp.Expr, condition: Expression) -> Expression:
    """Make the inner side of a correlated equality a key of the groups; return the new equality.

    Raises:
        UnsupportedSqlError: The condition is not an equality of an inner with an outer value.
    """
    if all(map(is_outer_column, columns_of(condition))):
        return condition  # it does not read the subquery's rows
    if isinstance(condition, Call) and condition.function in ("eq", "same"):
        for inner, outer in (condition.arguments, condition.arguments[::-1]):
            outer_columns = columns_of(outer)
            is_all_outer = bool(outer_columns) and all(map(is_outer_column, outer_columns))
            if is_all_outer and not is_correlated(inner):
                return Call(condition.function, (grouping.add_key(inner), outer), condition.type)
    raise grouping.source.correlated(
        node,
        "a correlated condition below an aggregate that does not equate an inner with an outer "
        "value",
        "join the tables and aggregate the join",
    )


def read_subquery(
    builder: SelectBuilder, query: exp.Expr, *, exists: bool = False, may_correlate: bool = True
) -> Subquery:
    """Return a subquery, with its correlated conditions.

    Args:
        builder: The rows of the enclosing query.
        query: The subquery.
        exists: True if only the existence of its rows is used, as by EXISTS.
        may_correlate: False to refuse a correlated subquery.

    Raises:
        CorrelatedSqlError: It is correlated, and ``may_correlate`` is False.
    """
    try:
        subquery = _read_simple_subquery(builder, query, exists)
    except CorrelatedSqlError:
        if not may_correlate:
            raise
    else:
        has_conditions = bool(subquery.correlated_conditions)
        if may_correlate or not (has_conditions or any(map(is_correlated, subquery.outputs))):
            return subquery
        raise builder.source.correlated(query, "a correlated scalar subquery")
    correlated = plan_correlated_query(builder, strip_parentheses(query))
    plan = correlated.derived.plan
    keys = columns(plan)[: correlated.width]
    outer = [shift_columns(value, FIRST_OUTER_COLUMN) for value in correlated.outer_values]
    conditions = tuple(call("same", *pair) for pair in zip(outer, keys, strict=True))
    return Subquery(plan, columns(plan)[correlated.width :], conditions)


def _read_simple_subquery(builder: SelectBuilder, query: exp.Expr, exists: bool) -> Subquery:
    """Return a subquery whose correlated conditions are those of its WHERE.

    Raises:
        CorrelatedSqlError: It is correlated in another form.
    """
    query = strip_parentheses(query)
    environment = builder.environment
    if not isinstance(query, exp.Select):
        environment = environment.with_unreachable_scope(builder.scope)
        plan = environment.queries.plan_query(environment, query).plan
        return Subquery(plan, columns(plan))
    selection = builder.queries.read_selection(environment, query, builder.scope)
    if not selection.correlated_conditions and not any(map(is_correlated, selection.outputs)):
        plan = builder.queries.finish_selection(selection).plan
        return Subquery(plan, columns(plan))
    for name in ("qualify", "limit", "offset"):
        part = query.args.get(name)
        if part is None or (exists and name == "limit" and _is_positive_limit(part)):
            continue
        raise builder.source.correlated(
            part, f"{name.upper()} in a correlated subquery", CORRELATION_ADVICE, word=name
        )
    distinct = query.args.get("distinct")
    if distinct is not None:
        if distinct.args.get("on"):
            raise builder.source.correlated(query, "DISTINCT ON in a correlated subquery")
        builder.source.refuse_arguments(distinct)
    # DISTINCT and ORDER BY do not change whether there is a row.
    return Subquery(selection.plan, selection.outputs, selection.correlated_conditions)


def _is_positive_limit(node: exp.Expr) -> bool:
    """Return whether a LIMIT leaves at least one row, so that it does not change EXISTS."""
    if not isinstance(node, exp.Limit) or names_of_arguments(node) != ["expression"]:
        return False
    count = node.expression
    return isinstance(count, exp.Literal) and count.is_int and int(count.this) > 0


def number_over_join(expression: Expression, width: int) -> Expression:
    """Renumber the columns of an expression of a subquery for the join with the enclosing query.

    The join has the ``width`` columns of the enclosing query first, then those of the subquery.
    """

    def renumber(column: Column) -> Column:
        if is_outer_column(column.index):
            return Column(column.index - FIRST_OUTER_COLUMN, column.type)
        return Column(column.index + width, column.type)

    return substitute(expression, renumber)
