"""Columns declared without NULL: what the plan leaves out for them changes no answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.plan.nodes import PlanNode, Scan, columns
from circuits.plan.rewrite.nullability import is_nullable
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.runtime.graph import Graph
from circuits.runtime.operators.join import JoinOptions
from circuits.types.codecs.codec import NULL, Codecs
from dbsp_wcoj import ZSet
from tests.circuits.runtime.test_operators import LAW
from tests.generators.plans import RELATIONS, History, decode, plans
from tests.oracles.naive_plan import evaluate_plan

NOT_NULL_RELATIONS = {
    name: tuple(replace(field, nullable=False) for field in columns)
    for name, columns in RELATIONS.items()
}
REPLACEMENT = 5  # for NULL, in rows


def declare_not_null(plan: PlanNode) -> PlanNode:
    """Return the plan over the same relations, with all columns declared not null."""
    if isinstance(plan, Scan):
        return Scan(plan.relation, NOT_NULL_RELATIONS[plan.relation])
    changed = {}
    for field in fields(plan):
        value = getattr(plan, field.name)
        if isinstance(value, PlanNode):
            changed[field.name] = declare_not_null(value)
        elif field.name == "inputs":
            changed[field.name] = tuple(map(declare_not_null, value))
    return replace(plan, **changed)


def without_null(deltas: dict[str, ZSet]) -> dict[str, ZSet]:
    return {
        name: ZSet.from_columns([np.where(c == NULL, REPLACEMENT, c) for c in z.columns], z.weights)
        for name, z in deltas.items()
    }


def lists_without_null(history: History) -> dict[str, list]:
    return {
        name: [tuple(REPLACEMENT if value is None else value for value in row) for row in rows]
        for name, rows in history.lists().items()
    }


@settings(LAW, max_examples=150)
@given(st.data())
def test_declaring_columns_not_null_changes_no_answer_and_they_are_never_null(data):
    plan = declare_not_null(data.draw(plans()))
    rewritten = rewrite_plan(plan)
    graph = Graph(Codecs(), JoinOptions(), lambda: 0.0)
    for name, columns_of_relation in NOT_NULL_RELATIONS.items():
        graph.add_input(name, columns_of_relation)
    graph.add_view("view", rewritten)
    history = History()
    total = ZSet.empty(len(plan.fields))
    for _ in range(data.draw(st.integers(1, 3))):
        step = graph.prepare(without_null(history.change(data.draw)))
        step.commit()
        total += step.deltas[graph.views["view"]]
        expected = evaluate_plan(plan, lists_without_null(history))
        rows = decode(total)
        assert rows == Counter({row: weight for row, weight in expected.items() if weight})
        for place, column in enumerate(columns(plan)):
            for may_be_null in (plan.fields[place].nullable, is_nullable(rewritten, column)):
                assert may_be_null or all(row[place] is not None for row in rows)
