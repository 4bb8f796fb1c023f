"""The law of every operator, alone and in circuits of several: Σ Q^Δ(d_t) = Q(Σ d_t).

Random plans over two small relations with NULLs and duplicates are stepped; a step changes one
relation or both. After every step the view is compared with the naive evaluation of the plan before
its rewrite (`tests.oracles.naive_plan`, nested loops over Python rows), and with the operators of
the rewritten plan applied to all rows.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.plan.nodes import PlanNode
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.runtime.graph import Graph
from circuits.runtime.operators.join import JoinOptions
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Formula, ZSet
from tests.generators.plans import RELATIONS, History, decode, plans
from tests.oracles.naive_plan import evaluate_plan

LAW = settings(
    max_examples=250,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def graph_of(plan: PlanNode, formula: str = "collapsed") -> Graph:
    graph = Graph(Codecs(), JoinOptions(formula), lambda: 0.0)
    for name, fields in RELATIONS.items():
        graph.add_input(name, fields)
    graph.add_view("view", rewrite_plan(plan))
    return graph


def step(graph: Graph, deltas: dict[str, ZSet]) -> ZSet:
    staged = graph.prepare(deltas)
    staged.commit()
    return staged.deltas[graph.views["view"]]


@LAW
@given(st.data())
def test_summed_deltas_of_a_random_circuit_equal_its_plan(data):
    plan = data.draw(plans())
    graph = graph_of(plan)
    history = History()
    total = ZSet.empty(len(plan.fields))
    inputs = {name: ZSet.empty(len(fields)) for name, fields in RELATIONS.items()}
    for _ in range(data.draw(st.integers(1, 4))):
        deltas = history.change(data.draw)
        total += step(graph, deltas)
        for name, delta in deltas.items():
            inputs[name] += delta
        expected = evaluate_plan(plan, history.lists())
        assert decode(total) == Counter({r: w for r, w in expected.items() if w})
        assert total == graph.evaluate(inputs)["view"]


@settings(LAW, max_examples=60)
@given(st.data(), st.sampled_from([f.value for f in Formula]))
def test_all_formulas_give_the_same_deltas(data, formula):
    plan = data.draw(plans())
    history = History()
    graphs = [graph_of(plan), graph_of(plan, formula)]
    for _ in range(3):
        deltas = history.change(data.draw)
        first, second = (step(graph, deltas) for graph in graphs)
        assert first == second


@settings(LAW, max_examples=60)
@given(st.data())
def test_one_step_of_all_changes_equals_many_steps(data):
    plan = data.draw(plans())
    history = History()
    steps = [history.change(data.draw) for _ in range(3)]
    by_steps, at_once = graph_of(plan), graph_of(plan)
    total = ZSet.empty(len(plan.fields))
    all_changes: dict[str, ZSet] = {}
    for deltas in steps:
        total += step(by_steps, deltas)
        for name, delta in deltas.items():
            all_changes[name] = all_changes[name] + delta if name in all_changes else delta
    assert total == step(at_once, all_changes)


@settings(LAW, max_examples=60)
@given(st.data())
def test_a_step_that_is_not_committed_has_no_effect(data):
    plan = data.draw(plans())
    history = History()
    graph, other = graph_of(plan), graph_of(plan)
    for _ in range(3):
        deltas = history.change(data.draw)
        graph.prepare({name: -delta for name, delta in deltas.items()})
        assert step(graph, deltas) == step(other, deltas)


@pytest.mark.slow
@settings(LAW, max_examples=5000)
@given(st.data())
def test_summed_deltas_of_many_random_circuits_equal_their_plans(data):
    test_summed_deltas_of_a_random_circuit_equal_its_plan.hypothesis.inner_test(data)
