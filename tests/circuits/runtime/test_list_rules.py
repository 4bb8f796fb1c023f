"""A recursion whose small iterations run in a compiled loop has the rows and state of any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, StepLimits, compile_datalog
from circuits.errors import IterationError, StepLimitError
from circuits.runtime import nested_circuit
from circuits.runtime.operators import first_derivations
from dbsp_wcoj.execution import list_loop
from dbsp_wcoj.query import Query
from tests.circuits.datalog.test_datalog_circuits import rows, table
from tests.circuits.runtime.test_first_derivations import LAW, trace_contents
from tests.circuits.runtime.test_recursion import SCHEMAS
from tests.generators.recursive_programs import PROGRAMS

CLOSURE = PROGRAMS["a closure from the right"]
LOOPS = [
    CLOSURE,
    PROGRAMS["a closure from the left"],
    PROGRAMS["same generation"],
    PROGRAMS["reachable nodes"],
    "r(x) :- d(x). r(y) :- r(x), e(x, y). r(y) :- r(x), f(y, x).",
    "r(x, y) :- e(x, y). r(x, z) :- r(x, y), f(y, z). r(z, y) :- e(z, x), r(x, y).",
    "r(x, y) :- e(x, y). r(y, z) :- r(x, y), f(x, z). r(z, x) :- r(x, y), f(z, y).",
]
OTHERS = [
    "r(x, y) :- e(x, y). r(y, z) :- f(x, y), e(x, z), r(x, _), d(x).",
    "r(x, y) :- d(x), e(x, y). r(a, b) :- f(a, x), r(x, y), e(b, x). r(y, b) :- r(x, y), f(y, b).",
    "r(x, y) :- e(x, y). r(a, b) :- r(x, y), e(x, a), f(x, b).",
    PROGRAMS["a closure of itself"],
    PROGRAMS["odd and even paths"],
    "r(x) :- d(x). r(y) :- r(x), e(x, y), x < y.",
    "r(x) :- d(x). r(y) :- r(x), e(x, y), f(x, y).",
    "r(x) :- d(x). r(x) :- r(x), e(x, _). r(y) :- r(x), e(x, y).",
    "r(x, y, z) :- w(x, y, z). r(x, y, z) :- r(x, y, a), e(a, z).",
    PROGRAMS["a minimum that nobody reads"],
]


def circuit_of(
    rules: str, *, loop: bool, schemas: Mapping[str, pa.Schema] = SCHEMAS, **options: Any
) -> Circuit:
    schemas = {name: schema for name, schema in schemas.items() if f"{name}(" in rules}
    with pytest.MonkeyPatch.context() as patch:
        if not loop:
            patch.setattr(nested_circuit, "find_list_rules", lambda *arguments: None)
        return compile_datalog(rules, schemas, threads=1, **options)


NODE = st.one_of(st.integers(0, 4), st.sampled_from([-3, 9, None, 2**40]))
#: Numbers that are added to the nodes of an example.
OFFSETS = [0, 10**15, 10**18, -(2**62), 4 - 2**63, 2**63 - 10]
UINT64_OFFSETS = [3, 2**63, 2**64 - 11]
UINT64_SCHEMAS = {
    name: pa.schema([(column, pa.uint64()) for column in schema.names])
    for name, schema in SCHEMAS.items()
}


def row_strategies(offset: int, greatest: int) -> dict[str, st.SearchStrategy[Any]]:
    """Return the rows of each relation, given the offset of the nodes and the greatest node."""
    node = NODE.map(lambda node: None if node is None else min(node + offset, greatest))
    return {name: st.tuples(*[node] * len(schema)) for name, schema in SCHEMAS.items()}


def draw_change(
    schemas: Mapping[str, pa.Schema],
    row: Mapping[str, st.SearchStrategy[Any]],
    total: dict[str, Counter],
    draw: Any,
) -> dict[str, Any]:
    tables = {}
    for name, schema in schemas.items():
        drawn = Counter(draw(st.lists(row[name], max_size=8)))
        present = sorted(total[name], key=str)
        deleted = draw(st.lists(st.sampled_from(present), max_size=4)) if present else []
        drawn.subtract((Counter(deleted) & total[name]).elements())
        total[name].update(drawn)
        total[name] = +total[name]
        changes = [(row, weight) for row, weight in drawn.items() if weight]
        if changes:
            tables[name] = table(schema, changes)
    return tables


@settings(LAW, max_examples=200)
@given(st.sampled_from(LOOPS + OTHERS), st.sampled_from(OFFSETS), st.data())
def test_deltas_and_state_equal_those_without_a_loop(
    rules: str, offset: int, data: st.DataObject
) -> None:
    check_law(rules, SCHEMAS, row_strategies(offset, 2**63 - 1), data)


@settings(LAW, max_examples=60)
@given(st.sampled_from(LOOPS), st.sampled_from(UINT64_OFFSETS), st.data())
def test_deltas_and_state_of_unsigned_numbers_equal_those_without_a_loop(
    rules: str, offset: int, data: st.DataObject
) -> None:
    check_law(rules, UINT64_SCHEMAS, row_strategies(offset, 2**64 - 2), data)


def check_law(
    rules: str,
    schemas: Mapping[str, pa.Schema],
    row: Mapping[str, st.SearchStrategy[Any]],
    data: st.DataObject,
) -> None:
    with_loop = circuit_of(rules, loop=True, schemas=schemas)
    without = circuit_of(rules, loop=False, schemas=schemas)
    inputs = {name: schemas[name] for name in with_loop.inputs}
    total = {name: Counter() for name in inputs}
    for _ in range(3):
        tables = draw_change(inputs, row, total, data.draw)
        expected = {head: rows(delta) for head, delta in without.step(tables).items()}
        with pytest.MonkeyPatch.context() as patch:
            if data.draw(st.booleans()):
                for name in ("MAX_DERIVATIONS", "MAX_ITERATIONS_AT_ONCE", "MIN_TABLE_PLACES"):
                    patch.setattr(list_loop, name, data.draw(st.sampled_from([1, 2, 5, 20])))
                patch.setattr(list_loop, "PLACES_PER_KEY", 2)
                most = data.draw(st.sampled_from([3, 100]))
                patch.setattr(list_loop, "MAX_KNOWN_KEYS", most)
                patch.setattr(first_derivations, "MAX_KNOWN_KEYS", most)
            if data.draw(st.booleans()):
                with_loop.prepare(tables).abandon()
            deltas = with_loop.step(tables)
        assert {head: rows(delta) for head, delta in deltas.items()} == expected
        assert trace_contents(with_loop) == trace_contents(without)


def edges_of(pairs: list[tuple[int, int]]) -> dict[str, Any]:
    return {"e": table(SCHEMAS["e"], [(pair, 1) for pair in pairs])}


@pytest.mark.parametrize("rules", LOOPS)
def test_the_loop_runs_all_iterations_but_the_first(
    rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterated = []
    iterate = nested_circuit._StepExecution.iterate
    monkeypatch.setattr(
        nested_circuit._StepExecution,
        "iterate",
        lambda *arguments: iterated.append(1) or iterate(*arguments),
    )
    circuit = circuit_of(rules, loop=True)
    pairs = [(n, n + 1) for n in range(20)]
    facts = {"e": pairs, "f": pairs, "d": [(n,) for n in range(3)]}
    tables = {n: table(SCHEMAS[n], [(row, 1) for row in facts[n]]) for n in circuit.inputs}
    circuit.step(tables)
    assert iterated == [1]


def find_rules(circuit: Circuit) -> Any:
    return circuit.graph.recursions[0].list_rules


def test_usual_recursions_have_a_loop_and_others_do_not() -> None:
    assert all(find_rules(circuit_of(rules, loop=True)) for rules in LOOPS)
    assert not any(find_rules(circuit_of(rules, loop=True)) for rules in OTHERS)


@pytest.mark.parametrize("iterations", [1, 5, 19, 20])
def test_the_loop_stops_at_the_limit_of_iterations(iterations: int) -> None:
    circuit = circuit_of(CLOSURE, loop=True, max_iterations=iterations, materialize=["tc"])
    chain = edges_of([(n, n + 1) for n in range(20)])
    if iterations == 20:
        assert circuit.step(chain)["tc"].num_rows == 210
    else:
        with pytest.raises(IterationError, match=f"after {iterations} iterations"):
            circuit.step(chain)
        assert circuit.views["tc"].num_rows == 0


def test_the_rows_of_the_loop_count_for_the_limits_of_a_step() -> None:
    chain = edges_of([(n, n + 1) for n in range(60)])
    for loop in (True, False):
        circuit = circuit_of(CLOSURE, loop=loop, limits=StepLimits(max_step_rows=1000))
        with pytest.raises(StepLimitError, match="max_step_rows"):
            circuit.step(chain)
        assert circuit.step(edges_of([(1, 2)]))["tc"].num_rows == 1
    both = [circuit_of(CLOSURE, loop=loop) for loop in (True, False)]
    for circuit in both:
        circuit.step(chain)
    assert both[0].graph.rows == both[1].graph.rows


@pytest.mark.parametrize(
    "text",
    [
        "q(x, z, i) :- d(x, y, i), e(y, z), f(z, x)",
        "q(x, z, i) :- d(x, y, i), e(y, z), f(y, z)",
        "q(x, z, i) :- d(x, y, i), e(x, y), f(y, z)",
        "q(x, z, i) :- d(x, y, i), d(y, z, j)",
        "q(x, z, i) :- d(x, y, i), e(y, z), x < z",
        "q(x, z, i) :- d(x, y, i), e(z, i)",
        "q(x, y, i) :- d(x, y, i), e(y, z)",
        "q(x, z, i) :- d(x, y, i), e(y, z, a)",
        "q(x, z, i) :- d(x, x, i), e(x, z)",
        "q(x, i, z) :- d(x, y, i), e(y, z)",
        "q(x, z, i) :- d(x, y, i), e(y, 5), f(y, z)",
    ],
)
def test_joins_of_another_form_are_no_list_rules(text: str) -> None:
    query = Query.parse(text)
    assert list_loop.find_list_rule(query, "d", query.head) is None
