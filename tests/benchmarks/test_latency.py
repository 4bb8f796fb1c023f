"""The benchmark of the largest step on a small stream: its answers agree, and no row is missing."""

from __future__ import annotations

import pytest

from benchmarks import latency
from benchmarks.result import Result
from benchmarks.verdict import Verdict

SIZES = latency.Sizes(loads=3, load_rows=2_000, steps=60, step_rows=20)


@pytest.mark.parametrize("place", latency.STATES)
def test_the_steps_of_a_small_stream_are_measured_and_checked(place, tmp_path):
    result = Result("latency", "", {latency.LARGEST: [], latency.SERIES: []})
    verdict = Verdict()
    latency.measure(result, verdict, place, tmp_path, SIZES, seed=1, repeats=2)
    assert verdict.comparisons == 2 and not verdict.differences
    rows = result.tables[latency.LARGEST]
    assert [(row["rows/step"], row["steps"]) for row in rows] == [(2_000, 3), (20, 60)]
    assert all(row["max/median"] >= 1 for row in rows)
    assert [row["steps"] for row in result.tables[latency.SERIES]] == list(range(2, 61, 2))
    assert all(row["max CPU ms of any run"] >= row["max CPU ms"] for row in rows)
    assert not any(tmp_path.iterdir())
