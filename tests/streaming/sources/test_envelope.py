"""The envelope: rows are split by relation, and invalid rows become dead letters."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import SchemaError
from circuits.schema import Schema
from circuits.types.arrow_types import VARIANT
from circuits.types.enum_type import EnumType
from streaming import UntaggedBatchError
from streaming.sources.change_feeds import uncastable_rows
from streaming.sources.change_feeds.uncastable_rows import safe_cast
from streaming.sources.envelope import decode_batch

ORDERS = pa.schema([pa.field("nr", pa.int32(), nullable=False), ("item", pa.string())])
GRADES = pa.schema([("nr", pa.string()), ("grade", pa.int8())])
INPUTS = {"orders": Schema.of("orders", ORDERS), "grades": Schema.of("grades", GRADES)}
ONE_INPUT = {"orders": INPUTS["orders"]}
KEYED = {"orders": SimpleNamespace(keys=("nr",))}


def reasons(changes):
    return changes.dead_letters.table["reason"].to_pylist()


def test_flat_rows_of_one_input_need_no_tag_and_count_once_without_weight():
    changes = decode_batch(pa.table({"nr": [1, 2], "item": ["a", None]}), ONE_INPUT)
    assert changes.tables["orders"].to_pylist() == [
        {"nr": 1, "item": "a", "weight": 1},
        {"nr": 2, "item": None, "weight": 1},
    ]
    assert len(changes.dead_letters) == 0


@pytest.mark.parametrize("others", [{}, {"grades": INPUTS["grades"]}])
def test_a_column_relation_of_the_only_or_named_input_is_no_tag(others):
    family = Schema.of("family", pa.schema([("relation", pa.string()), ("name", pa.string())]))
    table = pa.table({"relation": ["aunt", "grades"], "name": ["Ada", "Bob"]})
    relation = "family" if others else None
    changes = decode_batch(table, {"family": family, **others}, relation=relation)
    assert list(changes.tables) == ["family"]
    assert changes.tables["family"].drop_columns("weight").equals(table)
    assert len(changes.dead_letters) == 0


def test_tagged_rows_go_to_their_relations_with_their_columns():
    table = pa.table(
        {
            "relation": ["orders", "grades"],
            "nr": ["1", "x"],
            "item": ["a", None],
            "grade": [None, 3],
        }
    )
    inputs = {"orders": Schema.of("orders", GRADES.remove(1)), "grades": INPUTS["grades"]}
    changes = decode_batch(table, inputs)
    assert changes.tables["orders"].to_pylist() == [{"nr": "1", "weight": 1}]
    assert changes.tables["grades"].to_pylist() == [{"nr": "x", "grade": 3, "weight": 1}]


@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        ({"nr": [1], "item": ["a"]}, UntaggedBatchError, "add a column 'relation'"),
        ({"relation": [1], "nr": [1]}, UntaggedBatchError, "of type int64"),
        ({"relation": ["orders"], "nr": [1]}, SchemaError, "column 'item' is missing"),
        (
            {"relation": ["orders"], "nr": [[1]], "item": ["a"]},
            SchemaError,
            "'nr': the type is list",
        ),
        ({"relation": ["orders"], "nr": ["1"], "item": ["a"]}, SchemaError, "declared is int32"),
        (
            {"relation": ["orders"], "nr": [1], "item": ["a"], "weight": [True]},
            SchemaError,
            "weights are integers",
        ),
    ],
)
def test_an_invalid_column_is_an_error_of_the_whole_micro_batch(table, error, words):
    with pytest.raises(error, match=words):
        decode_batch(pa.table(table), INPUTS)


def test_rows_of_unknown_relations_become_dead_letters_and_the_others_are_kept():
    table = pa.table(
        {"relation": ["orders", None, "edges"], "nr": [1, 2, 3], "item": ["a", "b", "c"]}
    )
    changes = decode_batch(table, INPUTS)
    assert changes.tables["orders"].num_rows == 1
    assert changes.dead_letters.table["relation"].to_pylist() == [None, "edges"]
    assert "relation is NULL" in reasons(changes)[0]
    assert "unknown relation edges; inputs are orders, grades" in reasons(changes)[1]
    assert json.loads(changes.dead_letters.table["row"][1].as_py()) == {"nr": 3, "item": "c"}


WEIGHTS = [
    (pa.array([1, None, -2]), [1, -2]),
    (pa.array([1.0, 1.5, float("nan"), float("inf"), -3.0, 2.0**63, 1e300, None]), [1, -3]),
    (pa.array(["1", "+2", "-3", "x", "1.0", "", str(2**63), "9" * 20]), [1, 2, -3]),
    (pa.array([2**64 - 1, 5], pa.uint64()), [5]),
    (pa.array([Decimal("1.00"), Decimal("1.50"), None]), [1]),
    (pa.nulls(2), []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "kept"), WEIGHTS, ids=lambda value: str(getattr(value, "type", ""))
)
def test_a_row_whose_weight_is_not_an_int64_becomes_a_dead_letter(weights, kept):
    table = pa.table(
        {"nr": list(range(len(weights))), "item": ["a"] * len(weights), "weight": weights}
    )
    changes = decode_batch(table, ONE_INPUT)
    assert changes.tables["orders"]["weight"].to_pylist() == kept
    assert len(changes.dead_letters) == len(weights) - len(kept)
    assert all("not an integer of 64 bits" in reason for reason in reasons(changes))


def test_rows_with_invalid_values_or_nulls_become_dead_letters():
    table = pa.table(
        {"nr": [1, None, 2**40, 3], "item": ["a", "b", "c", None], "weight": [1, 1, -1, 1]}
    )
    changes = decode_batch(table, ONE_INPUT)
    assert changes.tables["orders"].to_pylist() == [
        {"nr": 1, "item": "a", "weight": 1},
        {"nr": 3, "item": None, "weight": 1},
    ]
    letters = changes.dead_letters.table.to_pylist()
    assert [(letter["row"], letter["weight"]) for letter in letters] == [
        ('{"nr": null, "item": "b"}', 1),
        (f'{{"nr": {2**40}, "item": "c"}}', -1),
    ]
    assert "is NULL and must not be" in letters[0]["reason"]
    assert "is not a valid int32" in letters[1]["reason"]


def test_only_the_key_of_a_deletion_is_read():
    schema = pa.schema([("nr", pa.int64()), pa.field("n", pa.int8(), nullable=False)])
    inputs = {"orders": Schema.of("orders", schema)}
    table = pa.table(
        {
            "nr": [1, 2, None, 3],
            "n": [None, 300, 1, None],
            "weight": [-1, -1, -1, 1],
            "sequence": [5, 6, 7, 8],
        }
    )
    changes = decode_batch(table, inputs, input_options=KEYED)
    assert changes.tables["orders"].to_pylist() == [
        {"nr": 1, "n": None, "weight": -1, "sequence": 5},
        {"nr": 2, "n": None, "weight": -1, "sequence": 6},
    ]
    assert ["'nr' is NULL" in reasons(changes)[0], "'n' is NULL" in reasons(changes)[1]] == [
        True,
        True,
    ]


def test_deletions_by_key_need_no_other_column_at_all():
    table = pa.table({"nr": [1], "weight": [-1]})
    changes = decode_batch(table, ONE_INPUT, input_options=KEYED)
    assert changes.tables["orders"].to_pylist() == [{"nr": 1, "item": None, "weight": -1}]
    with pytest.raises(SchemaError, match="column 'item' is missing"):
        decode_batch(pa.table({"nr": [1], "weight": [1]}), ONE_INPUT, input_options=KEYED)


def envelope(**columns):
    size = len(next(iter(columns.values())))
    empty = {"relation": [None], "weight": [1], "sequence": [None], "error": [None], "raw": [None]}
    types = {
        "relation": pa.string(),
        "weight": pa.int64(),
        "sequence": pa.int64(),
        "error": pa.string(),
        "raw": pa.string(),
    }
    whole = {
        name: pa.array(columns.get(name, value * size), types[name])
        for name, value in empty.items()
    }
    return pa.table(whole | {n: pa.array(v) for n, v in columns.items() if n not in whole})


def test_an_envelope_is_split_by_relation_and_its_errors_become_dead_letters_with_the_event():
    table = envelope(
        relation=["orders", "grades", "orders", None, "orders"],
        weight=[1, -1, 1, 1, 1],
        sequence=[1, 2, 3, 4, 5],
        error=[None, None, "no row", "poisoned", None],
        raw=[None, None, "{1", "{2", None],
        row_orders=[{"nr": 1, "item": "a"}, None, None, None, None],
        row_grades=[None, {"nr": "x", "grade": 3}, None, None, None],
    )
    changes = decode_batch(table, INPUTS, input_options=KEYED)
    assert changes.tables["orders"].to_pylist() == [
        {"nr": 1, "item": "a", "weight": 1, "sequence": 1}
    ]
    assert changes.tables["grades"].to_pylist() == [{"nr": "x", "grade": 3, "weight": -1}]
    result = [
        (x["relation"], x["row"], x["reason"]) for x in changes.dead_letters.table.to_pylist()
    ]
    assert result == [
        ("orders", "{1", "no row"), (None, "{2", "poisoned"), ("orders", None, "the row is missing")
    ]  # fmt: skip


def test_an_envelope_without_rows_gives_no_tables_and_no_letters():
    table = envelope(relation=["orders"], row_orders=[{"nr": 1, "item": "a"}]).slice(0, 0)
    changes = decode_batch(table, INPUTS)
    assert changes.tables == {} and len(changes.dead_letters) == 0


DAY = datetime(2024, 1, 2, 3, 4, 5, 678901)
COLUMNS = [
    (pa.array([1, 127, 128, -128, -129, None], pa.int64()), pa.int8()),
    (pa.array([1, -1, 2**32 - 1, 2**32], pa.int64()), pa.uint32()),
    (pa.array([0, 2**63, 2**64 - 1], pa.uint64()), pa.int64()),
    (pa.array([-1, 0, 5, None], pa.int64()), pa.uint64()),
    (pa.array([2**24, 2**24 + 1, -(2**24) - 1, 7], pa.int64()), pa.float32()),
    (pa.array([2**53, 2**53 + 1, -(2**53) - 1, None], pa.int64()), pa.float64()),
    (pa.array([9, 10, -10, 99, -9, None], pa.int64()), pa.decimal128(3, 2)),
    (
        pa.array([Decimal(x) for x in ("1.20", "1.25", "99.90", "-100.00", "9.99")]),
        pa.decimal128(3, 1),
    ),
    (pa.array([Decimal("12345678901234567890.5"), Decimal("1.0")]), pa.decimal128(5, 0)),
    (pa.array([DAY, DAY.replace(microsecond=0), None]), pa.timestamp("s")),
    (pa.array([DAY, DAY.replace(microsecond=678000)]), pa.timestamp("ms")),
    (pa.array([DAY, datetime(3000, 1, 1), datetime(1, 1, 1)]), pa.timestamp("ns")),
    (
        pa.array([DAY.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        pa.timestamp("s", "Europe/Paris"),
    ),
    (pa.array([0, 86_400_000, 5], pa.int64()).view(pa.date64()).cast(pa.date64()), pa.date32()),
    (pa.array([date(2024, 1, 1), date(3000, 1, 1)]), pa.timestamp("ns")),
    (pa.array([b"ab", b"abc", b"", None]), pa.binary(2)),
    (pa.array([1500, 2000, 7], pa.int64()).cast(pa.duration("ms")), pa.duration("s")),
    (pa.array([1_000_000, 1_000_001], pa.int64()).cast(pa.time64("us")), pa.time32("s")),
    (pa.array([-(2**63), 1], pa.int64()), pa.int64()),
    (pa.array([-(2**63), 5, 7_000_000], pa.duration("us")), pa.duration("ns")),
    (pa.array(["ok", "typo", None, "typo"]), EnumType(["sad", "ok"])),
    (pa.array(["{", "1", None, "[1", '{"a": 1}', "{"]), VARIANT),
    (pa.array([1, 300, None, 2], pa.int64()), pa.dictionary(pa.int32(), pa.int8())),
    (
        pa.array([1, 300, None, 2], pa.int64()).dictionary_encode(),
        pa.dictionary(pa.int32(), pa.int8()),
    ),
    (pa.array([100, 150, 0], pa.int64()), pa.decimal128(3, -2)),
    (pa.array([0, 1], pa.int64()), pa.decimal128(2, 3)),
    (pa.array([[300], [1], None, [], [2, -300], [5]]), pa.list_(pa.int8())),
    (pa.array([["ok"], ["typo"], [None]]), pa.list_(EnumType(["sad", "ok"]))),
    (pa.array([["1"], ["{"]]), pa.list_(VARIANT)),
    (pa.array([[1, 2], [1], None, [300, 1]], pa.list_(pa.int64())), pa.list_(pa.int8(), 2)),
    (
        pa.array([{"a": 1, "b": [9]}, {"a": 300, "b": []}, None, {"a": None, "b": [1, 300]}]),
        pa.struct([("b", pa.list_(pa.int8())), ("a", pa.int8()), ("c", pa.string())]),
    ),
    (
        pa.array([[("a", 1)], [("a", 1), ("b", 300)], []], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.int8()),
    ),
]


@pytest.mark.parametrize(
    ("array", "type"), COLUMNS, ids=lambda value: str(getattr(value, "type", value))
)
def test_the_mask_of_uncastable_values_equals_casting_each_value_alone(array, type):
    from circuits.types.codecs.codec import Codecs
    from circuits.types.safe_cast import cast_lossless

    def fits(value):
        try:
            Codecs().codec(type).encode(cast_lossless(pa.chunked_array([value]), type))
        except (SchemaError, pa.ArrowInvalid):
            return False
        return True

    cast, wrong = safe_cast(pa.chunked_array([array]), type)
    expected = [not fits(array.slice(position, 1)) for position in range(len(array))]
    assert wrong.tolist() == expected
    assert cast.type == type
    good = array.filter(pa.array(~wrong))
    assert (
        cast.filter(pa.array(~wrong)).to_pylist()
        == cast_lossless(pa.chunked_array([good]), type).to_pylist()
    )


WIDE_NUMBERS = [
    (pa.uint64(), 0, 2**64 - 2),
    (pa.time64("ns"), 0, 86_400 * 10**9 - 1),
    (pa.time32("ms"), 0, 86_400_000 - 1),
    (pa.duration("ns"), -(2**63) + 1, 2**63 - 1),
    (pa.timestamp("ns"), -(2**63) + 1, 2**63 - 1),
]


@pytest.mark.parametrize(("type", "least", "greatest"), WIDE_NUMBERS, ids=str)
def test_a_number_that_the_type_cannot_hold_is_wrong_and_the_others_are_kept(type, least, greatest):
    outside = [-(10**19), -(2**63) - 1, 2**64, 10**19 * 9]
    outside += [-1] if type == pa.uint64() else [2**63]
    outside += [2**40, -(2**31) - 1] if type == pa.time32("ms") else []
    numbers = [*outside, least, None, greatest]
    column = pa.chunked_array([pa.array(map(_decimal, numbers), pa.decimal128(20, 0))])
    cast, wrong = safe_cast(column, type)
    assert wrong.tolist() == [True] * len(outside) + [False] * 3
    plain = cast.cast(pa.int32()) if type == pa.time32("ms") else cast
    plain = plain if type == pa.uint64() else plain.cast(pa.int64())
    assert plain.to_pylist() == [None] * len(outside) + [least, None, greatest]


def _decimal(number):
    return None if number is None else Decimal(number)


def test_a_row_with_a_text_or_list_that_its_type_cannot_hold_becomes_a_dead_letter():
    types = {"mood": EnumType(["sad", "ok"]), "json": VARIANT, "items": pa.list_(pa.int8())}
    table = pa.table(
        {
            "mood": ["ok", "typo", "sad", "ok"],
            "json": ["1", "1", "{", "1"],
            "items": [[1], [1], [1], [300]],
        }
    )
    changes = decode_batch(table, {"r": Schema.of("r", pa.schema(types))})
    assert changes.tables["r"].num_rows == 1
    assert [reason.partition(" has ")[0] for reason in reasons(changes)] == [
        "column 'mood'",
        "column 'json'",
        "column 'items'",
    ]


@pytest.mark.parametrize("bad_rows", [{3}, {0, 511}, set(range(100, 108)), set()])
def test_values_that_no_mask_finds_are_found_by_halves(monkeypatch, bad_rows):
    calls = 0

    def count_casts(column, type):
        nonlocal calls
        calls += 1
        if pc.any(pc.equal(column, 300), min_count=0).as_py():
            raise SchemaError("300")
        return column.cast(type)

    monkeypatch.setattr(uncastable_rows, "cast_lossless", count_casts)
    monkeypatch.setattr(uncastable_rows, "uncastable_rows", lambda c, _: np.zeros(len(c), bool))
    rows = [300 if i in bad_rows else 1 for i in range(512)]
    cast, wrong = safe_cast(pa.chunked_array([rows[:100], rows[100:]]), pa.int8())
    assert set(np.flatnonzero(wrong)) == bad_rows
    assert cast.to_pylist() == [None if i in bad_rows else 1 for i in range(512)]
    assert calls <= 5 + 2 * 9 * len(bad_rows)


@given(st.lists(st.tuples(st.sampled_from(["orders", "grades", "zzz", None]),
    st.none() | st.integers(-(2**40), 2**40), st.none() | st.integers(-200, 200),
    st.none() | st.sampled_from([1, -1, 0.5, 2, 1e30])), max_size=30))  # fmt: skip
def test_every_row_is_either_accepted_or_a_dead_letter(rows):
    table = pa.table(
        {
            "relation": pa.array([r for r, *_ in rows], pa.string()),
            "nr": pa.array([n for _, n, *_ in rows], pa.int64()),
            "item": pa.array(["i"] * len(rows), pa.string()),
            "grade": pa.array([m for _, _, m, _ in rows], pa.int64()),
            "weight": pa.array([w for *_, w in rows], pa.float64()),
        }
    )
    inputs = {
        "orders": INPUTS["orders"],
        "grades": Schema.of("m", GRADES.set(0, pa.field("nr", pa.int64()))),
    }
    changes = decode_batch(table, inputs)
    assert sum(t.num_rows for t in changes.tables.values()) + len(changes.dead_letters) == len(rows)

    def good(row):
        relation, nr, grade, weight = row
        if relation not in inputs or weight is None or weight in (0.5, 1e30):
            return False
        if relation == "orders":
            return nr is not None and -(2**31) <= nr < 2**31
        return grade is None or -128 <= grade <= 127

    accepted = {name: t.num_rows for name, t in changes.tables.items()}
    for name in inputs:
        assert accepted.get(name, 0) == sum(good(row) for row in rows if row[0] == name)


def test_two_hundred_thousand_invalid_rows_become_dead_letters():
    size = 200_000
    table = pa.table({"nr": np.full(size, 2**40), "item": pa.array(["a"] * size)})
    changes = decode_batch(table, ONE_INPUT)
    assert len(changes.dead_letters) == size and changes.tables["orders"].num_rows == 0
