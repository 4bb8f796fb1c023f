"""A query in Spark Connect whose sink decodes change events."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from circuits import Circuit, compile_sql
from streaming import ViewSink
from tests.support.spark_queries import start_query

__all__ = ["read_cities", "run_feed"]

ORDERS = pa.schema([pa.field("nr", pa.int64(), nullable=False), ("city", pa.string())])
VIEW = "CREATE VIEW cities AS SELECT city, count(*) AS n FROM orders GROUP BY city"


def feed_views() -> Circuit:
    return compile_sql(VIEW, {"orders": ORDERS}, materialize=True)


def run_feed(place: Path, session: SparkSession) -> None:
    """Run the lines of the files in ``place/in`` as events of Debezium."""
    sink = ViewSink(
        feed_views(),
        state_dir=place / "state",
        feed="debezium",
        bad_rows="dead_letter",
        checkpoint=str(place / "checkpoint"),
    )
    lines = session.readStream.text(str(place / "in"))
    start_query(lines, sink, place / "checkpoint").awaitTermination()


def read_cities(place: Path) -> list[dict[str, object]]:
    """Return the rows of the view, after the server has ended."""
    with closing(ViewSink(feed_views(), state_dir=place / "state")) as reader:
        rows: list[dict[str, object]] = reader.table("cities").select(["city", "n"]).to_pylist()
    return rows
