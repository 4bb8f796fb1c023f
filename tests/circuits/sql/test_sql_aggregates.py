"""Maintained aggregates and grouping sets, against DuckDB recomputing after every step.

Rows are inserted and deleted, with NULLs and duplicates. Results of floats are compared with a
relative tolerance: this engine rounds exact sums, DuckDB adds floats one by one.
"""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import EvaluationError, SqlError
from dbsp_wcoj import WeightOverflowError
from tests.oracles.duckdb_mirror import Mirror

ROWS = 80
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.int32()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("c", pa.bool_()),
        ("t", pa.date32()),
    ]
)

STATISTICS = """
    var_pop(x), var_samp(a), variance(d), stddev_pop(x), stddev_samp(x), stddev(a),
    var_pop(DISTINCT a), stddev(x) FILTER (WHERE c), covar_pop(x, y), covar_samp(x, a), corr(x, y),
    regr_slope(y, x), regr_intercept(y, x), regr_r2(y, x), regr_count(y, x), regr_avgx(y, x),
    regr_avgy(y, x), regr_sxx(y, x), regr_syy(y, x), regr_sxy(y, x), corr(x, y) FILTER (WHERE c),
    kurtosis(a), kurtosis_pop(a), skewness(x), skewness(a), geomean(b + 1), fsum(x), favg(x),
    sem(x), mean(x), product(a), sum(a) * 2 + count(*) - var_pop(a), avg(t), avg(DISTINCT t),
    avg(t::TIMESTAMP + a * INTERVAL 1 MICROSECOND), mean(t) FILTER (WHERE c)
"""
BITS = """
    bool_and(c), bool_or(c), bool_and(a > 0) FILTER (WHERE c), bit_and(a), bit_or(a), bit_xor(a),
    bit_xor(DISTINCT b), bit_or(b), count_if(c), count_if(a > 2) FILTER (WHERE c),
    count(DISTINCT a), sum(DISTINCT a) FILTER (WHERE c), approx_count_distinct(a)
"""
ORDERED = """
    first(s ORDER BY b, a, x, y, s), last(s ORDER BY b, a, x, y, s),
    first(s ORDER BY b DESC, a, x, y, s), first(s ORDER BY b, a, x, y, s) FILTER (WHERE c),
    any_value(s ORDER BY b, a, x, y, s),
    max_by(a, a * 2), min_by(a, a * 2),
    string_agg(s, ',' ORDER BY s), string_agg(s, '' ORDER BY s DESC),
    string_agg(DISTINCT s, '-' ORDER BY s), string_agg(s, ',' ORDER BY b, a, x, y, s),
    string_agg(s, ',' ORDER BY s) FILTER (WHERE c), listagg(a, ';' ORDER BY a),
    group_concat(s ORDER BY s)
"""
QUANTILES = """
    median(a), median(x), median(d), median(t), median(s), quantile(a, 0.3), quantile_cont(x, 0.3),
    quantile_cont(d, 0.37), quantile_disc(x, 0.3), quantile_disc(s, 0.3),
    quantile_disc(DISTINCT a, 0.25), quantile_cont(DISTINCT a, 0.25) FILTER (WHERE c),
    percentile_cont(0.3) WITHIN GROUP (ORDER BY a),
    percentile_cont(0.3) WITHIN GROUP (ORDER BY a DESC),
    percentile_disc(0.3) WITHIN GROUP (ORDER BY a DESC),
    percentile_disc(0.9) WITHIN GROUP (ORDER BY t) FILTER (WHERE c),
    percentile_cont(1) WITHIN GROUP (ORDER BY x)
"""
ARRAYS = """
    array_agg(a ORDER BY a), array_agg(s ORDER BY b DESC, a, x, y, s), list(DISTINCT a ORDER BY a),
    array_agg(t ORDER BY t DESC) FILTER (WHERE c), len(list(x)), list_sort(list(d)),
    max(a, 3), min(x, 2) FILTER (WHERE c), max(DISTINCT s, 2)
"""
SETS = [
    "SELECT k, c, count(*), sum(a), grouping(k), grouping(k, c), grouping_id(c, k) FROM t "
    "GROUP BY ROLLUP (k, c)",
    "SELECT k, c, s, count(*), var_pop(a) FROM t GROUP BY CUBE (k, c, s)",
    "SELECT k, c, count(*) FROM t GROUP BY GROUPING SETS ((k, c), (k), (), ())",
    "SELECT k, c, s, count(*) FROM t GROUP BY k, ROLLUP (c, s)",
    "SELECT k, c, s, count(*) FROM t GROUP BY GROUPING SETS ((k, c)), CUBE (s)",
    "SELECT k, c, s, count(*) FROM t GROUP BY ROLLUP ((k, c), s)",
    "SELECT k, c, s, count(*) FROM t GROUP BY GROUPING SETS (ROLLUP (k, c), s)",
    "SELECT k + 1 AS kk, count(*) FROM t GROUP BY ROLLUP (kk)",
    "SELECT k, c, count(*) AS n FROM t GROUP BY ROLLUP (1, 2) HAVING count(*) > 2 AND "
    "grouping(k) = 0",
    "SELECT k, c, count(*) FROM t GROUP BY GROUPING SETS ((1, 2), (1), ((2)), ())",
    "SELECT k, s, sum(a) FROM t GROUP BY ALL",
    "SELECT k, count(*)::DOUBLE / sum(count(*)) OVER () AS share FROM t GROUP BY ALL",
    "SELECT k, sum(a > 1), sum(DISTINCT a > 1), sum(a > 1) FILTER (WHERE b > 0) FROM t GROUP BY k",
    "SELECT k, sum(a) AS n, n + 1 AS more, CASE WHEN n > 2 THEN 7 END AS c FROM t GROUP BY ALL",
    "SELECT k, count(*) AS n, n * 2 AS m FROM t GROUP BY ALL HAVING n > 2",
    "SELECT count(*), sum(a) FROM t GROUP BY ()",
    "SELECT k, count(*) FROM t WHERE a > 100 GROUP BY ROLLUP (k)",
    "SELECT k, grouping(k) FROM t GROUP BY k",
    "SELECT k, count(*) FROM t GROUP BY k HAVING k IN (SELECT a FROM t)",
    "SELECT k, count(*) FROM t o GROUP BY k HAVING EXISTS (SELECT 1 FROM t WHERE t.a = o.k)",
    "SELECT k, max(a) FROM t GROUP BY k HAVING max(a) NOT IN (SELECT b FROM t WHERE b IS NOT NULL)",
    "SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 3 OR k IN (SELECT b FROM t)",
    "SELECT k, sum(a) AS n FROM t GROUP BY k HAVING n >= ALL (SELECT a FROM t WHERE a IS NOT NULL)",
    "SELECT k, count(*) FROM t GROUP BY ROLLUP (k) HAVING k NOT IN (SELECT a FROM t WHERE a > 1)",
    "SELECT k, count(*), row_number() OVER (ORDER BY k) AS r FROM t GROUP BY k QUALIFY r <= 2",
    "SELECT k, grouping(k), row_number() OVER (ORDER BY grouping(k), k) AS r FROM t "
    "GROUP BY ROLLUP (k) QUALIFY r BETWEEN 2 AND 3",
]
SELECT_LISTS = (STATISTICS, BITS, ORDERED, QUANTILES, ARRAYS)
GROUPED = [f"SELECT k, {items} FROM t GROUP BY k" for items in SELECT_LISTS]
GROUPED.append("SELECT k, any_value(k), arg_max(k, x) FILTER (WHERE c) FROM t GROUP BY k")
ALL_ROWS = [f"SELECT {items} FROM t WHERE a > 6" for items in SELECT_LISTS]
TEXTS = ("a", "bb", "a longer text, with a common prefix 1", "a longer text, with a common 2")


