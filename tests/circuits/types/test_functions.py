"""Every function on tricky values of every type that it accepts, against DuckDB.

The settings of DuckDB make a division by zero NULL. A value for which DuckDB fails must fail here,
too: both sides are compared row by row, a failure counting as ``FAILS``. Where the module of a
function states a deviation, the case leaves it out and a test of its own pins it.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import EvaluationError, FunctionError
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.plan.nodes import Field
from circuits.runtime.evaluation import evaluate
from circuits.sql import plan_sql
from circuits.types import functions
from circuits.types.functions import FUNCTIONS, call
from circuits.types.functions.dates import interval_carries
from circuits.types.functions.nested import (
    histograms,
    json_conversion,
    json_edits,
    json_paths,
    json_texts,
    jsonb_texts,
    lambdas,
    list_aggregates,
    list_builders,
    list_combination,
    list_order,
    list_search,
    list_selection,
    list_sets,
    structs_and_maps,
    variants,
)
from circuits.types.functions.texts import enums
from tests.circuits.sql.test_scalar_functions import SCHEMA, expressions
from tests.generators.function_cases import (
    CASES,
    F32,
    F64,
    FAILS,
    IEEE,
    INF,
    NAN,
    SHARE,
    SIGNS,
    STAMP,
    TEXT,
    TEXTS,
    VALUES,
    WIDE,
    Case,
    D,
    cast_case,
    literal,
)

NESTED = (
    json_conversion,
    *(json_texts, lambdas, list_aggregates, list_builders, list_combination, list_order),
    *(list_search, list_selection, list_sets, structs_and_maps),
)


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        connection.execute("SET error_on_division_by_zero = false")
        connection.execute("SET ieee_floating_point_ops = false")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def table_of(types: Sequence[pa.DataType]) -> pa.Table:
    """All combinations of the tricky values of these types, in columns a, b, …"""
    rows = list(itertools.product(*(VALUES[each] for each in types)))
    arrays = [pa.array([row[i] for row in rows], each) for i, each in enumerate(types)]
    return pa.table(dict(zip("abc", arrays, strict=False)))


def by_duckdb(duck: Any, sql: str, table: pa.Table) -> list[Any]:
    """The value for each row, or FAILS."""
    numbered = table.append_column("n", pa.array(range(table.num_rows)))
    duck.register("numbered", numbered)
    try:
        return [row[0] for row in duck.execute(f"SELECT {sql} FROM numbered ORDER BY n").fetchall()]
    except duckdb.Error:
        if table.num_rows == 1:
            return [FAILS]
    half = table.num_rows // 2
    return by_duckdb(duck, sql, table[:half]) + by_duckdb(duck, sql, table[half:])


def by_evaluation(expression: Expression, table: pa.Table) -> list[Any]:
    try:
        result = evaluate(expression, [c.combine_chunks() for c in table.columns], table.num_rows)
    except EvaluationError:
        if table.num_rows == 1:
            return [FAILS]
        half = table.num_rows // 2
        return by_evaluation(expression, table[:half]) + by_evaluation(expression, table[half:])
    assert result.type == expression.type
    result.validate(full=True)
    values: list[Any] = result.to_pylist()
    return values


def agree(left: Any, right: Any) -> bool:
    if isinstance(left, dt.timedelta):
        left = left // dt.timedelta(microseconds=1)
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-14)
    return bool(left == right)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_function_agrees_with_duckdb_on_tricky_values(duck, case):
    table = table_of(case.types)
    duck.execute(f"SET ieee_floating_point_ops = {case.sql.startswith(IEEE)}")
    expected = by_duckdb(duck, case.sql, table)
    columns = [Column(i, data_type) for i, data_type in enumerate(case.types)]

    actual = by_evaluation(case.build(*columns), table)

    wrong = [
        (*row.values(), "ours", ours, "duckdb", theirs)
        for row, ours, theirs in zip(table.to_pylist(), actual, expected, strict=True)
        if not agree(ours, theirs)
    ]
    assert not wrong, wrong[:8]


@pytest.mark.parametrize("function", ["CAST", "TRY_CAST"])
@pytest.mark.parametrize("name", TEXTS)
def test_text_is_cast_as_in_duckdb(duck, name, function):
    target, texts = TEXTS[name]
    table = pa.table({"a": pa.array(texts, TEXT)})
    case = cast_case(TEXT, target, name, function)

    actual = by_evaluation(case.build(Column(0, TEXT)), table)

    expected = by_duckdb(duck, case.sql, table)
    pairs = zip(texts, actual, expected, strict=True)
    assert [pair for pair in pairs if not agree(*pair[1:])] == []


@pytest.mark.parametrize("data_type", [F64, F32, pa.float16()], ids=str)
def test_floats_compare_in_a_total_order(data_type):
    order = [-INF, -1.5, 0.0, 2.5, INF, NAN]
    pairs = list(itertools.product(range(6), repeat=2))
    columns = [pa.array([order[p[i]] for p in pairs], data_type) for i in (0, 1)]
    for name, sign in SIGNS.items():
        compared = evaluate(
            call(name, Column(0, data_type), Column(1, data_type)), columns, len(pairs)
        )
        ranks = {"=": "==", "<>": "!="}.get(sign, sign)
        assert compared.to_pylist() == [eval(f"{i} {ranks} {j}") for i, j in pairs]


@pytest.mark.parametrize("data_type", [pa.large_string(), pa.string_view()], ids=str)
def test_functions_take_texts_of_all_arrow_types(data_type):
    text = Column(0, data_type)
    columns = [pa.array(["häuser", None], data_type)]
    assert evaluate(call("upper", text), columns, 2).to_pylist() == ["HÄUSER", None]
    assert evaluate(call("lpad", text, literal(8)), columns, 2).to_pylist() == ["  häuser", None]
    assert evaluate(call("eq", text, literal("häuser")), columns, 2).to_pylist() == [True, None]
    assert evaluate(call("coalesce", text, literal("x")), columns, 2).to_pylist() == ["häuser", "x"]
    same = evaluate(text, columns, 2)
    assert same.type == data_type


@pytest.mark.parametrize("data_type", [pa.decimal32(9, 2), pa.decimal64(15, 2)], ids=str)
def test_functions_take_small_decimals(data_type):
    price, columns = Column(0, data_type), [pa.array([D("1.50"), None], data_type)]
    product = call("multiply", price, call("subtract", literal(1), price))
    assert evaluate(product, columns, 2).to_pylist() == [D("-0.7500"), None]
    assert evaluate(call("negate", price), columns, 2).to_pylist() == [D("-1.50"), None]
    assert evaluate(call("in", price, literal(D("1.5"))), columns, 2).to_pylist() == [True, None]


def test_timestamps_with_a_zone_are_read_by_its_clock():
    data_type = pa.timestamp("us", "Europe/Berlin")
    stamp, columns = Column(0, data_type), [pa.array([1_600_000_000_000_000, None], data_type)]

    def value(expression: Expression) -> Any:
        return evaluate(expression, columns, 2).to_pylist()[0]

    assert value(call("hour", stamp)) == 14  # 12:26:40 in Greenwich
    assert value(call("eq", stamp, literal("2020-09-13 14:26:40"))) is True
    assert value(call("eq", stamp, literal("2020-09-13 12:26:40Z"))) is True
    assert value(call("cast", stamp, type=TEXT)) == "2020-09-13 12:26:40+00"
    assert value(call("cast", stamp, type=STAMP)) == dt.datetime(2020, 9, 13, 14, 26, 40)
    # Over the end of summer time a day has 25 hours.
    later = call("date_add", stamp, literal(1), literal(20), literal(0))
    assert value(call("hour", later)) == 14
    assert value(call("date_diff", literal("day"), stamp, later)) == 50
    with pytest.raises(FunctionError, match="time zone"):
        call("lt", stamp, Column(1, STAMP))


def test_deviations_from_duckdb():
    def value(name: str, *values: Any) -> Any:
        folded = call(name, *map(literal, values))
        assert isinstance(folded, Literal)
        return folded.value

    assert value("int_divide", 7.5, 2) == 3.0
    assert value("modulo", -(2**63), -1) == 0
    assert value("concat", "a", "b") == "ab"
    assert call("concat", literal("a"), Literal(None, pa.null())).value is None
    assert call("round", Literal(None, SHARE), literal(-2)).value is None
    assert call("cast", literal(1e15), type=WIDE).value == D("1e15")


def test_a_full_match_with_look_around_matches_the_whole_text():
    matches = call("regexp_full_match", Column(0, pa.string()), literal("(?=a)ab"))
    assert evaluate(matches, [pa.array(["ab", "xab", "abc", None])], 4).to_pylist() == [
        True,
        False,
        False,
        None,
    ]


@pytest.mark.parametrize("digits", [-19, -20, -40])
def test_rounding_off_all_digits_of_an_integer_is_zero(digits):
    rounded = call("round", Column(0, pa.int64()), literal(digits))
    assert evaluate(rounded, [pa.array([5, -(2**60), None], pa.int64())], 3).to_pylist() == [
        0,
        0,
        None,
    ]


@pytest.mark.parametrize(("digits", "rounded"), [(400, 1.5), (-400, 0.0)])
def test_rounding_to_more_digits_than_a_number_has(digits, rounded):
    for value, data_type in ((1.5, pa.float64()), (D("1.5"), pa.decimal128(38, 1))):
        even = call("round_half_even", Column(0, data_type), literal(digits))
        assert evaluate(even, [pa.array([value, None], data_type)], 2).to_pylist() == [
            D(rounded) if isinstance(value, D) else rounded,
            None,
        ]


def test_dividing_by_zero_is_null():
    for name, zero in itertools.product(
        ("divide", "int_divide", "modulo"), (0, 0.0, -0.0, D("0.0"))
    ):
        assert call(name, literal(1), literal(zero)).value is None


def test_products_of_38_digits_are_exact():
    data_type = pa.decimal128(38, 0)
    product = call("multiply", Column(0, data_type), Column(1, data_type))
    wide, small = D("9" * 19), D("9" * 18)
    columns = [pa.array([wide, wide], data_type), pa.array([small, D(1)], data_type)]
    exact = D(int(wide) * int(small))
    assert evaluate(product, columns, 2).to_pylist() == [exact, wide]
    large = pa.array([wide * 10, D(0)], data_type)
    with pytest.raises(EvaluationError, match=r"#0 \* #1 has no value .* #0 = Decimal"):
        evaluate(product, [large, large], 2)
    with pytest.raises(FunctionError, match="cast a factor"):
        call("multiply", Column(0, pa.decimal128(38, 20)), Column(1, pa.decimal128(38, 20)))


def test_every_function_is_compared_with_duckdb_or_spark(monkeypatch):
    called = {name for case in CASES for name in _functions(case)}
    # `tests/circuits/sql/test_nested_sql.py` compares the functions of nested values.
    nested = {function.name for family in NESTED for function in family.FUNCTIONS}
    in_sql = _functions_in_sql(monkeypatch)
    # Neither engine has these two: their values are pinned below.
    pinned = {"similar_to", "try_make_date"}
    # `tests/circuits/sql/test_spark_answers.py` compares texts of decimals with Spark.
    pinned |= {"spark_decimal_text"}
    # `tests/circuits/sql/test_bitmap_aggregates.py` has the functions of lists of bitmaps.
    pinned |= {"bitmap_of_positions", "bitmap_or", "bitmap_and"}
    # `tests/circuits/sql/test_flink_functions.py` has the functions of Flink.
    pinned |= {"round_to_zero", "round_text_to_zero"}
    # `tests/circuits/sql/test_interval_values.py` compares intervals with DuckDB and Spark.
    pinned |= {"age", "interval_key", "normalized_interval", "parse_interval"}
    # `tests/circuits/sql/test_nested_texts.py` compares the texts of nested values with DuckDB.
    pinned |= {"nested_text", "nested_of_text"}
    # `tests/circuits/sql/test_postgres_dialects.py` compares series of times with DuckDB.
    pinned |= {"time_series", "time_series_before"}
    # `tests/circuits/sql/test_postgres_values.py` compares these functions with PostgreSQL.
    pinned |= {"get_byte", "postgres_bytes", "postgres_bytes_text"}
    pinned |= {"postgres_float", "postgres_list", "postgres_list_text", "postgres_to_char"}
    pinned |= {function.name for function in interval_carries.FUNCTIONS}
    # `tests/circuits/sql/test_function_templates.py` compares UUIDs with DuckDB.
    pinned |= {"uuid_text"}
    # `tests/circuits/sql/test_function_templates.py` compares histograms with bins with DuckDB.
    pinned |= {function.name for function in histograms.FUNCTIONS}
    pinned |= {function.name for function in jsonb_texts.FUNCTIONS}
    # The test of PostgreSQL's values has its operators of JSON, the next one the others.
    pinned |= {function.name for function in json_edits.FUNCTIONS}
    # `tests/circuits/sql/test_json_queries.py` has the JSON of Spark, and paths with wildcards.
    pinned |= {"to_json_without_null", *(function.name for function in json_paths.FUNCTIONS)}
    # `tests/circuits/sql/test_enums.py` compares ENUM with DuckDB and PostgreSQL.
    pinned |= {function.name for function in enums.FUNCTIONS}
    # `tests/circuits/sql/test_variants.py` compares VARIANT with Spark.
    pinned |= {function.name for function in variants.FUNCTIONS}
    assert set(FUNCTIONS) - called - {"cast", "if"} - nested - in_sql - pinned == set()


@pytest.mark.parametrize(
    ("expression", "dialect", "expected"),
    [
        ("s SIMILAR TO 'a%(b|c)_'", "postgres", [True, False, None]),
        ("try_make_date(2020, i, 29)", "spark", [dt.date(2020, 2, 29), None, None]),
    ],
)
def test_functions_that_neither_engine_has(expression, dialect, expected):
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("i", pa.int64())])
    rows = pa.table([[1, 2, 3], ["axbd", "axd", None], [2, 13, None]], schema=schema)
    circuit = compile_sql(f"SELECT k, {expression} AS n FROM t", {"t": schema}, dialect=dialect)
    view = circuit.step({"t": rows})["view"].sort_by("k")

    assert view["n"].to_pylist() == expected


def _functions_in_sql(monkeypatch) -> set[str]:
    """The functions called by the SQL of `tests/circuits/sql/test_scalar_functions.py`.

    The calls are recorded while the SQL is read, before calls of constants become their values.
    """
    called = set()

    def record(name: str, *arguments: Expression, **options: Any) -> Expression:
        called.add(name)
        return call(name, *arguments, **options)

    monkeypatch.setattr(functions, "call", record)
    relations = {"t": tuple(Field(field.name, field.type) for field in SCHEMA)}
    for dialect in ("duckdb", "spark"):
        columns = ", ".join(f"{text} AS x{i}" for i, text in enumerate(expressions(dialect)))
        plan_sql(f"SELECT {columns} FROM t", relations, dialect=dialect)
    return called


def _functions(case: Case) -> set[str]:
    def names(expression: Expression) -> set[str]:
        if not isinstance(expression, Call):
            return set()
        return {expression.function}.union(*map(names, expression.arguments))

    built = names(case.build(*(Column(i, data_type) for i, data_type in enumerate(case.types))))
    return built | ({"nullif"} if case.sql.startswith("nullif") else set())
