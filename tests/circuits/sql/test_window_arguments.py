"""Window functions whose arguments differ by row, or have an ORDER BY, against DuckDB and Spark."""

from __future__ import annotations

from decimal import Decimal
from unittest import mock

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import EvaluationError, SqlError, compile_sql
from circuits.runtime.operators.windows import window as window_module
from tests.circuits.sql.test_sql_circuits import LAW, check

# The order of each window has all columns, so that the result depends on the rows only.
ALL = "PARTITION BY a ORDER BY b, s"
NUMBERS_BY_ROW = [
    f"SELECT a, b, s, lag(s, b) OVER ({ALL}) AS m, lead(s, a - b) OVER ({ALL}) AS n FROM t",
    f"SELECT a, b, s, lead(b, coalesce(b, 1), a) OVER ({ALL}) AS m FROM t",
    "SELECT a, b, s, lag(b, a - 1 IGNORE NULLS) OVER (ORDER BY s, a, b) AS m, "
    "lead(s, b - 1, '-' IGNORE NULLS) OVER (ORDER BY a, b, s) AS n FROM t",
    f"SELECT a, b, s, lag(b, 2, a) OVER ({ALL}) AS m, lag(b, NULL, a) OVER ({ALL}) AS n FROM t",
    f"SELECT a, b, s, nth_value(s, b) OVER ({ALL}) AS m, nth_value(s, a - 1 IGNORE NULLS) OVER "
    "(ORDER BY a, b, s ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS n FROM t",
    f"SELECT a, b, s, nth_value(b, 0) OVER ({ALL}) AS m, nth_value(b, -a) OVER ({ALL}) AS n FROM t",
    "SELECT a, b, s, ntile(a + 1) OVER (ORDER BY a, b, s) AS m FROM t",
    "SELECT a, x, lag(x, a) OVER (ORDER BY x, a, s) AS m FROM u",
    "SELECT a, count(*) AS n, lag(a, count(*)) OVER (ORDER BY a) AS m FROM t GROUP BY a",
]
ORDERED_ARGUMENTS = [
    "SELECT a, b, s, first_value(s ORDER BY s DESC) OVER (PARTITION BY a ORDER BY b) AS m, "
    "last_value(b ORDER BY b NULLS FIRST) OVER (PARTITION BY s) AS n FROM t",
    "SELECT a, b, s, first_value(b ORDER BY b DESC IGNORE NULLS) OVER (ORDER BY a GROUPS BETWEEN 1 "
    "PRECEDING AND 1 FOLLOWING) AS m, last(s ORDER BY s IGNORE NULLS) OVER (ORDER BY b) AS n "
    "FROM t",
    "SELECT a, b, s, nth_value(b, 2 ORDER BY b DESC) OVER (PARTITION BY a ORDER BY s) AS m, "
    "nth_value(s, a ORDER BY s IGNORE NULLS) OVER (PARTITION BY b) AS n FROM t",
    "SELECT a, b, s, lag(b ORDER BY b DESC) OVER (PARTITION BY a) AS m, "
    "lead(s, a, 'none' ORDER BY s, b, a) OVER () AS n FROM t",
    "SELECT a, b, s, lag(s ORDER BY b, s) OVER (PARTITION BY a ORDER BY s, b ROWS BETWEEN "
    "UNBOUNDED "
    "PRECEDING AND UNBOUNDED FOLLOWING) AS m FROM t",
    "SELECT a, b, s, rank(ORDER BY b DESC) OVER (PARTITION BY a) AS m, percent_rank(ORDER BY s) "
    "OVER () AS n, cume_dist(ORDER BY b) OVER (PARTITION BY s) AS o FROM t",
    "SELECT a, b, s, row_number(ORDER BY s, b) OVER (PARTITION BY a) AS m, ntile(2 ORDER BY b, "
    "a, s) "
    "OVER () AS n FROM t",
    "SELECT a, b, s, string_agg(s, '-' ORDER BY s DESC) OVER (PARTITION BY a ORDER BY b) AS m, "
    "CAST(array_agg(b ORDER BY b) FILTER (WHERE a > 0) OVER (ORDER BY b ROWS BETWEEN 1 "
    "PRECEDING AND 1 "
    "FOLLOWING EXCLUDE TIES) AS VARCHAR) AS n FROM (SELECT DISTINCT b, min(a) AS a, min(s) AS s "
    "FROM t GROUP BY b)",
    "SELECT a, b, any_value(s) FILTER (WHERE b > 1) OVER (PARTITION BY a ORDER BY b, s) AS m "
    "FROM t",
]


@settings(LAW, max_examples=40)
@given(st.data(), st.sampled_from([-(10**9), 16]))
def test_window_functions_with_a_number_for_each_row_are_what_duckdb_answers(data, overhead):
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
        check(data, st.sampled_from(NUMBERS_BY_ROW))


@settings(LAW, max_examples=40)
@given(st.data(), st.sampled_from([-(10**9), 16]))
def test_window_functions_with_an_order_in_brackets_are_what_duckdb_answers(data, overhead):
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
        check(data, st.sampled_from(ORDERED_ARGUMENTS))


def test_a_number_of_buckets_below_one_is_an_error_of_the_step():
    circuit = compile_sql("SELECT ntile(a) OVER (ORDER BY a) AS n FROM t", {"t": "a BIGINT"})
    with pytest.raises(duckdb.InvalidInputException, match="ntile must be greater than zero"):
        duckdb.sql("SELECT ntile(a) OVER (ORDER BY a) FROM (VALUES (2), (0)) AS t(a)").fetchall()
    with pytest.raises(EvaluationError, match=r"the number of ntile\(\) is below 1"):
        circuit.step({"t": [{"a": 2}, {"a": 0}]})
    delta = circuit.step({"t": [{"a": 2}, {"a": None}]})["view"]
    assert sorted(delta["n"].to_pylist(), key=str) == [1, None]


