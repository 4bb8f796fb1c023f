"""Subqueries of every form, LATERAL, rows, PIVOT and recursive views, against DuckDB.

Each query is maintained over random inserts, deletes, NULLs and duplicates, and compared with
DuckDB after every step. Where DuckDB refuses a second row of a scalar subquery, so must the step.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from circuits import CircuitError, SqlError, UnsupportedSqlError, compile_sql
from circuits.errors import EvaluationError
from tests.oracles.shared_duckdb import connect_to_new_schema

SCHEMAS = {
    "t": "a BIGINT, b BIGINT, s VARCHAR",
    "u": "x BIGINT, y BIGINT",
    "w": "p BIGINT, q BIGINT",
}
COLUMNS = {"t": "abs", "u": "xy", "w": "pq"}
QUERIES = [
    "SELECT a, EXISTS (SELECT 1 FROM u WHERE u.x = t.a) AS e FROM t",
    "SELECT a, a IN (SELECT x FROM u) AS e FROM t",
    "SELECT a, (a, b) < ANY (SELECT x, y FROM u) AS e, (a, b) >= ALL (FROM u) AS f FROM t",
    "SELECT a, (a, b) = ANY (SELECT x, y FROM u) AS e, (a, b) <> ALL (FROM u) AS f FROM t",
    "SELECT a FROM t WHERE (a, b) > ALL (FROM u) OR NOT (a, b) <= ANY (SELECT x, y FROM u)",
    "SELECT a FROM t ORDER BY a LIMIT (SELECT 1 + 1) OFFSET (SELECT 1)",
    "UNPIVOT t ON a, b INTO NAME n VALUE v ORDER BY v, n, s LIMIT 3",
    "UNPIVOT (SELECT a, b FROM t LIMIT 0) ON a, b INTO NAME n VALUE v ORDER BY v OFFSET 1",
    "SELECT a, a NOT IN (SELECT x FROM u WHERE u.y = t.b) AS e FROM t",
    (
        "SELECT a, a < ANY (SELECT x FROM u) AS e, a >= ALL (SELECT x FROM u WHERE u.y <> "
        "t.b) AS f FROM t"
    ),
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.x < t.a) THEN b ELSE a END AS c FROM t",
    "SELECT a, (SELECT max(y) FROM u WHERE u.x < t.a) AS m FROM t",
    "SELECT a, (SELECT count(*) FROM u WHERE u.x < t.a) AS m FROM t",
    "SELECT a, (SELECT count(*) + sum(y) FROM u WHERE u.x = t.a OR u.y = t.b) AS m FROM t",
    "SELECT a, (SELECT y FROM u WHERE u.x = t.a ORDER BY y LIMIT 1) AS m FROM t",
    "SELECT a, (SELECT y FROM u WHERE u.x = t.a) AS m FROM t",
    "SELECT a, (SELECT x FROM u) AS m FROM t",
    "SELECT a, (SELECT sum(y) FROM (SELECT DISTINCT y FROM u WHERE u.x = t.a) d) AS m FROM t",
    (
        "SELECT a FROM t WHERE b = (SELECT min(z) FROM (SELECT x AS z FROM u WHERE y = t.a "
        "UNION ALL SELECT p FROM w WHERE q = t.a) d)"
    ),
    (
        "SELECT a FROM t WHERE EXISTS (SELECT x FROM u WHERE y = t.a INTERSECT SELECT p FROM "
        "w WHERE q = t.b)"
    ),
    (
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND EXISTS (SELECT 1 "
        "FROM w WHERE w.p = u.y AND w.q = t.b))"
    ),
    "SELECT a FROM t WHERE a IN (SELECT x FROM u WHERE y IN (SELECT p FROM w WHERE w.q < t.b))",
    (
        "SELECT a, (SELECT count(*) FROM u WHERE u.x IN (SELECT p FROM w WHERE w.q = t.a)) "
        "AS c FROM t"
    ),
    (
        "SELECT a, (WITH c AS (SELECT * FROM u WHERE u.x = t.a) SELECT count(*) FROM c WHERE "
        "y > (SELECT avg(y) FROM c)) AS n FROM t"
    ),
    ("SELECT t.a, l.y FROM t, LATERAL (SELECT y FROM u WHERE u.x = t.a ORDER BY y DESC LIMIT 2) l"),
    (
        "SELECT t.a, l.y FROM t LEFT JOIN LATERAL (SELECT y FROM u WHERE u.x = t.a ORDER BY "
        "y LIMIT 1) l ON TRUE"
    ),
    (
        "SELECT t.a, l.n FROM t CROSS JOIN LATERAL (SELECT count(*) AS n, sum(y) AS s FROM u "
        "WHERE u.x <= t.a) l"
    ),
    "SELECT t.a, v.z FROM t, LATERAL (VALUES (t.a), (t.b), (7)) v(z)",
    "SELECT l.* FROM t, LATERAL (SELECT t.*, u.* FROM u WHERE u.x = t.a) l",
    "SELECT l.* FROM t, LATERAL (SELECT t.* EXCLUDE (a), (SELECT max(y) FROM u) AS y) l",
    (
        "SELECT t.a, l.y, m.q FROM t, u, LATERAL (SELECT q FROM w WHERE w.p = u.x AND w.q = "
        "t.b) m, (SELECT y FROM u) l"
    ),
    (
        "SELECT t.a, u.y FROM t LEFT JOIN u ON t.a = u.x AND EXISTS (SELECT 1 FROM w WHERE "
        "w.p = t.b OR w.q = u.y)"
    ),
    "SELECT t.a, u.y FROM t FULL JOIN u ON t.a = u.x AND u.y IN (SELECT p FROM w)",
    (
        "SELECT t.a, u.y FROM t RIGHT JOIN u ON t.a = u.x AND u.y > (SELECT count(*) FROM w "
        "WHERE w.q = t.b)"
    ),
    "SELECT a, sum(b) AS s FROM t GROUP BY a HAVING EXISTS (SELECT 1 FROM u WHERE u.x = t.a)",
    "SELECT a, sum(b) AS s, (SELECT count(*) FROM u WHERE u.x < t.a) AS n FROM t GROUP BY a",
    (
        "SELECT a, sum(b) AS s FROM t GROUP BY a HAVING sum(b) IN (SELECT y FROM u) OR "
        "count(*) > (SELECT count(*) FROM w WHERE w.p = t.a)"
    ),
    (
        "SELECT EXISTS (SELECT 1 FROM u WHERE u.x = t.a) AS k, count(*) AS n FROM t GROUP BY "
        "EXISTS (SELECT 1 FROM u WHERE u.x = t.a)"
    ),
    "SELECT a FROM t WHERE (a, b) IN (SELECT x, y FROM u)",
    "SELECT a FROM t WHERE (a, b) NOT IN (SELECT x, y FROM u)",
    (
        "SELECT a, (a, b) IN (SELECT x, y FROM u) AS e, (a, b) NOT IN (SELECT x, y FROM u "
        "WHERE x = 1) AS f FROM t"
    ),
    (
        "SELECT a, (a, b) = (1, 2) AS e, (a, b) < (1, 2) AS l, (a, b) >= (b, a) AS g, (a, b) "
        "IN ((1, 2), (2, NULL)) AS i FROM t"
    ),
    (
        "SELECT a FROM t WHERE a = 1 OR b > (SELECT count(*) FROM u WHERE u.x = t.a) OR "
        "EXISTS (SELECT 1 FROM w WHERE w.p = t.b)"
    ),
    (
        "SELECT a FROM t WHERE NOT (a = 1 AND EXISTS (SELECT 1 FROM w WHERE w.p < t.b AND "
        "w.q IN (SELECT x FROM u WHERE u.y = t.a)))"
    ),
    "SELECT a, (SELECT max(y) FROM u WHERE u.x = t.a HAVING count(*) > 1) AS m FROM t",
    "SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a HAVING count(*) < 1) AS m FROM t",
    "SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a GROUP BY u.x) AS m FROM t",
    "SELECT a, EXISTS (SELECT count(*) FROM u WHERE u.x = t.a) AS m FROM t",
    (
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u LEFT JOIN w ON u.x = w.p AND w.q = "
        "t.a WHERE w.q IS NULL AND u.y = t.b)"
    ),
    (
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u FULL JOIN w ON u.x = w.p AND w.q = "
        "t.a WHERE u.y = t.b OR w.p = t.b)"
    ),
    "SELECT a, (SELECT count(*) FROM u RIGHT JOIN w ON u.x = w.p AND u.y = t.b) AS n FROM t",
    "SELECT a, (SELECT sum(u.y + t.b) FROM u) AS n FROM t",
    (
        "SELECT s, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a)) AS n "
        "FROM t GROUP BY s"
    ),
    "SELECT * FROM t WHERE a > (SELECT avg(x) FROM u WHERE u.y > t.b) ORDER BY a, b, s LIMIT 3",
    (
        "SELECT a, (SELECT (SELECT max(q) FROM w WHERE w.p = u.y AND w.q <> t.b) FROM u "
        "WHERE u.x = t.a ORDER BY 1 LIMIT 1) AS m FROM t"
    ),
    (
        "SELECT EXISTS (SELECT 1 FROM u WHERE u.x = t.a) AS k, count(*) AS n FROM t GROUP BY "
        "EXISTS (SELECT 1 FROM u WHERE u.x = t.a)"
    ),
    "SELECT (SELECT count(*) FROM u WHERE u.x = t.a) AS k, count(*) AS n FROM t GROUP BY 1",
    "SELECT (SELECT count(*) FROM u WHERE u.x = t.a) AS k, count(*) AS n FROM t GROUP BY k",
    "SELECT (SELECT count(*) FROM u WHERE u.x = t.a) AS k, count(*) AS n FROM t GROUP BY ALL",
    "SELECT a IN (SELECT x FROM u) AS k, sum(b) AS n FROM t GROUP BY ALL",
    "SELECT DISTINCT ON (a) a, b, s FROM t ORDER BY a, b, s",
    "SELECT DISTINCT ON (a, s) b, a, s FROM t ORDER BY b DESC, a, s",
    "SELECT DISTINCT ON (a) a, sum(b) AS x FROM t GROUP BY a, s ORDER BY a, x, s",
    "SELECT DISTINCT ON (a) a, b, s FROM t ORDER BY a DESC, b, s LIMIT 2",
    "SELECT * EXCLUDE (s) REPLACE (a + 1 AS a) FROM t",
    "SELECT * RENAME (a AS aa) FROM t",
    "SELECT t.* EXCLUDE (a), x FROM t JOIN u ON t.a = u.x",
    "SELECT a, b, s FROM t ORDER BY a, b, s FETCH FIRST 3 ROWS ONLY",
    "SELECT a, b, s FROM t ORDER BY ALL LIMIT 3",
    "SELECT a, b, s FROM t ORDER BY ALL DESC LIMIT 3",
    "SELECT a, b, s FROM t ORDER BY ALL LIMIT 40%",
    "SELECT a, b, s FROM t ORDER BY ALL DESC LIMIT 62.5 PERCENT OFFSET 1",
    "SELECT max(a) FROM (SELECT a FROM t ORDER BY a LIMIT 0%)",
    "SELECT a FROM t UNION ALL SELECT x FROM u ORDER BY ALL LIMIT 100%",
    "SELECT a FROM t LIMIT ALL",
    "SELECT a FROM t UNION ALL SELECT x FROM u ORDER BY ALL LIMIT 4",
    "TABLE t",
    "FROM t SELECT a",
    "SELECT a, s FROM t GROUP BY ALL ORDER BY ALL LIMIT 3",
    "SELECT * FROM t NATURAL FULL JOIN (SELECT a, x FROM (SELECT x AS a, y AS x FROM u) q) v",
    (
        "SELECT k, a, x, p FROM (SELECT a AS k, * FROM t) t FULL JOIN (SELECT x AS k, * FROM "
        "u) u USING (k) FULL JOIN (SELECT p AS k, * FROM w) w USING (k)"
    ),
    "SELECT a, x, p FROM t, u LEFT JOIN w ON u.x = w.p WHERE t.a = u.y",
    (
        "WITH c AS (WITH d AS (SELECT a FROM t) SELECT a AS z FROM d WHERE a > 0) SELECT z "
        "FROM c, (WITH e AS (SELECT x FROM u) SELECT * FROM e) q WHERE q.x = z"
    ),
    "SELECT * FROM (SELECT a, b, s FROM t) PIVOT (sum(b) FOR s IN ('x', 'y'))",
    "SELECT * FROM t PIVOT (count(*) AS n, max(b) AS m FOR s IN ('x' AS xx, 'y') GROUP BY a)",
    "PIVOT t ON s IN ('x', 'y') USING sum(b) GROUP BY a",
    "PIVOT t ON s IN ('x', 'y') USING count(*)",
    "SELECT * FROM t UNPIVOT (v FOR n IN (a, b))",
    "SELECT * FROM t UNPIVOT INCLUDE NULLS (v FOR n IN (a, b AS 'bb'))",
    "UNPIVOT t ON a, b INTO NAME n VALUE v",
    "UNPIVOT t ON a + 1 AS x, (b * 2) INTO NAME n VALUE v",
    "UNPIVOT t ON CAST(a AS VARCHAR), upper(s) AS up INTO NAME n VALUE v",
    "SELECT * FROM t UNPIVOT (v FOR n IN (a + 1 AS 'x', COLUMNS('^b')))",
    "UNPIVOT t ON * EXCLUDE (s) INTO NAME n VALUE v",
    "UNPIVOT (SELECT a, b, s FROM t) ON COLUMNS(* EXCLUDE (s)) INTO NAME n VALUE v",
    "FROM t UNPIVOT ((v, w) FOR n IN ((a, b) AS x, (b, b) AS y))",
    "FROM t UNPIVOT INCLUDE NULLS ((v, w) FOR n IN ((a, b) AS x, (b, a) AS y))",
    (
        "SELECT a, (SELECT b FROM u WHERE u.x = t.a ORDER BY y, x FETCH FIRST 1 ROW ONLY) AS "
        "z FROM t"
    ),
    "SELECT a, (SELECT DISTINCT ON (x) y FROM u WHERE u.x = t.a ORDER BY x, y) AS z FROM t",
    (
        "SELECT t.a, l.* FROM t, LATERAL (SELECT DISTINCT ON (u.x) u.x, y FROM u WHERE u.x "
        "<> t.a ORDER BY u.x, y) l"
    ),
    (
        "SELECT t.a, l.* FROM t, LATERAL (SELECT x, count(*) FROM u WHERE u.y = t.b GROUP BY "
        "x EXCEPT SELECT p, q FROM w WHERE p = t.a) l"
    ),
    (
        "SELECT t.a, l.y FROM t LEFT JOIN (SELECT y FROM u WHERE u.x = t.a ORDER BY y LIMIT "
        "1) l ON l.y > t.b"
    ),
    (
        "SELECT a FROM t x WHERE (SELECT count(*) FROM t y WHERE y.a = x.a AND EXISTS "
        "(SELECT 1 FROM u WHERE u.x = y.b AND u.y = x.b)) > 1"
    ),
    "SELECT a, (SELECT max(x) FROM u) AS m FROM t WHERE a IN (SELECT p FROM w) OR m > 2",
    "SELECT a, (SELECT max(x) FROM u) AS m FROM t WHERE m IN (SELECT p FROM w) OR a > 2",
    "SELECT a, a IN (SELECT x FROM u) AS m FROM t WHERE NOT m OR b IN (SELECT p FROM w)",
    (
        "SELECT a, (SELECT sum(sum(y)) OVER q FROM u WHERE u.x = t.a WINDOW q AS (ORDER BY 1)) "
        "AS m, (SELECT max(y) FROM u WINDOW q AS (ORDER BY y)) AS n FROM t"
    ),
    "SELECT p, (SELECT max(w.p) FROM (SELECT {'p': x} AS w FROM u) l) AS m FROM w",
    "SELECT p, (SELECT max(w.p + l.x) FROM (SELECT x FROM u) l) AS m FROM w",
    "SELECT a, row_number() OVER (ORDER BY a, b, s) AS b FROM t QUALIFY b <= 1",
    "SELECT a, row_number() OVER (ORDER BY a, b, s) AS n FROM t QUALIFY n <= 1",
    "SELECT a FROM t UNION SELECT x FROM u ORDER BY (1) DESC LIMIT 2",
    "SELECT a FROM t WHERE EXISTS (SELECT x + 2 AS b FROM u WHERE b = 3)",
    "SELECT a FROM t WHERE EXISTS (SELECT x, count(*) AS b FROM u GROUP BY x HAVING b = 2)",
    "SELECT a, @ a - 2 AS m FROM t",
    # A subquery beside the aggregate has its value for the rows without a partner, too.
    "SELECT a, (SELECT coalesce(sum(y), (SELECT max(q) FROM w)) FROM u WHERE x = t.a) AS m FROM t",
    "SELECT a, (SELECT count(*) + (SELECT max(q) FROM w) FROM u WHERE u.x = t.a) AS m FROM t",
    "SELECT a, (SELECT count(*) = 0 AND EXISTS (FROM w) FROM u WHERE u.x = t.a) AS m FROM t",
    "SELECT a, (SELECT sum(y) IN (SELECT q FROM w) FROM u WHERE u.x = t.a) AS m FROM t",
    # A key that a grouping set leaves out is NULL in the subquery.
    "SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a) AS n FROM t GROUP BY ROLLUP (a)",
    (
        "SELECT a, (SELECT count(*) FROM u WHERE u.x IS NOT DISTINCT FROM t.a) AS n FROM t "
        "WHERE b > 2 GROUP BY ROLLUP (a)"
    ),
    (
        "SELECT a, b, sum(a) AS s, (SELECT count(*) FROM u WHERE x IS NOT DISTINCT FROM t.a AND "
        "y IS NOT DISTINCT FROM t.b) AS n, grouping(a) AS g FROM t GROUP BY CUBE (a, b)"
    ),
    (
        "SELECT a, b, EXISTS (SELECT 1 FROM u WHERE x IS NOT DISTINCT FROM t.a AND y IN (SELECT p "
        "FROM w WHERE q IS DISTINCT FROM t.b)) AS e FROM t GROUP BY GROUPING SETS ((a, b), (b), ())"
    ),
    (
        "SELECT a, count(*) IN (SELECT coalesce(t.a, x) FROM u ORDER BY 1 LIMIT 1) AS e FROM t "
        "GROUP BY ROLLUP (a)"
    ),
]


def _random_row(rng: random.Random, table: str) -> tuple[Any, ...]:
    return tuple(
        rng.choice([None, "x", "y"] if name == "s" else [None, 0, 1, 2, 3])
        for name in COLUMNS[table]
    )


class Tables:
    """Random rows in DuckDB and in Python, changed together."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.database = connect_to_new_schema()
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
        for name, columns in SCHEMAS.items():
            self.database.execute(f"CREATE TABLE {name} ({columns})")

    def change(self) -> dict[str, list[dict[str, Any]]]:
        """Insert and delete some rows; return the deltas."""
        deltas: dict[str, list[dict[str, Any]]] = {}
        for name, rows in self.rows.items():
            changes = []
            for _ in range(self.rng.randint(0, 5)):
                if rows and self.rng.random() < 0.4:
                    changes.append((*rows.pop(self.rng.randrange(len(rows))), -1))
                else:
                    rows.append(_random_row(self.rng, name))
                    changes.append((*rows[-1], 1))
            if changes:
                names = [*COLUMNS[name], "weight"]
                deltas[name] = [dict(zip(names, row, strict=True)) for row in changes]
            self.database.execute(f"DELETE FROM {name}")
            placeholders = ", ".join("?" * len(COLUMNS[name]))
            if rows:
                insert = f"INSERT INTO {name} VALUES ({placeholders})"
                self.database.executemany(insert, [list(row) for row in rows])
        return deltas


