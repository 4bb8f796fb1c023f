"""Amounts by group: the sums of a dictionary, exact at the limits, without a sort of all rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.runtime.operators.aggregates.amounts_by_group import (
    MAX_POSITIONS,
    MIN_GROUPED_ROWS,
    MIN_ROWS_PER_GROUP,
    find_groups,
)
from dbsp_wcoj.observer import observing
from tests.circuits.runtime.test_linear_stage import SortedRows

ROWS = 2 * MIN_GROUPED_ROWS


def sums_of(keys, rows, positions, amounts):
    """Add the amounts of each key and position, without those that are 0."""
    sums = Counter()
    for row, position, amount in zip(rows, positions, amounts, strict=True):
        sums[(*keys[:, row].tolist(), int(position))] += int(amount)
    return {key: amount for key, amount in sums.items() if amount}


@given(st.integers(0, 3), st.integers(1, 5), st.integers(0, MAX_POSITIONS + 2), st.data())
@settings(max_examples=150, deadline=None)
def test_the_sums_are_those_of_a_dictionary(columns, domain, width, data):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    keys = random.integers(0, domain, (columns, ROWS)) * data.draw(st.sampled_from([1, -(2**62)]))
    groups = find_groups(keys)
    largest = data.draw(st.sampled_from([1, 2**40, 2**63 - 1]))
    count = data.draw(st.integers(0, 2 * ROWS))
    rows = random.integers(0, ROWS, count)
    positions = random.integers(-1, width, count)
    amounts = random.integers(-largest, largest, count)
    if groups is None:
        assert len({tuple(key) for key in keys.T.tolist()}) > ROWS // MIN_ROWS_PER_GROUP
        return
    added = groups.add(rows, positions, amounts)
    assert sums_of(keys, *added) == sums_of(keys, rows, positions, amounts)
    has_sums = largest == 1 and width < MAX_POSITIONS
    if has_sums:
        kinds = set(zip(map(tuple, keys[:, rows].T.tolist()), positions.tolist(), strict=True))
        assert len(added[0]) <= len(kinds)


def test_few_rows_and_many_groups_have_no_groups():
    assert find_groups(np.zeros((1, MIN_GROUPED_ROWS - 1), np.int64)) is None
    assert find_groups(np.arange(ROWS).reshape(1, -1)) is None
    most = np.arange(ROWS).reshape(1, -1) // MIN_ROWS_PER_GROUP
    groups = find_groups(most)
    assert groups is not None
    assert len(groups.first_rows) == ROWS // MIN_ROWS_PER_GROUP
    assert most[0, groups.first_rows].tolist() == list(range(ROWS // MIN_ROWS_PER_GROUP))


@pytest.mark.parametrize(
    ("rows", "kinds", "sorts_keys_only"), [(4000, 5, True), (4000, 4000, True), (9000, 9000, False)]
)
def test_an_aggregate_of_few_groups_or_rows_does_not_sort_its_quantities(
    rows, kinds, sorts_keys_only
):
    schema = pa.schema([("id", pa.int64()), ("kind", pa.int64()), ("price", pa.int64())])
    view = "CREATE VIEW v AS SELECT kind, sum(price) AS s, count(price) AS c FROM t GROUP BY kind"
    circuit = compile_sql(view, {"t": schema})
    ids = np.arange(rows)
    price = pa.array(ids % 97, mask=ids % 10 == 0)
    table = pa.table([ids, ids % kinds, price], schema=schema)
    observer = SortedRows()
    with observing(observer):
        output = circuit.step({"t": table})["v"]
    expected = Counter()
    for kind, value in zip((ids % kinds).tolist(), price.to_pylist(), strict=True):
        expected[kind] += value or 0
    assert dict(zip(*output.select(["kind", "s"]).to_pydict().values(), strict=True)) == {
        kind: expected[kind] if kinds == 5 or kind % 10 else None for kind in range(kinds)
    }
    assert output["c"].to_pylist() == [
        sum(1 for i in range(kind, rows, kinds) if i % 10) for kind in output["kind"].to_pylist()
    ]
    # The general form sorts the counts and sums of all rows: almost two for each row.
    assert (max(observer.sorts, default=0) <= rows) == sorts_keys_only
