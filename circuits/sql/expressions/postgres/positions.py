"""Positions and lengths as in PostgreSQL, which may be before the first element."""

from __future__ import annotations

from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import integer_literal

__all__ = ["at_least"]


def at_least(clause: Clause, node: exp.Expr, value: Expression, least: int) -> Expression:
    """Return the greater of a value and a constant; NULL if the value is NULL."""
    if isinstance(value, Literal) and isinstance(value.value, int):
        return value if value.value >= least else integer_literal(least)
    is_less = clause.call(node, "lt", value, integer_literal(least))
    return clause.call(node, "case", is_less, integer_literal(least), value)
