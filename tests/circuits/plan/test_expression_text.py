"""Texts of expressions: operators as in SQL, with parentheses where they are needed."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from circuits.plan.columns import Field
from circuits.plan.expression_text import column_name, column_names, label
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.types.functions import call

NAMES = ["price", "qty", "city", "ok"]
PRICE, QTY = Column(0, pa.int64()), Column(1, pa.int64())
CITY, OK = Column(2, pa.string()), Column(3, pa.bool_())


def literal(value: object) -> Literal:
    return Literal(value, pa.scalar(value).type)


def both(*conditions: Expression) -> Expression:
    return call("and", *conditions)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (call("multiply", call("add", PRICE, literal(1)), QTY), "(price + 1) * qty"),
        (call("add", call("multiply", PRICE, QTY), literal(1)), "price * qty + 1"),
        (call("subtract", PRICE, call("subtract", QTY, PRICE)), "price - (qty - price)"),
        (call("subtract", call("subtract", QTY, PRICE), PRICE), "qty - price - price"),
        (call("add_ansi", PRICE, QTY), "price + qty"),
        (both(call("or", OK, call("gt", PRICE, QTY)), OK), "(ok or price > qty) and ok"),
        (call("not", both(OK, OK)), "not (ok and ok)"),
        (call("not", call("is_null", CITY)), "city is not null"),
        (call("is_null", call("add", PRICE, QTY)), "price + qty is null"),
        (call("not", call("same", PRICE, QTY)), "price is distinct from qty"),
        (call("in", CITY, literal("a'b"), literal("c")), "city in ('a''b', 'c')"),
        (call("cast", CITY, type=pa.int64()), "cast(city as int64)"),
        (call("case", OK, PRICE, QTY), "case when ok then price else qty end"),
        (call("eq", OK, literal(True)), "ok = true"),
        (call("lower", CITY), "lower(city)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_expression_is_written_as_in_sql(expression, text):
    assert label(expression, NAMES) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (1.5, "1.5"),
        (Decimal("2.50"), "2.50"),
        (datetime.date(2024, 1, 31), "'2024-01-31'"),
        (datetime.datetime(2024, 1, 31, 5), "'2024-01-31 05:00:00'"),
        (b"a", "b'a'"),
    ],
)
def test_a_literal_is_written_as_in_sql(value, text):
    assert label(literal(value), []) == text


def test_a_lambda_names_its_element_and_the_columns_around_it():
    element, outer = Column(0, pa.int64()), Column(2, pa.int64())
    body = Literal(call("add", element, outer), pa.int64())
    array = Column(0, pa.list_(pa.int64()))
    doubled = Call("list_transform", (array, body, Column(1, pa.int64())), array.type)

    assert label(doubled, ["xs", "y"]) == "list_transform(xs, lambda x: x + y, y)"


def test_a_name_of_a_computed_column_is_short_however_large_the_expression_is():
    total: Expression = PRICE
    for _ in range(40):  # 2**40 nodes if it were written out
        total = Call("add", (total, total), pa.int64())

    name = column_name(total, NAMES)

    assert len(name) == 60 and name.startswith("price + price + (") and name.endswith("…")


def test_columns_keep_their_names_and_a_computed_operand_gets_parentheses():
    fields = [Field("price", pa.int64()), Field("a + b", pa.int64())]

    names = column_names([PRICE, call("multiply", PRICE, QTY), call("abs", QTY)], fields)

    assert names == ("price", "price * (a + b)", "abs(a + b)")
