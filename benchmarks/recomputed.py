"""Recomputes a query in DuckDB after each change, as a user without incremental views does.

The tables are DuckDB's own. A change is an INSERT from Arrow, or a DELETE that finds the rows by
all their columns (the rows of a relation are distinct). The change and the query are timed
separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from benchmarks.cost import Clock


@dataclass(frozen=True)
class Recomputation:
    """The answer of a query, a single number, and the wall seconds of the change and the query."""

    answer: int
    change_seconds: float
    query_seconds: float


class RecomputedQuery:
    """A DuckDB database in memory with the tables and views of a query.

    >>> tables = RecomputedQuery({"e": pa.table({"a": [1, 2]})}, {}, threads=1)
    >>> tables.step({"e": pa.table({"a": [2]})}, -1, "SELECT count(*) FROM e").answer
    1
    """

    def __init__(
        self, relations: Mapping[str, pa.Table], views: Mapping[str, str], *, threads: int
    ) -> None:
        self._database = duckdb.connect(config={"threads": threads})
        for name, rows in relations.items():
            with self._registered(rows) as source:
                self._database.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
        for name, text in views.items():
            self._database.execute(f"CREATE VIEW {name} AS {text}")

    def step(self, rows: Mapping[str, pa.Table], weight: int, query: str) -> Recomputation:
        """Insert (weight 1) or delete (-1) the rows, and answer the query."""
        clock = Clock()
        self.change(rows, weight)
        change_seconds = clock.read().wall
        clock = Clock()
        answer = self.answer(query)
        return Recomputation(answer, change_seconds, clock.read().wall)

    def change(self, rows: Mapping[str, pa.Table], weight: int) -> None:
        """Insert (weight 1) or delete (-1) the rows."""
        for name, table in rows.items():
            with self._registered(table) as source:
                if weight > 0:
                    self._database.execute(f"INSERT INTO {name} SELECT * FROM {source}")
                else:
                    condition = " AND ".join(
                        f"{name}.{column} = {source}.{column}" for column in table.column_names
                    )
                    self._database.execute(f"DELETE FROM {name} USING {source} WHERE {condition}")

    def answer(self, query: str) -> int:
        """Return the single value of the query's result."""
        ((answer,),) = self._database.execute(query).fetchall()
        return int(answer)

    @contextmanager
    def _registered(self, rows: pa.Table) -> Iterator[str]:
        """Register Arrow rows under a name, for one statement."""
        self._database.register("changed_rows", rows)
        yield "changed_rows"
        self._database.unregister("changed_rows")
