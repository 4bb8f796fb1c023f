"""SQL to plans, against DuckDB on random tables with NULLs and duplicates.

The plans are evaluated by `tests.oracles.naive_plan`, which was written from
the docstrings of the plans alone.
"""

from __future__ import annotations

import datetime
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from benchmarks.tpch import queries as tpch_queries
from circuits.errors import SqlError
from circuits.plan.nodes import Field, Filter, Scan, Values
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.traversal import iter_nodes
from circuits.sql import plan_sql
from tests.generators.sql_queries import QUERIES, TABLES
from tests.oracles.naive_plan import evaluate_plan

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


def random_database(seed: int) -> Database:
    """Return random tables, in DuckDB and as rows; with seed 0 no table is empty."""
    rng = random.Random(seed)
    connection = duckdb.connect()
    connection.execute("SET error_on_division_by_zero = false; SET ieee_floating_point_ops = false")
    relations = {}
    for name, schema in TABLES.items():
        count = rng.choice([0, 4, 7, 9]) if seed else 6
        rows = [
            tuple(
                None if rng.random() < 0.15 else rng.choice(POOLS[str(field.type)])
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
    all_databases = [random_database(seed) for seed in range(4)]
    yield all_databases
    for connection, _ in all_databases:
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
def test_the_columns_have_the_names_of_duckdb(text, databases):
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


def test_duckdb_accepts_the_tpch_queries_too():
    connection = duckdb.connect()
    for name, schema in tpch_queries.SCHEMAS.items():
        connection.register(name, schema.empty_table())

    for text in tpch_queries.QUERIES.values():
        connection.execute(text)


def test_views_may_read_the_views_before_them(databases):
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


def test_a_view_is_scanned_by_its_declared_name():
    plans = plan_sql("CREATE VIEW v AS SELECT a FROM t; SELECT A FROM V", RELATIONS, name="w")

    assert plans["w"] == Scan("v", plans["v"].fields)


def test_constants_without_from_are_values():
    plan = plan_of("SELECT 1 AS x, 'a' AS y")

    assert plan == Values((Field("x", pa.int64()), Field("y", pa.string())), ((1, "a"),))


# Columns of VALUES are col0 and so on, as in DuckDB.
KNOWN_NAMES = {"col", "row_id", *(name for schema in TABLES.values() for name in schema.names)}


@pytest.mark.parametrize("text", QUERIES)
def test_the_names_in_a_plan_are_those_of_the_query(text):
    plan = rewrite_plan(plan_of(text))

    # A computed column has its text as the name, such as count(*). A name that occurs twice in a
    # join has a number: a_2.
    names = {field.name for node in iter_nodes(plan) for field in node.fields}
    numbered = {name for name in names if re.fullmatch(r"[a-z_]+[0-9]+", name)}
    assert {re.sub(r"_?[0-9]+$", "", name) for name in numbered if name not in text} <= KNOWN_NAMES


def test_a_condition_in_all_branches_of_an_or_becomes_a_separate_condition():
    plan = plan_of("SELECT t.a FROM t, s WHERE (t.a = s.a AND t.b = 1) OR (t.b = 2 AND t.a = s.a)")

    conditions = []
    node = plan.input
    while isinstance(node, Filter):
        conditions.append(str(node.predicate))
        node = node.input
    assert "eq(#0, #7)" in conditions


def test_a_with_query_that_is_read_twice_is_one_plan():
    plan = plan_of("WITH q AS (SELECT a + 1 AS n FROM t) SELECT x.n FROM q x, q y WHERE x.n = y.n")

    assert plan.input.input.inputs[0] is plan.input.input.inputs[1]


def test_limit_without_order_takes_some_rows(databases):
    plan = plan_of("SELECT a FROM t LIMIT 3")

    for _, relations in databases:
        rows = evaluate_plan(plan, relations)
        assert rows <= Counter((row[0],) for row in relations["t"])
        assert rows.total() == min(3, len(relations["t"]))


TEXTS_OF_SPARK_AND_DUCKDB = {
    "SELECT year(d) AS n FROM t": "SELECT CAST(year(d) AS INT) AS n FROM t",
    # As in Spark 4, CAST raises an error for a value that does not fit, and drops fractions.
    "SELECT a::SMALLINT AS n, TRY_CAST(a AS SMALLINT) AS p FROM s": (
        "SELECT a::SMALLINT AS n, TRY_CAST(a AS SMALLINT) AS p FROM s"
    ),
    "SELECT CAST(f AS INT) AS n, CAST(m AS BIGINT) AS p FROM t": (
        "SELECT CAST(trunc(f) AS INT) AS n, CAST(trunc(m) AS BIGINT) AS p FROM t"
    ),
    "SELECT substring(x, a) AS n FROM s": (
        "SELECT substring(x, CASE WHEN a = 0 THEN 1 ELSE a END) AS n FROM s"
    ),
    "SELECT CAST(2.5 AS INT) AS n, TRY_CAST('1.5' AS INT) AS p, substring('abc', 0, 2) AS q": (
        "SELECT 2::INT AS n, NULL::INT AS p, 'ab' AS q"
    ),
    "SELECT a FROM s LEFT ANTI JOIN e ON src = a": "SELECT a FROM s ANTI JOIN e ON src = a",
    "SELECT a FROM s LEFT SEMI JOIN e ON src = a": "SELECT a FROM s SEMI JOIN e ON src = a",
    "SELECT a FROM s ORDER BY a, b, x LIMIT 2": (
        "SELECT a FROM s ORDER BY a NULLS FIRST, b NULLS FIRST, x NULLS FIRST LIMIT 2"
    ),
}


@pytest.mark.parametrize("text", TEXTS_OF_SPARK_AND_DUCKDB)
def test_a_text_of_spark_has_the_plan_of_the_equal_text_of_duckdb(text):
    expected = plan_sql(TEXTS_OF_SPARK_AND_DUCKDB[text], RELATIONS)
    assert repr(plan_sql(text, RELATIONS, dialect="spark")) == repr(expected)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("SELECT a / b AS n FROM s", "divide_ansi"),
        ("SELECT CAST(f AS STRING) AS n FROM t", "java_float"),
        ("SELECT c || f AS n FROM t", "java_float"),
    ],
)
def test_dialect_spark_has_functions_of_its_own(text, function):
    assert function in repr(plan_sql(text, RELATIONS, dialect="spark"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT CAST('1.5' AS INT) AS n", r"'1\.5' is not a valid int32"),
        ("SELECT CAST('x' AS DATE) AS n", "'x' is not a valid date32"),
        ("SELECT CAST(300 AS TINYINT) AS n", "300 is not a valid int8"),
    ],
)
def test_a_cast_of_a_constant_that_fails_in_spark_is_an_error(text, words):
    with pytest.raises(SqlError, match=words):
        plan_sql(text, RELATIONS, dialect="spark")
