"""Columns written as JSON, for any layout of arrays: as DuckDB writes them, and part by part."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import FrameType
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from circuits.types.arrow_types import is_nested
from circuits.types.functions.nested import json_columns, json_texts, spark_json

TEXTS = st.text('ab"\\\n\x00\x7fä\u2028\U00010000', max_size=3)
SCALARS: dict[pa.DataType, st.SearchStrategy] = {
    pa.int8(): st.integers(-3, 3),
    pa.uint64(): st.sampled_from([0, 2**64 - 2]),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, 1e21, 1e-7, 0.1]),
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.binary(): st.binary(max_size=3),
    pa.decimal128(9, 2): st.decimals(-9, 9, places=2),
    pa.date32(): st.sampled_from([date(1, 1, 1), date(2020, 2, 29)]),
    pa.time64("us"): st.sampled_from([time(0), time(1, 2, 3, 4)]),
    pa.timestamp("us"): st.sampled_from([datetime(2020, 1, 2), datetime(1969, 1, 1, 0, 0, 0, 5)]),
    pa.timestamp("us", "UTC"): st.sampled_from([datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)]),
    pa.null(): st.none(),
}
KEYS = [pa.string(), pa.int8(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.bool_()]


@st.composite
def typed_values(draw, depth=2):
    """Return a type, and a strategy of its values with NULL."""
    kind = draw(st.sampled_from(["scalar", "list", "large", "fixed", "struct", "map"]))
    if kind == "scalar" or depth == 0:
        type_ = draw(st.sampled_from(list(SCALARS)))
        return type_, st.none() | SCALARS[type_]
    if kind == "struct":
        fields = draw(st.lists(typed_values(depth=depth - 1), max_size=3))
        names = ['a"', "b", "c"][: len(fields)]
        struct = pa.struct([(name, type_) for name, (type_, _) in zip(names, fields, strict=True)])
        parts = {name: values for name, (_, values) in zip(names, fields, strict=True)}
        return struct, st.none() | st.fixed_dictionaries(parts)
    type_, values = draw(typed_values(depth=depth - 1))
    if kind == "map":
        key = draw(st.sampled_from(KEYS))
        entries = st.lists(
            st.tuples(SCALARS[key], values), max_size=2, unique_by=lambda entry: str(entry[0])
        )
        return pa.map_(key, type_), st.none() | entries
    if kind == "fixed":
        return pa.list_(type_, 2), st.none() | st.lists(values, min_size=2, max_size=2)
    make = pa.list_ if kind == "list" else pa.large_list
    return make(type_), st.none() | st.lists(values, max_size=3)


@st.composite
def arrays(draw):
    """Return an array, which may be a slice, and whose NULLs may have values below them."""
    type_, values = draw(typed_values())
    rows = draw(st.lists(values, max_size=6))
    try:
        array = pa.array(rows, type_)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # Arrow cannot make such arrays
        return pa.nulls(len(rows), type_)
    start = draw(st.integers(0, len(rows)))
    return array.slice(start, draw(st.integers(0, len(rows) - start)))


@pytest.fixture(scope="module")
def database():
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


@given(arrays())
@settings(max_examples=150, deadline=None)
def test_a_column_has_the_texts_of_duckdb(database, array):
    database.register("rows", pa.table({"value": array}))
    try:
        texts = database.execute("SELECT to_json(value)::VARCHAR FROM rows").fetchall()
    except duckdb.InvalidInputException:  # a struct without fields, or two equal keys of a map
        assume(False)
    assert write(json_texts, "to_json", array) == [text for (text,) in texts]


@given(arrays())
@settings(max_examples=150, deadline=None)
def test_a_column_has_the_texts_of_its_parts_in_the_style_of_spark(array):
    assert write(spark_json, "to_json_without_null", array) == [
        None if value is None else spark_json_of(value, array.type) for value in array.to_pylist()
    ]


def spark_json_of(value, type_):
    """Write a nested value; only its scalars and keys are written by the kernel."""
    if value is None:
        return "null"
    if pa.types.is_struct(type_):
        fields = [field for field in type_ if value[field.name] is not None]
        texts = [
            f"{spark_json_of(field.name, pa.string())}:"
            f"{spark_json_of(value[field.name], field.type)}"
            for field in fields
        ]
        return f"{{{','.join(texts)}}}"
    if pa.types.is_map(type_):
        texts = [
            f"{spark_key(key, type_)}:{spark_json_of(item, type_.item_type)}" for key, item in value
        ]
        return f"{{{','.join(texts)}}}"
    if is_nested(type_):
        return f"[{','.join(spark_json_of(item, type_.value_type) for item in value)}]"
    (text,) = write(spark_json, "to_json_without_null", pa.array([value], type_))
    return text


def spark_key(key, type_):
    single = pa.array([[(key, None)]], pa.map_(type_.key_type, pa.null()))
    (text,) = write(spark_json, "to_json_without_null", single)
    return text.removeprefix("{").removesuffix(":null}")


def write(module, name, array):
    (function,) = (function for function in module.FUNCTIONS if function.name == name)
    return function.kernel([array], pa.string()).to_pylist()


def test_dictionaries_and_scalars_are_written():
    array = pa.array(["a", None, "b", "a"]).dictionary_encode()
    assert write(json_texts, "to_json", array) == ['"a"', None, '"b"', '"a"']
    assert write(json_texts, "to_json", pa.scalar([1, None])) == ["[1,null]"]


def test_lists_of_a_fixed_size_contain_lists_without_a_type():
    array = pa.array([[None, [None] * 3]], pa.list_(pa.list_(pa.null()), 2))
    assert write(json_texts, "to_json", array) == ["[null,[null,null,null]]"]


def test_values_below_a_null_are_not_written():
    child = pa.array([1, 2, 3], pa.int8())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3]), child, mask=pa.array([True, False]))
    assert write(json_texts, "to_json", lists) == [None, "[3]"]
    structs = pa.StructArray.from_arrays([child], ["a"], mask=pa.array([False, True, False]))
    assert write(json_texts, "to_json", structs) == ['{"a":1}', None, '{"a":3}']


@pytest.mark.parametrize("module", [json_texts, spark_json])
def test_python_sees_distinct_values_only(module):
    rows = [
        {"n": n, "x": [0.5, n % 3 / 2], "s": f"text {n}", "d": Decimal(n % 2)} for n in range(999)
    ]
    type_ = pa.struct(
        {"n": pa.int64(), "x": pa.list_(pa.float64()), "s": pa.string(), "d": pa.decimal128(5, 0)}
    )
    array, calls = pa.array(rows, type_), []
    counted = json_columns.JsonStyle.of_values(
        lambda value, type_: calls.append(value) or module._write_scalar(value, type_),
        lambda key, type_: str(key),
        keeps_null_fields=True,
    )
    with mock.patch.object(json_columns.json, "dumps", wraps=json_columns.json.dumps) as dumps:
        json_columns.json_column(array, counted)
    assert len(calls) == 5  # three floats and two decimals
    assert dumps.call_count == 4  # the names of the fields


def test_a_date_that_python_cannot_represent_is_an_arrow_error():
    days = pa.array([10**8], pa.int32()).view(pa.date32())
    with pytest.raises(pa.ArrowInvalid, match="outside of the years 1 to 9999"):
        write(json_texts, "to_json", days)


@pytest.mark.parametrize("rules", ["DUCKDB_RULES", "POSTGRES_RULES", "SPARK_RULES"])
def test_no_python_function_is_called_per_integer_of_a_text(rules):
    text = f"[{', '.join(map(str, range(10_000)))}]"
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        value = json_texts.parse_json(text, getattr(json_texts, rules))
    finally:
        sys.setprofile(None)
    assert value == list(range(10_000)) and calls < 100


@pytest.mark.parametrize("blanks", range(25))
@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_any_length_keeps_its_digits(blanks, sign):
    digits = f"{sign}1{'0' * 641}"
    (value,) = json_texts.parse_json(f"[{' ' * blanks}{digits}]", json_texts.DUCKDB_RULES)
    assert json_texts.text_of(value) == digits and isinstance(value, float)
