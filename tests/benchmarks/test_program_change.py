"""The benchmark of changed views on a small graph: each change has the rows of a fresh start."""

from __future__ import annotations

from benchmarks import program_change
from benchmarks.verdict import Verdict


def test_each_change_reads_the_rows_once_and_has_the_rows_of_a_fresh_start():
    verdict = Verdict()

    rows = program_change.measure(verdict, rows=400, repetitions=1)

    assert verdict.comparisons == len(rows) == len(program_change.VIEWS)
    assert not verdict.differences
    assert all(0 < row["rows read"] <= 400 for row in rows)