def table(seed: int) -> pa.Table:
    """Return random rows with NULLs, of few values."""
    rng = random.Random(seed)

    def value(*values: Any) -> Any:
        return rng.choice([None, *values])

    rows = [
        (
            value(1, 2, 3),
            value(*range(-5, 9)),
            value(*range(50)),
            value(rng.random() * 10, 1.5, 1e6),
            value(rng.random() * 10, 2.5),
            value(Decimal(rng.randint(-500, 900)) / 100),
            value(*TEXTS),
            value(True, False),
            value(date(2024, 1, 1) + timedelta(days=rng.randint(0, 50))),
        )
        for _ in range(ROWS)
    ]
    columns = zip(zip(*rows, strict=True), SCHEMA, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in columns], schema=SCHEMA)


def sort_key(row: tuple[Any, ...]) -> list[tuple[bool, str]]:
    return [
        (value is None, f"{value:.6g}" if isinstance(value, float) else str(value)) for value in row
    ]


def is_close(actual: Any, expected: Any) -> bool:
    if isinstance(actual, float) and isinstance(expected, float):
        if math.isnan(expected):
            return math.isnan(actual)
        return math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-9)
    return bool(actual == expected)


@pytest.mark.parametrize("query", [*GROUPED, *ALL_ROWS, *SETS])
def test_an_aggregate_is_that_of_duckdb_after_every_step(query):
    circuit = compile_sql(f"CREATE VIEW v AS {query}", {"t": SCHEMA}, materialize=True)
    rows = table(len(query))
    mirror = Mirror({"t": rows})
    rng = random.Random(query)
    for _ in range(6):
        present = mirror.present["t"]
        inserted = [i for i in range(ROWS) if not present[i] and rng.random() < 0.5]
        deleted = [i for i in range(ROWS) if present[i] and rng.random() < 0.45]
        change = np.array(inserted, np.int64), np.array(deleted, np.int64)
        circuit.step(mirror.change({"t": change}))
        expected = sorted(mirror.answer(query), key=sort_key)
        view = circuit.views["v"]
        weights = view.column("weight").to_pylist() if "weight" in view.column_names else None
        actual_rows = list(zip(*(column.to_pylist() for column in view.columns), strict=True))
        if weights is not None:
            actual_rows = [row[:-1] for row in actual_rows for _ in range(row[-1])]
        actual = sorted(actual_rows, key=sort_key)
        assert len(actual) == len(expected)
        for row, expected_row in zip(actual, expected, strict=True):
            for column, values in enumerate(zip(row, expected_row, strict=True)):
                assert is_close(*values), (column, values)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT quantile_cont(x, 1.5) FROM t", "not from 0 to 1"),
        ("SELECT quantile_cont(x) FROM t", "needs"),
        ("SELECT first(a, true) FROM t", r"takes one argument; first(x) FILTER"),
        ("SELECT last(a, false) FROM t", r"takes one argument; last(x) FILTER"),
        ("SELECT geomean(a, b) FROM t", "takes one argument"),
        ("SELECT var_pop(s) FROM t", "cast its argument to a number"),
        ("SELECT bit_and(x) FROM t", "takes integers"),
        ("SELECT bool_and(s) FROM t", "needs a condition"),
        ("SELECT string_agg(DISTINCT s, ',' ORDER BY a) FROM t", "ordered by its arguments"),
        ("SELECT grouping(a) FROM t GROUP BY k", "not in GROUP BY"),
        ("SELECT k, grouping(k) FROM t", "needs a GROUP BY"),
        (
            "SELECT k FROM t GROUP BY k HAVING EXISTS (SELECT 1 FROM t u WHERE u.a = t.a)",
            "GROUP BY",
        ),
    ],
)
def test_an_error_of_an_aggregate_names_its_cause(query, words):
    with pytest.raises(SqlError) as caught:
        compile_sql(query, {"t": SCHEMA})
    assert words in str(caught.value)


