"""A circuit loaded from state that was written step by step equals one that ran on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import (
    Circuit,
    InputOptions,
    Retention,
    SnapshotError,
    StaleStepError,
    State,
    compile_datalog,
    compile_sql,
)
from circuits.circuit_spec import CircuitSpec
from circuits.options import CircuitOptions
from circuits.types.codecs.codec import NULL
from dbsp_wcoj import Formula
from dbsp_wcoj.execution import plan_cache as schedule
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.values.coded_strings import CodedStrings
from tests.circuits.sql.test_sql_circuits import World
from tests.circuits.state.test_snapshot import INPUTS, VIEWS, steps
from tests.circuits.test_circuit import half_committed
from tests.generators.plans import RELATIONS, History, identity, plans
from tests.generators.sql_generator import SCHEMAS, selects
from tests.support.state_store import Store, assert_same_snapshot, bags, restart, step_and_store
from tests.support.tables import EDGE, bag_of, edges, table_of

LAW = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
FORMULAS = [formula.value for formula in Formula]


def tables_of(deltas) -> dict[str, pa.Table]:
    """Convert Z-sets of codes of integers to tables."""
    tables = {}
    for name, zset in deltas.items():
        rows = [[None if v == NULL else v for v in row] for row in zset.rows.T.tolist()]
        tables[name] = table_of(schema_of(name), rows, zset.weights.tolist())
    return tables


def schema_of(name: str) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in RELATIONS[name]])


@LAW
@given(st.data())
def test_a_random_circuit_that_is_restarted_equals_one_that_runs_on(data):
    plan = identity(data.draw(plans()))
    first = data.draw(st.sampled_from(FORMULAS))
    options = CircuitOptions(materialize=data.draw(st.booleans()), formula=first)
    schemas = {name: schema_of(name) for name in RELATIONS}
    circuit = Circuit(CircuitSpec({"view": plan}, schemas, options))
    uninterrupted = Circuit(circuit.spec)
    store, history = Store(data.draw(st.integers(0, 99))), History()
    for _ in range(data.draw(st.integers(1, 6))):
        tables = tables_of(history.change(data.draw))
        assert step_and_store(circuit, store, tables) == bags(uninterrupted.step(tables))
        match data.draw(st.integers(0, 3)):
            case 0:
                full_copies = store.full_copies
                circuit = restart(circuit, store)
                store.write(circuit.prepare({}))
                assert store.full_copies == full_copies, "an arrangement was built or lost"
            case 1:
                circuit = restart(
                    circuit, store, formula=Formula(data.draw(st.sampled_from(FORMULAS)))
                )
            case 2:
                circuit.prepare(tables).abandon()
        assert_same_snapshot(circuit, uninterrupted)
        assert bags(circuit.views) == bags(uninterrupted.views)


@LAW
@given(st.data())
def test_random_sql_that_is_restarted_equals_one_that_runs_on(data):
    circuit = compile_sql(data.draw(selects()), SCHEMAS)
    uninterrupted = Circuit(circuit.spec)
    store, world = Store(), World()
    for _ in range(data.draw(st.integers(1, 4))):
        tables = world.change(data.draw)
        assert step_and_store(circuit, store, tables) == bags(uninterrupted.step(tables))
        if data.draw(st.booleans()):
            circuit = restart(circuit, store)
        assert_same_snapshot(circuit, uninterrupted)


@pytest.mark.parametrize("formula", FORMULAS)
def test_all_kinds_of_state_are_kept_over_restarts(formula):
    """Texts, decimals, row ids, groups, extremes, top-k, sets; some restarts change the formula."""
    uninterrupted = compile_sql(VIEWS, INPUTS, materialize=True)
    circuit, store = Circuit(uninterrupted.spec), Store()
    for number, tables in enumerate(steps(20, seed=5)):
        assert step_and_store(circuit, store, tables) == bags(uninterrupted.step(tables))
        if number % 4 == 3:
            circuit = restart(circuit, store, formula=Formula(formula))
        elif number % 4 == 1:
            circuit = restart(circuit, store)
        assert_same_snapshot(circuit, uninterrupted)
        assert bags(circuit.views) == bags(uninterrupted.views)
    assert {"text", "decimal 2"} < store.dictionaries.keys()
    assert any(name.startswith("row ids") for name in store.dictionaries)


JOINS = """
CREATE VIEW triangles AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
    JOIN e z ON z.src = x.src AND z.dst = y.dst;
