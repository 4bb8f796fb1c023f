"""All errors of a text are found at once, each with its place, and no consequential ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits.errors import SqlError
from circuits.plan.nodes import Field
from circuits.sql import find_obstacles, plan_sql
from tests.circuits.sql.test_sql_errors import RELATIONS, WRONG
from tests.generators.sql_queries import QUERIES

TEXT = """\
CREATE TABLE t (a BIGINT, b NOSUCHTYPE, c AS now());
CREATE TABLE u (a BIGINT);
CREATE VIEW one AS
SELECT frob(a) AS f, a, grob(a) AS g FROM u WHERE frob(a) > 1 AND zz = 1 AND a > 0;
CREATE VIEW two AS SELECT FROM WHERE;
CREATE VIEW three AS SELECT f + 1 AS f, trob(g) AS g FROM one ORDER BY yy, a;
CREATE VIEW four AS SELECT a FROM u;
DROP TABLE u;
SELECT a FROM four
"""


def places(text, relations=None):
    return [
        (obstacle.line, obstacle.column, obstacle.statement)
        for obstacle in find_obstacles(text, relations or {})
    ]


def test_the_obstacles_of_all_statements_are_found():
    obstacles = find_obstacles(TEXT, {})
    assert [(obstacle.line, obstacle.statement) for obstacle in obstacles] == [
        (1, "t"),
        (1, "t"),
        *[(4, "one")] * 4,
        (5, "statement 4"),
        *[(6, "three")] * 2,
        (8, "statement 7"),
    ]
    messages = [obstacle.message for obstacle in obstacles]
    words = ["NOSUCHTYPE", "computed column", "frob()", "grob()", "frob()", "'zz'", "syntax"]
    words += ["trob()", "'yy'", "DROP"]
    for message, word in zip(messages, words, strict=True):
        assert word in message
    for obstacle in obstacles:
        line, caret = obstacle.excerpt.split("\n")
        text_line = TEXT.split("\n")[obstacle.line - 1]
        assert line.strip(" .…") in text_line
        assert line[caret.index("^")] == text_line[obstacle.column - 1]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_that_compiles_has_no_obstacle(query):
    assert find_obstacles(query, RELATIONS) == []


@pytest.mark.parametrize("name", RELATIONS)
def test_a_query_that_reads_a_relation_with_an_error_has_no_obstacle_of_its_own(name):
    relations = {other: fields for other, fields in RELATIONS.items() if other != name}
    for query in QUERIES:
        text = f"CREATE VIEW {name} AS SELECT FROM WHERE;\n{query}"
        assert [place[0] for place in places(text, relations)] == [1], query


@pytest.mark.parametrize("text", [text for text, *_ in WRONG])
def test_a_query_with_an_error_has_an_obstacle_at_its_place(text):
    with pytest.raises(SqlError) as error:
        plan_sql(text, RELATIONS)
    found_places = [place[:2] for place in places(text, RELATIONS)]
    assert (error.value.line, error.value.column) in found_places


def test_the_wrong_conditions_of_a_query_and_of_its_subquery_are_found():
    relations = {"e": (Field("a", RELATIONS["t"][0].type),)}
    text = "SELECT a FROM e WHERE a IN (SELECT a FROM e WHERE xx = 1 AND frob(a) = 2) AND yy = 3"
    assert [column for _, column, _ in places(text, relations)] == [51, 62, 79]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT lag(a, 1.5) OVER (ORDER BY a), COLUMNS('q') FROM e", [15, 39]),
        ("SELECT COLUMNS('q'), lag(a, 1.5) OVER (ORDER BY a) FROM e", [8, 29]),
        ("SELECT lag(a, 1.5) OVER (ORDER BY a) AS b FROM e WHERE a < 'x'", [15, 56]),
        # The second error may be the effect of the replaced item.
        ("SELECT COLUMNS('q') AS b, lag(b, 1.5) OVER (ORDER BY a) FROM e", [8]),
        ("SELECT COLUMNS('q'), lag(a, 1.5) OVER (ORDER BY a), frob(a) FROM e", [8, 29, 53]),
    ],
)
def test_several_errors_of_a_select_are_found(text, columns):
    relations = {"e": (Field("a", RELATIONS["t"][0].type),)}
    assert [column for _, column, _ in places(text, relations)] == columns


@pytest.mark.parametrize(
    "text",
    [
        "CREATE VIEW v AS SELECT a FROM w; CREATE VIEW w AS SELECT a FROM t",
        "CREATE RECURSIVE VIEW r AS SELECT a FROM t UNION SELECT a + 1 FROM r WHERE a < 5",
        "DECLARE RECURSIVE VIEW r (a BIGINT); "
        "CREATE VIEW r AS SELECT a FROM t UNION SELECT a + 1 FROM r WHERE a < 5",
        "DECLARE RECURSIVE VIEW r (a BIGINT); DECLARE RECURSIVE VIEW s (a BIGINT); "
        "CREATE VIEW r AS SELECT a FROM t UNION SELECT a + 1 FROM s WHERE a < 5; "
        "CREATE VIEW s AS SELECT a FROM r",
    ],
)
def test_views_before_those_that_they_read_and_recursive_views_are_no_obstacles(text):
    relations = {"t": (Field("a", pa.int64()),)}
    assert plan_sql(text, relations)
    assert find_obstacles(text, relations) == []
    (obstacle,) = find_obstacles(text.replace("FROM t", "FROM t WHERE zz = 1"), relations)
    assert "unknown column 'zz'" in obstacle.message


# A word at the place of each obstacle.
FORMS = [
    (
        "CREATE VIEW a AS\n  SELECT rank(ORDER BY n) OVER (ORDER BY k) AS r, frob(k) AS f FROM t",
        "rank",
    ),
    ("", "frob"),
    ("CREATE VIEW b AS PIVOT t ON s USING sum(n)", "s"),
    ("CREATE VIEW c AS SELECT nth_value(k, 2) FROM LAST OVER (ORDER BY n) AS x FROM t", "FROM"),
    ("CREATE VIEW d AS SELECT k FROM t WHERE zz = 1 AND rank() OVER (ORDER BY k) = 1", "zz"),
    ("", "rank"),
    (
        "CREATE FUNCTION g(x INT) RETURNS INT LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$",
        "CREATE",
    ),
    ("CREATE VIEW e AS SELECT k FROM t TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("CREATE VIEW f AS UNPIVOT t ON k + n AS x INTO NAME nm VALUE v", "k"),
    ("CREATE VIEW h AS SELECT k, random() AS r FROM t ORDER BY missing LIMIT 3", "random"),
    ("", "missing"),
    (
        "CREATE VIEW i AS SELECT max(n) OVER (ORDER BY ts SESSION WITH GAP '1m') FROM t",
        "SESSION",
    ),
    ("CREATE VIEW j AS SELECT k FROM t POSITIONAL JOIN t u", "POSITIONAL"),
    ("CREATE VIEW l AS SELECT g(k) AS x, COLUMNS(lambda c: frob(c)) FROM t", "COLUMNS"),
]


def test_every_obstacle_of_a_file_is_listed_with_its_place():
    statements = "".join(f"{text};\n" for text, _ in FORMS if text)
    text = f"CREATE TABLE t (k BIGINT, n BIGINT, s TEXT, ts TIMESTAMP);\n{statements}"
    obstacles = find_obstacles(text, {})
    lines = text.split("\n")
    for obstacle, (_, word) in zip(obstacles, FORMS, strict=True):
        assert lines[obstacle.line - 1][obstacle.column - 1 :].startswith(word), obstacle


HIDDEN = [
    # What is sampled has the same columns.
    (
        "CREATE VIEW v AS SELECT frob(k) AS f, sample FROM (SELECT k, s AS sample FROM t) "
        "TABLESAMPLE (10 PERCENT) WHERE grob(k) = 1",
        ["frob", "TABLESAMPLE (10", "grob"],
    ),
    ("CREATE VIEW v AS SELECT frob(k) AS f FROM t USING SAMPLE 3", ["frob", "SAMPLE 3"]),
    # An item of GROUP BY is left out.
    (
        "SELECT k, grob(s) FROM t GROUP BY k, frob(k), 7 HAVING hrob(k) > 1 ORDER BY orob(k); "
        "SELECT s, grob(max(k)) FROM t GROUP BY ROLLUP (s, frob(k)) ORDER BY count(*), nope",
        ["grob", "frob", "7", "hrob", "orob", "grob(max", "frob(k))", "nope"],
    ),
    ("SELECT k + 1, sum(k) FROM t GROUP BY k + 1, now() ORDER BY frob(2)", ["now", "frob"]),
    # The columns of a view without a plan are unknown.
    (
        "CREATE VIEW v AS SELECT FROM WHERE; "
        "CREATE VIEW w AS SELECT frob(g) AS f, g FROM v JOIN nope AS x ON x.a = v.a; "
        "CREATE VIEW y AS SELECT grob(g + 1), q FROM w, missing TABLESAMPLE (1 PERCENT), t "
        "WHERE n = 4",
        ["WHERE;", "frob", "nope", "grob", "missing", "TABLESAMPLE"],
    ),
    (
        "CREATE VIEW v AS SELECT k FROM t LIMIT frob(k); "
        "CREATE VIEW w AS SELECT q, upper(g), g + 1, rank(ORDER BY g) OVER (ORDER BY h) FROM v; "
        "CREATE VIEW y AS SELECT v.h FROM v POSITIONAL JOIN t",
        ["LIMIT", "rank", "POSITIONAL"],
    ),
    (
        "CREATE VIEW v AS SELECT k FROM t LIMIT frob(k); CREATE VIEW w AS "
        "SELECT g.h, g + 1, upper(g), year(g), g[1], sum(g) OVER (), COLUMNS('q') FROM v x "
        "JOIN t USING (k) WHERE x.g LIKE 'a' AND n > g ORDER BY x.other",
        ["LIMIT"],
    ),
    ("CREATE VIEW v AS SELECT frob(k), l FROM nope WHERE grob(m) = 1", ["frob", "nope", "grob"]),
    ("CREATE TABLE q (a BIGINT, b NOSUCHTYPE); SELECT b + 1, frob(a) FROM q", ["b NO", "frob"]),
    ("CREATE TABLE q (a BIGINT, c AS now()); SELECT c + 1, frob(a) FROM q", ["now", "frob"]),
    (
        "CREATE VIEW v AS SELECT k FROM nope; CREATE RECURSIVE VIEW r AS "
        "SELECT k FROM v UNION SELECT k + 1 FROM r WHERE k < 5",
        ["nope"],
    ),
    # sqlglot does not parse these statements.
    ("CREATE VIEW v AS SELECT k +* 2 AS b FROM t; SELECT frob(b) FROM v", ["2", "frob"]),
    ('CREATE OR REPLACE VIEW v ("as") AS SELECT k k k FROM t', ["k FROM"]),
    # The item that is replaced has no name, or that of a column.
    ("SELECT CAST(k AS DATE), k + s FROM t", ["k AS", "k + s"]),
    ("SELECT CAST(k AS DATE) AS k, k + s FROM t WHERE k < 'x'", ["k AS", "k + s", "k <"]),
]


@pytest.mark.parametrize(("text", "words"), HIDDEN)
def test_an_obstacle_hides_no_other(text, words):
    text = f"CREATE TABLE t (k BIGINT, n BIGINT, s TEXT, ts TIMESTAMP);\n{text}"
    line = text.split("\n")[1]
    found = [line[obstacle.column - 1 :] for obstacle in find_obstacles(text, {})]
    assert len(found) == len(words), found
    for rest, word in zip(found, words, strict=True):
        assert rest.startswith(word), rest
