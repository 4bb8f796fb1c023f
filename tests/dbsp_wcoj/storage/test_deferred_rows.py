"""Deferred rows: a trace with them has the same rows as one that sorts them at once."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.deferred_rows import DeferredRows
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import TraceStep, TraceVersion

ORDERS = [(0, 1), (1, 0)]
WEIGHTS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), st.sampled_from([-2, -1, 1, 3]), max_size=8
)


def zset(weights: dict[tuple[int, int], int]) -> ZSet:
    return ZSet.from_rows(list(weights), list(weights.values()), arity=2)


def deferred(trace: Trace, rows: ZSet, *, as_run: bool = False) -> TraceStep:
    def compute() -> ZSet | Run:
        return Run.of(rows, np.arange(2)) if as_run else rows

    return TraceStep(trace, None, deferred=DeferredRows(len(rows), compute))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_every_reader_sees_the_rows(data):
    orders = data.draw(st.sampled_from([ORDERS[:1], ORDERS[1:], ORDERS]))
    first = zset(data.draw(WEIGHTS.filter(bool)))
    trace, expected = Trace(2, orders), Trace(2, orders)
    step = deferred(trace, first, as_run=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        assert step.delta == first  # before the commit, as a store does
        assert step.run(orders[0]).rows == len(first)
    step.commit()
    expected.update(first)
    assert trace.rows == len(first) and not trace.is_empty and trace.orders == tuple(orders)
    version = TraceVersion(trace)
    assert version.rows == len(first)
    total = first
    for action in data.draw(
        st.lists(st.sampled_from(["update", "arrange", "keep", "overlay", "weights"]), max_size=4)
    ):
        change = zset(data.draw(WEIGHTS.filter(bool)))
        for each in (trace, expected):
            if action == "update":
                each.update(change)
            elif action == "arrange":
                each.arrange((1, 0))
            elif action == "keep":
                each.keep_arrangements([(1, 0)])
            elif action == "overlay":
                each.push_overlay(each.prepare(change))
                weights = each.weights_of(change).tolist()
                each.pop_overlay()
            else:
                weights = each.weights_of(change).tolist()
        if action in ("overlay", "weights"):
            assert weights == trace_weights(total, change, action == "overlay")
        if action == "update":
            total += change
    assert trace.orders == expected.orders
    assert trace.to_zset() == expected.to_zset() == total
    for arrangement in trace.arrangements:
        arrangement.spine._check()
        columns = [run.read()[0].shape[1] for run in arrangement.spine.runs]
        assert sum(columns) == arrangement.spine.rows
    assert version.trace.to_zset() == first


def trace_weights(total: ZSet, change: ZSet, is_added: bool) -> list[int]:
    weights = total.to_dict()
    rows = change.to_dict()
    return [weights.get(row, 0) + (weight if is_added else 0) for row, weight in rows.items()]


def test_nothing_is_computed_before_a_reader_and_nothing_twice():
    calls = []
    rows = ZSet.from_rows([(1, 2), (3, 0)])
    trace = Trace(2, ORDERS)
    TraceStep(trace, None, deferred=DeferredRows(2, lambda: calls.append(1) or rows)).commit()
    version = TraceVersion(trace)
    assert not calls and trace.rows == version.rows == 2
    assert version.trace.to_zset() == trace.to_zset() == rows
    assert trace.arrange((1, 0)).spine.runs[0] is version.trace.arrange((1, 0)).spine.runs[0]
    assert calls == [1]


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_rows_that_cannot_be_computed_now_are_computed_by_the_next_reader(error):
    failures = [error]
    rows = ZSet.from_rows([(1, 2), (3, 0)])

    def compute() -> ZSet:
        if failures:
            raise failures.pop()
        return rows

    trace = Trace(2, ORDERS)
    TraceStep(trace, None, deferred=DeferredRows(2, compute)).commit()
    with pytest.raises(error):
        trace.to_zset()
    assert trace.to_zset() == rows


@pytest.mark.parametrize("order", ORDERS)
def test_the_rows_are_not_kept_beside_their_run(order):
    rows = ZSet.from_rows([(1, 2), (3, 0), (3, 4)], [1, 2, -1])
    is_alive = weakref.ref(rows.row_array)
    made = [rows]
    deferred_rows = DeferredRows(3, made.pop)
    del rows
    run = deferred_rows.run(order)
    assert is_alive() is None
    other = deferred_rows.run(order[::-1])
    assert sorted(other.read()[0][::-1].T.tolist()) == sorted(run.read()[0].T.tolist())
    assert deferred_rows.run(order) is run


def test_a_trace_that_is_loaded_forgets_them():
    trace = Trace(2)
    deferred(trace, ZSet.from_rows([(1, 2)])).commit()
    other = Run.of(ZSet.from_rows([(5, 6)]), np.arange(2))
    trace.load({(0, 1): [other]})
    assert trace.to_zset() == ZSet.from_rows([(5, 6)])


def test_a_trace_with_rows_or_without_an_arrangement_does_not_defer():
    trace = Trace(1)
    trace.update(ZSet.from_rows([(4,)]))
    assert not trace.defer(DeferredRows(1, pytest.fail))
    assert not Trace(1, ()).defer(DeferredRows(1, pytest.fail))


def test_many_threads_read_the_rows():
    rows = ZSet.from_rows([(n % 50, n) for n in range(2000)])
    trace = Trace(2, ORDERS)
    deferred(trace, rows).commit()
    versions = [TraceVersion(trace) for _ in range(4)]
    results: list[ZSet] = []
    threads = [
        threading.Thread(target=lambda v=v: results.append(v.trace.to_zset())) for v in versions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [rows] * 4