def check(text: str, seed: int, steps: int = 5) -> None:
    circuit, tables = compile_sql(text, SCHEMAS), Tables(seed)
    total: Counter[tuple[Any, ...]] = Counter()
    for _ in range(steps):
        deltas = tables.change()
        try:
            expected = Counter(tables.database.execute(text).fetchall())
        except duckdb.InvalidInputException as error:
            assert "More than one row" in str(error)
            with pytest.raises(EvaluationError, match="a scalar subquery has"):
                circuit.step(deltas)
            return
        for row in circuit.step(deltas)["view"].to_pylist():
            *values, weight = row.values()
            total[tuple(values)] += weight
        assert {row: weight for row, weight in total.items() if weight} == expected


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("text", QUERIES)
def test_a_maintained_query_has_the_rows_of_duckdb_after_every_step(text, seed):
    check(text, seed)


def test_a_second_row_of_a_scalar_subquery_is_refused_without_a_change():
    circuit = compile_sql("SELECT a, (SELECT y FROM u WHERE u.x = t.a) AS y FROM t", SCHEMAS)
    circuit.step({"t": [{"a": 1}], "u": [{"x": 1, "y": 5}]})
    with pytest.raises(EvaluationError, match=r"has 2 rows for t\.a = 1; select one"):
        circuit.step({"u": [{"x": 1, "y": 6}]})
    delta = circuit.step({"u": [{"x": 1, "y": 5, "weight": -1}, {"x": 1, "y": 6, "weight": 1}]})[
        "view"
    ]
    assert sorted(delta.to_pylist(), key=str) == [
        {"a": 1, "y": 5, "weight": -1},
        {"a": 1, "y": 6, "weight": 1},
    ]


