"""Ten megabytes in any field of any format are rejected fast; good rows are processed.

An earlier version matched values with regular expressions in quadratic time, so one event kept a
task busy forever. The time-outs here only guard against that; the events take far less time.
"""

from __future__ import annotations

import faulthandler
import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

from circuits.schema import Schema
from streaming.sources.change_feeds import (
    CanalFeed,
    CompactedFeed,
    DebeziumFeed,
    DeltaFeed,
    MaxwellFeed,
    UpsertFeed,
    WeightedFeed,
)
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from tests.generators.feeds import frame_of

pytestmark = pytest.mark.spark

GUARD_S = 900  # of one query
SIZES = [200_000, pytest.param(10_000_000, marks=pytest.mark.slow)]
MAX_REASON = 700
MAX_FRAME = 60_000_000  # characters of the events of one query
R = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("small", pa.uint8()),
        ("big", pa.uint64()),
        ("price", pa.decimal128(30, 9)),
        ("wide", pa.decimal256(50, 2)),
        ("rounded", pa.decimal128(5, -2)),
        ("rate", pa.float64()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("nanos", pa.timestamp("ns")),
        ("clock", pa.time64("us")),
        ("span", pa.duration("ms")),
        ("data", pa.binary()),
        ("name", pa.string()),
    ]
)
GOOD = 7  # the id of the valid row
TEXT_COLUMNS = ("name",)  # long texts are valid in them


@pytest.fixture(autouse=True)
def _guard():
    yield
    faulthandler.cancel_dump_traceback_later()


