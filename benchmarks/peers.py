"""Peers on the same count: Kùzu's worst-case-optimal plan, and binary plans of Kùzu and DuckDB.

A driver loads the edges, says what plan it will run, and then counts as often as asked. Loading
and a peer's own index are not counted in its favour or against it: only the query is. Each driver
runs in a process of its own (``python -m benchmarks.peers``), which is stopped when one count
takes longer than the limit; the CPU seconds that it had used by then are reported.

A plan is checked, not assumed: without an INTERSECT the plan is not worst-case optimal, with one
it is not binary.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cost import Clock

_MEMORY = 10 << 30  # bytes that a peer may use
_PATHS = "MATCH (a:N)-[e1:E]->(b:N)-[e2:E]->(c:N)"
_CYCLIC = f"{_PATHS}, (a)-[e3:E]->(c) RETURN count(*)"
_TWO_STEPS = f"{_PATHS} WITH a, b, c MATCH (a)-[e3:E]->(c) RETURN count(*)"
_SQL = (
    "SELECT count(*) FROM e x JOIN e y ON x.dst = y.src JOIN e z ON z.src = x.src AND z.dst = y.dst"
)


@dataclass(frozen=True)
class Loaded:
    """A peer with the edges in it: the plan as text, and the count as a function."""

    plan: str
    count: Callable[[], int]


@dataclass(frozen=True)
class Peer:
    """How to load a peer, and which word its plan must or must not hold."""

    name: str
    worst_case_optimal: bool
    load: Callable[[Path, int], AbstractContextManager[Loaded]]
    present: str
    absent: str

    def check(self, plan: str) -> None:
        """Raises RuntimeError when the plan is not of the kind that the peer stands for."""
        if self.present not in plan or self.absent in plan:
            raise RuntimeError(
                f"{self.name} should run a plan with {self.present} and without "
                f"{self.absent}, but it is:\n{plan}"
            )


@contextmanager
def _kuzu(edges: Path, threads: int, query: str) -> Iterator[Loaded]:
    import kuzu

    with tempfile.TemporaryDirectory() as folder:
        table = pq.read_table(edges)
        ends = [table[column].to_numpy() for column in ("src", "dst")]
        nodes = Path(folder, "nodes.parquet")
        pq.write_table(pa.table({"id": np.unique(np.concatenate(ends))}), nodes)
        database = kuzu.Database(f"{folder}/database", buffer_pool_size=_MEMORY)
        connection = kuzu.Connection(database, num_threads=threads)
        connection.execute("CREATE NODE TABLE N(id INT64 PRIMARY KEY)")
        connection.execute("CREATE REL TABLE E(FROM N TO N)")
        connection.execute(f"COPY N FROM '{nodes}'")
        connection.execute(f"COPY E FROM '{edges}'")

        def first(statement: str) -> object:
            result = connection.execute(statement)
            assert isinstance(result, kuzu.QueryResult)
            return result.get_next()[0]

        yield Loaded(str(first(f"EXPLAIN {query}")), lambda: int(str(first(query))))
        connection.close()
        database.close()


@contextmanager
def _duckdb(edges: Path, threads: int) -> Iterator[Loaded]:
    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        connection.execute(f"SET memory_limit = '{_MEMORY >> 30}GB'")
        connection.execute(f"SET temp_directory = '{folder}'")
        connection.execute(f"CREATE TABLE e AS SELECT src, dst FROM '{edges}'")

        def first(statement: str) -> tuple[object, ...]:
            row = connection.execute(statement).fetchone()
            assert row is not None
            return row

        yield Loaded(str(first(f"EXPLAIN {_SQL}")[1]), lambda: int(str(first(_SQL)[0])))


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "kuzu",
            True,
            lambda edges, threads: _kuzu(edges, threads, _CYCLIC),
            "INTERSECT",
            "HASH_JOIN",
        ),
        Peer(
            "kuzu-binary",
            False,
            lambda edges, threads: _kuzu(edges, threads, _TWO_STEPS),
            "HASH_JOIN",
            "INTERSECT",
        ),
        Peer("duckdb", False, _duckdb, "Hash Join", "INTERSECT"),
    )
}


def main() -> None:
    """Serve one peer: ``NAME EDGES.parquet THREADS REPEAT``; one JSON object a line."""
    name, edges, threads, repeat = sys.argv[1:]
    peer = PEERS[name]
    with peer.load(Path(edges), int(threads)) as loaded:
        peer.check(loaded.plan)
        for _ in range(int(repeat)):
            _say({"begun": Clock.process()})
            clock = Clock()
            answer = loaded.count()
            cost = clock.read()
            _say({"answer": answer, "wall": cost.wall, "cpu": cost.cpu})


def _say(message: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
