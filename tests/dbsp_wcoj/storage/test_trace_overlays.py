"""Staged steps of a trace: read as if they were committed, and abandoned without a trace."""

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


def drawn(data) -> ZSet:
    rows = data.draw(ROWS)
    return ZSet.from_rows(rows.keys(), rows.values())


@settings(max_examples=40)
@given(st.data())
def test_steps_that_are_laid_are_read_as_if_they_had_happened_and_leave_no_mark(data):
    """Laid one on the other, then lifted; their sum, committed, is what they all come to."""
    trace, other = Trace(2, [(0, 1), (1, 0)]), Trace(2)
    for _ in range(data.draw(st.integers(0, 3))):
        base = drawn(data)
        trace.update(base)
        other.update(base)
    everything = ZSet.from_rows([(a, b) for a in range(5) for b in range(5)])
    for _ in range(2):
        before = trace.weights_of(everything).tolist()
        total = ZSet.empty(2)
        for number in range(data.draw(st.integers(1, 6))):
            delta = drawn(data)
            trace.push_overlay(trace.prepare(delta))
            other.update(delta)
            total += delta
            if number == 1 and data.draw(st.booleans()):
                trace.arrange((0, 1))
            for arrangement in trace.arrangements:
                arrangement.spine._check()
            assert trace.weights_of(everything).tolist() == other.weights_of(everything).tolist()
        laid = trace.pop_overlay()
        assert trace.weights_of(everything).tolist() == before
        step = laid.total()
        assert (ZSet.empty(2) if step is None else step.delta) == total
        if step is not None:
            step.commit()
        for arrangement in trace.arrangements:
            arrangement.spine._check()
        assert trace.weights_of(everything).tolist() == other.weights_of(everything).tolist()


def test_an_arrangement_that_is_made_while_steps_are_laid_has_them():
    trace = Trace(2)
    trace.update(ZSet.from_rows([(1, 2)]))
    trace.push_overlay(trace.prepare(ZSet.from_rows([(3, 4)])))
    found = prefix_lookup(trace, np.array([[2, 4]]), order=(1, 0))
    assert found.rows.tolist() == [[1, 3]]
    trace.pop_overlay()
    assert prefix_lookup(trace, np.array([[2, 4]]), order=(1, 0)).rows.tolist() == [[1]]
