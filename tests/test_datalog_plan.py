"""Datalog to plans: programs against models by enumeration, cases, errors, garbage."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.datalog import plan_datalog
from circuits.errors import DatalogError
from tests.datalog_programs import DATABASE, PROGRAMS, SCHEMA
from tests.naive_datalog import evaluate_program
from tests.naive_plan import evaluate_plan

Row = tuple[Any, ...]


def planned(text: str, schema: Any, database: Any) -> dict[str, Counter[Row]]:
    """The rows of each head with their weights, by its plan."""
    known: dict[str, Any] = dict(database)
    answer = {}
    for head, plan in plan_datalog(text, schema).items():
        answer[head] = known[head] = evaluate_plan(plan, known)
    return answer


def rows(text: str, head: str = "q", schema: Any = SCHEMA, database: Any = DATABASE) -> set[Row]:
    found = planned(text, schema, database)[head]
    assert set(found.values()) <= {1}
    return set(found)


def columns(text: str, head: str = "q") -> list[str]:
    return [field.name for field in plan_datalog(text, SCHEMA)[head].fields]


def types(text: str, head: str = "q") -> list[pa.DataType]:
    return [field.type for field in plan_datalog(text, SCHEMA)[head].fields]


# --- programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_program_has_the_rows_of_its_models(title):
    text = PROGRAMS[title]
    found = planned(text, SCHEMA, DATABASE)
    expected = evaluate_program(text, DATABASE)
    assert {head: set(bag) for head, bag in found.items()} == expected
    assert all(set(bag.values()) <= {1} for bag in found.values())


def test_most_programs_have_rows():
    empty = [t for t in PROGRAMS.values() if not any(evaluate_program(t, DATABASE).values())]
    assert len(empty) < 12


ATOMS = [
    "e({0}, {1})",
    "f({1}, {0})",
    "ban({0})",
    "r3({0}, {1}, {0})",
    "e({0}, _)",
    "small({1})",
    "e({1}, 3)",
]
NAMES = ["x", "y", "z"]


@st.composite
def bodies(draw: st.DrawFn, depth: int = 3) -> str:
    """A body that binds x and y, of atoms, comparisons, ors and nots."""

    def item(depth: int) -> str:
        names = draw(st.permutations(NAMES))
        kinds = ["atom", "atom", "comparison"] + ["or", "not", "and"] * (depth > 0)
        match draw(st.sampled_from(kinds)):
            case "atom":
                return draw(st.sampled_from(ATOMS)).format(*names)
            case "comparison":
                return f"{names[0]} {draw(st.sampled_from(['<', '!=', '==', '=']))} {names[1]}"
            case "or":
                count = draw(st.integers(1, 3))
                return f"or({' ; '.join(item(depth - 1) for _ in range(count))})"
            case "and":
                return f"and({', '.join(item(depth - 1) for _ in range(2))})"
            case _:
                count = draw(st.integers(1, 2))
                return f"not ({', '.join(item(depth - 1) for _ in range(count))})"

    start = draw(st.sampled_from(["e(x, y)", "d(x), d(y)", "or(e(x, y) ; f(x, y))"]))
    return ", ".join([start, *(item(depth) for _ in range(draw(st.integers(1, 3))))])


@given(bodies(), st.sampled_from(["q(x, y)", "q(y)", "q(x, count(), sum(y))"]))
@settings(max_examples=60, deadline=None)
def test_a_random_program_has_the_rows_of_its_models_or_is_refused(body, head):
    text = f"{head} :- {body}."
    small = {name: rows[:4] for name, rows in DATABASE.items()}
    try:
        found = planned(text, SCHEMA, small)["q"]
    except DatalogError as error:
        assert "is bound" in str(error) or "once" in str(error) or "not bound" in str(error)
        return
    assert set(found) == evaluate_program(text, small)["q"]
