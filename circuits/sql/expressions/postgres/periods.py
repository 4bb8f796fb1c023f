"""OVERLAPS: two periods of time, with the rules of PostgreSQL.

Each period is a pair of bounds in any order. The later bound is not in the period, unless both are
equal. If one bound is NULL, the other is the start, and the end is unknown. The result is
NULL if it depends on an unknown end.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import NULL

__all__ = ["overlap_periods"]

_TRUE = Literal(True, pa.bool_())
Pair = tuple[Expression, Expression]


def overlap_periods(clause: Clause, node: exp.Expr, first: Pair, second: Pair) -> Expression:
    """Return whether two periods have a time in common."""
    (start, end), (other_start, other_end) = (
        _in_order(clause, node, period) for period in (first, second)
    )
    starts_later = clause.call(node, "gt", start, other_start)
    starts_earlier = clause.call(node, "lt", start, other_start)
    starts_together = clause.call(node, "eq", start, other_start)
    ends_are_known = clause.call(
        node, "and", *(_is_known(clause, node, bound) for bound in (end, other_end))
    )
    return clause.call(
        node,
        "case",
        starts_later,
        _is_before(clause, node, start, other_end, end),
        starts_earlier,
        _is_before(clause, node, other_start, end, other_end),
        clause.call(node, "and", starts_together, ends_are_known),
        _TRUE,
        Literal(None, pa.bool_()),
    )


def _is_before(
    clause: Clause, node: exp.Expr, start: Expression, end: Expression, own_end: Expression
) -> Expression:
    """Return whether a start is before an end; if not, NULL if the period has no end itself."""
    is_known = _is_known(clause, node, own_end)
    otherwise = clause.call(node, "case", is_known, Literal(False, pa.bool_()), NULL)
    return clause.call(node, "or", clause.call(node, "lt", start, end), otherwise)


def _is_known(clause: Clause, node: exp.Expr, bound: Expression) -> Expression:
    return clause.call(node, "not", clause.call(node, "is_null", bound))


def _in_order(clause: Clause, node: exp.Expr, bounds: Pair) -> Pair:
    """Return the start and the end of a period; if only one bound is known, it is the start."""
    is_ordered = clause.call(node, "le", *bounds)
    is_reversed = clause.call(node, "gt", *bounds)
    start, end = bounds
    known = clause.call(node, "coalesce", start, end)
    return (
        clause.call(node, "case", is_reversed, end, known),
        clause.call(node, "case", is_ordered, end, is_reversed, start, NULL),
    )
