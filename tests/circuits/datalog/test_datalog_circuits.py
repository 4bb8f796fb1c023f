"""Maintained Datalog: the cases in steps and as one-shot queries, and programs under changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_datalog
from tests.circuits.datalog.test_datalog_plan import QUERIES, UNTYPED, final_state
from tests.generators.datalog_programs import DATABASE, PROGRAMS, SCHEMA
from tests.oracles.datalog_extenders import answers
from tests.oracles.naive_datalog import evaluate_program
from tests.support.shared_data import needs_cases
from tests.support.tables import bag_of

Row = tuple[Any, ...]
CASES = [case for case in QUERIES if case.values[0]["name"] != UNTYPED]


def arrow(fields: Any) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in fields])


def table(schema: pa.Schema, changes: list[tuple[Row, int]]) -> pa.Table:
    columns = list(zip(*(row for row, _ in changes), strict=True))
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    weights = pa.array([weight for _, weight in changes], pa.int64())
    return pa.table([*arrays, weights], names=[*schema.names, "weight"])


def rows(delta: pa.Table) -> Counter[Row]:
    *columns, weights = (column.to_pylist() for column in delta.columns)
    tuples = zip(*columns, strict=True) if columns else [()] * len(weights)
    return Counter(dict(zip(tuples, weights, strict=True)))


def run_case(case: dict[str, Any]) -> tuple[Circuit, list[Counter[Row]]]:
    """Return the circuit of a case after its last step, and the delta of the answer at each."""
    fields, database = final_state(case)
    schemas = {name: arrow(columns) for name, columns in fields.items()}
    circuit = compile_datalog(case["query"], schemas, materialize=True)
    unchanged = set(schemas) - {r["name"] for r in case["relations"]}
    unchanged -= {change["rel"] for step in case["steps"] for change in step["deltas"]}
    deltas = []
    for number, step in enumerate(case["steps"]):
        changes: dict[str, list[tuple[Row, int]]] = {}
        for change in step["deltas"]:
            row = tuple(change["tuple"])
            changes.setdefault(change["rel"], []).append((row, change["weight"]))
        if number == 0:
            for name in unchanged:
                changes[name] = list(database[name].items())
        tables = {name: table(schemas[name], rows) for name, rows in changes.items() if rows}
        deltas.append(rows(circuit.step(tables)["Q"]))
    return circuit, deltas


@needs_cases
@pytest.mark.parametrize("case", CASES)
def test_a_case_is_exact_at_every_step_and_in_a_one_shot_query(case):
    circuit, deltas = run_case(case)
    expected = {tuple(row) for row in case["expected"]["result"]}
    total: Counter[Row] = Counter()
    for delta, step in zip(deltas, case["steps"], strict=True):
        if "sum-even?" not in case["query"] and "oracle_delta_set" in step:
            assert delta == Counter({tuple(r): w for r, w in step["oracle_delta_set"]})
        total.update(delta)
    assert {row: weight for row, weight in total.items() if weight} == dict.fromkeys(expected, 1)
    assert set(rows(circuit.views["Q"])) == expected
    one_shot = case["query"].replace("Q(", "OneShot(", 1)
    assert set(rows(circuit.query(one_shot))) == expected
    if "aggregate" not in case["features"]:
        relations = {name: list(rows(circuit.views[name])) for name in (*circuit.inputs, "Q")}
        assert answers(one_shot, relations) == expected


@settings(max_examples=120)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_a_program_has_the_rows_of_its_models_after_every_step(title, data):
    text = PROGRAMS[title]
    schemas = {name: arrow(fields) for name, fields in SCHEMA.items()}
    circuit = compile_datalog(text, schemas)
    state = {name: set() for name in SCHEMA}
    totals = {head: Counter() for head in circuit.outputs}
    for _ in range(3):
        tables = {}
        for name, universe in DATABASE.items():
            changed = data.draw(st.lists(st.sampled_from(universe), max_size=4, unique=True))
            changes = [(row, -1 if row in state[name] else 1) for row in changed]
            state[name].symmetric_difference_update(changed)
            if changes:
                tables[name] = table(schemas[name], changes)
        for head, delta in circuit.step(tables).items():
            totals[head].update(rows(delta))
        expected = evaluate_program(
            text, {name: sorted(present) for name, present in state.items()}
        )
        for head, total in totals.items():
            assert {r: w for r, w in total.items() if w} == dict.fromkeys(expected[head], 1), text


def least_costs(edges: Counter[Row], shortcuts: Counter[Row]) -> dict[int, int]:
    """Return d of the next test: each value is the least one of any alternative, by iteration."""
    costs: dict[int, int] = {}
    for _ in range(20):
        new = [(x, y) for x, y in +edges] + [
            (x, cost)
            for x, y in +edges
            for cost in (
                *([costs[y] + 1] if y in costs else []),
                *(v + 1 for a, v in +shortcuts if a == y and v > 1),
                5,
            )
        ]
        costs = {x: min(cost for key, cost in new if key == x) for x, _ in new}
    return costs


@given(
    st.lists(
        st.tuples(st.sampled_from("es"), st.integers(0, 3), st.integers(0, 3), st.booleans()),
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_alternatives_may_bind_one_variable_to_a_minimum_and_to_a_column(changes):
    text = (
        "d(x, min(v)) :- e(x, v). "
        "d(x, min(v + 1)) :- e(x, y), or(d(y, v) ; and(s(y, v), v > 1) ; v = 4)."
    )
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    circuit = compile_datalog(text, {"e": schema, "s": schema}, materialize=True)
    state: dict[str, Counter[Row]] = {"e": Counter(), "s": Counter()}
    for name, x, y, is_insert in changes:
        weight = 1 if is_insert else -state[name][x, y]
        state[name][x, y] += weight
        if weight:
            circuit.step({name: table(schema, [((x, y), weight)])})
        expected = least_costs(state["e"], state["s"])
        assert rows(circuit.views["d"]) == Counter({row: 1 for row in expected.items()})


@pytest.mark.parametrize("cost", ["c * 0.5", "0.5 * c", "c / 2.0", "0.5e0 * c"])
def test_a_minimum_may_pass_on_its_value_times_a_decimal_constant(cost):
    circuit = compile_datalog(
        f"d(x, min(c)) :- s(x, c). d(y, min({cost})) :- d(x, c), e(x, y).",
        {"s": "x bigint, c double", "e": "x bigint, y bigint"},
    )
    step = circuit.step(
        {"s": [{"x": 1, "c": 8.0}], "e": [{"x": 1, "y": 2}, {"x": 2, "y": 3}, {"x": 1, "y": 3}]}
    )
    assert bag_of(step["d"]) == {(1, 8.0): 1, (2, 4.0): 1, (3, 2.0): 1}
