"""The laws of maintained joins, on random queries and streams.

The first law defines "incremental": the sum of the output deltas equals the query over the summed
input deltas, I(Q^Δ(s)) = Q(I(s)), after every step. The others follow from it. An error in a
formula, a version or a run breaks them first.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Formula, Query, delta_query, generic_join
from dbsp_wcoj.execution import term_division
from tests.generators.strategies import (
    DOMAINS,
    FORMULAS,
    LAW,
    SHIFTS,
    Delta,
    Step,
    bodies,
    negate,
    queries,
    scenarios,
    streams,
    zset,
    zsets,
)
from tests.oracles import naive
from tests.support.working_threads import working_threads


def run(query: Query, steps: list[Step] | tuple[Step, ...], **options: object) -> list[Delta]:
    """Return the output delta of each step."""
    view = DeltaQuery(query, **options)
    return [view.step(zsets(step, query)).to_dict() for step in steps]


def integrate(state: dict[str, Delta], step: Step) -> dict[str, Delta]:
    """Return the relations after a step."""
    return {name: naive.add(state.get(name, {}), step.get(name, {})) for name in {*state, *step}}


def check_against_recomputation(query: Query, steps: tuple[Step, ...], formula: str) -> None:
    state: dict[str, Delta] = {}
    output: Delta = {}
    for number, delta in enumerate(run(query, steps, formula=formula)):
        state = integrate(state, steps[number])
        output = naive.add(output, delta)
        assert output == naive.evaluate(query, state), f"{formula}, step {number} of {query}"


@pytest.mark.parametrize("formula", FORMULAS)
@LAW
@given(scenario=scenarios())
def test_summed_output_deltas_equal_the_query_on_summed_input_deltas(formula, scenario):
    check_against_recomputation(scenario.query, scenario.steps, formula)


RINGS = tuple(
    f"{head} :- "
    + ", ".join(f"{name}({a}, {b})" for name, (a, b) in zip(names, edges, strict=True))
    for edges, names in (
        (("ab", "bc", "cd", "de", "ea"), "rstuv"),
        (("ab", "bc", "cd", "de", "ea"), "rsrst"),
        (("ab", "bc", "cd", "de", "ef", "fa"), "rstuvw"),
    )
    for head in ("n()", "q(a, c)")
)


@pytest.mark.parametrize("formula", ["collapsed", "flipped", "auto"])
@settings(LAW, max_examples=40)
@given(data=st.data())
def test_rings_equal_recomputation(formula, data):
    query = Query.parse(data.draw(st.sampled_from(RINGS)))
    check_against_recomputation(query, data.draw(streams(query, (0, 1, 2))), formula)


LABELLED = (
    "n() :- e(a, b), e(b, c), e(a, c), l(a), m(b), l(c)",
    "n() :- e(a, b), e(b, c), e(c, d), e(a, d), m(d), l(a), m(b)",
    "n() :- e(a, b), e(b, c), e(a, c), e(a, d), e(b, d), e(c, d), l(a), m(b), l(c), m(d)",
    "q(a, c) :- e(a, b), e(b, c), l(b), m(b), l(c)",
)


@pytest.mark.parametrize("formula", ["collapsed", "flipped", "auto"])
@settings(LAW, max_examples=40)
@given(data=st.data())
def test_labelled_patterns_equal_recomputation(formula, data):
    query = Query.parse(data.draw(st.sampled_from(LABELLED)))
    check_against_recomputation(query, data.draw(streams(query, (0, 1, 2))), formula)


# Comparisons that add a number: enumerated, summed over the last variable, and over the last two.
SHIFTED = tuple(
    f"{head} :- {body}, a {op} b {{shift}}"
    for op in ("<", "<=", ">", ">=", "==", "!=")
    for head, body in (
        ("q(a, b)", "r(k, a), s(k, b)"),
        ("q(k)", "r(k, a), s(k, b)"),
        ("n()", "r(a), s(b)"),
        ("n()", "r(k, a), s(k, b), t(a, b)"),
    )
)


@pytest.mark.parametrize("formula", ["collapsed", "flipped"])
@settings(LAW, max_examples=150)
@given(data=st.data())
def test_comparisons_with_a_shift_equal_recomputation(formula, data):
    shift = data.draw(st.sampled_from(SHIFTS))
    text = data.draw(st.sampled_from(SHIFTED))
    query = Query.parse(text.format(shift=f"{'-' if shift < 0 else '+'} {abs(shift)}"))
    domain = data.draw(st.sampled_from(DOMAINS))
    check_against_recomputation(query, data.draw(streams(query, domain)), formula)


@pytest.mark.slow
@settings(LAW, max_examples=3000)
@given(scenario=scenarios(max_steps=8), formula=st.sampled_from(FORMULAS))
def test_many_more_streams_equal_recomputation(scenario, formula):
    check_against_recomputation(scenario.query, scenario.steps, formula)


@LAW
@given(scenario=scenarios())
def test_all_six_formulas_give_the_same_delta_at_every_step(scenario):
    expected = run(scenario.query, scenario.steps, formula=Formula.collapsed)
    for formula in FORMULAS:
        assert run(scenario.query, scenario.steps, formula=formula) == expected, formula


@LAW
@given(data=st.data(), scenario=scenarios(max_steps=1), formula=st.sampled_from(FORMULAS))
def test_one_big_step_equals_its_singletons_in_any_order(data, scenario, formula):
    *prior, big = scenario.steps[:2]
    rows = [(name, row, weight) for name, part in big.items() for row, weight in part.items()]
    singles = [{name: {row: weight}} for name, row, weight in data.draw(st.permutations(rows))]
    at_once = run(scenario.query, [*prior, big], formula=formula)[-1]
    one_by_one = run(scenario.query, [*prior, *singles], formula=formula)[len(prior) :]
    assert naive.add(*one_by_one) == at_once


@LAW
@given(scenario=scenarios(max_steps=2), formula=st.sampled_from(FORMULAS))
def test_several_relations_in_one_step_equal_one_relation_at_a_time(scenario, formula):
    single = [{name: delta} for step in scenario.steps for name, delta in step.items()]
    together = run(scenario.query, scenario.steps, formula=formula)
    one_by_one = run(scenario.query, single, formula=formula)
    assert naive.add(*one_by_one) == naive.add(*together)


@LAW
@given(data=st.data(), scenario=scenarios(max_steps=2), formula=st.sampled_from(FORMULAS))
def test_deleting_all_rows_empties_the_view_and_its_state(data, scenario, formula):
    """A later step has the same delta as in a new view."""
    query = scenario.query
    undone = [
        {name: negate(delta) for name, delta in step.items()}
        for step in data.draw(st.permutations(scenario.steps))
    ]
    later = data.draw(streams(query, data.draw(st.sampled_from(DOMAINS)), max_steps=0))
    *past, last = run(query, [*scenario.steps, *undone, *later], formula=formula)
    assert naive.add(*past) == {}
    assert last == run(query, later, formula=formula)[0]


@LAW
@given(data=st.data(), scenario=scenarios(), formula=st.sampled_from(FORMULAS))
def test_the_order_of_the_atoms_does_not_matter(data, scenario, formula):
    query = scenario.query
    atoms = tuple(data.draw(st.permutations(query.body)))
    shuffled = Query(query.name, query.head, atoms, query.comparisons)
    assert run(shuffled, scenario.steps, formula=formula) == run(
        query, scenario.steps, formula=formula
    )


@LAW
@given(scenario=scenarios(max_steps=2), formula=st.sampled_from(FORMULAS))
def test_one_relation_for_each_atom_equals_the_self_join(scenario, formula):
    """Each atom reads its own old and new relation, so a self-join is no special case."""
    query = scenario.query
    atoms = tuple(
        type(atom)(f"{atom.relation}_{i}", atom.terms) for i, atom in enumerate(query.body)
    )
    renamed = Query(query.name, query.head, atoms, query.comparisons)
    steps = [
        {
            f"{atom.relation}_{i}": step[atom.relation]
            for i, atom in enumerate(query.body)
            if atom.relation in step
        }
        for step in scenario.steps
    ]
    assert run(renamed, steps, formula=formula) == run(query, scenario.steps, formula=formula)


@LAW
@given(
    scenario=scenarios(max_steps=2), threads=st.integers(2, 5), formula=st.sampled_from(FORMULAS)
)
def test_threads_give_the_same_deltas(scenario, threads, formula):
    with (
        working_threads(threads),
        patch.object(delta_query, "MIN_PARALLEL_ROWS", 1),
        patch.object(term_division, "MIN_DIVIDED_ROWS", 1),
        patch.object(term_division, "MIN_PART_ROWS", 1),
    ):
        threaded = run(scenario.query, scenario.steps, formula=formula)
    assert threaded == run(scenario.query, scenario.steps, formula=formula)


@LAW
@given(scenario=scenarios())
def test_the_integrated_view_equals_one_generic_join_of_the_integrated_relations(scenario):
    query = scenario.query
    state: dict[str, Delta] = {name: {} for name in query.relations}
    for step in scenario.steps:
        state = integrate(state, step)
    joined = generic_join(query, zsets(state, query))
    assert joined.to_dict() == naive.add(*run(query, scenario.steps))


@LAW
@given(scenario=scenarios(max_steps=2), formula=st.sampled_from(FORMULAS))
def test_steps_without_changes_change_nothing(scenario, formula):
    query = scenario.query
    empty_steps: list[Step] = [{}, {name: {} for name in query.relations}]
    steps = [part for step in scenario.steps for part in (*empty_steps, step)]
    outputs = run(query, steps, formula=formula)
    assert outputs[2::3] == run(query, scenario.steps, formula=formula)
    assert not any(outputs[0::3]) and not any(outputs[1::3])


@LAW
@given(data=st.data(), formula=st.sampled_from(FORMULAS))
def test_two_views_of_one_query_do_not_share_state(data, formula):
    domain = data.draw(st.sampled_from(DOMAINS))
    query = data.draw(queries(domain))
    first = data.draw(streams(query, domain, max_steps=2))
    second = data.draw(streams(query, domain, max_steps=2))
    view, other_view = DeltaQuery(query, formula=formula), DeltaQuery(query, formula=formula)
    for step, other_step in zip(first, second, strict=False):
        view.step(zsets(step, query))
        other_view.step(zsets(other_step, query))
    last = {name: {(domain[0],) * arity: 1} for name, arity in query.relations.items()}
    steps = min(len(first), len(second))
    expected = run(query, [*first[:steps], last], formula=formula)[-1]
    assert view.step(zsets(last, query)).to_dict() == expected


@LAW
@given(data=st.data())
def test_the_two_naive_oracles_agree(data):
    """One oracle is a hash join; the other is the definition, a loop over all tuples of rows."""
    domain = data.draw(st.sampled_from(DOMAINS[:4]))
    body = data.draw(bodies(domain).filter(lambda atoms: len(atoms) <= 4))
    query = data.draw(queries(domain).filter(lambda q: len(q.body) <= 4))
    for tested in (query, Query("b", (), body, ())):
        [prior] = data.draw(streams(tested, domain, max_steps=0))
        small = {name: dict(list(delta.items())[:7]) for name, delta in prior.items()}
        assert naive.evaluate(tested, small) == naive.enumerate_all(tested, small)


def test_a_factor_reads_one_version_at_all_levels_of_a_term():
    """A product of differences for each variable would not be the difference of the products."""
    query = Query.parse("q(a, b, c) :- r(a, b), s(b, c), t(a, c)")
    steps: list[Step] = [
        {"r": {(1, 2): 1}, "s": {(2, 3): 1}, "t": {(1, 3): 1}},
        {"r": {(1, 4): 1}, "s": {(4, 3): 1}},
        {"r": {(1, 2): -1}, "t": {(1, 3): 1}},
    ]
    for formula in FORMULAS:
        assert run(query, steps, formula=formula) == [
            {(1, 2, 3): 1},
            {(1, 4, 3): 1},
            {(1, 2, 3): -1, (1, 4, 3): 1},
        ]


def test_the_order_of_the_rows_of_a_delta_does_not_matter():
    query = Query.parse("q(a, c) :- e(a, b), e(b, c)")
    rows = {(i, (7 * i) % 11): 1 for i in range(11)}
    backwards = dict(reversed(rows.items()))
    assert zset(rows, arity=2) == zset(backwards, arity=2)
    assert run(query, [{"e": rows}]) == run(query, [{"e": backwards}])
