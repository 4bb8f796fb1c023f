"""Recomputation: Spark computes all views again from the change events.

As in a declarative pipeline without an incremental engine, each view is computed as a whole from
the tables below it, and written. The tables are Parquet files: the jars of Delta are not part of
Spark, and Parquet is what Delta stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.cost import Clock, Cost
from benchmarks.medallion.lakehouse import KEYS, SQL
from circuits.sql import ViewStatement, view_statements, without_streams
from streaming.pipeline.sql_files import read_sql_files


class Recomputation(Protocol):
    """Computes all views."""

    def compute(self, files: Mapping[str, Sequence[str]]) -> tuple[Cost, dict[str, pa.Table]]:
        """Compute and write all views; return the time and the rows of each.

        Args:
            files: The Parquet files of each source table.
        """
        ...


def read_views() -> dict[str, ViewStatement]:
    """Return each view as a query over whole tables; it follows the views that it reads."""
    statements = view_statements(read_sql_files([SQL]).text, "spark")
    views = {view.name: without_streams(view, "spark") for view in statements}
    return {name: views[name] for name in KEYS}


class SparkRecomputation:
    """Computes all views in Spark.

    Args:
        session: The session.
        folder: A folder for the tables of the views.
        queries: The query of each view over whole tables, after those that it reads; by default
            the 15 views of the shop.
    """

    def __init__(
        self, session: SparkSession, folder: Path, queries: Mapping[str, str] | None = None
    ) -> None:
        self._session = session
        self._folder = folder
        self._queries = queries or {name: view.query for name, view in read_views().items()}

    def compute(self, files: Mapping[str, Sequence[str]]) -> tuple[Cost, dict[str, pa.Table]]:
        spark = self._session
        clock = Clock()
        for name, paths in files.items():
            spark.read.parquet(*paths).createOrReplaceTempView(name)
        for name, query in self._queries.items():
            path = str(self._folder / name)
            spark.sql(query).write.mode("overwrite").parquet(path)
            spark.read.parquet(path).createOrReplaceTempView(name)
        cost = clock.read()
        return cost, {name: spark.table(name).toArrow() for name in self._queries}
