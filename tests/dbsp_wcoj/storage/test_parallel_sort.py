"""Rows sorted in two halves in parallel are sorted like rows in one piece."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.storage.parallel_sort import MIN_PARALLEL_ROWS, split_rows
from dbsp_wcoj.zset import MAX_INT64

ROWS = MIN_PARALLEL_ROWS + MIN_PARALLEL_ROWS // 8


def columns(arity: int, spread: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-spread, spread, ROWS) for _ in range(arity)]


@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("spread", [50, 10**6, 2**62])
def test_the_zset_is_the_same_whoever_sorts_it(arity, spread):
    given = columns(arity, spread)
    weights = np.random.default_rng(1).integers(-1, 3, ROWS)
    assert (split_rows(given, weights) is not None) == (arity * (2 * spread).bit_length() <= 64)
    with ThreadPoolExecutor(1) as executor:
        for some in (None, weights):
            at_once = ZSet.from_columns(given, some)
            assert ZSet.from_columns(given, some, executor=executor) == at_once


def test_columns_that_are_no_contiguous_arrays_are_cut():
    rows = np.stack(columns(2, 1000), axis=1)
    with ThreadPoolExecutor(1) as executor:
        found = ZSet.from_columns(list(rows.T), executor=executor)
    assert found == ZSet.from_columns([rows[:, 0].copy(), rows[:, 1].copy()])


def test_rows_that_look_sorted_or_have_one_first_value_or_are_few_are_not_cut():
    first, second = columns(2, 1000)
    weights = np.ones(ROWS, np.int64)
    assert split_rows([first, second], weights) is not None
    assert split_rows([np.sort(first), second], weights) is None
    assert split_rows([first * (np.arange(ROWS) % 16 == 0), second], weights) is None
    assert (
        split_rows(
            [first[: MIN_PARALLEL_ROWS - 1], second[: MIN_PARALLEL_ROWS - 1]],
            weights[: MIN_PARALLEL_ROWS - 1],
        )
        is None
    )


@pytest.mark.parametrize("half", [(), (0,), (1,), (0, 1)])
def test_rows_whose_weights_cancel_in_a_half_are_gone(half):
    first, second = columns(2, 1000)
    first[first < 0] = -1
    where = np.isin(first >= 0, half)
    weights = np.ones(ROWS, np.int64)
    repeated = [np.concatenate((column, column[where])) for column in (first, second)]
    given = np.concatenate((weights, -weights[where]))
    with ThreadPoolExecutor(1) as executor:
        found = ZSet.from_columns(repeated, given, executor=executor)
    assert found == ZSet.from_columns([first[~where], second[~where]])


@pytest.mark.parametrize("half", [0, 1])
def test_a_weight_beyond_int64_is_refused_in_either_half(half):
    first, second = columns(2, 1000)
    weights = np.ones(ROWS, np.int64)
    twice = [2000 * half - 1000] * 2
    first[:2], second[:2], weights[:2] = twice, [7, 7], MAX_INT64
    with ThreadPoolExecutor(1) as executor, pytest.raises(WeightOverflowError):
        ZSet.from_columns([first, second], weights, executor=executor)
