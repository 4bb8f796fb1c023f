"""Spark's progress events are added to the metrics of the sink."""

from __future__ import annotations

import time

import pyarrow.parquet as pq
import pytest

from circuits import compile_sql
from streaming import ViewSink, merge, observe
from streaming.monitoring import SinkMonitor
from streaming.monitoring.query_listener import QueryListener
from tests.support.tables import EDGE, MARK, edges, marks


@pytest.mark.spark
def test_the_listener_adds_rows_times_and_observed_metrics(spark, tmp_path) -> None:
    text = "SELECT e.src FROM e JOIN mark ON mark.node = e.dst"
    sink = ViewSink(compile_sql(text, {"e": EDGE, "mark": MARK}))
    monitor = SinkMonitor(sink)
    columns = {"e": "src long, dst long", "mark": "node long"}
    streams = {}
    for name, table in (("e", edges((1, 2), (2, 3), (3, 4))), ("mark", marks(2))):
        (tmp_path / name).mkdir()
        rows = table.drop_columns(["weight"]) if "weight" in table.column_names else table
        pq.write_table(rows, tmp_path / name / "0.parquet")
        streams[name] = spark.readStream.schema(columns[name]).parquet(str(tmp_path / name))
    listener = QueryListener(monitor, "watched")
    spark.streams.addListener(listener)
    try:
        query = (
            observe(merge(streams), relations=["e", "mark"])
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .queryName("watched")
            .start()
        )
        query.awaitTermination()
        end = time.monotonic() + 60  # Spark sends the events in a thread of its own
        while monitor.readiness().ok and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    totals = monitor.totals
    assert monitor.readiness().reason == "the query has ended"
    assert dict(totals.observed) == {"rows": 4, "retractions": 0, "rows_e": 3, "rows_mark": 1}
    assert dict(totals.rows_in) == {"e": 3, "mark": 1}
    assert sum(totals.spark_rows.values()) >= 4
    assert totals.spark_seconds["addBatch"] > 0
