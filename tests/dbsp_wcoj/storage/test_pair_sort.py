"""Pairs that are sorted by counting are the sorted pairs, with their numbers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj import zset as zset_module
from dbsp_wcoj.kernels.storage.pair_sort import sort_pairs
from dbsp_wcoj.storage import pair_sort
from dbsp_wcoj.storage.pair_sort import sort_dense_pairs
from tests.generators.strategies import LAW

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
SECONDS = (
    [0, 1, 2],
    [-(2**61), -1, 5, 2**61 - 1],
    [MAX_INT64 - 3, MAX_INT64],
    [MIN_INT64, -(2**62)],
)


@LAW
@given(st.data(), st.sampled_from([0, -7, MIN_INT64, MAX_INT64 - 5]), st.sampled_from(SECONDS))
def test_dense_pairs_are_sorted_and_counted(
    data: st.DataObject, lowest: int, seconds: list[int]
) -> None:
    pair = st.tuples(st.integers(0, 5), st.sampled_from(seconds))
    pairs = [(lowest + x, y) for x, y in data.draw(st.lists(pair, min_size=1, max_size=80))]
    result = sort_dense_pairs(*np.array(pairs, np.int64).T)
    if result is None:  # too few pairs, or in order
        numbers = max(x for x, _ in pairs) - min(x for x, _ in pairs) + 1
        assert 4 * numbers > len(pairs) or pairs == sorted(set(pairs))
        return
    rows, counts = result
    expected = sorted(Counter(pairs).items())
    assert [*zip(*rows.tolist(), strict=True)] == [pair for pair, _ in expected]
    assert (counts is None) == (len(expected) == len(pairs))
    if counts is not None:
        assert counts.tolist() == [count for _, count in expected]


@pytest.mark.parametrize("most", [50, 1000, 2**40])
def test_long_lists_are_sorted(most: int) -> None:
    random = np.random.default_rng(most)
    first, second = random.integers(3, 9, 5000), random.integers(-most, most, 5000)
    result = sort_dense_pairs(first, second)
    assert result is not None
    different, counts = np.unique(np.stack((first, second)), axis=1, return_counts=True)
    assert result[0].tolist() == different.tolist()
    assert (result[1] is None and counts.max() == 1) or result[1].tolist() == counts.tolist()


@pytest.mark.parametrize("seconds", [(MIN_INT64, MAX_INT64), (0, 2**62)])
def test_values_that_are_far_apart_are_left_to_another_sort(seconds: tuple[int, int]) -> None:
    assert sort_dense_pairs(np.zeros(9, np.int64), np.array([*seconds] * 4 + [0])) is None
    sparse = np.array([MIN_INT64, MAX_INT64] * 8)
    assert sort_dense_pairs(sparse, np.arange(16)) is None


def test_a_large_binary_relation_is_sorted_by_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zset_module, "MIN_PAIRS", 100)
    calls = []

    def count(first: np.ndarray, second: np.ndarray):
        calls.append(len(first))
        return pair_sort.sort_dense_pairs(first, second)

    monkeypatch.setattr(zset_module, "sort_dense_pairs", count)
    random = np.random.default_rng(0)
    wide = random.integers(0, 40, (500, 2))
    rows = ZSet.from_columns([wide[:, 0], wide[:, 1]])  # strided columns
    rows._check()
    assert calls == [500] and rows.to_dict() == Counter(map(tuple, wide.tolist()))
    weighted = ZSet.from_columns([wide[:, 0], wide[:, 1]], np.full(500, -1))
    assert calls == [500] and weighted == -rows


@pytest.mark.parametrize("read_only", [(True, True), (True, False), (False, True)])
def test_read_only_columns_as_those_of_arrow_compile_no_kernel(
    read_only: tuple[bool, bool],
) -> None:
    columns = np.random.default_rng(0).integers(0, 9, (2, 500))
    expected = sort_dense_pairs(*columns)
    signatures = list(sort_pairs.signatures)
    first, second = columns[0], columns[1]
    first.flags.writeable, second.flags.writeable = (not fixed for fixed in read_only)
    result = sort_dense_pairs(first, second)
    assert expected is not None and result is not None
    assert all(map(np.array_equal, result, expected))
    assert sort_pairs.signatures == signatures
