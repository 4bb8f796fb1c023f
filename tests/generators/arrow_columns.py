"""Random Arrow columns of every scalar type, in slices and chunks, with their Python values."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(2 ** (bits - 1)) if signed else 0
    high = 2 ** (bits - signed) - 1
    if bits == 64:  # the codecs exclude one value, which stands for NULL
        low, high = low + signed, high - (not signed)
    return st.sampled_from([low, high]) | st.integers(max(low, -4), min(4, high))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    high = 10**precision - 1
    edges = [-high, high, 2**64 - 1, 2**64, -(2**64), 2**128, -(2**63), 2**63]
    unscaled = st.sampled_from([n for n in edges if abs(n) <= high]) | st.integers(-4, 4)
    return unscaled.map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))


TEXTS = st.text("ab\0\uffff\U00010000", max_size=3) | st.sampled_from(
    ["prefixes", "prefixes ", "prefixes of eight bytes", "prefixes of eight bytes!"]
)
BINARIES = st.binary(max_size=3) | st.sampled_from([b"\xff" * 8, b"\xff" * 9, b"\0" * 8, b"\0" * 9])

VALUES: dict[pa.DataType, st.SearchStrategy] = {
    pa.bool_(): st.booleans(),
    **{pa.type_for_alias(f"int{bits}"): integers(bits) for bits in (8, 16, 32, 64)},
    **{pa.type_for_alias(f"uint{bits}"): integers(bits, signed=False) for bits in (8, 16, 32, 64)},
    **{pa.type_for_alias(f"float{bits}"): st.floats(width=bits) for bits in (16, 32, 64)},
    pa.date32(): integers(32),
    pa.date64(): st.integers(-3, 3).map(lambda days: 86_400_000 * days),
    pa.time32("s"): st.sampled_from([0, 1, 86_399]),
    pa.time64("ns"): st.sampled_from([0, 1, 86_399_999_999_999]),
    pa.timestamp("s"): integers(64),
    pa.timestamp("ns", "Europe/Vienna"): integers(64),
    pa.duration("us"): integers(64),
    pa.decimal32(9, 2): decimals(9, 2),
    pa.decimal64(18, 0): decimals(18, 0),
    pa.decimal128(18, 3): decimals(18, 3),
    pa.decimal256(5, 5): decimals(5, 5),
    pa.decimal128(19, 2): decimals(19, 2),
    pa.decimal128(38, 2): decimals(38, 2),
    pa.decimal256(20, 2): decimals(20, 2),
    pa.decimal256(76, 2): decimals(76, 2),
    **{type_: TEXTS for type_ in (pa.string(), pa.large_string(), pa.string_view())},
    **{type_: BINARIES for type_ in (pa.binary(), pa.large_binary(), pa.binary_view())},
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.binary(0): st.just(b""),
    pa.null(): st.none(),
    pa.dictionary(pa.int8(), pa.string()): TEXTS,
    pa.dictionary(pa.uint16(), pa.string_view()): TEXTS,
    pa.dictionary(pa.int64(), pa.float64(), ordered=True): st.floats(),
    pa.dictionary(pa.int32(), pa.decimal128(30, 2)): decimals(30, 2),
}


def is_time(type_: pa.DataType) -> bool:
    return pa.types.is_temporal(type_)


def array(values: list, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type_):
        distinct = list(dict.fromkeys(values))
        indices = pa.array([distinct.index(value) for value in values], type_.index_type)
        return pa.DictionaryArray.from_arrays(
            indices, array(distinct, type_.value_type), ordered=type_.ordered
        )
    if is_time(type_):
        return pa.array(values, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    if pa.types.is_float16(type_):
        return pa.array([None if v is None else np.float16(v) for v in values], type_)
    return pa.array(values, type_)


def canonical_values(column: pa.Array) -> list:
    """Return the values of an array in its order, with NaN as a string and -0.0 as 0.0."""
    if pa.types.is_dictionary(column.type):
        assert column.type.index_type == column.indices.type
        distinct = canonical_values(column.dictionary)
        return [None if i is None else distinct[i] for i in column.indices.to_pylist()]
    if is_time(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return [canonical(value) for value in column.to_pylist()]


def canonical(value: object) -> object:
    if isinstance(value, float | np.floating):
        return "NaN" if math.isnan(value) else float(value) + 0.0
    return value.encode() if isinstance(value, str) else value


def sort_key(value: object) -> tuple:
    """A key that sorts NaN after all other values."""
    return (value == "NaN", 0 if value == "NaN" else value)


@st.composite
def columns(draw: st.DrawFn, type_: pa.DataType) -> tuple[pa.ChunkedArray | pa.Array, list]:
    """A column in slices and chunks, and its canonical values."""
    nulls = st.none() if draw(st.booleans()) else VALUES[type_]
    chunks, values = [], []
    for _ in range(draw(st.integers(0, 3))):
        piece = draw(st.lists(VALUES[type_] | nulls, max_size=20))
        first = draw(st.integers(0, len(piece)))
        count = draw(st.integers(0, len(piece) - first))
        chunks.append(array(piece, type_).slice(first, count))
        values += map(canonical, piece[first : first + count])
    if len(chunks) == 1 and draw(st.booleans()):
        return chunks[0], values
    return pa.chunked_array(chunks, type_), values
