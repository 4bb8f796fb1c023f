"""COLUMNS, UNION BY NAME, the schema main and LIKE ESCAPE: the rows and the names of DuckDB."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import SqlError

T = pa.table({"a_id": [1, 2, 2], "b_id": [5, None, 7], "name": ["x%", "y", None]})
U = pa.table({"a_id": [2, 3], "extra": [True, None]})
QUERIES = """
SELECT COLUMNS('._id') FROM t
SELECT max(COLUMNS(* EXCLUDE (name))) FROM t
SELECT a_id, count(COLUMNS(['name', 'b_id'])) FROM t GROUP BY ALL
SELECT COLUMNS('(.)_id') AS 'n\\1' FROM t
SELECT COLUMNS('_id') + COLUMNS('_id') FROM t
SELECT sum(COLUMNS(t.*)) AS s FROM (SELECT a_id FROM t) t
SELECT * LIKE '%_id' FROM t
SELECT * NOT ILIKE 'A%' FROM t
SELECT COLUMNS(lambda c: c LIKE 'a%' OR c IN ('name') AND NOT c = 'b_id') FROM t
SELECT COLUMNS(lambda c: starts_with(c, 'a') OR ends_with(c, 'me')) FROM t
SELECT COLUMNS(lambda c: c ~ '._id' AND NOT contains(c, 'b') OR regexp_matches(c, 'am')) FROM t
SELECT COLUMNS(lambda c: c GLOB '[ab]_*' OR c ^@ 'na') FROM t
SELECT * ILIKE 'A%' FROM t
SELECT * GLOB '?_id' FROM t
SELECT * EXCLUDE (t.a_id) FROM t JOIN u ON t.a_id = u.a_id
SELECT COLUMNS(* EXCLUDE (t.a_id)) FROM t, u
SELECT count(COLUMNS(* EXCLUDE (u.a_id))) FROM t, u
SELECT t.* EXCLUDE (t.a_id, name) FROM t JOIN u ON t.a_id = u.a_id
SELECT name, a_id FROM t ORDER BY * LIMIT 2
SELECT b_id, a_id FROM t ORDER BY * DESC NULLS FIRST LIMIT 2
SELECT COLUMNS('.*') FROM t JOIN u USING (a_id)
SELECT COLUMNS(u.*), t.name FROM t LEFT JOIN u ON u.a_id = t.a_id
SELECT name FROM t WHERE COLUMNS('_id') > 1
SELECT a_id, name AS n FROM t UNION ALL BY NAME SELECT * FROM u
SELECT a_id, b_id FROM t UNION BY NAME SELECT b_id, a_id FROM t UNION BY NAME FROM u
SELECT main.t.a_id, T.name FROM main.t ORDER BY main.t.a_id LIMIT 2 * 1 + 1
WITH t AS (SELECT 9 AS a_id) SELECT a_id FROM main.t
SELECT a_id FROM t WHERE name LIKE '%!%' ESCAPE '!'
SELECT a_id FROM t WHERE name NOT LIKE 'x!%' ESCAPE '!'
SELECT a_id, count_if(b_id > 6), count_if(name IS NULL AND NULL) FROM t GROUP BY a_id
SELECT CASE WHEN a_id IN (VALUES (1), (3)) THEN 'in' END AS k, count(*) AS n FROM t GROUP BY k
""".strip().splitlines()


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_has_the_rows_and_names_of_duckdb(text):
    database = duckdb.connect()
    for name, rows in {"t": T, "u": U}.items():
        database.register("arrow_rows", rows)
        database.execute(f"CREATE TABLE {name} AS FROM arrow_rows")
    expected = database.execute(text)
    view = compile_sql(text, {"t": T.schema, "u": U.schema}).step({"t": T, "u": U})["view"]
    rows = zip(*(column.to_pylist() for column in view.columns), strict=True)
    assert Counter({row[:-1]: row[-1] for row in rows}) == Counter(expected.fetchall())
    if "COLUMNS" in text or "BY NAME" in text:
        names = [column[0] for column in expected.description]
        assert [name.split("_1")[0] for name in view.column_names[:-1]] == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT COLUMNS('zz') FROM t", r"no column matches COLUMNS\('zz'\); columns: a_id, b_id"),
        ("SELECT COLUMNS('(') FROM t", "is no pattern"),
        ("SELECT COLUMNS('a') + COLUMNS('b') FROM t", "different COLUMNS in one expression"),
        ("SELECT COLUMNS(lambda c: length(c) > 3) FROM t", "a lambda with LIKE, GLOB, =, IN"),
        ("SELECT COLUMNS(lambda c: regexp_matches(c, '(')) FROM t", "pattern in COLUMNS is not"),
        ("SELECT * EXCLUDE (t.zz) FROM t", "column 19: unknown column 'zz' in EXCLUDE"),
        ("SELECT * EXCLUDE (t.a_id) FROM t JOIN t AS w USING (a_id)", "of a column of USING"),
        ("SELECT *COLUMNS('a') AS x FROM t", "write COLUMNS.. without the star"),
        ("SELECT a_id FROM other.t", "unknown table 'other.t'; tables: t"),
    ],
)
def test_a_refusal_says_what_to_write(text, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(text, {"t": T.schema})


def test_a_column_may_be_replaced_and_renamed_except_in_duckdb():
    text = "SELECT * REPLACE (a + 1 AS a) RENAME (a AS z) FROM t"
    circuit = compile_sql(text, {"t": "a INT, b INT"}, dialect="snowflake")
    view = circuit.step({"t": [{"a": 1, "b": 2}]})["view"]
    assert view.to_pylist() == [{"z": 2, "b": 2, "weight": 1}]
