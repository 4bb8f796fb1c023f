"""Functions with a body in SQL, against the macros of DuckDB, and the answers of Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from circuits import SqlError, SqlNotice, UnsupportedSqlError, compile_sql
from circuits.sql import find_obstacles
from tests.circuits.sql.test_random_sql import check
from tests.generators.sql.queries import Program
from tests.support.random_sql import Database, case_of

MACROS = """
    CREATE OR REPLACE MACRO next_of(x) AS x + 1;
    CREATE OR REPLACE MACRO scaled(x, y := 5) AS next_of(x) * y;
    CREATE OR REPLACE MACRO shifted(x, y := next_of(next_of(2))) AS x + y;
    CREATE OR REPLACE MACRO size_of(x) AS CASE WHEN x > 1 THEN 'big' ELSE 'small' END;
    CREATE OR REPLACE MACRO ratio(x) AS sum(x) / count(*);
    CREATE OR REPLACE MACRO highest(x) AS max(x);
    CREATE OR REPLACE MACRO add_all(items, n) AS list_transform(items, lambda i: i + n);
    CREATE OR REPLACE MACRO best(key) AS (SELECT max(u.x) FROM u WHERE u.a = key);
    CREATE OR REPLACE MACRO better(key) AS best(key) + 1;
    CREATE OR REPLACE MACRO near(center) AS TABLE SELECT a, s FROM u WHERE u.a >= center;
    CREATE OR REPLACE MACRO two(x, y) AS x - y, (x) AS -x;
