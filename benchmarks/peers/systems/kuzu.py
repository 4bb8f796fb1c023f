"""Kùzu and Ladybug, its fork: a graph database in process, with a worst-case-optimal plan.

One MATCH with all atoms is planned with multiway intersections (INTERSECT); a MATCH for each atom
with WITH between them is planned with hash joins only.

An LSQB query is counted again after each change. Its database is in memory, so that changes do not
wait for a disk. Deletes are one statement for each relation. Inserts are copied from a Parquet
file, which takes a tenth of the time of a statement that creates the rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.lsqb import Relations
from benchmarks.peers.lsqb_cypher import CYPHER
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources


class _Counter:
    def __init__(self, connection: Any, query: str) -> None:
        self._connection, self._query = connection, query
        self.plan = str(self._first(f"EXPLAIN {query}"))

    def count(self) -> int:
        return int(self._first(self._query))

    def _first(self, statement: str) -> Any:
        return self._connection.execute(statement).get_next()[0]


class _View:
    """The relations as a graph: node tables for entities, relation tables for pairs of entities."""

    def __init__(self, connection: Any, query: str, relations: Relations, folder: Path) -> None:
        self._connection, self._query, self._folder = connection, CYPHER[query], folder
        for entity, ids in _nodes(relations).items():
            connection.execute(f"CREATE NODE TABLE {entity}(id INT64 PRIMARY KEY)")
            self._copy(entity, pa.table({"id": ids}))
        for name, rows in relations.items():
            if _has_two_entities(name):
                start, end = _ends(name)
                connection.execute(f"CREATE REL TABLE {name}(FROM {start} TO {end})")
                self._copy(name, rows.select([0, 1]))

    def change(self, rows: Mapping[str, pa.Table], weight: int) -> None:
        for name, changed in rows.items():
            if weight > 0:
                self._copy(name, changed.select([0, 1]))
                continue
            start, end = _ends(name)
            columns = (changed.column(i).to_pylist() for i in (0, 1))
            pairs = [{"a": a, "b": b} for a, b in zip(*columns, strict=True)]
            self._connection.execute(
                f"UNWIND $pairs AS pair "
                f"MATCH (:{start} {{id: pair.a}})-[r:{name}]->(:{end} {{id: pair.b}}) DELETE r",
                {"pairs": pairs},
            )

    def count(self) -> int:
        return int(self._connection.execute(self._query).get_next()[0])

    def _copy(self, name: str, rows: pa.Table) -> None:
        path = self._folder / "rows.parquet"
        pq.write_table(rows, path)
        self._connection.execute(f"COPY {name} FROM '{path}'")


@contextmanager
def counter(
    pattern: Pattern,
    edges: Edges,
    resources: Resources,
    *,
    package: str = "kuzu",
    plan: str = "worst-case optimal",
) -> Iterator[_Counter]:
    module = importlib.import_module(package)
    folder = resources.folder
    pq.write_table(pa.table({"src": edges[0], "dst": edges[1]}), folder / "edges.parquet")
    pq.write_table(pa.table({"id": np.unique(edges)}), folder / "nodes.parquet")
    pool = resources.memory * 3 // 4  # so that Kùzu itself runs out of memory before it is stopped
    database = module.Database(str(folder / "database"), buffer_pool_size=pool)
    connection = module.Connection(database, num_threads=resources.threads)
    connection.execute("CREATE NODE TABLE N(id INT64 PRIMARY KEY)")
    connection.execute("CREATE REL TABLE E(FROM N TO N)")
    connection.execute(f"COPY N FROM '{folder / 'nodes.parquet'}'")
    connection.execute(f"COPY E FROM '{folder / 'edges.parquet'}'")
    yield _Counter(connection, pattern.cypher(binary=plan == "binary"))
    connection.close()
    database.close()


@contextmanager
def view(
    query: str, relations: Relations, resources: Resources, *, package: str = "kuzu"
) -> Iterator[_View]:
    module = importlib.import_module(package)
    database = module.Database(":memory:", buffer_pool_size=resources.memory * 3 // 4)
    connection = module.Connection(database, num_threads=resources.threads)
    yield _View(connection, query, relations, resources.folder)
    connection.close()
    database.close()


def _nodes(relations: Relations) -> dict[str, NDArray[np.int64]]:
    """Return the ids of each entity, such as Person, from all relations."""
    columns: dict[str, list[NDArray[np.int64]]] = {}
    for name, rows in relations.items():
        for entity, column in zip(_ends(name), rows.columns, strict=False):
            columns.setdefault(entity, []).append(column.to_numpy())
    return {entity: np.unique(np.concatenate(ids)) for entity, ids in columns.items()}


def _has_two_entities(name: str) -> bool:
    return "_" in name


def _ends(name: str) -> tuple[str, ...]:
    """Return the entities of a relation: both of ``Person_likes_Post``, Forum of ``Forum``."""
    parts = name.split("_")
    return (parts[0], parts[2]) if _has_two_entities(name) else (name,)
