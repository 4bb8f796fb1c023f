"""Sums over the last two variables of a clique, which share an intersection."""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, Formula, Query, WeightOverflowError, ZSet, generic_join
from dbsp_wcoj.kernels.join import join_layout
from tests.generators.hub_streams import HIGHEST, LAYOUTS, WEIGHTS, steps, sum_kinds
from tests.oracles import columnar, naive
from tests.support.working_threads import working_threads

CLIQUE = "n() :- e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d)"
QUERIES = (
    CLIQUE,
    "q(a) :- e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d)",
    "n() :- e(a, b), f(a, c), e(a, d), f(b, c), e(b, d), e(c, d)",
    "n() :- e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d), a < b, d != a, d > 20",
    "n() :- e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d), b < c, c < 60",
)


def check_steps(query: Query, made: list[dict[str, ZSet]], **options) -> None:
    """Compare each step with binary joins of whole columns."""
    view = DeltaQuery(query, **options)
    empty = tuple(np.empty((2, 0), np.int64)), np.empty(0, np.int64)
    state = dict.fromkeys(query.relations, empty)
    total: dict = {}
    for step in made:
        total = naive.add(total, view.step(step).to_dict())
        for name, delta in step.items():
            state[name] = columnar.add(state[name], (tuple(delta.columns), delta.weights))
        columns, weights = columnar.evaluate(query, state)
        rows = zip(*(column.tolist() for column in columns), strict=True) if columns else [()]
        expected: dict = {}
        if columns:
            expected = naive.add({}, dict(zip(rows, weights.tolist(), strict=True)))
        elif weights.sum():
            expected = {(): int(weights.sum())}
        assert total == expected
    assert join_layout.SUM_CLIQUE in sum_kinds(view)


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_cliques_of_several_runs_with_any_weights_equal_binary_joins(text, weights):
    query = Query.parse(text)
    for seed, layout in enumerate(LAYOUTS):
        if seed < 1 or (seed + list(WEIGHTS).index(weights)) % 3 == 0:
            check_steps(query, steps(seed, layout, weights, set(query.relations), size=700))


def test_cliques_of_distinct_edges_and_loops_obey_their_comparisons():
    rng = np.random.default_rng(8)
    query = Query.parse(f"{CLIQUE}, d != a, d != b")
    edges = np.unique(rng.integers(0, 40, (2, 900)), axis=1)
    check_steps(query, [{"e": ZSet.from_columns(list(edges))}])


@pytest.mark.parametrize("formula", Formula)
def test_all_formulas_share_intersections_alike(formula):
    query = Query.parse(CLIQUE)
    made = steps(5, "dense", "mixed", {"e"}, size=500)
    check_steps(query, made[:1] + made[2:], formula=formula)


def test_parts_of_a_clique_add_up():
    query = Query.parse(CLIQUE)
    rng = np.random.default_rng(3)
    edges = ZSet.from_columns(list(rng.integers(0, 300, (2, 9_000))))
    with working_threads(2):
        found = generic_join(query, {"e": edges})
    assert found == generic_join(query, {"e": edges})
    state = {"e": (tuple(edges.columns), edges.weights)}
    assert found.to_dict() == {(): int(columnar.evaluate(query, state)[1].sum())}


@pytest.mark.parametrize("weight", [1, 3], ids=["lists", "weights"])
def test_an_intersection_longer_than_its_room_is_processed_in_pieces(weight):
    rng = np.random.default_rng(1)
    size = 5 * join_layout.LIST_WORDS // 2
    left, right = (np.flatnonzero(rng.random(size) < 0.9) for _ in "lr")
    ends = np.unique(np.stack([rng.integers(0, 9, 60_000), rng.integers(0, size, 60_000)]), axis=1)
    weights = np.ones(len(left), np.int64)
    weights[::2] = weight
    view = DeltaQuery("n() :- k(c), l(d), r(d), e(c, d)")
    step = {
        "k": ZSet.from_columns([np.arange(7)]),
        "l": ZSet.from_columns([left], weights),
        "r": ZSet.from_columns([right]),
        "e": ZSet.from_columns(list(ends)),
    }
    by_value = np.zeros(size, np.int64)
    by_value[left] = weights
    held = np.isin(ends[1], right) & (ends[0] < 7)
    assert view.step(step).to_dict() == {(): int(by_value[ends[1][held]].sum())}
    assert join_layout.SUM_CLIQUE in sum_kinds(view)


def test_a_weight_that_leaves_int64_is_an_error_only_where_its_row_counts():
    query = "n() :- k(c), l(d), r(d), e(c, d)"
    most = 1 << 62
    step = {
        "k": ZSet.from_rows([(1,)]),
        "l": ZSet.from_rows([(1,), (2,), (3,)], [most, 1, 1]),
        "r": ZSet.from_rows([(1,), (2,), (3,)], [4, 1, 1]),
        "e": ZSet.from_rows([(1, 2), (1, 3)]),
    }
    assert DeltaQuery(query).step(step).to_dict() == {(): 2}
    step["e"] = ZSet.from_rows([(1, 1), (1, 3)])
    with pytest.raises(WeightOverflowError):
        DeltaQuery(query).step(step)


def test_cliques_at_the_highest_value_of_int64_are_counted():
    values = range(HIGHEST - 11, HIGHEST + 1)
    edges = {(x, y): 1 for x in values for y in values if x < y}
    found = DeltaQuery(CLIQUE).step({"e": ZSet.from_rows(list(edges))}).to_dict()
    assert found == naive.evaluate(Query.parse(CLIQUE), {"e": edges}) == {(): 495}
