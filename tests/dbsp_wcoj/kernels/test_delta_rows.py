"""Joins that iterate over the rows of a delta: chunks of output, parts, one to three columns."""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, Formula, Query, ZSet
from dbsp_wcoj.execution.join_buffers import CHUNK_ROWS
from dbsp_wcoj.kernels.join import join_layout
from tests.oracles import columnar, naive
from tests.support.working_threads import working_threads


def driver_levels(view: DeltaQuery) -> list[int]:
    """Return how many levels the rows of the delta bind, by term."""
    return [int(term.physical._program[join_layout.DRIVER_LEVELS]) for term in view.terms]


def relation(rng: np.random.Generator, high: tuple[int, ...], rows: int) -> ZSet:
    columns = [rng.integers(0, most, rows) for most in high]
    return ZSet.from_columns(columns, rng.integers(1, 3, rows))


def columns_of(zset: ZSet) -> columnar.Relation:
    return tuple(zset.columns), zset.weights


def answer(query: Query, relations: dict[str, ZSet]) -> dict:
    state = {name: columns_of(zset) for name, zset in relations.items()}
    columns, weights = columnar.evaluate(query, state)
    return dict(
        zip(zip(*(c.tolist() for c in columns), strict=True), weights.tolist(), strict=True)
    )


@pytest.mark.parametrize("head", ["a, b, c", "b, a"], ids=["rows", "sums below rows"])
def test_output_of_many_chunks_resumes_where_it_stopped(head):
    query = Query.parse(f"q({head}) :- r(a, b), s(b, c)")
    rng = np.random.default_rng(2)
    old = {"r": relation(rng, (40, 40), 30), "s": relation(rng, (40, 9_000), 90_000)}
    view = DeltaQuery(query)
    assert all(driver_levels(view))
    total = view.step(old).to_dict()
    delta = {"r": relation(rng, (40, 40), 50)}
    chunks = list(view.step_chunks(delta))
    if head == "a, b, c":
        assert len(chunks) > 1 and all(len(chunk) <= CHUNK_ROWS for chunk in chunks)
    for chunk in chunks:
        total = naive.add(total, chunk.to_dict())
    assert total == answer(query, {"r": old["r"] + delta["r"], "s": old["s"]})


@pytest.mark.parametrize("head", ["n()", "q(a, b)"])
def test_parts_of_a_delta_add_up(head):
    query = Query.parse(f"{head} :- e(a, b), e(b, c), e(c, d)")
    rng = np.random.default_rng(7)
    first, second = (relation(rng, (300, 300), size) for size in (9_000, 6_000))
    whole = DeltaQuery(query)
    expected = [whole.step({"e": one}) for one in (first, second)]
    with working_threads(2):
        cut = DeltaQuery(query)
        assert [cut.step({"e": one}) for one in (first, second)] == expected


QUERIES = (
    "n() :- u(a), r(a, b), s(b, c)",
    "n() :- u(a), u(b), r(a, b)",
    "n() :- t(a, b, c), r(a, b), s(b, c), u(c), b != a, c > a, a < 9",
    "q(a, c) :- t(a, b, c), r(b, a), u(c)",
    "q(b) :- r(a, b), s(b, c)",
)


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("formula", [Formula.collapsed, Formula.recursive_flipped])
def test_deltas_of_one_to_three_columns_are_joined_row_by_row(text, formula):
    query = Query.parse(text)
    rng = np.random.default_rng(5)
    arities = query.relations
    view = DeltaQuery(query, formula=formula)
    state = {name: ZSet.empty(arity) for name, arity in arities.items()}
    total: dict = {}
    for rows in (400, 30, 3, 1, 60):
        step = {name: relation(rng, (12,) * arity, rows) for name, arity in arities.items()}
        if rows == 60:
            step = {name: -delta for name, delta in step.items()}
        total = naive.add(total, view.step(step).to_dict())
        state = {name: state[name] + step[name] for name in arities}
        assert total == naive.evaluate(query, {n: z.to_dict() for n, z in state.items()})


def test_a_value_without_its_label_is_looked_up_in_no_other_atom() -> None:
    view = DeltaQuery("n() :- e(a, b), f(a, c), g(a, d), l(a)")
    rows = ZSet.from_rows([(value, value) for value in range(20)])
    view.step({"f": rows, "g": rows, "l": ZSet.from_rows([(100,)])})
    before = view.stats

    assert view.step({"e": rows}) == ZSet.scalar(0)

    assert view.stats.proposals - before.proposals == 20
    assert view.stats.intersections - before.intersections == 20
