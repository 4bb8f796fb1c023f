"""Published results after their rows expire: the laws of ``on_expiry``.

keep      the sum of the published deltas is the query over all rows of the stream, without
          retention, for every division of the stream into steps; joins publish inserts only
retract   the sum is the query over the rows that are still retained, for every division

The law of keep has conditions. With joins: a row is at most ``DISORDER`` older than the newest row
of any input before it, the query joins rows at most ``DISTANCE`` apart, and rows are retained for
at least the sum of both. Without joins: no row would be late if each row were a step of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, InputOptions, Retention, compile_sql, udf
from circuits.inputs.input_options import OnExpiry
from tests.support.tables import INT, bag_of

LAW = settings(max_examples=60, deadline=None)
DISORDER = 3
DISTANCE = 4
EVENTS = pa.schema([("k", INT), ("ts", INT), ("n", INT)])
SCHEMAS = {"a": EVENTS, "b": EVENTS, "names": pa.schema([("k", INT), ("name", pa.string())])}
WITHIN = f"<= {DISTANCE}"
NEAR = f"abs(x.ts - y.ts) {WITHIN}"
#: Joins, filters and projections: their results are append-only.
JOINS = [
    "SELECT k, n FROM a WHERE n > 0",
    f"SELECT x.k, x.n + y.n AS n FROM a x JOIN b y ON x.k = y.k AND {NEAR}",
    f"SELECT x.n FROM a x JOIN a y ON x.k = y.n AND {NEAR}",
    f"SELECT x.k, name FROM a x JOIN b y ON x.k = y.k AND {NEAR} JOIN names m ON m.k = y.k",
    f"SELECT x.k FROM a x JOIN b y ON x.k = y.k AND {NEAR} "
    f"JOIN a z ON z.n = y.n AND abs(x.ts - z.ts) <= {DISTANCE} AND abs(y.ts - z.ts) <= {DISTANCE}",
    "SELECT k, n FROM a UNION ALL SELECT k, ts FROM b",
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM names m WHERE m.k = a.k)",
    "SELECT a.k, name FROM a LEFT JOIN names m ON m.k = a.k",
]
#: Groups by the event time: results change until their time has expired.
GROUPS = [
    "SELECT ts, count(*) AS c, sum(n) AS s, min(k) AS least FROM a GROUP BY ts",
    "SELECT k, ts // 3 AS bucket, count(*) AS c, max(n) AS m FROM a GROUP BY k, ts // 3",
    "SELECT ts - ts % 7 AS week, count(DISTINCT k) AS c FROM a GROUP BY 1",
    "SELECT DISTINCT k, ts FROM a",
    "SELECT DISTINCT x.ts, y.ts AS other FROM a x JOIN b y ON x.k = y.k AND x.ts <= y.ts "
    f"AND y.ts - x.ts <= {DISTANCE}",
    "SELECT x.ts, count(*) AS c FROM a x JOIN b y ON x.k = y.k AND x.ts = y.ts GROUP BY x.ts",
    f"SELECT x.ts // 5 AS g, y.ts // 2 AS h, count(*) AS c FROM a x JOIN b y ON {NEAR} "
    "GROUP BY 1, 2 HAVING count(*) > 1",
    "SELECT ts, k FROM a QUALIFY row_number() OVER (PARTITION BY ts ORDER BY n) <= 2",
    "SELECT k, ts FROM a EXCEPT ALL SELECT n, ts FROM a",
]

#: An input, its row, its weight.
Event = tuple[str, tuple[int, int, int], int]


def circuit_of(query: str, retention: dict[str, int], on_expiry: OnExpiry, **options) -> Circuit:
    rules = {
        name: InputOptions(retain=Retention("ts", length, on_expiry=on_expiry))
        for name, length in retention.items()
    }
    return compile_sql(query, SCHEMAS, input_options=rules, **options)


def tables_of(events: Sequence[Event]) -> dict[str, pa.Table]:
    tables = {}
    for name in dict.fromkeys(name for name, _, _ in events):
        rows = [(*row, weight) for other, row, weight in events if other == name]
        columns = [pa.array(column, INT) for column in zip(*rows, strict=True)]
        tables[name] = pa.table(columns, ["k", "ts", "n", "weight"])
    return tables


NAMES = pa.table({"k": [0, 1, 1], "name": ["zero", "one", "uno"]})


def run_steps(circuit: Circuit, steps: Sequence[Sequence[Event]]):
    """Run the steps; return the sum of the outputs, and the outputs. No row may be rejected."""
    total: Counter = Counter()
    deltas = []
    for number, events in enumerate(steps):
        tables = tables_of(events)
        if number == 0:
            tables["names"] = NAMES
        step = circuit.prepare(tables)
        assert not step.rejected
        step.commit()
        delta = bag_of(step.outputs["view"])
        deltas.append(delta)
        for row, weight in delta.items():
            total[row] += weight
    return Counter({row: weight for row, weight in total.items() if weight}), deltas


@st.composite
def streams(draw, deletions: bool = False, independent: bool = False) -> list[Event]:
    """Draw rows in the order of their arrival; a row is at most ``DISORDER`` late.

    Args:
        draw: The function of Hypothesis.
        deletions: True to delete some rows later.
        independent: True if the times of the inputs advance independently.
    """
    latest, events = {"a": 0, "b": 0, "": 0}, []
    for _ in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(["a", "b"]))
        clock = name if independent else ""
        latest[clock] += draw(st.sampled_from([0, 0, 1, 2, 9]))
        ts = latest[clock] - draw(st.integers(0, DISORDER))
        row = draw(st.integers(0, 1)), ts, draw(st.integers(0, 1))
        events.append((name, row, 1))
    if deletions:
        # A row is deleted before a later row makes it late.
        for position in sorted(draw(st.sets(st.integers(0, len(events) - 1), max_size=3))):
            name, row, _ = events[position]
            events.append((name, row, -1))
        ends = {id(event): n for n, event in enumerate(events)}
        events = sorted(events, key=lambda event: (event[1][1], ends[id(event)]))
    return events


@st.composite
def divisions(draw, events: Sequence[Event]) -> list[list[Event]]:
    """Divide the stream into consecutive steps."""
    positions = sorted(draw(st.sets(st.integers(1, max(1, len(events) - 1)), max_size=6)))
    bounds = [0, *positions, len(events)]
    steps = [list(events[a:b]) for a, b in pairwise(bounds)]
    return [step for step in steps if step]


@st.composite
def cases(draw, query: str) -> tuple[list[Event], dict[str, int]]:
    """Draw a stream, and retentions with which every division of it gives the same sum."""
    least = DISORDER + (DISTANCE if WITHIN in query else 0)
    events = draw(streams(independent=draw(st.booleans()) and "JOIN b" not in query))
    lengths = {"a": st.integers(least, least + 4), "b": st.integers(least, least + 9)}
    return events, draw(st.fixed_dictionaries(lengths))


retentions = st.fixed_dictionaries(
    {
        "a": st.integers(DISORDER + DISTANCE, DISORDER + DISTANCE + 4),
        "b": st.integers(DISORDER + DISTANCE, DISORDER + DISTANCE + 9),
    }
)


def query_over_all_rows(query: str, events: Sequence[Event]) -> Counter:
    """Compute the query over all rows, in a circuit without retention."""
    total, _ = run_steps(compile_sql(query, SCHEMAS), [events])
    return total


@LAW
@given(st.data(), st.sampled_from([*JOINS, *GROUPS]))
def test_with_keep_what_is_published_is_the_query_over_all_rows_for_every_division(data, query):
    events, retention = data.draw(cases(query))
    expected = query_over_all_rows(query, events)
    for steps in ([events], [[event] for event in events], data.draw(divisions(events))):
        circuit = circuit_of(query, retention, "keep", materialize=["view"])
        total, deltas = run_steps(circuit, steps)
        assert total == expected
        assert bag_of(circuit.views["view"]) == expected
        if query in JOINS:
            assert all(weight > 0 for delta in deltas for weight in delta.values())


@LAW
@given(st.data(), st.sampled_from([*JOINS, *GROUPS]), streams(), retentions)
def test_with_retract_the_sum_is_the_query_over_the_retained_rows_for_every_division(
    data, query, events, retention
):
    latest: dict[str, int] = {}
    for name, (_, ts, _), _ in events:
        latest[name] = max(ts, latest.get(name, ts))
    retained = [e for e in events if e[1][1] >= latest[e[0]] - retention[e[0]]]
    expected = query_over_all_rows(query, retained)
    for steps in ([events], [[event] for event in events], data.draw(divisions(events))):
        total, _ = run_steps(circuit_of(query, retention, "retract"), steps)
        assert total == expected


@LAW
@given(
    st.data(),
    st.sampled_from([*JOINS, *GROUPS]),
    streams(deletions=True),
    retentions,
)
def test_with_keep_a_state_that_is_restored_publishes_the_same(data, query, events, retention):
    """Steps are abandoned and prepared again, or the circuit is restored from a snapshot."""
    steps = data.draw(divisions(events))
    circuit = circuit_of(query, retention, "keep", materialize=["view", "a"])
    for number, step_events in enumerate(steps):
        tables = tables_of(step_events)
        if number == 0:
            tables["names"] = NAMES
        first = circuit.prepare(tables)
        if data.draw(st.booleans()):
            other = Circuit(circuit.spec)
            other.restore(circuit.snapshot())
            circuit = other
        else:
            first.abandon()
        repeated = circuit.prepare(tables)
        assert {n: bag_of(t) for n, t in repeated.outputs.items()} == {
            n: bag_of(t) for n, t in first.outputs.items()
        }
        repeated.commit()
    assert bag_of(circuit.views["view"]) == query_over_all_rows(query, events)


@LAW
@given(st.data(), streams(), retentions)
def test_with_keep_the_state_is_that_of_the_retained_rows_only(data, events, retention):
    """Every trace, except that of the materialized view, has the retained rows only."""
    query = JOINS[1]
    circuit = circuit_of(query, retention, "keep", materialize=["a"])
    run_steps(circuit, data.draw(divisions(events)))
    latest: dict[str, int] = {}
    for name, (_, ts, _), _ in events:
        latest[name] = max(ts, latest.get(name, ts))
    retained = [e for e in events if e[1][1] >= latest[e[0]] - retention[e[0]]]
    without_expired = compile_sql(query, SCHEMAS, materialize=["a"])
    run_steps(without_expired, [retained])
    traces = {n: t.to_zset() for n, t in circuit.graph.traces.items() if t.orders}
    expected = {n: t.to_zset() for n, t in without_expired.graph.traces.items() if t.orders}
    assert bag_of(circuit.views["a"]) == bag_of(without_expired.views["a"])
    shared = traces.keys() & expected.keys()
    assert shared
    assert all(len(traces[n]) == len(expected[n]) for n in shared)


def alerts_of(files: Sequence[Sequence[Event]], on_expiry: OnExpiry) -> tuple[Counter, int]:
    """Return the alerts that remain, and the number of inserted alerts."""
    query = "SELECT x.n, y.n AS next FROM a x JOIN b y ON x.k = y.k AND y.ts - x.ts BETWEEN 0 AND 7"
    total, deltas = run_steps(circuit_of(query, {"a": 7, "b": 7}, on_expiry), files)
    return total, sum(weight for delta in deltas for weight in delta.values() if weight > 0)


def test_files_read_at_once_give_the_alerts_of_files_read_one_by_one():
    files = [
        [("a", (day % 3, day, day), 1), ("b", ((day + 1) % 3, day, -day), 1)] for day in range(13)
    ]
    together = [[event for events in files for event in events]]
    expected = alerts_of(files, "keep")
    assert alerts_of(together, "keep") == expected
    assert len(expected[0]) == expected[1] == 19
    # With retract, one step over all files publishes only the final rows.
    assert alerts_of(together, "retract")[0] == alerts_of(files, "retract")[0]
    assert alerts_of(together, "retract")[1] < alerts_of(files, "retract")[1] == 19


def test_a_row_is_late_by_the_rows_of_earlier_steps_only():
    query = "SELECT x.ts, y.ts AS other FROM a x JOIN a y ON x.k = y.k AND x.ts < y.ts"
    circuit = circuit_of(query, {"a": 10}, "keep", materialize=["view", "a"])
    first = circuit.prepare(tables_of([("a", (0, 100, 0), 1), ("a", (0, 1, 0), 1)]))
    assert not first.rejected
    first.commit()
    # The rows have joined, and the old one has expired; the result stays.
    assert bag_of(first.outputs["view"]) == {(1, 100): 1}
    assert bag_of(circuit.views["a"]) == {(0, 100, 0): 1}
    assert bag_of(circuit.views["view"]) == {(1, 100): 1}
    rows = tables_of([("a", (0, 300, 0), 1), ("a", (0, 90, 0), 1), ("a", (0, 89, 0), 1)])
    snapshot, messages = circuit.snapshot(), []
    for _ in range(2):  # the second time as after a restart
        step = circuit.prepare(rows)
        (late,) = step.rejected["a"]
        assert (late.reason, bag_of(late.table)) == ("late", {(0, 89, 0): 1})
        assert bag_of(step.outputs["view"]) == {(90, 100): 1, (90, 300): 1, (100, 300): 1}
        messages.append(late.message)
        circuit = Circuit(circuit.spec)
        circuit.restore(snapshot)
    assert messages[0] == messages[1]
    assert "before 90, the greatest time or watermark of earlier steps minus 10" in messages[0]


def test_a_watermark_expires_rows_without_a_change_of_kept_results():
    circuit = circuit_of("SELECT k, n FROM a", {"a": 5}, "keep", materialize=["view", "a"])
    circuit.step(tables_of([("a", (1, 10, 2), 1)]))
    assert circuit.step({}, {"a": 16})["view"].num_rows == 0
    assert circuit.views["a"].num_rows == 0
    assert bag_of(circuit.views["view"]) == {(1, 2): 1}
    late = circuit.prepare(tables_of([("a", (1, 10, 2), -1)])).rejected["a"]
    assert [rejection.reason for rejection in late] == ["late"]


def test_a_view_that_is_its_input_holds_what_was_published():
    circuit = circuit_of("SELECT * FROM a", {"a": 5}, "keep", materialize=True)
    for ts in (0, 10, 20):
        circuit.step(tables_of([("a", (0, ts, 0), 1)]))
    assert bag_of(circuit.views["view"]) == {(0, ts, 0): 1 for ts in (0, 10, 20)}
    assert bag_of(circuit.views["a"]) == {(0, 20, 0): 1}
    assert circuit.query("SELECT count(*) AS n FROM a").to_pylist()[0]["n"] == 1
    assert circuit.query("SELECT count(*) AS n FROM view").to_pylist()[0]["n"] == 3


def test_what_a_view_is_after_a_step_includes_results_of_rows_that_expire_in_it():
    circuit = circuit_of("SELECT k, ts FROM a", {"a": 5}, "keep", materialize=["view"])
    circuit.step(tables_of([("a", (0, 1, 0), 1)]))
    step = circuit.prepare(tables_of([("a", (0, 50, 0), 1)]))
    rows = step.after("view").rows()
    step.commit()
    assert bag_of(rows) == bag_of(circuit.views["view"]) == {(0, 1): 1, (0, 50): 1}


def test_keys_with_the_event_time_are_corrected_until_they_expire():
    rules = {"a": InputOptions(keys=("k", "ts"), retain=Retention("ts", 5, on_expiry="keep"))}
    circuit = compile_sql("SELECT k, n FROM a", SCHEMAS, input_options=rules)

    def step(*rows):
        table = pa.table([pa.array(c, INT) for c in zip(*rows, strict=True)], ["k", "ts", "n"])
        prepared = circuit.prepare({"a": table})
        prepared.commit()
        return bag_of(prepared.outputs["view"]), [r.reason for r in prepared.rejected.get("a", [])]

    assert step((1, 10, 0)) == ({(1, 0): 1}, [])
    assert step((1, 10, 7), (2, 15, 1)) == ({(1, 0): -1, (1, 7): 1, (2, 1): 1}, [])
    assert step((1, 10, 8), (2, 16, 1)) == ({(1, 7): -1, (1, 8): 1, (2, 1): 1}, [])
    assert step((1, 10, 9), (2, 17, 1)) == ({(2, 1): 1}, ["late"])


def test_a_step_without_expiry_is_computed_once(monkeypatch):
    """By counting: operators above a kept input run twice only in steps in which rows expire."""
    circuit = circuit_of("SELECT k, n FROM a WHERE n > 0", {"a": 10}, "keep")
    filters = [
        n.operator for n in circuit.graph.nodes if type(n.operator).__name__ == "FilterOperator"
    ]
    runs = []
    prepare = type(filters[0]).prepare
    monkeypatch.setattr(type(filters[0]), "prepare", lambda *args: runs.append(1) or prepare(*args))
    for ts, expected in ((1, 1), (5, 1), (11, 1), (12, 2), (13, 1), (40, 2)):
        runs.clear()
        circuit.step(tables_of([("a", (0, ts, 1), 1)]))
        assert len(runs) == expected


def test_a_function_is_called_once_for_each_row_in_a_step_with_expired_rows():
    calls: list[int] = []

    def number(ts: int) -> int:
        calls.append(ts)
        return len(calls)

    circuit = circuit_of(
        "SELECT ts, f(ts) AS v FROM a",
        {"a": 5},
        "keep",
        functions={"f": udf(number, returns="bigint")},
        materialize=True,
    )
    published = [
        bag_of(circuit.step(tables_of([("a", (1, ts, 1), weight)]))["view"])
        for ts, weight in [(1, 1), (10, 1), (20, 1), (20, 1), (20, -2), (18, -1), (18, 2)]
    ]
    assert calls == [1, 10, 20, 18]
    assert published == [
        {(1, 1): 1},
        {(10, 2): 1},
        {(20, 3): 1},
        {(20, 3): 1},
        {(20, 3): -2},
        {(18, 4): -1},
        {(18, 4): 2},
    ]
    assert bag_of(circuit.views["view"]) == {(1, 1): 1, (10, 2): 1, (18, 4): 1}
