"""JSON_VALUE, JSON_QUERY, JSON_EXISTS and IS JSON, against DuckDB and a table of the standard."""

from __future__ import annotations

import json
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import EvaluationError, compile_sql
from circuits.errors import SqlError
from tests.oracles.duckdb_mirror import Mirror

SCHEMA = {"t": pa.schema([("d", pa.string())])}
DOCUMENT = '{"a": {"b": 1}, "s": "x", "n": null, "l": [1, 2], "f": 1.5, "t": true, "z y": "2"}'


def values_of(expression: str, documents: list[str | None], dialect: str = "spark") -> list:
    """Return the value of an expression over d for each document."""
    circuit = compile_sql(f"SELECT d, {expression} AS v FROM t", SCHEMA, dialect=dialect)
    table = circuit.step({"t": pa.table({"d": pa.array(documents, pa.string())})})["view"]
    values = {row["d"]: row["v"] for row in table.to_pylist()}
    return [values[document] for document in documents]


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, "", "x", "ü"])
keys = st.sampled_from(["a", "b"])
# JSON texts; a name may occur twice in an object.
texts_of_json = st.recursive(
    scalars.map(json.dumps),
    lambda parts: (
        st.lists(parts, max_size=3).map(lambda texts: f"[{', '.join(texts)}]")
        | st.lists(st.tuples(keys, parts), max_size=3).map(
            lambda pairs: "{" + ", ".join(f'"{key}": {text}' for key, text in pairs) + "}"
        )
    ),
    max_leaves=6,
)
PATHS = ["$", "$.a", "$.b.a", "$[0]", "$.a[1]", "a", "$.a[#-1]", "$[#-2]"]
FUNCTIONS_OF_PATHS = ("json_value", "json_exists", "json_extract", "json_extract_string")
FUNCTIONS_OF_PATHS += ("json_type", "json_keys", "json_array_length")
IN_DUCKDB = [f"{function}(d, '{path}')" for function in FUNCTIONS_OF_PATHS for path in PATHS]
CIRCUIT = compile_sql(
    f"SELECT d, {', '.join(f'{text} AS v{i}' for i, text in enumerate(IN_DUCKDB))} FROM t", SCHEMA
)
DATABASE = duckdb.connect(config={"threads": 1})


@settings(max_examples=60)
@given(st.lists(st.none() | texts_of_json, min_size=1, max_size=5, unique=True))
def test_values_and_existence_are_those_of_duckdb(documents):
    texts = pa.table({"d": pa.array(documents, pa.string())})
    step = CIRCUIT.prepare({"t": texts})
    rows = {repr(tuple(row.values())[:-1]) for row in step.outputs["view"].to_pylist()}
    step.abandon()
    expected = DATABASE.execute(f"SELECT d, {', '.join(IN_DUCKDB)} FROM texts").fetchall()
    assert rows == set(map(repr, expected))


WILDCARDS = ["d->'$[*]'", "d->>'$.a[*]'", "json_extract(d, '$.*')", "d->>'$.a[*].b'", "d->'$.*[*]'"]
PAIRS = ["json_contains(d, e)", "json_merge_patch(d, e)", "json_merge_patch(d, e, d)"]
PAIRS += ["json_pretty(d)", "json_strip_nulls(e)"]
PATHS_OF_EACH = ["", ", '$.a'", ", '$[0]'", ", '$[-1].b'", ", '$.b.a'"]
PAIR_CIRCUIT = compile_sql(
    f"CREATE VIEW v AS SELECT d, e, {', '.join(f'{text} AS v{i}' for i, text in enumerate(PAIRS))},"
    f" {', '.join(f'{text} AS w{i}' for i, text in enumerate(WILDCARDS))} FROM t;"
    + ";".join(
        f"CREATE VIEW each{i} AS SELECT d, e, j.* FROM t, json_each(d{path}) j"
        for i, path in enumerate(PATHS_OF_EACH)
    ),
    {"t": pa.schema([("d", pa.string()), ("e", pa.string())])},
)


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.none() | texts_of_json] * 2), min_size=1, max_size=5, unique=True))
def test_wildcards_containment_patches_and_members_are_those_of_duckdb(pairs):
    columns = [pa.array(column, pa.string()) for column in zip(*pairs, strict=True)]
    texts = pa.table(dict(zip("de", columns, strict=True)))
    step = PAIR_CIRCUIT.prepare({"t": texts})
    rows = {
        name: Counter(repr(tuple(row.values())[:-1]) for row in view.to_pylist())
        for name, view in step.outputs.items()
    }
    step.abandon()
    query = f"SELECT d, e, {', '.join([*PAIRS, *WILDCARDS])} FROM texts"
    assert rows["v"] == Counter(map(repr, DATABASE.execute(query).fetchall()))
    for i, path in enumerate(PATHS_OF_EACH):
        query = f"SELECT d, e, j.* FROM texts, json_each(d{path}) j"
        assert rows[f"each{i}"] == Counter(map(repr, DATABASE.execute(query).fetchall()))