def test_a_scalar_subquery_may_have_two_rows_for_a_value_without_outer_rows():
    circuit = compile_sql("SELECT a, (SELECT y FROM u WHERE u.x = t.a) AS y FROM t", SCHEMAS)
    two_rows = [{"x": 7, "y": 1}, {"x": 7, "y": 2}]
    rows = circuit.step({"t": [{"a": 1}], "u": two_rows})["view"].to_pylist()
    assert rows == [{"a": 1, "y": None, "weight": 1}]


def test_apply_of_other_dialects_is_a_lateral_join():
    first_row = "SELECT TOP 1 y FROM u WHERE u.x = t.a ORDER BY y"
    deltas = {"t": [{"a": 1}, {"a": 2}], "u": [{"x": 1, "y": 5}, {"x": 1, "y": 4}]}
    for join, expected in (("CROSS", {(1, 4)}), ("OUTER", {(1, 4), (2, None)})):
        text = f"SELECT t.a, l.y FROM t {join} APPLY ({first_row}) AS l"
        rows = compile_sql(text, SCHEMAS, dialect="tsql").step(deltas)["view"].to_pylist()
        assert {(row["a"], row["y"]) for row in rows} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT (SELECT sum(t.a) FROM u) AS n FROM t", "columns of the enclosing query only"),
        ("SELECT (SELECT x, y FROM u) AS n FROM t", "has one column, not 2"),
        ("SELECT a FROM t WHERE (a, b) <> ANY (SELECT x, y FROM u)", "comparison of rows"),
        ("SELECT a FROM t WHERE (a, b) = (1, 2, 3)", "a row of 2 values"),
        ("SELECT a FROM t WHERE (a, b) = 1", "a row is compared with a single value"),
        ("PIVOT t ON s USING sum(b)", "column 12: PIVOT by the values that s has .*: s IN"),
        ("UNPIVOT t ON a + b AS x INTO NAME n VALUE v", "reads one column, not 2"),
        ("UNPIVOT t ON (a, b) AS x INTO NAME n VALUE v", "column 15: UNPIVOT needs 1 columns"),
        ("UNPIVOT t ON COLUMNS('q') INTO NAME n VALUE v", "no column matches"),
        ("SELECT * FROM t UNPIVOT (v FOR n IN (a, zz))", "unknown column 'zz' in UNPIVOT"),
        ("SELECT * REPLACE (1 AS zz) FROM t", "unknown column 'zz' in REPLACE"),
        ("SELECT * REPLACE (a + 1 AS a, 2 AS A) FROM t", "two REPLACE of column 'A'"),
        ("SELECT * REPLACE (1 AS a) RENAME (a AS z) FROM t", "'a' in REPLACE and in RENAME"),
        ("SELECT a FROM t WHERE s LIKE ANY (['a%'], 'b%')", "LIKE ANY of several lists"),
        ("SELECT * FROM t RIGHT JOIN LATERAL (SELECT x FROM u WHERE x = t.a) l ON TRUE", "names"),
        ("SELECT a, (SELECT max(y) FROM u WHERE x = t.b) AS n FROM t GROUP BY a", "'b' is neither"),
        ("SELECT a, b AS A FROM t UNION ALL BY NAME SELECT x AS a FROM u", "two columns 'A'"),
        ("SELECT a FROM t UNION BY NAME SELECT x AS a, y AS a FROM u", "two columns 'a'"),
        ("SELECT a FROM t LIMIT 4 / 2", "write a whole number"),
        ("SELECT a FROM t LIMIT 101%", "not from 0% to 100%"),
        ("SELECT a FROM t LIMIT 33.3333333%", "round it to 6 digits after the point"),
        ("SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES", "TIES needs ORDER BY"),
    ],
)
def test_a_refused_query_has_an_error_with_its_place(text, message):
    with pytest.raises(SqlError, match=message) as caught:
        compile_sql(text, SCHEMAS)
    assert caught.value.line == 1


