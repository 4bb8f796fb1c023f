"""Columns of one circuit share dictionaries, so equal values have equal codes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.errors import SchemaError
from circuits.types.codecs.codec import Codecs
from tests.generators.arrow_columns import TEXTS, array, decimals
from tests.generators.strategies import LAW


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (pa.int8(), pa.uint32(), True),
        (pa.int64(), pa.uint64(), False),
        (pa.int8(), pa.bool_(), False),
        (pa.float32(), pa.float64(), False),
        (pa.string(), pa.string_view(), True),
        (pa.string(), pa.dictionary(pa.int8(), pa.large_string()), True),
        (pa.string(), pa.binary(), False),
        (pa.binary(), pa.binary(4), True),
        (pa.timestamp("s", "UTC"), pa.timestamp("s", "Asia/Tokyo"), True),
        (pa.timestamp("s", "UTC"), pa.timestamp("s"), False),
        (pa.timestamp("s"), pa.timestamp("ms"), False),
        (pa.time32("s"), pa.duration("s"), False),
        (pa.date32(), pa.date64(), False),
        (pa.decimal32(5, 2), pa.decimal128(18, 2), True),
        (pa.decimal32(5, 2), pa.decimal32(5, 1), False),
        (pa.decimal128(18, 2), pa.decimal128(19, 2), False),
        (pa.decimal128(30, 2), pa.decimal256(60, 2), True),
    ],
    ids=str,
)
def test_types_share_codes_iff_they_share_a_space(first, second, shared):
    codecs = Codecs()
    assert (codecs.codec(first).code_space == codecs.codec(second).code_space) == shared


@settings(LAW, max_examples=50)
@given(st.data())
def test_columns_of_one_space_have_one_code_for_one_value(data):
    families = [
        ([pa.int8(), pa.int64(), pa.uint8()], st.integers(0, 100)),
        ([pa.string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())], TEXTS),
        ([pa.binary(3), pa.large_binary()], st.binary(min_size=3, max_size=3)),
        ([pa.decimal128(19, 2), pa.decimal256(20, 2)], decimals(19, 2)),
        ([pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal256(18, 2)], decimals(9, 2)),
    ]
    types, values = data.draw(st.sampled_from(families))
    codecs, model = Codecs(), {}
    for _ in range(3):
        codec = codecs.codec(data.draw(st.sampled_from(types)))
        column = data.draw(st.lists(values, max_size=9))
        for value, code in zip(column, codec.encode(array(column, codec.type)), strict=True):
            assert model.setdefault(value, code) == code
    assert len(set(model.values())) == len(model)


@settings(LAW, max_examples=50)
@given(st.data())
def test_the_new_values_of_each_column_copied_in_turn_give_equal_dictionaries(data):
    codecs, copy = Codecs(), Codecs()
    types = [pa.string(), pa.binary(2), pa.decimal128(30, 2), pa.decimal128(30, -1), pa.int64()]
    columns_ = []
    parts = {name: [] for name in codecs.interners}
    for _ in range(data.draw(st.integers(1, 4))):
        before = codecs.lengths()
        type_ = data.draw(st.sampled_from(types))
        small = {pa.int64(): st.integers(0, 3), pa.binary(2): st.binary(min_size=2, max_size=2)}
        numbers = decimals(28, type_.scale) if pa.types.is_decimal(type_) else TEXTS
        column = array(data.draw(st.lists(small.get(type_, numbers), max_size=6)), type_)
        columns_.append((column, codecs.codec(type_).encode(column).tolist()))
        for name, table in codecs.interners.items():
            parts.setdefault(name, []).append(table.arena(before.get(name, 0)))
    for name, stored in parts.items():
        copy.dictionary(name).load(stored)
    assert copy.lengths() == codecs.lengths()
    for column, codes in columns_:
        assert copy.codec(column.type).encode(column).tolist() == codes


@pytest.mark.parametrize("name", ["decimal x", "decimal", "text2", "decimal --2", "decimal 2.0"])
def test_an_unknown_dictionary_is_an_error(name):
    codecs = Codecs()
    with pytest.raises(SchemaError, match=f"no dictionary '{name}'"):
        codecs.dictionary(name)
    assert codecs.lengths() == {"text": 0, "binary": 0}


def test_the_codes_of_truncated_values_are_used_again():
    codecs = Codecs()
    names = codecs.codec(pa.string())
    names.encode(pa.array(["a"]))
    names.encode(pa.array(["b", "c"]))
    codecs.interners["text"].truncate(1)
    assert names.code_of("b") is None
    assert names.encode(pa.array(["c", "a"])).tolist() == [1, 0]
