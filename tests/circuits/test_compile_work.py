"""The work of compiling, in Python calls, is a polynomial of low degree of the query size."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from circuits import compile_sql

ROWS = {name: pa.schema({column: pa.int64() for column in "abcd"}) for name in "ef"}


def calls_to_compile(text: str, schemas: dict[str, pa.Schema]) -> int:
    """Count the Python calls of compiling; the number is the same in every run."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        compile_sql(text, schemas)
    finally:
        sys.setprofile(None)
    return calls


def chain(relations: int) -> tuple[str, dict[str, pa.Schema]]:
    """Return a chain of joins that selects all columns of all relations."""
    schemas = {
        f"t{i}": pa.schema({name: pa.int64() for name in ("k", "j", f"v{i}", f"w{i}")})
        for i in range(relations)
    }
    selected = ", ".join(f"v{i}, w{i}" for i in range(relations))
    joins = " ".join(f"JOIN t{i} ON t{i - 1}.j = t{i}.k" for i in range(1, relations))
    return f"SELECT {selected} FROM t0 {joins}", schemas


def star(relations: int) -> tuple[str, dict[str, pa.Schema]]:
    """Return a count of the join of a fact table with its dimensions."""
    schemas = {f"d{i}": pa.schema({"k": pa.int64()}) for i in range(relations)}
    schemas["fact"] = pa.schema({f"k{i}": pa.int64() for i in range(relations)})
    joins = " ".join(f"JOIN d{i} ON fact.k{i} = d{i}.k" for i in range(relations))
    return f"SELECT count(*) AS n FROM fact {joins}", schemas


def alternatives(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """Return a query with a disjunction of conjunctions, each with an IN."""
    condition = " OR ".join(
        f"(a = {i} AND b IN (SELECT c FROM f WHERE d > {i}))" for i in range(terms)
    )
    return f"SELECT a, b FROM e WHERE {condition}", ROWS


def factors(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """Return a query with a conjunction of disjunctions, each with an IN."""
    condition = " AND ".join(
        f"(a = {i} OR b IN (SELECT c FROM f WHERE d > {i}))" for i in range(terms)
    )
    return f"SELECT a, b FROM e WHERE {condition}", ROWS


def unions(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """Return a sequence of queries; each is a union that reads the one before twice."""
    parts = [
        f"u{i + 1} AS (SELECT a FROM u{i} WHERE a > {i} UNION ALL SELECT a + 1 AS a FROM u{i})"
        for i in range(terms)
    ]
    return f"WITH u0 AS (SELECT a FROM e), {', '.join(parts)} SELECT a FROM u{terms}", ROWS


def doubled(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """Return a sequence of queries; each reads the computed column of the one before twice."""
    parts = [f"u{i + 1} AS (SELECT a + a AS a FROM u{i})" for i in range(terms)]
    return f"WITH u0 AS (SELECT a FROM e), {', '.join(parts)} SELECT a FROM u{terms}", ROWS


def squares(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """Return queries that join the one before with itself; the last has 2**terms relations."""
    parts = [
        f"q{i + 1} AS (SELECT x.a, y.b FROM q{i} x JOIN q{i} y ON x.b = y.a)" for i in range(terms)
    ]
    return f"WITH q0 AS (SELECT a, b FROM e), {', '.join(parts)} SELECT a, b FROM q{terms}", ROWS


@pytest.mark.parametrize(
    ("query", "size", "degree"),
    [
        (chain, 12, 2),
        (star, 12, 2),
        (alternatives, 8, 2),
        (factors, 8, 2),
        (unions, 8, 2),
        (squares, 4, 2),
    ],
)
def test_the_work_of_compiling_is_a_polynomial_of_low_degree(
    query: Callable[[int], tuple[str, dict[str, pa.Schema]]], size: int, degree: int
) -> None:
    compile_sql(*query(2))  # so that imports are not counted
    small, large = (calls_to_compile(*query(n)) for n in (size, 4 * size))
    assert large <= 4**degree * small


def test_a_column_that_each_query_reads_twice_does_not_double_the_plan() -> None:
    compile_sql(*doubled(2))
    assert calls_to_compile(*doubled(40)) <= 1_000_000


def test_a_join_that_is_joined_with_itself_seven_times_has_the_right_rows() -> None:
    """The last query follows 2**7 edges; each node has one edge, and so one row."""
    text, schemas = squares(7)
    circuit = compile_sql(text, schemas)
    edges = {a: (3 * a + 1) % 7 for a in range(7)}
    bag: Counter[tuple[int, int]] = Counter()
    before: dict[int, int] = {}
    for after in (edges, {**edges, 2: 2}, {**edges, 2: 5, 4: 4}):
        rows = [{"a": a, "b": b, "weight": -1} for a, b in before.items()]
        rows += [{"a": a, "b": b, "weight": 1} for a, b in after.items()]
        for row in circuit.step({"e": [{"c": 0, "d": 0} | row for row in rows]})[
            "view"
        ].to_pylist():
            bag[row["a"], row["b"]] += row["weight"]
        expected = {a: a for a in after}
        for _ in range(2**7):
            expected = {a: after[b] for a, b in expected.items()}
        assert {row: n for row, n in bag.items() if n} == dict.fromkeys(expected.items(), 1)
        before = after


@pytest.mark.parametrize("query", [alternatives, factors, unions])
def test_many_alternatives_return_the_right_rows(
    query: Callable[[int], tuple[str, dict[str, pa.Schema]]],
) -> None:
    duckdb = pytest.importorskip("duckdb")
    text, schemas = query(6)
    circuit = compile_sql(text, schemas)
    tables = {
        name: pa.table(
            {
                column: [(row * step + start) % 8 for row in range(60)]
                for start, (column, step) in enumerate(zip("abcd", (1, 3, 5, 7), strict=True))
            }
        )
        for name in "ef"
    }
    counts: dict[tuple[Any, ...], int] = {}
    # Two steps: in the second one all operators have rows already.
    for rows in (slice(0, 30), slice(30, 60)):
        part = {name: table.slice(rows.start, 30) for name, table in tables.items()}
        for row in circuit.step(part)["view"].to_pylist():
            weight = row.pop("weight")
            counts[tuple(row.values())] = counts.get(tuple(row.values()), 0) + weight
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        expected = database.execute(text).fetchall()
    assert {row: w for row, w in counts.items() if w} == {
        row: expected.count(row) for row in set(expected)
    }
