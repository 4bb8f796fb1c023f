"""Dates, moments, local times and intervals in dialect spark; the zone is UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from circuits import SqlError, compile_sql

SCHEMAS = {"t": "d DATE, ts TIMESTAMP, local TIMESTAMP_NTZ"}
MIDNIGHT = datetime(2024, 1, 5)
ROW = {"d": date(2024, 1, 5), "ts": MIDNIGHT.replace(tzinfo=UTC), "local": datetime(2024, 1, 5, 1)}

# The values are those of Spark 4.
CASES = {
    "d = ts": True,
    "d < ts": False,
    "d <=> ts": True,
    "local > ts": True,
    "ts BETWEEN d AND local": True,
    "ts IN (d, NULL)": True,
    "greatest(d, ts)": ROW["ts"],
    "coalesce(ts, d)": ROW["ts"],
    "CASE WHEN ts < local THEN d ELSE ts END": ROW["ts"],
    "if(ts = local, ts, local)": datetime(2024, 1, 5, 1, tzinfo=UTC),
    "nullif(d, DATE '2024-01-06')": ROW["d"],
    "(d + 1) - ts": timedelta(days=1),
    "ts - DATE '2024-01-04'": timedelta(days=1),
    "ts LIKE '2024%' AND d NOT LIKE '2023%' AND 12 LIKE ANY ('1_', 'x')": True,
    "avg(ts)": 1_704_412_800.0,
    "first_value(d, false)": ROW["d"],
    "last_value(d, false) OVER (ORDER BY ts)": ROW["d"],
}


@pytest.mark.parametrize("expression", CASES)
def test_a_date_or_local_time_next_to_a_moment_is_a_moment(expression):
    circuit = compile_sql(f"SELECT {expression} AS x FROM t", SCHEMAS, dialect="spark")
    assert circuit.step({"t": [ROW]})["view"].to_pylist() == [{"x": CASES[expression], "weight": 1}]


# Operands of different types, and the value that Spark 4 returns. s is '12', z '2024-01-05'.
MIXED = {
    "n = s": True,
    "n < s": False,
    "s > 5": True,
    "s IN (12, 7)": True,
    "s BETWEEN 1 AND 13": True,
    "n <=> s": True,
    "coalesce(s, n)": 12,
    "coalesce(s, 1.5)": 12.0,
    "CASE WHEN n > 20 THEN n ELSE s END": 12,
    "nullif(n, s)": None,
    "array(n, s)": [12, 12],
    "z = d": True,
    "coalesce(z, d)": date(2024, 1, 5),
    "array(d, ts)": [ROW["ts"], ROW["ts"]],
    "map('a', d, 'b', ts)['a']": ROW["ts"],
}


@pytest.mark.parametrize("expression", MIXED)
def test_a_text_next_to_another_value_is_cast_to_its_type(expression):
    schema = {"t": f"{SCHEMAS['t']}, n INT, s STRING, z STRING"}
    circuit = compile_sql(f"SELECT {expression} AS x FROM t", schema, dialect="spark")
    rows = [{**ROW, "n": 12, "s": "12", "z": "2024-01-05"}]
    assert circuit.step({"t": rows})["view"].to_pylist() == [{"x": MIXED[expression], "weight": 1}]


def test_a_set_operation_has_the_widest_type_and_the_largest_and_least_refuse_texts():
    queries = "SELECT d AS x FROM t UNION SELECT ts FROM t", "SELECT s AS x FROM t UNION SELECT 7"
    schema = {"t": f"{SCHEMAS['t']}, s STRING"}
    values = []
    for query in queries:
        circuit = compile_sql(query, schema, dialect="spark")
        view = circuit.step({"t": [{**ROW, "s": "12"}]})["view"]
        values.append(sorted(view["x"].to_pylist()))
    assert values == [[ROW["ts"]], [7, 12]]
    with pytest.raises(SqlError, match="no common type"):
        compile_sql("SELECT greatest(s, length(s)) FROM t", schema, dialect="spark")


# None for a text that Spark 4 does not read.
MOMENTS = {
    "10": 600,
    "10:00": 600,
    "10:00 ": 600,
    "10:00:00 +02": 480,
    "10:00:00   +02:00": 480,
    "10:00:00. +2": 480,
    "10:00:00  UTC": 600,
    "10:00:00  UTC+2": 480,
    "10:00:00  Europe/Paris": 540,
    **dict.fromkeys(("10:", "10:00:", "10:00:Z", "10:00:.5", "10:00Z", "10:00 UTC", "10:00+02")),
    **dict.fromkeys(("10:00 +02", "10:00 UTC+2", "10:00 Europe/Paris")),
}


@pytest.mark.parametrize("clock", MOMENTS)
def test_a_text_is_the_moment_that_spark_reads(clock):
    text, minutes = f"2020-01-01 {clock}", MOMENTS[clock]
    query = "SELECT try_cast(a AS TIMESTAMP) AS ts, try_cast(a AS DATE) AS d FROM t"
    circuit = compile_sql(query, {"t": "a STRING"}, dialect="spark")

    (row,) = circuit.step({"t": [{"a": text}]})["view"].to_pylist()

    start = datetime(2020, 1, 1, tzinfo=UTC)
    assert row["ts"] == (None if minutes is None else start + timedelta(minutes=minutes))
    assert row["d"] == start.date()


def test_a_date_joins_the_moment_at_its_start():
    query = "SELECT a.d FROM t a JOIN t b ON a.d = b.ts WHERE a.d IN (SELECT ts FROM t)"
    circuit = compile_sql(query, SCHEMAS, dialect="spark")
    assert circuit.step({"t": [ROW]})["view"].to_pylist() == [{"d": ROW["d"], "weight": 1}]


def test_intervals_have_a_sum_and_a_mean_which_is_rounded_half_away_from_zero():
    query = "SELECT sum(b - a) AS s, avg(b - a) AS m, avg(a - b) AS n FROM t"
    circuit = compile_sql(query, {"t": "a TIMESTAMP_NTZ, b TIMESTAMP_NTZ"}, dialect="spark")
    rows: list[dict[str, Any]] = [
        {"a": MIDNIGHT, "b": MIDNIGHT + timedelta(microseconds=micros)} for micros in (1, 2, 7)
    ]
    rows.append({"a": MIDNIGHT, "b": None})
    circuit.step({"t": rows})
    deleted = rows[2] | {"weight": -1}
    after = circuit.step({"t": [deleted]})["view"].sort_by("weight").to_pylist()
    micros = [(row["s"], row["m"], row["n"]) for row in after]
    unit = timedelta(microseconds=1)
    # 10 / 3 is 3, and 1.5 is 2; these are the results of Spark 4.
    assert micros == [(10 * unit, 3 * unit, -3 * unit), (3 * unit, 2 * unit, -2 * unit)]


def test_the_sum_of_intervals_is_that_of_postgres_too_but_not_of_duckdb():
    schemas = {"t": "a TIMESTAMP_NTZ, b TIMESTAMP_NTZ"}
    row = {"a": MIDNIGHT, "b": MIDNIGHT + timedelta(hours=2)}
    circuit = compile_sql("SELECT sum(b - a) AS s FROM t", schemas, dialect="postgres")
    delta = circuit.step({"t": [row, row]})["view"].to_pylist()
    assert delta == [{"s": timedelta(hours=4), "weight": 1}]
    with pytest.raises(SqlError, match="sum takes numbers"):
        compile_sql("SELECT sum(b - a) AS s FROM t", schemas)