# Two members of a name: the dialect, an expression, and the value of DuckDB 1.4, PostgreSQL 16,
# Spark 4 or Flink.
REPEATED = '{"a": {"c": 1, "c": 2}, "b": 3, "b": 4}'
OF_REPEATED_MEMBERS = [
    ("duckdb", "d ->> 'b'", "3"),
    ("duckdb", "d -> 'a'", '{"c":1,"c":2}'),
    ("duckdb", "json_keys(d)", ["a", "b", "b"]),
    ("duckdb", """(from_json(d, '{"b": "INT"}')).b""", 3),
    ("duckdb", """from_json(d -> 'a', '"MAP(VARCHAR, INT)"')""", None),
    ("postgres", "d::jsonb ->> 'b'", "4"),
    ("postgres", "d::jsonb -> 'a' ->> 'c'", "2"),
    ("postgres", "(d::jsonb - 'a') ->> 'b'", "4"),
    ("postgres", """d::jsonb @> '{"b": 4}'::jsonb""", True),
    ("spark", "get_json_object(d, '$.b')", "3"),
    ("spark", "from_json(d, 'b INT').b", 4),
    ("spark", "json_object_keys(d)", ["a", "b", "b"]),
    ("spark", "json_value(d, '$.a.c')", "2"),
]


@pytest.mark.parametrize(("dialect", "text", "expected"), OF_REPEATED_MEMBERS)
def test_the_dialect_says_which_of_two_members_of_a_name_counts(dialect, text, expected):
    assert values_of(text, [REPEATED], dialect) == [expected]


# Containment in PostgreSQL: examples of its documentation.
INCLUSIONS = {
    ('"foo"', '"foo"'): True,
    ("[1, 2, 3]", "[1, 3]"): True,
    ("[1, 2, 3]", "[1, 2, 2]"): True,
    ('{"product": "PostgreSQL", "version": 9.4}', '{"version": 9.40}'): True,
    ("[1, 2, [1, 3]]", "[1, 3]"): False,
    ("[1, 2, [1, 3]]", "[[1, 3]]"): True,
    ('{"foo": {"bar": "baz"}}', '{"bar": "baz"}'): False,
    ('{"foo": {"bar": "baz"}}', '{"foo": {}}'): True,
    ('["foo", "bar"]', '"bar"'): True,
    ('"bar"', '["bar"]'): False,
    ("true", "1"): False,
}


@pytest.mark.parametrize("dialect", ["postgres", "materialize", "risingwave"])
def test_a_json_text_includes_the_members_of_another_one(dialect):
    for (left, right), expected in INCLUSIONS.items():
        for text in (f"d::jsonb @> '{right}'::jsonb", f"'{right}'::jsonb <@ d::jsonb"):
            assert values_of(text, [left], dialect) == [expected]


