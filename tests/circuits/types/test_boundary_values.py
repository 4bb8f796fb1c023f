"""Boundary values of every type through functions, operators and casts, against DuckDB.

Both sides compute ``TRY(expression)``, so a row for which an expression fails is NULL on both
sides. The slow test tells an error from NULL, and reads more combinations of values.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from circuits.plan.expressions import Expression
from circuits.plan.nodes import Field, Map
from circuits.runtime.evaluation import evaluate
from circuits.sql import plan_sql
from tests.generators.boundary_values import FAMILIES, BoundaryCase, boundary_table

FAILS = "fails"
#: Where the two sides differ, and the documentation says so (docs/reference/values.md).
DOCUMENTED: dict[str, str] = {}


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
    return values.to_pylist()


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
        if case.sql not in DOCUMENTED
        for difference in differences(duck, case, max_rows=150)[:3]
    ]
    assert not wrong, "\n".join(map(str, wrong[:20]))
