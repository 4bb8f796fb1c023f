"""Pipe syntax, compared with Spark after inserts and deletes."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from circuits import SqlError, compile_sql

SCHEMAS = {
    "t": pa.schema([("x", pa.int32()), ("y", pa.string())]),
    "o": pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.int32())]),
}
ROWS = {
    "t": [(0, "abc"), (1, "def"), (2, "ghi"), (2, "jkl"), (None, None), (3, "a")],
    "o": [(0, "pqr", 10), (3, "tuv", 20), (2, "xyz", 30), (2, None, 5)],
}
DELETED = {"t": [(0, "abc"), (2, "jkl")], "o": [(3, "tuv", 20)]}
QUERIES = [
    "TABLE t",
    "TABLE t |> SELECT x, y |> SELECT x + length(y) AS z",
    "VALUES (0), (1) AS v(col) |> SELECT col * 2 AS result",
    "(SELECT x FROM t) |> SELECT x AS z",
    "FROM t |> SELECT DISTINCT x",
    "FROM t |> SELECT t.x, sum(x) OVER (ORDER BY x, y) AS s |> WHERE s > 3",
    "FROM t |> EXTEND x + 1 AS x1 |> EXTEND x1 * 2 AS x2 |> WHERE x2 > 2",
    "FROM t |> EXTEND 1 AS z, 2 AS q |> SET z = 4, q = z |> SET x = x + q",
    "FROM t |> EXTEND 1 AS z |> DROP x, y",
    "FROM t |> AS u |> WHERE u.x = 1 |> SELECT u.y",
    "FROM t |> WHERE x > 0 |> WHERE y < 'j'",
    "FROM t |> ORDER BY x DESC, y |> LIMIT 2 |> WHERE x < 3",
    "FROM t |> ORDER BY x, y |> LIMIT 3 |> ORDER BY x DESC, y |> LIMIT 1",
    "FROM t |> ORDER BY x DESC, y |> LIMIT 2 OFFSET 1 |> SELECT x",
    "FROM t |> SELECT x + 1 AS x |> WHERE x = 1",
    "FROM t |> AGGREGATE sum(x) AS s, count(*) AS n",
    "FROM t |> AGGREGATE count(*) AS n GROUP BY x |> WHERE n > 1",
    "FROM o |> AGGREGATE max(c) AS m GROUP BY a % 2 AS k |> EXTEND m + k AS mk",
    "FROM o |> AGGREGATE GROUP BY a",
    "FROM o |> EXTEND c * 2 AS d |> AGGREGATE max(d) AS m GROUP BY a |> ORDER BY m |> LIMIT 1",
    "FROM t |> WHERE x > 0 |> RIGHT JOIN o ON x = a",
    "FROM t |> LEFT JOIN o ON t.x = o.a |> WHERE o.c IS NULL",
    "FROM t |> LEFT SEMI JOIN o ON x = a |> SELECT y",
    "FROM t |> AS t1 |> JOIN t AS t2 ON t1.x = t2.x |> SELECT t1.y, t2.y AS y2",
    "FROM t |> EXTEND x AS a |> JOIN o USING (a)",
    "FROM t |> AGGREGATE max(x) AS a |> JOIN o USING (a)",
    "FROM t |> SELECT x |> UNION ALL SELECT a FROM o |> AGGREGATE sum(x) AS s",
    "FROM t |> UNION ALL TABLE t |> EXCEPT ALL (VALUES (1, 'def'))",
    "FROM t |> WHERE x > 0 |> INTERSECT TABLE t |> MINUS (SELECT 2, 'ghi')",
    "FROM o |> SELECT a, c |> PIVOT (sum(c) FOR a IN (0, 2)) |> SELECT `2` AS two",
    "FROM o |> UNPIVOT (v FOR n IN (a, c)) |> WHERE v > 2",
    "WITH w AS (SELECT x AS z FROM t) TABLE w |> SELECT z + 1 AS v",
    "SELECT y FROM (FROM t |> WHERE x = 1)",
    "SELECT (FROM o |> AGGREGATE max(a)) AS m, y FROM t",
    "FROM t, o |> WHERE x = a |> SELECT b",
    "FROM t LATERAL VIEW explode(array(1, 2)) AS z |> WHERE z = x |> SELECT y, z",
    "FROM t LATERAL VIEW explode(array(x, 2)) AS z |> RIGHT JOIN o ON x = a",
]


def tables(rows: dict[str, list[tuple]]) -> dict[str, pa.Table]:
    return {
        name: pa.Table.from_pylist(
            [dict(zip(SCHEMAS[name].names, row, strict=True)) for row in rows[name]],
            schema=SCHEMAS[name],
        )
        for name in SCHEMAS
    }


def answer_in_spark(spark, query: str, rows: dict[str, list[tuple]]) -> Counter[tuple]:
    for name, table in tables(rows).items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    return Counter(tuple(row) for row in spark.sql(query).collect())


@pytest.mark.spark
@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_of_operators_are_those_of_spark_after_every_step(spark, query):
    circuit = compile_sql(query, SCHEMAS, dialect="spark")
    deletes = tables(DELETED)
    for name, table in deletes.items():
        weights = pa.array([-1] * len(table), pa.int64())
        deletes[name] = table.append_column("weight", weights)
    left = {name: [row for row in ROWS[name] if row not in DELETED[name]] for name in ROWS}
    state: Counter[tuple] = Counter()
    for changes, rows in ((tables(ROWS), ROWS), (deletes, left)):
        view = circuit.step(changes)["view"]
        columns = [column.to_pylist() for column in view.columns]
        for *row, weight in zip(*columns, strict=True):
            state[tuple(row)] += weight
        actual = Counter({row: weight for row, weight in state.items() if weight})
        assert actual == answer_in_spark(spark, query, rows)


def test_an_operator_after_limit_reads_the_rows_of_the_limit():
    query = "FROM t |> ORDER BY x |> LIMIT 1 |> WHERE x > 1"
    circuit = compile_sql(query, SCHEMAS, dialect="spark")
    assert circuit.step({"t": [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]})["view"].num_rows == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("FROM t |> CALL f()", "line 1, column 11.*no operator of the pipe syntax"),
        ("FROM t |> SET = 1", "SET takes columns"),
        ("FROM t |> UNION ALL", "a query is missing"),
        ("FROM t |> WHERE zz > 1", "zz"),
        ("FROM t |> DROP zz", "zz"),
        ("FROM t |> SET zz = 1", "zz"),
        ("FROM t |> AGGREGATE x", "x"),
    ],
)
def test_a_wrong_operator_is_an_error_with_its_place(query, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(query, SCHEMAS, dialect="spark")
