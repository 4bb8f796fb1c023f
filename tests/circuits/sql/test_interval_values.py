"""Intervals with months as values, under inserts and deletes, with DuckDB and Spark as oracles."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import SqlError, UnsupportedSqlError, compile_sql

INTERVAL = pa.month_day_nano_interval()
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("i", INTERVAL),
        ("j", INTERVAL),
        ("d", pa.date32()),
        ("t", pa.time64("us")),
    ]
)
# Months, days and microseconds; some have equal lengths in a comparison.
PARTS = [
    *((1, 0, 0), (0, 30, 0), (1, -1, 0), (0, 29, 0), (0, 28, 86_400_000_000), (0, 0, 0)),
    *((-1, 30, 0), (14, 3, 5_000_001), (-14, -3, -5_000_001), (0, -1, 3_600_000_000)),
]
INTERVALS = [pa.MonthDayNano([months, days, micros * 1000]) for months, days, micros in PARTS]
DAYS = [None, 18_321, 0, -1]  # 2020-02-29
VALUES = {"k": st.integers(0, 2), "i": st.sampled_from([None, *INTERVALS])}
VALUES |= {
    "j": VALUES["i"],
    "d": st.sampled_from(DAYS),
    "t": st.sampled_from([None, 3_600_000_000]),
}
ROWS = st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=6)

# Queries whose results do not depend on which of several equal intervals a group has as its key.
QUERIES = [
    "SELECT k, i::VARCHAR AS a, (-i)::VARCHAR AS b, (i * k)::VARCHAR AS c FROM t",
    "SELECT k, (i + j)::VARCHAR AS a, (i - j)::VARCHAR AS b FROM t",
    "SELECT age(d + i, d + j)::VARCHAR AS a, age(d, d + i)::VARCHAR AS b FROM t",
    "SELECT d + i AS a, d - i AS b, i + d::TIMESTAMP AS c, t + i AS e, t - i AS f FROM t",
    "SELECT i = j AS a, i < j AS b, i >= j AS c, i IS NOT DISTINCT FROM j AS e FROM t",
    "SELECT k FROM t WHERE i IN (INTERVAL '1 month', INTERVAL '29 days') OR i = '0 days'",
    "SELECT k FROM t WHERE i BETWEEN INTERVAL '-1 month' AND INTERVAL 29 DAY",
    "SELECT a.k, b.k AS l FROM t a JOIN t b ON a.i = b.j",
    "SELECT a.k, b.k AS l FROM t a LEFT JOIN t b ON a.i = b.j AND a.k < b.k",
    "SELECT k FROM t WHERE i IN (SELECT j FROM t)",
    "SELECT k FROM t WHERE i NOT IN (SELECT j FROM t WHERE j IS NOT NULL)",
    "SELECT k, (SELECT count(*) FROM t b WHERE b.j = a.i) AS n FROM t a",
    "SELECT k, (SELECT count(*) FROM t b WHERE b.k = a.k AND b.i > a.j) AS m FROM t a",
    "SELECT nullif(i, j) IS NULL AS a, CASE i WHEN j THEN 1 ELSE 2 END AS b FROM t",
    "SELECT count(*) AS n, min(k) AS m FROM t GROUP BY i",
    "SELECT count(DISTINCT i) AS n FROM t",
    "SELECT count(*) AS n FROM (SELECT DISTINCT i FROM t)",
    "SELECT count(*) AS n FROM (SELECT i FROM t UNION SELECT j FROM t)",
    "SELECT count(*) AS n FROM (SELECT i FROM t EXCEPT ALL SELECT j FROM t)",
    "SELECT count(*) AS n FROM (SELECT i FROM t INTERSECT ALL SELECT j FROM t)",
    "SELECT count(*) AS n FROM (SELECT i FROM t INTERSECT SELECT j FROM t)",
    "SELECT k, rank() OVER (ORDER BY i) AS r, count(*) OVER (PARTITION BY i) AS n FROM t",
    "SELECT min(i) = INTERVAL '-1 month 30 days' AS a, max(i) > j AS b FROM t GROUP BY j",
    "SELECT k, coalesce(i, j) = j AS b FROM t",
    (  # equal but for a part of the text that sqlglot drops
        "SELECT k, (SELECT count(*) FROM t b WHERE b.d + b.i < a.d + INTERVAL '1 day 02:00:00') AS"
        " m, (SELECT count(*) FROM t b WHERE b.d + b.i < a.d + INTERVAL '1 day 12:00:00') AS n"
        " FROM t a"
    ),
    (
        "SELECT k, d + INTERVAL '1 day 02:00:00' AS e FROM t"
        " QUALIFY row_number() OVER (ORDER BY k, i, j, d + INTERVAL '1 day 12:00:00', t) <= 2"
    ),
    "SELECT k FROM t WHERE d > DATE '2000-01-01' + INTERVAL (k - 1) DAY",
    *(
        f"SELECT extract({field} FROM i) AS a FROM t"
        for field in (
            *("year", "month", "day", "hour", "minute", "second", "quarter", "decade", "epoch"),
            *("century", "millennium", "millisecond", "microsecond"),
        )
    ),
]


PROGRAM = ";".join(f"CREATE VIEW v{number} AS {query}" for number, query in enumerate(QUERIES))


def to_table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def signed(rows: list[dict[str, Any]], weight: int) -> pa.Table:
    return to_table(rows).append_column("weight", pa.array([weight] * len(rows), pa.int64()))


class Views:
    """A circuit with all views, and the sum of the deltas of each view."""

    def __init__(self) -> None:
        self.circuit = compile_sql(PROGRAM, {"t": SCHEMA})
        self.rows: list[Counter[tuple[Any, ...]]] = [Counter() for _ in QUERIES]

    def step(self, delta: pa.Table) -> None:
        for name, view in self.circuit.step({"t": delta}).items():
            total = self.rows[int(name.removeprefix("v"))]
            for row in view.to_pylist():
                weight = row.pop("weight")
                total[tuple(row.values())] += weight

    def check(self, rows: list[dict[str, Any]]) -> None:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("t", to_table(rows))
            for query, total in zip(QUERIES, self.rows, strict=True):
                expected = Counter(connection.sql(query).fetchall())
                assert {row: count for row, count in total.items() if count} == expected, query


@pytest.fixture(scope="module")
def views() -> Views:
    return Views()


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, data=st.data())
def test_intervals_with_months_are_those_of_duckdb_under_deletes(views, rows, data):
    deleted = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    remaining = [row for number, row in enumerate(rows) if number not in deleted]
    try:
        views.step(signed(rows, 1))
        views.check(rows)
        views.step(signed([rows[number] for number in deleted], -1))
        views.check(remaining)
    finally:
        views.step(signed(remaining, -1))


# DuckDB 2.0 returns wrong results here: its greatest() compares the parts instead of the lengths,
# and it evaluates a correlated subquery only once for outer rows with equal intervals.
def test_greatest_compares_lengths_and_a_subquery_reads_the_parts():
    month, days = pa.MonthDayNano([1, -1, 0]), pa.MonthDayNano([0, 29, 0])
    rows = [{"k": 1, "i": i, "j": days, "d": 18_321, "t": None} for i in (month, days)]
    queries = {
        "SELECT greatest(INTERVAL '-1 month 30 days', i)::VARCHAR AS x FROM t": [
            *("1 month -1 day", "29 days"),
        ],
        "SELECT (SELECT max(b.d + a.i)::DATE::VARCHAR FROM t b WHERE b.k = a.k) AS x FROM t a": [
            *("2020-03-28", "2020-03-29"),
        ],
    }
    for query, expected in queries.items():
        circuit = compile_sql(query, {"t": SCHEMA})
        assert sorted(circuit.step({"t": signed(rows, 1)})["view"]["x"].to_pylist()) == expected
        assert circuit.step({"t": signed(rows, -1)})["view"].num_rows == 2


def compute(expression: str, dialect: str = "duckdb") -> Any:
    circuit = compile_sql(f"SELECT {expression} AS x FROM t", {"t": "n INT"}, dialect=dialect)
    (row,) = circuit.step({"t": [{"n": 3}]})["view"].to_pylist()
    return row["x"]


TEXTS = [
    *("1 year 2 months 3 days 04:05:06.7", "-1 month", "0 days", "100 hours", "14 months", "3"),
    *("-1 year -2 months 3 days -04:05:06.000001", "1 mon 2 days ago", "1y2mon3d4h5m6s7ms8us"),
    *("1.5 months", "1.5 days", "2 decades 3 centuries", "-00:00:01.5", " 1 day "),
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_the_interval_that_duckdb_reads(text):
    query = f"SELECT CAST(CAST('{text}' AS INTERVAL) AS VARCHAR)"
    ((expected,),) = duckdb.sql(query).fetchall()
    circuit = compile_sql("SELECT s::INTERVAL::VARCHAR AS x FROM t", {"t": "s STRING"})
    assert circuit.step({"t": [{"s": text}]})["view"]["x"].to_pylist() == [expected]


EXPRESSIONS = [
    *("to_months(n)::VARCHAR", "to_years(n)::VARCHAR", "(INTERVAL (n) MONTH)::VARCHAR"),
    *("(INTERVAL '24 hours')::VARCHAR", "(INTERVAL '1 day')::VARCHAR", "to_hours(25)::VARCHAR"),
    *("to_days(n)::VARCHAR", "to_weeks(n)::VARCHAR", "extract(hour FROM INTERVAL '25 hours')"),
    "extract(hour FROM (TIMESTAMP '2020-01-03 05:00' - TIMESTAMP '2020-01-01'))",
    "(TIMESTAMP '2020-01-01' - TIMESTAMP '2020-01-03 12:00')::VARCHAR",
    "((TIMESTAMP '2020-01-02 20:00' - TIMESTAMP '2020-01-01') + INTERVAL '10 hours')::VARCHAR",
    "(to_months(n) * 1.5)::VARCHAR",
    "(to_months(n) / 2)::VARCHAR",
    "(INTERVAL '1 year 5 days 3 hours' * 0.3)::VARCHAR",
    "(INTERVAL '-7 months' / 2)::VARCHAR",
    "(CASE WHEN n > 2 THEN INTERVAL 1 MONTH ELSE INTERVAL 1 DAY END)::VARCHAR",
    "DATE '2020-01-31' + CASE WHEN n > 2 THEN INTERVAL 1 MONTH ELSE INTERVAL 1 DAY END",
    "TRY_CAST('x' AS INTERVAL)",
    "concat(to_months(n), '!')",
    "TIMESTAMP '2020-03-01' - TIMESTAMP '2020-02-01' < INTERVAL 1 MONTH",
    "typeof(to_months(n))",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_of_intervals_has_the_value_of_duckdb(expression):
    query = f"SELECT {expression} FROM (SELECT 3::INT AS n)"
    assert compute(expression) == duckdb.sql(query).fetchall()[0][0]


SPARK_EXPRESSIONS = [
    *("CAST(make_ym_interval(1, n) AS STRING)", "CAST(INTERVAL '14' MONTH AS STRING)"),
    *("CAST(INTERVAL '1-2' YEAR TO MONTH AS STRING)", "CAST(INTERVAL -3 YEAR AS STRING)"),
    "CAST(CAST('1-2' AS INTERVAL YEAR TO MONTH) AS STRING)",
    "CAST(CAST(\"INTERVAL '-1-2' YEAR TO MONTH\" AS INTERVAL YEAR TO MONTH) AS STRING)",
    "CAST(make_ym_interval(0, n) * 1.5 AS STRING)",
    "CAST(make_ym_interval(0, n) * -1.5D AS STRING)",
    "CAST(make_ym_interval(0, n) / 2 AS STRING)",
    "CAST(-make_ym_interval(0, n) / 2 AS STRING)",
    "CAST(make_ym_interval(0, n) - INTERVAL 1 YEAR AS STRING)",
    "make_ym_interval(1, n) > INTERVAL 15 MONTH",
    "make_ym_interval(1, n) = INTERVAL '1-3' YEAR TO MONTH",
    "extract(YEAR FROM make_ym_interval(1, n))",
    "extract(MONTH FROM make_ym_interval(-1, -n))",
    "DATE '2020-01-31' + make_ym_interval(0, n)",
    "DATE '2020-01-31' - CASE WHEN n = 3 THEN INTERVAL 1 MONTH ELSE INTERVAL 1 YEAR END",
    "TIMESTAMP_NTZ '2020-01-31 05:00:00' + make_ym_interval(0, 1)",
    "CAST(CAST('3' AS INTERVAL DAY) AS STRING) IS NOT NULL",
    "CAST('1 02:03:04.5' AS INTERVAL DAY TO SECOND) > INTERVAL 26 HOURS",
    "TRY_CAST('x' AS INTERVAL YEAR TO MONTH) IS NULL",
    "typeof(make_ym_interval(1, n))",
    "(SELECT sum(x) FROM VALUES (INTERVAL 5 MONTH), (INTERVAL 2 MONTH) AS v(x)) = INTERVAL 7 MONTH",
    "(SELECT avg(x) FROM VALUES (INTERVAL 5 MONTH), (INTERVAL 2 MONTH) AS v(x)) = INTERVAL 4 MONTH",
    "(SELECT max(x) FROM VALUES (INTERVAL 5 MONTH), (INTERVAL 2 MONTH) AS v(x)) = INTERVAL 5 MONTH",
]


@pytest.mark.spark
def test_intervals_of_months_in_dialect_spark_are_those_of_spark(spark):
    different = {}
    for expression in SPARK_EXPRESSIONS:
        (expected,) = spark.sql(f"SELECT {expression} FROM VALUES (3) AS t(n)").collect()[0]
        value = compute(expression, "spark")
        if value != expected:
            different[expression] = (value, expected)
    assert not different


REFUSED_BY_SPARK = [
    *("INTERVAL 1 MONTH = INTERVAL 30 DAY", "INTERVAL 1 MONTH + INTERVAL 30 DAY"),
    "CASE WHEN n = 1 THEN INTERVAL 1 MONTH ELSE INTERVAL 1 DAY END",
    "greatest(INTERVAL 1 MONTH, INTERVAL 1 DAY)",
]


@pytest.mark.parametrize("expression", REFUSED_BY_SPARK)
def test_spark_does_not_combine_months_with_days(expression):
    with pytest.raises(SqlError, match="interval of"):
        compute(expression, "spark")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT [to_months(n)] FROM t", "in a list, struct or map"),
        ("SELECT to_json(to_months(n)) FROM t", "it takes no intervals"),
        ("SELECT extract(week FROM to_months(n)) FROM t", "field 'week' of an interval"),
        ("SELECT median(to_months(n)) FROM t", "does not exist"),
        ("SELECT sum(to_months(n)) FROM t", "does not exist"),
        ("SELECT INTERVAL 3000000000 MONTH FROM t", "too long"),
    ],
)
def test_unsupported_operations_on_intervals_are_errors(query, message):
    with pytest.raises((SqlError, UnsupportedSqlError, ValueError), match=message):
        compile_sql(query, {"t": "n INT"})


def test_a_product_beyond_the_range_is_an_error_of_the_step():
    circuit = compile_sql("SELECT to_months(n) * 2000000000 AS x FROM t", {"t": "n INT"})
    with pytest.raises(Exception, match="months and days"):
        circuit.step({"t": [{"n": 3}]})
    assert circuit.step({"t": [{"n": 1}]})["view"].num_rows == 1
