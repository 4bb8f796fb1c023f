"""VARIANT: functions and casts against Spark 4, rules of Feldera, and views under deletes."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest

from circuits import CircuitError, SqlError, UnsupportedSqlError, compile_sql
from circuits.errors import SchemaError
from circuits.types.arrow_types import VARIANT, empty_table, type_row
from circuits.types.codecs.variants import MAX_DEPTH, read_variant, write_variant

DOCUMENTS = [
    *("1", "-0", "1.0", "1.50", "0.001", "-0.0", "1e10", "1e-5", "0e0", "100e-2", "1e400", "1e30"),
    *("123456789012345678901", "9" * 40, "0." + "1" * 40, "9223372036854775808", "true", "null"),
    *('"x"', '" 12 "', '"12.7"', '"2020-02-03"', '"2020-02-03 04:05:06"', '"yes"', '"1.5"'),
    *('"\\u0001\\u001f\\n\\"/é"', "[]", "{}", "[1, null, 2]", '[1, "x", 3]', "[[1], [2.5]]"),
    '{"b": 1, "a": [1.50, {"c": null}], "é": 2, "": 3}',
    '{"a": {"b": [10, "20"]}, "d e": true, "f`g": 1e2}',
    '[1, 1.5, 2e0, {"a": 1}]',
    '[{"a": 1}, {"b": "x"}, {"a": 2.25}]',
    *("[1, 12345678901234567890]", "[1.25, 1000000000000000000000]", "1 2", " [1]x"),
    None,
]
# Texts that parse_json() refuses.
NO_DOCUMENTS = ['{"a": 1, "a": 2}', "{a", "", "NaN", "1x", '{"a": 1,}', "01", "'a'", '"\\ud800"']

V = "parse_json(d)"
# All of these have a value for each document.
EXPRESSIONS = [
    f"to_json({V})",
    f"schema_of_variant({V})",
    f"is_variant_null({V})",
    f"CAST({V} AS STRING)",
    f"to_json({V}:a)",
    f"to_json({V}:a.b[1])",
    f"to_json({V}:['d e'])",
    f"to_json({V}:`d e`)",
    f"{V}:a.b[0]::int",
    f"to_json(variant_get({V}, '$.a'))",
    f"variant_get({V}, '$[1]', 'string')",
    f"""to_json(variant_get({V}, '$["d e"]'))""",
    *(
        f"try_variant_get({V}, '$', '{name}')"
        for name in (
            *("tinyint", "int", "bigint", "double", "boolean", "string", "decimal(9, 2)"),
            *("decimal(38, 10)", "date", "timestamp_ntz", "binary", "array<int>"),
            *("struct<a: int, b: string>", "array<struct<a: double>>", "map<string, int>"),
            *("struct<a: struct<b: array<int>>>", "array<array<int>>"),
        )
    ),
    "to_json(coalesce(try_parse_json(d), parse_json('0')))",
    f"to_json(CASE WHEN is_variant_null({V}) THEN parse_json('1') ELSE {V} END)",
    f"{V} IS NULL",
    "to_json(CAST(d AS VARIANT))",
    "to_json(CAST(array(d, 'x') AS VARIANT))",
    "to_json(to_variant_object(named_struct('b', 1, 'a', d, 'c', array(map('x', 1.50)))))",
    "schema_of_variant(to_variant_object(named_struct('b', 1L, 'a', true, 'c', 2.5d)))",
    f"typeof({V})",
]


def values_here(expression: str, documents: list[str | None]) -> list[object]:
    circuit = compile_sql(
        f"SELECT i, {expression} AS r FROM t", {"t": "i INT, d STRING"}, dialect="spark"
    )
    rows = [{"i": i, "d": document} for i, document in enumerate(documents)]
    table = circuit.step({"t": rows})["view"].sort_by("i")
    return table.column("r").to_pylist()


@pytest.mark.spark
def test_every_function_is_that_of_spark(spark):
    rows = [(i, document) for i, document in enumerate(DOCUMENTS)]
    spark.createDataFrame(rows, "i INT, d STRING").createOrReplaceTempView("variants")
    items = ", ".join(f"{text} AS r{n}" for n, text in enumerate(EXPRESSIONS))
    expected = spark.sql(f"SELECT i, {items} FROM variants ORDER BY i").toArrow()
    for number, expression in enumerate(EXPRESSIONS):
        column = expected.column(f"r{number}").to_pylist()
        for document, here, there in zip(
            DOCUMENTS, values_here(expression, DOCUMENTS), column, strict=True
        ):
            assert here == there, (expression, document)


@pytest.mark.spark
def test_errors_are_those_of_spark(spark):
    errors = pytest.importorskip("pyspark.errors")
    protocol = pytest.importorskip("py4j.protocol")
    casts = {
        "int": ['"x"', '"12.7"', "[1]", "1e30"],
        "tinyint": ["1000"],
        "decimal(4, 0)": ["12345"],
        "date": ["1", '"2020-02-30"'],
        "array<int>": ['{"a": 1}', '[1, "x"]'],
        "struct<a: int>": ["5"],
    }
    texts = [f"parse_json('{text}')" for text in NO_DOCUMENTS if not {"'", "\\"} & set(text)]
    texts += [f"CAST(parse_json('{d}') AS {name})" for name, ds in casts.items() for d in ds]
    for text in texts:
        with pytest.raises((errors.PySparkException, protocol.Py4JJavaError)):
            spark.sql(f"SELECT {text} AS r").collect()
        with pytest.raises(CircuitError):
            compile_sql(f"SELECT {text} AS r FROM t", {"t": "i INT"}, dialect="spark").step(
                {"t": [{"i": 1}]}
            )


@pytest.mark.spark
def test_explode_is_that_of_spark(spark):
    rows = [(i, document) for i, document in enumerate(DOCUMENTS)]
    spark.createDataFrame(rows, "i INT, d STRING").createOrReplaceTempView("variants")
    for function in ("variant_explode", "variant_explode_outer"):
        query = (
            "SELECT i, e.pos, e.key, to_json(e.value) AS v FROM variants, "
            f"LATERAL {function}(parse_json(d)) AS e"
        )
        expected = Counter(map(tuple, spark.sql(query).collect()))
        circuit = compile_sql(query, {"variants": "i INT, d STRING"}, dialect="spark")
        change = [{"i": i, "d": document} for i, document in rows]
        found = circuit.step({"variants": change})["view"].to_pylist()
        assert Counter((r["i"], r["pos"], r["key"], r["v"]) for r in found) == expected


def test_texts_that_are_no_json_have_no_value():
    assert values_here("to_json(try_parse_json(d))", NO_DOCUMENTS) == [None] * len(NO_DOCUMENTS)


def test_a_canonical_text_is_that_of_its_value():
    for document in filter(None, DOCUMENTS):
        text = write_variant(read_variant(document))
        assert write_variant(read_variant(text)) == text


PROGRAM = """
    CREATE TABLE t (id BIGINT, v VARIANT);
    CREATE VIEW names AS SELECT id, v:user.name::string AS name, v:total::decimal(8, 2) AS total
        FROM t WHERE v:kind::string = 'buy';
    CREATE VIEW sums AS SELECT v:user.name::string AS name, count(*) AS n, sum(v:total::double) AS s
        FROM t GROUP BY ALL;
    CREATE VIEW items AS SELECT id, pos, value:sku::string AS sku FROM t, LATERAL
        variant_explode(v:items);
    CREATE VIEW lists AS SELECT id % 2 AS k, array_agg(v:user) AS users FROM t GROUP BY 1;
    CREATE VIEW users AS SELECT DISTINCT v:user AS u FROM t;
