"""Lists, structs, maps, JSON and UNNEST, maintained, against DuckDB and Spark."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, time, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import (
    Circuit,
    EvaluationError,
    InputOptions,
    Retention,
    UnsupportedSqlError,
    compile_sql,
)
from circuits.errors import SqlError
from circuits.plan.expressions import Call, Expression, Literal
from circuits.types.functions.nested import (
    json_conversion,
    json_texts,
    lambdas,
    list_aggregates,
    list_builders,
    list_combination,
    list_order,
    list_search,
    list_selection,
    list_sets,
    structs_and_maps,
    vectors,
)
from tests.generators.nested_queries import (
    DUCKDB_QUERIES,
    RECURSIVE_QUERIES,
    ROWS,
    SPARK_QUERIES,
)
from tests.oracles.shared_duckdb import connect_to_new_schema

FAMILIES = (
    json_conversion,
    *(json_texts, lambdas, list_aggregates, list_builders, list_combination, list_order),
    *(list_search, list_selection, list_sets, structs_and_maps, vectors),
)
ARROW_LAMBDAS = "SET lambda_syntax = 'ENABLE_SINGLE_ARROW'"


def hashable(value: Any) -> Any:
    """Return lists as tuples, and structs and maps as tuples of their entries."""
    if isinstance(value, dict):
        return tuple((name, hashable(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    return value


def sorted_maps(value: Any, type: pa.DataType) -> Any:
    """Return a value with the entries of its maps sorted; Spark's maps have no order in Python."""
    if value is None:
        return None
    if pa.types.is_map(type):
        return tuple(sorted((key, hashable(item)) for key, item in dict(value).items()))
    return hashable(value)


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    names = [name for name in table.column_names if name != "weight"]
    weights = table.column("weight").to_pylist() if "weight" in table.column_names else None
    columns = [table.column(place) for place in range(len(names))]
    total: Counter[tuple[Any, ...]] = Counter()
    values = [map(hashable, column.to_pylist()) for column in columns]
    for row, weight in zip(zip(*values, strict=True), weights or [1] * len(table), strict=True):
        total[row] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def steps(seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the numbers of the rows that each step inserts and deletes; the last leaves none."""
    random = np.random.default_rng(seed)
    present = np.zeros(len(ROWS), bool)
    changes = []
    for share in (0.7, 0.5, 0.5):
        chosen = random.random(len(ROWS)) < share
        changes.append((np.flatnonzero(chosen & ~present), np.flatnonzero(chosen & present)))
        present ^= chosen
    changes.append((np.flatnonzero(~present), np.array([], int)))
    changes.append((np.array([], int), np.arange(len(ROWS))))
    return changes


def check(query: str, seed: int, oracle: str = "") -> None:
    """Maintain a view, and compare the sum of its deltas with DuckDB after every step.

    Args:
        query: The view.
        seed: The seed of the steps.
        oracle: What DuckDB computes, unless it is the same query.
    """
    circuit = compile_sql(f"CREATE VIEW v AS {query}", {"t": ROWS.schema})
    database = connect_to_new_schema()
    present, total = np.zeros(len(ROWS), bool), Counter[tuple[Any, ...]]()
    for inserted, deleted in steps(seed):
        present[inserted], present[deleted] = True, False
        rows = ROWS.take(np.concatenate([inserted, deleted]))
        weights = np.repeat([1, -1], [len(inserted), len(deleted)])
        delta = circuit.step({"t": rows.append_column("weight", pa.array(weights, pa.int64()))})
        total.update(rows_of(delta["v"]))
        total = Counter({row: weight for row, weight in total.items() if weight})
        database.register("now", ROWS.filter(pa.array(present)))
        database.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM now")
        assert total == rows_of(database.sql(oracle or query).to_arrow_table()), query


@pytest.mark.parametrize("query", DUCKDB_QUERIES)
def test_a_view_is_duckdbs_answer_after_every_step(query):
    check(query, seed=len(query))


# The elements of the first column have two fields, and are also NULL.
PAIRS = "(SELECT id, list_transform(a, lambda v: CASE WHEN v > 1 THEN {'v': v, 'w': id} END) AS a"
PAIRS += " FROM t) AS p"


@pytest.mark.parametrize(
    ("query", "oracle"),
    [
        (
            f"SELECT id, u.v, x FROM {PAIRS}, UNNEST(p.a) AS u(v, x)",
            f"SELECT id, u.s.v, u.s.w FROM {PAIRS}, UNNEST(p.a) AS u(s)",
        ),
        (
            f"SELECT id, x, y, n FROM {PAIRS}, UNNEST(p.a) WITH ORDINALITY AS u(x, y, n)",
            f"SELECT id, u.s.v, u.s.w, n FROM {PAIRS}, UNNEST(p.a) WITH ORDINALITY AS u(s, n)",
        ),
        (
            f"SELECT id, x, y FROM {PAIRS} LEFT JOIN UNNEST(p.a) AS u(x, y) ON TRUE",
            f"SELECT id, u.s.v, u.s.w FROM {PAIRS} LEFT JOIN UNNEST(p.a) AS u(s) ON TRUE",
        ),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_an_alias_of_unnest_may_name_each_field_of_the_elements(query, oracle, seed):
    check(query, seed, oracle)


@pytest.mark.parametrize("query", RECURSIVE_QUERIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_recursion_over_lists_is_duckdbs_answer_after_every_step(query, seed):
    check(query, seed)


@pytest.mark.spark
def test_a_view_in_dialect_spark_is_sparks_answer(spark, tmp_path):
    # Spark cannot read some NULLs inside nested Arrow columns; it can read them from Parquet.
    parquet.write_table(ROWS, tmp_path / "t.parquet")
    spark.read.parquet(str(tmp_path / "t.parquet")).createOrReplaceTempView("t")
    for query in SPARK_QUERIES:
        circuit = compile_sql(f"CREATE VIEW v AS {query}", {"t": ROWS.schema}, dialect="spark")
        delta = circuit.step({"t": ROWS})["v"]
        expected = spark.sql(query).toArrow()
        assert comparable(delta) == comparable(expected), query
        removed = ROWS.append_column("weight", pa.array([-1] * len(ROWS), pa.int64()))
        remaining = Counter(rows_of(delta))
        remaining.update(rows_of(circuit.step({"t": removed})["v"]))
        assert not any(remaining.values()), query


def comparable(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return the rows with their weights, with sorted maps."""
    rows: Counter[tuple[Any, ...]] = Counter()
    names = [name for name in table.column_names if name != "weight"]
    weights = table.column("weight").to_pylist() if "weight" in table.column_names else None
    types = [table.schema.field(place).type for place in range(len(names))]
    columns = [table.column(place).to_pylist() for place in range(len(names))]
    for number, row in enumerate(zip(*columns, strict=True)):
        key = tuple(sorted_maps(value, type) for value, type in zip(row, types, strict=True))
        rows[key] += 1 if weights is None else weights[number]
    return rows


def called_functions(circuit: Circuit) -> set[str]:
    names: set[str] = set()

    def visit(expression: Expression) -> None:
        if isinstance(expression, Call):
            names.add(expression.function)
            for argument in expression.arguments:
                visit(argument)
        elif isinstance(expression, Literal) and isinstance(expression.value, Call):
            visit(expression.value)

    for node in circuit.graph.nodes:
        for expression in getattr(node.plan, "expressions", ()):
            visit(expression)
        predicate = getattr(node.plan, "predicate", None)
        if predicate is not None:
            visit(predicate)
    return names


def test_every_function_of_nested_values_is_compared_with_an_oracle():
    called: set[str] = set()
    for query in DUCKDB_QUERIES:
        called |= called_functions(compile_sql(f"CREATE VIEW v AS {query}", {"t": ROWS.schema}))
    for query in SPARK_QUERIES:
        circuit = compile_sql(f"CREATE VIEW v AS {query}", {"t": ROWS.schema}, dialect="spark")
        called |= called_functions(circuit)
    names = {function.name for family in FAMILIES for function in family.FUNCTIONS}
    tested_below = {"list_element_strict"}  # its errors
    tested_in_json_queries = {"json_kind", "json_scalar"}
    tested_in_json_columns = {"as_json", "json_of_text"}
    tested_in_function_templates = {"json_elements", "json_members"}
    # Those of PostgreSQL and Spark: `test_postgres_values.py`, `test_json_queries.py` and
    # `test_json_conversion.py`.
    of_others = {name for name in names if name.startswith(("last_", "spark_"))}
    tested_in_json_conversion = {"cast_json", "try_cast_json"}
    tested_elsewhere = tested_below | tested_in_json_queries | tested_in_function_templates
    tested_elsewhere |= tested_in_json_columns | tested_in_json_conversion
    assert names - called - tested_elsewhere - of_others == set()


@pytest.mark.parametrize(
    ("query", "dialect", "words"),
    [
        ("SELECT id FROM t WHERE unnest(a) = 1", "duckdb", "unnest.. or explode.. in WHERE"),
        ("SELECT max(unnest(a)) FROM t", "duckdb", "use it in FROM"),
        ("SELECT * FROM t, unnest(id) AS u(x)", "duckdb", "takes a list or a map, not a value"),
        ("SELECT * FROM t RIGHT JOIN unnest([1]) AS u(x) ON true", "duckdb", "CROSS JOIN or LEFT"),
        ("SELECT explode(a), explode(b) FROM t", "spark", "in one SELECT list"),
        (
            "SELECT i.* FROM t, LATERAL inline([s]) WITH ORDINALITY AS i",
            "duckdb",
            r"inline.* WITH ORDINALITY is not supported",
        ),
        (
            "SELECT i.* FROM t, LATERAL posexplode(a) WITH ORDINALITY AS i",
            "spark",
            r"posexplode.* WITH ORDINALITY is not supported",
        ),
        (
            "SELECT i.* FROM t, LATERAL json_tuple('{}', 'a') WITH ORDINALITY AS i",
            "spark",
            r"json_tuple.* WITH ORDINALITY is not supported",
        ),
        (
            "SELECT i.* FROM t, LATERAL (SELECT unnest(a)) WITH ORDINALITY AS i",
            "duckdb",
            "WITH ORDINALITY is not supported",
        ),
        ("SELECT s.z FROM t", "duckdb", "no field 'z'; the struct has: x, y"),
        ("SELECT id.z FROM t", "duckdb", "has no fields"),
        ("SELECT zz.y FROM t", "duckdb", "unknown table 'zz'"),
        ("SELECT id[1] FROM t", "duckdb", "a subscript of a value of type int64"),
        ("SELECT list_sum(w) FROM t", "duckdb", "it takes a list of numbers"),
        (
            "SELECT list_transform(a, lambda x, y, z: x) FROM t",
            "duckdb",
            "a lambda of 3 parameters",
        ),
        ("SELECT list_filter(a, lambda x: x + 1) FROM t", "duckdb", "needs a condition"),
        ("SELECT j->k FROM t, (SELECT 'a' AS k) AS q", "duckdb", "a path that is not constant"),
        ("SELECT get_json_object(j, '$.*.k') FROM t", "spark", "the path \\.\\*"),
        ("SELECT from_json(j, t) FROM t", "spark", "a schema or a path that is not a literal"),
        ("SELECT max(m) FROM t", "spark", r"max\(\) of a map"),
        ("SELECT sort_array(n) FROM t", "spark", "the order of a list"),
        ("SELECT m FROM t GROUP BY m", "spark", "GROUP BY of a map"),
        ("SELECT m < m FROM t", "duckdb", "maps have no order"),
        ("SELECT a + 1 FROM t", "duckdb", "add"),
        ("SELECT CAST(a AS INT) FROM t", "duckdb", "cannot be cast to int32"),
        ("SELECT [1, 'x'] FROM t", "duckdb", "x"),
        ("SELECT sum(a) FROM t", "duckdb", "takes numbers"),
    ],
)
def test_an_unsupported_construct_is_named_with_its_place(query, dialect, words):
    with pytest.raises((SqlError, UnsupportedSqlError), match=words) as error:
        compile_sql(query, {"t": ROWS.schema}, dialect=dialect)
    assert "line 1, column" in str(error.value)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("a[7]", "position 7 of a list with 3 elements"),
        ("element_at(a, 7)", "position 7 of a list with 3 elements"),
        ("map_from_arrays(array('k', 'k'), array(1, 2))", "key k occurs twice in a map"),
        ("map_from_arrays(array('k'), array(1, 2))", "1 keys and 2 values"),
        ("map(y, 1)", "a key of a map is NULL"),
        ("slice(a, 0, 1)", "position 0 of a slice"),
        ("sequence(1, 5, -1)", "the step does not lead"),
    ],
)
def test_a_value_that_spark_refuses_fails_the_step(expression, words):
    query = f"SELECT {expression} FROM (SELECT a, s.y AS y FROM t)"
    circuit = compile_sql(query, {"t": ROWS.schema}, dialect="spark")
    first = ROWS.slice(0, 1)
    if "y" in expression:
        first = ROWS.slice(3, 1)
    with pytest.raises(EvaluationError, match=words):
        circuit.step({"t": first})


