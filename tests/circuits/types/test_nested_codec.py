"""Codes of lists, structs and maps: the laws of all codes, on random values of nested types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.errors import SchemaError
from circuits.types.codecs.codec import NULL, Codecs

LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-2, 2),
    pa.string(): st.sampled_from(["", "a", "ab", "b"]),
    pa.bool_(): st.booleans(),
}


def nested_types() -> st.SearchStrategy[pa.DataType]:
    def extend(parts: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        return st.one_of(
            parts.map(pa.list_),
            parts.map(pa.large_list),
            st.tuples(parts, parts).map(
                lambda types: pa.struct([("a", types[0]), ("b", types[1])])
            ),
            st.tuples(st.sampled_from([pa.int64(), pa.string()]), parts).map(
                lambda types: pa.map_(*types)
            ),
        )

    return extend(st.recursive(st.sampled_from(list(LEAVES)), extend, max_leaves=3))


def values_of(type: pa.DataType, *, null: bool = True) -> st.SearchStrategy[Any]:
    if type in LEAVES:
        values = LEAVES[type]
    elif pa.types.is_struct(type):
        values = st.fixed_dictionaries({field.name: values_of(field.type) for field in type})
    elif pa.types.is_map(type):
        entry = st.tuples(values_of(type.key_type, null=False), values_of(type.item_type))
        values = st.lists(entry, max_size=2)
    else:
        values = st.lists(values_of(type.value_type), max_size=3)
    return st.none() | values if null else values


def order_key(value: Any) -> Any:
    """Return a key of the order of DuckDB: by parts, a list before longer ones, NULL last."""
    if value is None:
        return (1,)
    if isinstance(value, dict):
        return (0, [order_key(part) for part in value.values()])
    if isinstance(value, list | tuple):
        return (0, [order_key(part) for part in value])
    return (0, value)


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    type = draw(nested_types())
    return pa.array(draw(st.lists(values_of(type), max_size=8)), type)


@given(columns())
def test_equal_values_have_equal_codes_that_decode_to_them(column):
    codec = Codecs().codec(column.type)
    codes, values = codec.encode(column), column.to_pylist()
    decoded = codec.decode(codes)
    decoded.validate(full=True)
    assert decoded.type == column.type
    assert decoded.to_pylist() == values
    assert codec.find(column).tolist() == codes.tolist()
    for i, left in enumerate(values):
        assert (codes[i] == NULL) == (left is None)
        assert [codes[i] == code for code in codes] == [left == right for right in values]


@given(columns())
def test_slices_and_chunks_have_the_codes_of_their_values(column):
    codec = Codecs().codec(column.type)
    codes = codec.encode(column)
    assert codec.encode(column[1:]).tolist() == codes[1:].tolist()
    chunked = pa.chunked_array([column[2:], column[:2]], column.type)
    assert codec.encode(chunked).tolist() == [*codes[2:], *codes[:2]]


@given(columns())
def test_ranks_and_sort_keys_have_the_order_of_the_values(column):
    codec = Codecs().codec(column.type)
    codes, values = codec.encode(column), column.to_pylist()
    ranks = codec.ranks(codes).tolist()
    (keys, *_), exact = codec.sort_keys(codes)
    assert not exact
    for i, left in enumerate(values):
        for j, right in enumerate(values):
            assert (ranks[i] < ranks[j]) == (order_key(left) < order_key(right))
            if left is not None and right is not None and ranks[i] < ranks[j]:
                assert keys[i] <= keys[j]


def test_a_value_with_an_unknown_part_has_no_code():
    codecs = Codecs()
    # The encoded elements of [-1] are equal to those of a list with one unknown text.
    codecs.codec(pa.list_(pa.int64())).encode(pa.array([[-1]]))
    texts = codecs.codec(pa.list_(pa.string()))
    assert texts.code_of(["never"]) is None
    assert texts.find(pa.array([["never"], [], None], texts.type)).tolist() == [-1, -1, NULL]


def test_both_zeros_within_a_list_have_one_code_and_so_has_nan():
    codec = Codecs().codec(pa.list_(pa.float64()))
    codes = codec.encode(pa.array([[0.0], [-0.0], [float("nan")], [float("nan")]]))
    assert codes.tolist() == [0, 0, 1, 1]


def test_lists_of_another_layout_or_width_have_the_same_codes():
    codecs = Codecs()
    plain = codecs.codec(pa.list_(pa.int64())).encode(pa.array([[1, 2], None]))
    for type in (pa.large_list(pa.int64()), pa.list_(pa.int32()), pa.list_(pa.int64(), 2)):
        other = codecs.codec(type)
        assert other.encode(pa.array([[1, 2], None], type)).tolist() == plain.tolist()
        assert other.code_space == codecs.codec(pa.list_(pa.int64())).code_space
        assert other.decode(plain).to_pylist() == [[1, 2], None]


def test_codes_of_another_codec_are_refused():
    codec = Codecs().codec(pa.list_(pa.int64()))
    with pytest.raises(SchemaError, match="code -1 is outside"):
        codec.decode(np.array([-1]))
    codecs = Codecs()
    codes = codecs.codec(pa.list_(pa.int64())).encode(pa.array([[1, 2, 3]]))
    with pytest.raises(SchemaError, match="a list of 3 elements is not of type"):
        codecs.codec(pa.list_(pa.int64(), 2)).decode(codes)


def test_elements_under_a_null_do_not_matter():
    values = pa.array([1, 2, -(2**63)])
    buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 2, 3], np.int32))]
    column = pa.Array.from_buffers(pa.list_(pa.int64()), 2, buffers, children=[values])
    assert column.to_pylist() == [[1, 2], None]
    assert Codecs().codec(column.type).encode(column).tolist() == [0, NULL]


@pytest.mark.parametrize("type", [pa.list_(pa.int64()), pa.map_(pa.string(), pa.list_(pa.int8()))])
def test_rows_whose_lists_are_all_empty_fit_a_column_of_lists(type):
    circuit = compile_sql("SELECT l FROM t", {"t": pa.schema([("l", type)])})
    assert circuit.step({"t": [{"l": []}, {"l": None}]})["view"].num_rows == 2


@pytest.mark.parametrize("size", [0, 2])
def test_lists_of_a_fixed_size_with_null_decode_to_themselves(size):
    column = pa.array([[7] * size, None, [8] * size], pa.list_(pa.int64(), size))
    codec = Codecs().codec(column.type)
    assert codec.decode(codec.encode(column)).to_pylist() == column.to_pylist()
