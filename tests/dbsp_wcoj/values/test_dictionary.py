"""Dictionaries against plain Python: lists, dicts and comparisons of the values themselves."""

from __future__ import annotations

import datetime
import math
import pickle
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbsp_wcoj.dictionary import Dictionary
from dbsp_wcoj.errors import ColumnTypeError
from tests.generators.strategies import LAW

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
TIMES = ["datetime64[D]", "datetime64[us]", "datetime64[ns]", "timedelta64[s]", "timedelta64[us]"]
BIT_CASTS = [*INTEGERS, *FLOATS, *TIMES, "bool"]

VALUES = {
    "str": st.text(max_size=3),
    "bytes": st.binary(max_size=2),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False) | st.just(Decimal("-0.00")),
}


def columns(kind: str, **size: int) -> st.SearchStrategy[np.ndarray]:
    elements = {"allow_nan": True} if kind in FLOATS else None
    dtype = np.dtype(kind)
    shape = st.integers(size.get("min_size", 0), size.get("max_size", 12))
    return hnp.arrays(dtype, shape, elements=hnp.from_dtype(dtype, **(elements or {})))


def rank(value: np.generic) -> tuple[bool, object]:
    """The order that codes promise: NaN after everything, else as Python compares."""
    number = value.astype(np.int64).item() if value.dtype.kind in "mM" else value.item()
    return (number != number, 0.0 if number != number else number)


@pytest.mark.parametrize("kind", BIT_CASTS)
@settings(LAW, max_examples=40)  # for each of 17 kinds
@given(data=st.data())
def test_bit_cast_codes_compare_as_the_values_compare(kind, data):
    column = data.draw(columns(kind))
    codes, valid = Dictionary(kind).encode(column)
    assert codes.dtype == np.int64 and valid.dtype == bool
    rows = [(rank(v), c) for v, c, ok in zip(column, codes.tolist(), valid, strict=True) if ok]
    for x, code_x in rows:
        for y, code_y in rows:
            assert (x < y) == (code_x < code_y) and (x == y) == (code_x == code_y)


@pytest.mark.parametrize("kind", BIT_CASTS)
@settings(LAW, max_examples=40)  # for each of 17 kinds
@given(data=st.data())
def test_a_bit_cast_column_decodes_to_itself_in_its_own_dtype(kind, data):
    column = data.draw(columns(kind))
    dictionary = Dictionary(kind)
    codes, valid = dictionary.encode(column)
    decoded = dictionary.decode(codes[valid])
    assert decoded.dtype == column.dtype == dictionary.dtype
    np.testing.assert_array_equal(decoded, column[valid])
    assert dictionary.ordered and len(dictionary) == 0
    np.testing.assert_array_equal(dictionary.lookup(column).codes, codes)


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_have_one_zero_and_one_nan_that_sorts_last(kind):
    bits = np.dtype(f"u{np.dtype(kind).itemsize}")
    all_ones = np.array([np.iinfo(bits).max], bits).view(kind)  # a negative NaN with a payload
    column = np.concatenate([np.array([-0.0, 0.0, np.inf, -np.inf, np.nan], kind), all_ones])
    dictionary = Dictionary(kind)
    codes = dictionary.encode(column).codes.tolist()
    assert codes[0] == codes[1] == 0
    assert codes[3] < codes[0] < codes[2] < codes[4] == codes[5]
    decoded = dictionary.decode(codes)
    assert not np.signbit(decoded[[0, 1, 4, 5]]).any()


def test_a_signalling_nan_is_the_one_nan():
    column = np.array([0x7FF0000000000001], np.uint64).view(np.float64)
    dictionary = Dictionary("float64")
    assert dictionary.encode(column).codes[0] == dictionary.constant(math.nan)