def test_the_values_of_a_row_may_be_lists_and_dicts_of_python():
    types = "id BIGINT, tags VARCHAR[], at STRUCT<x: INT, y: INT>, n MAP<STRING, BIGINT>"
    circuit = compile_sql("CREATE VIEW v AS SELECT * FROM r", {"r": types})
    row = {"id": 1, "tags": ["a", None], "at": {"x": 1, "y": None}, "n": {"k": 5}}
    (result,) = circuit.step({"r": [row]})["v"].to_pylist()
    assert result == {**row, "n": [("k", 5)], "weight": 1}
    assert circuit.step({"r": [{**row, "weight": -1}]})["v"].column("weight").to_pylist() == [-1]


def test_a_snapshot_keeps_nested_values():
    query = "CREATE VIEW v AS SELECT a, s, m, count(*) AS n, max(n) AS x FROM t GROUP BY a, s, m"
    first, second = (compile_sql(query, {"t": ROWS.schema}) for _ in range(2))
    first.step({"t": ROWS})
    second.restore(first.snapshot())
    removed = ROWS.append_column("weight", pa.array([-1] * len(ROWS), pa.int64()))
    for circuit in (first, second):
        delta = rows_of(circuit.step({"t": removed})["v"])
        assert set(delta.values()) == {-1} and len(delta) == 5


