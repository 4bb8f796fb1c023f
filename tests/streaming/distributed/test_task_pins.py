"""Pinned tasks have the same packets, without a further exchange, and need a setting of Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from circuits import compile_sql
from streaming import ViewSink
from streaming.distributed.spark_settings import use_settings
from streaming.distributed.task_pins import TaskPins
from streaming.errors import StreamingError

TASKS = 3
ROWS = [(2, "a"), (0, "b"), (2, "c"), (2, "a")]  # none for task 1


def packets(session: SparkSession) -> DataFrame:
    return session.createDataFrame(ROWS, "task int, content string").repartitionById(TASKS, "task")


def count_tables_in_memory(session: SparkSession) -> int:
    return session.sparkContext._jsc.getPersistentRDDs().size()


@pytest.mark.spark
def test_pinned_tasks_receive_the_same_packets_by_the_same_exchange(spark):
    def count_rows(batches):
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        for batch in batches:
            values = batch.column("task").to_pylist()
            tasks = pa.array(values[:1], pa.int32())
            yield pa.record_batch({"n": [number], "task": tasks, "rows": [len(values)]})

    before, pins = count_tables_in_memory(spark), TaskPins()
    with use_settings(spark):
        pinned = pins.pin(packets(spark), TASKS)
        assert sorted(map(tuple, pinned.collect())) == sorted(ROWS)
        numbers = pinned.mapInArrow(count_rows, "n long, task int, rows long").collect()
        assert sorted(map(tuple, numbers)) == [(0, 0, 1), (2, 2, 3)]
        plan = pinned._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange") == 2, plan  # that of the packets, and that of the marker
    assert plan.index("InMemoryRelation") < plan.rindex("Exchange")
    assert count_tables_in_memory(spark) == before + 1
    pins.release()
    assert count_tables_in_memory(spark) == before


@pytest.mark.spark
def test_sinks_share_the_marker_until_the_last_one_is_closed(spark):
    before, first, second = count_tables_in_memory(spark), TaskPins(), TaskPins()
    for pins in (first, second, first):
        pins.pin(packets(spark), TASKS)
        assert count_tables_in_memory(spark) == before + 1
    first.release()
    assert count_tables_in_memory(spark) == before + 1
    second.release()
    assert count_tables_in_memory(spark) == before


@pytest.mark.spark
def test_pinned_cells_need_exchanges_without_locality(spark, tmp_path):
    circuit = compile_sql("SELECT x, count(*) AS n FROM t GROUP BY x", {"t": {"x": "long"}})
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2, pin_cells=True)
    message = "pin_cells=True with spark.shuffle.reduceLocality.enabled=true: .* start the"
    for rows in (1, 1000):
        with pytest.raises(StreamingError, match=message):
            sink(spark.range(rows).withColumnRenamed("id", "x"), 0)
    sink.close()


def test_an_embedded_sink_has_no_cells_to_pin():
    circuit = compile_sql("SELECT x FROM t", {"t": {"x": "long"}})
    with pytest.raises(StreamingError, match="pin_cells=True: only mode='distributed'"):
        ViewSink(circuit, pin_cells=True)
