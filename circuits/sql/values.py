"""VALUES: constant rows; the values of a column are cast to their common type."""

from __future__ import annotations

from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.plan.nodes import Field, Values
from circuits.sql.clause import Clause
from circuits.sql.environment import Environment
from circuits.types import functions

__all__ = ["read_values"]


def read_values(environment: Environment, node: exp.Values) -> Values:
    """Return the rows of VALUES; the columns are named col0, col1, ... as in DuckDB."""
    source = environment.source
    clause = environment.clause("VALUES", _refuse_column)
    rows: list[list[Expression]] = []
    for row in node.expressions:
        source.allow_arguments(row, "expressions")
        rows.append([clause.read(value) for value in row.expressions])
        if len(rows[-1]) != len(rows[0]):
            raise source.error(
                row, f"a row of {len(rows[-1])} values in VALUES of {len(rows[0])} columns"
            )
    fields, constants = [], []
    for number, column in enumerate(zip(*rows, strict=True)):
        with source.errors_at(node):
            # coalesce casts a string literal beside dates to a date.
            type_ = functions.call("coalesce", *column).type
            cast = [
                value if value.type == type_ else functions.call("cast", value, type=type_)
                for value in column
            ]
        for value in cast:
            if not isinstance(value, Literal):
                raise source.unsupported(node, f"{value} in VALUES", "write constants")
        fields.append(Field(f"col{number}", type_))
        constants.append([value.value for value in cast if isinstance(value, Literal)])
    return Values(tuple(fields), tuple(zip(*constants, strict=True)))


def _refuse_column(clause: Clause, node: exp.Column) -> Expression:
    raise clause.source.error(node, f"column {node.sql()!r} in VALUES; write constants")
