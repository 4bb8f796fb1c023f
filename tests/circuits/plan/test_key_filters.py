"""Key filters: the same rows as in DuckDB, and no work for groups that the filter removes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import EvaluationError, compile_sql
from tests.circuits.sql.test_sql_circuits import LAW, check
from tests.oracles.shared_duckdb import connect_to_new_schema

QUERIES = [
    "SELECT a, sum(b) AS n FROM t GROUP BY a HAVING a > 1",
    "SELECT a, sum(b) AS n FROM t GROUP BY a HAVING sum(b) > 1 AND a + 1 > 1 AND a < 3",
    "SELECT * FROM (SELECT a + 1 AS k, s, count(*) AS n FROM t GROUP BY ALL) WHERE k > 1 AND s "
    ">= 'x'",
    "SELECT * FROM (SELECT a, max(b) AS n FROM t GROUP BY a HAVING count(*) > 1) WHERE a = 1 "
    "AND n > 0",
    "SELECT * FROM (SELECT DISTINCT a, b + 1 AS k FROM t) WHERE k > 1 AND a IS NOT NULL",
    "WITH g AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT * FROM g WHERE a > 1 UNION ALL "
    "SELECT * FROM g WHERE a < 2",
    "SELECT a, b, count(*) AS n FROM t GROUP BY ROLLUP (a, b) HAVING a > 1",
    "SELECT count(*) AS n FROM t HAVING 1 > 2",
    "SELECT g.a, g.n, u.x FROM (SELECT a, count(*) AS n FROM t GROUP BY a) g JOIN u ON u.a = g.a "
    "WHERE g.a > 1",
    "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a GROUP BY u.a HAVING u.a > 1) AS n FROM t",
]


@settings(LAW, max_examples=60)
@given(st.data())
def test_conditions_on_keys_have_the_rows_of_duckdb(data):
    check(data, st.sampled_from(QUERIES))


# In DuckDB and here, the cast is computed for the rows of group 2 only.
NOT_FOR_OTHER_GROUPS = [
    "SELECT k, sum(CAST(s AS INT)) AS n FROM t GROUP BY k HAVING k = 2",
    "SELECT k, median(CAST(s AS INT)) AS n FROM t GROUP BY k HAVING k > 1 AND count(*) > 0",
    "SELECT k, string_agg(CAST(s AS INT)::VARCHAR, '-') AS n FROM t GROUP BY k HAVING k + 1 = 3",
    "SELECT * FROM (SELECT k, max(CAST(s AS INT)) AS n FROM t GROUP BY k) WHERE k = 2",
    "SELECT * FROM (SELECT DISTINCT k, CAST(s AS INT) AS n FROM t) WHERE k = 2",
    "SELECT k, sum(n) FILTER (WHERE CAST(s AS INT) > 3) AS n FROM t GROUP BY k HAVING k = 2",
]


@pytest.mark.parametrize("text", NOT_FOR_OTHER_GROUPS)
def test_groups_that_having_removes_are_not_computed(text):
    database = connect_to_new_schema()
    database.execute("CREATE TABLE t (k BIGINT, s VARCHAR, n BIGINT)")
    circuit = compile_sql(text, {"t": "k BIGINT, s STRING, n BIGINT"})
    total: dict[tuple[object, ...], int] = {}
    for k, s, weight in ((1, "x", 1), (2, "7", 1), (1, "y", 1), (1, "x", -1), (2, "7", -1)):
        row = {"k": k, "s": s, "n": 1, "weight": weight}
        for change in circuit.step({"t": [row]})["view"].to_pylist():
            *values, count = change.values()
            total[tuple(values)] = total.get(tuple(values), 0) + count
        if weight > 0:
            database.execute("INSERT INTO t VALUES (?, ?, 1)", [k, s])
        else:
            database.execute("DELETE FROM t WHERE k = ? AND s = ?", [k, s])
        expected = database.execute(text).fetchall()
        assert [row for row, count in total.items() for _ in range(count)] == expected


def test_a_condition_that_may_fail_is_not_pushed_past_the_conditions_before_it():
    schemas = {"t": "k STRING, n BIGINT"}
    text = "SELECT k FROM t GROUP BY k HAVING {} AND {}"
    rows = {"t": [{"k": "x", "n": 1}, {"k": "12", "n": 9}]}
    first, second = "sum(n) > 5", "CAST(k AS INT) > 3"
    delta = compile_sql(text.format(first, second), schemas).step(rows)["view"]
    assert delta["k"].to_pylist() == ["12"]
    with pytest.raises(EvaluationError, match="'x' cannot be parsed"):
        compile_sql(text.format(second, first), schemas).step(rows)


def test_the_state_has_only_the_groups_that_satisfy_the_condition():
    text = "SELECT k, max(n) AS n FROM t GROUP BY k HAVING k < 3"
    circuit = compile_sql(text, {"t": "k BIGINT, n BIGINT"})
    circuit.step({"t": [{"k": k, "n": n} for k in range(100) for n in range(3)]})
    assert sum(size.rows for size in circuit.state_sizes()) <= 3 * 4
