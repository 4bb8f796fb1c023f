"""Queries of any kind: SELECT, set operations, VALUES, and these in brackets.

This is the module that `circuits.sql.environment.Queries` describes; the readers of FROM and of
subqueries reach it through their environment, so that imports go one way.
"""

from __future__ import annotations

from sqlglot import exp

from circuits.sql.environment import NO_RANK_RANGES, DerivedTable, Environment, RankRanges
from circuits.sql.recursion import plan_recursive
from circuits.sql.select import finish_selection, read_rows, read_selection
from circuits.sql.set_operations import apply_limit, plan_set_operation
from circuits.sql.subqueries import join_scalar
from circuits.sql.values import read_values

__all__ = [
    "finish_selection",
    "join_scalar",
    "plan_query",
    "plan_recursive",
    "read_rows",
    "read_selection",
]


def plan_query(
    environment: Environment, node: exp.Expr, ranks: RankRanges = NO_RANK_RANGES
) -> DerivedTable:
    """The plan of a query that stands alone.

    Args:
        environment: What it can name.
        node: Its syntax tree.
        ranks: Bounds of its columns that are a row_number(), from the query around it.
    """
    source = environment.source
    if isinstance(node, exp.Select):
        return finish_selection(read_selection(environment, node, None, ranks))
    if isinstance(node, exp.Subquery):
        source.only(node, "this", "with_", "order", "limit", "offset")
        environment = environment.with_common_tables(node)
        derived = plan_query(environment, node.this, ranks)
        if not any(node.args.get(name) for name in ("order", "limit", "offset")):
            return derived
        return DerivedTable(apply_limit(environment, node, derived.complete(source, node)))
    if isinstance(node, exp.SetOperation):
        return DerivedTable(plan_set_operation(environment, node))
    if isinstance(node, exp.Values):
        source.only(node, "expressions")
        return DerivedTable(read_values(environment, node))
    construct = source.construct(node)
    raise source.unsupported(node, f"{construct} as a query", "there is SELECT", node.key)