def test_an_input_whose_results_are_kept_may_be_unnested():
    text = """
        CREATE VIEW v AS SELECT at, x FROM e, unnest(a) AS u(x);
        CREATE VIEW w AS SELECT at, x, count(*) AS n FROM v GROUP BY at, x
    """
    options = InputOptions(retain=Retention("at", timedelta(hours=1), on_expiry="keep"))
    schemas = {"e": "at TIMESTAMP_NTZ, a BIGINT[]"}
    circuit = compile_sql(text, schemas, input_options={"e": options})
    row = {"at": datetime(2024, 1, 1), "a": [1, 1]}
    assert circuit.step({"e": [row]})["w"].column("n").to_pylist() == [2]
    assert "unnest" in circuit.explain()


@pytest.mark.parametrize("part", ["to_json([s])", "s::JSON", "(s -> '$.a')", "[(s -> '$.a')]"])
def test_json_as_the_argument_of_to_json_is_not_quoted(part):
    circuit = compile_sql(f"SELECT to_json({part}) AS j FROM t", {"t": "s string"})
    text = '{"a": {"b": 1}}'
    expected = duckdb.sql(f"SELECT to_json({part}) AS j FROM (SELECT '{text}' AS s)").fetchall()
    assert [(r["j"],) for r in circuit.step({"t": [{"s": text}]})["view"].to_pylist()] == expected


