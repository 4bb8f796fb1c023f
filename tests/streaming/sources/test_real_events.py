"""Recorded events of Debezium, Maxwell, Canal and Delta add up to the tables that they describe.

The expected tables are computed by the json module alone: they apply the events row by row.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from circuits.schema import Schema
from streaming.sources.change_feeds import CanalFeed, DebeziumFeed, DeltaFeed, Encoding, MaxwellFeed
from streaming.sources.envelope import decode_batch
from tests.support.shared_data import SHARED

CDC = SHARED / "data" / "cdc"
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not CDC.is_dir(), reason=f"no change events at {CDC}"),
]

TEXT = pa.string()


def events(*folders):
    """Return the events in the files, in order, without other lines (licences)."""
    result = []
    for folder in folders:
        for file in sorted(Path(CDC, folder).rglob("*.txt")):
            result += [line for line in file.read_text().splitlines() if line.startswith("{")]
    return result


def decode(spark, feed, texts, schemas):
    frame = spark.createDataFrame([(text,) for text in texts], "value string")
    table = feed.envelope(frame, schemas).toArrow()
    inputs = {name: Schema.of(name, schema) for name, schema in schemas.items()}
    changes = decode_batch(table, inputs)
    return changes, {name: bag(part) for name, part in changes.tables.items()}


def bag(table):
    rows = Counter()
    for row in table.to_pylist():
        weight = row.pop("weight")
        row.pop("sequence", None)
        rows[tuple(row.values())] += weight
    return {row: weight for row, weight in rows.items() if weight}


def sum_steps(steps):
    """Return the rows of each relation with their weights, after steps (relation, row, weight)."""
    result = {}
    for relation, row, weight in steps:
        rows = result.setdefault(relation, Counter())
        rows[tuple(row)] += weight
    return {
        name: {row: weight for row, weight in rows.items() if weight}
        for name, rows in result.items()
    }


PRODUCT = ("id", "name", "description", "mass", "address", "age")
PRODUCT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", TEXT),
        ("description", TEXT),
        ("mass", pa.float64()),
        ("address", TEXT),
        ("age", pa.int32()),
    ]
)


def product(image):
    image = {("mass" if name == "weight" else name): value for name, value in image.items()}
    # A column of texts that hold numbers became one of numbers.
    return [int(v) if (v := image.get(name)) and name == "age" else v for name in PRODUCT]


def test_debezium_events_without_schema_add_up_to_the_tables_that_they_describe(spark):
    texts = [t for t in events("debezium/table", "debezium/database") if '"schema"' not in t]
    parsed = [json.loads(text) for text in texts]
    tables = sorted({event["source"]["table"] for event in parsed} - {"test", "all_types_table"})
    steps, incomplete = [], 0
    for event in parsed:
        table = event["source"]["table"]
        if table not in tables:
            continue
        before, after = event["before"], event["after"]
        if event["op"] == "u" and set(after) - set(before):
            incomplete += 1  # the before image lacks columns
            continue
        steps += [(table, product(before), -1)] if event["op"] in "ud" else []
        steps += [(table, product(after), 1)] if event["op"] != "d" else []
    feed = DebeziumFeed(
        rename={"weight": "mass"}, ignore_unknown_tables=True, missing_columns_are_null=True
    )
    texts = [t for t, e in zip(texts, parsed, strict=True) if "_id" not in (e["after"] or {})]
    steps = [step for step in steps if step[1][0] is not None]
    changes, result = decode(spark, feed, texts, dict.fromkeys(tables, PRODUCT_SCHEMA))
    assert result == sum_steps(steps)
    assert len(changes.dead_letters) == incomplete > 0
    assert "REPLICA IDENTITY FULL" in changes.dead_letters.table["reason"][0].as_py()


def test_debezium_events_with_their_schema_are_read_the_same_way(spark):
    texts = events("debezium/table/schema/schemaevolution", "debezium/table/schema/include")
    steps, incomplete = [], 0
    for event in (json.loads(text)["payload"] for text in texts):
        before, after, table = event["before"], event["after"], event["source"]["table"]
        if event["op"] == "u" and set(after) - set(before):
            incomplete += 1
            continue
        steps += [(table, product(before), -1)] if event["op"] in "ud" else []
        steps += [(table, product(after), 1)] if event["op"] != "d" else []
    schemas = {table: PRODUCT_SCHEMA for table, *_ in steps}
    feed = DebeziumFeed(rename={"weight": "mass"}, missing_columns_are_null=True)
    changes, result = decode(spark, feed, texts, schemas)
    assert result == sum_steps(steps)
    assert len(changes.dead_letters) == incomplete


FULL_TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny_un_c", pa.uint8()),
        ("int_un_c", pa.uint32()),
        ("big_c", pa.int64()),
        ("varchar_c", TEXT),
        ("real_c", pa.float32()),
        ("double_c", pa.float64()),
        ("decimal_c", pa.decimal128(8, 4)),
        ("numeric_c", pa.decimal128(6, 0)),
        ("big_decimal_c", pa.decimal128(38, 1)),
        ("bit1_c", pa.bool_()),
        ("tiny1_c", pa.bool_()),
        ("date_c", pa.date32()),
        ("time_c", pa.time64("us")),
        ("datetime3_c", pa.timestamp("ms")),
        ("datetime6_c", pa.timestamp("us")),
        ("timestamp_c", pa.timestamp("us", "UTC")),
        ("file_uuid", pa.binary(16)),
        ("json_c", TEXT),
        ("big_un_c", pa.decimal128(20, 0)),
    ]
)
UNITS = {"time_c": "us", "datetime3_c": "ms", "datetime6_c": "us"}


@pytest.mark.parametrize("file", ["exclude", "exclude-with-numeric-decimal", "include"])
def test_all_types_of_debezium_are_read_in_every_encoding(spark, file):
    events_by_name = json.loads(
        (CDC / "debezium-mysql" / f"debezium-data-schema-{file}.json").read_text()
    )
    encoding = Encoding("base64", time_unit=UNITS, epoch_days=True)
    texts = [json.dumps(event) for event in events_by_name.values()]
    schema = FULL_TYPES
    if file == "include":  # the schema in the file gives this column a scale of 65 digits
        schema = schema.remove(schema.get_field_index("big_decimal_c"))
    feed = DebeziumFeed(relation="full_types", encoding=encoding)
    changes, _ = decode(spark, feed, texts, {"full_types": schema})
    reasons = changes.dead_letters.table["reason"].to_pylist()
    # The schema of one event declares a column as int32, and the event has bytes.
    assert reasons == (["column 'id': AQ== is not a valid int64"] if file == "include" else [])
    rows = changes.tables["full_types"].to_pylist()
    assert rows and all(row["weight"] in (1, -1) for row in rows)
    for row in rows:
        assert row["id"] == 1 and row["tiny_un_c"] == 255 and row["int_un_c"] == 2**32 - 1
        assert row["big_c"] == 2**63 - 1 and row["big_un_c"] == 2**64 - 1
        assert row["decimal_c"] == Decimal("123.4567") and row["numeric_c"] == 346
        assert row.get("big_decimal_c") in (None, Decimal("34567892.1"))
        assert row["bit1_c"] is False and row["tiny1_c"] is True
        assert str(row["date_c"]) == "2020-07-17" and str(row["time_c"]) == "18:00:22"
        assert str(row["datetime3_c"]) == "2020-07-17 18:00:22.123000"
        assert str(row["datetime6_c"]) == "2020-07-17 18:00:22.123456"
        assert row["file_uuid"].hex() == "651aed08390f4893b2f136923e7b7400"
        assert json.loads(row["json_c"]) == {"key1": "value1"}
    assert {str(row["timestamp_c"]) for row in rows} <= {
        "2020-07-17 18:00:22+00:00",
        "2020-07-17 18:33:22+00:00",
    }


ALL_TYPES = pa.schema(
    [
        ("_id", pa.int32()),
        ("_boolean", pa.bool_()),
        ("_tinyint_unsigned", pa.uint8()),
        ("_bigint", pa.int64()),
        ("_serial", pa.uint64()),
        ("_float", pa.float32()),
        ("_real", pa.float64()),
        ("_numeric", pa.decimal128(8, 3)),
        ("_fixed", pa.decimal256(40, 3)),
        ("_decimal", pa.int32()),
        ("_date", pa.date32()),
        ("_datetime", pa.timestamp("s")),
        ("_datetime3", pa.timestamp("ms")),
        ("_datetime6", pa.timestamp("us")),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_time", pa.time32("s")),
        ("_char", TEXT),
        ("_varbin", pa.binary()),
        ("_set", TEXT),
    ]
)


@pytest.mark.parametrize("kind", ["debezium", "canal"])
def test_all_types_of_mysql_become_the_same_row(spark, kind):
    if kind == "debezium":
        texts, feed = events("debezium/table/schema/alltype"), DebeziumFeed(relation="t")
        # A JSON number of 36 digits with a fraction fits the VARIANT's 38 digits exactly.
    else:
        texts, feed = events("canal/table/alltype"), CanalFeed(relation="t")
    changes, _ = decode(spark, feed, texts, {"t": ALL_TYPES})
    assert not len(changes.dead_letters), changes.dead_letters.table["reason"].to_pylist()
    row = changes.tables["t"].to_pylist()[0]
    at = "2023-03-23 14:30:05"
    assert {name: str(value) for name, value in row.items()} == {
        "_id": "1", "_boolean": "True", "_tinyint_unsigned": "2", "_bigint": "10000000000",
        "_serial": "40000000000", "_float": "1.5", "_real": "1.000001", "_numeric": "12345.110",
        "_fixed": "123456789876543212345678987654321.110", "_decimal": "11111",
        "_date": "2023-03-23", "_datetime": at, "_datetime3": f"{at}.123000",
        "_datetime6": f"{at}.123456", "_time": "10:13:23", "_char": "Paimon",
        "_timestamp": "2023-03-23 22:00:10.123456+00:00" if kind == "debezium"
        else "2023-03-23 15:00:10.123456+00:00",
        "_varbin": "b'more bytes'", "weight": "1",
        "_set": "a,b" if kind == "debezium" else "3",
    }  # fmt: skip


def overlay(data, old):
    return {**data, **old}


def test_maxwell_events_add_up_to_the_tables_that_they_describe(spark):
    texts = events("maxwell")
    steps = []
    for event in map(json.loads, texts):
        data, kind = event["data"], event["type"]
        if "_id" in data:
            continue
        if kind == "update":
            steps.append((event["table"], product(overlay(data, event["old"])), -1))
        steps.append((event["table"], product(data), -1 if kind == "delete" else 1))
    texts = [text for text in texts if '"_id"' not in text]
    schemas = {table: PRODUCT_SCHEMA for table, *_ in steps}
    feed = MaxwellFeed(rename={"weight": "mass"})
    changes, result = decode(spark, feed, texts, schemas)
    assert result == sum_steps(steps)
    assert not len(changes.dead_letters)


def test_canal_events_of_all_files_add_up_to_the_tables_that_they_describe(spark):
    """All columns are texts, names match in any case, and events without a table are errors."""
    texts = [t for t in events("canal") if "_bigint_unsigned" not in t]
    parsed = [json.loads(text) for text in texts]
    columns: dict[str, dict[str, None]] = {}
    for event in parsed:
        if "table" in event and not event["isDdl"]:
            names_of_table = columns.setdefault(f"{event['database']}.{event['table']}", {})
            names_of_table.update(dict.fromkeys(name.lower() for r in event["data"] for name in r))
    steps, nameless = [], 0
    for event in parsed:
        if event.get("isDdl"):
            continue
        if "table" not in event:
            nameless += 1
            continue
        table = f"{event['database']}.{event['table']}"
        for position, data in enumerate(event["data"]):
            kind = event["type"]

            def row(image, table=table):
                lowered = {name.lower(): value for name, value in image.items()}
                return [lowered.get(name) for name in columns[table]]

            if kind == "UPDATE":
                steps.append((table, row(overlay(data, event["old"][position])), -1))
            steps.append((table, row(data), -1 if kind == "DELETE" else 1))
    schemas = {
        table: pa.schema([(name, TEXT) for name in names]) for table, names in columns.items()
    }
    changes, result = decode(spark, CanalFeed(match_case=False), texts, schemas)
    assert {name: rows for name, rows in result.items() if rows} == {
        name: rows for name, rows in sum_steps(steps).items() if rows
    }
    assert len(changes.dead_letters) == nameless > 0
    assert len(schemas) >= 20


PEOPLE = pa.schema(
    [
        ("id", pa.int32()),
        ("name", TEXT),
        ("birthday", pa.date32()),
        ("long_field", pa.int64()),
        ("boolean_field", pa.bool_()),
        ("double_field", pa.float64()),
        ("smallint_field", pa.int16()),
    ]
)


def test_the_change_feed_of_a_delta_table_adds_up_to_its_rows(spark):
    deltalake = pytest.importorskip("deltalake")
    table = deltalake.DeltaTable(str(CDC / "delta-cdf-non-partitioned"))
    feed = pa.table(table.load_cdf(starting_version=0).read_all())
    spark_types = {pa.string_view(): pa.string(), pa.uint64(): pa.int64()}  # as Spark takes them
    feed = feed.cast(pa.schema([(f.name, spark_types.get(f.type, f.type)) for f in feed.schema]))
    final = table.to_pyarrow_table()
    frame = spark.createDataFrame(feed)
    envelope = DeltaFeed().envelope(frame, {"people": PEOPLE}).toArrow()
    changes = decode_batch(envelope, {"people": Schema.of("people", PEOPLE)})
    assert not len(changes.dead_letters)
    whole = Counter(tuple(row.values()) for row in final.select(PEOPLE.names).to_pylist())
    assert bag(changes.tables["people"]) == dict(whole)


def test_the_files_of_a_change_feed_have_the_changes_after_the_first_version(spark):
    files = str(CDC / "delta-cdf-non-partitioned" / "_change_data")
    frame = spark.read.parquet(files)
    plain = frame.toArrow().to_pylist()
    signs = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}
    expected = sum_steps(
        ("people", [row[name] for name in PEOPLE.names], signs[row["_change_type"]])
        for row in plain
    )
    envelope = DeltaFeed("people").envelope(frame, {"people": PEOPLE}).toArrow()
    changes = decode_batch(envelope, {"people": Schema.of("people", PEOPLE)})
    assert bag(changes.tables["people"]) == expected["people"]
