"""Faults in Datalog texts: the message and the place of the error; no other error is raised."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.datalog import plan_datalog
from circuits.errors import DatalogError
from tests.generators.datalog_programs import PROGRAMS, SCHEMA

ERRORS = {
    "": (1, 1, "expected a relation name"),
    "q(x)\n  :- d(x) e(x)": (2, 11, "found 'e'"),
    "q(x) :- d(x), .": (1, 15, "found '.'"),
    "q(x#1) :- d(x#1).": (1, 4, "found '#'"),
    "q(x) :- or(d(x), ban(x) ; small(x)).": (1, 25, r"expected '\)' or ','"),
    "q(x) :- or().": (1, 12, r"found '\)'"),
    "q(x) :- dd(x).": (1, 9, "unknown relation 'dd'; did you mean 'd'"),
    "q(x) :- nothing_like(x).": (1, 9, "relations: ban, d, e"),
    "q(x) :- e(x).": (1, 9, "'e' has 2 columns, not 1"),
    "q(x) :- d(x). q(x, y) :- e(x, y).": (1, 15, "2 columns, an earlier one 1"),
    "d(x) :- ban(x).": (1, 1, "'d' is an input relation"),
    "q(x, y) :- d(x).": (1, 6, "variable 'y' of the head in a rule of 'q' is not bound"),
    "q(x).": (1, 3, "variable 'x' of the head in a rule of 'q' is in a fact"),
    "q(x) :- d(x), y < 3.": (1, 15, "variable 'y' in a rule of 'q' is not bound"),
    "q(x) :- d(x), y == x + 1.": (1, 15, "variable 'y' in a rule of 'q' is not bound"),
    "q(x) :- d(x), y = y + 1.": (1, 15, "variable 'y'"),
    "q(x) :- y = z, z = y, d(x).": (1, 9, "variable 'y'"),
    "q(x, y) :- or(d(x) ; e(x, y)).": (1, 6, "bound by some alternatives of an or, not by all"),
    "q(x) :- d(x), not e(x, y).": (1, 24, "'y' in a rule of 'q' occurs only in this negation"),
    "q(x) :- d(x), not (e(x, y), not f(z, z)).": (1, 25, "'y' in a rule of 'q' occurs only"),
    "q(x) :- d(x), not (y < z, y = z).": (1, 20, "'y' in a rule of 'q' is not bound"),
    "q(x) :- not d(x).": (1, 15, "'x' in a rule of 'q' occurs only in this negation"),
    "q(_) :- d(_).": (1, 3, "_ in a rule of 'q' has no value here"),
    "q(x) :- d(x), x < _.": (1, 19, "_ in a rule of 'q' has no value here"),
    "q(x) :- d(x), e(x, _ + 1).": (1, 20, "_ in a rule of 'q' has no value here"),
    "q(x) :- d(x), sum(x) > 3.": (1, 15, "aggregate 'sum' is in a body"),
    "q(x) :- d(x), count(x).": (1, 15, "aggregate 'count' is in a body"),
    "q(count()).": (1, 3, "aggregate 'count' is in a fact"),
    "q(sum(count())) :- d(x).": (1, 7, "count is within sum"),
    "q(sum(x) + y) :- e(x, y).": (1, 12, "'y' in a rule of 'q' is in a term with an aggregate"),
    "q(min(x, y)) :- e(x, y).": (1, 3, "use least"),
    "q(sum()) :- e(x, y).": (1, 3, "sum takes 1 term, not 0"),
    "q(count(x, y)) :- e(x, y).": (1, 3, "count takes 1 term, not 2"),
    "q(sum(n)) :- name(_, n).": (1, 3, r"sum\(string\)"),
    "q(sum(*)) :- d(x).": (1, 7, r"count\(\*\)"),
    "q(nothing(x)) :- d(x).": (1, 3, "unknown function 'nothing'"),
    "q(x) :- d(x), x < 'a'.": (1, 15, "a"),
    "q(x) :- d(x), name(_, x).": (1, 23, "int64"),
    "q(x) :- d(x), x = null.": (1, 15, r"is_null\(x\)"),
    "q(x) :- d(x), d(null).": (1, 17, r"is_null\(x\)"),
    "q(x) :- d(x), coalesce(x, 1).": (1, 15, "coalesce is not a condition"),
    "q(x) :- d(x). q(n) :- name(_, n).": (1, 1, "column 'x'"),
    'q(1). q("a").': (1, 9, "column 'c0'"),
    "q(timestamp '2020-01-01 00:00:00.1234567').": (1, 3, "6 digits"),
    "q(x as weight) :- d(x).": (1, 3, "'weight' is the name of the weights"),
    "q(x as a, y as a) :- e(x, y).": (1, 3, "two columns of 'q' are called 'a'"),
    "q('\\q').": (1, 4, r"unknown escape"),
    "q('\\ud800').": (1, 3, "surrogate"),
    "q(9223372036854775808).": (1, 3, r"2\*\*63"),
    "q(1e400).": (1, 3, "float64"),
    "q(-9223372036854775808).": (1, 3, r"2\*\*63"),
    "q(date 'x').": (1, 3, "1994-01-31"),
    "q(1." + "1" * 40 + ").": (1, 3, "38"),
    "q(x) :- name(_, x), re-find(/a.*b/, x).": (1, 29, "special characters"),
    "q(/a/) :- d(x).": (1, 3, "'/'"),
    "q(x) :- q(x).": (1, 1, "'q' has no base rule"),
    "a(x) :- b(x).\nb(x) :- c(x).\nc(x) :- d(x), a(x).": (1, 1, "'a' has no base rule"),
    "q(x) :- d(x). q(1.0 * x) :- q(x). q(x * 1.5) :- q(x).": (1, 1, "grow with every iteration"),
    "a(x) :- d(x), not b(x). b(x) :- a(x).": (1, 19, "not stratified: a -> b -> a"),
    "a(x) :- d(x), not (ban(y), not a(y)).": (1, 32, "not stratified: a -> a"),
    "a(count()) :- b(x). b(x) :- a(x).": (1, 15, "not stratified: a -> b -> a"),
    "a(x, sum(y)) :- e(x, y). a(x, sum(y)) :- a(x, y).": (1, 42, "not stratified: a -> a"),
    "a(x, count()) :- e(x, _), a(x, _). a(x, y) :- e(x, y).": (1, 27, "not stratified: a -> a"),
    "a(x, min(y) + 1) :- e(x, y). a(x, y) :- a(y, x).": (1, 6, "let the whole term be min or max"),
    "a(x, min(y)) :- e(x, y). a(max(x), y) :- a(x, y).": (1, 28, "give each a separate head"),
    "a(x, min(y)) :- e(x, y). a(y, min(x)) :- a(x, y).": (1, 28, "column 1 of 'a' is not monotone"),
    "a(x, min(y)) :- e(x, y). a(x, min(-y)) :- a(x, y).": (1, 31, "column 2 of 'a' .* smaller"),
    "a(x, max(y)) :- e(x, y). a(x, max(y)) :- a(x, y), y < 3.": (1, 51, "condition .* larger"),
    "a(x, min(y)) :- e(x, y). a(x, min(z)) :- a(x, y), e(y, z).": (1, 47, "for equality"),
    "a(x, min(y)) :- e(x, y). a(x, min(y)) :- a(x, 3), d(y).": (1, 47, "for equality"),
    "a(x, min(y)) :- e(x, y). a(x, min(y * z)) :- a(x, y), d(z).": (1, 31, "times a constant"),
    "a(x, min(y)) :- e(x, y). a(x, min(1)) :- a(x, y), y != 3.": (1, 51, "this condition"),
    "a(x, min(y)) :- e(x, y). a(x, min(1)) :- a(x, y), mod(y, 2) = z, d(z).": (
        1,
        51,
        "this condition",
    ),
    "a(x, min(y)) :- e(x, y). a(x, min(z)) :- a(x, y), z = mod(y, 2).": (1, 55, "value of 'z'"),
    "a(x, min(y)) :- e(x, y). b(x, y) :- a(x, y). a(x, min(1)) :- b(x, _).": (
        1,
        31,
        "column 2 of 'b'",
    ),
    # The order of the alternatives of an or, and of the items of a body, does not matter.
    "a(x, min(y)) :- e(x, y). a(x, min(z)) :- a(x, y), or(z = y + 1 ; z = 9 - y).": (
        1,
        31,
        "column 2 of 'a'",
    ),
    "a(x, min(y)) :- e(x, y). a(x, min(z)) :- a(x, y), or(z = 9 - y ; z = y + 1).": (
        1,
        31,
        "column 2 of 'a'",
    ),
    "a(x, min(y)) :- e(x, y). a(x, min(1)) :- a(x, y), or(z = y ; z = 1), z > 3.": (
        1,
        70,
        "this condition",
    ),
    "a(x, min(y)) :- e(x, y). a(x, min(1)) :- a(x, y), z > 3, or(z = y ; z = 1).": (
        1,
        51,
        "this condition",
    ),
    "a(x, min(y)) :- e(x, y). a(u, min(1)) :- a(_, y), u = z + 1, or(z = y ; z = 1).": (
        1,
        28,
        "column 1 of 'a'",
    ),
    "a(x, min(y)) :- e(x, y). a(x, min(1)) :- a(x, y), or(z = 1 ; z = 2), or(z = y ; z = 3).": (
        1,
        73,
        "this condition",
    ),
    "a(n, min(t)) :- name(n, t). a(n, min(t)) :- a(n, t).": (1, 1, "takes numbers, dates"),
    "a(x, min(y)) :- e(x, y). a(x, min(y)) :- e(x, y), not a(y, x).": (1, 55, "not stratified"),
}


@pytest.mark.parametrize("text", ERRORS)
def test_an_error_says_what_and_where(text):
    line, column, message = ERRORS[text]
    with pytest.raises(DatalogError, match=message) as caught:
        plan_datalog(text, SCHEMA)
    assert (caught.value.line, caught.value.column) == (line, column)
    first, excerpt, caret = str(caught.value).split("\n")
    assert first.startswith(f"line {line}, column {column}: ")
    assert caret.endswith("^") and len(caret) <= len(excerpt) + 1


def test_alternatives_may_compute_with_one_name_in_other_directions():
    alternatives = "or(and(z = y + 1, z < 5) ; and(d(z), z > 3) ; and(z = 9 - y, z > 3))"
    plan_datalog(f"a(x, min(y)) :- e(x, y). a(x, min(1)) :- a(x, y), {alternatives}.", SCHEMA)


def test_a_minimum_may_be_computed_from_the_variable_of_an_or():
    rule = "a(x, min(u)) :- a(x, y), u = z + 1, or(z = y ; z = y + 2 ; z = 7)."
    plan_datalog(f"a(x, min(y)) :- e(x, y). {rule}", SCHEMA)


def test_too_many_alternatives_are_refused():
    ors = ", ".join(f"or(not e(x, {i}) ; not f(x, {i}))" for i in range(9))
    with pytest.raises(DatalogError, match="more than 256 alternatives"):
        plan_datalog(f"q(x) :- d(x), {ors}.", SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        f"q({'(' * 5000}1{')' * 5000}).",
        f"q({'1 + ' * 5000}1).",
        f"q({'-' * 5000}x) :- d(x).",
        f"q(x) :- d(x), {'not ' * 5000}d(x).",
        f"q(x) :- {'or(' * 5000}d(x){')' * 5000}.",
        f"q(x) :- {'and(' * 3000}d(x)",
        f"q({'9' * 10000}).",
        f"q(x) :- {', '.join(['d(x)'] * 3000)}, nothing(x).",
    ],
    ids=range(8),
)
def test_deep_and_long_texts_are_read_or_refused(text):
    with suppress(DatalogError):
        plan_datalog(text, SCHEMA)


WORDS = [*"(),.;:-+*/<>=!?_#%\"'\\ \n", ":-", "not", "or(", "and(", "q(", "d(", "e(", "x", "y"]
WORDS += ["1", "2.5", "1e9", "null", "true", "date", "'a'", "count(", "sum(", "as", "\ud800", "é"]


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=25).map("".join)))
@settings(max_examples=300, deadline=None)
def test_garbage_is_a_datalog_error(text):
    try:
        plan_datalog(text, SCHEMA)
    except DatalogError as error:
        assert error.line >= 1 and error.column >= 1


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_program_with_a_fault_is_a_program_or_a_datalog_error(data):
    text = data.draw(st.sampled_from(list(PROGRAMS.values())))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 6, len(text))))
    text = text[:start] + data.draw(st.sampled_from(["", *WORDS])) + text[end:]
    with suppress(DatalogError):
        plan_datalog(text, SCHEMA)
