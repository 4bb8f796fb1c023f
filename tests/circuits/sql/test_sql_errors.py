"""Errors of SQL texts: they name the construct and its place; no other error is raised."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.errors import SqlError, UnsupportedSqlError
from circuits.plan.nodes import Field, Filter
from circuits.sql import plan_sql, statements
from circuits.sql.syntax import source
from tests.generators.sql_queries import QUERIES, TABLES

RELATIONS = {
    name: tuple(Field(field.name, field.type) for field in schema)
    for name, schema in TABLES.items()
}

# A text, the error's line and column, and words of its message.
WRONG = [
    ("SELECT a\nFROM nowhere", 2, 6, "unknown table 'nowhere'; tables: t, s, u, e"),
    ("SELECT a,\n  zz FROM t", 2, 3, "unknown column 'zz'; in FROM: t.a, t.b"),
    ("SELECT t.zz FROM t", 1, 8, "unknown column 'zz' of 't'; its columns: a, b, c"),
    ("SELECT s.a FROM t", 1, 8, "unknown table 's'; in FROM: t"),
    ("SELECT a FROM t, s", 1, 8, "column 'a' is ambiguous: t.a, s.a"),
    ("SELECT z.* FROM t", 1, 8, "unknown table 'z' before '.*'"),
    ("SELECT * EXCLUDE (zz) FROM t", 1, 19, "unknown column 'zz' in EXCLUDE"),
    ("SELECT a FROM t WHERE", 1, 17, "syntax error"),
    ("SELECT a FORM t x y", 1, 15, "syntax error near 't'"),
    ("SELECT 'abc", 1, 1, "cannot be read"),
    ("", 1, 1, "no statement"),
    ("SELECT a FROM t WHERE c + 1 = 2", 1, 23, "add(string, int64)"),
    ("SELECT a FROM t WHERE c < a", 1, 23, "no common type"),
    ("SELECT a FROM t WHERE a", 1, 23, "needs a condition"),
    ("SELECT a FROM t WHERE d = '2024-13-01'", 1, 23, "2024-13-01"),
    ("SELECT DATE 'never' AS d", 1, 13, "is not a valid date32"),
    ("SELECT a, count(*) FROM t GROUP BY b", 1, 8, "neither in GROUP BY nor in an aggregate"),
    ("SELECT sum(a) AS n, n + 1 FROM t GROUP BY 2", 1, 43, "GROUP BY 2 is an aggregate; drop it"),
    (
        "SELECT rank() OVER (ORDER BY a) AS r, r + 1 FROM t GROUP BY 2",
        1,
        61,
        "a window function in",
    ),
    ("SELECT a FROM t GROUP BY 2", 1, 26, "unknown column 2; the list has columns 1 to"),
    ("SELECT a FROM t ORDER BY 3", 1, 26, "unknown column 3; the list has columns 1 to"),
    ("SELECT -a AS a FROM t ORDER BY a + 1", 1, 32, "both a column and the alias"),
    ("SELECT a AS x, b AS x, x + 1 AS y FROM t", 1, 24, "'x' is the alias of several"),
    (
        "SELECT a FROM (SELECT *, row_number() OVER (ORDER BY a) AS b FROM t) q WHERE b <= 2",
        *(1, 23, "column 'b' is a row_number() and another column"),
    ),
    ("SELECT a AS weight FROM t", 1, 8, "name of the weights; rename"),
    ("SELECT t.a FROM t JOIN s", 1, 24, "JOIN without ON or USING"),
    ("SELECT t.a FROM t, s JOIN u ON t.b = u.b", 1, 32, "unknown table 't'; in FROM: s, u"),
    ("SELECT 1 AS x FROM t, t", 1, 20, "two tables in FROM are called 't'"),
    ("SELECT a FROM t UNION SELECT a, b FROM s", 1, 30, "UNION of 1 with 2 columns"),
    ("SELECT a FROM t WHERE a IN (SELECT a, b FROM s)", 1, 36, "has 2 columns, 1 are compared"),
    ("SELECT a FROM t AS q(x, y, z, w, v, r, p, o)", 1, 43, "8 names for the 7 columns"),
    ("SELECT 0x10 AS n FROM t", 1, 8, "'0x10' is not a valid number"),
    ("SELECT a FROM t WHERE (a = 1", 1, 23, "')' is missing"),
    ("SELECT a FROM t WHERE a = 1)", 1, 28, "'(' is missing"),
    ("SELECT coalesce(, a) AS n FROM t", 1, 17, "an item is missing before it"),
    ("SELECT CASE WHEN a = 1 b END AS n FROM t", 1, 13, "1 WHEN and 0 THEN"),
    ("SELECT x FROM s JOIN t USING (a, a)", 1, 34, "'a' is twice in USING"),
    ("SELECT a AS 2 FROM t", 1, 13, "'2' is not a valid name"),
    ("SELECT a FROM t // WHERE a = 1", 1, 17, "'//' is not a valid name"),
    ("SELECT * EXCLUDE f(a) FROM t", 1, 18, "EXCLUDE takes names"),
    ("SELECT 9223372036854775808 AS n", 1, 8, "does not fit 64 bits"),
    ("CREATE VIEW t AS SELECT 1 AS x", 1, 13, "has the name of an existing relation"),
    ("SELECT a FROM t; SELECT b FROM t", 1, 8, "make it a CREATE VIEW"),
    ("WITH q AS (SELECT a FROM q) SELECT * FROM q", 1, 26, "unknown table 'q'"),
    ("SELECT a FROM (SELECT s.a FROM s WHERE s.b = t.b) q, t", 1, 46, "unknown table 't'"),
    ("SELECT DISTINCT a FROM t ORDER BY b LIMIT 1", 1, 35, "add it to the list"),
    ("SELECT rank() AS n FROM t", 1, 8, "write rank(...) OVER (...)"),
    ("SELECT sum(b) OVER w AS n FROM t", 1, 20, "unknown window 'w'; in the WINDOW clause: none"),
    ("SELECT sum(b) OVER w AS n FROM t WINDOW w AS (w)", 1, 41, "unknown window 'w'"),
    (
        "SELECT sum(b) OVER (w PARTITION BY b) AS n FROM t WINDOW w AS (PARTITION BY a)",
        *(1, 8, "has a PARTITION BY already"),
    ),
    (
        "SELECT sum(b) OVER (ORDER BY a ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) AS n FROM t",
        *(1, 8, "ends before it starts"),
    ),
    (
        "SELECT sum(b) OVER (ORDER BY a ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW) FROM t",
        *(1, 8, "cannot start with UNBOUNDED FOLLOWING"),
    ),
    (
        "SELECT sum(b) OVER (ORDER BY a, b RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        *(1, 8, "needs an ORDER BY of one column"),
    ),
    ("SELECT ntile(0) OVER (ORDER BY a) AS n FROM t", 1, 14, "write a whole number from 1 on"),
    ("SELECT lag() OVER (ORDER BY a) AS n FROM t", 1, 12, "something is missing"),
    ("SELECT t.a FROM t ASOF JOIN s ON t.a = s.a", 1, 29, "without a comparison of times"),
    ("SELECT a::INT[] AS n FROM t", 1, 8, "cannot be cast to list<item: int32>; build it"),
    ("SELECT {'x': a}[2] AS n FROM t", 1, 14, "no field 2; the struct has: x"),
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("to_csv(named_struct('x', a), map('sep', 'ab'))", "option sep of CSV is one character"),
        ("from_csv('1', 'x INT', map('header', '?'))", "option header of CSV is true or false"),
        ("to_csv(named_struct('x', a), map('escapeQuotes', 'false'))", "escapeQuotes = false"),
        ("schema_of_csv('1', map('dateFormat', 'dd'))", "a format of dates in schema_of_csv"),
        ("schema_of_json('{}', map('mode', 'x'))", "the option mode of schema_of_json"),
    ],
)
def test_an_option_of_csv_or_json_without_a_meaning_is_refused(text, words):
    with pytest.raises(SqlError, match=words):
        compile_sql(f"SELECT {text} AS x FROM t", {"t": "a BIGINT"}, dialect="spark")


@pytest.mark.parametrize(
    ("dialect", "call", "limit"),
    [
        ("duckdb", "range(1, 2, 3, 4)", 3),
        ("duckdb", "generate_series(1, 2, 3, a)", 3),
        ("duckdb", "lpad(c, 3, 'b', 'c')", 3),
        ("duckdb", "ltrim(c, 'a', 'b', 'c')", 2),
        ("duckdb", "date_diff('day', d, d, d)", 3),
        ("duckdb", "date_trunc('day', d, 'UTC')", 2),
        ("duckdb", "any_value(a, b)", 1),
        ("duckdb", "array_agg(a, b)", 1),
        ("duckdb", "list_distinct([a], [b])", 1),
        ("spark", "element_at(array(a), 1, 2)", 2),
        ("spark", "slice(array(a), 1, 2, 3)", 3),
        ("spark", "sort_array(array(a), false, true)", 2),
        ("spark", "collect_list(a, b)", 1),
        ("spark", "first(a, b)", 1),
        ("spark", "div(a, b, 3)", 2),
    ],
)
def test_an_argument_that_the_parser_would_drop_is_an_error(dialect, call, limit):
    name = call.split("(")[0]
    with pytest.raises(SqlError, match=rf"column 8: .*{name}\(\) takes {limit} arguments or fewer"):
        compile_sql(f"SELECT {call} AS x FROM t", TABLES, dialect=dialect)


@pytest.mark.parametrize(
    ("dialect", "call"),
    [
        *(
            ("spark", "first(a, true)"),
            ("spark", "first(a, false)"),
            ("spark", "any_value(a, true)"),
        ),
        *(("spark", "sort_array(array(a), false)"), ("spark", "named_struct('x', a)")),
        *(("duckdb", "date_trunc('day', d)"), ("duckdb", "list_sort([a], 'DESC')")),
    ],
)
def test_an_argument_that_the_parser_turns_into_a_flag_or_a_unit_is_accepted(dialect, call):
    compile_sql(f"SELECT {call} AS x FROM t", TABLES, dialect=dialect)


@pytest.mark.parametrize(
    ("dialect", "text", "column", "words"),
    [
        ("duckdb", "SELECT max(current_date) FROM t", 12, "current_date in an aggregate"),
        ("duckdb", "SELECT a FROM t ORDER BY now()", 26, r"function now\(\) in ORDER BY"),
        ("duckdb", "SELECT a FROM t WHERE current_time > TIME '10:00'", 23, "current_time"),
        ("spark", "SELECT a FROM t ORDER BY curdate()", 26, "curdate in ORDER BY"),
        (
            "spark",
            "SELECT max(unix_timestamp()) AS x FROM t",
            12,
            r"function unix_timestamp\(\) in an",
        ),
        ("spark", "SELECT count(*) FROM t GROUP BY current_date", 33, "current_date in GROUP BY"),
    ],
)
def test_a_refused_use_of_the_current_time_has_the_reason(dialect, text, column, words):
    reason = "is not supported; compare it with a timestamp in WHERE"
    with pytest.raises(UnsupportedSqlError, match=f"column {column}: {words}.*{reason}"):
        compile_sql(text, TABLES, dialect=dialect)


@pytest.mark.parametrize(
    ("dialect", "expression", "words"),
    [
        ("duckdb", "age(d)", r"age\(\) of one timestamp.*age\(ts, ts2\)"),
        ("duckdb", "format('{:?}', a)", "unknown option"),
        ("duckdb", "format('{', a)", "single brace"),
        ("duckdb", "format('{}')", "format\\(\\) has 0 values"),
        ("duckdb", "c GLOB 'a[é]'", "the pattern 'a\\[é\\]' of GLOB"),
        ("duckdb", "c GLOB 'a[b'", "use regexp_matches"),
        ("duckdb", "max_by(a, b, 0)", "a whole number from 1 on"),
        ("duckdb", "histogram(a, 1)", "bins that are not a list"),
        ("spark", "instr(c, 'a', -1)", "a start of instr"),
        ("spark", "instr(c, 'a', 1, 2)", r"instr\(text, part\) \+ 1"),
        ("spark", "zip_with(array(a), b, (x, y) -> x)", "takes two lists, not values"),
        ("spark", "map_zip_with(a, b)", "takes two maps and a lambda"),
        ("spark", "arrays_zip(array(a), a)", "list"),
        ("spark", "transform(array(a))", r"transform\(\) takes a list and a lambda"),
        ("spark", "inline(map('a', 1))", r"inline\(\) takes a list of structs"),
        ("postgres", "string_to_array(c)", r"string_to_array\(\) needs another argument"),
        ("postgres", "split_part(c)", r"split_part\(\) needs another argument"),
        ("spark", "array_slice(c, 1)", r"array_slice\(\) needs another argument"),
        ("duckdb", "unnest([1], 1)", "write max_depth := 2"),
        ("spark", "to_json()", r"to_json\(\) needs another argument"),
        ("spark", "substring(c)", r"substring\(\) takes a text, a start"),
        ("postgres", "substr(c)", r"substr\(\) takes a text, a start"),
        ("postgres", "btrim(c, 'x', c)", r"btrim\(\) takes a text"),
        ("duckdb", "row_number()", r"write row_number\(\.\.\.\) OVER"),
        ("duckdb", "bit_count('x')", "argument 1 is an integer"),
        ("spark", "bitmap_count('x')", "it takes bytes"),
        ("spark", "bit_get(map('a', 1), NULL)", "it takes an integer"),
        ("postgres", "format()", r"format\(\) takes a template"),
        ("spark", "CAST(c AS STRUCT<x: INT>)", r"read a JSON text by from_json\(\)"),
    ],
)
def test_an_unsupported_use_of_a_function_is_refused(dialect, expression, words):
    with pytest.raises(SqlError, match=words):
        compile_sql(f"SELECT {expression} AS x FROM t", TABLES, dialect=dialect)


@pytest.mark.parametrize(("text", "line", "column", "words"), WRONG)
def test_an_error_names_its_cause_and_its_place(text, line, column, words):
    with pytest.raises(SqlError) as caught:
        plan_sql(text, RELATIONS)

    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    message, excerpt, caret = str(caught.value).split("\n")
    assert message.startswith(f"line {line}, column {column}: ")
    assert caret.index("^") - 2 <= len(excerpt)


# A text, the word of it that the error points at, and words of its message.
UNSUPPORTED = [
    ("SELECT a FROM t TABLESAMPLE 10%", "TABLESAMPLE", "TABLESAMPLE"),
    ("SELECT a FROM t USING SAMPLE 3", "SAMPLE", "TABLESAMPLE"),
    (
        "SELECT x FROM t LEFT JOIN unnest([a]) q(x) ON x IN (SELECT b FROM s)",
        "x IN",
        "a subquery in LEFT JOIN with UNNEST",
    ),
    ("SELECT * FROM json_tree('[1]')", "json_tree", "json_tree() in FROM"),
    ("SELECT t.a FROM t ASOF SEMI JOIN s USING (a)", "ASOF", "with ON instead of USING"),
    ("SELECT t.a FROM t ASOF JOIN s ON t.a <> s.a", "t.a <>", "condition of an ASOF join"),
    ("SELECT t.a FROM t POSITIONAL JOIN s", "POSITIONAL", "POSITIONAL JOIN"),
    ("WITH RECURSIVE q AS (SELECT n + 1 AS n FROM q) SELECT n FROM q", "q", "without a UNION"),
    (
        "SELECT a FROM t GROUP BY CUBE (a, a, a, a, a, a, a, a, a, a, a, a, a)",
        "a, a",
        "more than 4096 grouping sets",
    ),
    ("SELECT sum(a) IGNORE NULLS AS n FROM t", "sum", "IGNORE NULLS"),
    ("SELECT count(DISTINCT *) AS n FROM t", "count", "DISTINCT of several columns"),
    ("SELECT skewness(DISTINCT a) AS n FROM t", "skewness", "DISTINCT in skewness()"),
    (
        "SELECT string_agg(c, c) AS n FROM t",
        "c)",
        "separator of string_agg() that is not a constant",
    ),
    ("SELECT histogram(a, [1, a]) AS n FROM t", "1, a", "bins that are not constant"),
    ("SELECT a FROM t FETCH FIRST 3 PERCENT ROWS ONLY", "FETCH", "use LIMIT"),
    ("SELECT a FROM t LIMIT 4 / 2", "LIMIT", "write a whole number"),
    ("SELECT a FROM t FOR UPDATE", "FOR", "FOR UPDATE"),
    ("SELECT foo(a) AS n FROM t", "foo", "function foo()"),
    ("SELECT foo(a) FILTER (WHERE k) AS n FROM t", "foo", "aggregate foo()"),
    ("SELECT a FROM t WHERE rank() OVER (ORDER BY a) = 1", "rank", "window function in WHERE"),
    ("SELECT a FROM t GROUP BY a HAVING rank() OVER (ORDER BY a) = 1", "rank", "in HAVING"),
    ("SELECT a FROM t GROUP BY rank() OVER (ORDER BY a)", "rank", "in GROUP BY"),
    ("SELECT t.a FROM t JOIN s ON t.a = rank() OVER (ORDER BY t.b)", "rank", "JOIN ... ON"),
    ("SELECT sum(rank() OVER (ORDER BY a)) AS n FROM t", "rank", "in an aggregate"),
    ("SELECT rank() OVER (ORDER BY ntile(2) OVER (ORDER BY a)) AS n FROM t", "ntile", "in FROM"),
    (
        "SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN 'x' PRECEDING AND CURRENT ROW) AS n FROM t",
        "'x' PRECEDING",
        "write a whole number",
    ),
    (
        "SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN 1.5 PRECEDING AND CURRENT ROW) AS n FROM t",
        "1.5 PRECEDING",
        "this number of rows in a frame",
    ),
    *(
        (
            f"SELECT sum(a) OVER (ORDER BY d {mode} BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT "
            "ROW) AS n FROM t",
            "sum(a)",
            "number of rows in a frame",
        )
        for mode in ("ROWS", "GROUPS")
    ),
    (
        "SELECT sum(a) OVER (ORDER BY c RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM t",
        "1",
        "RANGE with an offset over string",
    ),
    ("SELECT row_number() IGNORE NULLS OVER (ORDER BY a) AS n FROM t", "row_n", "IGNORE NULLS"),
    ("SELECT array_remove() AS n FROM t", "array_remove", "did you mean array_reverse"),
    ("SELECT md6(c) AS n FROM t", "md6", "did you mean mod or md5"),
    ("SELECT coutn(c) AS n FROM t", "coutn", "did you mean count or"),
    ("SELECT row_nmber(c) AS n FROM t", "row_nmber", "did you mean row_number"),
    ("SELECT row_nmber() OVER () AS n FROM t", "row_nmber", "did you mean row_number?"),
    ("SELECT a[1] AS n FROM t", "a[", "a subscript"),
    ("SELECT 'ab'[1:2:2] AS n", "1:2:2", "a step in a slice of a text"),
    ("SELECT count(unnest([a])) AS n FROM t", "unnest", "unnest() or explode() in an aggregate"),
    ("SELECT CAST(a AS UHUGEINT) AS n FROM t", "a AS", "type UHUGEINT"),
    ("SELECT [INTERVAL 1 MONTH] AS n", "n", "in a list, struct or map"),
    ("SELECT extract(timezone FROM d) AS n FROM t", "d)", "field 'timezone'"),
    ("INSERT INTO t VALUES (1)", "INSERT", "INSERT"),
    ("CREATE TABLE z AS SELECT 1 AS x", "CREATE", "CREATE TABLE"),
]


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("function", ["uuid()", "random()", "RAND(5)"])
def test_an_error_says_why_random_functions_are_not_supported(function, dialect):
    with pytest.raises(UnsupportedSqlError, match="would differ when the rows are deleted"):
        compile_sql(f"SELECT {function} AS r FROM t", {"t": "a INT"}, dialect=dialect)


@pytest.mark.parametrize(("text", "word", "words"), UNSUPPORTED)
def test_an_unsupported_construct_is_named_with_its_place(text, word, words):
    with pytest.raises(UnsupportedSqlError) as caught:
        plan_sql(text, RELATIONS)

    assert words in str(caught.value)
    place = text[caught.value.column - 1 :]
    assert place.startswith(word), str(caught.value)


def test_the_names_in_a_window_that_no_function_uses_are_checked():
    plan_sql("SELECT a FROM t WINDOW w AS (ORDER BY a)", RELATIONS)
    with pytest.raises(SqlError, match="unknown column 'z'"):
        plan_sql("SELECT a FROM t WINDOW w AS (ORDER BY z)", RELATIONS)


# Texts with a name that the parser replaces, the word at the error, and words of its message.
REPLACED_NAMES = [
    ("SELECT listagg(DISTINCT c, c) AS n FROM t", "c)", "separator of listagg()"),
    ("SELECT regexp_match1(c, 'a') AS n FROM t", "regexp_match1", "did you mean regexp_matches"),
    ("SELECT max(Now()) AS n", "Now", "function Now()"),
    ("SELECT c COLLATE nocase AS n FROM t", "c COLL", "COLLATE nocase"),
    ("SELECT d AT TIME ZONE 'UTC' AS n FROM t", "d AT", "AT TIME ZONE of date32"),
    ("SELECT max(a) WITHIN GROUP (ORDER BY b) AS n FROM t", "a)", "WITHIN GROUP of max()"),
    ("SELECT a::UHUGEINT[] AS n FROM t", "a::", "type UHUGEINT is"),
    ("SELECT CAST(a AS struct(x UHugeInt)) AS n FROM t", "x UHugeInt", "type UHugeInt is"),
    ("SELECT a FROM Glob('x') r(a)", "Glob", "Glob() in FROM"),
]


@pytest.mark.parametrize(("text", "word", "words"), REPLACED_NAMES)
def test_an_error_has_the_name_in_the_text_and_not_that_of_the_parser(text, word, words):
    test_an_unsupported_construct_is_named_with_its_place(text, word, words)


STATEMENTS = [
    *["DROP TABLE t", "DELETE FROM t", "UPDATE t SET a = 1", "INSERT INTO t VALUES (1)"],
    *["INSERT INTO t VALUES (1) RETURNING a", "COPY t TO 'x'", "COPY (SELECT 1) TO 'x'"],
    *["PRAGMA show_tables", "ATTACH 'x' AS y", "DETACH y", "SET search_path = x", "RESET threads"],
    *["USE x", "BEGIN", "COMMIT", "ROLLBACK", "TRUNCATE t", "ALTER TABLE t ADD COLUMN x INT"],
    *["DESCRIBE t", "SUMMARIZE t", "SHOW TABLES", "EXPLAIN SELECT 1", "CALL x()", "EXECUTE x"],
    *["PREPARE x AS SELECT 1", "VACUUM", "CHECKPOINT", "INSTALL x", "LOAD x", "ANALYZE"],
    *["MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "GRANT SELECT ON t TO x"],
    *[
        "CREATE SEQUENCE z",
        "CREATE TABLE z AS SELECT 1 AS a",
        "CREATE FUNCTION m AS 'com.example.M'",
    ],
]


@pytest.mark.parametrize("before", ["", "\n  ", "; ;", "CREATE VIEW v AS SELECT a FROM t; "])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_is_no_query_is_refused_by_its_first_word(statement, before):
    with pytest.raises(UnsupportedSqlError) as caught:
        plan_sql(before + statement, RELATIONS)

    word = statement.split()[0]
    assert f": {word}" in str(caught.value)
    assert caught.value.line == before.count("\n") + 1
    assert caught.value.column == len(before.split("\n")[-1]) + 1


@pytest.mark.parametrize("name", ["q", "t"])  # the query reads the WITH query, or does not
@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE t", "INSERT INTO t VALUES (1) RETURNING a", "DELETE FROM t", "UPDATE t SET a = 1"],
)
def test_a_statement_in_with_is_refused_whether_it_is_read_or_not(statement, name):
    for text in (
        f"WITH q AS ({statement}) SELECT a FROM {name}",
        f"SELECT a FROM (WITH q AS ({statement}) SELECT a FROM {name})",
        f"SELECT a FROM t WHERE EXISTS (WITH q AS ({statement}) SELECT a FROM {name})",
        f"SELECT a FROM t UNION (WITH q AS ({statement}) SELECT a FROM {name})",
        f"CREATE VIEW v AS WITH q AS ({statement}) SELECT a FROM {name}",
    ):
        with pytest.raises(UnsupportedSqlError, match=f"{statement.split()[0]} in WITH") as caught:
            plan_sql(text, RELATIONS)
        assert text[caught.value.column - 1 :].startswith(statement)


@pytest.mark.parametrize(
    "statement", ["DROP TABLE t", "INSERT INTO t VALUES (1) RETURNING a", "COPY t TO 'x'"]
)
@pytest.mark.parametrize(
    "text", ["SELECT a FROM ({}) q", "SELECT ({}) AS n", "SELECT a FROM t WHERE a IN ({})"]
)
def test_a_statement_in_a_subquery_is_refused(text, statement):
    with pytest.raises(SqlError):
        plan_sql(text.format(statement), RELATIONS)


NESTED_CORRELATION = [
    "SELECT a FROM t WHERE EXISTS (WITH q AS (SELECT s.a FROM s WHERE s.b = t.b) SELECT * FROM q)",
    "SELECT a FROM t WHERE EXISTS (SELECT s.a FROM s WHERE s.b = t.b UNION SELECT 1)",
    "SELECT a FROM t WHERE a IN (SELECT s.a FROM s WHERE s.b = t.b EXCEPT SELECT 1)",
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM (SELECT s.a FROM s WHERE s.b = t.b) q)",
    "SELECT a FROM t WHERE a = (SELECT max(q.a) FROM (SELECT s.a FROM s WHERE s.b = t.b) q)",
]


@pytest.mark.parametrize("text", NESTED_CORRELATION)
def test_a_column_of_the_outer_query_may_be_used_below_with_from_and_union(text):
    assert plan_sql(text, RELATIONS)["view"].fields
    with pytest.raises(SqlError, match="unknown table 'zz'"):
        plan_sql(text.replace("t.b", "zz.b"), RELATIONS)


# Unsupported clauses: ignoring one would give wrong rows.
CLAUSES = [
    "SELECT a FROM t TABLESAMPLE 10%",
    "SELECT a FROM t FETCH FIRST 3 PERCENT ROWS ONLY",
    "SELECT a FROM t FOR UPDATE",
    "SELECT a FROM t LATERAL VIEW explode(a) q AS z",
    "SELECT a FROM t GROUP BY a WITH TOTALS",
    "SELECT c COLLATE NOCASE AS k FROM t GROUP BY k",
    "SELECT c COLLATE NOCASE AS k FROM t GROUP BY 1 HAVING k = 'A'",
    "SELECT c COLLATE NOCASE FROM t GROUP BY ROLLUP (c COLLATE NOCASE)",
    "SELECT * FROM (SELECT DISTINCT c COLLATE NOCASE AS k FROM t) q",
    "SELECT c COLLATE NOCASE FROM t UNION SELECT 'A'",
    "SELECT max(c COLLATE NOCASE) FROM t",
    "SELECT a FROM t WHERE c COLLATE NOCASE IN (SELECT 'A')",
    "SELECT a FROM t ORDER BY c COLLATE de",
    "SELECT kurtosis(DISTINCT a) FROM t",
    "SELECT max(a) IGNORE NULLS FROM t",
    "SELECT max(a) WITHIN GROUP (ORDER BY b) FILTER (WHERE b > 1) FROM t",
    "SELECT a FROM t QUALIFY row_number() OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND "
    "CURRENT ROW EXCLUDE TIES) = 1",
    "SELECT a INTO z FROM t",
    "SELECT a FROM ONLY t",
    "SELECT a FROM t AT (VERSION => 1)",
    "SELECT a FROM t LIMIT 10 WITH TIES",
]


@pytest.mark.parametrize("clause", CLAUSES)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "SELECT * FROM ({}) q",
        "WITH q AS ({}) SELECT * FROM q",
        "SELECT b FROM s WHERE EXISTS ({})",
        "SELECT b FROM s WHERE b IN ({})",
        "SELECT b FROM s WHERE b > ALL ({})",
        "SELECT b FROM s WHERE NOT (b = 1 OR b IN ({}))",
        "SELECT b FROM s UNION ALL ({})",
        "CREATE VIEW v AS {}",
    ],
)
def test_an_unsupported_clause_is_refused_wherever_it_stands(clause, text):
    with pytest.raises(SqlError):
        plan_sql(text.format(clause), RELATIONS)


@pytest.mark.parametrize("text", QUERIES)
def test_an_argument_that_the_planner_does_not_know_is_refused(text):
    """An unknown argument of any node of the parsed query is an error."""
    trees = source.SqlSource(text, "duckdb").parse()
    for number, _ in enumerate(list(trees[0].walk())):

        def damaged(self, place=number, read=source.SqlSource.parse):
            trees = read(self)
            list(trees[0].walk())[place].set("of_another_version", True)
            return trees

        with pytest.MonkeyPatch.context() as patch, pytest.raises(UnsupportedSqlError) as caught:
            patch.setattr(source.SqlSource, "parse", damaged)
            statements.plan_sql(text, RELATIONS)
        message = str(caught.value)
        # A LIMIT in EXISTS that is not a plain number has an error of its own.
        assert "OF ANOTHER VERSION" in message or "LIMIT in a correlated" in message


def test_a_comma_a_bare_join_and_a_typed_literal_are_distinguished():
    """The hooks in sqlglot's parser are called: a new release may have renamed them."""
    names = [
        field.name
        for field in plan_sql("SELECT t.a, n FROM t, (SELECT max(b) n FROM s) q", RELATIONS)[
            "view"
        ].fields
    ]
    assert names == ["a", "n"]
    with pytest.raises(SqlError, match="JOIN without ON"):
        plan_sql("SELECT t.a FROM t JOIN (SELECT max(b) n FROM s) q", RELATIONS)
    for dialect in ("duckdb", "spark", "postgres"):
        plan = plan_sql("SELECT DATE '2020-01-01'::VARCHAR AS x", RELATIONS, dialect=dialect)
        assert plan["view"].rows == (("2020-01-01",),)
    typed = plan_sql("SELECT TIMESTAMP '2020-01-01 10:00:00'::DATE::TEXT || '!' AS x", RELATIONS)
    assert typed["view"].rows == (("2020-01-01!",),)


