"""Z-sets against a dictionary of Python integers: the invariant, the group, the errors."""

from __future__ import annotations

from collections import Counter

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
from dbsp_wcoj import zset as zset_module
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS, consolidate
from dbsp_wcoj.zset import (
    MAX_INT64,
    accumulate,
    add_in_order,
    consolidated_rows,
    reusing_sort_scratch,
    sort_scratch,
)
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles import naive

MIN_INT64 = -(1 << 63)


@st.composite
def weighted_rows(draw: st.DrawFn) -> tuple[int, list[tuple[tuple[int, ...], int]]]:
    """Draw an arity and rows with weights: rows in any order and repeated, some weights zero."""
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
@given(weighted_rows())
def test_rows_are_sorted_distinct_and_without_zero_weights(arity_and_rows):
    arity, rows = arity_and_rows
    result = ZSet.from_rows([row for row, _ in rows], [weight for _, weight in rows], arity=arity)
    expected = naive.consolidate(rows)
    assert result.to_dict() == expected
    assert list(result) == sorted(expected.items())
    assert len(result) == len(expected)
    assert result.arity == arity == len(result.columns)
    assert all(column.dtype == np.int64 for column in (*result.columns, result.weights))
    assert result.weights.tolist() == [expected[row] for row in sorted(expected)]
    assert list(zip(*(column.tolist() for column in result.columns), strict=True)) == sorted(
        expected
    )


@LAW
@given(weighted_rows())
def test_columns_and_rows_give_the_same_zset(arity_and_rows):
    arity, rows = arity_and_rows
    values = [row for row, _ in rows]
    columns = [np.array([row[i] for row in values], dtype=np.int64) for i in range(arity)]
    weights = np.array([weight for _, weight in rows], dtype=np.int64)
    result = ZSet.from_columns(columns, weights)
    assert result == ZSet.from_rows(values, weights.tolist(), arity=arity)
    assert hash(result) == hash(ZSet.from_rows(values, weights, arity=arity))


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


def test_a_resultof_arity_zero_holds_one_weight():
    assert ZSet.from_rows([(), ()], [2, 3]).to_dict() == {(): 5}
    assert ZSet.from_rows([(), ()], [2, -2]) == ZSet.empty(0)
    assert list(ZSet.from_rows([()])) == [((), 1)]


def test_an_empty_resultkeeps_its_arity():
    for empty in (ZSet.empty(3), ZSet.from_rows([], arity=3), ZSet.from_rows([], [], arity=3)):
        assert (empty.arity, len(empty), empty.to_dict()) == (3, 0, {})
        assert not empty
    assert ZSet.empty(2) != ZSet.empty(3)


def test_a_resultis_not_equal_to_other_things():
    assert ZSet.from_rows([(1,)]) != {(1,): 1}
    assert ZSet.empty(1) != ZSet.empty(2)


def test_values_up_to_the_bounds_of_int64_are_sorted():
    rows = [
        (MAX_INT64, MIN_INT64),
        (MIN_INT64, MAX_INT64),
        (0, 0),
        (-1, 1),
        (MIN_INT64, MIN_INT64),
        (MAX_INT64, MAX_INT64),
    ]
    assert [row for row, _ in ZSet.from_rows(rows)] == sorted(rows)


def test_wide_rows_of_distant_values_are_sorted_and_summed():
    rng = np.random.default_rng(7)
    columns = [rng.integers(MIN_INT64, MAX_INT64, 5_000, endpoint=True) for _ in range(6)]
    result = ZSet.from_columns([np.concatenate([column, column]) for column in columns])
    expected = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert list(result) == [(row, 2) for row in expected]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint32, np.uint64])
def test_columns_and_weights_have_any_integer_type(dtype):
    column = np.array([3, 1, 2], dtype=dtype)
    result = ZSet.from_columns([column, column[::-1]], np.array([1, 2, 3], dtype=dtype))
    assert result.to_dict() == {(3, 2): 1, (1, 1): 2, (2, 3): 3}


def test_columns_may_be_strided():
    table = np.arange(12).reshape(6, 2)
    result = ZSet.from_columns([table[::2, 0], table[::-2, 1]])
    assert result.to_dict() == {(0, 11): 1, (4, 7): 1, (8, 3): 1}


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "every second value": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "backwards": lambda rows: np.ascontiguousarray(rows[:, ::-1])[:, ::-1],
    "a part of wider rows": lambda rows: np.pad(rows, ((1, 1), (3, 5)))[1:-1, 3:-5],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [2, MAX_INSERTION_ROWS, 4 * MAX_INSERTION_ROWS])
