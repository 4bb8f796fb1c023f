"""Every level of the code prepares a change, and then commits it, or not, in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from circuits import compile_sql
from circuits.plan.nodes import Distinct, Field, Order, Scan, TopK
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.top_k import TopKOperator
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import DeltaQuery, Relations, Trace, ZSet
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.storage.trace import Staged
from tests.support.tables import EDGE, INT, edges

ROWS = ZSet.from_rows([(1, 2), (2, 3)])
E = Scan("e", (Field("src", INT), Field("dst", INT)))
PATHS = "n() :- e(a, b), e(b, c)"


def trace_level() -> tuple[Callable[[], Staged], Callable[[], Any]]:
    trace = Trace(2)
    return lambda: trace.prepare(ROWS), lambda: (trace.rows, trace.version)


def relations_level() -> tuple[Callable[[], Staged], Callable[[], Any]]:
    relations = Relations()
    DeltaQuery(PATHS, relations=relations)
    return lambda: relations.stage({"e": ROWS}), lambda: relations.traces["e"].rows


def query_level() -> tuple[Callable[[], Staged], Callable[[], Any]]:
    query = DeltaQuery(PATHS)
    return lambda: query.prepare({"e": ROWS}), lambda: query.stats.rows_by_run


def operator_level() -> tuple[Callable[[], Staged], Callable[[], Any]]:
    operator = TopKOperator(TopK(E, (0,), (Order(1),), 1), Codecs())

    def prepare() -> Staged:
        _, staged = operator.prepare([ROWS], StepContext(False, Relations().stage({})))
        assert staged is not None
        return staged

    return prepare, lambda: [trace.rows for trace in operator.traces]


def graph_level() -> tuple[Callable[[], Staged], Callable[[], Any]]:
    graph = incrementalize({"view": Distinct(E)}, {"e": E.fields})
    return (
        lambda: graph.prepare({"e": ROWS}),
        lambda: (graph.steps, [trace.rows for trace in graph.traces.values()]),
    )


def circuit_level() -> tuple[Callable[[], Staged], Callable[[], Any]]:
    circuit = compile_sql("SELECT DISTINCT src FROM e", {"e": EDGE}, materialize=True)
    return (
        lambda: circuit.prepare({"e": edges((1, 2), (2, 3))}),
        lambda: (circuit.committed.steps, circuit.views["view"].num_rows),
    )


LEVELS = [
    trace_level,
    relations_level,
    query_level,
    operator_level,
    graph_level,
    circuit_level,
]


@pytest.mark.parametrize("level", LEVELS)
def test_a_prepared_change_has_no_effect_until_it_is_committed(level):
    prepare, state = level()
    before = state()
    staged = prepare()
    assert isinstance(staged, Staged)
    assert len([change.run for change in staged.changes]) >= 1
    assert state() == before
    staged.commit()
    assert state() != before


@pytest.mark.parametrize("level", LEVELS)
def test_an_abandoned_change_leaves_the_state_and_the_next_one_is_committed(level):
    prepare, state = level()
    before = state()
    staged = prepare()
    if level is circuit_level:  # the others have nothing to give up
        staged.abandon()
        staged.abandon()  # again, to no effect
    assert state() == before
    prepare().commit()
    assert state() != before


@pytest.mark.parametrize("level", [level for level in LEVELS if level is not circuit_level])
def test_of_two_prepared_changes_only_the_first_is_committed(level):
    prepare, state = level()
    first, second = prepare(), prepare()
    first.commit()
    after = state()
    with pytest.raises(DbspWcojError, match="prepare it again"):
        second.commit()
    assert state() == after
