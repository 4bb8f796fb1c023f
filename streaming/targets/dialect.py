"""Dialect: the differences between databases; everything else is in `streaming.targets.sql`.

A dialect is selected by the class of the connection that the user's ``connect`` returns. It knows
types, values, bulk insertion and transactions. Statements are built from quoted identifiers and
placeholders; a value never becomes part of the text of a statement.

Values leave Arrow as Python objects, because DB-API requires them. The columns are first cast as a
whole (times become ISO text, and so keep their last digit), then ``to_pylist`` creates one object
per value. This is the only place where the package does that with the user's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streaming.errors import TargetError
from streaming.targets.table_check import TableShape

__all__ = [
    "Dialect",
    "Row",
    "deletion",
    "duration_counts",
    "insertion",
    "iso_texts",
    "on_conflict",
    "placeholders",
    "values_of",
]

Row = tuple[Any, ...]

# Beyond these years texts of dates are not read as dates, and do not sort as dates.
_FIRST_DAY: Final = "0001-01-01"
_END_DAY: Final = "10000-01-01"


class Dialect(Protocol):
    """One database. Types and columns have neither dictionaries nor views."""

    name: str
    placeholder: str
    keeps_connection: bool  # whether a connection serves several micro-batches

    def quoted(self, name: str) -> str:
        """An identifier, as it stands in a statement with placeholders."""
        ...

    def type_of(self, type_: pa.DataType) -> str:
        """The type of a column that holds these values."""
        ...

    def values(self, column: pa.ChunkedArray) -> list[Any]:
        """The values of a column, as the driver takes them.

        Raises:
            TargetError, pa.ArrowInvalid: One has no counterpart.
        """
        ...

    def shape_of(self, connection: Any, name: str, schema: str | None) -> TableShape | None:
        """The columns of a table; None if it is not there. Changes nothing."""
        ...

    def begin(self, connection: Any, cursor: Any) -> None: ...
    def commit(self, connection: Any, cursor: Any) -> None: ...
    def rollback(self, connection: Any) -> None: ...

    # Rows in bulk; all names are quoted.
    def insert(
        self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Row]
    ) -> None: ...

    def upsert(
        self,
        cursor: Any,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Row],
        *,
        keys: Sequence[str],
    ) -> None:
        """Insert rows, in place of those that have the same keys."""
        ...

    def delete(
        self,
        cursor: Any,
        table: str,
        keys: Sequence[str],
        rows: Sequence[Row],
        *,
        nulls: Sequence[str],
    ) -> None:
        """Delete the rows that have these keys, and NULL in the columns ``nulls``."""
        ...

    def is_transient(self, error: Exception) -> bool:
        """Return whether the transaction may succeed later: no answer, a lock, a deadlock."""
        ...

    def place_of(self, source: Any) -> str:
        """Where the database is, by a connection or an error of the driver; empty if not known."""
        ...

    def reason_of(self, error: Exception) -> str:
        """Why no connection could be opened, in one line without secrets."""
        ...

    def is_dead(self, connection: Any) -> bool:
        """Whether the connection is lost and another one may do."""
        ...


def deletion(table: str, keys: Sequence[str], nulls: Sequence[str], mark: str) -> str:
    """The statement that deletes the row of one key."""
    conditions = [f"{key} = {mark}" for key in keys] + [f"{name} IS NULL" for name in nulls]
    return f"DELETE FROM {table} WHERE {' AND '.join(conditions)}"


def insertion(table: str, columns: Sequence[str], source: str) -> str:
    """The statement that inserts what ``source`` gives: VALUES (...) or SELECT ..."""
    return f"INSERT INTO {table} ({', '.join(columns)}) {source}"


def placeholders(mark: str, columns: Sequence[str]) -> str:
    """VALUES, with a placeholder per column."""
    return f"VALUES ({', '.join([mark] * len(columns))})"


def on_conflict(columns: Sequence[str], keys: Sequence[str]) -> str:
    """The end of an insertion that replaces the rows of the same keys."""
    changed = [f"{name} = excluded.{name}" for name in columns if name not in keys]
    action = f"UPDATE SET {', '.join(changed)}" if changed else "NOTHING"
    return f" ON CONFLICT ({', '.join(keys)}) DO {action}"


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Python values, where they need no thought."""
    values: list[Any] = column.to_pylist()
    return values


def duration_counts(column: pa.ChunkedArray) -> list[Any]:
    """Durations as the number of their units."""
    return values_of(column.cast(pa.int64()))


def iso_texts(column: pa.ChunkedArray) -> list[Any]:
    """Dates, times and timestamps as ISO 8601 text, those with a zone in UTC.

    >>> iso_texts(pa.chunked_array([pa.array([1], pa.timestamp("us", "Europe/Vienna"))]))
    ['1970-01-01 00:00:00.000001+00:00']
    """
    type_ = column.type
    if types.is_date(type_):
        column = column.cast(pa.date32())
    if types.is_timestamp(type_):
        _check_years(column.cast(pa.timestamp(type_.unit)), type_)
        zone = "+00:00" if type_.tz is not None else ""
        naive = column.cast(pa.timestamp(type_.unit, "UTC")) if zone else column
        texts = naive.cast(pa.timestamp(type_.unit)).cast(pa.string())
        return values_of(pc.binary_join_element_wise(texts, zone, ""))
    if types.is_date(type_):
        _check_years(column, type_)
    return values_of(column.cast(pa.string()))


def _check_years(column: pa.ChunkedArray, type_: pa.DataType) -> None:
    """Refuse what is not in the years 1 to 9999."""
    if types.is_timestamp(column.type) and column.type.unit == "ns":
        return  # the years 1677 to 2262
    at_least, below = (_in_unit(day, column.type) for day in (_FIRST_DAY, _END_DAY))
    outside = pc.or_(pc.less(column, at_least), pc.greater_equal(column, below))
    if pc.any(outside).as_py():
        least = pc.min(column.filter(outside)).cast(
            pa.int64() if column.type.bit_width == 64 else pa.int32()
        )
        raise TargetError(
            f"type {type_}: {least.as_py()} units since 1970 are outside of the years 1 to 9999"
        )


def _in_unit(day: str, type_: pa.DataType) -> pa.Scalar:
    days = {_FIRST_DAY: -719162, _END_DAY: 2932897}[day]
    if types.is_date32(type_):
        return pa.scalar(days, pa.int32()).cast(type_)
    factor = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6}[type_.unit]
    return pa.scalar(days * factor, pa.int64()).cast(type_)
