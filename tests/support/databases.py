"""Databases for tests: SQLite and DuckDB in files, and a PostgreSQL server from a Python package.

Connections count their calls, and fail at a planned call, before or after it takes effect. From
then on the process counts as dead: every call fails until `Faults.plan` is called again.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NUMBERS = itertools.count()


class Crash(BaseException):
    """The process has ended."""


class Faults:
    """Counts the calls of a database, and raises an error in a planned one."""

    def __init__(self) -> None:
        self.plan(None)

    def plan(self, calls: int | None, *, after: bool = False, error: type | None = None) -> None:
        """Raise ``error`` in the call after the next ``calls``, before or after its effect."""
        self.remaining_calls = calls
        self.after = after
        self.error = error or Crash
        self.dead = False

    def call(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Crash
        is_planned = self.remaining_calls == 0
        if self.remaining_calls is not None:
            self.remaining_calls -= 1
        if not is_planned:
            return function(*args, **kwargs)
        if self.after:
            result = function(*args, **kwargs)
            if hasattr(result, "commit"):  # a connection that the caller never receives
                result.close()
        self.dead = self.error is Crash
        raise self.error("planned")


def sqlite_with(faults: Faults, path: str, **options: Any) -> Callable[[], sqlite3.Connection]:
    """Return a function that opens connections of ``sqlite3`` with faults."""

    class Cursor(sqlite3.Cursor):
        def execute(self, *args):
            return faults.call(super().execute, *args)

        def executemany(self, *args):
            return faults.call(super().executemany, *args)

    class Connection(sqlite3.Connection):
        def cursor(self, factory=Cursor):
            return super().cursor(factory)

        def execute(self, *args):
            return self.cursor().execute(*args)

    return lambda: faults.call(sqlite3.connect, path, factory=Connection, **options)


def postgres_with(faults: Faults, address: str, **options: Any) -> Callable[[], Any]:
    """Return a function that opens connections of ``psycopg`` with faults."""
    import psycopg

    class Cursor(psycopg.Cursor):
        def execute(self, *args, **kwargs):
            return faults.call(super().execute, *args, **kwargs)

        def executemany(self, *args, **kwargs):
            return faults.call(super().executemany, *args, **kwargs)

        def copy(self, *args, **kwargs):
            return faults.call(super().copy, *args, **kwargs)

    class Connection(psycopg.Connection):
        def commit(self):
            return faults.call(super().commit)

        def rollback(self):
            return faults.call(super().rollback)

    return lambda: faults.call(Connection.connect, address, cursor_factory=Cursor, **options)


class DuckDbConnection:
    """A connection or cursor of ``duckdb`` with faults; its classes cannot be inherited from."""

    __module__ = "duckdb"

    def __init__(self, connection: Any, faults: Faults) -> None:
        self._connection, self._faults = connection, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cursor(self) -> DuckDbConnection:
        return DuckDbConnection(self._connection.cursor(), self._faults)

    def execute(self, *args: Any) -> Any:
        return self._faults.call(self._connection.execute, *args)

    def commit(self) -> None:
        """Do nothing: every statement outside of a transaction is committed."""


def duckdb_with(faults: Faults, path: str) -> Callable[[], DuckDbConnection]:
    """Return a function that opens connections of ``duckdb`` with faults."""
    import duckdb

    return lambda: faults.call(lambda: DuckDbConnection(duckdb.connect(path), faults))


def new_table_name() -> str:
    """Return a name that no test has used."""
    return f"t{next(NUMBERS)}"


@contextlib.contextmanager
def run_postgres() -> Iterator[Any]:
    """Run a PostgreSQL server in a directory of its own; the test is skipped if it cannot start.

    The directory is not one of pytest's, which deletes those of all but its last three runs, also
    while another one of them still runs.
    """
    pgserver = pytest.importorskip("pgserver", reason="no pgserver: pip install -e '.[test]'")
    pytest.importorskip("psycopg", reason="no psycopg: pip install -e '.[sinks]'")
    # A file of the server may disappear while the directory is deleted.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_RUNTIME_DIR", str(Path(directory, "run")))
        try:
            server = pgserver.get_server(Path(directory, "pg"), cleanup_mode="stop")
        except Exception as error:
            pytest.skip(f"the PostgreSQL server of the wheel pgserver does not start: {error}")
        yield server
        server.cleanup()


@pytest.fixture(scope="session")
def postgres():
    """The address of a PostgreSQL server that runs until the last test ends."""
    with run_postgres() as server:
        yield server.get_uri()


class PostgresServer:
    """A separate server that a test can stop and start."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.address = server.get_uri()

    def stop(self) -> None:
        from pgserver._commands import pg_ctl

        server = self._server
        pg_ctl(["-m", "fast", "-w", "stop"], pgdata=server.pgdata, user=server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()


@pytest.fixture
def postgres_server():
    with run_postgres() as server:
        yield PostgresServer(server)


class Database:
    """A database, its faults, and ``inspect``, which opens a connection without faults."""

    def __init__(self, name, connect, inspect):
        self.name = name
        self.faults = Faults()
        self.connect = connect(self.faults)
        self._inspect = inspect

    def rows(self, statement):
        with contextlib.closing(self._inspect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return cursor.fetchall()

    def run(self, statement):
        with contextlib.closing(self._inspect()) as connection:
            connection.cursor().execute(statement)
            connection.commit()

    def columns(self, table):
        with contextlib.closing(self._inspect()) as connection:
            cursor = connection.cursor()
            cursor.execute(f'SELECT * FROM "{table}"')
            return [column[0] for column in cursor.description]


@pytest.fixture(params=["sqlite", "sqlite autocommit", "postgres", "postgres autocommit", "duckdb"])
def database(request, tmp_path):
    autocommit = request.param.endswith("autocommit")
    if request.param == "duckdb":
        # An in-memory database with a name exists as long as one of its connections.
        path = f":memory:{new_table_name()}"
        request.addfinalizer(duckdb_with(Faults(), path)().close)
        return Database(
            "duckdb", lambda faults: duckdb_with(faults, path), duckdb_with(Faults(), path)
        )
    if request.param.startswith("sqlite"):
        path = str(tmp_path / "test.db")
        options = {"isolation_level": None} if autocommit else {}
        return Database(
            "sqlite",
            lambda faults: sqlite_with(faults, path, **options),
            lambda: sqlite3.connect(path),
        )
    import psycopg

    address = request.getfixturevalue("postgres")
    return Database(
        "postgres",
        lambda faults: postgres_with(faults, address, autocommit=autocommit),
        lambda: psycopg.connect(address),
    )
