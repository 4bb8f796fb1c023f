"""Values where Spark differs from DuckDB or from a first guess; Spark computed the answers.

A test marked spark asks Spark again, for each case.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from circuits import SqlError, compile_sql
from circuits.errors import EvaluationError

FAILS = "an error"
TEXT, INT, FLOAT, DOUBLE = pa.string(), pa.int32(), pa.float32(), pa.float64()
FIELD_F = pa.struct([("f", INT)])
ENTRIES = pa.list_(pa.struct([("k", TEXT), ("v", INT)]))
NAN, INFINITY = math.nan, math.inf
LAST_DAY, FIRST_DAY = dt.date(9999, 12, 31), dt.date(1, 1, 1)
LAST_TIME = dt.datetime(9999, 12, 31, 23, 59, 59, 500_000)


class Case(NamedTuple):
    """A query of one value over a table ``t``, and its answer for all rows; or for each row.

    Attributes:
        query: The query, or the expression of a query for each row.
        columns: The type and the values of each column.
        expected: The rows of the query; for an expression, its value for each row, or `FAILS`.
    """

    query: str
    columns: dict[str, tuple[pa.DataType, list[Any]]]
    expected: list[Any]

    def tables(self) -> list[pa.Table]:
        """Return the tables to run the query over."""
        arrays = {name: pa.array(values, type_) for name, (type_, values) in self.columns.items()}
        table = pa.table(arrays)
        if self.query.startswith("SELECT"):
            return [table]
        return [table.slice(row, 1) for row in range(len(table))]

    @property
    def text(self) -> str:
        is_query = self.query.startswith("SELECT")
        return self.query if is_query else f"SELECT {self.query} AS x FROM t"

    def answers(self) -> list[list[Any] | str]:
        """Return the rows for each of the tables, or `FAILS`."""
        if self.query.startswith("SELECT"):
            return [self.expected]
        return [FAILS if value == FAILS else [(value,)] for value in self.expected]


def decimals(precision: int, scale: int, *texts: str) -> tuple[pa.DataType, list[Any]]:
    return pa.decimal128(precision, scale), [Decimal(text) for text in texts]


THIRD = Decimal("1.33333333")
FRACTIONS = {"d": decimals(2, 2, "0.05", "-0.05")}
NUMBERS = {"k": (INT, [1, 2, 3])}
TWO_DECIMALS = {"d": decimals(5, 2, "9.5"), "e": decimals(38, 37, "0." + 37 * "3")}
PIVOTED_ROWS = {"g": (INT, [1, 2]), "k": (TEXT, ["x", "x"]), "v": (INT, [5, 6])}
CASES = [
    # In a PIVOT a count of no rows is NULL if all aggregates are numbers or booleans.
    Case(
        "SELECT * FROM t PIVOT (count(v) AS c, max(v) AS m FOR k IN ('x', 'z'))",
        PIVOTED_ROWS,
        [(1, 1, 5, None, None), (2, 1, 6, None, None)],
    ),
    Case(
        "SELECT * FROM t PIVOT (count(v) AS c, max(string(v)) AS m FOR k IN ('x', 'z'))",
        PIVOTED_ROWS,
        [(1, 1, "5", 0, None), (2, 1, "6", 0, None)],
    ),
    Case(
        "SELECT * FROM t PIVOT (count(v) AS c, collect_list(v) AS m FOR k IN ('x', 'z'))",
        PIVOTED_ROWS,
        [(1, 1, [5], 0, []), (2, 1, [6], 0, [])],
    ),
    Case(
        "SELECT g, `x`, `null` FROM t PIVOT (max(v) FOR k IN ('x', NULL))",
        PIVOTED_ROWS,
        [(1, 5, None), (2, 6, None)],
    ),
    Case(
        "SELECT `{1, x}`, `{2, x}` FROM t PIVOT (max(v) FOR (g, k) IN ((1, 'x'), (2, 'x')))",
        PIVOTED_ROWS,
        [(5, 6)],
    ),
    # Only the operation is tried, not its arguments, except of texts.
    Case("try_add(x / 0, 1)", {"x": (INT, [1, None])}, [FAILS, None]),
    Case("try_divide(1, CAST(s AS INT))", {"s": (TEXT, ["a", "0", "2"])}, [FAILS, None, 0.5]),
    Case("try_add(CAST(x AS INT), y / 0)", {"x": (INT, [None]), "y": (INT, [1])}, [None]),
    Case("try_subtract(s, x / 0)", {"s": (TEXT, ["1"]), "x": (INT, [1])}, [None]),
    Case("ceil(f)", {"f": (DOUBLE, [NAN, INFINITY, 1e30, 1.5])}, [0, FAILS, FAILS, 2]),
    Case("floor(f)", {"f": (FLOAT, [NAN, -INFINITY, -1e30, 1.5])}, [0, FAILS, FAILS, 1]),
    Case("timestamp_seconds(f)", {"f": (DOUBLE, [NAN, INFINITY])}, [None, None]),
    Case("sequence(d, d, INTERVAL 24 HOURS)", {"d": (pa.date32(), [FIRST_DAY])}, [[FIRST_DAY]]),
    Case("SELECT avg(d) FROM t", {"d": decimals(10, 4, "1", "1", "2")}, [(THIRD,)]),
    Case("SELECT avg(d) OVER () FROM t", {"d": decimals(10, 4, "1", "1", "2")}, [(THIRD,)] * 3),
    Case("SELECT try_avg(d) FROM t", {"d": decimals(10, 4, "1", "1", "2")}, [(THIRD,)]),
    Case("SELECT avg(d) FROM t", {"d": decimals(10, 4)}, [(None,)]),
    Case(
        "SELECT avg(d) FROM t",
        {"d": decimals(38, 38, "0.1", "0.1", "0.3")},
        [(Decimal("0.16666666666666666666666666666666666667"),)],
    ),
    # An outer column comes before an alias of the list in WHERE, not in HAVING.
    Case(
        "SELECT k FROM t WHERE EXISTS (SELECT i + 5 AS k FROM (SELECT k AS i FROM t) WHERE k = 2)",
        NUMBERS,
        [(2,)],
    ),
    Case(
        "SELECT k FROM t WHERE EXISTS (SELECT i, count(*) AS k FROM (SELECT k AS i FROM t)"
        " GROUP BY i HAVING k = 2)",
        NUMBERS,
        [],
    ),
    Case("SELECT k FROM t UNION SELECT k FROM t ORDER BY (1) DESC LIMIT 1", NUMBERS, [(3,)]),
    Case(
        "SELECT k, (SELECT count(*) FROM t u LATERAL VIEW explode(array(u.k, 2)) e AS x"
        " WHERE u.k = t.k), (SELECT sum(x) FROM t u LATERAL VIEW explode(array(u.k, 2)) e AS x)"
        " FROM t",
        NUMBERS,
        [(1, 2, 12), (2, 2, 12), (3, 2, 12)],
    ),
    Case(
        "SELECT size(a) FROM t ORDER BY ALL LIMIT 1",
        {"a": (pa.list_(INT), [[1, 2], [None]])},
        [(1,)],
    ),
    Case(
        "SELECT a FROM t ORDER BY ALL LIMIT 1",
        {"a": (pa.list_(INT), [[1, 2], [None]])},
        [([None],)],
    ),
    Case("to_json(STRUCT(a[0].f))", {"a": (pa.list_(FIELD_F), [[{"f": 1}]])}, ['{"f":1}']),
    Case("to_json(STRUCT(a[0]))", {"a": (pa.list_(INT), [[1]])}, ['{"col1":1}']),
    Case(
        "SELECT (SELECT max(s.f) FROM (SELECT s FROM t)) AS m FROM (SELECT s.f + 1 AS f FROM t) s",
        {"s": (FIELD_F, [{"f": 5}])},
        [(5,)],
    ),
    Case("CAST(d AS STRING)", FRACTIONS, ["0.05", "-0.05"]),
    Case("concat('x', 0.5, d)", FRACTIONS, ["x0.50.05", "x0.5-0.05"]),
    Case("CAST(array(d) AS STRING)", FRACTIONS, ["[0.05]", "[-0.05]"]),
    Case("CAST(map('a', d) AS STRING)", FRACTIONS, ["{a -> 0.05}", "{a -> -0.05}"]),
    Case("to_csv(struct(d))", FRACTIONS, ["0.05", "-0.05"]),
    Case("to_csv(struct(d))", {"d": decimals(10, 8, "0.00000001", "0.1")}, ["1E-8", "0.10000000"]),
    Case("CAST(d AS STRING)", {"d": decimals(38, 38, "0.5")}, ["0.5" + 37 * "0"]),
    Case(
        "TRY_CAST(s AS DECIMAL(10, 2))",
        {"s": (TEXT, ["1_000", "1.", "\x011\n", "1e3", "٣.٥", "\x7f1", "1d", "", None])},
        [
            *(None, Decimal("1.00"), Decimal("1.00"), Decimal("1000.00"), Decimal("3.50")),
            *(None, None, None, None),
        ],
    ),
    Case(
        "TRY_CAST(s AS DATE)",
        {"s": (TEXT, ["epoch", "1-1-1", "-12-1-1", "2024-01-01 10:60:00"])},
        [None, None, None, dt.date(2024, 1, 1)],
    ),
    Case(
        "TRY_CAST(s AS TIMESTAMP_NTZ)",
        {"s": (TEXT, ["epoch", "1-1-1", "2024-01-01 10:60:00", "2024-01-01 10:59:59"])},
        [None, None, None, dt.datetime(2024, 1, 1, 10, 59, 59)],
    ),
    Case(
        "CAST(x AS STRING)",
        {"x": (DOUBLE, [5e-324, 1e10, 1.25e-5])},
        ["4.9E-324", "1.0E10", "1.25E-5"],
    ),
    Case("CAST(x AS STRING)", {"x": (FLOAT, [1e-45, 1e10])}, ["1.4E-45", "1.0E10"]),
    Case("CAST(d AS INT)", {"d": decimals(38, 20, "0.99999999999999999999", "-1.5")}, [1, -1]),
    Case("CAST(d AS BIGINT)", {"d": decimals(38, 20, "0.99999999999999999999", "-1.5")}, [0, -1]),
    Case("CAST(s AS DECIMAL(10, 2))", {"s": (TEXT, ["1_000", ".5"])}, [FAILS, Decimal("0.50")]),
    Case("int(s)", {"s": (TEXT, ["1.5", " 2 "])}, [FAILS, 2]),
    Case("double(s)", {"s": (TEXT, ["1_000", "1.5d"])}, [FAILS, 1.5]),
    Case("decimal(s)", {"s": (TEXT, ["1_000", "2.5"])}, [FAILS, Decimal(3)]),
    Case("date(s)", {"s": (TEXT, ["2024", "infinity"])}, [dt.date(2024, 1, 1), FAILS]),
    Case("boolean(s)", {"s": (TEXT, [" true ", "on"])}, [True, FAILS]),
    Case("float(x)", {"x": (DOUBLE, [1e300, -1e300])}, [INFINITY, -INFINITY]),
    Case("CAST(timestamp(k) AS STRING)", NUMBERS, [f"1970-01-01 00:00:0{k}" for k in (1, 2, 3)]),
    Case("tinyint(x)", {"x": (DOUBLE, [2.7, -2.7, 128.0])}, [2, -2, FAILS]),
    Case(
        "SELECT k, rn, hash(rn), typeof(rn) FROM"
        " (SELECT k, row_number() OVER (ORDER BY k) AS rn FROM t) WHERE rn <= 2",
        NUMBERS,
        [(1, 1, -559580957, "int"), (2, 2, 1765031574, "int")],
    ),
    Case(
        "SELECT rn, rn + 1 AS m, typeof(rn) FROM"
        " (SELECT k, row_number() OVER (ORDER BY k) AS rn FROM t) WHERE rn = 2",
        NUMBERS,
        [(2, 3, "int")],
    ),
    Case(
        "SELECT rn, typeof(rn) FROM (SELECT row_number() OVER (ORDER BY k) AS rn FROM t)"
        " WHERE rn BETWEEN 2 AND 3",
        NUMBERS,
        [(2, "int"), (3, "int")],
    ),
    Case(
        "SELECT f > 0.2, count(*) OVER (ORDER BY f RANGE BETWEEN CURRENT ROW AND 0.2 FOLLOWING)"
        " FROM t",
        {"f": (FLOAT, [0.1, 0.3])},
        [(False, 2), (True, 1)],
    ),
    Case(
        "SELECT f > 0.2, count(*) OVER (ORDER BY f DESC RANGE BETWEEN 0.2 PRECEDING AND CURRENT"
        " ROW) FROM t",
        {"f": (FLOAT, [0.1, 0.3, None, 3e38, NAN])},
        [(False, 2), (True, 1), (None, 1), (True, 1), (True, 1)],
    ),
    *(
        Case(f"concat(typeof({value}), ' ', CAST({value} AS STRING))", TWO_DECIMALS, [answer])
        for value, answer in (
            ("CASE WHEN d > 1 THEN d ELSE 0 END", "decimal(12,2) 9.50"),
            ("coalesce(d, 0L)", "decimal(22,2) 9.50"),
            ("greatest(e, 0)", "decimal(38,28) 0." + 28 * "3"),
            ("coalesce(e, d)", "decimal(38,35) 0." + 35 * "3"),
            ("array(d, 1)[0]", "decimal(12,2) 9.50"),
            ("round(d)", "decimal(4,0) 10"),
            ("round(d, 1)", "decimal(5,1) 9.5"),
            ("bround(d, -1)", "decimal(4,0) 10"),
            ("nanvl(d, 1)", "double 9.5"),
        )
    ),
    Case("atan2(-0e0, x)", {"x": (DOUBLE, [-1.0, -0.0])}, [math.pi, 0.0]),
    Case("CAST(date_add(d, 1) AS STRING)", {"d": (pa.date32(), [LAST_DAY])}, ["+10000-01-01"]),
    Case("date_sub(d, 1) || ''", {"d": (pa.date32(), [FIRST_DAY])}, ["0000-12-31"]),
    Case("CAST(date_sub(d, 367) AS STRING)", {"d": (pa.date32(), [FIRST_DAY])}, ["-0001-12-31"]),
    Case(
        "CAST(array(date_add(d, 1)) AS STRING)",
        {"d": (pa.date32(), [LAST_DAY])},
        ["[+10000-01-01]"],
    ),
    Case(
        "CAST(m + INTERVAL 1 SECOND AS STRING)",
        {"m": (pa.timestamp("us", "UTC"), [LAST_TIME])},
        ["+10000-01-01 00:00:00.5"],
    ),
    Case(
        "CAST(m - INTERVAL 1 SECOND AS STRING)",
        {"m": (pa.timestamp("us"), [dt.datetime(1, 1, 1)])},
        ["0000-12-31 23:59:59"],
    ),
    Case("try_element_at(array(1, 2), k)", {"k": (INT, [0, -1, 3, None])}, [FAILS, 2, None, None]),
    Case("try_element_at(a, 0)", {"a": (pa.list_(INT), [[], None, [1]])}, [FAILS, None, FAILS]),
    Case("array_join(array(x, NULL), ',')", {"x": (DOUBLE, [1e16, 0.5])}, ["1.0E16", "0.5"]),
    Case("concat_ws(',', array(x), x)", {"x": (DOUBLE, [1e16])}, ["1.0E16,1.0E16"]),
    Case(
        "array_join(array(m), ',')",
        {"m": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1)])},
        ["2020-01-01 00:00:00"],
    ),
    Case("struct(s.f AS col1).col1", {"s": (FIELD_F, [{"f": 1}])}, [1]),
    Case("to_json(struct(s.f, s.f + 1))", {"s": (FIELD_F, [{"f": 1}])}, ['{"f":1,"col2":2}']),
    *(
        Case(
            f"{cast}(x AS DECIMAL(10, 2))",
            {"x": (type_, [NAN, INFINITY, -INFINITY, 1e10, None])},
            [None, None, None, answer, None],
        )
        for cast, answer in (("CAST", FAILS), ("TRY_CAST", None))
        for type_ in (FLOAT, DOUBLE)
    ),
    Case(
        "CAST(map_from_entries(a) AS STRING)",
        {"a": (ENTRIES, [[{"k": "a", "v": 1}, None], [{"k": "b", "v": 1}], None, []])},
        [None, "{b -> 1}", None, "{}"],
    ),
    Case(
        "CAST(make_date(y, m, 31) AS STRING)",
        {
            "y": (INT, [300_000, -300_000, 5_881_580, -(2**31) + 1, 5_881_580, 2020, 2020]),
            "m": (INT, [1, 1, 5, 1, 12, 13, 2]),
        },
        ["+300000-01-31", "-300000-01-31", "+5881580-05-31", *[FAILS] * 4],
    ),
    *(
        Case(
            f"CAST(s AS INTERVAL {fields}) > INTERVAL '1' SECOND",
            {"s": (TEXT, [valid, *invalid])},
            [True, *[FAILS] * len(invalid)],
        )
        for fields, valid, *invalid in (
            ("DAY TO SECOND", "1 23:59:59.5", "1 24:00:00", "1 01:60:00", "1 01:00:60"),
            ("HOUR TO MINUTE", "25:59", "25:60"),
            ("MINUTE TO SECOND", "100:59", "100:60"),
        )
    ),
    *(
        Case(f"format_string('{pattern}', x)", {"x": (type_, values)}, answers)
        for pattern, type_, values, answers in (
            ("%(010d", INT, [-5, 5], ["(00000005)", "0000000005"]),
            ("%(10d", INT, [-5], ["       (5)"]),
            ("%+010d", INT, [-5, 5], ["-000000005", "+000000005"]),
            ("%(,012d", INT, [-12345], ["(000012,345)"]),
            ("%(010.2f", DOUBLE, [-5.0], ["(00005.00)"]),
            ("%(x", INT, [-5], [FAILS]),
        )
    ),
]


def bounded(value: Any) -> Any:
    """Return a value in a form in which NaN equals itself."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def rows_here(text: str, table: pa.Table) -> list[tuple[Any, ...]] | str:
    circuit = compile_sql(text, {"t": table.schema}, dialect="spark")
    try:
        view = circuit.step({"t": table})["view"]
    except EvaluationError:
        return FAILS
    columns = [column.to_pylist() for column in view.drop_columns(["weight"]).columns]
    weights = view["weight"].to_pylist()
    rows = zip(*columns, weights, strict=True)
    return [tuple(map(bounded, row)) for *row, weight in rows for _ in range(weight)]


