"""``formula="auto"``: its deltas are exact, its candidates bounded, its choices deterministic."""

from __future__ import annotations

import pickle
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from dbsp_wcoj import DeltaQuery, Formula, FormulaError, Query, WeightOverflowError, ZSet
from dbsp_wcoj.errors import LimitError
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.planning import adaptive_formula
from dbsp_wcoj.planning.formula_candidates import formula_candidates
from tests.generators.strategies import LAW, scenarios, streams, zsets
from tests.oracles import naive
from tests.support.working_threads import working_threads

PATH = "n() :- r(a, b), s(b, c), t(c, d), u(d, f)"
SELF = "n() :- e(a, b), e(b, c), e(c, d), e(d, f), e(f, g)"
STAR = "q(x) :- r(x, a), s(x, b), t(x, c)"
HUB = "n() :- e(a, b), e(a, c), e(a, d), e(a, f)"
BOUNDED = (PATH, SELF, STAR, HUB, "n() :- r(a, b), s(b, c), r(c, d), a < b")
UNBOUNDED = (
    "n() :- e(a, b), e(b, c), e(a, c)",
    "n() :- r(a, b), s(b, c), t(c, d), u(d, a)",
    "q(a, b, c, d) :- r(a, b), s(b, c), t(c, d)",
    "n() :- r(a, b), s(b, c), t(c, d), a < d",
    "n() :- r(a, b), s(b, c)",
)
# Assumed overheads of a partial delta with which the recursion runs never, often or always.
OVERHEADS = (1 << 40, 0, -(1 << 40))


def run_and_check(text, steps, **options):
    """Run steps with ``auto``, compare the view with the oracle after each; return the deltas."""
    query = Query.parse(text) if isinstance(text, str) else text
    view = DeltaQuery(query, formula="auto", **options)
    state, output, deltas = {}, {}, []
    for step in steps:
        delta = view.step(zsets(step, query)).to_dict()
        state = {
            name: naive.add(state.get(name, {}), step.get(name, {})) for name in {*state, *step}
        }
        output = naive.add(output, delta)
        assert output == naive.evaluate(query, state)
        deltas.append(delta)
    return deltas


def steps_by_formula(view):
    """Return the number of steps that each candidate ran, as `explain` prints it."""
    lines = [line for line in view.explain().splitlines() if " steps)" in line]
    return {
        str(formula): sum(
            int(part.split("(")[1].split()[0].replace(",", ""))
            for line in lines
            for part in line.split(": ")[1].split("), ")
            if part.split()[0] == formula
        )
        for formula in (Formula.collapsed, Formula.recursive_collapsed)
    }


def graph(rows, nodes, seed):
    """Return random edges, many of them at few nodes."""
    generator = np.random.default_rng(seed)
    columns = [(nodes * generator.random(rows) ** 3).astype(np.int64) for _ in range(2)]
    return ZSet.from_columns(columns)


@settings(LAW, max_examples=60)
@given(data=st.data(), overhead=st.sampled_from(OVERHEADS))
def test_a_view_that_chooses_equals_recomputation_after_every_step(data, overhead):
    text = data.draw(st.sampled_from(BOUNDED))
    steps = data.draw(streams(Query.parse(text), [1, 2, 3], max_steps=5))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive_formula, "WORK_PER_PARTIAL", overhead)
        patch.setattr(adaptive_formula, "MEASURE_CHEAP_EVERY_N", data.draw(st.sampled_from([1, 3])))
        patch.setattr(adaptive_formula, "SAMPLE_RANGES", data.draw(st.sampled_from([1, 8])))
        patch.setattr(adaptive_formula, "SAMPLE_ROWS", 1)
        deltas = run_and_check(text, steps)

    view = DeltaQuery(text)
    assert [view.step(zsets(step, view.query)).to_dict() for step in steps] == deltas


@settings(LAW, max_examples=40)
@given(scenario=scenarios())
def test_formula_auto_is_exact_for_any_query(scenario):
    run_and_check(scenario.query, scenario.steps)


@pytest.mark.parametrize("text", [PATH, SELF])
def test_inserts_and_their_deletes_add_up_to_zero(text, monkeypatch):
    monkeypatch.setattr(adaptive_formula, "WORK_PER_PARTIAL", 0)
    view = DeltaQuery(text, formula="auto")
    names = view.query.relations
    total = 0
    changes = [{name: graph(40, 60, seed) for name in names} for seed in range(4)]
    changes += [{name: graph(8, 60, seed)} for seed, name in enumerate(names, 9)]

    for step in changes + [
        {name: -delta for name, delta in step.items()} for step in reversed(changes)
    ]:
        total += view.step(step).to_dict().get((), 0)

    assert total == 0
    assert all(steps_by_formula(view).values())


def test_large_steps_on_long_walks_run_the_recursion_and_small_steps_collapsed():
    view = DeltaQuery("n() :- " + ", ".join(f"e(v{i}, v{i + 1})" for i in range(6)), formula="auto")
    view.step({"e": graph(3000, 600, 0)})
    many, few = graph(600, 600, 1), ZSet.from_rows([(9_001, 9_002)])

    for _ in range(3):
        for delta in (many, -many, few, -few):
            view.step({"e": delta})

    lines = [line for line in view.explain().splitlines() if " steps)" in line]
    assert "1 rows and more: collapsed" in lines[-1] or "1 rows and more: collapsed" in lines[-2]
    assert steps_by_formula(view)["recursive_collapsed"] >= 3


@pytest.mark.parametrize("text", UNBOUNDED)
def test_only_collapsed_is_planned_if_a_partial_delta_is_not_bounded(text):
    view, plain = DeltaQuery(text, formula="auto"), DeltaQuery(text)

    assert "formula auto: collapsed, because " in view.explain()
    assert view.explain().count("+=") == plain.explain().count("+=")


