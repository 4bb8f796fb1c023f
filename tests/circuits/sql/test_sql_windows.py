"""Window functions of SQL against DuckDB: random ones, and the syntax of other engines."""

from __future__ import annotations

from datetime import datetime, timedelta
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import UnsupportedSqlError, compile_sql
from circuits.runtime.operators.windows import window as window_module
from tests.circuits.sql.test_sql_circuits import LAW, check
from tests.generators.sql_generator import Writer


@st.composite
def window_queries(draw):
    """Draw a SELECT with window functions over one table, or over a join."""
    writer = Writer(draw)
    source, scope = writer.source(0)
    where = f" WHERE {writer.condition(scope, 0, ())}" if writer.chance(20) else ""
    return writer.select_with_windows(source, where, scope)[0]


# The cost of a segment decides between its two paths; the first one makes all steps read segments.
@settings(LAW, max_examples=150)
@given(st.data(), st.sampled_from([-(10**9), 16]))
def test_maintained_window_functions_are_what_duckdb_answers(data, overhead):
    with mock.patch.object(window_module, "SEGMENT_OVERHEAD_ROWS", overhead):
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
    with mock.patch.object(window_module, "SEGMENT_OVERHEAD_ROWS", -(10**9)):
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
    with mock.patch.object(window_module, "SEGMENT_OVERHEAD_ROWS", overhead):
        check(data, st.sampled_from(MONTH_FRAMES))


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