def as_sorted(rows: list[tuple[Any, ...]] | str) -> list[str] | str:
    return rows if isinstance(rows, str) else sorted(map(repr, rows))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.query)
def test_a_value_is_that_of_spark(case):
    for table, expected in zip(case.tables(), case.answers(), strict=True):
        assert as_sorted(rows_here(case.text, table)) == as_sorted(expected)


@pytest.mark.spark
def test_spark_gives_these_values(spark, tmp_path):
    # Spark refuses some values by exceptions of Java that PySpark does not convert.
    refusals = (
        pytest.importorskip("pyspark.errors").PySparkException,
        pytest.importorskip("py4j.protocol").Py4JJavaError,
    )
    for number, case in enumerate(CASES):
        for row, (table, expected) in enumerate(zip(case.tables(), case.answers(), strict=True)):
            path = f"{tmp_path}/{number}-{row}.parquet"
            parquet.write_table(table, path)
            spark.read.parquet(path).createOrReplaceTempView("t")
            try:
                columns = [column.to_pylist() for column in spark.sql(case.text).toArrow().columns]
                rows = [tuple(map(bounded, row)) for row in zip(*columns, strict=True)]
            except refusals:
                rows = FAILS
            assert as_sorted(rows) == as_sorted(expected), case.query


A_AND_B = {"a": pa.schema([("k", TEXT), ("x", INT)]), "b": pa.schema([("k", INT), ("y", INT)])}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("sequence(d, d, INTERVAL 12 HOURS)", "the step of a sequence of dates is a day or more"),
        ("sequence(d, d, INTERVAL -1 HOUR)", "the step of a sequence of dates is a day or more"),
        ("from_csv(s, 'a INT', map('sepp', ';'))", "the option sepp of CSV is not supported"),
        ("to_csv(struct(d), map('comment', '#'))", "the option comment of CSV is not supported"),
        ("schema_of_csv('1', map('sepp', ';'))", "the option sepp of CSV is not supported"),
    ],
)
def test_a_step_or_an_option_without_effect_is_refused(value, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(f"SELECT {value} FROM t", {"t": "d date, s string"}, dialect="spark")


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        ("a JOIN b USING (k)", [("1", 0, 0)]),
        ("a NATURAL JOIN b", [("1", 0, 0)]),
        ("a LEFT JOIN b USING (k)", [("1", 0, 0), ("2", 1, None)]),
        ("a RIGHT JOIN b USING (k)", [(1, 0, 0), (3, None, 1)]),
        ("a FULL JOIN b USING (k)", [(1, 0, 0), (2, 1, None), (3, None, 1)]),
        ("a LEFT SEMI JOIN b USING (k)", [("1", 0)]),
        ("a LEFT ANTI JOIN b USING (k)", [("2", 1)]),
    ],
)
def test_using_compares_a_text_with_a_number_as_spark_does(join, expected):
    text = f"SELECT * FROM {join}"
    circuit = compile_sql(text, A_AND_B, dialect="spark", materialize=True)
    circuit.step({"a": [{"k": "1", "x": 0}, {"k": "5", "x": 5}], "b": [{"k": 3, "y": 1}]})
    circuit.step({"a": [{"k": "2", "x": 1}], "b": [{"k": 1, "y": 0}]})
    circuit.step({"a": [{"k": "5", "x": 5, "weight": -1}]})
    rows = [tuple(row.values())[:-1] for row in circuit.views["view"].to_pylist()]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))


