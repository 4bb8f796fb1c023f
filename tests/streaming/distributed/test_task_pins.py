"""Pinned tasks have the same packets, without a further exchange, and need a setting of Spark."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from circuits import compile_sql
from streaming import ViewSink
from streaming.distributed import task_pins
from streaming.distributed.spark_settings import use_settings
from streaming.distributed.task_pins import LOCALITY, MAX_PLACEMENTS, TaskPins, check_locality
from streaming.errors import StreamingError
from tests.streaming.distributed.local_job import LocalCluster, LocalFrame

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
def test_a_marker_whose_session_has_ended_is_dropped(spark):
    """Then `SparkSession.active` raises errors of several kinds, and `close` must not."""
    before, pins = count_tables_in_memory(spark), TaskPins()
    pins.pin(packets(spark), TASKS)
    marker = task_pins._MARKERS[TASKS]
    for error in (AttributeError("'NoneType' object has no attribute 'sc'"), OSError("closed")):
        with patch.object(SparkSession, "active", side_effect=error):
            marker.free()
    assert count_tables_in_memory(spark) == before + 1
    pins.release()
    assert count_tables_in_memory(spark) == before and TASKS not in task_pins._MARKERS


@pytest.mark.parametrize("value", ["false", "False", " FALSE "])
def test_the_setting_is_read_as_spark_reads_it(value):
    session = Mock()
    session.sparkContext.getConf().get.return_value = value
    check_locality(session)


def test_the_setting_is_read_once_for_an_application():
    pins, session = TaskPins(), Mock()
    read = session.sparkContext.getConf().get
    read.return_value = "false"
    for application in ("a", "a", "b"):
        session.sparkContext.applicationId = application
        pins.check(session)
    assert read.call_count == 2


def test_a_warning_says_why_no_task_is_pinned(tmp_path, caplog):
    circuit = compile_sql("SELECT x FROM t", {"t": {"x": "long"}}, materialize=["t"])
    ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2, pin_cells=True).close()
    (message,) = [text for text in caplog.messages if "pin_cells" in text]
    assert "because input 't' is materialized" in message


def test_a_job_whose_marker_cannot_be_placed_runs_anywhere_and_the_next_one_is_pinned(caplog):
    table, packets, pins = Mock(), Mock(), TaskPins()
    marker = task_pins._Marker("application", TASKS, table, processes=("a", "driver"))
    count = table.persist.return_value.count
    count.side_effect = [PySparkException("an executor was lost"), None]
    with (
        patch.object(task_pins, "_get_or_create_marker", return_value=marker),
        patch.object(task_pins, "_list_processes", side_effect=[("b", "driver"), ("a", "driver")]),
        patch.object(task_pins, "_count_partitions", return_value=Counter({"a": TASKS})),
    ):
        assert pins.pin(packets, TASKS) is packets
        assert "an executor was lost" in caplog.text
        assert pins.pin(packets, TASKS) is packets.join.return_value
    assert count.call_count == 2


def test_the_marker_is_freed_also_if_the_state_cannot_be_closed(tmp_path):
    circuit = compile_sql("SELECT x FROM t", {"t": {"x": "long"}})
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2, pin_cells=True)
    with (
        patch.object(TaskPins, "release") as release,
        patch.object(type(sink._versions), "close", side_effect=OSError("no space")),
        pytest.raises(OSError, match="no space"),
    ):
        sink.close()
    assert release.call_count == 1
    sink.close()


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


@pytest.mark.parametrize("pin_cells", [True, False])
def test_a_sink_pins_the_tasks_of_all_exchanges_of_each_micro_batch(tmp_path, pin_cells):
    cluster: Any = LocalCluster(attempts=(1,))
    cluster.getConf = lambda: {LOCALITY: "false"}
    cluster.applicationId = "application"
    circuit = compile_sql("SELECT x, count(*) AS n FROM t GROUP BY x", {"t": {"x": "long"}})
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=4, pin_cells=pin_cells)
    exchanges: list[tuple[LocalFrame, int]] = []
    pinned: list[tuple[LocalFrame, int]] = []
    results, users = [], []

    def exchange(frame: LocalFrame, tasks: int, column: str) -> LocalFrame:
        exchanges.append((original(frame, tasks, column), tasks))
        return exchanges[-1][0]

    def pin(pins: TaskPins, packets: LocalFrame, tasks: int) -> Mock:
        users.append(pins)
        pinned.append((packets, tasks))
        results.append(Mock(wraps=packets))
        return results[-1]

    original = LocalFrame.repartitionById
    with (
        patch.object(LocalFrame, "repartitionById", exchange),
        patch.object(TaskPins, "pin", pin),
        patch.object(TaskPins, "release", autospec=True) as release,
    ):
        for number in range(3):
            before = len(exchanges)
            sink(cluster.frame(pa.table({"x": range(40)})), number)
            assert len(exchanges) > before
            assert sink.metrics[-1].cell_steps == 4
        sink.close()
    assert pinned == (exchanges if pin_cells else [])
    assert [packets.mapInArrow.call_count for packets in results] == [1] * len(pinned)
    released = [call.args[0] for call in release.call_args_list]
    assert {*users} == {*released} and len(released) == pin_cells


@pytest.mark.parametrize(
    ("most_tasks", "placements", "warnings"),
    [
        ([3], 1, 0),
        ([5, 3], 2, 0),
        ([4] * (MAX_PLACEMENTS - 1) + [3], MAX_PLACEMENTS, 0),
        ([4] * MAX_PLACEMENTS, MAX_PLACEMENTS, 1),
        ([0, 3], 2, 0),  # in the first one, no partition is in memory
    ],
)
def test_a_marker_is_placed_again_until_no_executor_has_more_than_its_share(
    caplog, most_tasks, placements, warnings
):
    tasks, table = 5, Mock()
    spread = [Counter({"a": most, "b": tasks - most} if most else {}) for most in most_tasks]
    marker = task_pins._Marker("application", tasks, table)
    with (
        patch.object(task_pins, "_count_partitions", side_effect=spread),
        caplog.at_level(logging.WARNING, task_pins.__name__),
    ):
        marker.place(("a", "b", "driver"))
    calls = [name for name, _, _ in table.method_calls if name in ("unpersist", "persist")]
    assert calls == ["persist"] + ["unpersist", "persist"] * (placements - 1)
    assert table.persist.return_value.count.call_count == placements
    assert len(caplog.messages) == warnings
    for message in caplog.messages:
        assert "has 4 of 5 tasks of cells instead of at most 3" in message
