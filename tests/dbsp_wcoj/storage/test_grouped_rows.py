"""Grouped rows have each row as often as it is given, by its first value, and are sorted later."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet, generic_join
from dbsp_wcoj.kernels.storage.group_pairs import group_pairs
from dbsp_wcoj.storage import grouped_rows
from dbsp_wcoj.storage.grouped_rows import GroupedPairs
from dbsp_wcoj.storage.trace import TraceStep
from tests.generators.strategies import LAW

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
SECONDS = ([0, 1, 2], [-(2**31), 2**31 - 1], [2**31, 5], [MIN_INT64, MAX_INT64])


def grouped(pairs: list[tuple[int, int]]) -> GroupedPairs:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped_rows, "MIN_PAIRS_PER_NUMBER", 0)
        rows = GroupedPairs.of(*np.array(pairs, np.int64).T)
    assert rows is not None
    return rows


@LAW
@given(st.data(), st.sampled_from([0, -7, MIN_INT64, MAX_INT64 - 50]), st.sampled_from(SECONDS))
def test_lists_have_the_values_in_the_order_of_the_rows(
    data: st.DataObject, lowest: int, seconds: list[int]
) -> None:
    pair = st.tuples(st.integers(0, 50), st.sampled_from(seconds))
    pairs = [(lowest + x, y) for x, y in data.draw(st.lists(pair, min_size=1, max_size=90))]
    rows = grouped(pairs)
    run = rows.grouped
    assert run is not None
    columns, weights = run.read()
    assert [*zip(*columns.tolist(), strict=True)] == sorted(pairs, key=lambda pair: pair[0])
    assert set(weights.tolist()) == {1} and run.end <= len(run.buffer)
    assert max(Counter(pairs).values()) <= run.max_abs_weight
    trace = Trace(2, [(0, 1), (1, 0)])
    step = TraceStep(trace, None, deferred=rows)
    assert step.for_lookups().run((0, 1)) is run
    expected = ZSet.from_rows(pairs)
    assert step.for_lookups().run((1, 0)).read()[0].tolist() == sorted_by_second(expected)
    step.commit()
    assert trace.deferred is rows
    assert trace.to_zset() == expected
    assert rows.grouped is None
    for arrangement in trace.arrangements:
        arrangement.spine._check()


def sorted_by_second(rows: ZSet) -> list[list[int]]:
    order = np.lexsort(rows.rows)
    return rows.rows[::-1, order].tolist()


def test_a_join_that_looks_up_first_values_reads_whole_lists() -> None:
    generator = np.random.default_rng(5)
    pairs = generator.integers(0, 70, (900, 2))
    step = TraceStep(Trace(2), None, deferred=grouped([*map(tuple, pairs.tolist())]))
    trace = Trace(2)
    trace.push_overlay(step.for_lookups())
    overlay = trace.visible_run((0, 1))
    assert overlay is step.for_lookups().run((0, 1))
    sources = ZSet.from_columns([np.arange(0, 90, 3)])
    view = "q(y) :- r(x), e(x, y)"
    expected = generic_join(view, {"r": sources, "e": ZSet.from_columns([*pairs.T])})
    counts = Counter(y for x, y in pairs.tolist() if x % 3 == 0)
    assert expected.to_dict() == {(y,): count for y, count in counts.items()}


def test_first_values_that_are_far_apart_are_not_grouped() -> None:
    assert GroupedPairs.of(np.array([0, 0, 0, 0, 1]), np.arange(5)) is None
    assert GroupedPairs.of(np.array([MIN_INT64, MAX_INT64] * 8), np.arange(16)) is None


def test_columns_of_any_form_are_grouped_by_one_compiled_kernel() -> None:
    pairs = np.random.default_rng(0).integers(0, 9, (500, 2))
    expected = GroupedPairs.of(*np.ascontiguousarray(pairs.T))
    signatures = list(group_pairs.signatures)
    fixed = np.ascontiguousarray(pairs.T)
    fixed.flags.writeable = False
    for columns in (fixed, pairs.T):
        rows = GroupedPairs.of(*columns)
        assert expected is not None and rows is not None
        assert np.array_equal(rows.grouped.read()[0], expected.grouped.read()[0])
    assert group_pairs.signatures == signatures
