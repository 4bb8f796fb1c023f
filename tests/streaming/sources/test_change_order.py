"""Warnings about inputs with keys whose changes have no order: once, and only if needed."""

from __future__ import annotations

import logging
from dataclasses import fields

import pyarrow as pa
import pytest

from circuits import InputOptions, compile_sql
from streaming import EventsError, ViewSink
from streaming.cli.arguments.options import PAGE_PORT
from streaming.cli.arguments.run_options import RunOptions
from streaming.cli.arguments.source import SourceArgument
from streaming.cli.commands import run as run_module
from streaming.sources.change_feeds import (
    AppendFeed,
    CanalFeed,
    CompactedFeed,
    DebeziumFeed,
    DeltaFeed,
    MaxwellFeed,
    UpsertFeed,
    WeightedFeed,
)
from streaming.sources.change_feeds.change_order import has_order
from tests.streaming.sink.test_view_sink import Frame

KAFKA = ("key", "value", "partition", "offset")
ORDERS = {"orders": pa.schema({"nr": pa.int64(), "city": pa.string(), "at": pa.int64()})}
WARNING = "input 'orders' has keys, and no column orders the changes of a key"


@pytest.mark.parametrize(
    ("feed", "columns", "expected"),
    [
        (None, ("nr", "at"), False),
        (None, ("nr", "sequence"), True),
        (DebeziumFeed(), ("value",), True),
        (MaxwellFeed(), ("value",), True),
        (CanalFeed(), ("value",), True),
        (DeltaFeed(), ("nr", "_change_type"), False),
        (DeltaFeed(), ("nr", "_change_type", "_commit_version"), True),
        (AppendFeed(), ("nr",), False),
        (AppendFeed(), KAFKA, True),
        (UpsertFeed(), ("nr",), False),
        (UpsertFeed(sequence="at"), ("nr", "at"), True),
        (WeightedFeed(), ("nr", "weight"), False),
        (WeightedFeed(), KAFKA, True),
        (CompactedFeed(), ("key", "value"), False),
        (CompactedFeed(), KAFKA, True),
    ],
)
def test_a_stream_has_an_order_if_its_feed_or_a_column_gives_one(feed, columns, expected):
    assert has_order(feed, columns) is expected


def sink_of(**options_of_orders):
    options_of_orders = {"orders": InputOptions(**options_of_orders)}
    return ViewSink(compile_sql("SELECT city FROM orders", ORDERS, input_options=options_of_orders))


def orders(**more):
    return pa.table({"nr": [1, 2], "city": ["Rome", "Oslo"], "at": [1, 2], **more})


def enveloped(sequence):
    rows = orders().to_struct_array()
    names = {"relation": ["orders"] * 2, "weight": [1, 1], "error": pa.nulls(2, pa.string())}
    columns = {**names, "sequence": pa.array(sequence, pa.int64()), "raw": pa.nulls(2, pa.string())}
    return pa.table({**columns, "row_orders": rows})


def test_a_sink_warns_once_and_says_what_to_do(caplog):
    sink = sink_of(keys=("nr",))
    with caplog.at_level(logging.WARNING):
        sink(Frame(orders()), 0)
        sink(Frame(orders()), 1)
    assert caplog.text.count(WARNING) == 1
    assert "InputOptions(keys=..., sequence='updated_at')" in caplog.text


@pytest.mark.parametrize(
    ("options_of_orders", "table"),
    [
        ({}, orders()),
        ({"keys": ("nr",), "sequence": "at"}, orders()),
        ({"keys": ("nr",)}, orders(sequence=[1, 2])),
        ({"keys": ("nr",)}, enveloped([1, None])),
    ],
    ids=["no keys", "a rule", "a column", "an envelope"],
)
def test_a_sink_does_not_warn_about_ordered_changes(caplog, options_of_orders, table):
    with caplog.at_level(logging.WARNING):
        sink_of(**options_of_orders)(Frame(table), 0)
    assert WARNING not in caplog.text


def test_a_sink_warns_about_an_envelope_without_sequences(caplog):
    with caplog.at_level(logging.WARNING):
        sink_of(keys=("nr",))(Frame(enveloped([None, None])), 0)
    assert caplog.text.count(WARNING) == 1


