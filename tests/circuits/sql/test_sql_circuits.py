"""Maintained random SQL, against DuckDB recomputing after every step.

Inserts, deletes and updates, NULLs, duplicates, one or several tables per step; the sum of the
view's deltas is compared with DuckDB's answer on the same rows, as a multiset.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import UnsupportedSqlError, compile_sql
from circuits.errors import EvaluationError
from tests.generators.sql_generator import SCHEMAS, selects
from tests.oracles.shared_duckdb import connect_to_new_schema

LAW = settings(
    max_examples=90,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
CREATE = {
    "t": "CREATE TABLE t (a BIGINT, b BIGINT, s VARCHAR)",
    "u": "CREATE TABLE u (a INTEGER, x DOUBLE, s VARCHAR)",
    "v": "CREATE TABLE v (b BIGINT, d DATE, p DECIMAL(10, 2))",
}
SMALL = [None, 0, 1, 2, 3]
DOMAINS: dict[Any, list[Any]] = {
    pa.int64(): SMALL,
    pa.int32(): SMALL,
    pa.float64(): [None, 0.5, 1.5, 2.0, -1.0],
    pa.string(): [None, "", "x", "xy", "y"],
    pa.date32(): [None, date(2020, 1, 1), date(2020, 1, 2), date(2019, 12, 31)],
    pa.decimal128(10, 2): [None, Decimal("1.50"), Decimal("2.00"), Decimal("0.25")],
}


class World:
    """The tables in DuckDB and in Python, changed together."""

    def __init__(self) -> None:
        self.duck = connect_to_new_schema()
        self.rows: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in SCHEMAS}
        for statement in CREATE.values():
            self.duck.execute(statement)

    def change(self, draw: Any) -> dict[str, pa.Table]:
        """Delete and insert random rows; return the changes by table."""
        tables = {}
        for name, schema in SCHEMAS.items():
            changes = []
            for _ in range(draw(st.integers(0, 4))):
                present = sorted(self.rows[name], key=repr)
                if present and draw(st.integers(0, 2)) == 0:
                    row, weight = draw(st.sampled_from(present)), -1
                else:
                    row = tuple(draw(st.sampled_from(DOMAINS[field.type])) for field in schema)
                    weight = draw(st.sampled_from([1, 1, 2]))
                self.rows[name][row] += weight
                self.rows[name] += Counter()
                changes.append((*row, weight))
            if changes:
                columns = list(zip(*changes, strict=True))
                with_weight = schema.append(pa.field("weight", pa.int64()))
                tables[name] = pa.table(
                    [pa.array(c, f.type) for c, f in zip(columns, with_weight, strict=True)],
                    schema=with_weight,
                )
                self.duck.execute(f"DELETE FROM {name}")
                rows = [list(row) for row in self.rows[name].elements()]
                if rows:
                    placeholders = ", ".join("?" * len(schema))
                    self.duck.executemany(f"INSERT INTO {name} VALUES ({placeholders})", rows)
        return tables

    def answer(self, query: str) -> Counter[tuple[Any, ...]]:
        return Counter(_comparable(row) for row in self.duck.execute(query).fetchall())


def add_delta(total: Counter[tuple[Any, ...]], delta: pa.Table) -> None:
    for row in _rows(delta):
        total[_comparable(row[:-1])] += row[-1]


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.10g}")
    if isinstance(value, Decimal):
        return float(f"{value:.10g}")
    return value


def check(data: Any, queries: Any) -> None:
    text = data.draw(queries)
    try:
        circuit = compile_sql(text, SCHEMAS)
    except UnsupportedSqlError as error:
        pytest.fail(f"{text}\n{error}")
    world = World()
    *views, query = text.split("; ")
    for view in views:
        world.duck.execute(view)
    total: Counter[tuple[Any, ...]] = Counter()
    for _ in range(data.draw(st.integers(1, 4))):
        tables = world.change(data.draw)
        expected = world.answer(query)
        add_delta(total, circuit.step(tables)["view"])
        assert {r: w for r, w in total.items() if w} == expected, text


@LAW
@given(st.data())
def test_a_maintained_select_is_what_duckdb_answers_after_every_step(data):
    check(data, selects())


@pytest.mark.slow
@settings(LAW, max_examples=4000)
@given(st.data())
def test_many_maintained_selects_are_what_duckdb_answers(data):
    check(data, selects())


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("s = '12' AND CAST(s AS INT) > 3", [1]),
        ("CAST(s AS INT) > 3 AND s = '12'", [1]),
        ("k <> 2 AND CAST(s AS INT) > 1", [1, 4]),
        ("CAST(s AS INT) > 1 AND k <> 2", [1, 4]),
        ("10 % (k - 2) >= 0 AND k <> 2 AND CAST(s AS INT) > 1", [1, 4]),
        ("s <> '12' OR CAST(s AS INT) > 3", [1, 2, 4]),
        ("s = 'x' OR CAST(s AS INT) > 3", [1, 2]),
        ("CAST(s AS INT) > 3 OR s = 'x'", [1, 2]),
        ("NOT (s = 'x' OR CAST(s AS INT) < 3)", [1]),
        ("(k <> 2 AND CAST(s AS INT) > 3) OR k = 4", [1, 4]),
        ("(CAST(s AS INT) > 3 AND k <> 2) OR k = 4", [1, 4]),
        ("length(s) = 2 AND CAST(s AS INT) > 3", [1]),
        ("(s = '12' AND CAST(s AS INT) > 3) IS TRUE", [1]),
    ],
)
def test_a_condition_may_fail_for_rows_that_another_condition_decides(dialect, condition, keys):
    rows = pa.table({"k": pa.array([1, 2, 3, 4], pa.int32()), "s": ["12", "x", None, "2"]})
    circuit = compile_sql(f"SELECT k FROM t WHERE {condition}", {"t": rows.schema}, dialect=dialect)
    (delta,) = circuit.step({"t": rows.append_column("weight", pa.array([1, 1, 1, 1]))}).values()
    assert sorted(delta["k"].to_pylist()) == keys


@pytest.mark.parametrize(
    "condition", ["k > 1 AND CAST(s AS INT) > 3", "k = 4 OR CAST(s AS INT) > 3"]
)
def test_a_condition_that_fails_for_an_undecided_row_fails_the_step(condition):
    rows = pa.table({"k": pa.array([1, 2], pa.int32()), "s": ["12", "x"]})
    circuit = compile_sql(f"SELECT k FROM t WHERE {condition}", {"t": rows.schema})
    with pytest.raises(EvaluationError, match="s = 'x'"):
        circuit.step({"t": rows.append_column("weight", pa.array([1, 1]))})
