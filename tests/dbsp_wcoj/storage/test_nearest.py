"""The nearest rows of a trace, against a search through all rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.nearest import NearestRows


@pytest.mark.parametrize("arity", [1, 2, 3])
@given(data=st.data())
def test_the_nearest_rows_have_the_nearest_last_column(arity, data):
    row = st.tuples(*[st.integers(0, 4)] * arity)
    delta = st.dictionaries(row, st.sampled_from([-1, 1, 2]), max_size=5)
    trace, state = Trace(arity), ZSet.empty(arity)
    for change in data.draw(st.lists(delta, max_size=5)):
        rows = ZSet.from_rows(change.keys(), change.values(), arity=arity)
        trace.update(rows)
        state += rows
    change = data.draw(delta)
    staged = ZSet.from_rows(change.keys(), change.values(), arity=arity)
    searched = data.draw(st.lists(st.tuples(*[st.integers(-1, 5)] * arity), min_size=1, max_size=6))
    next_step = trace.prepare(staged) if len(staged) else None
    for step, rows in ((None, state), (next_step, state + staged)):
        nearest = NearestRows(trace, step)
        for inclusive in (False, True):
            before = nearest.before(np.array(searched).T, inclusive=inclusive)
            after = nearest.after(np.array(searched).T, inclusive=inclusive)
            for number, (*prefix, value) in enumerate(searched):
                values = [last for *first, last in rows.to_dict() if first == prefix]
                equal = [value] if inclusive and value in values else []
                less = [v for v in values if v < value] + equal
                more = [v for v in values if v > value] + equal
                assert before.exists[number] == bool(less)
                assert after.exists[number] == bool(more)
                assert not less or before.values[number] == max(less)
                assert not more or after.values[number] == min(more)
