"""Maintained recursive Datalog: after each step a program has the rows of its least model."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_datalog
from circuits.errors import IterationError
from circuits.runtime.incrementalize import incrementalize
from dbsp_wcoj import Formula, WeightOverflowError
from tests.circuits.datalog.test_datalog_circuits import arrow, rows, table
from tests.circuits.test_circuit import half_committed
from tests.generators.recursive_programs import DATABASE, PROGRAMS, SCHEMA
from tests.oracles.naive_datalog import evaluate_program
from tests.support.state_store import Store, assert_same_snapshot, bags, restart, step_and_store

Row = tuple[Any, ...]
SCHEMAS = {name: arrow(fields) for name, fields in SCHEMA.items()}
CLOSURE = PROGRAMS["a closure from the right"]
LAW = settings(
    max_examples=45, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


class Inputs:
    """The rows of the inputs of a program, and random changes of them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.universe = {name: rows for name, rows in DATABASE.items() if f"{name}(" in text}
        self.rows: dict[str, set[Row]] = {name: set() for name in self.universe}

    def circuit(self, **options: Any) -> Circuit:
        return compile_datalog(self.text, {name: SCHEMAS[name] for name in self.rows}, **options)

    def change(self, draw: Any) -> dict[str, Any]:
        """Draw rows to insert or delete; apply and return them."""
        tables = {}
        for name, possible in self.universe.items():
            changed = draw(st.lists(st.sampled_from(possible), max_size=5, unique=True))
            changes = [(row, -1 if row in self.rows[name] else 1) for row in changed]
            self.rows[name].symmetric_difference_update(changed)
            if changes:
                tables[name] = table(SCHEMAS[name], changes)
        return tables

    def as_one_change(self) -> dict[str, Any]:
        """Return all rows as one change."""
        inserts = {name: [(row, 1) for row in sorted(rows)] for name, rows in self.rows.items()}
        return {name: table(SCHEMAS[name], rows) for name, rows in inserts.items() if rows}

    def expected(self) -> dict[str, set[Row]]:
        return evaluate_program(self.text, {name: sorted(rows) for name, rows in self.rows.items()})


def check_law(title: str, data: Any, steps: int) -> None:
    program = Inputs(PROGRAMS[title])
    circuit = program.circuit(formula=data.draw(st.sampled_from(["collapsed", *Formula])))
    totals: dict[str, Counter[Row]] = {head: Counter() for head in circuit.outputs}
    for _ in range(steps):
        tables = program.change(data.draw)
        if data.draw(st.booleans()):
            circuit.prepare(program.as_one_change()).abandon()
        for head, delta in circuit.step(tables).items():
            totals[head].update(rows(delta))
        for head, total in totals.items():
            present = {row: weight for row, weight in total.items() if weight}
            assert present == dict.fromkeys(program.expected()[head], 1), program.text


@LAW
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_a_recursive_program_has_the_rows_of_its_least_model_after_every_step(title, data):
    check_law(title, data, steps=3)


@pytest.mark.slow
@settings(LAW, max_examples=1000)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_recursive_programs_have_the_rows_of_their_least_models_after_many_steps(title, data):
    check_law(title, data, steps=8)


@settings(LAW, max_examples=20)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_many_steps_equal_one_step_and_the_evaluation_of_the_graph(title, data):
    program = Inputs(PROGRAMS[title])
    by_steps, at_once = (program.circuit(materialize=True) for _ in range(2))
    for _ in range(3):
        by_steps.step(program.change(data.draw))
    at_once.step(program.as_one_change())
    for head in by_steps.outputs:
        assert rows(by_steps.views[head]) == rows(at_once.views[head])
    assert all(
        trace.is_empty or (trace.to_zset().weights > 0).any() or not len(trace.to_zset())
        for trace in by_steps.graph.traces.values()
    )
    graph = incrementalize(
        by_steps.plans, {n: s.fields for n, s in by_steps.inputs.items()}, codecs=by_steps.codecs
    )
    inputs = {name: by_steps._state.integrals[name].total for name in by_steps.inputs}
    for head, evaluated in graph.evaluate(inputs).items():
        assert evaluated == by_steps._state.integrals[head].total


@settings(LAW, max_examples=20)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_a_one_shot_query_of_a_recursive_program_equals_the_view(title, data):
    program = Inputs(PROGRAMS[title])
    circuit = program.circuit(materialize=True)
    for _ in range(2):
        circuit.step(program.change(data.draw))
    head = circuit.outputs[-1]
    query = program.text
    for name in circuit.outputs:
        query = re.sub(rf"\b{name}\(", f"own_{name}(", query)
    last = list(compile_datalog(query, {n: SCHEMAS[n] for n in program.rows}).outputs)[-1]
    assert rows(circuit.query(query)) == rows(circuit.views[last.removeprefix("own_")]), head


@settings(LAW, max_examples=20)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_a_recursive_view_that_is_restarted_equals_one_that_never_stopped(title, data):
    program = Inputs(PROGRAMS[title])
    circuit = program.circuit(materialize=data.draw(st.booleans()))
    steady = Circuit(circuit.spec)
    store = Store(data.draw(st.integers(0, 99)))
    for _ in range(4):
        tables = program.change(data.draw)
        assert step_and_store(circuit, store, tables) == bags(steady.step(tables))
        match data.draw(st.integers(0, 2)):
            case 0:
                circuit = restart(circuit, store)
            case 1:
                snapshot = pickle.loads(pickle.dumps(circuit.snapshot()))
                circuit.step(program.as_one_change())
                circuit.restore(snapshot)
                circuit = restart(circuit, store)
        assert_same_snapshot(circuit, steady)


