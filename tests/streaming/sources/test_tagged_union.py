"""Tagged unions: several streams become one, with one envelope."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits.schema import Schema
from streaming import FeedError, merge
from streaming.sources.change_feeds import MaxwellFeed
from streaming.sources.change_feeds.feed import struct_column
from streaming.sources.envelope import decode_batch
from tests.support.spark_queries import start_query

pytestmark = pytest.mark.spark

SCHEMAS = {
    "orders": pa.schema([("nr", pa.int64()), ("item", pa.string())]),
    "grades": pa.schema([("nr", pa.string()), ("grade", pa.int32())]),
}
INPUTS = {name: Schema.of(name, schema) for name, schema in SCHEMAS.items()}


def test_streams_with_equal_columns_of_different_types_become_one(spark):
    orders = spark.createDataFrame(
        [(1, "a", 2.0), (2, "b", 0.5)], "nr long, item string, weight double"
    )
    grades = spark.createDataFrame([("x", 3)], "nr string, grade int")
    event = '{"type": "insert", "table": "orders", "data": {"nr": 9, "item": "z"}}'
    more = spark.createDataFrame([(event,), ("{",)], "value string")
    merged = merge(
        {"orders": orders, "grades": grades, "more": more},
        feeds={"more": MaxwellFeed()},
        inputs=SCHEMAS,
    )
    changes = decode_batch(merged.toArrow(), INPUTS)
    assert changes.tables["orders"].to_pylist() == [
        {"nr": 1, "item": "a", "weight": 2}, {"nr": 9, "item": "z", "weight": 1}
    ]  # fmt: skip
    assert changes.tables["grades"].to_pylist() == [{"nr": "x", "grade": 3, "weight": 1}]
    reasons = changes.dead_letters.table["reason"].to_pylist()
    assert ["the weight is 0.5" in reasons[0], "not a JSON object" in reasons[1]] == [True, True]
    merged_twice = merge({"all": merge({"orders": orders}), "grades": grades})
    assert decode_batch(merged_twice.toArrow(), INPUTS).tables.keys() == {"orders", "grades"}


def test_a_micro_batch_of_merged_streams_has_the_new_rows_of_each_source(spark, tmp_path):
    columns = {"orders": "nr long, item string", "grades": "nr string, grade int"}
    seen, streams = [], {}
    for name, schema in SCHEMAS.items():
        (tmp_path / name).mkdir()
        row = [[1] if field.type == pa.int64() else [None] for field in schema]
        pq.write_table(pa.table(row, schema=schema), tmp_path / name / "0.parquet")
        streams[name] = spark.readStream.schema(columns[name]).parquet(str(tmp_path / name))

    def record(df, batch_id):
        seen.append(decode_batch(df.toArrow(), INPUTS))

    start_query(merge(streams), record, tmp_path / "checkpoint").awaitTermination()
    assert [{n: t.num_rows for n, t in changes.tables.items()} for changes in seen] == [
        {"orders": 1, "grades": 1}
    ]


def test_frames_that_cannot_be_merged_are_refused(spark):
    frame = spark.createDataFrame([(1,)], "weight long")
    for frames, more, words in [
        ({}, {}, "frames is empty"),
        ({"a": frame}, {}, "has only the columns"),
        ({"a": frame}, {"feeds": {"b": "append"}}, "feed of unknown stream 'b'; streams: a"),
        ({"a": frame}, {"feeds": {"a": "append"}}, "give merge"),
    ]:
        with pytest.raises(FeedError, match=words):
            merge(frames, **more)


@pytest.mark.parametrize("weight", ["1", "1.0D"])
def test_a_column_relation_is_data_of_its_relation(spark, weight):
    schema = pa.schema([("relation", pa.string()), ("name", pa.string())])
    frame = spark.createDataFrame([("aunt", "Ada")], "relation string, name string")
    family = frame.selectExpr("*", f"{weight} AS weight")
    orders = spark.createDataFrame([(1, "a")], "nr long, item string")
    inputs = {"family": Schema.of("family", schema), "orders": INPUTS["orders"]}
    changes = decode_batch(merge({"family": family, "orders": orders}).toArrow(), inputs)
    row = {"relation": "aunt", "name": "Ada", "weight": 1}
    assert changes.tables["family"].to_pylist() == [row]
    assert len(changes.dead_letters) == 0


def test_a_column_of_type_variant_is_read_as_json(spark):
    texts = spark.createDataFrame([(1, '{"b": 1.50, "a": [null]}'), (2, None)], "n INT, v STRING")
    frame = merge({"t": texts.selectExpr("n", "parse_json(v) AS `the v`")})
    table = frame.select(f"{struct_column('t')}.*").orderBy("n").toArrow()
    assert table.column("the v").to_pylist() == ['{"a":[null],"b":1.5}', None]
