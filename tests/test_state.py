"""State, written step by step and loaded, gives the circuit that never stopped.

The store here has nothing but what a step's state gives: packed runs per arrangement, which it
sums up at random, and the values added to each table, all as plain bytes.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from circuits import (
    Circuit,
    EvaluationError,
    SnapshotError,
    StaleStepError,
    State,
    compile_datalog,
    compile_sql,
)
from circuits.codec import NULL
from dbsp_wcoj import Formula, schedule
from dbsp_wcoj.run import Run
from tests.plans import RELATIONS, History, identity, plans
from tests.sql_generator import SCHEMAS, selects
from tests.tables import EDGE, bag_of, edges, table_of
from tests.test_circuit import half_committed
from tests.test_snapshot import INPUTS, VIEWS, steps
from tests.test_sql_circuits import World

LAW = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
FORMULAS = [formula.value for formula in Formula]


class Store:
    """The state as bytes, one list of runs per arrangement, one of pieces per table."""

    def __init__(self, seed: int = 0) -> None:
        self.runs: dict[str, dict[tuple[int, ...], list[bytes]]] = {}
        self.tables: dict[str, list[tuple[bytes, bytes]]] = {}
        self.lengths: dict[str, int] = {}
        self.rest = "{}"
        self.taken = 0
        self._random = np.random.default_rng(seed)

    def write(self, step) -> None:
        """What a sink does between prepare and commit."""
        state = step.state(self.lengths)
        assert state.runs.keys() <= state.orders.keys()
        runs = {}
        for name, orders in state.orders.items():
            assert not (state.compacted and name in state.compacted and name not in state.runs)
            changed = state.runs.get(name, {})
            assert not changed or set(changed) == set(orders)
            runs[name] = {
                order: self._pieces(state, name, order, changed.get(order)) for order in orders
            }
        self.runs = runs
        for name, (offsets, data) in state.tables.items():
            assert len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == len(data)
            self.tables.setdefault(name, []).append((offsets.tobytes(), data.tobytes()))
            self.lengths[name] = self.lengths.get(name, 0) + len(offsets) - 1
        self.rest = json.dumps([state.steps, state.marks, state.plans])

    def _pieces(self, state, name, order, delta) -> list[bytes]:
        pieces = self.runs.get(name, {}).get(order)
        if pieces is None:
            self.taken += 1
            pieces = [run.packed().tobytes() for run in state.whole(name, order)]
        if delta is not None:
            pieces = [*pieces, delta.packed().tobytes()]
        place = int(self._random.integers(8))
        if name in state.compacted:
            place = 0
        elif place >= len(pieces) - 1:
            return pieces
        summed = Run.sum_of([run_of_bytes(piece) for piece in pieces[place:]])
        return pieces[:place] + ([summed.packed().tobytes()] if summed.rows else [])

    def state(self) -> State:
        count, marks, planned = json.loads(self.rest)
        return State(
            count,
            {
                name: {order: [run_of_bytes(piece) for piece in runs] for order, runs in of.items()}
                for name, of in self.runs.items()
            },
            {
                name: [
                    (np.frombuffer(offsets, np.int64), np.frombuffer(data, np.uint8))
                    for offsets, data in pieces
                ]
                for name, pieces in self.tables.items()
            },
            marks,
            planned,
        )


def run_of_bytes(piece: bytes) -> Run:
    return Run.of_words(np.frombuffer(bytearray(piece), np.int64))


def stored(circuit: Circuit, store: Store, tables) -> dict[str, Counter]:
    """Make a step as a durable sink does; its outputs."""
    step = circuit.prepare(tables)
    store.write(step)
    step.commit()
    return bags(step.outputs)


def bags(tables) -> dict[str, Counter]:
    return {name: bag_of(table) for name, table in tables.items()}


def restarted(circuit: Circuit, store: Store, **changes) -> Circuit:
    definition = pickle.loads(pickle.dumps(replace(circuit.definition, **changes)))
    new = definition.circuit()
    new.load(store.state())
    return new


def same(one, other) -> None:
    """The snapshots are equal."""
    first, second = one.snapshot(), other.snapshot()
    assert (first.fingerprint, first.steps, first.marks) == (
        second.fingerprint,
        second.steps,
        second.marks,
    )
    for parts in ((first.traces, second.traces), (first.tables, second.tables)):
        assert parts[0].keys() == parts[1].keys()
        for name, arrays in parts[0].items():
            for here, there in zip(arrays, parts[1][name], strict=True):
                assert np.array_equal(here, there), name


def tables_of(deltas) -> dict[str, pa.Table]:
    """Z-sets of codes of integers as tables."""
    tables = {}
    for name, zset in deltas.items():
        rows = [[None if v == NULL else v for v in row] for row in zset.rows.T.tolist()]
        tables[name] = table_of(schema_of(name), rows, zset.weights.tolist())
    return tables


def schema_of(name: str) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in RELATIONS[name]])


@LAW
@given(st.data())
def test_a_random_circuit_that_is_restarted_gives_what_it_would_have_given(data):
    plan = identity(data.draw(plans()))
    first = data.draw(st.sampled_from(FORMULAS))
    circuit = Circuit(
        {"view": plan},
        {name: schema_of(name) for name in RELATIONS},
        materialize=data.draw(st.booleans()),
        formula=first,
    )
    steady = circuit.definition.circuit()
    store, history = Store(data.draw(st.integers(0, 99))), History()
    for _ in range(data.draw(st.integers(1, 6))):
        tables = tables_of(history.change(data.draw))
        assert stored(circuit, store, tables) == bags(steady.step(tables))
        match data.draw(st.integers(0, 3)):
            case 0:
                taken = store.taken
                circuit = restarted(circuit, store)
                store.write(circuit.prepare({}))
                assert store.taken == taken, "an arrangement was built or lost"
            case 1:
                circuit = restarted(
                    circuit, store, formula=Formula(data.draw(st.sampled_from(FORMULAS)))
                )
            case 2:
                circuit.prepare(tables).abandon()
        same(circuit, steady)
        assert bags(circuit.views) == bags(steady.views)


@LAW
@given(st.data())
def test_random_sql_that_is_restarted_gives_what_it_would_have_given(data):
    circuit = compile_sql(data.draw(selects()), SCHEMAS)
    steady = circuit.definition.circuit()
    store, world = Store(), World()
    for _ in range(data.draw(st.integers(1, 4))):
        tables = world.change(data.draw)
        assert stored(circuit, store, tables) == bags(steady.step(tables))
        if data.draw(st.booleans()):
            circuit = restarted(circuit, store)
        same(circuit, steady)


@pytest.mark.parametrize("formula", FORMULAS)
def test_all_kinds_of_state_are_carried_over_restarts(formula):
    """Texts, decimals, payloads, groups, extremes, top-k, sets, with another formula at times."""
    steady = compile_sql(VIEWS, INPUTS, materialize=True)
    circuit, store = steady.definition.circuit(), Store()
    for number, tables in enumerate(steps(20, seed=5)):
        assert stored(circuit, store, tables) == bags(steady.step(tables))
        if number % 4 == 3:
            circuit = restarted(circuit, store, formula=Formula(formula))
        elif number % 4 == 1:
            circuit = restarted(circuit, store)
        same(circuit, steady)
        assert bags(circuit.views) == bags(steady.views)
    assert {"text", "decimal 2"} < store.tables.keys()
    assert any(name.startswith("payload") for name in store.tables)


JOINS = """
CREATE VIEW triangles AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
    JOIN e z ON z.src = x.src AND z.dst = y.dst;
