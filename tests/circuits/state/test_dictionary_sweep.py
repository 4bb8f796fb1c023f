"""Sweeps of dictionaries: the views stay the same, and memory follows the live rows."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_datalog, compile_sql
from circuits.state import dictionary_sweep
from dbsp_wcoj.values import sweep
from tests.generators.strategies import LAW
from tests.support.state_store import Store, restart

SCHEMAS = {
    "a": "k int, s text, t text, d decimal(30, 2), l text[], n struct(x text, y int)[]",
    "b": "k int, s text, u blob",
}
VIEWS = """
CREATE VIEW joined AS SELECT a.k, a.s, a.t, a.d, a.l, b.u FROM a JOIN b ON a.k = b.k;
CREATE VIEW pairs AS SELECT x.s, y.t, y.n FROM a x JOIN a y ON x.t = y.s;
CREATE VIEW outer_rows AS SELECT a.s, a.l, b.u FROM a LEFT JOIN b ON a.s = b.s;
CREATE VIEW groups AS SELECT s, min(t) AS low, max(t) AS high, count(DISTINCT t) AS n,
    sum(d) AS total, max(l) AS lists FROM a GROUP BY s;
CREATE VIEW first_rows AS SELECT k, s, n FROM a ORDER BY t, s, k LIMIT 3;
CREATE VIEW distinct_rows AS SELECT DISTINCT l, n FROM a;
CREATE VIEW constants AS SELECT CASE WHEN k > 1 THEN 'large' ELSE t END AS size FROM a
    UNION ALL SELECT * FROM (VALUES ('one'), ('two')) AS v(x);