def ring(n: int, *, first: int = 0) -> list[Row]:
    return [(first + k, first + (k + 1) % n) for k in range(n)]


def edge_changes(edges: list[Row], weight: int) -> dict[str, Any]:
    return {"e": table(SCHEMAS["e"], [(edge, weight) for edge in edges])}


def test_a_cycle_that_nothing_outside_derives_is_deleted_in_one_step():
    circuit = Inputs("r(x) :- d(x). r(y) :- r(x), e(x, y).").circuit(materialize=True)
    circuit.step(edge_changes([*ring(50, first=1), (0, 1)], 1))
    circuit.step({"d": table(SCHEMAS["d"], [((0,), 1)])})
    assert circuit.views["r"].num_rows == 51
    deleted = circuit.step(edge_changes([(0, 1)], -1))["r"]
    assert rows(deleted) == Counter({(n,): -1 for n in range(1, 51)})
    assert circuit.views["r"].num_rows == 1


def test_a_chain_is_as_long_as_the_iterations_allow():
    circuit = Inputs(CLOSURE).circuit(max_iterations=20)
    assert circuit.step(edge_changes([(n, n + 1) for n in range(20)], 1))["tc"].num_rows == 210
    with pytest.raises(IterationError, match="after 20 iterations"):
        circuit.step(edge_changes([(20, 21)], 1))


def test_a_one_shot_query_iterates_as_often_as_its_circuit():
    for iterations in (19, 20):
        circuit = Inputs("all(x, y) :- e(x, y).").circuit(
            materialize=True, max_iterations=iterations
        )
        circuit.step(edge_changes([(n, n + 1) for n in range(20)], 1))
        if iterations == 20:
            assert circuit.query(CLOSURE).num_rows == 210
        else:
            with pytest.raises(IterationError, match="after 19 iterations"):
                circuit.query(CLOSURE)


def test_a_recursion_that_does_not_converge_is_refused_and_changes_nothing():
    text = "n(x) :- d(x). n(x + 1) :- n(x), on(). on() :- e(1, 1)."
    circuit = Inputs(text).circuit(max_iterations=50, materialize=True)
    circuit.step({"d": table(SCHEMAS["d"], [((5,), 1)])})
    before = circuit.snapshot()
    with pytest.raises(IterationError, match=r"recursion of 'n' still changes 'n' after 50 iter"):
        circuit.step(edge_changes([(1, 1)], 1))
    assert rows(circuit.views["n"]) == Counter({(5,): 1})
    after = circuit.snapshot()
    assert all((before.traces[name][0] == after.traces[name][0]).all() for name in before.traces)
    assert rows(circuit.step({"d": table(SCHEMAS["d"], [((7,), 1)])})["n"]) == Counter({(7,): 1})


def test_a_negative_cycle_of_costs_is_refused():
    circuit = Inputs(PROGRAMS["shortest paths"]).circuit(max_iterations=30)
    costs = [(1, 2, 1), (2, 1, -2)]
    with pytest.raises(IterationError, match="'sp'"):
        circuit.step({
            "d": table(SCHEMAS["d"], [((1,), 1)]),
            "w": table(SCHEMAS["w"], [(row, 1) for row in costs]),
        })  # fmt: skip


def test_an_error_within_an_iteration_changes_nothing():
    text = "n(x) :- d(x). n(x * x) :- n(x), x > 1."
    circuit = Inputs(text).circuit(materialize=True)
    circuit.step({"d": table(SCHEMAS["d"], [((1,), 1)])})
    with pytest.raises(Exception, match=r"overflow|int64"):
        circuit.step({"d": table(SCHEMAS["d"], [((3,), 1)])})
    assert rows(circuit.views["n"]) == Counter({(1,): 1})
    for trace in circuit.graph.traces.values():
        for arrangement in trace.arrangements:
            arrangement.spine._check()
    assert rows(circuit.step({"d": table(SCHEMAS["d"], [((0,), 1)])})["n"]) == Counter({(0,): 1})


def test_a_commit_that_breaks_half_way_closes_the_circuit_for_good():
    circuit = Inputs(CLOSURE).circuit()
    circuit.step(edge_changes([(1, 2)], 1))
    half_committed(circuit, edge_changes([(2, 3)], 1))


def test_weights_too_large_to_be_added_up_are_refused():
    circuit = Inputs(CLOSURE).circuit()
    with pytest.raises(WeightOverflowError):
        circuit.step({"e": table(SCHEMAS["e"], [((1, 1), 2**62), ((1, 2), 2**62)])})
    assert rows(circuit.step(edge_changes([(1, 2)], 1))["tc"]) == Counter({(1, 2): 1})


def test_explain_draws_a_nested_circuit_once_and_names_it():
    circuit = Inputs(PROGRAMS["odd and even paths"]).circuit()
    circuit.step(edge_changes([(1, 2), (2, 1)], 1))
    text = circuit.explain()
    assert text.count("recursion of odd, even: odd") == 1
    assert "rows of even so far" in text and "each row once" in text
    assert "recursion" in circuit.explain("mermaid")


def test_a_step_touches_only_what_changes():
    circuit = Inputs(CLOSURE).circuit()
    circuit.step(edge_changes([row for k in range(200) for row in ring(3, first=10 * k)], 1))
    before = sum(circuit.committed.rows)
    circuit.step(edge_changes([(0, 1)], -1))
    assert sum(circuit.committed.rows) - before < 100
