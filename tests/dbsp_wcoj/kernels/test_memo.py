"""Memoized sums: chains and trees with parts that depend on one value, against the naive oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Query, ZSet, generic_join
from dbsp_wcoj.kernels.join import join_layout
from tests.dbsp_wcoj.test_laws import integrate
from tests.generators.strategies import FORMULAS, LAW
from tests.oracles import naive
from tests.support.working_threads import working_threads

QUERIES = [
    "n() :- r(a, b), s(b, c), t(c, d), u(d, e), r(e, f)",
    "n() :- r(a, b), r(b, c), r(c, d), r(d, e)",
    "q(a) :- r(a, b), s(b, c), t(c, d), u(d, e)",
    "q(a, b) :- r(a, b), s(b, c), t(c, d), u(d, e), s(e, f), t(f, g)",
    "n() :- r(a, b), s(b, c), t(b, d), u(d, e), r(c, f)",
    "n() :- r(a, b), s(b, c), t(c, d), u(d, e), c < d",
    "n() :- r(a, b), s(b, c), t(c, d), u(d, e), a != d",
    "n() :- r(a, b), s(b, c), t(c, d), u(d, b), r(a, e), s(e, f)",
    "n() :- r(a, b), s(b, c), t(c, d), s(d, e), t(e, d)",
    # Sums that depend on two variables, but not on the last one before them.
    "n() :- r(a, b), s(a, c), t(b, c), s(a, d), t(b, d)",
    "n() :- r(a, b), s(b, c), t(c, d), u(a, d), s(a, e), t(b, e)",
    "n() :- r(a, b), s(a, c), t(b, c), s(a, d), t(b, d), u(a, e), r(b, e), d != a",
    "q(a) :- r(a, b), s(a, c), t(b, c), s(a, d), t(b, d)",
    "n() :- r(a, b), s(a, c), t(a, d), u(a, e)",
]
VALUES = st.integers(0, 2)
RELATIONS = ("r", "s", "t", "u")
STEPS = st.fixed_dictionaries(
    {
        name: st.dictionaries(
            st.tuples(VALUES, VALUES), st.integers(-2, 3).filter(bool), max_size=4
        )
        for name in RELATIONS
    }
)


@pytest.mark.parametrize("text", QUERIES)
def test_chains_and_trees_equal_recomputation(text):
    query = Query.parse(text)

    @LAW
    @given(st.lists(STEPS, min_size=1, max_size=4), st.sampled_from(FORMULAS))
    def check(steps, formula):
        view = DeltaQuery(query, formula=formula)
        state, output = {}, {}
        for step in steps:
            mine = {name: delta for name, delta in step.items() if name in query.relations}
            state = integrate(state, mine)
            zsets = {
                name: ZSet.from_rows(list(delta), list(delta.values()), arity=2)
                for name, delta in mine.items()
            }
            output = naive.add(output, view.step(zsets).to_dict())
            assert output == naive.evaluate(query, state)

    check()


def counts(*relations):
    """Return the number of rows of a chain, by products of counts from its end."""
    size = 1 + max(int(relation.max()) for relation in relations)
    ways = np.ones(size, np.int64)
    for first, second in reversed(relations):
        ways = np.bincount(first, ways[second], minlength=size).astype(np.int64)
    return int(ways.sum())


def chain(values, rows):
    random = np.random.default_rng(7)
    drawn = random.integers(0, values, (4, 2, rows))
    return [np.unique(relation, axis=1) for relation in drawn]


def test_a_chain_with_more_values_than_memo_entries_is_counted():
    relations = chain(5 * join_layout.MAX_MEMO_ENTRIES, 400_000)
    views = {n: ZSet.from_columns(list(r)) for n, r in zip("rstu", relations, strict=True)}
    text = "n() :- r(a, b), s(b, c), t(c, d), u(d, e)"

    joined = generic_join(text, views).to_dict()[()]

    assert joined == counts(*relations)


def test_a_long_chain_of_many_rows_is_counted_without_listing_them():
    relations = chain(500, 20_000)
    views = {n: ZSet.from_columns(list(r)) for n, r in zip("rstu", relations, strict=True)}
    view = DeltaQuery("n() :- r(a, b), s(b, c), t(c, d), u(d, e)")

    total = view.step(views).to_dict()[()]

    assert total == counts(*relations) > 10**9
    assert view.stats.proposals < 200_000


def test_a_sum_is_computed_once_for_all_values_that_it_does_not_depend_on():
    # Each of the 50 edges r(a, b) has 40 common neighbours c, and as many d.
    first, second = np.repeat(np.arange(50), 40), np.tile(np.arange(40), 50)
    edges = ZSet.from_columns([first, second])
    view = DeltaQuery("n() :- r(a, b), s(a, c), t(b, c), s(a, d), t(b, d), u(c), u(d)")
    view.step({"s": edges, "t": edges, "u": ZSet.from_columns([np.arange(40)])})

    change = view.step({"r": ZSet.from_columns([np.arange(50), np.arange(50)])})

    assert change.to_dict()[()] == 50 * 40 * 40
    assert view.stats.proposals < 3 * 50 * 40


def test_each_part_of_the_work_memoizes_by_itself():
    relations = chain(500, 20_000)
    views = {n: ZSet.from_columns(list(r)) for n, r in zip("rstu", relations, strict=True)}
    with working_threads(2):
        view = DeltaQuery("q(a) :- r(a, b), s(b, c), t(c, d), u(d, e)")
        assert view.step(views) == generic_join(view.query, views)


def test_a_view_read_in_chunks_memoizes_across_them():
    rows = np.arange(150_000)
    views = {
        "r": ZSet.from_columns([rows, rows % 7]),
        **{n: ZSet.from_columns([np.arange(7), np.arange(7) * 3 % 7]) for n in "stu"},
    }
    view = DeltaQuery("q(a) :- r(a, b), s(b, c), t(c, d), u(d, e)")
    chunks = list(view.step_chunks(views))
    assert len(chunks) > 2
    assert sum(len(chunk) for chunk in chunks) == len(rows)