# The path, and what Spark 4 returns for it.
SPARK_MATCHES = {
    ('[[1,"a"],[2],[]]', "$[*][*]"): '[1,"a",2]',
    ('[[1,"a"],[2],[]]', "$[*]"): '[[1,"a"],[2],[]]',
    ('[{"a":[{"b":1}]},{"a":[]}]', "$[*].a[*].b"): "[1],[]",
    ('["x"]', "$[*]"): '"x"',
    ("[]", "$[*]"): None,
    ("[null]", "$[*]"): "null",
    ("[null, 1]", "$[0]"): "null",
    ('{"a":null}', "$.a"): None,
    ('{"a":1, "a":2}', "$.a"): "1",
    ("[[1,[2,3]],[4]]", "$[0][*]"): "[1,[2,3]]",
    ("[[1,[2,3]],[4]]", "$[*][*][*]"): "[[1,2,3],4]",
    ("[[1,[2,3]],[4]]", "$[*][0]"): "[1,4]",
    ('{"a":[{"b":[1,2]},{"b":[3]}]}', "$.a[*].b[0]"): "[1,3]",
    ('{"a":1}', "$[*]"): None,
}


def test_get_json_object_has_the_matches_of_spark():
    for (document, path), expected in SPARK_MATCHES.items():
        assert values_of(f"get_json_object(d, '{path}')", [document]) == [expected]


# The value of a call for DOCUMENT, for a text that is no JSON, and for NULL.
STANDARD = [
    ("JSON_VALUE(d, '$.s')", "x", None, None),
    ("JSON_VALUE(d, '$.f')", "1.5", None, None),
    ("JSON_VALUE(d, '$.t')", "true", None, None),
    ("""JSON_VALUE(d, '$["z y"]' RETURNING INT)""", 2, None, None),
    ("JSON_VALUE(d, '$.a.b' RETURNING INT)", 1, None, None),
    ("JSON_VALUE(d, '$.f' RETURNING DOUBLE)", 1.5, None, None),
    ("JSON_VALUE(d, '$.t' RETURNING BOOLEAN)", True, None, None),
    ("JSON_VALUE(d, '$.s' RETURNING INT)", None, None, None),
    ("JSON_VALUE(d, '$.s' RETURNING INT DEFAULT -1 ON ERROR)", -1, -1, None),
    ("JSON_VALUE(d, '$.a.b' RETURNING INT DEFAULT 2 + 5 ON ERROR)", 1, 7, None),
    ("JSON_VALUE(d, '$.l' DEFAULT 'e' ON EMPTY DEFAULT 'f' ON ERROR)", "f", "f", None),
    ("JSON_VALUE(d, 'lax $.l' DEFAULT 'e' ON EMPTY DEFAULT 'f' ON ERROR)", "e", "e", None),
    ("JSON_VALUE(d, '$.zz' DEFAULT 'e' ON EMPTY DEFAULT 'f' ON ERROR)", "f", "f", None),
    ("JSON_VALUE(d, 'LAX $.zz' DEFAULT 'e' ON EMPTY)", "e", "e", None),
    ("JSON_VALUE(d, 'lax $.zz' DEFAULT 'f' ON ERROR)", None, None, None),
    ("JSON_VALUE(d, '$.n' DEFAULT 'e' ON EMPTY DEFAULT 'f' ON ERROR)", "e", "f", None),
    ("JSON_VALUE(d, 'strict $.n' NULL ON EMPTY DEFAULT d ON ERROR)", None, "nope", None),
    ("JSON_QUERY(d, '$.a')", '{"b":1}', None, None),
    ("JSON_QUERY(d, '$.l' RETURNING VARCHAR)", "[1,2]", None, None),
    ("JSON_QUERY(d, '$.l' RETURNING ARRAY<STRING>)", ["1", "2"], None, None),
    ("JSON_QUERY(d, '$.a' RETURNING ARRAY<STRING>)", None, None, None),
    ("JSON_QUERY(d, '$.a' RETURNING ARRAY<STRING> EMPTY ARRAY ON ERROR)", [], [], None),
    ("JSON_QUERY(d, '$.s')", None, None, None),
    ("JSON_QUERY(d, '$.s' WITH WRAPPER)", '["x"]', None, None),
    ("JSON_QUERY(d, '$.n' WITH ARRAY WRAPPER EMPTY ARRAY ON EMPTY)", "[]", None, None),
    ("JSON_QUERY(d, '$.l' WITH UNCONDITIONAL ARRAY WRAPPER)", "[[1,2]]", None, None),
    ("JSON_QUERY(d, '$.l' WITH CONDITIONAL ARRAY WRAPPER)", "[1,2]", None, None),
    ("JSON_QUERY(d, '$.a' WITH CONDITIONAL WRAPPER)", '[{"b":1}]', None, None),
    ("JSON_QUERY(d, '$.a' WITHOUT ARRAY WRAPPER)", '{"b":1}', None, None),
    ("JSON_QUERY(d, '$.s' EMPTY OBJECT ON EMPTY EMPTY ARRAY ON ERROR)", "[]", "[]", None),
    ("JSON_QUERY(d, 'lax $.s' EMPTY OBJECT ON EMPTY)", "{}", "{}", None),
    ("JSON_EXISTS(d, '$.a.b')", True, False, None),
    ("JSON_EXISTS(d, '$.zz')", False, False, None),
    ("JSON_EXISTS(d, '$.n')", False, False, None),
    ("JSON_EXISTS(d, '$.zz' TRUE ON ERROR)", True, True, None),
    ("JSON_EXISTS(d, 'lax $.zz' TRUE ON ERROR)", False, False, None),
    ("JSON_EXISTS(d, '$.s' UNKNOWN ON ERROR)", True, None, None),
    ("d IS JSON", True, False, False),
    ("d IS NOT JSON", False, True, True),
    ("d IS JSON VALUE", True, False, False),
    ("d IS JSON OBJECT", True, False, False),
    ("d IS JSON ARRAY", False, False, False),
    ("d IS NOT JSON SCALAR", True, True, True),
]


