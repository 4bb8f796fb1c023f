"""Feeds against histories made up here: rows come, change and go, and are told in each format."""

from __future__ import annotations

import base64
import json
from collections import Counter
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.schema import Schema
from streaming import FeedError
from streaming.changes import (
    FEEDS,
    Append,
    Canal,
    Compacted,
    Debezium,
    Delta,
    Encoding,
    Maxwell,
    Upsert,
    Weighted,
    feed_of,
)
from streaming.envelope import changes_of

pytestmark = pytest.mark.spark

R = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(30, 9)),
        ("rate", pa.float64()),
        ("sold", pa.bool_()),
    ]
)
S = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int8())])
SCHEMAS = {"r": R, "s": S}
INPUTS = {name: Schema.of(name, schema) for name, schema in SCHEMAS.items()}
KEYS = {"r": ("id",), "s": ("id",)}
RULES = {name: SimpleNamespace(keys=key) for name, key in KEYS.items()}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
PRICES = st.decimals(allow_nan=False, places=9, min_value=-(10**20), max_value=10**20)
ROWS = {
    "r": st.fixed_dictionaries(
        {
            "id": st.integers(0, 4),
            "name": st.none() | TEXTS,
            "price": st.none() | PRICES,
            "rate": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "sold": st.none() | st.booleans(),
        }
    ),
    "s": st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b", "é"]), "n": st.none() | st.integers(-128, 127)}
    ),
}


@st.composite
def histories(draw):
    """Steps (relation, row before, row after); a key has one row or none."""
    tables = {"r": {}, "s": {}}
    steps = []
    for _ in range(draw(st.integers(1, 12))):
        relation = draw(st.sampled_from("rs"))
        table = tables[relation]
        row = draw(ROWS[relation])
        before = table.get(row["id"])
        if before is not None and draw(st.booleans()):
            after = None
            del table[row["id"]]
        else:
            after = table[row["id"]] = row
        steps.append((relation, before, after))
    return steps


def plain(value):
    """A JSON number as it is written; decimals without an exponent."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(plain, value)) + "]"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value)


def unscaled(value):
    if value is None:
        return None
    number = int(value.scaleb(9))
    size = (number.bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def changed(before, after):
    return {name: before[name] for name in before if before[name] != after[name]}


def debezium(relation, before, after, place):
    def image(row):
        return row and ({**row, "price": unscaled(row["price"])} if relation == "r" else row)

    op = "c" if before is None else "d" if after is None else "u"
    source = {"db": "shop", "table": relation, "lsn": place}
    return plain({"before": image(before), "after": image(after), "op": op, "source": source})


def maxwell(relation, before, after, place):
    kind = "insert" if before is None else "delete" if after is None else "update"
    event = {"database": "shop", "table": relation, "type": kind, "data": after or before}
    if kind == "update":
        event["old"] = changed(before, after)
    return plain(event | {"xid": place, "xoffset": 0})


def as_texts(row):
    def text(value):
        if value is None or isinstance(value, str):
            return value
        return f"{value:f}" if isinstance(value, Decimal) else str(value).lower()

    return {name: text(value) for name, value in row.items()}


def canal(relation, before, after, place):
    kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    event = {"database": "shop", "table": relation, "type": kind, "isDdl": False, "id": place}
    event |= {"data": [as_texts(after or before)], "old": None, "es": 1684770072000}
    if kind == "UPDATE":
        event["old"] = [as_texts(changed(before, after))]
    return plain(event)


TOLD = {
    "debezium": (Debezium(), debezium),
    "maxwell": (Maxwell(), maxwell),
    "canal": (Canal(), canal),
}


def bag(table):
    found = Counter()
    for row in table.to_pylist():
        weight = row.pop("weight")
        found[tuple(row.values())] += weight
    return {row: weight for row, weight in found.items() if weight}


@pytest.fixture(scope="module")
def reader(spark):
    """Decode by a plan that is made once for each feed, like a streaming query's."""
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    columns = [
        ("key", StringType()),
        ("value", StringType()),
        ("seq", LongType()),
        ("b", BinaryType()),
    ]
    shape = StructType([StructField(name, type) for name, type in columns])

    def read(feed, texts, *, keys=None, schemas=SCHEMAS):
        rows = [
            (None, t, n, None) if not isinstance(t, tuple) else (*t, n, None)
            for n, t in enumerate(texts)
        ]
        frame = spark.createDataFrame(rows, shape)
        return feed.envelope(frame, schemas, keys=keys or {}).toArrow()

    return read


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(many=st.lists(histories(), min_size=30, max_size=30))
@pytest.mark.parametrize("format", list(TOLD))
def test_what_is_told_of_histories_adds_up_to_their_tables(reader, format, many):
    """Sum of the deltas = the tables; for each of many histories, told in one batch."""
    feed, tell = TOLD[format]
    texts, owners = [], []
    for number, steps in enumerate(many):
        for place, step in enumerate(steps):
            texts.append(tell(*step, place))
            owners.append((number, step))
    changes = changes_of(reader(feed, texts), INPUTS)
    assert not len(changes.letters), changes.letters.table.to_pylist()[:3]
    expected = {"r": Counter(), "s": Counter()}
    for _, (relation, before, after) in owners:
        if before is not None:
            expected[relation][tuple(before.values())] -= 1
        if after is not None:
            expected[relation][tuple(after.values())] += 1
    for relation, table in changes.tables.items():
        assert bag(table) == {row: n for row, n in expected[relation].items() if n}