def texts(size):
    """Texts that are slow for naive patterns and parsers."""
    return {
        "digits and a letter": "1" * size + "x",
        "zeros": "0." + "0" * size,
        "a digit after zeros": "1." + "0" * size + "1",
        "names of zones": "2020-01-01 00:00:00 " + "a/" * (size // 2) + "!",
        "letters": "A" * size,
        "signs": "e-" * (size // 2),
        "blanks": " " * size,
    }


def nested(size):
    """JSON values other than strings that are long or deeply nested."""
    return {
        "an array of objects": "[" + ",".join(f'{{"k{n}":1}}' for n in range(size // 12)) + "]",
        "an object": "{" + ",".join(f'"k{n}":1' for n in range(size // 11)) + "}",
        "deep": "[" * (size // 2) + "]" * (size // 2),
        "a number": "1" * size,
    }


def hostile(size):
    yield from ((name, json.dumps(text)) for name, text in texts(size).items())
    yield from nested(size).items()


def decode(spark, feed, events, keys=None):
    """Return the ids of the accepted rows, and the reasons of the rejected ones."""
    faulthandler.dump_traceback_later(GUARD_S, exit=True)
    input_options = {"r": SimpleNamespace(keys=(keys or {}).get("r", ()))}
    reader = FeedReader(feed, {"r": Schema.of("r", R)}, input_options)
    changes = reader.decode(reader.collect(frame_of(spark, events)), spark)
    rows = changes.tables.get("r")
    ids = set() if rows is None else set(rows["id"].to_pylist())
    dead_letters = changes.dead_letters.table
    assert all(len(name or "") <= 200 for name in dead_letters["relation"].to_pylist())
    return ids, dead_letters["reason"].to_pylist()


def frames(events):
    """Group the events by what fits Spark's memory, for few queries."""
    group, length = [], 0
    for event in events:
        size = sum(map(len, event)) if isinstance(event, tuple) else len(event)
        if group and length + size > MAX_FRAME:
            yield group
            group, length = [], 0
        group.append(event)
        length += size
    yield group


def check(spark, feed, good, events, *, rejected_count=None, keys=None):
    """Check that a good event among the others is accepted, and that the reasons are short."""
    count = 0
    for group in frames(events):
        ids, reasons = decode(spark, feed, [*group, good], keys)
        assert GOOD in ids
        assert all(0 < len(reason) <= MAX_REASON for reason in reasons)
        count += len(reasons)
    assert rejected_count is None or count == rejected_count


FEEDS = {
    "debezium": (
        DebeziumFeed(),
        '{{"op":"c","after":{{"id":{id}{more}}},"source":{{"table":"r"}}}}',
    ),
    "maxwell": (MaxwellFeed(), '{{"type":"insert","table":"r","data":{{"id":{id}{more}}}}}'),
    "canal": (CanalFeed(), '{{"type":"INSERT","table":"r","data":[{{"id":{id}{more}}}]}}'),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FEEDS)
def test_long_values_of_any_column_are_refused_and_texts_are_kept(spark, name, size):
    feed, form = FEEDS[name]
    good = form.format(id=GOOD, more="")
    columns = [column for column in R.names if column not in (*TEXT_COLUMNS, "id", "data")]
    rejected, accepted = [], []
    for value in map(json.dumps, texts(size).values()):
        rejected += [form.format(id=1, more=f',"{column}":{value}') for column in columns]
        rejected += [form.format(id=value, more="")]
        accepted += [form.format(id=1, more=f',"name":{value}')]
    check(spark, feed, good, [*rejected, *accepted], rejected_count=len(rejected))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FEEDS)
def test_long_and_deep_json_in_a_column_is_refused(spark, name, size):
    feed, form = FEEDS[name]
    good = form.format(id=GOOD, more="")
    values = [*nested(size).values(), *map(json.dumps, texts(size).values())]
    columns = ("price", "rate", "at", "data", "name", "unknown")
    events = [form.format(id=1, more=f',"{c}":{value}') for value in values for c in columns]
    check(spark, feed, good, events)


SOURCE = '{"op":"c","after":{"id":1},"source":{"NAME":%s}}'
ENVELOPES = {
    "debezium op": '{"op":%s,"after":{"id":1},"source":{"table":"r"}}',
    "debezium ts_ms": '{"op":"c","ts_ms":%s,"after":{"id":1},"source":{"table":"r"}}',
    **{
        f"debezium source.{name}": SOURCE.replace("NAME", name)
        for name in ("table", "db", "schema", "file", "pos", "row", "lsn", "ts_ms")
    },
    "debezium file": '{"op":"c","after":{"id":1},"source":{"table":"r","pos":1,"file":%s}}',
    "debezium after": '{"op":"c","after":%s,"source":{"table":"r"}}',
    "debezium before": '{"op":"d","before":%s,"source":{"table":"r"}}',
    "debezium payload": '{"payload":%s}',
    "debezium schema": '{"schema":%s,"payload":{"op":"c","after":{"id":1}}}',
    "debezium scale": '{"op":"c","after":{"id":1,"price":{"scale":%s,"value":"AMg="}}}',
    "debezium value": '{"op":"c","after":{"id":1,"price":{"scale":2,"value":%s}}}',
    "debezium parameters": (
        '{"schema":{"fields":[{"field":"after","fields":[{"field":"price","type":"bytes","name":'
        '"org.apache.kafka.connect.data.Decimal","parameters":{"scale":%s}}]}]},"payload":{"op":'
        '"c","after":{"id":1,"price":"AMg="},"source":{"table":"r"}}}'
    ),
    "maxwell type": '{"type":%s,"table":"r","data":{"id":1}}',
    "maxwell table": '{"type":"insert","table":%s,"data":{"id":1}}',
    "maxwell position": '{"type":"insert","table":"r","data":{"id":1},"position":%s}',
    "maxwell xid": '{"type":"insert","table":"r","data":{"id":1},"xid":%s,"xoffset":%s}',
    "maxwell old": '{"type":"update","table":"r","data":{"id":1},"old":%s}',
    "canal type": '{"type":%s,"table":"r","data":[{"id":1}]}',
    "canal sql": '{"type":"QUERY","table":"r","sql":%s}',
    "canal data": '{"type":"INSERT","table":"r","data":%s}',
    "canal old": '{"type":"UPDATE","table":"r","data":[{"id":1}],"old":%s}',
    "canal es": '{"type":"INSERT","table":"r","data":[{"id":1}],"es":%s,"id":%s}',
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FEEDS)
def test_long_values_outside_of_the_rows_are_rejected_or_ignored(spark, name, size):
    feed, form = FEEDS[name]
    good = form.format(id=GOOD, more="")
    forms = [envelope for key, envelope in ENVELOPES.items() if key.startswith(name)]
    events = [envelope.replace("%s", value) for _, value in hostile(size) for envelope in forms]
    others = ["x" * size, " " * size, "[" * size, '{"a":1}' * (size // 7)]
    check(spark, feed, good, [*events, *others])


@pytest.mark.parametrize("size", SIZES)
def test_an_event_of_many_rows_and_many_names_takes_no_quadratic_time(spark, size):
    names = ",".join(f'"k{n}":1' for n in range(size // 22))
    rows = ",".join(['{"id":1,"rate":1.2345678901234567e10}'] * (size // 80))
    event = f'{{"type":"INSERT","table":"r","x":{{{names}}},"data":[{rows}]}}'
    update = f'{{"type":"UPDATE","table":"r","data":[{rows}],"old":[{rows}]}}'
    good = FEEDS["canal"][1].format(id=GOOD, more="")
    check(spark, CanalFeed(), good, [event, update])


@pytest.mark.parametrize("size", SIZES)
def test_long_keys_and_values_of_compacted_topics_are_refused(spark, size):
    events = []
    for _, value in hostile(size):
        events += [
            (f'{{"id":{value}}}', '{"name":"x"}'),
            ('{"id":1}', f'{{"name":"x","price":{value}}}'),
            (value, '{"name":"x"}'),
            ('{"id":1}', value),
        ]
    good = (f'{{"id":{GOOD}}}', '{"name":"x"}')
    check(spark, CompactedFeed(), good, events, keys={"r": ("id",)})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("feed", "column"),
    [
        (WeightedFeed(), "weight"),
        (DeltaFeed(), "_change_type"),
        (UpsertFeed(deleted="gone"), "gone"),
        (UpsertFeed(weight="weight"), "weight"),
        (WeightedFeed(weight="w"), "relation"),
        (None, "weight"),
        (None, "wide"),
    ],
    ids=str,
)
def test_long_texts_in_the_columns_of_flat_feeds_are_refused(spark, feed, column, size):
    result = texts(size)
    accepted = {
        "weight": "1",
        "_change_type": "insert",
        "gone": "false",
        "relation": "r",
        "wide": "5",
    }
    rows = [(1, value) for value in result.values()] + [(GOOD, accepted[column])]
    frame = spark.createDataFrame(rows, f"id long, `{column}` string")
    if column == "relation":
        frame = frame.selectExpr("*", "1L AS w")
    schema = pa.schema([R.field("id"), *([R.field("wide")] if column == "wide" else [])])
    keys = {"r": ("id",)} if isinstance(feed, UpsertFeed) else {}
    input_options = {"r": SimpleNamespace(keys=keys.get("r", ()))}
    reader = FeedReader(feed, {"r": Schema.of("r", schema)}, input_options)
    changes = reader.decode(reader.collect(frame), spark)
    assert GOOD in changes.tables["r"]["id"].to_pylist()
    reasons = changes.dead_letters.table["reason"].to_pylist()
    assert len(reasons) >= len(result) - 2  # zeros may be a number
    assert all(0 < len(reason) <= MAX_REASON for reason in reasons)
