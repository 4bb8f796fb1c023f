"""Codecs against plain Python: dicts, comparisons and sorted() of the values themselves."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.codec import NULL, Codecs
from circuits.errors import SchemaError
from tests.strategies import LAW

MOST = 2**63 - 1
NAN_BITS = {16: 0xFE01, 32: 0xFF800001, 64: 0xFFF0000000000001}  # negative, signalling


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    least = -(2 ** (bits - 1)) if signed else 0
    most = 2 ** (bits - signed) - 1
    if bits == 64:  # one value has no code
        least, most = least + signed, most - (not signed)
    return st.sampled_from([least, most]) | st.integers(max(least, -4), min(4, most))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    edges = [-most, most, 2**64 - 1, 2**64, -(2**64), 2**128, -(2**63), 2**63]
    unscaled = st.sampled_from([n for n in edges if abs(n) <= most]) | st.integers(-4, 4)
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
TYPES = pytest.mark.parametrize("type_", VALUES, ids=str)
EACH = settings(LAW, max_examples=15)  # for each of 40 types


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


def listed(column: pa.Array) -> list:
    """What is in an array, in the order that values have, NaN as a string and no -0.0."""
    if pa.types.is_dictionary(column.type):
        assert column.type.index_type == column.indices.type
        picked = listed(column.dictionary)
        return [None if i is None else picked[i] for i in column.indices.to_pylist()]
    if is_time(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return [canonical(value) for value in column.to_pylist()]


def canonical(value: object) -> object:
    if isinstance(value, float | np.floating):
        return "NaN" if math.isnan(value) else float(value) + 0.0
    return value.encode() if isinstance(value, str) else value


def rank(value: object) -> tuple:
    """Python's order; NaN is greatest."""
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


@TYPES
@EACH
@given(data=st.data())
def test_a_column_decodes_to_itself_in_its_own_type(type_, data):
    column, values = data.draw(columns(type_))
    codec = Codecs().codec(type_)
    codes = codec.encode(column)
    assert codes.dtype == np.int64 and codes.shape == (len(values),)
    decoded = codec.decode(codes)
    decoded.validate(full=True)
    assert decoded.type == type_ == codec.type
    assert listed(decoded) == values
    assert [code == NULL for code in codes.tolist()] == [value is None for value in values]


@TYPES
@EACH
@given(data=st.data())
def test_codes_are_equal_iff_values_are_and_compare_alike_if_ordered(type_, data):
    codec = Codecs().codec(type_)
    pairs = []
    for _ in range(2):  # the second time some are known
        column, values = data.draw(columns(type_))
        pairs += zip(values, codec.encode(column).tolist(), strict=True)
    for (x, code_x), (y, code_y) in product(pairs, pairs):
        assert (x == y) == (code_x == code_y)
        if codec.ordered and x is not None and y is not None:
            assert (rank(x) < rank(y)) == (code_x < code_y)


@TYPES
@EACH
@given(data=st.data(), descending=st.booleans(), nulls_first=st.booleans())
def test_sort_keys_order_as_python_sorts(type_, data, descending, nulls_first):
    codec = Codecs().codec(type_)
    column, values = data.draw(columns(type_))
    arrays, exact = codec.sort_keys(
        codec.encode(column), descending=descending, nulls_first=nulls_first
    )
    assert all(keys.dtype == np.int64 and len(keys) == len(values) for keys in arrays)
    rows = list(zip(values, zip(*(keys.tolist() for keys in arrays), strict=True), strict=True))
    for (x, key_x), (y, key_y) in product(rows, rows):
        if x is None or y is None:
            before = (x is None) > (y is None) if nulls_first else (x is None) < (y is None)
        else:
            before = rank(x) > rank(y) if descending else rank(x) < rank(y)
        if exact or (x is None) != (y is None):
            assert (key_x < key_y) == before
        else:
            assert key_x >= key_y or before
    assert exact == (codec.space not in ("text", "binary"))


