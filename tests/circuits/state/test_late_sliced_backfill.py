"""New views over inputs with lateness are computed in slices; then their watermarks advance."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from circuits import Circuit, InputOptions, Lateness, compile_sql
from circuits.state.program_change import ProgramChange
from circuits.state.sliced_backfill import SlicedBackfill, next_watermarks
from tests.circuits.runtime.test_state_bounds import (
    BOUNDED,
    COLUMNS,
    GROWING,
    SCHEMAS,
    SESSIONS,
    Stream,
    kept_rows,
    random_rows,
    restart,
    tables,
)
from tests.support.tables import bag_of

OPTIONS = {
    "a": InputOptions(lateness=Lateness("ts", 5), keep="all"),
    "b": InputOptions(lateness=Lateness("ts", 8), keep="all"),
}
CLOSING = {
    "closed windows": """
        SELECT ts // 10 AS s, k, count(*) AS n FROM a GROUP BY 1, 2 EMIT ON WINDOW CLOSE""",
    "closed windows of a join": """
        SELECT a.ts AS t, b.ts AS u, a.x FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts AND a.ts + 10 EMIT ON WINDOW CLOSE""",
    "closed sessions": f"""
        SELECT k, window_start, count(*) AS n FROM {SESSIONS}
        GROUP BY k, window_start EMIT ON WINDOW CLOSE""",
}
QUERIES = {**BOUNDED, **GROWING, **CLOSING}
OLD = "CREATE VIEW old AS SELECT ts - ts % 10 AS s, count(*) AS n FROM a GROUP BY 1;"
WITH_SESSIONS = f"CREATE VIEW old AS SELECT k, ts, x, window_start FROM {SESSIONS};"


def program(text: str, materialize=()) -> Circuit:
    return compile_sql(text, SCHEMAS, input_options=OPTIONS, materialize=[*materialize])


