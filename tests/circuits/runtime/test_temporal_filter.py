"""Conditions on ``now()``, compared with DuckDB over all rows so far, at the time of each step."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import circuits.runtime.operators.time.temporal_filter as temporal_filter
from circuits import (
    Circuit,
    CircuitError,
    CircuitSpec,
    EvaluationError,
    InputOptions,
    InputOptionsError,
    Retention,
    SqlError,
    compile_sql,
)
from tests.support.tables import INT, bag_of

NOON = datetime(2024, 2, 28, 12)
MINUTE = timedelta(minutes=1)
STAMP = pa.timestamp("us")
SCHEMAS = {
    "r": pa.schema([("id", INT), ("ts", STAMP), ("d", pa.date32())]),
    "s": pa.schema([("id", INT), ("name", pa.string())]),
}
VIEWS = {
    "newer": "SELECT id, ts FROM r WHERE ts > now() - INTERVAL '10 minutes'",
    "in_range": "SELECT id, ts FROM r WHERE ts BETWEEN now() - INTERVAL '10 minutes' AND now()",
    "started": "SELECT id FROM r WHERE now() > ts + INTERVAL '3 minutes'",
    "not_after": "SELECT id FROM r WHERE ts <= now() AND id > 1",
    "not_before": "SELECT id FROM r WHERE ts + INTERVAL '5 minutes' >= now()",
    "today": "SELECT id, d FROM r WHERE d = current_date",
    "yesterday": "SELECT id, d FROM r WHERE d >= current_date - 1 AND d < current_date",
    "in_hour": "SELECT id FROM r WHERE ts >= date_trunc('hour', now())",
    "counts": "SELECT id, count(*) AS n, max(ts) AS t FROM r WHERE ts < now() GROUP BY id",
    "joined": (
        "SELECT r.id, ts, name FROM r, s "
        "WHERE ts >= now() - INTERVAL '4 minutes' AND r.id = s.id AND name <> 'b'"
    ),
    "exists": (
        "SELECT name FROM s WHERE EXISTS "
        "(SELECT 1 FROM r WHERE r.id = s.id AND ts > now() - INTERVAL '2 minutes')"
    ),
    "without": (
        "SELECT s.id, r.ts FROM s LEFT JOIN "
        "(SELECT * FROM r WHERE ts > now() - INTERVAL '2 minutes') r ON r.id = s.id"
    ),
    "left_side": (
        "SELECT r.id, name FROM r LEFT JOIN s ON r.id = s.id "
        "WHERE ts > now() - INTERVAL '2 minutes'"
    ),
    "either": (
        "SELECT id, ts FROM r WHERE ts > now() - INTERVAL '4 minutes' OR id = 1 OR ts IS NULL"
    ),
    "neither": "SELECT id, ts FROM r WHERE NOT (ts > now() OR id = 1 AND d < current_date)",
    "outside": "SELECT id, ts FROM r WHERE now() NOT BETWEEN ts AND ts + INTERVAL '5 minutes'",
    "unequal": "SELECT id, ts, d FROM r WHERE ts <> now() AND (d <> current_date) IS NOT FALSE",
    "cases": (
        "SELECT id, ts FROM r WHERE CASE WHEN ts > now() THEN id = 1 "
        "WHEN ts > now() - INTERVAL '5 minutes' THEN d > current_date ELSE id = 2 END"
    ),
    "younger": "SELECT id, ts FROM r WHERE now() - ts < INTERVAL '10 minutes'",
    "older": (
        "SELECT id, ts FROM r WHERE INTERVAL '3 minutes' <= ts - now() OR current_date - d > 1"
    ),
    "by_row": "SELECT id, ts FROM r WHERE ts > now() - id * INTERVAL '5 minutes'",
    "seconds": "SELECT id, ts FROM r WHERE epoch(ts) >= epoch(now()) - 300",
    "elapsed": "SELECT id, ts FROM r WHERE extract(epoch FROM now() - ts) > 300",
    "boundaries": "SELECT id, ts FROM r WHERE date_diff('hour', ts, now()) <= 0",
    "this_year": "SELECT id, ts FROM r WHERE year(ts) = year(now())",
    "joined_on": (
        "SELECT r.id, ts, name FROM r JOIN s ON r.id = s.id AND (ts < now() OR name = 'a')"
    ),
    "left_on": "SELECT s.id, ts FROM s LEFT JOIN r ON r.id = s.id AND ts > now()",
    "full_on": "SELECT s.id, ts FROM s FULL JOIN r ON r.id = s.id AND ts > now()",
    "anti_on": "SELECT s.id FROM s ANTI JOIN r ON r.id = s.id AND ts > now()",
    "groups": (
        "SELECT id, max(ts) FROM r GROUP BY id "
        "HAVING max(ts) < now() - INTERVAL '1 minute' OR count(*) > 2"
    ),
    "compared": "SELECT id, ts FROM r WHERE (ts > now()) = (id = 1)",
    "compared_with_less": (
        "SELECT id, ts FROM r WHERE (ts > now()) < (id = 1) OR (ts = now()) <> (id > 1)"
    ),
    # In aggregates and QUALIFY
    "counted_compared": (
        "SELECT d, count(*) FILTER (WHERE (ts > now()) = (id = 1)) AS n FROM r GROUP BY d"
    ),
    "counted": (
        "SELECT id, count(*) FILTER (WHERE ts > now() - INTERVAL '4 minutes') AS n "
        "FROM r GROUP BY id"
    ),
    "counted_total": (
        "SELECT count(*) FILTER (WHERE ts < now()), max(id) FILTER (WHERE d = current_date) FROM r"
    ),
    "cases_in_sum": (
        "SELECT d, sum(CASE WHEN ts > now() THEN id WHEN ts IS NULL THEN 100 ELSE -id END), "
        "count(DISTINCT ts < now()), bool_and(ts <> now()) FROM r GROUP BY d"
    ),
    "listed": (
        "SELECT d, string_agg(id::TEXT ORDER BY ts < now() - INTERVAL '3 minutes', id) AS ids "
        "FROM r GROUP BY d"
    ),
    "filtered_having": (
        "SELECT id FROM r GROUP BY id "
        "HAVING count(*) FILTER (WHERE now() - ts > INTERVAL '2 minutes') > 0"
    ),
    "counted_by_row": (
        "SELECT s.id, (SELECT count(*) FILTER (WHERE r.ts > now()) FROM r WHERE r.id = s.id) FROM s"
    ),
    "counted_rollup": (
        "SELECT id, d, count(*) FILTER (WHERE ts BETWEEN now() - INTERVAL '4 minutes' AND now()) "
        "FROM r GROUP BY ROLLUP (id, d)"
    ),
    "first_if_new": (
        "SELECT id, ts, d FROM r QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts, d) = 1 "
        "AND ts > now() - INTERVAL '4 minutes'"
    ),
    "numbered_if_new": (
        "SELECT ts, row_number() OVER (PARTITION BY id ORDER BY ts, d) AS n FROM r "
        "QUALIFY n <= 2 AND (d < current_date OR ts > now() OR n = 1)"
    ),
    "of_new_groups": (
        "SELECT id, ts FROM r QUALIFY max(ts) OVER (PARTITION BY id) > now() - INTERVAL '4 minutes'"
    ),
    "ranked_groups": (
        "SELECT id, max(ts) AS t FROM r GROUP BY id "
        "QUALIFY rank() OVER (ORDER BY max(ts)) <= 2 AND max(ts) < now()"
    ),
    # The time as a value
    "time_alone": "SELECT CAST(now() AS TIMESTAMP) AS t, current_date AS day",
    "stamped": "SELECT id, CAST(now() AS TIMESTAMP) AS t, current_date - d AS days FROM r",
    "stamped_groups": (
        "SELECT id, count(*) AS n, CAST(now() AS TIMESTAMP) > max(ts) AS is_over FROM r GROUP BY id"
    ),
    "stamped_total": "SELECT count(ts) AS n, CAST(now() AS TIMESTAMP) AS t FROM r",
    "filtered_counts": (
        "SELECT id, count(*) FILTER (WHERE ts < t) AS n "
        "FROM (SELECT *, CAST(now() AS TIMESTAMP) AS t FROM r) AS x GROUP BY id"
    ),
    "stamped_right": (
        "SELECT s.id, t FROM s LEFT JOIN (SELECT id, CAST(now() AS TIMESTAMP) AS t FROM r "
        "WHERE ts > now()) AS x ON x.id = s.id"
    ),
    "stamped_ranks": (
        "SELECT id, rank() OVER (PARTITION BY id ORDER BY d) AS k, CAST(now() AS TIMESTAMP) AS t "
        "FROM r"
    ),
}
TEXT = "".join(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items())

minutes = st.integers(-30, 30)
times = st.one_of(st.none(), minutes.map(lambda n: NOON + n * MINUTE))
days = st.one_of(st.none(), st.integers(-2, 2).map(lambda n: (NOON + timedelta(days=n)).date()))
readings = st.tuples(st.integers(0, 3), times, days)
names = st.tuples(st.integers(0, 3), st.sampled_from([None, "a", "b", "c"]))
durations = st.one_of(
    st.integers(-3, 12).map(lambda n: n * MINUTE),
    st.sampled_from([timedelta(0), timedelta(seconds=1), timedelta(hours=12), timedelta(days=1)]),
)


def table_of(name: str, changes: list) -> pa.Table:
    schema = SCHEMAS[name]
    columns = [
        pa.array([row[i] for row, _ in changes], field.type) for i, field in enumerate(schema)
    ]
    table = pa.Table.from_arrays(columns, schema=schema)
    return table.append_column("weight", pa.array([w for _, w in changes], INT))


def expected(rows: dict[str, Counter], now: datetime) -> dict[str, Counter]:
    """Evaluate the views over all rows at a time."""
    results = {}
    with duckdb.connect() as connection:
        for name, bag in rows.items():
            table = table_of(name, [(row, 1) for row in bag.elements()]).drop_columns(["weight"])
            connection.register(name, table)
        for view, query in VIEWS.items():
            query = query.replace("now()", f"TIMESTAMP '{now}'")
            query = query.replace("current_date", f"DATE '{now.date()}'")
            results[view] = Counter(connection.execute(query).fetchall())
    return results


def change_of(data, rows: Counter, values) -> list:
    inserted = [(row, 1) for row in data.draw(st.lists(values, max_size=4))]
    present = sorted(rows.elements(), key=repr)
    deleted = data.draw(st.lists(st.sampled_from(present), max_size=3)) if present else []
    possible = Counter(deleted) & rows
    return inserted + [(row, -1) for row in possible.elements()]


@pytest.fixture(scope="module")
def spec() -> CircuitSpec:
    return compile_sql(TEXT, SCHEMAS).spec


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_views_equal_the_query_over_all_rows_at_the_time_of_each_step(spec, data):
    circuit = Circuit(spec)
    rows: dict[str, Counter] = {"r": Counter(), "s": Counter()}
    totals: dict[str, Counter] = {name: Counter() for name in VIEWS}
    clock, latest = NOON, datetime.min
    for _ in range(data.draw(st.integers(1, 6))):
        changes = {
            "r": change_of(data, rows["r"], readings),
            "s": change_of(data, rows["s"], names),
        }
        clock += data.draw(durations)
        latest = max(clock, latest)  # time never goes back
        tables = {name: table_of(name, change) for name, change in changes.items() if change}
        if data.draw(st.booleans()):
            circuit.prepare(tables, now=clock + MINUTE).abandon()
        deltas = circuit.step(tables, now=clock)
        for name, change in changes.items():
            for row, weight in change:
                rows[name][row] += weight
        results = expected(rows, latest)
        for view, delta in deltas.items():
            totals[view].update(bag_of(delta))
            rows_of_view = Counter({row: n for row, n in totals[view].items() if n})
            assert rows_of_view == results[view], view
        if data.draw(st.booleans()):
            snapshot = pickle.loads(pickle.dumps(circuit.snapshot()))
            circuit = Circuit(circuit.spec)
            circuit.restore(snapshot)


def circuit_of(condition: str, **options) -> Circuit:
    return compile_sql(f"SELECT id FROM r WHERE {condition}", SCHEMAS, **options)


def rows_at(*at: int) -> list[dict]:
    return [{"id": n, "ts": NOON + n * MINUTE} for n in at]


def test_a_step_without_rows_reads_only_the_rows_that_change(monkeypatch):
    read = []
    scan = temporal_filter.range_scan

    def scan_and_count(*arguments):
        rows = scan(*arguments)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(temporal_filter, "range_scan", scan_and_count)
    circuit = circuit_of("ts > now() - INTERVAL '1 minute'")
    circuit.step({"r": rows_at(*range(5000))}, now=NOON)
    delta = circuit.step({}, now=NOON + 7 * MINUTE)["view"]
    assert sorted(delta["id"].to_pylist()) == list(range(7))
    assert sum(read) == 7


def test_rows_that_the_clock_has_passed_are_not_kept():
    circuit = circuit_of("ts > now() - INTERVAL '10 minutes'")
    for minute in range(0, 200, 5):
        circuit.step({"r": rows_at(*range(minute - 20, minute))}, now=NOON + minute * MINUTE)
        assert sum(trace.rows for trace in circuit.graph.traces.values()) <= 40


def test_a_time_zone_is_converted_to_utc():
    circuit = compile_sql(
        "SELECT id FROM r WHERE ts <= now()",
        {"r": pa.schema([("id", INT), ("ts", pa.timestamp("us", tz="Europe/Rome"))])},
    )
    rows = [{"id": 1, "ts": datetime(2024, 2, 28, 12, tzinfo=UTC)}]
    before = pa.scalar(datetime(2024, 2, 28, 11, 59), STAMP)
    assert circuit.step({"r": rows}, now=before)["view"].num_rows == 0
    after = circuit.step({}, now=datetime(2024, 2, 28, 12, tzinfo=UTC))
    assert after["view"].num_rows == 1


def test_a_time_before_that_of_the_last_step_counts_as_the_same_time_also_at_the_epoch():
    circuit = circuit_of("ts <= now()")
    epoch = datetime(1970, 1, 1)
    circuit.step({"r": [{"id": 1, "ts": epoch}]}, now=epoch)
    delta = circuit.step({"r": [{"id": 2, "ts": epoch}]}, now=epoch - MINUTE)
    assert delta["view"].num_rows == 1


def test_the_time_is_needed_only_by_views_that_read_it():
    with pytest.raises(CircuitError, match=r"now=datetime.now\(UTC\)"):
        circuit_of("ts < now()").step({"r": rows_at(1)})
    plain = circuit_of("id < 3")
    assert not plain.reads_now
    plain.step({"r": rows_at(1)}, now=NOON)
    assert plain.graph.watermarks == {}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id FROM r ORDER BY now()", r"column 27: function now\(\) in ORDER BY"),
        ("SELECT max(now()) FROM r", "column 12: .* in an aggregate, outside of a comparison"),
        ("SELECT max(now() - ts) FROM r", r"SELECT \*, now\(\) AS time FROM t"),
        ("SELECT count(*) FILTER (WHERE minute(now()) > id) FROM r", "can decrease"),
        ("SELECT id FROM r GROUP BY id, now()", r"now\(\) in GROUP BY"),
        ("SELECT id FROM r WHERE now() IS NOT NULL", "in such a condition"),
        (
            "SELECT id FROM r WHERE " + " OR ".join(f"d = current_date - {n}" for n in range(4)),
            "with 8 comparisons with .*, more than 6, .*UNION ALL",
        ),
        ("SELECT id FROM r WHERE minute(now()) > id", "can decrease"),
        ("SELECT id FROM r WHERE ts > now() - INTERVAL '1 month'", "truncate first"),
        ("SELECT id FROM r WHERE id > now()", "no common type"),
        ("SELECT id FROM r GROUP BY id HAVING minute(now()) > id", "can decrease"),
        (
            "SELECT id FROM r QUALIFY row_number() OVER () > 1 AND minute(now()) > id",
            "can decrease",
        ),
        (
            "SELECT id FROM r QUALIFY count(*) FILTER (WHERE ts > now()) OVER () > 1",
            r"column 54: function now\(\) in the window function in QUALIFY",
        ),
        (
            "SELECT id FROM r QUALIFY rank() OVER (PARTITION BY ts > now() ORDER BY id) > 1",
            "in the window function in QUALIFY",
        ),
        (
            "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.id = r.id AND r.ts > now())",
            "a column of the enclosing query",
        ),
        (
            "WITH RECURSIVE w AS (SELECT id, ts FROM r UNION SELECT s.id, w.ts FROM w JOIN s "
            "ON s.id = w.id WHERE w.ts < now()) SELECT * FROM w",
            "a comparison with now\\(\\) of the recursive",
        ),
    ],
)
def test_other_uses_of_the_time_are_refused(query, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(query, SCHEMAS)


# By condition: its truth for the microseconds of ts, the number ms, and the time in milliseconds.
OF_MILLISECONDS = {
    "extract(epoch FROM ts) * 1000 > mz_now()": lambda us, ms, now: us > 1000 * now,
    "mz_now() <= 1000 * extract(epoch FROM ts) + 60000": (
        lambda us, ms, now: 1000 * now <= us + 60_000_000
    ),
    "extract(epoch FROM ts) * 1000 - 1 < mz_now()": lambda us, ms, now: us - 1000 < 1000 * now,
    "mz_now() BETWEEN ms AND ms + 2000": lambda us, ms, now: ms <= now <= ms + 2000,
    "ms - 500 > mz_now()": lambda us, ms, now: ms - 500 > now,
    "mz_now() < ms::double precision": lambda us, ms, now: now < ms,
    "mz_now() >= ts + INTERVAL '1 second'": lambda us, ms, now: 1000 * now >= us + 1_000_000,
}


@pytest.mark.parametrize("condition", OF_MILLISECONDS)
def test_mz_now_is_a_number_of_milliseconds_next_to_a_number(condition):
    circuit = compile_sql(
        f"SELECT id FROM r WHERE {condition}",
        {"r": pa.schema([("id", INT), ("ts", STAMP), ("ms", pa.int64())])},
        dialect="materialize",
    )
    start = int(NOON.replace(tzinfo=UTC).timestamp()) * 1000
    moments = {n: start * 1000 + n * 500 for n in range(-6, 7)}  # every half of a millisecond
    moments |= {100 + n: start * 1000 + n * 1_000_000 for n in (-61, -60, -59, -2, -1, 1, 2)}
    rows = [
        {"id": n, "ts": datetime(1970, 1, 1) + timedelta(microseconds=us), "ms": us // 1000}
        for n, us in moments.items()
    ]
    found: Counter[int] = Counter()
    truth = OF_MILLISECONDS[condition]
    for step, micros in enumerate((-1_000_000, -500, 0, 500, 1000, 2_000_000)):
        now = NOON + timedelta(microseconds=micros)
        changes = rows if step == 0 else []
        if step == 3:
            changes = [row | {"weight": -1} for row in rows if row["id"] % 2]
            moments = {n: us for n, us in moments.items() if n % 2 == 0}
        for row in circuit.step({"r": changes} if changes else {}, now=now)["view"].to_pylist():
            found[row["id"]] += row["weight"]
        milliseconds = start + micros // 1000
        expected_ids = {n for n, us in moments.items() if truth(us, us // 1000, milliseconds)}
        if "INTERVAL" in condition:  # a comparison of timestamps, to the microsecond
            now_micros = start * 1000 + micros
            expected_ids = {n for n, us in moments.items() if now_micros >= us + 1_000_000}
        assert +found == Counter(expected_ids), step


def test_equal_comparisons_in_aggregates_are_evaluated_once():
    condition = "FILTER (WHERE ts > now())"
    once, twice = (
        compile_sql(f"SELECT count(*) {condition} AS n{also} FROM r", SCHEMAS).explain()
        for also in ("", f", max(id) {condition} AS m, sum(id) {condition} + n AS s")
    )
    assert once.count("temporal filter") == twice.count("temporal filter") > 0


def test_a_query_of_the_stored_rows_has_no_time():
    circuit = compile_sql("SELECT id, ts FROM r", SCHEMAS, materialize=True)
    circuit.step({"r": rows_at(1)})
    with pytest.raises(EvaluationError, match="put the condition in a view"):
        circuit.query("SELECT id FROM r WHERE ts < now()")
    with pytest.raises(EvaluationError, match="put it in a view"):
        circuit.query("SELECT id, now() AS t FROM r")


def test_results_that_stay_when_rows_expire_cannot_depend_on_the_time():
    options = {"r": InputOptions(retain=Retention("ts", "1 day", on_expiry="keep"))}
    with pytest.raises(InputOptionsError, match=r"a comparison with now\(\) over input 'r'"):
        circuit_of("ts < now()", input_options=options)
    with pytest.raises(InputOptionsError, match=r"now\(\) over input 'r'"):
        compile_sql("SELECT id, now() AS t FROM r", SCHEMAS, input_options=options)


@pytest.mark.parametrize(
    "condition",
    [
        "current_date - d < 2147483647",
        "current_date - d > -2147483647",
        "d - current_date >= 2147483000",
        "current_date - d < id",
        "current_date - d >= -id",
        "d - current_date < id",
        "DATE '2024-03-01' - current_date > 1",
        "date_diff('day', ts, now()) < 100000000",
        "date_diff('day', ts, now()) > -5",
        "date_diff('hour', d, now()) >= -5",
        "date_sub('day', ts, now()) < 5",
        "date_sub('day', ts, now()) >= -5",
    ],
)
def test_a_moved_sum_is_right_for_extreme_and_infinite_values(condition):
    ids = [0, 1, -1, 5, 2**31 - 1, -(2**31), 2**62, -(2**62)]
    ticks = [2**63 - 1, -(2**63 - 1), *(n * 86_400_000_000 for n in (0, 19_000, 19_790, 20_000))]
    days = [0, 19_000, 19_780, 19_781, 19_785, 20_000, 2_000_000]
    rows = [(n, t, d) for n in ids for t in ticks for d in days]
    columns = [pa.array(column, INT) for column in zip(*rows, strict=True)]
    columns[1] = columns[1].cast(STAMP)
    columns[2] = columns[2].cast(pa.int32()).cast(pa.date32())
    table = pa.Table.from_arrays(columns, names=["id", "ts", "d"])
    circuit = compile_sql(f"SELECT * FROM r WHERE {condition}", SCHEMAS)
    weights = pa.array([1] * len(rows), INT)
    output = circuit.step({"r": table.append_column("weight", weights)}, now=NOON)["view"]
    query = condition.replace("now()", f"TIMESTAMP '{NOON}'")
    query = query.replace("current_date", f"DATE '{NOON.date()}'")
    with duckdb.connect() as connection:
        connection.register("r", table)
        expected = connection.sql(f"SELECT * FROM r WHERE {query}").to_arrow_table()

    def codes(result: pa.Table) -> Counter:
        parts = [
            result.column(name).cast(pa.int32() if name == "d" else INT).to_pylist()
            for name in ("id", "ts", "d")
        ]
        return Counter(zip(*parts, strict=True))

    assert codes(output) == codes(expected)


@pytest.mark.parametrize(
    "condition",
    [
        "date_diff('day', ts, now()) < 1000000000",
        "date_sub('day', ts, now()) > -1000000000",
        "extract(epoch FROM now() - ts) < 1e300",
        "epoch(ts) * 1000 - 1e300 > epoch_ms(now())",
    ],
)
def test_a_duration_beyond_all_times_is_no_error_of_python(condition):
    try:
        circuit_of(condition).step({"r": rows_at(0)}, now=NOON)
    except SqlError as error:
        assert "now()" in str(error)


def test_a_number_of_milliseconds_is_rounded_as_its_cast_does():
    rows = [{"id": n, "ts": NOON + timedelta(microseconds=400 * n)} for n in range(5)]
    counts = []
    for type in ("BIGINT", "DOUBLE", "DECIMAL(18, 3)", "DECIMAL(18, 0)"):
        condition = f"CAST(epoch(ts) * 1000 AS {type}) > epoch_ms(now())"
        try:
            output = circuit_of(condition).step({"r": rows}, now=NOON)["view"]
        except SqlError:
            counts.append(None)
        else:
            counts.append(len(output))
    assert counts == [3, 4, 4, None]