@pytest.mark.parametrize("kind", VALUES)
@settings(LAW)
@given(data=st.data())
def test_table_codes_are_equal_iff_values_are_and_never_change(kind, data):
    """Against a Python list of the distinct values in order of first appearance."""
    dictionary, distinct = Dictionary(kind), []
    for _ in range(data.draw(st.integers(1, 4))):
        column = data.draw(st.lists(VALUES[kind], max_size=8))
        for value in column:
            if value not in distinct:
                distinct.append(value)
        codes, valid = dictionary.encode(column)
        dictionary._table._check()
        assert codes.tolist() == [distinct.index(value) for value in column]
        assert valid.all()
        assert dictionary.decode(codes).tolist() == column
        assert dictionary.values_since(0).tolist() == distinct
        assert dictionary.lookup(distinct).codes.tolist() == list(range(len(distinct)))
        assert len(dictionary) == len(distinct)
    assert not dictionary.ordered


@pytest.mark.parametrize("kind", VALUES)
@settings(LAW)
@given(data=st.data())
def test_a_look_up_finds_what_was_encoded_and_adds_nothing(kind, data):
    known = data.draw(st.lists(VALUES[kind], max_size=6))
    asked = data.draw(st.lists(VALUES[kind] | st.none(), max_size=6))
    dictionary = Dictionary(kind)
    dictionary.encode(known)
    before = len(dictionary)
    codes, valid = dictionary.lookup(asked)
    assert len(dictionary) == before
    assert valid.tolist() == [value is not None and value in known for value in asked]
    assert not codes[~valid].any()
    for value, code, is_known in zip(asked, codes.tolist(), valid, strict=True):
        assert dictionary.constant(value) == (code if is_known else None)


@pytest.mark.parametrize("kind", VALUES)
@settings(LAW)
@given(data=st.data())
def test_a_failed_encode_adds_nothing(kind, data):
    dictionary = Dictionary(kind)
    dictionary.encode(data.draw(st.lists(VALUES[kind], max_size=4)))
    before = dictionary.values_since(0).tolist()
    poison = {
        "str": [b"", 1, 1.5, math.nan, "\ud800", ["list"]],
        "bytes": ["", 0, bytearray(b"x"), memoryview(b"x")],
        "decimal": [1, 1.5, "1", *map(Decimal, ["NaN", "sNaN", "Infinity", "-Infinity"])],
    }
    column = data.draw(st.lists(VALUES[kind], max_size=4))
    column.insert(data.draw(st.integers(0, len(column))), data.draw(st.sampled_from(poison[kind])))
    with pytest.raises(ColumnTypeError):
        dictionary.encode(column)
    assert dictionary.values_since(0).tolist() == before
    dictionary._table._check()
    fresh = dictionary.encode(data.draw(st.lists(VALUES[kind], max_size=4))).codes
    assert all(code <= len(dictionary) for code in fresh.tolist())
    dictionary._table._check()


@settings(LAW)
@given(st.lists(st.lists(st.text(max_size=2), max_size=4), max_size=4))
def test_segments_of_values_and_pickles_rebuild_the_same_codes(steps):
    dictionary, rebuilt, kept = Dictionary("str"), Dictionary("str"), 0
    for column in steps:
        dictionary.encode(column)
        rebuilt.append(dictionary.values_since(kept))
        kept = len(dictionary)
    for copy in (rebuilt, pickle.loads(pickle.dumps(dictionary))):
        copy._table._check()
        assert copy.kind == "str"
        assert copy.values_since(0).tolist() == dictionary.values_since(0).tolist()


@pytest.mark.parametrize("segment", [["b", "a"], ["b", "b"], ["b", None], ["b", 1]])
def test_a_segment_that_is_not_all_new_values_is_refused_whole(segment):
    dictionary = Dictionary("str")
    dictionary.encode(["a"])
    with pytest.raises(ColumnTypeError):
        dictionary.append(segment)
    assert dictionary.values_since(0).tolist() == ["a"]


