"""Functions that are replaced by expressions of other functions.

Those of DuckDB are compared with DuckDB; those of PostgreSQL and Feldera with the values in the
documentation of these systems, or that PostgreSQL 17 returns.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from circuits import EvaluationError, UnsupportedSqlError, compile_sql
from circuits.sql.syntax.function_templates import TEMPLATES
from tests.oracles.shared_duckdb import connect_to_new_schema

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("x", pa.float64()),
        ("a", pa.list_(pa.int32())),
        ("ts", pa.timestamp("us")),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {"k": 1, "x": 1.5, "a": [1, 2, 2], "ts": datetime(2024, 1, 5, 10, 20, 30)},
        {"k": 1, "x": 4.0, "a": [], "ts": datetime(2024, 3, 31)},
        {"k": 2, "x": None, "a": None, "ts": None},
        {"k": 2, "x": -3.0, "a": [None, 5], "ts": datetime(1999, 12, 31, 23, 59)},
        {"k": 3, "x": None, "a": [7], "ts": datetime(2024, 1, 5, 10, 20, 30)},
    ],
    schema=SCHEMA,
)
DUCKDB_QUERIES = [
    "SELECT k, array_pop_back(a), array_pop_front(a) FROM t",
    "SELECT k, array_push_back(a, k), array_push_front(a, 7) FROM t",
    "SELECT k, generate_subscripts(a, 1) AS i, unnest(a) AS x FROM t",
    "SELECT k, mad(x), entropy(x), entropy(a) FROM t GROUP BY k",
    "SELECT mad(x) * 2, entropy(k) FROM t WHERE k > 9",
    "SELECT k, timezone('America/New_York', ts) FROM t",
    "SELECT k, add(k, 2) * 3, subtract(k, 2), multiply(k, x), divide(k + 6, 2) FROM t",
    "SELECT k, epoch_ns(ts), nanosecond(ts) FROM t",
    "SELECT wavg(x, k), weighted_avg(k, x), arg_max_null(x, k), arg_min_null(x, k) FROM t",
    "SELECT k, histogram(x, [0, 2]), histogram_exact(x, [4.0, 1.5]) FROM t GROUP BY k",
    "SELECT histogram(k, [2, 2, 1]), histogram(k, [1]) FILTER (WHERE k = 1) FROM t",
    "SELECT histogram_exact(k, [2, 7]), histogram(k, [1]) FROM t WHERE k > 7",
    "SELECT k, (x + k) // 3, k::FLOAT // 0.7::FLOAT, x // k::FLOAT, 1.50 // k FROM t",
    "SELECT k, (x + k) // 3::DECIMAL(4, 1) FROM t",
    "SELECT k, list_distance([x, k]::FLOAT[], [1.1, 2.3]::FLOAT[]) FROM t WHERE x < 4",
    "SELECT array_inner_product([x, k, 1.7]::FLOAT[3], [1.1, 2.3, k]::FLOAT[3]) FROM t WHERE x < 9",
    "SELECT k, array_cosine_distance([x, k]::FLOAT[2], [1.1, 2.3]::FLOAT[2]) FROM t WHERE x < 9",
    "SELECT list_cosine_similarity([x, k]::FLOAT[], [3, 1]), k FROM t WHERE x < 9",
    """SELECT DISTINCT k, ('A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a1' || k)::UUID::VARCHAR,
        try_cast(('{a0eebc999c0b4ef8bb6d6bb9bd380a1' || k || '}') AS UUID)::VARCHAR,
        try_cast('a0eebc99' AS UUID)::VARCHAR FROM t""",
    """SELECT DISTINCT '[1, "x"]'::JSON -> -1, '[1, "x"]'::JSON ->> -2,
        '{"a": 1}'::JSON -> -1 FROM t""",
    "SELECT DISTINCT u FROM t JOIN (SELECT k, x > 0 AS is_positive FROM t) AS u USING (k)",
    "SELECT k, x FROM t WINDOW w AS (PARTITION BY k)",
]


@pytest.mark.parametrize("query", DUCKDB_QUERIES)
def test_functions_of_duckdb_have_its_results(query):
    circuit = compile_sql(query, {"t": SCHEMA})
    actual = [tuple(row.values())[:-1] for row in circuit.step({"t": ROWS})["view"].to_pylist()]
    database = connect_to_new_schema()
    database.execute("SET timezone = 'UTC'")
    database.register("t", ROWS)
    expected = database.sql(query).to_arrow_table().to_pylist()
    assert sorted(map(repr, actual)) == sorted(repr(tuple(row.values())) for row in expected)


@pytest.mark.parametrize(
    ("call", "lambda_call"),
    [
        ("array_remove([v, i, 9], v)", "list_filter([v, i, 9], lambda y: y IS DISTINCT FROM v)"),
        (
            "array_replace([v, i, 9], V, m)",
            "list_transform([v, i, 9], "
            "lambda y: CASE WHEN y IS NOT DISTINCT FROM v THEN m ELSE y END)",
        ),
        (
            "array_positions([v, i, 2], i)",
            "list_filter([1, 2, 3], lambda y: [v, i, 2][y] IS NOT DISTINCT FROM i)",
        ),
        ("array_fill(i, [2])", "[i, i]"),
        ("initcap('ab ' || w)", "'Ab ' || upper(w[1:1]) || w[2:]"),
    ],
)
def test_columns_with_the_names_of_parameters_are_not_captured(call, lambda_call):
    rows = pa.table({"v": [1, 2, 2], "i": [1, 2, 3], "m": [5, 6, 7], "w": ["a", "bc", "d"]})
    circuit = compile_sql(f"CREATE VIEW q AS SELECT i, {call} AS r FROM t", {"t": rows})
    found = circuit.step({"t": rows})["q"].drop_columns(["weight"]).sort_by("i").to_pylist()
    with duckdb.connect() as connection:
        connection.register("t", rows)
        expected = connection.sql(f"SELECT i, {lambda_call} AS r FROM t ORDER BY i").fetchall()
    assert [tuple(row.values()) for row in found] == expected


def test_columns_with_the_names_of_parameters_are_not_captured_in_groups():
    rows = pa.table({"k": [1, 1, 2, 2, 2], "v": [1.0, 4.0, 2.0, 2.0, 7.5], "n": [1, 2, 2, 2, 3]})
    query = "SELECT k, mad(v), round(entropy(n), 9) FROM t GROUP BY k"
    circuit = compile_sql(f"CREATE VIEW q AS {query}", {"t": rows})
    found = circuit.step({"t": rows})["q"].drop_columns(["weight"]).to_pylist()
    with duckdb.connect() as connection:
        connection.register("t", rows)
        expected = connection.sql(query).fetchall()
    assert sorted(tuple(row.values()) for row in found) == sorted(expected)


def test_a_change_of_a_group_changes_its_deviation():
    circuit = compile_sql("SELECT k, mad(x) AS m, entropy(x) AS e FROM t GROUP BY k", {"t": SCHEMA})
    circuit.step({"t": ROWS})
    deleted = ROWS.slice(1, 1).append_column("weight", pa.array([-1]))
    changes = circuit.step({"t": deleted})["view"].sort_by("weight").to_pylist()
    assert changes == [
        {"k": 1, "m": 1.25, "e": 1.0, "weight": -1},
        {"k": 1, "m": 0.0, "e": 0.0, "weight": 1},
    ]


JSON = '{"a": [1, "x", {"b": null}], "n": 2.5, "o": {"p": {"q": "r"}}}'
POSTGRES_CASES = {
    "array_fill(7, ARRAY[2])": [7, 7],
    "round((coth(2) * tanh(2) + csch(2) * sinh(2) + sech(2) * cosh(2))::numeric, 9)": 3,
    "finite_or_null(exp(2) - exp(2))": 0.0,
    "date_sub(ts, INTERVAL 1 MONTH)": datetime(2023, 12, 5, 10, 20, 30),
    "date_sub(DATE '2024-03-31', INTERVAL '1 month')::date": date(2024, 2, 29),
    "date_sub('month', DATE '2024-01-31', DATE '2024-03-30')": 1,
    "finite_or_null('-inf'::float8)": None,
    "finite_or_null('nan'::float8)": None,
    "format_time('%H-%M', TIME '01:02:03')": "01-02",
    "parse_time('%H:%M', '10:11')": time(10, 11),
    "initcap_spaces('ab-cD  Ef')": "Ab-cd  Ef",
    "interval_of_days(ts, ts - INTERVAL '3 days')::text": "3 days",
    "interval_of_months(ts, ts - INTERVAL '1 year')::text": "1 year",
    "to_jsonb(1)": "1",
    "normalize('a')": "a",
    "array_remove(ARRAY[1, 2, 1], 1)": [2],
    "array_replace(ARRAY[1, 2], 1, 5)": [5, 2],
    "trim_array(ARRAY[1, 2, 3], 2)": [1],
    "array_exists(ARRAY[1, 2], x -> x > 1)": True,
    "array_lower(ARRAY[5, 6], 1)": 1,
    "array_upper(ARRAY[5, 6], 1)": 2,
    "array_upper(ARRAY[]::int[], 1)": None,
    "array_positions(ARRAY[1, NULL, 1], 1)": [1, 3],
    "array_positions(ARRAY[1, NULL, 1], NULL)": [2],
    "array_reverse(ARRAY[1, 2])": [2, 1],
    "array_sum(ARRAY[1, 2, NULL])": 3,
    "list_append(ARRAY[1], 2)": [1, 2],
    "list_prepend(0, ARRAY[1])": [0, 1],
    "regexp_substr('foobar', 'o+')": "oo",
    "regexp_substr('foobar', 'x')": None,
    "trim_array(ARRAY[1, 2], 2)": [],
    "trim_array(ARRAY[1, 2], NULL)": None,
    "initcap('hELLO wORLD-foo_9a éA')": "Hello World-Foo_9a Éa",
    "initcap('')": "",
    "regexp_count('abcab', 'ab?')": 2,
    "to_char(ts, 'YYYY-MM-DD HH24:MI:SS')": "2024-01-05 10:20:30",
    "to_char(ts, 'DD Mon YY, HH12 PM \"week\" IW 100%')": "05 Jan 24, 10 AM week 01 100%",
    "to_date('05.01.2024', 'DD.MM.YYYY')": date(2024, 1, 5),
    "to_timestamp('2024-01-05 10', 'YYYY-MM-DD HH24')": datetime(2024, 1, 5, 10, tzinfo=UTC),
    "format_date('%Y/%m', CAST(ts AS DATE))": "2024/01",
    "parse_date('%d/%m/%Y', '05/01/2024')": date(2024, 1, 5),
    "parse_timestamp('%Y-%m-%d', '2024-01-05')": datetime(2024, 1, 5),
    "TIMESTAMPDIFF(MONTH, ts, TIMESTAMP '2024-03-05 10:20:29')": 1,
    "TIMESTAMPADD(MONTH, 1, ts)": datetime(2024, 2, 5, 10, 20, 30),
    "TIMESTAMPADD(HOUR, k, ts)": datetime(2024, 1, 5, 11, 20, 30),
    "DATE_TRUNC(ts, MONTH)": datetime(2024, 1, 1),
    "jsonb_typeof(j::jsonb)": "object",
    "json_typeof(j::json->'n')": "number",
    "jsonb_typeof(j::jsonb->'a'->1)": "string",
    "jsonb_array_length(j::jsonb->'a')": 3,
    "j::jsonb ? 'n'": True,
    "j::jsonb ? 'b'": False,
    """'"x"'::jsonb ? 'x'""": True,
    """'"x"'::jsonb ? 'y'""": False,
    """'["x"]'::jsonb ? 'x'""": True,
    """'7'::jsonb ? '7'""": False,
    """(NULL::jsonb ? 'x') IS NULL""": True,
    "j::jsonb->'a' ? 'x'": True,
    "j::jsonb->'a' ? '1'": False,
    "j::jsonb #>> '{o,p,q}'": "r",
    "j::jsonb #> '{o,p}'": '{"q":"r"}',
    "encode('abc'::bytea, 'hex')": "616263",
    "length(encode(repeat('x', 57)::bytea, 'base64'))": 76,
    "length(encode(repeat('x', 58)::bytea, 'base64'))": 81,
    "decode('YWJj', 'base64')": b"abc",
    "decode('616263', 'hex')": b"abc",
    "convert_from('abc'::bytea, 'UTF8')": "abc",
    "regexp_match('foobarbequebaz', 'ba.')": ["bar"],
    "regexp_match('foobarbequebaz', '(bar)(beque)')": ["bar", "beque"],
    "regexp_match('x', 'y')": None,
    "convert_to('abc', 'UTF8')": b"abc",
    "is_json('[1]') AND NOT is_json('x')": True,
    "constant_time_eq('a', 'b')": False,
    "BROUND(2.25, 1)": Decimal("2.2"),
    "SEC(0) + CSC(PI() / 2)": 2.0,
    "IS_NAN('NaN'::FLOAT8) AND NOT IS_INF(1.5::FLOAT8)": True,
    "SEQUENCE(1, 3)": [1, 2, 3],
    "array_transform(ARRAY[1, 2], |x| x * 2)": [2, 4],
    "array_any_match(ARRAY[1, 2], |x| x > 1)": True,
    "array_all_match(ARRAY[1, 2], |x| x > 1)": False,
    "MAP['a', 1, 'b', k + 1]['b']": 2,
    "LIST[1, 2]": [1, 2],
    "ARRAY[1] || 2": [1, 2],
    "0 || ARRAY[1]": [0, 1],
    "k = 1 AND UNKNOWN": None,
    "k = 2 AND UNKNOWN": False,
    "array_prepend(ARRAY[1], 0)": [0, 1],
    "array_prepend(0, ARRAY[1])": [0, 1],
    "DOY(ts)": 5,
    "FORMAT_TIMESTAMP('%Y/%m', ts)": "2024/01",
    "DATEDIFF(DAY, ts, TIMESTAMP '2024-01-08 00:00:00')": 3,
    "DATEDIFF(YEAR, ts, ts)": 0,
    "date_bin('15 minutes', ts, '2001-01-01 00:05:00')": datetime(2024, 1, 5, 10, 20),
    "k BETWEEN SYMMETRIC 2 AND 1": True,
    "k BETWEEN ASYMMETRIC 2 AND 1": False,
    "truncate(-1.259, 1)": Decimal("-1.2"),
    "width_bucket(5.35, 0.024, 10.06, 5)": 3,
    "jsonb_build_object('j', j::jsonb->'o')": '{"j":{"p":{"q":"r"}}}',
}


@pytest.mark.parametrize("expression", POSTGRES_CASES)
def test_functions_of_postgres_and_feldera_have_their_results(expression):
    row = {"k": 1, "ts": datetime(2024, 1, 5, 10, 20, 30), "j": JSON}
    schemas = {"t": "k INT, ts TIMESTAMP_NTZ, j STRING"}
    circuit = compile_sql(f"SELECT {expression} AS r FROM t", schemas, dialect="postgres")
    (result,) = circuit.step({"t": [row]})["view"].to_pylist()
    assert result["r"] == POSTGRES_CASES[expression]


def test_rlike_is_a_function_in_dialect_duckdb():
    circuit = compile_sql("SELECT k FROM t WHERE RLIKE(s, 's..i.*')", {"t": "k INT, s STRING"})
    rows = [{"k": 1, "s": "string"}, {"k": 2, "s": "sting"}]
    assert circuit.step({"t": rows})["view"].to_pylist() == [{"k": 1, "weight": 1}]


@pytest.mark.parametrize("count", [-1, 3])
def test_an_array_is_trimmed_by_at_most_its_length(count):
    circuit = compile_sql(f"SELECT trim_array(ARRAY[k, k], {count}) AS r FROM t", {"t": "k INT"})
    with pytest.raises(EvaluationError, match="number of elements to trim"):
        circuit.step({"t": [{"k": 1}]})


@pytest.mark.parametrize(
    "call",
    [
        "to_char(ts, 'SSSS')",
        "to_char(ts, 'SSSSS')",
        "generate_subscripts(ARRAY[1], 2)",
        "regexp_match('x', '(y)?')",
        "encode('a'::bytea, 'escape')",
        "decode('a', 'escape')",
    ],
)
def test_arguments_with_another_meaning_in_postgres_are_errors(call):
    """Seconds since midnight, and a dimension that lists do not have."""
    with pytest.raises(UnsupportedSqlError, match=call.partition("(")[0]):
        compile_sql(f"SELECT {call} AS r FROM t", {"t": "ts TIMESTAMP_NTZ"}, dialect="postgres")


ROWS_OF_JSON = {
    "SELECT e.value FROM t, jsonb_array_elements(j::jsonb->'a') AS e": ["1", '"x"', '{"b":null}'],
    "SELECT v FROM t, json_array_elements_text(j::json->'a') AS e(v)": ["1", "x", '{"b":null}'],
    "SELECT key || value FROM t, jsonb_each(j::jsonb->'o')": ['p{"q":"r"}'],
    'SELECT key || value FROM t, jsonb_each_text(\'{"k": "r"}\'::jsonb)': ["kr"],
    "SELECT jsonb_object_keys(j::jsonb) FROM t": ["a", "n", "o"],
    "SELECT jsonb_array_elements(j::jsonb->'a')->'b' FROM t": [None, None, "null"],
    "SELECT jsonb_agg(k) FROM (SELECT jsonb_object_keys(j::jsonb) AS k FROM t) q": [
        '["a","n","o"]'
    ],
    "SELECT json_object_agg(key, value::json) FROM t, jsonb_each(j::jsonb->'o')": [
        '{"p":{"q":"r"}}'
    ],
}


@pytest.mark.parametrize("dialect", ["postgres", "materialize", "risingwave"])
@pytest.mark.parametrize("query", ROWS_OF_JSON)
def test_functions_that_make_rows_of_json(query, dialect):
    circuit = compile_sql(query, {"t": "j STRING"}, dialect=dialect)
    rows = circuit.step({"t": [{"j": JSON}]})["view"].to_pylist()
    values = [next(iter(row.values())) for row in rows for _ in range(row["weight"])]
    assert sorted(values, key=repr) == sorted(ROWS_OF_JSON[query], key=repr)


def test_every_template_has_a_case():
    texts = " ".join([*DUCKDB_QUERIES, *POSTGRES_CASES, *ROWS_OF_JSON]).lower()
    untested = {name.removeprefix("json_").removeprefix("jsonb_") for name in TEMPLATES}
    assert {name for name in untested if name not in texts} == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("to_char(ts, 'SSSS')", "to_char() with this pattern is not supported; write a constant"),
    ],
)
def test_what_remains_is_refused(text, message):
    with pytest.raises(UnsupportedSqlError) as caught:
        compile_sql(
            f"SELECT {text} FROM t", {"t": "ts TIMESTAMP_NTZ, j STRING"}, dialect="postgres"
        )
    assert message in str(caught.value)
