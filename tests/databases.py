"""Databases for tests: SQLite in a file, and a PostgreSQL server out of a wheel.

Connections count their calls and fail at a planned one, before or after it took effect; from then
on the process counts as dead, and every call fails until `Faults.plan` is called again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The process is gone."""


class Faults:
    """A fault in the call after the next ``calls`` ones."""

    def __init__(self) -> None:
        self.plan(None)

    def plan(self, calls: int | None, *, after: bool = False, error: type | None = None) -> None:
        self.left = calls
        self.after = after
        self.error = error or Crash
        self.dead = False

    def call(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Crash
        due = self.left == 0
        if self.left is not None:
            self.left -= 1
        if not due:
            return function(*args, **kwargs)
        if self.after:
            result = function(*args, **kwargs)
            if hasattr(result, "commit"):  # a connection that nobody is going to have
                result.close()
        self.dead = self.error is Crash
        raise self.error("planned")


def sqlite_with(faults: Faults, path: str, **options: Any) -> Callable[[], sqlite3.Connection]:
    """A function that opens connections of ``sqlite3`` with faults."""

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
    """A function that opens connections of ``psycopg`` with faults."""
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
