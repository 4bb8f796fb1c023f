"""Operands of Spark's functions: their kinds, and implicit casts that several families share."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.named_functions import (
    Arguments,
    Builder,
    coerce,
)

__all__ = [
    "INSTANT",
    "is_binary",
    "is_int",
    "is_text",
    "null_on_error",
    "refuse_bytes",
    "to_number",
]

INSTANT: Final = pa.timestamp("us", "UTC")


def is_int(value: Expression) -> bool:
    """Return whether a value is an INT or a smaller integer."""
    return bool(arrow.is_integer(value.type) and value.type.bit_width < 64)


def is_binary(value: Expression) -> bool:
    """Return whether a value is bytes."""
    return bool(arrow.is_binary(value.type) or arrow.is_large_binary(value.type))


def is_text(value: Expression) -> bool:
    """Return whether a value is text."""
    return bool(arrow.is_string(value.type) or arrow.is_large_string(value.type))


def null_on_error(builder: Builder) -> Builder:
    """Return a builder of a call that is NULL where the call of ``builder`` raises an error."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        return clause.call(node, "try", builder(clause, node, arguments))

    return build


def to_number(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a value with Spark's implicit cast of text to a number."""
    return coerce(clause, node, [value], "n")[0]


def refuse_bytes(clause: Clause, node: exp.Expr, value: Expression) -> None:
    """Raise an error if a value is bytes."""
    if is_binary(value):
        raise clause.source.unsupported(
            node, f"{clause.source.name_in_text(node)}() of bytes", "decode them to text"
        )
