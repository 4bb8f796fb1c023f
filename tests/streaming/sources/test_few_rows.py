"""The driver collects a frame only if it has few and small rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from streaming.sources.few_rows import collect_few_rows

SMALL = {"a.b": 1, "text": "é" * 50, "binary": b"x" * 9, "list": [1, 2], "map": [("k", "v")]}
TYPES = {
    "a.b": pa.int64(),
    "text": pa.string(),
    "binary": pa.binary(),
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.string()),
}
LARGE = {"text": "é" * 75, "binary": b"x" * 150, "list": [11] * 50, "map": [("k", "v" * 150)]}


@pytest.mark.spark
def test_the_rows_are_collected_if_none_is_large(spark):
    rows = pa.Table.from_pylist([SMALL, dict.fromkeys(TYPES)], pa.schema(TYPES))
    frame = spark.createDataFrame(rows)
    assert collect_few_rows(frame, 2, 150) == frame.toArrow()
    assert collect_few_rows(frame, 1, 150) is None
    numbers = spark.range(2)
    assert collect_few_rows(numbers, 2, 1) == numbers.toArrow()
    assert collect_few_rows(numbers, 1, 1) is None


@pytest.mark.spark
@pytest.mark.parametrize("column", LARGE)
def test_a_large_value_does_not_reach_the_driver(spark, column, monkeypatch):
    rows = pa.Table.from_pylist([SMALL, {**SMALL, column: LARGE[column]}], pa.schema(TYPES))
    frame = spark.createDataFrame(rows)
    collected, collect = [], type(frame).toArrow

    def collect_recorded(frame: DataFrame) -> pa.Table:
        collected.append(collect(frame))
        return collected[-1]

    monkeypatch.setattr(type(frame), "toArrow", collect_recorded)
    assert collect_few_rows(frame, 2, 140) is None
    ((small, large),) = (table.to_pylist() for table in collected)
    assert small["text"] == SMALL["text"]
    assert [large[name] for name in TYPES] == [None] * len(TYPES)
