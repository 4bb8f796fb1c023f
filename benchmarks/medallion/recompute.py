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
from circuits.sql import view_statements, without_streams
from streaming.pipeline.sql_files import read_sql_files


class Recomputation(Protocol):
    """Computes all views."""

    def compute(self, files: Mapping[str, Sequence[str]]) -> tuple[Cost, dict[str, pa.Table]]:
        """Compute and write all views; return the time and the rows of each.

        Args:
            files: The Parquet files of each table of events.
        """
        ...


def read_queries() -> dict[str, str]:
    """Return the query of each view, each after those that it reads; its tables are whole."""
    views = view_statements(read_sql_files([SQL]).text, "spark")
    queries = {view.name: without_streams(view, "spark").query for view in views}
    return {name: queries[name] for name in KEYS}


class SparkRecomputation:
    """Computes all views in Spark.

    Args:
        session: The session.
        folder: A folder for the tables of the views.
    """

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._queries = read_queries()

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
