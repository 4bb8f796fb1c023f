"""The plan of a SELECT while it is read, and the names of its columns.

FROM makes the first plan. Conditions add operators on top of it
(`circuits.sql.queries.conditions`). A scalar subquery is joined to it, so that its value is one
more column on the right. Columns are only added at the end, so expressions that have been read
before stay valid.

A correlated condition (one that names columns of the enclosing query) cannot be applied here. The
builder collects it for the reader of the subquery (`circuits.sql.queries.subqueries`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import reduce
from typing import NamedTuple, Protocol, cast

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    conjuncts,
    shift_columns,
    substitute,
)
from circuits.plan.json_values import json_kind_of
from circuits.plan.nodes import Filter, PlanNode, columns
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.binding.environment import DerivedTable, Environment, QueryPlanner
from circuits.sql.binding.scope import (
    Domain,
    Scope,
    ScopeColumn,
    is_correlated,
    is_outer_column,
)
from circuits.sql.binding.selection import Selection
from circuits.sql.syntax.nodes import strip_parentheses
from circuits.types import functions

__all__ = [
    "CorrelatedCondition",
    "QueryReader",
    "SelectBuilder",
    "SubqueryValue",
    "add_alias",
    "conjuncts_of",
    "factor_out_common",
]


class QueryReader(QueryPlanner, Protocol):
    """Plans queries, also correlated ones; `circuits.sql.queries.query` implements it."""

    def read_from_and_where(
        self, environment: Environment, node: exp.Select, parent: Scope | None = None
    ) -> SelectBuilder:
        """Read FROM and WHERE of a SELECT that may name the columns of the scope around it."""

    def read_selection(
        self, environment: Environment, node: exp.Select, parent: Scope | None = None
    ) -> Selection:
        """Read FROM, WHERE, GROUP BY, HAVING and the list of a SELECT, which may be correlated."""

    def finish_selection(self, selection: Selection) -> DerivedTable:
        """Apply the clauses after the list: QUALIFY, DISTINCT, ORDER BY and LIMIT."""

    def read_generator(
        self, builder: SelectBuilder, node: exp.Expr
    ) -> list[tuple[str, Expression]] | None:
        """Apply a function that makes several rows from each row, and return its columns."""

    def join_scalar(self, builder: SelectBuilder, node: exp.Expr) -> tuple[PlanNode, Expression]:
        """Return the builder's plan joined to a scalar subquery, and the value of the subquery."""

    def read_scalar(self, builder: SelectBuilder, node: exp.Expr) -> SubqueryValue:
        """Return the value of a scalar subquery, to be joined to a later plan."""

    def read_membership(
        self, builder: SelectBuilder, clause: Clause, node: exp.Expr
    ) -> SubqueryValue:
        """Return the value of EXISTS, IN, ANY or ALL, to be joined to a later plan."""


class SubqueryValue(Protocol):
    """The value of a subquery for each row of an enclosing plan."""

    @property
    def type(self) -> pa.DataType:
        """The type of the value."""

    @property
    def json_kind(self) -> str:
        """The kind of JSON of the value, as in `circuits.plan.json_values`."""

    def join(
        self, plan: PlanNode, rewrite: Callable[[Expression], Expression]
    ) -> tuple[PlanNode, Expression]:
        """Return a plan with further columns, and the value over them.

        Args:
            plan: The enclosing plan.
            rewrite: Takes an expression over the rows of the enclosing query's FROM and WHERE, and
                returns the same value over ``plan``.
        """


# Takes values over the plan of a builder. Returns their rows, with a column for each value.
OuterRows = Callable[[tuple[Expression, ...]], PlanNode]


class CorrelatedCondition(NamedTuple):
    """A condition that names columns of the enclosing query, and its place in the text."""

    node: exp.Expr
    condition: Expression


