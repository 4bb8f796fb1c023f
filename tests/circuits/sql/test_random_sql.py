"""Random SQL with all constructs, maintained, against DuckDB after every step, and its laws."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from circuits import CircuitError
from tests.support.random_sql import (
    Case,
    Database,
    Rows,
    add_delta,
    case_of,
    compile_case,
    deltas,
    differ,
    draw_case,
    last_view,
)

LAW = settings(
    max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
SEEDS = st.integers(0, 2**40)

#: Queries that were once wrong, or failed.
MENDED = [
    "SELECT concat_ws('-', s, s) FROM u",
    "SELECT concat_ws(u.s, t.s, u.s) FROM u, t",
    "SELECT (t.a * INTERVAL 1 SECOND) AS i, INTERVAL '2 hours' * t.b AS j FROM t",
    "SELECT t.a, u.a FROM t JOIN u ON t.ts + INTERVAL 5 SECOND < u.ts + INTERVAL 1 SECOND",
    "SELECT t.a, u.a FROM t JOIN u ON t.ts + INTERVAL 5 SECOND = u.ts - INTERVAL 1 SECOND",
]


def check(case: Case) -> None:
    """Compare a view with DuckDB after every step; restore a snapshot in between."""
    database = Database(case.program)
    try:
        database.answer(case.times[0])
    except duckdb.Error:
        reject()
    circuit, total = compile_case(case), Counter()
    for number, (changes, now) in enumerate(zip(case.steps, case.times, strict=True)):
        database.change(changes)
        try:
            expected = database.answer(now)
        except duckdb.InvalidInputException as error:
            assert "More than one row" in str(error)
            with pytest.raises(CircuitError, match="scalar subquery"):
                circuit.step(deltas(changes), now=now)
            return
        add_delta(total, circuit.step(deltas(changes), now=now)[last_view(circuit)])
        assert not differ(total, expected), explain(case, number, total, expected)
        if number == 1 and case.seed % 4 == 0:
            snapshot, circuit = circuit.snapshot(), compile_case(case)
            circuit.restore(snapshot)


def explain(case: Case, number: int, ours: Rows, theirs: Rows) -> str:
    return f"{case}\nafter step {number}: only here {ours - theirs}, only DuckDB {theirs - ours}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", MENDED)
def test_a_query_that_was_wrong_is_what_duckdb_answers(text, seed):
    check(case_of(text, seed))


@LAW
@given(SEEDS)
def test_random_sql_is_what_duckdb_answers_after_every_step(seed):
    check(draw_case(seed))


@pytest.mark.slow
@settings(LAW, max_examples=4000)
@given(SEEDS)
def test_much_random_sql_is_what_duckdb_answers(seed):
    check(draw_case(seed, steps=6))
