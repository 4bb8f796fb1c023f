"""Recursive distinct and min/max, over steps and iterations, against loops over dicts."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.runtime.operators import recursive_min_max
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.recursive_distinct import RecursiveBagOperator, RecursiveSetOperator
from circuits.runtime.operators.recursive_min_max import RecursiveMinMaxOperator
from circuits.types.codecs.codec import NULL
from dbsp_wcoj import Relations, WeightOverflowError, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup

CONTEXT = StepContext(False, Relations().stage({}))
ITERATIONS = range(5)


def step(operator, delta: ZSet) -> ZSet:
    out, staged = operator.prepare([delta], CONTEXT)
    out._check()
    commit(staged)
    return out


def commit(staged) -> None:
    if staged is not None:
        for change in staged.changes:
            change.commit()


def distinct_changes(rows: dict[tuple[int, ...], int]) -> Counter:
    """Return at which iteration each row is added or removed."""
    changes: Counter = Counter()
    for row_columns in {row[:-1] for row in rows}:
        before = 0
        for i in ITERATIONS:
            now = int(sum(rows.get((*row_columns, j), 0) for j in range(i + 1)) > 0)
            changes[(*row_columns, i)] += now - before
            before = now
    return changes


def improvements(rows: dict[tuple[int, ...], int], least: bool) -> Counter:
    """Return the rows that improve the best value of their key, over the iterations."""
    values = defaultdict(set)
    for key, value, _ in rows:
        values[key].add(value)
    improved: Counter = Counter()
    for key, candidates in values.items():
        before = None
        for i in ITERATIONS:
            present = [
                v
                for v in candidates
                if v != NULL and sum(rows.get((key, v, j), 0) for j in range(i + 1)) > 0
            ]
            now = (min if least else max)(present, default=None)
            if now != before and now is not None:
                improved[key, now, i] += 1
            before = now
    return improved


def best_values(improved: Counter, least: bool) -> dict[tuple[int, ...], int]:
    """Return the best value of each key."""
    values = defaultdict(list)
    for key, value, _ in improved:
        values[key].append(value)
    return {(key, (min if least else max)(found)): 1 for key, found in values.items()}


ROWS = st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(ITERATIONS))
CHANGES = st.lists(st.dictionaries(ROWS, st.sampled_from([-2, -1, 1, 2]), max_size=6), max_size=4)


@settings(max_examples=60)
@given(CHANGES)
def test_a_row_is_kept_once_from_its_first_iteration_on(changes):
    operator, rows, total = RecursiveSetOperator(3), Counter(), ZSet.empty(3)
    for change in changes:
        rows.update(change)
        total += step(operator, ZSet.from_rows(change.keys(), change.values(), arity=3))
        expected = {row: weight for row, weight in distinct_changes(rows).items() if weight}
        assert total.to_dict() == expected
        summed = ZSet.from_rows(rows.keys(), rows.values(), arity=3)
        assert operator.evaluate([summed]) == total


@settings(max_examples=60)
@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.integers(0, 1), st.integers(0, 3), st.sampled_from(ITERATIONS)),
            st.just(1),
            max_size=5,
        ),
        max_size=4,
    ),
    st.booleans(),
    st.data(),
)
def test_the_best_value_is_kept_from_the_iterations_on_in_which_it_gets_better(steps, least, data):
    operator, rows, total = RecursiveMinMaxOperator(3, 1, least=least), Counter(), ZSet.empty(3)
    best = ZSet.empty(2)
    for inserted in steps:
        present = [row for row, weight in rows.items() for _ in range(weight)]
        deletions = st.lists(st.sampled_from(present), max_size=3) if present else st.just([])
        deleted = Counter(data.draw(deletions))
        change = Counter(inserted)
        change.subtract({row: min(n, rows[row]) for row, n in deleted.items()})
        rows.update(change)
        delta = ZSet.from_rows(change.keys(), change.values(), arity=3)
        if len(delta):
            result = operator.prepare_delta(delta)
            commit(result.staged)
            total += result.improvements
            best += result.best
        expected = improvements(rows, least)
        assert total.to_dict() == expected
        assert best.to_dict() == best_values(expected, least)
        assert operator.evaluate([ZSet.from_rows(rows.keys(), rows.values(), arity=3)]) == total


def test_null_is_no_candidate():
    operator = RecursiveMinMaxOperator(3, 1, least=True)
    assert not len(step(operator, ZSet.from_rows([(7, NULL, 0)])))
    assert step(operator, ZSet.from_rows([(7, 3, 1)])).to_dict() == {(7, 3, 1): 1}


@pytest.mark.parametrize("least", [True, False])
def test_null_is_the_worst_candidate_if_it_is_kept(least):
    operator = RecursiveMinMaxOperator(3, 1, least=least, keeps_null=True)
    assert step(operator, ZSet.from_rows([(7, NULL, 0)])).to_dict() == {(7, NULL, 0): 1}
    result = operator.prepare_delta(ZSet.from_rows([(7, 3, 1)]))
    commit(result.staged)
    assert result.improvements.to_dict() == {(7, 3, 1): 1}
    assert result.best.to_dict() == {(7, NULL): -1, (7, 3): 1}
    result = operator.prepare_delta(ZSet.from_rows([(7, 3, 1)], [-1]))
    assert result.improvements.to_dict() == {(7, 3, 1): -1}
    assert result.best.to_dict() == {(7, NULL): 1, (7, 3): -1}


def test_a_row_may_have_only_the_column_of_its_iteration():
    operator = RecursiveSetOperator(1)
    assert step(operator, ZSet.from_rows([(3,), (1,)])).to_dict() == {(1,): 1}
    assert step(operator, ZSet.from_rows([(1,)], [-1])).to_dict() == {(1,): -1, (3,): 1}


def test_a_recursive_bag_keeps_all_rows():
    zset = ZSet.from_rows([(7, 2), (7, 5)], [2, -1])
    assert RecursiveBagOperator().evaluate([zset]) == zset
    assert step(RecursiveBagOperator(), zset) == zset


def test_sums_of_weights_beyond_int64_are_refused_and_others_not():
    operator = RecursiveSetOperator(2)
    assert step(operator, ZSet.from_rows([(7, 1), (8, 2)], [2**61, 2**61])).to_dict() == {
        (7, 1): 1,
        (8, 2): 1,
    }
    with pytest.raises(WeightOverflowError, match="add up to more than int64 holds"):
        step(operator, ZSet.from_rows([(7, k) for k in range(2, 6)], [2**61] * 4))


@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_of_weights_of_a_candidate_beyond_int64_are_refused(sign):
    """A sum of two that wrapped around would be 2, and the value would be the best one."""
    candidates = ZSet.from_rows([(7, 4, 1), (7, 4, 2)], [sign * (2**63 - 1)] * 2)
    with pytest.raises(WeightOverflowError, match="add up to more than int64 holds"):
        RecursiveMinMaxOperator(3, 1, least=True).evaluate([candidates])


def read_all_rows(trace, candidates, keys, staged):
    """Read all rows of each changed key, of all iterations."""
    return prefix_lookup(trace, keys, signed=True, step=staged)


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 4), st.integers(-1, 2)),
            min_size=1,
            max_size=5,
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_the_rows_that_are_read_are_enough_for_the_best_value(steps, least):
    operator, reads_all = (RecursiveMinMaxOperator(3, 1, least=least) for _ in range(2))
    for number, rows in enumerate(steps):
        delta = ZSet.from_rows(
            [(key, value, number + later) for key, value, later, _ in rows],
            [weight for *_, weight in rows],
        )
        if not len(delta):
            continue
        result = operator.prepare_delta(delta)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recursive_min_max, "_read_histories", read_all_rows)
            expected = reads_all.prepare_delta(delta)
        assert result.improvements == expected.improvements
        assert result.best == expected.best
        for state in (result.staged, expected.staged):
            if state is not None:
                state.commit()
