"""Plans: variable orders, the number of arrangements, and that the printed plan is what runs."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, Formula, Query, ZSet
from dbsp_wcoj.formulas import PARTIAL, Version
from dbsp_wcoj.planning.planner import normalize_body, plan_term
from tests.generators.strategies import FORMULAS
from tests.oracles import naive

TRIANGLE = "q(a, b, c) :- e(a, b), e(b, c), e(a, c)"
SHAPES = {
    "triangle": TRIANGLE,
    "counted triangle": "n() :- e(a, b), e(b, c), e(a, c)",
    "directed triangle": "n() :- e(a, b), e(b, c), e(c, a)",
    "triangle of three": "q(a, b, c) :- r(a, b), s(b, c), t(a, c)",
    "4-cycle": "q(a, b, c, d) :- e(a, b), e(b, c), e(c, d), e(d, a)",
    "4-cycle of four": "n() :- r(a, b), s(b, c), t(c, d), u(d, a)",
    "star": "q(a, b, c, d) :- e(a, b), e(a, c), e(a, d)",
    "counted star": "n() :- r(a, b), s(a, c), t(a, d)",
    "path": "q(a, d) :- e(a, b), e(b, c), e(c, d)",
    "wide": "q(a, b, c) :- r(a, b, c), r(b, c, d)",
    "two wide": "n() :- r(a, b, c), s(c, b, a), t(a, c)",
}


def stored_orders(view: DeltaQuery) -> set[tuple[str, tuple[int, ...]]]:
    """Return the name and the column order of each arrangement."""
    keys = [re.fullmatch(r"(\w+)\[([\d,]+)\]", key).groups() for key in view.stats.rows_by_run]
    return {(name, tuple(map(int, columns.split(",")))) for name, columns in keys}


# --- the number of arrangements -------------------------------------------------------------------


def fewest_arrangements(query: Query) -> int:
    """Return the smallest number of arrangements that all terms need together.

    Try all variable orders of each term that begin with the variables of the delta and have no
    cross products: each later variable is in an atom with a variable that is bound before it.
    """
    atoms = [tuple(term.name for term in atom.terms) for atom in query.body]
    names = [name for atom in atoms for name in atom]
    needed = {name for name in names if names.count(name) > 1 or name in query.head}
    # The sets of arrangements that the terms so far can have.
    possible_sets = {frozenset()}
    for delta in range(len(atoms)):
        options = set()
        for order in itertools.permutations(sorted(needed)):
            start = needed & set(atoms[delta])
            if set(order[: len(start)]) != start or not is_connected(order, len(start), atoms):
                continue
            choices = []
            for index, atom in enumerate(atoms):
                if index == delta:
                    continue
                bound = sorted((v for v in atom if v in needed), key=order.index)
                unread = [column for column, v in enumerate(atom) if v not in needed]
                prefix = tuple(atom.index(v) for v in bound)
                relation = query.body[index].relation
                choices.append(
                    [(relation, prefix + suffix) for suffix in itertools.permutations(unread)]
                )
            options |= {frozenset(choice) for choice in itertools.product(*choices)}
        possible_sets = {known | option for known in possible_sets for option in options}
    return min(map(len, possible_sets))


def is_connected(order: tuple[str, ...], start: int, atoms: list[tuple[str, ...]]) -> bool:
    """Return whether each variable from ``start`` on is in an atom with an earlier variable."""
    return all(
        any(order[k] in atom and set(order[:k]) & set(atom) for atom in atoms)
        for k in range(max(start, 1), len(order))
    )


# Terms are planned one after the other: over "two wide" that takes 5 arrangements where 3 would do.
@pytest.mark.parametrize("shape", sorted(SHAPES.keys() - {"two wide"}))
def test_a_view_has_the_fewest_arrangements(shape):
    view = DeltaQuery(SHAPES[shape], formula="collapsed")
    assert len(stored_orders(view)) == fewest_arrangements(view.query)


@pytest.mark.parametrize("formula", ["collapsed", "flipped", "expanded"])
def test_a_triangle_over_one_relation_needs_exactly_both_orders_of_it(formula):
    view = DeltaQuery(TRIANGLE, formula=formula)
    assert stored_orders(view) == {("e", (0, 1)), ("e", (1, 0))}


def test_a_star_needs_one_order():
    assert stored_orders(DeltaQuery(SHAPES["star"])) == {("e", (0, 1))}


# --- variable orders ------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_variables_of_the_delta_come_first_and_the_others_are_connected(shape, formula):
    view = DeltaQuery(SHAPES[shape], formula=formula)
    assert view.terms
    for bound in view.terms:
        plan = bound.physical.plan
        columns = [factor.variables for factor in plan.factors]
        start = 0
        for factor, variables in zip(bound.term.factors, columns, strict=True):
            if factor.version is Version.delta:
                first = [name for name in variables if name in plan.order]
                start = len(first)
                assert set(plan.order[:start]) == set(first)
                break
        assert is_connected(plan.order, start, columns)
        for planned in plan.factors:
            read = [planned.variables[k] for k in planned.order[: planned.depth]]
            assert read == sorted(read, key=plan.order.index)
            assert set(read) == set(planned.variables) & set(plan.order)
            assert sorted(planned.order) == list(range(len(planned.variables)))


def test_unneeded_variables_are_not_bound():
    for bound in DeltaQuery("q(a) :- r(a, b, x), s(b, y), t(b, a, z)").terms:
        assert set(bound.physical.plan.order) == {"a", "b"}
        assert [factor.depth for factor in bound.physical.plan.factors] == [2, 1, 2]
    [bound] = DeltaQuery("n() :- r(x, y)").terms
    assert bound.physical.plan.order == ()
    [bound] = DeltaQuery("q(y) :- r(x, y), 3 < x").terms
    assert set(bound.physical.plan.order) == {"x", "y"}


def test_a_ring_is_followed_over_new_relations_first():
    ring = "n() :- r(a, b), s(b, c), t(c, d), u(d, e), v(e, a)"
    orders = {str(term.term): term.physical.plan.order for term in DeltaQuery(ring).terms}

    assert set(orders["D5 += O1 O2 d3 N4 N5"][:2]) == {"c", "d"}
    assert orders["D5 += O1 O2 d3 N4 N5"][2:] == ("e", "a", "b")
    assert orders["D5 += O1 O2 d3 O4 O5"][2:] == ("b", "a", "e")


def test_constants_are_bound_before_anything_else():
    view = DeltaQuery("q(a, c) :- r(a, 7, b), s(b, c, 8), t(c, a)")
    for bound in view.terms:
        plan = bound.physical.plan
        assert set(plan.order[:2]) == {"#0.1", "#1.2"}
        assert plan.split_level == 2
        assert plan.factors[0].order[0] == 1
        assert plan.factors[1].order[0] == 2
    plan = plan_term(
        [("a", "b"), ("b", "c")],
        normalize_body(Query.parse("q(a) :- e(a, b), b == 4")).comparisons,
        ["a"],
    )
    assert plan.order == ("b", "a")


def test_a_variable_equal_to_a_bound_one_is_bound_next():
    for bound in DeltaQuery("q(a, d) :- r(a, b), s(c, d), a == c").terms:
        order = bound.physical.plan.order
        assert abs(order.index("a") - order.index("c")) == 1


def test_a_requested_order_is_used():
    factors = [("a", "b"), ("b", "c"), ("a", "c")]
    for order in itertools.permutations("abc"):
        plan = plan_term(factors, [], ["a"], order=order)
        assert plan.order == order
        assert plan.emitted_levels == order.index("a") + 1


def test_an_order_that_exists_is_preferred():
    factors = [("a", "b"), ("a", "b", "x", "y")]
    for order in itertools.permutations(range(4)):
        plan = plan_term(
            factors, [], [], delta_factors=[0], is_arranged=lambda i, o, order=order: o == order
        )
        chosen = plan.factors[1].order
        assert (chosen == order) == (set(order[:2]) == {0, 1})
        assert set(chosen[:2]) == {0, 1}


def test_the_columns_of_the_delta_that_are_joined_are_bound_first():
    plan = plan_term([("a", "w", "n"), ("w", "m")], [], ["a", "n"], delta_factors=[0])
    assert plan.order == ("w", "a", "n") and plan.factors[0].order == (1, 0, 2)
    # If the order of the columns is as good, it is kept.
    plan = plan_term([("a", "w", "n"), ("w", "a")], [], ["n"], delta_factors=[0])
    assert plan.order == ("a", "w", "n")


# --- bodies and comparisons -----------------------------------------------------------------------

BODIES = {
    "q(x) :- e(x, x)": ([("x", "x#0.1")], ["x#0.1 == x"]),
    "q(x) :- e(x, 7), e(-3, x)": ([("x", "#0.1"), ("#1.0", "x")], ["#0.1 == 7", "#1.0 == -3"]),
    "q(x) :- r(x, 1, x, 1)": (
        [("x", "#0.1", "x#0.2", "#0.3")],
        ["#0.1 == 1", "x#0.2 == x", "#0.3 == 1"],
    ),
    "q(x) :- e(x, y), 3 < x, 4 >= y, x != y, 5 == y": (
        [("x", "y")],
        ["x > 3", "y <= 4", "x != y", "y == 5"],
    ),
    "q(x) :- e(x, y), e(y, x)": ([("x", "y"), ("y", "x")], []),
    "n() :- p(), e(x, y)": ([("#0",), ("x", "y")], []),
}


@pytest.mark.parametrize("text", BODIES)
def test_constants_and_repeated_variables_become_comparisons(text):
    body = normalize_body(Query.parse(text))
    columns, comparisons = BODIES[text]
    assert list(body.columns) == columns
    assert [str(comparison) for comparison in body.comparisons] == comparisons
    assert not body.is_never_true


def test_a_comparison_of_constants_is_decided_at_once():
    for left, op, right in itertools.product((1, 2), naive.COMPARE, (1, 2)):
        body = normalize_body(Query.parse(f"q(x) :- e(x, y), {left} {op} {right}"))
        assert body.is_never_true == (not naive.COMPARE[op](left, right))
        assert body.comparisons == ()


@pytest.mark.parametrize("formula", FORMULAS)
def test_each_term_checks_the_comparisons_that_no_partial_delta_has_checked(formula):
    text = "q(a, d) :- r(a, b), s(b, c), t(c, d), a < b, b != d, c >= 2"
    view = DeltaQuery(text, formula=formula)
    is_recursive = any(PARTIAL in bound.term.factors for bound in view.terms)
    for bound in view.terms:
        plan = bound.physical.plan
        checked = {str(comparison) for comparison in plan.comparisons}
        for comparison in plan.comparisons:
            assert set(comparison.variables) <= set(plan.order)
        if PARTIAL not in bound.term.factors and bound.target == 3:
            assert checked == {"a < b", "b != d", "c >= 2"}
        if PARTIAL in bound.term.factors:
            assert "a < b" not in checked
    assert is_recursive == str(formula).startswith("recursive")


# --- the printed plan is what runs ----------------------------------------------------------------


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("shape", ["triangle", "4-cycle of four", "two wide"])
def test_explain_names_the_order_of_each_term_that_runs(shape, formula):
    view = DeltaQuery(SHAPES[shape], formula=formula)
    rng = np.random.default_rng(1)
    for _ in range(2):
        view.step(
            {
                name: ZSet.from_columns(list(rng.integers(0, 6, (arity, 30))))
                for name, arity in view.query.relations.items()
            }
        )
    text = view.explain()
    plans = [bound.physical.plan for bound in view.terms]
    bind_lines = re.findall(r"^ +bind  (.*)$", text, re.MULTILINE)
    assert [tuple(line.replace("|", " ").split()) for line in bind_lines] == [
        plan.order for plan in plans
    ]
    emitted = [len(line.partition("|")[0].split()) for line in bind_lines]
    assert emitted == [plan.emitted_levels for plan in plans]
    read_lines = re.findall(r"^ +read  (.*)$", text, re.MULTILINE)
    for line, plan in zip(read_lines, plans, strict=True):
        factors = re.findall(r"\[([\d,]*)\]:(\d+)", line)
        orders = [tuple(map(int, columns.split(","))) for columns, _ in factors]
        assert orders == [factor.order for factor in plan.factors]
        assert [int(depth) for _, depth in factors] == [factor.depth for factor in plan.factors]
    counts = [int(n.replace(",", "")) for n in re.findall(r"ran ([\d,]+) times", text)]
    assert counts == [bound.physical.execution_count for bound in view.terms]
    assert sum(counts) > 0
    shown_arrangements = re.findall(r"^  (\w+)\[([\d,]+)\]  (?:\d|no runs)", text, re.MULTILINE)
    assert {
        (name, tuple(map(int, columns.split(",")))) for name, columns in shown_arrangements
    } == stored_orders(view)


def count_executions(view: DeltaQuery) -> int:
    return sum(bound.physical.execution_count for bound in view.terms)


@pytest.mark.parametrize("formula", [Formula.expanded, Formula.collapsed, Formula.flipped])
def test_terms_with_an_empty_factor_do_not_run(formula):
    view = DeltaQuery("n() :- r(a, b), s(b, c), t(c, d)", formula=formula)
    row = {"r": ZSet.from_rows([(1, 2)]), "s": ZSet.from_rows([(2, 3)])}
    assert view.step(row).to_dict() == {}
    assert (count_executions(view), view.stats.joins) == (0, 0)
    assert view.step({"t": ZSet.from_rows([(3, 4)])}).to_dict() == {(): 1}
    assert (count_executions(view), view.stats.joins) == (1, 2)
    view.step({})
    view.step({"s": ZSet.empty(2)})
    assert (count_executions(view), view.stats.joins) == (1, 2)
    view.step({"r": ZSet.from_rows([(8, 9)]), "s": ZSet.empty(2)})
    assert (count_executions(view), view.stats.joins) == (2, 4)


@pytest.mark.parametrize("formula", [Formula.expanded, Formula.collapsed, Formula.flipped])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_backfill_is_one_generic_join(shape, formula):
    view = DeltaQuery(SHAPES[shape], formula=formula)
    rng = np.random.default_rng(2)
    step = {
        name: ZSet.from_columns(list(rng.integers(0, 5, (arity, 40))))
        for name, arity in view.query.relations.items()
    }
    delta = view.step(step).to_dict()
    assert view.stats.joins == len(view.query.body) - 1
    assert count_executions(view) == 1
    assert delta == naive.evaluate(view.query, {n: z.to_dict() for n, z in step.items()})
