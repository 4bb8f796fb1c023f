"""Nullability: which columns and expressions of a plan are never NULL.

Each node class defines which of its columns may be NULL
(`circuits.plan.node.PlanNode.is_nullable`); a column that is never NULL needs no IS NOT NULL
filter.
"""

from __future__ import annotations

from circuits.plan.expressions import Expression, may_be_null
from circuits.plan.nodes import Field, Fields, PlanNode

__all__ = ["is_nullable", "with_nullability"]


def is_nullable(plan: PlanNode, expression: Expression) -> bool:
    """Return False if an expression over the plan's columns is never NULL.

    >>> import pyarrow as pa
    >>> from circuits.plan.expressions import Column
    >>> from circuits.plan.nodes import Field, Scan
    >>> e = Scan("e", (Field("src", pa.int64()), Field("dst", pa.int64(), nullable=False)))
    >>> [is_nullable(e, Column(k, pa.int64())) for k in range(2)]
    [True, False]
    """
    return may_be_null(expression, plan.is_nullable)


def with_nullability(plan: PlanNode) -> Fields:
    """The columns of a plan, each with ``nullable`` False if it is never NULL."""
    return tuple(
        Field(field.name, field.type, plan.is_nullable(column))
        for column, field in enumerate(plan.fields)
    )
