"""Casts by the name of a type, names of types, and assertions in dialect spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.literals import string_literal
from circuits.sql.expressions.named_functions import Builder, call_of, check_count
from circuits.sql.expressions.spark.operands import INSTANT
from circuits.types.arrow_types import VARIANT, is_nested

__all__ = ["BUILDERS", "type_name"]

_NOT_TRUE: Final = string_literal("the condition is not true")


def _typeof(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return string_literal(type_name(value.type))


def type_name(data_type: pa.DataType) -> str:
    """Return the name of a type in Spark, as in ``array<int>``."""
    if arrow.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if arrow.is_timestamp(data_type):
        return "timestamp_ntz" if data_type.tz is None else "timestamp"
    if arrow.is_map(data_type):
        return f"map<{type_name(data_type.key_type)},{type_name(data_type.item_type)}>"
    if arrow.is_struct(data_type):
        return f"struct<{','.join(f'{part.name}:{type_name(part.type)}' for part in data_type)}>"
    if is_nested(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    return _TYPE_NAMES.get(str(data_type), str(data_type))


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
    str(VARIANT): "variant",
    "duration[us]": "interval day to second",
    "month_day_nano_interval": "interval year to month",
}


def _assert_true(
    clause: Clause,
    node: exp.Expr,
    condition: Expression,
    message: Expression = _NOT_TRUE,
) -> Expression:
    return clause.call(node, "assert_true", condition, message)


def _cast_builder(target: pa.DataType) -> Builder:
    """Return the builder of ``int(x)``, ``string(x)`` or another cast by the name of the type."""

    def convert(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
        return spark_cast(clause, node, value, target)

    return check_count(1, convert)


BUILDERS: Final[dict[str, Builder]] = {
    "typeof": check_count(1, _typeof),
    "raise_error": call_of("raise_error"),
    "assert_true": check_count((1, 2), _assert_true),
    "int": _cast_builder(pa.int32()),
    "bigint": _cast_builder(pa.int64()),
    "smallint": _cast_builder(pa.int16()),
    "tinyint": _cast_builder(pa.int8()),
    "decimal": _cast_builder(pa.decimal128(10, 0)),
    "double": _cast_builder(pa.float64()),
    "float": _cast_builder(pa.float32()),
    "string": _cast_builder(pa.string()),
    "boolean": _cast_builder(pa.bool_()),
    "date": _cast_builder(pa.date32()),
    "timestamp": _cast_builder(INSTANT),
    "binary": _cast_builder(pa.binary()),
}
