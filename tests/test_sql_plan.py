"""SQL to plans, against DuckDB on random tables with NULLs and duplicates.

The plans are evaluated by `tests.naive_plan`, which knows them from their docstrings only.
"""

from __future__ import annotations

import datetime
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.errors import SqlError, UnsupportedSqlError
from circuits.relational import Field, Filter, Scan, Values
from circuits.sql import plan_sql
from tests import tpch_queries
from tests.naive_plan import evaluate_plan
from tests.sql_queries import QUERIES, TABLES

RELATIONS = {
    name: tuple(Field(field.name, field.type) for field in schema)
    for name, schema in TABLES.items()
}
POOLS: dict[str, list[Any]] = {
    "int64": [0, 1, 2, 3],
    "int32": [0, 1, 2, 3],
    "string": ["ab", "a%", "b", "Ab", "xab", ""],
    "date32[day]": [datetime.date(2024, 1, 1) + datetime.timedelta(d) for d in (-1, 0, 30, 60)],
    "double": [0.0, 0.5, 1.25, -2.75, 3.0],
    "decimal128(8, 2)": [Decimal(text) for text in ("0.00", "1.50", "-3.10", "12.00")],
    "bool": [False, True],
    "timestamp[us]": [
        datetime.datetime(2024, 1, 31, 23, 59, 59) + datetime.timedelta(hours=hours)
        for hours in (0, 1, -30, 500)
    ],
}
Database = tuple[duckdb.DuckDBPyConnection, dict[str, list[tuple[Any, ...]]]]


def database(seed: int) -> Database:
    """Random tables, in DuckDB and as rows; seed 0 has some rows in each."""
    draw = random.Random(seed)
    connection = duckdb.connect()
    connection.execute("SET error_on_division_by_zero = false; SET ieee_floating_point_ops = false")
    relations = {}
    for name, schema in TABLES.items():
        count = draw.choice([0, 4, 7, 9]) if seed else 6
        rows = [
            tuple(
                None if draw.random() < 0.15 else draw.choice(POOLS[str(field.type)])
                for field in schema
            )
            for _ in range(count)
        ]
        columns = [[row[index] for row in rows] for index in range(len(schema))]
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        connection.register(name, pa.Table.from_arrays(arrays, schema=schema))
        relations[name] = rows
    return connection, relations


@pytest.fixture(scope="module")
def databases() -> Iterator[list[Database]]:
    made = [database(seed) for seed in range(4)]
    yield made
    for connection, _ in made:
        connection.close()


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    return value


def bag(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(canonical, row)) for row in rows)


def plan_of(text: str, relations: Any = RELATIONS) -> Any:
    return plan_sql(text, relations)["view"]


@pytest.mark.parametrize("text", QUERIES)
def test_the_plan_of_a_query_has_the_answer_of_duckdb(text, databases):
    plan = plan_of(text)

    for connection, relations in databases:
        expected = bag(connection.execute(text).fetchall())
        assert bag(evaluate_plan(plan, relations).elements()) == expected


@pytest.mark.parametrize("text", [text for text in QUERIES if " AS " in text or "*" in text])
def test_the_columns_are_called_as_duckdb_calls_them(text, databases):
    names = [column[0] for column in databases[0][0].execute(text).description]

    if not any("(" in name or " " in name for name in names):
        assert [field.name for field in plan_of(text).fields] == names


@pytest.mark.parametrize("number", tpch_queries.QUERIES)
def test_all_queries_of_tpch_have_a_plan(number):
    relations = {
        name: tuple(Field(field.name, field.type) for field in schema)
        for name, schema in tpch_queries.SCHEMAS.items()
    }

    assert plan_of(tpch_queries.QUERIES[number], relations).fields


def test_the_tpch_queries_are_right_for_duckdb_too():
    connection = duckdb.connect()
    for name, schema in tpch_queries.SCHEMAS.items():
        connection.register(name, schema.empty_table())

    for text in tpch_queries.QUERIES.values():
        connection.execute(text)


def test_views_name_the_views_before_them(databases):
    text = """
        CREATE VIEW pairs AS SELECT x.src AS p, y.dst AS q FROM e x JOIN e y ON x.dst = y.src;
        CREATE OR REPLACE VIEW Counts (p, n) AS SELECT p, count(*) FROM pairs GROUP BY p;
        CREATE MATERIALIZED VIEW few AS SELECT * FROM counts WHERE n < 3;
        SELECT few.p, n FROM few, pairs WHERE few.p = pairs.q
    """
    plans = plan_sql(text, RELATIONS, name="last")

    assert list(plans) == ["pairs", "Counts", "few", "last"]
    connection, relations = databases[0]
    answers: dict[str, Any] = dict(relations)
    for name, plan in plans.items():
        answers[name] = evaluate_plan(plan, answers)
    expected = connection.execute(
        """
        WITH pairs AS (SELECT x.src AS p, y.dst AS q FROM e x JOIN e y ON x.dst = y.src),
             few AS (SELECT p, count(*) AS n FROM pairs GROUP BY p HAVING n < 3)
        SELECT few.p, n FROM few, pairs WHERE few.p = pairs.q
        """
    ).fetchall()
    assert bag(answers["last"].elements()) == bag(expected)


