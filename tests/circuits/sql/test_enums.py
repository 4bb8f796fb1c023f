"""ENUM against DuckDB and PostgreSQL, after inserts and deletes."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from circuits import CircuitError, SqlError, UnsupportedSqlError, compile_sql
from circuits.errors import EvaluationError, SchemaError
from circuits.types.enum_type import EnumType

DECLARATIONS = """
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
    CREATE TABLE p (id INTEGER, m mood, s VARCHAR);
"""
COLUMNS = ("id", "m", "s")
ROWS = [
    (1, "sad", "ok"),
    (2, "happy", "sad"),
    (3, None, "happy"),
    (4, "ok", "ok"),
    (5, "ok", "x"),
    (5, "ok", "x"),
    (6, "happy", None),
    (7, "sad", "sad"),
]
DELETED = [ROWS[0], ROWS[4]]

# For both engines.
QUERIES = [
    "SELECT id, m FROM p WHERE m IS NOT NULL ORDER BY m, id LIMIT 3",
    "SELECT min(m) AS a, max(m) AS b, count(DISTINCT m) AS c FROM p",
    "SELECT s, min(m) AS a, max(m) FILTER (WHERE id > 1) AS b FROM p GROUP BY s",
    "SELECT m, count(*) AS n FROM p GROUP BY m HAVING max(m) > CAST('sad' AS mood)",
    "SELECT id FROM p WHERE m IN ('sad', 'happy')",
    "SELECT id FROM p WHERE m > CAST('sad' AS mood) AND m <> 'happy'",
    "SELECT id, m = 'ok' AS e, m IS DISTINCT FROM 'ok' AS d, CAST('ok' AS mood) >= m AS g FROM p",
    "SELECT id, rank() OVER (ORDER BY m DESC NULLS LAST) AS r FROM p",
    "SELECT id, lag(m) OVER (ORDER BY id) AS l FROM p WHERE id <> 5",
    "SELECT id, max(m) OVER (ORDER BY id) AS x FROM p",
    "SELECT id, sum(id) OVER (ORDER BY m RANGE UNBOUNDED PRECEDING) AS n FROM p WHERE m <> 'ok'",
    "SELECT a.id, b.id AS i FROM p a JOIN p b ON a.m = b.m WHERE a.m > CAST('sad' AS mood)",
    "SELECT a.id, b.id AS i FROM p a JOIN p b ON a.m < b.m",
    "SELECT id, coalesce(m, 'sad') AS c, nullif(m, 'ok') AS n FROM p",
    "SELECT CASE m WHEN 'ok' THEN 1 ELSE 2 END AS c FROM p",
    "SELECT CAST(s AS mood) AS x, CAST(m AS VARCHAR) AS t FROM p WHERE s <> 'x'",
    "SELECT string_agg(CAST(id AS VARCHAR), ',' ORDER BY m, id) AS l FROM p WHERE m IS NOT NULL",
    "SELECT m FROM p UNION SELECT CAST('ok' AS mood) AS m",
    "SELECT m FROM p EXCEPT SELECT CAST('ok' AS mood) AS m",
    "SELECT id FROM p WHERE m = (SELECT max(m) FROM p)",
    "SELECT id FROM p WHERE m >= ALL (SELECT m FROM p WHERE m IS NOT NULL)",
    "SELECT id FROM p WHERE m IN (SELECT m FROM p WHERE id > 4)",
    "SELECT id, greatest(m, CAST('ok' AS mood)) AS g FROM p",
    "SELECT id, least(NULL, m, 'ok', m) AS g FROM p",
    "SELECT greatest(NULL, CAST('ok' AS mood)) AS g FROM p",
    "SELECT id, (m, id) > (CAST('ok' AS mood), 4) AS g FROM p WHERE m IS NOT NULL",
    "SELECT id, first_value(m) OVER (ORDER BY m DESC NULLS LAST, id) AS f FROM p",
    "SELECT DISTINCT ON (s) s, m FROM p WHERE m IS NOT NULL ORDER BY s, m, id",
    "SELECT m, count(*) AS n FROM p WHERE m IS NOT NULL GROUP BY m ORDER BY m LIMIT 2",
    "SELECT id, m FROM p WHERE id < 5 ORDER BY id LIMIT 3",
    "SELECT id, upper(CAST(m AS VARCHAR)) AS u FROM p WHERE CAST(m AS VARCHAR) LIKE '%a%'",
    "SELECT DISTINCT m FROM p WHERE m IS NOT NULL ORDER BY m LIMIT 2",
    "SELECT DISTINCT m, s FROM p WHERE m IS NOT NULL AND s <> 'x' ORDER BY m DESC, s LIMIT 3",
    "SELECT (array_agg(DISTINCT m ORDER BY m DESC))[2] AS a FROM p WHERE m IS NOT NULL",
    "SELECT mode() WITHIN GROUP (ORDER BY m) AS x FROM p WHERE id <> 6",
    "SELECT percentile_disc(0.6) WITHIN GROUP (ORDER BY m DESC) AS x FROM p",
    "SELECT s, percentile_disc(0.4) WITHIN GROUP (ORDER BY m) AS x FROM p GROUP BY s",
    "SELECT id FROM p WHERE m BETWEEN CAST('ok' AS mood) AND CAST('happy' AS mood)",
]
DUCKDB_QUERIES = [
    *QUERIES,
    "SELECT id FROM p WHERE m > 'sad'",  # compared as texts
    "SELECT id FROM p WHERE m > 'zzz' OR m = 'zzz'",
    "SELECT id FROM p WHERE m < s",
    "SELECT id, upper(m) AS u, m || '!' AS c, length(m) AS l FROM p WHERE m LIKE '%a%'",
    "SELECT try_cast(s AS mood) AS x FROM p",
    "SELECT max_by(id, m) AS b FROM p WHERE id IN (4, 6, 7)",
    "SELECT enum_code(m) AS c, enum_range(NULL::mood) AS r, enum_last(NULL::mood) AS l FROM p",
    "SELECT array_agg(m ORDER BY m DESC, id) AS a FROM p WHERE m IS NOT NULL",
    "SELECT m, id FROM p WHERE m IS NOT NULL ORDER BY ALL LIMIT 3",
    "SELECT list(DISTINCT m ORDER BY m) AS a, list(DISTINCT m ORDER BY m DESC) AS d FROM p",
    "SELECT s, list(DISTINCT m ORDER BY m) FILTER (WHERE id > 1) AS a FROM p GROUP BY s",
    "SELECT mode(m) AS x, quantile_disc(m, 0.3) AS q, quantile_disc(m, [0.2, 0.9]) AS l "
    "FROM p WHERE id <> 6",
    "SELECT max(m, 2) AS a, min(m, 3) AS b, max(m, 1) FILTER (WHERE id < 0) AS n FROM p",
    "SELECT list_sort([m, 'happy'::mood, 'sad'::mood]) AS a, list_max([m, 'ok'::mood]) AS b, "
    "list_reverse_sort([m, 'ok'::mood, NULL]) AS c, list_sort([m], 'DESC', 'NULLS FIRST') AS d "
    "FROM p",
    "SELECT DISTINCT m FROM p ORDER BY enum_code(m) DESC NULLS LAST LIMIT 1",
    "SELECT mode() WITHIN GROUP (ORDER BY enum_code(m)) AS x FROM p WHERE id <> 6",
    "SELECT typeof(m) AS t, 'b'::ENUM('b', 'a') AS e FROM p",
]
POSTGRES_QUERIES = [
    *QUERIES,
    "SELECT id FROM p WHERE m > 'sad' AND m BETWEEN 'ok' AND 'happy'",
    "SELECT id, coalesce(m, 'happy') > 'ok' AS c FROM p",
    "SELECT mode() WITHIN GROUP (ORDER BY m) AS x FROM p",
    "SELECT enum_first(NULL::mood) AS f, enum_last(NULL::mood) AS l FROM p",
]


def text_of(value: object) -> str:
    return str(value)


def maintained_rows(query: str, dialect: str) -> list[Counter]:
    """Return the rows of a view after all rows, and after the deletes."""
    circuit = compile_sql(f"{DECLARATIONS} CREATE VIEW v AS {query};", dialect=dialect)
    total: Counter = Counter()
    results = []
    for rows, weight in ((ROWS, 1), (DELETED, -1)):
        changes = [dict(zip(COLUMNS, row, strict=True)) | {"weight": weight} for row in rows]
        for row in circuit.step({"p": changes})["v"].to_pylist():
            count = row.pop("weight")
            total[tuple(map(text_of, row.values()))] += count
        results.append(+total)
        assert min(total.values(), default=0) >= 0
    return results


def rows_left() -> list[tuple]:
    rows = list(ROWS)
    for row in DELETED:
        rows.remove(row)
    return rows


@pytest.mark.parametrize("query", DUCKDB_QUERIES)
def test_an_enum_is_that_of_duckdb(query):
    found = maintained_rows(query, "duckdb")
    for rows, result in zip((ROWS, rows_left()), found, strict=True):
        with duckdb.connect() as duck:
            duck.execute(DECLARATIONS)
            duck.executemany("INSERT INTO p VALUES (?, ?, ?)", rows)
            expected = Counter(tuple(map(text_of, row)) for row in duck.execute(query).fetchall())
        assert result == expected


def test_an_enum_is_that_of_postgresql(postgres):
    psycopg = pytest.importorskip("psycopg")
    connection = psycopg.connect(postgres)
    cursor = connection.cursor()
    cursor.execute(DECLARATIONS)
    expected = []
    for rows in (ROWS, rows_left()):
        cursor.execute("DELETE FROM p")
        for row in rows:
            cursor.execute("INSERT INTO p VALUES (%s, %s, %s)", row)
        results = []
        for query in POSTGRES_QUERIES:
            cursor.execute(query)
            results.append(Counter(tuple(map(text_of, row)) for row in cursor.fetchall()))
        expected.append(results)
    connection.close()  # without a commit, the type and the table are gone
    for number, query in enumerate(POSTGRES_QUERIES):
        found = maintained_rows(query, "postgres")
        assert found == [results[number] for results in expected], query


def test_a_text_that_is_no_label_is_an_error():
    circuit = compile_sql(f"{DECLARATIONS} SELECT CAST(s AS mood) AS x FROM p")
    with pytest.raises(EvaluationError, match="'x' is no label of ENUM"):
        circuit.step({"p": [{"id": 1, "m": None, "s": "x"}]})
    with pytest.raises(SchemaError, match=r"'m': .* ENUM, and not every value fits: 'bad'"):
        circuit.step({"p": [{"id": 1, "m": "bad", "s": None}]})
    wrong = pa.table(
        {"id": pa.array([1], pa.int32()), "m": pa.array(["bad"], EnumType(["sad", "ok", "happy"]))}
    )
    with pytest.raises(CircuitError):
        circuit.step({"p": wrong})
    for dialect, condition in (("postgres", "m > 'bad'"), ("duckdb", "m = 'bad'::mood")):
        with pytest.raises(SqlError, match=r"column \d+: 'bad' is no label of the ENUM; labels"):
            compile_sql(f"{DECLARATIONS} SELECT id FROM p WHERE {condition}", dialect=dialect)


def test_a_dictionary_of_texts_is_an_enum():
    circuit = compile_sql(f"{DECLARATIONS} SELECT m FROM p")
    moods = pa.array(["ok", None, "sad"]).dictionary_encode()
    ids = pa.array([1, 2, 3], pa.int32())
    rows = pa.table({"id": ids, "m": moods, "s": pa.nulls(3, pa.string())})
    delta = circuit.step({"p": rows})["view"]
    assert delta.schema.field("m").type == EnumType(["sad", "ok", "happy"])
    assert sorted(map(str, delta.column("m").to_pylist())) == ["None", "ok", "sad"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("quantile_cont(0.5) WITHIN GROUP (ORDER BY m)", "ENUM to VARCHAR"),
        ("median(m)", r"of an ENUM is not supported; cast the ENUM to VARCHAR"),
        ("list_sort([{'m': m}])", "the order of .* ENUM to VARCHAR"),
        ("list_median([m])", "to VARCHAR"),
        ("string_agg(DISTINCT m, ',' ORDER BY m)", "SELECT DISTINCT in FROM"),
        ("CAST('a' AS ENUM('a', 'a'))", "occurs twice"),
        ("CAST('a' AS ENUM(1))", "ENUM"),
        ("enum_code(s)", "takes an ENUM"),
    ],
)
def test_a_refusal_names_its_place_and_a_remedy(expression, message):
    with pytest.raises((SqlError, UnsupportedSqlError), match=rf"column \d+: .*{message}"):
        compile_sql(f"{DECLARATIONS} SELECT {expression} AS x FROM p")


def test_an_error_of_a_value_names_the_labels():
    text = "CREATE TYPE one AS ENUM ('x'); CREATE TABLE t (s VARCHAR); CREATE VIEW v AS {}"
    circuit = compile_sql(text.format("SELECT s::one AS o FROM t;"))
    message = r"no value of type ENUM for s = 'y': 'y' is no label of ENUM\('x'\);"
    with pytest.raises(EvaluationError, match=message):
        circuit.step({"t": [{"s": "y"}]})


def test_mode_is_the_first_label_of_the_most_frequent_ones():
    circuit = compile_sql(
        "CREATE TABLE t (m ENUM('z', 'y', 'x')); CREATE VIEW v AS SELECT mode(m) AS m FROM t;"
    )
    rows = [{"m": m} for m in ("z", "y", "x", "y", "z", None)]
    assert circuit.step({"t": rows})["v"].to_pylist() == [{"m": "z", "weight": 1}]
