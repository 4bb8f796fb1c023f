"""The first rows of a prefix, before and after a step, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import ArityError, Trace, WeightError, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.run import Run


def sum_changes(changes):
    """Return the weight of each row, without zeros."""
    total = {}
    for row, weight in changes:
        total[row] = total.get(row, 0) + weight
    return {row: weight for row, weight in total.items() if weight}


def first_rows(rows, prefix, limit, tie_columns, signed):
    """Return the rows of a prefix and their weights, by the definition of `prefix_lookup`."""
    k = len(prefix)
    first, total, last = [], 0, None
    for row in sorted(rows):
        weight = rows[row]
        if row[:k] != prefix or (weight < 0 and not signed):
            continue
        if (
            limit is not None
            and total >= limit
            and row[: k + tie_columns] != last[: k + tie_columns]
        ):
            break
        first.append((row[k:], weight))
        total += weight
        last = row
    return first


def load_runs(zsets, arity):
    """Return a trace with a run for each Z-set that has rows."""
    trace, order = Trace(arity), tuple(range(arity))
    runs = [Run.of(zset, np.array(order)) for zset in zsets if len(zset)]
    trace.load({order: runs})
    assert trace.arrange(order).spine.runs == tuple(runs)
    return trace


def draw_start(rows, prefix, arity, data):
    """Draw a start for `prefix_lookup`: the first row of positive weight, or a row before it."""
    k = len(prefix)
    below = sorted(row[k:] for row in rows if row[:k] == prefix)
    first = [row for row in below if rows[prefix + row] > 0][:1] or [(2**63 - 1,) * (arity - k)]
    return data.draw(st.sampled_from(first + [row for row in below if row < first[0]]))


@st.composite
def streams(draw):
    arity = draw(st.integers(1, 4))
    values = (
        st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
        if draw(st.booleans())
        else (st.integers(0, 2))
    )
    change = st.tuples(st.tuples(*[values] * arity), st.integers(-2, 3))
    steps = draw(st.lists(st.lists(change, min_size=1, max_size=12), min_size=1, max_size=6))
    k = draw(st.integers(0, arity - 1))
    prefixes = draw(st.lists(st.tuples(*[values] * k), min_size=1, max_size=5))
    return arity, steps, prefixes


@given(streams(), st.data())
@settings(max_examples=150)
def test_the_first_positive_rows_are_returned_before_and_after_a_step(stream, data):
    arity, steps, prefixes = stream
    k = len(prefixes[0])
    signed = data.draw(st.booleans())
    limit = None if signed else data.draw(st.none() | st.integers(1, 6))
    tie_columns = data.draw(st.integers(0, arity - k))
    zsets = [ZSet.from_rows(*zip(*changes, strict=True)) for changes in steps[:-1]]
    trace = Trace(arity)
    if data.draw(st.booleans()):
        trace = load_runs(zsets, arity)
    else:
        for zset in zsets:  # small steps: they become one run
            trace.update(zset)
    old = sum_changes(change for changes in steps[:-1] for change in changes)
    delta = ZSet.from_rows(*zip(*steps[-1], strict=True))
    new = sum_changes([*old.items(), *delta])
    step = trace.prepare(delta) if len(delta) else None
    array = np.array(prefixes, np.int64).reshape(len(prefixes), k).T
    starts = None
    if not signed and data.draw(st.booleans()):
        starts = np.array([draw_start(old, prefix, arity, data) for prefix in prefixes]).T
    result = prefix_lookup(
        trace, array, limit=limit, tie_columns=tie_columns, signed=signed, step=step, starts=starts
    )
    for weights, rows in ((result.old, old), (result.new, new)):
        for index, prefix in enumerate(prefixes):
            of_prefix = (result.prefix_index == index) & (weights != 0)
            found_rows = map(tuple, result.rows[:, of_prefix].T.tolist())
            found = list(zip(found_rows, weights[of_prefix].tolist(), strict=True))
            assert found == first_rows(rows, prefix, limit, tie_columns, signed)
    assert result.prefix_index.tolist() == sorted(result.prefix_index.tolist())


def test_results_that_do_not_fit_at_first_are_complete():
    trace = Trace(2)
    numbers = np.arange(5000)
    trace.update(ZSet.from_columns([numbers % 3, numbers]))
    prefixes = [2, 0, 7, 1]
    result = prefix_lookup(trace, np.array([prefixes]))
    expected = [
        (index, number)
        for index, prefix in enumerate(prefixes)
        for number in range(5000)
        if number % 3 == prefix
    ]
    assert list(zip(result.prefix_index.tolist(), result.rows[0].tolist(), strict=True)) == expected
    assert result.old.tolist() == result.new.tolist() == [1] * 5000


def test_weights_that_add_up_beyond_int64_stop_at_the_limit():
    trace = Trace(1)
    trace.update(ZSet.from_rows([(1,), (2,), (3,)], [2**62, 2**62, 2**62]))
    result = prefix_lookup(trace, np.empty((0, 1), np.int64), limit=2**63 - 1)
    assert result.rows.tolist() == [[1, 2]]


def test_an_empty_trace_has_no_first_rows():
    result = prefix_lookup(Trace(3), np.array([[1, 2]]), limit=1)
    assert len(result.prefix_index) == 0
    assert result.rows.shape == (2, 0)


def test_a_prefix_of_all_columns_and_a_limit_below_one_are_errors():
    with pytest.raises(ArityError, match="weights_of"):
        prefix_lookup(Trace(1), np.array([[1]]))
    with pytest.raises(WeightError, match="limit 0"):
        prefix_lookup(Trace(1), np.empty((0, 1), np.int64), limit=0)
    with pytest.raises(WeightError, match="signed=True"):
        prefix_lookup(Trace(1), np.empty((0, 1), np.int64), limit=1, signed=True)


def read_until_present(old, new, prefix, time):
    """Return the rows of a prefix with both weights, by the definition of ``times``."""
    found, is_present_before, is_present_after = [], False, False
    for row in sorted(row for row in old | new if row[: len(prefix)] == prefix):
        if old.get(row) or new.get(row):
            found.append((row[len(prefix) :], old.get(row, 0), new.get(row, 0)))
            if row[-1] <= time:
                # The same row at this time and earlier ones.
                same = [(*row[:-1], earlier) for earlier in range(row[-1] + 1)]
                is_present_before |= sum(old.get(each, 0) for each in same) > 0
                is_present_after |= sum(new.get(each, 0) for each in same) > 0
        if is_present_before and is_present_after:
            break
    return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_rows_are_read_until_one_is_present_before_the_step_and_one_after(data):
    arity = data.draw(st.integers(2, 4), "arity")
    k = data.draw(st.integers(0, arity - 1), "columns of prefixes")
    row = st.tuples(*[st.integers(0, 2)] * (arity - 1), st.integers(0, 3))
    changes = st.dictionaries(row, st.sampled_from([-2, -1, 1, 2]), min_size=1, max_size=12)
    parts = data.draw(st.lists(changes, max_size=4), "runs")
    delta = data.draw(st.just({}) | changes, "delta")
    old = sum_changes(change for part in parts for change in part.items())
    new = sum_changes([*old.items(), *delta.items()])
    trace = load_runs([ZSet.from_rows(part, part.values()) for part in parts], arity)
    prefixes = data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * k), min_size=1, max_size=3))
    times = [data.draw(st.integers(0, 3), "time") for _ in prefixes]
    result = prefix_lookup(
        trace,
        np.array(prefixes, np.int64).reshape(len(prefixes), k).T,
        signed=True,
        step=trace.prepare(ZSet.from_rows(delta, delta.values())) if delta else None,
        times=np.array(times),
    )
    columns = (result.prefix_index, result.rows.T, result.old, result.new)
    found = [
        (index, (tuple(row), before, after))
        for index, row, before, after in zip(*(c.tolist() for c in columns), strict=True)
    ]
    assert found == [
        (index, expected)
        for index, (prefix, time) in enumerate(zip(prefixes, times, strict=True))
        for expected in read_until_present(old, new, prefix, time)
    ]


def test_greater_rows_than_a_present_one_are_not_read():
    trace = Trace(3)
    trace.update(ZSet.from_rows([(7, value, 5) for value in range(1000)]))
    step = trace.prepare(ZSet.from_rows([(7, -1, 6), (7, 999, 5)]))
    result = prefix_lookup(trace, np.array([[7]]), signed=True, step=step, times=np.array([5]))
    assert result.rows.tolist() == [[-1, 0], [6, 5]]


def test_times_need_signed_weights():
    with pytest.raises(WeightError, match="signed=True"):
        prefix_lookup(Trace(2), np.array([[1]]), times=np.array([1]))


def test_starts_and_times_are_one_for_each_prefix():
    prefixes = np.array([[7, 8]])
    for times in (np.array([5]), np.empty(0, np.int64)):
        with pytest.raises(ArityError, match="one for each of 2 prefixes"):
            prefix_lookup(Trace(3), prefixes, signed=True, times=times)
    with pytest.raises(ArityError, match=r"starts of shape \(1, 2\)"):
        prefix_lookup(Trace(3), prefixes, starts=np.array([[0, 0]]))
