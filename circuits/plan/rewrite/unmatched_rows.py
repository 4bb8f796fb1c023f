"""Left joins of which only the rows without partner are asked for: antijoins.

::

    σ[r IS NULL](A ⟕ R)  =  (A ▷ R) x NULLs        where r is a column of R, never NULL in a partner

So ``LEFT JOIN ... WHERE r.key IS NULL`` costs what ``NOT EXISTS`` does, and the keys of A need not
be kept. A column is never NULL in a partner when nothing lets it be NULL, or when the join compares
it, which is never true of NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

from circuits.plan.expressions import COMPARISONS, Call, Column, Expression, Literal, conjuncts
from circuits.plan.nodes import Filter, Map, OuterJoin, Plan, Semijoin, columns
from circuits.plan.rewrite.nullability import is_nullable

__all__ = ["as_antijoin"]


def as_antijoin(plan: Filter) -> Plan:
    """Filters of a left join as filters of an antijoin; the same plan where it is none."""
    outer: Plan = plan
    parts: list[Expression] = []
    while isinstance(outer, Filter):
        parts = [*conjuncts([outer.predicate]), *parts]
        outer = outer.input
    if not (isinstance(outer, OuterJoin) and outer.kind == "left"):
        return plan
    left, right = outer.left, outer.right
    width = len(left.fields)
    compared = set(_compared(outer.predicate))
    for part in parts:
        column = _tested(part)
        if column is None or column.index < width:
            continue
        within = Column(column.index - width, column.type)
        if column.index in compared or not is_nullable(right, within):
            nulls = [Literal(None, field.type) for field in right.fields]
            names = tuple(field.name for field in outer.fields)
            alone = Semijoin(left, right, outer.predicate, anti=True)
            rows: Plan = Map(alone, (*columns(left), *nulls), names)
            for other in parts:
                rows = rows if other is part else Filter(rows, other)
            return rows
    return plan


def _tested(part: Expression) -> Column | None:
    """The column of ``column IS NULL``."""
    if isinstance(part, Call) and part.function == "is_null":
        (subject,) = part.arguments
        return subject if isinstance(subject, Column) else None
    return None


def _compared(predicate: Expression) -> Iterator[int]:
    """The columns that are not NULL where the predicate is true, because it compares them."""
    for part in conjuncts([predicate]):
        if isinstance(part, Call) and part.function in COMPARISONS:
            for side in part.arguments:
                while isinstance(side, Call) and side.function == "cast":
                    (side,) = side.arguments
                if isinstance(side, Column):
                    yield side.index
