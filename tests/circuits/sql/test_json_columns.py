"""JSON in columns: functions that build JSON insert it without quotes, as DuckDB and PostgreSQL do.

A column is JSON if its table declares it, or if a view or a query in FROM computes it as JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress

import pytest

from circuits import compile_sql
from circuits.errors import EvaluationError, SqlError
from streaming import Database
from tests.oracles.shared_duckdb import connect_to_new_schema

ROWS = [
    (1, '{"b": 1, "a": 2}', "x"),
    (2, '{"a":2,"b":1}', "[1]"),
    (3, '[1, {"a": null}, "two"]', None),
    (4, None, ""),
    (5, '"text"', "y"),
    (None, "12", "x"),
]
DELETED = [0, 2, 5]
BOTH = [
    "SELECT a, to_json(j) AS r FROM t",
    "SELECT json_object('j', j, 's', s, 'a', a) AS r FROM t",
    "SELECT json_array(j, s, j -> 'a') AS r FROM t",
    "SELECT row_to_json(t) AS r FROM t",
    "SELECT to_json(j -> 'a') AS r FROM t",
    "SELECT json_array(CASE WHEN a < 3 THEN j END, coalesce(j, '[]'::JSON), s) AS r FROM t",
    "SELECT json_array(CASE WHEN a < 3 THEN j::VARCHAR END, coalesce(j::VARCHAR, s)) AS r FROM t",
    "SELECT json_array(u.k, u.s) AS r FROM (SELECT j AS k, j::VARCHAR AS s FROM t) AS u",
    "WITH c AS (SELECT json_object('a', a) AS o, s FROM t) SELECT json_array(o, s) AS r FROM c",
    "SELECT json_array(u.j) AS r FROM (SELECT j FROM t UNION ALL SELECT j FROM t) AS u",
    "SELECT json_array(u.j) AS r FROM (SELECT s AS j FROM t UNION ALL SELECT s FROM t) AS u",
    "SELECT json_array(t.j, u.s, u.j) AS r FROM t LEFT JOIN t AS u ON t.a = u.a + 1",
    "SELECT json_array((SELECT u.j FROM t AS u WHERE u.a = 2), t.s) AS r FROM t",
    "SELECT json_array(t.a, n.m) AS r FROM t, LATERAL (SELECT t.j AS m) AS n",
    "SELECT json_array(lag(j) OVER (ORDER BY a NULLS FIRST), a) AS r FROM t",
    "SELECT json_array(u.l) AS r FROM (SELECT lag(j) OVER (ORDER BY a) AS l FROM t) AS u",
]
DUCKDB_ONLY = [
    "SELECT a, json_group_array(j) AS r FROM t GROUP BY a",
    "SELECT json_group_object(a, j) AS r FROM t WHERE a IS NOT NULL",
    "SELECT to_json([j, j -> 'a']) AS r FROM t",
    "SELECT to_json({'j': j, 'n': {'k': [j]}}) AS r FROM t",
    "SELECT json_array(max(a), any_value(j)) AS r FROM t WHERE a = 1",
    "SELECT to_json(to_json(j)) AS r FROM t",
    "SELECT to_json([j, k][1]) AS r FROM (SELECT j, j -> 'a' AS k FROM t) AS u",
    "SELECT to_json({'a': j}.a) AS r FROM t",
    "SELECT to_json(struct_pack(x := s, y := [j]).y[1]) AS r FROM t",
    "SELECT json_array(list_first([j, NULL]), list_last([j])) AS r FROM t",
    "SELECT json_array(list_concat([j], [j])[2], list_append([j], j)[2]) AS r FROM t",
    "SELECT json_array(list_distinct([j])[1], list_reverse([j])[1]) AS r FROM t",
    "SELECT json_array(list_filter([j], lambda x: x IS NOT NULL)[1]) AS r FROM t",
    "SELECT json_array(list_transform([j], lambda x: x)[1]) AS r FROM t",
    "SELECT json_array(list_transform([j], lambda x: x::VARCHAR)[1]) AS r FROM t",
    "SELECT json_array(list_transform([s], lambda x: j)[1]) AS r FROM t",
    "SELECT list_transform([j], lambda x: json_array(x, x::VARCHAR))[1] AS r FROM t WHERE a < 3",
    "SELECT list_transform([j], lambda x: "
    "list_transform([{'x': x}], lambda y: to_json(y.x))[1])[1] AS r FROM t WHERE a < 3",
    "SELECT list_reduce([j, j], lambda x, y: json_array(x, y)) AS r FROM t WHERE a < 3",
    "SELECT json_array(list_reduce([j, j], lambda x, y: y)) AS r FROM t WHERE a = 1",
    "SELECT json_array(map {'a': j}['a'], map_values(map {'a': j})[1]) AS r FROM t",
    "SELECT json_array(flatten([[j], [j]])[1], list_resize([j], 2)[1]) AS r FROM t",
    "SELECT json_array(greatest(j, '[3]'), least(j, j -> 'a')) AS r FROM t",
    "SELECT json_array(coalesce(j, '[3]'), CASE WHEN a = 2 THEN '[4]' ELSE j END) AS r FROM t",
    "SELECT json_array(nullif(j, '12'), nullif(s, 'x'), nullif(j, s)) AS r FROM t WHERE a = 2",
    "SELECT json_array(max_by(j, s), min_by(j, s), arg_max(j, a)) AS r FROM t",
    "SELECT json_array(mode(j), max_by(j::VARCHAR, a)) AS r FROM t WHERE a = 1",
    "SELECT json_array(array_agg(j)[1]) AS r FROM t WHERE a = 1",
    "SELECT json_array(u.l[1]) AS r FROM (SELECT [j, '[1]'] AS l FROM t) AS u",
    "SELECT json_array(u.l[1], u.m[1]) AS r "
    "FROM (SELECT [j::VARCHAR] AS l, [s::JSON] AS m FROM t WHERE a = 2) AS u",
    "SELECT json_array(u.s.j, u.s.s, u.s) AS r FROM (SELECT {'s': s, 'j': j} AS s FROM t) AS u",
    "SELECT json_array(u.g) AS r FROM (SELECT greatest(j, j) AS g FROM t) AS u",
    "SELECT json_array(u.g) AS r FROM (SELECT nullif(j, '12') AS g FROM t) AS u",
    "SELECT json_array(u.l[1]) AS r FROM (SELECT CAST(['{\"a\": 1}'] AS JSON[]) AS l FROM t) AS u",
    "SELECT to_json([j::VARCHAR]) AS r FROM t",
    "SELECT to_json([coalesce(json_extract(j, '$.a'), s::JSON)]) AS r FROM t WHERE a = 2",
    "SELECT to_json({'a': j::VARCHAR, 'b': [j]}) AS r FROM t",
    "SELECT to_json(e.value) AS r, to_json(e.key) AS k FROM t, json_each(j) AS e WHERE a < 3",
    # A text is JSON by a cast, or as it is put together as JSON, however deep it is in a value.
    "SELECT to_json(u.x.a) AS r FROM (SELECT {'a': s::JSON} AS x FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.x) AS r FROM (SELECT {'a': [s::JSON], 's': s} AS x FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.x) AS r FROM (SELECT {'o': json_object('k', a)} AS x FROM t) AS u",
    "SELECT to_json(u.x[1]) AS r FROM (SELECT [json_array(a, s)] AS x FROM t) AS u",
    "SELECT to_json(u.x) AS r "
    "FROM (SELECT {'y': {'a': s}::STRUCT(a JSON)} AS x FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.m) AS r FROM (SELECT max_by(s::JSON, j) AS m FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.m) AS r FROM (SELECT list_first([s::JSON]) AS m FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.x) AS r "
    "FROM (SELECT list_transform([s], lambda v: v::JSON) AS x FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.x) AS r "
    "FROM (SELECT {'c': coalesce(s::JSON, '[]')} AS x FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.x) AS r FROM (SELECT unnest([s::JSON]) AS x FROM t WHERE a = 2) AS u",
    "SELECT to_json(u.x.a) AS r FROM (SELECT {'a': '[1]'::JSON} AS x FROM t) AS u",
    "SELECT to_json(x) AS r FROM (VALUES ('[1]'::JSON), ('{}'::JSON)) AS v (x), t",
    "SELECT to_json(map {'k': s::JSON, 'l': json_array(s)}) AS r FROM t WHERE a = 2",
    "SELECT to_json({'a': json('[1,  2]'), 'b': json(s)}) AS r FROM t WHERE a = 2",
    "SELECT to_json({'a': max(j), 'n': count(*)}) AS r FROM t WHERE a = 1",
    "SELECT to_json([lag(j) OVER (ORDER BY a)]) AS r FROM t",
    "SELECT to_json(array_agg(j)) AS r FROM t WHERE a = 1",
    "SELECT to_json(array_agg({'a': j})) AS r FROM t WHERE a = 1",
    "SELECT json_array(a, (SELECT max(u.j) "
    "FROM t AS u WHERE u.a = t.a), count(*)) AS r FROM t GROUP BY a",
    "SELECT to_json(list_concat([j], [j])) AS r FROM t",
    "SELECT to_json(list_first(['{}'::JSON])) AS r FROM t",
    "SELECT to_json({'a': '{}'::JSON}.a) AS r FROM t",
    "SELECT to_json(CAST({'a': '{}'} AS STRUCT(a JSON))) AS r FROM t",
    "SELECT to_json(TRY_CAST(s AS JSON)) AS r FROM t",
    "SELECT to_json([1, 2]::JSON) AS r, {'a': s}::JSON AS d, 5::JSON AS n FROM t",
    "SELECT to_json(row(j, a)) AS r, to_json(list_zip([s], [a])) AS z FROM t",
    "SELECT to_json(coalesce({'a': j, 'n': 1}, {'a': j, 'n': 2.5})) AS r FROM t",
    "SELECT to_json(u.x) AS r FROM (SELECT {'a': j, 'n': 1} AS x FROM t "
    "UNION ALL SELECT {'a': j, 'n': 2.5} FROM t) AS u",
    "SELECT to_json([{'a': j, 'b': s}, {'b': s, 'a': j}]) AS r FROM t",
    "SELECT to_json({'b': s, 'a': j}::STRUCT(a JSON, b VARCHAR)) AS r FROM t",
    "SELECT to_json({'a': j}::STRUCT(a VARCHAR)) AS r FROM t",
    "SELECT to_json(map_concat(map([a], [j]), map([a], [j]))) AS r FROM t WHERE a IS NOT NULL",
    "SELECT to_json(quantile_disc(j, 0.5)) AS r FROM t WHERE a = 1",
    "SELECT to_json(json_value(j, '$[0]')) AS r FROM t",
    "SELECT to_json(v.x) AS r FROM t, LATERAL (VALUES (t.j)) AS v (x)",
    "SELECT to_json(v.x) AS r FROM (VALUES (json_array('[1]'::JSON))) AS v (x), t",
    """SELECT to_json('["x", 1]'::JSON::JSON[]) AS r FROM t""",
    """SELECT to_json('["a\\nb", "\\u00e9"]'::JSON::VARCHAR[]) AS r FROM t""",
    "SELECT typeof(s::JSON) AS r, typeof(s) AS n FROM t WHERE a = 2",
]
POSTGRES_ONLY = [
    "SELECT jsonb_build_array((ARRAY[j, j])[1], greatest(j, j), nullif(j, '12')) AS r FROM t",
    "SELECT jsonb_build_array(u.l[1]) AS r FROM (SELECT ARRAY[j] AS l FROM t) AS u",
    "SELECT to_jsonb(t) AS r FROM (SELECT NULL::int AS a, NULL::text AS b) AS t "
    "LEFT JOIN (SELECT a AS c FROM t) AS u ON t.a = u.c",
    "SELECT to_jsonb(x) AS r, to_jsonb(u) AS r2 FROM (SELECT a, s FROM t) AS x "
    "LEFT JOIN (SELECT a AS c FROM t WHERE a > 2) AS u ON x.a = u.c",
    "SELECT to_jsonb(x) AS r, to_jsonb(u) AS r2 FROM (SELECT a, s FROM t WHERE a > 2) AS x "
    "RIGHT JOIN (SELECT a AS c FROM t) AS u ON x.a = u.c",
    "SELECT s, jsonb_agg(j ORDER BY a) AS r FROM t GROUP BY s",
    "SELECT jsonb_object_agg(a, j) AS r FROM t WHERE a IS NOT NULL",
    "SELECT jsonb_build_object('x', e.value) AS r FROM t, jsonb_array_elements(j) AS e "
    "WHERE jsonb_typeof(j) = 'array'",
    "SELECT jsonb_build_array(e.key, e.value) AS r FROM t, jsonb_each(j) AS e WHERE a < 3",
    "SELECT to_jsonb(ARRAY[j, j]) AS r FROM t",
    "SELECT a, (jsonb_each(j)).key AS k, (jsonb_each(j)).value AS v FROM t WHERE a < 3",
    "SELECT to_jsonb(u.e) AS r FROM (SELECT jsonb_each(j) AS e FROM t WHERE a < 3) AS u",
    "SELECT to_jsonb(row(a, j)) AS r FROM t",
    "SELECT to_jsonb(ARRAY[s::jsonb]) AS r FROM t WHERE a = 2",
    "SELECT jsonb_build_array(u.m[1]) AS r "
    "FROM (SELECT ARRAY[s::jsonb] AS m FROM t WHERE a = 2) AS u",
    "SELECT to_jsonb(array_agg(j)) AS r FROM t WHERE a = 1",
    "SELECT to_jsonb(u.o[1]) AS r FROM (SELECT ARRAY[jsonb_build_object('k', a)] AS o FROM t) AS u",
]
# Equal values of jsonb are equal, however they are written.
EQUALITIES = [
    "SELECT j, count(*) AS n FROM t GROUP BY j",
    "SELECT DISTINCT j FROM t",
    "SELECT t.a, u.a AS b FROM t JOIN t AS u ON t.j = u.j",
    """SELECT a FROM t WHERE j = '{"b":1,"a":2}'""",
    """SELECT a FROM t WHERE j <> '{"b":1, "a":2}'""",
    """SELECT a FROM t WHERE j IN ('{"b":1, "a":2}', '12')""",
    """SELECT a FROM t WHERE j IS NOT DISTINCT FROM '{"b":1, "a":2}'""",
    "SELECT a, j::text AS s FROM t",
    "SELECT jsonb_build_object('bb', a, 'a', j)::text AS r FROM t",
    "SELECT jsonb_object_agg(coalesce(s, 'n'), a ORDER BY a)::text AS r FROM t WHERE a IS NOT NULL",
    """SELECT a FROM t WHERE jsonb_build_object('b', 1, 'a', a) = '{"a": 2, "b": 1}'""",
    "SELECT a, j ->> 'a' AS s, (j -> 'a')::text AS r FROM t",
]


def rows_after_each_step(query: str, dialect: str):
    """Yield the rows of a view after all rows are inserted, then after some are deleted."""
    kind = "JSON" if dialect == "duckdb" else "JSONB"
    text = f"CREATE TABLE t (a INT, j {kind}, s VARCHAR); CREATE VIEW view AS {query}"
    circuit = compile_sql(text, dialect=dialect)
    rows: Counter[tuple] = Counter()
    for numbers, weight in ((range(len(ROWS)), 1), (DELETED, -1)):
        changed = [
            dict(zip("ajs", ROWS[number], strict=True)) | {"weight": weight} for number in numbers
        ]
        for row in circuit.step({"t": changed})["view"].to_pylist():
            rows[tuple(row.values())[:-1]] += row["weight"]
        assert min(rows.values(), default=1) >= 0
        yield +rows


@pytest.mark.parametrize("query", BOTH + DUCKDB_ONLY)
def test_json_in_columns_is_not_quoted_as_in_duckdb(query):
    connection = connect_to_new_schema()
    connection.execute("CREATE TABLE t (a INT, j JSON, s VARCHAR)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    for number, rows in enumerate(rows_after_each_step(query, "duckdb")):
        if number:
            connection.execute("DELETE FROM t WHERE a IN (1, 3) OR a IS NULL")
        assert rows == Counter(connection.execute(query).fetchall())


def plain(row: tuple) -> tuple:
    """Return a row with its JSON as a text without blanks, in the order of the names."""

    def value_of(value):
        if isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        return json.dumps(value, sort_keys=True)

    return tuple(map(value_of, row))


@pytest.fixture(scope="module")
def server(postgres):
    """A function that returns the rows of a query, over all rows or those that are left."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        for schema in ("all_json", "left_json"):
            connection.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}")
            connection.execute("CREATE TABLE t (a int, j jsonb, s text)")
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO t VALUES (%s, %s, %s)", ROWS)
        connection.execute("DELETE FROM t WHERE a IN (1, 3) OR a IS NULL")

        def ask(schema: str, query: str) -> list[tuple]:
            connection.execute(f"SET search_path = {schema}")
            return connection.execute(query.encode()).fetchall()

        yield ask
        connection.execute("DROP SCHEMA all_json CASCADE; DROP SCHEMA left_json CASCADE")


