"""Rows that are sorted in parts in parallel give the same Z-set as one sort."""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.storage.parallel_sort import MIN_SPLIT_ROWS, split_rows
from dbsp_wcoj.workers import count_shares
from dbsp_wcoj.zset import MAX_INT64
from tests.support.working_threads import working_threads

ROWS = MIN_SPLIT_ROWS + MIN_SPLIT_ROWS // 8


def random_columns(arity: int, spread: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-spread, spread, ROWS) for _ in range(arity)]


@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("spread", [50, 10**6, 2**62])
def test_a_parallel_sort_gives_the_same_zset(arity, spread):
    columns = random_columns(arity, spread)
    weights = np.random.default_rng(1).integers(-1, 3, ROWS)
    for optional_weights in (None, weights):
        expected = ZSet.from_columns(columns, optional_weights)
        with working_threads(2):
            split = split_rows(columns, optional_weights)
            assert split.has_whole_rows == (arity * (2 * spread).bit_length() <= 64)
            assert ZSet.from_columns(columns, optional_weights) == expected


def test_columns_that_are_no_contiguous_arrays_are_split():
    rows = np.stack(random_columns(2, 1000), axis=1)
    with working_threads(2):
        result = ZSet.from_columns(list(rows.T))
    assert result == ZSet.from_columns([rows[:, 0].copy(), rows[:, 1].copy()])


def test_read_only_columns_are_split():
    columns = random_columns(2, 1000)
    weights = np.random.default_rng(1).integers(-1, 3, ROWS)
    expected = ZSet.from_columns(columns, weights)
    for array in (*columns, weights):
        array.flags.writeable = False
    with working_threads(2):
        assert ZSet.from_columns(columns, weights) == expected


def test_rows_that_are_sorted_or_few_are_not_split():
    first, second = random_columns(2, 1000)
    weights = np.ones(ROWS, np.int64)
    assert split_rows([first, second], weights) is None  # one thread
    with working_threads(2):
        assert split_rows([first, second], weights) is not None
        assert split_rows([np.sort(first), second], weights) is None
        assert (
            split_rows(
                [first[: MIN_SPLIT_ROWS - 1], second[: MIN_SPLIT_ROWS - 1]],
                weights[: MIN_SPLIT_ROWS - 1],
            )
            is None
        )


@pytest.mark.parametrize("threads", [2, 4, 8])
def test_the_rows_are_shared_evenly_although_most_have_one_first_value(threads):
    rows = 1 << 20
    first, second = np.random.default_rng(1).integers(0, 10**6, (2, rows))
    first *= np.arange(rows) % 16 == 0
    with working_threads(threads):
        split = split_rows([first, second], None)
        assert split is not None
        shares = count_shares(split.part_sizes, threads)
    assert sum(shares) == rows
    assert max(shares) < 1.25 * rows / threads


@pytest.mark.parametrize("half", [(), (0,), (1,), (0, 1)])
def test_rows_whose_weights_cancel_in_a_half_are_dropped(half):
    first, second = random_columns(2, 1000)
    first[first < 0] = -1
    cancels = np.isin(first >= 0, half)
    weights = np.ones(ROWS, np.int64)
    repeated = [np.concatenate((column, column[cancels])) for column in (first, second)]
    all_weights = np.concatenate((weights, -weights[cancels]))
    with working_threads(2):
        result = ZSet.from_columns(repeated, all_weights)
    assert result == ZSet.from_columns([first[~cancels], second[~cancels]])


@pytest.mark.parametrize("half", [0, 1])
def test_a_weight_beyond_int64_is_refused_in_either_half(half):
    first, second = random_columns(2, 1000)
    weights = np.ones(ROWS, np.int64)
    # Two equal rows, whose weights add up to more than int64 holds.
    first[:2], second[:2], weights[:2] = 2000 * half - 1000, 7, MAX_INT64
    with working_threads(2), pytest.raises(WeightOverflowError):
        ZSet.from_columns([first, second], weights)
