"""Runs that are built in parts in parallel are the same as those of one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp_wcoj.storage.run
from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.storage.trie import run_words
from dbsp_wcoj.storage import parallel_build, parallel_sort
from dbsp_wcoj.storage.parallel_build import MIN_DIVIDED_BUILD_ROWS, write_in_parts
from dbsp_wcoj.storage.run import Run
from tests.support.working_threads import working_threads


@contextmanager
def divided_builds() -> Iterator[None]:
    """Let two threads sort and build runs of any size in parts."""
    with ExitStack() as stack:
        for module, name, value in (
            (dbsp_wcoj.storage.run, "MIN_DIVIDED_BUILD_ROWS", 1),
            (parallel_build, "MIN_DIVIDED_BUILD_ROWS", 1),
            (parallel_build, "MIN_PART_ROWS", 1),
            (parallel_sort, "MIN_SPLIT_ROWS", 1),
            (parallel_sort, "MIN_PART_ROWS", 1),
            (parallel_sort, "SLICE_ROWS", 2),
        ):
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(working_threads(2))
        yield


@st.composite
def zsets(draw: st.DrawFn) -> ZSet:
    """Rows of two to four columns, with values of a tiny or a wide domain."""
    arity = draw(st.integers(2, 4))
    values = st.integers(0, 2) if draw(st.booleans()) else st.integers(-(2**62), 2**62)
    weights = st.just(1) if draw(st.booleans()) else st.sampled_from([-1, 1, 2, 2**62])
    rows = draw(st.dictionaries(st.tuples(*[values] * arity), weights, min_size=1, max_size=60))
    return ZSet.from_columns(np.array([*rows]).T.copy(), np.array([*rows.values()]))


@settings(deadline=None)
@given(zsets(), st.integers(1, 5))
def test_a_run_that_is_written_in_parts_is_the_same(zset, parts):
    expected = Run.of(zset, np.arange(zset.arity))
    words = np.zeros(run_words(zset.arity, len(zset)), np.int64)
    found = Run(words, *write_in_parts(zset.rows, zset.weights, words, min(parts, len(zset))))
    assert np.array_equal(found.to_words(), expected.to_words())
    assert (found.rows, found.max_abs_weight) == (expected.rows, expected.max_abs_weight)
    assert not found.find_damage()


@settings(deadline=None)
@given(zsets(), st.data())
def test_a_run_in_any_column_order_is_the_same(zset, data):
    order = np.array(data.draw(st.permutations(range(zset.arity))))
    expected = Run.of(zset, order)
    with divided_builds():
        found = Run.of(zset, order)
    assert np.array_equal(found.to_words(), expected.to_words())


@pytest.mark.parametrize("order", [*permutations(range(3))])
@pytest.mark.parametrize("is_uniform", [True, False])
def test_a_large_run_is_the_same(order, is_uniform):
    rng = np.random.default_rng(1)
    rows = MIN_DIVIDED_BUILD_ROWS + 1000
    columns = [rng.integers(0, size, rows) for size in (1000, 50, 10**6)]
    zset = ZSet.from_columns(columns, None if is_uniform else rng.integers(1, 4, rows))
    assert len(zset) > MIN_DIVIDED_BUILD_ROWS
    expected = Run.of(zset, np.array(order))
    with working_threads(2):
        found = Run.of(zset, np.array(order))
    assert np.array_equal(found.to_words(), expected.to_words())
    assert not found.find_damage()