def last_rows(table, key):
    """The rows that are left when the greatest sequence of a key wins."""
    found = {}
    for row in sorted(table.to_pylist(), key=lambda row: row["sequence"]):
        row.pop("sequence")
        weight = row.pop("weight")
        found[row[key]] = tuple(row.values()) if weight > 0 else None
    return {key: row for key, row in found.items() if row is not None}


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(many=st.lists(histories(), min_size=25, max_size=25))
@pytest.mark.parametrize("format", [*TOLD, "compacted"])
def test_told_by_key_the_last_row_of_each_key_is_left(reader, format, many):
    texts, expected = [], {"r": {}, "s": {}}
    for number, steps in enumerate(many):
        for relation, before, after in steps:
            if relation == "s" and format == "compacted":
                continue
            given = [dict(row) if row else None for row in (before, after)]
            for row in given:
                if row is not None:  # a key of each history's own
                    row["id"] = (
                        row["id"] + 10 * number if relation == "r" else f"{row['id']}{number}"
                    )
            before, after = given
            key = (after or before)["id"]
            expected[relation][key] = after and tuple(after.values())
            place = len(texts)
            if format == "compacted":
                texts.append((plain({"id": key}), after and plain(after)))
            else:
                text = TOLD[format][1](relation, before, after, place)
                # An update without the row before, as of a table that does not log it.
                texts.append(text.replace('"before": {', '"unlogged": {') if after else text)
    feed = Compacted("r", sequence="seq") if format == "compacted" else TOLD[format][0]
    changes = changes_of(reader(feed, texts, keys=KEYS), INPUTS, rules=RULES)
    assert not len(changes.letters), changes.letters.table.to_pylist()[:3]
    for relation, table in changes.tables.items():
        left = {key: row for key, row in expected[relation].items() if row is not None}
        assert last_rows(table, "id") == left


GOOD = {"id": 1, "name": "x", "price": None, "rate": 1, "sold": True}
UNLOGGED = GOOD | {"name": "__debezium_unavailable_value"}


def event(op="c", before=None, after=GOOD, table="r", **more):
    return plain({"before": before, "after": after, "op": op, "source": {"table": table}} | more)


