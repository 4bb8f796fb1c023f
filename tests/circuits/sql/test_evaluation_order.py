"""Clauses that must be evaluated before others, and rules that differ between dialects."""

from __future__ import annotations

import pytest

from circuits import SqlError, compile_sql


def rows_of(text, schemas, rows, dialect="duckdb"):
    """Return the rows of the view after one step, and check them after a second one."""
    circuit = compile_sql(text, schemas, dialect=dialect, materialize=True)
    circuit.step(rows)
    name = next(iter(circuit.outputs))
    result = circuit.views[name].to_pylist()
    circuit.step(
        {input_: [row | {"weight": -1} for row in table] for input_, table in rows.items()}
    )
    assert circuit.views[name].num_rows == 0
    circuit.step(rows)
    assert circuit.views[name].to_pylist() == result
    return [tuple(row.values())[:-1] for row in result]  # without weights


CLICKS = {"users": "person TEXT", "clicks": "person TEXT, ts INT"}
CLICK_ROWS = {
    "users": [{"person": "ann"}, {"person": "bob"}],
    "clicks": [
        {"person": "ann", "ts": 1},
        {"person": "bob", "ts": 8},
        {"person": "ann", "ts": 15},
    ],
}


def test_the_sessions_of_a_correlated_query_have_only_its_rows():
    query = """
        SELECT person FROM users u WHERE EXISTS (
            SELECT 1 FROM clicks c WHERE c.person = u.person
            GROUP BY SESSION(c.ts, 10) HAVING count(*) >= 2)
    """
    assert rows_of(query, CLICKS, CLICK_ROWS) == []
    query = """
        SELECT person, (SELECT max(n) FROM (
            SELECT count(*) AS n FROM clicks c WHERE c.person = u.person
            GROUP BY SESSION(c.ts, 10)) q) AS n FROM users u
    """
    assert sorted(rows_of(query, CLICKS, CLICK_ROWS)) == [("ann", 1), ("bob", 1)]


@pytest.mark.parametrize(
    ("where", "key", "expected"),
    [("", "", {(1, 9, 2)}), ("WHERE v = 1", "", {(1, 9, 1)}), ("", ", v", {(1, 9, 1)})],
)
def test_the_end_of_a_session_is_that_of_all_its_rows(where, key, expected):
    query = f"""
        SELECT window_start, window_end, count(*) AS n
        FROM TABLE(SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), 5)) {where}
        GROUP BY k, window_start, window_end{key}
    """
    rows = [{"k": 1, "ts": 1, "v": 1}, {"k": 1, "ts": 4, "v": 2}]
    assert set(rows_of(query, {"e": "k INT, ts INT, v INT"}, {"e": rows})) == expected


def test_offsets_of_unnest_begin_with_0_in_bigquery():
    query = "SELECT x, o FROM t, UNNEST(t.a) AS x WITH OFFSET AS o"
    rows = {"t": [{"a": [7, 8]}]}
    assert sorted(rows_of(query, {"t": "a INT[]"}, rows, "bigquery")) == [(7, 0), (8, 1)]
    query = "SELECT x, o FROM t, UNNEST(t.a) WITH ORDINALITY AS u(x, o)"
    assert sorted(rows_of(query, {"t": "a INT[]"}, rows)) == [(7, 1), (8, 2)]


PAIRS = {"t": "a INT", "u": "a INT, b INT"}
PAIR_ROWS = {"t": [{"a": 1}, {"a": 2}], "u": [{"a": 1, "b": 5}]}


def test_the_row_of_a_table_without_a_match_is_null_in_postgres():
    join = "FROM t LEFT JOIN u ON u.a = t.a"
    query = f"SELECT t.a {join} WHERE u IS NULL"
    assert rows_of(query, PAIRS, PAIR_ROWS, "postgres") == [(2,)]
    query = "SELECT t.a FROM t WHERE t IS NULL"
    assert rows_of(query, PAIRS, {"t": [{"a": None}, {"a": 1}]}, "postgres") == [(None,)]
    with pytest.raises(SqlError, match="IS NOT NULL of a row is not supported"):
        compile_sql(f"SELECT t.a {join} WHERE u IS NOT NULL", PAIRS, dialect="postgres")
    query = f"SELECT t.a, count(u) AS n {join} GROUP BY t.a"
    assert sorted(rows_of(query, PAIRS, PAIR_ROWS, "postgres")) == [(1, 1), (2, 0)]


def test_a_bound_of_row_number_is_not_applied_before_an_asof_join():
    query = """
        SELECT t.id, q.v FROM t ASOF JOIN (
            SELECT k, ts, v, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM s
        ) q ON t.k = q.k AND t.ts >= q.ts WHERE q.n <= 1
    """
    schemas = {"t": "id INT, k INT, ts INT", "s": "k INT, ts INT, v INT"}
    rows = {
        "t": [{"id": 1, "k": 1, "ts": 9}],
        "s": [{"k": 1, "ts": 2, "v": 20}, {"k": 1, "ts": 3, "v": 30}],
    }
    assert rows_of(query, schemas, rows, "clickhouse") == []


def test_functions_of_one_window_see_one_order_of_equal_keys():
    rows = {"t": [{"ts": 1, "a": 1, "b": 9}, {"ts": 1, "a": 2, "b": 3}]}
    schemas = {"t": "ts INT, a INT, b INT"}
    query = """
        SELECT n, p FROM (
            SELECT b, a, row_number() OVER w AS n, lag(b) OVER w AS p FROM t
            WINDOW w AS (ORDER BY ts)
        ) q WHERE n = 1
    """
    assert rows_of(query, schemas, rows) == [(1, None)]
    query = """
        SELECT n, m FROM (
            SELECT b, a, row_number() OVER (ORDER BY ts) AS n,
                row_number() OVER (ORDER BY ts) * 2 AS m
            FROM t) q WHERE n = 1
    """
    assert rows_of(query, schemas, rows) == [(1, 2)]


def test_last_value_reads_the_whole_partition_in_snowflake():
    query = "SELECT last_value(a) OVER (ORDER BY ts) AS x, sum(a) OVER (ORDER BY ts) AS y FROM t"
    rows = {"t": [{"ts": 1, "a": 1}, {"ts": 2, "a": 2}]}
    schemas = {"t": "ts INT, a INT"}
    assert sorted(rows_of(query, schemas, rows, "snowflake")) == [(2, 1), (2, 3)]
    assert sorted(rows_of(query, schemas, rows)) == [(1, 1), (2, 3)]
