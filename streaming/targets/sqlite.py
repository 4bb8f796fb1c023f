"""SQLite: the dialect of a database with few types, which stores some values as text.

::

    integers, bool, durations (number of units)     INTEGER
    uint64                                          INTEGER; 2**63 and more is an error
    floats                                          REAL; NaN is the text 'NaN', as SQLite has none
    decimals, dates, times, timestamps, texts       TEXT; ISO 8601, with a zone in UTC
    binaries                                        BLOB

A connection is bound to the thread that opened it, and Spark calls from any thread. Therefore the
target opens a connection for each micro-batch, which costs a fraction of a millisecond.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.types.arrow_types import Family, family_of, is_nested
from streaming.errors import TargetError
from streaming.targets.dialect import (
    Row,
    delete_statement,
    duration_counts,
    insert_statement,
    iso_texts,
    no_type_error,
    on_conflict,
    quote_name,
    rows_of,
    values_clause,
    values_of,
)
from streaming.targets.table_check import TableShape

__all__ = ["Sqlite"]

_MAX_INTEGER: Final = 2**63 - 1
# The types of columns by the family of an Arrow type; TEXT for other families.
_TYPES: Final = {
    Family.INTEGER: "INTEGER",
    Family.BOOLEAN: "INTEGER",
    Family.DURATION: "INTEGER",
    Family.FLOAT: "REAL",
    Family.BINARY: "BLOB",
}


class Sqlite:
    """The dialect of ``sqlite3``."""

    name = "SQLite"
    placeholder = "?"
    keeps_connection = False
    ignores_case = True

    def quoted(self, name: str) -> str:
        return quote_name(name)

    def type_of(self, type_: pa.DataType) -> str:
        if is_nested(type_):
            raise no_type_error(type_, self.name)
        return _TYPES.get(family_of(type_), "TEXT")

    def values(self, column: pa.ChunkedArray) -> list[Any]:
        type_ = column.type
        if types.is_uint64(type_) and (pc.max(column).as_py() or 0) > _MAX_INTEGER:
            raise TargetError(
                f"{pc.max(column).as_py()} is above {_MAX_INTEGER}, the greatest integer of "
                "SQLite: cast the column to decimal or text in the view"
            )
        if types.is_floating(type_):
            values = values_of(column.cast(pa.float64()))
            if pc.any(pc.is_nan(column.cast(pa.float64()))).as_py():
                values = ["NaN" if value != value else value for value in values]
            return values
        if types.is_decimal(type_):
            return [None if value is None else f"{value:f}" for value in values_of(column)]
        if types.is_duration(type_):
            return duration_counts(column)
        return iso_texts(column) if types.is_temporal(type_) else values_of(column)

    def rows(self, columns: Sequence[list[Any]]) -> list[Row]:
        return rows_of(columns)

    def shape_of(self, connection: Any, name: str, schema: str | None) -> TableShape | None:
        def pragma(function: str, argument: str) -> list[Any]:
            prefix = "" if schema is None else f"{self.quoted(schema)}."
            statement = f"PRAGMA {prefix}{function}({self.quoted(argument)})"
            with contextlib.closing(connection.cursor()) as cursor:  # an open one keeps its lock
                rows: list[Any] = cursor.execute(statement).fetchall()
            return rows

        # A row of table_info: number, name, type, NOT NULL, default, position in the primary key;
        # of index_list: number, name, unique, origin, partial; of index_info: 2 numbers, column.
        columns = pragma("table_info", name)
        if not columns:
            return None
        primary_key = frozenset(column[1] for column in columns if column[5])
        required = frozenset(column[1] for column in columns if column[3] and column[4] is None)
        unique = [
            frozenset(row[2] for row in pragma("index_info", index[1]))
            for index in pragma("index_list", name)
            if index[2] and not index[4]
        ]
        return TableShape(
            {column[1]: column[2] for column in columns},
            required - primary_key,
            tuple([primary_key, *unique] if primary_key else unique),
        )

    def begin(self, connection: Any, cursor: Any) -> None:
        if not connection.in_transaction:
            cursor.execute("BEGIN IMMEDIATE")

    def commit(self, connection: Any, cursor: Any) -> None:
        cursor.execute("COMMIT")  # connection.commit() does nothing with autocommit=True

    def rollback(self, connection: Any) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def changed_row_count(self, cursor: Any) -> int:
        return int(cursor.rowcount)

    def insert(self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        cursor.executemany(insert_statement(table, columns, values_clause("?", columns)), rows)

    def upsert(
        self,
        cursor: Any,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Row],
        *,
        keys: Sequence[str],
    ) -> None:
        source = values_clause("?", columns) + on_conflict(columns, keys)
        cursor.executemany(insert_statement(table, columns, source), rows)

    def delete(
        self,
        cursor: Any,
        table: str,
        keys: Sequence[str],
        rows: Sequence[Row],
        *,
        nulls: Sequence[str],
    ) -> None:
        cursor.executemany(delete_statement(table, keys, nulls, "?"), rows)

    def is_transient(self, error: Exception) -> bool:
        if not isinstance(error, sqlite3.OperationalError):
            return False
        code = getattr(error, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    def database_address(self, source: Any) -> str:
        if not isinstance(source, sqlite3.Connection):
            return ""
        return str(source.execute("PRAGMA database_list").fetchone()[2])

    def reason_of(self, error: Exception) -> str:
        return " ".join(str(error).split())

    def is_dead(self, connection: Any) -> bool:
        try:
            return bool(connection.total_changes < 0)
        except Exception:  # sqlite3.ProgrammingError: it was closed
            return True
