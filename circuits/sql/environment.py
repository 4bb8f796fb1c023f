"""The names that a query can use: relations, earlier views, and the WITH queries around it.

A WITH query is a common table. It is planned at its first reference and shared from then on, so
that two references are two edges to one plan. It can name the WITH queries before it, and itself if
it is recursive, but nothing of the query that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from sqlglot import exp

from circuits.plan.nodes import Map, Plan, Scan, columns
from circuits.sql.parsing import WRITTEN
from circuits.sql.scope import Scope
from circuits.sql.source import SqlSource

__all__ = [
    "NO_RANK_RANGES",
    "CommonTable",
    "Environment",
    "QueryPlanner",
    "RankRange",
    "RankRanges",
    "check_rank_names",
    "rename_columns",
]


@dataclass(frozen=True)
class RankRange:
    """The ranks ``first`` (from 1) to ``last`` of a row_number()."""

    first: int
    last: int


# The ranks that an enclosing query keeps, by the name of a column that is a row_number(), without
# case.
RankRanges = Mapping[str, RankRange]
NO_RANK_RANGES: Final[RankRanges] = {}


class QueryPlanner(Protocol):
    """The part of the module `circuits.sql.query` that plans queries on their own.

    Queries contain queries. The environment hands the planner down, so that imports have no cycle.
    `circuits.sql.rows.QueryReader` is the complete interface.
    """

    def plan_recursive(self, common: CommonTable) -> Plan:
        """Return the plan of a WITH query that names itself."""

    def plan_query(
        self, environment: Environment, node: exp.Expr, ranks: RankRanges = NO_RANK_RANGES
    ) -> Plan:
        """Return the plan of a query that is not correlated."""


@dataclass(frozen=True)
class CommonTable:
    """A WITH query, the names that it can use, and its plans so far.

    The key of a plan is the ranks that an enclosing query keeps. A ``recursive`` query names
    itself.
    """

    node: exp.CTE
    environment: Environment
    recursive: bool = False
    plans: dict[tuple[tuple[str, RankRange], ...], Plan] = field(default_factory=dict)


@dataclass(frozen=True)
class Environment:
    """The names that a query can use, and the planner of the queries in it.

    Args:
        source: The text.
        relations: Relations and earlier views.
        queries: The planner of queries.
        common_tables: The WITH queries around, by name without case.
        hidden: The scope of an enclosing query whose columns SQL could name, but this package does
            not support it.
    """

    source: SqlSource
    relations: Mapping[str, Scan]
    queries: QueryPlanner
    common_tables: Mapping[str, CommonTable] = field(default_factory=dict)
    hidden: Scope | None = None

    def without_outer_columns(self, scope: Scope | None) -> Environment:
        """Return the environment of a query that cannot use the columns of the scope around it."""
        return self if scope is None else replace(self, hidden=scope)

    def with_common_tables(self, node: exp.Expr, parent: Scope | None = None) -> Environment:
        """Return the environment of a query below ``parent``, with its own WITH queries."""
        clause = node.args.get("with_")
        if clause is None:
            return self
        self.source.accept(clause, "expressions", "recursive")
        inner, own = self, set()
        for common in clause.expressions:
            self.source.accept(common, "this", "alias", "materialized")
            self.source.accept(common.args["alias"], "this", "columns")
            name = common.alias.casefold()
            if name in own:
                raise self.source.error(
                    common.args["alias"], f"two WITH queries are called {common.alias!r}"
                )
            own.add(name)
            if not isinstance(common.this, exp.Query | exp.Values):
                raise self.source.unsupported(
                    common.this,
                    f"{self.source.construct(common.this)} in WITH",
                    "there is SELECT",
                    word=common.this.key,
                )
            recursive = bool(clause.args.get("recursive")) and _is_named_in(common.this, name)
            made = CommonTable(common, inner.without_outer_columns(parent), recursive)
            inner = replace(inner, common_tables={**inner.common_tables, name: made})
        return inner

    def find_common_table(self, node: exp.Table) -> CommonTable | None:
        """Return the WITH query that a table name refers to, if it is one."""
        return None if node.db else self.common_tables.get(node.name.casefold())

    def plan_table(self, node: exp.Table, ranks: RankRanges) -> Plan:
        """Return the plan of a table by its name.

        Raises:
            SqlError: There is no such table.
        """
        if not isinstance(node.this, exp.Identifier):
            raise self.source.unsupported(
                node,
                f"{self.source.construct(node.this)} in FROM",
                "there are tables, queries and VALUES",
                word=str(node.this.meta.get(WRITTEN, "")),
            )
        common = self.find_common_table(node)
        if common is not None:
            return self._plan_common_table(common, ranks)
        key = node.name.casefold()
        names = [name for name in self.relations if name.casefold() == key]
        if node.name in names:
            names = [node.name]
        if len(names) > 1:
            both = ", ".join(names)
            raise self.source.error(node, f"table {node.name!r} is ambiguous: {both}")
        if not names:
            known = ", ".join([*self.relations, *self.common_tables]) or "none"
            raise self.source.error(node, f"unknown table {node.name!r}; there are: {known}")
        return self.relations[names[0]]

    def _plan_common_table(self, common: CommonTable, ranks: RankRanges) -> Plan:
        key = tuple(sorted(ranks.items(), key=lambda item: item[0]))
        if common.recursive:
            key = ()
            if key not in common.plans:
                common.plans[key] = self.queries.plan_recursive(common)
        elif key not in common.plans:
            plan = self.queries.plan_query(common.environment, common.node.this, ranks)
            names = common.node.args["alias"].args.get("columns") or []
            check_rank_names(self.source, common.node, plan, ranks)
            common.plans[key] = rename_columns(self.source, plan, names)
        return common.plans[key]


def _is_named_in(node: exp.Expr, name: str) -> bool:
    """Return whether a query names a table."""
    return any(table.name.casefold() == name for table in node.find_all(exp.Table))


def check_rank_names(source: SqlSource, node: exp.Expr, plan: Plan, ranks: RankRanges) -> None:
    """Refuse a bounded row_number() whose name another column has, too."""
    for name in ranks:
        if [field.name.casefold() for field in plan.fields].count(name) > 1:
            raise source.error(
                node,
                f"column {name!r} is a row_number() and another column; give one another alias",
            )


def _unique_names(names: list[str]) -> list[str]:
    """Return the names, each made unique regardless of case.

    >>> _unique_names(["a", "A_1", "b", "A", "a"])
    ['a', 'A_1', 'b', 'A_2', 'a_3']
    """
    times: dict[str, int] = {}
    found = []
    for name in names:
        key, new = name.casefold(), name
        while new.casefold() in times:
            new = f"{name}_{times[key]}"
            times[key] += 1
        times[new.casefold()] = 1
        found.append(new)
    return found


def rename_columns(source: SqlSource, plan: Plan, names: list[exp.Identifier]) -> Plan:
    """Return the columns under the names of an alias list, which may be shorter than the columns.

    A repeated name, in any case, gets the first number that makes it unique, as in DuckDB:
    ``a, a, a`` are ``a, a_1, a_2``.
    """
    own = [field.name for field in plan.fields]
    if len(names) > len(own):
        raise source.error(
            names[len(own)], f"{len(names)} names for the {len(own)} columns {', '.join(own)}"
        )
    new = _unique_names([*(name.name for name in names), *own[len(names) :]])
    if new == own:
        return plan
    return Map(plan, columns(plan), tuple(new))
