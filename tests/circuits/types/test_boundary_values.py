"""Boundary values of every type through functions, operators and casts, against DuckDB.

Both sides compute ``TRY(expression)``, so a row for which an expression fails is NULL on both
sides. The cases leave out the deviations that `docs/reference/values.md` lists.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import EvaluationError
from circuits.plan.expressions import Expression
from circuits.plan.nodes import Field, Map, Scan
from circuits.plan.time_windows import HoppingWindows
from circuits.runtime.evaluation import evaluate
from circuits.runtime.operators.time.hopping_windows import HoppingWindowsOperator
from circuits.sql import plan_sql
from dbsp_wcoj import ZSet
from tests.generators.boundary_values import FAMILIES, BoundaryCase, boundary_table


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET error_on_division_by_zero = false")
        yield connection


def expression_of(sql: str, table: pa.Table) -> Expression:
    fields = tuple(Field(field.name, field.type) for field in table.schema)
    plan = plan_sql(f"SELECT {sql} AS x FROM t", {"t": fields})["view"]
    assert isinstance(plan, Map)
    return plan.expressions[0]


def python_values(values: pa.Array) -> list[Any]:
    """Return the values of an array; times as integers, because Python has no year 200000."""
    data_type = values.type
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_list(data_type):
        return [None if not v.is_valid else tuple(python_values(v.values)) for v in values]
    if pa.types.is_date32(data_type):
        values = values.view(pa.int32())
        return [None if day is None else ("day", day) for day in values.to_pylist()]
    if pa.types.is_timestamp(data_type):
        # In nanoseconds, but for the infinities.
        factor = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[data_type.unit]
        ticks = values.view(pa.int64()).to_pylist()
        return [
            tick if tick is None or abs(tick) == 2**63 - 1 else ("time", tick * factor)
            for tick in ticks
        ]
    if pa.types.is_time(data_type):
        return values.cast(pa.time64("us")).view(pa.int64()).to_pylist()
    if pa.types.is_duration(data_type):
        return values.view(pa.int64()).to_pylist()
    if pa.types.is_interval(data_type):
        return [None if value is None else length_of(value) for value in values.to_pylist()]
    return values.to_pylist()


def length_of(interval: pa.MonthDayNano) -> int | None:
    """Return the length in microseconds, as epoch_us() of DuckDB returns it.

    DuckDB reads a duration as microseconds only, so sums beyond 64 bits have no value there. Here
    the days of a sum are a number of their own, and it has a value; it is compared as NULL.
    """
    days = 30 * interval.months + interval.days
    length = days * 86_400_000_000 + interval.nanoseconds // 1000
    return length if -(2**63) <= length < 2**63 else None


def agree(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(agree, left, right))
    numbers = (int, float, Decimal)
    if isinstance(left, numbers) and isinstance(right, numbers):
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
            both_nan = math.isnan(left) and math.isnan(right)
            return both_nan or math.isclose(left, right, rel_tol=1e-11)
        return left == right
    return type(left) is type(right) and left == right


def compute_with_duckdb(duck: Any, sql: str, table: pa.Table) -> list[Any]:
    # A division by zero is NULL here, as in DuckDB without this option.
    duck.execute(f"SET ieee_floating_point_ops = {'%' not in sql and '/' not in sql}")
    duck.register("t", table)
    result = duck.sql(f"SELECT {sql} AS x FROM t")
    if str(result.types[0]) == "INTERVAL":
        text = f"SELECT CAST(epoch_us({sql}) AS BIGINT) AS x FROM t"
        result = duck.sql(text)
    elif str(result.types[0]) in ("HUGEINT", "UHUGEINT"):
        result = duck.sql(f"SELECT CAST({sql} AS DECIMAL(38, 0)) AS x FROM t")
    return python_values(result.to_arrow_table().column(0))


def differences(duck: Any, case: BoundaryCase, max_rows: int) -> list[Any]:
    table = boundary_table(case.types, max_rows)
    sql = f"TRY({case.sql})"
    columns = [column.combine_chunks() for column in table.columns]
    actual = python_values(evaluate(expression_of(sql, table), columns, table.num_rows))
    expected = compute_with_duckdb(duck, sql, table)
    rows = zip(*map(python_values, columns), strict=True)
    return [
        (case.sql, row, "here", ours, "DuckDB", theirs)
        for row, ours, theirs in zip(rows, actual, expected, strict=True)
        if not agree(ours, theirs)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_boundary_values_have_the_results_of_duckdb(duck, family):
    wrong = [
        difference
        for case in FAMILIES[family]
        for difference in differences(duck, case, max_rows=150)[:3]
    ]
    assert not wrong, "\n".join(map(str, wrong[:20]))


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_percentiles_of_distant_values_are_those_of_duckdb(duck, fraction):
    """The distance of two timestamps or integers may exceed int64."""
    moments = [-9_213_651_676_800_000_000, 9_089_348_860_800_000_000, 0, -1, 2**63 - 2]
    numbers = [1 - 2**63, 2**63 - 1, 2**62, -(2**62), 5]
    pairs = list(itertools.combinations(range(5), 2))
    table = pa.table(
        {
            "g": [group for group in range(len(pairs)) for _ in range(2)],
            "n": pa.array([numbers[index] for pair in pairs for index in pair], pa.int64()),
            "t": pa.array([moments[index] for pair in pairs for index in pair], pa.int64()).view(
                pa.timestamp("us")
            ),
        }
    )
    columns = f"g, quantile_cont(n, {fraction}) AS n, quantile_cont(t, {fraction}) AS t"
    text = f"SELECT {columns} FROM t GROUP BY g"
    actual = compile_sql(text, {"t": table.schema}).step({"t": table})["view"].sort_by("g")
    duck.register("t", table)
    expected = duck.sql(f"{text} ORDER BY g").to_arrow_table()

    assert agree(*(tuple(python_values(result["n"])) for result in (actual, expected)))
    # DuckDB adds doubles, so its timestamps are up to some milliseconds off.
    micros = [
        result["t"].combine_chunks().view(pa.int64()).to_pylist() for result in (actual, expected)
    ]
    assert all(abs(ours - theirs) <= 4_096 for ours, theirs in zip(*micros, strict=True))


def test_range_frames_at_the_limits_of_int64_have_the_nearest_rows():
    numbers = [1 - 2**63, 2 - 2**63, 0, 2**63 - 3, 2**63 - 2, 2**63 - 1]
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    for offset in (1, 2, 2**62, 2**63 - 1):
        for order in ("ASC", "DESC"):
            text = (
                f"SELECT n, count(*) OVER (ORDER BY n {order} RANGE BETWEEN {offset} PRECEDING "
                f"AND {offset} FOLLOWING) AS count FROM t"
            )
            view = compile_sql(text, {"t": table.schema}).step({"t": table})["view"].to_pylist()
            assert {row["n"]: row["count"] for row in view} == {
                n: sum(abs(n - other) <= offset for other in numbers) for n in numbers
            }


@pytest.mark.parametrize("shift", [0, 3, -7])
def test_hopping_windows_at_the_limits_of_int64(shift):
    size, slide = 10, 4
    times = [2**63 - 1, 2**63 - 9, 0, -1, -(2**63) + 20]
    scan = Scan("t", (Field("time", pa.int64()),))
    operator = HoppingWindowsOperator(HoppingWindows(scan, 0, size, slide, offset=shift))
    windows = operator.evaluate([ZSet.from_rows([(time,) for time in times])])

    starts = {
        (time, start)
        for time in times
        for start in range(time - size + 1, time + 1)
        if (start - shift) % slide == 0
    }
    assert set(zip(*(column.tolist() for column in windows.columns), strict=True)) == starts
    with pytest.raises(EvaluationError, match="before the least value of int64"):
        operator.evaluate([ZSet.from_rows([(1 - 2**63,)])])


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Sydney"])
def test_local_times_after_2037_have_daylight_saving_time(duck, zone):
    hour, start, stop = 3_600_000_000, 2_145_916_800_000_000, 2_240_524_800_000_000
    ticks = [*range(start, stop, 2_161 * hour), *(start + 2**k * hour for k in range(31))]
    # The hours around the changes of 2040, and one of them in other years.
    ticks += range(2_216_000_000_000_000, 2_216_400_000_000_000, hour // 2)
    ticks += [2_216_260_800_000_000 + cycle * 146_097 * 24 * hour for cycle in (1, 2, 19, 90)]
    moments = pa.array(ticks, pa.int64())
    for data_type in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        table = pa.table({"a": moments.view(data_type)})
        sql = f"a AT TIME ZONE '{zone}'"
        actual = python_values(evaluate(expression_of(sql, table), table.columns, len(ticks)))
        expected = compute_with_duckdb(duck, sql, table)
        wrong = [pair for pair in zip(ticks, actual, expected, strict=True) if pair[1] != pair[2]]
        assert not wrong, wrong[:5]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_boundary_value_fails_where_it_fails_in_duckdb(duck, family):
    """As above, without TRY and with more rows: an error is not NULL."""
    wrong = []
    for case in FAMILIES[family]:
        table = boundary_table(case.types, max_rows=600)
        try:
            expected = compute_with_duckdb(duck, case.sql, table)
        except (duckdb.Error, UnicodeDecodeError):
            continue  # some row fails: the test above compares the others
        columns = [column.combine_chunks() for column in table.columns]
        actual = python_values(evaluate(expression_of(case.sql, table), columns, table.num_rows))
        rows = zip(zip(*map(python_values, columns), strict=True), actual, expected, strict=True)
        wrong += [(case.sql, *row) for row in rows if not agree(row[1], row[2])][:3]
    assert not wrong, "\n".join(map(str, wrong[:20]))