def test_aggregates_have_their_names_and_results_of_spark():
    circuit = compile_sql(
        "CREATE VIEW v AS SELECT percentile(a, 0.5) AS p, percentile_approx(a, 0.5, 100) AS q, "
        "count_if(c) AS n, every(c) AS e, some(c) AS o, any(c) AS y, std(a) AS s, "
        "count(DISTINCT a, b) AS z, count(DISTINCT *) AS u, count(a, b) AS m, max_by(b, a) AS w, "
        "listagg(s) WITHIN GROUP (ORDER BY s) AS l FROM t",
        {"t": SCHEMA},
        dialect="spark",
        materialize=True,
    )
    columns = {
        "a": [1, 2, 4, 4, None],
        "b": [7, 7, 8, 8, 8],
        "c": [True, None, True, True, True],
        "s": ["y", "x", None, "z", "x"],
    }
    names = [name for name in SCHEMA.names if name not in columns]
    columns |= dict.fromkeys(names, [None] * 5)
    rows = pa.table([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)
    circuit.step({"t": rows})
    (row,) = circuit.views["v"].to_pylist()
    assert row["s"] == pytest.approx(1.5)
    assert {name: row[name] for name in "pqneoyzumwl"} == {
        **{
            "p": 3.0,
            "q": 2,
            "n": 4,
            "e": True,
            "o": True,
            "y": True,
            "z": 3,
            "u": 0,
            "m": 4,
            "w": 8,
        },
        "l": "xxyz",
    }


def test_lists_in_dialect_spark_leave_nulls_out_and_are_empty_without_values():
    text = (
        "SELECT k, collect_list(a) AS l, collect_set(a) AS s, array_agg(a) AS g FROM t GROUP BY k"
    )
    circuit = compile_sql(text, {"t": "k BIGINT, a BIGINT"}, dialect="spark")
    rows = pa.table({"k": [1, 1, 1, 2], "a": pa.array([3, None, 3, None], pa.int64())})
    first, second = circuit.step({"t": rows})["view"].sort_by("k").to_pylist()
    assert first == {"k": 1, "l": [3, 3], "s": [3], "g": [3, 3], "weight": 1}
    assert second == {"k": 2, "l": [], "s": [], "g": [], "weight": 1}


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
def test_a_list_leaves_nulls_out_with_ignore_nulls_and_keeps_them_with_respect_nulls(dialect):
    text = """
        SELECT k, array_agg(a IGNORE NULLS) AS l,
            array_agg(DISTINCT a ORDER BY a) IGNORE NULLS AS d, array_agg(a RESPECT NULLS) AS r
        FROM t GROUP BY k
    """
    circuit = compile_sql(text, {"t": "k BIGINT, a BIGINT"}, dialect=dialect)
    rows = [{"k": k, "a": a} for k, a in [(1, 3), (1, None), (1, 3), (2, None)]]
    nothing = [] if dialect == "spark" else None

    first, second = circuit.step({"t": rows})["view"].sort_by("k").to_pylist()
    assert (first["l"], first["d"], sorted(first["r"], key=repr)) == ([3, 3], [3], [3, 3, None])
    assert (second["l"], second["d"], second["r"]) == (nothing, nothing, [None])

    deltas = circuit.step({"t": [{"k": 1, "a": 3, "weight": -1}, {"k": 2, "a": 4, "weight": 1}]})
    new = [row for row in deltas["view"].sort_by("k").to_pylist() if row["weight"] > 0]
    assert [(row["l"], sorted(row["r"], key=repr)) for row in new] == [
        ([3], [3, None]),
        ([4], [4, None]),
    ]


TIMES = (
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "us")),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.date32()),
)


