"""The benchmark of bounded state on a small stream: the kept rows do not grow."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import bounded_state
from benchmarks.verdict import Verdict
from circuits.runtime.state_sizes import UNBOUNDED

EVENTS, BATCH = 240_000, 4_000


@pytest.mark.parametrize("name", bounded_state.QUERIES)
def test_a_query_keeps_a_constant_number_of_rows_and_gives_all_results(name):
    verdict = Verdict()

    measurement = bounded_state.measure(name, EVENTS, BATCH, seed=1)
    bounded_state.check(verdict, name, EVENTS, measurement)

    kept_rows = [row["rows held"] for row in measurement.rows]
    assert len(kept_rows) == bounded_state.SAMPLES
    assert max(kept_rows[10:]) <= bounded_state.TARGET_GROWTH * max(kept_rows[3:10])
    assert all(row["bound"] != UNBOUNDED for row in measurement.operators)
    assert verdict.comparisons >= 2
    assert not verdict.differences


def test_each_event_arrives_once_and_at_most_four_seconds_late():
    batches = [
        bounded_state.arrivals(start, start + 1000, 1, 10_000) for start in range(0, 14_000, 1000)
    ]
    events = np.concatenate(batches)
    assert sorted(events.tolist()) == list(range(10_000))
    delay = np.maximum.accumulate(events) - events
    assert 0 < delay.max() <= bounded_state.MAX_DELAY_EVENTS