def in_postgres(query: str) -> str:
    for name, other in (
        ("json_array(", "jsonb_build_array("),
        ("json_object(", "jsonb_build_object("),
    ):
        query = query.replace(name, other)
    return query.replace("::JSON)", "::JSONB)").replace("row_to_json(t)", "to_jsonb(t)")


@pytest.mark.parametrize("query", [*map(in_postgres, BOTH), *POSTGRES_ONLY])
def test_json_in_columns_is_not_quoted_as_in_postgresql(server, query):
    schemas = ("all_json", "left_json")
    for schema, rows in zip(schemas, rows_after_each_step(query, "postgres"), strict=True):
        assert Counter(plain(row) for row in rows.elements()) == Counter(
            map(plain, server(schema, query))
        )


@pytest.mark.parametrize("query", EQUALITIES)
def test_equal_values_of_jsonb_are_equal_as_in_postgresql(server, query):
    def texts(row: tuple) -> tuple:
        """Return a row with texts as they are, and other JSON as its text without blanks."""
        return tuple(
            value
            if isinstance(value, str | int | None)
            else json.dumps(value, separators=(",", ":"))
            for value in row
        )

    asked = query.replace("SELECT j,", "SELECT j::text AS j,").replace(
        "DISTINCT j ", "DISTINCT j::text "
    )
    view = query.replace("SELECT j,", "SELECT j::text AS j,").replace(
        "DISTINCT j ", "DISTINCT j::text "
    )
    schemas = ("all_json", "left_json")
    for schema, rows in zip(schemas, rows_after_each_step(view, "postgres"), strict=True):
        assert rows == Counter(map(texts, server(schema, asked)))