GARBAGE = [  # events of Debezium and words of the reason
    ("", "no JSON object"),
    ("{", "no JSON object"),
    ("null", "no JSON object"),
    ("[1]", "no JSON object"),
    ('"text"', "no JSON object"),
    (event() + event(), "no JSON object"),
    (event() + " x", "no JSON object"),
    (event() + "," + event(), "no JSON object"),
    ('{"op": "c", "op": "d"}', "repeats a member"),
    ('{"op": "c", "after": {"id": 1, "id": 2}}', "repeats a member"),
    ("{'op': 'c'}", "no JSON object"),
    ('{"ts_ms": 5}', "no op"),
    (event("z"), "op is z"),
    (event("t", after=None), "truncation"),
    (event(after=None), "no row after"),
    (event(after=5), "none of the columns"),
    (event(after={}), "none of the columns"),
    (event(after={"ID": 1}), "none of the columns"),
    (event(table="zzz"), "zzz, which is no input"),
    (event(source=None), "no table, which is no input"),
    (event("d", after=None), "a deletion without the row before"),
    (event("u"), "an update without the row before"),
    (event("u", before={"id": 1}), "part only"),
    (event("d", before={"id": 1}, after=None), "part only"),
    (event(after=GOOD | {"id": None}), "'id' is NULL or missing"),
    (event(after={"name": "x"}), "'id' is NULL or missing"),
    (event(after=GOOD | {"id": 1.5}), "'id': 1.5 is no int64"),
    (event(after=GOOD | {"id": 2**63}), "'id': 9223372036854775808 is no int64"),
    (event(after=GOOD | {"id": -(2**63)}), "is no int64"),
    (event(after=GOOD | {"id": True}), "'id': true is no int64"),
    (event(after=GOOD | {"id": {"a": 1}}), "is no int64"),
    (event(after=GOOD | {"price": "not base64!"}), "base64 not base64! is no decimal128"),
    (event(after=GOOD | {"price": Decimal("1.1234567891")}), "1.1234567891 is no decimal128"),
    (event(after=GOOD | {"price": 10**21}), "is no decimal128"),
    (event(after=GOOD | {"rate": "fast"}), "'rate': fast is no double"),
    (event(after=GOOD).replace('"rate": 1', '"rate": 1E400'), "is no double"),
    (event(after=GOOD | {"sold": "perhaps"}), "'sold': perhaps is no bool"),
    (event(after=GOOD | {"sold": 2}), "'sold': 2 is no bool"),
    (event("u", before=GOOD | {"id": "?"}), "is no int64"),
    (event(after={"id": "b", "n": 128}, table="s"), "'n': 128 is no int8"),
    (event("u", before=UNLOGGED, after=UNLOGGED), "unchanged"),
]  # fmt: skip


def test_each_malformed_event_is_one_letter_with_its_text_and_the_others_are_kept(reader):
    fine = event(after=GOOD | {"id": 7})
    texts = [text for bad, _ in GARBAGE for text in (bad, fine)]
    table = reader(Debezium(), [*texts, None, event("m")])
    changes = changes_of(table, INPUTS)
    letters = changes.letters.table.to_pylist()
    assert changes.tables["r"].num_rows == len(GARBAGE)
    reasons = {letter["row"]: letter["reason"] for letter in letters}
    for text, words in GARBAGE:
        assert words in reasons[text], (text, reasons[text])
    assert len(letters) == len(GARBAGE)


def test_events_of_other_tables_and_changes_of_tables_are_skipped_when_told_so(reader):
    texts = [event(), event(table="zzz"), event("m", table="zzz")]
    feed = Debezium(ignore_unknown_tables=True)
    changes = changes_of(reader(feed, texts), INPUTS)
    assert changes.tables["r"].num_rows == 1 and not len(changes.letters)
    texts = [
        '{"type": "table-alter", "table": "r"}', '{"type": "bootstrap-start", "table": "r"}',
        '{"type": "table-drop", "table": "r"}', '{"type": "table-drop", "table": "zzz"}',
        '{"type": "bootstrap-insert", "table": "s", "data": {"id": "a"}}',
    ]  # fmt: skip
    changes = changes_of(reader(Maxwell(), texts), INPUTS)
    assert changes.tables["s"].num_rows == 1
    assert ["dropped" in r for r in changes.letters.table["reason"].to_pylist()] == [True]
    texts = [
        '{"type": "ALTER", "table": "r", "isDdl": true, "data": null}',
        '{"type": "TRUNCATE", "table": "r", "isDdl": true, "data": null}',
        '{"type": "INSERT", "table": "s", "data": [{"id": "a"}, {"id": "b"}]}',
        '{"type": "UPDATE", "table": "s", "data": [{"id": "a"}, {"id": "b"}], "old": [{}]}',
        '{"type": "INSERT", "table": "s", "data": [{"id": "a"}, 5]}',
    ]
    changes = changes_of(reader(Canal(), texts), INPUTS)
    assert changes.tables["s"].num_rows == 2
    reasons = changes.letters.table["reason"].to_pylist()
    assert len(reasons) == 3
    assert "emptied" in reasons[0] and "old values" in reasons[1] and "no row" in reasons[2]