def test_bit_casts_have_no_values_to_keep():
    dictionary = pickle.loads(pickle.dumps(Dictionary("datetime64[us]")))
    dictionary.append(dictionary.values_since(0))
    assert dictionary.kind == "datetime64[us]"
    with pytest.raises(ColumnTypeError, match="append none"):
        dictionary.append([1])
    with pytest.raises(ColumnTypeError, match="from 0 to 0"):
        dictionary.values_since(1)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int64", [None, 7]),
        ("int64", np.ma.MaskedArray([99, 7], mask=[True, False])),
        ("uint8", np.ma.MaskedArray([999, 7], mask=[True, False])),  # what is masked need not fit
        ("bool", [None, True]),
        ("float64", [None, math.nan]),
        ("datetime64[s]", np.array(["NaT", "2024-01-01"], "M8[s]")),
        ("datetime64[D]", np.array(["NaT", "2024-01-01"], "M8[us]")),
        ("datetime64[us]", [np.datetime64("NaT"), datetime.datetime(2024, 1, 1)]),
        ("timedelta64[s]", [np.timedelta64("NaT"), datetime.timedelta(days=1)]),
        ("str", [None, "x"]),
        ("str", np.ma.MaskedArray(["y", "x"], mask=[True, False])),
        ("str", np.array([None, "x"], np.dtypes.StringDType(na_object=None))),
        ("str", np.array([math.nan, "x"], np.dtypes.StringDType(na_object=math.nan))),
        ("bytes", np.array([None, b"x"], object)),
        ("decimal", [None, Decimal(7)]),
    ],
)
def test_null_has_code_zero_is_masked_and_decodes_masked(kind, column):
    dictionary = Dictionary(kind)
    codes, valid = dictionary.encode(column)
    assert valid.tolist() == [False, True] and codes[0] == 0
    decoded = dictionary.decode(codes, valid)
    assert np.ma.getmaskarray(decoded).tolist() == [True, False]
    again = dictionary.encode(decoded)
    assert again.codes.tolist() == codes.tolist() and again.valid.tolist() == [False, True]
    assert dictionary.lookup(column).valid.tolist() == [False, True]
    assert dictionary.constant(None) is None


def test_a_column_of_nulls_adds_nothing():
    for kind in [*BIT_CASTS, *VALUES]:
        dictionary = Dictionary(kind)
        codes, valid = dictionary.encode([None, None])
        assert codes.tolist() == [0, 0] and not valid.any() and len(dictionary) == 0
        assert dictionary.decode(codes, valid).mask.all()
        assert len(dictionary.decode(dictionary.encode([]).codes)) == 0
        assert len(dictionary.encode(np.array([])).codes) == 0


@pytest.mark.parametrize("bad", [[2**63], [-(2**63) - 1], [2**70], np.array([2**63], np.uint64)])
def test_an_integer_beyond_the_kind_is_refused_and_known_to_no_row(bad):
    dictionary = Dictionary("int64")
    with pytest.raises(ColumnTypeError, match=r"value -?\d+ in row 0 does not fit int64"):
        dictionary.encode(bad)
    assert dictionary.lookup(bad).valid.tolist() == [False]


@settings(LAW)
@given(
    st.sampled_from(INTEGERS),
    st.sampled_from([*INTEGERS, "float64", "float32", "float16"]),
    st.data(),
)
def test_an_integer_fits_iff_the_kind_can_hold_it_exactly(source, kind, data):
    """Against Python, whose integers and floats compare exactly; arrays and lists agree."""
    column = data.draw(columns(source))
    dtype = np.dtype(kind)
    expected = []
    for value in column.tolist():
        with np.errstate(over="ignore"):
            held = value if dtype.kind in "iu" else np.array([float(value)]).astype(dtype).item()
        info = np.iinfo(dtype) if dtype.kind in "iu" else None
        expected.append(info.min <= value <= info.max if info else held == value)
    dictionary = Dictionary(kind)
    for given_column in (column, column.tolist(), column.astype(object), list(column)):
        codes, valid = dictionary.lookup(given_column)
        assert valid.tolist() == expected
        assert dictionary.decode(codes[valid]).tolist() == column[valid].tolist()
    if all(expected):
        assert dictionary.encode(column).codes.tolist() == codes.tolist()
    else:
        with pytest.raises(ColumnTypeError, match=f"row {expected.index(False)} does not fit"):
            dictionary.encode(iter(column))


