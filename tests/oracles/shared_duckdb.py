"""One DuckDB for many tests: a new database costs as much as twenty queries over few rows."""

from __future__ import annotations

import itertools
import weakref
from contextlib import suppress
from functools import cache

import duckdb

__all__ = ["connect_to_new_schema"]

_NUMBERS = itertools.count()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def connect_to_new_schema() -> duckdb.DuckDBPyConnection:
    """Return a connection whose tables, views and settings of the session no other one has.

    The schema of its tables is dropped when the connection is deleted.
    """
    connection, name = _database().cursor(), f"schema_{next(_NUMBERS)}"
    connection.execute(f"CREATE SCHEMA {name}; USE {name}")
    weakref.finalize(connection, _drop, name).atexit = False
    return connection


def _drop(name: str) -> None:
    # A connection that is deleted with an unfinished result may still use its tables.
    with suppress(duckdb.Error), _database().cursor() as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE")
