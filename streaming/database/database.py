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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
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
    TextError,
    UpsertError,
    UserFunction,
    compile_sql,
)
from circuits.circuit_spec import CircuitSpec, SourceText
from circuits.compile import default_outputs
from circuits.excerpt import excerpt
from circuits.inputs.encoded_inputs import microseconds_of
from circuits.inputs.rejected_rows import LATE, RejectedRows
from circuits.inputs.tables import Rows, check_input
from circuits.options import CircuitOptions
from circuits.program_edits import check_unread
from circuits.schema import WEIGHT, SchemaLike, arrow_schemas
from circuits.sql import (
    Statement,
    cut_view,
    declared_by,
    join_statements,
    read_row_queries,
    read_statement,
    split_statements,
)
from circuits.state.program_change import ProgramChange
from circuits.user_functions import check_functions
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.clock import utc_now
from streaming.database.result import Result
from streaming.database.statements import Outcome, row_changes
from streaming.database.subscriptions import ChangeStream, Subscription
from streaming.database.transaction import Transaction, has_keys, open_transaction
from streaming.errors import BatchOrderError, DatabaseError, RowError, StateError
from streaming.sources.dead_letters import DeadLetters
from streaming.state.mapped.memory_limit import parse_memory_limit
from streaming.state.open_files import open_files
from streaming.state.program_change import (
    AppliedChange,
    ChangeOptions,
    add_outputs,
    compute_change,
    finish_change,
    newest_version,
    stored_circuit,
)
from streaming.state.store import Store
from streaming.state.view_definitions import check_definition
from streaming.uninterrupted import run_uninterrupted

__all__ = ["Database"]

SQL_SUFFIX: Final = ".sql"
DEFAULT_DIALECT: Final = "duckdb"

log = logging.getLogger(__name__)


