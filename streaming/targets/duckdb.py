"""DuckDB: a database in a file, whose types contain almost all types of Arrow.

::

    integers, bool, floats, texts, binaries          the type of the same name
    decimals                                         DECIMAL(p, s), p at most 38
    dates, times, timestamps                         DATE, TIME, TIMESTAMP; also of nanoseconds
    lists, structs, maps                             T[], STRUCT(...), MAP(K, V)
    durations (number of units)                      BIGINT
    intervals with months, ENUM, VARIANT             VARCHAR

DuckDB reads Arrow tables, so no Python object is created for a value. While a process has a file
open for writing, no other process can open it. Therefore the target opens a connection for each
micro-batch. A micro-batch that finds the file locked is retried.

In DuckDB a cursor is a connection with its own transaction, which ends when the cursor is closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from circuits.types.arrow_types import VARIANT, is_nested, part_types, with_parts
from circuits.types.functions.casting.interval_texts import cast_intervals
from streaming.errors import TargetError
from streaming.targets.dialect import insert_statement, on_conflict, quote_name
from streaming.targets.table_check import TableShape

__all__ = ["DuckDb"]

MAX_DIGITS: Final = 38
#: The name under which a statement reads the Arrow table of its rows.
_ROWS: Final = "dbsp_wcoj_rows"
#: Parts of the messages for errors after which a retry may succeed: another process has the file
#: open, or another part of this process has it open read-only, or its transaction was faster.
TRANSIENT: Final = (
    *("could not set lock", "different configuration"),
    *("conflict", "failed to commit"),
)


class DuckDb:
    """The dialect of ``duckdb``."""

    name = "DuckDB"
    placeholder = "?"
    keeps_connection = False
    ignores_case = True

    def quoted(self, name: str) -> str:
        return quote_name(name)

    def type_of(self, type_: pa.DataType) -> str:
        return _type_name(_stored_type(type_))

    def values(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        type_ = _stored_type(column.type)
        if column.type == type_:
            return column
        chunks = [cast_intervals(chunk, type_) for chunk in column.chunks]
        return pa.chunked_array(chunks, type_)

    def rows(self, columns: Sequence[pa.ChunkedArray]) -> pa.Table:
        return pa.table(list(columns), names=[f"c{i}" for i in range(len(columns))])

    def shape_of(self, connection: Any, name: str, schema: str | None) -> TableShape | None:
        table = (
            "FROM {}() WHERE database_name = current_database() "
            "AND schema_name = coalesce(?, current_schema()) AND lower(table_name) = lower(?)"
        )
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(
                "SELECT column_name, data_type, NOT is_nullable AND column_default IS NULL "
                + table.format("duckdb_columns"),
                (schema, name),
            )
            columns = cursor.fetchall()
            cursor.execute(
                f"SELECT constraint_column_names {table.format('duckdb_constraints')} "
                "AND constraint_type IN ('UNIQUE', 'PRIMARY KEY')",
                (schema, name),
            )
            unique = [frozenset(names) for (names,) in cursor.fetchall()]
            # The parts of an index are names of columns, quoted if need be, and other expressions.
            cursor.execute(
                f"SELECT expressions::VARCHAR[] {table.format('duckdb_indexes')} AND is_unique",
                (schema, name),
            )
            indexes = cursor.fetchall()
        if not columns:
            return None
        names = {text: column for column, *_ in columns for text in (column, self.quoted(column))}
        unique += [
            frozenset(names[part] for part in parts)
            for (parts,) in indexes
            if names.keys() >= set(parts)
        ]
        required = frozenset(column for column, _, is_required in columns if is_required)
        column_types = {column: type_ for column, type_, _ in columns}
        return TableShape(column_types, required, tuple(unique))

    def begin(self, connection: Any, cursor: Any) -> None:
        cursor.execute("BEGIN")

    def commit(self, connection: Any, cursor: Any) -> None:
        cursor.execute("COMMIT")

    def rollback(self, connection: Any) -> None:
        """Do nothing: the transaction ended with its cursor."""

    def changed_row_count(self, cursor: Any) -> int:
        return int(cursor.fetchone()[0])

    def insert(self, cursor: Any, table: str, columns: Sequence[str], rows: pa.Table) -> None:
        self._execute(cursor, insert_statement(table, columns, f"FROM {_ROWS}"), rows)

    def upsert(
        self,
        cursor: Any,
        table: str,
        columns: Sequence[str],
        rows: pa.Table,
        *,
        keys: Sequence[str],
    ) -> None:
        # ON in a condition keeps the parser from reading ON CONFLICT as the condition of a join.
        source = f"SELECT * FROM {_ROWS} WHERE true{on_conflict(columns, keys)}"
        self._execute(cursor, insert_statement(table, columns, source), rows)

    def delete(
        self, cursor: Any, table: str, keys: Sequence[str], rows: Any, *, nulls: Sequence[str]
    ) -> None:
        conditions = [f"{table}.{key} = {_ROWS}.c{i}" for i, key in enumerate(keys)]
        conditions += [f"{table}.{name} IS NULL" for name in nulls]
        condition = " AND ".join(conditions)
        if keys:
            self._execute(cursor, f"DELETE FROM {table} USING {_ROWS} WHERE {condition}", rows)
        else:
            cursor.execute(f"DELETE FROM {table} WHERE {condition}", ())

    @staticmethod
    def _execute(cursor: Any, statement: str, rows: pa.Table) -> None:
        """Run a statement that reads ``rows`` as the table `_ROWS`."""
        cursor.register(_ROWS, rows)  # until the next one, or until the cursor is closed
        cursor.execute(statement, ())

    def is_transient(self, error: Exception) -> bool:
        import duckdb

        if not isinstance(error, duckdb.OperationalError):
            return False
        return any(part in str(error).lower() for part in TRANSIENT)

    def database_address(self, source: Any) -> str:
        execute = getattr(source, "execute", None)
        if execute is None:  # an error
            return ""
        current = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
        return execute(current).fetchone()[0] or "memory"

    def reason_of(self, error: Exception) -> str:
        return " ".join(str(error).split())

    def is_dead(self, connection: Any) -> bool:
        try:
            connection.cursor().close()
        except Exception:  # duckdb.ConnectionException: it was closed
            return True
        return False


def _stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type of the values that DuckDB receives for a type.

    >>> _stored_type(pa.list_(pa.duration("ns"))), _stored_type(pa.decimal128(5, -2))
    (ListType(list<item: int64>), Decimal128Type(decimal128(7, 0)))
    """
    if is_nested(type_):
        return with_parts(type_, [_stored_type(part) for part in part_types(type_)])
    if types.is_float16(type_):
        return pa.float32()
    if types.is_decimal(type_):
        scale = max(type_.scale, 0)
        return pa.decimal128(min(type_.precision + scale - type_.scale, MAX_DIGITS), scale)
    if types.is_duration(type_):
        return pa.int64()
    is_text = types.is_interval(type_) or types.is_null(type_) or type_.id == VARIANT.id
    return pa.string() if is_text else type_


@cache
def _type_name(type_: pa.DataType) -> str:
    """Return the name of DuckDB's type for the values of an Arrow type.

    Raises:
        TargetError: DuckDB cannot read such values.
    """
    import duckdb

    try:
        with duckdb.connect() as connection:
            empty = pa.table({"a": pa.array([], type_)})
            return str(connection.from_arrow(empty).types[0])
    except (duckdb.Error, pa.ArrowNotImplementedError) as error:
        raise TargetError(
            f"DuckDB has no type for {type_}: cast it, or write to_json(...), in the view"
        ) from error
