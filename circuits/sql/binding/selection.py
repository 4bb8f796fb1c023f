"""A SELECT that has been read up to its list: the plan so far, and the clauses that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.plan.nodes import PlanNode
from circuits.sql.binding.environment import RowNumberRange
from circuits.sql.binding.ordering import SortKey
from circuits.sql.binding.scope import Domain
from circuits.sql.syntax.source import SqlSource

__all__ = ["BoundedRowNumber", "Selection"]


@dataclass(frozen=True)
class BoundedRowNumber:
    """A row_number() of which a condition keeps only the numbers of a range."""

    partition_by: tuple[Expression, ...]
    order_by: tuple[SortKey, ...]
    kept_numbers: RowNumberRange

    def map(self, change: Callable[[Expression], Expression]) -> BoundedRowNumber:
        """Return the row_number() with other expressions."""
        return BoundedRowNumber(
            tuple(map(change, self.partition_by)),
            tuple(key.map(change) for key in self.order_by),
            self.kept_numbers,
        )


@dataclass
class Selection:
    """A SELECT up to its list, and the clauses that follow it.

    All expressions are over ``plan`` and, if the query is correlated, over outer columns (see
    `circuits.sql.binding.scope`).

    Args:
        node: The syntax tree.
        source: The text.
        plan: FROM, WHERE, GROUP BY and HAVING.
        names: The names of the columns of the list.
        outputs: The expressions of the list.
        correlated_conditions: The conditions that the enclosing query must apply.
        row_number: The row_number() that QUALIFY or an enclosing query bounds.
        order_by: The sort keys of ORDER BY.
        filters: The conditions of QUALIFY, except the bound of ``row_number``.
        domain: If the query is correlated, the values of the enclosing query that the plan is
            joined with (`circuits.sql.queries.decorrelation`); else None.
        domain_columns: The columns of these values in the plan.
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
    filters: tuple[Expression, ...] = ()
    domain: Domain | None = None
    domain_columns: tuple[Expression, ...] = ()
    distinct_on: tuple[Expression, ...] = ()

    @property
    def expressions(self) -> Iterator[Expression]:
        """All expressions over the plan."""
        yield from (*self.outputs, *self.correlated_conditions, *self.filters)
        yield from (*self.domain_columns, *self.distinct_on)
        yield from (key.expression for key in self.order_by)
        if self.row_number is not None:
            yield from self.row_number.partition_by
            yield from (key.expression for key in self.row_number.order_by)

    def map(self, change: Callable[[Expression], Expression]) -> Selection:
        """Return the selection with other expressions."""
        return replace(
            self,
            outputs=tuple(map(change, self.outputs)),
            correlated_conditions=tuple(map(change, self.correlated_conditions)),
            row_number=self.row_number and self.row_number.map(change),
            order_by=tuple(key.map(change) for key in self.order_by),
            filters=tuple(map(change, self.filters)),
            domain_columns=tuple(map(change, self.domain_columns)),
            distinct_on=tuple(map(change, self.distinct_on)),
        )
