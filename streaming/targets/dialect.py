"""Dialect: the differences between databases; everything else is in `streaming.targets.sql`.

The class of the connection that the user's ``connect`` returns selects the dialect. A dialect
defines types, values, bulk insertion and transactions. Statements consist of quoted identifiers and
placeholders; a value never becomes part of the text of a statement.

DB-API requires Python objects, so Arrow values are converted to them. First, whole columns are cast
(times become ISO text, because Python's times have no nanoseconds), then ``to_pylist`` creates one
object per value. DuckDB reads Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.types.functions.casting.interval_texts import cast_intervals
from streaming.errors import TargetError
from streaming.targets.table_check import TableShape

__all__ = [
    "Dialect",
    "Row",
    "delete_statement",
    "duration_counts",
    "insert_statement",
    "iso_texts",
    "no_type_error",
    "on_conflict",
    "quote_name",
    "rows_of",
    "values_clause",
    "values_of",
]

Row = tuple[Any, ...]

# Outside of these years, databases do not read the text of a date as a date, or sort it as one.
_FIRST_DAY: Final = "0001-01-01"
_DAY_AFTER_LAST: Final = "10000-01-01"


class Dialect(Protocol):
    """The interface of a database.

    The Arrow types and columns that it receives have no dictionaries and no string or binary views.
    """

    name: str
    placeholder: str
    keeps_connection: bool  # whether a connection serves several micro-batches
    ignores_case: bool  # whether quoted names of tables that differ in case only are one table

    def quoted(self, name: str) -> str:
        """Return an identifier in the form for a statement with placeholders."""
        ...

    def type_of(self, type_: pa.DataType) -> str:
        """Return the type of a column for values of this Arrow type.

        Raises:
            TargetError: The driver cannot write such values.
        """
        ...

    def values(self, column: pa.ChunkedArray) -> Any:
        """Convert the values of a column to a form that the driver accepts.

        Raises:
            TargetError, pa.ArrowInvalid: The database cannot represent a value.
        """
        ...

    def rows(self, columns: Sequence[Any]) -> Any:
        """Return the rows of columns that `values` converted, for the methods that write rows.

        Rows have a length. There is at least one column.
        """
        ...

    def shape_of(self, connection: Any, name: str, schema: str | None) -> TableShape | None:
        """Return the columns of a table, or None if it does not exist; change nothing."""
        ...

    def begin(self, connection: Any, cursor: Any) -> None: ...
    def commit(self, connection: Any, cursor: Any) -> None: ...
    def rollback(self, connection: Any) -> None: ...

    def changed_row_count(self, cursor: Any) -> int:
        """Return how many rows the last statement of the cursor inserted or changed."""
        ...

    # The following methods write many rows at once; all names are quoted.
    def insert(self, cursor: Any, table: str, columns: Sequence[str], rows: Any) -> None: ...

    def upsert(
        self, cursor: Any, table: str, columns: Sequence[str], rows: Any, *, keys: Sequence[str]
    ) -> None:
        """Insert rows; each replaces the row with the same keys."""
        ...

    def delete(
        self, cursor: Any, table: str, keys: Sequence[str], rows: Any, *, nulls: Sequence[str]
    ) -> None:
        """Delete the rows with these keys and with NULL in the columns ``nulls``.

        Without keys, ``rows`` is a list of one empty tuple.
        """
        ...

    def is_transient(self, error: Exception) -> bool:
        """Return whether a retry may succeed, as after no answer, a lock or a deadlock."""
        ...

    def database_address(self, source: Any) -> str:
        """Return the place of the database, as a connection or an error of the driver names it.

        The result is empty if the place is not known.
        """
        ...

    def reason_of(self, error: Exception) -> str:
        """Return why no connection could be opened, in one line without secrets."""
        ...

    def is_dead(self, connection: Any) -> bool:
        """Return whether the connection is lost, so that a new connection may succeed."""
        ...


def delete_statement(
    table: str, keys: Sequence[str], nulls: Sequence[str], placeholder: str
) -> str:
    """Return the statement that deletes the row of one key."""
    conditions = [f"{key} = {placeholder}" for key in keys]
    conditions += [f"{name} IS NULL" for name in nulls]
    return f"DELETE FROM {table} WHERE {' AND '.join(conditions)}"


def quote_name(name: str) -> str:
    """Return a name of SQL in double quotes.

    >>> quote_name('two "words" here')
    '"two ""words"" here"'
    """
    return '"' + name.replace('"', '""') + '"'


def insert_statement(table: str, columns: Sequence[str], source: str) -> str:
    """Return the statement that inserts the rows of ``source``: VALUES (...) or SELECT ..."""
    return f"INSERT INTO {table} ({', '.join(columns)}) {source}"


def values_clause(placeholder: str, columns: Sequence[str]) -> str:
    """Return a VALUES clause with one placeholder per column."""
    return f"VALUES ({', '.join([placeholder] * len(columns))})"


def on_conflict(columns: Sequence[str], keys: Sequence[str]) -> str:
    """Return the last clause of an insertion that replaces the rows with the same keys."""
    changed = [f"{name} = excluded.{name}" for name in columns if name not in keys]
    action = f"UPDATE SET {', '.join(changed)}" if changed else "NOTHING"
    return f" ON CONFLICT ({', '.join(keys)}) DO {action}"


def no_type_error(type_: pa.DataType, database: str) -> TargetError:
    """Return the error for a type whose values the driver of a database cannot write."""
    return TargetError(f"{database} has no type for {type_}: write to_json(...) in the view")


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects, unchanged."""
    values: list[Any] = column.to_pylist()
    return values