CREATE VIEW marked AS SELECT m.node, y.dst FROM mark m JOIN e x ON x.src = m.node
    JOIN e y ON y.src = x.dst;
CREATE VIEW squares AS SELECT count(*) AS n FROM e a JOIN e b ON a.dst = b.src
    JOIN e c ON b.dst = c.src JOIN e d ON c.dst = d.src AND d.dst = a.src
"""
NODES = {"e": EDGE, "mark": pa.schema([("node", pa.int64())])}


def growing(count: int, seed: int, size: int):
    """Skewed edges, a few deletions, some marks: enough for the joins to be planned again."""
    rng = np.random.default_rng(seed)
    known: list[tuple[int, int]] = []
    for _ in range(count):
        sources, targets = rng.integers(0, 9, size).tolist(), rng.integers(0, 4000, size).tolist()
        new = list(zip(sources, targets, strict=True))
        gone = [known.pop(int(rng.integers(len(known)))) for _ in range(min(len(known), 5))]
        known += new
        rows = [*new, *gone]
        yield {
            "e": edges(*rows, weights=[1] * len(new) + [-1] * len(gone)),
            "mark": table_of(NODES["mark"], [(int(rng.integers(9)),)]),
        }


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("formula", FORMULAS)
def test_joins_that_were_planned_again_are_planned_so_after_a_restart(formula, ahead, monkeypatch):
    if not ahead:
        monkeypatch.setattr(schedule, "PLANNED_AHEAD", -1)
    circuit = compile_sql(JOINS, NODES, formula=formula)
    steady = circuit.definition.circuit()
    store = Store()
    planned = set()
    for tables in growing(30, seed=1, size=90):
        assert stored(circuit, store, tables) == bags(steady.step(tables))
        planned.add(store.rest)
        state = store.state()
        circuit = circuit.definition.circuit()
        with monkeypatch.context() as patch:
            patch.setattr(Run, "of", None)  # so that nothing can be built
            circuit.load(state)
            kept = {
                run.address
                for trace in circuit._graph.traces.values()
                for arrangement in trace.arrangements
                for run in arrangement.spine.runs
            }
        given_ = {
            run.address
            for orders in state.traces.values()
            for runs in orders.values()
            for run in runs
        }
        assert kept == given_
        assert circuit.explain().count("rows") == steady.explain().count("rows")
    assert any('"again"' in text for text in planned)


def test_rows_are_arranged_anew_for_a_formula_that_needs_other_orders():
    store = Store()
    circuit = compile_sql(JOINS, NODES)
    changes = list(growing(30, seed=2, size=90))
    for tables in changes[:20]:
        stored(circuit, store, tables)
    others = {f: restarted(circuit, store, formula=f) for f in Formula}
    for tables in changes[20:]:
        expected = bags(circuit.step(tables))
        for other in others.values():
            assert bags(other.step(tables)) == expected
    for other in others.values():
        same(circuit, other)


def test_weights_so_large_that_runs_must_be_one_are_carried_over_a_restart():
    large = 2**62
    circuit = compile_sql("SELECT src, dst FROM link", {"link": EDGE}, materialize=True)
    steady, store = circuit.definition.circuit(), Store()
    compacted = []
    for weight in (large, large - 1, -large, -large, large, 1):
        tables = {"link": edges((1, 2), (3, weight % 97), weights=[weight, 1])}
        step = circuit.prepare(tables)
        compacted.append(bool(step.state(store.lengths).compacted))
        assert stored(circuit, store, tables) == bags(steady.step(tables))
        circuit = restarted(circuit, store)
        same(circuit, steady)
    assert True in compacted and False in compacted


def test_state_is_asked_before_the_step_is_committed():
    circuit = compile_sql(VIEWS, INPUTS)
    first, second = steps(2, seed=4)
    circuit.step(first)
    step, late = circuit.prepare(second), circuit.prepare(second)
    state = step.state({})
    name, orders = next((name, orders) for name, orders in state.orders.items() if orders)
    state.whole(name, orders[0])
    step.commit()
    with pytest.raises(StaleStepError, match="ask before"):
        state.whole(name, orders[0])
    for stale in (step, late):
        with pytest.raises(StaleStepError, match="prepare it again"):
            stale.state({})


def test_lengths_that_a_table_never_had_are_refused():
    step = compile_sql(VIEWS, INPUTS).prepare({})
    with pytest.raises(SnapshotError, match=r"table 'text' has \d+ values, not 1000"):
        step.state({"text": 1000})
    with pytest.raises(SnapshotError, match="table 'other' has 0 values, not 1"):
        step.state({"other": 1})


def test_an_abandoned_step_gives_its_codes_back_and_is_over():
    circuit = compile_sql(VIEWS, INPUTS)
    first, second, third = steps(3, seed=7)
    circuit.step(first)
    before = circuit._graph.holdings.lengths()
    step = circuit.prepare(second)
    state = step.state(before)
    assert state.tables
    step.abandon()
    step.abandon()
    assert circuit._graph.holdings.lengths() == before
    with pytest.raises(StaleStepError, match="abandoned"):
        step.commit()
    with pytest.raises(StaleStepError, match="abandoned"):
        step.state({})
    again = circuit.prepare(second).state(before)
    assert {n: [part.tolist() for part in t] for n, t in again.tables.items()} == {
        n: [part.tolist() for part in t] for n, t in state.tables.items()
    }
    # Another step has got codes since: those of the abandoned one stay.
    one, other = circuit.prepare(second), circuit.prepare(third)
    one.abandon()
    other.commit()
    steady = circuit.definition.circuit()
    steady.step(first)
    steady.step(third)
    tables = next(steps(1, seed=8))
    assert bags(circuit.step(tables)) == bags(steady.step(tables))
    other.abandon()  # which is the state already
    assert bags(circuit.step(tables)) == bags(steady.step(tables))


def test_a_step_that_is_refused_takes_back_the_codes_of_payloads_as_well():
    circuit = compile_sql(
        "SELECT x.s, y.t, x.a + 9223372036854775807 AS z FROM x JOIN y ON x.k = y.k",
        {
            "x": pa.schema([("k", pa.int64()), ("a", pa.int64()), ("s", pa.string())]),
            "y": pa.schema([("k", pa.int64()), ("b", pa.int64()), ("t", pa.string())]),
        },
    )
    y = pa.table({"k": [1], "b": [1], "t": ["t"]})
    circuit.step({"y": y})
    before = circuit._graph.holdings.lengths()
    assert any(name.startswith("payload") for name in before)
    with pytest.raises(EvaluationError):
        circuit.step({"x": pa.table({"k": [1], "a": [1], "s": ["s"]})})
    assert circuit._graph.holdings.lengths() == before


def shuffled(table: pa.Table, rng) -> pa.Table:
    """The same rows in another order and other chunks."""
    table = table.take(rng.permutation(table.num_rows))
    cut = int(rng.integers(table.num_rows + 1))
    return pa.concat_tables([table.slice(cut), table.slice(0, cut)])


def test_rows_that_come_again_have_the_same_digest_also_after_a_restart():
    rng = np.random.default_rng(3)
    circuit, store = compile_sql(VIEWS, INPUTS), Store()
    digests = []
    changes = list(steps(6, seed=11))
    for tables in changes:
        step = circuit.prepare(tables)
        digests.append(step.digests)
        store.write(step)
        step.commit()
    assert len({tuple(one.items()) for one in digests}) == len(digests)
    for circuit_ in (circuit, restarted(circuit, store)):
        for tables, expected in zip(changes, digests, strict=True):
            again = circuit_.prepare({name: shuffled(t, rng) for name, t in tables.items()})
            assert again.digests == expected
            again.abandon()
        other = circuit_.prepare({"person": changes[0]["person"].slice(1)})
        assert other.digests["person"] != digests[0]["person"]
    assert circuit.prepare({"knows": changes[0]["knows"].slice(0, 0)}).digests == {"knows": 0}


LINK = {"link": EDGE}
RULES = "reached(b) :- link(a, b). both(a, b) :- link(a, b), reached(a)."


def loaded_state() -> State:
    circuit, store = compile_datalog(RULES, LINK), Store()
    stored(circuit, store, {"link": edges((1, 2))})
    return store.state()


def test_a_circuit_that_broke_is_whole_again_once_loaded():
    circuit = compile_datalog(RULES, LINK)
    half_committed(circuit, {"link": edges((3, 1))})
    circuit.load(loaded_state())
    assert bag_of(circuit.step({"link": edges((2, 3))})["both"]) == {(2, 3): 1}
    circuit.load(State.empty())
    same(circuit, compile_datalog(RULES, LINK))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: replace(s, traces={}), "the state and the circuit differ in operator"),
        (
            lambda s: replace(s, traces={**s.traces, "another": {}}),
            "the state and the circuit differ in another",
        ),
        (lambda s: replace(s, tables={"payload #99": []}), "differ in payload #99"),
        (lambda s: replace(s, tables={"names": []}), "no table 'names'"),
        (
            lambda s: replace(
                s, tables={"text": [(np.array([0, 1, 2]), np.frombuffer(b"xx", np.uint8))]}
            ),
            "table 'text': string 1 of 2 has code 0 already",
        ),
        (
            lambda s: replace(
                s, tables={"decimal 2": [(np.array([0, 1]), np.frombuffer(b"x", np.uint8))]}
            ),
            "table 'decimal 2': strings of 1 to 1 bytes for rows of 32",
        ),
        (
            lambda s: replace(
                s,
                traces={
                    n: {(0,): next(iter(t.values()))} if n == "relation #3" else t
                    for n, t in s.traces.items()
                },
            ),
            r"trace 'relation #3': order \(0,\) is not a permutation",
        ),
        (
            lambda s: replace(s, plans={"formula": "collapsed", "joins": {"#5": {"again": 1}}}),
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


@pytest.mark.parametrize("carry", [pickle, cloudpickle])
def test_a_definition_can_be_carried_elsewhere(carry):
    circuit = compile_sql(VIEWS, INPUTS, materialize=["total"], outputs=["groups"], parts=3)
    definition = carry.loads(carry.dumps(circuit.definition))
    assert definition == circuit.definition
    new = definition.circuit()
    assert (new.fingerprint, new.fingerprints) == (circuit.fingerprint, circuit.fingerprints)
    tables = next(steps(1, seed=1))
    assert bags(new.step(tables)) == bags(circuit.step(tables))
    assert list(new.views) == ["total"]


def test_fingerprints_say_in_what_two_circuits_differ():
    one = compile_sql(VIEWS, INPUTS)
    other = {
        "view total": compile_sql(VIEWS.replace("'all'", "'one'"), INPUTS),
        "materialized": compile_sql(VIEWS, INPUTS, materialize=["total"]),
    }
    for name, circuit in other.items():
        differing = {n for n, f in circuit.fingerprints.items() if one.fingerprints[n] != f}
        assert differing == {name}
        assert circuit.fingerprint != one.fingerprint
    alike = compile_sql(VIEWS, INPUTS, formula="recursive", parts=2, outputs=["total"])
    assert (alike.fingerprint, alike.fingerprints) == (one.fingerprint, one.fingerprints)
    assert set(one.fingerprints) == {
        "materialized",
        *(f"input {name}" for name in one.inputs),
        *(f"view {name}" for name in one.plans),
    }
