"""A recursion over grouped edges has the rows and the state of one over sorted edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_datalog
from circuits.inputs import encoded_inputs
from circuits.runtime import graph as graph_module
from circuits.runtime import nested_circuit
from dbsp_wcoj import ZSet
from dbsp_wcoj import zset as zset_module
from dbsp_wcoj.execution import chain_product
from dbsp_wcoj.storage import grouped_rows
from tests.circuits.datalog.test_datalog_circuits import rows
from tests.circuits.runtime.test_first_derivations import LAW, trace_contents

EDGES = pa.schema([pa.field("src", pa.int64(), False), pa.field("dst", pa.int64(), False)])
NODES = pa.schema([pa.field("n", pa.int64(), False)])
SCHEMAS = {"e": EDGES, "f": EDGES, "d": NODES}
REACHED = "r(y) :- e(x, y), x < 2. r(y) :- r(x), e(x, y)."
GROUPED = [
    REACHED,
    "r(x) :- d(x). r(y) :- r(x), e(x, y).",
    "r(x) :- d(x). r(y) :- e(x, y), r(x). s(x) :- d(x), x < 2. s(y) :- s(x), e(x, y).",
    "r(y) :- e(x, y), x < 2, y > 0. r(y) :- r(x), e(x, y). n(count() as k) :- r(x).",
    "p(x, y) :- e(x, y), x < 2. p(x, z) :- p(x, y), e(y, z).",
    "c(x, min(x)) :- d(x). c(y, min(k)) :- c(x, k), e(x, y).",
    "c(x, min(0)) :- d(x). c(y, min(k + 1)) :- c(x, k), e(x, y), k < 5.",
    "a(x) :- d(x). b(y) :- a(x), e(x, y). a(y) :- b(x), f(x, y). b(y) :- b(x), f(x, y).",
    "r(x) :- d(x). r(y) :- r(x), e(x, y). r(y) :- r(x), f(x, y).",
]
ONE_OF_TWO = "r(x) :- d(x). r(x) :- r(x), e(x, _). r(y) :- r(x), f(x, y)."
OTHERS = [
    "r(x) :- d(x). r(x) :- r(y), e(x, y).",
    "r(x) :- d(x). r(y) :- r(x), e(x, y), f(x, y).",
    "r(x) :- d(x). r(y) :- r(x), e(x, y), r(y).",
    "r(x) :- d(x). r(y) :- r(x), e(x, y), y < x.",
    "r(x) :- d(x). r(y) :- r(x), e(x, y). s(x, z) :- e(x, y), e(y, z).",
    "p(x, y) :- e(x, y). p(x, z) :- p(x, y), e(y, z).",
]


@contextmanager
def grouping(least: int = 1) -> Iterator[list[int]]:
    """Group the rows of inputs with at least so many rows; yield how many were grouped."""
    calls: list[int] = []
    of = grouped_rows.GroupedPairs.of

    def count(first: Any, second: Any) -> Any:
        calls.append(len(first))
        return of(first, second)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoded_inputs, "MIN_UNSORTED_ROWS", 1)
        patch.setattr(graph_module, "MIN_PAIRS", least)
        patch.setattr(grouped_rows, "MIN_PAIRS_PER_NUMBER", 0)
        patch.setattr(grouped_rows.GroupedPairs, "of", staticmethod(count))
        yield calls


def circuit_of(rules: str, **options: Any) -> Circuit:
    schemas = {name: schema for name, schema in SCHEMAS.items() if f"{name}(" in rules}
    return compile_datalog(rules, schemas, **options)


def table_of(name: str, changes: list[tuple[tuple[int, ...], int]], weighted: bool) -> pa.Table:
    schema = SCHEMAS[name]
    columns = [
        pa.array(column, pa.int64()) for column in zip(*[r for r, _ in changes], strict=True)
    ]
    result = pa.Table.from_arrays(columns, schema=schema)
    return result.append_column("weight", pa.array([w for _, w in changes])) if weighted else result


NODE = st.integers(0, 5)
ROWS = {"e": st.tuples(NODE, NODE), "f": st.tuples(NODE, NODE), "d": st.tuples(NODE)}


def draw_change(circuit: Circuit, total: dict[str, Counter], draw: Any, first: bool) -> Any:
    """Draw rows to insert, in any order and several times; in later steps also rows to delete."""
    tables = {}
    for name in circuit.inputs:
        drawn = draw(st.lists(ROWS[name], max_size=12 if name != "d" else 2))
        present = sorted(total[name].elements())
        deleted = [] if first or not present else draw(st.lists(st.sampled_from(present)))
        deleted = list((Counter(deleted) & total[name]).elements())
        total[name].update(drawn)
        total[name].subtract(deleted)
        changes = [(row, 1) for row in drawn] + [(row, -1) for row in deleted]
        if changes:
            tables[name] = table_of(name, changes, bool(deleted))
    return tables


@settings(LAW, max_examples=150)
@given(st.sampled_from([*GROUPED, ONE_OF_TWO, *OTHERS]), st.data())
def test_deltas_and_state_equal_those_over_sorted_edges(rules: str, data: st.DataObject) -> None:
    threads = data.draw(st.sampled_from([1, 2]))
    by_group, sorted_ = (circuit_of(rules, threads=threads) for _ in range(2))
    total = {name: Counter() for name in SCHEMAS}
    for step in range(4):
        tables = draw_change(by_group, total, data.draw, first=not step)
        expected = {head: rows(delta) for head, delta in sorted_.step(tables).items()}
        with grouping(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(zset_module, "MIN_PAIRS", data.draw(st.sampled_from([1, 1000])))
            if data.draw(st.booleans()):
                patch.setattr(nested_circuit, "MIN_UNSORTED_ROWS", 0)
                patch.setattr(chain_product, "MIN_DELTA_ROWS", 1)
                patch.setattr(chain_product, "MAX_READ_ROWS_PER_DELTA_ROW", 1000)
            if data.draw(st.booleans()):
                by_group.prepare(tables).abandon()
            deltas = by_group.step(tables)
        assert {head: rows(delta) for head, delta in deltas.items()} == expected
        if data.draw(st.booleans()):
            assert trace_contents(by_group) == trace_contents(sorted_)
    assert trace_contents(by_group) == trace_contents(sorted_)


def random_edges(seed: int, count: int = 400) -> pa.Table:
    edges = np.random.default_rng(seed).integers(0, 60, (2, count))
    return pa.Table.from_arrays([pa.array(column) for column in edges], schema=EDGES)


@pytest.mark.parametrize("rules", GROUPED)
def test_the_first_edges_are_grouped_and_later_ones_sorted(rules: str) -> None:
    circuit = circuit_of(rules, threads=1)
    tables = {name: random_edges(3) for name in circuit.inputs if name != "d"}
    if "d" in circuit.inputs:
        tables["d"] = pa.table([pa.array([0, 7])], schema=NODES)
    with grouping() as calls:
        circuit.step(tables)
        assert calls == [400] * len([name for name in tables if name != "d"])
        circuit.step({"e": random_edges(4)})
        assert calls == [400] * len([name for name in tables if name != "d"])


@pytest.mark.parametrize("rules", OTHERS)
def test_edges_whose_order_an_operator_needs_are_sorted(rules: str) -> None:
    circuit = circuit_of(rules, threads=1)
    with grouping() as calls:
        circuit.step({"e": random_edges(3), **({"f": random_edges(4)} if "f(" in rules else {})})
    assert calls == []


def test_few_edges_weighted_edges_and_edges_after_others_are_sorted() -> None:
    weights = pa.array([2] * 400)
    for table, least in (
        (random_edges(3), 401),
        (random_edges(3).append_column("weight", weights), 1),
    ):
        circuit = circuit_of(REACHED)
        with grouping(least) as calls:
            circuit.step({"e": table})
        assert calls == []
    circuit = circuit_of("r(x) :- d(x). r(y) :- r(x), e(x, y).")
    with grouping() as calls:
        circuit.step({"d": pa.table([pa.array([0])], schema=NODES)})
        assert circuit.step({"e": random_edges(3)})["r"].num_rows > 30
    assert calls == []


def test_the_edges_are_sorted_when_a_later_step_reads_them() -> None:
    circuit = circuit_of("r(x) :- d(x). r(y) :- r(x), e(x, y).", materialize=["r"])
    edges = random_edges(3)
    with grouping():
        circuit.step({"e": edges, "d": pa.table([pa.array([59])], schema=NODES)})
    trace = circuit.graph.relations.traces["e"]
    assert trace.deferred is not None
    circuit.step({"d": pa.table([pa.array([0, 1])], schema=NODES)})
    assert trace.deferred is None
    assert trace.to_zset() == ZSet.from_columns([column.to_numpy() for column in edges.columns])
    other = circuit_of("r(x) :- d(x). r(y) :- r(x), e(x, y).", materialize=["r"])
    other.step({"e": edges, "d": pa.table([pa.array([0, 1, 59])], schema=NODES)})
    assert rows(circuit.views["r"]) == rows(other.views["r"])


def test_the_caller_may_write_to_the_memory_of_the_table_after_the_step() -> None:
    columns = np.random.default_rng(3).integers(0, 60, (2, 400))
    edges = pa.Table.from_arrays([pa.array(column) for column in columns], schema=EDGES)
    expected = ZSet.from_columns([*columns.copy()])
    circuit = circuit_of(REACHED)
    with grouping() as calls:
        circuit.step({"e": edges})
    assert calls == [400]
    columns[:] = 0
    assert circuit.graph.relations.traces["e"].to_zset() == expected