@pytest.mark.parametrize("type_", TIMES, ids=str)
def test_percentiles_of_times_have_the_unit_and_the_rounding_of_duckdb(type_):
    numbers = [(0, 1), (0, 3), (-1, 2), (-3, 0), (-2, -1), (-5, 7), (1, 4), (2, 2)]
    if not pa.types.is_timestamp(type_):
        numbers = [(abs(first), abs(last)) for first, last in numbers]
    integers = pa.int32() if type_.bit_width == 32 else pa.int64()
    table = pa.table(
        {
            "g": [group for group in range(len(numbers)) for _ in range(2)],
            "t": pa.array([n for pair in numbers for n in pair], integers).cast(type_),
        }
    )
    fractions = (0, 0.25, 0.5, 0.75, 1)
    columns = ", ".join(f"quantile_cont(t, {x})::VARCHAR AS q{i}" for i, x in enumerate(fractions))
    text = f"SELECT g, {columns}, median(t)::VARCHAR AS m FROM t GROUP BY g"
    view = compile_sql(text, {"t": table.schema}).step({"t": table})["view"]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", table)
    expected = connection.sql(f"{text} ORDER BY g").to_arrow_table()
    assert view.drop_columns("weight").sort_by("g").to_pylist() == expected.to_pylist()


W = 2**62


