"""A deferred trace has the sum of its deltas, and sorts them only when it is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DbspWcojError, WeightOverflowError, ZSet
from dbsp_wcoj.storage import deferred_trace
from dbsp_wcoj.storage.arena import MAX_INSERTION_ROWS
from dbsp_wcoj.storage.deferred_trace import DeferredTrace
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.storage.spine import MIN_UNREAD_ROWS, Spine
from dbsp_wcoj.storage.trace import Trace, TraceStep
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles.naive import add
from tests.support.interrupts import InterruptedAfter


def largest_weight(delta: ZSet) -> int:
    return int(np.abs(delta.weights).max())


@LAW
@given(st.data())
def test_a_deferred_trace_is_the_sum_of_its_deltas(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred_trace, "MIN_LOG_ROWS", data.draw(st.integers(0, 9)))
        domain = data.draw(st.sampled_from(DOMAINS))
        trace, state = DeferredTrace(Trace(2, [(1, 0), (0, 1)])), {}
        for _ in range(data.draw(st.integers(1, 8))):
            delta = data.draw(relation_deltas(2, domain))
            if delta:
                rows = zset(delta, arity=2)
                trace.check(rows, largest_weight(rows))
                trace.append(rows, largest_weight(rows))
                state = add(state, delta)
            if data.draw(st.booleans()):
                assert trace.read().to_zset().to_dict() == state
        assert trace.read().to_zset().to_dict() == state
        assert trace.logged_rows == 0


def test_an_append_changes_no_run_until_the_trace_is_read():
    trace = DeferredTrace(Trace(2))
    for value in range(10):
        trace.append(ZSet.from_rows([(value, value)]), 1)
    assert trace.logged_rows == trace.rows == 10 and trace.unread_trace.is_empty
    assert trace.read().rows == 10


def test_logs_of_inserted_rows_are_not_merged_while_nobody_reads_them(monkeypatch):
    monkeypatch.setattr(deferred_trace, "MIN_LOG_ROWS", MIN_UNREAD_ROWS)
    monkeypatch.setattr(Run, "merged", None)
    monkeypatch.setattr(Merge, "__init__", None)
    trace = DeferredTrace(Trace(2))
    rows = np.arange(6 * MIN_UNREAD_ROWS)
    for part in np.split(rows, 12):
        trace.append(ZSet.from_columns([part, part]), 1)
    monkeypatch.undo()
    assert len(trace.unread_trace.arrangements[0].spine.runs) == 5
    for part in np.split(rows, 12):  # deleted rows do not stay
        trace.append(ZSet.from_columns([part, part], np.full(len(part), -1)), 1)
    read = trace.read()
    for _ in range(8):  # merge work of later steps
        read.update(ZSet.from_rows([(-1, -1)], [1]))
    assert read.rows < 2 * MIN_UNREAD_ROWS and read.to_zset().to_dict() == {(-1, -1): 8}


def test_a_weight_beyond_int64_is_refused_before_it_is_appended():
    trace = DeferredTrace(Trace(1))
    large = ZSet.from_rows([(1,)], [2**62])
    for delta in (large, -large, large):  # the bound of the log exceeds int64, the weight does not
        trace.check(delta, 2**62)
        trace.append(delta, 2**62)
    with pytest.raises(WeightOverflowError):
        trace.check(large, 2**62)
    assert trace.read().to_zset() == large


def test_a_log_without_memory_for_a_larger_one_loses_and_doubles_no_row(monkeypatch):
    monkeypatch.setattr(deferred_trace, "MIN_LOG_ROWS", 4)
    trace = DeferredTrace(Trace(1))
    monkeypatch.setattr(deferred_trace, "MIN_LOG_ROWS", 100)
    empty = np.empty

    def empty_unless_large(shape, dtype):
        if shape == (2, 100):
            raise MemoryError
        return empty(shape, dtype)

    monkeypatch.setattr(np, "empty", empty_unless_large)
    for _ in range(3):
        for value in range(6):
            trace.append(ZSet.from_rows([(value,)]), 1)
        trace.append(ZSet.from_rows([(value,) for value in range(6)]), 1)
    assert trace.read().to_zset().to_dict() == {(value,): 6 for value in range(6)}


def test_rows_whose_commit_was_interrupted_are_not_added_again(monkeypatch):
    trace = DeferredTrace(Trace(1))
    trace.append(ZSet.from_rows([(7,)]), 1)
    with monkeypatch.context() as patch:
        patch.setattr(TraceStep, "commit", InterruptedAfter(TraceStep.commit).bound())
        with pytest.raises(KeyboardInterrupt):
            trace.read()
    assert trace.read().to_zset().to_dict() == {(7,): 1}


def test_a_trace_whose_arrangements_disagree_cannot_be_read_again(monkeypatch):
    trace = DeferredTrace(Trace(2, [(0, 1), (1, 0)]))
    rows = ZSet.from_rows([(value, -value) for value in range(MAX_INSERTION_ROWS + 1)])
    trace.append(rows, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Spine, "append", InterruptedAfter(Spine.append).bound())
        with pytest.raises(KeyboardInterrupt):
            trace.read()
    for call in (trace.read, lambda: trace.check(rows, 1), lambda: trace.append(rows, 1)):
        with pytest.raises(DbspWcojError, match="interrupted while it was committed"):
            call()


def test_rows_whose_commit_has_not_begun_stay_in_the_log(monkeypatch):
    def interrupt(step):
        raise KeyboardInterrupt

    trace = DeferredTrace(Trace(1))
    trace.append(ZSet.from_rows([(7,)]), 1)
    with monkeypatch.context() as patch:
        patch.setattr(TraceStep, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            trace.read()
    assert trace.read().to_zset().to_dict() == {(7,): 1}
