"""Large steps free the deltas that nobody reads any more: less memory, the same results."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import circuits.runtime.graph
from circuits import compile_sql
from circuits.runtime.operators.linear import NegateOperator
from tests.circuits.test_parallel_steps import outcome, state_of
from tests.support.random_sql import compile_case, deltas, draw_case

EDGE = {"e": "src bigint not null, dst bigint not null"}
VIEWS = """
    CREATE VIEW pairs AS SELECT x.src, y.dst FROM e x JOIN e y ON y.src = x.dst AND y.dst > x.src;
    CREATE VIEW ends AS SELECT count(*) AS n FROM (SELECT DISTINCT src, dst FROM pairs) p
        JOIN e ON e.src = p.src AND e.dst = p.dst;
"""


def released_steps():
    return patch.object(circuits.runtime.graph, "MIN_PARALLEL_ROWS", 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**40), st.sampled_from([1, 2]))
def test_random_sql_gives_the_same_with_released_deltas(seed, threads):
    case = draw_case(seed)
    plain = compile_case(case, materialize=True, threads=1)
    released = compile_case(case, materialize=True, threads=threads)
    for changes, now in zip(case.steps, case.times, strict=True):
        expected = outcome(plain, deltas(changes), now=now)
        with released_steps():
            assert outcome(released, deltas(changes), now=now) == expected
        assert state_of(released) == state_of(plain)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_step_keeps_only_the_deltas_that_are_needed_after_it(threads):
    circuit = compile_sql(VIEWS, EDGE, threads=threads)
    edges = pa.table({"src": [1, 2, 3, 1, 2], "dst": [2, 3, 4, 3, 4]})
    step = circuit.prepare({"e": edges})
    kept = sum(len(delta) > 0 for delta in step.graph_step.deltas)
    step.abandon()
    with released_steps():
        step = circuit.prepare({"e": edges})
    graph, left = step.graph_step.graph, step.graph_step.deltas
    filled = {position for position, delta in enumerate(left) if len(delta)}
    inputs = {position for position, node in enumerate(graph.nodes) if node.operator is None}
    assert filled <= {*graph.views.values(), *inputs}
    assert len(filled) < kept
    assert step.outputs["ends"].to_pylist() == [{"n": 2, "weight": 1}]


def test_missing_deletions_are_counted_although_deltas_are_released():
    circuit = compile_sql(VIEWS, EDGE)
    circuit.step({"e": pa.table({"src": [1, 2], "dst": [2, 3]})})
    changes = pa.table({"src": [1, 9, 5], "dst": [2, 9, 6], "weight": [-1, -1, 1]})
    with released_steps():
        step = circuit.prepare({"e": changes})
    assert step.missing_deletions == {"e": 1}


def test_a_delta_with_negative_weights_is_freed():
    views = """CREATE VIEW lonely AS SELECT x.src FROM e x
        WHERE NOT EXISTS (SELECT 1 FROM e y WHERE y.src = x.dst)"""
    circuit = compile_sql(views, EDGE)
    with released_steps():
        step = circuit.prepare({"e": pa.table({"src": [1, 2, 3], "dst": [2, 3, 4]})})
    graph, left = step.graph_step.graph, step.graph_step.deltas
    assert any(isinstance(node.operator, NegateOperator) for node in graph.nodes)
    filled = {position for position, delta in enumerate(left) if len(delta)}
    inputs = {position for position, node in enumerate(graph.nodes) if node.operator is None}
    assert filled <= {*graph.views.values(), *inputs}
    assert step.outputs["lonely"].to_pylist() == [{"src": 3, "weight": 1}]
