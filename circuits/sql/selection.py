"""A SELECT that has been read up to its list: the plan so far and the clauses that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.plan.nodes import Plan
from circuits.sql.environment import RankRange
from circuits.sql.ordering import SortKey
from circuits.sql.source import SqlSource

__all__ = ["Rank", "Selection"]


@dataclass(frozen=True)
class Rank:
    """A bounded row_number(): the keys of the groups, the order in them, and the bounds."""

    keys: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    bounds: RankRange

    def map(self, change: Callable[[Expression], Expression]) -> Rank:
        """Return the rank with other expressions."""
        keys, order = tuple(map(change, self.keys)), tuple(key.map(change) for key in self.order)
        return Rank(keys, order, self.bounds)


@dataclass
class Selection:
    """A SELECT up to its list, and the clauses that follow it.

    All expressions are over ``plan`` and, if the query is correlated, over the columns of the
    enclosing query. ``conditions`` are those of a correlated query, ``filters`` those of QUALIFY.
    """

    node: exp.Select
    source: SqlSource
    plan: Plan
    names: tuple[str, ...]
    outputs: tuple[Expression, ...]
    conditions: tuple[Expression, ...]
    rank: Rank | None
    order: tuple[SortKey, ...]
    filters: tuple[Expression, ...] = ()

    @property
    def expressions(self) -> Iterator[Expression]:
        """All expressions over the plan."""
        yield from (*self.outputs, *self.conditions, *self.filters)
        yield from (key.expression for key in self.order)
        if self.rank is not None:
            yield from (*self.rank.keys, *(key.expression for key in self.rank.order))

    def map(self, change: Callable[[Expression], Expression]) -> Selection:
        """Return the selection with other expressions."""
        return replace(
            self,
            outputs=tuple(map(change, self.outputs)),
            conditions=tuple(map(change, self.conditions)),
            rank=self.rank and self.rank.map(change),
            order=tuple(key.map(change) for key in self.order),
            filters=tuple(map(change, self.filters)),
        )