REACH = """
    CREATE RECURSIVE VIEW reach(a, b) AS
    SELECT x, y FROM u UNION SELECT l.a, r.b FROM reach l JOIN reach r ON l.b = r.a
"""


def _step(text: str, deltas: dict[str, Any]) -> dict[str, set[tuple[Any, ...]]]:
    return {
        name: {tuple(row.values()) for row in table.to_pylist()}
        for name, table in compile_sql(text, SCHEMAS).step(deltas).items()
    }


def test_views_may_be_used_before_they_are_defined():
    text = "CREATE VIEW n AS SELECT a + 1 AS a FROM m; CREATE VIEW m AS SELECT a FROM t WHERE a > 1"
    assert _step(text, {"t": [{"a": 1}, {"a": 2}]}) == {"m": {(2, 1)}, "n": {(3, 1)}}


def test_views_that_read_each_other_are_an_error_unless_they_are_recursive():
    with pytest.raises(SqlError, match="'v', 'z' name each other; write CREATE RECURSIVE VIEW"):
        compile_sql("CREATE VIEW v AS SELECT a FROM z; CREATE VIEW z AS SELECT a FROM v", SCHEMAS)
    text = (
        "DECLARE RECURSIVE VIEW v (a INT); CREATE VIEW z AS SELECT a - 1 AS a FROM v WHERE a > 0;"
    )
    text += "CREATE VIEW v AS SELECT a FROM t UNION SELECT a FROM z"
    for dialect in ("duckdb", "postgres", "spark"):
        views = compile_sql(text, {"t": "a INT"}, dialect=dialect).step({"t": [{"a": 2}]})
        assert sorted(views["v"]["a"].to_pylist()) == [0, 1, 2]
        assert sorted(views["z"]["a"].to_pylist()) == [0, 1]
    with pytest.raises(SqlError, match="no rows to begin with"):
        compile_sql("CREATE RECURSIVE VIEW v AS SELECT a FROM v", SCHEMAS)
    with pytest.raises(UnsupportedSqlError, match="an aggregate over the recursive 'v'"):
        text = "CREATE RECURSIVE VIEW v AS SELECT a FROM t UNION SELECT max(a) FROM v"
        compile_sql(text, SCHEMAS)


