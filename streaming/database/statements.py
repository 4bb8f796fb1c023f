"""Statements: the effect of a statement of SQL on a database, and the rows that it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.schema import WEIGHT, Schema
from circuits.sql import RowQueries
from streaming.database.result import Result
from streaming.errors import DatabaseError

__all__ = ["Outcome", "row_changes"]


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


def row_changes(
    queries: RowQueries, schema: Schema, query: Callable[[str], pa.Table]
) -> Iterator[pa.Table]:
    """Return the rows that a statement changes, with weights, in the order of their effect.

    Args:
        queries: The queries of the statement.
        schema: The columns of its table.
        query: Returns the rows of a SELECT, with weights.

    Raises:
        DatabaseError: The rows have another number of values than the statement has columns, or a
            value does not fit its column.
        SqlError: A query is not valid.
    """
    if queries.removed is not None:
        old = query(queries.removed)
        yield _with_weights(old.drop_columns([WEIGHT]), -_weights(old))
    if queries.added is not None:
        new = query(queries.added)
        table = new.drop_columns([WEIGHT])
        names = queries.columns
        if table.num_columns != len(names):
            raise DatabaseError(
                f"INSERT INTO {schema.relation}: the rows have {table.num_columns} values, and "
                f"there are {len(names)} columns: {', '.join(names)}"
            )
        yield _with_weights(_as_declared(table.rename_columns(names), schema), _weights(new))


def _as_declared(table: pa.Table, schema: Schema) -> pa.Table:
    """Return a table in the types of the schema, as an assignment of SQL converts values.

    A column that is missing is NULL.
    """
    columns = {}
    for field in schema.fields:
        if field.name not in table.column_names:
            columns[field.name] = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
            continue
        try:
            columns[field.name] = table.column(field.name).cast(field.type)
        except pa.ArrowException as error:
            raise DatabaseError(
                f"table {schema.relation!r}, column {field.name!r}: a value does not fit the type "
                f"{field.type}: {error}"
            ) from None
    return pa.table(columns)


def _weights(table: pa.Table) -> npt.NDArray[np.int64]:
    weights: npt.NDArray[np.int64] = table.column(WEIGHT).to_numpy()
    return weights


def _with_weights(table: pa.Table, weights: npt.NDArray[np.int64]) -> pa.Table:
    return table.append_column(WEIGHT, pa.array(weights))
