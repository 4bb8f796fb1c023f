"""Dropping state that no later row needs does not change the outputs, and bounds the state.

The laws compare three things after every step: the outputs, those of the same circuit that drops
nothing, and (of random plans) their sum with the naive evaluation of the plan over the rows that
were not late. Times increase with the steps; some rows arrive out of order, late or
twice, and some are deleted.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import Circuit, CircuitSpec, InputOptions, Lateness, Retention, compile_sql
from circuits.errors import InputOptionsError
from circuits.options import CircuitOptions
from circuits.plan.expressions import Call, Column
from circuits.plan.frontier import FunctionOf, Shifted, WatermarkOf
from circuits.plan.nodes import Map, PlanNode
from circuits.plan.nodes import columns as columns_of
from circuits.runtime.state_bounds import BoundedStep
from circuits.runtime.state_sizes import UNBOUNDED
from circuits.types.codecs.codec import Codecs
from tests.generators.plans import RELATIONS, VALUES, plans
from tests.oracles.naive_plan import evaluate_plan
from tests.support.state_store import Store

LAW = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
INT = pa.int64()
COLUMNS = {"a": ("k", "ts", "x", "y"), "b": ("k", "ts", "z", "w")}
SCHEMAS = {name: pa.schema([(c, INT) for c in columns]) for name, columns in COLUMNS.items()}
OPTIONS = {
    "a": InputOptions(lateness=Lateness("ts", 5)),
    "b": InputOptions(lateness=Lateness("ts", 8)),
}
SESSIONS = "TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), 5))"
INTERVAL = "a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 10"
# Queries whose state stays small, with the parts of the bound of each operator that has state.
BOUNDED = {
    "tumbling windows": """
        SELECT ts - ts % 10 AS s, k, count(*) AS n, max(x) AS m, count(DISTINCT y) AS d
        FROM a GROUP BY 1, 2""",
    "percentiles of windows": """
        SELECT ts - ts % 10 AS s, median(x) AS m, quantile_disc(DISTINCT y, 0.3) AS q
        FROM a GROUP BY 1""",
    "hopping windows": """
        SELECT k, window_start, sum(x) AS n FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), 5, 10))
        GROUP BY k, window_start""",
    "sessions": f"""
        SELECT k, window_start, count(*) AS n, max(ts) AS m FROM {SESSIONS}
        GROUP BY k, window_start""",
    "rows with their sessions": f"SELECT k, ts, x, window_start FROM {SESSIONS}",
    "sessions of no other columns": """
        SELECT ts, window_start FROM TABLE(SESSION(TABLE (SELECT ts FROM a), DESCRIPTOR(ts), 3))""",
    "interval join": f"SELECT a.k, a.ts, b.ts AS bts, a.x, a.y, b.z, b.w FROM {INTERVAL}",
    "windows of an interval join": f"""
        SELECT a.ts - a.ts % 10 AS s, count(*) AS n, sum(b.z) AS z FROM {INTERVAL} GROUP BY 1""",
    "equal windows": """
        SELECT l.s, l.n, r.n AS m FROM (SELECT ts // 10 AS s, count(*) AS n FROM a GROUP BY 1) l
        JOIN (SELECT ts // 10 AS s, count(*) AS n FROM b GROUP BY 1) r ON l.s = r.s""",
    "distinct": "SELECT DISTINCT k, ts FROM a",
    "semijoin": """
        SELECT * FROM a WHERE EXISTS
        (SELECT 1 FROM b WHERE b.k = a.k AND b.ts BETWEEN a.ts AND a.ts + 10)""",
    "antijoin": """
        SELECT * FROM a WHERE NOT EXISTS
        (SELECT 1 FROM b WHERE b.k = a.k AND b.ts BETWEEN a.ts AND a.ts + 10)""",
    "left join": "SELECT a.k, a.ts, b.z FROM a LEFT JOIN b ON b.k = a.k AND b.ts = a.ts",
    "partition of a window": "SELECT k, ts, sum(x) OVER (PARTITION BY ts ORDER BY k) AS s FROM a",
    "first rows": """
        SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY ts ORDER BY x) AS n FROM a)
        WHERE n <= 2""",
    "union": """
        SELECT ts, count(*) AS n FROM (SELECT ts FROM a UNION ALL SELECT ts FROM b) GROUP BY ts""",
    "except": "SELECT k, ts FROM a EXCEPT ALL SELECT k, ts FROM b",
    "one group": "SELECT count(*) AS n, sum(x) AS x FROM a",
}
GROWING = {
    "groups without a time": "SELECT k, x, y, max(ts) AS m FROM a GROUP BY k, x, y",
    "the order of a window": "SELECT ts, lag(x) OVER (PARTITION BY k ORDER BY ts) AS x FROM a",
    "a join by key": "SELECT a.ts, b.z FROM a JOIN b ON a.k = b.k",
    "a join with earlier rows": "SELECT a.ts, b.z FROM a JOIN b ON a.k = b.k AND b.ts <= a.ts",
    "the end of a session as a column": f"SELECT k, ts, window_end FROM {SESSIONS}",
    "a time that goes back": "SELECT 100 - ts AS t, count(*) AS n FROM a GROUP BY 1",
}


def kept_rows(circuit: Circuit) -> int:
    """The number of rows in all traces, without those that runs cancel."""
    return sum(len(t.to_zset()) for t in circuit.graph.traces.values() if t.orders)


def bag(table: pa.Table) -> Counter:
    rows = Counter()
    for row in table.to_pylist():
        weight = row.pop("weight")
        rows[tuple(row.values())] += weight
    return rows


def without_dropping(spec: CircuitSpec) -> Circuit:
    circuit = Circuit(spec)
    circuit.graph.state_bounds = None
    return circuit


def restart(circuit: Circuit) -> Circuit:
    other = Circuit(pickle.loads(pickle.dumps(circuit.spec)))
    other.restore(pickle.loads(pickle.dumps(circuit.snapshot())))
    return other


class Stream:
    """The rows of relations that were not late, and their watermarks."""

    def __init__(self, times: dict[str, tuple[int, int]]) -> None:
        self._times = times  # by relation: the column of the time, and the lateness
        self.rows = {name: Counter() for name in times}
        self._watermarks = dict.fromkeys(times, -(10**9))

    def step(self, rows: dict[str, list[tuple[tuple, int]]]) -> dict[str, list[tuple[tuple, int]]]:
        """Apply the rows of a step; return them without deletions of rows that do not exist."""
        applied = {}
        for name, changes in rows.items():
            column, lateness = self._times[name]
            watermark, applied[name] = self._watermarks[name], []
            for row, weight in changes:
                is_late = row[column] < watermark
                if weight < 0 and not is_late and self.rows[name][row] < -weight:
                    continue
                applied[name].append((row, weight))
                if not is_late:
                    self.rows[name][row] += weight
                if weight > 0:
                    latest = max(self._watermarks[name], row[column] - lateness)
                    self._watermarks[name] = latest
        return applied

    def lists(self) -> dict[str, list[tuple]]:
        return {name: list(rows.elements()) for name, rows in self.rows.items()}


def tables(changes: dict[str, list[tuple[tuple, int]]], columns: dict) -> dict[str, list[dict]]:
    return {
        name: [dict(zip(columns[name], row, strict=True), weight=w) for row, w in rows]
        for name, rows in changes.items()
        if rows
    }


@LAW
@given(st.data())
def test_a_random_plan_gives_what_it_gives_over_all_rows_that_are_not_late(data):
    plan: PlanNode = data.draw(plans())
    plan = Map(plan, columns_of(plan), tuple(f"c{c}" for c in range(len(plan.fields))))
    columns = {name: [f.name for f in fields] for name, fields in RELATIONS.items()}
    schemas = {n: pa.schema([(f.name, f.type) for f in fs]) for n, fs in RELATIONS.items()}
    options = {
        "r": InputOptions(lateness=Lateness("a", 1)),
        "s": InputOptions(lateness=Lateness("d", 2)),
    }
    spec = CircuitSpec({"view": plan}, schemas, CircuitOptions(input_options=options))
    circuit, plain = Circuit(spec), without_dropping(spec)
    stream, total = Stream({"r": (0, 1), "s": (1, 2)}), Counter()
    for now in range(data.draw(st.integers(2, 6))):
        time = st.integers(now - 2, now + 1)
        value = st.sampled_from(VALUES)
        weight = st.sampled_from([1, 1, 2, -1])
        drawn = {
            "r": st.lists(st.tuples(st.tuples(time, value), weight), max_size=3),
            "s": st.lists(st.tuples(st.tuples(value, time, value), weight), max_size=3),
        }
        given_rows = stream.step({name: data.draw(rows) for name, rows in drawn.items()})
        changes = tables(given_rows, columns)
        if data.draw(st.integers(0, 3)) == 0:
            circuit = restart(circuit)
        output = bag(circuit.step(changes)["view"])
        assert output == bag(plain.step(changes)["view"])
        for row, count in output.items():
            total[row] += count
        expected = evaluate_plan(plan, stream.lists())
        assert {r: w for r, w in total.items() if w} == {r: w for r, w in expected.items() if w}


def random_rows(name: str, now: int, source: random.Random) -> list[tuple[tuple, int]]:
    rows = []
    for _ in range(source.randint(0, 6)):
        row = (source.randint(0, 2), now - source.randint(0, 12), *source.choices(range(4), k=2))
        rows.append((row, source.choice([1, 1, 1, 2, -1])))
    return rows


@pytest.mark.parametrize("name", [*BOUNDED, *GROWING])
def test_a_query_gives_what_it_gives_without_dropping(name):
    circuit = compile_sql({**BOUNDED, **GROWING}[name], SCHEMAS, input_options=OPTIONS)
    plain = without_dropping(circuit.spec)
    source, now = random.Random(name), 0
    stream = Stream({"a": (1, 5), "b": (1, 8)})
    for step in range(60):
        now += source.randint(0, 6)
        rows = {name: random_rows(name, now, source) for name in COLUMNS}
        # In the first half also deletions of rows that do not exist: their weights are negative.
        changes = tables(rows if step < 30 else stream.step(rows), COLUMNS)
        if step % 7 == 3:
            circuit = restart(circuit)
        assert bag(circuit.step(changes)["view"]) == bag(plain.step(changes)["view"]), step


@pytest.mark.parametrize("name", ["sessions", "interval join", "windows of an interval join"])
def test_a_store_of_what_each_step_writes_has_the_state_without_dropped_rows(name):
    circuit = compile_sql(BOUNDED[name], SCHEMAS, input_options=OPTIONS)
    plain, store = without_dropping(circuit.spec), Store()
    source, now = random.Random(name), 0
    for step in range(40):
        now += source.randint(0, 6)
        changes = tables({name: random_rows(name, now, source) for name in COLUMNS}, COLUMNS)
        prepared = circuit.prepare(changes)
        store.write(prepared)
        prepared.commit()
        assert bag(prepared.outputs["view"]) == bag(plain.step(changes)["view"])
        if step % 6 == 5:
            kept = kept_rows(circuit)
            circuit = Circuit(circuit.spec)
            circuit.load(store.state())
            assert kept_rows(circuit) == kept


@pytest.mark.parametrize("name", BOUNDED)
def test_state_with_a_bound_stays_small(name):
    circuit = compile_sql(BOUNDED[name], SCHEMAS, input_options=OPTIONS)
    assert all(size.bound != UNBOUNDED for size in circuit.state_sizes())
    kept = []
    for now in range(0, 400, 2):
        rows = {
            "a": [((n % 3, now + n % 2, n % 5, n), 1) for n in range(4)],
            "b": [((n % 3, now + n % 2, n % 5, n), 1) for n in range(4)],
        }
        if now % 40 < 10:  # a pause, in which sessions end
            rows = {"a": [((now, now, 0, 0), 1)]}
        circuit.step(tables(rows, COLUMNS))
        kept.append(kept_rows(circuit))
    assert max(kept[150:]) <= max(kept[20:70]) + 4


@pytest.mark.parametrize("name", GROWING)
def test_explain_says_which_state_grows_for_ever(name):
    circuit = compile_sql(GROWING[name], SCHEMAS, input_options=OPTIONS)
    assert any(size.bound == UNBOUNDED for size in circuit.state_sizes())
    assert UNBOUNDED in circuit.explain()


def test_explain_names_the_bound_of_each_operator():
    circuit = compile_sql(BOUNDED["windows of an interval join"], SCHEMAS, input_options=OPTIONS)
    bounds = [size.bound for size in circuit.state_sizes()]
    least = "least(watermark of a, watermark of b - 10)"
    assert bounds == [
        "rows with ts >= watermark of b - 10",
        "rows with ts >= watermark of a",
        f"groups with ts - ts % 10 >= {least} - {least} % 10",
    ]
    assert "rows with ts >= watermark of b - 10" in circuit.explain()


def test_without_an_event_time_explain_has_no_bounds():
    circuit = compile_sql("SELECT DISTINCT k FROM a", SCHEMAS)
    assert [size.bound for size in circuit.state_sizes()] == [UNBOUNDED]
    assert "\nstate\n" not in circuit.explain()


def test_a_relation_keeps_what_any_of_its_joins_needs():
    circuit = compile_sql(BOUNDED["semijoin"], SCHEMAS, input_options=OPTIONS)
    bounds = {size.operator: size.bound for size in circuit.state_sizes()}
    assert bounds["a"] == "rows with ts >= least(watermark of a, watermark of b - 10)"


def test_rows_of_upserts_are_dropped_only_if_the_key_has_the_time():
    query = BOUNDED["interval join"]
    for keys, is_bounded in ((("k",), False), (("k", "ts"), True)):
        options = {
            name: InputOptions(keys=keys, lateness=option.lateness)
            for name, option in OPTIONS.items()
        }
        circuit = compile_sql(query, SCHEMAS, input_options=options)
        bounds = [size.bound for size in circuit.state_sizes()]
        assert all((bound == UNBOUNDED) != is_bounded for bound in bounds)


def test_rows_with_retention_bound_a_join_by_their_expiry():
    options = {**OPTIONS, "b": InputOptions(retain=Retention("ts", 30), lateness=Lateness("ts", 8))}
    circuit = compile_sql(BOUNDED["interval join"], SCHEMAS, input_options=options)
    plain = without_dropping(circuit.spec)
    assert not any(size.bound == UNBOUNDED for size in circuit.state_sizes())
    source, now = random.Random(3), 0
    for _ in range(40):
        now += source.randint(0, 9)
        changes = tables({name: random_rows(name, now, source) for name in COLUMNS}, COLUMNS)
        assert bag(circuit.step(changes)["view"]) == bag(plain.step(changes)["view"])


def test_an_ad_hoc_query_does_not_read_an_input_of_which_rows_were_dropped():
    query = "SELECT a.k, b.k AS l FROM a JOIN b ON a.ts = b.ts"
    circuit = compile_sql(query, SCHEMAS, input_options=OPTIONS)
    with pytest.raises(Exception, match="materialize"):
        circuit.query("SELECT count(*) FROM a")
    kept = compile_sql(query, SCHEMAS, input_options=OPTIONS, materialize=["a"])
    for now in range(0, 60, 3):
        kept.step(tables({"a": [((1, now, 0, 0), 1)]}, COLUMNS))
    assert kept.query("SELECT count(*) AS n FROM a").to_pylist() == [{"n": 20, "weight": 1}]


def test_an_abandoned_step_drops_nothing():
    circuit = compile_sql(BOUNDED["distinct"], SCHEMAS, input_options=OPTIONS)
    circuit.step(tables({"a": [((1, 1, 0, 0), 1)]}, COLUMNS))
    circuit.prepare(tables({"a": [((1, 90, 0, 0), 1)]}, COLUMNS)).abandon()
    assert bag(circuit.step(tables({"a": [((1, 1, 0, 0), -1)]}, COLUMNS))["view"]) == {(1, 1): -1}


def test_a_bound_outside_of_its_type_is_no_bound():
    time = WatermarkOf("a")
    for ticks in (2**40, -(2**40)):
        shifted = Shifted(time, ticks, pa.date32())
        year = FunctionOf(shifted, Call("year", (Column(0, pa.date32()),), pa.int64()))
        inputs = {"a": SimpleNamespace(frontier=lambda watermark: watermark)}
        bounds = SimpleNamespace(codecs=Codecs(), inputs=inputs)
        assert BoundedStep(bounds, {"a": 9}.get, {}).value(year) is None


@pytest.mark.parametrize(
    "time", ["CAST(ts AS DECIMAL(38, 4))", "ts * 1000.0", "CAST(ts AS DECIMAL(38, 4)) + 1"]
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT {time} AS t, count(*) AS n FROM a GROUP BY 1",
        "SELECT DISTINCT {time} AS t, x FROM a",
        "SELECT t, x, sum(x) OVER (PARTITION BY t) AS s FROM (SELECT {time} AS t, x FROM a)",
        "SELECT l.t, b.w FROM (SELECT {time} AS t FROM a) l JOIN b ON b.z = l.t",
    ],
)
def test_a_wide_decimal_computed_from_a_time_bounds_no_state(time, query):
    # The codes of wide decimals are not in the order of the values.
    circuit = compile_sql(query.format(time=time), SCHEMAS, input_options=OPTIONS)
    plain = without_dropping(circuit.spec)
    start = 1_700_000_000_000_000
    for ticks, x in (((1, 10), 1), ((10,), 2), ((11, 8), 3), ((10,), 1)):
        rows = [((1, start + tick, x, 0), 1) for tick in ticks]
        changes = tables({"a": rows, "b": [((1, start, start + 10, 7), 1)]}, COLUMNS)
        assert bag(circuit.step(changes)["view"]) == bag(plain.step(changes)["view"])
    assert any(size.bound == UNBOUNDED for size in circuit.state_sizes())


def test_a_narrow_decimal_computed_from_a_time_bounds_the_state():
    query = "SELECT CAST(ts AS DECIMAL(18, 2)) AS t, count(*) AS n FROM a GROUP BY 1"
    circuit = compile_sql(query, SCHEMAS, input_options=OPTIONS)
    assert not any(size.bound == UNBOUNDED for size in circuit.state_sizes())


def test_a_view_that_closes_by_a_wide_decimal_is_refused():
    program = """
        CREATE VIEW v AS SELECT CAST(ts AS DECIMAL(38, 4)) AS t, count(*) AS n FROM a GROUP BY 1
        EMIT ON WINDOW CLOSE"""
    with pytest.raises(InputOptionsError, match="needs a column that tells when a row is final"):
        compile_sql(program, SCHEMAS, input_options=OPTIONS)
