"""Operators of numbers in dialect spark, and the integer types of results.

An INT plus an INT is an INT in Spark, but a 64-bit integer in `circuits.types.functions`. So an
integer result is cast in dialect spark: to the type of the operands (`cast_to_type_of`), or to the
type that Spark gives a function (`RESULT_TYPES`). The cast fails for a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import Arguments, Builder
from circuits.sql.expressions.spark.operands import is_text
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions import common_type
from circuits.types.functions.type_rules import is_temporal

__all__ = [
    "INTEGER_DECIMALS",
    "RESULT_TYPES",
    "cast_to_type_of",
    "convert_operands",
    "read_arithmetic",
    "with_type_of_argument",
]

_INTS: Final = (
    *("ascii", "length", "len", "char_length", "character_length", "octet_length", "bit_length"),
    *("instr", "locate", "position", "charindex", "levenshtein", "find_in_set"),
    *("regexp_count", "regexp_instr", "year", "quarter", "month", "day", "dayofmonth"),
    *("dayofyear", "dayofweek", "weekday", "weekofyear", "hour", "minute", "second"),
    *("unix_date", "size", "cardinality", "array_size", "json_array_length", "bit_count", "hash"),
    *("date_part", "datepart", "json_object_length", "width"),
)
#: The integer types of results by the name of the function, or the class of its node.
RESULT_TYPES: Final[Mapping[str | type[exp.Expr], pa.DataType]] = {
    **dict.fromkeys(_INTS, pa.int32()),
    **dict.fromkeys(("bit_get", "getbit"), pa.int8()),
    **dict.fromkeys((exp.ArraySize, exp.Extract, exp.StrPosition), pa.int32()),
}

#: The decimal types of integers beside a decimal.
INTEGER_DECIMALS: Final = {
    **{pa.int8(): pa.decimal128(3), pa.int16(): pa.decimal128(5)},
    **{pa.int32(): pa.decimal128(10), pa.int64(): pa.decimal128(20)},
}


def read_arithmetic(
    clause: Clause, node: exp.Expr, function: str, left: Expression, right: Expression
) -> Expression:
    """Return the sum, difference or product of dates and intervals, or of numbers as in Spark.

    Args:
        clause: The clause.
        node: The operator, for errors.
        function: ``add``, ``subtract`` or ``multiply``.
        left: The left operand.
        right: The right operand.
    """
    sides = left, right
    if any(side.type == INTERVAL for side in sides):
        return _compute_months(clause, node, function, left, right)
    if any(arrow.is_duration(side.type) for side in sides) and function == "multiply":
        interval, number = sides if arrow.is_duration(left.type) else sides[::-1]
        return clause.call(node, "multiply_interval", interval, number)
    if function == "subtract" and all(arrow.is_date(side.type) for side in sides):
        timestamps = (clause.call(node, "cast", side, type=pa.timestamp("us")) for side in sides)
        return clause.call(node, function, *timestamps)
    are_temporal = all(is_temporal(side.type) for side in sides)
    if function == "subtract" and are_temporal and left.type != right.type:
        instant = pa.timestamp("us", "UTC")
        timestamps = (spark_cast(clause, node, side, instant) for side in sides)
        return clause.call(node, function, *timestamps)
    if any(arrow.is_duration(side.type) or arrow.is_temporal(side.type) for side in sides):
        return clause.call(node, function, left, right)
    return clause.call(node, f"{function}_ansi", *convert_operands(clause, node, left, right))


def divide_months(
    clause: Clause, node: exp.Expr, interval: Expression, number: Expression
) -> Expression:
    """Return an interval of months by a number, rounded half away from zero to whole months."""
    months = clause.call(node, "interval_field", interval, string_literal("months"))
    if not arrow.is_decimal(number.type):
        months = clause.call(node, "cast", months, type=pa.float64())
    return _interval_of_months(clause, node, clause.call(node, "divide_ansi", months, number))


def _compute_months(
    clause: Clause, node: exp.Expr, function: str, left: Expression, right: Expression
) -> Expression:
    """Return the sum or difference of intervals of months, or the product of one with a number."""
    are_intervals = [side.type == INTERVAL for side in (left, right)]
    if function != "multiply" and all(are_intervals):
        return clause.call(node, function, left, right)
    if function != "multiply" or all(are_intervals):
        types = f"{type_text(left.type)} and {type_text(right.type)}"
        raise clause.source.unsupported(
            node, f"{function}() of {types}", "take two intervals of months, or one and a number"
        )
    interval, number = (left, right) if are_intervals[0] else (right, left)
    months = clause.call(node, "interval_field", interval, string_literal("months"))
    return _interval_of_months(clause, node, clause.call(node, "multiply", months, number))


def type_text(data_type: pa.DataType) -> str:
    """Return the name of a type for an error."""
    if data_type == INTERVAL:
        return "an interval of months"
    return "an interval of days" if arrow.is_duration(data_type) else f"a {data_type}"


def _interval_of_months(clause: Clause, node: exp.Expr, months: Expression) -> Expression:
    if not arrow.is_integer(months.type):
        months = clause.call(node, "cast", clause.call(node, "round", months), type=pa.int64())
    return clause.call(node, "make_interval", months, integer_literal(0), integer_literal(0))


def convert_operands(clause: Clause, node: exp.Expr, *values: Expression) -> Arguments:
    """Return the operands of an operator or function, with Spark's implicit casts.

    Beside a number, a text becomes a BIGINT if all others are integers, and a DOUBLE if not.
    Beside a decimal, a computed integer becomes a decimal with the digits of its type. (The digits
    of an integer that is written as a number are those of its value.)

    Args:
        clause: The clause.
        node: The operator or function.
        values: Its operands, in their order in ``node``.
    """
    if any(arrow.is_decimal(value.type) for value in values):
        operands = node.expressions or [node.args.get("this"), node.args.get("expression")]
        values = tuple(
            clause.call(node, "cast", value, type=INTEGER_DECIMALS[value.type])
            if value.type in INTEGER_DECIMALS and not _is_written_number(operand)
            else value
            for value, operand in zip(values, operands, strict=True)
        )
    other_types = [value.type for value in values if not is_text(value)]
    if len(other_types) == len(values) or not any(
        _is_number(data_type) for data_type in other_types
    ):
        return list(values)
    target = pa.int64() if all(map(arrow.is_integer, other_types)) else pa.float64()
    return [
        clause.call(node, "cast", value, type=target) if is_text(value) else value
        for value in values
    ]


def _is_written_number(node: exp.Expr) -> bool:
    """Return whether an expression is a number of the text, with or without a minus."""
    node = node.unnest()
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _is_number(data_type: pa.DataType) -> bool:
    return bool(
        arrow.is_integer(data_type) or arrow.is_floating(data_type) or arrow.is_decimal(data_type)
    )


def cast_to_type_of(
    clause: Clause, node: exp.Expr, value: Expression, *operands: Expression
) -> Expression:
    """Return an integer in the common type of integer operands; another value as it is."""
    types = [operand.type for operand in operands if not arrow.is_null(operand.type)]
    if not types or not all(map(arrow.is_integer, [value.type, *types])):
        return value
    target = common_type(types)
    return value if value.type == target else clause.call(node, "cast", value, type=target)


def with_type_of_argument(builder: Builder) -> Builder:
    """Return a builder that casts an integer result to the type of an integer first argument."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        value = builder(clause, node, arguments)
        return cast_to_type_of(clause, node, value, *arguments[:1])

    return build
