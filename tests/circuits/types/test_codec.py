"""Codecs against plain Python: dicts, comparisons and sorted() of the values themselves."""

from __future__ import annotations

import datetime
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.errors import SchemaError
from circuits.types.codecs.codec import NULL, Codec, Codecs
from tests.generators.arrow_columns import (
    TEXTS,
    VALUES,
    canonical,
    canonical_values,
    columns,
    is_time,
    sort_key,
)
from tests.generators.strategies import LAW

NAN_BITS = {16: 0xFE01, 32: 0xFF800001, 64: 0xFFF0000000000001}  # negative, signalling
TYPES = pytest.mark.parametrize("type_", VALUES, ids=str)
FEW_EXAMPLES = settings(LAW, max_examples=15)  # for each of 40 types


@TYPES
@FEW_EXAMPLES
@given(data=st.data())
def test_a_column_decodes_to_itself_in_its_own_type(type_, data):
    column, values = data.draw(columns(type_))
    codec = Codecs().codec(type_)
    codes = codec.encode(column)
    assert codes.dtype == np.int64 and codes.shape == (len(values),)
    decoded = codec.decode(codes)
    decoded.validate(full=True)
    assert decoded.type == type_ == codec.type
    assert canonical_values(decoded) == values
    assert [code == NULL for code in codes.tolist()] == [value is None for value in values]


@TYPES
@FEW_EXAMPLES
@given(data=st.data())
def test_codes_are_equal_iff_values_are_and_in_their_order_if_ordered(type_, data):
    codec = Codecs().codec(type_)
    pairs = []
    for _ in range(2):  # the second column repeats some values of the first
        column, values = data.draw(columns(type_))
        pairs += zip(values, codec.encode(column).tolist(), strict=True)
    for (x, code_x), (y, code_y) in product(pairs, pairs):
        assert (x == y) == (code_x == code_y)
        if codec.ordered and x is not None and y is not None:
            assert (sort_key(x) < sort_key(y)) == (code_x < code_y)


@TYPES
@FEW_EXAMPLES
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
            before = sort_key(x) > sort_key(y) if descending else sort_key(x) < sort_key(y)
        if exact or (x is None) != (y is None):
            assert (key_x < key_y) == before
        else:
            assert key_x >= key_y or before
    assert exact == (codec.code_space not in ("text", "binary"))


@TYPES
@FEW_EXAMPLES
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
        small = isinstance(unseen, Decimal) and abs(unseen) < 10**16  # the value is its own code
        if canonical(unseen) not in values and not small:
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
def test_a_value_that_no_column_can_contain_has_no_code(type_, value):
    codecs = Codecs()
    codec = codecs.codec(type_)
    if codec.code_space in ("text", "binary"):
        codec.encode(pa.array(["a" if codec.code_space == "text" else b"a"], type_))
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
    assert codecs.interners["text"].arena()[1].tobytes() == b"x"


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
        (pa.array([1, -(2**63)]), "-9223372036854775808 of type int64 cannot be encoded"),
        (
            pa.array([2**64 - 1], pa.uint64()),
            "18446744073709551615 of type uint64 cannot be encoded",
        ),
        (pa.array([-(2**63), None]).view(pa.timestamp("us")), "cannot be encoded"),
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
    with pytest.raises(
        SchemaError, match="the codec of int64 cannot encode an array of type int32"
    ):
        Codecs().codec(pa.int64()).encode(pa.array([1], pa.int32()))


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.uuid()),
        pa.list_view(pa.int8()),
        pa.struct([("a", pa.month_day_nano_interval())]),
        pa.map_(pa.int8(), pa.uuid()),
        pa.uuid(),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    ],
    ids=str,
)
def test_types_that_cannot_be_columns_are_refused(type_):
    with pytest.raises(SchemaError, match="a column cannot be of type"):
        Codecs().codec(type_)


def test_a_lookup_that_threads_share_never_returns_an_outdated_code(monkeypatch):
    names = Codecs().codec(pa.string())
    is_inside, may_return = threading.Event(), threading.Event()
    code_in = Codec._code_in
    waits = iter([False, True, False])

    def wait_in_second_call(codec, array):
        if next(waits):
            is_inside.set()
            assert may_return.wait(10)
        return code_in(codec, array)

    monkeypatch.setattr(Codec, "_code_in", wait_in_second_call)
    code_of_bob = names.lookup("bob")
    assert code_of_bob() is None
    (code,) = names.encode(pa.array(["bob"])).tolist()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(code_of_bob)
        assert is_inside.wait(10)
        try:
            assert code_of_bob() == code
        finally:
            may_return.set()
    assert first.result() == code
