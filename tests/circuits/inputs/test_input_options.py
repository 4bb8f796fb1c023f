"""The options of inputs, against `tests.oracles.naive_rules`: one change at a time, on dicts.

Random events of a tiny domain go to two inputs with options. After every step the relation, views
over it, the rejected rows, and the watermark are compared. Between the steps, others are abandoned,
and the circuit is replaced by one that is restored from a snapshot or from stored state.
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import (
    Circuit,
    InputOptions,
    InputOptionsError,
    Lateness,
    MissingRowError,
    Retention,
    compile_sql,
)
from tests.circuits.state.test_circuit_state import Store
from tests.oracles.naive_rules import Event, NaiveInput, Row
from tests.support.tables import INT, bag_of

LAW = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
COLUMNS = ("k", "g", "ts")
SCHEMA = pa.schema([pa.field(name, INT, nullable=name != "k") for name in COLUMNS])
INPUTS = {"r": SCHEMA, "s": SCHEMA}
VIEWS = """
CREATE VIEW rows AS SELECT * FROM r;
CREATE VIEW pairs AS SELECT r.k, r.ts, s.ts AS other FROM r JOIN s ON r.k = s.k AND r.g = s.g;
CREATE VIEW groups AS SELECT g, count(*) AS n, max(ts) AS last FROM s GROUP BY g;
"""
KEYED = InputOptions(keys=("k",))
STRICT = InputOptions(strict=True)
RETAINED = InputOptions(retain=Retention("ts", 3))
ALL = [
    InputOptions(),
    KEYED,
    STRICT,
    RETAINED,
    InputOptions(keys=("g", "k")),
    InputOptions(keys=("ts", "k", "g"), strict=True),
    InputOptions(keys=("k",), strict=True),
    InputOptions(keys=("k",), retain=Retention("ts", 3)),
    InputOptions(keys=("k", "ts"), strict=True, retain=Retention("ts", 2)),
    InputOptions(keys=("k",), strict=True, retain=Retention("ts", 0)),
    InputOptions(strict=True, retain=Retention("ts", 2)),
    InputOptions(lateness=Lateness("ts", 2)),
    InputOptions(lateness=Lateness("ts", 0), strict=True),
    InputOptions(keys=("k",), lateness=Lateness("ts", 1)),
    InputOptions(lateness=Lateness("ts", 1), retain=Retention("ts", 3)),
    InputOptions(
        keys=("k", "ts"), strict=True, lateness=Lateness("ts", 2), retain=Retention("ts", 2)
    ),
]


def oracle_of(rules: InputOptions) -> NaiveInput:
    keys = tuple(COLUMNS.index(key) for key in rules.keys)
    lateness, retain = rules.lateness, rules.retain
    time = COLUMNS.index("ts")
    if lateness is not None:
        after = None if retain is None else retain.duration - lateness.duration
        return NaiveInput(keys, rules.strict, time, lateness.duration, True, after)
    if retain is None:
        return NaiveInput(keys, rules.strict)
    return NaiveInput(keys, rules.strict, time, retain.duration)


def table_of(events: list[Event], *, keyed: bool) -> pa.Table:
    arrays = [pa.array([row[i] for row, _, _ in events], INT) for i in range(len(COLUMNS))]
    table = pa.Table.from_arrays(arrays, COLUMNS)
    table = table.append_column("weight", pa.array([w for _, w, _ in events], INT))
    if keyed:
        table = table.append_column("sequence", pa.array([s for _, _, s in events], INT))
    return table


def weights_of(rejections: dict) -> Counter:
    """Return the rejected weights, by reason and row."""
    weights: Counter = Counter()
    for rejection in rejections:
        for row, weight in bag_of(rejection.table).items():
            weights[rejection.reason, row] += weight
    return weights


@dataclass
class CheckedCircuit:
    """A circuit, and the oracles of its inputs."""

    input_options: dict[str, InputOptions]

    def __post_init__(self):
        self.circuit = self.new()
        self.store = Store()
        self.oracles = {name: oracle_of(rules) for name, rules in self.input_options.items()}
        self.totals = {name: Counter() for name in self.circuit.outputs}

    def new(self, formula: str = "collapsed") -> Circuit:
        return compile_sql(
            VIEWS, INPUTS, input_options=self.input_options, materialize=["r"], formula=formula
        )

    def prepare(self, events, watermarks):
        tables = {
            name: table_of(input_events, keyed=bool(self.input_options[name].keys))
            for name, input_events in events.items()
        }
        return self.circuit.prepare(tables, watermarks)

    def step(self, events, watermarks=None):
        watermarks = watermarks or {}
        step = self.prepare(events, watermarks)
        for name, model in self.oracles.items():
            refused = model.step(events.get(name, []), watermarks.get(name))
            assert weights_of(step.rejected.get(name, [])) == refused
        self.store.write(step)
        step.commit()
        for name, table in step.outputs.items():
            for row, weight in bag_of(table).items():
                self.totals[name][row] += weight
        self.check()

    def check(self):
        r, s = self.oracles["r"].rows, self.oracles["s"].rows
        assert bag_of(self.circuit.views["r"]) == nonzero(r)
        assert nonzero(self.totals["rows"]) == nonzero(r)
        pairs: Counter = Counter()
        for (k, g, ts), weight in r.items():
            for (other_k, other_g, other), other_weight in s.items():
                if k == other_k and g == other_g and g is not None:
                    pairs[k, ts, other] += weight * other_weight
        assert nonzero(self.totals["pairs"]) == nonzero(pairs)
        if all(weight >= 0 for weight in s.values()):
            assert nonzero(self.totals["groups"]) == grouped(s)
        watermarks = {
            f"input {name} watermark": model.watermark
            for name, model in self.oracles.items()
            if model.watermark is not None
        }
        assert dict(self.circuit.graph.watermarks) == watermarks


def nonzero(bag: Counter) -> Counter:
    return Counter({row: weight for row, weight in bag.items() if weight})


def grouped(rows: Counter) -> Counter:
    groups: dict = {}
    for (_, g, ts), weight in nonzero(rows).items():
        n, last = groups.get(g, (0, None))
        times = [time for time in (last, ts) if time is not None]
        groups[g] = n + weight, max(times, default=None)
    return Counter({(g, n, last): 1 for g, (n, last) in groups.items()})


def rows(latest: int = 12):
    """Draw rows without a time, or with one of the last six times before ``latest``."""
    time = st.one_of(st.none(), st.integers(max(0, latest - 6), latest))
    return st.tuples(st.integers(0, 2), st.sampled_from([None, 0, 1]), time)


@st.composite
def changes(draw, latest: int, least: int = 0) -> list[Event]:
    """Draw events, each with a sequence of its own; some occur twice."""
    drawn = draw(st.lists(st.tuples(rows(latest), st.sampled_from([1, 1, -1, 2])), max_size=6))
    order = draw(st.permutations(range(len(drawn))))
    events = [(row, w, least + n) for (row, w), n in zip(drawn, order, strict=True)]
    repeated = draw(st.lists(st.sampled_from(events), max_size=2)) if events else []
    return [*events, *repeated]


@LAW
@given(st.data())
def test_every_step_agrees_with_events_taken_one_after_the_other(data):
    rules = {name: data.draw(st.sampled_from(ALL)) for name in INPUTS}
    checked = CheckedCircuit(rules)
    retained = [name for name in INPUTS if rules[name].time_column is not None]
    for number in range(data.draw(st.integers(1, 5))):
        names = data.draw(st.sets(st.sampled_from(["r", "s"])))
        events = {name: data.draw(changes(4 + 2 * number)) for name in sorted(names)}
        watermarks = {}
        if retained and data.draw(st.booleans()):
            watermarks = {data.draw(st.sampled_from(retained)): data.draw(st.integers(0, 14))}
        action = data.draw(
            st.sampled_from(["step", "step", "abandon", "forget", "restore", "load"])
        )
        if action in ("abandon", "forget"):
            step = checked.prepare(events, watermarks)
            if action == "abandon":
                step.abandon()
            checked.check()
        if action == "restore":
            snapshot = pickle.loads(pickle.dumps(checked.circuit.snapshot()))
            checked.circuit = Circuit(pickle.loads(pickle.dumps(checked.circuit.spec)))
            checked.circuit.restore(snapshot)
        if action == "load" and number:
            formula = data.draw(st.sampled_from(["collapsed", "flipped", "recursive"]))
            checked.circuit = checked.new(formula)
            checked.circuit.load(checked.store.state())
        checked.step(events, watermarks)


def relation(rules: InputOptions, steps: list[list[Event]]) -> Counter:
    """Return the rows of an input after some steps."""
    circuit = compile_sql(
        "SELECT * FROM r", {"r": SCHEMA}, input_options={"r": rules}, materialize=["r"]
    )
    for events in steps:
        circuit.prepare({"r": table_of(events, keyed=bool(rules.keys))}).commit()
    return bag_of(circuit.views["r"])


@LAW
@given(st.lists(changes(8), min_size=1, max_size=4))
def test_retained_steps_taken_together_give_the_same_relation(steps):
    together = [event for events in steps for event in events]
    assert relation(RETAINED, steps) == relation(RETAINED, [together])


@LAW
@given(st.lists(changes(8), min_size=1, max_size=4))
def test_upserts_taken_together_in_their_sequence_give_the_same_relation(steps):
    ordered = [
        [(row, w, 100 * n + sequence) for row, w, sequence in events]
        for n, events in enumerate(steps)
    ]
    together = [event for events in ordered for event in events]
    assert relation(KEYED, ordered) == relation(KEYED, [together])


@LAW
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=12))
def test_keyed_and_retained_steps_can_be_taken_together_where_times_do_not_go_back(key_changes):
    """The times of one key do not go back; those of different keys may."""
    clocks = {0: 0, 1: 3, 2: 6}
    steps: list[list[Event]] = []
    for sequence, (k, hours, deleted) in enumerate(key_changes):
        clocks[k] += hours
        row: Row = (k, sequence, clocks[k])
        steps.append([(row, -1 if deleted else 1, sequence)])
    rules = InputOptions(keys=("k",), retain=Retention("ts", 3))
    together = [event for events in steps for event in events]
    assert relation(rules, steps) == relation(rules, [together])


def circuit_of(rules: InputOptions, schema: pa.Schema = SCHEMA) -> Circuit:
    return compile_sql(
        "SELECT * FROM r", {"r": schema}, input_options={"r": rules}, materialize=["r"]
    )


def test_a_strict_step_names_the_row_and_changes_nothing():
    circuit = circuit_of(STRICT)
    circuit.step({"r": pa.table({"k": [1], "g": [5], "ts": [0], "weight": [2]})})
    table = pa.table({"k": [1, 2], "g": [5, 6], "ts": [0, 0], "weight": [-3, 1]})
    with pytest.raises(
        MissingRowError, match=r"'r': cannot delete row \{'k': 1.*\} 3 times, .* weight is 2"
    ):
        circuit.step({"r": table})
    assert bag_of(circuit.views["r"]) == {(1, 5, 0): 2}
    step = circuit.prepare({"r": table})
    (rejection,) = step.rejected["r"]
    assert (rejection.reason, bag_of(rejection.table)) == ("missing", {(1, 5, 0): -1})
    step.commit()
    assert bag_of(circuit.views["r"]) == {(2, 6, 0): 1}


def test_a_refused_strict_step_leaves_no_codes_behind():
    schema = pa.schema([("name", pa.string())])
    circuit = circuit_of(STRICT, schema)
    with pytest.raises(MissingRowError, match=r"1 times, .* weight is 0"):
        circuit.step({"r": pa.table({"name": ["ann"], "weight": [-1]})})
    assert not any(map(len, circuit.snapshot().dictionaries.values()))


def test_a_strict_relation_without_columns_counts():
    circuit = compile_sql(
        "SELECT count(*) AS n FROM r", {"r": pa.schema([])}, input_options={"r": STRICT}
    )
    two_rows = pa.table({"weight": [2]})
    assert circuit.step({"r": two_rows})["view"].to_pylist()[-1]["n"] == 2
    with pytest.raises(MissingRowError, match=r"3 times, .* weight is 2"):
        circuit.step({"r": pa.table({"weight": [-3]})})


def test_options_of_inputs_are_part_of_the_fingerprint():
    plain, keyed = circuit_of(InputOptions()), circuit_of(KEYED)
    assert plain.fingerprint != keyed.fingerprint
    differ = [n for n, f in plain.fingerprints.items() if f != keyed.fingerprints[n]]
    assert differ == ["input r"]
    assert Circuit(keyed.spec).fingerprint == keyed.fingerprint
    assert (
        plain.fingerprint
        == compile_sql("SELECT * FROM r", {"r": SCHEMA}, materialize=["r"]).fingerprint
    )


def test_explain_shows_the_rules_at_their_input():
    rules = InputOptions(keys=("k", "g"), strict=True, retain=Retention("ts", 3))
    text = circuit_of(rules).explain()
    assert "input r(k, g, ts) with keys k, g; strict; retain ts for 3" in text
    assert "input r(k, g, ts)  [" in circuit_of(InputOptions()).explain()


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (lambda: InputOptions(keys="k"), "must be a collection of columns: give"),
        (lambda: InputOptions(keys=("k", "k")), "a column occurs twice"),
        (lambda: InputOptions(sequence="n"), "give keys as well"),
        (lambda: InputOptions(retain="7 days"), "must be a Retention"),
        (lambda: circuit_of(InputOptions(keys=("x",))), "unknown key column 'x'; columns: "),
        (
            lambda: circuit_of(InputOptions(retain=Retention("x", 3))),
            "unknown retention column 'x'; columns: ",
        ),
        (lambda: circuit_of(InputOptions(retain=Retention("ts", days=3))), "give an integer"),
        (lambda: circuit_of({"keys": ("k",)}), "give InputOptions"),
        (
            lambda: compile_sql("SELECT * FROM r", {"r": SCHEMA}, input_options={"x": KEYED}),
            "unknown input",
        ),
    ],
)
def test_rules_that_do_not_fit_are_refused(rules, words):
    with pytest.raises(InputOptionsError, match=words):
        rules()


@pytest.mark.parametrize("text", ["9" * 20 + " days", "9" * 400 + " days", "1" * 5000 + " weeks"])
def test_a_duration_that_no_calendar_holds_is_an_error_that_shows_a_part_of_it(text):
    with pytest.raises(
        InputOptionsError, match="is longer than 999999999 days; give a shorter"
    ) as caught:
        Retention("ts", text)
    assert len(str(caught.value)) < 500
