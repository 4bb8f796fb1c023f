"""Declarations and expressions that only Flink spells so, against the other spelling or DuckDB."""

from __future__ import annotations

import datetime
import warnings

import duckdb
import pyarrow as pa
import pytest

from circuits import SqlNotice, compile_sql
from circuits.errors import SqlError

TIMES = [
    datetime.datetime(2020, 2, 29, 23, 59, 59, 999_999),
    datetime.datetime(2020, 1, 1),
    datetime.datetime(1969, 12, 31, 12, 30),
    None,
]
ROWS = pa.table(
    {
        "n": pa.array([0, -5_000, 1_582_934_400, None], pa.int64()),
        "s": ["ab", "", "ü", None],
        "ts": pa.array(TIMES, pa.timestamp("us")),
        "m": pa.array([[("a", 1), ("b", 2)], [], [("c", None)], None], pa.map_("string", "int32")),
    }
)
IN_SPARK = ROWS.set_column(2, "ts", ROWS["ts"].cast(pa.timestamp("us", "UTC")))


def rows_of(text: str, dialect: str, rows: pa.Table) -> list[tuple]:
    view = compile_sql(f"SELECT {text} FROM t", {"t": rows.schema}, dialect=dialect)
    table = view.step({"t": rows})["view"]
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize(
    ("flink", "spark"),
    [
        ("FLOOR(ts TO MONTH)", "date_trunc('MONTH', ts)"),
        ("CAST(ts AS TIMESTAMP(3))", "date_trunc('MILLISECOND', ts)"),
        ("CAST(ts AS TIMESTAMP(0))", "date_trunc('SECOND', ts)"),
        ("CAST(ts AS TIMESTAMP(6))", "ts"),
        ("ts - INTERVAL '0.002' SECOND", "ts - INTERVAL '2' MILLISECOND"),
        ("to_timestamp_ltz(n, 3)", "timestamp_millis(n)"),
        ("to_timestamp_ltz(n, 0)", "timestamp_seconds(n)"),
        ("sha256(s), sha224(s), SHA512(s)", "sha2(s, 256), sha2(s, 224), sha2(s, 512)"),
        ("to_base64(s)", "base64(s)"),
        ("from_base64(to_base64(s))", "s"),
        ("MAP['a', n, s, 2]['a']", "map('a', n, s, 2)['a']"),
        ("CAST(s AS VARCHAR(1))", "s"),
    ],
)
def test_an_expression_of_flink_is_that_of_spark(flink: str, spark: str) -> None:
    rows = IN_SPARK.slice(0, 3)
    assert rows_of(f"{flink}, n", "spark", rows) == rows_of(f"{spark}, n", "spark", rows)


MOMENTS = [
    datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999),
    datetime.datetime(2020, 6, 21),  # a Sunday
    datetime.datetime(2020, 6, 20, 0, 0, 0, 1),
    datetime.datetime(2001, 1, 1),
    datetime.datetime(2000, 12, 31, 12),
    datetime.datetime(1969, 12, 31, 23, 30, 0, 500),
    datetime.datetime(1900, 10, 1),
]
DAYS = {"WEEK": 7, "DAY": 1}
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
YEARS = {"DECADE": 10, "CENTURY": 100, "MILLENNIUM": 1000}
MICROSECONDS = {
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1000,
    "MICROSECOND": 1,
}