def test_a_position_in_group_by_is_a_whole_number_from_one_on():
    for key in ("1.5", "0"):
        with pytest.raises(SqlError, match="unknown column"):
            compile_sql(
                f"SELECT (SELECT max(k) FROM t) AS m, count(*) FROM t GROUP BY {key}",
                {"t": "k INT"},
                dialect="spark",
            )


def test_two_columns_with_one_bounded_row_number_are_equal():
    text = (
        "SELECT k, row_number() OVER (ORDER BY k) AS a, row_number() OVER (ORDER BY k) AS b"
        " FROM t QUALIFY a <= 2"
    )
    view = compile_sql(text, {"t": "k INT"}).step({"t": [{"k": 7}, {"k": 8}, {"k": 9}]})["view"]
    assert [tuple(row.values())[:-1] for row in view.to_pylist()] == [(7, 1, 1), (8, 2, 2)]


@pytest.mark.parametrize(("dialect", "count"), [("duckdb", 2), ("postgres", 1)])
def test_an_offset_is_added_to_a_float_in_the_type_of_the_system(dialect, count):
    table = pa.table({"f": pa.array([0.1, 0.3], FLOAT)})
    frame = "RANGE BETWEEN CURRENT ROW AND 0.2 FOLLOWING"
    text = f"SELECT f, count(*) OVER (ORDER BY f {frame}) AS n FROM t"
    view = compile_sql(text, {"t": table.schema}, dialect=dialect).step({"t": table})["view"]
    assert sorted(view["n"].to_pylist()) == [1, count]