@pytest.mark.parametrize("column", ["x", "s"])
@pytest.mark.parametrize(
    "steps",
    [
        [{1: W, 3: -W}, {2: W}],
        [{number: W if number % 2 else -W for number in range(1, 8)}],
    ],
)
def test_a_percentile_of_more_values_than_int64_holds_is_an_error(column, steps):
    query = f"SELECT quantile_disc({column}, 0.75) AS q FROM t"
    circuit = compile_sql(query, {"t": "x BIGINT, s STRING"})
    deltas = [
        [{"x": x, "s": str(x), "weight": weight} for x, weight in step.items()] for step in steps
    ]
    for delta in deltas[:-1]:
        circuit.step({"t": delta})
    with pytest.raises(WeightOverflowError, match="smaller weights, or group by more"):
        circuit.step({"t": deltas[-1]})


def test_percentiles_of_groups_whose_weights_together_exceed_int64_are_right():
    query = "SELECT g, quantile_disc(s, 0.75) AS q, quantile_cont(g, 1.0) AS r FROM t GROUP BY g"
    circuit = compile_sql(query, {"t": "g BIGINT, s STRING"})
    rows = [{"g": g, "s": s, "weight": W - (s == "b")} for g in range(4) for s in "ab"]
    view = circuit.step({"t": rows})["view"].to_pylist()
    assert view == [{"g": g, "q": "b", "r": float(g), "weight": 1} for g in range(4)]


def test_map_agg_has_a_value_for_each_key():
    text = "SELECT k, map_agg(s, n) FILTER (WHERE n > 0) AS m FROM t GROUP BY k"
    circuit = compile_sql(text, {"t": "k BIGINT, s STRING, n BIGINT"}, dialect="materialize")
    rows = [(1, "b", 2), (1, "a", 3), (1, None, 4), (2, "a", 0), (1, "c", 5)]
    rows = [dict(zip("ksn", row, strict=True)) for row in rows]
    view = circuit.step({"t": rows})["view"]
    first = {1: [("a", 3), ("b", 2), ("c", 5)], 2: None}
    assert dict(zip(view["k"].to_pylist(), view["m"].to_pylist(), strict=True)) == first
    changes = circuit.step({"t": [rows[0] | {"weight": -1}]})["view"].to_pylist()
    assert {(str(row["m"]), row["weight"]) for row in changes} == {
        (str(first[1]), -1),
        ("[('a', 3), ('c', 5)]", 1),
    }
    with pytest.raises(EvaluationError, match="key a occurs twice in a map"):
        circuit.step({"t": [{"k": 1, "s": "a", "n": 7}]})


@pytest.mark.parametrize(
    ("clause", "sets"),
    [
        ("GROUPING SETS ((k), (a), (k))", ["k", "a", "k"]),
        ("DISTINCT GROUPING SETS ((k), (a), (k))", ["k", "a"]),
        ("ALL GROUPING SETS ((k), (k))", ["k", "k"]),
        ("DISTINCT ROLLUP (k, a), ROLLUP (k)", ["k, a", "k", "NULL"]),
        ("DISTINCT k, CUBE (k, a)", ["k, a", "k"]),
        ("ALL ROLLUP (k)", ["k", "NULL"]),
        ("DISTINCT k, a", ["k, a"]),
        ("ALL k, a", ["k, a"]),
    ],
)
def test_group_by_distinct_has_each_grouping_set_once(clause, sets):
    t = pa.table({"k": [1, 1, 2, None], "a": [5, 6, 5, 5]})
    parts = [
        f"SELECT {'k' if 'k' in keys else 'NULL'}, {'a' if 'a' in keys else 'NULL'}, count(*) FROM "
        f"t GROUP BY {keys}"
        for keys in sets
    ]
    expected = duckdb.sql(" UNION ALL ".join(parts)).fetchall()
    items = "k, a" if any("a" in keys for keys in sets) else "k, NULL AS a"

    circuit = compile_sql(
        f"SELECT {items}, count(*) AS n FROM t GROUP BY {clause}",
        {"t": t.schema},
        dialect="postgres",
    )
    rows = circuit.step({"t": t})["view"].to_pylist()

    answer = [tuple(row.values())[:-1] for row in rows for _ in range(row["weight"])]
    assert sorted(answer, key=repr) == sorted(expected, key=repr)


