"""Bit casts against plain Python: comparisons of the values themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbsp_wcoj.values.bitcast import codes_of, values_of
from tests.generators.strategies import LAW

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
TIMES = ["datetime64[D]", "datetime64[us]", "datetime64[ns]", "timedelta64[s]", "timedelta64[us]"]
BIT_CASTS = [*INTEGERS, *FLOATS, *TIMES, "bool"]


def columns(dtype_name: str) -> st.SearchStrategy[np.ndarray]:
    elements = {"allow_nan": True} if dtype_name in FLOATS else None
    dtype = np.dtype(dtype_name)
    shape = st.integers(0, 12)
    return hnp.arrays(dtype, shape, elements=hnp.from_dtype(dtype, **(elements or {})))


def rank(value: np.generic) -> tuple[bool, object]:
    """Return a sort key of a value in the order of codes: NaN is last."""
    number = value.astype(np.int64).item() if value.dtype.kind in "mM" else value.item()
    return (number != number, 0.0 if number != number else number)


@pytest.mark.parametrize("dtype_name", BIT_CASTS)
@settings(LAW, max_examples=40)  # for each of 17 types
@given(data=st.data())
def test_bit_cast_codes_compare_as_the_values_compare(dtype_name, data):
    column = data.draw(columns(dtype_name))
    codes = codes_of(column)
    assert codes.dtype == np.int64
    rows = [(rank(value), code) for value, code in zip(column, codes.tolist(), strict=True)]
    for x, code_x in rows:
        for y, code_y in rows:
            assert (x < y) == (code_x < code_y) and (x == y) == (code_x == code_y)


@pytest.mark.parametrize("dtype_name", BIT_CASTS)
@settings(LAW, max_examples=40)  # for each of 17 types
@given(data=st.data())
def test_a_bit_cast_column_decodes_to_itself_in_its_own_dtype(dtype_name, data):
    column = data.draw(columns(dtype_name))
    decoded = values_of(codes_of(column), column.dtype)
    assert decoded.dtype == column.dtype
    np.testing.assert_array_equal(decoded, column)


@pytest.mark.parametrize("dtype_name", FLOATS)
def test_floats_have_one_zero_and_one_nan_that_sorts_last(dtype_name):
    bits = np.dtype(f"u{np.dtype(dtype_name).itemsize}")
    all_ones = np.array([np.iinfo(bits).max], bits).view(
        dtype_name
    )  # a negative NaN with a payload
    column = np.concatenate([np.array([-0.0, 0.0, np.inf, -np.inf, np.nan], dtype_name), all_ones])
    codes = codes_of(column)
    zero, negative_zero, infinity, minus_infinity, nan, other_nan = codes.tolist()
    assert zero == negative_zero == 0
    assert minus_infinity < zero < infinity < nan == other_nan
    decoded = values_of(codes, np.dtype(dtype_name))
    assert not np.signbit(decoded[[0, 1, 4, 5]]).any()


def test_a_signalling_nan_is_the_one_nan():
    signalling = np.array([0x7FF0000000000001], np.uint64).view(np.float64)
    assert codes_of(signalling).tolist() == codes_of(np.array([np.nan])).tolist()


def test_signed_integers_and_unsigned_ones_of_up_to_32_bits_share_their_codes():
    for dtype_name in set(INTEGERS) - {"uint64"}:
        assert codes_of(np.array([0, 1, 127], dtype_name)).tolist() == [0, 1, 127]


def test_int64_and_time_columns_are_encoded_and_decoded_without_a_copy():
    for column in (np.arange(5), np.arange(5).view("M8[us]")):
        codes = codes_of(column)
        assert np.shares_memory(codes, column)
        assert np.shares_memory(values_of(codes, column.dtype), codes)