def test_a_view_is_scanned_by_the_name_it_was_made_with():
    plans = plan_sql("CREATE VIEW v AS SELECT a FROM t; SELECT A FROM V", RELATIONS, name="w")

    assert plans["w"] == Scan("v", plans["v"].fields)


def test_constants_without_from_are_values():
    plan = plan_of("SELECT 1 AS x, 'a' AS y")

    assert plan == Values((Field("x", pa.int64()), Field("y", pa.string())), ((1, "a"),))


def test_what_all_branches_of_an_or_share_is_a_condition_of_its_own():
    plan = plan_of("SELECT t.a FROM t, s WHERE (t.a = s.a AND t.b = 1) OR (t.b = 2 AND t.a = s.a)")

    conditions = []
    node = plan.input
    while isinstance(node, Filter):
        conditions.append(str(node.predicate))
        node = node.input
    assert "eq(#0, #7)" in conditions


def test_a_with_query_that_is_named_twice_is_one_plan():
    plan = plan_of("WITH q AS (SELECT a + 1 AS n FROM t) SELECT x.n FROM q x, q y WHERE x.n = y.n")

    assert plan.input.input.inputs[0] is plan.input.input.inputs[1]


def test_limit_without_order_takes_some_rows(databases):
    plan = plan_of("SELECT a FROM t LIMIT 3")

    for _, relations in databases:
        rows = evaluate_plan(plan, relations)
        assert rows <= Counter((row[0],) for row in relations["t"])
        assert rows.total() == min(3, len(relations["t"]))


# A text, the error's line and column, and words of its message.
WRONG = [
    ("SELECT a\nFROM nowhere", 2, 6, "unknown table 'nowhere'; there are: t, s, u, e"),
    ("SELECT a,\n  zz FROM t", 2, 3, "unknown column 'zz'; in FROM: t.a, t.b"),
    ("SELECT t.zz FROM t", 1, 8, "unknown column 'zz' of 't'; it has: a, b, c"),
    ("SELECT s.a FROM t", 1, 8, "unknown table 's'; in FROM: t"),
    ("SELECT a FROM t, s", 1, 8, "column 'a' is ambiguous: t.a, s.a"),
    ("SELECT z.* FROM t", 1, 8, "unknown table 'z' before '.*'"),
    ("SELECT * EXCLUDE (zz) FROM t", 1, 19, "unknown column 'zz' in EXCLUDE"),
    ("SELECT a FROM t WHERE", 1, 17, "syntax error"),
    ("SELECT a FORM t x y", 1, 15, "syntax error near 't'"),
    ("SELECT 'abc", 1, 1, "cannot be read"),
    ("", 1, 1, "no statement"),
    ("SELECT a FROM t WHERE c + 1 = 2", 1, 23, "add(string, int64)"),
    ("SELECT a FROM t WHERE c = a", 1, 23, "no common type"),
    ("SELECT a FROM t WHERE a", 1, 23, "needs a condition"),
    ("SELECT a FROM t WHERE d = '2024-13-01'", 1, 23, "2024-13-01"),
    ("SELECT DATE 'never' AS d", 1, 13, "is no date32"),
    ("SELECT a, count(*) FROM t GROUP BY b", 1, 8, "neither in GROUP BY nor in an aggregate"),
    ("SELECT a FROM t GROUP BY 2", 1, 26, "no column 2"),
    ("SELECT a FROM t ORDER BY 3", 1, 26, "no column 3"),
    ("SELECT -a AS a FROM t ORDER BY a + 1", 1, 32, "both a column and the alias"),
    ("SELECT a, b AS A FROM t", 1, 11, "two columns 'A'; give one an alias"),
    ("SELECT a AS weight FROM t", 1, 8, "name of the weights; rename"),
    ("SELECT t.a FROM t JOIN s", 1, 24, "JOIN without ON or USING"),
    ("SELECT t.a FROM t, s JOIN u ON t.b = u.b", 1, 32, "unknown table 't'; in FROM: s, u"),
    ("SELECT 1 AS x FROM t, t", 1, 20, "two tables in FROM are called 't'"),
    ("SELECT a FROM t UNION SELECT a, b FROM s", 1, 30, "UNION of 1 with 2 columns"),
    ("SELECT a FROM t WHERE a IN (SELECT a, b FROM s)", 1, 36, "has 2 columns, 1 are compared"),
    ("SELECT a FROM t AS q(x, y, z, w, v, r, p, o)", 1, 43, "8 names for the 7 columns"),
    ("SELECT 0x10 AS n FROM t", 1, 8, "'0x10' is no number"),
    ("SELECT 9223372036854775808 AS n", 1, 8, "does not fit 64 bits"),
    ("CREATE VIEW t AS SELECT 1 AS x", 1, 13, "has the name of a relation"),
    ("SELECT a FROM t; SELECT b FROM t", 1, 8, "make it a CREATE VIEW"),
    ("WITH q AS (SELECT a FROM q) SELECT * FROM q", 1, 26, "unknown table 'q'"),
    ("SELECT a FROM (SELECT s.a FROM s WHERE s.b = t.b) q, t", 1, 46, "unknown table 't'"),
    ("SELECT DISTINCT a FROM t ORDER BY b LIMIT 1", 1, 35, "add it to the list"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), WRONG)
