"""Steps that are prepared and not committed: what they add, abandoning them, digests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from circuits import EvaluationError, SnapshotError, StaleStepError, compile_sql
from circuits.circuit import Circuit
from tests.circuits.state.test_snapshot import INPUTS, VIEWS, steps
from tests.support.state_store import Store, bags, restart, step_and_store


def test_the_runs_before_a_step_cannot_be_read_after_a_load():
    circuit, store = compile_sql(VIEWS, INPUTS), Store()
    first, second = steps(2, seed=4)
    step_and_store(circuit, store, first)
    state = circuit.prepare(second).state({})
    name, orders = next((name, orders) for name, orders in state.orders.items() if orders)
    circuit.load(store.state())
    with pytest.raises(StaleStepError, match="another state was loaded"):
        state.runs_before(name, orders[0])


def test_state_of_a_step_is_read_before_its_commit():
    circuit = compile_sql(VIEWS, INPUTS)
    first, second = steps(2, seed=4)
    circuit.step(first)
    step, other = circuit.prepare(second), circuit.prepare(second)
    state = step.state({})
    name, orders = next((name, orders) for name, orders in state.orders.items() if orders)
    state.runs_before(name, orders[0])
    step.commit()
    with pytest.raises(StaleStepError, match="read them before"):
        state.runs_before(name, orders[0])
    for stale in (step, other):
        with pytest.raises(StaleStepError, match="prepare it again"):
            stale.state({})


def test_lengths_that_a_dictionary_never_had_are_refused():
    step = compile_sql(VIEWS, INPUTS).prepare({})
    with pytest.raises(SnapshotError, match="length 1000 of dictionary 'text' must be"):
        step.state({"text": 1000})
    with pytest.raises(SnapshotError, match="length 1 of dictionary 'other' must be from 0 to 0"):
        step.state({"other": 1})


def test_an_abandoned_step_gives_its_codes_back_and_is_over():
    circuit = compile_sql(VIEWS, INPUTS)
    first, second, third = steps(3, seed=7)
    circuit.step(first)
    before = circuit.graph.registry.lengths()
    step = circuit.prepare(second)
    state = step.state(before)
    assert state.dictionaries
    step.abandon()
    step.abandon()
    assert circuit.graph.registry.lengths() == before
    with pytest.raises(StaleStepError, match="abandoned"):
        step.commit()
    with pytest.raises(StaleStepError, match="abandoned"):
        step.state({})
    repeated = circuit.prepare(second).state(before)
    assert {n: [part.tolist() for part in t] for n, t in repeated.dictionaries.items()} == {
        n: [part.tolist() for part in t] for n, t in state.dictionaries.items()
    }
    # If another step has assigned codes since, those of the abandoned step stay.
    abandoned, other = circuit.prepare(second), circuit.prepare(third)
    abandoned.abandon()
    other.commit()
    steady = Circuit(circuit.spec)
    steady.step(first)
    steady.step(third)
    tables = next(steps(1, seed=8))
    assert bags(circuit.step(tables)) == bags(steady.step(tables))
    other.abandon()  # no effect, because it is committed
    assert bags(circuit.step(tables)) == bags(steady.step(tables))


def test_a_step_that_is_refused_takes_back_the_codes_of_row_ids_as_well():
    circuit = compile_sql(
        "SELECT x.s, y.t, x.a + 9223372036854775807 AS z FROM x JOIN y ON x.k = y.k",
        {
            "x": pa.schema([("k", pa.int64()), ("a", pa.int64()), ("s", pa.string())]),
            "y": pa.schema([("k", pa.int64()), ("b", pa.int64()), ("t", pa.string())]),
        },
    )
    y = pa.table({"k": [1], "b": [1], "t": ["t"]})
    circuit.step({"y": y})
    before = circuit.graph.registry.lengths()
    assert any(name.startswith("row ids") for name in before)
    with pytest.raises(EvaluationError):
        circuit.step({"x": pa.table({"k": [1], "a": [1], "s": ["s"]})})
    assert circuit.graph.registry.lengths() == before


def shuffle(table: pa.Table, rng) -> pa.Table:
    """Return the same rows in another order and other chunks."""
    table = table.take(rng.permutation(table.num_rows))
    cut = int(rng.integers(table.num_rows + 1))
    return pa.concat_tables([table.slice(cut), table.slice(0, cut)])


def test_replayed_rows_have_the_same_digest_also_after_a_restart():
    rng = np.random.default_rng(3)
    circuit, store = compile_sql(VIEWS, INPUTS), Store()
    digests = []
    changes = list(steps(6, seed=11))
    for tables in changes:
        step = circuit.prepare(tables)
        digests.append(step.digests)
        store.write(step)
        step.commit()
    assert len({tuple(digest.items()) for digest in digests}) == len(digests)
    for replaying in (circuit, restart(circuit, store)):
        for tables, expected in zip(changes, digests, strict=True):
            repeated = replaying.prepare({name: shuffle(t, rng) for name, t in tables.items()})
            assert repeated.digests == expected
            repeated.abandon()
        other = replaying.prepare({"person": changes[0]["person"].slice(1)})
        assert other.digests["person"] != digests[0]["person"]
    assert circuit.prepare({"knows": changes[0]["knows"].slice(0, 0)}).digests == {"knows": 0}


def test_an_observer_is_called_after_a_restore_as_before_it():
    circuit = compile_sql("SELECT a FROM r WHERE a > 0", {"r": "a bigint"})
    calls = []
    circuit.observe(lambda *call: calls.append(call))
    circuit.step({"r": [{"a": 1}]})
    calls_before = calls.copy()
    calls.clear()
    circuit.restore(circuit.snapshot())
    circuit.step({"r": [{"a": 2}]})
    assert calls == calls_before != []


def test_a_step_runs_only_operators_whose_inputs_change():
    circuit = compile_sql(
        "CREATE VIEW sums AS SELECT k, sum(x) AS s FROM r WHERE x > 0 GROUP BY k;"
        "CREATE VIEW counts AS SELECT k, count(*) AS n FROM t GROUP BY k;"
        "CREATE VIEW pairs AS SELECT s.k FROM sums s JOIN counts c ON s.k = c.k;",
        {"r": "k bigint, x bigint", "t": "k bigint"},
    )
    kinds: list[str] = []
    circuit.observe(lambda name, kind, views: kinds.append(kind))

    def run(tables: dict) -> list[str]:
        kinds.clear()
        circuit.step(tables)
        return [kind for kind in kinds if kind != "input"]

    # The first step runs all operators, because constants are inserted then.
    assert len(run({})) == len(circuit.graph.nodes) - 2
    assert run({}) == []
    assert run({"t": [{"k": 1}]}) == ["aggregate", "filter", "map", "join"]
    assert run({"r": [{"k": 1, "x": -5}]}) == ["filter"]  # its delta is empty
    assert run({"r": [{"k": 1, "x": 5}]}) == ["filter", "aggregate", "filter", "map", "join"]
    assert len(circuit.graph.rows) == len(circuit.graph.nodes)
