"""The rules of types: common types, the types of literals, and errors."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from circuits.errors import FunctionError
from circuits.plan.expressions import Call, Column, Literal
from circuits.types.functions import aggregate_type, call, common_type
from tests.generators.function_cases import (
    BOOL,
    BYTES,
    DATE,
    F32,
    F64,
    I8,
    I32,
    I64,
    MONEY,
    SHARE,
    STAMP,
    TEXT,
    U64,
    WIDE,
    D,
    literal,
)

COMMON = [
    ([I8, I64], I64),
    ([pa.uint32(), I32], I64),
    ([U64, I64], pa.decimal128(20, 0)),
    ([I32, MONEY], MONEY),
    ([I64, MONEY], pa.decimal128(21, 2)),
    ([MONEY, F32], F64),
    ([F32, pa.float16()], F32),
    ([F32, I8], F64),
    ([MONEY, SHARE], pa.decimal128(16, 3)),
    ([pa.decimal128(38, 0), WIDE], pa.decimal256(48, 10)),
    ([pa.null(), TEXT], TEXT),
    ([pa.null()], pa.null()),
    ([TEXT, pa.large_string()], pa.large_string()),
    ([DATE, pa.date64()], DATE),
    ([DATE, STAMP, pa.timestamp("ns")], pa.timestamp("ns")),
    ([pa.duration("s"), pa.duration("ms")], pa.duration("ms")),
    ([pa.time32("s"), pa.time64("ns")], pa.time64("ns")),
    ([pa.dictionary(I32, TEXT), TEXT], TEXT),
]


@pytest.mark.parametrize(("types", "expected"), COMMON, ids=str)
def test_the_common_type_holds_the_values_of_all(types, expected):
    assert common_type(types) == expected
    assert common_type(reversed(types)) == expected


@pytest.mark.parametrize(
    "types", [[I64, TEXT], [BOOL, I8], [DATE, I64], [TEXT, BYTES], []], ids=str
)
def test_types_without_a_common_type_are_refused(types):
    with pytest.raises(FunctionError):
        common_type(types)


def test_types_of_aggregates():
    assert aggregate_type("count") == I64
    assert [aggregate_type("sum", data_type) for data_type in (I8, U64, F32)] == [I64, I64, F64]
    assert aggregate_type("sum", MONEY) == pa.decimal128(38, 2)
    assert aggregate_type("avg", MONEY) == F64
    assert aggregate_type("min", TEXT) == TEXT
    for function, data_type in [
        ("sum", TEXT),
        ("avg", DATE),
        ("sum", BOOL),
        ("median", I64),
        ("sum", None),
    ]:
        with pytest.raises(FunctionError):
            aggregate_type(function, data_type)


def test_a_literal_takes_the_type_of_the_column_beside_it():
    compared = call("lt", Column(0, MONEY), literal(24))
    assert compared == Call("lt", (Column(0, MONEY), Literal(D("24.00"), MONEY)), BOOL)
    dated = call("ge", Column(0, DATE), literal("1994-01-01"))
    assert dated == Call("ge", (Column(0, DATE), Literal(dt.date(1994, 1, 1), DATE)), BOOL)
    year_later = call("date_add", literal(dt.date(1994, 1, 1)), literal(12), literal(0), literal(0))
    before = call("lt", Column(0, DATE), year_later)
    assert before == Call("lt", (Column(0, DATE), Literal(dt.date(1995, 1, 1), DATE)), BOOL)
    # 0.055 is no value of the column: both sides are widened.
    finer = call("eq", Column(0, MONEY), literal(D("0.055")))
    assert [argument.type for argument in finer.arguments] == [pa.decimal128(16, 3)] * 2


def test_columns_of_one_space_of_codes_are_compared_uncast():
    for left, right in [(I8, I64), (TEXT, pa.large_string()), (MONEY, pa.decimal128(18, 2))]:
        columns = (Column(0, left), Column(1, right))
        assert call("eq", *columns) == Call("eq", columns, BOOL)


def test_calls_of_literals_are_literals_unless_they_fail():
    assert call("add", literal(1), literal(2)) == Literal(3, I64)
    late = call("add", literal(2**63 - 1), literal(1))
    assert isinstance(late, Call)
    assert call("and", call("and", Column(0, BOOL), Column(1, BOOL)), Column(2, BOOL)) == Call(
        "and", tuple(Column(i, BOOL) for i in range(3)), BOOL
    )


WRONG = [
    ("frobnicate", [literal(1)], "unknown function 'frobnicate'"),
    ("substrin", [literal("a")], "did you mean substring"),
    ("add", [literal(1), literal("x")], "cannot be cast to int64"),
    ("add", [literal(1), literal(True)], "cast the arguments"),
    ("add", [literal(1)], "2 arguments, not 1"),
    ("if", [literal(True)], "3 arguments, not 1"),
    ("case", [literal(True), literal(1)], "3 or more arguments"),
    ("and", [literal(1), literal(True)], "no condition"),
    ("eq", [Column(0, I64), Column(1, TEXT)], "no common type"),
    ("eq", [Column(0, DATE), literal("1994-13-01")], "cannot be parsed as date"),
    ("in", [Column(0, I64), Column(1, I64)], "must be literals"),
    ("lower", [literal(1)], "it takes text"),
    ("cast", [literal(1)], "the target type"),
    ("date_trunc", [literal("eon"), Column(0, DATE)], "'eon' is not one of"),
    ("date_add", [Column(0, DATE), Column(1, I64), literal(0), literal(0)], "integer literals"),
    ("add", [Column(0, DATE), Column(1, F64)], "use date_add"),
    ("round", [Column(0, F64), Column(1, I64)], "integer literal"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), WRONG, ids=str)
def test_an_invalid_call_is_refused_with_its_cause(name, arguments, message):
    with pytest.raises(FunctionError, match=message):
        call(name, *arguments)


def test_casts_between_unrelated_types_are_refused():
    for source, target in [(DATE, I64), (I64, DATE), (BYTES, I64), (I64, pa.list_(I64))]:
        with pytest.raises(FunctionError, match="cannot be cast"):
            call("cast", Column(0, source), type=target)
