from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import ArityError, Trace, WeightError, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup


def dict_of(changes):
    total = {}
    for row, weight in changes:
        total[row] = total.get(row, 0) + weight
    return {row: weight for row, weight in total.items() if weight}


def first_rows(rows, prefix, limit, tie_columns, signed):
    """The rows below a prefix as a list, by the definition."""
    k = len(prefix)
    taken, total, last = [], 0, None
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
        taken.append((row[k:], weight))
        total += weight
        last = row
    return taken


def start_of(rows, prefix, arity, data):
    """A row with nothing of positive weight before it: the first such row, or one before that."""
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
def test_leading_rows_are_the_first_positive_ones_in_the_old_and_in_the_new_trace(stream, data):
    arity, steps, prefixes = stream
    k = len(prefixes[0])
    signed = data.draw(st.booleans())
    limit = None if signed else data.draw(st.none() | st.integers(1, 6))
    tie_columns = data.draw(st.integers(0, arity - k))
    trace = Trace(arity)
    for changes in steps[:-1]:
        trace.update(ZSet.from_rows([r for r, _ in changes], [w for _, w in changes], arity=arity))
    old = dict_of(change for changes in steps[:-1] for change in changes)
    delta = ZSet.from_rows([r for r, _ in steps[-1]], [w for _, w in steps[-1]], arity=arity)
    new = dict_of([*old.items(), *delta])
    step = trace.prepare(delta) if len(delta) else None
    array = np.array(prefixes, np.int64).reshape(len(prefixes), k).T
    starts = None
    if not signed and data.draw(st.booleans()):
        starts = np.array([start_of(old, prefix, arity, data) for prefix in prefixes]).T
    found = prefix_lookup(
        trace, array, limit=limit, tie_columns=tie_columns, signed=signed, step=step, starts=starts
    )
    for which, rows in ((found.old, old), (found.new, new)):
        for place, prefix in enumerate(prefixes):
            mine = (found.prefix_index == place) & (which != 0)
            got = list(
                zip(map(tuple, found.rows[:, mine].T.tolist()), which[mine].tolist(), strict=True)
            )
            assert got == first_rows(rows, prefix, limit, tie_columns, signed)
    assert found.prefix_index.tolist() == sorted(found.prefix_index.tolist())


def test_results_that_do_not_fit_at_first_are_complete():
    trace = Trace(2)
    numbers = np.arange(5000)
    trace.update(ZSet.from_columns([numbers % 3, numbers]))
    found = prefix_lookup(trace, np.array([[2, 0, 7, 1]]))
    expected = [(p, n) for p, g in enumerate([2, 0, 7, 1]) for n in range(5000) if n % 3 == g]
    assert list(zip(found.prefix_index.tolist(), found.rows[0].tolist(), strict=True)) == expected
    assert found.old.tolist() == found.new.tolist() == [1] * 5000


def test_weights_that_add_up_beyond_int64_stop_at_the_limit():
    trace = Trace(1)
    trace.update(ZSet.from_rows([(1,), (2,), (3,)], [2**62, 2**62, 2**62]))
    found = prefix_lookup(trace, np.empty((0, 1), np.int64), limit=2**63 - 1)
    assert found.rows.tolist() == [[1, 2]] or found.rows.tolist() == [[1, 2, 3]]
    assert len(found.old) == 2 + (2**62 + 2**62 < 2**63 - 1)


def test_an_empty_trace_has_no_leading_rows():
    found = prefix_lookup(Trace(3), np.array([[1, 2]]), limit=1)
    assert len(found.prefix_index) == 0
    assert found.rows.shape == (2, 0)


def test_a_prefix_of_all_columns_and_a_limit_below_one_are_errors():
    with pytest.raises(ArityError, match="weights_of"):
        prefix_lookup(Trace(1), np.array([[1]]))
    with pytest.raises(WeightError, match="limit 0"):
        prefix_lookup(Trace(1), np.empty((0, 1), np.int64), limit=0)
    with pytest.raises(WeightError, match="signed=True"):
        prefix_lookup(Trace(1), np.empty((0, 1), np.int64), limit=1, signed=True)