@TYPES
@EACH
@given(data=st.data())
def test_the_code_of_a_value_is_the_one_it_was_encoded_to(type_, data):
    codecs = Codecs()
    codec = codecs.codec(type_)
    column, values = data.draw(columns(type_))
    codes = codec.encode(column).tolist()
    before = codecs.lengths()
    assert [codec.code_of(scalar) for scalar in column] == codes
    if not is_time(type_):
        assert [codec.code_of(value.as_py()) for value in column] == codes
    if not codec.ordered:
        unseen = data.draw(VALUES[type_])
        if canonical(unseen) not in values:
            assert codec.code_of(unseen) is None
    assert codec.code_of(None) == NULL
    assert codecs.lengths() == before


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int8(), 300),
        (pa.int64(), 2**63),
        (pa.int64(), -(2**63)),
        (pa.uint64(), 2**64 - 1),
        (pa.int64(), 1.5),
        (pa.int64(), "1"),
        (pa.int64(), pa.scalar("1")),
        (pa.float32(), 0.1),
        (pa.float64(), 2**53 + 1),
        (pa.decimal128(5, 2), Decimal("1.005")),
        (pa.decimal128(5, 2), Decimal("NaN")),
        (pa.timestamp("s"), datetime.datetime(2000, 1, 1, microsecond=1)),
        (pa.timestamp("s", "UTC"), datetime.datetime(2000, 1, 1)),
        (pa.string(), b"a"),
        (pa.string(), "\ud800"),
        (pa.binary(), "a"),
        (pa.dictionary(pa.int8(), pa.int64()), "a"),
        (pa.null(), 1),
        (pa.bool_(), 1),
    ],
    ids=str,
)
def test_what_no_row_can_hold_has_no_code(type_, value):
    codecs = Codecs()
    codec = codecs.codec(type_)
    if codec.space in ("text", "binary"):
        codec.encode(pa.array(["a" if codec.space == "text" else b"a"], type_))
    assert codec.code_of(value) is None


def test_python_values_have_the_codes_of_their_exact_equals():
    codecs = Codecs()
    assert codecs.codec(pa.int64()).code_of(1.0) == 1
    assert codecs.codec(pa.decimal64(5, 2)).code_of(3) == 300
    assert codecs.codec(pa.timestamp("ms")).code_of(datetime.datetime(1970, 1, 2)) == 86_400_000
    assert codecs.codec(pa.date64()).code_of(datetime.date(1970, 1, 2)) == 86_400_000
    assert codecs.codec(pa.float32()).code_of(-0.0) == codecs.codec(pa.float32()).code_of(0) == 0
    zoned = codecs.codec(pa.timestamp("s", "Asia/Tokyo"))
    assert zoned.code_of(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) == 0


@pytest.mark.parametrize("bits", NAN_BITS)
def test_every_nan_has_one_code_and_decodes_to_the_one_nan(bits):
    codec = Codecs().codec(pa.type_for_alias(f"float{bits}"))
    raw = np.array([NAN_BITS[bits]], f"u{bits // 8}").view(f"f{bits // 8}")
    column = pa.Array.from_buffers(codec.type, 1, [None, pa.py_buffer(raw)])
    codes = codec.encode(column)
    assert codes[0] == codec.code_of(math.nan)
    assert not np.signbit(codec.decode(codes).to_numpy())[0]


@pytest.mark.parametrize(
    ("one", "other", "shared"),
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
def test_types_share_codes_iff_they_share_a_space(one, other, shared):
    codecs = Codecs()
    assert (codecs.codec(one).space == codecs.codec(other).space) == shared


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
@given(st.lists(st.lists(TEXTS | st.none(), max_size=9), max_size=4))
def test_texts_have_codes_in_order_of_first_appearance(pieces):
    codec, model = Codecs().codec(pa.string()), {}
    codes = codec.encode(pa.chunked_array(pieces, pa.string())).tolist()
    assert codes == [
        NULL if text is None else model.setdefault(text, len(model))
        for piece in pieces
        for text in piece
    ]


def test_bytes_under_a_null_are_not_encoded():
    buffers = pa.array(["secret", "x"]).buffers()
    column = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x02"), *buffers[1:]])
    codecs = Codecs()
    assert codecs.codec(pa.string()).encode(column).tolist() == [NULL, 0]
    assert codecs.tables()["text"].to_pylist() == ["x"]


def test_numbers_under_a_null_do_not_matter():
    raw = pa.py_buffer(np.array([-(2**63), 7]))
    column = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), raw])
    assert Codecs().codec(pa.int64()).encode(column).tolist() == [NULL, 7]
    wide = pa.py_buffer(np.array([5, 5, 7, 0]))
    column = pa.Array.from_buffers(pa.decimal128(9, 0), 2, [pa.py_buffer(b"\x02"), wide])
    assert Codecs().codec(pa.decimal128(9, 0)).encode(column).tolist() == [NULL, 7]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1, -(2**63)]), "-9223372036854775808 of type int64 has no code"),
        (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615 of type uint64 has no code"),
        (pa.array([-(2**63), None]).view(pa.timestamp("us")), "has no code"),
        (
            pa.Array.from_buffers(
                pa.decimal128(3, 1), 1, [None, pa.py_buffer(np.array([1000, 0]))]
            ),
            r"value 100.0 has more digits than decimal128\(3, 1\)",
        ),
    ],
)
def test_values_without_a_code_are_refused(column, words):
    with pytest.raises(SchemaError, match=words):
        Codecs().codec(column.type).encode(column)


