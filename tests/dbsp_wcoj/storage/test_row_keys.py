"""Row keys: rows packed into one number each, and sets of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.storage import row_keys
from dbsp_wcoj.storage.row_keys import KeyLayout, RowKeySet
from dbsp_wcoj.zset import ZSet

EXTREME = st.sampled_from([-(2**63), -(2**62), -1, 0, 1, 2**40, 2**62, 2**63 - 1])
VALUES = st.one_of(st.integers(-5, 5), EXTREME)


def array(rows: list[tuple[int, ...]], arity: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(len(rows), arity).T.copy()


@settings(max_examples=150)
@given(st.data())
def test_keys_have_the_order_of_their_rows_and_are_decoded(data):
    arity = data.draw(st.integers(1, 3))
    row = st.tuples(*[VALUES] * arity)
    rows = data.draw(st.lists(row, min_size=1, max_size=20, unique=True).map(sorted))
    layout = KeyLayout.covering(array(rows, arity))
    bits = sum((max(c) - min(c)).bit_length() for c in zip(*rows, strict=True))
    assert (layout is None) == (bits > 63)
    if layout is None:
        return
    assert layout.fits(array(rows, arity))
    keys = layout.encode(array(rows, arity)).tolist()
    assert keys == sorted(set(keys)) and keys[0] >= 0
    assert np.array_equal(layout.decode(np.array(keys)), array(rows, arity))
    other = data.draw(st.lists(row, min_size=1, max_size=5))
    assert layout.fits(array(other, arity)) == all(
        low <= value < low + (1 << bits)
        for values in other
        for value, low, bits in zip(values, layout.lowest, layout.bits, strict=True)
    )
    wider = KeyLayout.covering(array(other, arity), layout)
    if wider is not None:
        assert wider.fits(array(other, arity)) and wider.fits(array(rows, arity))


def test_a_column_that_grows_gets_one_bit_more_than_it_needs_if_the_key_has_room():
    layout = KeyLayout.covering(np.array([[0, 3], [0, 1]]))
    assert layout is not None and layout.bits == (2, 1)
    grown = KeyLayout.covering(np.array([[4], [0]]), layout)
    assert grown is not None and grown.bits == (4, 1)
    full = KeyLayout.covering(np.array([[2**62 - 1], [0]]), layout)
    assert full is not None and full.bits == (62, 1)


def test_rows_without_columns_have_the_key_0():
    layout = KeyLayout.covering(np.empty((0, 1), np.int64))
    assert layout is not None
    assert layout.encode(np.empty((0, 1), np.int64)).tolist() == [0]
    assert layout.decode(np.zeros(1, np.int64)).shape == (0, 1)


@pytest.mark.parametrize(("largest", "key_bits"), [(40, 6), (40, 40), (10_000, 20)])
@settings(max_examples=60)
@given(st.data())
def test_a_key_is_absent_exactly_when_it_is_added_for_the_first_time(largest, key_bits, data):
    keys, added = RowKeySet(key_bits), set()
    batch = st.lists(st.integers(0, largest), max_size=60, unique=True).map(sorted)
    for numbers in data.draw(st.lists(batch, max_size=12)):
        if data.draw(st.booleans()):
            new = data.draw(st.permutations([number for number in numbers if number not in added]))
            keys.add_new(np.array(new, np.int64))
        else:
            absent = keys.add_absent(np.array(numbers, np.int64))
            assert absent.tolist() == [number not in added for number in numbers]
        added.update(numbers)
        assert len(keys) == len(added)
    assert keys.keys.tolist() == sorted(added)
    layout = KeyLayout((0,), (key_bits,))
    assert keys.rows(layout).tolist() == [sorted(added)]
    if keys.bitmap(1 << 20) is not None:
        assert keys.rows(layout).tolist() == [sorted(added)]


@pytest.mark.parametrize("max_small_bits", [0, 1 << 16], ids=["arrays", "bitmap"])
def test_keys_are_translated_to_another_layout(max_small_bits, monkeypatch):
    monkeypatch.setattr(row_keys, "MAX_SMALL_BITS", max_small_bits)
    monkeypatch.setattr(row_keys, "MAX_BITS_PER_KEY", 0)
    small = KeyLayout.covering(np.array([[0, 3], [5, 5]]))
    assert small is not None
    keys = RowKeySet(small.total_bits)
    keys.add_absent(small.encode(np.array([[0, 3], [5, 5]])))
    large = KeyLayout.covering(np.array([[9], [-7]]), small)
    assert large is not None
    keys = keys.translated(small, large)
    assert len(keys) == 2
    rows = np.array([[0, 1, 3], [5, 5, 5]])
    assert keys.add_absent(large.encode(rows)).tolist() == [False, True, False]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_rows_that_fit_are_added_in_one_pass_and_others_change_nothing(data):
    layout = KeyLayout((-(2**63), 0), (2, 2))
    first, second = st.integers(-(2**63), -(2**63) + 3), st.integers(0, 3)
    row = st.one_of(st.tuples(first, second), st.tuples(VALUES, VALUES))
    row = data.draw(st.sampled_from([st.tuples(first, second), row]))
    known, words = RowKeySet(4), np.array([layout.lowest, layout.bits])
    model: set[tuple[int, ...]] = set()
    for iteration in range(1, 5):
        weights = data.draw(st.dictionaries(row, st.integers(-1, 4), min_size=1, max_size=6))
        iterations = data.draw(st.sampled_from([[iteration], [iteration], [0, iteration]]))
        rows = ZSet.from_rows([(*r, i) for r in weights for i in iterations], arity=3)
        values = np.array([weights[r[:2]] for r, _ in rows])
        rows = ZSet(rows.row_array, values)
        keys = np.empty(len(rows), np.uint32)
        added = known.add_rows(rows, words, keys, after=iteration - 1, max_weight=3)
        fits = layout.fits(rows.row_array[:2]) and values.min() > 0 and values.max() <= 3
        if not fits or len(iterations) > 1:
            assert added is None
            continue
        assert keys.tolist() == layout.encode(rows.row_array[:2]).tolist()
        new = sorted(set(weights) - model)
        assert added[0].T.tolist() == [[*r, iteration] for r in new]
        assert added[1] == max(weights.values())
        model |= set(weights)
        assert len(known) == len(model)
    assert known.rows(layout).T.tolist() == [list(r) for r in sorted(model)]


def test_a_set_of_rows_without_columns_has_one_key_and_one_row():
    keys = RowKeySet(0)
    assert keys.add_absent(np.array([0])).tolist() == [True]
    assert keys.rows(KeyLayout((), ())).shape == (0, 1)
    assert keys.keys.tolist() == [0]
