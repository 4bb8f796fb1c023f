"""Recursive Datalog, maintained: every program has the rows of its least model after every step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import compile_datalog
from tests.naive_datalog import evaluate_program
from tests.recursive_programs import DATABASE, PROGRAMS, SCHEMA
from tests.test_datalog_circuits import arrow, rows, table

Row = tuple[Any, ...]
SCHEMAS = {name: arrow(fields) for name, fields in SCHEMA.items()}
LAW = settings(
    max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def read(text: str) -> dict[str, list[Row]]:
    """The rows of the relations that a program reads."""
    return {name: of for name, of in DATABASE.items() if f"{name}(" in text}


def drawn_change(draw: Any, universe: dict[str, list[Row]], state: dict[str, set[Row]]) -> Any:
    """Rows that come or go, taken over into the state."""
    tables = {}
    for name, possible in universe.items():
        chosen = draw(st.lists(st.sampled_from(possible), max_size=5, unique=True))
        changes = [(row, -1 if row in state[name] else 1) for row in chosen]
        state[name].symmetric_difference_update(chosen)
        if changes:
            tables[name] = table(SCHEMAS[name], changes)
    return tables


def check_law(title: str, data: Any, steps: int) -> None:
    text = PROGRAMS[title]
    universe = read(text)
    schemas = {name: SCHEMAS[name] for name in universe}
    circuit = compile_datalog(text, schemas)
    state: dict[str, set[Row]] = {name: set() for name in universe}
    totals: dict[str, Counter[Row]] = {head: Counter() for head in circuit.outputs}
    for _ in range(steps):
        for head, delta in circuit.step(drawn_change(data.draw, universe, state)).items():
            totals[head].update(rows(delta))
        expected = evaluate_program(text, {name: sorted(found) for name, found in state.items()})
        for head, total in totals.items():
            assert {r: w for r, w in total.items() if w} == dict.fromkeys(expected[head], 1), text


@LAW
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_a_recursive_program_has_the_rows_of_its_least_model_after_every_step(title, data):
    check_law(title, data, steps=4)


@pytest.mark.slow
@settings(LAW, max_examples=3000)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_recursive_programs_have_the_rows_of_their_least_models_after_many_steps(title, data):
    check_law(title, data, steps=12)
