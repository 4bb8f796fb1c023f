"""A text as a whole program: tables, views, inserts, the effects of declarations, and errors."""

from __future__ import annotations

import warnings
from unittest import mock

import pyarrow as pa
import pytest

from circuits import (
    Circuit,
    InputOptions,
    Lateness,
    SchemaError,
    SqlError,
    SqlNotice,
    compile_sql,
)
from circuits.compile import plans_of
from circuits.sql.syntax import source

PROGRAM = """
-- Orders per city.
CREATE TABLE orders (
    nr BIGINT NOT NULL COMMENT 'the number',
    city VARCHAR(40) NOT NULL,
    price DECIMAL(10, 2),
    ts TIMESTAMP(3) NULL,
    PRIMARY KEY (nr)
) COMMENT 'all orders';
CREATE TABLE IF NOT EXISTS cities (city TEXT, country TEXT);
COMMENT ON TABLE cities IS 'where orders go';
CREATE OR REPLACE TEMPORARY VIEW located (nr COMMENT 'the number', country) COMMENT 'helper' AS
    SELECT nr, country FROM orders JOIN cities USING (city);
CREATE MATERIALIZED VIEW IF NOT EXISTS totals AS
    SELECT country, count(*) AS n FROM located GROUP BY country;
"""


def rows(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_text_with_tables_is_a_whole_program():
    circuit = compile_sql(PROGRAM)
    assert circuit.outputs == ("totals",)
    assert circuit.spec.schemas["orders"] == pa.schema(
        [
            pa.field("nr", pa.int64(), nullable=False),
            pa.field("city", pa.string(), nullable=False),
            ("price", pa.decimal128(10, 2)),
            ("ts", pa.timestamp("us")),
        ]
    )
    order = {"nr": 1, "city": "Rome", "price": None, "ts": None}
    place = [{"city": "Rome", "country": "Italy"}, {"city": "Oslo", "country": "Norway"}]
    out = circuit.step({"orders": [order], "cities": place})
    assert rows(out["totals"]) == [("Italy", 1, 1)]
    out = circuit.step({"orders": [order | {"city": "Oslo"}]})  # an upsert
    assert rows(out["totals"]) == [("Italy", 1, -1), ("Norway", 1, 1)]


def test_not_null_and_primary_keys_are_checked_on_input():
    circuit = compile_sql(
        "CREATE TABLE t (a BIGINT, b INT NOT NULL, PRIMARY KEY (a)); SELECT a FROM t"
    )
    for row in ({"a": 1, "b": None}, {"a": None, "b": 1}):
        with pytest.raises(SchemaError, match="declared not null"):
            circuit.step({"t": [row]})


def test_a_compiled_program_can_be_compiled_again_from_its_spec():
    circuit = compile_sql(PROGRAM)
    spec = circuit.spec
    assert plans_of(spec.source, spec.schemas) == spec.plans
    assert Circuit(spec).fingerprint == circuit.fingerprint


def test_names_of_tables_and_keys_are_compared_without_case():
    circuit = compile_sql('CREATE TABLE "Bid" ("A" BIGINT, PRIMARY KEY (a)); SELECT a FROM bid')
    assert circuit.spec.input_options == {"Bid": InputOptions(keys=("A",))}


@pytest.mark.parametrize(
    ("column", "dialect", "keys"),
    [
        ("a BIGINT PRIMARY KEY", "duckdb", ("a",)),
        ("a BIGINT, CONSTRAINT k PRIMARY KEY (a)", "postgres", ("a",)),
        ("a BIGINT, PRIMARY KEY (a) NOT ENFORCED", "duckdb", ()),
        ("a BIGINT, PRIMARY KEY (a)", "spark", ()),
    ],
)
@pytest.mark.filterwarnings("ignore::circuits.SqlNotice")
def test_only_an_enforced_primary_key_makes_upserts(column, dialect, keys):
    circuit = compile_sql(f"CREATE TABLE t ({column}); SELECT a FROM t", dialect=dialect)
    options = circuit.spec.input_options.get("t", InputOptions())
    assert options.keys == keys
    assert not circuit.spec.schemas["t"].field("a").nullable


def test_options_of_the_caller_replace_the_declared_key():
    text = "CREATE TABLE t (a BIGINT PRIMARY KEY); SELECT count(*) AS n FROM t"
    circuit = compile_sql(text, input_options={"t": InputOptions()})
    assert rows(circuit.step({"t": [{"a": 1}, {"a": 1}]})["view"]) == [(2, 1)]


@pytest.mark.parametrize(
    ("table", "notices"),
    [
        ("a INT) WITH ('connector' = 'kafka')", ["property 'connector' of the table"]),
        ("a INT DEFAULT 3)", ["DEFAULT has no effect; each row must have a value"]),
        ("a INT, UNIQUE (a))", ["UNIQUE has no effect; the rows are not checked"]),
        ("a INT CHECK (a > 3))", ["CHECK has no effect"]),
        ("a INT REFERENCES u (b))", ["REFERENCES has no effect"]),
        ("a INT, FOREIGN KEY (a) REFERENCES u (b))", ["FOREIGN KEY has no effect"]),
        ("a INT, PRIMARY KEY (a) NOT ENFORCED)", ["for upserts give"]),
        ("a INT) USING delta PARTITIONED BY (a)", ["the storage", "the storage"]),
    ],
)
def test_parts_without_effect_are_reported(table, notices):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile_sql(f"CREATE TABLE t ({table}; SELECT a FROM t")
    assert [warning.category for warning in caught] == [SqlNotice] * len(notices)
    for warning, notice in zip(caught, notices, strict=True):
        assert notice in str(warning.message)
        assert str(warning.message).startswith("line 1, column ")


def test_local_views_are_not_published_unless_there_are_no_others():
    tables = "CREATE TABLE t (a INT);"
    text = tables + "CREATE LOCAL VIEW v AS SELECT a + 1 AS a FROM t;"
    assert compile_sql(text).outputs == ("v",)
    assert compile_sql(text + "CREATE VIEW w AS SELECT a FROM v").outputs == ("w",)


def test_an_insert_is_a_view_with_the_columns_of_its_sink():
    circuit = compile_sql(
        "CREATE TABLE t (a INT, b INT);"
        "CREATE TABLE sink (x BIGINT, y DOUBLE, z VARCHAR);"
        "INSERT INTO sink SELECT a, b, a FROM t;"
        "INSERT INTO other (p, q) SELECT b, a FROM t;"
        "INSERT INTO named SELECT a AS one FROM t"
    )
    assert circuit.outputs == ("sink", "other", "named")
    assert list(circuit.spec.schemas) == ["t"]
    out = circuit.step({"t": [{"a": 1, "b": 2}]})
    assert out["sink"].to_pylist() == [{"x": 1, "y": 2.0, "z": "1", "weight": 1}]
    assert out["other"].to_pylist() == [{"p": 2, "q": 1, "weight": 1}]
    assert out["named"].to_pylist() == [{"one": 1, "weight": 1}]


@pytest.mark.parametrize(
    ("dialect", "expected"), [("spark", (2, "1.0E10")), ("duckdb", (3, "10000000000.0"))]
)
def test_the_values_of_an_insert_are_cast_by_the_rules_of_the_dialect(dialect, expected):
    text = "CREATE TABLE s (i INT, t STRING); INSERT INTO s SELECT a, b FROM r"
    circuit = compile_sql(text, {"r": "a DOUBLE, b DOUBLE"}, dialect=dialect)
    (row,) = circuit.step({"r": [{"a": 2.7, "b": 1e10}]})["s"].to_pylist()
    assert (row["i"], row["t"]) == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM b WHERE a IN (WITH b AS (SELECT 1 AS z) SELECT z FROM b)",
        "WITH b AS (SELECT a FROM b) SELECT a FROM b",
        "WITH c AS (SELECT a FROM b), b AS (SELECT 7 AS a) SELECT a FROM c WHERE a < (SELECT a"
        " FROM b)",
        "SELECT a FROM (WITH b AS (SELECT 1 AS a) SELECT a FROM main.b) x",
    ],
)
def test_a_view_is_planned_after_a_later_view_that_its_with_queries_do_not_hide(query):
    text = f"CREATE VIEW v AS {query}; CREATE VIEW b AS SELECT a FROM t"
    deltas = compile_sql(text, {"t": "a INT"}).step({"t": [{"a": 1}]})
    assert deltas["v"].to_pylist() == [{"a": 1, "weight": 1}]


