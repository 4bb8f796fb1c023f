"""Expressions computed on codes, without decoding, have the codes of their values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.errors import EvaluationError
from circuits.plan.expressions import Column, Literal
from circuits.runtime import code_evaluation
from circuits.runtime.code_evaluation import CodeEvaluator
from circuits.runtime.evaluation import evaluate
from circuits.runtime.row_batch import RowBatch
from circuits.types.codecs.codec import NULL, Codecs
from circuits.types.functions import call
from dbsp_wcoj import ZSet

NUMBER, TEXT, MICROS = pa.int64(), pa.string(), pa.timestamp("us")
TYPES = (NUMBER, TEXT, MICROS, pa.timestamp("ns"))
X, NAME, AT, AT_NS = (Column(i, type) for i, type in enumerate(TYPES))


def number(value: int | None) -> Literal:
    return Literal(value, NUMBER)


FROM_CODES = [
    call("time_bucket", AT, number(7), number(3)),
    call("time_bucket", X, number(10), number(-4)),
    call("date_add", AT, number(0), number(0), number(-9)),
    call("date_add", AT_NS, number(0), number(0), number(9)),
    call("date_add", call("time_bucket", AT, number(7), number(0)), *map(number, (0, 0, 7))),
    call("case", call("lt", X, number(2)), number(1), number(None)),
    call(
        "case",
        *(call("and", call("ge", X, number(0)), call("lt", AT, AT)), NAME),
        *(
            call("or", call("eq", NAME, Literal("b", TEXT)), call("is_null", AT)),
            Literal("n", TEXT),
        ),
        Literal(None, TEXT),
    ),
    call("greatest", X, number(1)),
    # The difference has no code if it is -2**63, and the result has one.
    call("greatest", call("subtract", X, number(1)), number(0)),
    call("case", call("lt", X, number(2)), number(1), number(None)),
    call("strftime", AT, Literal("%Y-%m-%d", TEXT)),
    call("date_format", AT, Literal("HH:mm:ss", TEXT)),
]
FROM_VALUES = [
    call("date_add", AT, number(1), number(0), number(0)),
    call("case", call("gt", call("divide", number(4), X), number(0)), X, number(0)),
    call("strftime", AT, Literal("%f", TEXT)),
    call("strftime", AT, Literal("%", TEXT)),
    call("strftime", AT, NAME),
    call("strftime", AT_NS, Literal("%H", TEXT)),
]
DAY_US = 86_400_000_000

NUMBERS = st.one_of(
    st.none(),
    st.integers(-9, 9),
    st.sampled_from([2**63 - 1, 2**63 - 2, 2**63 - 12, 1 - 2**63, 12 - 2**63]),
    st.sampled_from([DAY_US - 1, DAY_US, -DAY_US, -DAY_US - 1, 10**18]),
)
ROWS = st.lists(
    st.tuples(NUMBERS, st.sampled_from([None, "a", "b"]), NUMBERS, NUMBERS), min_size=1, max_size=6
)


def batch_of(rows: list[tuple[object, ...]]) -> RowBatch:
    codecs = Codecs()
    columns = [codecs.codec(type) for type in TYPES]
    arrays = [
        pa.array([row[i] for row in rows], NUMBER if type != TEXT else TEXT).cast(type)
        for i, type in enumerate(TYPES)
    ]
    codes = [codec.encode(array) for codec, array in zip(columns, arrays, strict=True)]
    names = [f"c{number}" for number in range(len(TYPES))]
    return RowBatch(ZSet.from_columns(codes), columns, codecs, names)


@pytest.mark.parametrize("expression", FROM_CODES + FROM_VALUES, ids=str)
@given(rows=ROWS)
def test_codes_are_those_of_the_values(expression, rows):
    batch = batch_of(rows)
    try:
        values = evaluate(expression, batch, batch.rows)
    except EvaluationError:
        with pytest.raises(EvaluationError):
            CodeEvaluator(batch, None).codes(expression)
        return
    codes = CodeEvaluator(batch, None).codes(expression)
    assert batch.codecs.codec(expression.type).decode(codes).equals(values)


def test_these_expressions_decode_no_values(monkeypatch):
    def refuse(*arguments: object) -> None:
        raise AssertionError("decoded")

    batch = batch_of([(1, "a", 5, 6), (None, "b", None, 2), (3, None, -4, None)])

    monkeypatch.setattr(RowBatch, "__getitem__", refuse)
    for expression in FROM_CODES:
        CodeEvaluator(batch, None).codes(expression)
    assert CodeEvaluator(batch, None).codes(number(None)) == NULL


def test_a_call_is_computed_once_per_batch(monkeypatch):
    calls = []
    compute = code_evaluation.evaluate
    monkeypatch.setattr(
        code_evaluation, "evaluate", lambda *arguments: calls.append(1) or compute(*arguments)
    )
    evaluator = CodeEvaluator(batch_of([(1, "a", 5, 6)]), None)
    upper = call("upper", NAME)
    assert evaluator.codes(upper) is evaluator.codes(upper)
    assert len(calls) == 1
