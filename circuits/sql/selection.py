"""A SELECT that has been read up to its list: the plan so far and the clauses that follow."""

from __future__ import annotations

from dataclasses import dataclass

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
