from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import Distinct, StaleStepError
from dbsp_wcoj import ArityError, WeightOverflowError, ZSet

ROWS = st.tuples(st.integers(0, 2), st.integers(0, 1))
DELTAS = st.lists(st.tuples(ROWS, st.integers(-3, 3)), max_size=6)


def zset(changes):
    return ZSet.from_rows([row for row, _ in changes], [w for _, w in changes], arity=2)


def positive(zset_):
    return {row: 1 for row, weight in zset_ if weight > 0}


@given(st.lists(DELTAS, max_size=8))
def test_summed_output_deltas_are_the_set_of_the_rows_with_positive_total(stream):
    distinct = Distinct(2)
    total = ZSet.empty(2)
    output = ZSet.empty(2)
    for changes in stream:
        delta = zset(changes)
        total = total + delta
        output = output + distinct.step(delta)
        assert output.to_dict() == positive(total)


@given(DELTAS)
def test_one_big_step_equals_its_singletons_in_order(changes):
    at_once = Distinct(2).step(zset(changes))
    distinct = Distinct(2)
    singly = ZSet.empty(2)
    for change in changes:
        singly = singly + distinct.step(zset([change]))
    assert singly == at_once


def test_the_example_stream_of_the_docstring():
    distinct = Distinct(1)
    weights = (1, 1, -1, -2, 1, 1)
    outputs = [
        distinct.step(ZSet.from_rows([(5,)], [weight])).to_dict().get((5,), 0) for weight in weights
    ]
    assert outputs == [1, 0, 0, -1, 0, 1]


def test_an_overflowing_total_is_an_error_and_changes_nothing():
    distinct = Distinct(1)
    distinct.step(ZSet.from_rows([(1,)], [2**62]))
    with pytest.raises(WeightOverflowError):
        distinct.step(ZSet.from_rows([(2,), (1,)], [1, 2**62]))
    assert distinct.step(ZSet.from_rows([(2,)])).to_dict() == {(2,): 1}
    assert distinct.step(ZSet.from_rows([(1,)], [-(2**62)])).to_dict() == {(1,): -1}


def test_a_delta_of_another_arity_is_an_error_even_when_empty():
    with pytest.raises(ArityError):
        Distinct(1).step(ZSet.from_rows([(1, 2)]))
    with pytest.raises(ArityError):
        Distinct(1).step(ZSet.empty(2))


def test_a_prepared_step_changes_nothing_until_it_is_committed_and_commits_once():
    distinct = Distinct(1)
    row = ZSet.from_rows([(1,)])
    first, second = distinct.prepare(row), distinct.prepare(row)
    assert first.delta == second.delta == row
    first.commit()
    with pytest.raises(StaleStepError):
        second.commit()
    with pytest.raises(StaleStepError):
        first.commit()
    assert distinct.step(row).to_dict() == {}
