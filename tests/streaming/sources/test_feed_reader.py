"""The feed reader: what it asks of Spark for a micro-batch, and rows in every kind of query."""

from __future__ import annotations

import json

import pytest

from circuits import InputOptions, compile_sql
from circuits.schema import Schema
from streaming import ViewSink
from streaming.sources.change_feeds import (
    AppendFeed,
    CanalFeed,
    DebeziumFeed,
    DeltaFeed,
    MaxwellFeed,
    UpsertFeed,
)
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from tests.support.connect_feed_driver import ORDERS, VIEW, feed_views

pytestmark = pytest.mark.spark

ORDERS_SCHEMA = {"orders": Schema.of("orders", ORDERS)}


class Keys:
    keys = ("nr",)


class Frame:
    """A DataFrame that records what is asked of it."""

    def __init__(self, frame, calls):
        self._frame = frame
        self._calls = calls

    def __getattr__(self, name):
        self._calls.append(name)
        return getattr(self._frame, name)


@pytest.mark.parametrize(
    "feed",
    [DebeziumFeed(), MaxwellFeed(), CanalFeed(), AppendFeed(), DeltaFeed(), UpsertFeed()],
    ids=lambda feed: type(feed).__name__,
)
def test_a_micro_batch_is_one_action_and_no_projection(spark, feed):
    """Spark needs several milliseconds to analyze a projection, and a second for a decoder."""
    if isinstance(feed, DebeziumFeed | MaxwellFeed | CanalFeed):
        frame = spark.createDataFrame([("{}",)], "value string")
    else:
        frame = spark.createDataFrame([(1, "insert")], "nr long, _change_type string")
    options = {"orders": Keys()} if isinstance(feed, UpsertFeed) else {}
    reader = FeedReader(feed, ORDERS_SCHEMA, options)
    reader.collect(frame)
    calls = []
    reader.collect(Frame(frame, calls))
    assert [name for name in calls if name != "schema"] == ["toArrow"]


def test_columns_that_the_feed_does_not_read_are_not_collected(spark):
    frame = spark.sql("SELECT 'k' AS key, '{}' AS value, 1 AS partition, 7L AS offset, 't' AS t")
    reader = FeedReader(DebeziumFeed(), ORDERS_SCHEMA, {})
    assert reader.collect(frame).to_pylist() == [{"value": "{}", "offset": 7}]


def test_the_offset_of_kafka_orders_the_changes_of_a_key(spark):
    def change(n, city):
        source = {"table": "orders", "ts_ms": 5}
        return json.dumps({"op": "u", "after": {"nr": n, "city": city}, "source": source})

    rows = [(change(1, "Oslo"), 0, 8), (change(1, "Bonn"), 0, 9), (change(1, "Rome"), 0, 7)]
    frame = spark.createDataFrame(rows, "value string, partition int, offset long")
    circuit = compile_sql(
        VIEW, {"orders": ORDERS}, input_options={"orders": InputOptions(keys=("nr",))}
    )
    sink = ViewSink(circuit, feed="debezium")
    sink(frame, 0)
    assert [row["city"] for row in sink.last.outputs["cities"].to_pylist()] == ["Bonn"]


@pytest.mark.parametrize("ignores", [True, False])
def test_an_input_that_the_compiled_decoder_cannot_read_keeps_its_events(spark, ignores):
    """Spark reads names that differ only in case; the table is not unknown."""
    schemas = {"people": "ID bigint", "orders": "id bigint", "inventory.orders": "ID bigint"}
    circuit = compile_sql(
        "CREATE VIEW a AS SELECT * FROM people; CREATE VIEW b AS SELECT * FROM orders;"
        'CREATE VIEW c AS SELECT * FROM "inventory.orders"',
        schemas,
    )
    sink = ViewSink(circuit, feed=DebeziumFeed(ignore_unknown_tables=ignores))
    texts = [
        json.dumps({"op": "c", "after": {column: n}, "source": {"db": "inventory", "table": table}})
        for n, (table, column) in enumerate([("people", "ID"), ("orders", "ID")])
    ]
    sink(spark.createDataFrame([(text,) for text in texts], "value string"), 0)
    rows = {
        name: view.drop_columns("weight").to_pylist() for name, view in sink.last.outputs.items()
    }
    assert rows == {"a": [{"ID": 0}], "b": [], "c": [{"ID": 1}]}


def event(op, before, after):
    source = {"table": "orders"}
    return json.dumps({"op": op, "before": before, "after": after, "source": source})


BATCHES = [
    [event("c", None, {"nr": n, "city": "Rome"}) for n in range(4)],
    [
        event("u", {"nr": 1, "city": "Rome"}, {"nr": 1, "city": "Oslo"}),
        event("d", {"nr": 2, "city": "Rome"}, None),
        "{",  # a dead letter
        event("c", None, {"nr": 9, "city": "Bonn"}).replace("Bonn", "B\\u006fnn"),
    ],
]
CITIES = [{"city": "Bonn", "n": 1}, {"city": "Oslo", "n": 1}, {"city": "Rome", "n": 2}]


def test_a_distributed_sink_decodes_a_feed_as_an_embedded_one(spark, tmp_path):
    totals = []
    for mode, cells in (("embedded", None), ("distributed", 2)):
        sink = ViewSink(
            compile_sql(VIEW, {"orders": ORDERS}),
            state_dir=tmp_path / mode,
            feed="debezium",
            bad_rows="dead_letter",
            mode=mode,
            cells=cells,
        )
        total = {}
        for batch_id, texts in enumerate(BATCHES):
            sink(spark.createDataFrame([(text,) for text in texts], "value string"), batch_id)
            for row in sink.last.outputs["cities"].to_pylist():
                key = row["city"], row["n"]
                total[key] = total.get(key, 0) + row["weight"]
        assert [metrics.dead_letters for metrics in sink.metrics] == [0, 1]
        sink.close()
        totals.append({key: weight for key, weight in total.items() if weight})
    assert totals == [{(row["city"], row["n"]): 1 for row in CITIES}] * 2
    assert feed_views().outputs == ("cities",)
