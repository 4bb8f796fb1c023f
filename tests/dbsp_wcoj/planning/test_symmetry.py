"""Symmetries of queries, and the formula that computes equal terms once."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Query, WeightOverflowError, ZSet
from dbsp_wcoj.formulas import (
    DeltaTerm,
    Formula,
    SymmetricFormula,
    Version,
    count_joins,
    delta_terms,
)
from dbsp_wcoj.planning.planner import normalize_body
from dbsp_wcoj.planning.symmetry import find_symmetries
from tests.generators.strategies import LAW, streams, zsets
from tests.oracles import naive
from tests.support.working_threads import working_threads

CYCLE_OF_3 = "n() :- e(a, b), e(b, c), e(c, a)"
CYCLE_OF_4 = "n() :- e(a, b), e(b, c), e(c, d), e(d, a)"
BUTTERFLY = "n() :- e(a, b), e(c, b), e(c, d), e(a, d)"
# With the number of their symmetries.
QUERIES = {
    CYCLE_OF_3: 3,
    CYCLE_OF_4: 4,
    BUTTERFLY: 4,
    "n() :- e(a, b), e(b, a)": 2,
    "n() :- e(a, b), e(a, c)": 2,
    "n() :- e(a, b), e(a, b)": 2,
    "q(a) :- e(a, b), e(a, c)": 2,
    "q(a, c) :- e(a, b), e(c, b), e(c, d), e(a, d)": 2,
    "n() :- e(a, b), e(b, c), e(c, a), l(a), l(b), l(c)": 3,
    "n() :- e(a, b), e(b, c), e(c, a), l(a)": 1,
    "n() :- e(a, b), e(b, c), e(a, c)": 1,
    "n() :- e(a, b), f(b, a)": 1,
    "q(a) :- e(a, b), e(b, c), e(c, a)": 1,
    "n() :- e(a, b), e(c, b), e(c, d), e(a, d), a < c": 2,
    "n() :- e(a, b), e(c, b), e(c, d), e(a, d), a != c": 4,
    "n() :- e(a, b), e(a, c), b <= c + 1": 1,
    "n() :- e(a, b), e(a, c), b <= c, b >= c": 2,
    "n() :- e(a, 1), e(a, 1)": 2,
    "n() :- e(a, 1), e(a, 2)": 1,
    "n() :- e(a, a), e(b, b)": 2,
    "n() :- e(a, b), e(c, d), r(a, d), r(c, b)": 2,
    "n() :- e(a, b), e(b, c), e(c, d), e(d, f), e(f, a)": 1,  # not searched
}


def symmetries_of(text: str) -> tuple[tuple[int, ...], ...]:
    query = Query.parse(text)
    relations = [atom.relation for atom in query.body]
    return find_symmetries(relations, normalize_body(query), query.head)


@pytest.mark.parametrize("text", QUERIES)
def test_the_symmetries_of_a_query_are_a_group_of_the_known_size(text):
    found = symmetries_of(text)
    assert len(found) == len(set(found)) == QUERIES[text]
    assert found[0] == tuple(range(len(found[0])))
    assert {tuple(p[i] for i in q) for p in found for q in found} == set(found)


@settings(LAW, max_examples=60)
@given(
    atoms=st.lists(
        st.tuples(st.sampled_from("er"), st.sampled_from("abcd"), st.sampled_from("abcd")),
        min_size=1,
        max_size=4,
    ),
    head=st.sets(st.sampled_from("ab")),
)
def test_symmetries_equal_those_of_a_search_of_all_renamings(atoms, head):
    variables = sorted({name for _, *names in atoms for name in names})
    kept = sorted(head & set(variables))
    body = ", ".join(f"{relation}({x}, {y})" for relation, x, y in atoms)
    expected = set()
    for images in itertools.permutations(variables):
        renaming = dict(zip(variables, images, strict=True))
        if any(renaming[name] != name for name in kept):
            continue
        renamed = [(relation, renaming[x], renaming[y]) for relation, x, y in atoms]
        expected |= {
            order
            for order in itertools.permutations(range(len(atoms)))
            if all(atoms[image] == renamed[i] for i, image in enumerate(order))
        }
    assert set(symmetries_of(f"q({', '.join(kept)}) :- {body}")) == expected


@pytest.mark.parametrize("text", [CYCLE_OF_3, CYCLE_OF_4, BUTTERFLY, "n() :- e(a, b), e(b, a)"])
def test_each_product_of_the_delta_is_in_exactly_one_term(text):
    formula = SymmetricFormula(symmetries_of(text))
    n = len(formula.symmetries[0])
    counted: list[frozenset[int]] = []
    for term in delta_terms(formula, n):
        deltas = {f.atom for f in term.factors if f.version is Version.delta}
        orbit = {frozenset(images[i] for i in deltas) for images in formula.symmetries}
        assert len(orbit) == term.times
        counted += orbit
    assert len(counted) == len(set(counted)) == 2**n - 1


@given(old=st.integers(-9, 9), new=st.integers(-9, 9))
def test_the_terms_add_up_to_the_difference_of_the_products(old, new):
    values = {Version.old: old, Version.delta: new - old, Version.new: new}
    for text in (CYCLE_OF_3, CYCLE_OF_4, BUTTERFLY):
        formula = SymmetricFormula(symmetries_of(text))
        n = len(formula.symmetries[0])
        total = sum(
            term.times * math.prod(values[factor.version] for factor in term.factors)
            for term in delta_terms(formula, n)
        )
        assert total == new**n - old**n


def test_the_terms_are_those_of_collapsed_if_there_would_be_many():
    labelled = SymmetricFormula(symmetries_of("n() :- e(a, b), e(b, c), e(c, a), l(a), l(b), l(c)"))
    assert delta_terms(labelled, 6) == delta_terms(Formula.collapsed, 6)
    assert len(delta_terms(labelled, 6, changed=[0, 1, 2])) == 3
    assert [term.times for term in delta_terms(labelled, 6, changed=[3, 4, 5])] == [3, 3, 1]
    pairs = SymmetricFormula(symmetries_of("q(a, c) :- e(a, b), e(c, b), e(c, d), e(a, d)"))
    assert delta_terms(pairs, 4) == delta_terms(Formula.collapsed, 4)
    assert count_joins(pairs, 4) == 12
    assert delta_terms(labelled, 6, changed=[]) == ()


def test_a_term_is_read_as_it_is_written():
    for text in ("D3 += 3 d1 O2 O3", "D3 += 12 d1 N2 O3", "D2 += D1 O2"):
        assert str(DeltaTerm.parse(text)) == text
    assert DeltaTerm.parse("D3 += 3 d1 O2 N3").simplify_for({0}).times == 3


@pytest.mark.parametrize("text", [t for t in QUERIES if QUERIES[t] > 1])
@settings(LAW, max_examples=12)
@given(data=st.data())
def test_a_view_equals_recomputation_after_every_step(text, data):
    query = Query.parse(text)
    steps = data.draw(streams(query, [1, 2, 3], max_steps=5))
    view = DeltaQuery(query, formula="auto")
    state: dict[str, dict] = {}
    output: dict = {}
    for step in steps:
        state = {
            name: naive.add(state.get(name, {}), step.get(name, {})) for name in {*state, *step}
        }
        output = naive.add(output, view.step(zsets(step, query)).to_dict())
        assert output == naive.evaluate(query, state)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("text", [CYCLE_OF_3, CYCLE_OF_4, BUTTERFLY, "q(a) :- e(a, b), e(a, c)"])
def test_large_steps_and_single_rows_equal_collapsed(text, threads, monkeypatch):
    monkeypatch.setattr("dbsp_wcoj.delta_query.MIN_PARALLEL_ROWS", 64)
    monkeypatch.setattr("dbsp_wcoj.execution.term_division.MIN_DIVIDED_ROWS", 64)
    monkeypatch.setattr("dbsp_wcoj.execution.term_division.MIN_PART_ROWS", 16)
    monkeypatch.setattr("dbsp_wcoj.execution.bound_terms.MIN_PREPARED_ROWS", 64)
    rng = np.random.default_rng(threads)
    with working_threads(threads):
        view = DeltaQuery(text, formula="auto")
        plain = DeltaQuery(text)
        for rows in (2000, 1, 1, 40, 1500, 1, 3000):
            columns = [rng.integers(0, 60, rows) for _ in range(2)]
            delta = ZSet.from_columns(columns, rng.choice([-1, 1, 2], rows))
            assert view.step({"e": delta}) == plain.step({"e": delta})


def test_a_step_of_a_cycle_does_less_than_half_of_the_work_of_collapsed():
    rng = np.random.default_rng(0)
    edges = ZSet.from_columns([rng.integers(0, 200, 4000) for _ in range(2)])
    for text in (CYCLE_OF_4, BUTTERFLY):
        work = {}
        for formula in ("auto", "collapsed"):
            view = DeltaQuery(text, formula=formula)
            view.step({"e": edges})
            before = view.stats.proposals
            for k in range(20):
                view.step({"e": ZSet.from_rows([(k, k + 100)])})
            work[formula] = view.stats.proposals - before
        assert 2 * work["auto"] < work["collapsed"]


def test_explain_names_the_formula_and_its_terms():
    plan = DeltaQuery(CYCLE_OF_3, formula="auto").explain()
    assert "formula auto: symmetric, because the query has 3 symmetries" in plan
    assert "D3 += 3 d1 O2 O3" in plan


def test_plans_of_a_view_are_resumed():
    rng = np.random.default_rng(4)
    edges = ZSet.from_columns([rng.integers(0, 90, 3000) for _ in range(2)])
    view = DeltaQuery(BUTTERFLY, formula="auto")
    view.step({"e": edges})
    view.step({"e": ZSet.from_rows([(1, 2)])})
    plans = view.plans
    view.resume(plans)
    assert view.plans == plans
    delta = ZSet.from_rows([(3, 4), (1, 2)])
    plain = DeltaQuery(BUTTERFLY)
    plain.step({"e": edges + ZSet.from_rows([(1, 2)])})
    assert view.step({"e": delta}) == plain.step({"e": delta})


def test_a_total_beyond_int64_raises_an_error_and_changes_nothing():
    weight = 2**62
    view = DeltaQuery(CYCLE_OF_3, formula="auto")
    view.step({"e": ZSet.from_rows([(1, 2), (2, 3)])})
    with pytest.raises(WeightOverflowError):
        view.step({"e": ZSet.from_rows([(3, 1)], [weight])})
    assert view.step({"e": ZSet.from_rows([(3, 1)], [weight // 4])}).to_dict() == {
        (): 3 * (weight // 4)
    }