def test_an_infinite_date_as_json_is_an_error_of_its_row():
    circuit = compile_sql("SELECT to_json(d) AS j FROM t", {"t": "d DATE"})
    infinite = pa.table({"d": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())})
    with pytest.raises(EvaluationError, match="outside of the years"):
        circuit.step({"t": infinite})


@pytest.mark.parametrize("values", ["1.11, 2.00", "-1.11, -1.12, 0.00, 0.01", "2.00, 3.35, NULL"])
def test_the_median_of_a_list_of_decimals_is_the_decimal_of_duckdb(values):
    text = f"SELECT list_median([{values}]::DECIMAL(10, 2)[]) AS m"
    (expected,) = duckdb.sql(text).fetchall()
    (row,) = compile_sql(text, {}).step({})["view"].to_pylist()
    assert repr(row["m"]) == repr(expected[0])


#: Lists by the type of their elements.
AGGREGATED_LISTS = {
    "DATE": ["'2020-01-01'", "'2020-01-03', '2020-01-04'", "'1969-12-31', NULL, '1970-01-02'"],
    "TIMESTAMP": [
        "'2020-01-01', '2020-01-03 00:00:00.000001'",
        "'1969-12-31 23:59:59.999997', '1970-01-01'",
    ],
    "TIMESTAMPTZ": ["'2020-01-01 00:00:00+00', '2020-01-02 00:00:00.000001+00'"],
    "TIME": ["'01:00:00', '02:00:00.000001'", "'01:00:00', '03:00:00', '02:00:00'"],
    "DOUBLE": [
        "'1', 'inf', 'inf'",
        "'-inf', 'inf'",
        "-1.7e308, 1.7e308",
        "5e-324, 5e-324",
        "0.1, 0.2",
    ],
    "FLOAT": ["0.1, 0.2", "3e38, 3.2e38"],
    "INT": ["1, 2", "NULL", ""],
}