FILES = "schema=nr long, city string, at timestamp, tag string"
QUERY = "SELECT city FROM orders"


def source_of(folder, *words):
    return ",".join([f"orders={folder}", "format=parquet", FILES, *words])


def run(source, **more):
    options = {
        "query": QUERY, "source": [source], "once": True, "bad_rows": "fail", "threads": 1,
        "formula": "collapsed", "memory": "1g", "state_mode": "700", "log_format": "text",
        "dialect": "duckdb", "ui_host": "127.0.0.1", "ui_port": PAGE_PORT,
        "metrics_host": "127.0.0.1", "conf": [],
    }  # fmt: skip
    names = {field.name for field in fields(RunOptions)} - {"sources", "sinks", "labels"}
    names -= {"dead_letter_days", "dead_letter_size", "spark_settings"}
    run_module.run(explicit=(), **{**dict.fromkeys({*names, "sink"}), **options, **more})


class SparkStarted(Exception):
    pass


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    def start(*arguments, **options):
        raise SparkStarted

    monkeypatch.setattr(run_module, "start_session", start)
    monkeypatch.setattr(run_module.signal, "signal", lambda *arguments: None)


def test_the_command_line_warns_before_spark_starts(tmp_path, capsys):
    with pytest.raises(SparkStarted):
        run(source_of(tmp_path, "keys=nr"))
    message = capsys.readouterr().err
    assert WARNING in message and "sequence=updated_at on the command line" in message
    assert message.index(WARNING) < message.index("Starting Spark")


@pytest.mark.parametrize(
    "words",
    [(), ("keys=nr", "sequence=at"), ("keys=nr", "feed=debezium"), ("keys=nr", "feed=canal")],
)
def test_the_command_line_does_not_warn_about_ordered_changes(tmp_path, capsys, words):
    with pytest.raises(SparkStarted):
        run(source_of(tmp_path, *words))
    assert WARNING not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sequence=at",), "sequence=at orders the changes of a key: add keys=COLUMN"),
        (("keys=nr", "sequence=att"), "sequence=att is not a column; columns: nr, city, at"),
        (("keys=nr", "sequence=tag"), "the sequence 'tag' is of type string, whose codes have no"),
    ],
)
def test_an_invalid_sequence_is_refused_before_spark_starts(tmp_path, words, message):
    from dbsp_wcoj.errors import DbspWcojError

    with pytest.raises(DbspWcojError, match=message):
        run(source_of(tmp_path, *words))


def test_a_sequence_is_a_column_of_the_relation_or_of_the_stream():
    kafka = f"orders=format=kafka,feed=debezium,{FILES},keys=nr,sequence="
    assert SourceArgument.parse(f"{kafka}at").input_options() == InputOptions(
        keys=("nr",), sequence="at"
    )
    of_stream = SourceArgument.parse(f"{kafka}timestamp")
    assert (
        of_stream.input_options() == InputOptions(keys=("nr",)) and of_stream.is_ordered_by_stream
    )
    flat = SourceArgument.parse(f"orders=in,{FILES},feed=upsert,keys=nr,sequence=sequence")
    assert flat.input_options() == InputOptions(keys=("nr",)) and flat.is_ordered_by_stream
    assert (
        SourceArgument.parse(f"orders=in,{FILES},keys=nr,sequence=at").input_options().sequence
        == "at"
    )


def test_a_feed_takes_the_column_of_the_stream_or_is_refused():
    from types import SimpleNamespace

    from streaming.cli.arguments.frames import merge_streams

    def feed(text):
        source = SourceArgument.parse(text)
        frame = SimpleNamespace(columns=["value"])
        return merge_streams({"orders": source}, {"orders": frame}, {})[1]["feed"]

    given = feed(f"orders=format=kafka,feed=debezium,{FILES},keys=nr,sequence=timestamp")
    assert (given.sequence, given.relation) == ("timestamp", "orders")
    with pytest.raises(EventsError, match="feed=append does not accept a column of the stream"):
        feed(f"orders=in,{FILES},feed=append,keys=nr,sequence=sequence")
