"""Data statements: the SQL that changes rows or the program, for a program that runs statements.

::

    SELECT ...                              a query
    INSERT INTO t VALUES ... or SELECT ...  adds the rows of a query
    DELETE FROM t WHERE p                   removes SELECT * FROM t WHERE p
    UPDATE t SET c = e WHERE p              removes SELECT * FROM t WHERE p, and
                                            adds SELECT ..., e AS c, ... FROM t WHERE p
    CREATE TABLE, CREATE VIEW, CREATE TYPE  further text of the program
    DROP VIEW v, DROP TABLE t               the program without its statement

A change of rows becomes queries, which the circuit answers. So its values and conditions can be any
SQL that a view can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from circuits.errors import SqlError
from circuits.sql.syntax.source import SqlSource

__all__ = ["RowQueries", "Statement", "ends_statement", "read_row_queries", "read_statement"]

_ROW_STATEMENTS: Final = (exp.Insert, exp.Delete, exp.Update)
_PROGRAM_KINDS: Final = ("TABLE", "VIEW")


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        text: Its text.
        kind: "query"; "rows" for INSERT, DELETE and UPDATE; "create" for tables, views and types;
            "drop" for tables and views; "other" for statements that cannot be run.
        name: The table or view that it creates or drops; empty for others.
        replaces: True for CREATE OR REPLACE.
        if_exists: True for DROP ... IF EXISTS.
    """

    text: str
    kind: Literal["query", "rows", "create", "drop", "other"]
    name: str = ""
    replaces: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class RowQueries:
    """A change of the rows of a table, as queries.

    Attributes:
        relation: The table.
        columns: The columns of the rows that are added; others are NULL.
        removed: The query of the rows that are removed; None if none are.
        added: The query of the rows that are added; None if none are.
    """

    relation: str
    columns: tuple[str, ...] = ()
    removed: str | None = None
    added: str | None = None


def ends_statement(text: str, dialect: str) -> bool:
    """Return whether a text ends with a semicolon that is not in a quote or comment.

    >>> [ends_statement(text, "duckdb") for text in ("SELECT 1;", "SELECT ';", "SELECT 1 -- ;")]
    [True, False, False]
    """
    try:
        tokens = SqlSource(text, dialect).tokenize()
    except SqlError:
        return False  # a quote is open
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def read_statement(text: str, dialect: str) -> Statement:
    """Return what kind of statement a text is.

    Raises:
        SqlError: It is not valid SQL.
        UnsupportedSqlError: DROP ... CASCADE.

    >>> read_statement("DROP VIEW IF EXISTS v", "duckdb")
    Statement(text='DROP VIEW IF EXISTS v', kind='drop', name='v', replaces=False, if_exists=True)
    """
    source = SqlSource(text, dialect)
    tree = next(iter(source.parse()), None)
    if tree is None and source.types:
        return Statement(text, "create")  # CREATE TYPE, which is no tree of its own
    if isinstance(tree, exp.Query | exp.Values):
        return Statement(text, "query")
    if isinstance(tree, _ROW_STATEMENTS):
        return Statement(text, "rows")
    if isinstance(tree, exp.Create | exp.Drop) and tree.kind in _PROGRAM_KINDS:
        if tree.args.get("cascade"):
            raise source.unsupported(tree, "CASCADE", "drop the views that read it", word="DROP")
        table = tree.find(exp.Table)
        return Statement(
            text,
            "create" if isinstance(tree, exp.Create) else "drop",
            "" if table is None else table.name,
            replaces=bool(tree.args.get("replace")),
            if_exists=bool(tree.args.get("exists")) and isinstance(tree, exp.Drop),
        )
    return Statement(text, "other")


def read_row_queries(text: str, tables: Mapping[str, Sequence[str]], dialect: str) -> RowQueries:
    """Return an INSERT, DELETE or UPDATE as queries.

    Args:
        text: The statement.
        tables: The columns of each table.
        dialect: The dialect of the statement.

    Raises:
        SqlError: The statement names an unknown table or column.
        UnsupportedSqlError: It has a clause that is not supported.

    >>> change = read_row_queries("UPDATE t SET b = a + 1 WHERE a > 2", {"t": ["a", "b"]}, "duckdb")
    >>> change.removed, change.added
    ('SELECT "a", "b" FROM t WHERE a > 2', 'SELECT "a" AS "a", a + 1 AS "b" FROM t WHERE a > 2')
    """
    source = SqlSource(text, dialect)
    (tree,) = source.parse()
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    relation = next((n for n in tables if n.casefold() == target.name.casefold()), None)
    if relation is None:
        known = ", ".join(tables) or "none"
        raise source.error(target, f"{target.name!r} is not a table; tables are {known}")
    columns = tables[relation]

    def column_of(node: exp.Expr) -> str:
        for column in columns:
            if column.casefold() == node.name.casefold():
                return column
        raise source.error(
            node,
            f"table {relation!r} has no column {node.name!r}; its columns are {', '.join(columns)}",
        )

    if isinstance(tree, exp.Insert):
        _check_clauses(source, tree, "this", "expression")
        names = tuple(map(column_of, tree.this.expressions)) if target is not tree.this else ()
        if tree.expression is None:
            raise source.error(tree, "INSERT needs VALUES or a SELECT")
        return RowQueries(relation, names or tuple(columns), added=tree.expression.sql(dialect))
    _check_clauses(source, tree, "this", "where", "expressions")
    _check_clauses(source, target, "this", "alias")
    old = [exp.column(name, quoted=True) for name in columns]
    removed = _select(old, target, tree, dialect)
    if isinstance(tree, exp.Delete):
        return RowQueries(relation, removed=removed)
    assigned: dict[str, exp.Expr] = {}
    for assignment in tree.expressions:
        if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
            raise source.error(assignment, "write each change of UPDATE as column = expression")
        assigned[column_of(assignment.this)] = assignment.expression
    new = [
        exp.alias_(assigned.get(name, exp.column(name, quoted=True)), name, quoted=True)
        for name in columns
    ]
    return RowQueries(relation, tuple(columns), removed, _select(new, target, tree, dialect))


def _select(
    expressions: Sequence[exp.Expr], target: exp.Expr, statement: exp.Expr, dialect: str
) -> str:
    """Return a query of the rows that a statement reads."""
    select = exp.select(*expressions).from_(target.copy())
    condition = statement.args.get("where")
    if condition is not None:
        select = select.where(condition.this.copy())
    return select.sql(dialect=dialect)


def _check_clauses(source: SqlSource, tree: exp.Expr, *supported: str) -> None:
    for name, value in tree.args.items():
        if value and name not in supported:
            text = value.sql() if isinstance(value, exp.Expr) else name.upper()
            raise source.unsupported(tree, f"{tree.key.upper()} with {text}", "leave it out")
