"""A SELECT that has been read up to its list: the plan so far, and the clauses that follow."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.plan.nodes import PlanNode
from circuits.sql.environment import RankRange
from circuits.sql.ordering import SortKey
from circuits.sql.scope import Domain
from circuits.sql.source import SqlSource, Unsupported

__all__ = ["BoundedRowNumber", "Selection"]


@dataclass(frozen=True)
class BoundedRowNumber:
    """A row_number() of which a condition keeps only some ranks."""

    partition_by: tuple[Expression, ...]
    order_by: tuple[SortKey, ...]
    ranks: RankRange


@dataclass
class Selection:
    """A SELECT up to its list, and the clauses that follow it.

    All expressions are over ``plan`` and, if the query is correlated, over outer columns (see
    `circuits.sql.scope`).

    Args:
        node: The syntax tree.
        source: The text.
        plan: FROM, WHERE, GROUP BY and HAVING.
        names: The names of the columns of the list.
        outputs: The expressions of the list.
        correlated_conditions: The conditions that the enclosing query must apply.
        row_number: The row_number() that QUALIFY or an enclosing query bounds.
        order_by: The sort keys of ORDER BY.
        unreadable_columns: The error for reading a column, by its index.
        domain: The values of the enclosing query that the plan is joined with, if it is.
        domain_columns: Their columns in the plan.
        distinct_on: The expressions of DISTINCT ON: one row for each of their values.
    """

    node: exp.Select
    source: SqlSource
    plan: PlanNode
    names: tuple[str, ...]
    outputs: tuple[Expression, ...]
    correlated_conditions: tuple[Expression, ...]
    row_number: BoundedRowNumber | None
    order_by: tuple[SortKey, ...]
    unreadable_columns: dict[int, Unsupported]
    domain: Domain | None
    domain_columns: tuple[Expression, ...]
    distinct_on: tuple[Expression, ...] = ()
