"""Group keys that are functions of other keys are not stored, and no answer changes."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.plan.expressions import Column, Literal
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    CrossJoin,
    Filter,
    Map,
    PlanNode,
    Scan,
)
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.traversal import iter_nodes
from circuits.runtime.graph import Graph
from circuits.runtime.operators.join import JoinOptions
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from dbsp_wcoj import ZSet
from tests.circuits.runtime.test_operators import LAW
from tests.generators.plans import RELATIONS, History, decode
from tests.oracles.naive_plan import evaluate_plan

INT = pa.int64()
A, B = Column(0, INT), Column(1, INT)
PLUS_ONE = call("add", A, Literal(1, INT))
KEYS = [A, B, PLUS_ONE, call("add", PLUS_ONE, B), call("coalesce", A, B), Literal(7, INT)]
CALLS = [
    AggregateCall("count", None, INT, "n"),
    AggregateCall("min", 0, INT, "least"),
    AggregateCall("sum", 1, INT, "total"),
    AggregateCall("count", 0, INT, "values", distinct=True),
]


@st.composite
def grouped(draw) -> Aggregate:
    """An aggregate by columns of r and functions of them, in any order, also repeated."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    expressions = (A, B, *keys)
    names = tuple(f"m{position}" for position in range(len(expressions)))
    rows = Map(Scan("r", RELATIONS["r"]), expressions, names)
    calls = tuple(draw(st.lists(st.sampled_from(CALLS), max_size=3, unique_by=id)))
    return Aggregate(rows, tuple(range(2, len(expressions))), calls)


@st.composite
def plans_with_derived_keys(draw) -> PlanNode:
    """An aggregate, or two of them joined by all keys."""
    left = draw(grouped())
    if draw(st.booleans()):
        return left
    width, keys = len(left.fields), range(len(left.keys))
    equal = draw(st.sampled_from(["eq", "same"]))
    parts = [call(equal, Column(key, INT), Column(width + key, INT)) for key in keys]
    condition = call("and", *parts) if len(parts) > 1 else parts[0]
    return Filter(CrossJoin((left, left)), condition)


@settings(LAW, max_examples=100)
@given(st.data())
def test_groups_by_functions_of_other_keys_are_as_in_the_oracle_after_every_step(data):
    plan = data.draw(plans_with_derived_keys())
    graph = Graph(Codecs(), JoinOptions(), lambda: 0.0)
    for name, fields in RELATIONS.items():
        graph.add_input(name, fields)
    graph.add_view("view", rewrite_plan(plan))
    history = History()
    total = ZSet.empty(len(plan.fields))
    for _ in range(data.draw(st.integers(1, 3))):
        step = graph.prepare(history.change(data.draw))
        step.commit()
        total += step.deltas[graph.views["view"]]
        expected = evaluate_plan(plan, history.lists())
        assert decode(total) == Counter({row: weight for row, weight in expected.items() if weight})


WINDOWS = """SELECT {0} FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY {1}"""


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ("k, window_start, window_end", 2),
        ("window_end, k, window_start", 2),
        ("window_end, k", 2),
        ("k, k", 1),
        ("k, k + 1, (k + 1) * 2", 1),
        ("k + 1, (k + 1) * 2", 1),
        ("k + 1, k * 2", 2),
    ],
)
def test_a_key_that_is_a_function_of_other_keys_is_not_stored(keys, kept):
    circuit = compile_sql(WINDOWS.format("count(*) AS n", keys), {"t": "k bigint, ts timestamp"})
    (plan,) = circuit.spec.plans.values()
    (aggregate,) = [node for node in iter_nodes(rewrite_plan(plan)) if isinstance(node, Aggregate)]
    assert len(aggregate.keys) == kept


def test_a_join_on_a_key_and_a_function_of_it_is_a_join_on_the_key():
    query = WINDOWS.format("window_start, window_end, max(k) AS k", "window_start, window_end")
    circuit = compile_sql(
        f"SELECT x.k, y.k AS other FROM ({query}) x JOIN ({query.replace('max', 'min')}) y "
        "ON x.window_end = y.window_end AND x.window_start = y.window_start",
        {"t": "k bigint, ts timestamp NOT NULL"},
    )
    text = circuit.explain()
    assert "(window_end" not in text and "filter" not in text and "date_add" not in text
