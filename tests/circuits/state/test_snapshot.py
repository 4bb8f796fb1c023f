"""A snapshot, read in another process, gives an equal circuit: equal deltas, equal views."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from circuits import Circuit, SnapshotError, StaleStepError, compile_datalog, compile_sql
from dbsp_wcoj import Trace
from tests.circuits.test_circuit import VIEWS as GRAPH_VIEWS
from tests.circuits.test_circuit import half_committed
from tests.support.tables import EDGE, bag_of, edges, table_of

PERSON = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("city", pa.large_string()),
        ("born", pa.date32()),
        ("money", pa.decimal128(30, 2)),
        ("score", pa.float64()),
    ]
)
KNOWS = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64()), ("how", "string")])
INPUTS = {"person": PERSON, "knows": KNOWS}
VIEWS = """
CREATE VIEW pairs AS
    SELECT p.name AS one, p.city, q.name AS other, q.born, k.how
    FROM person p JOIN knows k ON k.a = p.id JOIN person q ON q.id = k.b;
CREATE VIEW friends AS SELECT id, name, b FROM person LEFT JOIN knows ON a = id AND how = 'friend';
CREATE VIEW cities AS SELECT DISTINCT city FROM person;
CREATE VIEW groups AS
    SELECT city, count(*) AS n, count(DISTINCT name) AS names, sum(money) AS money,
           avg(score) AS score, min(name) AS first, max(born) AS last
    FROM person GROUP BY city;
CREATE VIEW richest AS SELECT name, money FROM person ORDER BY money DESC, name LIMIT 2;
CREATE VIEW ranked AS
    SELECT city, name, dense_rank() OVER w AS place, sum(money) OVER w AS money,
           lag(score) OVER (PARTITION BY name ORDER BY id, score) AS previous
    FROM person WINDOW w AS (PARTITION BY city ORDER BY born);
CREATE VIEW alone AS SELECT name FROM person EXCEPT ALL SELECT one FROM pairs;
CREATE VIEW total AS SELECT count(*) AS n, 'all' AS what FROM pairs;
CREATE VIEW spent AS
    SELECT k.how, sum(p.money) AS money, avg(p.score) AS score, count(*) AS n
    FROM person p JOIN knows k ON k.a = p.id GROUP BY k.how;
