"""Rows compared with ANY, ALL or a single row of a subquery, against a naive comparison.

PostgreSQL compares rows with three truth values; DuckDB and Spark order NULL as a value.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest

from circuits import SqlError, UnsupportedSqlError, compile_sql

SCHEMAS = {"t": "a BIGINT, b BIGINT", "u": "x BIGINT, y BIGINT"}
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def compared(operator: str, left, right, dialect: str) -> bool | None:
    """Return the truth value of a comparison of two rows; None stands for NULL."""
    if dialect != "postgres":
        null = float("-inf") if dialect == "spark" else float("inf")
        left, right = (tuple(null if v is None else v for v in row) for row in (left, right))
    pairs = list(zip(left, right, strict=True))
    if operator in ("=", "<>"):
        parts = [None if None in pair else pair[0] == pair[1] for pair in pairs]
        equal = False if False in parts else None if None in parts else True
        return equal if operator == "=" or equal is None else not equal
    for first, second in pairs:
        if first is None or second is None:
            return None
        if first != second:
            return first < second if "<" in operator else first > second
    return "=" in operator


def quantified(operator: str, word: str, left, rows, dialect: str) -> bool | None:
    """Return the truth value of a comparison with ANY or ALL of some rows."""
    values = [compared(operator, left, row, dialect) for row in rows]
    deciding = word == "ANY"
    if deciding in values:
        return deciding
    return None if None in values else not deciding


def maintained(text: str, dialect: str, steps) -> list[Counter]:
    """Return the rows of a view after each step."""
    circuit, total, results = compile_sql(text, SCHEMAS, dialect=dialect), Counter(), []
    for deltas in steps:
        for *row, weight in (r.values() for r in circuit.step(deltas)["view"].to_pylist()):
            total[tuple(row)] += weight
        results.append(Counter({row: n for row, n in total.items() if n}))
    return results


def random_steps(seed: int):
    """Return deltas of three steps, and the rows of both relations after each of them."""
    rng = random.Random(seed)
    rows: dict[str, list] = {"t": [], "u": []}
    steps, states = [], []
    for number in range(3):
        deltas = {}
        for name, columns in (("t", "ab"), ("u", "xy")):
            gone = rng.sample(rows[name], len(rows[name]) // 2)
            new = [
                tuple(rng.choice((None, 1, 2, 3)) for _ in columns)
                for _ in range(rng.randrange(1, 4 - number))
            ]
            for row in gone:
                rows[name].remove(row)
            rows[name] += new
            deltas[name] = [
                dict(zip(columns, row, strict=True), weight=weight)
                for changed, weight in ((gone, -1), (new, 1))
                for row in changed
            ]
        steps.append(deltas)
        states.append((list(rows["t"]), list(rows["u"])))
    return steps, states


@pytest.mark.parametrize("dialect", ["postgres", "duckdb", "spark"])
@pytest.mark.parametrize(("operator", "word"), list(product(OPERATORS, ("ANY", "ALL"))))
def test_a_row_compared_with_any_and_all_rows_of_a_subquery(operator, word, dialect):
    # As IN and NOT IN, these compare each column.
    is_in = (operator, word) in (("=", "ANY"), ("<>", "ALL"))
    if (operator, word) in (("<>", "ANY"), ("=", "ALL")) and dialect != "postgres":
        with pytest.raises(UnsupportedSqlError, match="use EXISTS with a condition per column"):
            compile_sql(
                f"SELECT a FROM t WHERE (a, b) {operator} {word} (SELECT x, y FROM u)", SCHEMAS
            )
        return
    nulls = "postgres" if is_in else dialect
    condition = f"(a, b) {operator} {word} (SELECT x, y FROM u)"
    texts = {
        "value": f"SELECT a, b, {condition} AS v FROM t",
        True: f"SELECT a, b FROM t WHERE {condition}",
        False: f"SELECT a, b FROM t WHERE NOT {condition}",
    }
    for seed in range(4):
        steps, states = random_steps(seed)
        views = {form: maintained(text, dialect, steps) for form, text in texts.items()}
        for number, (left, right) in enumerate(states):
            truths = [(row, quantified(operator, word, row, right, nulls)) for row in left]
            assert views["value"][number] == Counter((*row, truth) for row, truth in truths)
            for wanted in (True, False):
                expected = Counter(row for row, truth in truths if truth is wanted)
                assert views[wanted][number] == expected


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_row_compared_with_the_one_row_of_aggregates(operator):
    text = f"SELECT a, b FROM t WHERE ROW(a, b) {operator} (SELECT max(x), min(y) FROM u)"
    for seed in range(4):
        steps, states = random_steps(seed)
        views = maintained(text, "postgres", steps)
        for view, (left, right) in zip(views, states, strict=True):
            columns = [[v for v in column if v is not None] for column in zip(*right, strict=True)]
            columns = columns or [[], []]
            row = (max(columns[0], default=None), min(columns[1], default=None))
            truths = [(part, compared(operator, part, row, "postgres")) for part in left]
            assert view == Counter(part for part, truth in truths if truth)


def test_a_row_and_a_subquery_of_another_length_are_an_error():
    with pytest.raises(SqlError, match="the subquery has 1 columns, 2 are compared"):
        compile_sql("SELECT a FROM t WHERE (a, b) < ANY (SELECT x FROM u)", SCHEMAS)


def test_distinct_pairs_of_a_statistic_are_refused_with_a_way_to_write_them():
    for call in ("corr(DISTINCT a, b)", "regr_slope(DISTINCT a, b)"):
        with pytest.raises(UnsupportedSqlError, match="the rows of a SELECT DISTINCT in FROM"):
            compile_sql(f"SELECT {call} FROM t", SCHEMAS)
