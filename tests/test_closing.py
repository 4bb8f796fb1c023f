"""The last two variables of a cycle, summed: marked lists, several runs, weights, comparisons.

The laws' domains are too small for these paths, which begin at lists of 8 values held against 4
others. So the graphs here have degrees around 20, arrive in steps that leave several runs behind,
and lie where a bitmap can mark them or not. Which path a term takes is asked of its program.
"""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, Query, ZSet
from dbsp_wcoj.kernels import program as words
from tests import columnar, naive

LOWEST, HIGHEST = -(2**63), 2**63 - 1

# Whether some term closes a cycle in one loop, and whether some term sums pairs another way.
TRIANGLES = {
    "n() :- e(a, b), e(b, c), e(a, c)": (True, False),
    "n() :- e(a, b), e(b, c), e(c, a)": (True, False),
    "q(a) :- e(a, b), e(b, c), e(a, c)": (True, False),
    "n() :- e(a, b), e(b, c), e(a, c), a < b": (True, True),
    "n() :- e(a, b), e(b, c), e(a, c), b < c": (True, True),
    "n() :- e(a, b), e(b, c), e(a, c), a != c, c >= b": (False, True),
    "n() :- e(a, b), f(b, c), g(a, c)": (True, False),
}
NODES = 90
LAYOUTS = {
    "dense": lambda v: v,
    "negative": lambda v: v - 45,
    "lowest": lambda v: LOWEST + v,
    "below the highest": lambda v: HIGHEST - NODES + v,
    "too wide to mark": lambda v: v * (1 << 21),
    "over all of int64": lambda v: (v - NODES // 2) * (1 << 57),
}
WEIGHTS = {
    "one": lambda rng, size: np.ones(size, np.int64),
    "uniform in each step": lambda rng, size: np.full(size, rng.choice([-2, -1, 1, 3])),
    "mixed": lambda rng, size: rng.integers(-2, 4, size),
}


def steps(seed: int, layout: str, weights: str, names: set[str]) -> list[dict[str, ZSet]]:
    """Steps of falling size: two runs stay, beside the run of the step."""
    rng = np.random.default_rng(seed)
    made = []
    for size in (1_800, 140, 12, 1):
        step = {}
        for name in names:
            source, target = LAYOUTS[layout](rng.integers(0, NODES, (2, size)))
            source[: size // 12] = source[0]  # a hub: its list is the one to mark
            step[name] = ZSet.from_columns([source, target], WEIGHTS[weights](rng, size))
        made.append(step)
    return made


def paths(view: DeltaQuery) -> tuple[bool, bool]:
    """Whether a term closes a cycle, and whether one sums pairs but does not."""
    found = set()
    for term in view._schedule.terms:
        code = term.product._program
        for level in range(int(code[words.LEVELS])):
            block = int(code[int(code[words.BLOCKS]) + level])
            found.add(int(code[block + words.SUMMED]))
    return words.SUM_CLOSING in found, words.SUM_PAIRS in found


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
    assert paths(view) == TRIANGLES[text]


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
@pytest.mark.parametrize("layout", ["dense", "too wide to mark"])
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
