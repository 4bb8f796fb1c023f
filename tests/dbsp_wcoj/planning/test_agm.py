"""The AGM bound, against closed forms, joins, and the linear program that scipy solves."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dbsp_wcoj.errors import ArityError
from dbsp_wcoj.planning.agm import agm_bound
from dbsp_wcoj.query import Query
from tests.oracles import naive

TRIANGLE = Query.parse("q() :- e(a, b), e(b, c), e(a, c)")


@pytest.mark.parametrize(
    ("text", "sizes", "bound"),
    [
        ("q() :- e(a, b), e(b, c), e(a, c)", [100, 100, 100], 1000),
        ("q() :- e(a, b), e(b, c), e(a, c)", [100, 100, 1], 100),
        ("q() :- e(a, b), e(b, c), e(c, d), e(d, a)", [10] * 4, 100),
        ("q() :- e(a, b), e(b, c), e(c, d), e(d, f), e(f, a)", [4] * 5, 32),
        ("q() :- e(a, b), e(b, c)", [7, 9], 63),
        ("q() :- r(a, b, c), s(a), t(b), u(c)", [1000, 3, 4, 5], 60),
        ("q() :- s(a), t(b)", [6, 7], 42),
        ("q() :- e(a, a)", [6], 6),
        ("q() :- e(1, a), f(2)", [6, 50], 6),
        ("q() :- e(1, 2), f()", [6, 1], 1),
        ("q() :- e(1, 2), f()", [6, 0], 0),
        ("q() :- e(a, b), e(b, c), e(a, c)", [100, 100, 0], 0),
        ("q() :- e(a, b), e(b, c), e(a, c)", [1, 1, 1], 1),
        ("q() :- e(a), f(b)", [10**200, 10**200], math.inf),
    ],
)
def test_the_bound_is_that_of_the_best_fractional_edge_cover(text, sizes, bound):
    assert agm_bound(Query.parse(text), sizes).bound == pytest.approx(bound)


@given(st.lists(st.integers(1, 10**9), min_size=3, max_size=3))
@settings(max_examples=30)
def test_a_triangle_is_bounded_by_its_closed_form(sizes):
    r, s, t = sizes
    expected = min(math.sqrt(r * s * t), r * s, s * t, r * t)

    assert agm_bound(TRIANGLE, sizes).bound == pytest.approx(expected)


@given(st.data())
@settings(max_examples=40)
def test_the_cover_covers_every_variable_and_no_join_is_larger_than_the_bound(data):
    variables = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3)
    edges = data.draw(st.lists(variables, min_size=1, max_size=4))
    body = ", ".join(f"r{i}({', '.join(edge)})" for i, edge in enumerate(edges))
    names = sorted({name for edge in edges for name in edge})
    query = Query.parse(f"q({', '.join(names)}) :- {body}")
    relations = [
        data.draw(st.sets(st.tuples(*[st.integers(0, 2)] * len(edge)), max_size=9))
        for edge in edges
    ]

    agm = agm_bound(query, [len(rows) for rows in relations])

    for name in names:
        atoms = zip(agm.cover, query.body, strict=True)
        assert sum(x for x, atom in atoms if name in atom.variables) >= 1 - 1e-9
    answer = naive.evaluate(query, [dict.fromkeys(rows, 1) for rows in relations])
    assert len(answer) <= agm.bound + 1e-6


def test_a_list_of_sizes_that_does_not_fit_the_body_is_refused():
    with pytest.raises(ArityError, match="2 sizes for the 3 atoms"):
        agm_bound(TRIANGLE, [1, 2])


@given(st.data())
@settings(max_examples=100)
def test_the_bound_is_the_optimum_that_scipy_finds(data):
    variables = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=4, unique=True)
    edges = data.draw(st.lists(variables, min_size=1, max_size=8))
    sizes = data.draw(st.lists(st.integers(1, 10**6), min_size=len(edges), max_size=len(edges)))
    query = Query.parse("q() :- " + ", ".join(f"r{i}({', '.join(e)})" for i, e in enumerate(edges)))
    expected = linprog(
        c=[math.log(size) for size in sizes],
        A_ub=[[-float(v in edge) for edge in edges] for v in sorted({v for e in edges for v in e})],
        b_ub=[-1.0] * len({v for e in edges for v in e}),
        bounds=(0.0, 1.0),
    )

    assert math.log(agm_bound(query, sizes).bound) == pytest.approx(expected.fun, abs=1e-6)