def test_a_value_that_postgres_did_not_log_is_that_of_the_row_before(reader):
    gone = UNLOGGED | {"rate": 2}
    changes = changes_of(reader(Debezium(), [event("u", before=GOOD, after=gone)]), INPUTS)
    rows = changes.tables["r"].to_pylist()
    assert [(row["name"], row["rate"], row["weight"]) for row in rows] == [
        ("x", 1, -1),
        ("x", 2, 1),
    ]


def test_an_update_that_changes_the_key_takes_the_old_key_out(reader):
    table = reader(Debezium(), [event("u", before=GOOD, after=GOOD | {"id": 2})], keys=KEYS)
    rows = changes_of(table, INPUTS, rules=RULES).tables["r"].to_pylist()
    assert [(row["id"], row["weight"]) for row in rows] == [(1, -1), (2, 1)]


def test_tables_are_routed_by_their_longest_name_and_columns_renamed(reader):
    source = {"db": "shop", "schema": "public", "table": "goods"}
    text = event(after={"Nr": 5, "label": "x"}, source=source)
    for name in ("shop.public.goods", "public.goods", "shop.goods", "goods"):
        feed = Debezium(
            tables={name: "r"}, rename={"r.nr": "id", "LABEL": "name"}, match_case=False
        )
        rows = changes_of(reader(feed, [text]), INPUTS).tables["r"].to_pylist()
        assert [(row["id"], row["name"]) for row in rows] == [(5, "x")]


TIMES = pa.schema(
    [
        ("ms", pa.timestamp("ms")),
        ("us", pa.timestamp("us", "Europe/Paris")),
        ("ns", pa.timestamp("ns")),
        ("clock", pa.time64("ns")),
        ("span", pa.duration("ms")),
        ("bytes", pa.binary()),
        ("big", pa.uint64()),
        ("wide", pa.decimal256(50, 2)),
        ("round", pa.decimal128(5, -2)),
        ("word", pa.dictionary(pa.int32(), pa.string())),
    ]
)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("ms", "2024-01-02 03:04:05.678", "2024-01-02 03:04:05.678000"),
        ("ms", "2024-01-02T03:04:05.678901", None),
        ("ms", "2024-01-02T03:04:05Z", None),
        ("ms", 1704164645678000, "2024-01-02 03:04:05.678000"),
        ("ms", 1704164645678901, None),
        ("ms", "2024-02-30 00:00:00", None),
        ("ms", "12:30:00", None),
        ("us", "2024-01-02 03:04:05", "2024-01-02 04:04:05+01:00"),
        ("us", "2024-01-02T03:04:05+01:00", "2024-01-02 03:04:05+01:00"),
        ("us", 1704164645000, None),
        ("ns", "2024-01-02 03:04:05.000001", "2024-01-02 03:04:05.000001"),
        ("ns", 1704164645000000, "2024-01-02 03:04:05"),
        ("clock", "23:59:59.000001", "23:59:59.000001"),
        ("clock", "24:00:00", None),
        ("clock", "-00:00:01", None),
        ("span", "-838:59:59", "-35 days, 1:00:01"),
        ("span", "00:00:00.0001", None),
        ("bytes", "AAH/", "b'\\x00\\x01\\xff'"),
        ("bytes", "?", None),
        ("bytes", 5, None),
        ("big", 2**64 - 2, str(2**64 - 2)),
        ("big", 2**64 - 1, None),
        ("big", -1, None),
        ("wide", "1" * 48 + ".25", "1" * 48 + ".25"),
        ("wide", "1" * 49, None),
        ("round", "12300", "1.23E+4"),
        ("round", "12345", None),
        ("word", "ann", "ann"),
    ],
)
def test_texts_and_numbers_are_read_as_types_or_refused(once, column, value, expected):
    found, reason = once(column, value)
    if expected is None:
        assert reason.startswith(f"column {column!r}: {value} is no ")
    else:
        assert (str(found), reason) == (expected, None)


