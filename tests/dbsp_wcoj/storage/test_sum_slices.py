"""Sum of runs in slices: it equals the sum of the rows, in bounded slices."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.sum_slices import sum_slices

WEIGHTS = st.integers(-2, 2).filter(bool)


@st.composite
def bags_of_runs(draw):
    arity = draw(st.integers(1, 3))
    row = st.tuples(*[st.integers(-2, 3)] * arity)
    return arity, draw(st.lists(st.dictionaries(row, WEIGHTS, min_size=1), max_size=4))


@given(bags_of_runs(), st.integers(1, 5))
def test_the_slices_are_the_sum_in_order_and_each_run_adds_few_rows_to_a_slice(drawn, size):
    arity, bags = drawn
    runs = [Run.of(ZSet.from_rows(list(bag), list(bag.values())), np.arange(arity)) for bag in bags]
    total: Counter = Counter()
    for bag in bags:
        total.update(bag)
    found, read = [], 0
    for rows, read_rows in sum_slices(runs, size):
        assert 0 < read_rows <= size * len(runs)
        read += read_rows
        found += sorted(rows.to_dict().items())
    assert found == sorted((row, weight) for row, weight in total.items() if weight)
    assert read == sum(map(len, bags))
