"""``from_json``, casts of JSON and numbers of JSON, against DuckDB, Spark and PostgreSQL."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from functools import cache

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, EvaluationError, compile_sql
from circuits.errors import SqlError

UTC = dt.UTC
DATABASE = duckdb.connect(config={"threads": 1})
SCHEMA = {"t": pa.schema([("d", pa.string())])}
ERROR = "an error"


@cache
def circuit_of(expression: str, dialect: str) -> Circuit:
    return compile_sql(f"SELECT {expression} AS v FROM t", SCHEMA, dialect=dialect)


def value_of(expression: str, document: str, dialect: str = "duckdb"):
    """Return the value of an expression over d, with maps as dicts; or `ERROR`."""
    circuit = circuit_of(expression, dialect)
    try:
        step = circuit.prepare({"t": pa.table({"d": pa.array([document], pa.string())})})
    except EvaluationError:
        return ERROR
    table = step.outputs["view"]
    step.abandon()
    return as_dicts(table["v"].to_pylist()[0], table["v"].type)


def as_dicts(value, data_type):
    if value is None:
        return None
    if pa.types.is_map(data_type):
        return {key: as_dicts(part, data_type.item_type) for key, part in value}
    if pa.types.is_struct(data_type):
        return {field.name: as_dicts(value[field.name], field.type) for field in data_type}
    if pa.types.is_list(data_type):
        return [as_dicts(part, data_type.value_type) for part in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def in_duckdb(expression: str, document: str):
    query = f"SELECT {expression} FROM (SELECT ? AS d)"
    try:
        ((value,),) = DATABASE.execute(query, [document]).fetchall()
    except duckdb.Error:
        return ERROR
    return with_named_nan(value)


def with_named_nan(value):
    if isinstance(value, dict):
        return {name: with_named_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_named_nan(part) for part in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


SCALARS = [
    *("null", "true", "false", "0", "1", "-1", "42", "300", "3000000000", "12345678901"),
    *("0.5", "1.5", "-2.5", "4.7", "255.4", "0.005", "1.005", "1e2", "1e40", "19.90"),
    *("12345678901234567.89", '"42"', '"4.5"', '"-2.5"', '"1e3"', '"x"', '""', '"true"', '"t"'),
    *('"inf"', '"nan"', '"2020-01-01"', '"2020-1-5"', '"10:00:00"', '"aGk="', '"é"', '" 7 "'),
]
TYPES = ["INT", "UTINYINT", "BIGINT", "BOOLEAN", "DOUBLE", "FLOAT", "DECIMAL(5, 2)", "VARCHAR"]
TYPES += ["DECIMAL(38, 18)", "DECIMAL(20, 2)", "DATE", "TIME", "BLOB"]


@pytest.mark.parametrize("type_", TYPES)
def test_a_scalar_of_json_is_converted_as_in_duckdb(type_):
    for text in SCALARS:
        if (type_, text) == ("DATE", '"inf"'):  # not in Python
            continue
        document = f'{{"a": {text}}}'
        in_struct = f"""from_json(d, '{{"a": "{type_}"}}')"""
        assert value_of(in_struct, document) == in_duckdb(in_struct, document), text
        for cast in (f"d::JSON::STRUCT(a {type_})", f"TRY_CAST(d::JSON AS STRUCT(a {type_}))"):
            assert value_of(cast, document) == in_duckdb(cast, document), text
        for cast in (f"d::JSON::{type_}", f"TRY_CAST(d::JSON AS {type_})"):
            if type_ != "VARCHAR":
                assert value_of(cast, text) == in_duckdb(cast, text), text


parts = st.recursive(
    st.sampled_from(["null", "true", "1", "4.7", '"42"', '"x"']),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda texts: f"[{', '.join(texts)}]")
        | st.dictionaries(st.sampled_from(["a", "b", "1"]), inner, max_size=2).map(
            lambda members: "{" + ", ".join(f'"{k}": {v}' for k, v in members.items()) + "}"
        )
    ),
    max_leaves=5,
)
NESTED = {
    '{"a": "INT"}': "STRUCT(a INT)",
    '{"a": {"b": "INT"}}': "STRUCT(a STRUCT(b INT))",
    '["INT"]': "INT[]",
    '[["INT"]]': "INT[][]",
    '[{"a": "INT"}]': "STRUCT(a INT)[]",
    '"MAP(INT, INT)"': "MAP(INT, INT)",
    '"MAP(VARCHAR, VARCHAR)"': "MAP(VARCHAR, VARCHAR)",
    '{"a": "MAP(VARCHAR, INT)", "b": ["VARCHAR"]}': "STRUCT(a MAP(VARCHAR, INT), b VARCHAR[])",
}


@settings(max_examples=60)
@given(parts, st.sampled_from(sorted(NESTED)))
def test_nested_json_is_converted_as_in_duckdb(document, schema):
    call = f"from_json(d, '{schema}')"
    assert value_of(call, document) == in_duckdb(call, document)
    cast = f"d::JSON::{NESTED[schema]}"
    assert value_of(cast, document) == in_duckdb(cast, document)


def test_a_cast_of_json_names_the_part_that_does_not_fit():
    circuit = compile_sql("SELECT d::JSON::INT[] AS v FROM t", SCHEMA)
    with pytest.raises(EvaluationError, match='"x" in a JSON text is no int32'):
        circuit.step({"t": pa.table({"d": ['[1, "x"]']})})
    with pytest.raises(EvaluationError, match=r"\[2\] in a JSON text is no int32"):
        circuit.step({"t": pa.table({"d": ["[1, [2]]"]})})


def test_json_valid_takes_no_path_as_in_duckdb():
    with pytest.raises(duckdb.Error):
        DATABASE.execute("SELECT json_valid('{}', '$.a')")
    with pytest.raises(SqlError, match="json_valid"):
        compile_sql("SELECT json_valid(d, '$.a') AS v FROM t", SCHEMA)


def at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=UTC)


# Spark 4 computed the values: of a document and the schema of its only field a.
OF_SPARK = [
    ("12345678901", "DECIMAL(38, 18)", Decimal("12345678901.000000000000000000")),
    ("12345678901234567.89", "DECIMAL(20, 2)", Decimal("12345678901234567.89")),
    *(('"12.345"', "DECIMAL(20, 2)", Decimal("12.35")), ("123.45", "DECIMAL(4, 2)", None)),
    *(('"1.5"', "DOUBLE", None), ("1.0", "INT", None), ("true", "INT", None)),
    ("1", "BOOLEAN", None),
    *(('"NaN"', "DOUBLE", "NaN"), ("NaN", "DOUBLE", "NaN"), ('"nan"', "DOUBLE", None)),
    *((text, "DOUBLE", math.inf) for text in ('"Infinity"', '"+INF"', "+INF", "+Infinity")),
    *((text, "DOUBLE", -math.inf) for text in ('"-Infinity"', '"-INF"', "-INF", "-Infinity")),
    *(('"INF"', "DOUBLE", None), ('"-INF"', "STRING", "-INF"), ("3.4e39", "FLOAT", math.inf)),
    *((f'"{text}"', "DATE", dt.date(2020, 1, 5)) for text in ("2020-1-5", " 2020-01-05 ")),
    ('"2020-01-05 10:00:00"', "DATE", dt.date(2020, 1, 5)),
    *(('"2020-01"', "DATE", dt.date(2020, 1, 1)), ('"5"', "DATE", dt.date(1970, 1, 6))),
    *(('"x"', "DATE", None), ("5", "DATE", None)),
    ('"2020-01-01 10:00:00"', "TIMESTAMP", at(2020, 1, 1, 10)),
    ('"2020-1-5"', "TIMESTAMP", at(2020, 1, 5)),
    ('"2020-01-01T10:00:00+02:00"', "TIMESTAMP", at(2020, 1, 1, 8)),
    ('"2020-01-01 10:00:00 Europe/Berlin"', "TIMESTAMP", at(2020, 1, 1, 9)),
    ('"2020-01-01 10:00:00.1234567"', "TIMESTAMP", at(2020, 1, 1, 10, 0, 0, 123456)),
    *(("15", "TIMESTAMP", at(1970, 1, 1, 0, 0, 15)), ("1.5", "TIMESTAMP", None)),
    ('"2020-01-01 10:00:00"', "TIMESTAMP_NTZ", dt.datetime(2020, 1, 1, 10)),
    ('"2020-01-01T10:00:00Z"', "TIMESTAMP_NTZ", None),
    *(("12345678.9", "STRING", "1.23456789E7"), ('{"c": 1e2}', "STRING", '{"c":100.0}')),
    *(("0.0001", "STRING", "1.0E-4"), ("1.50", "STRING", "1.5"), ('"aGk="', "BINARY", b"hi")),
    ("'x\"y'", "STRING", 'x"y'),
    *(('[1, "x"]', "ARRAY<INT>", None), ("[1, null]", "ARRAY<INT>", [1, None])),
    *(('{"b": "x"}', "MAP<STRING, INT>", None), ('{"b": 1}', "MAP<STRING, INT>", {"b": 1})),
    *(("[1]", "STRUCT<b: STRING>", None), ('{"b": 1}', "STRUCT<b: STRING>", {"b": "1"})),
]


@pytest.mark.parametrize(("text", "type_", "expected"), OF_SPARK)
def test_a_field_of_from_json_is_that_of_spark(text, type_, expected):
    for document in (f'{{"a": {text}}}', f"{{'a': {text}}} and more"):
        assert value_of(f"from_json(d, 'a {type_}').a", document, "spark") == expected


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        *(('{"a": 12345678.9}', "$.a", "1.23456789E7"), ('{"a": 1.50}', "$.a", "1.5")),
        *(('{"a": 0.00001}', "$.a", "1.0E-5"), ('{"a": 1e400}', "$.a", '"Infinity"')),
        ('{"a": {"b": 12345678.9}}', "$.a", '{"b":1.23456789E7}'),
        ("[1.50, 12345678.9]", "$[*]", "[1.5,1.23456789E7]"),
        ('{"a": NaN}', "$.a", None),
    ],
)
def test_a_number_at_a_path_is_written_as_in_spark(document, path, expected):
    assert value_of(f"get_json_object(d, '{path}')", document, "spark") == expected


# PostgreSQL 16 computed the values.
OF_POSTGRES = [
    *(("d::jsonb ->> 'a'", "19.90", "19.90"), ("d::json ->> 'a'", "19.90", "19.90")),
    *(("d::json -> 'a'", "1.5e2", "1.5e2"), ("d::jsonb -> 'a'", "1.5e2", "150")),
    ("d::json ->> 'a'", "1.5E400", "1.5E400"),
    ("(d::jsonb ->> 'a')::decimal(20, 2)", "12345678901234567.89", Decimal("12345678901234567.89")),
    ("""d::jsonb @> '{"a": 12345678901234567.90}'::jsonb""", "12345678901234567.89", False),
    ("""d::jsonb @> '{"a": 1}'::jsonb""", "1.0", True),
    ("d::jsonb #>> '{a}'", "1.50", "1.50"),
]


@pytest.mark.parametrize(("expression", "number", "expected"), OF_POSTGRES)
def test_numbers_keep_their_digits_as_in_postgres(expression, number, expected):
    assert value_of(expression, f'{{"a": {number}}}', "postgres") == expected


@given(st.integers(-(10**30), 10**30), st.integers(0, 12))
def test_a_decimal_of_json_has_all_its_digits(digits, scale):
    number = Decimal(digits).scaleb(-scale)
    document = json.dumps({"a": 0}).replace("0", f"{number:f}")
    call = 'from_json(d, \'{"a": "DECIMAL(38, 12)"}\')'
    expected = number if abs(number) < 10**26 else None
    assert value_of(call, document) == {"a": expected}
