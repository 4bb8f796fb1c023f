"""Statements and words of other engines: what they are read as, and what is left out."""

from __future__ import annotations

import re
import warnings
from datetime import datetime

import duckdb
import pyarrow as pa
import pytest

from circuits import SqlNotice, compile_sql
from circuits.errors import SqlError, UnsupportedSqlError
from circuits.sql import add_window_close, find_obstacles, view_statements, without_streams

PRICES = [{"k": 1, "ts": 2, "v": 5}, {"k": 1, "ts": 7, "v": 6}]


def run(text: str, dialect: str = "duckdb", **rows: list[dict]) -> tuple[dict, list[str]]:
    """Return the rows of the views of a text without their weights, and its notices."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        circuit = compile_sql(text, dialect=dialect)
    notices = [str(warning.message) for warning in caught if warning.category is SqlNotice]
    views = {}
    for name, delta in circuit.step({table: rows[table] for table in rows}).items():
        assert set(delta["weight"].to_pylist()) <= {1}
        views[name] = [tuple(row.values())[:-1] for row in delta.to_pylist()]
    return views, notices


def test_a_program_of_risingwave_is_read():
    views, notices = run(
        """
        CREATE SCHEMA eta;
        CREATE SOURCE IF NOT EXISTS eta.raw (a INT, b JSONB, c INT[], d INTERVAL)
            WITH (connector = 'kafka', topic = 'x') FORMAT PLAIN ENCODE JSON (mode = 'y');
        CREATE TABLE late (a INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
            APPEND ONLY;
        CREATE MATERIALIZED VIEW eta.doubled AS SELECT a * 2 AS n, b ->> 'x' AS x FROM eta.raw;
        CREATE INDEX by_n ON eta.doubled (n);
        CREATE SINK out_of AS SELECT raw.a FROM eta.raw WHERE eta.raw.a > 0
            WITH (connector = 'jdbc', type = 'append-only') FORMAT PLAIN ENCODE JSON;
        CREATE SINK copy FROM eta.doubled WITH (connector = 'jdbc');
        CREATE SECRET s WITH (backend = 'meta') AS 'y';
        """,
        "risingwave",
        **{"eta.raw": [{"a": 1, "b": '{"x": "z"}'}, {"a": 0}]},
    )
    assert views == {"eta.doubled": [(0, None), (2, "z")], "out_of": [(1,)]}
    parts = [
        *["CREATE SCHEMA", "FORMAT", "APPEND ONLY", "CREATE INDEX", "WITH of a sink"],
        *["CREATE SINK", "CREATE SECRET", "property 'connector'", "property 'topic'"],
    ]
    assert [
        notice.split(": ")[1].split(" has no effect")[0].split(" of the table")[0]
        for notice in notices
    ] == parts
    assert notices[3].startswith("line 8, column 9: ")


def test_a_statement_set_of_flink_is_its_statements():
    for start in ("BEGIN STATEMENT SET;", "EXECUTE STATEMENT SET BEGIN"):
        text = f"CREATE TABLE t (a INT); {start} INSERT INTO x SELECT a FROM t; INSERT INTO y "
        text += "SELECT a + 1 AS b FROM t WHERE s <> 'EXECUTE STATEMENT SET BEGIN'; END;"
        text = text.replace("(a INT)", "(a INT, s STRING)")
        views, _ = run(text, "spark", t=[{"a": 1, "s": "u"}])
        assert views == {"x": [(1,)], "y": [(2,)]}


def test_a_left_asof_join_with_a_match_condition_is_that_of_duckdb():
    tables = "CREATE TABLE a (k INT, ts INT); CREATE TABLE b (k INT, ts INT, v INT);"
    text = f"""{tables} SELECT a.ts, b.v FROM a LEFT ASOF JOIN b
               MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k"""
    views, _ = run(text, a=[{"k": 1, "ts": 3}, {"k": 1, "ts": 1}, {"k": 2, "ts": 9}], b=PRICES)
    oracle = """SELECT a.ts, b.v FROM (VALUES (1, 3), (1, 1), (2, 9)) a(k, ts) ASOF LEFT JOIN
                (VALUES (1, 2, 5), (1, 7, 6)) b(k, ts, v) ON a.k = b.k AND a.ts >= b.ts"""
    assert sorted(views["view"]) == sorted(duckdb.sql(oracle).fetchall())


def test_mutual_recursion_of_materialize_is_a_recursion():
    views, _ = run(
        """CREATE TABLE e (a INT, b INT);
           WITH MUTUALLY RECURSIVE
               odd (a INT, b NUMERIC(8, 0)) AS (
                   SELECT a, b FROM e UNION SELECT even.a, e.b FROM even JOIN e ON even.b = e.a),
               even (a INT, b INT) AS (SELECT odd.a, e.b FROM odd JOIN e ON odd.b = e.a),
               counts (n BIGINT) AS (SELECT count(*) FROM odd)
           SELECT odd.a, odd.b, counts.n FROM odd, counts""",
        "materialize",
        e=[{"a": 1, "b": 2}, {"a": 2, "b": 3}, {"a": 3, "b": 4}],
    )
    assert sorted(views["view"]) == [(1, 2, 4), (1, 4, 4), (2, 3, 4), (3, 4, 4)]


@pytest.mark.parametrize("limit", ["RECURSION LIMIT 9", "ERROR AT RECURSION LIMIT 9"])
def test_a_limit_of_a_recursion_of_materialize_is_left_out_with_a_notice(limit):
    views, notices = run(
        f"""CREATE TABLE e (a INT, b INT);
            WITH MUTUALLY RECURSIVE ({limit}) r (a INT, b INT) AS (
                SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a)
            SELECT a, b FROM r""",
        "materialize",
        e=[{"a": 1, "b": 2}, {"a": 2, "b": 1}],
    )
    assert sorted(views["view"]) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert ["max_iterations" in str(notice) for notice in notices] == [True]


def test_a_group_size_of_materialize_is_a_hint():
    text = "SELECT a, sum(b) AS s FROM t GROUP BY a OPTIONS (AGGREGATE INPUT GROUP SIZE = 100)"
    views, notices = run(
        f"CREATE TABLE t (a INT, b INT); {text}", "materialize", t=[{"a": 1, "b": 2}]
    )
    assert (views, notices) == ({"view": [(1, 2)]}, [])


def test_lists_are_types_in_both_spellings():
    text = """CREATE TABLE t (a INT ARRAY NOT NULL, b VARCHAR(3) ARRAY, c INT);
              SELECT a[1] AS x, b[1] AS y, c FROM t"""
    views, _ = run(text, t=[{"a": [4], "b": ["u"]}])
    assert views == {"view": [(4, "u", None)]}


def test_a_table_has_the_name_of_its_schema():
    rows = [{"a": 1}]
    for text, dialect, expected in (
        ("CREATE TABLE s.t (a INT); SELECT t.a, s.t.a AS b FROM s.t", "duckdb", (1, 1)),
        ("CREATE TABLE s.t (a INT); SELECT u.a FROM s.t u JOIN s.t USING (a)", "spark", (1,)),
        ("CREATE TABLE s.t (a INT); SELECT n FROM (SELECT count(*) AS n FROM s.t)", "spark", (1,)),
    ):
        assert run(text, dialect, **{"s.t": rows})[0] == {"view": [expected]}
    views, _ = run("CREATE TABLE public.t (a INT); SELECT public.t.a FROM public.t", t=rows)
    assert views == {"view": [(1,)]}
    with pytest.raises(SqlError, match=r"unknown table 's\.t'; tables: t"):
        compile_sql("CREATE TABLE t (a INT); SELECT a FROM s.t")


def test_a_column_of_the_processing_time_is_refused_only_if_it_is_read():
    table = "CREATE TABLE t (a INT, p AS PROCTIME()); "
    views, notices = run(table + "SELECT * FROM t", "spark", t=[{"a": 1}])
    assert views == {"view": [(1,)]}
    assert notices == ["line 1, column 24: column 'p' has no effect; no view can read PROCTIME()"]
    message = r"column 49: PROCTIME\(\) in a computed column is not supported; the time"
    with pytest.warns(SqlNotice, match="column 'p'"), pytest.raises(SqlError, match=message):
        compile_sql(table + "SELECT p FROM t", dialect="spark")


def test_functions_of_postgres_that_make_rows_or_lists():
    table = "CREATE TABLE t (s TEXT); "
    rows = [{"s": "a,b"}, {"s": ""}, {"s": None}]
    views, _ = run(
        table + "SELECT s, string_to_array(s, ',') AS p FROM t WHERE s IS NOT NULL",
        "postgres",
        t=rows,
    )
    assert sorted(views["view"]) == [("", []), ("a,b", ["a", "b"])]
    for query in (
        "SELECT regexp_split_to_table(s, ',') AS p FROM t",
        "SELECT p FROM t, regexp_split_to_table(s, ',') AS p",
    ):
        assert sorted(run(table + query, "postgres", t=rows)[0]["view"]) == [("",), ("a",), ("b",)]


def test_a_pivot_has_the_names_of_its_alias():
    table = "CREATE TABLE t (a INT, b INT, s TEXT); "
    pivot = "FROM t PIVOT (sum(b) FOR s IN ('x', 'y')) AS p(k, l)"
    rows = [{"a": 1, "b": 2, "s": "x"}, {"a": 1, "b": 3, "s": "y"}]
    assert run(table + f"SELECT p.k, l, y {pivot}", t=rows)[0] == {"view": [(1, 2, 3)]}
    with pytest.raises(SqlError, match=r"unknown column 'a'; in FROM: p\.k, p\.l, p\.y"):
        compile_sql(table + f"SELECT a {pivot}")
    with pytest.raises(SqlError, match="4 names for the 3 columns"):
        compile_sql(table + "SELECT * " + pivot.replace("l)", "l, m, n)"))


def test_the_order_of_several_queries_can_be_an_expression():
    text = "SELECT a FROM t UNION SELECT a - 3 FROM t ORDER BY -2 * a, a"
    rows = [{"a": n} for n in (1, 2, 5)]
    all_rows, _ = run(f"CREATE TABLE t (a INT); {text}", t=rows)
    assert sorted(all_rows["view"]) == [(-2,), (-1,), (1,), (2,), (5,)]
    circuit = compile_sql(f"CREATE TABLE t (a INT); {text} LIMIT 2")
    views: dict[tuple, int] = {}
    for change, best in (([*rows], [5, 2]), ([{"a": 5, "weight": -1}, {"a": 4}], [4, 2])):
        delta = circuit.step({"t": [{"weight": 1} | row for row in change]})["view"]
        assert delta.column_names == ["a", "weight"]
        for row in delta.to_pylist():
            views[row["a"]] = views.get(row["a"], 0) + row["weight"]
        assert sorted(a for a, weight in views.items() if weight) == sorted(best)


def test_places_and_the_ends_of_statements_are_those_of_the_text():
    text = "BEGIN STATEMENT SET; CREATE SOURCE s (a INT) APPEND ONLY; CREATE INDEX i ON s(a);\n"
    text += "INSERT INTO x SELECT zz FROM s; END;"
    (obstacle,) = find_obstacles(text, {}, dialect="risingwave")
    assert (obstacle.line, obstacle.column, obstacle.statement) == (2, 22, "x")
    text = "DECLARE RECURSIVE VIEW q (a INT); CREATE INDEX i ON s(a); CREATE VIEW v AS SELECT 1"
    assert add_window_close(text, ["v"]) == f"{text}\nEMIT ON WINDOW CLOSE"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE SOURCE s FROM KAFKA CONNECTION c (TOPIC 'x')", "list its columns"),
        ("CREATE SINK s INTO t AS SELECT 1 AS a", "CREATE SINK is not supported"),
        ("CREATE INDEX i ON t (a)", "the text has no statement"),
    ],
)
def test_other_statements_are_refused(text, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(text)


def test_the_lateness_of_a_view_is_left_out_with_a_notice():
    views, notices = run(
        """
        CREATE TABLE t (ts TIMESTAMP LATENESS INTERVAL 1 HOURS);
        CREATE VIEW v AS SELECT count(*) FROM t;
        LATENESS v.ts INTERVAL 1 HOUR;
        """,
        "duckdb",
        t=[{"ts": datetime(2024, 1, 1)}],
    )
    assert views == {"v": [(1,)]}
    assert notices == [
        "line 4, column 9: LATENESS of a view has no effect; state that depends on a view is freed"
        " by the lateness of its tables"
    ]


def test_emit_changes_of_ksqldb_is_what_a_view_does():
    text = """CREATE TABLE t (a INT);
              CREATE STREAM s WITH (kafka_topic = 'x') AS SELECT a + 1 AS a FROM t EMIT CHANGES;
              CREATE TABLE n AS SELECT a, count(*) AS n FROM s GROUP BY a EMIT CHANGES;"""
    views, _ = run(text, t=[{"a": 1}, {"a": 2}])
    assert views == {"s": [(2,), (3,)], "n": [(2, 1), (3, 1)]}


def test_streaming_tables_of_databricks_are_views():
    text = """CREATE TABLE t (a INT);
              CREATE OR REFRESH STREAMING TABLE s AS SELECT a FROM STREAM(t);
              CREATE OR REFRESH MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s"""
    views, _ = run(text, "spark", t=[{"a": 1}, {"a": 3}])
    assert views == {"s": [(1,), (3,)], "n": [(2,)]}


@pytest.mark.parametrize(
    "table", ["STREAM t", "STREAM t AS u", "STREAM(default.t) u", "STREAM default.t u", "stream"]
)
def test_a_streaming_table_of_spark_reads_a_table(table):
    name = "stream" if table == "stream" else "t"
    text = f"""CREATE TABLE {name} (a INT);
              CREATE STREAMING TABLE IF NOT EXISTS s (b) COMMENT 'x' AS SELECT a FROM {table}"""
    views, _ = run(text, "spark", **{name: [{"a": 1}, {"a": 3}]})
    assert views == {"s": [(1,), (3,)]}


def test_the_layout_of_a_table_of_spark_has_no_effect():
    text = """
        CREATE STREAMING TABLE s USING delta PARTITIONED BY (a) TBLPROPERTIES ('k' = 'v') AS
            SELECT a FROM STREAM(t);
        CREATE MATERIALIZED VIEW n CLUSTER BY (n) AS SELECT count(*) AS n FROM s
    """
    views, notices = run(f"CREATE TABLE t (a INT); {text}", "spark", t=[{"a": 1}])
    assert views == {"s": [(1,)], "n": [(1,)]}
    assert [notice.split(": ")[1].split(" has")[0] for notice in notices] == [
        "USING of a view",
        "PARTITIONED BY of a view",
        "property 'k' of the view",
        "CLUSTER BY of a view",
    ]


def test_stream_is_an_ordinary_name_outside_of_streaming_tables():
    text = "CREATE TABLE stream (a INT); CREATE VIEW s AS SELECT t.a FROM stream t, stream u"
    views, _ = run(text, "spark", stream=[{"a": 1}])
    assert views == {"s": [(1,)]}


@pytest.mark.parametrize("query", ["SELECT a FROM stream WHERE a > 1", "SELECT a FROM `stream` t"])
def test_a_table_of_the_name_stream_stays_in_the_text_of_a_view(query):
    (view,) = view_statements(f"CREATE STREAMING TABLE s AS {query}", "spark")
    assert without_streams(view, "spark").query == query


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CREATE STREAMING TABLE s",
            "line 1, column 1: CREATE STREAMING TABLE without a query is not supported; write "
            "CREATE STREAMING TABLE t AS SELECT",
        ),
        (
            "SELECT 1;\nCREATE FLOW f AS INSERT INTO s BY NAME SELECT * FROM STREAM(t)",
            "line 2, column 1: CREATE FLOW is not supported; in a pipeline, write CREATE FLOW f AS",
        ),
        (
            "CREATE FLOW f AS AUTO CDC INTO s FROM STREAM(t) KEYS (a) SEQUENCE BY a",
            "line 1, column 1: CREATE FLOW is not supported",
        ),
    ],
)
def test_flows_of_spark_are_refused(text, message):
    with pytest.raises(UnsupportedSqlError, match=re.escape(message)):
        compile_sql(text, {"t": "a INT"}, dialect="spark")


def test_a_placement_a_setting_and_a_table_command_are_left_out_or_replaced():
    views, notices = run(
        """
        CREATE TYPE address AS (street VARCHAR(30), nr INT);
        CREATE TYPE person AS (name VARCHAR, homes ADDRESS[]);
        CREATE TYPE point AS (x INT);
        SET 'execution.checkpointing.interval' = '10 s';
        SET cluster TO quickstart;
        CREATE TABLE t (a INT, p person);
        CREATE MATERIALIZED VIEW v IN CLUSTER c WITH (RETAIN HISTORY FOR '1hr') AS
            SELECT a, (p).homes[1].nr AS nr, CAST(NULL AS point) IS NULL AS x FROM t;
        CREATE DEFAULT INDEX ON v;
        TABLE v;
        """,
        "materialize",
        t=[{"a": 1, "p": {"name": "Ann", "homes": [{"street": "x", "nr": 7}]}}],
    )
    assert views == {"v": [(1, 7, True)], "view": [(1, 7, True)]}
    assert [notice.split(": ")[1].split(" has")[0] for notice in notices] == [
        *["SET execution.checkpointing.interval", "SET cluster", "IN CLUSTER"],
        *["RETAIN HISTORY", "CREATE INDEX"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET timezone TO 'CET'; SELECT 1", "SET is not supported"),
        ("CREATE TYPE a AS (x a); CREATE TABLE t (i a); SELECT i FROM t", "type a is not supp"),
        ("CREATE TYPE a AS INT; CREATE TYPE a AS TEXT; SELECT 1", "CREATE TYPE is not supported"),
    ],
)
def test_a_setting_of_results_and_a_type_in_itself_are_refused(text, message):
    with pytest.raises(UnsupportedSqlError, match=message):
        compile_sql(text)


def test_the_obstacles_of_a_text_do_not_include_its_types():
    text = "CREATE TYPE a AS (x INT); CREATE TABLE t (i a); SELECT (i).x FROM t WHERE f(1)"
    assert [obstacle.message.split("(")[0] for obstacle in find_obstacles(text, {})] == [
        "function f"
    ]


def test_a_view_of_named_rows_and_the_number_of_a_grouping_set_are_those_of_spark():
    text = (
        "CREATE TEMPORARY VIEW p AS VALUES (1, 'x'), (2, 'y') AS T(id, s);"
        "CREATE VIEW q AS SELECT id, decimal(sum(id)), grouping__id FROM p GROUP BY id WITH ROLLUP;"
        "CREATE VIEW r AS SELECT s FROM p WHERE id = 1"
    )
    views, _ = run(text, "spark")
    assert views == {"q": [(None, 3, 1), (1, 1, 0), (2, 2, 0)], "r": [("x",)]}


# The place of a construct of another engine, and words of the error.
FOREIGN = [
    (
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY a ORDER BY b PATTERN (A B+) DEFINE B AS 1)",
        "MATCH_RECOGNIZE",
        "lag() and lead()",
    ),
    ("SUBSCRIBE TO (SELECT a FROM t)", "SUBSCRIBE", "the caller takes its changes"),
    ("TAIL t", "TAIL", "the caller takes its changes"),
    ("CREATE VIEW v AS SELECT a FROM t EMIT FINAL", "EMIT FINAL", "EMIT ON WINDOW CLOSE"),
    ("SELECT a FROM t EMIT AFTER WATERMARK", "EMIT AFTER", "EMIT ON WINDOW CLOSE"),
    ("SELECT a FROM t WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY a", "WINDOW TUMBLING", "TUMBLE(ts"),
    ("SELECT a FROM t JOIN u WITHIN 1 HOUR ON t.a = u.a", "WITHIN 1", "b.ts BETWEEN"),
    ("SELECT a FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01'", "'2020", "current rows"),
    ("SELECT a FROM t CONNECT BY PRIOR a = b", "CONNECT BY", "WITH RECURSIVE"),
    ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", "TABLESAMPLE", "hash of a key"),
    ("SELECT a FROM t LATEST ON b PARTITION BY a", "LATEST ON", "DISTINCT ON"),
    ("SELECT a FROM t LATEST ON t.b PARTITION  BY a", "LATEST ON", "DISTINCT ON"),
    ("CREATE VIEW v REFRESH ON COMMIT AS SELECT a FROM t", "REFRESH ON", "leave it out"),
    ("SELECT a FROM GRAPH_TABLE (g MATCH (x)-[e]->(y) COLUMNS (x.a))", "GRAPH", "Datalog"),
    ("CREATE SOURCE s FROM KAFKA CONNECTION c; SELECT 1", "CREATE SOURCE", "list its columns"),
    ("CREATE SINK s INTO KAFKA CONNECTION c", "CREATE SINK", "write CREATE VIEW"),
    ("CREATE LIVE VIEW v AS SELECT a FROM t", "CREATE LIVE", "kept up to date"),
    ("CREATE TYPE m AS RANGE (subtype = int); SELECT 1", "CREATE TYPE", "AS ENUM"),
    ("CREATE TRIGGER x AFTER INSERT ON t EXECUTE FUNCTION f()", "CREATE TRIGGER", "changes"),
    ("CREATE TEMPORAL TABLE FUNCTION r AS x", "CREATE TEMPORAL", "FOR SYSTEM_TIME"),
    ("CREATE VIEW v REFRESH EVERY 1 DAY AS SELECT a FROM t", "REFRESH EVERY", "leave it out"),
    ("SELECT a FROM t POSITIONAL JOIN t AS u", "POSITIONAL", "row_number()"),
    ("SELECT a FROM t LIMIT 10 WITH TIES", "10", "QUALIFY rank()"),
    ("SELECT t.a FROM t JOIN u FOR SYSTEM_TIME AS OF now() ON t.a = u.a", "u FOR", "a plain JOIN"),
    ("SELECT a FROM t AS OF 5", "AS OF", "current rows"),
    ("SELECT a FROM t AS OF AT LEAST now()", "AS OF", "current rows"),
    (
        "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 3) c (a INT) AS (SELECT a FROM t) "
        "SELECT a FROM c",
        "RETURN AT",
        "in a column of the recursion",
    ),
    (
        "CREATE TABLE v (ts TIMESTAMP WATERMARK INTERVAL '1' HOUR, a INT); SELECT a FROM v",
        "WATERMARK INTERVAL",
        "LATENESS INTERVAL",
    ),
    ("DECLARE c CURSOR FOR SELECT a FROM t", "CURSOR FOR", "the caller takes its changes"),
]


@pytest.mark.parametrize(("text", "place", "words"), FOREIGN)
def test_a_construct_of_another_engine_is_refused_with_its_place_and_a_remedy(text, place, words):
    with pytest.raises(UnsupportedSqlError) as error:
        compile_sql(text, {"t": "a INT, b INT", "u": "a INT, ts TIMESTAMP"})
    assert text[error.value.column - 1 :].startswith(place)
    assert words in str(error.value)


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
def test_the_remedy_for_a_sample_takes_a_tenth_of_the_keys(dialect):
    with pytest.raises(UnsupportedSqlError) as error:
        compile_sql("SELECT k FROM t TABLESAMPLE (10 PERCENT)", {"t": "k INT"}, dialect=dialect)
    condition = str(error.value).split(" as in ")[1].split(", which")[0]
    circuit = compile_sql(f"SELECT k FROM t {condition}", {"t": "k INT"}, dialect=dialect)
    table = pa.table({"k": pa.array(range(1000), pa.int32())})
    assert 70 <= circuit.step({"t": table})["view"].num_rows <= 130


@pytest.mark.parametrize("name", ["latest", "refresh"])
@pytest.mark.parametrize("table", ["{}", "u AS {}", "u {}"])
def test_a_table_with_the_name_of_such_a_word_is_not_blamed_for_another_error(name, table):
    joined = table.format(name)
    text = f"SELECT t.a FROM t JOIN {joined} ON t.a = {name}.a WHERE AND"
    with pytest.raises(SqlError, match=r"syntax error near '(WHERE|AND)'"):
        compile_sql(text, {"t": "a INT", "u": "a INT", name: "a INT"})


def test_a_word_of_another_engine_is_a_name_in_a_text_that_is_sql():
    text = """CREATE TABLE t (tail INT, subscribe INT, emit INT, refresh INT PRIMARY KEY);
              SELECT tail, subscribe, emit changes, refresh FROM t"""
    assert run(text, t=[{"tail": 1, "refresh": 2}])[0] == {"view": [(1, None, None, 2)]}
    with pytest.raises(SqlError, match="syntax error near"):
        compile_sql(text + " WHERE WHERE")


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM t MINUS SELECT b FROM t",
        "SELECT b FROM t MINUS ALL SELECT a FROM t",
        "(SELECT b FROM t) MINUS DISTINCT (SELECT a FROM t WHERE a IS NOT NULL)",
        "SELECT b FROM t WHERE a IS NULL MINUS (SELECT 7)",
        "WITH q AS (SELECT b FROM t MINUS SELECT a FROM t) SELECT * FROM q MINUS SELECT 9",
    ],
)
def test_minus_is_except(dialect: str, query: str):
    t = pa.table({"a": [1, None, 3, 5], "b": [1, 2, 4, 3]})
    oracle = query.replace("MINUS DISTINCT", "EXCEPT").replace("MINUS", "EXCEPT")
    expected = duckdb.sql(oracle).fetchall()

    views, _ = run(f"CREATE TABLE t (a INT, b INT); {query}", dialect, t=t.to_pylist())

    assert sorted(views["view"], key=repr) == sorted(expected, key=repr)


def test_minus_may_be_a_name():
    views, _ = run(
        "CREATE TABLE t (a INT); SELECT a AS minus FROM t minus WHERE minus.a > 1",
        t=[{"a": 1}, {"a": 2}],
    )
    assert views == {"view": [(2,)]}


@pytest.mark.parametrize(
    ("declaration", "dialect", "places"),
    [
        ("r ROW(x INT NOT NULL, y VARCHAR NULL) NULL", "postgres", ["the type of column 'r'"]),
        ("r ROW(x INT NULL, y VARCHAR) NOT NULL", "duckdb", []),
        ("r STRUCT<x: INT NOT NULL COMMENT 'n', y: STRING>", "spark", ["the type of column 'r'"]),
    ],
)
def test_not_null_of_a_field_gives_a_notice(declaration: str, dialect: str, places: list[str]):
    views, notices = run(
        f"CREATE TABLE t ({declaration}); SELECT t.r.x, t.r.y FROM t",
        dialect,
        t=[{"r": {"x": 1, "y": None}}],
    )
    assert views == {"view": [(1, None)]}
    assert [notice.split("NOT NULL in ")[1].split(" has no")[0] for notice in notices] == places


def test_a_declared_type_has_optional_and_required_fields():
    views, notices = run(
        """
        CREATE TYPE pair AS (x INT NOT NULL, y VARCHAR NULL);
        CREATE TABLE t (p pair, l pair ARRAY NOT NULL, m MAP<VARCHAR, pair>);
        SELECT t.p.x, l[1].y, m['k'].x AS z FROM t
        """,
        "postgres",
        t=[{"p": {"x": 1, "y": None}, "l": [{"x": 2, "y": "b"}], "m": {"k": {"x": 3, "y": None}}}],
    )
    assert views == {"view": [(1, "b", 3)]}
    assert [notice.split(": ")[1] for notice in notices] == [
        "NOT NULL in CREATE TYPE has no effect; the fields are not checked"
    ]


def test_another_constraint_of_a_field_is_refused():
    with pytest.raises(UnsupportedSqlError, match=r"UNIQUE of a field is not supported; leave"):
        compile_sql("CREATE TABLE t (r ROW(x INT UNIQUE)); SELECT r FROM t", dialect="postgres")


SPANS = [
    (datetime(2019, 12, 5, 8, 27), datetime(2014, 11, 5, 12, 45)),
    (datetime(2020, 6, 21, 14), datetime(2023, 2, 26, 18)),
    (datetime(2024, 3, 31), datetime(2024, 2, 29)),
    (datetime(2024, 3, 31), None),
]


def whole_months(end: datetime, start: datetime) -> int:
    """Return the number of whole months from one moment to another, towards zero."""
    if end < start:
        return -whole_months(start, end)
    months = 12 * (end.year - start.year) + end.month - start.month
    is_last_whole = (end.day, end.time()) >= (start.day, start.time())
    return months if is_last_whole else months - 1


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
@pytest.mark.parametrize("fields", ["SECOND", "hours", "DAY", "DAY TO MINUTE"])
def test_a_difference_with_a_short_unit_is_the_time_between(dialect: str, fields: str):
    rows = [{"nr": nr, "a": a, "b": b} for nr, (a, b) in enumerate(SPANS)]

    views, _ = run(
        f"""CREATE TABLE t (nr INT, a TIMESTAMP, b TIMESTAMP);
            SELECT nr, b + i AS a, (a - b) {fields} > INTERVAL '0' DAY AS p, i IS NULL AS n
            FROM (SELECT nr, a, b, (a - b) {fields} AS i FROM t) q""",
        dialect,
        t=rows,
    )

    assert views["view"] == [
        (nr, None, None, True) if b is None else (nr, a, a > b, False)
        for nr, (a, b) in enumerate(SPANS)
    ]


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
@pytest.mark.parametrize("fields", ["MONTH", "years", "YEAR TO MONTH"])
def test_a_difference_with_a_long_unit_has_the_whole_months_between(dialect: str, fields: str):
    rows = [{"nr": nr, "a": a, "b": b} for nr, (a, b) in enumerate(SPANS)]

    views, _ = run(
        f"""CREATE TABLE t (nr INT, a TIMESTAMP, b TIMESTAMP);
            SELECT nr, extract(YEAR FROM i) * 12 + extract(MONTH FROM i) AS months
            FROM (SELECT nr, (a - b) {fields} AS i FROM t) q""",
        dialect,
        t=rows,
    )

    assert views["view"] == [
        (nr, None if b is None else whole_months(a, b)) for nr, (a, b) in enumerate(SPANS)
    ]


def test_a_difference_of_dates_may_have_a_unit():
    views, _ = run(
        "CREATE TABLE t (d DATE); SELECT d + (d - DATE '2024-01-01') DAY AS e FROM t",
        "postgres",
        t=[{"d": datetime(2024, 1, 3).date()}],
    )
    assert views == {"view": [(datetime(2024, 1, 5),)]}


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("SELECT (a - b) day, a AS second FROM t", (2, 5)),
        ("SELECT a - b AS day, (a - b) AS second FROM t", (2, 2)),
        ("SELECT * FROM (SELECT (a - b) day, (a) second FROM t) q", (2, 5)),
        ("WITH q AS (SELECT 3 AS second, (5 - 3) day) SELECT day, second FROM q", (2, 3)),
        ("SELECT abs(a - b) day, greatest(a - b, 3) second FROM t", (2, 3)),
    ],
)
def test_a_unit_after_a_difference_may_be_an_alias(query: str, values: tuple[int, int]):
    circuit = compile_sql(f"CREATE TABLE t (a INT, b INT); {query}")
    (row,) = circuit.step({"t": [{"a": 5, "b": 3}]})["view"].to_pylist()
    assert row == dict(zip(("day", "second", "weight"), (*values, 1), strict=True))


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
def test_rows_of_values_may_have_the_word_row(dialect: str):
    views, _ = run(
        """CREATE TABLE t (a INT);
           SELECT a, y FROM t JOIN (VALUES ROW(1, 'x'), ROW(2, 'y')) AS v(x, y) ON a = x""",
        dialect,
        t=[{"a": 1}, {"a": 2}, {"a": 3}],
    )
    assert views == {"view": [(1, "x"), (2, "y")]}


@pytest.mark.parametrize(
    "text",
    ["END 'abc'", 'END "abc"', "CREATE SOURCE s (a INT) 'abc'", 'CREATE SOURCE s (a INT) "x"'],
)
def test_a_quoted_token_after_a_known_statement_is_an_error(text):
    with pytest.raises(SqlError, match="line 1"):
        compile_sql(f"{text}; CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM t WHERE INTERVAL '1' DAY < (a - b) DAY",
        "SELECT a FROM t WHERE INTERVAL '1' DAY < (a - b) DAY;",
        "SELECT a FROM t WHERE INTERVAL '1' DAY < (a - b) DAY GROUP BY a",
        "SELECT a FROM t WHERE INTERVAL '1' DAY < (a - b) DAY ORDER BY a LIMIT 9",
        "SELECT a FROM (SELECT a FROM t WHERE INTERVAL '1' DAY < (a - b) DAY) q",
        "SELECT a FROM t WHERE CASE WHEN a > b THEN (a - b) DAY ELSE NULL END > INTERVAL '1' DAY",
        "SELECT a FROM t WHERE coalesce((a - b) DAY, (b - a) DAY) > INTERVAL '1' DAY",
        "SELECT t.a FROM t JOIN t u ON t.a = u.a AND INTERVAL '1' DAY < (t.a - u.b) DAY",
        "SELECT a FROM (SELECT DISTINCT ON (a) (b - b) day, a, "
        "CASE WHEN a > b THEN (a - b) DAY END AS i FROM t) q WHERE i > INTERVAL '1' DAY",
    ],
)
def test_a_unit_of_a_difference_may_be_the_last_word_of_a_clause(query: str):
    circuit = compile_sql(f"CREATE TABLE t (a TIMESTAMP, b TIMESTAMP); {query}", dialect="postgres")
    first, last = datetime(2024, 1, 1), datetime(2024, 1, 5)
    rows = [{"a": last, "b": first}, {"a": first, "b": first}]
    assert circuit.step({"t": rows})["view"].column("a").to_pylist() == [last]


@pytest.mark.parametrize("query", ["(SELECT a - b AS d FROM t) day", "t, (SELECT 3 - 1 AS d) day"])
def test_a_unit_after_a_query_in_from_is_an_alias(query: str):
    circuit = compile_sql(f"CREATE TABLE t (a INT, b INT); SELECT day.d FROM {query}")
    assert circuit.step({"t": [{"a": 5, "b": 3}]})["view"].to_pylist() == [{"d": 2, "weight": 1}]


@pytest.mark.parametrize(
    "start",
    [
        "DECLARE RECURSIVE VIEW s.v (n INT); CREATE VIEW s.v AS",
        "DECLARE RECURSIVE VIEW IF NOT EXISTS s.v (n INT); CREATE VIEW s.v AS",
        "CREATE RECURSIVE VIEW s.v AS",
    ],
)
def test_a_recursive_view_may_have_a_name_of_several_parts(start: str):
    views, _ = run(
        f"CREATE TABLE t (n INT); {start} SELECT n FROM t UNION SELECT n + 1 FROM s.v WHERE n < 3;",
        "postgres",
        t=[{"n": 1}],
    )
    assert list(map(sorted, views.values())) == [[(1,), (2,), (3,)]]


def test_a_column_with_the_name_of_a_type_may_be_an_array():
    text = "CREATE TABLE t (date ARRAY(INTEGER)); SELECT cardinality(date) AS n FROM t"
    views, _ = run(text, "trino", t=[{"date": [1, 2]}])
    assert views == {"view": [(2,)]}