def starts_around(moment: datetime.datetime, unit: str, first_year: int) -> list[datetime.datetime]:
    """Return the start of the unit that contains a moment, and the next start."""
    midnight = datetime.datetime.combine(moment, datetime.time())
    if unit in MICROSECONDS:
        length = datetime.timedelta(microseconds=MICROSECONDS[unit])
        start = midnight + (moment - midnight) // length * length
    elif unit in DAYS:
        length = datetime.timedelta(days=DAYS[unit])
        start = midnight - datetime.timedelta(days=moment.isoweekday() % DAYS[unit])
    else:
        months, length = 12 * (moment.year - first_year) + moment.month - 1, MONTHS.get(unit)
        length = length or 12 * YEARS[unit]
        first = months // length * length
        return [
            datetime.datetime(first_year + month // 12, month % 12 + 1, 1)
            for month in (first, first + length)
        ]
    return [start, start + length]


@pytest.mark.parametrize(
    ("type_name", "unit"),
    [
        *(("DATE", unit) for unit in [*YEARS, *MONTHS, *DAYS, *MICROSECONDS]),
        *(("TIME", unit) for unit in MICROSECONDS),
        *(("TIMESTAMP", unit) for unit in [*YEARS, *MONTHS, *DAYS, *MICROSECONDS]),
    ],
)
@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
def test_a_time_is_rounded_down_and_up_to_a_unit(type_name: str, unit: str, dialect: str) -> None:
    days, moments = [moment.date() for moment in MOMENTS], pa.array(MOMENTS)
    clocks = [moment.time() for moment in MOMENTS]
    rows = pa.table({"nr": range(len(days)), "d": days, "ts": moments, "c": clocks})
    zone = datetime.UTC if dialect == "spark" else None
    if dialect == "spark":
        rows = rows.set_column(2, "ts", rows["ts"].cast(pa.timestamp("us", "UTC")))
    # Centuries start with 2001 in Flink, and with 2000 in Feldera.
    first_year = 1 if dialect == "spark" and unit in ("CENTURY", "MILLENNIUM") else 0
    expected = []
    for nr, moment in enumerate(MOMENTS):
        if type_name == "DATE":
            moment = datetime.datetime.combine(moment, datetime.time())
        start, end = starts_around(moment, unit, first_year)
        pair = [start, start if start == moment else end]
        if type_name == "DATE":
            expected.append((nr, *(value.date() for value in pair), 1))
        elif type_name == "TIME":
            expected.append((nr, *(value.time() for value in pair), 1))
        else:
            expected.append((nr, *(value.replace(tzinfo=zone) for value in pair), 1))
    column = {"DATE": "d", "TIME": "c", "TIMESTAMP": "ts"}[type_name]

    text = f"nr, FLOOR({column} TO {unit}) AS a, CEIL({column} TO {unit}) AS b"

    assert rows_of(text, dialect, rows) == expected


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_time_trunc_is_the_floor_of_a_time(dialect: str) -> None:
    rows = pa.table({"c": pa.array([moment.time() for moment in MOMENTS])})

    pairs = rows_of("TIME_TRUNC(c, MINUTE) AS a, FLOOR(c TO MINUTE) AS b", dialect, rows)

    assert len({pair[0] for pair in pairs}) > 1
    assert all(pair[0] == pair[1] for pair in pairs)


@pytest.mark.parametrize("digits", range(8))
def test_a_timestamp_of_fewer_digits_is_that_of_duckdb(digits: int) -> None:
    t = ROWS  # noqa: F841 DuckDB reads it by its name
    cast = f"CAST(ts AS TIMESTAMP({digits}))"
    expected = duckdb.sql(f"SELECT {cast}::VARCHAR, 1 FROM t").fetchall()

    assert rows_of(f"{cast}::VARCHAR", "duckdb", ROWS) == sorted(expected, key=repr)


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("FLOOR(ts TO FORTNIGHT)", "rounding to FORTNIGHT is not supported; units: DECADE"),
        ("FLOOR(n TO HOUR)", "rounding to HOUR takes a date or a time"),
        ("CEIL(n, 1, 2)", "CEIL"),
    ],
)
def test_a_unit_that_does_not_exist_is_an_error(dialect: str, function: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        rows_of(function, dialect, ROWS)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n, k, v FROM t CROSS JOIN UNNEST(m) AS e (k, v)",
        "SELECT n, e.key AS k, e.value AS v FROM t CROSS JOIN UNNEST(map_entries(m)) AS e",
        "SELECT n, key AS k, value AS v FROM t, UNNEST(map_entries(m))",
    ],
)
def test_the_entries_of_a_map_are_unnested_into_a_key_and_a_value(text: str) -> None:
    unnested = compile_sql(
        text,
        {"t": IN_SPARK.schema},
        dialect="spark",
    ).step({"t": IN_SPARK})["view"]

    assert sorted(unnested.drop(["weight"]).to_pylist(), key=repr) == [
        {"n": 0, "k": "a", "v": 1},
        {"n": 0, "k": "b", "v": 2},
        {"n": 1_582_934_400, "k": "c", "v": None},
    ]


@pytest.mark.parametrize(
    ("declaration", "type_"),
    [
        (
            "ROW<a INT, b ARRAY<ROW<c STRING>>>",
            pa.struct({"a": pa.int32(), "b": pa.list_(pa.struct({"c": pa.string()}))}),
        ),
        ("MAP<STRING, ARRAY<ROW<c INT>>>", pa.map_("string", pa.list_(pa.struct({"c": "int32"})))),
        ("BYTES", pa.binary()),
        ("VARBINARY(16)", pa.binary()),
        ("VARCHAR(20)", pa.string()),
        ("CHAR(3) NOT NULL", pa.string()),
        ("TIMESTAMP_LTZ(3)", pa.timestamp("us", "UTC")),
    ],
)
def test_a_column_may_have_a_type_of_flink(declaration: str, type_: pa.DataType) -> None:
    text = f"CREATE TABLE t (`bytes` INT, x {declaration}); SELECT x FROM t"

    field = compile_sql(text, dialect="spark").spec.schemas["t"].field("x")

    assert (field.type, field.nullable) == (type_, "NOT NULL" not in declaration)


def test_a_shift_after_a_comparison_is_a_shift() -> None:
    assert rows_of("n >>> 1", "spark", IN_SPARK.slice(0, 1)) == [(0, 1)]
    assert rows_of("n < 1 AND n >>> 1 = 0", "spark", IN_SPARK.slice(0, 1)) == [(True, 1)]


def test_metadata_is_a_column_of_the_rows() -> None:
    text = (
        "CREATE TABLE t (a INT, ts TIMESTAMP(3) METADATA FROM `value.time` VIRTUAL,"
        " k BIGINT METADATA); SELECT a, ts, k FROM t"
    )
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always", SqlNotice)
        program = compile_sql(text, dialect="spark")

    assert program.spec.schemas["t"].names == ["a", "ts", "k"]
    assert [str(notice.message) for notice in notices] == [
        f"line 1, column {column}: METADATA has no effect; each row must have a value for the "
        "column"
        for column in (24, 76)
    ]