"""


def test_a_row_with_another_notation_of_the_value_is_the_same_row():
    circuit = compile_sql(PROGRAM, dialect="spark", materialize=True)
    rows = [
        {"id": 1, "v": '{"kind": "buy", "user": {"name": "ann"}, "items": [{"sku": "x"}, 3]}'},
        {"id": 2, "v": '{"kind": "buy", "total": "7", "user": null}'},
        {"id": 2, "v": '{"kind": "buy", "total": "7", "user": null}'},
        {"id": 3, "v": None},
        {"id": 4, "v": '{"user": {"name": "ann"}, "total": 1e1}'},
    ]
    deltas = circuit.step({"t": rows})
    assert deltas["users"].schema.field("u").type == VARIANT
    assert {row["u"] for row in deltas["users"].to_pylist()} == {None, "null", '{"name":"ann"}'}
    assert [row["users"] for row in deltas["lists"].sort_by("k").to_pylist()] == [
        ["null", "null", '{"name":"ann"}'],
        ['{"name":"ann"}'],
    ]
    deltas = circuit.step(
        {
            "t": [
                {"id": 4, "v": '{"total":1.0E1,"user":{"name":"ann"}}', "weight": -1},
                {
                    "id": 1,
                    "v": '{"items":[{"sku":"x"},3],"user":{"name":"ann"},"kind":"buy"}',
                    "weight": -1,
                },
            ]
        }
    )
    assert deltas["names"].to_pylist() == [{"id": 1, "name": "ann", "total": None, "weight": -1}]
    assert deltas["sums"].to_pylist() == [{"name": "ann", "n": 2, "s": 10.0, "weight": -1}]
    assert deltas["items"].num_rows == 2
    assert deltas["users"].to_pylist() == [{"u": '{"name":"ann"}', "weight": -1}]
    assert Counter(map(str, circuit.query("SELECT * FROM names").to_pylist())) == Counter(
        [str({"id": 2, "name": None, "total": Decimal("7.00"), "weight": 2})]
    )


def test_an_input_refuses_texts_that_are_no_json():
    circuit = compile_sql(PROGRAM, dialect="spark")
    with pytest.raises(SchemaError, match=r"'v': .* VARIANT, and not every value fits: '\{bad'"):
        circuit.step({"t": [{"id": 1, "v": "{bad"}]})
    wrong = pa.table({"id": [1], "v": pa.array(["{bad"], VARIANT)})
    with pytest.raises(SchemaError, match=r"'\{bad' is not a VARIANT"):
        circuit.step({"t": wrong})
    assert type_row(VARIANT).lake_type(VARIANT) == pa.string()


# Values from Feldera's documentation of VARIANT.
FELDERA = {
    "CAST(CAST(1 AS VARIANT) AS INT)": 1,
    "CAST('string' AS VARIANT)": '"string"',
    "CAST(CAST('abc' AS VARIANT) AS VARCHAR)": "abc",
    "VARIANTNULL()": "null",
    "VARIANTNULL() IS NULL": False,
    "VARIANTNULL() = VARIANTNULL()": True,
    "CAST(1 AS VARIANT) = CAST(1 AS VARIANT)": True,
    "(CAST(1 AS VARIANT))[1]": None,
    "CAST(ARRAY[1,2,3] AS VARIANT)[1]": "1",
    "CAST(ARRAY[1,2,3] AS VARIANT)['name']": None,
    "CAST(MAP {'a': 1, 'b': 2} AS VARIANT)['a']": "1",
    "PARSE_JSON('\"a\"')": '"a"',
    "PARSE_JSON('{bad')": None,
    "PARSE_JSON(NULL)": None,
    "TO_JSON(PARSE_JSON('null'))": "null",
    'TO_JSON(PARSE_JSON(\'{ "a": 1, "b": 2 }\'))': '{"a":1,"b":2}',
    'PARSE_JSON(\'{ "a": 1, "b": 2 }\') = PARSE_JSON(\'{"b":2,"a":1}\')': True,
    "CAST(PARSE_JSON('{\"a\": [1.5, \"x\"]}')['a'][1] AS DECIMAL(8, 2))": Decimal("1.50"),
    "CAST(PARSE_JSON('{\"a\": [1.5, \"x\"]}')['a'][2] AS DECIMAL(8, 2))": None,
    "CAST(PARSE_JSON('{\"a\": [1, 2]}') AS STRUCT(a INT[]))": {"a": [1, 2]},
    "PARSE_JSON('[1]')[0]": None,
}


@pytest.mark.parametrize("expression", FELDERA)
def test_other_dialects_have_the_values_of_feldera(expression):
    circuit = compile_sql(f"SELECT {expression} AS r", {}, dialect="duckdb")
    assert circuit.step({})["view"].to_pylist() == [{"r": FELDERA[expression], "weight": 1}]


def test_snowflake_counts_from_zero_and_has_errors():
    text = """SELECT PARSE_JSON('{"a": [5, "x"]}'):a[0]::int + PARSE_JSON('[7]')[0]::int AS r"""
    circuit = compile_sql(text, {}, dialect="snowflake")
    assert circuit.step({})["view"].to_pylist() == [{"r": 12, "weight": 1}]
    circuit = compile_sql(
        "SELECT PARSE_JSON(s)::int AS r FROM t", {"t": "s TEXT"}, dialect="snowflake"
    )
    for text in ("{bad", '"x"'):
        with pytest.raises(CircuitError):
            circuit.step({"t": [{"s": text}]})


def test_an_error_of_a_value_names_the_types_of_sql():
    circuit = compile_sql("SELECT parse_json(s) AS v FROM t", {"t": "s TEXT"}, dialect="snowflake")
    with pytest.raises(CircuitError, match=r"has no value of type VARIANT for s = '\{'"):
        circuit.step({"t": [{"s": "{"}]})
    text = "SELECT v::ARRAY<VARIANT> AS x FROM t"
    circuit = compile_sql(text, {"t": "v VARIANT"}, dialect="spark")
    with pytest.raises(CircuitError, match=r"cannot be cast to list<item: VARIANT>"):
        circuit.step({"t": [{"v": "1"}]})


def test_try_cast_of_snowflake_is_null_where_a_cast_is_an_error():
    text = "SELECT TRY_CAST(s AS INT) AS x FROM t"
    circuit = compile_sql(text, {"t": "s TEXT"}, dialect="snowflake")
    rows = circuit.step({"t": [{"s": "x"}, {"s": "7"}]})["view"].to_pylist()
    assert rows == [{"x": None, "weight": 1}, {"x": 7, "weight": 1}]


REFUSED = {
    ("spark", "v = v"): "a comparison of a VARIANT",
    ("spark", "v < v"): "a comparison of a VARIANT",
    ("duckdb", "v < v"): "a comparison of a VARIANT",
    ("spark", "max(v)"): "of a VARIANT",
    ("spark", "max_by(1, v)"): r"max_by\(\) of a VARIANT",
    ("spark", "row_number() OVER (ORDER BY v)"): "ORDER BY of a VARIANT",
    ("spark", "v['a']"): "write v:name",
    ("spark", "v + 1"): r"\(VARIANT, int32\)",
    ("spark", "upper(v)"): "to_json",
    ("spark", "hash(v)"): "cast it",
    ("spark", "to_json(array(v))"): "a VARIANT alone",
    ("spark", "CAST(current_date() AS VARIANT)"): "current_date|cast others to a text",
    ("spark", "CAST(DATE'2020-01-01' AS VARIANT)"): "cast others to a text",
    ("spark", "variant_get(v, 'a')"): "malformed",
    ("spark", "variant_get(v, to_json(v))"): "not constant",
    ("spark", "variant_get('{}', '$')"): "takes a VARIANT, not a value of type string",
    ("spark", "from_json('{}', 'a variant')"): "use parse_json",
    ("duckdb", "v[i]"): "not constant",
    ("duckdb", "v[-'a']"): "a subscript of a VARIANT that is not constant",
    ("duckdb", "v FROM t ORDER BY ALL LIMIT 1 --"): "ORDER BY of a VARIANT",
    ("duckdb", "array_sort(ARRAY[v])"): "VARIANT",
}


@pytest.mark.parametrize(("dialect", "expression"), REFUSED)
def test_a_refusal_names_its_place_and_a_remedy(dialect, expression):
    message = REFUSED[dialect, expression]
    with pytest.raises((SqlError, UnsupportedSqlError), match=f"line 1, column .*({message})"):
        compile_sql(f"SELECT {expression} AS r FROM t", {"t": "v VARIANT, i INT"}, dialect=dialect)


D38 = "1.2345678901234567890123456789012345678"


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_a_decimal_keeps_all_its_digits(dialect):
    text = "SELECT parse_json(s) AS p, CAST(parse_json(s) AS DECIMAL(38, 37)) AS d FROM t"
    row = compile_sql(text, {"t": "s STRING"}, dialect=dialect).step({"t": [{"s": D38 + "\n"}]})
    assert row["view"].to_pylist() == [{"p": D38, "d": Decimal(D38), "weight": 1}]
    text = "SELECT CAST(d AS VARIANT) AS v FROM t"
    circuit = compile_sql(text, {"t": "d DECIMAL(38, 37)"}, dialect=dialect)
    row = circuit.step({"t": [{"d": Decimal(D38)}]})["view"].to_pylist()
    assert row == [{"v": D38, "weight": 1}]


def test_minus_zero_is_zero():
    circuit = compile_sql("SELECT v, count(*) AS n FROM t GROUP BY v", {"t": "v VARIANT"})
    rows = circuit.step({"t": [{"v": v} for v in ("-0e0", "0e0", "[-0.0e5]", "[0e1]")]})["view"]
    assert rows.to_pylist() == [
        {"v": "0.0E0", "n": 2, "weight": 1},
        {"v": "[0.0E0]", "n": 2, "weight": 1},
    ]


@pytest.mark.parametrize("nest", ["[{}]", '{{"[[":{}}}'])
def test_the_depth_of_a_value_is_limited(nest):
    text = "1"
    for _ in range(MAX_DEPTH):
        text = nest.format(text)
    circuit = compile_sql(
        "SELECT try_parse_json(s) AS v, to_json(v) AS j, schema_of_variant(v) IS NULL AS n FROM t",
        {"t": "s STRING, v VARIANT"},
        dialect="spark",
    )
    row = {"v": text, "j": text, "n": False, "weight": 1}
    assert circuit.step({"t": [{"s": text, "v": text}]})["view"].to_pylist() == [row]
    for deep in (nest.format(text), "[" * 990 + "]" * 990, "[" * 5000):
        (row,) = circuit.step({"t": [{"s": deep, "v": "1"}]})["view"].to_pylist()
        assert row["v"] is None
        with pytest.raises(SchemaError, match="nested more than 200 levels deep"):
            circuit.step({"t": [{"s": "1", "v": deep}]})


def test_a_typed_literal_of_json_is_a_text():
    circuit = compile_sql("""SELECT JSON '{"a": 1}' ->> 'a' AS r""", {})
    assert circuit.step({})["view"].to_pylist() == [{"r": "1", "weight": 1}]


def test_other_columns_decide_ties_also_a_variant_and_lists_of_it():
    text = "SELECT k, v, array(v) AS l FROM t ORDER BY k LIMIT 2"
    circuit = compile_sql(text, {"t": "k INT, v VARIANT"}, dialect="spark")
    rows = [{"k": 1, "v": text} for text in ('"c"', '"a"', '"b"')]
    found = circuit.step({"t": rows})["view"].to_pylist()
    assert sorted(row["v"] for row in found) == ['"a"', '"b"']
    found = circuit.step({"t": [rows[1] | {"weight": -1}]})["view"].to_pylist()
    assert {row["v"]: row["weight"] for row in found} == {'"a"': -1, '"c"': 1}


def test_a_table_of_lists_of_variants_may_have_no_rows():
    schema = pa.schema({"id": pa.int32(), "vs": pa.list_(VARIANT)})
    circuit = compile_sql("SELECT id, vs FROM t", {"t": schema}, dialect="spark")
    assert circuit.step({"t": []})["view"].num_rows == 0
    assert (
        circuit.step({"t": empty_table(schema)})["view"].schema.field("vs").type == schema[1].type
    )


@pytest.mark.parametrize("type_name", ["MAP<VARCHAR, VARIANT>", "MAP<VARCHAR, ROW(v VARIANT)>"])
def test_rows_of_python_may_have_variants_in_maps(type_name):
    circuit = compile_sql(f"CREATE TABLE t (m {type_name}); SELECT m FROM t", dialect="postgres")
    value = {"a": "[1, null]", "b": None}
    expected = [("a", "[1,null]"), ("b", None)]
    if "ROW" in type_name:
        value, expected = {"a": {"v": "7"}}, [("a", {"v": "7"})]
    rows = circuit.step({"t": [{"m": value}, {"m": None}]})["view"].to_pylist()
    assert [row["m"] for row in rows] == [None, expected]


def test_the_type_of_a_variant_has_this_name():
    text = "CREATE TABLE t (v VARIANT); SELECT typeof(v) AS a, typeof([v]) AS b FROM t"
    (row,) = compile_sql(text).step({"t": [{"v": "1"}]})["view"].to_pylist()
    assert (row["a"], row["b"]) == ("VARIANT", "VARIANT[]")
    (row,) = (
        compile_sql("CREATE TABLE t (v VARIANT); SELECT typeof(v) AS a FROM t", dialect="spark")
        .step({"t": [{"v": "1"}]})["view"]
        .to_pylist()
    )
    assert row["a"] == "variant"
