"""ENUM in expressions: values are ordered by the positions of their labels.

Two values of one ENUM are compared by their positions. Next to a text or another ENUM, and in
functions of texts, an ENUM is its text, as in DuckDB: ``mood > 'ok'`` compares texts. In the
dialects of PostgreSQL, a constant text next to an ENUM must be a label, and ``mood > 'ok'``
compares positions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Column, Expression, Literal
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions
from circuits.types.enum_type import EnumType
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_text

__all__ = [
    "EXTREMES",
    "adapt_enums",
    "enum_of_position",
    "enum_of_text",
    "enums_of_positions",
    "is_enum",
    "position_of_enum",
    "sort_enum_list",
]

# The number of the parameter of a lambda over one list; its body reads no other column.
_PARAMETER: Final = 1 << 44
_ORDERS: Final = frozenset({"lt", "le", "gt", "ge"})
_COMPARISONS: Final = _ORDERS | {"eq", "ne", "same", "in", "nullif"}
#: Functions whose result is the greatest or least of their arguments.
EXTREMES: Final = frozenset({"greatest", "least"})
# Functions whose arguments must have one type, whichever it is.
_UNIFYING: Final = frozenset({"case", "coalesce", "greatest", "least"})
# Functions that take an ENUM as it is, next to arguments of any types.
_OF_ANY_TYPE: Final = frozenset(
    {"cast", "try_cast", "is_null", "try", "make_list", "make_struct", "enum_position"}
)


def is_enum(type: pa.DataType) -> bool:
    """Return whether a type is an ENUM."""
    return isinstance(type, EnumType)


def _labels(type: EnumType) -> Literal:
    return Literal(json.dumps(type.labels, ensure_ascii=False), pa.string())


def position_of_enum(value: Expression) -> Expression:
    """Return the position of the label, from 0, which has the order of the ENUM."""
    return functions.call("enum_position", value, _labels(value.type))


def enum_of_position(position: Expression, type: EnumType) -> Expression:
    """Return the value with a position: the inverse of `position_of_enum`."""
    return functions.call("enum_at", position, _labels(type))


def enums_of_positions(positions: Expression, type: EnumType) -> Expression:
    """Return the list of the values at a list of positions."""
    position = Column(_PARAMETER, pa.int64())
    body = enum_of_position(position, type)
    return lambda_call("list_transform", positions, body, (_PARAMETER, _PARAMETER + 1))


def sort_enum_list(
    values: Expression, sort: Callable[[Expression], Expression]
) -> Expression | None:
    """Return a list of values of an ENUM in their order; None for another argument.

    Args:
        values: The list.
        sort: Returns the result for a list of positions: a list of them, or one of them.
    """
    if not is_list(values.type) or not isinstance(type := values.type.value_type, EnumType):
        return None
    body = position_of_enum(Column(_PARAMETER, type))
    positions = lambda_call("list_transform", values, body, (_PARAMETER, _PARAMETER + 1))
    result = sort(positions)
    if is_list(result.type):
        return enums_of_positions(result, type)
    return enum_of_position(result, type)


def enum_of_text(
    source: SqlSource, node: exp.Expr, value: Expression, type: EnumType
) -> Expression:
    """Return a text, or a value of another ENUM, as a value of an ENUM.

    A text of a row that is no label raises an `EvaluationError` in the step.

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
    """Return whether to read a text next to an ENUM as one of its labels, instead of the reverse.

    PostgreSQL reads every constant as a label. DuckDB reads the ENUM as a text; this has the same
    result if the two are tested for equality and the constant is a label.
    """
    if not isinstance(text, Literal):
        return False
    is_equality = name in _COMPARISONS - _ORDERS and text.value in type.labels
    return source.is_postgres or text.value is None or is_equality


def adapt_enums(
    source: SqlSource, node: exp.Expr, name: str, arguments: Sequence[Expression]
) -> tuple[Expression, ...]:
    """Return the arguments of a function, with each ENUM as itself, as its text or as its position.

    Args:
        source: The text of the program, for errors.
        node: The call, for errors.
        name: The name of the function.
        arguments: The arguments, of which at least one is an ENUM.

    Raises:
        SqlError: In a dialect of PostgreSQL, a constant text is no label.
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