def test_group_by_all_before_keys_adds_no_key():
    """In ``GROUP BY ALL ROLLUP (k)``, k + 1 is an expression over the keys."""
    text = "SELECT k + 1 AS x, count(*) AS n FROM t GROUP BY ALL ROLLUP (k)"
    circuit = compile_sql(text, {"t": "k BIGINT"}, dialect="postgres")
    rows = circuit.step({"t": [{"k": 1}, {"k": 2}]})["view"].to_pylist()
    assert sorted((row["x"] or 0, row["n"], row["weight"]) for row in rows) == [
        (0, 2, 1),
        (2, 1, 1),
        (3, 1, 1),
    ]


FILTERED = {
    "any_value({n})": 5,
    "array_agg({n})": [5],
    "bool_and({n} > 1)": True,
    "count({n})": 1,
    "count_if({n} > 1)": 1,
    "first({n})": 5,
    "last({n})": 5,
    "max_by({n}, {n})": 5,
    "min_by(s, {n})": "5",
    "mode({n})": 5,
    "regr_avgx({n}, {n})": 5.0,
    "sum({n})": 5,
}
FILTERED_IN_DIALECT = {
    "duckdb": {
        "array_agg(DISTINCT {n} ORDER BY {n})": [5],
        "array_agg(s ORDER BY {n})": ["5"],
        "first(s ORDER BY {n})": "5",
        "histogram({n})": [(5, 1)],
        "json_group_array({n})": "[5]",
        "json_group_object({n}, s)": '{"5":"5"}',
        "max({n}, 2)": [5],
        "min_by(s, {n}, 2)": ["5"],
        "quantile_disc({n}, 0.5)": 5,
        "string_agg(s, ',' ORDER BY {n})": "5",
    },
    "spark": {"collect_list({n})": [5], "collect_set({n})": [5], "first({n}, true)": 5},
    "materialize": {"map_agg(s, {n})": [("5", 5)]},
}


@pytest.mark.parametrize("dialect", FILTERED_IN_DIALECT)
@pytest.mark.parametrize("over", ["", " OVER (PARTITION BY k)"])
def test_an_argument_is_computed_only_where_its_filter_holds(dialect, over):
    expected = FILTERED_IN_DIALECT[dialect]
    if dialect != "materialize":
        expected = FILTERED | expected
    if over:  # FILTER is for aggregates, and these are window functions
        expected = {
            call: value
            for call, value in expected.items()
            if not call.startswith(("first", "last", "any_value"))
        }
    calls = [call.format(n="CAST(s AS INT)") + " FILTER (WHERE s <> 'x')" for call in expected]
    items = ", ".join(f"{call}{over} AS v{index}" for index, call in enumerate(calls))
    text = f"SELECT {items} FROM t{'' if over else ' GROUP BY k'}"
    circuit = compile_sql(text, {"t": "k BIGINT, s STRING"}, dialect=dialect, materialize=True)
    circuit.step({"t": [{"k": 1, "s": "x"}]})
    circuit.step({"t": [{"k": 1, "s": "5"}]})
    for row in circuit.views["view"].to_pylist():
        row.pop("weight", None)
        assert dict(zip(expected, row.values(), strict=True)) == expected


@pytest.mark.parametrize("over", ["", " OVER ()"])
def test_skewness_and_kurtosis_do_not_depend_on_a_large_mean(over):
    items = f"skewness(x){over} AS s, kurtosis(x){over} AS k, kurtosis_pop(x){over} AS p"
    near_zero = [0.0, 1.0, 3.0, 3.0, 8.0]
    results = []
    for mean in (0.0, 1e9):
        circuit = compile_sql(f"SELECT {items} FROM t", {"t": "x DOUBLE"})
        rows = [{"x": mean + x} for x in near_zero]
        circuit.step({"t": [*rows, {"x": 1e15}]})
        delta = circuit.step({"t": [{"x": 1e15, "weight": -1}]})["view"].to_pylist()
        results += [row for row in delta if row["weight"] > 0]
    assert results[0] == pytest.approx(results[1], rel=1e-15)
    values = ", ".join(f"({x}::DOUBLE)" for x in near_zero)
    text = f"SELECT {items.replace(over, '')} FROM (VALUES {values}) t(x)"
    (expected,) = duckdb.sql(text).fetchall()
    assert [*results[0].values()][:3] == pytest.approx(expected, rel=1e-13)