@pytest.mark.parametrize("type_", AGGREGATED_LISTS)
def test_the_median_of_a_list_is_that_of_duckdb(type_):
    calls = [f"list_median([{elements}]::{type_}[])" for elements in AGGREGATED_LISTS[type_]]
    columns = (f"{call}::VARCHAR AS v{i}, typeof({call}) AS t{i}" for i, call in enumerate(calls))
    text = f"SELECT {', '.join(columns)}"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        (expected,) = connection.execute(text).fetchall()
    (row,) = compile_sql(text, {}).step({})["view"].to_pylist()
    assert list(row.values())[:-1] == [value and value.replace("-nan", "nan") for value in expected]


@pytest.mark.parametrize(
    "elements",
    [
        "9007199254740993, 1, -9007199254740993",
        "9223372036854775807, 9223372036854775807, -1, NULL",
        "-9223372036854775807, 9223372036854775806, 0",
        "0.1, 0.2, 0.4",
        "1234567890123456789012.5::DECIMAL(38, 5), 0.00001, -1234567890123456789012.5",
    ],
)
def test_the_mean_of_a_list_has_an_exact_sum_as_in_duckdb(elements):
    text = f"SELECT list_avg([{elements}]) AS m"
    ((expected,),) = duckdb.sql(text).fetchall()
    (row,) = compile_sql(text, {}).step({})["view"].to_pylist()
    assert row["m"] == expected