def test_places_are_counted_in_characters_and_lines():
    with pytest.raises(SqlError) as caught:
        plan_sql("SELECT 'ü日本' AS x,\n\n\t zz FROM t", RELATIONS)

    assert (caught.value.line, caught.value.column) == (3, 3)
    assert str(caught.value).endswith("\n  \t zz FROM t\n  \t ^")


def test_text_that_is_nested_too_deeply_is_an_error():
    for text in ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "SELECT " + "-" * 3 + "(" * 900 + "1"):
        with pytest.raises(SqlError):
            plan_sql(text, RELATIONS)


def test_a_chain_of_a_thousand_conditions_is_not_nested_too_deeply():
    text = "SELECT a FROM t WHERE " + " OR ".join(f"a = {number}" for number in range(1000))

    assert isinstance(plan_sql(text, RELATIONS)["view"].input, Filter)


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


DIGITS = "1" * 5000


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {DIGITS} AS x FROM r",
        f"SELECT a FROM r WHERE a > {DIGITS}",
        f"SELECT a FROM r ORDER BY a LIMIT {DIGITS}",
        f"SELECT a FROM r ORDER BY {DIGITS}",
        f"SELECT a, count(*) AS n FROM r GROUP BY {DIGITS}",
        f"SELECT CAST(a AS DECIMAL({DIGITS}, 2)) AS x FROM r",
        f"SELECT DATE '2020-01-01' + INTERVAL '{DIGITS}' DAY AS x FROM r",
        f"SELECT DATE '2020-01-01' + INTERVAL '{DIGITS} days' AS x FROM r",
    ],
    ids=range(8),
)
def test_a_number_of_thousands_of_digits_is_an_error_with_its_place(sql):
    with pytest.raises(
        SqlError, match=r"(?s)line 1, column .* characters; the maximum is 1000"
    ) as caught:
        compile_sql(sql, {"r": pa.schema([("a", pa.int64())])})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("CREATE TYPE p AS RANGE (subtype = int); SELECT 1 AS a", "duckdb"),
        ("SELECT json_objectagg(KEY a VALUE a WITH UNIQUE KEYS) FROM t", "spark"),
    ],
)
def test_a_refusal_is_an_error_and_nothing_is_logged(text, dialect, caplog):
    with pytest.raises(SqlError):
        compile_sql(text, {"t": "a double"}, dialect=dialect)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("dialect", "expression", "column", "remedy"),
    [
        ("duckdb", "'01'::BIT", 8, "a BIGINT"),
        ("duckdb", "CAST(1 AS UNION(a INT, b TEXT))", 24, "a STRUCT"),
        ("postgres", "'<a/>'::xml", 8, "to JSON"),
        ("postgres", "'[1,2)'::int4range", 8, "two columns"),
        ("postgres", "'(1,2)'::point", 8, "each coordinate"),
        ("spark", "schema_of_variant_agg(parse_json('{}'))", 8, "v:a::int"),
        ("snowflake", "system_variant_size(1)", 8, "CAST"),
        ("spark", "xpath_int('<a>1</a>', 'a')", 8, "to JSON"),
        ("spark", "hll_sketch_agg(1)", 8, "approx_count_distinct"),
        ("duckdb", "union_tag(1)", 8, "a struct"),
        ("duckdb", "hash(1)", 8, "sha256"),
        ("duckdb", "current_setting('a')", 8, "a constant"),
    ],
)
def test_an_unsupported_type_or_function_has_a_remedy(dialect, expression, column, remedy):
    with pytest.raises(
        UnsupportedSqlError, match=f"column {column}: .*is not supported; .*{remedy}"
    ):
        compile_sql(f"SELECT {expression} AS x", dialect=dialect)


def test_numbers_of_a_sequence_are_columns_of_the_input():
    text = "CREATE TABLE t (id SERIAL PRIMARY KEY, b BIGSERIAL); SELECT id + b AS x FROM t"
    circuit = compile_sql(text, dialect="postgres")
    assert circuit.step({"t": [{"id": 1, "b": 2}]})["view"].to_pylist() == [{"x": 3, "weight": 1}]
