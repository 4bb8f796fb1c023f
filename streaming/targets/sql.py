"""SqlTarget: a table of a database, changed in one transaction for each micro-batch.

::

    begin
      read the last micro-batch of (state id, view)     if it is this one or a later one: stop;
                                                        if an earlier one is missing: an error
      record this micro-batch                           in dbsp_wcoj_batches
      whole view: DELETE the rows of the view           the first one, or again after a loss
      delta      append (batch_id, row_number, the row, weight)
      append     append the row as often as its weight says, no weight
      upsert     one row per key, no weight: INSERT ... ON CONFLICT (keys) DO UPDATE; DELETE
      complete   DELETE all, insert the rows with weight
    commit

The record and the rows become visible together, or not at all. So a micro-batch is applied exactly
once, even if the connection is lost during the commit. The records of a table that was dropped do
not count. A table with the record of another view is refused.

If a transaction fails because the database does not answer, or because of another transaction, the
target retries it on a new connection, after growing pauses (`streaming.targets.retry`). If the lost
transaction did commit, the record shows it. All other errors end the write at once.

In SQL a unique constraint does not treat NULL keys as equal. So the target upserts only rows
without NULL in their keys. It replaces the others by a deletion (``key IS NULL``) and an insertion.
It first splits the rows by the set of keys that are NULL, so the database finds both kinds through
the index of the constraint.

The target accepts any DB-API 2 connection of ``sqlite3``, ``psycopg`` 3 or ``duckdb``
(`streaming.targets.dialect`). Messages name host, port and database and repeat the driver's
message, but never a password. If ``connect`` raises an error that is not the driver's, the message
contains only its type, because its text may contain anything.

Cost: one Python object per value, and COPY or executemany; DuckDB reads Arrow tables. O(changed
rows), except in mode ``complete``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event, Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.schema import WEIGHT
from streaming.errors import StateError, TargetError
from streaming.redaction import redact
from streaming.targets.column_types import convert_columns, plain_type
from streaming.targets.dialect import Dialect
from streaming.targets.duckdb import DuckDb
from streaming.targets.postgres import Postgres
from streaming.targets.retry import Retry, RetryAttempts
from streaming.targets.sqlite import Sqlite
from streaming.targets.table_check import describe_mismatch
from streaming.targets.target import BATCH_ID, NO_BATCH, ViewDelta, expand_template

__all__ = ["ROW_NUMBER", "SqlTarget"]

ROW_NUMBER: Final = "row_number"
#: The columns of the bookkeeping table.
BATCH_RECORD_COLUMNS: Final = ("state_id", "view", "target", BATCH_ID)
RETRY: Final = Retry()
_DIALECTS: Final[dict[str, Dialect]] = {
    "sqlite3": Sqlite(),
    "psycopg": Postgres(),
    "duckdb": DuckDb(),
}

#: What errors say of the rows of a micro-batch, by whether it is committed; None is not known.
_OUTCOMES: Final = {
    True: "; its rows are in the table",
    False: "; none of its rows is in the table",
    None: "; the outcome of the commit is not known; the query checks it when it starts again",
}

log = logging.getLogger(__name__)


class SqlTarget:
    """Writes each micro-batch to a table; creates a missing table.

    Args:
        connect: Opens a new connection of ``sqlite3``, ``psycopg`` or ``duckdb`` at each call.
        table: The name of the table; ``{view}`` in it stands for the name of the view.
        schema: The schema of the table; None for the default schema.
        batches: The table, in the same schema, that records the written micro-batches.
        retry: How long to wait for a database that cannot be reached.
        address: The place of the database for messages; by default the driver provides it.

    >>> import sqlite3, tempfile
    >>> file = tempfile.mkdtemp() + "/shop.db"
    >>> target = SqlTarget(lambda: sqlite3.connect(file))
    >>> rows = pa.table({"nr": [1, 2], "items": [2, 5], "weight": [1, 1]})
    >>> target.write(ViewDelta("waiting", 0, rows, "upsert", ("nr",)))
    >>> rows = pa.table({"nr": [1, 2], "items": [3, 5], "weight": [1, -1]})
    >>> target.write(ViewDelta("waiting", 1, rows, "upsert", ("nr",)))
    >>> sqlite3.connect(file).execute("SELECT * FROM waiting").fetchall()
    [(1, 3)]
    """

    replaces_views = True
    reads_parts = True

    def __init__(
        self,
        connect: Callable[[], Any],
        table: str = "{view}",
        *,
        schema: str | None = None,
        batches: str = "dbsp_wcoj_batches",
        retry: Retry = RETRY,
        address: str = "",
    ) -> None:
        self.connect = connect
        self.table = table
        self.schema = schema
        self.batches = batches
        self.retry = retry
        self.address = address
        self._reset()

    def _reset(self) -> None:
        self._connection: Any = None
        self._interrupted = Event()
        # Sinks of several queries may share the target, and so its connection and transactions.
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        not_settings = ("_connection", "_interrupted", "_lock")
        return {name: value for name, value in vars(self).items() if name not in not_settings}

    def __setstate__(self, settings: dict[str, Any]) -> None:
        vars(self).update(settings)
        self._reset()

    def write(self, delta: ViewDelta) -> None:
        """Apply the micro-batch, unless it has been applied.

        Raises:
            MissedBatchesError: The table lacks an earlier micro-batch.
            TargetError: The database refuses the rows or cannot be reached after all attempts, no
                type of the database contains a value of the view, or the table contains rows that
                are not from this view and state directory.
        """
        with self._lock:
            self._run(delta, _TableWrite.run, is_write=True)

    def last_batch(self, delta: ViewDelta) -> int:
        """Return the last micro-batch of the table; see `RecordingTarget`. Retries like `write`.

        Raises:
            TargetError: The database cannot be reached after all attempts.
        """
        batches: list[int] = []
        with self._lock:
            self._run(
                delta,
                lambda write, link: batches.append(write.read_last_batch(link)),
                is_write=False,
            )
        return batches[-1]

    def check(self, delta: ViewDelta) -> None:
        """Check that the database answers and that an existing table accepts the view.

        The check is one attempt on its own connection; it creates and changes nothing.

        Raises:
            TargetError: The database cannot be reached, or its table has other columns or rows.
        """
        with self._lock:
            failure = self._check(delta)
        if failure is not None:
            raise TargetError(
                f"view {delta.view!r}, table {self.name_for(delta.view)!r}: {failure.place}: "
                f"{failure.reason}"
            )

    def close(self) -> None:
        """Close the connection; the next micro-batch opens a new one."""
        with self._lock:
            self._interrupted.clear()
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def interrupt(self) -> None:
        """Stop waiting for the database until `close`; any thread may call this.

        A write that waits for its next attempt fails at once. A running transaction continues.
        """
        self._interrupted.set()

    def name_for(self, view: str) -> str:
        """Return the name of the table of a view, without schema."""
        return expand_template(self.table, view, quoted=False)

    def _run(
        self, delta: ViewDelta, action: Callable[[_TableWrite, Any], None], *, is_write: bool
    ) -> None:
        """Call a function of the transaction and a connection, again if it fails temporarily."""
        attempts = RetryAttempts(self.retry)
        is_committed: bool | None = False  # None if it is not known
        while (failure := self._attempt(delta, action)) is not None:
            if failure.found_committed is not None:
                is_committed = failure.found_committed
            if failure.is_commit_unknown and not is_committed:
                is_committed = None
            pause = attempts.next_pause() if failure.is_transient else None
            if pause is not None:
                log.warning(
                    "%s: %s: %s; attempt %d of %d in %.1f s",
                    delta,
                    failure.place,
                    failure.reason,
                    attempts.count,
                    self.retry.max_attempts,
                    pause,
                    extra={"fields": _retry_fields(delta, failure, attempts, pause)},
                )
            is_interrupted = pause is not None and self._interrupted.wait(pause)
            if pause is None or is_interrupted:
                outcome = _OUTCOMES[is_committed] if is_write else ""
                raise self._error(
                    delta, failure, attempts, outcome, is_interrupted=is_interrupted
                ) from failure.cause

    def _check(self, delta: ViewDelta) -> _Failure | None:
        try:
            connection = self.connect()
        except Exception as error:
            return self._connection_failure(error)
        with contextlib.closing(connection):
            dialect = _dialect_of(connection)
            try:
                _TableWrite(self, delta, dialect).check(connection)
            except TargetError:
                raise
            except Exception as error:
                return _Failure.of(error, self._place(dialect, connection), is_transient=False)
        return None

    def _attempt(
        self, delta: ViewDelta, action: Callable[[_TableWrite, Any], None]
    ) -> _Failure | None:
        """Run a transaction; return its failure, or None if it succeeded.

        Raises:
            TargetError: The cause is the view or the table, not the database.
        """
        try:
            connection, dialect = self._open()
        except TargetError:
            raise
        except Exception as error:
            return self._connection_failure(error)
        writing: _TableWrite | None = None
        try:
            writing = _TableWrite(self, delta, dialect)
            action(writing, connection)
        except BaseException as error:  # an interrupt leaves no open transaction, either
            # An error of the view or the table, or an interrupt, is no failure of the database.
            # The state directory may fail, too, while parts are read.
            is_raised_again = not isinstance(error, Exception) or isinstance(
                error, TargetError | StateError
            )
            place = "" if is_raised_again else self._place(dialect, connection)
            is_lost = self._abandon(connection, dialect)
            if is_raised_again:
                raise
            assert isinstance(error, Exception)
            return _Failure.of(
                error,
                place,
                is_transient=is_lost or dialect.is_transient(error),
                # A connection that is open reports a commit that the database refused.
                is_commit_unknown=is_lost and writing is not None and writing.is_committing,
                found_committed=writing.found_committed if writing is not None else None,
            )
        if not dialect.keeps_connection:
            try:
                connection.close()
            except Exception as error:  # the transaction has been committed
                log.warning("a connection was not closed: %s", redact(str(error)))
        return None

    def _connection_failure(self, error: Exception) -> _Failure:
        """Return why no connection could be opened."""
        dialect = _dialect_by_class(error)
        if dialect is None:
            # The text and the traceback of the error may contain any argument of the connection.
            number = (error.errno or 0) if isinstance(error, OSError) else 0
            reason = f": {os.strerror(number)}" if number in errno.errorcode else ""
            is_transient = isinstance(error, ConnectionError | TimeoutError | socket.gaierror)
            return _Failure(
                None,
                self.address or "the database",
                f"it cannot be reached: {type(error).__name__}{reason}",
                is_transient=is_transient,
                is_connected=False,
            )
        return _Failure(
            None,
            self._place(dialect, error),
            f"it cannot be reached: {dialect.reason_of(error)}",
            is_transient=dialect.is_transient(error),
            is_connected=False,
        )

    def _place(self, dialect: Dialect, source: Any) -> str:
        """Return the place of the database, from a connection, an error or else ``address``."""
        address = ""
        with contextlib.suppress(Exception):
            address = dialect.database_address(source)
        return " at ".join(filter(None, (dialect.name, address or self.address)))

    def _error(
        self,
        delta: ViewDelta,
        failure: _Failure,
        attempts: RetryAttempts,
        outcome: str,
        *,
        is_interrupted: bool,
    ) -> TargetError:
        table = f"table {self.name_for(delta.view)!r}"
        reason = f"{delta}, {table}: {failure.place}: {failure.reason}"
        if is_interrupted:
            return TargetError(
                f"{reason}; interrupted before the next attempt{outcome}. Start the query again"
            )
        if failure.is_transient:
            tries = f"{attempts.count} attempt{'s' * (attempts.count > 1)}"
            return TargetError(
                f"{reason}; gave up after {tries} in {attempts.seconds:.0f} s{outcome}. Start the "
                "query again when the database answers, or wait longer by retry"
            )
        if not failure.is_connected:
            return TargetError(
                f"{reason}{outcome}. Check how the connection is made, and start the query again"
            )
        if not outcome:
            return TargetError(
                f"{delta}: {failure.place} refused to read its last micro-batch from {table}: "
                f"{failure.reason}"
            )
        return TargetError(
            f"{delta}: {failure.place} refused to write it to {table}: {failure.reason}{outcome}. "
            "The table must have the columns of the view, for upserts a unique constraint on its "
            "keys; drop it, and start the query again, which then writes the whole view"
        )

    def _open(self) -> tuple[Any, Dialect]:
        connection = self._connection
        if connection is None:
            connection = self.connect()
        try:
            dialect = _dialect_of(connection)
        except TargetError:
            connection.close()
            raise
        if dialect.keeps_connection:
            self._connection = connection
        return connection, dialect

    def _abandon(self, connection: Any, dialect: Dialect) -> bool:
        """Roll back the transaction and close; return whether the connection was lost."""
        is_lost = dialect.is_dead(connection)
        self._connection = None
        try:
            if not is_lost:
                dialect.rollback(connection)
        except Exception:  # closing the connection discards the transaction
            is_lost = dialect.is_dead(connection)
        finally:
            connection.close()
        return is_lost


@dataclass(frozen=True)
class _Failure:
    """Why an attempt failed.

    Attributes:
        cause: The error; None if it may contain secrets.
        place: The database, by host, port and name if they are known.
        reason: The reason of the failure, in one line without secrets.
        is_transient: True if another attempt may succeed.
        is_connected: False if no connection could be opened.
        is_commit_unknown: True if the transaction may have been committed nevertheless.
        found_committed: True if the attempt found that an earlier one had committed the
            micro-batch, False if none had; None if it did not get so far.
    """

    cause: Exception | None
    place: str
    reason: str
    is_transient: bool
    is_connected: bool = True
    is_commit_unknown: bool = False
    found_committed: bool | None = None

    @staticmethod
    def of(error: Exception, place: str, **others: Any) -> _Failure:
        """Return the failure of a statement; no cause if a traceback of it may show secrets."""
        reason = redact(" ".join(str(error).split()))
        cause = error if all(text == redact(text) for text in _texts_of(error)) else None
        return _Failure(cause, place, f"{type(error).__name__}: {reason}", **others)


def _texts_of(error: BaseException) -> Iterator[str]:
    """Yield the texts and notes of an error and of all errors that its traceback may show."""
    pending, seen = [error], set[int]()
    while pending:
        shown = pending.pop()
        if id(shown) not in seen:
            seen.add(id(shown))
            yield str(shown)
            yield from map(str, getattr(shown, "__notes__", ()))
            chained = shown.__cause__, shown.__context__
            pending += [other for other in chained if other is not None]
            if isinstance(shown, BaseExceptionGroup):
                pending += shown.exceptions


def _retry_fields(
    delta: ViewDelta, failure: _Failure, attempts: RetryAttempts, pause: float
) -> dict[str, Any]:
    """Return the keys and values of a retry, for structured logs."""
    return {
        "event": "retry",
        "view": delta.view,
        "batch_id": delta.batch_id,
        "target": failure.place,
        "reason": failure.reason,
        "attempt": attempts.count,
        "pause_seconds": round(pause, 3),
    }


class _TableWrite:
    """The transaction that writes one micro-batch to one table."""

    is_committing = False
    found_committed: bool | None = None  # as in `_Failure`

    def __init__(self, target: SqlTarget, delta: ViewDelta, dialect: Dialect) -> None:
        table = convert_columns(delta.table, plain_type, subject=str(delta))
        self.delta = replace(delta, table=table)
        self.dialect = dialect
        self.name = target.name_for(delta.view)
        self._recorded_name = self.name  # may differ in case, if that makes no other table
        self.schema = target.schema
        self.table = self._qualify(self.name)
        self._batches_name = target.batches
        self.batches = self._qualify(target.batches)

    def run(self, connection: Any) -> None:
        delta, dialect = self.delta, self.dialect
        if delta.mode == "delta":
            delta.check_free(BATCH_ID, ROW_NUMBER)
        # Convert the values before the transaction, because a conversion can fail. Those of many
        # rows are converted part by part in the transaction, which is rolled back if one fails.
        statements = self._statements()
        if delta.read_parts is None:
            statements = iter(list(statements))
        with contextlib.closing(connection.cursor()) as cursor:
            dialect.begin(connection, cursor)
            if self._record_batch(connection, cursor):
                if delta.is_whole:
                    cursor.execute(f"DELETE FROM {self.table}", ())
                for run_statement in statements:
                    run_statement(cursor)
            self.is_committing = True
            dialect.commit(connection, cursor)
            self.is_committing = False

    def check(self, connection: Any) -> None:
        """Check that an existing table accepts the rows.

        Raises:
            TargetError: The table has other columns, or rows of another view or state directory.
        """
        delta, dialect = self.delta, self.dialect
        if delta.mode == "delta":
            delta.check_free(BATCH_ID, ROW_NUMBER)
        columns = self._columns()
        for name in columns:
            dialect.quoted(name)  # an error if the database has no such names
        shape = dialect.shape_of(connection, self.name, self.schema)
        if shape is None:
            return
        reason = describe_mismatch(shape, columns, delta.keys)
        if reason is not None:
            raise TargetError(
                f"view {delta.view!r}: table {self.name!r} of {dialect.name} cannot receive it: "
                f"{reason}; name another table, or drop it, and the target creates it again"
            )
        with contextlib.closing(connection.cursor()) as cursor:
            records = []
            if dialect.shape_of(connection, self._batches_name, self.schema) is not None:
                records = self._read_records(cursor)
            self._check_only_view(records)
            if self._find_batch(records) == NO_BATCH and delta.mode != "complete":
                self._check_empty(cursor)

    def read_last_batch(self, connection: Any) -> int:
        """Return the last micro-batch of the view in an existing table, or `NO_BATCH`."""
        dialect = self.dialect
        try:
            for name in (self.name, self._batches_name):
                if dialect.shape_of(connection, name, self.schema) is None:
                    return NO_BATCH
            with contextlib.closing(connection.cursor()) as cursor:
                return self._find_batch(self._read_records(cursor))
        finally:
            dialect.rollback(connection)  # ends the transaction that some drivers begin for a query

    def _find_batch(self, records: Sequence[tuple[str, str, int]]) -> int:
        """Return the last micro-batch of the view in records, or `NO_BATCH`."""
        key = self.delta.state_id, self.delta.view
        return max((batch_id for *k, batch_id in records if tuple(k) == key), default=NO_BATCH)

    def _read_records(self, cursor: Any) -> list[tuple[str, str, int]]:
        """Return the state id, view and last micro-batch of each record of the table."""
        state, view, table, batch = map(self.dialect.quoted, BATCH_RECORD_COLUMNS)
        sides = [table, self.dialect.placeholder]
        if self.dialect.ignores_case:
            sides = [f"lower({side})" for side in sides]
        cursor.execute(
            f"SELECT {state}, {view}, {batch}, {table} FROM {self.batches} "
            f"WHERE {' = '.join(sides)}",
            (self.name,),
        )
        rows: list[tuple[str, str, int, str]] = cursor.fetchall()
        self._recorded_name = rows[0][3] if rows else self.name
        return [row[:3] for row in rows]

    def _check_only_view(self, records: Sequence[tuple[str, str, int]]) -> None:
        """Check that no other view is written to the table.

        Raises:
            TargetError: The table has the record of another view.
        """
        others = sorted({view for _, view, _ in records} - {self.delta.view})
        if others:
            raise TargetError(
                f"view {self.delta.view!r}: table {self.name!r} receives view {others[0]!r}, and "
                "two views in one table would mix, or overwrite each other: give each view its own "
                "table, with {view} in the name. If the other view is no longer written, drop "
                "the table; the target then creates it again with the whole view"
            )

    def _check_empty(self, cursor: Any) -> None:
        """Check that a table without a recorded micro-batch is empty."""
        cursor.execute(f"SELECT 1 FROM {self.table} LIMIT 1", ())
        if cursor.fetchone() is not None:
            raise self.delta.foreign_rows_error(f"table {self.name!r}")

    def _record_batch(self, connection: Any, cursor: Any) -> bool:
        """Record the micro-batch; return False if it or a later one has been recorded before.

        The tables are created if they are missing.
        """
        delta, placeholder = self.delta, self.dialect.placeholder
        columns = [self.dialect.quoted(name) for name in BATCH_RECORD_COLUMNS]
        key_columns = ", ".join(f"{column} TEXT NOT NULL" for column in columns[:3])
        # Some databases refuse CREATE without the right to it, also if the table exists.
        if self.dialect.shape_of(connection, self._batches_name, self.schema) is None:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.batches} ({key_columns}, "
                f"{columns[3]} BIGINT NOT NULL, PRIMARY KEY ({', '.join(columns[:3])}))",
                (),
            )
        records = self._read_records(cursor)
        if self.dialect.shape_of(connection, self.name, self.schema) is None:
            cursor.execute(self._create_statement(), ())
            self._delete_records(cursor, records)  # of the table before it was dropped
            records = []
        self._check_only_view(records)
        last_batch = self._find_batch(records)
        if last_batch >= delta.batch_id:
            self.found_committed = True
            return False
        delta.check_follows(last_batch, f"table {self.name!r}")
        others = [record for record in records if record[0] != delta.state_id]
        if last_batch == NO_BATCH and others and delta.mode == "complete":
            delta.check_only_writer(others[0][0], f"table {self.name!r}")
        is_first = last_batch == NO_BATCH and delta.mode != "complete"
        if is_first and not delta.has_rows:
            return False  # the first micro-batch with rows finds out whose rows the table has
        # A second writer of the micro-batch waits here until the first has committed. Then its
        # WHERE condition is false, and it changes no row.
        cursor.execute(
            f"INSERT INTO {self.batches} ({', '.join(columns)}) VALUES "
            f"({', '.join([placeholder] * 4)}) ON CONFLICT ({', '.join(columns[:3])}) "
            f"DO UPDATE SET {columns[3]} = excluded.{columns[3]} "
            f"WHERE {self.batches}.{columns[3]} < excluded.{columns[3]}",
            (delta.state_id, delta.view, self._recorded_name, delta.batch_id),
        )
        self.found_committed = self.dialect.changed_row_count(cursor) <= 0
        if self.found_committed:
            return False
        # Checked after the wait, because a transaction with a lost connection may have committed.
        if is_first:
            self._check_empty(cursor)
        if last_batch == NO_BATCH or delta.mode == "complete":
            self._delete_records(cursor, others)  # their next write finds that it lost its rows
        return True

    def _delete_records(self, cursor: Any, records: Iterable[tuple[str, str, int]]) -> None:
        """Delete records of the table."""
        columns = [self.dialect.quoted(name) for name in BATCH_RECORD_COLUMNS]
        where = " AND ".join(f"{column} = {self.dialect.placeholder}" for column in columns)
        for state_id, view, batch_id in records:
            record = (state_id, view, self._recorded_name, batch_id)
            cursor.execute(f"DELETE FROM {self.batches} WHERE {where}", record)

    def _columns(self) -> dict[str, str]:
        """Return the columns that are written, and their types."""
        added = (BATCH_ID, ROW_NUMBER) if self.delta.mode == "delta" else ()
        columns = dict.fromkeys(added, "BIGINT NOT NULL")
        for field in self.delta.table.schema:
            if field.name == WEIGHT and not self.delta.output_mode.has_weight:
                continue
            try:
                columns[field.name] = self.dialect.type_of(field.type)
            except TargetError as error:
                raise TargetError(
                    f"view {self.delta.view!r}: column {field.name!r} cannot be written: {error}"
                ) from error
        return columns

    def _create_statement(self) -> str:
        """Return the statement that creates the table if it is missing."""
        quote, delta = self.dialect.quoted, self.delta
        parts = [f"{quote(name)} {type_}" for name, type_ in self._columns().items()]
        if delta.mode == "delta":
            parts.append(f"PRIMARY KEY ({quote(BATCH_ID)}, {quote(ROW_NUMBER)})")
        if delta.mode == "upsert":
            parts.append(f"UNIQUE ({', '.join(map(quote, delta.keys))})")
        return f"CREATE TABLE IF NOT EXISTS {self.table} ({', '.join(parts)})"

    def _statements(self) -> Iterator[Callable[[Any], None]]:
        """Yield the changes of the table as functions of a cursor."""
        row_number = 0
        for delta in self.delta.parts():
            if self.delta.read_parts is not None:  # else `__init__` has converted the rows
                rows = convert_columns(delta.table, plain_type, subject=str(delta))
                delta = replace(delta, table=rows)
            yield from self._statements_of(delta, row_number)
            row_number += delta.table.num_rows

    def _statements_of(
        self, delta: ViewDelta, first_row_number: int
    ) -> Iterator[Callable[[Any], None]]:
        """Yield the changes of the table by a part of the rows."""
        if delta.mode == "upsert":
            for nulls, part in _by_nulls(delta.table, delta.keys):
                yield from self._upsert(part, nulls)
            return
        table = delta.written_rows() if delta.mode == "append" else delta.table
        if delta.mode == "delta":
            numbers = pa.array(np.arange(table.num_rows) + first_row_number)
            table = delta.with_batch_id().add_column(1, ROW_NUMBER, numbers)
        yield self._insertion(table)

    def _upsert(self, part: pa.Table, nulls: frozenset[str]) -> Iterator[Callable[[Any], None]]:
        quote, dialect, table = self.dialect.quoted, self.dialect, self.table
        is_present = pc.greater(part.column(WEIGHT), 0)
        columns = [name for name in part.column_names if name != WEIGHT]
        non_null = [key for key in self.delta.keys if key not in nulls]
        # Present rows with a NULL key are deleted, too, and inserted again.
        deleted_part = part if nulls else part.filter(pc.invert(is_present))
        deleted_keys = self._rows(deleted_part.select(non_null))
        if not non_null:
            deleted_keys = deleted_keys[:1]  # all keys are NULL, so all rows have the same key
        if len(deleted_keys):
            names, null_names = [quote(key) for key in non_null], [quote(key) for key in nulls]
            yield lambda cursor: dialect.delete(
                cursor, table, names, deleted_keys, nulls=null_names
            )
        if nulls:
            yield self._insertion(part.filter(is_present).select(columns))
            return
        rows = self._rows(part.filter(is_present).select(columns))
        if len(rows):
            quoted, keys = [quote(name) for name in columns], [quote(key) for key in non_null]
            yield lambda cursor: dialect.upsert(cursor, table, quoted, rows, keys=keys)

    def _insertion(self, table: pa.Table) -> Callable[[Any], None]:
        """Return the insertion of rows, as a function of a cursor."""
        names = [self.dialect.quoted(name) for name in table.column_names]
        rows = self._rows(table)
        dialect = self.dialect
        return lambda cursor: dialect.insert(cursor, self.table, names, rows) if len(rows) else None

    def _rows(self, table: pa.Table) -> Any:
        """Return rows in the form for the methods of the dialect."""
        if not table.num_columns:
            return [()] * table.num_rows
        columns = []
        for field, column in zip(table.schema, table.columns, strict=True):
            try:
                columns.append(self.dialect.values(column))
            except (TargetError, pa.ArrowInvalid) as error:
                raise TargetError(
                    f"{self.delta}: column {field.name!r} cannot be written to "
                    f"{self.dialect.name}: {error}; cast it in the view"
                ) from error
        return self.dialect.rows(columns)

    def _qualify(self, name: str) -> str:
        """Return the name of a table for statements: quoted, with the schema."""
        quoted = self.dialect.quoted(name)
        return quoted if self.schema is None else f"{self.dialect.quoted(self.schema)}.{quoted}"


def _by_nulls(table: pa.Table, keys: tuple[str, ...]) -> Iterator[tuple[frozenset[str], pa.Table]]:
    """Split the rows by the set of their keys that are NULL."""
    if not table.num_rows:
        return
    if not any(table.column(key).null_count for key in keys):
        yield frozenset(), table
        return
    are_null = np.column_stack(
        [pc.is_null(table.column(key)).to_numpy(zero_copy_only=False) for key in keys]
    )
    sets, numbers = np.unique(are_null, axis=0, return_inverse=True)
    for number, is_null in enumerate(sets):
        nulls = frozenset(itertools.compress(keys, is_null))
        yield nulls, table.filter(pa.array(numbers.reshape(-1) == number))


def _dialect_of(connection: Any) -> Dialect:
    dialect = _dialect_by_class(connection)
    if dialect is not None:
        return dialect
    raise TargetError(
        f"connect returns a connection of {type(connection).__module__}; supported are "
        f"{', '.join(_DIALECTS)}: use one of them, or write to the database in a function"
    )


def _dialect_by_class(driver_object: Any) -> Dialect | None:
    """Return the dialect for a connection or an error of a driver; None for an unknown driver."""
    for kind in type(driver_object).__mro__:
        # Classes of the compiled part of a driver are in a package with a leading underscore.
        dialect = _DIALECTS.get(kind.__module__.partition(".")[0].removeprefix("_"))
        if dialect is not None:
            return dialect
    return None
