"""Casts by the name of a type, names of types, and assertions in dialect spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.clause import Clause
from circuits.sql.literals import string_literal
from circuits.sql.named_functions import (
    Arguments,
    Builder,
    as_text,
    count_error,
    fixed,
    named,
)
from circuits.sql.spark.operands import (
    INSTANT,
    is_spark_int,
)

__all__ = ["BUILDERS"]

_NOT_TRUE: Final = string_literal("the condition is not true")


def _typeof(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) != 1:
        raise count_error(clause, node, "1")
    (value,) = arguments
    if arrow.is_integer(value.type) and is_spark_int(node.expressions[0], value):
        return string_literal(
            _TYPE_NAMES.get(str(value.type), "int") if value.type.bit_width < 64 else "int"
        )
    if not isinstance(node.expressions[0], exp.Column | exp.Cast | exp.Literal) and (
        arrow.is_integer(value.type) or arrow.is_decimal(value.type)
    ):
        raise clause.source.unsupported(
            node, "typeof() of a computation", "take a column, a literal or a CAST"
        )
    if arrow.is_decimal(value.type):
        return string_literal(f"decimal({value.type.precision},{value.type.scale})")
    if arrow.is_timestamp(value.type):
        return string_literal("timestamp_ntz" if value.type.tz is None else "timestamp")
    return string_literal(_TYPE_NAMES.get(str(value.type), str(value.type)))


_TYPE_NAMES: Final = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "double": "double",
    "float": "float",
    "string": "string",
    "large_string": "string",
    "bool": "boolean",
    "binary": "binary",
    "date32[day]": "date",
    "null": "void",
    "duration[us]": "interval day to second",
}


def _assert_true(
    clause: Clause,
    node: exp.Expr,
    condition: Expression,
    message: Expression = _NOT_TRUE,
) -> Expression:
    return clause.call(node, "assert_true", condition, message)


def _converted(target: pa.DataType) -> Builder:
    """Read ``int(x)``, ``string(x)``...: casts by the name of the type."""

    def convert(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
        if arrow.is_string(target):
            return as_text(clause, node, value)
        if arrow.is_integer(target) and (
            arrow.is_floating(value.type) or arrow.is_decimal(value.type)
        ):
            value = clause.call(node, "trunc", value)
        return clause.call(node, "cast", value, type=target)

    return fixed(1, convert)


BUILDERS: Final[dict[str, Builder]] = {
    "typeof": _typeof,
    "raise_error": named("raise_error"),
    "assert_true": fixed((1, 2), _assert_true),
    "int": _converted(pa.int32()),
    "bigint": _converted(pa.int64()),
    "smallint": _converted(pa.int16()),
    "tinyint": _converted(pa.int8()),
    "double": _converted(pa.float64()),
    "float": _converted(pa.float32()),
    "string": _converted(pa.string()),
    "boolean": _converted(pa.bool_()),
    "date": _converted(pa.date32()),
    "timestamp": _converted(INSTANT),
    "binary": _converted(pa.binary()),
}