@settings(max_examples=50)
@given(
    st.lists(
        st.none()
        | st.lists(
            st.none() | st.sampled_from([0, 1, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**62)])
        ),
        min_size=1,
        max_size=4,
    )
)
def test_means_of_lists_of_integers_are_those_of_exact_sums(lists):
    circuit = compile_sql("SELECT i, list_avg(l) AS m FROM t", {"t": "i INT, l BIGINT[]"})
    rows = circuit.step({"t": [{"i": i, "l": part} for i, part in enumerate(lists)]})["view"]
    means = {row["i"]: row["m"] for row in rows.to_pylist()}
    for i, part in enumerate(lists):
        numbers = [number for number in part or () if number is not None]
        exact = float(sum(numbers)) / len(numbers) if numbers else None
        assert means[i] == exact


def test_the_median_deviation_of_times_is_that_of_duckdb():
    days = ("2020-01-01", "2020-01-03", "2020-01-09", "2020-01-19")
    for type_ in ("DATE", "TIMESTAMP"):
        rows = ", ".join(f"({type_} '{day}')" for day in days)
        text = f"SELECT mad(x)::VARCHAR AS m FROM (VALUES {rows}) v(x)"
        ((expected,),) = duckdb.sql(text).fetchall()
        (row,) = compile_sql(text, {}).step({})["view"].to_pylist()
        assert row["m"] == expected


@pytest.mark.parametrize(
    "value",
    [
        "{'b': 'p', 'a': x}::STRUCT(a BIGINT, b VARCHAR)",
        "{'B': 'p', 'a': x}::STRUCT(a INT, b VARCHAR)",
        "[{'a': x, 'b': 'y'}, {'b': 'p', 'a': 2}]",
        "{'a': x, 'b': 2} = {'b': 2, 'a': x}",
        "{'a': [x], 'b': 2.5} = {'b': 2, 'a': [x]}",
        "coalesce({'a': x, 'n': {'p': 1, 'q': 'z'}}, {'n': {'q': 'y', 'p': 2}, 'a': 1})",
        "[{'a': x, 'b': 1}, {'b': 2.5, 'a': 3}]",
        "[{'n': {'p': 1, 'q': 'z'}}, {'n': {'q': 'y', 'p': x}}]",
    ],
)
def test_fields_of_structs_belong_together_by_their_names_as_in_duckdb(value):
    query = f"SELECT {value} AS r FROM t"
    circuit = compile_sql(query, {"t": "x bigint"})
    rows = circuit.step({"t": [{"x": 1}, {"x": None}, {"x": 2}, {"x": 2}]})["view"]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t AS FROM (VALUES (1), (NULL), (2), (2)) AS t (x)")
        expected = [row for (row,) in database.execute(query).fetchall()]
    found = [row["r"] for row in rows.to_pylist() for _ in range(row["weight"])]
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


def test_fields_of_unions_belong_together_by_their_names():
    query = "SELECT {'a': x, 'b': 'y'} AS r FROM t UNION ALL SELECT {'b': 'p', 'a': x} FROM t"
    circuit = compile_sql(query, {"t": "x bigint"})
    rows = circuit.step({"t": [{"x": 1}]})["view"].column("r").to_pylist()
    assert sorted(rows, key=str) == [{"a": 1, "b": "p"}, {"a": 1, "b": "y"}]


