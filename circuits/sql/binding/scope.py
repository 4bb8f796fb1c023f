"""Name resolution: the column of a plan that a name in the text refers to.

A scope holds the columns of a FROM clause. A scope column has the alias of its table, its name and
its value, an expression over the plan of the clause. Names are compared without case, as in DuckDB.

``a JOIN b USING (k)`` has one unqualified ``k``. It is the ``merged_value`` of the scope column
``a.k``. The scope column ``b.k`` is shadowed: only its qualified name ``b.k`` refers to it.

The scope of a subquery has a parent, the scope of the enclosing query. Columns of the parent are
called *outer* columns. In expressions they are numbered from ``FIRST_OUTER_COLUMN`` on, so that an
expression can contain columns of both queries. Such an expression is *correlated*.

Alternatives considered: sqlglot's ``qualify`` and ``build_scope`` (tried with sqlglot 30). They
resolve the same names, but cannot replace this module:

- Errors: an unknown and an ambiguous name give the same message without candidates. A duplicate
  alias and an unknown table before ``.*`` give no position at all.
- Positions: the columns that come from ``*``, from USING and from expanded aliases have no position
  or that of another clause, so later errors would point to the wrong word.
- Semantics: ``JOIN ... USING`` becomes COALESCE of both sides for inner joins, too. An ambiguous
  alias within an expression of ORDER BY is resolved where this module raises an error. ``GROUP BY
  1`` is accepted if column 1 is an aggregate.
- Names: column names lose their case, and ``count(*)`` becomes ``_col_0``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import (
    Column,
    Expression,
    Literal,
    columns_of,
    shift_columns,
    substitute,
)
from circuits.plan.nodes import PlanNode
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions
from circuits.types.arrow_types import is_nested

__all__ = [
    "COMPARED_ELEMENT",
    "END_OF_GROUP_VALUES",
    "FIRST_AGGREGATE",
    "FIRST_GROUPING",
    "FIRST_HIDDEN_PARAMETER",
    "FIRST_KEY",
    "FIRST_KEY_PARAMETER",
    "FIRST_OUTER_COLUMN",
    "FIRST_PARAMETER",
    "FIRST_SUBQUERY",
    "FIRST_WINDOW",
    "LEVEL_COLUMNS",
    "NOW_COLUMN",
    "ROW_NUMBER_COLUMN",
    "Domain",
    "Scope",
    "ScopeColumn",
    "exchange_sides",
    "is_correlated",
    "is_outer_column",
    "row_or_null",
    "scope_columns_of",
]

# Numbers of columns that are placeholders while a text is read; no relation has as many columns.
# Each range ends where the next one begins.
#: The columns of the enclosing query in the expressions of a subquery.
FIRST_OUTER_COLUMN: Final = 1 << 32
#: The keys of the groups, their aggregates, and scalar subqueries over them.
FIRST_KEY: Final = 2 << 32
FIRST_AGGREGATE: Final = 3 << 32
FIRST_SUBQUERY: Final = 4 << 32
#: The values of window functions (`circuits.sql.aggregation.windows`).
FIRST_WINDOW: Final = 5 << 32
#: The values of ``grouping()``.
FIRST_GROUPING: Final = 6 << 32
#: A row_number() of which a condition keeps a range, as in
#: ``QUALIFY row_number() OVER (...) <= 3``. A TopK keeps the rows, a Window computes their numbers.
ROW_NUMBER_COLUMN: Final = 7 << 32
END_OF_GROUP_VALUES: Final = 8 << 32
#: The parameters of lambdas that are not in the text; none of them is within another one.
FIRST_HIDDEN_PARAMETER: Final = (1 << 40) - 4
#: The first parameter of a lambda of the text; each level adds ``LEVEL_COLUMNS``.
FIRST_PARAMETER: Final = 1 << 40
LEVEL_COLUMNS: Final = 100
#: The element of a list in a comparison with ANY or ALL.
COMPARED_ELEMENT: Final = 1 << 42
#: The parameters of the lambdas of order keys (`circuits.sql.binding.nested_order`).
FIRST_KEY_PARAMETER: Final = 1 << 44
#: The time of the step.
NOW_COLUMN: Final = 1 << 48


def is_outer_column(index: int) -> bool:
    """Return whether a column number is that of a column of the enclosing query."""
    return FIRST_OUTER_COLUMN <= index < 2 * FIRST_OUTER_COLUMN


@dataclass(frozen=True)
class ScopeColumn:
    """A column of a table in FROM.

    Args:
        table: The alias of the table.
        name: The name of the column.
        value: Its value over the plan of the clause.
        merged_value: The value of its unqualified name after ``USING``; None if that is ``value``.
        is_shadowed: True if only its table's name reaches it: ``USING`` merged it into another
            column of the same name, or it is a column of a window in GROUP BY.
        star_rank: ``*`` lists columns of a higher rank first: except in DuckDB, those of ``USING``.
    """

    table: str
    name: str
    value: Expression
    merged_value: Expression | None = None
    is_shadowed: bool = False
    star_rank: int = 0

    @property
    def unqualified_value(self) -> Expression:
        return self.value if self.merged_value is None else self.merged_value

    @property
    def qualified_name(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name

    def has_name(self, name: str) -> bool:
        return self.name.casefold() == name.casefold()

    def is_of_table(self, table: str) -> bool:
        return self.table.casefold() == table.casefold()

    def map_values(self, change: Callable[[Expression], Expression]) -> ScopeColumn:
        """Return the column with a function applied to its values."""
        merged_value = None if self.merged_value is None else change(self.merged_value)
        return replace(self, value=change(self.value), merged_value=merged_value)


def scope_columns_of(plan: PlanNode, table: str) -> tuple[ScopeColumn, ...]:
    """Return the columns of a plan as those of a table."""
    return tuple(
        ScopeColumn(table, field.name, Column(index, field.type))
        for index, field in enumerate(plan.fields)
    )


def exchange_sides(predicate: Expression, left_width: int, right_width: int) -> Expression:
    """Return the predicate of a join for the exchanged sides, of these widths."""

    def exchange(column: Column) -> Column:
        is_left = column.index < left_width
        return Column(column.index + (right_width if is_left else -left_width), column.type)

    return substitute(predicate, exchange)


def row_or_null(row: Expression, values: Sequence[Expression]) -> Expression:
    """Return NULL if all values of a row are NULL, else the row."""
    are_null = functions.conjunction([functions.call("is_null", value) for value in values])
    return functions.call("case", are_null, Literal(None, pa.null()), row)


def _may_be_unmatched(row: exp.Column) -> bool:
    """Return whether an outer join of the query may add rows without a row of a table."""
    select = row.find_ancestor(exp.Select)
    source = select.args.get("from_") if select is not None else None
    if select is None or source is None:
        return False
    name = row.name.casefold()
    is_joined = source.this.alias_or_name.casefold() == name
    may_be_unmatched = False
    for join in select.args.get("joins") or []:
        is_this = join.this.alias_or_name.casefold() == name
        if is_this:
            is_joined, may_be_unmatched = True, join.side in ("LEFT", "FULL")
        elif is_joined:
            may_be_unmatched = may_be_unmatched or join.side in ("RIGHT", "FULL")
    return may_be_unmatched or not is_joined


def is_correlated(expression: Expression) -> bool:
    """Return whether the expression reads a column of the enclosing query."""
    return any(map(is_outer_column, columns_of(expression)))


@dataclass(frozen=True, eq=False)
class Domain:
    """The distinct values of the columns of an enclosing query that a subquery may name.

    Args:
        scope: The scope of the enclosing query.
        values: Expressions over the plan of the enclosing query.
        plan: Their distinct values; a column for each.
        used: The positions in ``values`` of those that the subquery has named so far.
    """

    scope: Scope
    values: tuple[Expression, ...]
    plan: PlanNode
    used: set[int] = field(default_factory=set)

    @property
    def width(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Scope:
    """The columns of a FROM clause, and the scope around it if it is in a subquery.

    Args:
        source: The text, for errors.
        columns: The columns of the clause.
        parent: The scope of the enclosing query, whose columns can be named too.
        unreachable_scope: The scope of an enclosing query, if its columns cannot be named here
            because the subquery is not planned for a domain. Naming one raises a
            CorrelatedSqlError.
        domain: The values of the parent that the plan of the clause is joined with; None if outer
            columns are numbered from ``FIRST_OUTER_COLUMN`` on.
        domain_columns: The columns of the domain in the plan of the clause.
    """

    source: SqlSource
    columns: tuple[ScopeColumn, ...] = ()
    parent: Scope | None = None
    unreachable_scope: Scope | None = None
    domain: Domain | None = None
    domain_columns: tuple[Expression, ...] = ()

    def resolve(self, node: exp.Column) -> Expression:
        """Return the value of a column by its name.

        Raises:
            SqlError: The name is unknown or ambiguous.
            UnsupportedSqlError: It is a column of a query further out than the enclosing one.
        """
        value = self.find(node)
        if value is None:
            raise self._unknown_column_error(node)
        return value

    def find(self, node: exp.Column) -> Expression | None:
        """Return the value of a column of this or an enclosing query; None for an unknown name."""
        match = self.find_own_column(node)
        if match is not None:
            return match.value if node.table else match.unqualified_value
        if node.table and self.has_table(node.table):
            return None
        if not node.table and not self.source.is_spark and self.has_table(node.name):
            return self._row_of_table(node)
        if self.parent is None:
            self._check_unreachable_scope(node)
            return None
        value = self.parent.find(node)
        if value is None:
            return None
        if self.domain is not None:
            return self._find_in_domain(node, value)
        if is_correlated(value):
            raise self._two_levels_error(node)
        return shift_columns(value, FIRST_OUTER_COLUMN)

    def without_fields(self, node: exp.Column) -> exp.Column:
        """Return the column of a name with dots that may end with fields of a struct.

        It is ``t.s`` of ``t.s.f`` and ``s`` of ``s.f``; of ``schema.t.c``, the name itself.
        """
        names = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if len(names) == 1:
            return node
        table, *fields = names
        if not self._is_table(table.name):
            column = exp.Column(this=table)
        elif len(names) == 2:
            return node
        else:
            column = exp.Column(this=fields[0], table=table)
        column.meta.update(node.meta)
        return column

    def _is_table(self, name: str) -> bool:
        """Return whether the name before a dot is a table of this or an enclosing query.

        A nested column of a query hides the tables around the query, except in PostgreSQL, where
        the name before a dot is always a table.
        """
        for scope in self.enclosing_scopes():
            if scope.has_table(name):
                return True
            has_column = any(
                column.has_name(name) and not column.is_shadowed and is_nested(column.value.type)
                for column in scope.columns
            )
            if has_column and not self.source.is_postgres:
                return False
        return False

    def _row_of_table(self, node: exp.Column) -> Expression:
        """Return the row of a table that is named as a value: a struct of its columns.

        In the dialects of PostgreSQL, the row of a table that an outer join has not matched is
        NULL: all its columns are NULL, by which it is recognised.
        """
        columns = [column for column in self.columns if column.is_of_table(node.name)]
        parts: list[Expression] = []
        for column in columns:
            parts += [Literal(column.name, pa.string()), column.value]
        with self.source.errors_at(node):
            row = functions.call("make_struct", *parts)
            if not (self.source.is_postgres and _may_be_unmatched(node)):
                return row
            return row_or_null(row, [column.value for column in columns])

    def columns_of_domain(self, domain: Domain, node: exp.Expr) -> tuple[Expression, ...]:
        """Return the columns of a domain of this or an enclosing query in the plan of the clause.

        Raises:
            CorrelatedSqlError: The plan of the clause is not joined with the domain.
        """
        if self.domain is domain:
            domain.used.update(range(domain.width))
            return self.domain_columns
        if self.domain is None or self.parent is None:
            raise self._two_levels_error(node)
        outer = self.parent.columns_of_domain(domain, node)
        return tuple(self._find_in_domain(node, value) for value in outer)

    def _find_in_domain(self, node: exp.Expr, value: Expression) -> Expression:
        """Return the column of the clause's plan that has a value of the enclosing query."""
        assert self.domain is not None
        if value not in self.domain.values:
            raise self._two_levels_error(node)
        index = self.domain.values.index(value)
        self.domain.used.add(index)
        return self.domain_columns[index]

    def _two_levels_error(self, node: exp.Expr) -> Exception:
        return self.source.correlated(
            node,
            f"column {node.sql()!r} of a query two levels further out",
            "pass it through the subquery in between",
        )

    def _check_unreachable_scope(self, node: exp.Column) -> None:
        scope = self.unreachable_scope
        if scope is not None and scope.find(node) is not None:
            raise self.source.correlated(
                node,
                f"column {node.sql()!r} of the enclosing query, from within a set operation, "
                "WITH, FROM or a grouped query,",
                "join the tables, or name it in the WHERE of a separate EXISTS or IN",
            )

    def find_own_column(self, node: exp.Column) -> ScopeColumn | None:
        """Return the column of this FROM clause that a name refers to; None for an unknown name.

        Raises:
            SqlError: The name is ambiguous.
        """
        self.source.allow_arguments(node, "this", "table")
        if node.table:
            matches = [
                c for c in self.columns if c.has_name(node.name) and c.is_of_table(node.table)
            ]
        else:
            matches = [c for c in self.columns if c.has_name(node.name) and not c.is_shadowed]
        if len(matches) > 1:
            names = _list_names(column.qualified_name for column in matches)
            raise self.source.error(
                node, f"column {node.sql()!r} is ambiguous: {names}; name the table or an alias"
            )
        return matches[0] if matches else None

    def has_table(self, table: str) -> bool:
        """Return whether the clause itself has a table with this alias."""
        return any(column.is_of_table(table) for column in self.columns)

    def expand_star(self, node: exp.Star, table: str = "") -> Iterator[tuple[str, Expression]]:
        """Yield names and values of the columns of ``*`` or ``table.*``.

        ``table`` may be a table of an enclosing query; in dialect spark, so may all tables of a
        query without FROM.
        """
        self.source.allow_arguments(node, "except_", "replace", "rename")
        columns = self.columns
        if table and not self.has_table(table):
            columns = self._outer_columns(node, table)
        elif not columns and self.source.is_spark:
            columns = self._outer_columns(node)
        if not columns and table:
            tables = _list_names(column.table for column in self.columns)
            raise self.source.error(
                node.parent or node, f"unknown table {table!r} before '.*'; in FROM: {tables}"
            )
        if not columns:
            raise self.source.error(node, "'*' without a FROM clause; name the columns")
        excluded = self._excluded_names(node)
        unused_names = set(excluded)
        if self.source.is_spark or not table:
            columns = tuple(sorted(columns, key=lambda column: -column.star_rank))
        for column in columns:
            is_excluded_table = bool(table) and not column.is_of_table(table)
            if is_excluded_table or (not table and column.is_shadowed):
                continue
            key = column.name.casefold()
            found = {("", key), (column.table.casefold(), key)} & excluded.keys()
            if found and ("", key) not in found and column.merged_value is not None:
                raise self.source.unsupported(
                    node,
                    f"EXCLUDE ({column.qualified_name}) of a column of USING",
                    "name the columns",
                )
            unused_names -= found
            if not found:
                yield column.name, column.value if table else column.unqualified_value
        for names, part in excluded.items():
            if names in unused_names:
                raise self.source.error(part, f"unknown column {part.name!r} in EXCLUDE")

    def _outer_columns(self, node: exp.Star, table: str = "") -> tuple[ScopeColumn, ...]:
        """Return the columns of a table, or all columns, of the next enclosing query with them."""
        scopes = (scope for scope in self.enclosing_scopes() if scope is not self)
        scope = next((s for s in scopes if s.has_table(table) or (s.columns and not table)), None)
        columns = []
        for column in scope.columns if scope is not None else ():
            if column.is_of_table(table) or (not table and not column.is_shadowed):
                name = exp.column(column.name, column.table or None)
                name.meta.update((node.parent or node).meta)
                columns.append(replace(column, value=self.resolve(name), merged_value=None))
        return tuple(columns)

    def _excluded_names(self, node: exp.Star) -> dict[tuple[str, str], exp.Expr]:
        """Return the nodes of the names in EXCLUDE, by lower-case table, or none, and name."""
        excluded: dict[tuple[str, str], exp.Expr] = {}
        for name in node.args.get("except_") or ():
            if not isinstance(name, exp.Column | exp.Identifier) or not name.name:
                raise self.source.error(name, "EXCLUDE takes names of columns")
            if isinstance(name, exp.Column):
                self.source.allow_arguments(name, "this", "table")
            table = name.table if isinstance(name, exp.Column) else ""
            excluded[table.casefold(), name.name.casefold()] = name
        return excluded

    def column_name(self, node: exp.Column) -> str:
        """Return the name of a column as its table spells it; of an unknown column, as written."""
        for column in self.columns:
            if column.has_name(node.name) and (not node.table or column.is_of_table(node.table)):
                return column.name
        return self.parent.column_name(node) if self.parent else node.name

    def _unknown_column_error(self, node: exp.Column) -> Exception:
        table = node.table
        unreadable = self.source.unreadable_columns.get(node.name.casefold())
        if unreadable is not None:
            return self.source.unsupported(node, *unreadable)
        columns = [column for scope in self.enclosing_scopes() for column in scope.columns]
        if not table:
            names = _list_names(column.qualified_name for column in columns)
            return self.source.error(node, f"unknown column {node.name!r}; in FROM: {names}")
        if not any(column.is_of_table(table) for column in columns):
            tables = _list_names(column.table for column in columns)
            return self.source.error(node, f"unknown table {table!r}; in FROM: {tables}")
        names = _list_names(column.name for column in columns if column.is_of_table(table))
        return self.source.error(
            node, f"unknown column {node.name!r} of {table!r}; its columns: {names}"
        )

    def enclosing_scopes(self) -> Iterator[Scope]:
        """Yield this scope and the scopes around it, innermost first."""
        yield self
        outer = self.parent or self.unreachable_scope
        if outer is not None:
            yield from outer.enclosing_scopes()


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