@pytest.mark.parametrize("seed", range(4))
def test_a_recursion_that_reads_itself_twice_has_the_rows_of_a_linear_one(seed):
    linear = """
        WITH RECURSIVE reach(a, b) AS
        (SELECT x, y FROM u UNION SELECT l.a, r.y FROM reach l JOIN u r ON l.b = r.x)
        SELECT a, b FROM reach
    """
    circuit, tables = compile_sql(REACH, SCHEMAS), Tables(seed)
    total: Counter[tuple[Any, ...]] = Counter()
    for _ in range(5):
        for row in circuit.step(tables.change())["reach"].to_pylist():
            total[row["a"], row["b"]] += row["weight"]
        expected = Counter(tables.database.execute(linear).fetchall())
        assert {row: weight for row, weight in total.items() if weight} == expected


EVEN = "SELECT 0 AS n UNION SELECT y FROM odd JOIN u ON odd.n = u.x"
ODD = "SELECT y AS n FROM even JOIN u ON even.n = u.x"


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE RECURSIVE VIEW even AS {EVEN}; CREATE RECURSIVE VIEW odd AS {ODD}",
        f"""DECLARE RECURSIVE VIEW even (n BIGINT); DECLARE RECURSIVE VIEW odd (n BIGINT);
            CREATE VIEW odd AS {ODD}; CREATE VIEW even AS {EVEN}""",
        f"""CREATE VIEW even AS WITH RECURSIVE odd AS ({ODD}), even AS ({EVEN}) SELECT n FROM even;
            CREATE VIEW odd AS WITH RECURSIVE odd AS ({ODD}), even AS ({EVEN}) SELECT n FROM odd""",
    ],
)
def test_recursive_views_may_read_each_other(text):
    deltas = {"u": [{"x": number, "y": number + 1} for number in range(5)]}
    circuit = compile_sql(text, SCHEMAS)
    views = {
        name: {row["n"] for row in table.to_pylist()}
        for name, table in circuit.step(deltas).items()
    }
    assert views == {"even": {0, 2, 4}, "odd": {1, 3, 5}}
    deleted = circuit.step({"u": [{"x": 2, "y": 3, "weight": -1}]})
    assert {row["n"] for row in deleted["even"].to_pylist()} == {4}
    assert {row["n"] for row in deleted["odd"].to_pylist()} == {3, 5}


