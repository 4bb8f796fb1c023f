"""Computed columns of CREATE TABLE, alone and as the event time of a WATERMARK."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import (
    EvaluationError,
    InputOptions,
    InputOptionsError,
    Lateness,
    Retention,
    SqlNotice,
    compile_sql,
    udf,
)
from circuits.errors import SqlError
from circuits.sql import find_obstacles
from tests.support.tables import bag_of

ITEMS = "CREATE TABLE t (price INT, total AS (price * qty), qty INT, big AS (total > 3))"
VIEWS = {
    "everything": "SELECT * FROM t",
    "sums": "SELECT big, sum(total) AS s, count(*) AS n FROM t GROUP BY big",
    "pairs": "SELECT a.price, b.qty FROM t a JOIN t b ON a.total = b.total WHERE a.big",
    "distinct_totals": "SELECT DISTINCT t.total FROM t WHERE qty > 0",
}
DATABASE = duckdb.connect(config={"threads": 1})
DATABASE.execute(ITEMS)
PROGRAM = ";".join([ITEMS, *(f"CREATE VIEW {name} AS {text}" for name, text in VIEWS.items())])

small = st.none() | st.integers(-1, 3)
steps = st.lists(st.lists(st.tuples(small, small, st.booleans()), max_size=4), max_size=4)


def rows_of(pairs: list[tuple], weights: list[int]) -> pa.Table:
    columns = [pa.array(column, pa.int32()) for column in zip(*pairs, strict=True)]
    return pa.table([*columns, pa.array(weights)], names=["price", "qty", "weight"])


@settings(max_examples=40)
@given(steps)
def test_views_of_computed_columns_are_those_of_duckdb_after_every_step(changes):
    circuit = compile_sql(PROGRAM)
    totals: dict[str, Counter] = {name: Counter() for name in VIEWS}
    present: Counter = Counter()
    for change in changes:
        # A deletion names a row that exists.
        deltas: Counter = Counter()
        for price, qty, is_deleted in change:
            is_possible = present[price, qty] + deltas[price, qty] > 0
            deltas[price, qty] += -1 if is_deleted and is_possible else 1
        present += deltas
        pairs = [pair for pair, weight in deltas.items() if weight]
        present = Counter({pair: count for pair, count in present.items() if count > 0})
        if pairs:
            outputs = circuit.step({"t": rows_of(pairs, [deltas[pair] for pair in pairs])})
            for name, table in outputs.items():
                totals[name].update(bag_of(table))
        DATABASE.execute("DELETE FROM t")
        if present:
            DATABASE.executemany("INSERT INTO t VALUES (?, ?)", list(present.elements()))
        for name, text in VIEWS.items():
            expected = Counter(DATABASE.execute(text).fetchall())
            assert {row: n for row, n in totals[name].items() if n} == expected, name


TIMES = "CREATE TABLE t (k INT, ms BIGINT, ts AS to_timestamp_ltz(ms, 3), WATERMARK FOR ts AS {})"
PLAIN_TIMES = "CREATE TABLE t (k INT, ms BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS {})"
BOUND = "ts - INTERVAL '3' SECOND"
TIME_VIEWS = """;
    CREATE VIEW w AS SELECT window_start, count(*) AS n, sum(k) AS s
        FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND))
        GROUP BY window_start, window_end;
    CREATE VIEW f AS SELECT window_start, count(*) AS n
        FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND))
        GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
    CREATE VIEW j AS SELECT a.k, b.k AS bk FROM t a JOIN t b
        ON b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND;
