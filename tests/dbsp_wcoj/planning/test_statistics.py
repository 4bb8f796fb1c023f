"""Plans by statistics: estimates of distinct values, and views that choose new plans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Relations, Trace, ZSet
from dbsp_wcoj.execution import plan_cache
from dbsp_wcoj.planning.statistics import (
    MAX_SAMPLE_ROWS,
    Statistics,
    sample_largest_run,
    sample_rows,
)
from dbsp_wcoj.storage import arrangement_build, trace
from dbsp_wcoj.storage.trace import build_run
from tests.dbsp_wcoj.test_laws import integrate
from tests.generators.strategies import FORMULAS, LAW, queries, scenarios, zsets
from tests.oracles import naive


@pytest.fixture
def frequent_replanning(monkeypatch):
    """Views plan their terms again after every few changed rows, and build arrangements slowly."""
    monkeypatch.setattr(plan_cache, "FIRST_REPLAN_ROWS", 2)
    monkeypatch.setattr(plan_cache, "REPLAN_GROWTH_FACTOR", 1.5)
    monkeypatch.setattr(trace, "MAX_ROWS_ARRANGED_AT_ONCE", 2)
    monkeypatch.setattr(arrangement_build, "COPIED_ROWS_PER_ROW", 1)
    monkeypatch.setattr(arrangement_build, "MIN_COPIED_ROWS", 1)


def test_a_relation_in_its_first_step_is_represented_by_its_overlay():
    trace = Trace(2)
    trace.arrange((1, 0))
    first = ZSet.from_rows([(n, 2 * n) for n in range(9)])
    trace.push_overlay(trace.prepare(first))  # the rows of an earlier iteration of a recursion
    sample = sample_largest_run(trace, trace.prepare(ZSet.from_rows([(50, 60)])))
    assert sample.total_rows == 9
    assert {*zip(*sample.columns.tolist(), strict=True)} == {(n, 2 * n) for n in range(9)}
    trace.pop_overlay()
    assert sample_largest_run(trace, None).total_rows == 0


@pytest.mark.thorough
@pytest.mark.parametrize("formula", FORMULAS)
def test_views_that_are_planned_again_equal_recomputation(frequent_replanning, formula):
    @LAW
    @given(scenarios(max_steps=8))
    def check(scenario):
        view = DeltaQuery(scenario.query, formula=formula)
        state, output = {}, {}
        for step in scenario.steps:
            state = integrate(state, step)
            output = naive.add(output, view.step(zsets(step, scenario.query)).to_dict())
            assert output == naive.evaluate(scenario.query, state)

    check()


def test_views_with_shared_relations_drop_no_arrangement_that_another_view_reads(
    frequent_replanning,
):
    @LAW
    @given(st.data(), scenarios(max_steps=8))
    def check(data, scenario):
        relations = Relations()
        arities = scenario.query.relations
        drawn_queries = data.draw(st.lists(queries((0, 1, 2)), max_size=2))
        views = [
            DeltaQuery(query, relations=relations)
            for query in (*drawn_queries, scenario.query)
            if query.relations.items() <= arities.items()
        ]
        state, outputs = {}, [{} for _ in views]
        for step in scenario.steps:
            state = integrate(state, step)
            shared = relations.stage(zsets(step, scenario.query))
            for index, view in enumerate(views):
                outputs[index] = naive.add(outputs[index], view.evaluate(shared).to_dict())
            shared.commit()
        for view, output in zip(views, outputs, strict=True):
            assert output == naive.evaluate(view.query, state)

    check()


def skewed_relations():
    """Return relations r(a, b), s(b, c), t(a, d), u(c, d): many c for a b, and one d for an a."""
    random = np.random.default_rng(0)
    ab = np.unique(random.integers(0, [[50], [500]], (2, 2000)), axis=1)
    bc = np.unique(random.integers(0, [[500], [500]], (2, 20000)), axis=1)
    ad = np.stack([np.arange(50), np.arange(50) % 3])
    cd = np.unique(random.integers(0, [[500], [3]], (2, 1500)), axis=1)
    columns_by_name = zip("rstu", (ab, bc, ad, cd), strict=True)
    return {name: ZSet.from_columns(list(columns)) for name, columns in columns_by_name}


def test_a_view_with_rows_binds_the_variable_of_few_extensions_first():
    view = DeltaQuery("n() :- r(a, b), s(b, c), t(a, d), u(c, d)")
    first_orders = [term.physical.plan.order for term in view.terms]
    view.step(skewed_relations())
    new_orders = [term.physical.plan.order for term in view.terms]
    assert first_orders[0][:2] == new_orders[0][:2] == ("a", "b")
    assert new_orders[0][2] == "d"


def test_a_view_keeps_its_plans_until_the_arrangements_of_new_ones_are_built(monkeypatch):
    monkeypatch.setattr(plan_cache, "FIRST_REPLAN_ROWS", 10_000)
    monkeypatch.setattr(trace, "MAX_ROWS_ARRANGED_AT_ONCE", 100)
    monkeypatch.setattr(arrangement_build, "MIN_COPIED_ROWS", 2_000)
    random = np.random.default_rng(0)
    rows = np.unique(random.integers(0, [[50], [500], [3]], (3, 14_000)), axis=1)
    rows = rows[:, random.permutation(rows.shape[1])]
    others = {"r": np.arange(50), "t": np.arange(0, 500, 2), "u": np.arange(3)}
    first_step = {name: ZSet.from_columns([column]) for name, column in others.items()}
    text = "n() :- r(a), s(a, b, c), t(b), u(c)"
    expected = DeltaQuery(text).step(first_step | {"s": ZSet.from_columns(list(rows))})
    relations = Relations()
    view = DeltaQuery(text, relations=relations)
    output, orders, plans, ends = {}, [], [], [6_000, *range(6_200, 12_001, 200), rows.shape[1]]
    for start, end in zip([0, *ends], ends, strict=False):
        step = {"s": ZSet.from_columns(list(rows[:, start:end]))}
        shared = relations.stage(step if start else step | first_step)
        output = naive.add(output, view.evaluate(shared).to_dict())
        shared.commit()
        orders.append(relations.traces["s"].orders)
        plans.append([term.physical.plan for term in view.terms])
    assert output == expected.to_dict()
    # The terms are planned again in the step that ends with 9,800 rows of s, as more than 10,000
    # rows have changed. The new plans read s in two new orders; three slices of 3,200 rows copy the
    # 9,600 rows before that step.
    switch = next(number for number, current in enumerate(plans) if current != plans[0])
    assert ends[switch] == 9_800 + 2 * 200
    assert orders[switch - 1] == orders[0] and plans[switch] == plans[-1]
    assert len(set(orders[switch]) - set(orders[0])) == 2


def test_arrangements_that_no_plan_reads_are_dropped_and_counters_continue():
    view = DeltaQuery("n() :- r(a, b), s(b, c), t(a, d), u(c, d)")
    view.step(skewed_relations())
    read = {
        f"{atom.relation}[{','.join(map(str, planned.order))}]"
        for term in view.terms
        for atom, planned, factor in zip(
            view.query.body, term.physical.plan.factors, term.term.factors, strict=True
        )
        if factor.version != "delta"
    }
    assert set(view.stats.rows_by_run) == read
    first = view.stats.proposals
    view.step({name: -zset for name, zset in skewed_relations().items()})
    assert view.stats.proposals > first > 0


def test_small_relations_are_counted_and_large_ones_estimated():
    assert Statistics({"r": sample_rows(np.array([[1, 1, 2]]))}).count_distinct("r", [0]) == 2
    assert Statistics({}).count_distinct("r", [0]) is None
    assert Statistics({"r": sample_rows(np.empty((2, 0), np.int64))}).count_distinct("r", [0]) == 0
    rows = 8 * MAX_SAMPLE_ROWS
    many = np.stack([np.arange(rows), np.arange(rows) % 100, np.arange(rows) // 8])
    statistics = Statistics({"r": sample_rows(many)})
    assert statistics.count_distinct("r", [1]) == 100
    assert rows / 4 < statistics.count_distinct("r", [0]) <= rows
    assert statistics.count_distinct("r", []) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_sample_of_a_run_is_its_rows_at_even_distances(order):
    rng = np.random.default_rng(4)
    rows = ZSet.from_columns(list(rng.integers(0, 40, (3, 4 * MAX_SAMPLE_ROWS))))
    run = build_run(rows, order)
    sample, total = sample_rows(run)
    assert (total, sample.shape) == (len(rows), (3, MAX_SAMPLE_ROWS))
    expected = sorted(tuple(row[k] for k in order) for row, _ in rows)
    positions = np.linspace(0, total - 1, MAX_SAMPLE_ROWS).astype(int)
    assert list(map(tuple, sample.T.tolist())) == [expected[position] for position in positions]
