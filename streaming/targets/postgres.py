"""PostgreSQL, through psycopg 3.

::

    integers (uint8 and uint16 one wider)     SMALLINT, INTEGER, BIGINT
    uint64                                    NUMERIC(20, 0)
    durations (number of units)               BIGINT
    floats                                    DOUBLE PRECISION, with NaN and infinity
    decimals                                  NUMERIC(p, s)
    dates, times, timestamps                  DATE, TIME, TIMESTAMP, TIMESTAMPTZ; microseconds
    texts, binaries, bool                     TEXT, BYTEA, BOOLEAN

Nanoseconds that are no microseconds are refused, for PostgreSQL would round them. Rows are inserted
by COPY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from streaming.targets.dialect import Row, iso_texts, units, values_of

__all__ = ["Postgres"]


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