@pytest.fixture(scope="module")
def once(reader, request):
    """The values of all cases, from one micro-batch."""
    function = test_texts_and_numbers_are_read_as_types_or_refused
    (mark,) = [m for m in function.pytestmark if m.name == "parametrize"]
    texts = [plain({"type": "insert", "table": "t", "data": {c: v}}) for c, v, _ in mark.args[1]]
    feed = Maxwell(encoding=Encoding(time_unit={"ns": "us", "ms": "us"}))
    schemas = {"t": TIMES}
    table = reader(feed, texts, schemas=schemas)
    found = {}
    for (column, value, _), text in zip(mark.args[1], texts, strict=True):
        mine = [row for row in table.to_pylist() if row["raw"] == text]
        found[column, value] = (None, mine[0]["error"]) if mine else None
    changes = changes_of(table, {"t": Schema.of("t", TIMES)})
    assert len(changes.letters) == sum(v is not None for v in found.values())
    rows = iter(changes.tables["t"].to_pylist())
    for (column, value), known in found.items():
        if known is None:
            found[column, value] = (next(rows)[column], None)
    return lambda column, value: found[column, value]


def test_flat_feeds_give_weights_sequences_and_errors(spark):
    rows = [
        (1, "a", 1.0, "insert", 5, False),
        (2, "b", 1.5, "delete", 6, True),
        (3, "c", None, "?", 7, None),
    ]
    frame = spark.createDataFrame(
        rows,
        "id long, name string, w double, _change_type string, _commit_version long, gone boolean",
    )  # fmt: skip
    one = {"r": R.remove(4).remove(3).remove(2)}
    inputs = {"r": Schema.of("r", one["r"])}

    def read(feed, keys=None):
        changes = changes_of(
            feed.envelope(frame, one, keys=keys or {}).toArrow(),
            inputs,
            rules=RULES if keys else None,
        )
        rows = changes.tables["r"].to_pylist() if "r" in changes.tables else []
        return [tuple(row.values()) for row in rows], changes.letters.table.to_pylist()

    assert read(Append()) == ([(1, "a", 1), (2, "b", 1), (3, "c", 1)], [])
    rows, letters = read(Weighted("w"))
    assert rows == [(1, "a", 1)]
    assert ["the weight is 1.5" in letters[0]["reason"], "NULL" in letters[1]["reason"]] == [
        True,
        True,
    ]
    assert json.loads(letters[0]["row"])["name"] == "b"
    rows, letters = read(Delta(), KEYS)
    assert rows == [(1, "a", 1, 11), (2, "b", -1, 12)]
    assert "_change_type is ?" in letters[0]["reason"]
    rows, _ = read(Upsert(deleted="gone", sequence="_commit_version"), KEYS)
    assert rows == [(1, "a", 1, 5), (2, "b", -1, 6), (3, "c", 1, 7)]


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        (Debezium("payload"), "reads the column 'payload', and the stream has"),
        (Debezium(relation="zzz"), "names the relation 'zzz', inputs are r, s"),
        (Maxwell(tables={"a": "zzz"}), "names the relation 'zzz'"),
        (Weighted("w"), "reads the column 'w'"),
        (Append(), "add a column 'relation'"),
        (Append("r"), "none of the columns of 'r'"),
        (Upsert("r"), "is for inputs with keys"),
        (Compacted("r"), "is for one input with keys"),
    ],
)
def test_what_a_feed_needs_and_does_not_find_is_said_when_it_is_declared(spark, feed, words):
    frame = spark.createDataFrame([("{}", "{}")], "key string, value string")
    with pytest.raises(FeedError, match=words):
        feed.envelope(frame, SCHEMAS)


def test_feeds_are_declared_by_name_and_an_unknown_name_lists_them():
    assert all(feed_of(name) == FEEDS[name]() for name in FEEDS)
    with pytest.raises(FeedError, match="no feed 'oracle'; there are append, weighted, delta"):
        feed_of("oracle")
    with pytest.raises(FeedError, match="one of text, base64, not 'hex'"):
        Encoding(decimals="hex")


@pytest.mark.parametrize("type", [pa.float16(), pa.list_(pa.int8()), pa.month_day_nano_interval()])
def test_types_that_no_feed_can_carry_are_refused(reader, type):
    with pytest.raises(FeedError, match="cannot carry values of type"):
        reader(Maxwell(relation="t"), ["{}"], schemas={"t": pa.schema([("x", type)])})
