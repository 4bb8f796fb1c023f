"""The driver collects a frame only if it has few and small rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from streaming.sources.few_rows import Refusal, collect_few_rows

SMALL = {"a.b": 1, "text": "é" * 50, "binary": b"x" * 9, "list": [1, 2], "map": [("k", "v")]}
TYPES = {
    "a.b": pa.int64(),
    "text": pa.string(),
    "binary": pa.binary(),
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.string()),
}
LARGE = {
    "text": {"text": "é" * 75},
    "binary": {"binary": b"x" * 150},
    "list": {"list": [11] * 50},
    "map": {"map": [("k", "v" * 150)]},
    "several": {"text": "é" * 25, "binary": b"x" * 50, "map": [("k", "v" * 50)]},
    "several of a row without text": {"text": None, "binary": b"x" * 75, "map": [("k", "v" * 75)]},
}


@pytest.mark.spark
def test_the_rows_are_collected_if_none_is_large(spark):
    small = [SMALL, {**SMALL, "text": None}, dict.fromkeys(TYPES)]
    frame = spark.createDataFrame(pa.Table.from_pylist(small, pa.schema(TYPES)))
    assert collect_few_rows(frame, 3, 150) == frame.toArrow()
    assert collect_few_rows(frame, 2, 150) is Refusal.MANY
    numbers = spark.range(2)
    assert collect_few_rows(numbers, 2, 1) == numbers.toArrow()
    assert collect_few_rows(numbers, 1, 1) is Refusal.MANY


@pytest.mark.spark
@pytest.mark.parametrize("names", [("a", "a"), ("a", "A")])
def test_columns_with_the_same_name_are_collected(spark, names):
    frame = spark.createDataFrame([("x", "y")], "b string, c string").toDF(*names)
    table = collect_few_rows(frame, 1, 2)
    assert table.column_names == [*names]
    assert [column.to_pylist() for column in table.columns] == [["x"], ["y"]]
    assert collect_few_rows(frame, 1, 1) is Refusal.LARGE


@pytest.mark.spark
@pytest.mark.parametrize("values", LARGE.values(), ids=LARGE)
def test_a_large_row_does_not_reach_the_driver(spark, values, monkeypatch):
    rows = pa.Table.from_pylist([SMALL, {**SMALL, **values}], pa.schema(TYPES))
    frame = spark.createDataFrame(rows)
    collected, collect = [], type(frame).toArrow

    def collect_recorded(frame: DataFrame) -> pa.Table:
        collected.append(collect(frame))
        return collected[-1]

    monkeypatch.setattr(type(frame), "toArrow", collect_recorded)
    assert collect_few_rows(frame, 2, 140) is Refusal.LARGE
    (table,) = collected
    small, large = table.rename_columns([*TYPES, "is large"]).to_pylist()
    assert small["text"] == SMALL["text"]
    assert large == {**dict.fromkeys(TYPES), "is large": True}
