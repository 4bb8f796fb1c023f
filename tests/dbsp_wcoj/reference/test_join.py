"""The readable generic join against the naive oracle, and the delta formulas over it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj.errors import (
    ArityError,
    ColumnTypeError,
    UnknownRelationError,
    UnsafeVariableError,
    VariableOrderError,
    WeightError,
)
from dbsp_wcoj.formulas import Formula, Version, delta_terms
from dbsp_wcoj.query import Query
from dbsp_wcoj.reference.extenders import RelationExtender
from dbsp_wcoj.reference.join import reference_join, solve
from tests.oracles import naive

TRIANGLE = Query.parse("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)")
QUERIES = [
    TRIANGLE,
    Query.parse("n() :- e(a, b), e(b, c), e(a, c)"),
    Query.parse("q(a, d) :- e(a, b), e(b, c), e(c, d), a < d"),
    Query.parse("q(c, c, a) :- e(a, b), f(b, 1), e(a, c), b != c"),
    Query.parse("q(x) :- e(x, x), g(y), x >= y, 1 <= y"),
    Query.parse("q(a) :- e(a, _), f(_, a)"),
    Query.parse("q(b) :- e(0, b), e(1, 2)"),
    Query.parse("q(a, b) :- g(a), g(b)"),
    Query.parse("q() :- e(0, 1), 1 < 2"),
    Query.parse("q() :- e(0, 1), f(1, 0), 2 < 1"),
    Query.parse("q(a) :- w(a, b, c, a), e(b, c)"),
]
VALUES = st.integers(0, 2)


def relations_of(arity):
    return st.dictionaries(st.tuples(*[VALUES] * arity), st.integers(-3, 3), max_size=8)


@st.composite
def inputs(draw):
    query = draw(st.sampled_from(QUERIES))
    return query, {name: draw(relations_of(arity)) for name, arity in query.relations.items()}


@given(inputs(), st.data())
def test_the_join_is_that_of_the_naive_oracle_in_any_order(given_inputs, data):
    query, relations = given_inputs
    order = data.draw(st.permutations(query.variables))

    assert reference_join(query, relations, order=order) == naive.evaluate(query, relations)


@given(st.sampled_from(QUERIES), st.data())
def test_each_atom_may_have_a_relation_of_its_own(query, data):
    relations = [data.draw(relations_of(atom.arity)) for atom in query.body]

    assert reference_join(query, relations) == naive.evaluate(query, relations)


@pytest.mark.parametrize("formula", [Formula.expanded, Formula.collapsed, Formula.flipped])
@given(inputs(), st.data())
def test_the_terms_of_a_formula_sum_to_the_delta_of_the_query(formula, given_inputs, data):
    """Old, delta and new are chosen per atom, also when the atoms share a relation."""
    query, old = given_inputs
    changes = {name: data.draw(relations_of(arity)) for name, arity in query.relations.items()}
    new = {name: naive.add(old[name], changes[name]) for name in old}
    versions = {Version.old: old, Version.delta: changes, Version.new: new}

    products = [
        reference_join(
            query,
            [versions[factor.version][query.body[factor.atom].relation] for factor in term.factors],
        )
        for term in delta_terms(formula, len(query.body))
    ]

    old_view, new_view = naive.evaluate(query, old), naive.evaluate(query, new)
    assert naive.add(*products) == naive.add(new_view, naive.scale(old_view, -1))


def test_weights_are_exact_beyond_64_bits():
    big = 10**30

    answer = reference_join(TRIANGLE, {"e": {(1, 2): big, (2, 3): -big, (1, 3): big}})

    assert answer == {(1, 2, 3): -(big**3)}


def test_strings_join_with_strings():
    query = Query.parse("q(n, l) :- name(e, n), last(e, l), n < l")
    relations = {"name": {(1, "Ada"): 1, (2, "Zoe"): 1}, "last": {(1, "King"): 2, (2, "A"): 1}}

    assert reference_join(query, relations) == {("Ada", "King"): 2}


def test_rows_whose_weights_cancel_are_dropped():
    query = Query.parse("q(a) :- e(a, b)")

    assert reference_join(query, {"e": {(1, 2): 1, (1, 3): -1, (2, 2): 1}}) == {(2,): 1}


def test_the_smallest_relation_proposes():
    """The 50 extensions of a hub are not enumerated if another relation has two."""
    proposed = []

    class RecordingExtender(RelationExtender):
        __slots__ = ()

        def propose(self, prefix):
            proposed.append(super().propose(prefix))
            return proposed[-1]

    hub = RecordingExtender([("hub", i) for i in range(50)], [0, 1])
    partner = RecordingExtender([("hub", 7), ("hub", 70)], [0, 1])

    assert list(solve([hub, partner], 2)) == [("hub", 7)]
    assert proposed == [["hub"], [7, 70]]


@pytest.mark.parametrize(
    ("arguments", "order", "error", "message"),
    [
        ([{"f": {}}], None, UnknownRelationError, r"relations \['e'\] of .* not among \['f'\]"),
        ([[{}, {}]], None, ArityError, "2 relations for the 3 atoms"),
        ([{"e": {(1, 2, 3): 1}}], None, ArityError, r"row \(1, 2, 3\) has 3 values"),
        ([{"e": {(1, 2): "x"}}], None, WeightError, "weight 'x'"),
        ([{"e": {(1, 2): 1, ("a", 2): 1}}], None, ColumnTypeError, "without an order"),
        ([{"e": {}}], ["a", "b"], VariableOrderError, r"\['a', 'b'\] is not a permutation"),
        ([{"e": {}}], ["a", "b", "b", "c"], VariableOrderError, "is not a permutation"),
    ],
)
def test_relations_and_orders_that_do_not_fit_the_query_are_refused(
    arguments, order, error, message
):
    with pytest.raises(error, match=message):
        reference_join(TRIANGLE, *arguments, order=order)


def test_solve_refuses_levels_without_extenders_and_extenders_without_levels():
    unary = RelationExtender([(1,)], [1])

    with pytest.raises(UnsafeVariableError, match="level 0 of 2 meets no extender"):
        solve([unary], 2)
    with pytest.raises(VariableOrderError, match="an extender has level 1, but the order has 1"):
        solve([unary], 1)


def test_without_variables_there_is_one_row_or_none():
    present, absent = RelationExtender([()], []), RelationExtender([], [])

    assert list(solve([], 0)) == [()]
    assert list(solve([present], 0)) == [()]
    assert list(solve([present, absent], 0)) == []
