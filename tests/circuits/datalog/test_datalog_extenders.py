"""Bodies as prefix extenders have the rows of the plans, of the models and of the cases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.datalog.parser import parse
from circuits.datalog.planner import plan_datalog
from circuits.errors import DatalogError
from dbsp_wcoj.reference.connectives import Not, Or
from dbsp_wcoj.reference.extenders import RelationExtender
from tests.circuits.datalog.test_datalog_plan import (
    NULLS,
    QUERIES,
    UNTYPED,
    bodies,
    final_state,
    rows,
)
from tests.generators.datalog_programs import DATABASE, PROGRAMS, SCHEMA
from tests.oracles.datalog_extenders import answers, extenders
from tests.oracles.naive_datalog import evaluate_program, has_aggregate
from tests.support.shared_data import needs_cases

ONE_RULE = {
    title: text
    for title, text in PROGRAMS.items()
    if len(rules := parse(text).rules) == 1
    and not any(has_aggregate(t.term) for t in rules[0].terms)
}


@pytest.mark.parametrize("title", ONE_RULE)
def test_a_rule_has_the_rows_of_its_models(title):
    [expected] = evaluate_program(ONE_RULE[title], DATABASE).values()
    assert answers(ONE_RULE[title], DATABASE) == expected


@given(bodies(), st.sampled_from(["q(x, y)", "q(y)"]))
@settings(max_examples=60, deadline=None)
def test_a_random_rule_has_the_rows_of_its_plan_or_is_refused(body, head):
    text = f"{head} :- {body}."
    small = {name: rows[:4] for name, rows in DATABASE.items()}
    try:
        plan_datalog(text, SCHEMA)
    except DatalogError:
        with pytest.raises(DatalogError):
            answers(text, small)
        return
    assert answers(text, small) == rows(text, database=small)


@needs_cases
@pytest.mark.parametrize("case", QUERIES)
def test_a_case_has_the_expected_rows(case):
    if case["name"] in (UNTYPED, "q/datascript-aggregates"):
        with pytest.raises(DatalogError):
            answers(case["query"], {n: list(bag) for n, bag in final_state(case)[1].items()})
        return
    _, database = final_state(case)
    answer = answers(case["query"], {name: list(bag) for name, bag in database.items()})
    assert answer == {tuple(row) for row in case["expected"]["result"]}


@pytest.mark.parametrize(
    "text",
    [
        "q(x, y) :- e(x, y).",
        "q(x) :- e(x, x).",
        "q(x, y) :- e(x, _), d(x), d(y).",
        "q(x) :- d(x), not e(x, x).",
        "q(x) :- d(x), not (x = 3).",
        "q(x) :- d(x), not (e(_, y), not f(x, y)).",
        "q(x) :- d(x), not (small(y), not e(y, x), y < 3).",
        "q(x) :- or(d(x) ; e(_, x)).",
        "q(x) :- d(x), is_null(x).",
        "q(x, y) :- d(x), y = x + 1.",
        "q(x, y) :- d(x), y = x + 1, d(y).",
    ],
)
def test_null_is_the_null_of_the_plan(text):
    assert answers(text, NULLS) == rows(text, database=NULLS)


def test_the_connectives_of_the_core_serve_directly():
    text = "q(x, y) :- e(x, y), or(ban(x) ; small(x)), not f(x, y)."
    order, parts = extenders(parse(text).rules[0].body, DATABASE)
    assert order == ("x", "y")
    assert [type(extender) for extender in parts] == [RelationExtender, Or, Not]


def test_a_program_that_is_no_one_shot_query_is_refused():
    for text in ("a(x) :- d(x). b(x) :- d(x).", "q(count()) :- d(x).", "q(x) :- nothing_like(x)."):
        with pytest.raises(DatalogError):
            answers(text, DATABASE)
