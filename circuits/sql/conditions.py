"""Conditions of WHERE and ON: filters, and semijoins for EXISTS and IN.

Each part of a conjunction is a Filter. EXISTS and IN are a Semijoin (`circuits.sql.subqueries`),
also below OR and NOT (`circuits.sql.disjunctions`).
"""

from __future__ import annotations

from sqlglot import exp

from circuits.sql import disjunctions, subqueries
from circuits.sql.select_builder import SelectBuilder, conjuncts_of

__all__ = ["restrict"]


def restrict(
    rows: SelectBuilder, condition: exp.Expr, name: str, done: frozenset[int] = frozenset()
) -> None:
    """Keep the rows for which a condition of clause ``name`` is true.

    Conditions without subqueries come first. Parts whose ``id`` is in ``done`` are left out.
    """
    parts = [part for part in conjuncts_of(condition) if id(part) not in done]
    plain = [part for part in parts if not _has_query(part)]
    for part in plain + [part for part in parts if _has_query(part)]:
        if subqueries.is_membership(part):
            rows.plan = subqueries.plan_semijoin(rows, rows.clause(name), part)
        elif _has_query(part) and disjunctions.has_membership(part):
            rows.plan = disjunctions.filter_by_disjunction(rows, name, part)
        else:
            rows.filter_by(part, rows.clause(name).predicate(part))


def _has_query(node: exp.Expr) -> bool:
    return any(isinstance(part, exp.Query) for part in node.walk())
