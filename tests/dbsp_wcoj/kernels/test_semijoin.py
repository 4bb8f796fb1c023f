"""The semijoin kernel selects the rows that plain Python selects."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.storage.semijoin import semijoin_rows
from dbsp_wcoj.storage.trace import Trace
from tests.generators.strategies import LAW

VALUES = st.integers(0, 200) | st.sampled_from([-(2**63), 2**63 - 1])


@LAW
@given(
    st.lists(st.lists(st.tuples(VALUES), max_size=150), max_size=3),
    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20),
)
def test_semijoin_rows_equal_those_of_plain_python(inserted, rows):
    trace = Trace(1)
    for step, values in enumerate(inserted):
        delta = ZSet.from_rows(values, [(-1) ** step] * len(values), arity=1)
        trace.update(delta)
    members = {value for (value,), _ in trace.to_zset()}
    delta = ZSet.from_rows(rows, range(1, len(rows) + 1))
    table = trace.arrangements[0].spine.table_address
    # Conditions on both columns; three semijoins: the first column, the second one, both.
    filters = np.array([2, 0, table, 1, table, 0b01, 0b10, 0b11])
    out, counts, largest = semijoin_rows(delta.row_array, delta.weight_array, filters)
    assert largest == max(abs(weight) for _, weight in delta)
    start = 0
    for count, columns in zip(counts.tolist(), [(0,), (1,), (0, 1)], strict=True):
        words = out[start : start + 3 * count].reshape(3, count)
        found = [((a, b), weight) for a, b, weight in words.T.tolist()]
        assert found == [(row, w) for row, w in delta if all(row[c] in members for c in columns)]
        start += 3 * count
    assert start == len(out)
