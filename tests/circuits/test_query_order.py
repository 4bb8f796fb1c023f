"""The rows of a one-shot query with ORDER BY are in that order, as DuckDB has them."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_datalog, compile_sql

SCHEMAS = {"t": "a int, b text, c double"}
VIEW = "CREATE VIEW v AS SELECT a, b, c FROM t"
# Rows that differ in the columns of the answer differ in the keys of ORDER BY, or are equal.
QUERIES = [
    "SELECT a, b FROM t ORDER BY a DESC, b",
    "SELECT a, b FROM v ORDER BY b NULLS FIRST, a",
    "SELECT b FROM t ORDER BY -length(b), b",
    "SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY count(*) DESC, a",
    "SELECT a + 1 AS b FROM t ORDER BY b",
    "SELECT a FROM t UNION ALL SELECT 7 ORDER BY 1 DESC",
    "SELECT DISTINCT c FROM t ORDER BY c DESC",
    "SELECT c FROM t ORDER BY c NULLS FIRST LIMIT 3",
    "SELECT a FROM t ORDER BY a OFFSET 2",
    "WITH x AS (SELECT a * 2 AS d FROM t) SELECT d FROM x ORDER BY d DESC",
    "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a DESC, b",
    "FROM t SELECT a, b ORDER BY ALL DESC",
    "(SELECT a FROM t) ORDER BY a DESC",
    "SELECT a FROM t WHERE a IN (SELECT a FROM v ORDER BY a LIMIT 2) ORDER BY a",
    "VALUES (2), (3), (1) ORDER BY 1",
    "SELECT a, sum(c) OVER (PARTITION BY a) AS s FROM t ORDER BY s, a",
]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-1, 2),
            "b": st.none() | st.sampled_from(["", "x", "xy", "a long text 1", "a long text 2"]),
            "c": st.none() | st.sampled_from([-1.5, 0.0, 2.0, float("inf")]),
        }
    ),
    max_size=6,
)


def circuit_of(rows: list[dict]) -> Circuit:
    circuit = compile_sql(VIEW, SCHEMAS, materialize=True)
    circuit.step({"t": [{"a": 9, "b": "gone", "c": 0.0}]})
    circuit.step({"t": [{"a": 9, "b": "gone", "c": 0.0, "weight": -1}]})
    circuit.step({"t": rows})
    return circuit


@pytest.mark.parametrize("text", QUERIES)
@given(rows=ROWS)
@settings(max_examples=30)
def test_an_ordered_query_has_the_rows_of_duckdb_in_its_order(text, rows):
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a INT, b TEXT, c DOUBLE)")
        if rows:
            values = [(row["a"], row["b"], row["c"]) for row in rows]
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", values)
        connection.execute(VIEW)
        expected = connection.execute(text).fetchall()
    answer = circuit_of(rows).query(text).to_pylist()
    assert all(row.pop("weight") == 1 for row in answer)
    assert [tuple(row.values()) for row in answer] == expected


def test_a_query_without_order_has_each_row_once():
    rows = [{"a": 1, "b": "x", "c": 0.0}] * 3
    assert circuit_of(rows).query("SELECT a FROM t").to_pylist() == [{"a": 1, "weight": 3}]


def test_a_datalog_query_has_no_order():
    circuit = compile_datalog("q(a) :- t(a, _, _).", SCHEMAS, materialize=True)
    circuit.step({"t": [{"a": 2, "b": "x", "c": 0.0}]})
    assert circuit.query("r(a) :- q(a).").to_pylist() == [{"a": 2, "weight": 1}]


def test_spark_puts_null_first():
    circuit = circuit_of([{"a": 1}, {"a": None}])
    answer = circuit.query("SELECT a FROM t ORDER BY a", dialect="spark")
    assert answer.column("a").to_pylist() == [None, 1]
