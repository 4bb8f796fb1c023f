"""Window functions of SQL against DuckDB: random ones, and the syntax of other engines."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from math import inf, nan
from unittest import mock

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import EvaluationError, SqlError, UnsupportedSqlError, compile_sql
from circuits.runtime.operators.windows import window as window_module
from tests.circuits.sql.test_random_sql import check as check_case
from tests.circuits.sql.test_sql_circuits import LAW, check
from tests.generators.sql_generator import Writer
from tests.support.random_sql import case_of


@st.composite
def window_queries(draw):
    """Draw a SELECT with window functions over one table, or over a join."""
    writer = Writer(draw)
    source, scope = writer.source(0)
    where = f" WHERE {writer.condition(scope, 0, ())}" if writer.chance(20) else ""
    return writer.select_with_windows(source, where, scope)[0]


# The cost of a row interval decides between two paths; the first makes all steps read intervals.
@settings(LAW, max_examples=150)
@given(st.data(), st.sampled_from([-(10**9), 16]))
def test_maintained_window_functions_are_what_duckdb_answers(data, overhead):
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
        check(data, window_queries())


RUNNING_EXTREMES = [
    "SELECT a, b, s, min(s) OVER (PARTITION BY a ORDER BY b) AS m FROM t",
    "SELECT a, s, max(s) OVER (ORDER BY a DESC) AS m, lag(a) OVER (ORDER BY a DESC, s) AS n FROM t",
    "SELECT a, x, max(x) OVER (ORDER BY a DESC RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)"
    " AS m, min(x) OVER (ORDER BY a DESC) AS n, min(s) OVER (ORDER BY a DESC) AS o FROM u",
]


@settings(LAW, max_examples=30)
@given(st.data())
def test_running_extremes_of_strings_and_doubles_are_what_duckdb_answers(data):
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", -(10**9)):
        check(data, st.sampled_from(RUNNING_EXTREMES))


# The dates are up to 90 days apart, at and around the ends of months.
DAY = "d + CAST(b * 30 AS INTEGER)"
MONTH_FRAMES = [
    f"SELECT b, d, sum(p) OVER (ORDER BY {DAY} RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND "
    "CURRENT ROW) AS m FROM v",
    f"SELECT b, d, p, count(*) OVER (PARTITION BY p ORDER BY {DAY} DESC RANGE BETWEEN "
    "INTERVAL 2 MONTH PRECEDING AND INTERVAL '1 month 1 day' FOLLOWING) AS m FROM v",
    f"SELECT b, d, max(b) OVER (ORDER BY CAST({DAY} AS TIMESTAMP) NULLS FIRST RANGE BETWEEN "
    "INTERVAL '2 month 3 hours' PRECEDING AND INTERVAL 1 MONTH PRECEDING EXCLUDE GROUP) AS m "
    "FROM v",
    f"SELECT b, d, sum(b) OVER (ORDER BY {DAY} RANGE BETWEEN UNBOUNDED PRECEDING AND "
    "INTERVAL 1 MONTH FOLLOWING) AS m FROM v",
    f"SELECT b, d, last_value(b) OVER (ORDER BY {DAY}, b RANGE BETWEEN UNBOUNDED PRECEDING AND "
    "CURRENT ROW) AS m, lag(b, 3 - 2) OVER (ORDER BY b, d, p) AS n, "
    "sum(b) OVER (ORDER BY b, d, p ROWS BETWEEN 1 + 1 PRECEDING AND 2 - 2 FOLLOWING) AS o FROM v",
]


@settings(LAW, max_examples=60)
@given(st.data(), st.sampled_from([-(10**9), 16]))
def test_frames_with_months_and_with_constant_expressions_are_what_duckdb_answers(data, overhead):
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
        check(data, st.sampled_from(MONTH_FRAMES))


# Bounds that differ by row. The order of ROWS is that of all columns.
COMPUTED_FRAMES = [
    "SELECT a, b, sum(b) OVER (ORDER BY a, b, s, ts, k ROWS BETWEEN coalesce(a, 0) PRECEDING AND "
    "coalesce(b, 1) FOLLOWING) AS m FROM t",
    "SELECT a, x, count(*) OVER (PARTITION BY s ORDER BY a DESC GROUPS BETWEEN a PRECEDING AND a "
    "FOLLOWING EXCLUDE TIES) AS m FROM u",
    "SELECT a, b, sum(a) OVER (ORDER BY b RANGE BETWEEN a PRECEDING AND CURRENT ROW) AS m, "
    "avg(a) OVER (ORDER BY b DESC RANGE BETWEEN UNBOUNDED PRECEDING AND a FOLLOWING) AS n FROM t",
    "SELECT a, b, max(a) OVER (ORDER BY b DESC NULLS FIRST RANGE BETWEEN a + 1 PRECEDING AND 2 "
    "FOLLOWING) AS m FROM t",
    "SELECT a, x, sum(a) OVER (ORDER BY x RANGE BETWEEN a PRECEDING AND a * 0.5 FOLLOWING) AS m, "
    "min(x) OVER (ORDER BY a RANGE BETWEEN abs(x) PRECEDING AND abs(x) FOLLOWING) AS n FROM u",
    "SELECT b, d, p, sum(b) OVER (ORDER BY d RANGE BETWEEN b * INTERVAL 12 HOUR PRECEDING AND "
    "INTERVAL 1 DAY FOLLOWING) AS m, count(p) OVER (ORDER BY p RANGE BETWEEN p / 2 PRECEDING AND b "
    "FOLLOWING) AS n FROM v",
    "SELECT b, d, count(*) OVER (ORDER BY d DESC RANGE BETWEEN b * INTERVAL 1 MONTH PRECEDING AND "
    "b::INT FOLLOWING) AS m FROM v",
    "SELECT b, d, count(*) OVER (ORDER BY d DESC RANGE BETWEEN b::INT PRECEDING AND 1 FOLLOWING) "
    "AS m FROM v",
    "SELECT a, b, count(*) OVER (ORDER BY a, b, s, ts, k ROWS BETWEEN coalesce(a, 0) FOLLOWING AND "
    "1 FOLLOWING) AS m, last_value(b) OVER (ORDER BY a, b, s, ts, k ROWS BETWEEN UNBOUNDED "
    "PRECEDING AND coalesce(b, 1) PRECEDING) AS n FROM t",
    "SELECT a, count(*) AS n, sum(count(*)) OVER (ORDER BY a RANGE BETWEEN count(*) PRECEDING AND "
    "(SELECT max(b) FROM t) FOLLOWING) AS m FROM u GROUP BY a",
    "SELECT a, b, sum(a) OVER w AS m FROM t WINDOW w AS (PARTITION BY s ORDER BY ts RANGE BETWEEN "
    "b * INTERVAL 5 SECOND PRECEDING AND INTERVAL 2 SECOND PRECEDING)",
]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("text", COMPUTED_FRAMES)
def test_frames_whose_bounds_are_expressions_are_what_duckdb_answers(text, seed):
    check_case(case_of(text, seed))


NUMBERED = """(SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) AS n
               FROM (SELECT DISTINCT a, b FROM t))"""
# Before the join or UNPIVOT, the bound of n would change which rows these return.
BOUNDS_AFTER_FROM = [
    f"SELECT u.a, u.x, q.b FROM u ASOF JOIN {NUMBERED} q ON u.a = q.a AND u.x + 5 >= q.b "
    "WHERE q.n <= 1",
    f"WITH c AS {NUMBERED} SELECT v.b, c.n, u.a "
    "FROM v JOIN c RIGHT JOIN u ON c.a = u.a ON v.b = u.a WHERE c.n = 2",
    f"SELECT v.b, q.n, u.a FROM v JOIN {NUMBERED} q RIGHT JOIN u ON q.a = u.a ON v.b = u.a "
    "WHERE q.n = 2",
    f"SELECT u.a, q.n FROM ({NUMBERED} q RIGHT JOIN u ON q.a = u.a) WHERE q.n = 2",
    f"SELECT a, n FROM {NUMBERED} q UNPIVOT (n FOR name IN (n, b)) WHERE n <= 1",
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("text", BOUNDS_AFTER_FROM)
def test_a_bounded_row_number_below_another_clause_is_what_duckdb_answers(text, seed):
    check_case(case_of(text, seed))


def test_a_bounded_row_number_of_a_table_as_of_a_time_numbers_all_its_rows():
    circuit = compile_sql(
        """WITH p AS (SELECT k, ts, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM prices)
           SELECT e.ts, p.n FROM e JOIN p FOR SYSTEM_TIME AS OF e.ts ON e.k = p.k WHERE p.n <= 1""",
        {"e": "k BIGINT, ts TIMESTAMP_NTZ", "prices": "k BIGINT, ts TIMESTAMP_NTZ"},
    )
    events = [{"k": 1, "ts": datetime(2024, 1, day)} for day in (2, 6)]
    prices = [{"k": 1, "ts": datetime(2024, 1, day)} for day in (1, 5)]
    view = circuit.step({"e": events, "prices": prices})["view"]
    assert view.to_pylist() == [{"ts": datetime(2024, 1, 2), "n": 1, "weight": 1}]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("ROWS BETWEEN n PRECEDING AND CURRENT ROW", "ROWS frame is negative or NULL"),
        ("GROUPS BETWEEN n PRECEDING AND CURRENT ROW", "GROUPS frame is negative"),
        ("RANGE BETWEEN n PRECEDING AND CURRENT ROW", "RANGE frame is negative"),
        ("RANGE BETWEEN CURRENT ROW AND n FOLLOWING", "RANGE frame is negative"),
    ],
)
def test_a_negative_offset_of_a_frame_is_an_error_of_its_row(frame, message):
    circuit = compile_sql(
        f"SELECT count(*) OVER (ORDER BY x {frame}) AS c FROM r", {"r": "x BIGINT, n BIGINT"}
    )
    assert circuit.step({"r": [{"x": 1, "n": 2}]})["view"].num_rows == 1
    with pytest.raises(EvaluationError, match=message):
        circuit.step({"r": [{"x": 2, "n": -1}]})
    assert circuit.step({"r": [{"x": 2, "n": 0}]})["view"].num_rows == 1


def test_a_frame_with_computed_bounds_that_ends_before_it_starts_is_an_error():
    with pytest.raises(SqlError, match="ends before it starts"):
        compile_sql(
            "SELECT count(*) OVER (ORDER BY x ROWS BETWEEN n FOLLOWING AND CURRENT ROW) FROM r",
            {"r": "x BIGINT, n BIGINT"},
        )


# A frame whose bounds, both before or both after the row, are exchanged holds no row.
EMPTY_FRAMES = [
    "SELECT a, b, count(*) OVER w AS n, sum(b) OVER w AS m FROM t WINDOW w AS (ORDER BY a, b, s"
    " ROWS BETWEEN 3 FOLLOWING AND 1 FOLLOWING)",
    "SELECT a, b, count(b) OVER w AS n, max(s) OVER w AS m FROM t WINDOW w AS (PARTITION BY b"
    " ORDER BY a RANGE BETWEEN 1 PRECEDING AND 2 PRECEDING EXCLUDE TIES)",
    "SELECT a, b, avg(b) OVER w AS n, min(a) OVER w AS m FROM t WINDOW w AS (ORDER BY a DESC"
    " GROUPS BETWEEN 1 PRECEDING AND 2 PRECEDING)",
]


@settings(LAW, max_examples=30)
@given(st.data())
def test_frames_that_end_before_they_start_are_empty_as_in_duckdb(data):
    check(data, st.sampled_from(EMPTY_FRAMES))


# A list without an ORDER BY of its own has the order of its window.
LISTS = [
    "SELECT a, b, s, array_to_string(list(s) OVER (PARTITION BY a ORDER BY b DESC, s), ',') AS m"
    " FROM t",
    "SELECT a, b, s, array_to_string(array_agg(b) OVER (ORDER BY s, a, b ROWS BETWEEN 2 PRECEDING"
    " AND CURRENT ROW), ',') AS m, string_agg(s, '-') OVER (ORDER BY a DESC, b, s) AS n FROM t",
    "SELECT a, b, s, array_to_string(list(s ORDER BY s DESC) OVER (PARTITION BY a ORDER BY b), ',')"
    " AS m FROM t",
]


@settings(LAW, max_examples=30)
@given(st.data())
def test_lists_over_a_window_are_in_its_order_as_in_duckdb(data):
    check(data, st.sampled_from(LISTS))


def test_an_offset_of_a_frame_is_an_interval_of_several_units():
    frame = "RANGE BETWEEN INTERVAL 1 DAY 2 HOURS PRECEDING AND CURRENT ROW"
    query = f"SELECT h, sum(h) OVER (ORDER BY ts {frame}) AS n FROM t"
    schema = pa.schema([("h", pa.int64()), ("ts", pa.timestamp("us"))])
    hours = [0, 1, 26, 27, 52]
    times = [datetime(2024, 1, 1) + timedelta(hours=h) for h in hours]
    rows = pa.table([hours, times], schema=schema)
    view = compile_sql(query, {"t": schema}, dialect="spark").step({"t": rows})["view"]
    sums = dict(zip(view["h"].to_pylist(), view["n"].to_pylist(), strict=True))
    assert sums == {0: 0, 1: 1, 26: 27, 27: 54, 52: 105}
    unread = query.replace("INTERVAL 1 DAY 2 HOURS", "(2 * INTERVAL 1 DAY)")
    with pytest.raises(UnsupportedSqlError, match="an offset that is not a constant"):
        compile_sql(unread, {"t": schema}, dialect="spark")


@pytest.mark.parametrize("overhead", [-(10**9), 16])
@pytest.mark.parametrize("nulls", ["FIRST", "LAST"])
@pytest.mark.parametrize(
    "frame",
    [
        "1 PRECEDING AND 1 FOLLOWING",
        "UNBOUNDED PRECEDING AND 1 FOLLOWING",
        "2 FOLLOWING AND UNBOUNDED FOLLOWING",
        "i PRECEDING AND CURRENT ROW EXCLUDE TIES",
    ],
)
def test_nan_is_the_first_value_of_a_descending_frame_as_in_duckdb(frame, nulls, overhead):
    doubles = [1.0, 2.0, nan, inf, -inf, None, -0.0, 0.5, nan, -1.0]
    rows = pa.table({"i": range(10), "x": pa.array(doubles, pa.float64())})
    window = f"ORDER BY x DESC NULLS {nulls} RANGE BETWEEN {frame}"
    query = f"SELECT i, sum(i) OVER ({window}) AS n FROM t"
    circuit = compile_sql(query, {"t": rows.schema})
    total: Counter[tuple[int, int | None]] = Counter()
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
        for position in range(0, 10, 2):
            view = circuit.step({"t": rows.slice(position, 2)})["view"]
            for row in view.to_pylist():
                total[row["i"], row["n"]] += row["weight"]
    database = duckdb.connect()
    database.register("t", rows)
    assert +total == Counter(database.sql(query).fetchall())
