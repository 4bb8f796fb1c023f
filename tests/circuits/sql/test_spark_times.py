"""Dates, moments and local times next to each other in dialect spark; the zone is UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from circuits import compile_sql

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
}


@pytest.mark.parametrize("expression", CASES)
def test_a_date_or_local_time_next_to_a_moment_is_a_moment(expression):
    circuit = compile_sql(f"SELECT {expression} AS x FROM t", SCHEMAS, dialect="spark")
    assert circuit.step({"t": [ROW]})["view"].to_pylist() == [{"x": CASES[expression], "weight": 1}]


def test_a_date_joins_the_moment_at_its_start():
    query = "SELECT a.d FROM t a JOIN t b ON a.d = b.ts WHERE a.d IN (SELECT ts FROM t)"
    circuit = compile_sql(query, SCHEMAS, dialect="spark")
    assert circuit.step({"t": [ROW]})["view"].to_pylist() == [{"d": ROW["d"], "weight": 1}]
