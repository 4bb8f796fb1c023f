"""Kùzu and Ladybug, its fork: a graph database in process, with a worst-case-optimal plan.

One MATCH with all atoms is planned with multiway intersections (INTERSECT); a MATCH for each atom
with WITH between them is planned with hash joins only.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
    pool = resources.memory * 3 // 4  # so that it is its own judge, before it is stopped
    database = module.Database(str(folder / "database"), buffer_pool_size=pool)
    connection = module.Connection(database, num_threads=resources.threads)
    connection.execute("CREATE NODE TABLE N(id INT64 PRIMARY KEY)")
    connection.execute("CREATE REL TABLE E(FROM N TO N)")
    connection.execute(f"COPY N FROM '{folder / 'nodes.parquet'}'")
    connection.execute(f"COPY E FROM '{folder / 'edges.parquet'}'")
    yield _Counter(connection, pattern.cypher(binary=plan == "binary"))
    connection.close()
    database.close()
