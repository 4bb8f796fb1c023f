"""The benchmark of a state in an object store: its answers agree, and no row is missing."""

from __future__ import annotations

import pytest

from benchmarks.latency import Sizes
from benchmarks.result import Result
from benchmarks.verdict import Verdict

SIZES = Sizes(loads=2, load_rows=2_000, steps=6, step_rows=20)


def test_a_small_stream_is_measured_in_both_places_and_checked(monkeypatch):
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    from benchmarks import object_store

    result = Result("object_store", "", {object_store.STEPS: [], object_store.RESTARTS: []})
    verdict = Verdict()
    with object_store.s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        object_store.measure(result, verdict, SIZES, seed=1)
    assert verdict.comparisons == 2 and not verdict.differences
    assert [(row["rows/step"], row["steps"]) for row in result.tables[object_store.STEPS]] == [
        *((2_000, 2), (20, 6)),
        *((2_000, 2), (20, 6)),
    ]
    *_, loads, steps = result.tables[object_store.STEPS]
    assert loads["max requests"] <= steps["max requests"]
    assert steps["median requests"] == 11 < object_store.MAX_REQUESTS
    assert tuple(steps)[-len(object_store.COMPARED) :] == object_store.COMPARED
    restarts = result.tables[object_store.RESTARTS]
    assert [row["copies on the local disk"] for row in restarts] == [None, "kept", "empty"]
    assert restarts[2]["requests"] > restarts[1]["requests"] > 0