def test_spark_casts_structs_by_position_so_another_order_is_refused():
    query = (
        "SELECT CAST(named_struct('b', 'p', 'a', x) AS STRUCT<a: STRING, b: BIGINT>) AS r FROM t"
    )
    with pytest.raises(UnsupportedSqlError, match="which has the fields in another order"):
        compile_sql(query, {"t": "x bigint"}, dialect="spark")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT unnest(a, max_depth := 1) AS x FROM t",
        "SELECT unnest(a, recursive := false) AS x FROM t",
        "SELECT unnest(a, max_depth := 1) AS x, unnest([b, b], recursive := false) AS y FROM t",
        """SELECT unnest(a) AS x,
           (SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY b) AS n FROM t)) AS y FROM t""",
        "SELECT decode(unhex(s), 'replace') AS x FROM c",
    ],
)
def test_options_of_unnest_windows_of_subqueries_and_bytes_as_text_are_those_of_duckdb(query):
    bytes_of_texts = ["EFBFBDFF", "E28279", "78E282E282AC", "F09F98FFEDA080", "C3A4FF61", "FF61"]
    tables = {
        "t": pa.table({"a": [[[1, 2], [3]], [[4]]], "b": [1, 2]}),
        "c": pa.table({"s": bytes_of_texts}),
    }
    circuit = compile_sql(query, {name: table.schema for name, table in tables.items()})
    view = circuit.step(tables)["view"].to_pylist()
    database = connect_to_new_schema()
    for name, table in tables.items():
        database.register(name, table)
    answer = database.execute(query).fetchall()
    rows = [str(tuple(row.values())[:-1]) for row in view for _ in range(row["weight"])]
    assert sorted(rows) == sorted(map(str, answer))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM generate_series(5, 7) WITH ORDINALITY",
        "SELECT * FROM generate_series(5, 7) WITH ORDINALITY AS g",
        "SELECT g.v + 0 AS w, g.o FROM range(5, 7) WITH ORDINALITY AS g(v, o)",
        "SELECT t.b, g.* FROM t, generate_series(1, t.b) WITH ORDINALITY AS g(v)",
        "SELECT t.b, g.* FROM t CROSS JOIN LATERAL range(t.b) WITH ORDINALITY AS g(v, o)",
        "SELECT * FROM UNNEST([7, 8]) WITH ORDINALITY AS g",
    ],
)
def test_a_function_with_ordinality_has_the_names_and_rows_of_duckdb(query):
    table = pa.table({"b": [1, 3]})
    view = compile_sql(query, {"t": table.schema}, dialect="duckdb").step({"t": table})["view"]
    database = connect_to_new_schema()
    database.register("t", table)
    answer = database.sql(query)
    assert view.column_names[:-1] == answer.columns
    assert rows_of(view) == rows_of(answer.to_arrow_table())


def test_unnest_of_no_level_is_refused():
    with pytest.raises(SqlError, match=r"column 18: .*at least 1"):
        compile_sql("SELECT unnest(a, max_depth := 0) FROM t", {"t": "a BIGINT[]"})


def test_overlay_of_bytes_before_the_first_one_is_that_of_texts():
    parts = ["FROM 0", "FROM 0 FOR 3", "FROM 1", "FROM 3 FOR 0", "FROM 20"]
    items = ", ".join(
        f"overlay(s PLACING '_' {part}) AS t{i}, "
        f"CAST(overlay(encode(s, 'utf-8') PLACING X'5F' {part}) AS STRING) AS b{i}"
        for i, part in enumerate(parts)
    )
    circuit = compile_sql(f"SELECT {items} FROM t", {"t": "s STRING"}, dialect="spark")
    (row,) = circuit.step({"t": [{"s": "Spark SQL"}]})["view"].to_pylist()
    assert row["b0"] == "_Spark SQL"
    assert [row[f"b{i}"] for i in range(5)] == [row[f"t{i}"] for i in range(5)]


def test_the_mean_of_a_list_of_the_greatest_unsigned_integers_is_that_of_duckdb():
    text = f"SELECT list_avg(['{2**64 - 2}'::UBIGINT, 2::UBIGINT, NULL]) AS m"
    ((expected,),) = duckdb.sql(text).fetchall()
    (row,) = compile_sql(text, {}).step({})["view"].to_pylist()
    assert row["m"] == expected


def test_the_median_of_a_list_of_times_of_seconds_is_a_time_of_microseconds():
    schema = pa.schema([("l", pa.list_(pa.time32("s")))])
    circuit = compile_sql("SELECT list_median(l) AS m FROM t", {"t": schema})
    rows = pa.table({"l": pa.array([[1, 4, None]], pa.list_(pa.int32())).cast(schema[0].type)})
    (row,) = circuit.step({"t": rows})["view"].to_pylist()
    assert row["m"] == time(0, 0, 2, 500_000)