def test_an_error_names_what_is_wrong_and_its_place(text, line, column, words):
    with pytest.raises(SqlError) as caught:
        plan_sql(text, RELATIONS)

    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    message, excerpt, caret = str(caught.value).split("\n")
    assert message.startswith(f"line {line}, column {column}: ")
    assert caret.index("^") - 2 <= len(excerpt)


# A text, the word of it that the error points at, and words of its message.
UNSUPPORTED = [
    ("SELECT a FROM t TABLESAMPLE 10%", "10", "TABLESAMPLE"),
    ("SELECT a FROM t USING SAMPLE 3", "SAMPLE", "TABLESAMPLE"),
    ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))", "PIVOT", "PIVOT"),
    ("SELECT t.a FROM t, LATERAL (SELECT t.a) q", "LATERAL", "LATERAL"),
    ("SELECT x FROM unnest([1, 2]) q(x)", "unnest", "UNNEST in FROM"),
    ("SELECT * FROM generate_series(1, 3)", "generate_series", "GENERATESERIES in FROM"),
    ("SELECT t.a FROM t ASOF JOIN s ON t.a >= s.a", "ASOF", "ASOF JOIN"),
    ("SELECT t.a FROM t POSITIONAL JOIN s", "POSITIONAL", "POSITIONAL JOIN"),
    ("SELECT a FROM main.t", "main", "name the table alone"),
    ("WITH RECURSIVE q AS (SELECT 1 AS n) SELECT n FROM q", "RECURSIVE", "recursion comes later"),
    ("SELECT a FROM t GROUP BY ROLLUP (a)", "a)", "ROLLUP"),
    ("SELECT a FROM t GROUP BY CUBE (a)", "a)", "CUBE"),
    ("SELECT a FROM t GROUP BY GROUPING SETS ((a), ())", "a), ()", "GROUPINGSETS"),
    ("SELECT a, rank() OVER (ORDER BY a) AS n FROM t", "rank", "window function"),
    ("SELECT a, sum(b) OVER () AS n FROM t", "sum", "window function"),
    ("SELECT a, row_number() OVER (ORDER BY a) AS n FROM t", "row_number", "QUALIFY"),
    ("SELECT a FROM t QUALIFY count(*) OVER () > 1", "QUALIFY", "condition of QUALIFY"),
    ("SELECT sum(a ORDER BY b) AS n FROM t", "a ORDER", "ORDER in an aggregate"),
    ("SELECT sum(a) IGNORE NULLS AS n FROM t", "sum", "IGNORE NULLS"),
    ("SELECT count(DISTINCT a, b) AS n FROM t", "count", "DISTINCT of several columns"),
    ("SELECT median(a) AS n FROM t", "median", "aggregate median()"),
    ("SELECT DISTINCT ON (a) a, b FROM t", "DISTINCT", "QUALIFY row_number()"),
    ("SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES", "FETCH", "use LIMIT"),
    ("SELECT a FROM t LIMIT 10%", "10", "PERCENT"),
    ("SELECT a FROM t LIMIT 1 + 1", "LIMIT", "write a whole number"),
    ("SELECT a FROM t FOR UPDATE", "FOR", "FOR UPDATE"),
    ("SELECT a FROM t ORDER BY ALL", "ORDER", "name the columns"),
    ("SELECT a FROM t UNION ALL BY NAME SELECT a FROM s", "BY", "BY NAME"),
    ("SELECT * REPLACE (a + 1 AS a) FROM t", "REPLACE", "REPLACE"),
    ("SELECT foo(a) AS n FROM t", "foo", "function foo()"),
    ("SELECT md5(c) AS n FROM t", "md5", "function md5()"),
    ("SELECT c[1] AS n FROM t", "c[", "BRACKET"),
    ("SELECT [1, 2] AS n", "1", "array()"),
    ("SELECT c ~ 'a' AS n FROM t", "c ~", "REGEXPLIKE"),
    ("SELECT CAST(a AS HUGEINT) AS n FROM t", "a AS", "type INT128"),
    ("SELECT INTERVAL 1 DAY AS n", "INTERVAL", "add it to a date"),
    ("SELECT extract(epoch FROM d) AS n FROM t", "d)", "field 'epoch'"),
    ("SELECT a FROM t WHERE a = 1 OR EXISTS (SELECT 1 FROM s)", "EXISTS", "UNION of queries"),
    ("SELECT a FROM t WHERE b = 1 OR a IN (SELECT a FROM s)", "a IN", "IN (subquery)"),
    ("SELECT EXISTS (SELECT 1 FROM s) AS n", "EXISTS", "EXISTS inside of an expression"),
    ("SELECT a FROM t WHERE (a, b) NOT IN (SELECT a, b FROM s)", "a, b) N", "NOT EXISTS"),
    ("SELECT a FROM t WHERE (a, b) = (1, 2)", "a, b)", "column by column"),
    ("SELECT a FROM t WHERE a = (SELECT a FROM s)", "a FROM s", "several rows"),
    ("SELECT a FROM t WHERE a = (SELECT s.a FROM s WHERE s.b = t.b)", "s.a F", "single aggregate"),
    (
        "SELECT a FROM t WHERE 1 < (SELECT count(*) FROM s WHERE s.a < t.a)",
        "s.a <",
        "does not equate an inner with an outer value",
    ),
    (
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM s WHERE EXISTS "
        "(SELECT 1 FROM u WHERE u.b = t.b))",
        "t.b)",
        "two levels further out",
    ),
    (
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM s LEFT JOIN u ON u.b = t.b)",
        "u.b",
        "left join's condition",
    ),
    ("SELECT t.a FROM t LEFT JOIN s ON t.a = (SELECT 1)", "1)", "a scalar subquery in LEFT JOIN"),
    ("INSERT INTO t VALUES (1)", "t", "INSERT"),
    ("CREATE TABLE z AS SELECT 1 AS x", "CREATE", "CREATE TABLE"),
    ("CREATE TEMP VIEW z AS SELECT 1 AS x", "CREATE", "there is CREATE VIEW"),
]


