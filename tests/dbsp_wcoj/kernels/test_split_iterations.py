"""Split iterations: each iteration gets its rows in their order, one iteration later."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.kernels.values.split_iterations import split_and_delay

VALUE = st.sampled_from([-(2**63), -(2**62), 0, 1, 2**62, 2**63 - 1])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rows_are_grouped_by_iteration_and_delayed(data):
    columns = data.draw(st.integers(0, 2))
    row = st.tuples(*[VALUE] * columns, st.integers(0, 3))
    zset = data.draw(st.dictionaries(row, st.integers(-2, 2), max_size=8))
    rows = np.array(sorted(zset), np.int64).reshape(-1, columns + 1).T.copy()
    weights = np.array([zset[row] for row in sorted(zset)], np.int64)
    ends, blocks, split_weights = split_and_delay(
        rows, weights, np.argsort(rows[-1], kind="stable")
    )
    expected = defaultdict(list)
    for *values, iteration in sorted(zset):
        expected[iteration].append((*values, iteration))
    begin, size = 0, columns + 1
    for iteration, end in zip(sorted(expected), ends.tolist(), strict=True):
        part = blocks[size * begin : size * end].reshape(size, end - begin)
        assert [(*values, i - 1) for *values, i in part.T.tolist()] == expected[iteration]
        assert split_weights[begin:end].tolist() == [zset[row] for row in expected[iteration]]
        begin = end
    assert begin == len(zset)
