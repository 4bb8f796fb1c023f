"""Partial sums are the sum of their summands, whatever the sizes of buffers and ranges."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.runtime import partial_sum as partial_sum_module
from circuits.runtime.partial_sum import PackedSum, PartialSum, add_in_ranges, store
from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.zset import MAX_INT64, consolidated_rows
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles.naive import add

MIN_INT64 = -MAX_INT64 - 1


def total(
    deltas: list[dict], arity: int, buffer_bytes: int, range_bytes: int, first_bytes: int = 8
) -> ZSet:
    partial_sum = PartialSum(arity, buffer_bytes, first_bytes=first_bytes)
    for delta in deltas:
        partial_sum.append(zset(delta, arity=arity))
    return add_in_ranges(partial_sum.finish(), arity, range_bytes)


@LAW
@given(st.data(), st.integers(1, 3), st.integers(8, 300), st.integers(8, 300), st.integers(8, 300))
def test_the_sum_of_slices_is_the_sum_of_all_rows(
    data: st.DataObject, arity: int, buffer_bytes: int, range_bytes: int, first_bytes: int
) -> None:
    deltas = data.draw(
        st.lists(relation_deltas(arity, data.draw(st.sampled_from(DOMAINS))), max_size=6)
    )
    expected: dict = {}
    for delta in deltas:
        expected = add(expected, delta)
    result = total(deltas, arity, buffer_bytes, range_bytes, first_bytes)
    result._check()
    assert result.to_dict() == expected


@given(st.lists(st.sampled_from([MIN_INT64, -1, 0, 5, MAX_INT64]), min_size=1, max_size=4))
def test_rows_that_do_not_fit_in_a_key_are_stored_as_they_are(values: list[int]) -> None:
    rows = [(x, y) for x in values for y in values]
    deltas = [{row: 1} for row in rows]
    expected: dict = {}
    for delta in deltas:
        expected = add(expected, delta)
    assert total(deltas, 2, 80, 80).to_dict() == expected


@given(
    st.lists(st.integers(-9, 9), min_size=1),
    st.lists(st.sampled_from([MIN_INT64, -10, -3, 0, 4, 9, 10, MAX_INT64]), unique=True),
)
def test_values_are_found_in_packed_rows_as_in_columns(rows: list[int], values: list[int]) -> None:
    stored = store(ZSet.from_rows([(row, row % 3) for row in rows]))
    assert isinstance(stored, PackedSum)
    found = stored.find(np.array(sorted(values), np.int64))
    assert found == [sum(row < value for row in set(rows)) for value in sorted(values)]


def test_the_sum_of_few_groups_never_leaves_the_buffer() -> None:
    partial_sum = PartialSum(1, buffer_bytes=16 * 10)
    for number in range(100):
        partial_sum.append(ZSet.from_rows([(number % 5,)]))
    (stored,) = partial_sum.finish()
    assert stored.read(0, 9).to_dict() == {(number,): 20 for number in range(5)}


def test_a_single_z_set_is_not_copied() -> None:
    rows = ZSet.from_rows([(3, 1), (4, 5)])
    partial_sum = PartialSum(2)
    for summand in (ZSet.empty(2), rows, ZSet.empty(2)):
        partial_sum.append(summand)
    stored = partial_sum.finish()
    assert np.shares_memory(stored[0].columns, rows.row_array)
    result = add_in_ranges(stored, 2)
    assert result == rows and np.shares_memory(result.row_array, rows.row_array)


@pytest.mark.parametrize(("groups", "size"), [(5, 10), (6, 40), (20, 40), (21, 60), (30, 60)])
def test_a_buffer_grows_only_if_the_sum_does_not_leave_half_of_it_free(
    groups: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sorts: list[int] = []

    def sort(rows: np.ndarray, weights: np.ndarray) -> ZSet:
        sorts.append(len(weights))
        return consolidated_rows(rows, weights)

    monkeypatch.setattr(partial_sum_module, "consolidated_rows", sort)
    partial_sum = PartialSum(1, buffer_bytes=16 * 60, first_bytes=16 * 10)
    for number in range(1000):
        partial_sum.append(ZSet.from_rows([(number % groups,)]))
    (stored,) = partial_sum.finish()
    assert stored.rows == groups and max(sorts) == size


@pytest.mark.parametrize("summands", [1, 10])
def test_the_buffer_is_no_larger_than_its_rows_need(summands: int) -> None:
    slices = [ZSet.from_rows([(number, row) for row in range(100)]) for number in range(10)]
    tracemalloc.start()
    try:
        partial_sum = PartialSum(2, summands=summands)
        for rows in slices:
            partial_sum.append(rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # While the buffer grows, the old one and one of at most twice the rows.
    assert peak < 24 * 3 * 1000 + 10_000
    result = add_in_ranges(partial_sum.finish(), 2)
    assert result == ZSet.from_rows([(number, row) for number in range(10) for row in range(100)])


def test_a_sum_that_leaves_int64_is_an_error() -> None:
    with pytest.raises(WeightOverflowError):
        total([{(1, 2): MAX_INT64}, {(1, 2): 1}], 2, 1000, 1000)
    with pytest.raises(WeightOverflowError):
        total([{(1, 2): MAX_INT64}, {(0, 1): 1}, {(1, 2): 1}], 2, 24, 24)