"""
NAMES = [None, "", "ann", "bob", "cy", "a name longer than eight bytes", "a name longer"]


def person(rng):
    return (
        int(rng.integers(6)),
        NAMES[rng.integers(len(NAMES))],
        NAMES[rng.integers(4)],
        None if rng.random() < 0.2 else int(rng.integers(9)),
        None if rng.random() < 0.2 else int(rng.integers(-3, 9)) * 10**20,
        [None, float("nan"), -0.0, 0.1, 1e300][rng.integers(5)],
    )


def steps(count, seed):
    """Yield random changes; about a third of them are deletions."""
    rng = np.random.default_rng(seed)
    present = {"person": [], "knows": []}
    for _ in range(count):
        tables = {}
        for name, schema in INPUTS.items():
            rows, weights = [], []
            for _ in range(rng.integers(1, 6)):
                if present[name] and rng.random() < 0.35:
                    rows.append(present[name].pop(rng.integers(len(present[name]))))
                    weights.append(-1)
                    continue
                row = person(rng)
                if name == "knows":
                    how = ["friend", "foe", None][rng.integers(3)]
                    row = (row[0], None if rng.random() < 0.1 else int(rng.integers(6)), how)
                present[name].append(row)
                rows.append(row)
                weights.append(1)
            tables[name] = table_of(schema, rows, weights)
        yield tables


def sample(**options):
    return compile_sql(VIEWS, INPUTS, **{"materialize": True, **options})


def pickled_and_loaded(snapshot):
    """Return the snapshot as another process would read it."""
    return pickle.loads(pickle.dumps(snapshot))


@pytest.mark.parametrize("formula", ["collapsed", "recursive", "flipped"])
@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_new_circuit_continues_from_a_snapshot_as_the_old_one_does(after, formula):
    old = sample()
    changes = list(steps(after + 6, seed=after))
    for tables in changes[:after]:
        old.step(tables)
    snapshot = pickled_and_loaded(old.snapshot())

    new = sample(formula=formula)
    new.step(changes[-1])  # the restore replaces this
    new.restore(snapshot)

    assert new.snapshot().fingerprint == snapshot.fingerprint
    assert {n: bag_of(t) for n, t in new.views.items()} == {
        n: bag_of(t) for n, t in old.views.items()
    }
    for tables in changes[after:]:
        old_deltas, new_deltas = old.step(tables), new.step(tables)
        assert {n: bag_of(t) for n, t in new_deltas.items()} == {
            n: bag_of(t) for n, t in old_deltas.items()
        }
    assert new.views["groups"].num_rows == old.views["groups"].num_rows > 0


def test_a_circuit_returns_to_its_own_snapshot():
    circuit = sample()
    first, second, *others = steps(8, seed=3)
    circuit.step(first)
    snapshot = circuit.snapshot()
    before = {name: bag_of(table) for name, table in circuit.views.items()}
    deltas = circuit.step(second)
    for tables in others:
        circuit.step(tables)
    stale = circuit.prepare(second)

    circuit.restore(snapshot)

    assert {name: bag_of(table) for name, table in circuit.views.items()} == before
    with pytest.raises(StaleStepError):
        stale.commit()
    repeated = circuit.step(second)
    assert {n: bag_of(t) for n, t in repeated.items()} == {n: bag_of(t) for n, t in deltas.items()}


def test_a_snapshot_does_not_change_with_the_circuit_that_it_was_taken_of():
    circuit = sample()
    first, second = steps(2, seed=9)
    circuit.step(first)
    snapshot = circuit.snapshot()
    before = pickle.dumps(snapshot)
    circuit.step(second)
    assert pickle.dumps(snapshot) == before


def test_the_materialized_names_may_be_given_in_any_order():
    text = "CREATE VIEW a AS SELECT src FROM link; CREATE VIEW b AS SELECT dst FROM link"
    old = compile_sql(text, {"link": EDGE}, materialize=["a", "b"])
    old.step({"link": edges((1, 2))})
    new = compile_sql(text, {"link": EDGE}, materialize=["b", "a", "b"])
    new.restore(old.snapshot())
    assert (bag_of(new.views["a"]), bag_of(new.views["b"])) == ({(1,): 1}, {(2,): 1})


def test_a_broken_circuit_works_again_after_a_restore():
    circuit = compile_sql(GRAPH_VIEWS, {"link": EDGE, "mark": pa.schema([("node", pa.int64())])})
    circuit.step({"link": edges((1, 2), (2, 3))})
    snapshot = circuit.snapshot()
    half_committed(circuit, {"link": edges((3, 1))})

    circuit.restore(snapshot)

    assert bag_of(circuit.step({"link": edges((3, 1))})["triangles"]) == {(0,): -1, (3,): 1}


RULES = "reached(b) :- link(a, b). both(a, b) :- link(a, b), reached(a)."
OTHER_CIRCUITS = {
    "another text": lambda: compile_datalog(RULES.replace("both(a, b)", "both(b, a)"), LINK),
    "another input": lambda: compile_datalog(RULES, {**LINK, "mark": EDGE}),
    "another type": lambda: compile_datalog(
        RULES, {"link": pa.schema([("src", pa.int32()), ("dst", pa.int64())])}
    ),
    "other views kept": lambda: compile_datalog(RULES, LINK, materialize=["both"]),
}
LINK = {"link": EDGE}


def assert_refused(circuit: Circuit, snapshot, words: str) -> None:
    """The circuit refuses the snapshot, and still has the edge (1, 2) alone."""
    with pytest.raises(SnapshotError, match=words):
        circuit.restore(snapshot)
    assert bag_of(circuit.step({"link": edges((2, 3))})["both"]) == {(2, 3): 1}


@pytest.mark.parametrize("other", list(OTHER_CIRCUITS))
def test_a_snapshot_of_another_circuit_is_refused_and_nothing_changes(other):
    circuit = compile_datalog(RULES, LINK)
    circuit.step({"link": edges((1, 2))})
    assert_refused(
        circuit, OTHER_CIRCUITS[other]().snapshot(), "compile the text and schemas that it was"
    )


def test_a_snapshot_of_another_format_is_refused_and_nothing_changes():
    circuit = compile_datalog(RULES, LINK)
    circuit.step({"link": edges((1, 2))})
    snapshot = replace(circuit.snapshot(), format=99)
    assert_refused(circuit, snapshot, "has format 99, this version reads 9")


def test_a_snapshot_with_a_missing_or_a_surplus_trace_is_refused():
    circuit = compile_datalog(RULES, LINK)
    circuit.step({"link": edges((1, 2))})
    snapshot = circuit.snapshot()
    name = min(snapshot.traces)
    fewer = {key: trace for key, trace in snapshot.traces.items() if key != name}
    for traces in (fewer, {**snapshot.traces, "another": snapshot.traces[name]}):
        with pytest.raises(SnapshotError, match="and the version that wrote it"):
            circuit.restore(replace(snapshot, traces=traces))
    assert_refused(circuit, replace(snapshot, traces={}), "differ in")


def test_a_restore_that_runs_out_of_memory_leaves_the_circuit_as_it_was(monkeypatch):
    circuit = compile_datalog(RULES, LINK)
    circuit.step({"link": edges((1, 2))})
    empty = compile_datalog(RULES, LINK).snapshot()

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(Trace, "load", fail)
    with pytest.raises(MemoryError):
        circuit.restore(empty)
    assert bag_of(circuit.step({"link": edges((2, 3))})["both"]) == {(2, 3): 1}


def test_the_size_of_a_snapshot_follows_the_rows():
    circuit = compile_sql("SELECT src FROM link", LINK, materialize=True)
    sizes = []
    for start in (0, 1000, 2000):
        circuit.step({"link": edges(*((i, i) for i in range(start, start + 1000)))})
        sizes.append(circuit.snapshot().nbytes)
    assert sizes == [40_000, 80_000, 120_000]