@pytest.mark.parametrize("call", ["{}", "coalesce({}, 0)", "greatest({}, 0)"])
@pytest.mark.parametrize(
    ("dialect", "type_", "offset", "counts"),
    [
        ("postgres", INT, "n", [1, 2]),
        ("postgres", DOUBLE, "n / 5", [1, 1]),
        ("duckdb", DOUBLE, "n / 5", [1, 1]),
        ("duckdb", INT, "n", [1, 2]),
    ],
)
def test_an_offset_of_each_row_is_added_to_a_float(call, dialect, type_, offset, counts):
    count = f"count(*) OVER (ORDER BY f RANGE BETWEEN {offset} PRECEDING AND CURRENT ROW)"
    table = pa.table({"f": pa.array([0.1, 0.3], FLOAT), "n": pa.array([1, 1], type_)})
    text = f"SELECT f, {call.format(count)} AS x FROM t"
    view = compile_sql(text, {"t": table.schema}, dialect=dialect).step({"t": table})["view"]
    assert sorted(view["x"].to_pylist()) == counts


def test_an_infinite_offset_over_a_float_is_refused():
    text = "SELECT count(*) OVER (ORDER BY f RANGE BETWEEN 1e300D PRECEDING AND CURRENT ROW) FROM t"
    with pytest.raises(SqlError, match=r"offset 1e.300 over float"):
        compile_sql(text, {"t": "f FLOAT"}, dialect="spark")


def test_a_decimal_without_whole_digits_has_a_zero_as_a_text_in_postgres():
    table = pa.table({"d": pa.array([Decimal("-0.05")], pa.decimal128(2, 2))})
    for dialect, text in (("postgres", "-0.05"), ("duckdb", "-.05")):
        query = "SELECT CAST(d AS VARCHAR) AS x FROM t"
        circuit = compile_sql(query, {"t": table.schema}, dialect=dialect)
        assert circuit.step({"t": table})["view"]["x"].to_pylist() == [text]