@pytest.mark.parametrize(("call", "value", "of_no_json", "of_null"), STANDARD)
def test_a_call_of_the_standard_has_the_value_of_flink(call, value, of_no_json, of_null):
    assert values_of(call, [DOCUMENT, "nope", None]) == [value, of_no_json, of_null]


def test_texts_are_json_of_one_kind():
    documents = ["{}", "[1]", "1", '"a"', "null", "", "[1", "NaN"]
    for kind, expected in {
        "": [1, 1, 1, 1, 1, 0, 0, 0],
        "OBJECT": [1, 0, 0, 0, 0, 0, 0, 0],
        "ARRAY": [0, 1, 0, 0, 0, 0, 0, 0],
        "SCALAR": [0, 0, 1, 1, 1, 0, 0, 0],
    }.items():
        assert values_of(f"d IS JSON {kind}", documents, "duckdb") == list(map(bool, expected))
    assert values_of("d IS JSON", [None], "duckdb") == [None]


def test_a_row_with_error_on_error_fails_alone():
    circuit = compile_sql(
        "SELECT JSON_VALUE(d, '$.a' RETURNING INT ERROR ON EMPTY ERROR ON ERROR) AS v FROM t",
        SCHEMA,
        dialect="spark",
    )
    assert circuit.step({"t": [{"d": '{"a": 1}'}, {}]})["view"].num_rows == 2
    for document in ('{"a": null}', '{"a": "x"}', '{"a": []}', "{}", "["):
        with pytest.raises(EvaluationError, match=r"JSON_VALUE\(\) has no value: ERROR ON"):
            circuit.step({"t": [{"d": document}]})


def test_a_call_groups_rows_and_is_taken_back_by_a_deletion():
    circuit = compile_sql(
        "SELECT JSON_VALUE(d, '$.a' DEFAULT 'none' ON ERROR) AS v, count(*) AS n FROM t "
        "GROUP BY JSON_VALUE(d, '$.a' DEFAULT 'none' ON ERROR)",
        SCHEMA,
        dialect="spark",
    )
    circuit.step({"t": [{"d": '{"a": 1}'}, {"d": '{"a":1}'}, {"d": "[]"}]})
    deleted = circuit.step({"t": [{"d": "[]", "weight": -1}, {"d": '{"a":1}', "weight": -1}]})
    rows = sorted(tuple(row.values()) for row in deleted["view"].to_pylist())
    assert rows == [("1", 1, 1), ("1", 2, -1), ("none", 1, -1)]


