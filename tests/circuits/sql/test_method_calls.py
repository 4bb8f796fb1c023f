"""Calls after a dot: ``x.f(y)`` is ``f(x, y)``, compared with DuckDB."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from circuits import UnsupportedSqlError, compile_sql
from tests.oracles.shared_duckdb import connect_to_new_schema

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.string()),
        ("xs", pa.list_(pa.int32())),
        ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": " a b ", "xs": [3, 1, 3], "st": {"x": -1, "y": "p"}},
    {"id": 2, "s": "cde", "xs": [], "st": {"x": None, "y": None}},
    {"id": 3, "s": None, "xs": None, "st": None},
]
QUERIES = [
    "SELECT s.upper(), s.trim().left(2).length(), (s || 'x').replace('a', 'b'), t.s.upper() FROM t",
    "SELECT list_distinct(xs).list_sort(), xs.list_transform(lambda v: v + id).list_sum() FROM t",
    "SELECT s.split(' ').list_transform(lambda w: w[1:1].upper()).array_to_string('-') FROM t",
    "SELECT list_transform(xs, lambda a: list_transform([1], lambda b: (a + b).abs())) FROM t",
    "SELECT s[1:2].upper(), main.upper(s), st.x.abs(), 'q'.upper(), [1, 2].list_sum() FROM t",
    "SELECT id.sum(), s.max().upper() FROM t GROUP BY id % 2 HAVING id.min().abs() > 0",
    "SELECT id FROM t WHERE s.contains('d') OR s.trim() IN (SELECT u.s.trim() FROM t u)",
    "SELECT (SELECT max(s) FROM t).upper()",
    "SELECT {'s': s}.s.upper(), struct_pack(k := s).struct_extract('k'), st.y.upper() FROM t",
    "SELECT MAP {'a': s}.map_values(), MAP {id: s}.map_keys(), (SELECT s AS q).upper() FROM t",
    "SELECT id, (SELECT max(s) OVER w FROM t WINDOW w AS () LIMIT 1).upper() FROM t",
    "SELECT a.argument_0.upper(), argument_0.replace('e', argument_1) "
    "FROM (SELECT s AS argument_0, 'x' AS argument_1 FROM t) a",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_call_after_a_dot_has_the_value_as_its_first_argument_as_in_duckdb(query):
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    circuit = compile_sql(query, {"t": SCHEMA})
    actual = [tuple(row.values())[:-1] for row in circuit.step({"t": rows})["view"].to_pylist()]
    database = connect_to_new_schema()
    database.register("t", rows)
    assert sorted(map(repr, actual)) == sorted(map(repr, database.sql(query).fetchall()))


@pytest.mark.parametrize(
    ("query", "dialect"),
    [("SELECT s.upper() FROM t", "postgres"), ("SELECT 'day'.date_trunc(s) FROM t", "duckdb")],
)
def test_a_call_after_a_dot_that_cannot_be_moved_is_refused(query, dialect):
    with pytest.raises(UnsupportedSqlError, match="a function after a dot is not supported"):
        compile_sql(query, {"t": SCHEMA}, dialect=dialect)


def test_pg_catalog_is_a_schema():
    circuit = compile_sql("SELECT pg_catalog.upper(s) FROM t", {"t": SCHEMA}, dialect="postgres")
    assert circuit.step({"t": ROWS[1:2]})["view"].to_pylist() == [{"upper": "CDE", "weight": 1}]
