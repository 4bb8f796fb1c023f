"""Arithmetic on codes has the codes of the values that Arrow computes, or leaves them to Arrow."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.errors import EvaluationError, SchemaError
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.runtime import code_evaluation
from circuits.runtime.code_arithmetic import arithmetic_of, numbers_of_codes
from circuits.runtime.code_evaluation import CodeEvaluator
from circuits.runtime.evaluation import evaluate
from circuits.runtime.row_batch import RowBatch
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from dbsp_wcoj import ZSet

MONEY, SMALL, LONG = pa.decimal128(15, 2), pa.decimal128(9, 4), pa.decimal128(18, 0)
INT, SHORT, FLOAT = pa.int64(), pa.int16(), pa.float64()
DOMAINS: dict[pa.DataType, list[object]] = {
    MONEY: [Decimal("1.25"), Decimal("-0.07"), Decimal("0.00"), Decimal("9" * 13 + ".99")],
    SMALL: [Decimal("0.0001"), Decimal("-99999.9999"), Decimal("2.5000")],
    LONG: [Decimal("9" * 18), Decimal(-(2**53) - 1), Decimal(3), Decimal(2**53)],
    INT: [0, 1, -7, 2**31, 2**62, 2**63 - 1, 1 - 2**63, 2**53 + 1],
    SHORT: [-(2**15), 3, 2**15 - 1],
    FLOAT: [0.0, -0.0, 1.5, 1e308, -1e308, math.inf, -math.inf, math.nan, 5e-324],
}
TYPES = list(DOMAINS)
NAMES = ("add", "subtract", "multiply")
ROWS = st.lists(
    st.tuples(*(st.sampled_from([None, *domain]) for domain in DOMAINS.values())),
    min_size=1,
    max_size=5,
)


def columns() -> st.SearchStrategy[Expression]:
    return st.sampled_from([Column(number, type_) for number, type_ in enumerate(TYPES)])


def literals() -> st.SearchStrategy[Expression]:
    return st.sampled_from(
        [Literal(value, type_) for type_, domain in DOMAINS.items() for value in (None, *domain)]
    )


@st.composite
def calls(draw: st.DrawFn, depth: int = 2) -> Expression:
    if draw(st.integers(0, 5)) == 0:
        argument = draw(columns())
        return Call("cast", (argument,), FLOAT) if argument.type != FLOAT else argument
    operands = st.one_of(columns(), literals(), *([calls(depth - 1)] if depth else []))
    return call(draw(st.sampled_from(NAMES)), draw(operands), draw(operands))


def batch_of(rows: list[tuple[object, ...]]) -> RowBatch:
    codecs = Codecs()
    column_codecs = [codecs.codec(type_) for type_ in TYPES]
    arrays = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(TYPES)]
    codes = [codec.encode(array) for codec, array in zip(column_codecs, arrays, strict=True)]
    names = [f"c{number}" for number in range(len(TYPES))]
    return RowBatch(ZSet.from_columns(codes), column_codecs, codecs, names)


@given(expression=calls(), rows=ROWS)
def test_codes_are_those_of_the_values(expression: Expression, rows: list) -> None:
    batch = batch_of(rows)
    codec = batch.codecs.codec(expression.type)
    try:
        expected = codec.encode(evaluate(expression, batch, batch.rows))
    except (EvaluationError, SchemaError) as error:
        with pytest.raises(type(error)):
            CodeEvaluator(batch, None).codes(expression)
        return
    codes = CodeEvaluator(batch, None).codes(expression)
    shown = codes if isinstance(codes, int) else codes.tolist()
    assert shown in (expected.tolist(), int(expected[0]))


PRICE, DISCOUNT = Column(0, MONEY), Column(0, MONEY)
ONE = Literal(1, INT)


@pytest.mark.parametrize(
    "expression",
    [
        call("multiply", PRICE, call("subtract", ONE, DISCOUNT)),
        call("add", PRICE, Column(1, SMALL)),
        call("multiply", Column(3, INT), Column(3, INT)),
        call("multiply", Column(4, SHORT), Column(5, FLOAT)),
        call("multiply", Literal(0.2, FLOAT), Column(0, MONEY)),
    ],
    ids=str,
)
def test_these_expressions_make_no_arrow_arrays(
    monkeypatch: pytest.MonkeyPatch, expression: Expression
) -> None:
    batch = batch_of([(Decimal("2.50"), Decimal("0.5"), Decimal(1), 4, 5, 0.5), (None,) * 6])

    def refuse(*arguments: object) -> None:
        raise AssertionError("evaluated in Arrow")

    monkeypatch.setattr(code_evaluation, "evaluate", refuse)
    assert len(CodeEvaluator(batch, None).codes(expression)) == 2


def test_no_codes_have_no_null_and_a_size_of_0() -> None:
    codes = np.empty(0, np.int64)
    numbers, is_null, size = numbers_of_codes(codes)
    assert isinstance(numbers, np.ndarray)
    assert (len(numbers), is_null, size) == (0, None, 0)
    for expression in (call("multiply", PRICE, DISCOUNT), Call("cast", (PRICE,), FLOAT)):
        arithmetic = arithmetic_of(expression)
        assert arithmetic is not None
        results = arithmetic.compute([codes] * len(expression.arguments))
        assert isinstance(results, np.ndarray)
        assert len(results) == 0
