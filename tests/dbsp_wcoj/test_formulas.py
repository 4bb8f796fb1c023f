"""Delta formulas: their sum is the delta of the join, with the known numbers of joins."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, ZSet, generic_join
from dbsp_wcoj.errors import FormulaError
from dbsp_wcoj.formulas import (
    PARTIAL,
    CustomFormula,
    DeltaTerm,
    Factor,
    Formula,
    Version,
    count_joins,
    delta_terms,
)
from tests.generators.strategies import LAW

FORMULAS = st.sampled_from(list(Formula))

# The binary joins of each formula for n = 2 … 8.
JOIN_COUNTS = {
    "expanded": [3, 14, 45, 124, 315, 762, 1785],
    "collapsed": [2, 6, 12, 20, 30, 42, 56],
    "flipped": [2, 6, 12, 20, 30, 42, 56],
    "recursive": [3, 7, 12, 18, 25, 33, 42],
    "recursive_collapsed": [2, 5, 9, 14, 20, 27, 35],
    "recursive_flipped": [2, 5, 9, 14, 20, 27, 35],
}


def evaluate_terms(terms, n, old, new):
    """Evaluate terms over numbers instead of relations: terms are products in both cases."""
    versions = {
        Version.old: old,
        Version.new: new,
        Version.delta: [b - a for a, b in zip(old, new, strict=True)],
    }
    partial = [0] * (n + 1)
    for term in terms:
        partial[term.target] += math.prod(
            partial[term.target - 1] if factor == PARTIAL else versions[factor.version][factor.atom]
            for factor in term.factors
        )
    return partial[n]


@given(FORMULAS, st.data())
def test_every_formula_equals_the_new_product_minus_the_old_product(formula, data):
    n = data.draw(st.integers(1, 7))
    numbers = st.lists(st.integers(-9, 9), min_size=n, max_size=n)
    old, new = data.draw(numbers), data.draw(numbers)

    assert evaluate_terms(delta_terms(formula, n), n, old, new) == math.prod(new) - math.prod(old)


@given(FORMULAS, st.data())
def test_terms_left_out_for_unchanged_atoms_are_zero(formula, data):
    n = data.draw(st.integers(1, 7))
    numbers = st.lists(st.integers(-9, 9), min_size=n, max_size=n)
    old, drawn = data.draw(numbers), data.draw(numbers)
    changed = data.draw(st.sets(st.integers(0, n - 1)))
    new = [drawn[i] if i in changed else old[i] for i in range(n)]

    terms = delta_terms(formula, n, changed=changed)

    assert evaluate_terms(terms, n, old, new) == math.prod(new) - math.prod(old)
    assert all(
        factor.atom in changed
        for term in terms
        for factor in term.factors
        if factor.version is Version.delta and factor != PARTIAL
    )
    assert set(terms) <= set(delta_terms(formula, n))


@given(FORMULAS, st.integers(1, 7), st.data())
def test_no_term_reads_a_partial_delta_that_no_term_has_written(formula, n, data):
    changed = data.draw(st.sets(st.integers(0, n - 1)))

    written = set()
    for term in delta_terms(formula, n, changed=changed):
        assert PARTIAL not in term.factors or term.target - 1 in written
        assert not written or term.target >= max(written)
        written.add(term.target)


@pytest.mark.parametrize("name", JOIN_COUNTS)
def test_the_numbers_of_joins_are_those_of_the_table(name):
    assert [count_joins(name, n) for n in range(2, 9)] == JOIN_COUNTS[name]


@pytest.mark.parametrize("n", range(1, 13))
def test_the_numbers_of_joins_follow_their_closed_forms(n):
    assert count_joins(Formula.expanded, n) == (n - 1) * (2**n - 1)
    assert count_joins(Formula.collapsed, n) == count_joins(Formula.flipped, n) == n * (n - 1)
    assert count_joins(Formula.recursive, n) == (n - 1) * (n + 4) // 2
    assert count_joins(Formula.recursive_collapsed, n) == (n - 1) * (n + 2) // 2
    assert count_joins(Formula.recursive_flipped, n) == (n - 1) * (n + 2) // 2


@pytest.mark.parametrize("n", range(2, 9))
def test_the_numbers_of_products_follow_their_closed_forms(n):
    products = {
        formula: sum(term.joins > 0 for term in delta_terms(formula, n)) for formula in Formula
    }

    assert products == {
        Formula.expanded: 2**n - 1,
        Formula.collapsed: n,
        Formula.flipped: n,
        Formula.recursive: 3 * (n - 1),
        Formula.recursive_collapsed: 2 * (n - 1),
        Formula.recursive_flipped: 2 * (n - 1),
    }


def test_the_recursion_has_as_many_joins_as_collapsed_for_four_atoms_and_fewer_from_five():
    assert count_joins(Formula.recursive, 4) == count_joins(Formula.collapsed, 4)
    assert all(
        count_joins(Formula.recursive, n) < count_joins(Formula.collapsed, n) for n in range(5, 30)
    )


@pytest.mark.parametrize("formula", [Formula.collapsed, Formula.flipped])
def test_collapsed_and_flipped_have_n_minus_1_joins_per_changed_atom(formula):
    assert count_joins(formula, 6, changed={1, 4, 5}) == 3 * 5


@pytest.mark.parametrize("formula", [Formula.flipped, Formula.recursive_flipped])
@pytest.mark.parametrize("n", range(1, 8))
def test_the_flipped_formulas_need_one_version_of_each_trace(formula, n):
    """They read an atom as old before its delta, and as new afterwards."""
    for atom in range(n):
        uses = [
            factor.version
            for term in delta_terms(formula, n)
            for factor in term.factors
            if factor.atom == atom
        ]
        assert uses == sorted(uses, key=[Version.old, Version.delta, Version.new].index)


@pytest.mark.parametrize("formula", Formula)
def test_the_delta_of_a_single_atom_is_its_own_delta(formula):
    assert delta_terms(formula, 1) == (DeltaTerm(1, (Factor(0, Version.delta),)),)


@pytest.mark.parametrize("formula", Formula)
def test_without_changes_there_are_no_terms(formula):
    assert delta_terms(formula, 4, changed=()) == ()


def test_terms_without_partial_deltas_name_every_atom_once_in_body_order():
    for formula in (Formula.expanded, Formula.collapsed, Formula.flipped):
        for term in delta_terms(formula, 5):
            assert [factor.atom for factor in term.factors] == list(range(5))
            assert term.target == 5


def test_a_formula_is_found_by_its_name():
    assert Formula.of("recursive_flipped") is Formula.recursive_flipped
    assert Formula.of(Formula.expanded) is Formula.expanded
    assert list(Formula) == list(JOIN_COUNTS)


@pytest.mark.parametrize(
    ("arguments", "changed", "message"),
    [
        (("fastest", 3), None, "unknown formula 'fastest'; use one of expanded, collapsed"),
        (("collapsed", 0), None, "a join of 0 atoms"),
        (("collapsed", 2), {2}, r"changed atoms \[2\] are not all in 0 … 1"),
        (("recursive", 2), {-1, 0}, r"changed atoms \[-1, 0\]"),
        (("expanded", 17), None, "2\\^17-1 terms; the limit is 16 atoms, use collapsed"),
    ],
)
def test_wrong_arguments_are_refused_with_the_limit(arguments, changed, message):
    with pytest.raises(FormulaError, match=message):
        delta_terms(*arguments, changed=changed)


# Formulas of the user


@st.composite
def term_lists(draw, n=None):
    """Draw the terms of a formula with a few changes; they are rarely exact."""
    n = draw(st.integers(1, 4)) if n is None else n
    terms = list(delta_terms(draw(FORMULAS), n))
    for _ in range(draw(st.integers(0, 2))):
        if not terms:
            break
        index = draw(st.integers(0, len(terms) - 1))
        change = draw(st.sampled_from(["drop", "repeat", "alter"]))
        if change == "drop":
            del terms[index]
        elif change == "repeat":
            terms.append(terms[index])
        else:
            factors = list(terms[index].factors)
            position = draw(st.integers(0, len(factors) - 1))
            if factors[position] != PARTIAL:
                version = draw(st.sampled_from(list(Version)))
                factors[position] = Factor(factors[position].atom, version)
            terms[index] = DeltaTerm(terms[index].target, tuple(factors))
    return terms


def is_exact(terms, n):
    """Return whether terms equal the delta for all old relations and deltas of 0 or 1.

    These values determine a multilinear polynomial.
    """
    terms = sorted(terms, key=lambda term: term.target)
    return all(
        evaluate_terms(terms, n, old, new) == math.prod(new) - math.prod(old)
        for old in itertools.product((0, 1), repeat=n)
        for change in itertools.product((0, 1), repeat=n)
        for new in [[o + d for o, d in zip(old, change, strict=True)]]
    )


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("formula", Formula)
def test_each_built_in_formula_is_accepted_as_terms_and_as_text(formula, n):
    custom = CustomFormula(delta_terms(formula, n))
    assert custom.atoms == n
    assert custom.terms == delta_terms(formula, n)
    assert CustomFormula.parse(str(custom)) == custom


@settings(LAW)
@given(FORMULAS, st.integers(1, 5), st.data())
def test_a_dropped_repeated_or_altered_term_is_rejected(formula, n, data):
    terms = list(delta_terms(formula, n))
    index = data.draw(st.integers(0, len(terms) - 1))
    term, before, after = terms[index], terms[:index], terms[index + 1 :]
    wrong_lists = [[*terms, term], [*before, *after]]
    position = data.draw(st.integers(0, len(term.factors) - 1))
    factor = term.factors[position]
    if factor != PARTIAL:
        other_versions = [version for version in Version if version is not factor.version]
        factors = list(term.factors)
        factors[position] = Factor(factor.atom, data.draw(st.sampled_from(other_versions)))
        wrong_lists.append([*before, DeltaTerm(term.target, tuple(factors)), *after])
    for wrong_terms in wrong_lists:
        with pytest.raises(FormulaError):
            CustomFormula(wrong_terms)


@settings(LAW)
@given(st.data())
def test_terms_are_accepted_if_and_only_if_they_are_the_delta_of_every_join(data):
    terms = data.draw(term_lists())
    n = max((term.target for term in terms), default=0)
    accepted = True
    try:
        CustomFormula(data.draw(st.permutations(terms)))
    except FormulaError:
        accepted = False
    assert accepted == (n > 0 and is_exact(terms, n))


ROWS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(-2, 2), max_size=5
)


@settings(LAW)
@given(st.data())
def test_each_accepted_list_of_terms_gives_the_right_deltas(data):
    n = data.draw(st.integers(1, 3))
    names = [data.draw(st.sampled_from("ef")) for _ in range(n)]
    head = data.draw(st.sampled_from(["", f"x0, x{n}"]))
    body = ", ".join(f"{name}(x{i}, x{i + 1})" for i, name in enumerate(names))
    text = f"q({head}) :- {body}"
    try:
        formula = CustomFormula(data.draw(term_lists(n)))
    except FormulaError:
        formula = CustomFormula(delta_terms(data.draw(FORMULAS), n))
    if formula.atoms != n:
        return
    view = DeltaQuery(text, formula=formula)
    relations = {name: ZSet.empty(2) for name in names}
    total = ZSet.empty(len(view.query.head))
    for _ in range(3):
        changed = data.draw(st.sets(st.sampled_from(sorted(set(names)))))
        deltas = {}
        for name in changed:
            rows = data.draw(ROWS)
            deltas[name] = ZSet.from_rows(rows, rows.values(), arity=2)
        total += view.step(deltas)
        relations |= {name: relations[name] + change for name, change in deltas.items()}
        assert total == generic_join(text, relations, engine="reference")


def test_a_partial_delta_of_a_custom_formula_need_not_be_a_delta():
    text = "q(a, d) :- e(a, b), f(b, c), g(c, d)"
    terms = ["D2 += O1 O2", "D3 += D2 d3", "D3 += d1 N2 N3", "D3 += O1 d2 N3"]
    custom, plain = DeltaQuery(text, formula=terms), DeltaQuery(text)
    edges = ZSet.from_rows([(1, 1), (1, 2), (2, 1)])
    for deltas in ({"e": edges, "f": edges}, {"g": edges}, {"e": -edges, "g": edges}, {"f": edges}):
        assert custom.step(deltas) == plain.step(deltas)


def test_terms_are_left_out_where_nothing_changes_or_nothing_reads_them():
    formula = CustomFormula.parse("D2 += O1 O2; D3 += D2 d3; D3 += d1 N2 N3; D3 += O1 d2 N3")
    assert [str(term) for term in delta_terms(formula, 3, changed=[0])] == ["D3 += d1 N2 N3"]
    assert [str(term) for term in delta_terms(formula, 3, changed=[2])] == [
        "D2 += O1 O2",
        "D3 += D2 d3",
    ]
    assert delta_terms(formula, 3, changed=[]) == ()
    unread = CustomFormula.parse("D1 += d1; D2 += d1 N2; D2 += O1 d2")
    assert [str(term) for term in delta_terms(unread, 2)] == ["D2 += d1 N2", "D2 += O1 d2"]
    assert count_joins(unread, 2) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("D2 += d1 N2", "contain the product O1 d2 0 times, .* once: add it"),
        ("D2 += d1 N2; D2 += N1 d2", "the product d1 d2 2 times, .* once: remove it"),
        ("D2 += N1 N2", "the product O1 O2 once, .* does not contain it: remove it"),
        ("D2 += d1 N3; D2 += O1 d2", "'D2 \\+= d1 N3' is not a product for D2"),
        ("D2 += d1", "'D2 \\+= d1' is not a product for D2: .* each of the atoms 1 … 2"),
        ("D1 += d1; D3 += D1 N3", "reads D1; a term of D3 can only read D2"),
        ("D2 = d1 N2", "'D2 = d1 N2' is not a term"),
        ("D0 += d1", "is not a term"),
        ("", "at least one term"),
        ("D17 += " + " ".join(f"d{i}" for i in range(1, 18)), "the limit is 16 atoms"),
    ],
)
def test_a_list_that_is_not_a_formula_is_refused_with_the_product(text, message):
    with pytest.raises(FormulaError, match=message):
        CustomFormula.parse(text)


def test_a_formula_for_another_number_of_atoms_is_refused():
    with pytest.raises(FormulaError, match="is for joins of 2 atoms, and the join has 3"):
        DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)", formula="D2 += d1 N2; D2 += O1 d2")


@pytest.mark.parametrize("times", [0, -1])
def test_a_term_that_is_not_added_is_an_error(times):
    terms = ["D1 += d1", DeltaTerm(1, (Factor(0, Version.delta),), times)]
    with pytest.raises(FormulaError, match=f"times={times}; give 1 or more"):
        CustomFormula(terms)