class SelectBuilder:
    """The plan of FROM and WHERE so far, with the names of its columns.

    Args:
        environment: The names that subqueries can use.
        plan: The plan so far.
        scope_columns: The names of its columns.
        parent: The scope of the enclosing query, if this is a subquery.

    Attributes:
        correlated_conditions: The conditions so far that the enclosing query must apply.
        aliases: The expressions of the SELECT list, by lower-case alias; None if several
            expressions have the alias.
        domain: In a correlated subquery that is planned by `circuits.sql.queries.decorrelation`,
            the values of the enclosing query that the plan is joined with; else None.
        domain_columns: The columns of the plan that have these values.
        link_sides: For a correlated item of FROM: expressions over the items to its left, and the
            columns of the plan that its join compares with them. Else both are empty.
        find_outer_rows: Returns the rows that a subquery is joined to; None if these are the rows
            of the plan.
    """

    def __init__(
        self,
        environment: Environment,
        plan: PlanNode,
        scope_columns: Iterable[ScopeColumn] = (),
        parent: Scope | None = None,
    ) -> None:
        self.environment = environment
        self.source = environment.source
        self.plan = plan
        self.scope_columns = tuple(scope_columns)
        self.parent = parent
        self.correlated_conditions: list[CorrelatedCondition] = []
        self.aliases: Mapping[str, exp.Expr | None] = {}
        # The name and the value of the column of each unnest() call in the list that is planned, by
        # the ``id`` of its node.
        self.generated: dict[int, tuple[str, Expression]] = {}
        # The element that each unnest() call returns, by its tree: GROUP BY repeats calls.
        self._elements: dict[exp.Expr, Expression] = {}
        self.domain: Domain | None = None
        self.domain_columns: tuple[Expression, ...] = ()
        self.link_sides: tuple[tuple[Expression, ...], tuple[Expression, ...]] = ((), ())
        self.find_outer_rows: OuterRows | None = None
        # The ids of the aliased expressions that are being read. In ``x + 1 AS x`` the inner x
        # is a column, not the alias again.
        self._aliases_in_progress: set[int] = set()
        # The values of subqueries by their syntax trees: GROUP BY repeats them.
        self._subquery_values: dict[exp.Expr, Expression] = {}
        # The columns with the truth values of comparisons with the current time.
        self.truths_by_comparison: dict[Expression, Column] = {}
        # The kinds of JSON of placeholders of aggregates and window functions, by their numbers.
        self.json_kinds: dict[int, str] = {}

    @property
    def is_linked(self) -> bool:
        """True for a correlated item of FROM."""
        return bool(self.link_sides[0])

    def copy(self) -> SelectBuilder:
        """Return a builder of the same rows."""
        builder = SelectBuilder(self.environment, self.plan, self.scope_columns, self.parent)
        builder.correlated_conditions = list(self.correlated_conditions)
        builder.domain, builder.domain_columns = self.domain, self.domain_columns
        return builder

    def with_outer_rows(self, outer_rows: OuterRows) -> SelectBuilder:
        """Return this builder for subqueries that are joined to other rows than those of its plan.

        Args:
            outer_rows: Takes values over the plan. Returns the rows of these values.
        """
        builder = copy(self)
        builder.find_outer_rows = outer_rows
        return builder

    def outer_rows(self, values: tuple[Expression, ...]) -> tuple[PlanNode, tuple[Expression, ...]]:
        """Return the rows that a subquery is joined to, and values of the plan over them."""
        if self.find_outer_rows is None:
            return self.plan, values
        rows = self.find_outer_rows(values)
        return rows, columns(rows)

    @property
    def queries(self) -> QueryReader:
        """The reader of subqueries."""
        return cast(QueryReader, self.environment.queries)

    @property
    def scope(self) -> Scope:
        environment = self.environment
        return Scope(
            self.source,
            self.scope_columns,
            self.parent,
            environment.unreachable_scope,
            self.domain,
            self.domain_columns,
        )

    @property
    def width(self) -> int:
        return len(self.plan.fields)

    def clause(self, name: str, **options: Reader) -> Clause:
        """Return a clause of expressions over the plan; its scalar subqueries are joined to it.

        ``options`` are those of `Clause`.
        """
        readers: dict[str, Reader] = {
            "read_scalar": self.join_scalar_subquery,
            "read_membership": self.join_membership,
        }
        if name == "SELECT":
            readers["read_generator"] = self.unnest
        return self.environment.clause(
            name, self.read_column, self.json_kind, **{**readers, **options}
        )

    def json_kind(self, value: Expression) -> str:
        """Return "json" or "jsonb" if the texts in a value over the plan are JSON, else "".

        Spark has no type for JSON: it is a text there.
        """
        if self.source.is_spark:
            return ""
        return json_kind_of(value, self.plan.fields, self.json_kinds)

    def unnest(self, clause: Clause, node: exp.Expr) -> Expression:
        """Replace the rows by one row per element of a list, and return the element.

        An equal call returns the same element: GROUP BY repeats those of the list.
        """
        if id(node) in self.generated:
            return self.generated[id(node)][1]
        if node in self._elements:
            self.source.mark_read(node)
            return self._elements[node]
        if self._elements:
            raise self.source.unsupported(
                node, "a second function of this kind in a grouped SELECT", "use it in FROM"
            )
        columns = self.queries.read_generator(self, node)
        if columns is None or len(columns) != 1:
            raise self.source.unsupported(
                node, "a function with several columns in an expression", "make it a column"
            )
        self._elements[node] = columns[0][1]
        return columns[0][1]

    def find_own_value(self, node: exp.Column) -> Expression | None:
        """Return the value of a column of this FROM clause; None for any other name."""
        return Scope(self.source, self.scope_columns).find(node)

    def read_column(self, clause: Clause, node: exp.Column) -> Expression:
        """Return the value of a name: a column of FROM, an alias of the list, an outer column.

        Where a dialect has no aliases, as in WHERE of PostgreSQL and Spark, an outer column comes
        before an alias. A name with dots is a column of a table, or a field of a struct: ``t.s.f``,
        ``s.f``.
        """
        if node.table:
            column = self.scope.without_fields(node)
            names = [part for part in node.parts if isinstance(part, exp.Identifier)]
            may_have_schema = len(names) > 2 and not column.table
            if may_have_schema and self.source.is_default_schema(names[0].name):
                return self._read_in_schema(clause, node, names[1:])
            if column is not node:
                return self._read_field(clause, node, column, names)
        value = self.find_own_value(node)
        if value is not None:
            return value
        name = node.name.casefold()
        if node.table or name not in self.aliases:
            return self.scope.resolve(node)
        if not self._has_aliases(clause):
            value = self.scope.find(node)
            if value is not None:
                return value
        aliased = self.aliases[name]
        if aliased is None:
            raise self.source.error(
                node, f"{node.name!r} is the alias of several expressions; give each its own"
            )
        if id(aliased) in self._aliases_in_progress:
            return self.scope.resolve(node)
        self._aliases_in_progress.add(id(aliased))
        try:
            return clause.read(aliased)
        finally:
            self._aliases_in_progress.remove(id(aliased))

    def reads_query(self, node: exp.Expr) -> bool:
        """Return whether an expression has a subquery, or names an alias of one that has."""
        nodes, names = [node], set[str]()
        while nodes:
            for part in nodes.pop().walk():
                if isinstance(part, exp.Query):
                    return True
                name = part.name.casefold() if isinstance(part, exp.Column) else ""
                aliased = self.aliases.get(name)
                if aliased is not None and name not in names:
                    names.add(name)
                    nodes.append(aliased)
        return False

    def _has_aliases(self, clause: Clause) -> bool:
        """Return whether the dialect has aliases of the list in a clause.

        The engine reads them in all clauses, as DuckDB, if the name has no other value.
        """
        if self.source.is_postgres:
            return clause.name == "GROUP BY"
        return not (self.source.is_spark and clause.name == "WHERE")

    def _read_in_schema(
        self, clause: Clause, node: exp.Column, names: list[exp.Identifier]
    ) -> Expression:
        """Return the value of ``main.t.c``, by the names after the schema."""
        self.source.allow_arguments(node, "this", "table", "db", "catalog")
        parts = dict(zip(("this", "table", "db"), reversed(names), strict=False))
        column = exp.Column(**{key: name.copy() for key, name in parts.items()})
        column.meta.update(node.meta)
        return self.read_column(clause, column)

    def _read_field(
        self, clause: Clause, node: exp.Column, column: exp.Column, names: list[exp.Identifier]
    ) -> Expression:
        """Return a field of a struct; the first names are those of the column that has it."""
        first = names[0].name.casefold()
        if not column.table and self.scope.find(column) is None and first not in self.aliases:
            unknown = exp.Column(this=names[-1], table=names[-2])
            return self.scope.resolve(unknown)  # the error names the unknown table
        self.source.allow_arguments(node, "this", "table", "db", "catalog")
        value = self.read_column(clause, column)
        for name in names[2 if column.table else 1 :]:
            value = clause.field(node, value, name.name)
        return value

    def add_filter(self, node: exp.Expr, condition: Expression) -> None:
        """Keep the rows for which a condition is true."""
        for part in conjuncts([factor_out_common(condition)]):
            if is_correlated(part):
                self.correlated_conditions.append(CorrelatedCondition(node, part))
            else:
                self.plan = Filter(self.plan, part)

    def append_columns_of(self, right: SelectBuilder) -> None:
        """Add the names and correlated conditions of a plan that is joined on the right.

        The caller then sets ``plan`` to the join.
        """
        width = self.width
        self.scope_columns += tuple(
            column.map_values(lambda value: shift_columns(value, width))
            for column in right.scope_columns
        )
        self.correlated_conditions += [
            CorrelatedCondition(node, _shift_own_columns(condition, width))
            for node, condition in right.correlated_conditions
        ]

    def join_scalar_subquery(self, clause: Clause, node: exp.Expr) -> Expression:
        """Join a scalar subquery to the plan and return its value."""
        query = strip_parentheses(node)
        if query in self._subquery_values:
            self.source.mark_read(node)
            return self._subquery_values[query]
        self.plan, value = self.queries.join_scalar(self, node)
        self._subquery_values[query] = value
        return value

    def join_membership(self, clause: Clause, node: exp.Expr) -> Expression:
        """Join the truth value of EXISTS, IN, ANY or ALL of a subquery, and return it."""
        if node in self._subquery_values:
            self.source.mark_read(node)
            return self._subquery_values[node]
        membership = self.queries.read_membership(self, clause, node)
        self.plan, value = membership.join(self.plan, lambda expression: expression)
        self._subquery_values[node] = value
        return value


