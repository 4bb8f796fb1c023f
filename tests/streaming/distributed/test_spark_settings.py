"""The settings of a job hold until the last job of the same session has ended."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming.distributed.spark_settings import (
    MAX_BYTES_TO_PYTHON,
    MAX_ROWS_TO_PYTHON,
    SETTINGS,
    use_settings,
)

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
def test_batches_have_few_rows_and_few_bytes_if_rows_may_be_large(spark):
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"rows": [batch.num_rows]})

    def rows_of_batches(frame: DataFrame, *, has_small_rows: bool) -> list[int]:
        with use_settings(spark, has_small_rows=has_small_rows):
            return frame.mapInArrow(count, "rows long").toArrow().column("rows").to_pylist()

    numbers = spark.range(0, MAX_ROWS_TO_PYTHON + 10, 1, 1)
    large = spark.range(0, 50, 1, 1).selectExpr("id", "repeat('x', 3000000) AS text")
    for has_small_rows in (False, True):
        assert rows_of_batches(numbers, has_small_rows=has_small_rows) == [MAX_ROWS_TO_PYTHON, 10]
    most = MAX_BYTES_TO_PYTHON // 3_000_000 + 1
    assert rows_of_batches(large, has_small_rows=False) == [most, most, 50 - 2 * most]


def test_a_job_with_large_rows_limits_the_bytes_of_all_jobs_of_its_session():
    values: dict[str, str] = {}
    conf = SimpleNamespace(
        get=values.get, set=values.__setitem__, unset=lambda name: values.pop(name)
    )
    session: Any = SimpleNamespace(conf=conf, _jsparkSession=object())
    name, limit = "spark.sql.execution.arrow.maxBytesPerBatch", str(MAX_BYTES_TO_PYTHON)
    with use_settings(session, has_small_rows=True):
        assert values[name] != limit
        with use_settings(session):
            assert values[name] == limit
            with use_settings(session, has_small_rows=True):
                assert values[name] == limit
        assert values[name] == limit
    assert not values
    with use_settings(session, has_small_rows=True):
        assert values[name] != limit