def test_rows_in_any_memory_layout_are_summed_by_the_kernel_for_one_layout(layout, size):
    rng = np.random.default_rng(size)
    for domain in (3, 2**62):  # the second does not fit in keys of 64 bits
        rows = rng.integers(-domain, domain, (3, size))
        rows[:, -1] = rows[:, 0]
        weights = rng.integers(-2, 3, size)
        expected = naive.consolidate(
            zip(map(tuple, rows.T.tolist()), weights.tolist(), strict=True)
        )
        assert ZSet.from_columns([*rows], weights).to_dict() == expected
        signatures = list(consolidate.signatures)
        columns = LAYOUTS[layout](rows)
        assert np.array_equal(columns, rows) and not columns.flags.c_contiguous
        for read_only in (False, True):
            columns.flags.writeable = not read_only
            strided_weights = np.repeat(weights, 3)[::3]
            assert ZSet.from_columns([*columns], strided_weights).to_dict() == expected
        assert np.array_equal(columns, rows)
        assert consolidated_rows(LAYOUTS[layout](rows), weights).to_dict() == expected
        assert consolidate.signatures == signatures


def test_a_resultdoes_not_follow_later_changes_of_the_arrays_it_was_made_from():
    source, target, weights = np.array([1, 2]), np.array([5, 6]), np.array([1, 1])
    result = ZSet.from_columns([source, target], weights)
    source[0] = target[0] = weights[0] = 9
    assert result.to_dict() == {(1, 5): 1, (2, 6): 1}


def test_a_resultcannot_be_written_to():
    result = ZSet.from_rows([(1, 2)])
    with pytest.raises(ValueError, match="read-only"):
        result.columns[0][0] = 7
    with pytest.raises(ValueError, match="read-only"):
        result.weights[0] = 7
    with pytest.raises(AttributeError):
        result.weights = np.array([7])
    assert result.to_dict() == {(1, 2): 1}


def test_large_inputs_consolidate_as_numpy_does():
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 300, 200_000), rng.integers(-300, 0, 200_000)
    weights = rng.integers(-3, 4, 200_000)
    result = ZSet.from_columns([a, b], weights)
    dense = np.zeros((300, 300), dtype=np.int64)
    np.add.at(dense, (a, b + 300), weights)
    rows, columns = np.nonzero(dense)
    assert np.array_equal(result.columns[0], rows)
    assert np.array_equal(result.columns[1], columns - 300)
    assert np.array_equal(result.weights, dense[rows, columns])


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
    assert len(str(raised.value)) > 20, "a message shows the value, the limit and how to fix it"


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
        ([], None, -1, ArityError),
        ([], None, 70_000, ArityError),
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
    for weights in (
        [MAX_INT64, 1],
        [MAX_INT64] * 3,
        [-MAX_INT64, -1],
        [MAX_INT64, MAX_INT64, 2],
        [-MAX_INT64, -2, 1],
    ):
        with pytest.raises(WeightOverflowError):
            ZSet.from_rows([(1,)] * len(weights), weights)
    with pytest.raises(WeightOverflowError):
        ZSet.from_rows([(1,)], [MAX_INT64]) + ZSet.from_rows([(1,)])
    with pytest.raises(WeightOverflowError):
        ZSet.from_rows([(1,)], [-2]) - ZSet.from_rows([(1,)], [MAX_INT64])


def test_weights_at_the_bounds_of_int64_are_exact():
    result = ZSet.from_rows([(1,), (1,), (2,)], [MAX_INT64 - 1, 1, -MAX_INT64])
    assert result.to_dict() == {(1,): MAX_INT64, (2,): -MAX_INT64}
    assert (result - result).to_dict() == {}
    assert (-result).to_dict() == {(1,): -MAX_INT64, (2,): MAX_INT64}


def test_the_least_int64_is_refused_as_a_weight():
    """-2**63 is refused at the latest by the negation."""
    with pytest.raises((WeightError, WeightOverflowError)):
        _ = -ZSet.from_rows([(1,)], [MIN_INT64])


@given(st.permutations([MAX_INT64, MAX_INT64 - 5, -MAX_INT64, 7, MIN_INT64 + 9, -3]))
def test_a_sum_of_weights_in_any_order_is_exact_or_refused(weights):
    try:
        result = ZSet.from_rows([(1,)] * len(weights), weights)
    except WeightOverflowError:
        return
    assert result.to_dict() == naive.consolidate(((1,), weight) for weight in weights)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, 2], r"column 1 has dtype object .*; convert it with astype\(numpy\.int64\)"),
        ([1, MIN_INT64], r"convert it with astype\(numpy\.int64\)"),
        ([1, MAX_INT64 + 1], "column 1 has integers beyond int64"),
        ([MIN_INT64 - 1, 1], "column 1 has integers beyond int64"),
        ([True, False], "column 1 has dtype object .*encode other values as integers"),
        ([1, "a"], "column 1 has dtype object .*encode other values as integers"),
    ],
)
def test_the_error_for_a_column_of_objects_says_what_it_holds(values, words):
    with pytest.raises(ColumnTypeError, match=words):
        ZSet.from_columns([np.arange(2), np.array(values, dtype=object)])