@settings(LAW)
@given(columns("float64"))
def test_a_float_fits_a_narrower_kind_iff_it_survives_the_way_there_and_back(column):
    with np.errstate(over="ignore"):
        narrow = column.astype("float32")
    same = (narrow.astype("float64") == column) | np.isnan(column)
    codes, valid = Dictionary("float32").lookup(column)
    assert valid.tolist() == same.tolist()
    assert codes[valid].tolist() == Dictionary("float32").encode(narrow[same]).codes.tolist()
    assert Dictionary("float32").lookup(column.tolist()).valid.tolist() == same.tolist()


@settings(LAW)
@given(st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from("Dsu"), st.sampled_from("Dsu"))
def test_a_time_fits_another_unit_iff_it_is_a_whole_number_of_it_in_range(count, source, unit):
    per_day = {"D": 1, "s": 86_400, "u": 86_400_000_000}
    units = {"D": "D", "s": "s", "u": "us"}
    exact, rest = divmod(count * per_day[unit], per_day[source])
    fits = rest == 0 and abs(exact) < 2**63
    for name in ("datetime64", "timedelta64"):
        dictionary = Dictionary(f"{name}[{units[unit]}]")
        column = np.array([count], np.int64).view(f"{name}[{units[source]}]")
        for given_column in (column, list(column)):
            codes, valid = dictionary.lookup(given_column)
            assert valid.tolist() == [fits]
            assert codes.tolist() == [exact if fits else 0]


@settings(LAW)
@given(st.datetimes(), st.dates(), st.timedeltas())
def test_python_dates_times_and_durations_are_held_exactly_or_not_at_all(moment, day, span):
    epoch, micro = datetime.datetime(1970, 1, 1), datetime.timedelta(microseconds=1)
    times = Dictionary("datetime64[us]")
    midnight = datetime.datetime.combine(day, datetime.time())
    codes = times.encode([moment, None, day]).codes.tolist()
    assert codes == [(moment - epoch) // micro, 0, (midnight - epoch) // micro]
    assert Dictionary("datetime64[D]").encode([day]).codes[0] == (midnight - epoch).days
    count = span // micro
    assert Dictionary("timedelta64[us]").constant(span) == (count if abs(count) < 2**63 else None)
    whole = None if count % 1_000_000 else count // 1_000_000
    if abs(count) < 2**63 or whole is not None:
        assert Dictionary("timedelta64[s]").constant(span) == whole


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int64", [1, "a"]),
        ("int64", [1, True]),
        ("int64", np.array([True])),
        ("int64", [1.0]),
        ("int64", np.array([1.0])),
        ("int64", np.array(["1"])),
        ("int64", np.array([[1]])),
        ("int64", np.array(1)),
        ("int64", 1),
        ("bool", [0]),
        ("bool", np.array([0])),
        ("float64", [1.5, True]),
        ("float64", ["1.5"]),
        ("float64", [Decimal("1.5")]),
        ("float64", np.array([1 + 1j])),
        ("float64", np.array([1.5], np.longdouble)),
        ("datetime64[us]", np.array([1], "m8[us]")),
        ("datetime64[us]", [1]),
        ("datetime64[us]", [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)]),
        ("datetime64[us]", [datetime.timedelta(1)]),
        ("timedelta64[D]", [datetime.date(2024, 1, 1)]),
        ("str", "abc"),
        ("str", ["a", b"a"]),
        ("str", np.array([b"a"])),
        ("bytes", b"abc"),
        ("bytes", np.array(["a"])),
        ("decimal", np.array([1.5])),
    ],
)
def test_values_of_another_type_are_refused_with_a_way_out(kind, column):
    for operation in (Dictionary(kind).encode, Dictionary(kind).lookup):
        with pytest.raises(ColumnTypeError, match=r"; (give|convert)"):
            operation(column)


