"""Left joins that select only the rows without a partner, against nested loops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.plan.expressions import Column, Expression
from circuits.plan.nodes import Filter, Map, OuterJoin, PlanNode, Scan, Semijoin
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.rewrite.unmatched_rows import as_antijoin
from circuits.runtime.graph import Graph
from circuits.runtime.operators.join import JoinOptions
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from dbsp_wcoj import ZSet
from tests.generators.plans import INT, RELATIONS, History, decode, join_condition, predicate
from tests.oracles.naive_plan import evaluate_plan

R, S = (Scan(name, fields) for name, fields in RELATIONS.items())
A, B, C, D, E = (Column(k, INT) for k in range(5))


def is_null(column: Column) -> Expression:
    return call("is_null", column)


def below_filters(plan: PlanNode) -> PlanNode:
    while isinstance(plan, Filter):
        plan = plan.input
    return plan


def is_antijoin(plan: Filter) -> bool:
    node = below_filters(as_antijoin(plan))
    return isinstance(node, Map) and isinstance(node.input, Semijoin) and node.input.anti


def test_a_joined_column_that_must_be_null_makes_an_antijoin() -> None:
    join = OuterJoin(R, S, call("eq", A, C))

    assert is_antijoin(Filter(join, is_null(C)))
    assert is_antijoin(Filter(join, call("and", call("lt", A, B), is_null(C))))
    assert is_antijoin(Filter(Filter(join, is_null(C)), call("lt", A, B)))
    assert is_antijoin(
        Filter(OuterJoin(R, S, call("lt", call("cast", C, type=INT), A)), is_null(C))
    )


def test_a_column_that_cannot_be_null_in_a_partner_makes_an_antijoin() -> None:
    required = Scan("s", tuple(replace(f, nullable=f.name != "e") for f in S.fields))

    assert is_antijoin(Filter(OuterJoin(R, required, call("eq", A, C)), is_null(E)))


def test_a_column_that_may_be_null_in_a_partner_makes_none() -> None:
    for plan in (
        Filter(OuterJoin(R, S, call("eq", A, C)), is_null(D)),
        Filter(OuterJoin(R, S, call("same", A, C)), is_null(C)),
        Filter(OuterJoin(R, S, call("or", call("eq", A, C), is_null(C))), is_null(C)),
        Filter(OuterJoin(R, S, call("eq", A, call("coalesce", C, D))), is_null(C)),
        Filter(OuterJoin(R, S, call("eq", A, C)), is_null(A)),
        Filter(OuterJoin(R, S, call("eq", A, C)), call("or", is_null(C), is_null(A))),
        Filter(OuterJoin(R, S, call("eq", A, C), "full"), is_null(C)),
    ):
        assert as_antijoin(plan) is plan


@settings(max_examples=150)
@given(st.data())
def test_rows_without_partner_follow_random_changes(data: st.DataObject) -> None:
    draw = data.draw
    plan: PlanNode = OuterJoin(R, S, join_condition(draw, 2, 3))
    for _ in range(draw(st.integers(1, 2))):
        condition = is_null(draw(st.sampled_from([B, C, D, E])))
        if draw(st.booleans()):
            condition = call("and", predicate(draw, 5, 0), condition)
        plan = Filter(plan, condition)
    graph = Graph(Codecs(), JoinOptions("collapsed"), lambda: 0.0)
    for name, fields in RELATIONS.items():
        graph.add_input(name, fields)
    graph.add_view("view", rewrite_plan(plan))
    history, total = History(), ZSet.empty(5)

    for _ in range(draw(st.integers(1, 4))):
        step = graph.prepare(history.change(draw))
        step.commit()
        total += step.deltas[graph.views["view"]]

        expected = evaluate_plan(plan, history.lists())
        assert decode(total) == Counter({row: w for row, w in expected.items() if w})
