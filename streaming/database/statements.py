"""Statements: the effect of a statement of SQL on a database, and the rows that it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.schema import WEIGHT, Schema
from circuits.sql import RowQueries
from circuits.types.functions.nested.postgres_lists import list_of_text
from streaming.database.result import Result
from streaming.errors import DatabaseError

__all__ = ["Outcome", "row_changes"]

_MAX_DIGITS: Final = 38  # of a decimal of Arrow with 128 bits


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
            columns[field.name] = _assign(table.column(field.name), field.type)
        except pa.ArrowException as error:
            raise DatabaseError(
                f"table {schema.relation!r}, column {field.name!r}: a value does not fit the type "
                f"{field.type}: {error}"
            ) from None
    return pa.table(columns)


def _assign(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return values in the type of the column that they are assigned to.

    Raises:
        ArrowException: A value does not fit the type.
    """
    if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
        # Arrow checks the greatest value of the integer type instead of the values.
        values = values.cast(pa.decimal128(_MAX_DIGITS, target.scale))
    if pa.types.is_list(target) and pa.types.is_string(values.type):
        levels, element = 0, target
        while pa.types.is_list(element):
            levels, element = levels + 1, element.value_type
        values = pa.chunked_array([list_of_text(values, levels)])
    if pa.types.is_interval(values.type) and pa.types.is_duration(target):
        values = pa.chunked_array([pa.array(map(_duration_of, values), target)])
    return values.cast(target)


def _duration_of(interval: pa.Scalar) -> timedelta | None:
    """Return an interval without months as a duration; a day has 24 hours."""
    value = interval.as_py()
    if value is None:
        return None
    if value.months:
        raise pa.ArrowInvalid("the interval has months; write it in days")
    return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)


def _weights(table: pa.Table) -> npt.NDArray[np.int64]:
    weights: npt.NDArray[np.int64] = table.column(WEIGHT).to_numpy()
    return weights


def _with_weights(table: pa.Table, weights: npt.NDArray[np.int64]) -> pa.Table:
    return table.append_column(WEIGHT, pa.array(weights))
