"""An environment: the relations, earlier views and WITH queries that a query can name.

A WITH query (common table expression) is planned at its first reference. Further references share
the plan, unless they keep other rows of a row_number(). A WITH query can name the WITH queries
before it, and itself if it is recursive. It cannot name columns of the query that refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.plan.nodes import Map, PlanNode, columns
from circuits.sql.binding.clause import Clause, Reader, ReaderTable, no_json_kind
from circuits.sql.binding.scope import Domain, Scope
from circuits.sql.syntax.parsing import NAME_IN_TEXT
from circuits.sql.syntax.source import CorrelatedSqlError, SqlSource

__all__ = [
    "NO_BOUNDS",
    "CommonTable",
    "DerivedTable",
    "Environment",
    "QueryPlanner",
    "RowNumberBounds",
    "RowNumberRange",
    "check_bounded_names",
    "names_table",
    "rename_columns",
    "table_names",
]


@dataclass(frozen=True)
class RowNumberRange:
    """The rows whose row_number() is ``first`` (from 1) to ``last``."""

    first: int
    last: int


# Columns of a query in FROM that are a row_number(), by lower-case name, with the numbers that the
# WHERE of the enclosing query keeps: ``FROM (SELECT ..., row_number() OVER ... AS n) WHERE n <= 3``
# has {"n": RowNumberRange(1, 3)}. See `circuits.sql.aggregation.row_number`.
RowNumberBounds = Mapping[str, RowNumberRange]
NO_BOUNDS: Final[RowNumberBounds] = {}


@dataclass(frozen=True)
class DerivedTable:
    """The plan of a query.

    Args:
        plan: The plan.
        domain: If the query is correlated, the values of the enclosing query that it depends on.
            The plan has the rows of the query for each of them, with these values as the first
            columns (`circuits.sql.queries.decorrelation`).
    """

    plan: PlanNode
    domain: Domain | None = None

    @property
    def domain_width(self) -> int:
        """The number of columns before those of the query."""
        return 0 if self.domain is None else self.domain.width


class QueryPlanner(Protocol):
    """The interface of the module `circuits.sql.queries.query` for queries that are not correlated.

    Queries contain queries, so the modules that read a FROM clause or an expression need the module
    that plans queries, which imports them. They get it from the environment, so that there is no
    import cycle. `circuits.sql.binding.select_builder.QueryReader` extends this interface.
    """

    def plan_recursive(self, common: CommonTable) -> DerivedTable:
        """Return the plan of a WITH query that names itself."""

    def plan_mutual(self, common: CommonTable) -> DerivedTable:
        """Return the plan of one of several WITH queries that name each other."""

    def plan_query(
        self,
        environment: Environment,
        node: exp.Expr,
        row_number_bounds: RowNumberBounds = NO_BOUNDS,
    ) -> DerivedTable:
        """Return the plan of a query that is not correlated."""


@dataclass(frozen=True)
class CommonTable:
    """A WITH query.

    Args:
        node: Its syntax tree.
        environment: The names that it can use.
        recursive: True if it names itself.
        plans: Its plans so far: one for each `RowNumberBounds` of the queries that refer to it, as
            sorted items. A recursive query has one plan, under the key ``()``.
        mutual: If it and other WITH queries name each other, all of these queries; else empty.
    """

    node: exp.CTE
    environment: Environment
    recursive: bool = False
    plans: dict[tuple[tuple[str, RowNumberRange], ...], DerivedTable] = field(default_factory=dict)
    mutual: list[exp.CTE] = field(default_factory=list)


@dataclass(frozen=True)
class Environment:
    """The names that a query can use, and what is needed to read it.

    Args:
        source: The text.
        relations: Relations and earlier views.
        queries: The planner of the queries in it.
        readers: The readers of expressions.
        common_tables: The WITH queries around it, by lower-case name.
        unreachable_scope: The scope of an enclosing query, if its columns cannot be named here
            because the query is not planned for a domain. Naming one raises a CorrelatedSqlError.
        domain: The values of the enclosing query for which the query is planned, if it is
            correlated (`circuits.sql.queries.decorrelation`).
        views: The plans of earlier views, by name; ``relations`` has scans of them.
    """

    source: SqlSource
    relations: Mapping[str, PlanNode]
    queries: QueryPlanner
    readers: ReaderTable
    common_tables: Mapping[str, CommonTable] = field(default_factory=dict)
    unreachable_scope: Scope | None = None
    domain: Domain | None = None
    views: Mapping[str, PlanNode] = field(default_factory=dict)

    def clause(
        self,
        name: str,
        read_column: Reader,
        json_kind: Callable[[Expression], str] = no_json_kind,
        **options: Reader,
    ) -> Clause:
        """Return a clause that contains expressions; ``options`` are those of `Clause`."""
        return Clause(
            self.source,
            self.readers,
            name,
            read_column,
            json_kind=json_kind,
            parameters={},
            lambda_depth=0,
            **options,
        )

    def with_unreachable_scope(self, scope: Scope | None) -> Environment:
        """Return the environment with ``unreachable_scope``; itself if the scope is None."""
        return self if scope is None else replace(self, unreachable_scope=scope)

    def plan_query(
        self, node: exp.Expr, row_number_bounds: RowNumberBounds = NO_BOUNDS
    ) -> DerivedTable:
        """Return the plan of a query, for the domain only if the query is correlated."""
        if self.domain is None:
            return self.queries.plan_query(self, node, row_number_bounds)
        try:
            without_domain = replace(self, domain=None, unreachable_scope=self.domain.scope)
            return self.queries.plan_query(without_domain, node, row_number_bounds)
        except CorrelatedSqlError:
            return self.queries.plan_query(self, node, row_number_bounds)

    def with_common_tables(self, node: exp.Expr, parent: Scope | None = None) -> Environment:
        """Return the environment of a query with its own WITH queries added.

        Args:
            node: The query.
            parent: The scope of the enclosing query, if the query is a subquery.
        """
        clause = node.args.get("with_")
        if clause is None:
            return self
        self.source.allow_arguments(clause, "expressions", "recursive")
        environment = self
        names: set[str] = set()
        mutual_ctes = _mutual_ctes(clause)
        for cte in clause.expressions:
            self.source.allow_arguments(cte, "this", "alias", "materialized", "key_expressions")
            self.source.allow_arguments(cte.args["alias"], "this", "columns")
            name = cte.alias.casefold()
            if name in names:
                raise self.source.error(
                    cte.args["alias"], f"two WITH queries are called {cte.alias!r}; rename one"
                )
            names.add(name)
            if not isinstance(cte.this, exp.Query | exp.Values | exp.Pivot):
                raise self.source.unsupported(
                    cte.this,
                    f"{self.source.describe(cte.this)} in WITH",
                    "write a SELECT",
                    word=cte.this.key,
                )
            is_recursive = bool(clause.args.get("recursive")) and names_table(cte.this, name)
            if cte.args.get("key_expressions") and not is_recursive:
                raise self.source.error(
                    cte.args["alias"],
                    f"USING KEY of {cte.alias!r}, which is not recursive; leave USING KEY out",
                )
            common = CommonTable(cte, environment.with_unreachable_scope(parent), is_recursive)
            common.mutual.extend(mutual_ctes.get(name, ()))
            environment = replace(
                environment, common_tables={**environment.common_tables, name: common}
            )
        return environment

    def find_common_table(self, node: exp.Table) -> CommonTable | None:
        """Return the WITH query that a table name refers to, if it is one."""
        return None if node.db else self.common_tables.get(node.name.casefold())

    def plan_table(self, node: exp.Table, row_number_bounds: RowNumberBounds) -> DerivedTable:
        """Return the plan of a table by its name.

        Raises:
            SqlError: There is no such table.
        """
        if not isinstance(node.this, exp.Identifier):
            raise self.source.unsupported(
                node,
                f"{self.source.describe(node.this)} in FROM",
                "write a table, a query or VALUES",
                word=str(node.this.meta.get(NAME_IN_TEXT, "")),
            )
        common = self.find_common_table(node)
        if common is not None:
            return self._plan_common_table(common, row_number_bounds)
        name = node.name.casefold()
        matches = [relation for relation in self.relations if relation.casefold() == name]
        if node.name in matches:
            matches = [node.name]
        if len(matches) > 1:
            raise self.source.error(
                node, f"table {node.name!r} is ambiguous: {', '.join(matches)}; spell it as one"
            )
        if not matches:
            tables = ", ".join([*self.relations, *self.common_tables]) or "none"
            raise self.source.error(node, f"unknown table {node.name!r}; tables: {tables}")
        return DerivedTable(self.relations[matches[0]])

    def _plan_common_table(
        self, common: CommonTable, row_number_bounds: RowNumberBounds
    ) -> DerivedTable:
        key = tuple(sorted(row_number_bounds.items(), key=lambda item: item[0]))
        # Recursion in Materialize has no base query and steps: it is a fixpoint of its queries.
        is_equation = common.recursive and self.source.dialect == "materialize"
        if common.mutual or is_equation:
            key = ()
            if key not in common.plans:
                common.plans[key] = self.queries.plan_mutual(common)
        elif common.recursive:
            key = ()
            if key not in common.plans:
                environment = replace(common.environment, domain=None)
                uncorrelated = replace(common, environment=environment)
                common.plans[key] = self.queries.plan_recursive(uncorrelated)
        elif key not in common.plans:
            derived = common.environment.plan_query(common.node.this, row_number_bounds)
            names = common.node.args["alias"].args.get("columns") or []
            check_bounded_names(self.source, common.node, derived.plan, row_number_bounds)
            common.plans[key] = rename_columns(self.source, derived, names)
        return common.plans[key]


def _mutual_ctes(clause: exp.With) -> dict[str, list[exp.CTE]]:
    """Return, for each WITH query that is in a cycle of references, the queries of the cycle.

    The keys are in lower case. The dictionary is empty if the clause is not recursive.
    """
    if not clause.args.get("recursive"):
        return {}
    ctes = {cte.alias.casefold(): cte for cte in clause.expressions}
    named = {key: table_names(cte.this) & ctes.keys() for key, cte in ctes.items()}

    def reach(start: str) -> set[str]:
        reached: set[str] = set()
        stack = [start]
        while stack:
            for other in named[stack.pop()] - reached:
                reached.add(other)
                stack.append(other)
        return reached

    reached = {key: reach(key) for key in ctes}
    cycles = {
        key: [cte for other, cte in ctes.items() if other in reached[key] and key in reached[other]]
        for key in ctes
    }
    return {key: cycle for key, cycle in cycles.items() if len(cycle) > 1}


def table_names(query: exp.Expr) -> set[str]:
    """Return the tables that a query names, in lower case, without its own WITH queries."""
    return {
        table.name.casefold()
        for table in query.find_all(exp.Table)
        if table.db or not _is_common_table(query, table)
    }


def _is_common_table(query: exp.Expr, table: exp.Table) -> bool:
    """Return whether a table in a query is one of the WITH queries of it or of a subquery.

    A WITH query can name those before it, and all of its clause if that is recursive.
    """
    name = table.name.casefold()
    node: exp.Expr = table
    cte: exp.Expr | None = None  # the WITH query around the table in the clause that is next
    while node is not query and node.parent is not None:
        if isinstance(node, exp.CTE):
            cte = node
        node = node.parent
        clause = node.args.get("with_")
        if clause is None or isinstance(node, exp.With):
            continue
        for other in clause.expressions:
            if other is cte and not clause.args.get("recursive"):
                break
            if other.alias.casefold() == name:
                return True
        cte = None
    return False


def names_table(query: exp.Expr, name: str) -> bool:
    """Return whether a query names a table, given in lower case."""
    return name in table_names(query)


def check_bounded_names(
    source: SqlSource, node: exp.Expr, plan: PlanNode, row_number_bounds: RowNumberBounds
) -> None:
    """Refuse a bounded row_number() if another column has the same name."""
    for name in row_number_bounds:
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
    next_suffixes: dict[str, int] = {}
    unique_names = []
    for name in names:
        key, unique_name = name.casefold(), name
        while unique_name.casefold() in next_suffixes:
            unique_name = f"{name}_{next_suffixes[key]}"
            next_suffixes[key] += 1
        next_suffixes[unique_name.casefold()] = 1
        unique_names.append(unique_name)
    return unique_names


def rename_columns(
    source: SqlSource, derived: DerivedTable, names: list[exp.Identifier]
) -> DerivedTable:
    """Rename the columns by an alias list, which may be shorter than the columns.

    A repeated name, in any case, gets a numeric suffix, as in DuckDB: ``a, a, a`` become ``a, a_1,
    a_2``.
    """
    plan, domain_width = derived.plan, derived.domain_width
    domain_names = tuple(field.name for field in plan.fields[:domain_width])
    old_names = [field.name for field in plan.fields[domain_width:]]
    if len(names) > len(old_names):
        raise source.error(
            names[len(old_names)],
            f"{len(names)} names for the {len(old_names)} columns {', '.join(old_names)}; "
            "leave some out",
        )
    new_names = _unique_names([*(name.name for name in names), *old_names[len(names) :]])
    if new_names == old_names:
        return derived
    renamed = Map(plan, columns(plan), (*domain_names, *new_names))
    return replace(derived, plan=renamed)
