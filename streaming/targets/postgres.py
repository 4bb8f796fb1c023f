"""PostgreSQL, through psycopg 3.

::

    integers (uint8 and uint16 one wider)     SMALLINT, INTEGER, BIGINT
    uint64                                    NUMERIC(20, 0)
    durations (number of units)               BIGINT
    floats                                    DOUBLE PRECISION, with NaN and infinity
    decimals                                  NUMERIC(p, s)
    dates, times, timestamps                  DATE, TIME, TIMESTAMP, TIMESTAMPTZ; microseconds
    texts, binaries, bool                     TEXT, BYTEA, BOOLEAN

Nanoseconds that are no microseconds are refused, for PostgreSQL would round them.

Rows are inserted by COPY. Many upserts and deletions are copied into a temporary table first, of
the types that the columns have in the target, and applied by one statement: several times as fast
as one statement per row, which serves for a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streaming.targets.dialect import (
    Row,
    deletion,
    insertion,
    iso_texts,
    marks,
    on_conflict,
    units,
    values_of,
)

__all__ = ["Postgres"]

STAGED: Final = 500  # rows from which on a temporary table is worth its making


class Postgres:
    """The dialect of ``psycopg``."""

    name = "PostgreSQL"
    placeholder = "%s"
    keeps_connection = True

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""').replace("%", "%%") + '"'

    def type_of(self, type_: pa.DataType) -> str:
        if types.is_uint64(type_):
            return "NUMERIC(20, 0)"
        if types.is_integer(type_):
            width = type_.bit_width + types.is_unsigned_integer(type_)
            return "SMALLINT" if width <= 16 else "INTEGER" if width <= 32 else "BIGINT"
        if types.is_decimal(type_):
            return f"NUMERIC({type_.precision}, {type_.scale})" if type_.scale >= 0 else "NUMERIC"
        if types.is_timestamp(type_):
            return "TIMESTAMP" if type_.tz is None else "TIMESTAMPTZ"
        return _named(type_)

    def values(self, column: pa.ChunkedArray) -> list[Any]:
        type_ = column.type
        if types.is_timestamp(type_) and type_.unit == "ns":
            column = column.cast(pa.timestamp("us", type_.tz))
        if types.is_time(type_):
            column = column.cast(pa.time64("us"))
        if types.is_floating(type_):
            return values_of(column.cast(pa.float64()))
        if types.is_duration(type_):
            return units(column)
        return iso_texts(column) if types.is_temporal(type_) else values_of(column)

    def begin(self, connection: Any, cursor: Any) -> None:
        if connection.autocommit:
            cursor.execute("BEGIN")  # otherwise the first statement begins

    def commit(self, connection: Any, cursor: Any) -> None:
        connection.commit()

    def rollback(self, connection: Any) -> None:
        connection.rollback()

    def insert(self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with cursor.copy(statement.replace("%%", "%")) as copy:  # it has no placeholders
            for row in rows:
                copy.write_row(row)

    def upsert(
        self,
        cursor: Any,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Row],
        *,
        keys: Sequence[str],
    ) -> None:
        replacing = on_conflict(columns, keys)
        if len(rows) < STAGED:
            cursor.executemany(insertion(table, columns, marks("%s", columns) + replacing), rows)
            return
        with self._staged(cursor, table, columns, rows) as staged:
            source = f"SELECT {', '.join(columns)} FROM {staged}"
            cursor.execute(insertion(table, columns, source + replacing), ())

    def delete(
        self,
        cursor: Any,
        table: str,
        keys: Sequence[str],
        rows: Sequence[Row],
        *,
        nulls: Sequence[str],
    ) -> None:
        if len(rows) < STAGED:
            cursor.executemany(deletion(table, keys, nulls, "%s"), rows)
            return
        with self._staged(cursor, table, keys, rows) as staged:
            same = [f"{table}.{key} = {staged}.{key}" for key in keys]
            same += [f"{table}.{name} IS NULL" for name in nulls]
            cursor.execute(f"DELETE FROM {table} USING {staged} WHERE {' AND '.join(same)}", ())

    @contextmanager
    def _staged(
        self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Row]
    ) -> Iterator[str]:
        """Rows of some columns of a table, with their types there, as a table of this session."""
        staged = "pg_temp.dbsp_wcoj_staged"
        cursor.execute(
            f"CREATE TEMPORARY TABLE dbsp_wcoj_staged ON COMMIT DROP AS "
            f"SELECT {', '.join(columns)} FROM {table} WITH NO DATA",
            (),
        )
        self.insert(cursor, staged, columns, rows)
        cursor.execute(f"ANALYZE {staged}", ())
        yield staged
        cursor.execute(f"DROP TABLE {staged}", ())

    def is_dead(self, connection: Any) -> bool:
        return bool(connection.closed)


def _named(type_: pa.DataType) -> str:
    if types.is_boolean(type_):
        return "BOOLEAN"
    if types.is_floating(type_):
        return "DOUBLE PRECISION"
    if types.is_date(type_):
        return "DATE"
    if types.is_time(type_):
        return "TIME"
    if types.is_duration(type_):
        return "BIGINT"
    is_bytes = type_ in (pa.binary(), pa.large_binary())
    return "BYTEA" if is_bytes or types.is_fixed_size_binary(type_) else "TEXT"
