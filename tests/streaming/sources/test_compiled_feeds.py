"""Compiled decoding equals Spark's expressions, on plain, rare and malformed events."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.schema import Schema
from streaming.sources.change_feeds import CanalFeed, DebeziumFeed, Encoding, MaxwellFeed
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from streaming.sources.envelope import decode_batch
from tests.streaming.sources.test_events import GARBAGE
from tests.streaming.sources.test_real_events import (
    ALL_TYPES,
    CDC,
    FULL_TYPES,
    PRODUCT_SCHEMA,
    UNITS,
    events,
)

pytestmark = pytest.mark.spark

TYPES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tiny", pa.int8()),
        ("small", pa.uint16()),
        ("big", pa.uint64()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(38, 9)),
        ("rate", pa.float64()),
        ("single", pa.float32()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("at", pa.timestamp("ms", "UTC")),
        ("nanos", pa.timestamp("ns")),
        ("clock", pa.time64("us")),
        ("short", pa.time32("s")),
        ("span", pa.duration("ms")),
        ("data", pa.binary()),
        ("name", pa.string()),
        ("label", pa.dictionary(pa.int32(), pa.string())),
    ]
)
OTHER = pa.schema([pa.field("id", pa.string(), nullable=False), ("name", pa.large_string())])
SCHEMAS = {"r": TYPES, "s": OTHER}

NUMBERS = [
    "0",
    "1",
    "-1",
    "7",
    "127",
    "128",
    "-128",
    "-129",
    "255",
    "65535",
    "65536",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "-0",
    "-0.0",
    "0.0",
    "1.0",
    "1.5",
    "1.50",
    "1.10",
    "0.1",
    "12.34",
    "12.345",
    "-12.3",
    "9999999999.99",
    "10000000000.00",
    "1e3",
    "1E-5",
    "1.5e300",
    "1e400",
    "1.7976931348623157e308",
    "5e-324",
    "0.1234567890123456789",
    "3.4028235e38",
    "1.17549435E-38",
    "16777217",
    "0.30000000000000004",
    "123456789012345678901234567890",
    "12345678901234567890123456789.123456789",
    "0.000000000000000000000000000000000000001",
    "1234567890123456789012345678901234567890",
    "19000",
    "1700000000000",
    "1700000000000000",
    "1700000000123456789",
    "86399",
    "86400",
    "3600000000",
    "-5",
]
STRINGS = [
    "", " ", "x", "1", "-1", "007", "+5", "1234", "12345", "1.5", "-12.30", "1e3", "abcd", "AMg=",
    "AMg", "////", "gA==", "AAAAAAAAAAAAAAAAAAAAAQ==", "AQAAAAAAAAAAAAAAAAAAAAA=",
    "YW55IGNhcm5hbA==",
    "YW5=", "true", "false", "TRUE", "t", "NaN", "Infinity", "-inf", "nan", "2024-02-29",
    "2023-02-29", "0001-01-01", "0000-01-01", "9999-12-31", "2024-1-2", "2024-02-29T10:11:12",
    "2024-02-29 10:11:12.123456", "2024-02-29T10:11:12.123Z", "2024-02-29T10:11:12+02:00",
    "2024-02-29T10:11:12.120000Z", "1500-03-01 00:00:00", "2024-02-29 10:11:12.1234567",
    "2024-02-29T10:11", "2024-02-29T24:00:00", "2024-02-29 10:11:12 Europe/Berlin", "10:13:23",
    "10:13:23.5", "23:59:59.999999", "24:00:00", "-10:00:00", "100:00:00", "10:13:60", "1:02:03",
    "é", "ÿ", "日本", "\u0000", "a\"b\\c/\n\t", "\U0001f600", "deadBEEF", "abc", "0x1", " 1", "1 ",
    "-0", "-0.0", "1.", ".5", "--1", "1_000", "12.340", "9999999999.994", "2024-02-29T10:11:12.",
]  # fmt: skip
OTHERS = ["null", "true", "false", "{}", "[]", '{"scale": 1, "value": "AMg="}', '["b", 1.10]',
          '{"b": 1, "a": null}', "\"\\u00e9\\ud83d\\ude00\\/\"", '"\\ud800"', '"\\x"', "01", "1.",
          "nul", "NaN", '"__debezium_unavailable_value"', '"\\u005f_debezium_unavailable_value"',
          json.dumps(base64.b64encode(b"__debezium_unavailable_value").decode()), "tru", '"\t"',
          '{"a": 1, "a": 2}', "[1,]"]  # fmt: skip
UNESCAPED = [json.dumps(text, ensure_ascii=False) for text in STRINGS]
LITERALS = [*NUMBERS, *map(json.dumps, STRINGS), *UNESCAPED, *OTHERS]
#: Values that fit most columns, by name; rare ones take their place in few cells.
PLAIN = {
    "id": "5", "tiny": "3", "small": "9", "big": "77", "flag": "true", "price": "12.3",
    "wide": "1.5", "rate": "0.25", "single": "1.5", "day": "19000", "local": "1700000000000",
    "at": '"2024-02-29T10:11:12.123Z"', "nanos": "1700000000000", "clock": '"10:13:23"',
    "short": '"10:13:23"', "span": "1000", "data": '"AMg="', "name": '"ann"', "label": '"x"',
}  # fmt: skip
#: The plain values of a format whose values are all strings.
TEXTS = {
    "day": '"2024-02-29"', "local": '"2024-02-29 10:11:12.5"', "nanos": '"2024-02-29 10:11:12"',
    "span": '"10:11:12"',
}  # fmt: skip
NAMES = [*PLAIN, "unknown", "NAME", "é"]


class Writer:
    """Writes random events: most are plain, and some parts are rare or wrong."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def is_rare(self, chance=0.03):
        return self.random.random() < chance

    def space(self):
        return self.random.choice(["", "", " ", "\n "])

    def object(self, members):
        members = list(members.items())
        if self.is_rare():
            self.random.shuffle(members)
        if members and self.is_rare(0.01):
            members.append(self.random.choice(members))
        body = ",".join(f"{self.space()}{json.dumps(k)}:{self.space()}{v}" for k, v in members)
        return f"{{{body}{self.space()}}}"

    def image(self, more=None, *, all_texts=False, few=False):
        members = {}
        for name, value in PLAIN.items():
            if (few and self.is_rare(0.7)) or self.is_rare(0.01):
                continue
            if self.is_rare():
                value = self.random.choice(LITERALS)
            elif self.is_rare(0.1):
                value = "null"
            elif name in ("id", "name") and self.is_rare(0.4):
                value = str(self.random.randint(0, 3))
            elif all_texts:
                value = TEXTS.get(name, value)
            if all_texts and not value.startswith('"') and value != "null":
                value = json.dumps(value)
            members[name] = value
        if self.is_rare(0.05):
            members[self.random.choice(NAMES)] = self.random.choice(LITERALS)
        return self.object(members)

    def maybe(self, value, chance=0.03):
        return self.random.choice(LITERALS) if self.is_rare(chance) else value

    def damaged(self, text):
        if not self.is_rare(0.03):
            return text
        place = self.random.randrange(len(text))
        return (
            text[:place]
            + self.random.choice(["", '"', "{", "}", ",", "\\", "x"])
            + text[place + 1 :]
        )

    def table(self):
        other = self.random.choice(['"s"', '"zzz"'])
        return self.maybe(other if self.is_rare(0.1) else '"r"')

    def debezium(self):
        op = self.random.choice("crud")
        source = {
            "db": '"shop"',
            "table": self.table(),
            "version": '"2"',
            "ts_ms": self.maybe("17"),
        }
        if self.is_rare(0.4):
            source |= {"lsn": self.maybe(str(self.random.randint(0, 99)))}
        if self.is_rare(0.4):
            source |= {"file": self.maybe('"bin.000003"'), "pos": self.maybe("44"), "row": "2"}
        event = {
            "before": self.image() if op in "ud" and not self.is_rare(0.1) else "null",
            "after": self.image() if op != "d" else "null",
            "source": self.object(source),
            "op": self.maybe(json.dumps(op)),
            "ts_ms": self.maybe("1700000000000"),
        }
        if self.is_rare():
            event.pop(self.random.choice(list(event)))
        if self.is_rare(0.3):
            event = {"schema": self.maybe(self.schema(), 0.1), "payload": self.object(event)}
        return self.damaged(self.object(event))

    def schema(self):
        kinds = {
            "price": ("bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "2"}),
            "wide": ("string", None, None),
            "local": ("int64", "io.debezium.time.Timestamp", None),
            "day": ("int32", "io.debezium.time.Date", None),
        }
        if self.is_rare(0.3):
            kinds["price"] = (*kinds["price"][:2], {"scale": "3"})
        fields = [
            {"field": name, "type": type} | ({"name": full} if full else {})
            | ({"parameters": parameters} if parameters else {})
            for name, (type, full, parameters) in kinds.items()
        ]  # fmt: skip
        sides = [{"field": s, "type": "struct", "fields": fields} for s in ("before", "after")]
        return json.dumps({"type": "struct", "fields": sides})

    def maxwell(self):
        kind = self.random.choice(["insert", "update", "delete", "bootstrap-insert"])
        event = {
            "database": '"shop"', "table": self.table(), "type": self.maybe(json.dumps(kind)),
            "ts": "17", "data": self.maybe(self.image()),
        }  # fmt: skip
        if self.is_rare(0.7):
            event |= {"xid": self.maybe("33"), "xoffset": self.maybe("2")}
        if self.is_rare(0.3):
            event["position"] = self.maybe('"master.000006:800911"')
        if kind == "update":
            event["old"] = self.maybe(self.image(few=True))
        return self.damaged(self.object(event))

    def canal(self):
        kind = self.random.choice(["INSERT", "UPDATE", "DELETE"])
        count = self.random.choice([1, 1, 2, 3])

        def images(few=False):
            rows = [self.maybe(self.image(all_texts=True, few=few), 0.01) for _ in range(count)]
            return f"[{','.join(rows)}]"

        event = {
            "data": self.maybe(images()), "database": '"shop"', "es": self.maybe("1700000000000"),
            "id": self.maybe("12"), "isDdl": self.maybe("false"), "table": self.table(),
            "type": self.maybe(json.dumps(kind)),
            "old": self.maybe(images(few=True)) if kind == "UPDATE" else "null",
        }  # fmt: skip
        return self.damaged(self.object(event))


def plain_column(column):
    """Return a column in a type whose values Python can print; some times have none."""
    type = column.type
    if pa.types.is_dictionary(type):
        return column.cast(type.value_type)
    if pa.types.is_temporal(type):
        narrow = column.cast(pa.int32()) if type.bit_width == 32 else column
        return narrow.cast(pa.int64())
    return column


def rows_of(changes):
    """Return the rows of each relation, their types, and the dead letters, in a fixed order."""
    tables = {name: table for name, table in changes.tables.items() if table.num_rows}
    rows = {}
    for name, table in tables.items():
        columns = [plain_column(column).to_pylist() for column in table.columns]
        rows[name] = sorted(map(repr, zip(*columns, strict=True)))
    types = {name: table.schema for name, table in tables.items()}
    return rows, types, sorted(map(repr, changes.dead_letters.table.to_pylist()))


def compare(spark, feed, texts, schemas, keys=None, sequence=False):
    """Check that both ways give the same changes; return the share of plain events."""
    rows = [(text, n) for n, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "value string, seq long").coalesce(1)
    feed = replace(feed, sequence="seq") if sequence else feed
    inputs = {name: Schema.of(name, schema) for name, schema in schemas.items()}
    options = {name: SimpleNamespace(keys=key) for name, key in (keys or {}).items()}
    expected = decode_batch(
        feed.envelope(frame, schemas, keys=keys or {}).toArrow(), inputs, input_options=options
    )
    reader = FeedReader(feed, inputs, options)
    sent = []

    class Session:
        def createDataFrame(self, table):
            sent.append(table.num_rows)
            return spark.createDataFrame(table)

    changes = reader.decode(reader.collect(frame), Session())
    for part, wanted in zip(rows_of(changes), rows_of(expected), strict=True):
        if isinstance(wanted, list):
            assert part == wanted
            continue
        assert part.keys() == wanted.keys()
        for name, rows in wanted.items():
            assert part[name] == rows
    return 1 - sum(sent) / len(texts)


FEEDS_OF_FORMAT = {
    "debezium": [
        DebeziumFeed(),
        DebeziumFeed(encoding=Encoding("base64", "hex", "ms", "UTC", epoch_days=True)),
        DebeziumFeed(
            encoding=Encoding("text", "utf8", {"local": "us", "nanos": "ms"}, "Europe/Rome"),
            missing_columns_are_null=True,
            ignore_unknown_tables=True,
        ),
    ],
    "maxwell": [MaxwellFeed(), MaxwellFeed(encoding=Encoding(time_unit="ms"))],
    "canal": [CanalFeed(), CanalFeed(match_case=False, ignore_unknown_tables=True)],
}


# Spark plans for seconds and reads 800 events in a part of one: each feed is planned once.
@settings(max_examples=1, suppress_health_check=list(HealthCheck), deadline=None, print_blob=True)
@given(seed=st.integers(0, 10**9))
@pytest.mark.parametrize(
    "format, feed, keyed",
    [
        (format, feed, number % 2 == 1)
        for format, feeds in FEEDS_OF_FORMAT.items()
        for number, feed in enumerate(feeds)
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_random_events_give_the_rows_and_reasons_of_spark(spark, format, feed, keyed, seed):
    writer = Writer(seed)
    texts = [getattr(writer, format)() for _ in range(800)]
    keys = {"r": ("id",), "s": ("id",)} if keyed else {}
    compare(spark, feed, texts, SCHEMAS, keys, sequence=seed % 3 == 0)


def test_each_rare_value_in_each_column_gives_the_row_or_reason_of_spark(spark):
    encodings = [
        Encoding("either", epoch_days=True),
        Encoding("base64", "latin1", "ms"),
        Encoding("text", "hex", "ns", "+01:00"),
    ]
    for encoding in encodings:
        texts = [
            f'{{"op":"c","after":{{"id":1,"{name}":{value}}},"source":{{"table":"r"}}}}'
            if name != "id"
            else f'{{"op":"c","after":{{"id":{value}}},"source":{{"table":"r"}}}}'
            for name in PLAIN
            for value in dict.fromkeys(LITERALS)
        ]
        compare(spark, DebeziumFeed(encoding=encoding), texts, SCHEMAS)


def test_malformed_events_give_the_reasons_of_spark(spark):
    texts = [text for text, _ in GARBAGE]
    schemas = {"r": TYPES.remove(TYPES.get_field_index("label")), "s": OTHER}
    compare(spark, DebeziumFeed(), texts, schemas)
    compare(spark, MaxwellFeed(), texts, schemas)
    compare(spark, CanalFeed(), texts, schemas)


def test_members_beside_a_payload_are_not_those_of_the_event(spark):
    body = {
        "op": '"c"',
        "before": "null",
        "after": '{"id":"1","name":"n"}',
        "source": '{"table":"s"}',
        "ts_ms": "5",
    }

    def text(members):
        return "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"

    texts = [text(body)]
    for outside in [(), *((name,) for name in body), ("op", "ts_ms"), tuple(body)]:
        root = {name: body[name] for name in outside}
        payload = text({name: value for name, value in body.items() if name not in outside})
        texts += [text(root | {"payload": payload}), text({"payload": payload} | root)]
        texts.append(text(root | {"schema": "null", "payload": "null"}))
    assert compare(spark, DebeziumFeed(), texts, {"s": OTHER}) > 0
    assert compare(spark, DebeziumFeed(), texts, {"s": OTHER}, {"s": ("id",)}) > 0


needs_events = pytest.mark.skipif(not CDC.is_dir(), reason=f"no change events at {CDC}")


@needs_events
def test_recorded_events_give_the_rows_of_spark(spark):
    feed = DebeziumFeed(
        rename={"weight": "mass"}, ignore_unknown_tables=True, missing_columns_are_null=True
    )
    texts = events("debezium/table", "debezium/database")
    compare(spark, feed, texts, {"test_table": PRODUCT_SCHEMA, "products": PRODUCT_SCHEMA})
    compare(spark, replace(feed, relation="t"), texts, {"t": PRODUCT_SCHEMA})
    texts = events("maxwell")
    compare(
        spark, MaxwellFeed(relation="t", rename={"weight": "mass"}), texts, {"t": PRODUCT_SCHEMA}
    )
    texts = events("canal")
    compare(spark, CanalFeed(relation="t", match_case=False), texts, {"t": ALL_TYPES})
    encoding = Encoding("base64", time_unit=UNITS, epoch_days=True)
    files = CDC.joinpath("debezium-mysql").glob("*.json")
    texts = [json.dumps(e) for file in files for e in json.loads(file.read_text()).values()]
    schema = FULL_TYPES.remove(FULL_TYPES.get_field_index("big_decimal_c"))
    compare(spark, DebeziumFeed(relation="t", encoding=encoding), texts, {"t": schema})


@pytest.mark.parametrize("format", list(FEEDS_OF_FORMAT))
def test_plain_events_do_not_need_spark(spark, format):
    writer = Writer(1)
    writer.is_rare = lambda chance=0.03: False
    texts = [getattr(writer, format)() for _ in range(100)]
    feed = replace(FEEDS_OF_FORMAT[format][0], encoding=Encoding(time_unit="ms", epoch_days=True))
    assert compare(spark, feed, texts, SCHEMAS) == 1
    assert compare(spark, feed, texts, SCHEMAS, {"r": ("id",)}) == 1


def test_the_events_of_several_slices_are_all_read(spark):
    event = '{"op": "c", "after": {"id": %d}, "source": {"table": "s"}}'
    texts = [event % n if n % 1000 else "{" for n in range(20_000)]
    schemas = {"s": pa.schema([("id", pa.int64())])}
    assert compare(spark, DebeziumFeed(), texts, schemas) == 1 - 20 / 20_000
