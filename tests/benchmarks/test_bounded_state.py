"""The benchmark of bounded state on a small stream: the kept rows do not grow."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import bounded_state
from benchmarks.verdict import Verdict
from circuits.runtime.state_sizes import UNBOUNDED

EVENTS, BATCH = 240_000, 4_000


@pytest.mark.parametrize("name", bounded_state.QUERIES)
def test_a_query_holds_a_constant_number_of_rows_and_gives_all_results(name):
    verdict = Verdict()

    measurement = bounded_state.measure(name, EVENTS, BATCH, seed=1)
    bounded_state.check(verdict, name, EVENTS, measurement)

    held = [row["rows held"] for row in measurement.rows]
    assert len(held) == bounded_state.SAMPLES
    assert max(held[10:]) <= bounded_state.TARGET_GROWTH * max(held[3:10])
    assert all(row["bound"] != UNBOUNDED for row in measurement.operators)
    assert verdict.comparisons >= 2
    assert not verdict.differences


def test_each_event_arrives_once_and_at_most_four_seconds_late():
    parts = [bounded_state.arrivals(s, s + 1000, 1, 10_000) for s in range(0, 14_000, 1000)]
    events = np.concatenate(parts)
    assert sorted(events.tolist()) == list(range(10_000))
    behind = np.maximum.accumulate(events) - events
    assert 0 < behind.max() <= bounded_state.MAX_DELAY_EVENTS