def test_a_with_query_hides_a_later_view_that_reads_its_view():
    text = "CREATE VIEW v AS WITH b AS (SELECT 5 AS a) SELECT a FROM b; CREATE VIEW b AS FROM v"
    assert compile_sql(text, {}).step({})["b"].to_pylist() == [{"a": 5, "weight": 1}]


def test_the_columns_of_an_insert_are_matched_by_name():
    circuit = compile_sql(
        "CREATE TABLE t (a INT, b INT); CREATE TABLE s (x INT, y INT);"
        "INSERT INTO s (y, x) SELECT a, b FROM t"
    )
    assert circuit.step({"t": [{"a": 1, "b": 2}]})["s"].to_pylist() == [
        {"x": 2, "y": 1, "weight": 1}
    ]


def test_a_schema_of_the_caller_must_equal_the_declared_one():
    text = "CREATE TABLE t (a INT NOT NULL); SELECT a FROM t"
    assert not compile_sql(text, {"t": "a int"}).spec.schemas["t"].field("a").nullable
    for schema, message in (
        ("a bigint", "declares column 'a' as int32; it has type int64"),
        ("b int", "it does not exist in the schema"),
        ("a int, b int", "does not declare column 'b'"),
    ):
        with pytest.raises(SqlError, match=message):
            compile_sql(text, {"t": schema})


