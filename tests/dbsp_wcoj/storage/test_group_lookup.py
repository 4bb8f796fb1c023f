"""The states of groups before and after a step, against sums of the changes."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ArityError, Trace, ZSet
from dbsp_wcoj.storage.group_lookup import group_slots

EXTREMES = [-(2**63), -1, 0, 1, 2**63 - 1]


@st.composite
def histories(draw):
    """Return the number of key columns, lists of changes (row, weight), and keys to look up."""
    k = draw(st.integers(0, 3))
    values = st.sampled_from(EXTREMES) if draw(st.booleans()) else st.integers(0, 2)
    change = st.tuples(st.tuples(*[values] * (k + 1)), st.integers(-2, 3))
    steps = draw(st.lists(st.lists(change, max_size=12), min_size=1, max_size=6))
    keys = draw(st.lists(st.tuples(*[values] * k), min_size=1, max_size=6))
    return k, steps, keys


def zset_of(changes, arity):
    rows, weights = [row for row, _ in changes], [weight for _, weight in changes]
    return ZSet.from_rows(rows, weights, arity=arity)


def slots_of(steps, keys):
    """Return (index of the key, slot, sum of the weights) for sums that are not 0, sorted."""
    sums = Counter()
    for row, weight in chain(*steps):
        sums[row] += weight
    return [
        (index, row[-1], sums[row])
        for index, key in enumerate(keys)
        for row in sorted(sums)
        if row[:-1] == key and sums[row]
    ]


@given(histories())
def test_the_slots_before_and_after_a_step_are_sums_of_the_changes(history):
    k, (*earlier, last), keys = history
    trace = Trace(k + 1)
    for changes in earlier:
        trace.update(zset_of(changes, k + 1))
    delta = zset_of(last, k + 1)
    step = trace.prepare(delta) if len(delta) else None
    found = group_slots(trace, np.array(keys, np.int64).reshape(len(keys), k).T, step)
    before = slots_of(earlier, keys)
    after = slots_of([*earlier, last], keys)
    expected = before + [(len(keys) + index, slot, weight) for index, slot, weight in after]
    assert list(zip(*(array.tolist() for array in found), strict=True)) == expected


def test_weights_of_int64_are_exact():
    # The second run wraps the running sums of weights around.
    rows, greatest = [(1, slot) for slot in range(3)], 2**63 - 1
    trace = Trace(2)
    trace.update(ZSet.from_rows(rows, [greatest, greatest, 1]))
    found = group_slots(
        trace, np.array([[1]]), trace.prepare(ZSet.from_rows(rows[:1], [-greatest]))
    )
    assert found.weights.tolist() == [greatest, greatest, 1, greatest, 1]


def test_keys_of_another_number_of_columns_are_an_error():
    for keys in ([[7], [0]], np.empty((0, 1))):
        with pytest.raises(ArityError, match="the trace has 2"):
            group_slots(Trace(2), np.array(keys, np.int64))