@pytest.mark.parametrize(
    ("call", "dialect", "words"),
    [
        ("JSON_VALUE(d, '$.a' NULL ON EMPTY)", "duckdb", "with clauses is not supported"),
        ("JSON_VALUE(d, d)", "spark", "a path that is not constant"),
        ("JSON_VALUE(d, '$.a[*]')", "spark", "a path with wildcards"),
        ("JSON_VALUE(d)", "spark", "takes a JSON text and a path"),
        ("JSON_VALUE(d, '$.a' WITH WRAPPER)", "spark", "has no WRAPPER"),
        ("JSON_VALUE(d, '$.a' TRUE ON EMPTY)", "spark", "TRUE ON EMPTY of JSON_VALUE()"),
        ("JSON_VALUE(d, '$.a' NULL ON EMPTY NULL ON EMPTY)", "spark", "at most once"),
        ("JSON_QUERY(d, '$.a' RETURNING ARRAY<INT>)", "spark", "RETURNING"),
        ("JSON_EXISTS(d, '$.a' NULL ON EMPTY)", "spark", "has only ON ERROR"),
        ("d IS JSON WITH UNIQUE KEYS", "spark", "WITH in JSON is not supported"),
        ("json_exists(d, '/a')", "duckdb", "a path that begins with '/'"),
        ("d->'/a'", "duckdb", "a path that begins with '/'"),
    ],
)
def test_a_call_that_is_not_supported_is_refused(call, dialect, words):
    with pytest.raises(SqlError) as caught:
        compile_sql(f"SELECT {call} AS v FROM t", SCHEMA, dialect=dialect)
    assert words in str(caught.value)


def test_an_arrow_counts_positions_from_the_end_as_duckdb_does():
    documents = ["[1, 2]", "[]", '{"[#-1]": 5}']
    calls = ("d->'$[#-1]'", "d->>'$[#-2]'", "d->'[#-1]'")
    for call in calls:
        rows = [
            DATABASE.execute(f"SELECT {call} FROM (SELECT ?::VARCHAR AS d)", [d]).fetchone()
            for d in documents
        ]
        assert values_of(call, documents, "duckdb") == [row[0] for row in rows]


# Aggregates, and what they are in DuckDB, whose arrays are in the order of the rows.
AGGREGATES = {
    **{
        f"json_group_array({value})": f"to_json(list({value} ORDER BY {value}))::VARCHAR"
        for value in ("n", "s", "f")
    },
    "json_group_object(k, s)": "json_group_object(k, s)",
    "JSON_ARRAYAGG(n)": "to_json(list(n ORDER BY n) FILTER (WHERE n IS NOT NULL))::VARCHAR",
    "JSON_ARRAYAGG(s ORDER BY n DESC, s NULL ON NULL)": (
        "to_json(list(s ORDER BY n DESC, s))::VARCHAR"
    ),
    "JSON_OBJECTAGG(k VALUE n)": "json_group_object(k, n)",
    "json_group_array(s) FILTER (WHERE n > 1)": (
        "to_json(list(s ORDER BY s) FILTER (WHERE n > 1))::VARCHAR"
    ),
    "json_group_array(json_object('a', n))": (
        "to_json(list({'a': n} ORDER BY {'a': n}::VARCHAR))::VARCHAR"
    ),
}