# A text, the line and column of its error, words of its message.
REFUSED = [
    ("CREATE TABLE t (a INT, a INT)", 1, 24, "column 'a' is declared twice"),
    ("CREATE TABLE t (a INT); CREATE TABLE T (a INT)", 1, 38, "table 'T' is declared twice"),
    ("CREATE TABLE t (a INT, PRIMARY KEY (b))", 1, 37, "unknown column 'b' in PRIMARY KEY"),
    ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", 1, 49, "two primary keys"),
    ("CREATE TABLE t (a INT, weight INT)", 1, 24, "the name of the weights"),
    ("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY)", 1, 17, "an identity column"),
    ("CREATE TABLE t AS SELECT 1 AS a", 1, 1, "write CREATE VIEW"),
    ("CREATE TABLE t LIKE u", 1, 14, "CREATE TABLE without columns"),
    ("CREATE TABLE t (a NOSUCHTYPE)", 1, 17, "NOSUCHTYPE"),
    ("CREATE TABLE t (a TIMESTAMP(9))", 1, 29, "9 digits of a second"),
    ("CREATE TABLE t (a INT)", 1, 1, "the text has no view"),
    (
        "CREATE SOURCE t (a INT) FROM KAFKA",
        1,
        1,
        "CREATE SOURCE is not supported; list its columns",
    ),
    ("CREATE SINK s INTO t FROM v", 1, 1, "CREATE SINK is not supported; write CREATE VIEW"),
    ("CREATE FUNCTION f(a INT) RETURNS INT", 1, 1, "without a body in SQL is not supported"),
    ("SET x = 3", 1, 1, "SET is not supported; pass options"),
    ("SELECT 1 AS a; DROP TABLE t", 1, 8, "a SELECT before other statements"),
    ("DROP TABLE t", 1, 1, "DROP is not supported; leave it out"),
    ("INSERT INTO v VALUES (1)", 1, 1, "INSERT without SELECT"),
    ("INSERT OVERWRITE TABLE v SELECT 1 AS a", 1, 8, "OVERWRITE in INSERT"),
    ("INSERT INTO v SELECT 1 AS a; INSERT INTO v SELECT 2 AS a", 1, 42, "UNION ALL"),
    (
        "CREATE TABLE v (a INT, b INT); INSERT INTO v SELECT 1 AS a",
        *(1, 53, "has 1 values for 2 columns"),
    ),
    ("CREATE VIEW v WITH ('emit_final' = 'a') AS SELECT 1 AS a", 1, 21, "property emit_final"),
    ("CREATE VIEW v (a INT) AS SELECT 1 AS a", 1, 16, "a column definition in CREATE VIEW"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), REFUSED)
