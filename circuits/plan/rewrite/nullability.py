"""Which columns of a plan can be NULL: those for which nothing says that they are not."""

from __future__ import annotations

from typing import Final

from circuits.plan.expressions import Call, Column, Expression, Literal, conjuncts
from circuits.plan.nodes import (
    Aggregate,
    Branching,
    CrossJoin,
    Distinct,
    Field,
    Fields,
    Filter,
    Fixpoint,
    Join,
    Map,
    Negate,
    PartialAggregate,
    Plan,
    Positive,
    RecursiveDistinct,
    RecursiveReference,
    RowIdEncode,
    Scan,
    Semijoin,
    TopK,
    Union,
    columns,
)

__all__ = ["COMPARISONS", "is_nullable", "promised"]

# Never true of NULL.
COMPARISONS: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def is_nullable(plan: Plan, expression: Expression) -> bool:
    """Whether an expression over the plan's columns may be NULL.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field
    >>> e = Scan("e", (Field("src", pa.int64()), Field("dst", pa.int64(), nullable=False)))
    >>> [is_nullable(e, Column(k, pa.int64())) for k in range(2)]
    [True, False]
    """
    if isinstance(expression, Literal):
        return expression.value is None
    if isinstance(expression, Call):
        if expression.function == "cast":
            return is_nullable(plan, expression.arguments[0])
        return expression.function not in ("is_null", "is_true", "same")
    if not isinstance(plan, Branching):
        return _is_nullable(plan, expression)
    key = "nullable", expression.index
    if key not in plan.memo:
        plan.memo[key] = _is_nullable(plan, expression)
    return bool(plan.memo[key])


def _is_nullable(plan: Plan, expression: Column) -> bool:
    column = expression.index
    match plan:
        case Scan(_, fields) | RecursiveReference(_, fields):
            return fields[column].nullable
        case Fixpoint():
            return plan.fields[column].nullable
        case Filter(below, predicate):
            return is_nullable(below, expression) and not any(
                _says_present(part, column) for part in conjuncts([predicate])
            )
        case Map(below, expressions):
            return is_nullable(below, expressions[column])
        case CrossJoin(inputs):
            for below in inputs:
                if column < len(below.fields):
                    return is_nullable(below, Column(column, expression.type))
                column -= len(below.fields)
        case Semijoin(below):
            return is_nullable(below, expression)
        case Union(inputs):
            return any(is_nullable(p, expression) for p in inputs)
        case (
            Negate(below)
            | Distinct(below)
            | Positive(below)
            | TopK(below)
            | RecursiveDistinct(below)
        ):
            return is_nullable(below, expression)
        case Aggregate(below, keys, calls):
            if column < len(keys):
                return is_nullable(below, Column(keys[column], expression.type))
            return calls[column - len(keys)].function != "count"
        case RowIdEncode(below, kept) | PartialAggregate(below, kept):
            return column < kept and is_nullable(below, expression)
        case Join(inputs, variables, _, head):
            return all(
                is_nullable(p, Column(names.index(head[column]), expression.type))
                for p, names in zip(inputs, variables, strict=True)
                if head[column] in names
            )
    return True


def promised(plan: Plan) -> Fields:
    """The columns of a plan, with a promise for those that nothing lets be NULL."""
    return tuple(
        Field(field.name, field.type, is_nullable(plan, column))
        for field, column in zip(plan.fields, columns(plan), strict=True)
    )


def _says_present(part: Expression, column: int) -> bool:
    """Whether a column is not NULL where a condition is true: it is compared, or said not to be."""
    if not isinstance(part, Call):
        return False
    if part.function in COMPARISONS:
        return any(isinstance(side, Column) and side.index == column for side in part.arguments)
    if part.function != "not":
        return False
    (inner,) = part.arguments
    if not (isinstance(inner, Call) and inner.function == "is_null"):
        return False
    (subject,) = inner.arguments
    return isinstance(subject, Column) and subject.index == column
