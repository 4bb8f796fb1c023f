"""Correlated subqueries of any form: one plan for all values of the enclosing query.

::

    D          = distinct(the outer columns that the subquery names)     the domain
    Q'(D)      = the rows of the subquery for each d in D: the columns of d, then those of Q
    rows ⋈ Q   = rows ⋈ Q'(D)  on  the outer columns IS NOT DISTINCT FROM those of d

Q' is the plan of Q with D in its FROM clause, in which an outer column is a column of D. Every
operator keeps the columns of D: they are further keys of GROUP BY, of LIMIT and of PARTITION BY,
and columns of both sides of a set operation. An aggregate without GROUP BY has a row for every d,
also for those without rows. So a subquery may name columns of the enclosing queries at any depth
and in any clause, and the subqueries in it are planned in the same way.

The common forms of EXISTS, IN and single aggregates need no domain
(`circuits.sql.queries.subqueries`). They are tried first.

Cost: D is maintained as any DISTINCT. If D already has the values of a new outer row, nothing below
D changes.

Reference: Neumann, Kemper. Unnesting Arbitrary Queries. BTW 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from circuits.errors import SqlError
from circuits.plan.expressions import Column, Expression, shift_columns
from circuits.plan.nodes import CrossJoin, Distinct, Filter, Map, PlanNode, Values, columns
from circuits.sql.binding.environment import NO_BOUNDS, DerivedTable, RowNumberBounds
from circuits.sql.binding.scope import Domain, Scope, is_correlated
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.types.functions import call

__all__ = [
    "CorrelatedQuery",
    "domain_columns_of",
    "filter_all",
    "links_between",
    "plan_correlated_query",
    "with_domain",
]


@dataclass(frozen=True)
class CorrelatedQuery:
    """The plan of a subquery for all values that it names.

    Args:
        derived: The plan: the columns of the domain, then those of the subquery.
        outer_values: The values of the domain, over the plan of the enclosing query.
    """

    derived: DerivedTable
    outer_values: tuple[Expression, ...]

    @property
    def width(self) -> int:
        """The number of columns of the domain."""
        return len(self.outer_values)

    @property
    def plan(self) -> PlanNode:
        return self.derived.plan


def plan_correlated_query(
    builder: SelectBuilder, query: exp.Expr, row_number_bounds: RowNumberBounds = NO_BOUNDS
) -> CorrelatedQuery:
    """Return the plan of a subquery for all values of the enclosing rows that it names.

    The subquery is first read with all outer columns whose names occur in it. If some of these
    names are columns of the subquery itself, it is read again without them.
    """
    scope = builder.scope
    values = _candidates(scope, query)
    while True:
        domain = _make_domain(builder, scope, values)
        environment = replace(builder.environment, domain=domain, unreachable_scope=None)
        derived = environment.queries.plan_query(environment, query, row_number_bounds)
        used_indices = sorted(domain.used)
        if derived.domain is None or len(used_indices) == len(values):
            return CorrelatedQuery(derived, values if derived.domain is not None else ())
        values = tuple(values[index] for index in used_indices)


def _candidates(scope: Scope, query: exp.Expr) -> tuple[Expression, ...]:
    """Return the columns of the enclosing queries that have the name of a column in a query."""
    values: dict[Expression, None] = dict.fromkeys(scope.domain_columns)
    for node in query.find_all(exp.Column):
        if isinstance(node.this, exp.Star):
            columns = [column for column in scope.columns if column.is_of_table(node.table)]
            values |= dict.fromkeys(column.value for column in columns)
            continue
        try:
            value = scope.find(scope.without_fields(node))
        except SqlError:
            continue  # ambiguous here, which is an error only if the query has no such column
        if value is not None and not is_correlated(value):
            values.setdefault(value)
    if scope.source.is_spark and any(map(_has_star_without_from, query.find_all(exp.Select))):
        values |= dict.fromkeys(column.value for column in scope.columns)
    return tuple(values)


def _has_star_without_from(select: exp.Select) -> bool:
    is_star = any(isinstance(item, exp.Star) for item in select.expressions)
    return is_star and select.args.get("from_") is None


def _make_domain(builder: SelectBuilder, scope: Scope, values: tuple[Expression, ...]) -> Domain:
    if not values:
        return Domain(scope, values, Values((), ((),)))
    qualified_names = {column.value: column.qualified_name for column in scope.columns}
    names = tuple(
        qualified_names.get(value, f"outer.{number}") for number, value in enumerate(values)
    )
    plan, outer_values = builder.outer_rows(values)
    return Domain(scope, values, Distinct(Map(plan, outer_values, names)))


def with_domain(derived: DerivedTable, domain: Domain) -> PlanNode:
    """Return the plan of a query with the columns of a domain first."""
    if derived.domain is domain:
        return derived.plan
    return CrossJoin((domain.plan, derived.plan)) if domain.width else derived.plan


def links_between(
    left: Sequence[Expression], right: Sequence[Expression], offset: int = 0
) -> list[Expression]:
    """Return the conditions that columns have the same values; NULL is the same as NULL.

    Args:
        left: Expressions.
        right: Columns, numbered from ``offset`` on in the result.
        offset: The number of columns to the left of those of ``right``.
    """
    return [
        call("same", left_value, shift_columns(right_value, offset))
        for left_value, right_value in zip(left, right, strict=True)
    ]


def filter_all(plan: PlanNode, conditions: Sequence[Expression]) -> PlanNode:
    """Return the rows for which all conditions are true."""
    for condition in conditions:
        plan = Filter(plan, condition)
    return plan


def domain_columns_of(derived: DerivedTable) -> tuple[Column, ...]:
    """Return the columns of the domain in a plan."""
    return columns(derived.plan)[: derived.domain_width]
