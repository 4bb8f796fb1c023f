"""The kernels of group changes against their definitions in plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.kernels.values.group_changes import (
    distinct_keys,
    first_slot_weights,
    replaced_results,
    rows_of_slots,
    split_at_step,
)

VALUES = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])


def to_array(rows, columns):
    """Return rows as an array of shape ``(columns, rows)``."""
    return np.array(rows, np.int64).reshape(len(rows), columns).T.copy()


@given(st.integers(1, 3), st.integers(0, 2), st.data())
@settings(max_examples=60)
def test_the_distinct_keys_are_the_sorted_set_of_keys(key_count, others, data):
    rows = data.draw(st.sets(st.tuples(*[VALUES] * (key_count + others)), max_size=12))
    keys = distinct_keys(to_array(sorted(rows), key_count + others), key_count)
    assert list(zip(*keys.tolist(), strict=True)) == sorted({row[:key_count] for row in rows})


@given(st.integers(0, 3), st.data())
@settings(max_examples=60)
def test_rows_are_split_at_the_step(columns, data):
    weight = st.integers(-1, 2)
    row = st.tuples(st.integers(0, 4), st.tuples(*[VALUES] * columns), weight, weight)
    rows = data.draw(st.lists(row, max_size=10))
    indices, split, weights = split_at_step(
        np.array([index for index, _, _, _ in rows], np.int64),
        to_array([values for _, values, _, _ in rows], columns),
        np.array([old for _, _, old, _ in rows], np.int64),
        np.array([new for _, _, _, new in rows], np.int64),
        5,
    )
    expected = [(index, values, old) for index, values, old, _ in rows if old]
    expected += [(index + 5, values, new) for index, values, _, new in rows if new]
    found = zip(indices.tolist(), map(tuple, split.T.tolist()), weights.tolist(), strict=True)
    assert list(found) == expected


@given(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 11)), VALUES, max_size=12))
@settings(max_examples=60)
def test_slots_belong_to_their_quantities(state):
    groups, slots = to_array(list(state), 2)
    weights = np.array(list(state.values()), np.int64)
    first_weights = first_slot_weights(groups, slots, weights, 3, 4, 4)
    for quantity in range(3):
        of_groups = [state.get((group, 4 * quantity), 0) for group in range(4)]
        assert first_weights[quantity].tolist() == of_groups
        rows = rows_of_slots(groups, slots, weights, 4 * quantity, 4 * quantity + 4)
        assert list(zip(*(array.tolist() for array in rows), strict=True)) == [
            (group, slot % 4, weight)
            for (group, slot), weight in state.items()
            if slot // 4 == quantity
        ]


@given(st.integers(0, 2), st.integers(0, 2), st.booleans(), st.data())
@settings(max_examples=150)
def test_old_results_are_replaced_by_the_new_ones_that_differ(columns, key_count, initial, data):
    key = st.tuples(*[VALUES] * key_count)
    result = st.none() | st.tuples(*[st.integers(0, 2)] * columns)
    states = data.draw(st.dictionaries(key, st.tuples(result, result), max_size=6))
    keys = sorted(states)
    old, new = ([states[key][place] for key in keys] for place in (0, 1))
    rows, weights = replaced_results(
        to_array(keys, key_count),
        np.array([value is not None for value in (*old, *new)], np.bool_),
        to_array([value or (7,) * columns for value in (*old, *new)], columns),
        initial,
    )
    expected: dict[tuple[int, ...], int] = {}
    for key, before, after in zip(keys, old, new, strict=True):
        if before is not None and not initial:
            expected[key + before] = expected.get(key + before, 0) - 1
        if after is not None:
            expected[key + after] = expected.get(key + after, 0) + 1
    found = list(zip(map(tuple, rows.T.tolist()), weights.tolist(), strict=True))
    assert found == sorted((row, weight) for row, weight in expected.items() if weight)