def test_a_database_knows_the_json_of_its_tables_and_views():
    database = Database("CREATE TABLE t (a INT, j JSONB)", dialect="postgres")
    database.execute("""INSERT INTO t VALUES (1, '{"b": [1, 2], "a": 3}')""")
    database.execute(
        "CREATE VIEW v AS SELECT j -> 'b' AS b, jsonb_build_array(a) AS o, j::text AS s FROM t"
    )
    query = "SELECT jsonb_build_array(v.b, v.o, v.s, t.j) AS r FROM v, t"
    (row,) = database.query(query).to_pylist()
    assert json.loads(row["r"]) == [[1, 2], [1], '{"a": 3, "b": [1, 2]}', {"a": 3, "b": [1, 2]}]
    (row,) = database.query("SELECT j::text AS s FROM t").to_pylist()
    assert row["s"] == '{"a": 3, "b": [1, 2]}'


def test_a_cast_of_a_text_that_is_no_json_fails():
    circuit = compile_sql("CREATE TABLE t (s VARCHAR); SELECT s::JSON AS j FROM t")
    with pytest.raises(EvaluationError, match=r"s = 'x': the text is no JSON"):
        circuit.step({"t": [{"s": "x"}]})
    with pytest.raises(SqlError, match=r"column \d+: '\{' is not a valid JSON"):
        compile_sql("CREATE TABLE t (s VARCHAR); SELECT '{'::JSON AS j FROM t")


def test_a_column_of_a_list_of_json_holds_json():
    circuit = compile_sql("CREATE TABLE t (l JSON[]); SELECT to_json(l[1]) AS r FROM t")
    assert circuit.step({"t": [{"l": ['{"a": 1}']}]})["view"].to_pylist() == [
        {"r": '{"a":1}', "weight": 1}
    ]
