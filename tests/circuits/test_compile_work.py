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


def cases(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """A CASE with a membership in each branch."""
    branches = " ".join(f"WHEN a IN (SELECT c FROM f WHERE d = {i}) THEN {i}" for i in range(terms))
    return f"SELECT a, b, CASE {branches} END AS c FROM e", ROWS


def scalar_subqueries(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """A list of correlated subqueries."""
    selected = ", ".join(
        f"(SELECT max(b) FROM f WHERE f.a = e.a AND c = {i}) AS m{i}" for i in range(terms)
    )
    return f"SELECT a, {selected} FROM e", ROWS


def windows(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """A list of window functions with an order of their own each."""
    selected = ", ".join(f"sum(b) OVER (PARTITION BY a ORDER BY c + {i})" for i in range(terms))
    return f"SELECT a, {selected} FROM e", ROWS


def branches_of_a_union(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    return " UNION ".join(f"SELECT a, b FROM e WHERE c = {i}" for i in range(terms)), ROWS


def calls(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """A call in a call in a call."""
    return f"SELECT {'coalesce(' * terms}a{', b)' * terms} AS a FROM e", ROWS


def columns_of_a_table(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    schemas = {"wide": pa.schema({f"c{i}": pa.int64() for i in range(8 * terms)})}
    selected = ", ".join(f"sum(c{i}) AS s{i}" for i in range(1, 8 * terms))
    return f"SELECT c0, {selected} FROM wide GROUP BY c0", schemas


def views_of_one_text(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    views = [f"CREATE VIEW v{i} AS SELECT a, sum(b) AS b FROM e GROUP BY a" for i in range(terms)]
    return "; ".join(views), ROWS


def chain_of_views(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    views = [
        f"CREATE VIEW v{i + 1} AS SELECT x.a, f.b FROM v{i} x JOIN f ON x.b = f.a"
        for i in range(terms)
    ]
    return f"CREATE VIEW v0 AS SELECT a, b FROM e; {'; '.join(views)}", ROWS


def recursions(terms: int) -> tuple[str, dict[str, pa.Schema]]:
    """Recursive queries that do not name each other, and a join of all."""
    parts = [
        f"r{i} AS (SELECT a, b FROM e WHERE c = {i} "
        f"UNION SELECT r{i}.a, e.b FROM r{i} JOIN e ON r{i}.b = e.a)"
        for i in range(terms)
    ]
    joins = " ".join(f"JOIN r{i} ON r{i}.a = r0.a" for i in range(1, terms))
    return f"WITH RECURSIVE {', '.join(parts)} SELECT r0.a FROM r0 {joins}", ROWS


@pytest.mark.parametrize(
    ("query", "size", "degree"),
    [
        (cases, 8, 1.5),
        (scalar_subqueries, 8, 1.5),
        (windows, 8, 1.5),
        (branches_of_a_union, 8, 1.5),
        (calls, 8, 1.5),
        (columns_of_a_table, 8, 1.5),
        (views_of_one_text, 16, 1.5),
        (chain_of_views, 8, 1.5),
        (recursions, 4, 1.5),
        (chain, 12, 2),
        (star, 12, 2),
        (alternatives, 8, 2),
        (factors, 8, 2),
        (unions, 8, 2),
        (squares, 4, 2),
    ],
)
def test_the_work_of_compiling_is_a_polynomial_of_low_degree(
    query: Callable[[int], tuple[str, dict[str, pa.Schema]]], size: int, degree: float
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