class Rows:
    """A random stream whose time goes on; rows that a step deletes exist."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self._stream = Stream({"a": (1, 5), "b": (1, 8)})

    def step(self) -> dict:
        self.now += self.random.randint(0, 6)
        rows = {name: random_rows(name, self.now, self.random) for name in COLUMNS}
        return tables(self._stream.step(rows), COLUMNS)


def add(total: Counter, table: pa.Table) -> None:
    total.update(bag_of(table))


@pytest.mark.parametrize(
    ("name", "old"),
    [
        *((name, OLD) for name in QUERIES),
        *((name, WITH_SESSIONS) for name in ("sessions", *CLOSING)),
    ],
)
def test_a_view_over_late_rows_equals_one_that_had_them_in_their_order(name, old):
    text = f"{old} CREATE VIEW new AS {QUERIES[name]}"
    materialize = ["old"] if old == WITH_SESSIONS else []
    for seed in range(2):
        rows = Rows(f"{name} {seed}")
        source = rows.random
        circuit, fresh = program(old, materialize), program(text)
        total: dict[str, Counter] = {"old": Counter(), "new": Counter()}
        expected: dict[str, Counter] = {"old": Counter(), "new": Counter()}

        def take(circuit, fresh, total=total, expected=expected, rows=rows):
            changes = rows.step()
            for view, table in fresh.step(changes).items():
                add(expected[view], table)
            prepared = circuit.prepare(changes)
            for view, table in prepared.outputs.items():
                add(total[view], table)
            prepared.commit()
            return prepared.changes

        for _ in range(source.randint(1, 12)):
            take(circuit, fresh)
        if seed == 1:
            circuit = restart(circuit)
        new = program(text, materialize)
        backfill = SlicedBackfill(ProgramChange(circuit, new), {"new": ()} if seed else {})
        max_rows = source.choice([1, 3, 10])
        while not backfill.is_complete:
            add(total["new"], backfill.slices.get("new", new.schema("new").empty_table))
            changes = take(circuit, fresh)
            backfill.confirm_slices()
            backfill.advance(changes, max_rows)
            backfill.emit(max_rows)
            max_rows += 1
        for view, table in backfill.finish().items():
            add(total[view], table)
        assert without_zeros(total) == without_zeros(expected)
        for step in range(12):
            take(new, fresh)
            assert without_zeros(total) == without_zeros(expected), step
        if not materialize and name in BOUNDED:
            assert kept_rows(new) == kept_rows(fresh)


def without_zeros(totals) -> dict[str, Counter]:
    return {view: Counter({r: n for r, n in rows.items() if n}) for view, rows in totals.items()}


def test_the_sessions_of_a_view_that_has_all_rows_bound_a_view_over_it():
    counts = "CREATE VIEW new AS SELECT k, window_start, count(*) AS n FROM old GROUP BY 1, 2"
    old, fresh = program(WITH_SESSIONS, ["old"]), program(WITH_SESSIONS + counts, ["old"])
    new = program(WITH_SESSIONS + counts, ["old"])
    total, expected = Counter(), Counter()

    def step(*circuits, times) -> None:
        rows = {"a": [{"k": 1, "ts": ts, "x": 0, "y": 0} for ts in times]}
        for circuit in circuits:
            for view, table in circuit.step(rows).items():
                if view == "new":
                    add(expected if circuit is fresh else total, table)

    for time in range(0, 60, 4):  # one session that stays open
        step(old, fresh, times=[time])
    add(total, ProgramChange(old, new).apply()["new"])
    for time in (60, 63, 66, 90, 99):
        step(new, fresh, times=[time])
    assert +total == +expected


@pytest.mark.parametrize(
    ("name", "rows_of_a_time"),
    [("tumbling windows", 40), ("interval join", 2), ("distinct", 1), ("closed windows", 20)],
)
@pytest.mark.parametrize("max_rows", [1, 10, 50])
def test_a_step_drops_the_given_rows_and_at_most_those_of_one_time_more(
    name, rows_of_a_time, max_rows
):
    old = program(OLD)
    for n in range(20):
        rows = [{"k": k, "ts": n * 10 + k, "x": k, "y": k} for k in range(10)]
        others = [{"k": k, "ts": n * 10 + k, "z": k, "w": k} for k in range(10)]
        old.step({"a": rows, "b": others})
    new = program(f"{OLD} CREATE VIEW new AS {QUERIES[name]}")
    backfill = SlicedBackfill(ProgramChange(old, new))
    sizes, graph = [], backfill.change.graph
    slices = 0
    while not backfill.is_complete:
        before = kept_rows_of(graph)
        read = backfill.rows_read
        backfill.advance((), max_rows)
        slices += 1
        if backfill.rows_read == read:
            sizes.append(before - kept_rows_of(graph))
    assert max(sizes) < max_rows + rows_of_a_time + (max_rows < rows_of_a_time)
    assert slices > backfill.rows_read / max_rows
    assert sum(sizes) > 90


def test_the_watermarks_catch_up_although_each_step_drops_more_rows_than_the_limit():
    old = program(OLD)

    def feed(number):
        rows = [{"k": k, "ts": number * 10 + k, "x": k, "y": k} for k in range(10)]
        prepared = old.prepare({"a": rows})
        prepared.commit()
        return prepared.changes

    for number in range(6):
        feed(number)
    new = program(f"{OLD} CREATE VIEW new AS {BOUNDED['distinct']}")
    backfill = SlicedBackfill(ProgramChange(old, new))
    assert backfill.advance((), 60) == 60
    number, dropped = 6, []
    while not backfill.is_complete:
        dropped.append(backfill.advance(feed(number), 3))
        number += 1
        assert number < 60
    assert max(dropped) <= 3
    assert sum(dropped) > 30


def kept_rows_of(graph) -> int:
    return sum(len(t.to_zset()) for t in graph.traces.values() if t.orders and not t.is_empty)


def test_watermarks_advance_by_whole_event_times():
    circuit = program(f"CREATE VIEW new AS {BOUNDED['distinct']}")
    rows = [{"k": k, "ts": ts, "x": 0, "y": 0} for ts in (100, 107, 107, 200) for k in range(3)]
    circuit.step({"a": rows})
    graph = circuit.graph
    graph.watermarks, graph.drop_limits = {}, {}
    (name,) = {"input a watermark"}
    assert graph.count_rows_to_drop({name: 108}) == 0  # they are dropped already
    circuit = program(f"CREATE VIEW new AS {BOUNDED['distinct']}")
    graph = circuit.graph
    graph.state_bounds, bounds = None, graph.state_bounds
    circuit.step({"a": rows})
    graph.state_bounds = bounds
    graph.watermarks, graph.drop_limits = {}, {}
    (counted,) = {graph.count_rows_to_drop({name: 101})}
    assert counted == 3
    assert next_watermarks(graph, {name: 195}, 100) == ({name: 195}, 6)
    assert next_watermarks(graph, {name: 195}, 3) == ({name: 107}, 3)
    assert next_watermarks(graph, {name: 195}, 1) == ({name: 101}, 3)
    graph.watermarks = {name: 194}
    assert next_watermarks(graph, {name: 194}, 1) == ({name: 194}, 0)


def test_an_arrangement_of_a_bounded_relation_that_only_a_new_join_reads_is_built_by_the_slices():
    near = "b.ts BETWEEN a.ts AND a.ts + 10"
    join = f"CREATE VIEW old AS SELECT a.ts, b.z FROM a JOIN b ON a.k = b.k AND {near};"
    other = f"CREATE VIEW new AS SELECT a.ts, b.z FROM a JOIN b ON a.x = b.z AND {near}"
    old, rows = program(join), Rows("arrangements")
    for _ in range(30):
        old.step(rows.step())
    new = program(join + other)
    backfill = SlicedBackfill(ProgramChange(old, new))
    while not backfill.is_complete:
        prepared = old.prepare(rows.step())
        prepared.commit()
        backfill.advance(prepared.changes, 20)
    filled = {
        (name, a.order): a.spine.runs
        for name, trace in backfill.change.graph.traces.items()
        for a in trace.arrangements
    }
    backfill.finish()
    built = 0
    for name, trace in new.graph.traces.items():
        old_trace = old.graph.traces.get(name)
        for arrangement in trace.arrangements:
            if old_trace is None or arrangement.order not in old_trace.orders:
                built += bool(arrangement.spine.runs)
                assert arrangement.spine.runs == filled[name, arrangement.order]
    assert built
