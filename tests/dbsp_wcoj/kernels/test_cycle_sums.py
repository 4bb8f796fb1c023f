"""Sums over the last two variables of a cycle: bitmaps, several runs, weights, comparisons.

Which path a term takes is asked of its program.
"""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, Query, ZSet
from dbsp_wcoj.kernels.join import join_layout
from tests.generators.hub_streams import HIGHEST, LAYOUTS, WEIGHTS, steps, sum_kinds
from tests.oracles import columnar, naive

# Per query: (some term closes a cycle in one loop, some term sums pairs in the general way).
TRIANGLES = {
    "n() :- e(a, b), e(b, c), e(a, c)": (True, False),
    "n() :- e(a, b), e(b, c), e(c, a)": (True, False),
    "q(a) :- e(a, b), e(b, c), e(a, c)": (True, False),
    "n() :- e(a, b), e(b, c), e(a, c), a < b": (True, True),
    "n() :- e(a, b), e(b, c), e(a, c), b < c": (True, True),
    "n() :- e(a, b), e(b, c), e(a, c), a != c, c >= b": (False, True),
    "n() :- e(a, b), f(b, c), g(a, c)": (True, False),
}


def cycles_and_pairs(view: DeltaQuery) -> tuple[bool, bool]:
    """Return whether a term is SUM_CYCLE, and whether a term is SUM_PAIRS."""
    kinds = sum_kinds(view)
    return join_layout.SUM_CYCLE in kinds, join_layout.SUM_PAIRS in kinds


@pytest.mark.parametrize("text", TRIANGLES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_triangles_of_several_runs_with_any_weights_equal_the_oracle(text, weights):
    for seed, layout in enumerate(LAYOUTS):
        # Every layout with some weights, and the first one with all of them.
        if seed < 1 or (seed + list(WEIGHTS).index(weights)) % 3 == 0:
            check(text, seed, layout, weights)


def check(text: str, seed: int, layout: str, weights: str) -> None:
    query = Query.parse(text)
    view = DeltaQuery(query)
    names = set(query.relations)
    state: dict[str, dict] = {name: {} for name in names}
    total: dict = {}
    for step in steps(seed, layout, weights, names):
        total = naive.add(total, view.step(step).to_dict())
        for name, delta in step.items():
            state[name] = naive.add(state[name], delta.to_dict())
        assert total == naive.evaluate(query, state), layout
    assert all(len(rows) >= 2 for rows in view.stats.rows_by_run.values())
    assert cycles_and_pairs(view) == TRIANGLES[text]


def test_triangles_at_the_highest_value_of_int64_are_counted():
    values = range(HIGHEST - 11, HIGHEST + 1)
    edges = {(x, y): 1 for x in values for y in values if x < y}
    query = Query.parse("n() :- e(a, b), e(b, c), e(a, c)")
    found = DeltaQuery(query).step({"e": ZSet.from_rows(list(edges))}).to_dict()
    assert found == naive.evaluate(query, {"e": edges})


CYCLES = (
    "n() :- e(a, b), e(b, c), e(c, d), e(a, d)",
    "n() :- e(a, b), e(b, c), e(c, d), e(a, d), a < c, b < d",
    "n() :- e(a, b), e(b, c), e(c, a), e(a, d), e(d, c)",
)


@pytest.mark.parametrize("text", CYCLES)
@pytest.mark.parametrize("layout", ["dense", "too wide for a bitmap"])
def test_longer_cycles_of_several_runs_equal_binary_joins(text, layout):
    query = Query.parse(text)
    view = DeltaQuery(query)
    state = tuple(np.empty((2, 0), np.int64)), np.empty(0, np.int64)
    total = 0
    for step in steps(9, layout, "mixed", {"e"}):
        total += view.step(step).to_dict().get((), 0)
        delta = step["e"]
        state = columnar.add(state, (tuple(delta.columns), delta.weights))
        assert total == columnar.evaluate(query, {"e": state})[1].sum()