def test_an_aggregate_may_read_a_completed_recursion():
    text = REACH + "; CREATE VIEW n AS SELECT a, count(*) AS n FROM reach GROUP BY a"
    rows = _step(text, {"u": [{"x": 1, "y": 2}, {"x": 2, "y": 3}]})["n"]
    assert rows == {(1, 2, 1), (2, 1, 1)}


def test_a_new_outer_row_with_a_known_value_has_its_result():
    text = "SELECT s, (SELECT count(*) FROM u WHERE u.x < t.a) AS n FROM t"
    circuit = compile_sql(text, SCHEMAS)
    circuit.step({"t": [{"a": 2, "s": "x"}], "u": [{"x": 1, "y": 1}]})
    delta = circuit.step({"t": [{"a": 2, "s": "y"}]})["view"].to_pylist()
    assert delta == [{"s": "y", "n": 1, "weight": 1}]


def test_an_evaluation_error_is_a_circuit_error():
    assert issubclass(EvaluationError, CircuitError)


@pytest.mark.parametrize(
    "statement", ["PIVOT t ON s IN ('x', 'y') USING sum(b) GROUP BY a", "UNPIVOT t ON a, b"]
)
def test_a_view_may_be_a_pivot(statement):
    text = f"CREATE VIEW v AS {statement}; CREATE VIEW z AS SELECT a AS pivot FROM t"
    expected = compile_sql(statement, SCHEMAS).spec.plans["view"]
    assert compile_sql(text, SCHEMAS).spec.plans["v"].fields == expected.fields


def test_the_sort_keys_of_an_array_subquery_are_columns_of_any_name():
    query = "SELECT array_to_string(ARRAY(SELECT b FROM t ORDER BY a, key_1 LIMIT 2), ',') AS r"
    circuit = compile_sql(
        f"CREATE VIEW v AS {query}", {"t": "a BIGINT, b BIGINT, key_1 BIGINT"}, dialect="duckdb"
    )
    rows = [{"a": 1, "b": 10, "key_1": 9}, {"a": 1, "b": 20, "key_1": 7}, {"a": 1, "b": 30}]
    assert circuit.step({"t": rows[:2]})["v"].to_pylist() == [{"r": "20,10", "weight": 1}]
    rows[2]["key_1"] = 8
    changes = circuit.step({"t": rows[2:]})["v"].to_pylist()
    assert {"r": "20,30", "weight": 1} in changes and len(changes) == 2