@LAW
@given(triples(), st.booleans())
def test_z_sets_added_in_order_are_their_sum(operands, are_slices):
    arity, total = operands[0].arity, operands[0] + operands[1] + operands[2]
    if are_slices:  # cut the sorted rows of the sum, and one row as well
        rows = [row for row in (total + total).to_dict().items() if row[1]]
        cut = len(rows) // 2
        parts = [dict(rows[:cut]), dict(rows[cut:])]
        if parts[1]:
            row, weight = rows[cut]
            parts[0][row], parts[1][row] = weight - 1, 1
        operands = [ZSet.from_rows(list(p), list(p.values()), arity=arity) for p in parts]
        total = total + total

    result = add_in_order(operands, arity)

    result._check()
    assert result == total


@pytest.mark.parametrize(
    ("slices", "total"),
    [
        ([{(1,): 1}, {(1,): -1}], {}),
        ([{(1,): 1}, {(1,): -1, (2,): 3}], {(2,): 3}),
        ([{(0,): 2, (1,): 1}, {(1,): -1}], {(0,): 2}),
        ([{(0,): 2, (1,): 1}, {(1,): -1}, {(1,): 4}], {(0,): 2, (1,): 4}),
        ([{(1,): 1}, {(1,): -1}, {(1,): 1}], {(1,): 1}),
    ],
)
def test_rows_that_cancel_between_two_slices_are_not_in_the_sum(slices, total):
    result = add_in_order([ZSet.from_rows(list(s), list(s.values())) for s in slices], 1)
    result._check()
    assert result.to_dict() == total


def test_sorts_reuse_their_memory_within_the_context_only(monkeypatch):
    monkeypatch.setattr(zset_module, "MIN_REUSED_ROWS", 100)
    generator = np.random.default_rng(0)
    zsets = []
    with reusing_sort_scratch():
        first = sort_scratch(1000)
        assert sort_scratch(200).shape == (len(first), 200)
        assert np.shares_memory(sort_scratch(200), first)
        assert not np.shares_memory(sort_scratch(1001), first)
        for rows in (3, 150, 2000, 400):
            columns = generator.integers(0, 50, (2, rows))
            weights = generator.integers(-2, 3, rows)
            zsets.append((ZSet.from_columns(columns, weights), columns, weights))
    for result, columns, weights in zsets:
        result._check()
        expected = Counter()
        for row, weight in zip(zip(*columns.tolist(), strict=True), weights.tolist(), strict=True):
            expected[row] += weight
        assert result.to_dict() == {row: weight for row, weight in expected.items() if weight}
    assert not np.shares_memory(sort_scratch(1000), sort_scratch(1000))


def test_an_overflow_of_the_row_between_two_slices_is_an_error():
    half = ZSet.from_rows([(1,)], [MAX_INT64])
    with pytest.raises(WeightOverflowError):
        add_in_order([half, half], 1)


@pytest.mark.parametrize("weight", [True, np.int32(3), np.int8(-3), np.uint64(5), 1 << 40])
def test_the_weight_of_the_empty_row_is_int64(weight):
    result = ZSet.scalar(weight)
    result._check()
    assert result == ZSet.from_rows([()], [int(weight)], arity=0)


@pytest.mark.parametrize("weight", [np.int64(-(2**63)), np.uint64(2**63), -(2**63), 2**63])
def test_a_weight_of_the_empty_row_outside_int64_is_an_error(weight):
    with pytest.raises(WeightOverflowError):
        ZSet.scalar(weight)


@pytest.mark.parametrize("mask", [[False, True], [False, False]])
def test_masked_weights_are_an_error(mask):
    weights = np.ma.array([1, 999], mask=mask, dtype=np.int64)
    with pytest.raises(WeightError, match="masked array"):
        ZSet.from_columns([np.array([1, 2])], weights)


@LAW
@given(st.data(), st.integers(1, 3), st.integers(1, 4))
def test_a_sum_by_ranges_is_the_sum(data, arity, range_rows):
    domain = data.draw(st.sampled_from(DOMAINS))
    deltas = data.draw(st.lists(relation_deltas(arity, domain), min_size=1, max_size=4))
    expected = {}
    for delta in deltas:
        expected = naive.add(expected, delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zset_module, "MIN_RANGED_SUM_ROWS", 2)
        patch.setattr(zset_module, "RANGE_ROWS", range_rows)
        total = accumulate([zset(delta, arity=arity) for delta in deltas], arity)
    total._check()
    assert total.to_dict() == expected


def test_a_sum_by_ranges_sorts_no_more_rows_than_a_range_at_once(monkeypatch):
    monkeypatch.setattr(zset_module, "MIN_RANGED_SUM_ROWS", 1000)
    monkeypatch.setattr(zset_module, "RANGE_ROWS", 100)
    sizes = []
    consolidate = zset_module.consolidated_rows

    def count(rows, weights):
        sizes.append(len(weights))
        return consolidate(rows, weights)

    monkeypatch.setattr(zset_module, "consolidated_rows", count)
    large = ZSet.from_columns([np.arange(2000)])
    assert len(accumulate([large, ZSet.from_rows([(5,), (1500,)], [-1, 1])], 1)) == 1999
    assert sum(sizes[2:]) >= 2002 and max(sizes[2:]) <= 110
