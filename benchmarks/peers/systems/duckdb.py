"""DuckDB: SQL on columns, with hash joins; from scratch, and as delta SQL.

For LIVE, ``recompute`` runs the query again after each change. ``delta`` runs the terms of the
collapsed formula over the table before the change, the changed rows with their weights, and both
together; then it changes the table. There is no index: DuckDB's joins would not use it, and its
primary keys refuse a row that was deleted in the same transaction. For LSQB, ``recompute`` runs the
query, and ``delta`` the terms of its joins (`lsqb_joins`) whose relation has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import lsqb
from benchmarks.peers.lsqb_joins import JOINS, delta_sql, union_parts
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources
from benchmarks.recomputed import RecomputedQuery


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


class _RecomputedView:
    """Runs the whole query again for each count, over tables that change."""

    def __init__(self, query: str, relations: lsqb.Relations, resources: Resources) -> None:
        views = lsqb.views_of(query)
        self._tables = RecomputedQuery(relations, views, threads=resources.threads)
        self._query = lsqb.QUERIES[query]

    def change(self, rows: Mapping[str, pa.Table], weight: int) -> None:
        self._tables.change(rows, weight)

    def count(self) -> int:
        return self._tables.answer(self._query)


class _DeltaView:
    """Runs delta SQL: the terms of the joins whose relation has changed.

    For each relation R, table ``t_R(a, b)`` has the rows before the change, and ``d_R(a, b, w)``
    the changed rows with their weights. The terms read ``o_R`` (old), ``d_R`` (delta) and ``n_R``
    (new: old and delta). If R is a view, these are unions over the relations that it reads. The
    columns a and b are the first two of the relation; if it has one column, both are this one.
    """

    def __init__(
        self, database: duckdb.DuckDBPyConnection, query: str, relations: lsqb.Relations
    ) -> None:
        self._database, self._query = database, query
        # With this optimizer, DuckDB 2.0.0 gives a wrong sum for the terms of q3.
        database.execute("SET disabled_optimizers = 'common_subplan'")
        for name, rows in relations.items():
            database.register("loaded", _two_columns(rows))
            database.execute(f"CREATE TABLE t_{name} AS SELECT a, b FROM loaded")
            database.unregister("loaded")
            database.execute(f"CREATE TABLE d_{name}(a BIGINT, b BIGINT, w BIGINT)")
        used = {relation for join in JOINS[query] for relation, _ in join.atoms}
        for relation in used:
            is_view = relation not in relations
            for view, table, weight in (("o", "t", "1 AS w"), ("d", "d", "w")):
                if is_view or view == "o":  # the table ``d_R`` of a relation exists already
                    selects = (
                        f"SELECT {'b AS a, a AS b' if swapped else 'a, b'}, {weight} "
                        f"FROM {table}_{part}"
                        for part, swapped in union_parts(relation)
                    )
                    text = " UNION ALL ".join(selects)
                    database.execute(f"CREATE VIEW {view}_{relation} AS {text}")
            database.execute(
                f"CREATE VIEW n_{relation} AS "
                f"SELECT * FROM o_{relation} UNION ALL SELECT * FROM d_{relation}"
            )
        joins = " UNION ALL ".join(
            f"SELECT {join.sign} * count(*) AS w {join.sql('o' * len(join.atoms))}"
            for join in JOINS[query]
        )
        self._count = int(str(_row(database, f"SELECT sum(w) FROM ({joins})")[0]))

    def change(self, rows: Mapping[str, pa.Table], weight: int) -> None:
        database = self._database
        for name, table in rows.items():
            database.register("changed", _two_columns(table))
            database.execute(f"INSERT INTO d_{name} SELECT a, b, {weight} FROM changed")
            database.unregister("changed")
        self._count += int(str(_row(database, delta_sql(self._query, set(rows)))[0]))
        for name in rows:
            if weight > 0:
                database.execute(f"INSERT INTO t_{name} SELECT a, b FROM d_{name}")
            else:
                database.execute(
                    f"DELETE FROM t_{name} t USING d_{name} d WHERE t.a = d.a AND t.b = d.b"
                )
            database.execute(f"DELETE FROM d_{name}")

    def count(self) -> int:
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
def view(
    query: str, relations: lsqb.Relations, resources: Resources, *, method: str
) -> Iterator[_RecomputedView | _DeltaView]:
    if method == "recompute":
        yield _RecomputedView(query, relations, resources)
        return
    with _connected(resources) as database:
        yield _DeltaView(database, query, relations)


@contextmanager
def _connected(resources: Resources) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as database:
        database.execute(f"SET threads = {resources.threads}")
        database.execute(f"SET memory_limit = '{resources.memory >> 20}MiB'")
        database.execute(f"SET temp_directory = '{resources.folder}'")
        yield database


@contextmanager
def _loaded(edges: Edges, resources: Resources) -> Iterator[duckdb.DuckDBPyConnection]:
    with _connected(resources) as database:
        database.register("loaded", pa.table({"src": edges[0], "dst": edges[1]}))
        database.execute("CREATE TABLE e AS SELECT src, dst FROM loaded")
        database.unregister("loaded")
        yield database


def _row(database: duckdb.DuckDBPyConnection, statement: str) -> tuple[object, ...]:
    (row,) = database.execute(statement).fetchall()
    return tuple(row)


def _two_columns(rows: pa.Table) -> pa.Table:
    return pa.table({"a": rows.column(0), "b": rows.column(min(1, rows.num_columns - 1))})
