"""Hopping windows, session starts and latest times: the law D ∘ Q ∘ I, oracles, counted work."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.errors import EvaluationError
from circuits.plan.nodes import Field, Scan
from circuits.plan.time_windows import HoppingWindows, LatestTime, SessionBound
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.time.hopping_windows import HoppingWindowsOperator
from circuits.runtime.operators.time.latest_marks import sum_by_prefix
from circuits.runtime.operators.time.latest_time import LatestTimeOperator
from circuits.runtime.operators.time.session_bound import SessionBoundOperator
from circuits.types.codecs.codec import NULL, Codecs
from circuits.types.functions.casting.time_units import INFINITE, INFINITE_DAY
from dbsp_wcoj import Budget, Relations, ZSet
from dbsp_wcoj.errors import LimitError, WeightOverflowError
from dbsp_wcoj.limits import StepLimits
from dbsp_wcoj.zset import MAX_INT64

INT = pa.int64()
ROWS = Scan("r", tuple(Field(name, INT) for name in ("x", "t", "k")))
EVENTS = Scan("e", tuple(Field(name, INT) for name in ("k", "t")))
CONTEXT = StepContext(False, Relations().stage({}))
OPERATORS = {
    "hop": lambda: HoppingWindowsOperator(HoppingWindows(ROWS, 1, 5, 2, 1)),
    "sparse hop": lambda: HoppingWindowsOperator(HoppingWindows(ROWS, 1, 2, 5)),
    "session": lambda: SessionBoundOperator(SessionBound(ROWS, (2,), 1, 2), Codecs()),
    "session of all": lambda: SessionBoundOperator(SessionBound(ROWS, (), 1, 1), Codecs()),
    "session end": lambda: SessionBoundOperator(
        SessionBound(ROWS, (2,), 1, 2, last=True), Codecs()
    ),
    "as of": lambda: LatestTimeOperator(LatestTime(ROWS, EVENTS, (2,), 1), Codecs()),
    "before": lambda: LatestTimeOperator(LatestTime(ROWS, EVENTS, (2,), 1, True), Codecs()),
    "from": lambda: LatestTimeOperator(LatestTime(ROWS, EVENTS, (2,), 1, False, True), Codecs()),
    "after": lambda: LatestTimeOperator(LatestTime(ROWS, EVENTS, (2,), 1, True, True), Codecs()),
    "key is time": lambda: LatestTimeOperator(LatestTime(ROWS, EVENTS, (1,), 1, True), Codecs()),
}
TIMES = st.one_of(st.integers(0, 12), st.just(NULL))
# Also the least and the greatest code that is not NULL.
ALL_TIMES = st.one_of(TIMES, st.sampled_from([NULL + 1, 2**63 - 1]))


def deltas_of(times):
    """Steps of a few rows (x, t, k) and events (k, t), with their weights."""
    key = st.integers(0, 1)
    rows = st.dictionaries(st.tuples(key, times, key), st.integers(-1, 2), max_size=6)
    events = st.dictionaries(st.tuples(key, times), st.integers(-1, 2), max_size=4)
    return st.lists(st.tuples(rows, events), max_size=6)


@pytest.mark.parametrize("name", OPERATORS)
@given(deltas_of(TIMES))
# The weights of all rows of a time add up to zero in the first step.
@example([({(0, 0, 0): -1, (1, 0, 0): 1}, {}), ({(0, 0, 0): 1}, {}), ({(0, 1, 0): 1}, {})])
@example([({(0, 0, 1): -1, (1, 0, 0): 1}, {}), ({(0, 1, 0): 1}, {}), ({(0, 0, 0): 1}, {})])
def test_the_deltas_add_up_to_the_value_of_the_sums(name, deltas):
    check_law(name, deltas)


@pytest.mark.parametrize("name", ["as of", "before", "from", "after"])
@given(deltas_of(ALL_TIMES))
def test_latest_times_keep_the_law_also_at_the_least_and_the_greatest_time(name, deltas):
    check_law(name, deltas)


def check_law(name, deltas):
    operator = OPERATORS[name]()
    arities = [3, 2] if isinstance(operator, LatestTimeOperator) else [3]
    sums = [ZSet.empty(arity) for arity in arities]
    output = ZSet.empty(4)
    for rows in deltas:
        changes = [
            ZSet.from_rows(part.keys(), part.values(), arity=arity)
            for part, arity in zip(rows, arities, strict=False)
        ]
        change, staged = operator.prepare(changes, CONTEXT)
        change._check()
        if staged is not None:
            staged.commit()
        sums = [total + part for total, part in zip(sums, changes, strict=True)]
        output += change
        assert output == operator.evaluate(sums)


@pytest.mark.parametrize("name", ["session", "session of all", "session end"])
def test_weights_of_a_time_that_leave_int64_are_an_error(name):
    rows = ZSet.from_rows([(0, 1, 0), (1, 1, 0), (2, 1, 0)], [MAX_INT64, MAX_INT64, 2])
    with pytest.raises(WeightOverflowError):
        OPERATORS[name]().prepare([rows], CONTEXT)
    with pytest.raises(WeightOverflowError):
        OPERATORS[name]().evaluate([rows])


def test_great_weights_of_a_time_can_cancel():
    rows = ZSet.from_rows([(0, 1, 0), (1, 1, 0)], [MAX_INT64, -MAX_INT64])
    assert sum_by_prefix(rows, 1).to_dict() == {(0,): MAX_INT64, (1,): -MAX_INT64}
    assert sum_by_prefix(ZSet.from_rows([(0, 1), (0, 2)], [MAX_INT64, -MAX_INT64]), 1) == (
        ZSet.empty(1)
    )


@given(st.lists(st.tuples(st.integers(0, 1), TIMES, st.integers(0, 1)), max_size=12))
def test_a_session_starts_after_a_gap(rows):
    zset = ZSet.from_rows(rows, arity=3)
    sessions = OPERATORS["session"]().evaluate([zset]).to_dict()
    assert sum(sessions.values()) == sum(t != NULL for _, t, _ in rows)
    for x, t, k, start in sessions:
        times = {time for _, time, key in rows if key == k}
        assert (x, t, k) in rows
        while reached := [time for time in times if t - 2 <= time < t]:
            t = min(reached)
        assert start == t


@pytest.mark.parametrize(
    ("name", "is_match"),
    [
        ("as of", lambda t, s: s <= t),
        ("before", lambda t, s: s < t),
        ("from", lambda t, s: s >= t),
        ("after", lambda t, s: s > t),
    ],
)
@given(
    st.lists(st.tuples(st.integers(0, 1), ALL_TIMES, st.integers(0, 1)), max_size=6),
    st.lists(st.tuples(st.integers(0, 1), ALL_TIMES), max_size=6),
)
def test_a_latest_time_is_the_nearest_of_its_key(name, is_match, rows, events):
    inputs = [ZSet.from_rows(rows, arity=3), ZSet.from_rows(events, arity=2)]
    matches = OPERATORS[name]().evaluate(inputs).to_dict()
    for x, t, k, latest in matches:
        assert (x, t, k) in rows
        times = [s for key, s in events if key == k and NULL not in (s, t) and is_match(t, s)]
        nearest = min(times, key=lambda s: abs(s - t), default=NULL)
        assert latest == nearest
    assert sum(matches.values()) == len(rows)


@given(st.lists(st.tuples(st.just(0), st.integers(-9, 9), st.just(0)), max_size=6))
def test_a_row_is_in_every_window_that_contains_its_time(rows):
    windows = OPERATORS["hop"]().evaluate([ZSet.from_rows(rows, arity=3)]).to_dict()
    expected = {}
    for x, t, k in rows:
        for start in range(-21, 21, 2):
            if start <= t < start + 5:
                expected[x, t, k, start] = expected.get((x, t, k, start), 0) + 1
    assert windows == expected


def hopping(type: pa.DataType, size: int, slide: int) -> HoppingWindowsOperator:
    return HoppingWindowsOperator(HoppingWindows(Scan("r", (Field("t", type),)), 0, size, slide))


@pytest.mark.parametrize(
    ("type", "least"), [(pa.int32(), -(2**31)), (pa.date32(), -(2**31)), (pa.int16(), -(2**15))]
)
def test_a_window_before_the_least_value_of_a_type_is_an_error(type, least):
    operator = hopping(type, 10, 5)
    windows = operator.evaluate([ZSet.from_rows([(least + 9,)])])
    assert min(start for _, start in windows.to_dict()) >= least
    with pytest.raises(EvaluationError, match=re.escape(f"before the least value of {type}")):
        operator.evaluate([ZSet.from_rows([(least + 2,)])])


@pytest.mark.parametrize(
    ("type", "infinite"),
    [(pa.timestamp("us"), INFINITE), (pa.timestamp("s"), INFINITE), (pa.date32(), INFINITE_DAY)],
)
@pytest.mark.parametrize(("size", "slide"), [(10, 5), (10, 10), (5, 10), (7, 5)])
def test_a_row_with_an_infinite_time_is_in_one_window(type, infinite, size, slide):
    operator = hopping(type, size, slide)
    rows = ZSet.from_rows([(-infinite,), (12,), (infinite,), (NULL,)], [2, 1, -3, 1])
    windows, staged = operator.prepare([rows], CONTEXT)
    windows._check()
    assert staged is None
    finite = operator.evaluate([ZSet.from_rows([(12,)])]).to_dict()
    infinite_windows = {(-infinite, -infinite): 2, (infinite, infinite): -3}
    assert windows.to_dict() == finite | infinite_windows
    with pytest.raises(LimitError, match="max_step_rows"):
        operator.evaluate([ZSet.from_rows([(infinite,)], [1])], Budget(StepLimits(max_step_rows=0)))


@pytest.mark.parametrize("slide", [5, 7])
def test_windows_beyond_a_limit_are_counted_before_they_take_memory(slide):
    operator = hopping(pa.int64(), 3_000_000_001, slide)
    assert operator.evaluate([ZSet.empty(1)]) == ZSet.empty(2)
    with pytest.raises(LimitError, match="max_step_rows"):
        operator.evaluate([ZSet.from_rows([(1,)])], Budget(StepLimits(max_step_rows=1000)))


def big_key(gap: int) -> SessionBoundOperator:
    """Return an operator with a million rows of one key, in sessions of a thousand or in one."""
    operator = SessionBoundOperator(SessionBound(ROWS, (2,), 1, gap), Codecs())
    times = np.arange(1_000_000) * 10
    times += times // 10_000 * 1000
    rows = ZSet(np.stack((np.zeros_like(times), times, np.zeros_like(times))), np.ones_like(times))
    _, staged = operator.prepare([rows], CONTEXT)
    staged.commit()
    return operator


@pytest.mark.parametrize("gap", [50, 5000])
def test_a_step_reads_the_rows_around_its_changes_only(gap):
    operator = big_key(gap)
    before = operator.rows_read
    times = np.arange(0, 10_900_000, 109_000)[:100] + 5  # between rows of a session
    rows = [(1, int(time), 0) for time in times]
    change, staged = operator.prepare([ZSet.from_rows(rows)], CONTEXT)
    assert 100 <= len(change) < 110
    staged.commit()
    assert operator.rows_read - before < 1000
    before = operator.rows_read
    change, _ = operator.prepare([ZSet.from_rows(rows, [-1] * 100)], CONTEXT)
    assert operator.rows_read - before < 1000


def test_a_gap_that_closes_moves_the_session_behind_it():
    operator = big_key(505)
    before = operator.rows_read
    change, _ = operator.prepare([ZSet.from_rows([(1, 10_495, 0)])], CONTEXT)
    assert len(change) == 2001
    assert operator.rows_read - before < 2000


def test_rows_of_one_pane_are_repeated_once_per_window():
    text = """CREATE VIEW v AS SELECT k, window_start, count(*) AS n
        FROM TABLE(HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND))
        GROUP BY k, window_start"""
    circuit = compile_sql(text, {"e": "k BIGINT, ts TIMESTAMP_NTZ"})
    start = datetime(2026, 1, 1)
    times = [start + timedelta(milliseconds=i) for i in range(4_000)]
    output = circuit.step({"e": pa.table({"k": [1] * len(times), "ts": times})})["v"]
    hop = next(
        position
        for position, node in enumerate(circuit.graph.nodes)
        if isinstance(node.plan, HoppingWindows)
    )
    # 4 seconds are 2 panes of 2 seconds, each in 2 or 3 windows.
    assert circuit.graph.rows[hop] == 5
    by_window = Counter()
    for time in times:
        for window in range(-2, 2):
            begin = start + timedelta(seconds=4 * window)
            by_window[begin] += begin <= time < begin + timedelta(seconds=10)
    counts = dict(zip(output["window_start"].to_pylist(), output["n"].to_pylist(), strict=True))
    assert counts == {begin: n for begin, n in by_window.items() if n}
