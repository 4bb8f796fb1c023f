"""The six delta formulas: what they equal and what they cost."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj.errors import FormulaError
from dbsp_wcoj.formulas import PARTIAL, Factor, Formula, Term, View, joins, terms

FORMULAS = st.sampled_from(list(Formula))

# DESIGN, section 2: binary joins for n = 2 … 8.
TABLE = {
    "expanded": [3, 14, 45, 124, 315, 762, 1785],
    "collapsed": [2, 6, 12, 20, 30, 42, 56],
    "flipped": [2, 6, 12, 20, 30, 42, 56],
    "recursive": [3, 7, 12, 18, 25, 33, 42],
    "recursive_collapsed": [2, 5, 9, 14, 20, 27, 35],
    "recursive_flipped": [2, 5, 9, 14, 20, 27, 35],
}


def delta(run, n, old, new):
    """Run terms over numbers: by multilinearity a number may stand for a relation."""
    views = {
        View.old: old,
        View.new: new,
        View.delta: [b - a for a, b in zip(old, new, strict=True)],
    }
    partial = [0] * (n + 1)
    for term in run:
        partial[term.target] += math.prod(
            partial[term.target - 1] if factor == PARTIAL else views[factor.view][factor.atom]
            for factor in term.factors
        )
    return partial[n]


@given(FORMULAS, st.data())
def test_every_formula_equals_the_new_product_less_the_old_product(formula, data):
    n = data.draw(st.integers(1, 7))
    numbers = st.lists(st.integers(-9, 9), min_size=n, max_size=n)
    old, new = data.draw(numbers), data.draw(numbers)

    assert delta(terms(formula, n), n, old, new) == math.prod(new) - math.prod(old)


@given(FORMULAS, st.data())
def test_terms_left_out_for_unchanged_atoms_are_zero(formula, data):
    n = data.draw(st.integers(1, 7))
    numbers = st.lists(st.integers(-9, 9), min_size=n, max_size=n)
    old, drawn = data.draw(numbers), data.draw(numbers)
    changed = data.draw(st.sets(st.integers(0, n - 1)))
    new = [drawn[i] if i in changed else old[i] for i in range(n)]

    run = terms(formula, n, changed=changed)

    assert delta(run, n, old, new) == math.prod(new) - math.prod(old)
    assert all(
        f.atom in changed for t in run for f in t.factors if f.view is View.delta and f != PARTIAL
    )
    assert set(run) <= set(terms(formula, n))


@given(FORMULAS, st.integers(1, 7), st.data())
def test_no_term_reads_a_partial_delta_that_no_term_has_written(formula, n, data):
    changed = data.draw(st.sets(st.integers(0, n - 1)))

    written = set()
    for term in terms(formula, n, changed=changed):
        assert PARTIAL not in term.factors or term.target - 1 in written
        assert not written or term.target >= max(written)
        written.add(term.target)


@pytest.mark.parametrize("name", TABLE)
def test_the_joins_are_those_of_the_design(name):
    assert [joins(name, n) for n in range(2, 9)] == TABLE[name]


@pytest.mark.parametrize("n", range(1, 13))
def test_the_joins_follow_their_closed_forms(n):
    assert joins(Formula.expanded, n) == (n - 1) * (2**n - 1)
    assert joins(Formula.collapsed, n) == joins(Formula.flipped, n) == n * (n - 1)
    assert joins(Formula.recursive, n) == (n - 1) * (n + 4) // 2
    assert joins(Formula.recursive_collapsed, n) == (n - 1) * (n + 2) // 2
    assert joins(Formula.recursive_flipped, n) == (n - 1) * (n + 2) // 2


@pytest.mark.parametrize("n", range(2, 9))
def test_the_products_are_as_many_as_the_design_says(n):
    products = {f: sum(term.joins > 0 for term in terms(f, n)) for f in Formula}

    assert products == {
        Formula.expanded: 2**n - 1,
        Formula.collapsed: n,
        Formula.flipped: n,
        Formula.recursive: 3 * (n - 1),
        Formula.recursive_collapsed: 2 * (n - 1),
        Formula.recursive_flipped: 2 * (n - 1),
    }


def test_recursion_ties_with_the_one_shot_formulas_at_four_atoms_and_wins_from_five():
    assert joins(Formula.recursive, 4) == joins(Formula.collapsed, 4)
    assert all(joins(Formula.recursive, n) < joins(Formula.collapsed, n) for n in range(5, 30))


@pytest.mark.parametrize("formula", [Formula.collapsed, Formula.flipped])
def test_the_one_shot_formulas_cost_n_less_one_joins_per_changed_atom(formula):
    assert joins(formula, 6, changed={1, 4, 5}) == 3 * 5


@pytest.mark.parametrize("formula", [Formula.flipped, Formula.recursive_flipped])
@pytest.mark.parametrize("n", range(1, 8))
def test_the_flipped_formulas_need_one_version_of_each_trace(formula, n):
    """Old until its delta is used, new from then on: the delta can be merged in between."""
    for atom in range(n):
        uses = [f.view for t in terms(formula, n) for f in t.factors if f.atom == atom]
        assert uses == sorted(uses, key=[View.old, View.delta, View.new].index)


@pytest.mark.parametrize("formula", Formula)
def test_the_delta_of_a_single_atom_is_its_own_delta(formula):
    assert terms(formula, 1) == (Term(1, (Factor(0, View.delta),)),)


@pytest.mark.parametrize("formula", Formula)
def test_without_changes_there_is_nothing_to_do(formula):
    assert terms(formula, 4, changed=()) == ()


def test_one_shot_terms_name_every_atom_once_in_body_order():
    for formula in (Formula.expanded, Formula.collapsed, Formula.flipped):
        for term in terms(formula, 5):
            assert [factor.atom for factor in term.factors] == list(range(5))
            assert term.target == 5


def test_a_formula_is_found_by_its_name():
    assert Formula.of("recursive_flipped") is Formula.recursive_flipped
    assert Formula.of(Formula.expanded) is Formula.expanded
    assert list(Formula) == list(TABLE)


@pytest.mark.parametrize(
    ("arguments", "changed", "message"),
    [
        (("fastest", 3), None, "unknown formula 'fastest'; use one of expanded, collapsed"),
        (("collapsed", 0), None, "a join of 0 atoms"),
        (("collapsed", 2), {2}, r"changed atoms \[2\] are not all in 0 … 1"),
        (("recursive", 2), {-1, 0}, r"changed atoms \[-1, 0\]"),
        (("expanded", 17), None, "2\\^17-1 terms; the bound is 16 atoms, use collapsed"),
    ],
)
def test_what_cannot_be_expanded_is_refused_with_a_way_out(arguments, changed, message):
    with pytest.raises(FormulaError, match=message):
        terms(*arguments, changed=changed)
