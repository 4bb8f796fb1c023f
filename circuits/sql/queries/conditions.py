"""Conditions of WHERE and ON: filters, and semijoins for EXISTS and IN.

Each condition that AND connects becomes a Filter. EXISTS and IN become a Semijoin
(`circuits.sql.queries.memberships`), also inside OR and NOT (`circuits.sql.queries.disjunctions`).
"""

from __future__ import annotations

from sqlglot import exp

from circuits.sql.binding.select_builder import SelectBuilder, conjuncts_of
from circuits.sql.expressions.current_time import add_temporal_filter, reads_now
from circuits.sql.queries import disjunctions, memberships
from circuits.sql.queries.column_patterns import expand_condition

__all__ = ["has_query", "restrict"]


def restrict(
    builder: SelectBuilder,
    condition: exp.Expr,
    clause_name: str,
    applied: frozenset[int] = frozenset(),
) -> None:
    """Keep the rows for which a condition is true.

    Args:
        builder: The plan to restrict.
        condition: The condition of WHERE or ON.
        clause_name: The name of the clause, for errors.
        applied: The ``id`` of conditions in it that FROM has applied already.
    """
    parts = [
        expanded
        for part in conjuncts_of(condition)
        if id(part) not in applied
        for expanded in expand_condition(builder.scope, part)
    ]
    # Filters first, they are cheaper than semijoins; comparisons with the current time last, so
    # that the conditions of joins are next to the joins.
    parts.sort(key=lambda part: (_compares_with_now(part), has_query(part)))
    for part in parts:
        if _compares_with_now(part):
            add_temporal_filter(builder, part, clause_name)
        elif memberships.is_membership(part):
            builder.plan = memberships.plan_semijoin(builder, builder.clause(clause_name), part)
        elif has_query(part) and disjunctions.is_splittable(builder, part):
            builder.plan = disjunctions.filter_by_disjunction(builder, clause_name, part)
        else:
            builder.add_filter(part, builder.clause(clause_name).read_condition(part))


def _compares_with_now(part: exp.Expr) -> bool:
    return not memberships.is_membership(part) and reads_now(part)


def has_query(node: exp.Expr) -> bool:
    """Return whether an expression has a subquery."""
    return any(isinstance(part, exp.Query | exp.Values) for part in node.walk())
