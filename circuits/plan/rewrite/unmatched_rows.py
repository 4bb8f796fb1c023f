"""Unmatched rows: rewrite a left join that keeps only its unmatched rows as an antijoin.

::

    σ[r IS NULL](A ⟕ R)  =  (A ▷ R) x NULLs     if column r of R is not NULL in any matching row

So ``LEFT JOIN ... WHERE r.key IS NULL`` costs the same as ``NOT EXISTS``. It does without the
distinct keys of A, which the plan of an outer join stores (`circuits.plan.rewrite.outer_joins`). A
column is not NULL in any matching row if it is not nullable, or if the join predicate compares it,
since a comparison with NULL is never true.
"""

from __future__ import annotations

from collections.abc import Iterator

from circuits.plan.expressions import COMPARISONS, Call, Column, Expression, Literal, conjuncts
from circuits.plan.nodes import Filter, Map, OuterJoin, PlanNode, Semijoin, columns
from circuits.plan.rewrite.nullability import is_nullable

__all__ = ["as_antijoin"]


def as_antijoin(plan: Filter) -> PlanNode:
    """Rewrite filters of a left join as filters of an antijoin.

    Returns:
        The rewritten plan, or ``plan`` itself if the rule does not apply.
    """
    outer: PlanNode = plan
    parts: list[Expression] = []
    while isinstance(outer, Filter):
        parts = [*conjuncts([outer.predicate]), *parts]
        outer = outer.input
    if not (isinstance(outer, OuterJoin) and outer.kind == "left"):
        return plan
    left, right = outer.left, outer.right
    width = len(left.fields)
    compared = set(_compared_columns(outer.predicate))
    for part in parts:
        column = _null_test_column(part)
        if column is None or column.index < width:
            continue
        right_column = Column(column.index - width, column.type)
        if column.index in compared or not is_nullable(right, right_column):
            nulls = [Literal(None, field.type) for field in right.fields]
            names = tuple(field.name for field in outer.fields)
            unmatched = Semijoin(left, right, outer.predicate, anti=True)
            rows: PlanNode = Map(unmatched, (*columns(left), *nulls), names)
            for other in parts:
                if other is not part:
                    rows = Filter(rows, other)
            return rows
    return plan


def _null_test_column(part: Expression) -> Column | None:
    """Return the column of ``column IS NULL``; None for other conditions."""
    if isinstance(part, Call) and part.function == "is_null":
        (subject,) = part.arguments
        return subject if isinstance(subject, Column) else None
    return None


def _compared_columns(predicate: Expression) -> Iterator[int]:
    """Yield the columns that are not NULL where the predicate is true, because it compares them."""
    for part in conjuncts([predicate]):
        if isinstance(part, Call) and part.function in COMPARISONS:
            for side in part.arguments:
                while isinstance(side, Call) and side.function == "cast":
                    (side,) = side.arguments
                if isinstance(side, Column):
                    yield side.index
