"""Scalar functions of both dialects over edge values, with DuckDB and Spark as oracles.

All expressions of a dialect are columns of one view, compared after an insert and after a delete.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import EvaluationError, SqlError, UnsupportedSqlError
from circuits.sql.expressions.named_functions import merge_tables

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("p", pa.string()),
        ("i", pa.int64()),
        ("j", pa.int64()),
        ("f", pa.float64()),
        ("m", pa.decimal128(9, 2)),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("ts2", pa.timestamp("us")),
    ]
)
COLUMNS = SCHEMA.names
CONVERSIONS: list[Any] = [
    *(int, str, str, int, int, float, Decimal),
    *(dt.date.fromisoformat, dt.datetime.fromisoformat, dt.datetime.fromisoformat),
]
CELLS = [
    (0, "Hello World", "o", 5, 3, 2.5, "12.35", "2024-02-29", "2024-02-29T13:45:30.123456",
     "2023-01-31"),
    (1, "", "", 0, 1, 0.0, "0.00", "1970-01-01", "1970-01-01", "1970-01-01T00:00:01"),
    (2, "häuser_日本%x", "ä", -17, 5, -1.5, "-7.05", "1969-12-31",
     "1969-12-31T23:59:59.999999", "2000-02-29"),
    (3, None, None, None, None, None, None, None, None, None),
    (4, "a,b,,c", ",", 255, 2, 0.125, "1234.50", "2000-12-31",
     "2000-12-31T01:02:03", "2001-01-01T01:02:03"),
    (5, "100-200 foo", "\\d+", 12, 4, 1e10, "0.50", "2021-01-03",
     "2021-01-03T12:00", "2021-03-31T11:59"),
    (6, "Tom's 'x'", "x", -3, 7, -0.75, "-0.01", "2010-07-04",
     "2010-07-04T04:05:06", "2011-07-03T04:05:06"),
]  # fmt: skip
ROWS = [
    tuple(
        None if item is None else convert(item)
        for item, convert in zip(row, CONVERSIONS, strict=True)
    )
    for row in CELLS
]


def expressions(name: str) -> list[str]:
    """Return the lines of a file beside this one; each is an expression."""
    return (Path(__file__).parent / f"functions_of_{name}.txt").read_text().splitlines()


def normalize(value: Any) -> Any:
    """Return numbers as floats, timestamps without a zone, and lists and structs as tuples."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, pa.MonthDayNano):  # DuckDB gives the driver its length
        micros = (value.months * 30 + value.days) * 86_400 * 10**6 + value.nanoseconds // 1000
        return dt.timedelta(microseconds=micros)
    if isinstance(value, Decimal | float | int) and not isinstance(value, bool):
        number = float(value)
        return "nan" if math.isnan(number) else number
    if isinstance(value, dict) and "element1" in value:  # DuckDB gives the driver a tuple
        return tuple(map(normalize, value.values()))
    if isinstance(value, dict):
        return tuple((name, normalize(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(normalize, value))
    return value


def are_close(left: Any, right: Any) -> bool:
    left, right = normalize(left), normalize(right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(are_close, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-15)
    return bool(left == right)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], SCHEMA)


def differences(
    texts: list[str], ours: dict[int, tuple[Any, ...]], theirs: dict[int, tuple[Any, ...]]
) -> list[Any]:
    assert ours.keys() == theirs.keys()
    return [
        (texts[number], "row", key, "ours", our_value, "theirs", their_value)
        for key in sorted(ours)
        for number, (our_value, their_value) in enumerate(zip(ours[key], theirs[key], strict=True))
        if not are_close(our_value, their_value)
    ]


def maintain(texts: list[str], dialect: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the rows of the view by key, after all inserts and after the deletes."""
    columns = ", ".join(f"{text} AS x{number}" for number, text in enumerate(texts))
    circuit = compile_sql(f"SELECT k, {columns} FROM t", {"t": SCHEMA}, dialect=dialect)
    view: Counter[Any] = Counter()
    states = []
    for rows, weight in ((ROWS, 1), (ROWS[2:5], -1)):
        weights = pa.array([weight] * len(rows))
        delta = circuit.step({"t": table(rows).append_column("weight", weights)})["view"]
        for row in delta.to_pylist():
            change = row.pop("weight")
            view[tuple(map(normalize, row.values()))] += change
        states.append({row[0]: row[1:] for row, count in view.items() if count})
    return states[0], states[1]


@pytest.mark.parametrize("data_type", ["TIMESTAMP", "DATE"])
@pytest.mark.parametrize(
    "call",
    [
        *("isfinite({})", "isinf({})", "date_trunc('decade', {})::VARCHAR"),
        *("date_trunc('century', {})::VARCHAR", "date_trunc('millennium', {})::VARCHAR"),
    ],
)
def test_functions_of_times_agree_with_duckdb_at_the_limits_of_the_calendar(call, data_type):
    texts = [
        *("2024-05-06", "2000-01-01", "1999-12-31", "0100-01-01", "0005-05-06", "0001-05-06 (BC)"),
        *("0003-01-01 (BC)", "0012-05-06 (BC)", "1001-05-06 (BC)", "infinity", "-infinity", None),
    ]
    rows = pa.table({"s": pa.array(texts, pa.string())})
    query = f"SELECT s, {call.format(f's::{data_type}')} AS v FROM t"
    delta = compile_sql(query, {"t": "s STRING"}).step({"t": rows})["view"]
    ours = {row["s"]: row["v"] for row in delta.to_pylist()}
    with duckdb.connect() as duck:
        duck.register("t", rows)
        assert ours == dict(duck.execute(query).fetchall())


def test_the_functions_of_duckdb_agree_with_it_after_inserts_and_deletes():
    texts = expressions("duckdb")
    first, second = maintain(texts, "duckdb")
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.register("t", table(ROWS))
    columns = ", ".join(texts)
    theirs = {row[0]: row[1:] for row in duck.execute(f"SELECT k, {columns} FROM t").fetchall()}

    assert differences(texts, first, theirs) == []
    kept = {key: row for key, row in theirs.items() if key not in (2, 3, 4)}
    assert differences(texts, second, kept) == []


@pytest.mark.spark
def test_the_functions_of_spark_agree_with_it_after_inserts_and_deletes(spark):
    texts = expressions("spark")
    first, second = maintain(texts, "spark")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    names = "k long, s string, p string, i long, j long, f double, m decimal(9,2), d date, "
    frame = spark.createDataFrame(ROWS, names + "ts timestamp_ntz, ts2 timestamp_ntz")
    frame.createOrReplaceTempView("functions_of_spark")
    columns = ", ".join(f"{text} AS x{number}" for number, text in enumerate(texts))
    rows = spark.sql(f"SELECT k, {columns} FROM functions_of_spark").collect()
    theirs = {row[0]: tuple(row)[1:] for row in rows}

    assert differences(texts, first, theirs) == []
    kept = {key: row for key, row in theirs.items() if key not in (2, 3, 4)}
    assert differences(texts, second, kept) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT levenstein(s, 'a') AS n FROM t", "did you mean .*levenshtein"),
        ("SELECT regexp_lik(s, 'a') AS n FROM t", "line 1, column 8.*did you mean regexp_like"),
        ("SELECT md5(s, s) AS n FROM t", "md5.*takes 1 arguments, not 2"),
        ("SELECT gcd(s, 2) AS n FROM t", "argument 1 is an integer"),
        ("SELECT f + INTERVAL 1 MONTH AS n FROM t", "does not exist"),
    ],
)
def test_a_call_that_no_function_takes_is_an_error(text, words):
    with pytest.raises(SqlError, match=words):
        compile_sql(text, {"t": SCHEMA})


@pytest.mark.parametrize(
    "call",
    [
        "'%d', f",
        "'%s', i",
        "'%f', i",
        "'%c', s",
        "'%r', s",
        "'%a', f",
        "'%d'",
        "'%2$d %d', i, j",
        "'%'",
    ],
)
def test_printf_of_a_value_that_does_not_suit_its_directive_is_an_error_as_in_duckdb(call):
    text = f"SELECT printf({call}) AS x FROM t"
    connection = duckdb.connect()
    connection.register("t", table(ROWS[:1]))
    if "%a" not in call:  # a hexadecimal float in DuckDB
        with pytest.raises(duckdb.Error):
            connection.sql(text).fetchall()
    with pytest.raises(EvaluationError, match=r"does not format|directive|arguments"):
        compile_sql(text, {"t": SCHEMA}).step({"t": table(ROWS[:1])})


@pytest.mark.parametrize(
    ("text", "last"),
    [("getbit(i, 64)", 63), ("getbit(i, -1)", 63), ("getbit(CAST(i AS INT), 32)", 31)],
)
def test_the_position_of_a_bit_that_the_number_does_not_have_fails_in_dialect_spark(text, last):
    circuit = compile_sql(f"SELECT {text} AS n FROM t", {"t": SCHEMA}, dialect="spark")
    circuit.step({"t": table(ROWS[3:4])})  # NULL
    with pytest.raises(EvaluationError, match=f"has the bits 0 to {last}"):
        circuit.step({"t": table(ROWS[:1])})


def test_decimals_of_38_digits_are_divided_in_dialect_spark():
    wide = pa.decimal128(38, 4)
    schema = pa.schema([("k", pa.int64()), ("a", wide), ("b", wide)])
    query = "SELECT k, a / b AS quotient, a div b AS whole, 1.5 / b AS share FROM t"
    circuit = compile_sql(query, {"t": schema}, dialect="spark")
    values = [("1", "3"), ("-2", "3"), ("0.0001", "0.0003"), (None, "4"), ("5", None), ("9", "2")]
    rows = [
        {"k": k, "a": a and Decimal(a), "b": b and Decimal(b)} for k, (a, b) in enumerate(values)
    ]
    result = circuit.step({"t": pa.Table.from_pylist(rows, schema=schema)})["view"]
    answers = {row["k"]: (row["quotient"], row["whole"]) for row in result.to_pylist()}
    assert answers == {
        0: (Decimal("0.333333"), 0),
        1: (Decimal("-0.666667"), 0),
        2: (Decimal("0.333333"), 0),
        3: (None, None),
        4: (None, None),
        5: (Decimal("4.500000"), 4),
    }


@pytest.mark.parametrize("text", ["1 / i", "1 % i", "1 div i", "m / 0", "pmod(1, i)"])
def test_division_by_zero_fails_in_dialect_spark(text):
    circuit = compile_sql(f"SELECT {text} AS n FROM t", {"t": SCHEMA}, dialect="spark")
    with pytest.raises(Exception, match="division by zero"):
        circuit.step({"t": table(ROWS[1:2])})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "CAST(k AS INT) + 2147483647",
            "CAST(k AS SMALLINT) * 32767S * 2S",
            "-CAST(k AS TINYINT) - 127Y",
        ),
        *("abs(-2147483646 - CAST(k AS INT))", "CAST(k AS BIGINT) + 9223372036854775807"),
    ],
)
def test_an_integer_that_does_not_fit_its_type_fails_in_dialect_spark(text):
    circuit = compile_sql(f"SELECT {text} AS n FROM t", {"t": SCHEMA}, dialect="spark")
    circuit.step({"t": table(ROWS[:1])})
    with pytest.raises(EvaluationError):
        circuit.step({"t": table(ROWS[2:3])})


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("1", pa.int32()),
        ("-2147483648", pa.int32()),
        ("2147483648", pa.int64()),
        ("9223372036854775808", pa.decimal128(19, 0)),
        ("-" + "9" * 38, pa.decimal128(38, 0)),
        ("1L + 1", pa.int64()),
        ("1S + 1Y", pa.int16()),
        ("length(s)", pa.int32()),
        ("year(d)", pa.int32()),
        ("m + 1", pa.decimal128(10, 2)),
        ("m * m", pa.decimal128(19, 4)),
        ("m % 7", pa.decimal128(3, 2)),
        ("i * m", pa.decimal128(30, 2)),
        ("0.5", pa.decimal128(1, 1)),
        ("CAST(m AS DECIMAL(38, 10)) * CAST(m AS DECIMAL(38, 10))", pa.decimal128(38, 6)),
        ("CAST(f AS FLOAT) + CAST(f AS FLOAT)", pa.float32()),
        ("CAST(f AS FLOAT) + 1", pa.float64()),
        ("CAST(m AS DECIMAL)", pa.decimal128(10, 0)),
        ("CAST(f AS NUMERIC)", pa.decimal128(10, 0)),
        ("CAST(f AS DEC(4))", pa.decimal128(4, 0)),
        ("CAST(s AS BINARY)", pa.binary()),
        ("'2' + 1", pa.int64()),
        ("'2.5' * f", pa.float64()),
        ("1 << 2", pa.int32()),
        ("~1S", pa.int16()),
        ("round(7, -1)", pa.int32()),
    ],
)
def test_a_number_has_the_type_that_spark_gives_it(text, type_):
    circuit = compile_sql(f"SELECT {text} AS n FROM t", {"t": SCHEMA}, dialect="spark")
    assert circuit.step({"t": table(ROWS[:1])})["view"].schema.field("n").type == type_


def test_a_type_has_the_width_that_duckdb_gives_its_name():
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    names = [name for (name,) in duck.execute("SELECT type_name FROM duckdb_types()").fetchall()]
    supported = {}
    for name in names:
        try:
            circuit = compile_sql(f"SELECT CAST(NULL AS {name}) AS n FROM t", {"t": SCHEMA})
        except UnsupportedSqlError:
            continue
        supported[name] = circuit.step({"t": table(ROWS[:1])})["view"].schema.field("n").type
    del supported["row"], supported["struct"]  # structs without fields
    del supported["variant"]  # JSON here; in DuckDB, bytes in the layout of Parquet
    values = ", ".join(f"CAST(NULL AS {name})" for name in supported)

    types = [field.type for field in duck.sql(f"SELECT {values}").to_arrow_table().schema]
    assert dict(zip(supported, types, strict=True)) == supported
    assert {"uint8", "uint64", "integral", "nvarchar", "oid", "real", "long"} <= supported.keys()


def test_a_name_has_one_reader_in_a_dialect():
    with pytest.raises(ValueError, match=r"two readers of \{'len'\}"):
        merge_tables({"len": 1, "size": 2}, {"len": 3})


@pytest.mark.parametrize("function", ["epoch_ms(1)", "to_hours(i)", "strlen(s)"])
def test_a_function_of_duckdb_does_not_exist_in_dialect_spark(function):
    compile_sql(f"SELECT {function} AS x FROM t", {"t": SCHEMA})
    with pytest.raises(UnsupportedSqlError, match=function.split("(")[0]):
        compile_sql(f"SELECT {function} AS x FROM t", {"t": SCHEMA}, dialect="spark")


@pytest.mark.parametrize(
    ("query", "call"),
    [
        ("SELECT * FROM range(1, 'a')", "range(int64, string)"),
        ("SELECT * FROM generate_series(1, 'a')", "generate_series(int64, string)"),
        ("SELECT strpos(i, 1) AS x FROM t", "strpos(int64"),
    ],
)
def test_an_error_has_the_name_of_the_function_in_the_text(query, call):
    with pytest.raises(SqlError) as caught:
        compile_sql(query, {"t": SCHEMA})
    assert f": {call}" in str(caught.value)
    assert "series_before" not in str(caught.value)


@pytest.mark.parametrize(
    "text", [r"E'a\nb\t\\c\'d'", r"e'\x41\101q'", "E'it''s'", r"E'\\\\n' || '\n'"]
)
def test_a_text_with_escapes_is_that_of_duckdb(text):
    circuit = compile_sql(f"SELECT {text} AS x, k FROM t", {"t": SCHEMA})
    expected = duckdb.sql(f"SELECT {text}").fetchall()[0][0]
    assert circuit.step({"t": table(ROWS[:1])})["view"]["x"].to_pylist() == [expected]


@pytest.mark.parametrize(("text", "dialect"), [(r"E'\xc3\xa4'", "duckdb"), ("E'a'", "spark")])
def test_a_text_with_escapes_of_bytes_or_in_spark_is_an_error(text, dialect):
    with pytest.raises(SqlError):
        compile_sql(f"SELECT {text} AS x FROM t", {"t": SCHEMA}, dialect=dialect)


@pytest.mark.parametrize("fields", ["'year','month'", "'y','epoch','dow'", "'Year'", "'hour'"])
def test_the_parts_of_a_date_are_the_struct_of_duckdb(fields):
    query = f"SELECT k, date_part([{fields}], ts) AS x, date_part([{fields}], d) AS y FROM t"
    circuit = compile_sql(query, {"t": SCHEMA})
    duck = duckdb.connect()
    duck.register("t", table(ROWS))
    delta = circuit.step({"t": table(ROWS)})["view"]
    expected = duck.sql(query).to_arrow_table()
    assert delta.drop(["weight"]).sort_by("k").to_pylist() == expected.sort_by("k").to_pylist()
    retraction = circuit.step(
        {"t": table(ROWS).append_column("weight", pa.array([-1] * len(ROWS)))}
    )
    assert retraction["view"]["weight"].to_pylist() == [-1] * len(ROWS)


@pytest.mark.parametrize("fields", ["", "'year','Year'", "'year',s", "'century','x'"])
def test_the_parts_of_a_date_have_known_and_different_names(fields):
    with pytest.raises((SqlError, UnsupportedSqlError)):
        compile_sql(f"SELECT date_part([{fields}], d) AS x FROM t", {"t": SCHEMA})
