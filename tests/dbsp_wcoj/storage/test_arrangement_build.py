"""Arrangements that are built a slice at a time: their rows, and the work of each slice."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.storage import arrangement_build, trace
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import Trace
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles.naive import add
from tests.support.interrupts import InterruptedAfter

ORDERS = [(0, 1), (1, 0)]


def rows_of(spine, order) -> dict:
    rows = []
    for run in spine.runs:
        columns, weights = run.read()
        original = np.empty_like(columns)
        original[list(order)] = columns
        rows.append(dict(zip(zip(*original.tolist(), strict=True), weights.tolist(), strict=True)))
    return add(*rows)


@LAW
@given(st.data())
def test_a_build_has_the_rows_of_the_start_and_all_later_deltas(data):
    domain = data.draw(st.sampled_from(DOMAINS))
    first, second = data.draw(st.permutations(ORDERS))
    relation, total, slices = Trace(2, [first]), {}, 0
    with (
        patch.object(trace, "MAX_ROWS_ARRANGED_AT_ONCE", data.draw(st.sampled_from([0, 3]))),
        patch.object(arrangement_build, "COPIED_ROWS_PER_ROW", 0),
        patch.object(arrangement_build, "MIN_COPIED_ROWS", data.draw(st.integers(1, 4))),
    ):
        for delta in data.draw(st.lists(relation_deltas(2, domain), min_size=1, max_size=12)):
            action = data.draw(st.sampled_from(["build", "build", "arrange", "drop", "none"]))
            staged = [relation.prepare(zset(delta, arity=2))] if delta else []
            if action == "build":
                slices += not relation.build_arrangement(second, rows=1)
            elif action == "arrange":
                relation.arrange(second)
            elif action == "drop":
                relation.keep_arrangements([first])
            for step in staged:
                step.must_compact = data.draw(st.integers(0, 5)) == 0
                step.commit()
                total = add(total, delta)
            for arrangement in relation.arrangements:
                assert rows_of(arrangement.spine, arrangement.order) == total
        while not relation.build_arrangement(second, rows=1):
            slices += 1
        assert rows_of(relation.arrange(second).spine, second) == total


def test_each_slice_copies_rows_in_proportion_to_its_step(monkeypatch):
    monkeypatch.setattr(trace, "MAX_ROWS_ARRANGED_AT_ONCE", 1_000)
    monkeypatch.setattr(arrangement_build, "MIN_COPIED_ROWS", 50)
    sorted_rows = []
    build_run = Run.of

    def count_rows(rows, order):
        sorted_rows.append(len(rows))
        return build_run(rows, order)

    monkeypatch.setattr(Run, "of", staticmethod(count_rows))
    random = np.random.default_rng(0)
    relation = Trace(2, [(0, 1)])
    for size in (4_000, 700, 300):
        relation.update(ZSet.from_columns(list(random.integers(0, 10**6, (2, size)))))
    sizes = [10, 1, 40] * 1_000
    sorted_rows.clear()
    calls = 0
    for rows in sizes:
        calls += 1
        if relation.build_arrangement((1, 0), rows):
            break
        limit = max(arrangement_build.COPIED_ROWS_PER_ROW * rows, 50)
        assert sum(sorted_rows) <= limit
        relation.update(ZSet.from_columns(list(random.integers(0, 10**6, (2, rows)))))
        sorted_rows.clear()
    assert 10 < calls < 50
    assert rows_of(relation.arrange((1, 0)).spine, (1, 0)) == dict(relation.to_zset())


def test_a_slice_of_a_run_has_its_rows_and_weights():
    random = np.random.default_rng(1)
    for weights in ([1], [1, 2, -3]):
        rows = random.integers(0, 9, (3, 200))
        run = Run.of(ZSet.from_columns(list(rows), random.choice(weights, 200)), np.arange(3))
        columns, all_weights = run.read()
        for first, end in [(0, run.rows), (0, 1), (3, 77), (run.rows - 1, run.rows), (5, 5)]:
            slice_columns, slice_weights = run.read_rows(first, end)
            assert np.array_equal(slice_columns, columns[:, first:end])
            assert np.array_equal(slice_weights, all_weights[first:end])


@pytest.mark.parametrize("calls", [1, 2])
def test_a_build_that_was_interrupted_has_each_row_once(calls, monkeypatch):
    monkeypatch.setattr(trace, "MAX_ROWS_ARRANGED_AT_ONCE", 0)
    monkeypatch.setattr(arrangement_build, "MIN_COPIED_ROWS", 2)
    monkeypatch.setattr(arrangement_build, "COPIED_ROWS_PER_ROW", 0)
    relation = Trace(2)
    delta = {(value, -value): 1 for value in range(10)}
    relation.update(zset(delta, arity=2))
    with monkeypatch.context() as patch:
        patch.setattr(Spine, "append", InterruptedAfter(Spine.append, calls).bound())
        with pytest.raises(KeyboardInterrupt):
            while not relation.build_arrangement((1, 0), rows=0):
                pass
    while not relation.build_arrangement((1, 0), rows=0):
        pass
    assert rows_of(relation.arrange((1, 0)).spine, (1, 0)) == delta