"""
QUERIES = [
    "SELECT next_of(a), scaled(b), scaled(a, 2), scaled(y := a, x := b) AS z FROM t",
    "SELECT size_of(a) AS k, count(*) AS n, ratio(b) AS r FROM t GROUP BY size_of(a)",
    "SELECT shifted(a) AS k, shifted(next_of(b)) AS n, shifted(a, shifted(1)) AS m FROM t",
    "SELECT highest(a) OVER (PARTITION BY s) AS m, highest(b) OVER (ORDER BY a) AS n FROM t",
    "SELECT add_all([1, 2], a) AS l, two(a, b) AS m, two(b) AS n FROM t",
    "SELECT t.a, best(t.b) AS m, better(t.a) AS n FROM t WHERE best(t.a) > 0",
    "SELECT n.a, n.s FROM near(1) n JOIN t ON t.a = n.a",
    "SELECT a, s FROM near(2) UNION ALL SELECT a, s FROM near(next_of(0))",
    "SELECT s, sum(next_of(next_of(a))) AS n FROM t GROUP BY s HAVING ratio(a) > 1",
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("query", QUERIES)
def test_calls_are_what_the_macros_of_duckdb_answer_after_every_step(query, seed):
    case = replace(case_of(query, seed), program=Program((), f"{MACROS}{query}", query))
    Database(case.program).connection.execute(MACROS)
    check(case)


# The body of a function, calls of it, and what Spark 4.3 answers over the rows 1 and 2 of i.
SPARK = [
    ("f(x INT) RETURNS INT RETURN x + 1", "f(2.7), f('3'), f(i)", [(3, 4, 2), (3, 4, 3)]),
    (
        "f(x INT, y INT DEFAULT 4) RETURNS INT LANGUAGE SQL DETERMINISTIC COMMENT 'c' RETURN x * y",
        "f(i), f(2, 3), f(y => 3, x => 5)",
        [(4, 6, 15), (8, 6, 15)],
    ),
    (
        "f(k INT) RETURNS STRING RETURN (SELECT max(s) FROM r WHERE r.i <= k)",
        "f(1), f(q.i)",
        [("a", "a"), ("a", "b")],
    ),
    ("f(x INT) RETURNS DOUBLE RETURN SELECT x * 2", "f(i)", [(2.0,), (4.0,)]),
]


@pytest.mark.parametrize(("body", "calls", "answer"), SPARK)
def test_functions_convert_their_arguments_and_results_as_in_spark(body, calls, answer):
    text = f"CREATE TEMPORARY FUNCTION {body}; SELECT {calls} FROM r AS q"
    circuit = compile_sql(text, {"r": "i INT, s STRING"}, dialect="spark")
    view = circuit.step({"r": [{"i": 1, "s": "a"}, {"i": 2, "s": "b"}]})["view"].to_pylist()
    assert sorted(tuple(row.values())[:-1] for row in view) == answer


def test_a_function_of_rows_has_the_declared_columns():
    text = """
        CREATE FUNCTION f(k INT) RETURNS TABLE (n BIGINT, t STRING) RETURN SELECT i, s FROM r
        WHERE i >= k;
        SELECT o.i, q.n, q.t FROM r AS o, LATERAL f(o.i) AS q
    """
    circuit = compile_sql(text, {"r": "i INT, s STRING"}, dialect="spark")
    view = circuit.step({"r": [{"i": 1, "s": "a"}, {"i": 2, "s": "b"}]})["view"]
    assert [str(field.type) for field in view.schema][:-1] == ["int32", "int64", "string"]
    rows = Counter(tuple(row.values())[:-1] for row in view.to_pylist())
    assert rows == Counter([(1, 1, "a"), (1, 2, "b"), (2, 2, "b")])


def test_a_function_of_feldera_and_a_computed_column():
    circuit = compile_sql("""
        CREATE FUNCTION shout(x VARCHAR NOT NULL) RETURNS VARCHAR NOT NULL AS upper(x) || '!';
        CREATE TABLE w (a VARCHAR, b AS shout(a));
        SELECT b FROM w
    """)
    assert circuit.step({"w": [{"a": "x"}]})["view"].to_pylist() == [{"b": "X!", "weight": 1}]


def test_row_types_of_feldera_in_a_table_and_a_cast():
    text = """
        CREATE TABLE w (id INT, a ROW(x INT NOT NULL, y ROW(z VARCHAR NOT NULL)) NOT NULL,
            b ROW(c INT) ARRAY);
        SELECT w.a.y.z, a.x, b[1].c, CAST(ROW(id, 'q') AS ROW(i BIGINT, t VARCHAR)).t FROM w
    """
    with pytest.warns(SqlNotice, match=r"NOT NULL in the type of column 'a' has no effect"):
        circuit = compile_sql(text, dialect="postgres")
    row = {"id": 1, "a": {"x": 2, "y": {"z": "u"}}, "b": [{"c": 3}]}
    (result,) = circuit.step({"w": [row]})["view"].to_pylist()
    assert list(result.values()) == ["u", 2, 3, "q", 1]


# A text, the place of the error, and words of its message.
WRONG = [
    ("CREATE MACRO f(x) AS x + 1; SELECT f(1, 2) FROM t", "f(1", "the arguments of f(x)"),
    ("CREATE MACRO f(x) AS x + 1; SELECT f(s) FROM t", "f(s", "takes numbers"),
    ("CREATE MACRO f(x) AS frob(x); SELECT f(s) FROM t", "f(s", "function frob()"),
    ("CREATE MACRO f(x) AS x + n; SELECT f(a) FROM t", "n; SEL", "no parameter of f()"),
    (
        "CREATE MACRO f(x) AS g(x); CREATE MACRO g(x) AS f(x); SELECT g(1)",
        "g(x); C",
        "calls itself",
    ),
    ("CREATE MACRO f(x) AS x; CREATE MACRO F(y) AS y; SELECT f(1)", "F(y", "declared twice"),
    ("CREATE MACRO upper(x) AS x; SELECT upper('a')", "upper(x", "exists already"),
    ("CREATE MACRO f(x) AS x; SELECT * FROM f(1)", "f(1", "as a value"),
    ("CREATE MACRO f(x) AS TABLE SELECT x AS y; SELECT f(1)", "f(1", "in FROM"),
    (
        "CREATE MACRO f(a) AS (SELECT max(s) FROM t WHERE t.a = a); SELECT f(1)",
        "f(1",
        "name of a column of 't'",
    ),
    (
        "CREATE MACRO f(k) AS (SELECT max(s) FROM t WHERE t.a = k); SELECT f(b) FROM u",
        "b) FROM u",
        "write it with the name of its table",
    ),
    (
        "CREATE MACRO f(k) AS (SELECT max(s) FROM t WHERE t.a = k); SELECT f(max(b)) FROM u",
        "b))",
        "an aggregate",
    ),
    (
        "CREATE MACRO f(k) AS (SELECT max(k) FROM (SELECT a AS k FROM t)); SELECT f(1)",
        "a AS k",
        "and an alias",
    ),
    (
        "CREATE MACRO f(x) AS list_transform([1], lambda a: a + x); SELECT f(a) FROM t",
        "f(a",
        "parameter of a lambda",
    ),
    ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS 'x'; SELECT 1", "CREATE", "PYTHON"),
    ("CREATE FUNCTION f(x INT) RETURNS INT AS 'x'; SELECT 1", "CREATE", "in another language"),
    ("CREATE FUNCTION f AS 'com.example.F'; SELECT 1 AS a", "CREATE", "without a body in SQL"),
    (
        f"CREATE MACRO f(x) AS x + x; SELECT {'f(' * 14}a{')' * 14} FROM t",
        "f(f(",
        "is too large",
    ),
]


@pytest.mark.parametrize(
    "declaration",
    [
        "CREATE FUNCTION f() RETURNS STRING RETURN 'a'",
        "CREATE FUNCTION f() RETURN 'a'",
        "CREATE MACRO f() AS 'a'",
    ],
)
def test_the_body_of_a_function_can_be_a_constant_text(declaration):
    (row,) = (
        compile_sql(f"{declaration}; SELECT f() AS x FROM t", {"t": "i INT"})
        .step({"t": [{"i": 1}]})["view"]
        .to_pylist()
    )
    assert row["x"] == "a"


@pytest.mark.parametrize(("text", "place", "words"), WRONG)
def test_an_error_points_to_the_call_or_to_the_declaration(text, place, words):
    schemas = {"t": "a INT, s STRING", "u": "b INT"}
    with pytest.raises((SqlError, UnsupportedSqlError)) as error:
        compile_sql(text, schemas)
    assert words in str(error.value)
    assert text[error.value.column - 1 :].startswith(place)


def test_the_obstacles_of_a_text_with_functions_are_found():
    text = "CREATE MACRO f(x) AS x + 1; CREATE TABLE t (a INT, b AS f(a)); SELECT f(b) AS c FROM t"
    assert find_obstacles(text, {}) == []
    (obstacle,) = find_obstacles(text.replace("f(b)", "f(zz)"), {})
    assert "unknown column 'zz'" in obstacle.message
    (obstacle,) = find_obstacles(text.replace("f(b)", "f(b, 1)"), {})
    assert "these are not the arguments" in obstacle.message


BROKEN = [
    ("duckdb", "CREATE MACRO f(x) AS gone + 1", "'gone' is no parameter"),
    ("duckdb", "CREATE OR REPLACE MACRO f(x) AS x +", "syntax error"),
    ("spark", "CREATE FUNCTION f(x INT) RETURNS INT RETURN gone", "'gone' is no parameter"),
    ("spark", "CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS 'a'", "in PYTHON"),
]


@pytest.mark.parametrize(("dialect", "declaration", "message"), BROKEN)
def test_a_call_of_a_function_with_an_error_is_no_obstacle(dialect, declaration, message):
    text = f"CREATE TABLE t (a INT); {declaration}; CREATE VIEW v AS SELECT F(a) AS c, zz FROM t"
    text += "; CREATE VIEW w AS SELECT c, yy FROM v WHERE f(c) > 0"
    messages = [obstacle.message for obstacle in find_obstacles(text, {}, dialect=dialect)]
    assert [message in messages[0], "'zz'" in messages[1], "'yy'" in messages[2]] == [True] * 3
    assert len(messages) == 3


def test_a_table_function_with_an_error_is_reported_once():
    text = (
        "CREATE TABLE t (a INT); CREATE MACRO f(x) AS TABLE SELECT x AS b, 1 AS x FROM t;"
        "CREATE VIEW v AS SELECT b FROM f(2); CREATE VIEW w AS SELECT zz FROM v"
    )
    (obstacle,) = find_obstacles(text, {})
    assert "is a parameter of f() and an alias" in obstacle.message


def test_a_default_that_calls_its_own_function_is_refused():
    text = "CREATE MACRO f(x, y := f(1)) AS x + y; SELECT f(2) AS c"
    with pytest.raises(SqlError, match=r"f\(\) calls itself"):
        compile_sql(text, {})


def test_an_error_in_a_body_does_not_make_later_calls_a_recursion():
    text = (
        "CREATE TABLE t (a INT); CREATE MACRO g(x) AS x; CREATE MACRO f(x) AS g(x, x);"
        "CREATE VIEW v AS SELECT f(a) AS c FROM t; CREATE VIEW w AS SELECT f(a) AS c FROM t"
    )
    messages = [obstacle.message for obstacle in find_obstacles(text, {})]
    assert "these are not the arguments of g(x)" in messages
    assert not any("calls itself" in message for message in messages)


@pytest.mark.parametrize(
    ("body", "place", "words"),
    [
        ("$$ SELECT x + gone $$", "gone", "'gone' is no parameter of f()"),
        ("$$\n SELECT x +\n $$", "+", "syntax error"),
        ("$$ SELECT 1; SELECT 2 $$", " SELECT 1", "the body of a function in SQL is one SELECT"),
        ("$$ SELECT $2 $$", " SELECT $2", "$2 is no parameter of the function"),
        ("'SELECT frob(x)'", "f(a)", "function frob() is not supported"),
    ],
)
def test_errors_in_the_text_of_a_body_have_their_place(body, place, words):
    text = f"CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE SQL AS {body};\nSELECT f(a) FROM t"
    with pytest.raises(SqlError) as error:
        compile_sql(text, {"t": "a INT"}, dialect="postgres")
    assert words in str(error.value)
    lines = text.split("\n")
    assert lines[error.value.line - 1][error.value.column - 1 :].startswith(place)


def test_the_body_of_another_language_is_refused():
    for language in ("plpgsql", "python"):
        text = f"CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE {language} AS $$ 1 $$; SELECT 1"
        with pytest.raises(UnsupportedSqlError, match=f"CREATE FUNCTION in {language}"):
            compile_sql(text, {}, dialect="postgres")
