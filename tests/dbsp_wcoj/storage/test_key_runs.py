"""A run that is built from keys equals the run of the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.key_runs import KeyRunBuilder
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.run import Run


@pytest.mark.parametrize("spread", [1, 1000], ids=["dense keys", "sparse keys"])
@pytest.mark.parametrize("arity", [1, 2, 3, 4])
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_run_equals_that_of_the_rows(arity, spread, data):
    value = st.integers(-2, 60).map(lambda number: number * spread)
    row = st.tuples(*[value] * (arity - 1), st.integers(-2, 5))
    largest = data.draw(st.sampled_from([1, 3]))
    weights = data.draw(st.dictionaries(row, st.integers(1, largest), min_size=1, max_size=200))
    zset = ZSet.from_rows(list(weights), list(weights.values()))
    layout = KeyLayout.covering(zset.row_array[:-1])
    assert layout is not None
    prefixes = sorted({row[:-1] for row in weights})
    collects = data.draw(st.booleans())
    builder = KeyRunBuilder(
        layout,
        rows=len(zset),
        keys=len(prefixes) if collects else len(zset),
        has_weights=largest > 1,
        collects_first_rows=collects,
        last_column_offset=5,
    )
    keys = layout.encode(zset.row_array[:-1])
    cut = np.array(data.draw(st.sampled_from(keys.tolist())))
    key_type = data.draw(st.sampled_from([np.int64, np.uint64]))
    values = np.unique(zset.row_array[-1]).tolist()
    for in_part in (keys < cut, keys >= cut):
        groups = [np.flatnonzero(in_part & (zset.row_array[-1] == value)) for value in values]
        builder.append(
            [keys[group].astype(key_type) for group in groups],
            values,
            [None if largest == 1 else zset.weight_array[group] for group in groups],
        )
    run, expected = builder.finish(), Run.of(zset, np.arange(arity))
    assert not run.find_damage()
    assert run.max_abs_weight == expected.max_abs_weight
    for words, expected_words in zip(run.read(), expected.read(), strict=True):
        assert np.array_equal(words, expected_words)
    first = {row[:-1]: row[-1] + 5 for row in sorted(weights, reverse=True)}
    expected_rows = [(*prefix, first[prefix]) for prefix in prefixes] if collects else []
    assert list(map(tuple, builder.first_rows.T.tolist())) == expected_rows