def test_aggregates_of_json_are_those_of_duckdb_after_every_step():
    """Group by g, in which k is unique, so that objects have one order of their members."""
    random = np.random.default_rng(5)
    count = 24

    def with_nulls(values: list[object]) -> list[object]:
        return [None if random.random() < 0.2 else value for value in values]

    rows = pa.table(
        {
            "g": pa.array([number % 3 for number in range(count)], pa.int64()),
            "k": pa.array([f'k"{number // 3}' for number in range(count)]),
            "n": pa.array(with_nulls(random.integers(0, 4, count).tolist()), pa.int64()),
            "s": pa.array(with_nulls(["a", "B", 'q"', "ü"] * (count // 4))),
            "f": pa.array(with_nulls([0.5, 40.25, 2.0, -1.5] * (count // 4)), pa.float64()),
        }
    )
    mirror = Mirror({"t": rows})
    items = ", ".join(f"{call} AS v{number}" for number, call in enumerate(AGGREGATES))
    circuit = compile_sql(f"SELECT g, {items} FROM t GROUP BY g", {"t": rows.schema})
    objects = [i for i, text in enumerate(AGGREGATES.values()) if text.startswith("json_group")]
    expected = ", ".join(AGGREGATES.values())
    total: Counter[tuple[object, ...]] = Counter()
    for _ in range(6):
        present = mirror.present["t"]
        inserted = random.permutation(np.flatnonzero(~present))[:10]
        deleted = random.permutation(np.flatnonzero(present))[:5]
        delta = circuit.step(mirror.change({"t": (inserted, deleted)}))["view"]
        for row in delta.to_pylist():
            weight = row.pop("weight")
            total[tuple(row.values())] += weight
        answer = mirror.answer(f"SELECT g, {expected} FROM (FROM t ORDER BY k) GROUP BY g")
        # The members of DuckDB's objects are in the order in which its threads read the rows.
        assert _parse_objects(+total, objects) == _parse_objects(Counter(answer), objects)
        assert not -total


def _parse_objects(
    rows: Counter[tuple[object, ...]], columns: list[int]
) -> Counter[tuple[object, ...]]:
    """Return rows with the texts of objects as sorted members; column 0 is a number."""
    return Counter(
        {
            tuple(
                tuple(sorted(json.loads(value).items())) if number - 1 in columns else value
                for number, value in enumerate(row)
            ): weight
            for row, weight in rows.items()
        }
    )


def test_aggregates_of_json_of_no_rows_are_null_in_duckdb_and_empty_in_flink():
    calls = "JSON_ARRAYAGG(d), JSON_OBJECTAGG(KEY d VALUE d)"
    for dialect, values in (("duckdb", (None, None)), ("spark", ("[]", "{}"))):
        circuit = compile_sql(f"SELECT {calls} FROM t", SCHEMA, dialect=dialect)
        (row,) = circuit.step({})["view"].to_pylist()
        assert tuple(row.values()) == (*values, 1)


def test_a_null_key_of_a_json_object_is_an_error_that_names_the_call():
    circuit = compile_sql("SELECT json_group_object(d, 1) AS v FROM t", SCHEMA)
    with pytest.raises(EvaluationError, match=r"^a key of json_group_object\(\) is NULL; exclude"):
        circuit.step({"t": [{"d": None}]})


# A value, and what to_json() of Spark 4.3 answers for it; its session has the time zone UTC.
SPARK_JSON = [
    ("named_struct('a', 1e300, 'b', 1e7, 'c', 1e6)", '{"a":1.0E300,"b":1.0E7,"c":1000000.0}'),
    ("named_struct('a', CAST(0.1 AS FLOAT), 'b', CAST('nan' AS DOUBLE))", '{"a":0.1,"b":"NaN"}'),
    ("array(CAST(1.50 AS DECIMAL(20, 10)), 0.0000001)", "[1.5000000000,1.000E-7]"),
    ("array(TIMESTAMP '2020-01-02 03:04:05.123456')", '["2020-01-02T03:04:05.123Z"]'),
    ("named_struct('a', TIMESTAMP_NTZ '2020-01-02 03:04:05')", '{"a":"2020-01-02T03:04:05.000"}'),
    ("named_struct('a', DATE '0001-01-01', 'b', X'AB01')", '{"a":"0001-01-01","b":"qwE="}'),
    ("map(1.5D, 1)", '{"1.5":1}'),
    ("map(true, NULL)", '{"true":null}'),
    ("map(DATE '2020-01-01', 2)", '{"18262":2}'),
    ("array(named_struct('a', CAST(NULL AS INT)), NULL)", "[{},null]"),
    ("named_struct('a', named_struct('b', CAST(NULL AS INT)), 'c', NULL)", '{"a":{}}'),
]


@pytest.mark.parametrize(("value", "json_text"), SPARK_JSON)
def test_json_has_the_notation_of_spark_in_its_dialect(value, json_text):
    circuit = compile_sql(f"SELECT to_json({value}) AS j FROM t", {"t": "i INT"}, dialect="spark")
    view = circuit.step({"t": [{"i": 1}]})["view"]
    assert view["j"].to_pylist() == [json_text]


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_an_interval_is_no_json(dialect):
    value = "named_struct('a', INTERVAL '1' DAY)" if dialect == "spark" else "INTERVAL 1 DAY"
    with pytest.raises(SqlError, match="it takes no intervals"):
        compile_sql(f"SELECT to_json({value}) AS j", dialect=dialect)


SPARK_DOCUMENTS = [
    *('{"a":1,"a":2}', '{"a":null,"a":2}', '{"a":{"c":1},"a":{"b":2}}', '{"b":{"x":1,"x":2}}'),
    *("{'a':1}", "{'a':'x\"y'}", "{'b':{'x':'it\\'s'}}", '{"a":"x\ty"}', '{"a":[1],"a":[2,3]}'),
    *("{'a':'it\\\\'s'}", '{"a":1,"a":', "{'a': \"it's\"}", "['a', {'a': 1}]"),
]
SPARK_PATHS = ["$.a", "$.a.b", "$.b", "$.b.x", "$.a[1]", "$[1].a", "$"]


@pytest.mark.spark
def test_spark_reads_repeated_members_and_single_quotes(spark):
    calls = [f"get_json_object(j, '{path}')" for path in SPARK_PATHS]
    columns = ", ".join(f"{call} AS x{number}" for number, call in enumerate(calls))
    circuit = compile_sql(f"SELECT j, {columns} FROM t", {"t": "j STRING"}, dialect="spark")
    rows = [{"j": document} for document in SPARK_DOCUMENTS]
    frame = spark.createDataFrame([(document,) for document in SPARK_DOCUMENTS], ["j"])
    expected = {row["j"]: tuple(row)[1:] for row in frame.selectExpr("j", *calls).collect()}
    delta = circuit.step({"t": rows})["view"].to_pylist()
    assert {row["j"]: tuple(row.values())[1:-1] for row in delta} == expected
    retraction = circuit.step({"t": [{**row, "weight": -1} for row in rows]})["view"]
    assert retraction["weight"].to_pylist() == [-1] * len(rows)


def test_a_name_in_quotes_in_a_path_is_taken_as_it_is():
    document = '{"a[#-1]": 5, "b": {"x [#-1] \\\\" [#-2]": [6, 7]}}'.replace("\\\\", "\\")
    for path in ('$."a[#-1]"', '$."b"[#-1]', '$.b."none[#-1]"', '$."b"'):
        text = f"SELECT json_extract(d, '{path}') AS v FROM t"
        (row,) = compile_sql(text, SCHEMA).step({"t": [{"d": document}]})["view"].to_pylist()
        query = f"SELECT json_extract(d, '{path}')::VARCHAR FROM (SELECT $1 AS d)"
        assert [(row["v"],)] == DATABASE.execute(query, [document]).fetchall()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("json_valid()", r"line 1, column 8: json_valid\(\) takes a JSON text"),
        ("json_array_length()", r"line 1, column 8: json_array_length\(\) takes a JSON text"),
        ("json_array_length(d, 'a', 'b')", r"line 1, column 8: json_array_length\(\) takes"),
        ("d -> 1.5", r"line 1, column 13: the position 1.5 in a path"),
        ("d -> -1.5", r"line 1, column 14: the position 1.5 in a path"),
        ("json_extract(d, 1e3)", r"line 1, column 24: the position 1e3 in a path"),
        ("json_keys(d, 1.5)", r"line 1, column 21: the position 1.5 in a path"),
    ],
)
def test_malformed_calls_of_functions_of_json_give_their_position(expression, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(f"SELECT {expression} AS v FROM t", SCHEMA)


@pytest.mark.parametrize(
    "expression",
    [
        "d -> '$.a'",
        "d ->> 'a'",
        "json_extract(d, '$.*')",
        "json_type(d)",
        "json_keys(d)",
        "json_array_length(d)",
        "json_contains(d, '1')",
        "json_merge_patch(d, '{}')",
        "from_json(d, '[\"INT\"]')",
        "to_json(CASE WHEN false THEN '{}'::JSON ELSE d END)",
    ],
)
def test_a_text_that_is_no_json_is_an_error_as_in_duckdb(expression):
    with pytest.raises(duckdb.Error, match="Malformed JSON"):
        DATABASE.execute(f"SELECT {expression} FROM (VALUES ('{{')) t(d)").fetchall()
    with pytest.raises(EvaluationError, match="the text is no JSON"):
        values_of(expression, ["{"], "duckdb")
    valid = '{"a": 1}'
    assert values_of(f"TRY({expression})", ["{"], "duckdb") == [None]
    guarded = f"CASE WHEN json_valid(d) THEN to_json({expression}) END"
    oracle = DATABASE.execute(f"SELECT {guarded} FROM (VALUES ('{valid}')) t(d)").fetchall()
    assert values_of(guarded, ["{", valid], "duckdb") == [None, *oracle[0]]


HALF_PAIR = '"\\ud800"'
LONG_INTEGER = "1" + "0" * 5000
ODD_DOCUMENTS = {
    "json_valid(d)": [HALF_PAIR, '"\\ud83d\\ude00"', LONG_INTEGER, "12"],
    "json_type(d)": [LONG_INTEGER, str(2**64), str(2**64 - 1), str(-(2**63)), str(-(2**63) - 1)],
    "TRY(json_extract_string(d, '$[0]'))": [f"[{HALF_PAIR}]", f"[{LONG_INTEGER}]"],
    "TRY(json_extract(d, '$[0]'))": [f"[{HALF_PAIR}]", f"[{LONG_INTEGER}, 1]"],
    """from_json(d, '{"a": "DOUBLE"}')""": ['{"a": 1' + "0" * 400 + "}", '{"a": -1.5}'],
}


@pytest.mark.parametrize("expression", ODD_DOCUMENTS)
def test_long_integers_and_half_characters_are_those_of_duckdb(expression):
    documents = ODD_DOCUMENTS[expression]
    answers = [
        DATABASE.execute(f"SELECT {expression} FROM (SELECT ? AS d)", [document]).fetchone()[0]
        for document in documents
    ]
    assert values_of(expression, documents, "duckdb") == answers


def test_in_spark_half_a_character_is_null_and_a_time_may_be_beyond_the_year_9999():
    query = "get_json_object(d, '$.a')"
    assert values_of(query, ['{"a": "\\ud800"}', '{"a": "x"}']) == [None, "x"]
    seconds = 1_577_836_800_000
    query = "unix_seconds(from_json(d, 'a TIMESTAMP').a)"
    documents = [f'{{"a": {number}}}' for number in (seconds, 7, 10**30)]
    assert values_of(query, documents) == [seconds, 7, None]


@pytest.mark.parametrize(
    "value",
    [
        "TIMESTAMP '2020-01-01 00:00:00.5'",
        "TIMESTAMP '2020-01-01 00:00:00'",
        "TIME '00:00:00.120'",
        "TIMESTAMPTZ '2020-01-01 00:00:00.5+00'",
        "MAP {TIMESTAMP '2020-01-01 00:00:00.5': 1}",
    ],
)
def test_times_in_json_have_the_digits_of_duckdb(value):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        ((answer,),) = connection.execute(f"SELECT to_json({value})").fetchall()
    assert values_of(f"to_json({value})", ["{}"], "duckdb") == [answer]


def test_a_text_with_too_many_levels_is_not_called_invalid():
    document = "[" * 100_000 + "]" * 100_000
    with pytest.raises(EvaluationError, match="too many levels"):
        values_of("json_valid(d)", [document], "duckdb")