def test_an_unsupported_declaration_is_refused_with_its_place(text, line, column, words):
    with pytest.raises(SqlError) as caught:
        compile_sql(text)
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_query_of_a_circuit_cannot_declare_tables():
    circuit = compile_sql("CREATE TABLE t (a INT); SELECT a FROM t", materialize=True)
    with pytest.raises(SqlError, match="cannot declare table 'u'"):
        circuit.query("CREATE TABLE u (a INT); SELECT a FROM u")


def test_the_target_of_an_insert_cannot_be_an_input():
    with pytest.raises(SqlError, match="input and a target"):
        compile_sql("CREATE TABLE s (a INT); INSERT INTO s SELECT 1 AS a", {"s": "a int"})


@pytest.mark.parametrize(
    ("part", "lateness"),
    [
        ("ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5 minutes'", "5 minutes"),
        ("ts TIMESTAMP(3), WATERMARK FOR TS AS ts - INTERVAL '5' SECOND", "5 seconds"),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ts", "0 seconds"),
        ("ts BIGINT, WATERMARK FOR ts AS ts", 0),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 day 02:03:04'", "93784 seconds"),
        ("ts TIMESTAMP LATENESS INTERVAL '1 hour 30 minutes'", "90 minutes"),
        ("ts TIMESTAMP NOT NULL LATENESS INTERVAL 4 SECONDS", "4 seconds"),
        ("ts TIMESTAMP NOT NULL LATENESS INTERVAL '1' DAY", "1 day"),
        ("ts BIGINT LATENESS 7", 7),
    ],
)
def test_a_watermark_is_the_lateness_of_the_input(part, lateness):
    circuit = compile_sql(f"CREATE TABLE t ({part}); SELECT ts FROM t")
    options = circuit.spec.input_options["t"]
    assert options == InputOptions(lateness=Lateness("ts", lateness))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("ts TIMESTAMP, WATERMARK FOR x AS x - INTERVAL '5' SECOND", "unknown column 'x' in WATER"),
        (
            "ts TIMESTAMP, u TIMESTAMP, WATERMARK FOR ts AS u - INTERVAL '5' SECOND",
            "the same column",
        ),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ts + INTERVAL '5' SECOND", "this watermark is not"),
        ("ts TIMESTAMP LATENESS INTERVAL '1' MONTH", "invalid duration"),
        ("ts TIMESTAMP LATENESS INTERVAL '1' DAY, WATERMARK FOR ts AS ts", "two watermarks"),
    ],
)
def test_a_watermark_that_is_no_lateness_is_refused(part, words):
    with pytest.raises(SqlError, match=words):
        compile_sql(f"CREATE TABLE t ({part}); SELECT ts FROM t")


def test_a_text_is_parsed_once():
    with mock.patch.object(source, "parse_statements", wraps=source.parse_statements) as parse:
        compile_sql(PROGRAM)
    assert parse.call_count == 1
