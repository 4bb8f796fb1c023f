"""Each iteration of a list loop has the rows of the joins of its rules, wherever the values are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import Query, Trace, ZSet
from dbsp_wcoj.execution import list_loop
from dbsp_wcoj.execution.list_loop import ListLoop, ListRule, find_list_rule
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.zset import Int64Array
from tests.oracles.naive import evaluate

Row = tuple[int, ...]
ONE_COLUMN = [
    "q(y, i) :- d(x, i), e(x, y)",
    "q(y, i) :- f(y, x), d(x, i)",
]
TWO_COLUMNS = [
    "q(x, z, i) :- d(x, y, i), e(y, z)",
    "q(z, y, i) :- e(z, x), d(x, y, i)",
    "q(y, z, i) :- d(x, y, i), f(x, z)",
    "q(x, y, i) :- e(a, x), d(a, b, i), e(b, y)",
    "q(x, y, i) :- f(y, a), d(a, b, i), e(b, x)",
]
#: The least value, which is also near the greatest or the least int64.
LEAST = [0, -2, 10**15, 10**18, -(2**62), 1 - 2**63, 2**63 - 4]


def rule_of(query: Query) -> ListRule:
    rule = find_list_rule(query, "d", query.head)
    assert rule is not None
    return rule


def trace_of(rows: set[Row]) -> Trace:
    trace = Trace(2, [(0, 1), (1, 0)])
    trace.update(ZSet.from_rows(sorted(rows), arity=2))
    return trace


def columns_of(rows: set[Row]) -> Int64Array:
    return np.array(sorted(rows), np.int64).T


def rows_of(layout: KeyLayout, keys: np.ndarray) -> list[Row]:
    return list(zip(*layout.decode(keys.astype(np.int64)).tolist(), strict=True))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([ONE_COLUMN, TWO_COLUMNS]), st.sampled_from(LEAST), st.data())
def test_each_iteration_has_the_rows_of_the_joins(texts, least, data):
    arity = 1 if texts is ONE_COLUMN else 2
    drawn = data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=3, unique=True))
    queries = [Query.parse(text) for text in drawn]
    value = st.integers(least, least + 3)
    relations = {name: data.draw(st.sets(st.tuples(value, value), max_size=8)) for name in "ef"}
    added = data.draw(st.sets(st.tuples(*[value] * arity), min_size=1, max_size=5))
    max_iterations = data.draw(st.sampled_from([1, 2, 100]))

    traces = {name: trace_of(rows) for name, rows in relations.items()}
    loop = ListLoop.bind([rule_of(query) for query in queries], traces)
    assert loop is not None
    first = KeyLayout.covering(columns_of(added))
    assert first is not None
    layout = KeyLayout.covering(loop.extremes(first), first)
    assert layout is not None
    keys = layout.encode(columns_of(added))
    known, iterations = set(added), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_loop, "MAX_ITERATIONS_AT_ONCE", data.draw(st.sampled_from([1, 2, 9])))
        patch.setattr(list_loop, "MIN_TABLE_PLACES", data.draw(st.sampled_from([2, 64])))
        patch.setattr(list_loop, "PLACES_PER_KEY", 2)
        for part in loop.run(keys, layout, keys, max_iterations):
            begin = joined_begin = 0
            derived, new_rows = Counter(), set()
            for end, joined_end in zip(part.ends.tolist(), part.joined_ends.tolist(), strict=True):
                assert added == {*rows_of(layout, part.joined[joined_begin:joined_end])}
                inputs = {name: dict.fromkeys(rows, 1) for name, rows in relations.items()}
                inputs["d"] = {(*row, 0): 1 for row in added}
                expected: Counter[Row] = Counter()
                for number, query in enumerate(queries):
                    for row, weight in evaluate(query, inputs).items():
                        expected[row[:-1]] += weight
                        derived[number] += weight
                counted, weights = part.log[:, begin:end]
                counted_rows = rows_of(layout, counted)
                assert dict(zip(counted_rows, weights.tolist(), strict=True)) == expected
                assert len(counted_rows) == len(expected)
                added = expected.keys() - known
                known |= added
                new_rows |= added
                begin, joined_begin = end, joined_end
                iterations += 1
            assert [*part.derived] == [derived[number] for number in range(len(queries))]
            assert sorted(rows_of(layout, part.added)) == sorted(new_rows)
    assert iterations == max_iterations or not added
    assert {*rows_of(layout, loop.remaining)} == added
