"""Dead letters: rows as JSON, policies for invalid rows, and messages of bounded length."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.schema import Schema
from streaming import RowError, StreamingError
from streaming.sources import dead_letters
from streaming.sources.dead_letters import (
    DEAD_LETTER_SCHEMA,
    DeadLetters,
    apply_policy,
    check_policy,
    rows_as_json,
)
from streaming.sources.envelope import decode_batch

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | TEXTS), max_size=8)
)
def test_rows_as_json_are_read_back_by_a_json_parser(rows):
    table = pa.table(
        {
            "n": pa.array([n for n, _ in rows], pa.int64()),
            'a "b"': pa.array([s for _, s in rows], pa.string()),
        }
    )
    texts = rows_as_json(table).to_pylist()
    assert [json.loads(text) for text in texts] == table.to_pylist()


def test_values_of_other_types_become_json():
    table = pa.table(
        {
            "f": [1.5, math.inf, None],
            "d": pa.array([Decimal("1.20"), None, Decimal("-3.00")]),
            "day": [date(2024, 1, 2), None, None],
            "y": [b"\x00\xff", None, b""],
            "l": [[1, 2], None, []],
            "b": [True, False, None],
            "k": pa.array(["x", "y", None]).dictionary_encode(),
        }
    )
    first, second, _ = [json.loads(text) for text in rows_as_json(table).to_pylist()]
    assert first == {
        "f": 1.5, "d": 1.2, "day": "2024-01-02", "y": "AP8=", "l": [1, 2], "b": True, "k": "x"
    }  # fmt: skip
    assert second["f"] == "inf"


def test_the_policy_dead_letter_adds_the_batch_id():
    letters = DeadLetters.from_rows("r", pa.table({"n": [1, 2]}), "late", [1, -1])
    kept = apply_policy(letters, bad_rows="dead_letter", batch_id=7).table
    assert kept.schema == DEAD_LETTER_SCHEMA
    assert kept.to_pylist()[1] == {
        "relation": "r", "row": '{"n": 2}', "weight": -1, "reason": "late", "batch_id": 7
    }  # fmt: skip


def test_the_policy_fail_names_batch_row_relation_and_reason_and_how_to_continue():
    letters = DeadLetters.from_rows("r", pa.table({"n": [1, 2, 3]}), "column 'n' is wrong")
    with pytest.raises(RowError) as raised:
        apply_policy(letters, bad_rows="fail", batch_id=7)
    for words in ("micro-batch 7", '{"n": 1}', "'r'", "'n' is wrong", "2 more", "dead_letter"):
        assert words in str(raised.value)


def test_without_dead_letters_no_policy_fails_and_an_unknown_policy_is_refused():
    assert len(apply_policy(DeadLetters.empty(), bad_rows="fail", batch_id=0)) == 0
    with pytest.raises(StreamingError, match="'skip': it must be one of fail, dead_letter"):
        check_policy("skip")


def test_a_long_row_is_shortened_in_the_message_but_not_in_the_dead_letter():
    letters = DeadLetters.from_texts(None, pa.array(["x" * 9000]), "poisoned")
    with pytest.raises(RowError, match=r"\(9000 characters\)") as raised:
        apply_policy(letters, bad_rows="fail", batch_id=0)
    assert len(str(raised.value)) < 1000
    assert len(letters.table["row"][0].as_py()) == 9000


def test_rows_that_are_too_long_for_one_array_of_texts_become_json_in_pieces(monkeypatch):
    rows = pa.table({"s": ["x" * 50, None, "z" * 9], "n": [1, 2, 3]})
    whole = rows_as_json(rows).to_pylist()
    monkeypatch.setattr(dead_letters, "MAX_JSON_BYTES", 20)
    result = rows_as_json(rows)
    assert (result.num_chunks, result.to_pylist()) == (3, whole)


def test_a_relation_or_a_reason_of_ten_megabytes_is_shortened_in_the_message():
    long = "x" * 10**7
    letters = DeadLetters.from_texts(long, pa.array([long]), long)
    with pytest.raises(RowError, match=r"\(10000000 characters\)") as raised:
        apply_policy(letters, bad_rows="fail", batch_id=0)
    assert len(str(raised.value)) < 4000


NO_DATE = 10**8  # days since 1970, which Python's dates do not reach
NESTED = [
    (pa.list_(pa.float64()), [1.5, math.nan, -math.inf], [1.5, "nan", "-inf"]),
    (pa.map_(pa.string(), pa.float64()), [("a", math.inf)], {"a": "inf"}),
    (pa.map_(pa.date32(), pa.int8()), [(date(2024, 1, 2), 1)], {"2024-01-02": 1}),
    (pa.struct({"y": pa.binary(), "n": pa.int8()}), {"y": b"\xff"}, {"y": "/w==", "n": None}),
    (pa.list_(pa.struct({"d": pa.decimal128(5, 2)})), [{"d": Decimal("1.50")}], [{"d": 1.5}]),
    (pa.map_(pa.struct({"n": pa.int8()}), pa.int8()), [({"n": 1}, 2)], {'{"n":1}': 2}),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value", "expected"), NESTED, ids=str)
def test_nested_values_are_json(type_, value, expected):
    table = pa.table({"a": pa.array([value, None], type_)})
    first, second = (
        json.loads(text, parse_constant=int) for text in rows_as_json(table).to_pylist()
    )
    assert (first, second) == ({"a": expected}, {"a": None})


def test_a_row_with_a_nested_date_that_python_lacks_is_a_dead_letter_too():
    days = pa.array([NO_DATE], pa.int32()).view(pa.date32())
    rows = pa.table({"n": pa.array([None], pa.int8()), "d": pa.ListArray.from_arrays([0, 1], days)})
    schema = pa.schema([pa.field("n", pa.int8(), nullable=False), ("d", pa.list_(pa.date32()))])
    changes = decode_batch(rows, {"r": Schema.of("r", schema)})
    (letter,) = changes.dead_letters.table.to_pylist()
    assert letter["reason"] == "column 'n' is NULL and must not be"
    assert json.loads(letter["row"])["d"] == [f"<value out of range: {NO_DATE}>"]