"""


def timed_rows(changes: list[tuple], *, with_time: bool) -> pa.Table:
    keys, seconds, weights = zip(*changes, strict=True)
    ms = [None if second is None else second * 1000 for second in seconds]
    columns = {"k": pa.array(keys, pa.int32()), "ms": pa.array(ms, pa.int64())}
    if with_time:
        columns["ts"] = pa.array(ms, pa.timestamp("ms")).cast(pa.timestamp("us", "UTC"))
    return pa.table({**columns, "weight": pa.array(weights)})


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 2), st.none() | st.integers(0, 12), st.sampled_from([1, 1, -1])
            ),
            min_size=1,
            max_size=4,
        ),
        max_size=5,
    )
)
def test_a_computed_event_time_is_that_of_rows_that_have_the_column(changes):
    computed = compile_sql(TIMES.format(BOUND) + TIME_VIEWS, dialect="spark")
    plain = compile_sql(PLAIN_TIMES.format(BOUND) + TIME_VIEWS, dialect="spark")
    for change in changes:
        step = computed.prepare({"t": timed_rows(change, with_time=False)})
        expected = plain.prepare({"t": timed_rows(change, with_time=True)})
        for name in ("w", "f", "j"):
            assert bag_of(step.outputs[name]) == bag_of(expected.outputs[name]), name
        rejected, plainly_rejected = (
            [
                (rows.reason, bag_of(rows.table.select(["k", "ms", "weight"])))
                for rows in prepared.rejected.get("t", ())
            ]
            for prepared in (step, expected)
        )
        assert rejected == plainly_rejected
        step.commit()
        expected.commit()
    # The state of joins and windows is bounded as it is for rows that have the column.
    held, plainly_held = (
        sum(size.rows for size in circuit.state_sizes()) for circuit in (computed, plain)
    )
    assert held == plainly_held


def test_late_rows_are_rejected_without_the_computed_columns():
    circuit = compile_sql(TIMES.format(BOUND) + "; SELECT * FROM t", dialect="spark")
    circuit.step({"t": [{"k": 1, "ms": 10_000}]})
    step = circuit.prepare({"t": [{"k": 2, "ms": 6_999}, {"k": 3, "ms": 7_000}, {"k": 4}]})
    late, untimed = step.rejected["t"]
    assert late.table.to_pylist() == [{"k": 2, "ms": 6_999, "weight": 1}]
    assert untimed.table.to_pylist() == [{"k": 4, "ms": None, "weight": 1}]
    assert "'ts' before 1970-01-01 00:00:07" in late.message
    assert step.outputs["view"].to_pylist() == [
        {"k": 3, "ms": 7000, "ts": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC), "weight": 1}
    ]


def test_upserts_may_have_a_computed_event_time():
    text = TIMES.format(BOUND).replace("k INT", "k INT PRIMARY KEY")
    text = text.replace("to_timestamp_ltz(ms, 3)", "make_timestamp(ms * 1000)")
    circuit = compile_sql(text + "; SELECT k, ts FROM t")
    assert circuit.input_options["t"] == InputOptions(
        keys=("k",), lateness=Lateness("ts", "3 seconds")
    )
    circuit.step({"t": [{"k": 1, "ms": 10_000}]})
    step = circuit.prepare({"t": [{"k": 1, "ms": 1_000}, {"k": 2, "ms": 11_000}]})
    assert [rows.reason for rows in step.rejected["t"]] == ["late"]
    step.commit()
    deleted = circuit.step({"t": [{"k": 1, "weight": -1}]})["view"]
    assert deleted.select(["k", "weight"]).to_pylist() == [{"k": 1, "weight": -1}]


def test_the_options_of_the_caller_may_name_the_computed_event_time():
    text = TIMES.format("ts").replace("to_timestamp_ltz(ms, 3)", "make_timestamp(ms * 1000)")
    view = "; SELECT ts FROM t"
    lateness = {"t": InputOptions(lateness=Lateness("ts", "9 seconds"))}
    assert compile_sql(text + view, input_options=lateness).input_options == lateness
    assert compile_sql(text + view).input_options["t"].lateness == Lateness("ts", "0 seconds")
    physical = {"t": InputOptions(lateness=Lateness("ms", 3))}
    circuit = compile_sql(text + "; SELECT DISTINCT ts FROM t", input_options=physical)
    for ms in (0, 10, 20):
        circuit.step({"t": [{"k": 1, "ms": ms}]})
    # The watermark is one of ms, so it is no bound of ts.
    assert "watermark of t" not in circuit.explain()
    assert circuit.step({"t": [{"k": 2, "ms": 18}]})["view"].num_rows == 1
    with pytest.raises(InputOptionsError, match="retention by the computed column 'ts'"):
        compile_sql(text + view, input_options={"t": InputOptions(retain=Retention("ts", days=1))})
    assert compile_sql(text + "; SELECT 1 AS one").input_options == {}


def test_a_computed_column_has_the_declared_type():
    circuit = compile_sql(
        "CREATE TABLE t (a INT, b BIGINT GENERATED ALWAYS AS (a + 1) VIRTUAL, c VARCHAR AS (a),"
        "d DOUBLE GENERATED ALWAYS AS (b / 2) STORED COMMENT 'half'); SELECT * FROM t"
    )
    types = [field.type for field in circuit.schema("view").fields]
    assert types == [pa.int32(), pa.int64(), pa.string(), pa.float64()]
    assert circuit.step({"t": [{"a": 4}]})["view"].to_pylist() == [
        {"a": 4, "b": 5, "c": "4", "d": 2.5, "weight": 1}
    ]


def test_delta_spells_a_computed_column_in_dialect_spark():
    text = (
        "CREATE TABLE t (ts TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(ts AS DATE))) USING "
        "delta; SELECT day, count(*) AS n FROM t GROUP BY day"
    )
    with pytest.warns(SqlNotice):
        circuit = compile_sql(text, dialect="spark")
    time = datetime(2024, 2, 29, 12, tzinfo=UTC)
    (row,) = circuit.step({"t": [{"ts": time}]})["view"].to_pylist()
    assert row == {"day": time.date(), "n": 1, "weight": 1}


def test_a_row_without_a_value_is_an_error_of_its_step():
    circuit = compile_sql("CREATE TABLE t (a VARCHAR, b AS CAST(a AS INT)); SELECT b FROM t")
    circuit.step({"t": [{"a": "1"}]})
    with pytest.raises(EvaluationError, match="'x'"):
        circuit.step({"t": [{"a": "2"}, {"a": "x"}]})
    assert circuit.step({"t": [{"a": "3"}]})["view"].to_pylist() == [{"b": 3, "weight": 1}]
    text = "CREATE TABLE t (a VARCHAR, b AS CAST(a AS TIMESTAMP), WATERMARK FOR b AS b)"
    timed = compile_sql(text + "; SELECT b FROM t")
    with pytest.raises(EvaluationError, match="'x'"):
        timed.step({"t": [{"a": "x"}]})
    assert timed.step({"t": [{"a": "2024-02-29 12:00:00"}]})["view"].num_rows == 1


def test_queries_of_the_state_read_computed_columns():
    circuit = compile_sql(PROGRAM, materialize=["t"])
    circuit.step({"t": rows_of([(2, 3), (1, 1)], [1, 2])})
    rows = circuit.query("SELECT t.*, total + 1 AS more FROM T WHERE big").to_pylist()
    assert rows == [{"price": 2, "total": 6, "qty": 3, "big": True, "more": 7, "weight": 1}]
    timed = compile_sql(
        TIMES.format(BOUND) + "; SELECT k FROM t", dialect="spark", materialize=True
    )
    timed.step({"t": [{"k": 1, "ms": 5}]})
    assert timed.query("SELECT date_trunc('SECOND', ts) AS s FROM t").num_rows == 1


def test_a_sink_can_have_computed_columns():
    circuit = compile_sql(
        "CREATE TABLE t (a INT); CREATE TABLE s (x INT, y AS x * 2);"
        "INSERT INTO s SELECT a FROM t; CREATE VIEW v AS SELECT y, x FROM s"
    )
    outputs = circuit.step({"t": [{"a": 4}]})
    assert outputs["s"].to_pylist() == [{"x": 4, "weight": 1}]
    assert outputs["v"].to_pylist() == [{"y": 8, "x": 4, "weight": 1}]


def test_a_schema_of_the_caller_has_the_other_columns():
    circuit = compile_sql(f"{ITEMS}; SELECT total FROM t", {"T": "price int, qty int"})
    assert circuit.step({"T": [{"price": 2, "qty": 4}]})["view"].to_pylist() == [
        {"total": 8, "weight": 1}
    ]
    with pytest.raises(SqlError, match="does not declare column 'total' of the schema"):
        compile_sql(f"{ITEMS}; SELECT total FROM t", {"t": "price int, total int, qty int"})


def test_a_computed_column_may_call_a_user_defined_function():
    functions = {"double_of": udf(lambda a: 2 * a, returns="bigint", parameters=["bigint"])}
    text = "CREATE TABLE t (a INT, b AS double_of(a)); SELECT b, count(*) AS n FROM t GROUP BY b"
    circuit = compile_sql(text, functions=functions, materialize=["t"])
    assert circuit.step({"t": [{"a": 4}]})["view"].to_pylist() == [{"b": 8, "n": 1, "weight": 1}]
    assert circuit.query("SELECT b FROM t").to_pylist() == [{"b": 8, "weight": 1}]
    timed = text.replace("(a)", "(a), WATERMARK FOR b AS b - 1").replace("), W", ")  , W")
    with pytest.raises(SqlError, match=r"double_of\(\) in a column with a WATERMARK"):
        compile_sql(timed, functions=functions)


def test_the_state_depends_on_the_computed_event_time():
    text = TIMES.format(BOUND) + "; SELECT k FROM t"
    circuits = [
        compile_sql(text.replace("to_timestamp_ltz(ms, 3)", f"make_timestamp(ms * {factor})"))
        for factor in (1000, 1001, 1000)
    ]
    first, other, same = (circuit.spec.fingerprints["input t"] for circuit in circuits)
    assert first == same != other


REFUSED = [
    ("p AS CAST(PROCTIME() AS DATE)", None, "PROCTIME() in a computed column is not supported"),
    ("p AS now()", 29, "in a computed column is not supported"),
    ("p AS current_timestamp", 29, "in a computed column is not supported"),
    ("p AS (SELECT 1)", None, "in a computed column"),
    ("p AS sum(a)", 29, "an aggregate function in a computed column"),
    ("p AS row_number() OVER ()", None, "a window function in a computed column"),
    ("p AS b + 1", 29, "unknown column 'b'; in FROM: t.a"),
    ("p AS q, q AS a", 29, "unknown column 'q'"),
    ("p AS p", 29, "unknown column 'p'"),
    ("p AS a + 'x'", None, "'x'"),
    ("p AS NULL", None, "has no type"),
    ("a AS 1", 24, "column 'a' is declared twice"),
    ("weight AS a", 24, "the name of the weights"),
    ("p AS a, PRIMARY KEY (p)", 45, "a computed column in PRIMARY KEY"),
    ("p AS (a) NOT NULL", 33, "NOT NULL after a computed column"),
    ("p AS a + 1 NOT NULL", 35, "NOT NULL after a computed column"),
    ("p AS a, WATERMARK FOR q AS q - 1", None, "unknown column 'q' in WATERMARK"),
]


@pytest.mark.parametrize(("column", "place", "words"), REFUSED)
def test_a_computed_column_that_is_not_supported_is_refused_with_its_place(column, place, words):
    text = f"CREATE TABLE t (a BIGINT, {column}); SELECT * FROM t"
    with pytest.raises(SqlError) as caught:
        compile_sql(text.replace("BIGINT", "INT"))
    assert words in str(caught.value)
    if place is not None:
        assert (caught.value.line, caught.value.column) == (1, place)
    obstacles = find_obstacles(text.replace("BIGINT", "INT"), {})
    assert caught.value.column in [obstacle.column for obstacle in obstacles]


def test_a_table_has_a_column_that_is_not_computed():
    with pytest.raises(SqlError, match="only computed columns"):
        compile_sql("CREATE TABLE t (a AS 1); SELECT * FROM t")


def test_a_column_may_say_that_it_is_computed_and_not_null():
    with pytest.warns(SqlNotice, match="NOT NULL of a computed column has no effect"):
        compile_sql(
            "CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a) NOT NULL); SELECT b FROM t"
        )
    circuit = compile_sql("CREATE TABLE t (a INT, b AS (a IS NOT NULL)); SELECT b FROM t")
    assert circuit.step({"t": [{"a": 4}]})["view"].to_pylist() == [{"b": True, "weight": 1}]
