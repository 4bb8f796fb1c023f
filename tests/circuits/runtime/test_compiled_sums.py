"""Compiled sums: the same state and results as the aggregates in general form, or none."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.aggregates import linear_aggregate
from circuits.runtime.operators.aggregates.amounts_by_group import MIN_GROUPED_ROWS
from circuits.runtime.operators.aggregates.compiled_sums import CompiledSums
from circuits.runtime.operators.aggregates.exact_sum import MAX_DIGITS
from circuits.runtime.operators.aggregates.linear_aggregate import LinearAggregate
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS
from dbsp_wcoj.storage.group_lookup import GroupSlots
from dbsp_wcoj.zset import Int64Array

DOUBLE, WIDE, NARROW, BIG = pa.float64(), pa.decimal128(38, 2), pa.decimal128(9, 2), pa.int64()
#: The columns (key, key, integer, double, wide decimal, narrow decimal), with a few values each.
TYPES = (BIG, BIG, BIG, DOUBLE, WIDE, NARROW)
VALUES: tuple[tuple[Any, ...], ...] = (
    (0, 1, None),
    (-(2**40), 5),
    (None, 0, 1, -7, 2**32, -(2**62), 2**63 - 1, -(2**63) + 1),
    (None, 0.0, -0.0, 0.1, -2.5, 1e9, 5e-324, 2.0**-1040, 3e300, float("inf"), float("nan")),
    (None, Decimal("0.00"), Decimal("-7.25"), Decimal("40000000000.00"), Decimal(10**30)),
    (None, Decimal("0.01"), Decimal("-9999999.99")),
)
WEIGHTS = (-(2**62), -2, -1, 1, 1, 1, 3, 2**40)
CALLS = (
    AggregateCall("count", None, BIG, "rows"),
    AggregateCall("count", 2, BIG, "integers"),
    AggregateCall("sum", 2, BIG, "small total"),
    AggregateCall("sum", 2, pa.decimal128(38, 0), "total"),
    AggregateCall("avg", 2, DOUBLE, "mean"),
    AggregateCall("sum", 3, DOUBLE, "double total"),
    AggregateCall("avg", 3, DOUBLE, "double mean"),
    AggregateCall("sum", 4, WIDE, "decimal total"),
    AggregateCall("avg", 4, DOUBLE, "decimal mean"),
    AggregateCall("sum", 5, pa.decimal128(18, 2), "narrow total"),
    AggregateCall("count", 5, BIG, "narrow"),
)
ROWS = st.lists(
    st.tuples(*map(st.sampled_from, VALUES), st.sampled_from(WEIGHTS)), min_size=1, max_size=12
)


def aggregate(
    calls: Sequence[AggregateCall], keys: Sequence[int], codecs: Codecs
) -> LinearAggregate:
    return LinearAggregate(
        [codecs.codec(type) for type in TYPES],
        keys,
        [(call, codecs.codec(call.type)) for call in calls],
    )


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_count_beyond_int64_is_an_error(is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(CompiledSums, "results", lambda *arguments, **options: None)
    largest = 2**63 - 1
    state = GroupSlots(
        np.array([0, 0, 1, 1, 2, 2]),
        np.array([0, MAX_DIGITS] * 3),
        np.array([largest, -1, 5, 2, largest, 1]),
    )
    counts = aggregate([AggregateCall("count", 2, BIG, "integers")], [], Codecs())
    with pytest.raises(WeightOverflowError, match=f"count.*leaves int64: {largest + 1} values"):
        counts.results(3, state, always_exists=False)
    exact = GroupSlots(state.group_indices[2:], state.slots[2:], state.weights[2:])
    exists, codes = counts.results(3, exact, always_exists=False)
    assert (exists.tolist(), codes[0, 1:].tolist()) == ([False, True, True], [3, largest - 1])


def encode(rows: Sequence[tuple[Any, ...]], codecs: Codecs) -> tuple[Int64Array, Int64Array]:
    *columns, weights = zip(*rows, strict=True)
    codes = [
        codecs.codec(type).encode(pa.array(column, type))
        for type, column in zip(TYPES, columns, strict=True)
    ]
    return np.array(codes), np.array(weights, np.int64)


def outcome(function: Any, *arguments: Any, **options: Any) -> Any:
    """Return the result of a function, or the type and the text of its error."""
    try:
        result = function(*arguments, **options)
    except Exception as error:
        return type(error), str(error)
    return result if isinstance(result, ZSet) else [array.tolist() for array in result]


def state_of(partial: ZSet, keys: int) -> tuple[int, GroupSlots]:
    """Return the number of groups of a partial aggregate, and their state."""
    if not keys:
        indices = np.zeros(len(partial), np.int64)
        return 1, GroupSlots(indices, partial.row_array[-1], partial.weight_array)
    groups, indices = np.unique(partial.row_array[:-1], axis=1, return_inverse=True)
    indices = indices.reshape(-1).astype(np.int64)
    return groups.shape[1], GroupSlots(indices, partial.row_array[-1].copy(), partial.weight_array)


@given(
    rows=ROWS,
    calls=st.lists(st.sampled_from(CALLS), max_size=4),
    keys=st.sampled_from([(), (0,), (1, 0)]),
    copies=st.sampled_from([1, 1 + MAX_INSERTION_ROWS, 1 + MIN_GROUPED_ROWS]),
)
def test_compiled_sums_are_those_of_the_general_form(
    rows: list[tuple[Any, ...]], calls: list[AggregateCall], keys: tuple[int, ...], copies: int
) -> None:
    codecs = Codecs()
    compiled, general = aggregate(calls, keys, codecs), aggregate(calls, keys, codecs)
    general._compiled = CompiledSums(keys, None, None)
    columns, weights = encode(rows * copies, codecs)
    always_exists = not keys

    partial = outcome(compiled.partial_rows, columns, weights, ())
    assert partial == outcome(general.partial_rows, columns, weights, ())

    if isinstance(partial, ZSet):
        partial._check()
        n, state = state_of(partial, len(keys))
        results = outcome(compiled.results, n, state, always_exists=always_exists)
        expected = outcome(general.results, n, state, always_exists=always_exists)
        if isinstance(results, list):
            exists, codes = results
            assert exists == expected[0]
            for values, expected_values in zip(codes, expected[1], strict=True):
                for index in np.flatnonzero(exists):
                    assert values[index] == expected_values[index]
        else:
            assert results == expected


@pytest.mark.parametrize("rows", [9, MAX_INSERTION_ROWS + 1, 5000])
def test_sums_that_the_kernel_supports_are_not_computed_in_general_form(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("computed in general form")

    monkeypatch.setattr(linear_aggregate, "consolidated_rows", fail)
    monkeypatch.setattr(linear_aggregate, "first_slot_weights", fail)
    codecs = Codecs()
    sums = aggregate(CALLS[:3] + CALLS[4:], (0, 1), codecs)
    numbers = [
        (i % 5, i % 2, None if i % 7 == 3 else i, i / 4, Decimal(i), Decimal(-i), 1)
        for i in range(rows)
    ]
    partial = sums.partial_rows(*encode(numbers, codecs), ())
    n, state = state_of(partial, 2)
    exists, _ = sums.results(n, state, always_exists=False)
    assert n == min(rows, 10) and exists.all()


def test_a_count_that_leaves_int64_is_an_error() -> None:
    codecs = Codecs()
    columns, _ = encode([(1, 5, 0, 0.0, Decimal(0), Decimal(0), 1)] * 2, codecs)
    with pytest.raises(WeightOverflowError, match="count"):
        aggregate(CALLS[:1], (0,), codecs).partial_rows(columns, np.full(2, 2**62), ())


def test_rows_of_read_only_arrays_are_summed() -> None:
    codecs = Codecs()
    columns, weights = encode([(1, 5, 4, 0.0, Decimal(0), Decimal(0), 2)], codecs)
    columns.flags.writeable = weights.flags.writeable = False
    partial = aggregate(CALLS[:3], (1,), codecs).partial_rows(columns, weights, ())
    assert partial == ZSet.from_rows([(5, 0), (5, 256)], [2, 8])
