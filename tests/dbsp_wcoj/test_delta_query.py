"""The public interface of the maintained join: examples, errors, counters, threads.

The laws are in ``test_laws``. Here each error occurs in the middle of a stream. The corrected step
must then give the same delta as in a view without the error.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import (
    ArityError,
    ColumnTypeError,
    DbspWcojError,
    DeltaQuery,
    Formula,
    FormulaError,
    Query,
    QuerySyntaxError,
    UnknownRelationError,
    UnsafeVariableError,
    WeightError,
    WeightOverflowError,
    ZSet,
)
from dbsp_wcoj.execution import physical_term, plan_cache
from dbsp_wcoj.query import Atom, Variable
from dbsp_wcoj.zset import MAX_INT64
from tests.generators.strategies import FORMULAS, LAW, negate, scenarios, zsets
from tests.oracles import naive
from tests.support.working_threads import working_threads

TRIANGLE = "tri(a, b, c) :- e(a, b), e(b, c), e(a, c)"
EDGES = ZSet.from_rows([(1, 2), (2, 3), (1, 3)])


def test_triangles_are_maintained_under_inserts_and_deletes():
    view = DeltaQuery(Query.parse(TRIANGLE), formula="collapsed")
    assert view.step({"e": EDGES}).to_dict() == {(1, 2, 3): 1}
    assert view.step({"e": ZSet.from_rows([(1, 2)], [-1])}).to_dict() == {(1, 2, 3): -1}


def test_an_empty_head_counts_as_the_weight_of_the_empty_row():
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)")
    assert view.step({"e": EDGES}).to_dict() == {(): 1}
    assert view.step({"e": EDGES}).to_dict() == {(): 7}  # every weight doubles: 2 * 2 * 2 - 1
    unchanged = view.step({})
    assert (unchanged.arity, unchanged.to_dict()) == (0, {})
    assert view.step({"e": -EDGES - EDGES}).to_dict() == {(): -8}


def test_a_repeated_row_raises_the_weight_and_its_deletion_lowers_it():
    view = DeltaQuery("q(a, c) :- e(a, b), f(b, c)")
    view.step({"e": ZSet.from_rows([(1, 2), (1, 2)]), "f": ZSet.from_rows([(2, 3)], [5])})
    assert view.step({"e": ZSet.from_rows([(1, 2)], [-1])}).to_dict() == {(1, 3): -5}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_relation_may_have_any_name_even_a_number(formula):
    """Partial deltas have numbers, which must not be confused with names of relations."""
    variables = tuple(Variable(f"v{i}") for i in range(5))
    for names in itertools.permutations(("1", "2", "3", "")):
        body = tuple(Atom(name, variables[i : i + 2]) for i, name in enumerate(names))
        view = DeltaQuery(Query("q", ("v0", "v4"), body), formula=formula)
        weights = zip(names, (2, 3, 5, 7), strict=True)
        step = {name: ZSet.from_rows([(1, 1)], [weight]) for name, weight in weights}
        assert view.step(step).to_dict() == {(1, 1): 210}
        assert view.step(step).to_dict() == {(1, 1): 210 * (2**4 - 1)}
        assert view.step({"1": -step["1"] - step["1"]}).to_dict() == {(1, 1): -210 * 2**4}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_relation_without_columns_is_a_factor(formula):
    view = DeltaQuery("q(a) :- r(a), on()", formula=formula)
    assert view.step({"r": ZSet.from_rows([(1,), (2,)], [1, 4])}).to_dict() == {}
    assert view.step({"on": ZSet.from_rows([()], [3])}).to_dict() == {(1,): 3, (2,): 12}
    assert view.step({"on": ZSet.from_rows([()], [-2])}).to_dict() == {(1,): -2, (2,): -8}
    assert view.step({"on": ZSet.from_rows([()], [-1])}).to_dict() == {(1,): -1, (2,): -4}


def test_an_atom_of_constants_only_switches_the_query_on_and_off():
    view = DeltaQuery("q(a) :- r(a), s(1, 2)")
    assert view.step({"r": ZSet.from_rows([(7,)])}).to_dict() == {}
    assert view.step({"s": ZSet.from_rows([(1, 2), (2, 1)])}).to_dict() == {(7,): 1}
    assert view.step({"s": ZSet.from_rows([(1, 2)], [-1])}).to_dict() == {(7,): -1}


# --- errors --------------------------------------------------------------------------------------

TOO_WIDE = ZSet.from_rows([(9, 9, 9)])
BAD_STEPS = {
    "unknown relation": ({"e": EDGES, "g": EDGES}, UnknownRelationError, "'g'.*relations: e"),
    "too wide": ({"e": TOO_WIDE}, ArityError, "'e'.*3.*2"),
    "too narrow": ({"e": EDGES, "f": ZSet.empty(1)}, ArityError, "'f'.*1.*2"),
    "output overflow": (
        {"e": ZSet.from_rows([(1, 2), (2, 3)], [1 << 40, 1 << 40])},
        WeightOverflowError,
        "int64",
    ),
    "state overflow": (
        {"e": ZSet.from_rows([(5, 6)], [MAX_INT64]), "f": ZSet.from_rows([(7, 8)])},
        WeightOverflowError,
        "int64",
    ),
}


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("fault", BAD_STEPS)
def test_a_refused_step_changes_nothing_and_can_be_corrected(fault, formula):
    query = Query.parse("q(a, c, d) :- e(a, b), e(b, c), e(a, c), f(c, d)")
    prior = {
        "e": ZSet.from_rows([(1, 2), (1, 3), (5, 6)], [2, 1, 1]),
        "f": ZSet.from_rows([(3, 1)]),
    }
    corrected = {"e": EDGES, "f": ZSet.from_rows([(3, 4)])}
    deltas, error, message = BAD_STEPS[fault]
    view, untouched = DeltaQuery(query, formula=formula), DeltaQuery(query, formula=formula)
    view.step(prior)
    untouched.step(prior)
    stats = view.stats
    for _ in range(2):
        with pytest.raises(error, match=message):
            view.step(deltas)
        assert view.stats.rows_by_run == stats.rows_by_run
        assert view.stats.bytes == stats.bytes
    assert view.step(corrected).to_dict() == untouched.step(corrected).to_dict() != {}
    assert view.step({"e": -EDGES}) == untouched.step({"e": -EDGES})


def test_an_error_in_the_first_step_leaves_a_fresh_view():
    for formula in FORMULAS:
        view = DeltaQuery(TRIANGLE, formula=formula)
        with pytest.raises(UnknownRelationError):
            view.step({"e": EDGES, "edges": EDGES})
        with pytest.raises(WeightOverflowError):
            view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)], [1 << 30, 1 << 30, 1 << 30])})
        assert view.step({"e": EDGES}).to_dict() == {(1, 2, 3): 1}


@LAW
@given(
    scenario=scenarios(max_steps=3),
    formula=st.sampled_from(FORMULAS),
    faulty_steps=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    fault=st.sampled_from(["unknown", "arity", "overflow"]),
)
def test_steps_after_an_error_are_those_of_a_view_without_it(
    scenario, formula, faulty_steps, fault
):
    query = scenario.query
    view, untouched = DeltaQuery(query, formula=formula), DeltaQuery(query, formula=formula)
    for number, step in enumerate(scenario.steps):
        deltas = zsets(step, query)
        if number in faulty_steps and fault == "overflow":
            huge = {
                name: ZSet.from_rows(
                    list(delta), [MAX_INT64] * len(delta), arity=deltas[name].arity
                )
                for name, delta in step.items()
            }
            try:
                view.step(huge)
            except WeightOverflowError:
                pass
            else:
                view.step({name: -delta for name, delta in huge.items()})
        elif number in faulty_steps:
            bad = {
                "unknown": ("no such relation", EDGES),
                "arity": (query.body[0].relation, TOO_WIDE),
            }
            name, delta = bad[fault]
            if fault == "unknown" or query.relations[name] != TOO_WIDE.arity:
                with pytest.raises((UnknownRelationError, ArityError)):
                    view.step({**deltas, name: delta})
        assert view.step(deltas) == untouched.step(deltas)


@LAW
@given(scenario=scenarios(max_steps=3), formula=st.sampled_from(FORMULAS), data=st.data())
def test_large_weights_give_the_exact_delta_or_an_overflow_error(scenario, formula, data):
    """Weights up to 2**62 never wrap around, and an error does not change the state."""
    query = scenario.query
    view = DeltaQuery(query, formula=formula)
    state: dict[str, dict[tuple[int, ...], int]] = {}
    answer: dict[tuple[int, ...], int] = {}
    for step in scenario.steps:
        factor = data.draw(st.sampled_from([1, 1 << 20, 1 << 31, (1 << 32) + 1, 1 << 61]))
        scaled = {name: naive.scale(delta, factor) for name, delta in step.items()}
        try:
            delta = view.step(zsets(scaled, query)).to_dict()
        except WeightOverflowError:
            continue
        state = {
            name: naive.add(state.get(name, {}), scaled.get(name, {})) for name in {*state, *scaled}
        }
        recomputed = naive.evaluate(query, state)
        assert delta == naive.add(recomputed, negate(answer))
        answer = recomputed


def test_small_weights_are_never_refused():
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(c, d), e(d, x)")
    rows = [(a, b) for a in range(30) for b in range(30)]
    assert view.step({"e": ZSet.from_rows(rows)}).to_dict() == {(): 30**5}
    assert view.step({"e": ZSet.from_rows(rows, [-2] * len(rows))}).to_dict() == {}
    assert view.step({"e": ZSet.from_rows(rows, [31] * len(rows))}).to_dict() == {
        (): 30**5 * (30**4 - 1)
    }


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("tri(a, z) :- e(a, b)", UnsafeVariableError, "'z'.*a, b"),
        ("tri(a) :- e(a, b), a < z", UnsafeVariableError, "'z'.*a, b"),
        ("tri(a) :- e(a, b), e(a, b, c)", ArityError, "e.*2"),
        ("tri(a) :- e(a, 'Ada')", ColumnTypeError, "Ada.*int64"),
        ("tri(a) :- e(a, b), b < 'Ada'", ColumnTypeError, "Ada.*int64"),
        ("tri(a) :- e(a, 9223372036854775808)", ColumnTypeError, "9223372036854775808.*int64"),
    ],
)
def test_a_query_that_cannot_be_maintained_is_refused_with_a_reason(text, error, message):
    with pytest.raises(error, match=message):
        DeltaQuery(text)


def test_a_syntax_error_has_a_position():
    with pytest.raises(QuerySyntaxError, match="line 2") as raised:
        DeltaQuery("tri(a, b) :-\n  e(a b)")
    assert (raised.value.line, raised.value.column) == (2, 7)


def test_a_wrong_formula_name_lists_the_formulas():
    with pytest.raises(FormulaError) as raised:
        DeltaQuery(TRIANGLE, formula="fastest")
    assert "'fastest'" in str(raised.value)
    assert all(str(formula) in str(raised.value) for formula in Formula)


def test_weights_and_columns_of_a_wrong_type_or_length_are_refused_before_the_step():
    view = DeltaQuery(TRIANGLE)
    view.step({"e": EDGES})
    with pytest.raises(WeightError, match="2 weights for 3 rows"):
        view.step({"e": ZSet.from_columns([np.arange(3), np.arange(3)], np.array([1, 1]))})
    with pytest.raises(WeightError, match="float64"):
        view.step({"e": ZSet.from_columns([np.arange(3), np.arange(3)], np.ones(3))})
    with pytest.raises(ColumnTypeError, match="float64"):
        view.step({"e": ZSet.from_columns([np.arange(3) / 2, np.arange(3)])})
    assert view.step({"e": -EDGES}).to_dict() == {(1, 2, 3): -1}


def test_all_errors_are_one_tree():
    for error in (ArityError, ColumnTypeError, FormulaError, QuerySyntaxError, WeightError):
        assert issubclass(error, DbspWcojError)
    assert issubclass(WeightOverflowError, ArithmeticError)
    assert issubclass(QuerySyntaxError, ValueError)


# --- counters and plans --------------------------------------------------------------------------

JOIN_COUNTS = {
    Formula.expanded: (3, 14, 45, 124, 315, 762, 1785),
    Formula.collapsed: (2, 6, 12, 20, 30, 42, 56),
    Formula.flipped: (2, 6, 12, 20, 30, 42, 56),
    Formula.recursive: (3, 7, 12, 18, 25, 33, 42),
    Formula.recursive_collapsed: (2, 5, 9, 14, 20, 27, 35),
    Formula.recursive_flipped: (2, 5, 9, 14, 20, 27, 35),
}


def chain(n: int) -> tuple[str, list[str]]:
    """Return the body of a path of n atoms, and the names of its relations."""
    names = [f"r{i}" for i in range(n)]
    body = ", ".join(f"{name}(v{i}, v{i + 1})" for i, name in enumerate(names))
    return body, names


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_step_runs_as_many_joins_as_its_formula_has(formula):
    for n, expected in zip(range(2, 9), JOIN_COUNTS[formula], strict=True):
        body, names = chain(n)
        view = DeltaQuery(f"q(v0, v{n}) :- {body}", formula=formula)
        view.step({name: ZSet.from_rows([(1, 1)]) for name in names})
        joins_before = view.stats.joins
        view.step({name: ZSet.from_rows([(1, 1), (1, 2)]) for name in names})
        assert view.stats.joins - joins_before == expected, n


@pytest.mark.parametrize("formula", ["expanded", "collapsed", "flipped", "recursive"])
def test_a_first_step_with_all_rows_is_one_generic_join(formula):
    body, names = chain(5)
    view = DeltaQuery(f"q(v0, v5) :- {body}", formula=formula)
    view.step({name: ZSet.from_rows([(1, 1)]) for name in names})
    assert view.stats.joins == 4


@pytest.mark.parametrize("formula", ["expanded", "collapsed", "flipped"])
def test_one_changed_relation_costs_one_term(formula):
    body, names = chain(5)
    view = DeltaQuery(f"q(v0, v5) :- {body}", formula=formula)
    view.step({name: ZSet.from_rows([(1, 1)]) for name in names})
    joins_before = view.stats.joins
    view.step({"r2": ZSet.from_rows([(1, 1)]), "r4": ZSet.empty(2)})
    assert view.stats.joins - joins_before == 4
    view.step({})
    assert view.stats.joins - joins_before == 4


def test_the_work_of_a_step_does_not_follow_the_size_of_the_state():
    """A step of one edge only proposes neighbours of its nodes, in a graph of any size."""
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)")
    rng = np.random.default_rng(2)
    view.step({"e": ZSet.from_columns(list(rng.integers(0, 30_000, (2, 200_000))))})
    old_stats = view.stats
    view.step({"e": ZSet.from_rows([(1, 2)])})
    new_stats = view.stats
    assert new_stats.proposals - old_stats.proposals < 500
    assert new_stats.intersections - old_stats.intersections < 500


def test_stats_count_rows_and_bytes_of_each_arrangement():
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)")
    assert sum(sum(rows) for rows in view.stats.rows_by_run.values()) == 0
    rng = np.random.default_rng(4)
    edges = ZSet.from_columns(list(rng.integers(0, 3_000, (2, 60_000))))
    view.step({"e": edges})
    stats = view.stats
    assert [sum(rows) for rows in stats.rows_by_run.values()] == [len(edges)] * len(
        stats.rows_by_run
    )
    assert 8 * len(edges) < stats.bytes / len(stats.rows_by_run) < 40 * len(edges)
    assert stats.joins == 2


def test_explain_prints_query_formula_orders_and_bound():
    for formula in FORMULAS:
        view = DeltaQuery(TRIANGLE, formula=formula)
        before_any_step = view.explain()
        view.step({"e": EDGES})
        for text in (before_any_step, view.explain()):
            assert "e(a, b), e(b, c), e(a, c)" in text
            assert str(formula) in text
            assert "AGM" in text


# --- threads and prepared steps ------------------------------------------------------------------


@pytest.mark.parametrize("query", [TRIANGLE, "n() :- e(a, b), e(b, c), e(a, c)"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_large_steps_in_parts_on_threads_give_the_same_deltas(query, formula):
    """The small steps of the laws may not be divided at all."""
    rng = np.random.default_rng(8)
    alone = DeltaQuery(query, formula=formula)
    threaded = DeltaQuery(query, formula=formula)
    with working_threads(3):
        for _ in range(3):
            source, target = rng.integers(0, 1_500, (2, 12_000))
            source[:2_000] = 3  # a hub
            delta = ZSet.from_columns([source, target], rng.integers(-1, 3, 12_000))
            found = threaded.step({"e": delta})
            with working_threads(1):
                assert found == alone.step({"e": delta})


def test_an_interrupt_right_after_a_lock_was_acquired_leaves_the_view_usable():
    def interrupt(frame: object, event: str, function: object) -> None:
        is_acquired = getattr(function, "__self__", None) is view._lock and view._lock.locked()
        if event == "c_return" and is_acquired and not interrupts:
            interrupts.append(1)
            raise KeyboardInterrupt

    interrupts: list[int] = []
    view = DeltaQuery("q(a, c) :- e(a, b), e(b, c)")
    rows = ZSet.from_rows([(1, 2), (2, 3)])
    sys.setprofile(interrupt)
    try:
        with suppress(KeyboardInterrupt):
            view.prepare({"e": rows})
    finally:
        sys.setprofile(None)
    assert view.step({"e": rows}) == ZSet.from_rows([(1, 3)])


def test_partial_deltas_are_freed_when_the_next_one_is_complete(monkeypatch):
    view = DeltaQuery(
        "q(a, b, c, d) :- r(a, b), s(b, c), t(c, d)", formula=Formula.recursive_collapsed
    )
    made = []
    consolidate = physical_term.consolidated_rows

    def track(rows, weights):
        chunk = consolidate(rows, weights)
        made.append(weakref.ref(chunk.row_array))
        return chunk

    monkeypatch.setattr(physical_term, "consolidated_rows", track)
    rows = ZSet.from_rows([(1, 1), (1, 2), (2, 1)])
    chunks = view.step_chunks(dict.fromkeys("rst", rows))
    next(chunks)
    # D1 is freed when D2 is complete, D2 when D3 is.
    assert made[0]() is None


def test_the_plans_of_too_many_sets_of_changed_relations_are_forgotten(monkeypatch):
    monkeypatch.setattr(plan_cache, "MAX_CACHED_CHANGES", 3)
    names = ["r", "s", "t", "u"]
    view = DeltaQuery("q(a, e) :- r(a, b), s(b, c), t(c, d), u(d, e)", formula="auto")
    query, state, output = view.query, {}, {}
    for size in [1, 2, 3, 4, 1]:
        for changed in itertools.combinations(names, size):
            step = {name: {(1, 1): 1, (1, size): -2} for name in changed}
            step = {name: naive.add(delta) for name, delta in step.items()}
            output = naive.add(output, view.step(zsets(step, query)).to_dict())
            for name, delta in step.items():
                state[name] = naive.add(state.get(name, {}), delta)
            assert output == naive.evaluate(query, state)
            assert len(view._plan_cache._by_change) <= 3


def test_the_plan_that_was_not_used_for_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(plan_cache, "MAX_CACHED_CHANGES", 3)
    view = DeltaQuery("q(a, e) :- r(a, b), s(b, c), t(c, d), u(d, e)", formula="auto")
    row = ZSet.from_rows([(1, 1)])
    for name in "rstrurs":
        view.step({name: row})
    assert list(view._plan_cache._by_change) == [("u",), ("r",), ("s",)]


def test_the_programs_of_replaced_plans_are_freed(monkeypatch):
    monkeypatch.setattr(plan_cache, "FIRST_REPLAN_ROWS", 8)
    monkeypatch.setattr(plan_cache, "REPLAN_GROWTH_FACTOR", 1)
    view = DeltaQuery(TRIANGLE)
    for _ in range(5):
        view.step({"e": EDGES})
        view.resume(view.plans)
        view.step({"e": EDGES})
    programs = {id(term.physical._program) for term in view.terms}
    assert view._plan_cache._buffers._programs.keys() <= programs
