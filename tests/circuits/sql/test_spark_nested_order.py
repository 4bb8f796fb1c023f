"""The order of structs and lists in dialect spark, where NULL within them is the least value."""

from __future__ import annotations

from typing import Any

import pytest

from circuits import UnsupportedSqlError, compile_sql

SCHEMAS = {"t": "n INT, s STRUCT<x: INT, y: STRING>, l ARRAY<INT>, m MAP<STRING, INT>"}
# The rows in Spark's order of ``s``, and that of ``l``.
STRUCTS: list[Any] = [
    None,
    {"x": None, "y": None},
    {"x": None, "y": "a"},
    {"x": 1, "y": None},
    {"x": 1, "y": "a"},
    {"x": 2, "y": None},
]
LISTS: list[Any] = [None, [], [None], [None, 5], [1], [1, None]]
ROWS = [{"n": n, "s": STRUCTS[n], "l": LISTS[n], "m": None} for n in range(len(STRUCTS))]


def values(query: str, rows: list[dict[str, Any]] = ROWS) -> list[Any]:
    """Return the first column of a view over rows, after one of them is inserted and deleted."""
    circuit = compile_sql(query, SCHEMAS, dialect="spark")
    total: dict[str, tuple[Any, int]] = {}
    for step in ([*rows, *rows[-1:]], [row | {"weight": -1} for row in rows[-1:]]):
        for row in circuit.step({"t": step})["view"].to_pylist():
            value, weight = next(iter(row.values())), row["weight"]
            total[repr(value)] = value, total.get(repr(value), (value, 0))[1] + weight
    return [value for value, weight in total.values() for _ in range(weight)]


@pytest.mark.parametrize("column", ["s", "l"])
def test_order_by(column):
    assert values(f"SELECT n FROM t ORDER BY {column} LIMIT 4") == [0, 1, 2, 3]
    assert sorted(values(f"SELECT n FROM t ORDER BY {column} DESC LIMIT 2")) == [4, 5]
    ranks = f"SELECT n - rank() OVER (ORDER BY {column}) FROM t"
    assert values(ranks) == [-1] * 6


def test_least_and_greatest_values():
    assert values("SELECT max(s) FROM t") == [STRUCTS[5]]
    assert values("SELECT min(s) FROM t") == [STRUCTS[1]]
    assert values("SELECT max(l) FROM t") == [LISTS[5]]
    assert values("SELECT min(l) FROM t WHERE n > 1") == [LISTS[2]]
    assert values("SELECT max(array(s)) FROM t WHERE n < 3") == [[STRUCTS[2]]]
    assert values("SELECT max(struct(s, n)).n FROM t WHERE n < 5") == [4]
    assert values("SELECT max(s) FROM t WHERE n = 0") == [None]
    assert values("SELECT max_by(n, s) FROM t") == [5]
    assert values("SELECT min_by(n, l) FROM t") == [1]


@pytest.mark.parametrize("column", ["s", "l"])
def test_comparisons(column):
    for operator, expected in (("<", 10), ("<=", 15), (">", 10), (">=", 15)):
        query = f"SELECT count(*) FROM t a JOIN t b ON a.{column} {operator} b.{column}"
        assert values(query) == [expected]
    query = f"SELECT count(*) FROM t a JOIN t b ON a.{column} < b.{column} WHERE a.n >= b.n"
    assert values(query) == [0]


@pytest.mark.parametrize(
    "query", ["SELECT n FROM t ORDER BY m LIMIT 1", "SELECT sort_array(array(s)) FROM t"]
)
def test_orders_of_maps_and_of_lists_of_structs_are_refused(query):
    with pytest.raises(UnsupportedSqlError, match="in dialect spark is not supported"):
        compile_sql(query, SCHEMAS, dialect="spark")
