"""Evaluation of expressions: three-valued logic against an oracle, lazy branches, exact types."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.errors import EvaluationError
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.runtime import evaluation
from circuits.runtime.evaluation import evaluate
from circuits.types.functions import call

INT, TEXT, BOOL = pa.int64(), pa.string(), pa.bool_()
A, B = Column(0, INT), Column(1, INT)
NULL = Literal(None, pa.null())
TRUTH = (True, False, None)


def literal_of(value: Any) -> Literal:
    return Literal(value, pa.scalar(value).type)


def conditions() -> st.SearchStrategy[Any]:
    """Draw trees of (name, parts); a leaf is the index of a column, or ("constant", value)."""
    leaves = st.integers(0, 2) | st.sampled_from(TRUTH).map(lambda value: ("constant", value))
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), st.lists(parts, min_size=1, max_size=3)),
            st.tuples(
                st.sampled_from(["not", "is_null", "is_true"]),
                st.lists(parts, min_size=1, max_size=1),
            ),
            st.tuples(
                st.sampled_from(["eq", "same", "coalesce"]), st.lists(parts, min_size=2, max_size=2)
            ),
            st.tuples(st.just("case"), st.lists(parts, min_size=3, max_size=3)),
        ),
        max_leaves=12,
    )


def build(tree: Any) -> Expression:
    if isinstance(tree, int):
        return Column(tree, BOOL)
    name, parts = tree
    return Literal(parts, BOOL) if name == "constant" else call(name, *map(build, parts))


def truth(tree: Any, row: tuple[bool | None, ...]) -> bool | None:
    """Evaluate a tree for a row by Kleene's tables: NULL stands for true or false."""
    if isinstance(tree, int):
        return row[tree]
    name, parts = tree
    if name == "constant":
        return parts
    values = [truth(part, row) for part in parts]
    first, second = values[0], values[-1]
    if name == "and":
        return False if False in values else None if None in values else True
    if name == "or":
        return True if True in values else None if None in values else False
    if name == "not":
        return None if first is None else not first
    if name == "is_null":
        return first is None
    if name == "is_true":
        return first is True
    if name == "eq":
        return None if None in values else first == second
    if name == "same":
        return first is second
    if name == "coalesce":
        return second if first is None else first
    return values[1] if first is True else second


@settings(max_examples=200, deadline=None)
@given(conditions())
def test_logic_has_three_values(tree):
    rows = [(a, b, c) for a in TRUTH for b in TRUTH for c in TRUTH]
    columns = [pa.array([row[i] for row in rows], BOOL) for i in range(3)]

    result = evaluate(build(tree), columns, len(rows))

    assert result.to_pylist() == [truth(tree, row) for row in rows]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=4), st.data())
def test_in_is_a_chain_of_or(items, data):
    values = data.draw(st.lists(st.none() | st.integers(0, 2), max_size=4))
    column = [pa.array(values, INT)]
    literals = [Literal(item, INT) for item in items]

    result = evaluate(call("in", A, *literals), column, len(values))

    chain = call("or", *(call("eq", A, literal) for literal in literals))
    assert result.equals(evaluate(chain, column, len(values)))


def test_a_branch_is_evaluated_only_for_its_rows():
    columns = [pa.array(["7", "x", None, "-2"]), pa.array([True, False, True, None])]
    number = call("cast", Column(0, TEXT), type=INT)
    guarded = call("case", Column(1, BOOL), number, literal_of(0))
    assert evaluate(guarded, columns, 4).to_pylist() == [7, 0, None, 0]
    with pytest.raises(EvaluationError, match=r"cast\(#0 as int64\) .* #0 = 'x'"):
        evaluate(number, columns, 4)


def test_a_guard_in_a_guard_narrows_further():
    columns = [pa.array([1, 2**63 - 1, 3, None]), pa.array([0, 1, 2, 3])]
    sum_ = call("add", A, literal_of(1))
    inner = call("if", call("lt", A, literal_of(100)), sum_, call("negate", A))
    outer = call("case", call("gt", B, literal_of(0)), inner, call("eq", B, literal_of(0)), B, NULL)
    assert evaluate(outer, columns, 4).to_pylist() == [0, 1 - 2**63, 4, None]


def test_coalesce_stops_at_the_first_value():
    columns = [pa.array(["a", None]), pa.array(["x", "5"])]
    number = call("cast", Column(1, TEXT), type=INT)
    length = call("nullif", call("length", Column(0, TEXT)), literal_of(9))
    assert evaluate(call("coalesce", length, number), columns, 2).to_pylist() == [1, 5]


