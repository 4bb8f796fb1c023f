"""Presence changes, against sums of Python integers, for rows and weights of any size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.kernels.values.presence_changes import change_presence

MAX_INT64 = 2**63 - 1
VALUE = st.sampled_from([-(2**63), -(2**62), -1, 0, 2**62, MAX_INT64])
WEIGHT = st.one_of(st.integers(-2, 2), st.sampled_from([-(2**62), 2**62, MAX_INT64]))
History = dict[int, tuple[int, int]]  # the old and the new weight at each iteration


def first_sums(history: History, side: int) -> list[int]:
    """Return the sums of the weights before the first iteration, and after each one."""
    sums = [0]
    for iteration in sorted(history):
        sums.append(sums[-1] + history[iteration][side])
    return sums


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_changes_are_those_of_the_sums_of_weights(data):
    columns = data.draw(st.integers(0, 2))
    row = st.tuples(*[VALUE] * columns)
    history = st.dictionaries(st.integers(0, 4), st.tuples(WEIGHT, WEIGHT), max_size=4)
    histories = data.draw(st.dictionaries(row, history, max_size=4))
    ordered = sorted(histories)
    entries = [
        (index, iteration, *histories[row][iteration])
        for index, row in enumerate(ordered)
        for iteration in sorted(histories[row])
    ]
    rows = np.array(ordered, np.int64).reshape(len(ordered), columns).T.copy()
    columns_of_entries = np.array(entries, np.int64).reshape(-1, 4).T.copy()
    changed, weights, is_overflow = change_presence(rows, *columns_of_entries)
    sums = [first_sums(histories[row], side) for row in ordered for side in (0, 1)]
    assert is_overflow == any(abs(total) > MAX_INT64 for of_row in sums for total in of_row)
    if is_overflow:
        return
    expected = {}
    for row, history in histories.items():
        old, new = ([total > 0 for total in first_sums(history, side)] for side in (0, 1))
        for iteration, (was, is_old), (would, is_new) in zip(
            sorted(history), pairwise(old), pairwise(new), strict=True
        ):
            expected[(*row, iteration)] = is_new - would - (is_old - was)
    result = [tuple(column) for column in changed.T.tolist()]
    assert result == sorted(result)
    assert dict(zip(result, weights.tolist(), strict=True)) == {
        row: change for row, change in expected.items() if change
    }


@pytest.mark.parametrize("weight", [MAX_INT64, -MAX_INT64])
def test_a_sum_is_not_valid_even_if_later_weights_cancel_it(weight):
    columns = np.array([[0, 0, 0], [1, 2, 3], [0, 0, 0], [weight, weight, -weight]])
    assert change_presence(np.zeros((1, 1), np.int64), *columns)[2]
