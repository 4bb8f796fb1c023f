"""Bugs that were found in circuits, each by a small text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import compile_sql

EDGE = {"e": pa.schema([("src", pa.int64()), ("dst", pa.int64())])}
EDGES = pa.table({"src": [1, 2, 3], "dst": [2, 3, 1]})


def rows(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=repr)


def test_a_query_with_an_alias_can_begin_a_bracketed_join():
    text = (
        "SELECT x.src, y.dst FROM e x JOIN "
        "((SELECT src, dst FROM e) AS z LEFT JOIN e y ON z.dst = y.src) ON x.src = z.src"
    )
    delta = compile_sql(text, EDGE).step({"e": EDGES})["view"]
    assert rows(delta) == [
        {"src": 1, "dst": 3, "weight": 1},
        {"src": 2, "dst": 1, "weight": 1},
        {"src": 3, "dst": 2, "weight": 1},
    ]


@pytest.mark.parametrize("word", ["LEFT", "FULL"])
def test_a_long_chain_of_outer_joins_compiles_in_its_nodes_and_not_in_its_paths(word):
    joins = (f"{word} JOIN e e{i} ON e{i - 1}.dst = e{i}.src" for i in range(1, 13))
    circuit = compile_sql(f"SELECT e0.src, e12.dst FROM e e0 {' '.join(joins)}", EDGE)
    assert len(rows(circuit.step({"e": EDGES})["view"])) == 3
    circuit.snapshot()


def test_queries_of_with_that_name_the_one_before_twice_compile_once_each():
    steps = (
        f"v{i} AS (SELECT DISTINCT a.src, b.dst FROM v{i - 1} a JOIN v{i - 1} b ON a.dst = b.src)"
        for i in range(1, 21)
    )
    text = f"WITH v0 AS (SELECT src, dst FROM e), {', '.join(steps)} SELECT src, dst FROM v20"
    circuit = compile_sql(text, EDGE)
    # 2**20 edges on from 1, in a ring of three.
    expected = [{"src": i, "dst": (i - 1 + 2**20) % 3 + 1, "weight": 1} for i in (1, 2, 3)]
    assert rows(circuit.step({"e": EDGES})["view"]) == expected
    circuit.snapshot()
