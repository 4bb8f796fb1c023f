"""Queries of any kind: SELECT, set operations, VALUES, and these in brackets.

This module implements `circuits.sql.rows.QueryReader`. The readers of FROM and of subqueries get it
from their environment, so that imports go one way.
"""

from __future__ import annotations

from sqlglot import exp

from circuits.sql.environment import NO_RANK_RANGES, DerivedTable, Environment, RankRanges
from circuits.sql.recursion import plan_recursive
from circuits.sql.select import finish_selection, read_rows, read_selection
from circuits.sql.set_operations import apply_limit, plan_set_operation
from circuits.sql.subqueries import join_scalar
from circuits.sql.unnesting import read_generator
from circuits.sql.values import read_values

__all__ = [
    "finish_selection",
    "join_scalar",
    "plan_query",
    "plan_recursive",
    "read_generator",
    "read_rows",
    "read_selection",
]


def plan_query(
    environment: Environment, node: exp.Expr, ranks: RankRanges = NO_RANK_RANGES
) -> DerivedTable:
    """Return the plan of a query that is not correlated.

    Args:
        environment: The names that it can use.
        node: Its syntax tree.
        ranks: The ranks that the enclosing query keeps of columns that are a row_number().
    """
    source = environment.source
    if isinstance(node, exp.Select):
        return finish_selection(read_selection(environment, node, None, ranks))
    if isinstance(node, exp.Subquery):
        source.accept(node, "this", "with_", "order", "limit", "offset")
        environment = environment.with_common_tables(node)
        derived = plan_query(environment, node.this, ranks)
        if not any(node.args.get(name) for name in ("order", "limit", "offset")):
            return derived
        return DerivedTable(apply_limit(environment, node, derived.complete(source, node)))
    if isinstance(node, exp.SetOperation):
        return DerivedTable(plan_set_operation(environment, node))
    if isinstance(node, exp.Values):
        source.accept(node, "expressions")
        return DerivedTable(read_values(environment, node))
    construct = source.construct(node)
    raise source.unsupported(node, f"{construct} as a query", "there is SELECT", node.key)
