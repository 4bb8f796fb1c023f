"""Database: live views over changing tables, in one object and without Spark.

::

    db = Database("views.sql")                       the inputs and views of a file of SQL
    db.insert("orders", frame)                       rows of polars, pandas, Arrow, DuckDB, or dicts
    db.view("waiting").to_polars()                   a whole view
    db.query("SELECT count(*) FROM orders")          any SELECT over views and inputs

Each call that changes rows is one step: it takes effect completely or not at all, and returns the
changed rows of the views. `Database.transaction` makes one step of several calls.

With ``path`` the database is durable. A step is written to the directory before the call returns,
and the next `Database` at the same path continues there. The directory is that of a
`streaming.ViewSink` (`streaming.state.store`), with the same guarantees: after a crash, the last
step is there completely, or not at all. `Database.version` tells which step is the last one.

Inputs with a primary key have one row per key: an inserted row replaces the row of its key, and a
deletion needs the key only. Other inputs are bags of rows: a row can be there several times, and
`MissingRowError` is raised for a deletion of a row that is not there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock, get_ident
from types import TracebackType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from circuits import (
    Circuit,
    CircuitStep,
    InputOptions,
    MissingRowError,
    UpsertError,
    UserFunction,
    compile_sql,
)
from circuits.inputs.rejected_rows import LATE, RejectedRows
from circuits.inputs.tables import Rows, check_input, table_of
from circuits.schema import WEIGHT, SchemaLike
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.database.result import Result
from streaming.database.subscriptions import ChangeStream, Subscription
from streaming.database.transaction import Transaction, has_keys, open_transaction
from streaming.errors import DatabaseError, RowError, StateError
from streaming.sources.dead_letters import DeadLetters
from streaming.state.mapped.memory_limit import parse_memory_limit
from streaming.state.open_files import open_files
from streaming.state.program_change import ChangeOptions, newest_version, stored_circuit
from streaming.state.store import Store
from streaming.state.view_definitions import check_definition

__all__ = ["Database"]

SQL_SUFFIX: Final = ".sql"

log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class Database:
    """Tables and live views; call `close` at the end, or use it in a ``with`` statement.

    Any thread may call the methods. Calls that change rows wait for each other; reads never wait.

    Args:
        views: A file of SQL (a path, or a text that ends with ".sql"), or SQL itself: ``CREATE
            TABLE`` for each input, and ``CREATE VIEW``. Or a circuit, such as `compile_datalog`
            returns, which only the database may then step. None takes the views of ``path``.
        schemas: The columns of the inputs that the text does not declare, as for `compile_sql`.
        path: The directory of the state, or a URI such as ``s3://bucket/folder``; created if
            missing. None keeps the state in memory.
        dialect: The dialect of the text, as for `compile_sql`.
        materialize: The views and inputs that `view` and `query` can read; True for all.
        input_options: The options of each input, as for `compile_sql`.
        functions: User-defined functions that the views call, as for `compile_sql`.
        limits: What a step or a query may use, as for `compile_sql`.
        memory_limit: The bytes of the state that may be in memory, such as "4 GB"; needs ``path``.
        change: What a change of the views of an existing directory may do (`ChangeOptions`).
        clock: Returns the time of a step, for views that read ``now()``.

    Attributes:
        circuit: The compiled views, with ``explain()``, ``schema(name)`` and ``inputs``.

    Raises:
        DatabaseError: The file of ``views`` cannot be read, or the arguments do not fit.
        SqlError: The text is invalid; see `compile_sql` for the other errors of a text.
        StateError: The directory cannot be used, for example because another process has it open.
        StateMismatchError: The directory has other views, and ``change`` does not allow the change.

    >>> db = Database('''
    ...     CREATE TABLE orders (nr BIGINT PRIMARY KEY, item TEXT, price DOUBLE);
    ...     CREATE VIEW totals AS SELECT item, sum(price) AS worth FROM orders GROUP BY item;
    ... ''')
    >>> changes = db.insert("orders", [{"nr": 1, "item": "desk", "price": 250.0}])
    >>> changes["totals"].to_pylist()
    [{'item': 'desk', 'worth': 250.0, 'weight': 1}]
    >>> changes = db.delete("orders", [{"nr": 1}])
    >>> db.view("totals").to_pylist()
    []
    """

    def __init__(
        self,
        views: str | os.PathLike[str] | Circuit | None = None,
        schemas: Mapping[str, SchemaLike] | None = None,
        *,
        path: Any = None,
        dialect: str = "duckdb",
        materialize: bool | Collection[str] = True,
        input_options: Mapping[str, InputOptions] | None = None,
        functions: Mapping[str, UserFunction] | None = None,
        limits: StepLimits = DEFAULT_LIMITS,
        memory_limit: int | str | None = None,
        change: ChangeOptions | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._lock = RLock()
        self._clock = clock
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._streams: list[ChangeStream] = []
        self._delivering_thread: int | None = None  # the one that calls subscriptions
        self._store: Store | None = None
        self._version: int | None = None  # of the state in memory; None before the first step
        self._is_current = path is None  # False if the state has to be read from the directory
        self._is_closed = False
        if isinstance(views, Circuit):
            self.circuit = views
        elif views is None:
            if path is None:
                raise DatabaseError(
                    "a Database needs views: give SQL, a file of SQL, or the path of a state"
                )
            self.circuit = stored_circuit(path, functions)
        else:
            self.circuit = compile_sql(
                _text_of(views),
                schemas,
                dialect=dialect,
                materialize=materialize,
                input_options=input_options,
                functions=functions,
                limits=limits,
            )
        if path is None:
            if memory_limit is not None:
                raise DatabaseError(
                    f"memory_limit={memory_limit!r} needs files: give Database(path=...) as well"
                )
            return
        files = open_files(path)
        check_definition(files, self.circuit.spec)
        self._store = Store(
            files,
            self.circuit,
            change=change,
            clock=clock,
            memory_limit=parse_memory_limit(memory_limit),
        )
        try:
            self._load()
            if self._store.has_pending_change:
                self.apply({})
        except BaseException:
            self._store.close()
            raise

    def insert(self, relation: str, rows: Rows) -> Mapping[str, pa.Table]:
        """Insert rows into an input, as one step.

        Args:
            relation: The input.
            rows: An Arrow table, a frame of pandas or polars, a relation of DuckDB, any other
                object with ``__arrow_c_stream__``, or a list of dicts.

        Returns:
            The changed rows of each view, with ``weight``: 1 for a row that is new, -1 for one that
            is gone. In a transaction no views; see `Transaction.changes`.

        Raises:
            CircuitError: The rows do not fit the input, or a view has no value for them, as for
                `Circuit.step`. Nothing has changed.
            StateError: The directory cannot be written. Nothing has changed.
        """
        return self._change(relation, self._table(relation, rows))

    def upsert(self, relation: str, rows: Rows) -> Mapping[str, pa.Table]:
        """Insert rows into an input with a primary key, each in place of the row with its key.

        Arguments, result and errors are those of `insert`.

        Raises:
            UpsertError: The input has no primary key. Or ``rows`` has several different rows of a
                key, and nothing says which of them is the last.
        """
        check_input(relation, self.circuit.inputs)
        if not has_keys(self.circuit, relation):
            raise UpsertError(
                f"input {relation!r} has no primary key, so no row can be replaced: declare one "
                "with PRIMARY KEY (...), or use insert and delete"
            )
        return self.insert(relation, rows)

    def delete(self, relation: str, rows: Rows) -> Mapping[str, pa.Table]:
        """Delete rows from an input, as one step.

        Arguments, result and errors are those of `insert`. Rows of an input with a primary key need
        the columns of the key only; a key that does not exist changes nothing.

        Raises:
            MissingRowError: A row is not in the input. Nothing has changed.
        """
        table = self._table(relation, rows)
        weights = pa.array(np.full(table.num_rows, -1, np.int64))
        return self._change(relation, table.append_column(WEIGHT, weights))

    def apply(self, changes: Mapping[str, Rows]) -> Mapping[str, pa.Table]:
        """Apply changes of several inputs as one step, also inside a transaction.

        Args:
            changes: The rows of each input, with an optional column ``weight``: a positive weight
                inserts a row so often, a negative one deletes it.

        Returns:
            As `insert`. The step of ``{}`` only advances the time of ``now()``.

        Raises:
            CircuitError, MissingRowError, StateError: As `insert` and `delete`.
            DatabaseError: The database is closed, or the call comes from a callback.
        """
        with self._lock:
            if self._delivering_thread == get_ident():
                raise DatabaseError(
                    "a callback of subscribe() cannot change the database, because others have not "
                    "received the change yet: change it in another thread, or after the callback"
                )
            self._check_open()
            self._load()
            outputs = self._step(changes)
            self._deliver(outputs)
            return outputs

    def transaction(self) -> Transaction:
        """Make one step of the changes in a ``with`` block (`streaming.database.transaction`).

        >>> db = Database("CREATE TABLE t (a INT); CREATE VIEW n AS SELECT count(*) AS n FROM t")
        >>> with db.transaction() as transaction:
        ...     _ = db.insert("t", [{"a": 1}])
        ...     _ = db.insert("t", [{"a": 2}])
        >>> transaction.changes["n"].to_pylist()
        [{'n': 0, 'weight': -1}, {'n': 2, 'weight': 1}]
        """
        self._check_open()
        return Transaction(self.circuit, self.apply)

    def view(self, name: str) -> Result:
        """Return all rows of a view or input, as they are after the last step.

        Raises:
            UnknownViewError: There is no such view or input, or ``materialize`` excludes it.
        """
        self._check_open()
        self._wait_until_current()
        return Result(name, self.circuit.views[name])

    def query(
        self,
        text: str,
        *,
        dialect: str | None = None,
        functions: Mapping[str, UserFunction] | None = None,
    ) -> Result:
        """Answer a SELECT over views and inputs, as they are after the last step.

        The arguments and errors are those of `Circuit.query`.

        >>> db = Database("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t")
        >>> _ = db.insert("t", [{"a": 2}, {"a": 3}, {"a": 3}])
        >>> db.query("SELECT a FROM v ORDER BY a DESC").to_pylist()
        [{'a': 3}, {'a': 3}, {'a': 2}]
        """
        self._check_open()
        self._wait_until_current()
        return Result("query", self.circuit.query(text, dialect=dialect, functions=functions))

    def subscribe(
        self, view: str, callback: Callable[[pa.Table], object], *, initial: bool = False
    ) -> Subscription:
        """Call a function with the changed rows of a view after each step that changes it.

        The function is called in the thread of the step, one step after another. It may read the
        database, but not change it. If it raises an error, the error is logged.

        Args:
            view: A view that steps return.
            callback: The function. Its argument is a table of the changed rows, with ``weight``.
            initial: True to call it first with all rows of the view, in this thread.

        Returns:
            The subscription, which ``close()`` ends.

        Raises:
            UnknownViewError: There is no such view, or it is no output; with ``initial``, it is not
                materialized.
        """
        self._check_view(view)
        with self._lock:
            self._check_open()
            subscription = Subscription(view, callback, self._unsubscribe)
            if initial:
                self._deliver_to([subscription], self.circuit.views[view])
            self._subscriptions.setdefault(view, []).append(subscription)
        return subscription

    def changes(self, view: str, *, initial: bool = False) -> ChangeStream:
        """Return an async iterator over the changed rows of a view, from this call on.

        ::

            async for change in db.changes("waiting"):
                ...

        Each item is a table with ``weight``. If the loop is slower than the steps, an item has the
        sum of the changes since the previous one. The iteration ends when the database, or the
        iterator, is closed. Arguments and errors are those of `subscribe`.
        """
        stream: ChangeStream

        def close() -> None:
            subscription.close()
            with self._lock:
                if stream in self._streams:
                    self._streams.remove(stream)

        stream = ChangeStream(lambda tables: self.circuit.add_tables(view, tables), close)
        with self._lock:
            subscription = self.subscribe(view, stream.put, initial=initial)
            self._streams.append(stream)
        return stream

    @property
    def version(self) -> int:
        """The number of steps so far; with ``path``, also those of earlier processes."""
        return 0 if self._version is None else self._version + 1

    def close(self) -> None:
        """Release the directory, and end all subscriptions; no effect on a closed database."""
        with self._lock:
            self._is_closed = True
            self._subscriptions.clear()
            streams, self._streams = self._streams, []
            if self._store is not None:
                self._store.close()
        for stream in streams:
            stream.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self._store is None else f"in {self._store.files.location}"
        names = ", ".join(self.circuit.plans) or "no views"
        return f"<Database of {names}, {where}: {self.version:,} steps>"

    def _table(self, relation: str, rows: Rows) -> pa.Table:
        """Return rows as a table without weights."""
        check_input(relation, self.circuit.inputs)
        schema = self.circuit.inputs[relation]
        table = table_of(relation, rows, schema.arrow_columns)
        if WEIGHT in table.column_names:
            raise DatabaseError(
                f"relation {relation!r}: the rows have a column {WEIGHT!r}; give rows with weights "
                f"to apply({{{relation!r}: rows}})"
            )
        return table

    def _change(self, relation: str, table: pa.Table) -> Mapping[str, pa.Table]:
        transaction = open_transaction(self.circuit)
        if transaction is None:
            return self.apply({relation: table})
        self._check_open()
        transaction.add(relation, table)
        return {}

    def _load(self) -> None:
        """Check that the directory is still this one, and read its state if it is not in memory."""
        store = self._store
        if store is None:
            return
        if not self._is_current:
            try:
                newest = newest_version(store.files)
            except OSError as error:
                raise StateError(
                    f"state directory {store.files.location} cannot be read: {error}; correct this "
                    "and try again"
                ) from error
            self._version = None if newest is None else newest.batch_id
        store.find(self.version, None)
        self._is_current = True

    def _wait_until_current(self) -> None:
        """Read the state again if an error left it behind the directory; no effect otherwise."""
        if not self._is_current:
            with self._lock:
                self._load()

    def _step(self, changes: Mapping[str, Rows]) -> dict[str, pa.Table]:
        """Compute a step, write it, and make it the state."""
        circuit, store = self.circuit, self._store
        version = self.version
        now = self._clock() if circuit.reads_now else None
        step = circuit.prepare(changes, now=now)
        try:
            late = _check_rows(step).with_batch_id(version)
            outputs = dict(step.outputs)
            if store is not None:
                for view, change in store.pending_outputs.items():
                    outputs[view] = circuit.add_tables(view, [change, outputs[view]])
                store.write(
                    version,
                    None,
                    step,
                    outputs=outputs,
                    digests=step.digests,
                    dead_letters=late.table if len(late) else None,
                )
            step.commit()
            if store is not None:
                store.confirm_commit()
        except BaseException:
            step.abandon()
            self._is_current = store is None
            raise
        self._version = version
        if len(late):
            where = "" if store is None else f"; {store.describe_dead_letters()}"
            first = late.table.column("reason")[0]
            log.warning("%s rows are late and were left out: %s%s", len(late), first, where)
        return outputs

    def _deliver(self, outputs: Mapping[str, pa.Table]) -> None:
        for view, changes in outputs.items():
            if changes.num_rows:
                self._deliver_to(tuple(self._subscriptions.get(view, ())), changes)

    def _deliver_to(self, subscriptions: Collection[Subscription], changes: pa.Table) -> None:
        self._delivering_thread = get_ident()
        try:
            for subscription in subscriptions:
                subscription.deliver(changes)
        finally:
            self._delivering_thread = None

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._lock:
            remaining = self._subscriptions.get(subscription.view, [])
            if subscription in remaining:
                remaining.remove(subscription)

    def _check_view(self, view: str) -> None:
        if view not in self.circuit.outputs:
            raise DatabaseError(
                f"{view!r} is not a view whose changes are known; such views are "
                f"{', '.join(self.circuit.outputs) or 'none'}"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise DatabaseError("the database is closed: open it again with Database(...)")


def _text_of(views: str | os.PathLike[str]) -> str:
    """Return SQL, read from its file if ``views`` is one."""
    if isinstance(views, str) and not views.strip().lower().endswith(SQL_SUFFIX):
        return views
    try:
        return Path(views).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatabaseError(
            f"the file of views {os.fspath(views)} cannot be read: {error}; give the path of a "
            "file of SQL in UTF-8"
        ) from error


def _check_rows(step: CircuitStep) -> DeadLetters:
    """Return the late rows of a step.

    Raises:
        MissingRowError: Rows are deleted that do not exist.
        RowError: The options of an input reject a row for another reason.
    """
    for relation, missing in step.missing_deletions.items():
        if missing:
            raise MissingRowError(
                f"relation {relation!r}: {missing} of the rows to delete are not there; nothing "
                "has changed: delete only rows that exist, with all their columns"
            )
    late = DeadLetters.empty()
    for relation, groups in step.rejected.items():
        for rejected in groups:
            if rejected.reason != LATE:
                raise RowError(f"{rejected.message}; nothing has changed")
            late += _late_rows(relation, rejected)
    return late


def _late_rows(relation: str, rejected: RejectedRows) -> DeadLetters:
    table = rejected.table
    weights = np.asarray(table.column(WEIGHT).to_numpy(), np.int64)
    return DeadLetters.from_rows(relation, table.drop_columns([WEIGHT]), rejected.message, weights)