@pytest.mark.parametrize(("text", "word", "words"), UNSUPPORTED)
def test_what_is_not_supported_is_named_with_its_place(text, word, words):
    with pytest.raises(UnsupportedSqlError) as caught:
        plan_sql(text, RELATIONS)

    assert words in str(caught.value)
    place = text[caught.value.column - 1 :]
    assert place.startswith(word), str(caught.value)


def test_places_are_counted_in_characters_and_lines():
    with pytest.raises(SqlError) as caught:
        plan_sql("SELECT 'ü日本' AS x,\n\n\t zz FROM t", RELATIONS)

    assert (caught.value.line, caught.value.column) == (3, 3)
    assert str(caught.value).endswith("\n  \t zz FROM t\n  \t ^")


def test_text_that_is_nested_too_deeply_is_an_error():
    for text in ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "SELECT " + "-" * 3 + "(" * 900 + "1"):
        with pytest.raises(SqlError):
            plan_sql(text, RELATIONS)


def test_a_chain_of_a_thousand_conditions_is_no_deep_nest():
    text = "SELECT a FROM t WHERE " + " OR ".join(f"a = {number}" for number in range(1000))

    assert isinstance(plan_of(text).input, Filter)


WORDS = sorted(
    {
        word
        for text in QUERIES
        for word in text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    }
)


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(["", "SELECT ", "SELECT a "]))
def test_a_jumble_of_words_is_a_plan_or_an_sql_error(words, start):
    try:
        plan_sql(start + " ".join(words), RELATIONS)
    except SqlError as error:
        assert error.line >= 1
        assert error.column >= 1


@given(st.text(max_size=30))
def test_any_text_is_a_plan_or_an_sql_error(text):
    try:
        plan_sql(text, RELATIONS)
    except SqlError as error:
        assert str(error)


@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False))
def test_a_damaged_query_is_a_plan_or_an_sql_error(text, draw):
    words = text.split()
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(words))
        words[place : place + draw.randint(0, 2)] = draw.choices(WORDS, k=draw.randint(0, 2))
        words = words or ["SELECT"]

    try:
        plan_sql(" ".join(words), RELATIONS)
    except SqlError as error:
        assert str(error)