@pytest.mark.parametrize(
    ("type_", "code"),
    [
        (pa.int8(), 128),
        (pa.uint8(), -1),
        (pa.bool_(), 2),
        (pa.date32(), 2**31),
        (pa.float16(), 2**15),
        (pa.decimal32(5, 2), 100_000),
        (pa.string(), 0),
        (pa.string(), -1),
        (pa.decimal128(30, 2), 0),
        (pa.null(), 0),
    ],
    ids=str,
)
def test_codes_of_another_codec_are_refused(type_, code):
    with pytest.raises(SchemaError, match=f"code {code} is"):
        Codecs().codec(type_).decode(np.array([NULL, code]))


def test_values_that_do_not_fit_the_type_are_refused_when_decoded():
    codecs = Codecs()
    wide = codecs.codec(pa.decimal256(60, 2))
    codes = wide.encode(pa.array([Decimal(10) ** 50], wide.type))
    with pytest.raises(SchemaError, match="does not fit decimal128"):
        codecs.codec(pa.decimal128(30, 2)).decode(codes)
    codes = codecs.codec(pa.binary()).encode(pa.array([b"abc"]))
    with pytest.raises(SchemaError, match="3 bytes is not of type fixed_size_binary"):
        codecs.codec(pa.binary(2)).decode(codes)
    with pytest.raises(SchemaError, match="too many for the indices"):
        codecs.codec(pa.dictionary(pa.int8(), pa.int64())).decode(np.arange(200))


def test_an_array_of_another_type_is_refused():
    with pytest.raises(SchemaError, match="type int32 for the codec of int64"):
        Codecs().codec(pa.int64()).encode(pa.array([1], pa.int32()))


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.int8(), pa.int8()),
        pa.month_day_nano_interval(),
        pa.uuid(),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    ],
    ids=str,
)
def test_types_that_cannot_be_columns_are_refused(type_):
    with pytest.raises(SchemaError, match="no column can be of type"):
        Codecs().codec(type_)


@settings(LAW, max_examples=50)
@given(st.data())
def test_tables_go_out_in_pieces_and_make_a_copy(data):
    codecs, copy = Codecs(), Codecs()
    types = [pa.string(), pa.binary(2), pa.decimal128(30, 2), pa.decimal128(30, -1), pa.int64()]
    columns_ = []
    for _ in range(data.draw(st.integers(1, 4))):
        before = codecs.lengths()
        type_ = data.draw(st.sampled_from(types))
        small = {pa.int64(): st.integers(0, 3), pa.binary(2): st.binary(min_size=2, max_size=2)}
        numbers = decimals(28, type_.scale) if pa.types.is_decimal(type_) else TEXTS
        column = array(data.draw(st.lists(small.get(type_, numbers), max_size=6)), type_)
        columns_.append((column, codecs.codec(type_).encode(column).tolist()))
        copy.append(codecs.values_since(before))
        assert copy.lengths() == codecs.lengths()
    for column, codes in columns_:
        assert copy.codec(column.type).encode(column).tolist() == codes
    for name, values in codecs.tables().items():
        assert copy.tables()[name].equals(values)


def test_a_refused_append_adds_nothing():
    codecs = Codecs()
    codecs.codec(pa.string()).encode(pa.array(["known"]))
    before = codecs.tables()
    fresh = pa.array([b"fresh"], pa.large_binary())
    for bad, words in [
        ({"text": pa.array(["new", "known"], pa.large_string())}, "already"),
        ({"text": pa.array(["twice", "twice"], pa.large_string())}, "already"),
        ({"text": pa.array([None], pa.large_string())}, "1 NULL"),
        ({"text": pa.array(["short"])}, "type string"),
        ({"decimal x": pa.array(["short"])}, "no table 'decimal x'"),
        ({"text2": pa.array(["short"])}, "no table 'text2'"),
    ]:
        with pytest.raises(SchemaError, match=words):
            codecs.append({"binary": fresh, **bad})
        assert codecs.tables() == before
    with pytest.raises(SchemaError, match="has 1 values, not 2"):
        codecs.values_since({"text": 2})


def test_truncated_codes_are_given_again():
    codecs = Codecs()
    names = codecs.codec(pa.string())
    names.encode(pa.array(["a"]))
    before = codecs.lengths()
    names.encode(pa.array(["b", "c"]))
    codecs.truncate(before)
    assert names.code_of("b") is None
    assert names.encode(pa.array(["c", "a"])).tolist() == [1, 0]
