"""EMIT ON WINDOW CLOSE: each row is emitted once, when it is final; unsupported views are errors.

The oracle is the same query without the clause: a row is emitted when the watermark has passed its
window, with the weight that it has there.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from circuits import InputOptionsError, Retention, SqlError, UnsupportedSqlError, compile_sql, udf
from circuits.inputs.input_options import InputOptions, Lateness
from dbsp_wcoj.errors import ArgumentTypeError
from tests.circuits.runtime.test_state_bounds import (
    COLUMNS,
    INTERVAL,
    OPTIONS,
    SCHEMAS,
    SESSIONS,
    bag,
    random_rows,
    restart,
    tables,
)

# A row of these is final when the watermark has reached column 1.
WINDOWS = {
    "tumbling": """
        SELECT k, window_end, sum(x) AS x FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), 10))
        GROUP BY k, window_end""",
    "hopping": """
        SELECT k, window_end, count(*) AS n FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), 5, 10))
        GROUP BY k, window_end""",
}
OTHERS = {
    "groups": "SELECT ts, max(x) AS x, count(DISTINCT y) AS y FROM a GROUP BY ts",
    "sessions": f"""SELECT k, window_start, max(ts) AS last, count(*) AS n FROM {SESSIONS}
        GROUP BY k, window_start""",
    "interval join": f"SELECT a.k, a.ts, b.ts AS bts, a.x, b.z FROM {INTERVAL}",
    "filter": "SELECT k, ts, x FROM a WHERE x > 1",
    "window by time": """
        SELECT ts, k, x, y, lag(x) OVER (PARTITION BY k ORDER BY ts, x, y) AS l FROM a""",
    "outer join": "SELECT a.ts, a.x, b.z FROM a LEFT JOIN b ON a.ts = b.ts AND a.k = b.k",
}
EMIT = " EMIT ON WINDOW CLOSE"


def steps(seed: str, count: int = 50):
    source, now = random.Random(seed), 0
    for _ in range(count):
        now += source.randint(0, 6)
        rows = {name: random_rows(name, now, source) for name in COLUMNS}
        yield tables(rows, COLUMNS)


def add(total: Counter, change: Counter) -> None:
    for row, weight in change.items():
        total[row] += weight
        if not total[row]:
            del total[row]


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_is_emitted_when_the_watermark_has_passed_its_end(name):
    query = WINDOWS[name]
    circuit = compile_sql(query + EMIT, SCHEMAS, input_options=OPTIONS)
    plain = compile_sql(query, SCHEMAS, input_options=OPTIONS)
    emitted, expected, latest = Counter(), Counter(), -100
    for number, changes in enumerate(steps(name)):
        if number % 9 == 4:
            circuit = restart(circuit)
        add(emitted, bag(circuit.step(changes)["view"]))
        add(expected, bag(plain.step(changes)["view"]))
        times = [row["ts"] for row in changes.get("a", ()) if row["weight"] > 0]
        latest = max([latest, *times])
        assert emitted == {row: w for row, w in expected.items() if row[1] <= latest - 5}
    assert emitted


@pytest.mark.parametrize("name", [*WINDOWS, *OTHERS])
def test_each_row_is_emitted_once_and_none_is_missing(name):
    query = {**WINDOWS, **OTHERS}[name]
    circuit = compile_sql(query + EMIT, SCHEMAS, input_options=OPTIONS)
    plain = compile_sql(query, SCHEMAS, input_options=OPTIONS)
    emitted, expected = Counter(), Counter()
    for number, changes in enumerate([*steps(name), {}]):
        if number % 9 == 4:
            circuit = restart(circuit)
        end = {} if changes else {"a": 10**6, "b": 10**6}
        output = bag(circuit.step(changes, end)["view"])
        assert not emitted.keys() & output.keys()  # not again, and no correction
        add(emitted, output)
        add(expected, bag(plain.step(changes, end)["view"]))
    assert emitted == expected


def test_few_pairs_of_an_interval_join_wait():
    query = OTHERS["interval join"] + EMIT
    circuit = compile_sql(query, SCHEMAS, input_options=OPTIONS)
    emitted, waiting = 0, []
    for changes in steps("join", 120):
        emitted += circuit.step(changes)["view"].num_rows
        waiting += [size.rows for size in circuit.state_sizes() if size.kind == "window close"]
    assert emitted > 100
    assert max(waiting[60:]) <= 2 * max(waiting[20:60])


def test_a_watermark_of_the_source_closes_windows_without_a_row():
    circuit = compile_sql(WINDOWS["tumbling"] + EMIT, SCHEMAS, input_options=OPTIONS)
    circuit.step({"a": [{"k": 1, "ts": 3, "x": 4, "y": 0}]})
    assert bag(circuit.step({}, {"a": 9})["view"]) == {}
    assert bag(circuit.step({}, {"a": 10})["view"]) == {(1, 10, 4): 1}
    assert bag(circuit.step({}, {"a": 90})["view"]) == {}


def test_a_view_over_a_view_that_emits_final_rows():
    text = f"""
        CREATE TABLE a (k BIGINT, ts BIGINT, x BIGINT, y BIGINT, WATERMARK FOR ts AS ts - 5);
        CREATE VIEW windows AS {WINDOWS["tumbling"]}{EMIT};
        CREATE VIEW most AS SELECT window_end, max(x) AS x FROM windows GROUP BY 1{EMIT};"""
    circuit = compile_sql(text)
    emitted = []
    for ts in range(0, 40, 3):
        output = circuit.step({"a": [{"k": ts % 2, "ts": ts, "x": ts, "y": 0}]})
        emitted += bag(output["most"]).items()
    assert emitted == [((10, 12), 1), ((20, 30), 1), ((30, 48), 1)]


@pytest.mark.parametrize(
    ("text", "options", "fault"),
    [
        (
            "SELECT k, count(*) AS n FROM a GROUP BY k",
            OPTIONS,
            "line 1, column 43: .*a later row",
        ),
        ("SELECT ts FROM a", {}, "needs an input with lateness"),
        (
            "SELECT ts FROM a",
            {"a": InputOptions(keys=("k",), lateness=Lateness("ts", 5))},
            "a row of 'a' replaces the earlier row of its key.*add the event time to the key",
        ),
        (
            "SELECT ts FROM a",
            {"a": InputOptions(retain=Retention("ts", 5, on_expiry="keep"))},
            "needs an input with lateness",
        ),
        ("SELECT max(ts) AS ts FROM a", OPTIONS, "column that tells when a row is final"),
    ],
)
def test_a_query_without_a_closing_column_is_refused_with_the_reason(text, options, fault):
    with pytest.raises(InputOptionsError, match=fault):
        compile_sql(text + EMIT, SCHEMAS, input_options=options)


def test_an_input_with_keys_is_named_although_another_input_bounds_the_state():
    lateness = Lateness("ts", 5)
    options = {
        "a": InputOptions(keys=("k",), lateness=lateness),
        "b": InputOptions(lateness=lateness),
    }
    schemas = dict.fromkeys("ab", "k BIGINT, ts BIGINT")
    views = f"CREATE VIEW v AS SELECT ts FROM b{EMIT}; CREATE VIEW w AS SELECT ts FROM {{}}{EMIT}"
    compile_sql(views.format("b"), schemas, input_options=options)
    with pytest.raises(InputOptionsError, match=r"'w'.*a row of 'a' replaces the earlier row"):
        compile_sql(views.format("a"), schemas, input_options=options)


def test_the_clause_is_read_only_at_the_end_of_a_statement():
    with pytest.raises(SqlError):
        compile_sql(f"SELECT * FROM (SELECT ts FROM a{EMIT})", SCHEMAS, input_options=OPTIONS)
    with pytest.raises(UnsupportedSqlError, match="of a recursive view"):
        compile_sql(
            f"""CREATE RECURSIVE VIEW r (ts) AS
            SELECT ts FROM a UNION SELECT ts + 1 FROM r WHERE ts < 9{EMIT}""",
            SCHEMAS,
            input_options=OPTIONS,
        )
    emit = compile_sql("SELECT emit.ts FROM a emit", SCHEMAS, input_options=OPTIONS)
    assert emit.schema("view").columns == ("ts",)


def test_a_query_of_the_stored_rows_cannot_emit():
    circuit = compile_sql("SELECT ts FROM a", SCHEMAS, input_options=OPTIONS, materialize=["a"])
    with pytest.raises(Exception, match="has a meaning only in a view"):
        circuit.query(f"SELECT ts FROM a{EMIT}")


def test_windows_with_a_user_defined_function_are_emitted():
    double = udf(lambda n: 2 * n, returns="bigint", parameters=["bigint"])
    query = WINDOWS["tumbling"].replace("sum(x) AS x", "twice(sum(x)) AS x")
    circuit = compile_sql(query + EMIT, SCHEMAS, input_options=OPTIONS, functions={"twice": double})
    plain = compile_sql(WINDOWS["tumbling"] + EMIT, SCHEMAS, input_options=OPTIONS)
    emitted = 0
    for changes in steps("functions", 20):
        deltas = circuit.step(changes)["view"], plain.step(changes)["view"]
        rows, expected = (bag(delta) for delta in deltas)
        assert rows == {(k, end, 2 * x): weight for (k, end, x), weight in expected.items()}
        emitted += len(rows)
    assert emitted


COUNTS = "SELECT window_end, count(*) AS n FROM TUMBLE(a, ts, 10) GROUP BY window_end"


@pytest.mark.parametrize(
    ("text", "views"),
    [
        (COUNTS, True),
        (f"{COUNTS} -- a comment; with a semicolon\n;", ["view"]),
        (f"CREATE VIEW other AS SELECT k FROM a; CREATE VIEW counts AS {COUNTS};", ("Counts",)),
        (f"CREATE TEMPORARY VIEW w AS SELECT k FROM a; CREATE VIEW counts AS {COUNTS}", True),
        (f"{COUNTS} EMIT ON WINDOW CLOSE", True),
    ],
)
def test_the_option_of_python_is_the_clause_at_the_end_of_the_views(text, views):
    by_option = compile_sql(text, SCHEMAS, input_options=OPTIONS, emit_on_window_close=views)
    by_clause = compile_sql(COUNTS + EMIT, SCHEMAS, input_options=OPTIONS)
    emitted, expected = Counter(), Counter()
    view = by_option.outputs[-1]
    for changes in steps("option", 20):
        add(emitted, bag(by_option.step(changes)[view]))
        add(expected, bag(by_clause.step(changes)["view"]))
    assert emitted == expected
    assert expected


def test_the_option_of_python_names_views_of_the_text():
    with pytest.raises(SqlError, match="names 'typo'; the text has the views: view"):
        compile_sql(COUNTS, SCHEMAS, input_options=OPTIONS, emit_on_window_close=["typo"])
    with pytest.raises(ArgumentTypeError, match="emit_on_window_close is 'view'"):
        compile_sql(COUNTS, SCHEMAS, input_options=OPTIONS, emit_on_window_close="view")
