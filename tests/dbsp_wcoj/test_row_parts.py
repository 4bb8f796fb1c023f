"""Row parts: projections and unions, without copies, equal those of Z-sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.row_parts import RowPart, RowParts

ZSETS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2)), st.sampled_from([-1, 1, 2]), max_size=5
).map(lambda rows: ZSet.from_rows(rows.keys(), rows.values(), arity=2))


@given(st.lists(ZSETS, max_size=3))
def test_the_union_of_parts_is_the_sum_of_the_z_sets(zsets):
    total = RowParts.union([RowParts.of(zset) for zset in zsets], 2)
    assert len(total) == sum(map(len, zsets))
    assert total.sorted() == sum(zsets, ZSet.empty(2))


@given(ZSETS, st.lists(st.integers(0, 1), min_size=1, max_size=3))
def test_a_projection_adds_the_weights_of_equal_rows(zset, columns):
    projected = RowParts.of(zset).project(columns).sorted()
    rows = [[row[k] for k in columns] for row, _ in zset]
    weights = [weight for _, weight in zset]
    assert projected == ZSet.from_rows(rows, weights, arity=len(columns))


def test_no_column_is_copied():
    zset = ZSet.from_rows([(1, 2), (3, 4)])
    swapped = RowParts.of(zset).project([1, 0])
    (part,) = RowParts.union([swapped, RowParts.of(ZSet.empty(2))], 2).parts
    assert np.shares_memory(part.columns[0], zset.row_array)


def test_parts_of_sorted_rows_are_joined_as_they_are():
    parts = [
        RowPart([np.array([k]), np.array([5])], np.broadcast_to(np.int64(1), 1)) for k in range(3)
    ]
    rows = RowParts(2, parts, is_sorted=True).sorted()
    assert rows == ZSet.from_rows([(0, 5), (1, 5), (2, 5)])
