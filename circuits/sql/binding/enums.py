"""ENUM in expressions: values are ordered by the positions of their labels.

Two values of one ENUM are compared as such. Next to a text or another ENUM, and in functions of
texts, an ENUM is its text, as in DuckDB: ``mood > 'ok'`` compares texts. In the dialects of
PostgreSQL, a constant text next to an ENUM must be a label, and is compared as one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Expression, Literal
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions
from circuits.types.enum_type import EnumType
from circuits.types.functions.type_rules import is_text

__all__ = [
    "EXTREMES",
    "adapt_enums",
    "enum_of_position",
    "enum_of_text",
    "is_enum",
    "is_position_of_enum",
    "position_of_enum",
]

_ORDERS: Final = frozenset({"lt", "le", "gt", "ge"})
_COMPARISONS: Final = _ORDERS | {"eq", "ne", "same", "in", "nullif"}
#: Functions whose result is one of their arguments, by its order.
EXTREMES: Final = frozenset({"greatest", "least"})
# Functions of values of any type, whose arguments get one type.
_UNIFYING: Final = frozenset({"case", "coalesce", "greatest", "least"})
_OF_ANY_TYPE: Final = frozenset(
    {"cast", "try_cast", "is_null", "try", "make_list", "make_struct", "enum_position"}
)


def is_enum(type: pa.DataType) -> bool:
    """Return whether a type is an ENUM."""
    return isinstance(type, EnumType)


def _labels(type: EnumType) -> Literal:
    return Literal(json.dumps(type.labels, ensure_ascii=False), pa.string())


def is_position_of_enum(value: Expression) -> bool:
    """Return whether a value is a result of `position_of_enum`."""
    return isinstance(value, Call) and value.function == "enum_position"


def position_of_enum(value: Expression) -> Expression:
    """Return the position of a value of an ENUM, which has its order."""
    return functions.call("enum_position", value, _labels(value.type))


def enum_of_position(position: Expression, type: EnumType) -> Expression:
    """Return the value at a position: the inverse of `position_of_enum`."""
    return functions.call("enum_at", position, _labels(type))


def enum_of_text(
    source: SqlSource, node: exp.Expr, value: Expression, type: EnumType
) -> Expression:
    """Return a text as a value of an ENUM; a text that is no label is an error.

    Raises:
        SqlError: A constant text is no label.
    """
    if isinstance(value, Literal):
        if value.value is not None and value.value not in type.labels:
            labels = ", ".join(map(repr, type.labels))
            raise source.error(node, f"{value.value!r} is no label of the ENUM; labels: {labels}")
        return Literal(value.value, type)
    if value.type == type or pa.types.is_null(value.type):
        return functions.call("cast", value, type=type)
    return functions.call("enum_of_text", _as_text(value), _labels(type))


def _as_text(value: Expression) -> Expression:
    return functions.call("cast", value, type=pa.string()) if is_enum(value.type) else value


def _is_label(source: SqlSource, name: str, text: Expression, type: EnumType) -> bool:
    """Return whether a text next to an ENUM is one of its labels.

    PostgreSQL reads every constant as a label. In DuckDB the ENUM is read as a text, which does not
    change whether the two are equal.
    """
    if not isinstance(text, Literal):
        return False
    is_equality = name in _COMPARISONS - _ORDERS and text.value in type.labels
    return source.is_postgres or text.value is None or is_equality


def adapt_enums(
    source: SqlSource, node: exp.Expr, name: str, arguments: Sequence[Expression]
) -> tuple[Expression, ...]:
    """Return the arguments of a function in which values of an ENUM have the type to compute with.

    Args:
        source: The text, for errors.
        node: The call.
        name: The function.
        arguments: The arguments, of which at least one is an ENUM.
    """
    if name in _OF_ANY_TYPE:
        return tuple(arguments)
    if name not in _COMPARISONS and name not in _UNIFYING:
        return tuple(map(_as_text, arguments))
    types = {value.type for value in arguments if is_enum(value.type)}
    texts = [value for value in arguments if is_text(value.type)]
    if len(types) > 1 or not all(_is_label(source, name, text, *types) for text in texts):
        return tuple(map(_as_text, arguments))
    (type,) = types
    adapted = (
        enum_of_text(source, node, value, type) if is_text(value.type) else value
        for value in arguments
    )
    if name in _ORDERS or name in EXTREMES:
        return tuple(position_of_enum(v) if is_enum(v.type) else v for v in adapted)
    return tuple(adapted)
