"""Z-sets against a dictionary of Python integers: the invariant, the group, the errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import (
    ArityError,
    ColumnTypeError,
    DbspWcojError,
    WeightError,
    WeightOverflowError,
    ZSet,
)
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles import naive

MOST, LEAST = (1 << 63) - 1, -(1 << 63)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, list[tuple[tuple[int, ...], int]]]:
    """An arity and rows with weights, neither distinct nor sorted, zero weights among them."""
    arity = draw(st.integers(1, 4))
    value = st.sampled_from(draw(st.sampled_from(DOMAINS)))
    row = st.tuples(*[value] * arity)
    return arity, draw(st.lists(st.tuples(row, st.integers(-3, 3)), max_size=30))


@st.composite
def triples(draw: st.DrawFn) -> tuple[ZSet, ZSet, ZSet]:
    arity, domain = draw(st.integers(0, 3)), draw(st.sampled_from(DOMAINS))
    first, second, third = (zset(draw(relation_deltas(arity, domain)), arity=arity) for _ in "123")
    return first, second, third


@LAW
@given(pairs())
def test_rows_are_sorted_distinct_and_without_zero_weights(given_pairs):
    arity, rows = given_pairs
    made = ZSet.from_rows([row for row, _ in rows], [weight for _, weight in rows], arity=arity)
    expected = naive.consolidate(rows)
    assert made.to_dict() == expected
    assert list(made) == sorted(expected.items())
    assert len(made) == len(expected)
    assert made.arity == arity == len(made.columns)
    assert all(column.dtype == np.int64 for column in (*made.columns, made.weights))
    assert made.weights.tolist() == [expected[row] for row in sorted(expected)]
    assert list(zip(*(column.tolist() for column in made.columns), strict=True)) == sorted(expected)


@LAW
@given(pairs())
def test_columns_and_rows_make_the_same_zset(given_pairs):
    arity, rows = given_pairs
    values = [row for row, _ in rows]
    columns = [np.array([row[i] for row in values], dtype=np.int64) for i in range(arity)]
    weights = np.array([weight for _, weight in rows], dtype=np.int64)
    made = ZSet.from_columns(columns, weights)
    assert made == ZSet.from_rows(values, weights.tolist(), arity=arity)
    assert hash_or_none(made) == hash_or_none(ZSet.from_rows(values, weights, arity=arity))


def hash_or_none(value: object) -> int | None:
    """The hash where there is one: equal values must then have equal hashes."""
    return hash(value) if getattr(type(value), "__hash__", None) else None


@LAW
@given(triples())
def test_zsets_are_a_commutative_group(zsets):
    a, b, c = zsets
    zero = ZSet.empty(a.arity)
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + zero == a == zero + a
    assert a + (-a) == zero == a - a
    negative = -a
    assert -negative == a
    assert a - b == a + (-b) == -(b - a)
    assert (a + b).to_dict() == naive.add(a.to_dict(), b.to_dict())


@LAW
@given(triples())
def test_equality_is_that_of_the_dictionaries(zsets):
    a, b, _ = zsets
    assert (a == b) == (a.to_dict() == b.to_dict())
    assert (a != b) == (a.to_dict() != b.to_dict())


def test_weights_default_to_one_and_equal_rows_add_up():
    assert ZSet.from_rows([(1, 2), (3, 4), (1, 2)]).to_dict() == {(1, 2): 2, (3, 4): 1}


def test_a_zset_of_arity_zero_holds_one_weight():
    assert ZSet.from_rows([(), ()], [2, 3]).to_dict() == {(): 5}
    assert ZSet.from_rows([(), ()], [2, -2]) == ZSet.empty(0)
    assert list(ZSet.from_rows([()])) == [((), 1)]


def test_an_empty_zset_keeps_its_arity():
    for empty in (ZSet.empty(3), ZSet.from_rows([], arity=3), ZSet.from_rows([], [], arity=3)):
        assert (empty.arity, len(empty), empty.to_dict()) == (3, 0, {})
        assert not empty
    assert ZSet.empty(2) != ZSet.empty(3)


def test_a_zset_is_not_equal_to_other_things():
    assert ZSet.from_rows([(1,)]) != {(1,): 1}
    assert ZSet.empty(1) != ZSet.empty(2)


def test_values_keep_their_order_and_place_up_to_the_bounds_of_int64():
    rows = [(MOST, LEAST), (LEAST, MOST), (0, 0), (-1, 1), (LEAST, LEAST), (MOST, MOST)]
    assert [row for row, _ in ZSet.from_rows(rows)] == sorted(rows)


def test_wide_rows_of_far_values_stay_apart():
    rng = np.random.default_rng(7)
    columns = [rng.integers(LEAST, MOST, 5_000, endpoint=True) for _ in range(6)]
    made = ZSet.from_columns([np.concatenate([c, c]) for c in columns])
    expected = sorted(zip(*(c.tolist() for c in columns), strict=True))
    assert list(made) == [(row, 2) for row in expected]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint32, np.uint64])
def test_any_integer_type_is_taken_for_columns_and_weights(dtype):
    column = np.array([3, 1, 2], dtype=dtype)
    made = ZSet.from_columns([column, column[::-1]], np.array([1, 2, 3], dtype=dtype))
    assert made.to_dict() == {(3, 2): 1, (1, 1): 2, (2, 3): 3}


def test_strided_columns_are_taken_as_they_read():
    table = np.arange(12).reshape(6, 2)
    made = ZSet.from_columns([table[::2, 0], table[::-2, 1]])
    assert made.to_dict() == {(0, 11): 1, (4, 7): 1, (8, 3): 1}


def test_a_zset_does_not_follow_later_changes_of_the_arrays_it_was_made_from():
    source, target, weights = np.array([1, 2]), np.array([5, 6]), np.array([1, 1])
    made = ZSet.from_columns([source, target], weights)
    source[0] = target[0] = weights[0] = 9
    assert made.to_dict() == {(1, 5): 1, (2, 6): 1}


def test_a_zset_cannot_be_written_to():
    made = ZSet.from_rows([(1, 2)])
    with pytest.raises(ValueError, match="read-only"):
        made.columns[0][0] = 7
    with pytest.raises(ValueError, match="read-only"):
        made.weights[0] = 7
    with pytest.raises(AttributeError):
        made.weights = np.array([7])
    assert made.to_dict() == {(1, 2): 1}


def test_large_inputs_consolidate_as_numpy_does():
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 300, 200_000), rng.integers(-300, 0, 200_000)
    weights = rng.integers(-3, 4, 200_000)
    made = ZSet.from_columns([a, b], weights)
    dense = np.zeros((300, 300), dtype=np.int64)
    np.add.at(dense, (a, b + 300), weights)
    rows, columns = np.nonzero(dense)
    assert np.array_equal(made.columns[0], rows)
    assert np.array_equal(made.columns[1], columns - 300)
    assert np.array_equal(made.weights, dense[rows, columns])


@pytest.mark.parametrize(
    ("columns", "weights", "error"),
    [
        ([[1.5, 2.0]], None, ColumnTypeError),
        ([["a", "b"]], None, ColumnTypeError),
        ([[None, 1]], None, ColumnTypeError),
        ([np.array(["2024-01-01"], dtype="datetime64[D]")], None, ColumnTypeError),
        ([np.array([1 << 63], dtype=np.uint64)], None, ColumnTypeError),
        ([[1, 2], [1]], None, ArityError),
        ([[1, 2]], [1], WeightError),
        ([[1, 2]], [1, 2, 3], WeightError),
        ([[1, 2]], [[1, 2]], WeightError),
        ([[1, 2]], [1.0, 2.0], WeightError),
        ([[1, 2]], ["1", "2"], WeightError),
        ([[1, 2]], [None, 1], WeightError),
        ([[1]], np.array([1 << 63], dtype=np.uint64), (WeightError, WeightOverflowError)),
    ],
)
def test_columns_or_weights_that_do_not_fit_are_a_typed_error(columns, weights, error):
    arrays = [np.asarray(column) for column in columns]
    with pytest.raises(error) as raised:
        ZSet.from_columns(arrays, None if weights is None else np.array(weights))
    assert isinstance(raised.value, DbspWcojError)
    assert len(str(raised.value)) > 20, "a message shows the value, the bound and the way out"


@pytest.mark.parametrize(
    ("rows", "weights", "arity", "error"),
    [
        ([(1, 2), (1,)], None, None, ArityError),
        ([(1, 2)], None, 3, ArityError),
        ([()], None, 1, ArityError),
        ([(1.5,)], None, None, ColumnTypeError),
        ([("a",)], None, None, ColumnTypeError),
        ([(None,)], None, None, ColumnTypeError),
        ([(1 << 63,)], None, None, ColumnTypeError),
        ([((-1 << 63) - 1,)], None, None, ColumnTypeError),
        ([(1,)], [1, 2], None, WeightError),
        ([(1,)], [], None, WeightError),
        ([(1,)], [0.5], None, WeightError),
        ([(1,)], ["1"], None, WeightError),
        ([(1,)], [1 << 63], None, (WeightError, WeightOverflowError)),
        ([], [1], 1, WeightError),
    ],
)
def test_rows_or_weights_that_do_not_fit_are_a_typed_error(rows, weights, arity, error):
    with pytest.raises(error) as raised:
        ZSet.from_rows(rows, weights, arity=arity)
    assert isinstance(raised.value, DbspWcojError)


def test_zsets_of_different_arity_do_not_add():
    with pytest.raises(ArityError):
        ZSet.from_rows([(1,)]) + ZSet.from_rows([(1, 2)])
    with pytest.raises(ArityError):
        ZSet.empty(1) - ZSet.empty(2)


def test_a_sum_of_weights_outside_int64_is_an_error_and_not_a_wrong_weight():
    for weights in ([MOST, 1], [MOST] * 3, [-MOST, -1], [MOST, MOST, 2], [-MOST, -2, 1]):
        with pytest.raises(WeightOverflowError):
            ZSet.from_rows([(1,)] * len(weights), weights)
    with pytest.raises(WeightOverflowError):
        ZSet.from_rows([(1,)], [MOST]) + ZSet.from_rows([(1,)])
    with pytest.raises(WeightOverflowError):
        ZSet.from_rows([(1,)], [-2]) - ZSet.from_rows([(1,)], [MOST])


def test_weights_at_the_bounds_of_int64_are_exact():
    made = ZSet.from_rows([(1,), (1,), (2,)], [MOST - 1, 1, -MOST])
    assert made.to_dict() == {(1,): MOST, (2,): -MOST}
    assert (made - made).to_dict() == {}
    assert (-made).to_dict() == {(1,): -MOST, (2,): MOST}


def test_the_least_weight_has_no_negative_and_says_so():
    """-2**63 is either refused, or kept exactly and refused by the negation."""
    with pytest.raises((WeightError, WeightOverflowError)):
        _ = -ZSet.from_rows([(1,)], [LEAST])


@given(st.permutations([MOST, MOST - 5, -MOST, 7, LEAST + 9, -3]))
def test_a_sum_that_fits_is_exact_or_refused_whatever_the_order(weights):
    try:
        made = ZSet.from_rows([(1,)] * len(weights), weights)
    except WeightOverflowError:
        return
    assert made.to_dict() == naive.consolidate(((1,), weight) for weight in weights)