@pytest.mark.parametrize("text", BOUNDED)
def test_the_candidates_need_the_arrangements_of_collapsed_and_no_others(text):
    views = [DeltaQuery(text, formula=formula) for formula in ("auto", "collapsed")]
    for view in views:
        view.step({name: graph(200, 50, 1) for name in view.query.relations})

    assert set(views[0].stats.rows_by_run) == set(views[1].stats.rows_by_run)


def test_a_failed_step_is_not_measured():
    view = DeltaQuery(PATH, formula="auto")
    names = list(view.query.relations)
    view.step({name: graph(50, 20, 1) for name in names})
    measured = view.explain().splitlines()[1:3]
    large = ZSet.from_rows([(1, 1)], [1 << 40])

    with pytest.raises(WeightOverflowError):
        view.step(dict.fromkeys(names, large))

    assert view.explain().splitlines()[1:3] == measured


def test_the_same_steps_lead_to_the_same_choices_and_counts():
    stats = []
    for _ in range(2):
        view = DeltaQuery(PATH, formula="auto")
        for seed in range(30):
            view.step({name: graph(20 + seed, 90, seed) for name in "rstu"[: 1 + seed % 4]})
        stats.append((view.stats, view.explain()))

    assert stats[0] == stats[1]


def test_a_named_formula_is_the_only_candidate():
    atoms = [("a", "b"), ("b", "c"), ("c", "d")]

    for formula in Formula:
        assert formula_candidates(formula, atoms, lambda i: ("b", "c")[i - 1]) == ((formula,), "")


def test_the_error_of_an_unknown_formula_lists_the_formulas():
    with pytest.raises(FormulaError, match="unknown formula 'best'; use one of auto, expanded"):
        DeltaQuery(PATH, formula="best")


def test_a_circuit_continues_from_the_state_of_any_formula():
    schemas = {"e": pa.schema([("src", pa.int64()), ("dst", pa.int64())])}
    sql = (
        "SELECT count(*) AS n FROM e v JOIN e w ON w.src = v.dst JOIN e x ON x.src = w.dst "
        "JOIN e y ON y.src = x.dst"
    )

    def rows(seed):
        edges = list(graph(300, 80, seed).to_dict())
        return {"e": pa.table({"src": [a for a, _ in edges], "dst": [b for _, b in edges]})}

    recomputed = compile_sql(sql, schemas)
    for seed in range(6):
        expected = recomputed.step(rows(seed))["view"].to_pylist()
    for first, second in (("auto", "auto"), ("auto", "collapsed"), ("recursive", "auto")):
        stored = compile_sql(sql, schemas, formula=first)
        for seed in range(5):
            stored.step(rows(seed))
        restored = compile_sql(sql, schemas, formula=second)
        restored.restore(pickle.loads(pickle.dumps(stored.snapshot())))

        assert restored.step(rows(5))["view"].to_pylist() == expected


def test_the_work_of_a_step_that_threads_share_is_measured(monkeypatch):
    monkeypatch.setattr("dbsp_wcoj.delta_query.MIN_PARALLEL_ROWS", 1)
    monkeypatch.setattr("dbsp_wcoj.execution.term_division.MIN_DIVIDED_ROWS", 1)
    monkeypatch.setattr("dbsp_wcoj.execution.term_division.MIN_PART_ROWS", 1)
    rng = np.random.default_rng(0)
    view = DeltaQuery("n() :- e(a, b), f(b, c), g(c, d)", formula="auto")
    with working_threads(2):
        for _ in range(3):
            rows = {name: list(rng.integers(0, 40, (2, 200))) for name in "efg"}
            view.step({name: ZSet.from_columns(columns) for name, columns in rows.items()})
    (formula,) = view._plan_cache._by_change.values()
    (cost,) = formula.costs.values()
    assert cost.averages[0] > 0.5


def dense_step(view):
    """Stage all edges between 40 vertices as rows of each relation, and let joins pause often."""
    pairs = ZSet.from_rows([(a, b) for a in range(40) for b in range(40)])
    return view._relations.stage(dict.fromkeys(view.query.relations, pairs))


@pytest.mark.parametrize("query", [PATH, "q(d) :- r(a, b), s(b, c), t(c, d)"])
def test_a_sample_ends_soon_after_its_maximum_work(query, monkeypatch):
    sampled = []
    sample = adaptive_formula._sample_work

    def measure(terms, *arguments):
        before = adaptive_formula._work(terms)
        estimate = sample(terms, *arguments)
        sampled.append(adaptive_formula._work(terms) - before)
        return estimate

    monkeypatch.setattr(adaptive_formula, "_sample_work", measure)
    monkeypatch.setattr(adaptive_formula, "WORK_LIMIT", 100)
    monkeypatch.setattr(join_layout, "MAX_WORK_PER_CALL", 10)
    view = DeltaQuery(query, formula="auto")
    step = dense_step(view)
    delta = view.evaluate(step)
    assert delta == DeltaQuery(view.query).step({name: s.delta for name, s in step.by_name.items()})
    (work,) = sampled
    assert 100 < work < 300


def test_a_sample_ends_with_the_time_of_its_step(monkeypatch):
    def fail(term, parts, **options):
        raise AssertionError("the step goes on after the sample")

    monkeypatch.setattr(join_layout, "MAX_WORK_PER_CALL", 10)
    monkeypatch.setattr("dbsp_wcoj.delta_query.divide_term", fail)
    times = count()
    budget = Budget(StepLimits(max_seconds=3), clock=lambda: next(times))
    view = DeltaQuery(PATH, formula="auto")
    with pytest.raises(LimitError, match="max_seconds"):
        view.evaluate(dense_step(view), budget)