CREATE VIEW marked AS SELECT m.node, y.dst FROM mark m JOIN e x ON x.src = m.node
    JOIN e y ON y.src = x.dst;
CREATE VIEW squares AS SELECT count(*) AS n FROM e a JOIN e b ON a.dst = b.src
    JOIN e c ON b.dst = c.src JOIN e d ON c.dst = d.src AND d.dst = a.src
"""
NODES = {"e": EDGE, "mark": pa.schema([("node", pa.int64())])}


def skewed_steps(count: int, seed: int, size: int):
    """Yield skewed edges with a few deletions, so many that the joins are planned again."""
    rng = np.random.default_rng(seed)
    present: list[tuple[int, int]] = []
    for _ in range(count):
        sources, targets = rng.integers(0, 9, size).tolist(), rng.integers(0, 4000, size).tolist()
        new = list(zip(sources, targets, strict=True))
        deleted = [
            present.pop(int(rng.integers(len(present)))) for _ in range(min(len(present), 5))
        ]
        present += new
        rows = [*new, *deleted]
        yield {
            "e": edges(*rows, weights=[1] * len(new) + [-1] * len(deleted)),
            "mark": table_of(NODES["mark"], [(int(rng.integers(9)),)]),
        }


@pytest.mark.thorough
@pytest.mark.parametrize("plans_ahead", [True, False])
@pytest.mark.parametrize("formula", FORMULAS)
def test_plans_of_joins_that_changed_are_kept_over_a_restart(formula, plans_ahead, monkeypatch):
    if not plans_ahead:
        monkeypatch.setattr(schedule, "MAX_JOINS_PER_ATOM_AHEAD", -1)
    circuit = compile_sql(JOINS, NODES, formula=formula)
    uninterrupted = Circuit(circuit.spec)
    store = Store()
    all_plans = set()
    for tables in skewed_steps(30, seed=1, size=90):
        assert step_and_store(circuit, store, tables) == bags(uninterrupted.step(tables))
        all_plans.add(store.other_state)
        state = store.state()
        circuit = Circuit(circuit.spec)
        with monkeypatch.context() as patch:
            patch.setattr(Run, "of", None)  # no run can be built
            circuit.load(state)
            loaded_runs = {
                run.address
                for trace in circuit.graph.traces.values()
                for arrangement in trace.arrangements
                for run in arrangement.spine.runs
            }
        stored_runs = {
            run.address
            for orders in state.traces.values()
            for runs in orders.values()
            for run in runs
        }
        assert loaded_runs == stored_runs
        assert circuit.explain().count("rows") == uninterrupted.explain().count("rows")
    assert any('"again"' in text for text in all_plans)


def test_a_restart_with_another_formula_builds_the_orders_that_it_needs():
    store = Store()
    circuit = compile_sql(JOINS, NODES)
    changes = list(skewed_steps(30, seed=2, size=90))
    for tables in changes[:20]:
        step_and_store(circuit, store, tables)
    others = {f: restart(circuit, store, formula=f) for f in Formula}
    for tables in changes[20:]:
        expected = bags(circuit.step(tables))
        for other in others.values():
            assert bags(other.step(tables)) == expected
    for other in others.values():
        assert_same_snapshot(circuit, other)


def test_weights_that_overflow_unless_runs_are_merged_are_kept_over_a_restart():
    large = 2**62
    circuit = compile_sql("SELECT src, dst FROM link", {"link": EDGE}, materialize=True)
    uninterrupted, store = Circuit(circuit.spec), Store()
    compacted = []
    for weight in (large, large - 1, -large, -large, large, 1):
        tables = {"link": edges((1, 2), (3, weight % 97), weights=[weight, 1])}
        step = circuit.prepare(tables)
        compacted.append(bool(step.state(store.lengths).compacted))
        assert step_and_store(circuit, store, tables) == bags(uninterrupted.step(tables))
        circuit = restart(circuit, store)
        assert_same_snapshot(circuit, uninterrupted)
    assert True in compacted and False in compacted


def test_rules_of_inputs_and_their_watermarks_are_kept_over_restarts():
    orders = pa.schema([("nr", pa.int64()), ("item", pa.string()), ("at", pa.timestamp("s"))])
    circuit = compile_sql(
        "SELECT item, count(*) AS n FROM orders GROUP BY item",
        {"orders": orders},
        input_options={"orders": InputOptions(keys=("nr",), retain=Retention("at", "10 seconds"))},
        materialize=["orders"],
    )
    uninterrupted, store, rng = Circuit(circuit.spec), Store(), np.random.default_rng(2)
    watermarks = set()
    for now in range(0, 60, 3):
        times = (now + rng.integers(-12, 3, 6)).astype("datetime64[s]")
        rows = [(int(nr), f"item {nr % 3}") for nr in rng.choice(20, 6, replace=False)]
        columns = [[nr for nr, _ in rows], [item for _, item in rows], times]
        tables = {"orders": pa.Table.from_arrays([pa.array(c) for c in columns], schema=orders)}
        assert step_and_store(circuit, store, tables) == bags(uninterrupted.step(tables))
        circuit = restart(circuit, store)
        assert_same_snapshot(circuit, uninterrupted)
        watermarks.add(json.dumps(store.state().watermarks))
    assert len(watermarks) > 10


LINK = {"link": EDGE}
RULES = "reached(b) :- link(a, b). both(a, b) :- link(a, b), reached(a)."


_REGISTRY = compile_datalog(RULES, LINK).graph.registry
# The names of the state of the only join, and of the relation with two columns that it reads.
JOIN = next(iter(_REGISTRY.joins))
READ = next(n for n, t in _REGISTRY.traces.items() if n.startswith("relation") and t.arity == 2)


def loaded_state() -> State:
    circuit, store = compile_datalog(RULES, LINK), Store()
    step_and_store(circuit, store, {"link": edges((1, 2))})
    return store.state()


def test_a_broken_circuit_works_again_after_a_load():
    circuit = compile_datalog(RULES, LINK)
    half_committed(circuit, {"link": edges((3, 1))})
    circuit.load(loaded_state())
    assert bag_of(circuit.step({"link": edges((2, 3))})["both"]) == {(2, 3): 1}
    circuit.load(State.empty())
    assert_same_snapshot(circuit, compile_datalog(RULES, LINK))


def strings(offsets: list[int], data: bytes, codes: list[int]) -> CodedStrings:
    return CodedStrings(np.array(offsets), np.frombuffer(data, np.uint8), np.array(codes))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: replace(s, traces={}), "the state and the circuit differ in operator"),
        (
            lambda s: replace(s, traces={**s.traces, "another": {}}),
            "the state and the circuit differ in another",
        ),
        (lambda s: replace(s, dictionaries={"row ids #99": []}), "differ in row ids #99"),
        (lambda s: replace(s, dictionaries={"names": []}), "no dictionary 'names'"),
        (
            lambda s: replace(s, dictionaries={"text": [strings([0, 1, 2], b"xy", [7, 7])]}),
            "dictionary 'text': 2 strings with 2 codes .* load ascending codes",
        ),
        (
            lambda s: replace(s, dictionaries={"decimal 2": [strings([0, 1], b"x", [0])]}),
            "dictionary 'decimal 2': strings of 1 to 1 bytes for rows of 32",
        ),
        (
            lambda s: replace(
                s,
                traces={
                    n: {(0,): next(iter(t.values()))} if n == READ else t
                    for n, t in s.traces.items()
                },
            ),
            rf"trace '{READ}': order \(0,\) is not a permutation",
        ),
        (
            lambda s: replace(s, plans={"formula": "collapsed", "joins": {JOIN: {"again": 1}}}),
            "the plans of the joins cannot be read",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_changes(change, words):
    circuit = compile_datalog(RULES, LINK)
    circuit.step({"link": edges((1, 2))})
    with pytest.raises(SnapshotError, match=words):
        circuit.load(change(loaded_state()))
    assert bag_of(circuit.step({"link": edges((2, 3))})["both"]) == {(2, 3): 1}


def test_a_load_makes_prepared_steps_stale():
    circuit = compile_datalog(RULES, LINK)
    step = circuit.prepare({"link": edges((1, 2))})
    circuit.load(loaded_state())
    step.abandon()
    with pytest.raises(StaleStepError):
        step.commit()
