"""The settings of a job hold until the last job of the same session has ended."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming.distributed.spark_settings import MAX_BATCH_ROWS, SETTINGS, use_settings

ADAPTIVE = "spark.sql.adaptive.enabled"
COMPRESSION = "spark.sql.execution.arrow.compression.codec"


@pytest.mark.spark
def test_two_threads_use_the_settings_of_one_session_until_the_last_one_ends(spark):
    session = spark.newSession()
    same = SparkSession(spark.sparkContext, session._jsparkSession)  # as for each micro-batch
    session.conf.set(ADAPTIVE, "true")
    session.conf.set(COMPRESSION, "zstd")
    before = {name: session.conf.get(name, None) for name in SETTINGS}
    has_first, has_second, first_ended = Event(), Event(), Event()

    def use_first() -> None:
        with use_settings(session):
            has_first.set()
            assert has_second.wait(60)
        first_ended.set()

    def use_second() -> dict[str, str | None]:
        assert has_first.wait(60)
        with use_settings(same):
            has_second.set()
            assert first_ended.wait(60)
            return {name: same.conf.get(name, None) for name in SETTINGS}

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(use_first), threads.submit(use_second)
        assert second.result() == SETTINGS
        first.result()
    assert {name: session.conf.get(name, None) for name in SETTINGS} == before


@pytest.mark.spark
def test_the_settings_of_a_session_are_restored_after_an_error(spark):
    session, other = spark.newSession(), spark.newSession()
    for each in (session, other):
        each.conf.set(ADAPTIVE, "true")
    with pytest.raises(ValueError, match="a job failed"), use_settings(session):
        assert other.conf.get(ADAPTIVE) == "true"
        raise ValueError("a job failed")
    assert session.conf.get(ADAPTIVE) == "true"


@pytest.mark.spark
def test_python_receives_batches_of_few_rows_whatever_their_bytes(spark):
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"rows": [batch.num_rows]})

    rows, kilobytes = MAX_BATCH_ROWS + 10, 80  # more bytes than Spark's usual limit of 64 MiB
    frame = spark.range(0, rows, 1, 1).selectExpr("id", f"repeat('x', {kilobytes}000) AS text")
    with use_settings(spark):
        counts = frame.mapInArrow(count, "rows long").toArrow()
    assert counts.column("rows").to_pylist() == [MAX_BATCH_ROWS, 10]
