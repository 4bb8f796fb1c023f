"""The row at a rank in the sum of two traces, against a sorted list of all rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.rank_search import RankSearch


def negative_part(rows: ZSet) -> ZSet:
    """Return the rows of negative weight, with positive weights."""
    return ZSet.from_columns(list(rows.row_array), np.maximum(-rows.weight_array, 0))


@pytest.mark.parametrize(("depth", "arity"), [(0, 1), (0, 2), (1, 2), (1, 3), (1, 4), (2, 4)])
@given(data=st.data())
def test_the_row_at_a_rank_is_that_of_the_sorted_list(depth, arity, data):
    value = st.sampled_from([-(2**63), 0, 1, 2, 2**63 - 1])
    row = st.tuples(*[value] * arity)
    changes = st.dictionaries(row, st.sampled_from([-2, -1, 1, 2, 3]), max_size=6)
    first, second = Trace(arity), Trace(arity)
    total = ZSet.empty(arity)
    for change in data.draw(st.lists(changes, max_size=6)):
        delta = ZSet.from_rows(change.keys(), change.values(), arity=arity)
        first.update(delta)
        total += delta
    change = data.draw(changes)
    delta = ZSet.from_rows(change.keys(), change.values(), arity=arity)
    # The second trace adds to each negative weight, so that it becomes zero: before and after the
    # staged step.
    total_after = total + delta
    complement, complement_after = negative_part(total), negative_part(total_after)
    second.update(complement)
    changes_of_traces = [(first, delta), (second, complement_after - complement)]
    steps = [trace.prepare(rows) for trace, rows in changes_of_traces if len(rows)]
    searches = [(RankSearch([first, second]), total)]
    if data.draw(st.booleans()):
        searches.append((RankSearch([first, second], steps), total_after))
    else:
        for step in steps:
            step.trace.push_overlay(step)
        searches = [(RankSearch([first, second]), total_after)]
    for search, rows in searches:
        groups = {}
        for values, weight in sorted(rows.to_dict().items()):
            groups.setdefault(values[:depth], []).extend([values] * max(weight, 0))
        prefixes = [*groups, (5,) * depth]
        keys = np.array(prefixes, np.int64).reshape(len(prefixes), depth).T
        sizes = [len(groups.get(prefix, [])) for prefix in prefixes]
        assert search.sizes(keys).tolist() == sizes
        expected = [(prefix, rank) for prefix in groups for rank in range(len(groups[prefix]))]
        keys = (
            np.array([prefix for prefix, _ in expected], np.int64).reshape(len(expected), depth).T
        )
        ranks = np.array([rank for _, rank in expected], np.int64)
        ranked_rows = list(map(tuple, search.find(keys, ranks).T.tolist()))
        assert ranked_rows == [groups[prefix][rank] for prefix, rank in expected]


def test_the_searches_of_a_rank_grow_with_the_logarithm_of_the_rows():
    searches = []
    for size in (1 << 8, 1 << 16):
        trace = Trace(2)
        trace.update(ZSet.from_columns([np.zeros(size, np.int64), np.arange(size)]))
        # The greater half is deleted, but still in the runs.
        values = np.arange(size // 2, size)
        step = trace.prepare(
            ZSet.from_columns([np.zeros(len(values), np.int64), values], np.full(len(values), -1))
        )
        search = RankSearch([trace], [step])
        last = search.find(np.zeros((1, 1), np.int64), np.array([size // 2 - 1]))
        assert last.tolist() == [[0], [size // 2 - 1]]
        searches.append(search.searches)
    assert searches[1] <= 3 * searches[0] <= 3 * 40