def test_durations_without_a_fixed_length_fit_no_other_unit():
    days = Dictionary("timedelta64[D]")
    assert days.lookup(np.array([1], "m8[Y]")).valid.tolist() == [False]
    assert days.lookup(np.array([1], "m8")).valid.tolist() == [False]


@pytest.mark.parametrize(
    "kind", ["complex128", "longdouble", "datetime64", "object", object, None, "text", "V4"]
)
def test_a_kind_that_does_not_exist_is_refused(kind):
    with pytest.raises(ColumnTypeError, match="no dictionary of kind"):
        Dictionary(kind)


def test_kinds_have_one_name_however_they_are_given():
    given_kinds = [np.int64, "i8", ">i8", int, np.dtype("longlong")]
    assert {Dictionary(kind).kind for kind in given_kinds} == {"int64"}
    assert {Dictionary(kind).kind for kind in [str, "U5", np.dtypes.StringDType()]} == {"str"}
    assert {Dictionary(kind).kind for kind in [bytes, "S5"]} == {"bytes"}
    assert Dictionary(Decimal).kind == "decimal"
    for kind in [*BIT_CASTS, *VALUES]:
        assert Dictionary(kind).kind == kind
        assert kind in repr(Dictionary(kind))


def test_byte_order_widths_and_subclasses_do_not_change_codes():
    assert Dictionary("int64").encode(np.array([1, -2], ">i4")).codes.tolist() == [1, -2]
    times = np.array([5], ">M8[us]")
    assert Dictionary("datetime64[us]").encode(times).codes.tolist() == [5]
    floats = np.array([1.5], ">f8")
    assert Dictionary("float64").encode(floats).codes == Dictionary("float64").constant(1.5)
    names = Dictionary("str")
    for column in (["é"], np.array(["é"]), np.array(["é"], object), [np.str_("é")]):
        assert names.encode(column).codes.tolist() == [0]
    assert names.encode(np.array(["é"], np.dtypes.StringDType())).codes.tolist() == [0]
    names.encode([np.str_("new")])
    assert {type(value) for value in names.values_since(0)} == {str}


def test_decimals_decode_without_trailing_zeros_whichever_came_first():
    for first in ("100.00", "1E+2", "100"):
        dictionary = Dictionary("decimal")
        dictionary.encode([Decimal(first), Decimal("-0.0"), Decimal("1.50")])
        assert [str(value) for value in dictionary.values_since(0)] == ["100", "0", "1.5"]
    digits = "9" * 60 + ".5"
    assert Dictionary("decimal").constant(Decimal(digits)) is None
    dictionary.encode([Decimal(digits), Decimal("1E+999999")])
    assert [str(value) for value in dictionary.values_since(3)] == [digits, "1E+999999"]


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("str", [1]),
        ("str", [-1]),
        ("uint8", [256]),
        ("int8", [-129]),
        ("bool", [2]),
        ("float32", [2**31]),
        ("int64", [0.5]),
        ("int64", [[0]]),
        ("int64", np.array([0], np.uint64)),
    ],
)
def test_a_code_that_was_never_given_does_not_decode(kind, codes):
    dictionary = Dictionary(kind)
    if kind == "str":
        dictionary.encode(["a"])
    with pytest.raises(ColumnTypeError):
        dictionary.decode(codes)


def test_a_mask_of_another_length_is_refused():
    with pytest.raises(ColumnTypeError, match="mask"):
        Dictionary("int64").decode([1, 2], np.array([True]))


def test_int64_and_time_columns_are_encoded_and_decoded_without_a_copy():
    for column in (np.arange(5), np.arange(5).view("M8[us]")):
        dictionary = Dictionary(column.dtype)
        codes, _ = dictionary.encode(column)
        assert np.shares_memory(codes, column)
        assert np.shares_memory(dictionary.decode(codes), codes)


def test_what_is_decoded_can_be_written_to_without_harm():
    dictionary = Dictionary("str")
    codes, _ = dictionary.encode(["a", "b"])
    dictionary.decode(codes)[0] = "x"
    dictionary.values_since(0)[0] = "x"
    assert dictionary.decode(codes).tolist() == ["a", "b"]
