"""Queries of any kind: SELECT, set operations, VALUES, and these in brackets.

This is the module that `circuits.sql.environment.Queries` describes; the readers of FROM and of
subqueries reach it through their environment, so that imports go one way.
"""

from __future__ import annotations

from sqlglot import exp

from circuits.sql.environment import NO_RANKS, Derived, Environment, Ranks
from circuits.sql.recursion import recursive
from circuits.sql.select import finished, opened, selected
from circuits.sql.setops import limited, set_operation
from circuits.sql.subqueries import scalar
from circuits.sql.values import read_values

__all__ = ["finished", "opened", "plan", "recursive", "scalar", "selected"]


def plan(environment: Environment, node: exp.Expr, ranks: Ranks = NO_RANKS) -> Derived:
    """The plan of a query that stands alone.

    Args:
        environment: What it can name.
        node: Its syntax tree.
        ranks: Bounds of its columns that are a row_number(), from the query around it.
    """
    source = environment.source
    if isinstance(node, exp.Select):
        return finished(selected(environment, node, None, ranks))
    if isinstance(node, exp.Subquery):
        source.only(node, "this", "with_", "order", "limit", "offset")
        environment = environment.within(node)
        derived = plan(environment, node.this, ranks)
        if not any(node.args.get(name) for name in ("order", "limit", "offset")):
            return derived
        return Derived(limited(environment, node, derived.complete(source, node)))
    if isinstance(node, exp.SetOperation):
        return Derived(set_operation(environment, node))
    if isinstance(node, exp.Values):
        source.only(node, "expressions")
        return Derived(read_values(environment, node))
    construct = source.construct(node)
    raise source.unsupported(node, f"{construct} as a query", "there is SELECT", node.key)
