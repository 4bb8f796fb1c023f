"""PostgreSQL, through psycopg 3.

::

    integers                                  SMALLINT, INTEGER, BIGINT; unsigned as the next wider
    uint64                                    NUMERIC(20, 0)
    durations (number of units)               BIGINT
    floats                                    DOUBLE PRECISION, with NaN and infinity
    decimals                                  NUMERIC(p, s)
    dates, times, timestamps                  DATE, TIME, TIMESTAMP, TIMESTAMPTZ; microseconds
    texts, binaries, bool                     TEXT, BYTEA, BOOLEAN

A name of more than 63 bytes raises an error, because PostgreSQL would cut it off, and two names
that begin in the same way would become one. Values with a fraction of a microsecond raise an error,
because PostgreSQL would round them.

COPY inserts rows. A few upserts or deletions run one statement per row. Many are first copied into
a temporary table with the column types of the target, and one statement applies them, which is
several times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from circuits.types.arrow_types import Family, family_of, is_nested
from streaming.errors import TargetError
from streaming.redaction import redact
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

__all__ = ["Postgres"]

#: Errors by SQLSTATE after which the same transaction may succeed: serialization failure, deadlock,
#: lock timeout, too many connections, and a server that shuts down, crashed or starts.
TRANSIENT: Final = ("40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03", "57P05")
CONNECTION_EXCEPTION: Final = "08"
#: Parts of the messages of libpq, without SQLSTATE, for connection errors that are not transient.
PERMANENT: Final = (
    *("does not exist", "authentication failed", "no password supplied", "pg_hba.conf"),
    *("invalid ", "support SSL", "certificate", "not permitted", "permission denied"),
)
# The types of columns by the family of an Arrow type; TEXT for other families.
_TYPES: Final = {
    Family.BOOLEAN: "BOOLEAN",
    Family.FLOAT: "DOUBLE PRECISION",
    Family.DECIMAL: "NUMERIC",
    Family.DATE: "DATE",
    Family.TIME: "TIME",
    Family.DURATION: "BIGINT",
    Family.BINARY: "BYTEA",
}
#: PostgreSQL cuts longer names off.
MAX_NAME_BYTES: Final = 63
#: The number of rows from which a temporary table is faster.
MIN_STAGED_ROWS: Final = 500


class Postgres:
    """The dialect of ``psycopg``."""

    name = "PostgreSQL"
    placeholder = "%s"
    keeps_connection = True
    ignores_case = False

    def quoted(self, name: str) -> str:
        size = len(name.encode())
        if size > MAX_NAME_BYTES:
            raise TargetError(
                f"the name {name!r} has {size} bytes, and PostgreSQL keeps the first "
                f"{MAX_NAME_BYTES} of them only: give the view, the column or the table a shorter "
                "name"
            )
        # In a statement with placeholders, psycopg reads %% as %.
        return quote_name(name).replace("%", "%%")

    def type_of(self, type_: pa.DataType) -> str:
        match family_of(type_):
            case Family.INTEGER if type_ == pa.uint64():
                return "NUMERIC(20, 0)"
            case Family.INTEGER:
                bits = type_.bit_width + types.is_unsigned_integer(type_)  # one more for the sign
                return "SMALLINT" if bits <= 16 else "INTEGER" if bits <= 32 else "BIGINT"
            case Family.DECIMAL if type_.scale >= 0:
                return f"NUMERIC({type_.precision}, {type_.scale})"
            case Family.TIMESTAMP:
                return "TIMESTAMP" if type_.tz is None else "TIMESTAMPTZ"
            case Family.NESTED if not types.is_list(type_) or is_nested(type_.value_type):
                raise no_type_error(type_, self.name)
            case family:  # the driver writes a list of scalars as the text of an array
                return _TYPES.get(family, "TEXT")

    def values(self, column: pa.ChunkedArray) -> list[Any]:
        type_ = column.type
        if types.is_timestamp(type_) and type_.unit == "ns":
            column = column.cast(pa.timestamp("us", type_.tz))
        if types.is_time(type_):
            column = column.cast(pa.time64("us"))
        if types.is_floating(type_):
            return values_of(column.cast(pa.float64()))
        if types.is_duration(type_):
            return duration_counts(column)
        return iso_texts(column) if types.is_temporal(type_) else values_of(column)

    def rows(self, columns: Sequence[list[Any]]) -> list[Row]:
        return rows_of(columns)

    def shape_of(self, connection: Any, name: str, schema: str | None) -> TableShape | None:
        quoted = ".".join(quote_name(part) for part in (schema, name) if part)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef "
                "AND attidentity = '' FROM pg_attribute WHERE attrelid = to_regclass(%s) "
                "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                (quoted,),
            )
            columns = cursor.fetchall()
            # The columns of each unique index that has neither a condition nor an expression.
            cursor.execute(
                "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute "
                "ON attrelid = indrelid AND attnum = ANY(indkey[0:indnkeyatts - 1]) "
                "WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL "
                "AND indexprs IS NULL GROUP BY indexrelid",
                (quoted,),
            )
            unique = tuple(frozenset(names) for (names,) in cursor.fetchall())
        if not columns:
            return None
        types = {column: type_ for column, type_, _ in columns}
        required = frozenset(column for column, _, is_required in columns if is_required)
        return TableShape(types, required, unique)

    def begin(self, connection: Any, cursor: Any) -> None:
        if connection.autocommit:
            cursor.execute("BEGIN")  # otherwise the first statement begins

    def commit(self, connection: Any, cursor: Any) -> None:
        connection.commit()

    def rollback(self, connection: Any) -> None:
        connection.rollback()

    def changed_row_count(self, cursor: Any) -> int:
        return int(cursor.rowcount)

    def insert(self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with cursor.copy(statement.replace("%%", "%")) as copy:  # COPY has no placeholders
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
        conflict_clause = on_conflict(columns, keys)
        if len(rows) < MIN_STAGED_ROWS:
            source = values_clause("%s", columns)
            cursor.executemany(insert_statement(table, columns, source + conflict_clause), rows)
            return
        with self._stage_rows(cursor, table, columns, rows) as staged:
            source = f"SELECT {', '.join(columns)} FROM {staged}"
            cursor.execute(insert_statement(table, columns, source + conflict_clause), ())

    def delete(
        self,
        cursor: Any,
        table: str,
        keys: Sequence[str],
        rows: Sequence[Row],
        *,
        nulls: Sequence[str],
    ) -> None:
        if len(rows) < MIN_STAGED_ROWS:
            cursor.executemany(delete_statement(table, keys, nulls, "%s"), rows)
            return
        with self._stage_rows(cursor, table, keys, rows) as staged:
            conditions = [f"{table}.{key} = {staged}.{key}" for key in keys]
            conditions += [f"{table}.{name} IS NULL" for name in nulls]
            condition = " AND ".join(conditions)
            cursor.execute(f"DELETE FROM {table} USING {staged} WHERE {condition}", ())

    @contextmanager
    def _stage_rows(
        self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Row]
    ) -> Iterator[str]:
        """Copy rows into a temporary table whose columns have the types of the target table."""
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

    def is_transient(self, error: Exception) -> bool:
        from psycopg import InterfaceError, OperationalError, errors

        state = getattr(error, "sqlstate", None)
        if isinstance(error, errors.UniqueViolation | errors.DuplicateTable):
            # Two transactions created the same table concurrently, and this one was the second. The
            # constraint is then one of PostgreSQL's own catalog, pg_..., or not named.
            return str(error.diag.constraint_name or "pg_").startswith("pg_")
        if state is not None:
            return state in TRANSIENT or state[:2] == CONNECTION_EXCEPTION
        if not isinstance(error, OperationalError | InterfaceError):
            return False
        return not any(part in str(error) for part in PERMANENT)

    def database_address(self, source: Any) -> str:
        pgconn = getattr(source, "pgconn", None)  # exists even if the connection is lost
        if pgconn is None:
            return ""
        host, port, database = map(_text, (pgconn.host, pgconn.port, pgconn.db))
        host = host.rpartition("@")[2]  # a password with @ in a URL continues in the host
        return f"{host}:{port}, database {database}"

    def reason_of(self, error: Exception) -> str:
        from psycopg import OperationalError

        if not isinstance(error, OperationalError):
            # The error quotes parts of an invalid connection string, perhaps the password.
            return f"{type(error).__name__}: the connection string is wrong"
        pgconn = getattr(error, "pgconn", None)
        password = "" if pgconn is None else _text(pgconn.password)
        return redact(" ".join(str(error).split()), password)

    def is_dead(self, connection: Any) -> bool:
        return bool(connection.closed)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