class Database:
    """Tables and live views; call `close` at the end, or use it in a ``with`` statement.

    Any thread may call the methods. Calls that change rows wait for each other; reads never wait.

    Args:
        views: A file of SQL (a path, or a text that ends with ".sql"), or SQL itself: ``CREATE
            TABLE`` for each input, and ``CREATE VIEW``; "" begins without tables. Or a circuit,
            such as `compile_datalog` returns, which only the database may then step. None takes the
            views of ``path``.
        schemas: The columns of the inputs that the text does not declare, as for `compile_sql`.
        path: The directory of the state, or a URI such as ``s3://bucket/folder``; created if
            missing. None keeps the state in memory.
        dialect: The dialect of the text, as for `compile_sql`.
        materialize: The views and inputs that `view` and `query` can read; True for all.
        input_options: The options of each input, as for `compile_sql`.
        functions: User-defined functions that the views call, as for `compile_sql`.
        limits: What a step or a query may use, as for `compile_sql`.
        threads: The number of threads that share the work of a large step, as for `compile_sql`.
            A circuit has all of these settings; the views of ``path`` have all but ``functions``
            and ``threads``.
        memory_limit: The bytes of the state that may be in memory, such as "4 GB"; needs ``path``.
        change: What a change of the views of an existing directory may do (`ChangeOptions`).
        clock: Returns the time of a step, for views that read ``now()``.
        keep: The number of versions that ``path`` keeps, for readers of changes; at least 2.

    Raises:
        DatabaseError: The file of ``views`` cannot be read, or the arguments do not fit: for
            example, a circuit and ``limits``.
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
        dialect: str = DEFAULT_DIALECT,
        materialize: bool | Collection[str] = True,
        input_options: Mapping[str, InputOptions] | None = None,
        functions: Mapping[str, UserFunction] | None = None,
        limits: StepLimits = DEFAULT_LIMITS,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        change: ChangeOptions | None = None,
        clock: Callable[[], datetime] = utc_now,
        keep: int = 3,
    ) -> None:
        self._lock = RLock()
        self._clock = clock
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._streams: list[ChangeStream] = []
        self._delivering_thread: int | None = None  # the one that calls subscriptions
        self._store: Store | None = None
        # The last step of the state in memory, as the directory numbers them; None if it has none.
        self._batch_id: int | None = None
        # The number of steps whose changes the subscriptions have; None before the first `_load`.
        self._delivered: int | None = None
        self._is_current = path is None  # False if the state has to be read from the directory
        self._is_closed = False
        if views is None or isinstance(views, Circuit):
            given = {
                "schemas": schemas is not None,
                "dialect": dialect != DEFAULT_DIALECT,
                "materialize": materialize is not True,
                "input_options": input_options is not None,
                "limits": limits != DEFAULT_LIMITS,
                "functions": functions is not None and views is not None,
                "threads": threads is not None and views is not None,
            }
            _check_unused([name for name, is_given in given.items() if is_given], views)
        if isinstance(views, Circuit):
            self._circuit = views
        elif views is None:
            if path is None:
                raise DatabaseError(
                    "a Database needs views: give SQL, a file of SQL, or the path of a state"
                )
            stored = stored_circuit(path, functions).spec
            self._circuit = Circuit(
                replace(stored, options=replace(stored.options, threads=threads))
            )
        else:
            self._circuit = _compile(
                _text_of(views),
                schemas,
                dialect=dialect,
                materialize=materialize,
                input_options=input_options,
                functions=functions,
                limits=limits,
                threads=threads,
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
            keep=keep,
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
            StateError: The directory cannot be written. Nothing has changed, unless the outcome of
                the commit is unknown, as the message then says: the next call reads the directory,
                and subscriptions get the changes if the step is in it, and those of the steps that
                another process has committed meanwhile.
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
            As `insert`. The step of ``{}`` advances the time of ``now()``, and commits a change of
            the views that is not committed yet.

        Raises:
            CircuitError, MissingRowError, StateError: As `insert` and `delete`.
            DatabaseError: The database is closed, or the call comes from a callback.
        """
        with self._lock:
            self._check_change()
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
        [{'n': 2, 'weight': 1}]
        """
        self._check_open()
        return Transaction(self)

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

    def execute(self, text: str) -> list[Outcome]:
        """Run statements of SQL, one after another; each one is a step of its own.

        The statements are SELECT, INSERT, DELETE, UPDATE, CREATE TABLE, CREATE VIEW, CREATE TYPE,
        DROP VIEW and DROP TABLE, in the dialect of the views. A new view is computed from the rows
        of the tables, and its state is part of the database from then on.

        Returns:
            The effect of each statement.

        Raises:
            DatabaseError: A statement is not one of these, is not valid, or is in a transaction.
                The statements before it have taken effect.
            SqlError, CircuitError, StateError: As the other methods.

        >>> db = Database("CREATE TABLE t (a INT, b TEXT)")
        >>> insert, create, update = db.execute('''
        ...     INSERT INTO t VALUES (1, 'x'), (2, 'x');
        ...     CREATE VIEW n AS SELECT b, count(*) AS n FROM t GROUP BY b;
        ...     UPDATE t SET b = 'y' WHERE a = 2
        ... ''')
        >>> update.rows, update.changes["n"].to_pylist()
        (1, [{'b': 'x', 'n': 1, 'weight': 1}, {'b': 'x', 'n': 2, 'weight': -1}, \
{'b': 'y', 'n': 1, 'weight': 1}])
        """
        source = self.circuit.spec.source
        if source is None or source.language != "sql":
            raise DatabaseError("execute() needs views in SQL, and these are not: use insert(...)")
        outcomes = []
        for statement in split_statements(text, source.dialect):
            read = read_statement(statement, source.dialect)
            if read.kind == "query":
                outcomes.append(Outcome(statement, self.query(statement)))
            elif read.kind == "rows":
                outcomes.append(self._change_rows(statement, source.dialect))
            elif read.kind == "create":
                with self._lock:  # no other thread may change the program in between
                    outcomes.append(self._add_to_program(read))
            elif read.kind == "drop":
                with self._lock:
                    outcomes.append(self._remove_from_program(read))
            else:
                raise DatabaseError(
                    f"{excerpt(statement)} cannot be executed: write SELECT, INSERT, DELETE, "
                    "UPDATE, CREATE TABLE, CREATE VIEW, CREATE TYPE, DROP VIEW or DROP TABLE"
                )
        return outcomes

    def _change_rows(self, statement: str, dialect: str) -> Outcome:
        """Run an INSERT, DELETE or UPDATE; no other step comes between its query and its change."""
        if open_transaction(self) is not None:
            raise DatabaseError(
                "execute() reads the state, which does not have the changes of the open "
                "transaction: call it after the block, or use insert, delete and upsert"
            )
        with self._lock:
            self._check_open()
            self._wait_until_current()
            circuit = self.circuit
            tables = {name: schema.columns for name, schema in circuit.inputs.items()}
            queries = read_row_queries(statement, tables, dialect)
            transaction, rows = self.transaction(), 0
            for table in row_changes(queries, circuit.inputs[queries.relation], circuit.query):
                transaction.add(queries.relation, table)
                rows = int(np.abs(table.column(WEIGHT).to_numpy()).sum())
            if rows:
                with transaction:
                    pass
        changes = {view: rows for view, rows in transaction.changes.items() if rows.num_rows}
        return Outcome(statement, changes=changes, rows=rows)

    def _add_to_program(self, statement: Statement) -> Outcome:
        """Run a CREATE TABLE, CREATE VIEW or CREATE TYPE."""
        source = self.circuit.spec.source
        assert source is not None
        text = source.text
        replaced = self._relation_of(statement.name) if statement.replaces else None
        if replaced is not None:
            check_unread(self.circuit.spec, replaced)
            text = cut_view(text, replaced, query_name=source.name, dialect=source.dialect)
        before, added, _ = join_statements(
            text, statement.text, query_name=source.name, new_name=None, dialect=source.dialect
        )
        changes = self._continue_with_text(before + added, replaced, statement.name or None)
        return Outcome(statement.text, changes=changes)

    def _remove_from_program(self, statement: Statement) -> Outcome:
        """Run a DROP VIEW or DROP TABLE."""
        spec = self.circuit.spec
        assert spec.source is not None
        relation = self._relation_of(statement.name)
        if relation is None:
            if statement.if_exists:
                return Outcome(statement.text, changes={})
            raise DatabaseError(
                f"{statement.name!r} is not a table or view; these are "
                f"{', '.join((*spec.schemas, *spec.plans)) or 'none'}"
            )
        check_unread(spec, relation)
        text = cut_view(
            spec.source.text, relation, query_name=spec.source.name, dialect=spec.source.dialect
        )
        return Outcome(statement.text, changes=self._continue_with_text(text, relation))

    def _relation_of(self, name: str) -> str | None:
        """Return the table or view of a name, compared without case; None if there is none."""
        spec = self.circuit.spec
        known = {known.casefold(): known for known in (*spec.schemas, *spec.plans)}
        return known.get(name.casefold())

    def _continue_with_text(
        self, text: str, dropped: str | None, added: str | None = None
    ) -> Mapping[str, pa.Table]:
        """Go on with the views of another text, whose new views are computed first.

        Args:
            text: The text.
            dropped: The relation that it no longer has, or has with another statement.
            added: The relation that it has in addition; it is materialized.
        """
        with self._lock:
            self._check_change()
            self._load()
            old, store = self.circuit, self._store
            spec = old.spec
            assert spec.source is not None
            schemas = {name: schema for name, schema in spec.schemas.items() if name != dropped}
            has_all = {*spec.schemas, *spec.plans} <= set(spec.materialized)
            options = spec.options
            materialized = [name for name in spec.materialized if name != dropped]
            materialized += [] if added is None else [added]
            try:
                new = _compile(
                    text,
                    schemas,
                    name=spec.source.name,
                    dialect=spec.source.dialect,
                    materialize=True if has_all else materialized,
                    input_options={n: o for n, o in spec.input_options.items() if n != dropped},
                    functions=spec.functions,
                    outputs=_outputs_of(spec, text, dropped, added),
                    formula=options.formula,
                    max_iterations=options.max_iterations,
                    limits=options.limits,
                    threads=options.threads,
                )
            except TextError as error:
                error.add_note("lines count from the first statement of the database")
                raise
            now = microseconds_of(self._clock()) if new.reads_now else None
            where = "the database" if store is None else store.description
            last = self._batch_id
            change = ProgramChange(old, new, dropped=[] if dropped is None else [dropped])
            allowed = ChangeOptions(allow_drop=dropped is not None)
            rows = compute_change(change, allowed, now, where=where, batch_id=last)
            settings = None if store is None else store.settings()

            def finish() -> AppliedChange:
                applied = finish_change(change, rows, where=where, batch_id=last)
                if store is not None:
                    store.change_views(new, applied, allowed)
                self._circuit = new
                return applied

            try:
                # The old circuit cannot go on when the new one has its state.
                applied = run_uninterrupted(finish)
                outputs = applied.outputs if store is None else self._step({})
            except BaseException:
                if store is not None and settings is not None:
                    self._is_current = False
                    if store.has_begun_commit:  # the next step finds out if it took effect
                        self._end_subscriptions(old, new)
                    else:
                        store.undo_change(settings)
                        self._circuit = old
                elif self._circuit is new:  # interrupted after the change
                    self._end_subscriptions(old, new)
                raise
            self._end_subscriptions(old, new)
            self._deliver(outputs)
            return outputs

    def subscribe(
        self, view: str, callback: Callable[[pa.Table], object], *, initial: bool = False
    ) -> Subscription:
        """Call a function with the changed rows of a view after each step that changes it.

        The function is called in the thread of the step, one step after another. It may read the
        database, but not change it. If it raises an error, the error is logged.

        If another process has taken over the directory, the next call that changes rows fails, and
        the one after it takes the directory back. The function is then called for each step of the
        other process. If the directory no longer has all of them (``keep``), the subscription ends:
        the error is logged, and an iterator of `changes` raises it.

        Args:
            view: A view that steps return.
            callback: The function. Its argument is a table of the changed rows, with ``weight``.
            initial: True to call it first with all rows of the view, in this thread.

        Returns:
            The subscription, which ``close()`` ends.

        Raises:
            UnknownViewError: There is no such view, or it is no output; with ``initial``, it is not
                materialized.
            StateError: The directory has to be read again after an error, and cannot be read.
        """
        with self._lock:
            self._check_open()
            self._wait_until_current()
            self._check_view(view)
            subscription = Subscription(view, callback, self._unsubscribe)
            if initial:
                self._deliver_to(subscription, self.circuit.views[view])
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

        stream = ChangeStream(view, close)
        with self._lock:
            subscription = self.subscribe(view, stream.put, initial=initial)
            self._streams.append(stream)
        return stream

    @property
    def circuit(self) -> Circuit:
        """The compiled views, with ``explain()``, ``schema(name)`` and ``inputs``; only read it."""
        return self._circuit

    @property
    def version(self) -> int:
        """The number of steps so far; with ``path``, also those of earlier processes."""
        return 0 if self._batch_id is None else self._batch_id + 1

    def close(self) -> None:
        """Release the directory, and end all subscriptions; no effect on a closed database."""
        with self._lock:
            self._is_closed = True
            # A callback may close the database; then the later ones of its step are not called.
            for subscription in [s for group in self._subscriptions.values() for s in group]:
                subscription.close()
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
        table = schema.table_reader.read(rows)
        if WEIGHT in table.column_names:
            raise DatabaseError(
                f"relation {relation!r}: the rows have a column {WEIGHT!r}; give rows with weights "
                f"to apply({{{relation!r}: rows}})"
            )
        return table

    def _change(self, relation: str, table: pa.Table) -> Mapping[str, pa.Table]:
        transaction = open_transaction(self)
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
        if self._is_current:
            store.find(self.version, None, can_repeat=False)
            return
        is_next = False
        while not is_next:  # until `find` has the lock, another process may commit a version
            try:
                newest = newest_version(store.files)
            except OSError as error:
                raise StateError(
                    f"state directory {store.files.location} cannot be read: {error}; correct this "
                    "and try again"
                ) from error
            self._batch_id = None if newest is None else newest.batch_id
            is_next = store.find(self.version, None, can_repeat=False) is None
        if self._delivered is None:
            self._delivered = self.version
        missed: list[dict[str, pa.Table]] | None = []
        if self._subscriptions or self._streams:
            missed = self._read_steps(self._delivered)
        else:
            self._delivered = self.version
        self._is_current = True
        if missed is None:
            self._delivered = self.version
            self._fail_subscriptions()
            return
        self._delivered = self.version
        self._deliver(*missed)

    def _read_steps(self, start: int) -> list[dict[str, pa.Table]] | None:
        """Return the changes of the views in the steps from a number on; None if one is not kept.

        The directory has steps that the subscriptions lack if the outcome of a commit was unknown,
        or if another process has committed them.
        """
        store, steps = self._store, []
        assert store is not None
        if start > self.version:  # the directory is an earlier copy of itself
            return None
        try:
            for batch_id in range(start, self.version):
                summary = store.find(batch_id, None, can_repeat=False)
                assert summary is not None
                steps.append(dict(summary.outputs))
        except BatchOrderError:
            return None
        return steps

    def _wait_until_current(self) -> None:
        """Read the state again if an error left it behind the directory; no effect otherwise."""
        if not self._is_current:
            with self._lock:
                self._check_open()
                self._load()

    def _step(self, changes: Mapping[str, Rows]) -> dict[str, pa.Table]:
        """Compute a step, write it, and make it the state."""
        if self._store is None:
            return self._apply_step(changes)
        try:
            with self._store.guard_reads():
                return self._apply_step(changes)
        except StateError:
            self._is_current = False
            raise

    def _apply_step(self, changes: Mapping[str, Rows]) -> dict[str, pa.Table]:
        circuit, store = self.circuit, self._store
        version = self.version
        now = self._clock() if circuit.reads_now else None
        step = circuit.prepare(changes, now=now)
        has_begun = False  # to write; before that, the state is as it was
        try:
            late = _check_rows(step).with_batch_id(version)
            outputs = dict(step.outputs)
            if store is not None:
                outputs = add_outputs(circuit, outputs, store.pending_outputs)
                has_begun = True
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
            if has_begun:
                self._is_current = False
            raise
        self._batch_id, self._delivered = version, version + 1
        if len(late):
            where = "" if store is None else f"; {store.describe_dead_letters()}"
            first = late.table.column("reason")[0]
            log.warning("%s rows are late and were left out: %s%s", len(late), first, where)
        return outputs

    def _deliver(self, *steps: Mapping[str, pa.Table]) -> None:
        """Deliver the changes of the views in some steps to all subscriptions.

        An interrupt (Ctrl-C in a callback) is raised after the others have got their changes.
        """
        # A callback may subscribe to another view: it then gets the rows after all these steps.
        deliveries = [
            (subscription, changes)
            for outputs in steps
            for view, changes in outputs.items()
            if changes.num_rows
            for subscription in self._subscriptions.get(view, ())
        ]
        interrupt: BaseException | None = None
        for subscription, changes in deliveries:
            try:
                self._deliver_to(subscription, changes)
            except BaseException as error:
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def _deliver_to(self, subscription: Subscription, changes: pa.Table) -> None:
        outer, self._delivering_thread = self._delivering_thread, get_ident()
        try:
            subscription.deliver(changes)
        finally:
            self._delivering_thread = outer

    def _end_subscriptions(self, old: Circuit, new: Circuit) -> None:
        """End the subscriptions to views that are dropped, or have other columns now."""
        for view in set(self._subscriptions):
            if view not in new.outputs or new.schema(view).arrow != old.schema(view).arrow:
                del self._subscriptions[view]
                for stream in [stream for stream in self._streams if stream.view == view]:
                    stream.close()

    def _fail_subscriptions(self) -> None:
        """End all subscriptions, because changes are lost to them."""
        assert self._store is not None
        error = DatabaseError(
            f"{self._store.description} was replaced by an earlier copy, or another process has "
            "committed more steps than it keeps, so this subscription lacks changes and has ended: "
            "subscribe again with initial=True; a greater keep= keeps more steps"
        )
        subscriptions, self._subscriptions = self._subscriptions, {}
        for view in subscriptions:
            log.error("view %r: %s", view, error)
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.fail(error)

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

    def _check_change(self) -> None:
        """Check that this thread may change the database now."""
        if self._delivering_thread == get_ident():
            raise DatabaseError(
                "a callback of subscribe() cannot change the database, because others have not "
                "received the change yet: change it in another thread, or after the callback"
            )
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise DatabaseError("the database is closed: open it again with Database(...)")


def _check_unused(names: Sequence[str], views: Circuit | None) -> None:
    """Check that no setting is given that the views have already.

    Raises:
        DatabaseError: One is given.
    """
    if not names:
        return
    if views is None:
        raise DatabaseError(
            f"{names[0]}= is a setting of the views in the directory: give Database(path=...) "
            "without it, or the text of the views as well"
        )
    raise DatabaseError(
        f"{names[0]}= is a setting of a circuit, and this one is compiled already: give it to "
        "compile_sql or compile_datalog"
    )


def _outputs_of(
    spec: CircuitSpec, text: str, dropped: str | None, added: str | None
) -> list[str] | None:
    """Return the views that steps return after a change of the text; None for the default.

    Args:
        spec: The program before the change.
        text: Its text after the change.
        dropped: The relation that it no longer has, or has with another statement.
        added: The relation that it has in addition.
    """
    assert spec.source is not None
    dialect = spec.source.dialect
    if [*spec.outputs] == default_outputs(spec.plans, declared_by(spec.source.text, dialect)):
        return None
    outputs = [view for view in spec.outputs if view != dropped]
    declarations = declared_by(text, dialect)
    others = {name.casefold() for name in (*declarations.inputs, *declarations.temporary_views)}
    is_hidden = added is None or added.casefold() in others
    if not is_hidden and (added != dropped or added in spec.outputs):
        outputs.append(str(added))
    return outputs


def _compile(
    text: str,
    schemas: Mapping[str, SchemaLike] | None,
    *,
    dialect: str,
    name: str = "view",
    functions: Mapping[str, UserFunction] | None,
    input_options: Mapping[str, InputOptions] | None,
    **options: Any,
) -> Circuit:
    """Compile SQL to a circuit; a text without statements to a circuit without views."""
    if text.strip():
        return compile_sql(
            text,
            schemas,
            dialect=dialect,
            name=name,
            functions=functions,
            input_options=input_options,
            **options,
        )
    source = SourceText("sql", "", name, dialect)
    settings = CircuitOptions(input_options=input_options or {}, **options)
    inputs = arrow_schemas(schemas or {})
    return Circuit(CircuitSpec({}, inputs, settings, source, check_functions(functions)))


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
