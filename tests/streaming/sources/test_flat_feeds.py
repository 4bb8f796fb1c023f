"""Flat feeds, and the errors of declaring feeds."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.schema import Schema
from streaming import FeedError, merge
from streaming.sources.change_feeds import (
    FEEDS,
    AppendFeed,
    CompactedFeed,
    DebeziumFeed,
    DeltaFeed,
    Encoding,
    MaxwellFeed,
    UpsertFeed,
    WeightedFeed,
    find_feed,
)
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from streaming.sources.change_feeds.flat import FlatDecoder
from streaming.sources.envelope import decode_batch
from tests.generators.feeds import KEYS, RULES, SCHEMAS, R

pytestmark = pytest.mark.spark


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
        changes = decode_batch(
            feed.envelope(frame, one, keys=keys or {}).toArrow(),
            inputs,
            input_options=RULES if keys else None,
        )
        rows = changes.tables["r"].to_pylist() if "r" in changes.tables else []
        return [tuple(row.values()) for row in rows], changes.dead_letters.table.to_pylist()

    assert read(AppendFeed()) == ([(1, "a", 1), (2, "b", 1), (3, "c", 1)], [])
    rows, letters = read(WeightedFeed("w"))
    assert rows == [(1, "a", 1)]
    assert ["the weight is 1.5" in letters[0]["reason"], "NULL" in letters[1]["reason"]] == [
        True,
        True,
    ]
    assert json.loads(letters[0]["row"])["name"] == "b"
    rows, letters = read(DeltaFeed(), KEYS)
    assert rows == [(1, "a", 1, 11), (2, "b", -1, 12)]
    assert "_change_type is ?" in letters[0]["reason"]
    rows, _ = read(UpsertFeed(deleted="gone", sequence="_commit_version"), KEYS)
    assert rows == [(1, "a", 1, 5), (2, "b", -1, 6), (3, "c", 1, 7)]


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        (DebeziumFeed("payload"), "reads the column 'payload'; columns of the stream: "),
        (DebeziumFeed(relation="zzz"), "names the unknown relation 'zzz'; inputs: r, s"),
        (MaxwellFeed(tables={"a": "zzz"}), "names the unknown relation 'zzz'"),
        (WeightedFeed("w"), "reads the column 'w'"),
        (AppendFeed(), "add a column 'relation'"),
        (AppendFeed("r"), "lacks all columns of 'r'"),
        (UpsertFeed("r"), "is for inputs with keys"),
        (CompactedFeed("r"), "is for one input with keys"),
    ],
)
def test_a_feed_that_lacks_a_column_relation_or_key_is_refused(spark, feed, words):
    frame = spark.createDataFrame([("{}", "{}")], "key string, value string")
    with pytest.raises(FeedError, match=words):
        feed.envelope(frame, SCHEMAS)


def test_feeds_are_declared_by_name_and_an_unknown_name_lists_them():
    assert all(find_feed(name) == FEEDS[name]() for name in FEEDS)
    with pytest.raises(FeedError, match="unknown feed 'oracle'; feeds: append, weighted, delta"):
        find_feed("oracle")
    with pytest.raises(
        FeedError, match="unknown encoding 'hex': it must be one of text, base64, either"
    ):
        Encoding(decimals="hex")
    for zone in ("Europe/Oslo", "UTC", "+02:00", "GMT-3", "CET", "Z", "PST"):
        assert Encoding(zone=zone).zone == zone
    for zone in ("Europe/Olso", "", "America", "'", "2 hours"):
        with pytest.raises(FeedError, match=r"unknown zone .*: give the name of a zone"):
            Encoding(zone=zone)


PAIR = {"r": pa.schema([("id", pa.int64()), ("name", pa.string())])}
KEYED = {"r": ("id",)}


def read(feed, frame, schemas=PAIR):
    """Return the decoded rows, with weights and sequences, and the dead letters."""
    table = feed.envelope(frame, schemas, keys=KEYED).toArrow()
    inputs = {name: Schema.of(name, schema) for name, schema in schemas.items()}
    changes = decode_batch(table, inputs, input_options={"r": RULES["r"]})
    return changes.tables.get("r", pa.table({})).to_pylist(), changes.dead_letters.table.to_pylist()


def test_a_flat_row_of_an_unknown_relation_is_a_dead_letter_with_all_columns(spark):
    rows = [(1, "a", "r"), (2, "b", "zzz"), (3, "c", None)]
    frame = spark.createDataFrame(rows, "id long, name string, relation string")
    accepted, letters = read(AppendFeed(), frame, {**PAIR, "s": PAIR["r"]})
    assert [row["id"] for row in accepted] == [1]
    assert [(json.loads(letter["row"])["name"], letter["reason"]) for letter in letters] == [
        ("b", "unknown relation zzz; inputs are r, s"),
        ("c", "unknown relation NULL; inputs are r, s"),
    ]


@pytest.mark.parametrize(
    ("type", "values", "weights", "bad"),
    [
        ("long", [2, 0, -3, None], [1, -1], 1),
        ("double", [float("nan"), -0.5, -1.0, 1.0], [-1, 1], 2),
        ("string", ["x", "-1", "1.5", "1"], [-1, 1], 2),
    ],
)
def test_weights_of_upserts_must_be_integers(spark, type, values, weights, bad):
    rows = list(enumerate(values))
    frame = spark.createDataFrame(rows, f"id long, w {type}").selectExpr("*", "'a' AS name")
    accepted, letters = read(UpsertFeed(weight="w"), frame)
    assert [row["weight"] for row in accepted if row["weight"]] == weights
    assert len(letters) == bad and all("the weight is" in letter["reason"] for letter in letters)


def test_a_deletion_flag_that_is_neither_true_nor_false_is_a_dead_letter(spark):
    rows = [(1, "true"), (2, "maybe"), (3, None), (4, "f")]
    frame = spark.createDataFrame(rows, "id long, gone string").selectExpr("*", "'a' AS name")
    accepted, letters = read(UpsertFeed(deleted="gone"), frame)
    assert [(row["id"], row["weight"]) for row in accepted] == [(1, -1), (3, 1), (4, 1)]
    assert [letter["reason"] for letter in letters] == ["gone is maybe, neither true nor false"]


def test_a_deletion_flag_that_is_nan_is_a_dead_letter():
    table = pa.table({"id": [1, 2, 3, 4], "gone": [1.0, float("nan"), None, 0.0]})
    changes = UpsertFeed(deleted="gone").read_changes(table)
    assert changes.weights.to_pylist() == [-1, 1, 1, 1]
    (reasons,) = changes.errors
    assert reasons.to_pylist() == [None, "gone is nan, neither true nor false", None, None]


@pytest.mark.parametrize("version", ["1.5D", "9223372036854775807L", "'x'"])
def test_a_version_that_is_not_an_integer_is_refused(spark, version):
    rows = spark.sql(f"SELECT 1L AS id, 'a' AS name, 'insert' AS _change_type, {version} AS v")
    reader = FeedReader(DeltaFeed(version="v"), {"r": Schema.of("r", PAIR["r"])}, {})
    with pytest.raises(FeedError, match="one is not an integer of 63 bits"):
        reader.decode(reader.collect(rows), None)


TWO = {"r": PAIR["r"], "s": pa.schema([("id", pa.int64()), ("n", pa.int64())])}
FLAT_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 3),
            "name": st.sampled_from([None, "a", "é"]),
            "n": st.integers(0, 3),
            "relation": st.sampled_from(["r", "s", "r", "zzz", None]),
            "kind": st.sampled_from(
                ["insert", "delete", "update_preimage", "update_postimage", "INSERT", None]
            ),
            "version": st.none() | st.integers(0, 9),
            "gone": st.sampled_from([None, "true", "No", " t ", "0", "maybe", ""]),
            "w": st.sampled_from([None, "1", "-3", "+2", "0", "1.5", "x", "9" * 19]),
        }
    ),
    max_size=8,
)
KINDS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
FLAGS = {"true": -1, " t ": -1, "No": 1, "0": 1, None: 1}


def decoded_by_loops(row, name):
    """Return the weight and sequence of a row, or None if it is invalid."""
    weight = None
    if row["w"] is not None and row["w"].lstrip("+-").isdigit() and abs(int(row["w"])) < 2**63:
        weight = int(row["w"])
    sign = None if weight is None else (weight > 0) - (weight < 0)
    changed = {
        "append": (1, None),
        "weighted": (weight, row["version"]),
        "delta": (KINDS.get(row["kind"]), None),
        "upsert": (FLAGS.get(row["gone"]), row["version"]),
        "both": (sign if FLAGS.get(row["gone"]) == 1 else FLAGS.get(row["gone"]), row["version"]),
    }[name]
    if name == "both" and sign is None:
        return None
    if name == "delta" and row["version"] is not None:
        changed = changed[0], 2 * row["version"] + (changed[0] == 1)
    return None if changed[0] is None or row["relation"] not in TWO else changed


@given(rows=FLAT_ROWS)
@settings(deadline=None)
def test_random_rows_are_decoded_as_loops_over_rows_decode_them(rows):
    types = [("id", pa.int64()), ("name", pa.string()), ("n", pa.int64())]
    types += [(name, pa.string()) for name in ("relation", "kind", "gone", "w")]
    table = pa.Table.from_pylist(rows, pa.schema([*types, ("version", pa.int64())]))
    feeds = {
        "append": AppendFeed(),
        "weighted": WeightedFeed("w", sequence="version"),
        "delta": DeltaFeed(change="kind", version="version"),
        "upsert": UpsertFeed(deleted="gone", sequence="version"),
        "both": UpsertFeed(deleted="gone", weight="w", sequence="version"),
    }
    inputs = {name: Schema.of(name, schema) for name, schema in TWO.items()}
    options = {name: SimpleNamespace(keys=("id",)) for name in TWO}
    for name, feed in feeds.items():
        reader = FeedReader(feed, inputs, options)
        changes = reader.decode(table, None)
        expected = {"r": [], "s": []}
        for row in rows:
            decoded = decoded_by_loops(row, name)
            if decoded is not None:
                other = row["name"] if row["relation"] == "r" else row["n"]
                expected[row["relation"]].append((row["id"], other, *decoded))
        found = {
            relation: [tuple(row.values()) for row in changed.to_pylist()]
            for relation, changed in changes.tables.items()
        }
        assert {**{"r": [], "s": []}, **found} == expected, name
        assert len(changes.dead_letters) == len(rows) - sum(map(len, expected.values()))


def test_a_name_that_occurs_twice_is_refused(spark):
    rows = spark.sql("SELECT 1L AS id, 'a' AS name, 'b' AS name")
    with pytest.raises(FeedError, match="a column name occurs twice in"):
        AppendFeed().envelope(rows, {"r": PAIR["r"]})


@pytest.mark.parametrize(
    ("values", "weights"),
    [
        (pa.array(["1.50", "0.00", None]).cast(pa.decimal128(20, 2)), [-1, 1, 1]),
        (pa.array([0.5, 0.0, None]), [-1, 1, 1]),
        (pa.array([True, False, None]), [-1, 1, 1]),
        (pa.nulls(2), [1, 1]),
    ],
)
def test_a_deletion_flag_may_be_a_number(values, weights):
    feed = UpsertFeed(deleted="gone")
    rows = pa.table({"id": range(len(values)), "gone": values})
    table = FlatDecoder(feed, rows.column_names, PAIR, KEYED).decode(rows)
    assert table["weight"].to_pylist() == weights
    with pytest.raises(FeedError, match="cast it to a boolean"):
        FlatDecoder(feed, rows.column_names, PAIR, KEYED).decode(
            rows.set_column(1, "gone", [[b"x"] * len(rows)])
        )


@pytest.mark.parametrize(
    ("cast", "expected"),
    [
        ("CAST('2024-01-02 03:04:05.000007' AS TIMESTAMP)", 1704164645000007),
        ("CAST('2024-01-02 03:04:05.000007' AS TIMESTAMP_NTZ)", 1704164645000007),
        ("CAST('1970-01-03' AS DATE)", 2),
        ("CAST(7 AS TINYINT)", 7),
        ("CAST(7 AS DECIMAL(20, 0))", 7),
        ("CAST(18446744073709551615 AS DECIMAL(20, 0))", None),
        ("NULL", None),
        ("CAST(1.5 AS DOUBLE)", FeedError),
        ("CAST(1.5 AS DECIMAL(4, 1))", FeedError),
        ("'7'", FeedError),
    ],
)
def test_a_sequence_is_an_integer_or_a_time_to_the_microsecond(spark, cast, expected):
    frame = spark.range(1).selectExpr("id", "'a' AS name", f"{cast} AS sequence")

    def sequences():
        upserts = UpsertFeed(sequence="sequence").envelope(frame, PAIR, keys=KEYED)
        return [f.select("sequence").collect()[0][0] for f in (upserts, merge({"r": frame}))]

    if expected is FeedError:
        with pytest.raises(FeedError, match="cast it to an integer, or use a time"):
            sequences()
    else:
        assert sequences() == [expected, expected]
