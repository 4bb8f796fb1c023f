"""The least values of groups, against a dict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.storage import least_values
from dbsp_wcoj.storage.least_values import LeastValues
from dbsp_wcoj.storage.row_keys import KeyLayout

VALUE_BITS = 3


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(0, 7)), min_size=1, max_size=60, unique=True
        ),
        max_size=5,
    )
)
def test_keys_that_lower_the_least_value_of_their_group_are_found(batches):
    least: dict[int, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(least_values, "MIN_SLOTS", 2)
        values = LeastValues(VALUE_BITS)
    for batch in batches:
        batch.sort()
        expected = []
        for position, (group, value) in enumerate(batch):
            if value < least.get(group, 8):
                least[group] = value
                expected.append(position)
        keys = np.array([group << VALUE_BITS | value for group, value in batch])
        assert values.lower(keys).tolist() == expected
        assert len(values) == len(least)
    assert values.keys().tolist() == sorted(g << VALUE_BITS | v for g, v in least.items())


@pytest.mark.parametrize("value_bits", [0, 62, 63])
def test_keys_may_have_bits_of_the_group_or_of_the_value_only(value_bits):
    values = LeastValues(value_bits)
    largest = 2**63 - 1
    assert values.lower(np.array([largest])).tolist() == [0]
    assert values.lower(np.array([largest - 1])).tolist() == [0]
    kept = [largest - 1, largest] if value_bits == 0 else [largest - 1]
    assert values.keys().tolist() == kept
    assert not len(values.lower(np.array([largest])))


def test_the_keys_of_another_layout_have_the_same_least_values():
    old, new = KeyLayout((0, 0), (2, 2)), KeyLayout((-1, -4), (4, 5))
    values = LeastValues(2)
    values.lower(old.encode(np.array([[1, 2, 2], [3, 0, 1]])))
    translated = values.translated(old, new)
    assert new.decode(translated.keys()).tolist() == [[1, 2], [3, 0]]
    assert translated.lower(new.encode(np.array([[1, 2], [-2, 0]]))).tolist() == [0]
