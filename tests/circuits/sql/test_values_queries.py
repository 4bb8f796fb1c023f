"""VALUES with subqueries have the rows and the types of DuckDB."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import SqlError
from tests.oracles.shared_duckdb import connect_to_new_schema

SCHEMA = pa.schema([("a", pa.int64()), *((n, pa.int64()) for n in ("col0", "col1", "column1"))])
ROWS = [(1, 100, 5, 70), (10, 20, 6, 7), (3, 100, 7, None)]


def _rows_of(circuit, rows):
    deltas = circuit.step({"t": [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]})
    return deltas["view"]


def _check(query):
    connection = connect_to_new_schema()
    connection.execute("CREATE TABLE t (a BIGINT, col0 BIGINT, col1 BIGINT, column1 BIGINT)")
    circuit = compile_sql(query, {"t": SCHEMA}, dialect="duckdb")
    total: Counter = Counter()
    for row in ROWS:
        connection.execute("INSERT INTO t VALUES (?, ?, ?, ?)", row)
        for values in _rows_of(circuit, [row]).to_pylist():
            total[tuple(values.values())[:-1]] += values["weight"]
        assert +total == Counter(connection.execute(query).fetchall())


@pytest.mark.parametrize(
    "query",
    [
        # A later value reads the column of the table, not the value before it.
        "SELECT x.* FROM t, LATERAL (VALUES ((SELECT max(a) FROM t), col0)) AS x(p, q)",
        "SELECT x.* FROM t, LATERAL (VALUES ((SELECT max(a) FROM t), col0), (col1, 2)) AS x(p, q)",
        "SELECT x.p, x.col1 FROM t, LATERAL (VALUES ((SELECT max(a) FROM t), col0)) AS x(p)",
        "SELECT v.col0, v.col1 FROM (VALUES ((SELECT max(a) FROM t), 1), (2, 1)) AS v",
        "SELECT col0 + 1 FROM (VALUES ((SELECT max(a) FROM t)), (2))",
        "VALUES ((SELECT max(a) FROM t), 1), (2, 1)",
        "WITH v(x, y) AS (VALUES ((SELECT max(a) FROM t), 1), (2, 1)) SELECT y, x FROM v",
        "VALUES ((SELECT max(a) FROM t)), (2), (70) ORDER BY col0 DESC LIMIT 2",
        "SELECT a FROM t WHERE a IN (VALUES ((SELECT max(a) FROM t)), (3))",
        "SELECT a FROM t WHERE a NOT IN (VALUES ((SELECT max(a) FROM t)), (3))",
        "SELECT a FROM t WHERE (a, col0) IN (VALUES ((SELECT max(a) FROM t), 20), (3, 1))",
        "SELECT a FROM t WHERE a IN (VALUES ((SELECT max(u.a) FROM t AS u WHERE u.a <= t.a)))",
        # A text has the type of the other rows.
        "SELECT n + 1, s FROM (VALUES (DATE '2020-01-01', (SELECT max(a) FROM t)), "
        "('2020-02-01', 1)) AS v(n, s)",
        "SELECT n, s + 1 FROM (VALUES ('x', (SELECT max(a) FROM t)), ('y', '7'), (NULL, NULL)) "
        "AS v(n, s)",
    ],
)
def test_values_with_subqueries_have_the_rows_of_duckdb(query):
    _check(query)


@pytest.mark.parametrize(("dialect", "name"), [("spark", "col1"), ("postgres", "column1")])
def test_a_value_is_no_name_for_later_values(dialect, name):
    query = f"SELECT x.* FROM t, LATERAL (VALUES ((SELECT max(a) FROM t), {name})) AS x(p, q)"
    circuit = compile_sql(query, {"t": SCHEMA}, dialect=dialect)
    assert _rows_of(circuit, ROWS[1:2]).to_pylist() == [
        {"p": 10, "q": 6 if name == "col1" else 7, "weight": 1}
    ]


def test_values_with_a_subquery_can_have_many_rows():
    rows = ", ".join(f"({number})" for number in range(500))
    _check(f"SELECT count(*), sum(x) FROM (VALUES ((SELECT max(a) FROM t)), {rows}) AS v(x)")


@pytest.mark.parametrize("query", ["{}", "SELECT * FROM ({}) AS v", "SELECT 1 IN ({}) FROM t"])
def test_rows_of_different_lengths_are_an_error(query):
    values = "VALUES ((SELECT max(a) FROM t), 1), (2)"
    with pytest.raises(SqlError, match="a row of 1 values in VALUES of 2 columns"):
        compile_sql(query.format(values), {"t": SCHEMA})
