"""Distinct and positive: summed deltas equal the operator over the summed input; any weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.runtime.operators.distinct import DistinctOperator, one_if_positive, positive_part
from circuits.runtime.operators.operator import StepContext
from dbsp_wcoj import ArityError, DbspWcojError, Relations, WeightOverflowError, ZSet

ROWS = st.tuples(st.integers(0, 2), st.integers(0, 1))
CHANGES = st.lists(st.tuples(ROWS, st.integers(-3, 3)), max_size=6)
CONTEXT = StepContext(False, Relations().stage({}))
#: The weight of a row in the result, by its positive weight in the input.
RESULT_WEIGHTS = {one_if_positive: lambda weight: 1, positive_part: lambda weight: weight}
for_both = pytest.mark.parametrize("mode", list(RESULT_WEIGHTS), ids=["distinct", "positive"])


def zset(changes):
    return ZSet.from_rows([row for row, _ in changes], [w for _, w in changes], arity=2)


def step(rows, delta):
    output, prepared = rows.prepare([delta], CONTEXT)
    output._check()
    if prepared is not None:
        prepared.commit()
    return output


def expected_rows(mode, total):
    return {row: RESULT_WEIGHTS[mode](weight) for row, weight in total if weight > 0}


@for_both
@given(st.lists(CHANGES, max_size=8))
def test_summed_output_deltas_are_the_operator_over_the_summed_inputs(mode, stream):
    rows = DistinctOperator(2, mode)
    total = ZSet.empty(2)
    output = ZSet.empty(2)
    for changes in stream:
        delta = zset(changes)
        total = total + delta
        output = output + step(rows, delta)
        assert output.to_dict() == expected_rows(mode, total)
        assert rows.evaluate([total]) == output


@for_both
@given(CHANGES)
def test_one_big_step_equals_its_singletons_in_order(mode, changes):
    at_once = step(DistinctOperator(2, mode), zset(changes))
    rows = DistinctOperator(2, mode)
    singly = ZSet.empty(2)
    for change in changes:
        singly = singly + step(rows, zset([change]))
    assert singly == at_once


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(one_if_positive, [1, 0, 0, -1, 0, 1]), (positive_part, [1, 1, -1, -1, 0, 1])],
)
def test_the_example_stream_of_the_docstring(mode, expected):
    rows = DistinctOperator(1, mode)
    weights = (1, 1, -1, -2, 1, 1)
    outputs = [step(rows, ZSet.from_rows([(5,)], [weight])) for weight in weights]
    assert [output.to_dict().get((5,), 0) for output in outputs] == expected


@for_both
@given(st.lists(st.integers(-2, 2), max_size=6))
def test_the_law_holds_for_a_relation_without_columns(mode, weights):
    rows = DistinctOperator(0, mode)
    output = ZSet.empty(0)
    for weight in weights:
        output = output + step(rows, ZSet.scalar(weight))
    assert output.to_dict() == expected_rows(mode, ZSet.scalar(sum(weights)))


@for_both
def test_an_overflowing_total_is_an_error_and_changes_nothing(mode):
    rows = DistinctOperator(1, mode)
    step(rows, ZSet.from_rows([(1,)], [2**62]))
    with pytest.raises(WeightOverflowError):
        rows.prepare([ZSet.from_rows([(2,), (1,)], [1, 2**62])], CONTEXT)
    assert step(rows, ZSet.from_rows([(2,)])).to_dict() == {(2,): 1}
    deleted = step(rows, ZSet.from_rows([(1,)], [-(2**62)]))
    assert deleted.to_dict() == {(1,): -RESULT_WEIGHTS[mode](2**62)}


@for_both
def test_a_swing_from_one_end_of_the_weights_to_the_other_is_exact(mode):
    most = 2**63 - 1
    rows = DistinctOperator(1, mode)
    step(rows, ZSet.from_rows([(1,)], [-most]))
    assert step(rows, ZSet.from_rows([(1,)], [most])).to_dict() == {}
    assert step(rows, ZSet.from_rows([(1,)], [most])).to_dict() == {
        (1,): RESULT_WEIGHTS[mode](most)
    }
    assert step(rows, ZSet.from_rows([(1,)], [-most])).to_dict() == {
        (1,): -RESULT_WEIGHTS[mode](most)
    }


@for_both
def test_a_delta_of_another_arity_is_an_error(mode):
    with pytest.raises(ArityError):
        DistinctOperator(1, mode).prepare([ZSet.from_rows([(1, 2)])], CONTEXT)


@for_both
def test_a_prepared_step_changes_nothing_until_it_is_committed_and_commits_once(mode):
    rows = DistinctOperator(1, mode)
    row = ZSet.from_rows([(1,)])
    (first, early), (second, late) = (rows.prepare([row], CONTEXT) for _ in range(2))
    assert first == second == row
    early.commit()
    for prepared in (early, late):
        with pytest.raises(DbspWcojError, match="prepare it again"):
            prepared.commit()
    assert step(rows, row) == (ZSet.empty(1) if mode is one_if_positive else row)
