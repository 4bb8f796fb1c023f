"""Single change events: malformed, of other tables, with an incomplete before image."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from circuits.schema import Schema
from streaming.errors import FeedError
from streaming.sources.change_feeds import (
    CanalFeed,
    CompactedFeed,
    DebeziumFeed,
    Encoding,
    MaxwellFeed,
)
from streaming.sources.envelope import decode_batch
from tests.generators.feeds import (
    GOOD,
    INPUTS,
    KEYS,
    RULES,
    SCHEMAS,
    UNLOGGED,
    event,
    reader_of,
    to_json,
)

pytestmark = pytest.mark.spark

GARBAGE = [  # events of Debezium and words of the reason
    ("", "not a JSON object"),
    ("{", "not a JSON object"),
    ("null", "not a JSON object"),
    ("[1]", "not a JSON object"),
    ('"text"', "not a JSON object"),
    (event() + event(), "not a JSON object"),
    (event() + " x", "not a JSON object"),
    (event() + "," + event(), "not a JSON object"),
    ('{"op": "c", "op": "d"}', "repeats a member"),
    ('{"op": "c", "after": {"id": 1, "id": 2}}', "repeats a member"),
    ("{'op': 'c'}", "not a JSON object"),
    ('{"ts_ms": 5}', "no op"),
    (event("z"), "op is z"),
    (event("t", after=None), "truncation"),
    (event(after=None), "no after image"),
    (event(after=5), "none of the columns"),
    (event(after={}), "none of the columns"),
    (event(after={"ID": 1}), "none of the columns"),
    (event(table="zzz"), "the table zzz of the event is not an input"),
    (event(source=None), "the event does not name a table"),
    (event("d", after=None), "a deletion without a before image"),
    (event("u"), "an update without a before image"),
    (event("u", before={"id": 1}), "incomplete before image"),
    (event("d", before={"id": 1}, after=None), "incomplete before image"),
    (event(after=GOOD | {"id": None}), "'id' is NULL or missing"),
    (event(after={"name": "x"}), "'id' is NULL or missing"),
    (event(after=GOOD | {"id": 1.5}), "'id': 1.5 is not a valid int64"),
    (event(after=GOOD | {"id": 2**63}), "'id': 9223372036854775808 is not a valid int64"),
    (event(after=GOOD | {"id": -(2**63)}), "is not a valid int64"),
    (event(after=GOOD | {"id": True}), "'id': true is not a valid int64"),
    (event(after=GOOD | {"id": {"a": 1}}), "is not a valid int64"),
    (event(after=GOOD | {"price": "not base64!"}), "base64 not base64! is not a valid decimal128"),
    (event(after=GOOD | {"price": Decimal("1.1234567891")}),
     "1.1234567891 is not a valid decimal128"),
    (event(after=GOOD | {"price": 10**21}), "is not a valid decimal128"),
    (event(after=GOOD | {"rate": "fast"}), "'rate': fast is not a valid double"),
    (event(after=GOOD).replace('"rate": 1', '"rate": 1E400'), "is not a valid double"),
    (event(after=GOOD | {"sold": "perhaps"}), "'sold': perhaps is not a valid bool"),
    (event(after=GOOD | {"sold": 2}), "'sold': 2 is not a valid bool"),
    (event("u", before=GOOD | {"id": "?"}), "is not a valid int64"),
    (event(after={"id": "b", "n": 128}, table="s"), "'n': 128 is not a valid int8"),
    (event("u", before=UNLOGGED, after=UNLOGGED), "unchanged"),
]  # fmt: skip


@pytest.fixture(scope="module")
def reader(spark):
    return reader_of(spark)


def test_each_malformed_event_is_one_dead_letter_with_its_text_and_the_others_are_kept(reader):
    good = event(after=GOOD | {"id": 7})
    texts = [text for malformed, _ in GARBAGE for text in (malformed, good)]
    table = reader(DebeziumFeed(), [*texts, None, event("m")])
    changes = decode_batch(table, INPUTS)
    dead_letters = changes.dead_letters.table.to_pylist()
    assert changes.tables["r"].num_rows == len(GARBAGE)
    reasons = {letter["row"]: letter["reason"] for letter in dead_letters}
    for text, words in GARBAGE:
        assert words in reasons[text], (text, reasons[text])
    assert len(dead_letters) == len(GARBAGE)


def test_events_of_other_tables_and_of_table_definitions_are_skipped(reader):
    texts = [event(), event(table="zzz"), event("m", table="zzz")]
    feed = DebeziumFeed(ignore_unknown_tables=True)
    changes = decode_batch(reader(feed, texts), INPUTS)
    assert changes.tables["r"].num_rows == 1 and not len(changes.dead_letters)
    texts = [
        '{"type": "table-alter", "table": "r"}', '{"type": "bootstrap-start", "table": "r"}',
        '{"type": "table-drop", "table": "r"}', '{"type": "table-drop", "table": "zzz"}',
        '{"type": "bootstrap-insert", "table": "s", "data": {"id": "a"}}',
    ]  # fmt: skip
    changes = decode_batch(reader(MaxwellFeed(), texts), INPUTS)
    assert changes.tables["s"].num_rows == 1
    assert ["dropped" in r for r in changes.dead_letters.table["reason"].to_pylist()] == [True]
    texts = [
        '{"type": "ALTER", "table": "r", "isDdl": true, "data": null}',
        '{"type": "TRUNCATE", "table": "r", "isDdl": true, "data": null}',
        '{"type": "INSERT", "table": "s", "data": [{"id": "a"}, {"id": "b"}]}',
        '{"type": "UPDATE", "table": "s", "data": [{"id": "a"}, {"id": "b"}], "old": [{}]}',
        '{"type": "INSERT", "table": "s", "data": [{"id": "a"}, 5]}',
    ]
    changes = decode_batch(reader(CanalFeed(), texts), INPUTS)
    assert changes.tables["s"].num_rows == 2
    reasons = changes.dead_letters.table["reason"].to_pylist()
    assert len(reasons) == 3
    assert "emptied" in reasons[0] and "old values" in reasons[1] and "is not a row" in reasons[2]


def test_a_value_that_postgres_did_not_log_is_taken_from_the_before_image(reader):
    unlogged = UNLOGGED | {"rate": 2}
    changes = decode_batch(
        reader(DebeziumFeed(), [event("u", before=GOOD, after=unlogged)]), INPUTS
    )
    rows = changes.tables["r"].to_pylist()
    assert [(row["name"], row["rate"], row["weight"]) for row in rows] == [
        ("x", 1, -1),
        ("x", 2, 1),
    ]


def test_an_update_that_changes_the_key_deletes_the_old_key(reader):
    table = reader(DebeziumFeed(), [event("u", before=GOOD, after=GOOD | {"id": 2})], keys=KEYS)
    rows = decode_batch(table, INPUTS, input_options=RULES).tables["r"].to_pylist()
    assert [(row["id"], row["weight"]) for row in rows] == [(1, -1), (2, 1)]


def test_tables_are_routed_by_their_longest_name_and_columns_renamed(reader):
    source = {"db": "shop", "schema": "public", "table": "goods"}
    text = event(after={"Nr": 5, "label": "x"}, source=source)
    for name in ("shop.public.goods", "public.goods", "shop.goods", "goods"):
        feed = DebeziumFeed(
            tables={name: "r"}, rename={"r.nr": "id", "LABEL": "name"}, match_case=False
        )
        rows = decode_batch(reader(feed, [text]), INPUTS).tables["r"].to_pylist()
        assert [(row["id"], row["name"]) for row in rows] == [(5, "x")]


PLACEHOLDER = "__debezium_unavailable_value"
UNLOGGED_SCHEMA = pa.schema([("id", pa.int64()), ("data", pa.binary()), ("list", pa.string())])


@pytest.mark.parametrize("binary", ["base64", "hex"])
@pytest.mark.parametrize("items", [[PLACEHOLDER], list(PLACEHOLDER.encode())])
def test_bytes_and_arrays_that_postgres_did_not_log_are_recognized(reader, binary, items):
    encode = {"base64": lambda b: base64.b64encode(b).decode(), "hex": bytes.hex}[binary]
    feed = DebeziumFeed(encoding=Encoding(binary=binary))
    before = {"id": 1, "data": encode(b"old"), "list": ["x"]}
    after = {"id": 2, "data": encode(PLACEHOLDER.encode()), "list": items}
    texts = [event("u", before, after), event("u", None, after), event("c", None, after)]
    for keys, letters in ((None, 2), (KEYS, 2)):
        table = reader(feed, texts, keys=keys, schemas={"r": UNLOGGED_SCHEMA})
        changes = decode_batch(table, {"r": Schema.of("r", UNLOGGED_SCHEMA)})
        new = {(row["data"], row["list"]) for row in changes.tables["r"].to_pylist()}
        assert new - {(None, None)} == {(b"old", '["x"]')}
        assert len(changes.dead_letters) == letters


@pytest.mark.parametrize(("keys", "letters"), [(None, 2), (KEYS, 0)])
def test_the_row_before_a_change_must_be_known_unless_its_key_is_enough(reader, keys, letters):
    before = {"id": 1, "name": PLACEHOLDER}
    texts = [event("u", before, {"id": 1, "name": "new"}), event("d", before | {"id": 2}, None)]
    changes = decode_batch(reader(DebeziumFeed(), texts, keys=keys), INPUTS)
    assert len(changes.dead_letters) == letters
    rows = changes.tables["r"].to_pylist() if changes.tables else []
    names = [row["name"] for row in rows if row["weight"] > 0]
    deleted = [row["id"] for row in rows if row["weight"] < 0]
    assert (names, deleted) == (([], []) if letters else (["new"], [2]))


def test_text_that_is_not_utf8_is_a_dead_letter_and_never_altered(spark):
    texts = [event(after=GOOD | {"name": "X"}).encode().replace(b"X", b) for b in (b"\xe9", b"e")]
    frame = spark.createDataFrame([(text, text) for text in texts], "key binary, value binary")
    for feed, keys in ((DebeziumFeed(), {}), (CompactedFeed("r", rename={"op": "name"}), KEYS)):
        table = feed.envelope(frame, SCHEMAS, keys=keys).toArrow()
        reasons = [reason for reason in table["error"].to_pylist() if reason]
        assert "UTF-8" in reasons[0]


def test_unknown_types_of_events_are_errors_and_never_skipped(reader):
    types = ["INSERT", "upsert", "database-drop", "database-create", "bootstrap-complete"]
    texts = [to_json({"type": type, "table": "r", "database": "d", "data": GOOD}) for type in types]
    reasons = reader(MaxwellFeed(), texts)["error"].to_pylist()
    assert reasons[:2] == ["the type is INSERT", "the type is upsert"]
    assert "database, was dropped" in reasons[2] and len(reasons) == 3
    elsewhere = to_json({"type": "database-drop", "database": "other"})
    for database, dropped in (("d", 1), ("other", 0)):
        texts = [elsewhere.replace("other", database)]
        assert reader(MaxwellFeed(tables={"d.r": "r"}), texts).num_rows == dropped
    rows = {"table": "r", "database": "d", "isDdl": False, "data": [{"id": "1"}]}
    texts = [to_json(rows | {"type": type}) for type in ("REPLACE", "XACOMMIT")]
    texts += [to_json(rows | {"type": "QUERY", "sql": sql}) for sql in ("delete from r", "commit")]
    reasons = reader(CanalFeed(), texts)["error"].to_pylist()
    assert reasons == ["the type is REPLACE", "a statement changes rows that are not in the event"]


def test_a_column_that_differs_only_in_case_is_an_error(reader):
    texts = [event(after={"id": 1, "Name": "x"}), event(after={"id": 2, "other": "x"})]
    changes = decode_batch(reader(DebeziumFeed(), texts), INPUTS)
    assert [row["id"] for row in changes.tables["r"].to_pylist()] == [2]
    assert "the row has a column Name" in changes.dead_letters.table["reason"][0].as_py()


def test_rows_of_an_event_have_no_sequence_if_it_would_exceed_int64(spark):
    text = '{"type": "INSERT", "table": "s", "data": [{"id": "a"}, {"id": "b"}]}'
    frame = spark.createDataFrame([(text, n) for n in (7, 2**60)], "value string, at long")
    table = CanalFeed(sequence="at").envelope(frame, SCHEMAS).toArrow()
    assert table["sequence"].to_pylist() == [7 * 4096, 7 * 4096 + 1, None, None]


def test_a_tombstone_may_have_a_schema(reader):
    assert reader(DebeziumFeed(), ['{"schema": null, "payload": null}']).num_rows == 0


def test_positions_in_a_binlog_are_ordered_or_have_no_sequence(spark):
    """A file or position that does not fit has no number that could be compared with others."""
    positions = [("bin.000007", 4), ("bin.000007", 5), ("bin.000008", 4), ("bin.131071", 2**34 - 1)]
    positions += [("bin.131072", 4), ("bin.999999", 4), ("bin.000007", 2**34), ("bin.000007", -1)]
    rows = [
        json.dumps(
            {
                "op": "c",
                "after": {"id": 1},
                "source": {"table": "r", "file": file, "pos": pos, "ts_ms": 1_700_000_000_000},
            }
        )
        for file, pos in positions
    ]
    frame = spark.createDataFrame([(row,) for row in rows], "value string")
    table = DebeziumFeed().envelope(frame, {"r": pa.schema([("id", pa.int64())])}).toArrow()
    assert table["error"].null_count == len(rows)
    sequences = table["sequence"].to_pylist()
    assert sequences[4:] == [None] * 4
    assert sequences[:4] == sorted(set(sequences[:4]))


def test_a_name_with_a_dot_is_renamed_and_an_unknown_column_is_refused(spark):
    schemas = {"r": pa.schema([("id", pa.int64()), ("city", pa.string())])}
    value = json.dumps(
        {"op": "c", "after": {"id": 1, "address.city": "Rome"}, "source": {"table": "r"}}
    )
    frame = spark.createDataFrame([(value,)], "value string")
    feed = DebeziumFeed(rename={"address.city": "city"})
    assert feed.envelope(frame, schemas).toArrow()["row_r"].to_pylist() == [
        {"id": 1, "city": "Rome"}
    ]
    for rename in ({"address.city": "town"}, {"r.name": "town"}):
        with pytest.raises(FeedError, match="there is no column 'town' in r"):
            DebeziumFeed(rename=rename).envelope(frame, schemas)
