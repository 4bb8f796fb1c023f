"""All casts, of the extremes of all types, near ties and texts of every kind, against DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import EvaluationError, SqlError
from circuits.plan.expressions import Column
from circuits.runtime.evaluation import evaluate
from circuits.types.functions import call
from tests.generators.cast_cases import TEXTS, TYPES, cast_pairs, column, deviates, python_values

FAILS = "fails"
PAIRS = [pair for pair in cast_pairs() if pair[0] != pair[1]]
# Each source and each target a few times; the others are compared by the slow test.
SOME = [pair for number, pair in enumerate(PAIRS) if number % 5 == 0 or pair[0] == "VARCHAR"]


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def values_of(source: str, target: str) -> pa.Array:
    if source == "VARCHAR":
        return pa.array([*dict.fromkeys(TEXTS[target]), None], pa.string())
    return column(source)


def differences(duck: Any, source: str, target: str) -> list[Any]:
    values = values_of(source, target)
    duck.register("given", pa.table({"a": values}))
    text = f"SELECT TRY_CAST(a AS {target}) AS x FROM given"
    theirs = duck.sql(text).to_arrow_table()["x"].combine_chunks().cast(TYPES[target])
    cast = call("try_cast", Column(0, values.type), type=TYPES[target])
    ours = evaluate(cast, [values], len(values))
    ours.validate(full=True)
    return [
        triple
        for triple in zip(
            python_values(values), python_values(ours), python_values(theirs), strict=True
        )
        if triple[1] != triple[2] and not deviates(source, target, triple[0], triple[1])
    ]


@pytest.mark.parametrize(("source", "target"), SOME)
def test_a_cast_has_the_result_of_duckdb(duck, source, target):
    assert differences(duck, source, target) == []


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), sorted(set(PAIRS) - set(SOME)))
def test_every_cast_has_the_result_of_duckdb(duck, source, target):
    assert differences(duck, source, target) == []


def strictly(values: pa.Array, target: pa.DataType) -> list[Any]:
    """The values of CAST, FAILS where it raises the one error that it may raise."""
    try:
        return python_values(
            evaluate(call("cast", Column(0, values.type), type=target), [values], len(values))
        )
    except EvaluationError:
        if len(values) == 1:
            return [FAILS]
    half = len(values) // 2
    return strictly(values[:half], target) + strictly(values[half:], target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *[
            ("BIGINT", "DECIMAL(38,29)"),
            ("VARCHAR", "DECIMAL(38,29)"),
            ("DOUBLE", "DECIMAL(18,18)"),
        ],
        *[("DECIMAL(38,0)", "DECIMAL(38,38)"), ("DATE", "TIMESTAMP_NS"), ("VARCHAR", "BOOLEAN")],
        *[("TIMESTAMP", "TIME"), ("TIMESTAMP_S", "TIMESTAMP_NS"), ("VARCHAR", "BIGINT")],
    ],
)
def test_cast_fails_with_a_typed_error_exactly_where_try_cast_is_null(source, target):
    values, data_type = values_of(source, target), TYPES[target]
    tried = python_values(
        evaluate(call("try_cast", Column(0, values.type), type=data_type), [values], len(values))
    )

    strict_values = strictly(values, data_type)

    for value, strict, lenient in zip(python_values(values), strict_values, tried, strict=True):
        assert strict == (FAILS if lenient is None and value is not None else lenient), value


@pytest.mark.parametrize("target", ["DATE", "TIMESTAMP", "TIMESTAMP_NS", "TIME"])
def test_the_error_of_cast_names_a_text_that_is_no_date_or_time(target):
    for text in ["2020-01-01 garbage", "2020-13-01", "x", "9999999-01-01 00:00", "12:60"]:
        values = pa.array([None, "2020-01-01 00:00", text])
        assert strictly(values, TYPES[target])[2:] == [FAILS]
        with pytest.raises(EvaluationError, match=f"'{text}'"):
            evaluate(call("cast", Column(0, pa.string()), type=TYPES[target]), [values], 3)


NUMBERS = {"e": pa.schema([("n", pa.int64()), ("s", pa.string()), ("d", pa.date32())])}


def answer(text: str, **columns: Any) -> list[Any]:
    """The column ``x`` of a query over one row, as text."""
    row = {"n": [1], "s": ["a"], "d": pa.array([0], pa.int32()).view(pa.date32())} | columns
    table = compile_sql(text, NUMBERS).step({"e": pa.table(row)})["view"]
    return python_values(table["x"].combine_chunks())


@pytest.mark.parametrize("value", ["n", "s"])
def test_a_value_that_does_not_fit_a_decimal_of_38_digits_is_an_error_and_never_wraps(value):
    for text in (f"CAST({value} AS DECIMAL(38,29))", f"{value}::DECIMAL(38, 29)"):
        with pytest.raises(EvaluationError):
            answer(f"SELECT {text} AS x FROM e", n=[4294967295], s=["4294967295"])
    for literal in ("4294967295", "'4294967295'", "4294967295.0", "-4294967296"):
        with pytest.raises(SqlError, match="decimal128"):
            answer(f"SELECT CAST({literal} AS DECIMAL(38,29)) AS x FROM e")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DATE '20000-01-01'", 6585322),
        ("DATE '-44-03-15'::VARCHAR", "0045-03-15 (BC)"),
        ("DATE '0044-03-15 (BC)' + 1", -735159),
        ("DATE 'infinity'", 2**31 - 1),
        ("'infinity'::TIMESTAMP::DATE::VARCHAR", "infinity"),
        ("TIMESTAMP '20000-01-01 10:00:00'::DATE", 6585322),
        ("TRY_CAST('5881580-07-11' AS DATE)", None),
        ("d < DATE '20000-01-01'", True),
        ("d < '20000-01-01'", True),
        ("d BETWEEN '-5000-01-01' AND '20000-01-01'", True),
        ("CASE WHEN n = 1 THEN DATE '20000-01-01' ELSE d END", 6585322),
        ("coalesce(DATE '20000-01-01', d)", 6585322),
        ("date_diff('year', DATE '1970-01-01', DATE '20000-01-01')", 18030),
        ("'2020-01-01 00:00:00.123456789'::TIMESTAMP_NS", 1577836800123456789),
    ],
)
def test_a_constant_may_be_a_date_that_python_cannot_represent(duck, text, expected):
    assert answer(f"SELECT {text} AS x FROM e") == [expected]
    rows = "(SELECT 1 AS n, DATE '1970-01-01' AS d)"
    ((shown,),) = duck.sql(f"SELECT ({text})::VARCHAR FROM {rows}").fetchall()
    assert answer(f"SELECT ({text})::VARCHAR AS x FROM e") == [shown]


def test_an_error_shows_a_date_that_python_cannot_represent():
    far = pa.array([2932897], pa.int32()).view(pa.date32())
    with pytest.raises(EvaluationError, match=r"'10000-01-01'.*timestamp"):
        answer("SELECT d::TIMESTAMP_NS AS x FROM e", d=far)
    with pytest.raises(EvaluationError, match="'10000-01-01 00:00:00'"):
        answer("SELECT date_trunc('day', d) + INTERVAL 9000000 MONTHS AS x FROM e", d=far)


@pytest.mark.parametrize(
    "text",
    [
        "year(DATE 'infinity')",
        "hour(TIMESTAMP '-infinity')",
        "date_trunc('year', DATE 'infinity')",
        "DATE 'infinity' + INTERVAL 1 DAY",
        "DATE '-infinity' - INTERVAL 1 MONTH",
        "DATE 'infinity' + 1",
        "DATE '-infinity' - 100",
        "date_diff('day', DATE 'infinity', d)",
        "date_diff('month', d, DATE '-infinity')",
        "month(DATE '-44-03-15')",
        "date_trunc('week', DATE '-44-03-15')",
        "DATE '20000-05-01' + INTERVAL 1 MONTH",
        "DATE '20000-05-01' - DATE '-44-03-15'",
        "greatest(DATE '20000-01-01', d)",
        "TRY_CAST(TIMESTAMP 'infinity' AS TIME)",
    ],
)
def test_functions_of_infinite_and_far_dates_have_the_results_of_duckdb(duck, text):
    rows = "(SELECT DATE '1970-01-01' AS d)"
    ((shown,),) = duck.sql(f"SELECT ({text})::VARCHAR FROM {rows}").fetchall()
    assert answer(f"SELECT ({text})::VARCHAR AS x FROM e") == [shown]


def test_a_sum_of_a_date_and_days_is_never_an_infinity():
    for text in ("DATE '5881580-07-10' + 1", "DATE '5881580-07-10' + 2", "d + 2147483647"):
        with pytest.raises(EvaluationError):
            answer(f"SELECT {text} AS x FROM e")
