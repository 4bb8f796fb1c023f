"""Queries of any kind: SELECT, set operations, VALUES, and these in parentheses.

This module implements `circuits.sql.binding.select_builder.QueryReader`. The modules that read FROM
and subqueries get it from their environment (`Environment.queries`), so that there is no import
cycle.

To support another kind of query, write its planner and add it to ``QUERY_PLANNERS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from circuits.sql.binding.environment import (
    NO_BOUNDS,
    CommonTable,
    DerivedTable,
    Environment,
    RowNumberBounds,
)
from circuits.sql.queries.equations import Equation, plan_equations
from circuits.sql.queries.memberships import read_membership
from circuits.sql.queries.pivots import plan_pivot_statement
from circuits.sql.queries.recursion import plan_recursive
from circuits.sql.queries.scalar_subqueries import join_scalar, read_scalar
from circuits.sql.queries.select import finish_selection, read_from_and_where, read_selection
from circuits.sql.queries.set_operations import apply_limit, plan_set_operation
from circuits.sql.queries.unnesting import read_generator
from circuits.sql.queries.values import read_values

__all__ = [
    "finish_selection",
    "join_scalar",
    "plan_mutual",
    "plan_query",
    "plan_recursive",
    "read_from_and_where",
    "read_generator",
    "read_membership",
    "read_scalar",
    "read_selection",
]


def plan_query(
    environment: Environment, node: exp.Expr, row_number_bounds: RowNumberBounds = NO_BOUNDS
) -> DerivedTable:
    """Return the plan of a query that is not correlated.

    Args:
        environment: The names that it can use.
        node: Its syntax tree.
        row_number_bounds: For each column that is a row_number(): the numbers that the enclosing
            query keeps.
    """
    planner = QUERY_PLANNERS.get(type(node))
    if planner is None:
        source = environment.source
        construct = f"{source.describe(node)} as a query"
        raise source.unsupported(node, construct, "write a SELECT", node.key)
    return planner(environment, node, row_number_bounds)


def plan_mutual(table: CommonTable) -> DerivedTable:
    """Return the plan of a WITH query that is one of several that name each other."""
    environment = replace(table.environment, domain=None)
    ctes = table.mutual or [table.node]
    equations = [
        Equation(
            cte.alias,
            cte,
            cte.this,
            cte.args["alias"].args.get("columns") or [],
            environment,
            keeps_duplicates=not _is_distinct(cte.this),
        )
        for cte in ctes
    ]
    for cte in ctes:
        environment.source.allow_arguments(cte, "this", "alias", "materialized")
        environment.source.allow_arguments(cte.args["alias"], "this", "columns")
    plans = plan_equations(equations)
    names = [equation.name for equation in equations]
    return DerivedTable(plans[names.index(table.node.alias)])


def _is_distinct(query: exp.Expr) -> bool:
    """Return whether the syntax of a query says that its rows are distinct."""
    while isinstance(query, exp.Subquery):
        query = query.this
    return bool(query.args.get("distinct"))


def _plan_select(
    environment: Environment, node: exp.Select, row_number_bounds: RowNumberBounds
) -> DerivedTable:
    parent = None if environment.domain is None else environment.domain.scope
    return finish_selection(read_selection(environment, node, parent, row_number_bounds))


def _plan_parentheses(
    environment: Environment, node: exp.Subquery, row_number_bounds: RowNumberBounds
) -> DerivedTable:
    source = environment.source
    source.allow_arguments(node, "this", "with_", "order", "limit", "offset")
    environment = environment.with_common_tables(node)
    derived = environment.plan_query(node.this, row_number_bounds)
    if not any(node.args.get(name) for name in ("order", "limit", "offset")):
        return derived
    plan = derived.plan
    limited = apply_limit(environment, node, plan, derived.domain_width)
    return DerivedTable(limited, domain=derived.domain)


def _plan_set_operation(
    environment: Environment, node: exp.SetOperation, row_number_bounds: RowNumberBounds
) -> DerivedTable:
    return plan_set_operation(environment, node)


def _plan_pivot(
    environment: Environment, node: exp.Pivot, row_number_bounds: RowNumberBounds
) -> DerivedTable:
    return plan_pivot_statement(environment, node)


def _plan_values(
    environment: Environment, node: exp.Values, row_number_bounds: RowNumberBounds
) -> DerivedTable:
    clauses = ("order", "limit", "offset")
    environment.source.allow_arguments(node, "expressions", "alias", "joins", "pivots", *clauses)
    derived = read_values(environment, node)
    if not any(node.args.get(name) for name in clauses):
        return derived
    limited = apply_limit(environment, node, derived.plan, derived.domain_width)
    return DerivedTable(limited, domain=derived.domain)


QUERY_PLANNERS: Final[
    dict[type[exp.Expr], Callable[[Environment, Any, RowNumberBounds], DerivedTable]]
] = {
    exp.Select: _plan_select,
    exp.Subquery: _plan_parentheses,
    exp.Union: _plan_set_operation,
    exp.Except: _plan_set_operation,
    exp.Intersect: _plan_set_operation,
    exp.Pivot: _plan_pivot,
    exp.Values: _plan_values,
}
