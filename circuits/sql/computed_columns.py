"""Computed columns of CREATE TABLE: ``ts AS to_timestamp_ltz(ms, 3)``, ``total AS price * qty``.

The rows that the caller passes have the other columns only. Every query reads the table as a Map
over the input, with all columns in the order of their declaration::

    CREATE TABLE t (price INT, total AS price * qty, qty INT)
    t  =  Map(Scan(t: price, qty), (price, price * qty, qty))

The Map is linear and has no state, so a deleted row deletes the values that it was inserted with. A
column can name the computed columns before it. A computed column with a WATERMARK is the event time
of the input (`circuits.plan.event_time`).

Reference: CREATE TABLE in Flink's documentation; generated columns in those of DuckDB and Delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.event_time import EventTime
from circuits.plan.expressions import Call, Column, Expression
from circuits.plan.nodes import Map, PlanNode, columns
from circuits.sql.binding.clause import Clause, call_function
from circuits.sql.binding.environment import Environment
from circuits.sql.binding.scope import Scope, ScopeColumn, scope_columns_of
from circuits.sql.syntax.source import Unsupported
from circuits.types import functions
from circuits.user_functions import user_function_name

__all__ = ["PROCESSING_TIME", "ComputedColumn", "with_computed_columns", "with_normal_jsonb"]

_CLAUSE_NAME: Final = "a computed column"
#: Why a column of PROCTIME() cannot be read, and what to write instead.
PROCESSING_TIME: Final = Unsupported(
    "PROCTIME() in a computed column",
    "the time of processing differs when a row is deleted or replayed; give the rows a column "
    "with their time, or compare a time with now() in WHERE",
)


@dataclass(frozen=True)
class ComputedColumn:
    """A computed column of a table.

    Attributes:
        name: Its name.
        tree: The syntax tree of its expression.
        type: Its type; None for that of the expression.
        position: The number of columns before it.
    """

    name: str
    tree: exp.Expr
    type: pa.DataType | None
    position: int


def with_computed_columns(
    environment: Environment,
    table: str,
    rows: PlanNode,
    computed: tuple[ComputedColumn, ...],
    event_time: str | None,
) -> PlanNode:
    """Return the plan of a table with its computed columns.

    Args:
        environment: The text and the readers of expressions.
        table: The name of the table, which the expressions can name.
        rows: The plan of the rows with the other columns.
        computed: The computed columns, in the order of their declaration.
        event_time: The name of the event time of the table, if rows can be late; else None.

    Raises:
        SqlError: An expression is not valid.
        UnsupportedSqlError: An expression is not supported, for example because it reads the
            current time.
    """
    values: dict[str, Expression] = {}
    for column in computed:
        value = _read_value(environment, table, rows, values, column)
        if column.name == event_time:
            _refuse_user_functions(environment, column, value)
            time = Column(len(rows.fields), value.type)
            rows = EventTime(rows, table, column.name, value)
            value = time
        values[column.name] = value
    names = [field.name for field in rows.fields if field.name not in values]
    for column in computed:
        names.insert(column.position, column.name)
    given = {field.name: value for field, value in zip(rows.fields, columns(rows), strict=True)}
    return Map(rows, tuple(values.get(name) or given[name] for name in names), tuple(names))


def with_normal_jsonb(rows: PlanNode) -> PlanNode:
    """Return the rows with PostgreSQL's normal form of each JSONB, so that equal ones are equal."""
    fields = rows.fields
    if not any(field.json_kind == "jsonb" for field in fields):
        return rows
    values = (
        functions.call("jsonb_of_text", value) if field.json_kind == "jsonb" else value
        for field, value in zip(fields, columns(rows), strict=True)
    )
    return Map(rows, tuple(values), tuple(field.name for field in fields))


def _read_value(
    environment: Environment,
    table: str,
    rows: PlanNode,
    values: Mapping[str, Expression],
    column: ComputedColumn,
) -> Expression:
    """Return the value of a column over the plan of the rows."""
    source = environment.source
    scope_columns = [part for part in scope_columns_of(rows, table) if part.name not in values]
    scope_columns += [ScopeColumn(table, name, value) for name, value in values.items()]
    scope = Scope(source, tuple(scope_columns))

    def read_column(_: Clause, node: exp.Column) -> Expression:
        return scope.resolve(node)

    for node in column.tree.walk():
        if isinstance(node, exp.Anonymous) and node.name.casefold() == "proctime":
            raise source.unsupported(node, *PROCESSING_TIME)
    value = environment.clause(_CLAUSE_NAME, read_column).read(column.tree)
    source.check_all_read(column.tree)
    if column.type is not None and value.type != column.type:
        value = call_function(source, column.tree, "cast", value, type=column.type)
    if pa.types.is_null(value.type):
        raise source.error(
            column.tree, f"computed column {column.name!r} has no type; cast NULL to one"
        )
    return value


def _refuse_user_functions(
    environment: Environment, column: ComputedColumn, value: Expression
) -> None:
    name = _called_user_function(value)
    if name is not None:
        raise environment.source.unsupported(
            column.tree,
            f"user-defined function {name}() in a column with a WATERMARK",
            "give the rows a column with their time",
        )


def _called_user_function(expression: Expression) -> str | None:
    """Return the name of a user-defined function that an expression calls, if there is one."""
    if not isinstance(expression, Call):
        return None
    names = map(_called_user_function, expression.arguments)
    return user_function_name(expression) or next(filter(None, names), None)