def rows_of(columns: Sequence[list[Any]]) -> list[Row]:
    """Return the rows of columns of Python objects."""
    return list(zip(*columns, strict=True))


def duration_counts(column: pa.ChunkedArray) -> list[Any]:
    """Convert durations to numbers of their units."""
    return values_of(column.cast(pa.int64()))


def iso_texts(column: pa.ChunkedArray) -> list[Any]:
    """Convert dates, times and timestamps to ISO 8601 text; timestamps with a zone in UTC.

    >>> iso_texts(pa.chunked_array([pa.array([1], pa.timestamp("us", "Europe/Vienna"))]))
    ['1970-01-01 00:00:00.000001+00:00']
    """
    type_ = column.type
    if types.is_date(type_):
        column = column.cast(pa.date32())
    if types.is_timestamp(type_):
        _check_years(column.cast(pa.timestamp(type_.unit)), type_)
        zone = "+00:00" if type_.tz is not None else ""
        in_utc = column.cast(pa.timestamp(type_.unit, "UTC")) if zone else column
        texts = in_utc.cast(pa.timestamp(type_.unit)).cast(pa.string())
        return values_of(pc.binary_join_element_wise(texts, zone, ""))
    if types.is_date(type_):
        _check_years(column, type_)
    chunks = [cast_intervals(chunk, pa.string()) for chunk in column.chunks]
    return values_of(pa.chunked_array(chunks, pa.string()))


def _check_years(column: pa.ChunkedArray, type_: pa.DataType) -> None:
    """Check that all values are in the years 1 to 9999."""
    if types.is_timestamp(column.type) and column.type.unit == "ns":
        return  # the years 1677 to 2262
    first, end = (_in_unit(day, column.type) for day in (_FIRST_DAY, _DAY_AFTER_LAST))
    is_outside = pc.or_(pc.less(column, first), pc.greater_equal(column, end))
    if pc.any(is_outside).as_py():
        integer_type = pa.int64() if column.type.bit_width == 64 else pa.int32()
        example = pc.min(column.filter(is_outside)).cast(integer_type).as_py()
        raise TargetError(
            f"type {type_}: {example} units since 1970 are outside of the years 1 to 9999"
        )


def _in_unit(day: str, type_: pa.DataType) -> pa.Scalar:
    days = {_FIRST_DAY: -719162, _DAY_AFTER_LAST: 2932897}[day]  # since 1970-01-01
    if types.is_date32(type_):
        return pa.scalar(days, pa.int32()).cast(type_)
    factor = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6}[type_.unit]
    return pa.scalar(days * factor, pa.int64()).cast(type_)