CREATE VIEW windows AS SELECT s, lag(t) OVER (PARTITION BY k ORDER BY t, s, l) AS before FROM a;
"""
RULES = "path(x, y) :- e(x, y). path(x, z) :- path(x, y), e(y, z)."

TEXTS = st.one_of(st.none(), st.integers(0, 12).map(lambda n: "text " + "x" * n))
LISTS = st.one_of(st.none(), st.lists(TEXTS, max_size=2))
STRUCTS = st.lists(st.fixed_dictionaries({"x": TEXTS, "y": st.integers(0, 2)}), max_size=2)
DECIMALS = st.sampled_from([None, Decimal("1.25"), Decimal(10**27), Decimal(-(10**27))])
ROWS = {
    "a": st.fixed_dictionaries(
        {
            "k": st.integers(0, 3),
            "s": TEXTS,
            "t": TEXTS,
            "d": DECIMALS,
            "l": LISTS,
            "n": STRUCTS,
        }
    ),
    "b": st.fixed_dictionaries(
        {"k": st.integers(0, 3), "s": TEXTS, "u": st.sampled_from([None, b"", b"u", b"v"])}
    ),
}


@pytest.fixture(autouse=True)
def restore_limits():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MIN_NEW_VALUES", "MAX_NEW_SHARE", "MARKS_PER_NEW_VALUE", "MIN_WORK"):
            patch.setattr(dictionary_sweep, name, getattr(dictionary_sweep, name))
        patch.setattr(dictionary_sweep, "WORK_PER_VALUE", dictionary_sweep.WORK_PER_VALUE)
        patch.setattr(sweep, "_MIN_REMOVED_SHARE", sweep._MIN_REMOVED_SHARE)
        yield patch


def sweep_always(min_work: int) -> None:
    """Begin a sweep after each commit in which none runs, and copy if any value is dead."""
    dictionary_sweep.MIN_NEW_VALUES = 0
    dictionary_sweep.MAX_NEW_SHARE = 0
    dictionary_sweep.MARKS_PER_NEW_VALUE = 10**9
    dictionary_sweep.WORK_PER_VALUE = 0
    dictionary_sweep.MIN_WORK = min_work
    sweep._MIN_REMOVED_SHARE = 10**9


def sweep_never() -> None:
    dictionary_sweep.MIN_NEW_VALUES = 10**9


def bag_of(table: pa.Table) -> Counter:
    """Return the weight of each row, by its text, because lists cannot be keys."""
    bag: Counter = Counter()
    for row in table.to_pylist():
        weight = row.pop("weight")
        bag[str(row)] += weight
    return Counter({row: weight for row, weight in bag.items() if weight})


def bags(tables) -> dict[str, Counter]:
    return {name: bag_of(table) for name, table in tables.items()}


@st.composite
def histories(draw):
    """Draw steps: rows to insert, the numbers of earlier rows to delete, and what else happens."""
    steps = []
    for _ in range(draw(st.integers(1, 8))):
        inserted = {name: draw(st.lists(rows, max_size=4)) for name, rows in ROWS.items()}
        deleted = draw(st.lists(st.integers(0, 10**6), max_size=6))
        steps.append((inserted, deleted, draw(st.sampled_from(["", "abort", "read", "restart"]))))
    return steps


@settings(LAW)
@given(histories(), st.sampled_from([1, 5, 20, 100, 10**6]))
def test_views_are_the_same_with_and_without_sweeps(history, min_work):
    sweep_never()
    expected = compile_sql(VIEWS, SCHEMAS, materialize=True)
    swept, store = compile_sql(VIEWS, SCHEMAS, materialize=True), Store()
    live: dict[str, list[dict]] = {name: [] for name in ROWS}
    readers: list[tuple[object, dict[str, Counter]]] = []
    for inserted, deleted, event in history:
        changes = {name: [{**row, "weight": 1} for row in rows] for name, rows in inserted.items()}
        if event == "abort":
            swept.prepare(changes).abandon()
        for name, rows in live.items():
            for number in deleted if rows else ():
                if rows:
                    changes[name].append({**rows.pop(number % len(rows)), "weight": -1})
            rows += inserted[name]
        sweep_never()
        output = bags(expected.step(changes))
        sweep_always(min_work)
        step = swept.prepare(changes)
        store.write(step)
        step.commit()
        assert bags(step.outputs) == output
        if event == "read":
            readers.append((swept.views, bags(expected.views)))
            text = "SELECT s, count(*) AS n FROM a WHERE s <> 'text xx' GROUP BY s"
            assert bag_of(swept.query(text)) == bag_of(expected.query(text))
        if event == "restart":
            swept = restart(swept, store)
    for views, content in [*readers, (swept.views, bags(expected.views))]:
        assert bags(views) == content
    for dictionary in swept.graph.registry.dictionaries.values():
        dictionary._check()


@pytest.mark.parametrize("steps_until_return", range(1, 12))
def test_a_value_that_returns_during_a_sweep_is_kept(steps_until_return):
    sweep_always(1)
    circuit = compile_sql("SELECT k FROM r", {"r": "k text"}, materialize=True)
    for step in range(30):
        weights = {0: 1, 1: -1, 1 + steps_until_return: 1}
        rows = [{"k": "returns", "weight": weights[step]}] if step in weights else []
        circuit.step({"r": [{"k": f"other {step}", "weight": 1}, *rows]})
        expected = {f"other {n}" for n in range(step + 1)}
        if step == 0 or step > steps_until_return:
            expected.add("returns")
        assert set(circuit.views["view"].column("k").to_pylist()) == expected


EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5)


@settings(LAW)
@given(st.lists(st.tuples(EDGES, EDGES), max_size=6), st.sampled_from([1, 10, 10**6]))
def test_recursive_views_are_the_same_with_and_without_sweeps(history, min_work):
    sweep_never()
    schema = {"e": "a text, b text"}
    expected, swept = (compile_datalog(RULES, schema, materialize=True) for _ in range(2))
    live: Counter = Counter()
    for inserted, deleted in history:
        changes = Counter(inserted)
        changes.subtract(row for row in deleted if live[row] > 0)
        changes = Counter({row: max(n, -live[row]) for row, n in changes.items()})
        live.update(changes)
        rows = [{"a": f"n{a}", "b": f"n{b}", "weight": n} for (a, b), n in changes.items()]
        sweep_never()
        output = bags(expected.step({"e": rows}))
        sweep_always(min_work)
        assert bags(swept.step({"e": rows})) == output
    assert bags(swept.views) == bags(expected.views)


@settings(LAW)
@given(
    st.lists(st.lists(st.tuples(*[st.integers(0, 5)] * 2, st.booleans()), max_size=4), max_size=8),
    st.sampled_from(["min", "max"]),
    st.sampled_from([1, 10, 10**6]),
)
def test_a_recursive_minimum_before_a_text_is_the_same_with_and_without_sweeps(
    history, function, min_work
):
    rules = (
        f"best({function}(k), x) :- d(k, x). best({function}(k), x) :- best(j, x), k = least(j, 5)."
    )
    circuits = [compile_datalog(rules, {"d": "k long, x text"}) for _ in range(2)]
    expected, swept = circuits
    live: Counter = Counter()
    for step in history:
        changes: Counter = Counter()
        for k, x, is_deleted in step:
            row = (k, f"text {x}")
            changes[row] += -1 if is_deleted and live[row] + changes[row] > 0 else 1
        live.update(changes)
        rows = [{"k": k, "x": x, "weight": n} for (k, x), n in changes.items() if n]
        sweep_never()
        output = bags(expected.step({"d": rows}))
        sweep_always(min_work)
        assert bags(swept.step({"d": rows})) == output


def window_step(circuit: Circuit, step: int, rows: int, window: int) -> None:
    """Insert new rows, and delete those that were inserted ``window`` steps ago."""
    weights = np.ones(rows, np.int64)
    tables = []
    for number, weight in ((step, 1), (step - window, -1)):
        if number >= 0:
            keys = np.arange(number * rows, number * rows + rows)
            names = pa.array([f"key {key}" for key in keys.tolist()])
            values = pa.array([f"value {key}" for key in keys.tolist()])
            tables.append(pa.table({"k": names, "v": values, "weight": weight * weights}))
    circuit.step(
        {"r": pa.concat_tables(tables), "q": tables[0].select(["k", "weight"]).slice(0, 1)}
    )


def strings_of(circuit: Circuit) -> dict[str, int]:
    dictionaries = circuit.graph.registry.dictionaries
    return {name: entry.string_count for name, entry in dictionaries.items() if len(entry)}


def test_dictionaries_and_the_work_of_steps_follow_the_live_rows(restore_limits):
    dictionary_sweep.MIN_NEW_VALUES = 500
    restore_limits.setattr(dictionary_sweep, "MIN_WORK", 500)
    restore_limits.setattr(dictionary_sweep, "_CODES_PER_SLICE", 100)
    marked: list[int] = []
    mark = sweep.Sweep.mark
    restore_limits.setattr(
        sweep.Sweep,
        "mark",
        lambda self, codes, *marks: (marked.append(len(codes)), mark(self, codes, *marks))[1],
    )
    circuit = compile_sql(
        "SELECT r.k, r.v FROM r JOIN q ON r.k = q.k", {"r": "k text, v text", "q": "k text"}
    )
    marks_per_step, most_strings = [], 0
    for step in range(300):
        marked.clear()
        window_step(circuit, step, rows=50, window=20)
        marks_per_step.append(sum(marked))
        most_strings = max(most_strings, strings_of(circuit)["text"])
    assert len(circuit.graph.codecs.interners["text"]) == 300 * 100
    # 2,000 strings are live; with their row ids, 3,000 values.
    assert most_strings <= 2 * 2000 + 500
    assert max(marks_per_step) <= 150 * dictionary_sweep.WORK_PER_VALUE + 500 + 200
    assert sum(marks_per_step) <= 300 * 150 * dictionary_sweep.MARKS_PER_NEW_VALUE


def test_nothing_is_swept_while_no_value_is_new(restore_limits):
    dictionary_sweep.MIN_NEW_VALUES = 10
    circuit = compile_sql("SELECT k, v FROM r", {"r": "k text, v text"}, materialize=True)
    rows = [{"k": f"k{n}", "v": f"v{n}"} for n in range(100)]
    for _ in range(5):  # the last sweep of these steps ends
        circuit.step({"r": rows})
    restore_limits.setattr(sweep.Sweep, "__init__", None)  # a further sweep would fail
    for _ in range(20):
        circuit.step({"r": rows})
    assert strings_of(circuit) == {"text": 200}


def test_a_sweep_without_memory_is_abandoned_and_the_next_one_succeeds(restore_limits):
    def fail(*arguments: object) -> None:
        raise MemoryError

    sweep_always(10**6)
    circuit = compile_sql("SELECT k, v FROM r", {"r": "k text, v text"}, materialize=True)
    row = [{"k": "k", "v": "v"}]
    with restore_limits.context() as patch:
        patch.setattr(sweep, "_Target", fail)
        circuit.step({"r": row})
        circuit.step({"r": [{**row[0], "weight": -1}]})
        assert strings_of(circuit) == {"text": 2}
    circuit.step({"r": [{"k": "new", "v": "new"}]})
    assert strings_of(circuit) == {"text": 1}


def test_a_sweep_begins_soon_after_a_deletion_of_many_rows(restore_limits):
    dictionary_sweep.MIN_NEW_VALUES = 10
    restore_limits.setattr(dictionary_sweep, "MIN_WORK", 10**6)
    circuit = compile_sql("SELECT v, n FROM r", {"r": "v text, n bigint"}, materialize=True)
    rows = [{"v": f"v{n % 100}", "n": n} for n in range(50_000)]
    circuit.step({"r": rows})
    circuit.step({"r": [{**row, "weight": -1} for row in rows]})
    most_strings = 0
    for step in range(20):  # 50,000 rows with texts have allowed for 3,000 new texts
        circuit.step({"r": [{"v": f"w{step * 20 + n}", "n": 0} for n in range(20)]})
        most_strings = max(most_strings, strings_of(circuit)["text"])
        circuit.step({"r": [{"v": f"w{step * 20 + n}", "n": 0, "weight": -1} for n in range(20)]})
    assert most_strings <= 200
