"""Overlays: staged steps are read as if they were committed, and removed without a change."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup

ROWS = st.dictionaries(
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.sampled_from([-1, 1, 2]),
    min_size=1,
    max_size=40,
)


def draw_rows(data) -> ZSet:
    rows = data.draw(ROWS)
    return ZSet.from_rows(rows.keys(), rows.values())


@settings(max_examples=40)
@given(st.data())
def test_an_overlay_is_read_as_if_committed_and_its_sum_can_be_committed(data):
    trace, committed = Trace(2, [(0, 1), (1, 0)]), Trace(2)
    for _ in range(data.draw(st.integers(0, 3))):
        base = draw_rows(data)
        trace.update(base)
        committed.update(base)
    everything = ZSet.from_rows([(a, b) for a in range(5) for b in range(5)])
    for _ in range(2):
        weights_before = trace.weights_of(everything).tolist()
        total = ZSet.empty(2)
        for number in range(data.draw(st.integers(1, 6))):
            delta = draw_rows(data)
            trace.push_overlay(trace.prepare(delta))
            committed.update(delta)
            total += delta
            if number == 1 and data.draw(st.booleans()):
                trace.arrange((0, 1))
            for arrangement in trace.arrangements:
                arrangement.spine._check()
            assert (
                trace.weights_of(everything).tolist() == committed.weights_of(everything).tolist()
            )
        popped = trace.pop_overlay()
        assert trace.weights_of(everything).tolist() == weights_before
        step = popped.total()
        assert (ZSet.empty(2) if step is None else step.delta) == total
        if step is not None:
            step.commit()
        for arrangement in trace.arrangements:
            arrangement.spine._check()
        assert trace.weights_of(everything).tolist() == committed.weights_of(everything).tolist()


def test_an_arrangement_that_is_built_during_an_overlay_includes_it():
    trace = Trace(2)
    trace.update(ZSet.from_rows([(1, 2)]))
    trace.push_overlay(trace.prepare(ZSet.from_rows([(3, 4)])))
    with_overlay = prefix_lookup(trace, np.array([[2, 4]]), order=(1, 0))
    assert with_overlay.rows.tolist() == [[1, 3]]
    trace.pop_overlay()
    assert prefix_lookup(trace, np.array([[2, 4]]), order=(1, 0)).rows.tolist() == [[1]]
