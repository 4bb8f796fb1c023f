"""Statements: the SQL that `Database.execute` runs, as queries and changes of rows.

::

    SELECT ...                              a query
    INSERT INTO t VALUES ... or SELECT ...  the rows of a query, with weight 1
    DELETE FROM t WHERE p                   SELECT * FROM t WHERE p, with weight -1
    UPDATE t SET c = e WHERE p              SELECT * FROM t WHERE p, with weight -1, and
                                            SELECT ..., e AS c, ... FROM t WHERE p, with weight 1
    CREATE TABLE, CREATE VIEW               further text of the program
    DROP VIEW v, DROP TABLE t               the program without its statement

sqlglot reads the statements. The queries are run by the circuit, so that the values and conditions
of a change can be any SQL that a view can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from sqlglot import exp

from circuits.schema import WEIGHT, Schema
from circuits.sql import SqlSource
from streaming.database.result import Result
from streaming.errors import DatabaseError

__all__ = ["ROW_STATEMENTS", "Outcome", "RowChange", "parse_statement", "row_changes"]

#: The statements that change rows.
ROW_STATEMENTS: Final = (exp.Insert, exp.Delete, exp.Update)


@dataclass(frozen=True)
class Outcome:
    """The effect of one statement.

    Attributes:
        statement: The text of the statement.
        result: The rows of a query; None for other statements.
        changes: The changed rows of each view, with ``weight``; of the views only that changed.
        rows: How many rows of a table the statement changed; None for other statements.
    """

    statement: str
    result: Result | None = None
    changes: Mapping[str, pa.Table] | None = None
    rows: int | None = None


@dataclass(frozen=True)
class RowChange:
    """Rows with weights of one input."""

    relation: str
    table: pa.Table


def parse_statement(text: str, dialect: str) -> exp.Expr | None:
    """Return the syntax tree of one statement; None if it has no effect on views.

    Raises:
        SqlError: It is not valid SQL.
    """
    return next(iter(SqlSource(text, dialect).parse()), None)


def row_changes(
    tree: exp.Expr,
    schemas: Mapping[str, Schema],
    query: Callable[[str], pa.Table],
    dialect: str,
) -> Iterator[RowChange]:
    """Return the rows that an INSERT, DELETE or UPDATE changes, in the order of their effect.

    Args:
        tree: The statement.
        schemas: The columns of each table.
        query: Returns the rows of a SELECT, with weights.
        dialect: The dialect of the statement.

    Raises:
        DatabaseError: The statement names an unknown table or column, has a clause that is not
            supported, or gives a value that does not fit its column.
    """
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    relation = next((n for n in schemas if n.casefold() == target.name.casefold()), None)
    if relation is None:
        raise DatabaseError(
            f"{target.name!r} is not a table; tables are {', '.join(schemas) or 'none'}"
        )
    schema = schemas[relation]
    if isinstance(tree, exp.Insert):
        _check_clauses(tree, "this", "expression")
        yield RowChange(relation, _inserted(tree, schema, query, dialect))
        return
    _check_clauses(tree, "this", "where", "expressions")
    _check_clauses(target, "this", "alias")
    condition = tree.args.get("where")
    rows = exp.select(*(exp.column(name, quoted=True) for name in schema.columns)).from_(target)
    old = query(_with_condition(rows, condition, dialect))
    weights = old.column(WEIGHT).to_numpy()
    yield RowChange(relation, _with_weights(old, -weights))
    if isinstance(tree, exp.Update):
        values = _assigned_values(tree, schema)
        new = query(_with_condition(exp.select(*values).from_(target), condition, dialect))
        table = _as_declared(new.drop_columns([WEIGHT]), schema)
        yield RowChange(relation, _with_weights(table, new.column(WEIGHT).to_numpy()))


def _inserted(
    tree: exp.Insert, schema: Schema, query: Callable[[str], pa.Table], dialect: str
) -> pa.Table:
    names = [column.name for column in tree.this.expressions]
    columns = [_column_of(name, schema) for name in names] or list(schema.columns)
    if tree.expression is None:
        raise DatabaseError("INSERT needs VALUES or a SELECT")
    rows = query(tree.expression.sql(dialect=dialect))
    table = rows.drop_columns([WEIGHT])
    if table.num_columns != len(columns):
        raise DatabaseError(
            f"INSERT INTO {schema.relation}: the rows have {table.num_columns} values, and there "
            f"are {len(columns)} columns: {', '.join(columns)}"
        )
    table = table.rename_columns(columns)
    for field in schema.fields:
        if field.name not in columns:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return _with_weights(
        _as_declared(table.select(list(schema.columns)), schema), rows.column(WEIGHT).to_numpy()
    )


def _assigned_values(tree: exp.Update, schema: Schema) -> list[exp.Expr]:
    """Return the expression of each column after an UPDATE."""
    assigned: dict[str, exp.Expr] = {}
    for assignment in tree.expressions:
        if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
            raise DatabaseError("UPDATE: write each change as column = expression")
        assigned[_column_of(assignment.this.name, schema)] = assignment.expression
    return [
        exp.alias_(assigned.get(name, exp.column(name, quoted=True)), name, quoted=True)
        for name in schema.columns
    ]


def _with_condition(select: exp.Select, condition: exp.Expr | None, dialect: str) -> str:
    if condition is not None:
        select = select.where(condition.this.copy())
    return select.sql(dialect=dialect)


def _column_of(name: str, schema: Schema) -> str:
    for column in schema.columns:
        if column.casefold() == name.casefold():
            return column
    raise DatabaseError(
        f"table {schema.relation!r} has no column {name!r}; its columns are "
        f"{', '.join(schema.columns)}"
    )


def _as_declared(table: pa.Table, schema: Schema) -> pa.Table:
    """Return a table in the types of the schema, as an assignment of SQL converts values."""
    columns = {}
    for field in schema.fields:
        try:
            columns[field.name] = table.column(field.name).cast(field.type)
        except pa.ArrowException as error:
            raise DatabaseError(
                f"table {schema.relation!r}, column {field.name!r}: a value does not fit the type "
                f"{field.type}: {error}"
            ) from None
    return pa.table(columns)


def _with_weights(table: pa.Table, weights: np.typing.NDArray[np.int64]) -> pa.Table:
    if WEIGHT in table.column_names:
        table = table.drop_columns([WEIGHT])
    return table.append_column(WEIGHT, pa.array(weights))


def _check_clauses(tree: exp.Expr, *supported: str) -> None:
    for name, value in tree.args.items():
        if value and name not in supported:
            text = value.sql() if isinstance(value, exp.Expr) else name
            raise DatabaseError(
                f"{tree.key.upper()} with {text} is not supported; write it without, or change the "
                "rows with insert, delete and upsert"
            )