@pytest.mark.parametrize(("name", "expected"), [("and", [False, True, None]), ("or", [True] * 3)])
def test_a_connective_guards_what_follows_it_if_that_fails(name, expected):
    columns = [pa.array(["x", "5", None])]
    digits = call("eq", Column(0, TEXT), literal_of("5"))
    guard = digits if name == "and" else call("not", call("is_true", digits))
    number = call("eq", call("cast", Column(0, TEXT), type=INT), literal_of(5))
    assert evaluate(call(name, guard, number), columns, 3).to_pylist() == expected


def test_each_distinct_subexpression_is_evaluated_once(monkeypatch):
    applied = []
    original = evaluation._call_kernel

    def record_call(frame, expression, *arguments):
        applied.append(expression.function)
        return original(frame, expression, *arguments)

    monkeypatch.setattr(evaluation, "_call_kernel", record_call)
    double = call("add", A, A)
    repeated = call("add", Column(0, INT), Column(0, INT))
    evaluate(call("multiply", double, repeated), [pa.array([1, 2])], 2)
    assert applied == ["add", "multiply"]


TYPES = [pa.string_view(), pa.decimal32(5, 2), pa.float16(), pa.date64(), pa.timestamp("s", "UTC")]
TYPES += [
    pa.null(),
    pa.binary(3),
    pa.large_binary(),
    pa.uint64(),
    pa.time32("s"),
    pa.duration("ns"),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_the_result_has_exactly_the_type_of_the_expression(data_type):
    nulls = pa.nulls(3, data_type)
    constant = Literal(None, data_type)
    guard = [pa.array([True, False, None])]
    choice = call("case", Column(0, BOOL), Column(1, data_type), constant)
    for expression in (Column(1, data_type), constant, choice):
        result = evaluate(expression, [*guard, nulls], 3)
        assert (result.type, result.null_count) == (expression.type, 3)
    assert evaluate(Literal(None, data_type), [], 0).equals(pa.nulls(0, data_type))


def test_a_literal_is_repeated_for_each_row():
    assert evaluate(literal_of("x"), {}, 3).to_pylist() == ["x"] * 3
    assert evaluate(call("case", NULL, literal_of(1), literal_of(2)), {}, 2).to_pylist() == [2, 2]


def test_columns_may_be_chunked_encoded_or_missing_if_not_read():
    text = pa.chunked_array([["b"], ["a", None]]).dictionary_encode()
    upper = call("upper", Column(5, TEXT))
    assert evaluate(upper, {5: text}, 3).to_pylist() == ["B", "A", None]


def test_no_rows_are_no_rows():
    empty = [pa.array([], INT), pa.array([], INT)]
    for expression in (call("divide", A, B), call("coalesce", A, B), call("if", NULL, A, B)):
        assert evaluate(expression, empty, 0).equals(pa.array([], expression.type))


def test_an_error_names_the_function_and_the_values_of_the_first_row_that_fails():
    columns = [pa.array([1, 2**62, 2**62 + 1]), pa.array([1, 2, 2])]
    with pytest.raises(
        EvaluationError, match=r"^a \* b has .* for a = 4611686018427387904, b = 2: "
    ):
        evaluate(call("multiply", A, B), columns, 3, ["a", "b"])
    with pytest.raises(EvaluationError, match=r"^#0 \* #1 has .* for #0 = 46"):
        evaluate(call("multiply", A, B), columns, 3)


def test_a_failing_call_of_literals_fails_where_a_row_reaches_it():
    overflow = call("add", literal_of(2**63 - 1), literal_of(1))
    assert isinstance(overflow, Call)
    guarded = call("if", call("gt", A, literal_of(0)), overflow, literal_of(0))
    assert evaluate(guarded, [pa.array([0, -1])], 2).to_pylist() == [0, 0]
    with pytest.raises(EvaluationError, match="overflow"):
        evaluate(guarded, [pa.array([0, 1])], 2)


def test_both_zeros_are_different_literals():
    """They are equal in Python, but atan2 and division tell them apart."""
    minus_one = Literal(-1.0, pa.float64())
    plus, minus = (
        Call("atan2", (Literal(zero, pa.float64()), minus_one), pa.float64())
        for zero in (0.0, -0.0)
    )
    assert plus != minus
    for expression, expected in [(plus, math.pi), (minus, -math.pi), (plus, math.pi)]:
        assert evaluate(expression, [], 1).to_pylist() == [expected]
