"""The benchmark of new strings on a small stream: the view is right, and the state is bounded."""

from __future__ import annotations

import pytest

from benchmarks import new_strings
from benchmarks.verdict import Verdict
from circuits.state import dictionary_sweep
from streaming.state import compaction


@pytest.mark.parametrize("memory_limit", [None, 100_000])
def test_a_stream_of_new_strings_keeps_its_size(tmp_path, monkeypatch, memory_limit):
    monkeypatch.setattr(dictionary_sweep, "MIN_NEW_VALUES", 100)
    monkeypatch.setattr(dictionary_sweep, "MIN_WORK", 100)
    monkeypatch.setattr(compaction, "MIN_REMOVED_ROWS", 100)
    verdict = Verdict()

    rows, finals = new_strings.measure(
        verdict, tmp_path, strings=60_000, live=2_000, batch=100, memory_limit=memory_limit
    )

    assert verdict.comparisons == 2 and not verdict.differences
    assert [row["strings"] for row in rows] == list(range(6_000, 60_001, 6_000))
    sizes = {row["size"]: row["ratio"] for row in finals}
    assert sizes["dictionaries MB"] <= 4 and sizes["rows MB"] <= 2
    for row in rows:
        assert ("in memory MB" in row) == (memory_limit is not None)
        if memory_limit is not None:
            total = row["in memory MB"] + row["mapped MB"]
            assert row["in memory MB"] < row["dictionaries MB"] < total, "dictionaries are mapped"