@pytest.mark.parametrize(
    ("text", "dialect", "message"),
    [
        (
            "SELECT rank(ORDER BY b) OVER (ORDER BY a) FROM t",
            "duckdb",
            r"line 1, column 8: rank\(\) with an ORDER BY in its brackets over a part",
        ),
        ("SELECT dense_rank(ORDER BY b) OVER () FROM t", "duckdb", "takes no ORDER BY"),
        ("SELECT lag(a, 1.5) OVER (ORDER BY b) FROM t", "duckdb", "is a whole number"),
        ("SELECT lag(a, b) OVER (ORDER BY b) FROM t", "spark", "column 15: .* is not a constant"),
        ("SELECT nth_value(a, 0) OVER (ORDER BY b) FROM t", "spark", "0: write a whole number"),
        ("SELECT ntile(0) OVER (ORDER BY b) FROM t", "duckdb", "0: write a whole number"),
        (
            "SELECT nth_value(a, 2) FROM LAST OVER (ORDER BY b) FROM t",
            "duckdb",
            "column 24: FROM LAST OVER is not supported; leave it out, and reverse the ORDER BY",
        ),
        (
            "SELECT nth_value(a, 2) FROM FIRST IGNORE NULLS OVER (ORDER BY b) FROM t",
            "spark",
            "column 24: FROM FIRST IGNORE is not supported; leave it out",
        ),
    ],
)
def test_arguments_of_window_functions_that_do_not_exist_are_errors(text, dialect, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(text, {"t": "a BIGINT, b BIGINT"}, dialect=dialect)


PEOPLE = [
    {"i": 1, "s": "a", "b": 3},
    {"i": 2, "s": "b", "b": 1},
    {"i": 3, "s": "c", "b": 2},
    {"i": 4, "s": None, "b": 5},
]


def values_of(call, dialect):
    """Return the values of an expression for the people, by their numbers."""
    text = f"SELECT i, {call} AS v FROM t"
    circuit = compile_sql(text, {"t": "i INT, s STRING, b INT"}, dialect=dialect)
    rows = circuit.step({"t": PEOPLE})["view"].to_pylist()
    return [row["v"] for row in sorted(rows, key=lambda row: row["i"])]


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "snowflake", "bigquery"])
def test_any_value_over_a_window_is_that_of_a_value_except_in_spark(dialect):
    call = "any_value(s) OVER (ORDER BY b DESC)"
    assert values_of(call, dialect) == ["a", "a", "a", None]
    assert values_of(call, "spark") == [None] * 4


# Answers of Spark 4 and DuckDB.
@pytest.mark.parametrize(
    ("call", "dialect", "expected"),
    [
        ("first(s) FILTER (WHERE b > 1)", "spark", ["c", None, "c", "c"]),
        ("first(s, true) FILTER (WHERE b > 1)", "spark", ["c", None, "c", "c"]),
        ("first_value(s) FILTER (WHERE b > 1)", "spark", ["c", None, "c", "c"]),
        ("last(s) FILTER (WHERE b < 5)", "spark", ["a", "b", "c", "a"]),
        ("last(s) FILTER (WHERE b > 1)", "spark", ["a", None, "c", None]),
        ("last(s, true) FILTER (WHERE b > 1)", "spark", ["a", None, "c", "a"]),
        ("any_value(s) FILTER (WHERE b > 1)", "spark", ["c", None, "c", "c"]),
        ("any_value(s) FILTER (WHERE b > 1)", "duckdb", ["c", None, "c", "c"]),
        ("any_value(s) FILTER (WHERE b > 1)", "postgres", ["c", None, "c", "c"]),
    ],
)
def test_the_first_filtered_row_is_that_of_the_order_of_the_window(call, dialect, expected):
    assert values_of(f"{call} OVER (ORDER BY b)", dialect) == expected


@pytest.mark.parametrize(
    ("call", "dialect"),
    [
        ("first(s) FILTER (WHERE b > 1)", "duckdb"),
        ("last_value(s) FILTER (WHERE b > 1)", "postgres"),
        ("lag(s) FILTER (WHERE b > 1)", "spark"),
        ("row_number() FILTER (WHERE b > 1)", "spark"),
    ],
)
def test_window_functions_that_are_no_aggregates_take_no_filter(call, dialect):
    with pytest.raises(SqlError, match="FILTER is for aggregates"):
        values_of(f"{call} OVER (ORDER BY b)", dialect)


@pytest.mark.parametrize(
    ("default", "dialect", "expected"),
    [
        ("7.9", "duckdb", 8),  # DuckDB and Spark cast the default, each by its rules
        ("7.9", "spark", 7),
        ("7.9", "postgres", Decimal("7.9")),
        ("7", "postgres", 7),
        ("CAST(2.5 AS DOUBLE)", "postgres", 2.5),
        ("'7'", "postgres", 7),
        ("NULL", "postgres", None),
    ],
)
def test_a_default_of_lag_is_never_rounded_where_the_dialect_does_not(default, dialect, expected):
    assert values_of(f"lag(i, 1, {default}) OVER (ORDER BY i)", dialect) == [expected, 1, 2, 3]


def test_a_default_of_lag_of_another_kind_is_an_error_in_postgres():
    with pytest.raises(SqlError, match="string"):
        values_of("lag(i, 1, s) OVER (ORDER BY i)", "postgres")