def add_alias(aliases: dict[str, exp.Expr | None], item: exp.Alias) -> None:
    """Record the expression of an alias; None if the alias has several expressions."""
    name = item.alias.casefold()
    is_repeated = name in aliases and aliases[name] != item.this
    aliases[name] = None if is_repeated else item.this


def _shift_own_columns(expression: Expression, width: int) -> Expression:
    """Add ``width`` to the numbers of the query's own columns, not to those of outer columns."""

    def shift(column: Column) -> Column:
        return (
            column if is_outer_column(column.index) else Column(column.index + width, column.type)
        )

    return substitute(expression, shift)


def conjuncts_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND connects, in the order of the text."""
    stack = [condition]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.And):
            stack += [part.right, part.left]
        elif isinstance(part, exp.Paren):
            stack.append(part.this)
        else:
            yield part


def factor_out_common(condition: Expression) -> Expression:
    """Factor the conditions that all branches of an OR have in common out of it.

    ``(a and b) or (a and c)`` becomes ``a and (b or c)``, so that a join condition that is repeated
    in each branch is found as one. The result is equal in three-valued logic, too.
    """
    if not isinstance(condition, Call):
        return condition
    if condition.function == "and":
        return functions.call("and", *map(factor_out_common, condition.arguments))
    if condition.function != "or":
        return condition
    branches = [list(conjuncts([factor_out_common(branch)])) for branch in condition.arguments]
    common = [part for part in branches[0] if all(part in branch for branch in branches)]
    common = list(dict.fromkeys(common))
    if not common:
        return condition
    remainders = [[part for part in branch if part not in common] for branch in branches]
    if not all(remainders):  # a or (a and b) is a
        return reduce(lambda left, right: functions.call("and", left, right), common)
    alternatives = [functions.call("and", *remainder) for remainder in remainders]
    return functions.call("and", *common, functions.call("or", *alternatives))
