"""DuckDB: SQL on columns, with hash joins; from scratch, and as delta SQL.

LIVE by ``recompute`` answers the query anew after each change. LIVE by ``delta`` runs the terms
of the collapsed formula, over the table before the change, the changed rows with their weights,
and both together; then it changes the table. No index is made: DuckDB's joins would not use it,
and its primary keys refuse a row that was deleted in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources


class _Counter:
    def __init__(self, database: duckdb.DuckDBPyConnection, query: str) -> None:
        self._database, self._query = database, query
        self.plan = str(_row(database, f"EXPLAIN {query}")[1])

    def count(self) -> int:
        return int(str(_row(self._database, self._query)[0]))


class _Maintainer:
    def __init__(self, database: duckdb.DuckDBPyConnection, pattern: Pattern, method: str) -> None:
        self._database, self._pattern, self._method = database, pattern, method
        self._count = int(str(_row(database, pattern.count_sql)[0]))
        database.execute("CREATE TABLE d(src BIGINT, dst BIGINT, w BIGINT)")
        database.execute("CREATE VIEW o AS SELECT src, dst, 1 AS w FROM e")
        database.execute("CREATE VIEW n AS SELECT * FROM o UNION ALL SELECT * FROM d")

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        database = self._database
        changed = pa.table({"src": edges[0], "dst": edges[1], "w": weights})
        database.register("changed", changed)
        database.execute("INSERT INTO d SELECT * FROM changed")
        database.unregister("changed")
        if self._method == "delta":
            self._count += int(str(_row(database, self._pattern.delta_sql)[0]))
        if (weights < 0).any():
            database.execute(
                "DELETE FROM e USING d WHERE d.w < 0 AND e.src = d.src AND e.dst = d.dst"
            )
        if (weights > 0).any():
            database.execute("INSERT INTO e SELECT src, dst FROM d WHERE w > 0")
        database.execute("DELETE FROM d")
        if self._method == "recompute":
            self._count = int(str(_row(database, self._pattern.count_sql)[0]))
        return self._count


@contextmanager
def counter(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Counter]:
    with _loaded(edges, resources) as database:
        yield _Counter(database, pattern.count_sql)


@contextmanager
def maintainer(
    pattern: Pattern, edges: Edges, resources: Resources, *, method: str
) -> Iterator[_Maintainer]:
    with _loaded(edges, resources) as database:
        yield _Maintainer(database, pattern, method)


@contextmanager
def _loaded(edges: Edges, resources: Resources) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as database:
        database.execute(f"SET threads = {resources.threads}")
        database.execute(f"SET memory_limit = '{resources.memory >> 20}MiB'")
        database.execute(f"SET temp_directory = '{resources.folder}'")
        database.register("loaded", pa.table({"src": edges[0], "dst": edges[1]}))
        database.execute("CREATE TABLE e AS SELECT src, dst FROM loaded")
        database.unregister("loaded")
        yield database


def _row(database: duckdb.DuckDBPyConnection, statement: str) -> tuple[object, ...]:
    (row,) = database.execute(statement).fetchall()
    return tuple(row)
