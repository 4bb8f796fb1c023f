"""A run with its index in memory gives every reader the rows and weights of the run without it.

The index is below or above the rows, so the positions in its header are positive or negative.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet, generic_join
from dbsp_wcoj.kernels.storage.run_layout import MIN_DIRECTORY_NODES
from dbsp_wcoj.storage.group_lookup import group_slots
from dbsp_wcoj.storage.nearest import NearestRows
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.range_scan import range_scan
from dbsp_wcoj.storage.rank_search import RankSearch
from dbsp_wcoj.storage.row_ranges import RowRanges
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import build_run
from tests.generators.strategies import LAW
from tests.oracles.naive import add
from tests.support.placed_index import place_index

ARITY = 3
ORDERS = [(0, 1, 2), (1, 0, 2), (2, 1, 0)]
# With this many values of the first column, a run has a directory and therefore an index.
VALUES = 2 * MIN_DIRECTORY_NODES
# Joins that list rows, sum weights, close a triangle, follow a chain, and read one column only.
QUERIES = [
    "q(a, b, c, d) :- r(a, b, c), r(b, c, d)",
    "q(a) :- r(a, b, c), s(b, a, d)",
    "q() :- r(a, b, x), s(b, c, y), r(a, c, z)",
    "q(a, b, c) :- r(a, b, x), s(b, c, y), r(c, a, z)",
    "q(a, d) :- r(a, b, x), s(b, c, y), r(c, d, z)",
    "q(x) :- r(a, b, x), s(a, c, y)",
]


@st.composite
def states(draw):
    """Rows of two runs; the first one has many first values, and both have weights of both signs.

    Rows of the second one change or delete those of the first one.
    """
    seed = draw(st.integers(0, 2**32 - 1))
    weights = draw(st.sampled_from([(1,), (-1,), (3,), (-2, 1), (-(2**40), -1, 1, 2, 2**40)]))
    random = np.random.default_rng(seed)

    def draw_rows(count, values):
        columns = random.integers(0, values, (ARITY, count)).T.tolist()
        return {tuple(row): int(random.choice(weights)) for row in columns}

    old = draw_rows(draw(st.integers(150, 300)), draw(st.sampled_from([VALUES, 9])))
    new = draw_rows(draw(st.integers(1, 40)), VALUES)
    deleted = draw(st.lists(st.sampled_from(sorted(old)), max_size=5, unique=True))
    return old, new | {row: -old[row] for row in deleted}


def zset_of(rows):
    return ZSet.from_rows(rows.keys(), rows.values(), arity=ARITY)


def traces_of(state, place):
    """Return a trace that has no index, and one whose first run has its index at a place."""
    plain, indexed = Trace(ARITY, ORDERS), Trace(ARITY, ORDERS)
    old, new = map(zset_of, state)
    plain.load({order: [build_run(old, order), build_run(new, order)] for order in ORDERS})
    indexed.load(
        {
            order: [place_index(build_run(old, order), place), build_run(new, order)]
            for order in ORDERS
        }
    )
    return plain, indexed


def as_lists(result):
    """Return a tuple of arrays as lists, to compare it."""
    return [array.tolist() for array in result]


@pytest.mark.parametrize("place", ["below", "above"])
@LAW
@given(state=states())
def test_look_ups_by_an_index_return_the_same_rows_and_weights(place, state):
    plain, indexed = traces_of(state, place)
    assert indexed.to_zset() == plain.to_zset()
    assert indexed.to_zset().to_dict() == add(*state)
    searched = sorted(state[0].keys() | state[1].keys() | {(0, 0, 0), (VALUES, 0, 0)})
    rows = zset_of(dict.fromkeys(searched, 1))
    assert indexed.weights_of(rows).tolist() == plain.weights_of(rows).tolist()
    keys = np.array(searched).T
    change = zset_of({searched[0]: 1, searched[-1]: -1})
    for has_step in (False, True):
        found = []
        for trace in (plain, indexed):
            step = trace.prepare(change) if has_step else None
            ranges, nearest = RowRanges(trace, step), NearestRows(trace, step)
            found.append(
                [
                    *as_lists(prefix_lookup(trace, keys[:1], signed=True, step=step)),
                    *as_lists(prefix_lookup(trace, keys[:2], limit=3, tie_columns=1, step=step)),
                    *as_lists(group_slots(trace, keys[:2], step)),
                    *as_lists(ranges.seek(keys[:2], after=True)[1:]),
                    *as_lists(ranges.read(ranges.seek(keys[:1]), ranges.seek(keys))),
                    *as_lists(nearest.before(keys, inclusive=False)),
                    *as_lists(nearest.after(keys, inclusive=True)),
                ]
            )
        assert found[1] == found[0]
    for order in ORDERS:
        assert range_scan(indexed, order, 3, VALUES - 3) == range_scan(plain, order, 3, VALUES - 3)


@pytest.mark.parametrize("place", ["below", "above"])
@LAW
@given(state=states())
def test_ranks_by_an_index_are_the_same(place, state):
    # Positive weights: those of the state without signs.
    old, new = ({row: abs(weight) % 7 + 1 for row, weight in rows.items()} for rows in state)
    plain, indexed = traces_of((old, new), place)
    keys = np.unique([row[0] for row in old | new])[np.newaxis]
    sizes = RankSearch([plain]).sizes(keys)
    assert RankSearch([indexed]).sizes(keys).tolist() == sizes.tolist()
    for ranks in (np.zeros_like(sizes), sizes - 1, sizes // 2):
        expected = RankSearch([plain]).find(keys, ranks)
        assert RankSearch([indexed]).find(keys, ranks).tolist() == expected.tolist()


@pytest.mark.parametrize("place", ["below", "above"])
@LAW
@given(state=states(), query=st.sampled_from(QUERIES))
def test_joins_by_an_index_return_the_same_rows_and_weights(place, state, query):
    state = [{row: max(-9, min(weight, 9)) for row, weight in rows.items()} for rows in state]
    plain, indexed = traces_of(state, place)
    other = zset_of(add(*state))
    expected = generic_join(query, {"r": plain, "s": other}, engine="reference")
    assert generic_join(query, {"r": indexed, "s": other}) == expected
    assert generic_join(query, {"r": indexed, "s": indexed}) == expected


@pytest.mark.parametrize("place", ["below", "above"])
@LAW
@given(state=states())
def test_sums_of_runs_with_an_index_are_the_same(place, state):
    _, indexed = traces_of(state, place)
    for order in ORDERS:
        runs = indexed.arrange(order).spine.runs
        assert len(runs) == 1 or runs[0].index is not None
        for merged in (Run.sum_of(runs), Run.merged(*runs) if len(runs) > 1 else runs[0]):
            columns, weights = merged.read()
            rows = zip(
                zip(*columns[list(np.argsort(order))].tolist(), strict=True),
                weights.tolist(),
                strict=True,
            )
            assert dict(rows) == add(*state)
