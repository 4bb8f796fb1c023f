"""Literals: numbers, strings, TRUE, FALSE and NULL.

A number with a dot is an exact decimal, as in DuckDB; one with an exponent is a double. In dialect
spark an integer of up to 32 bits is an INT; in other dialects integers have 64 bits.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader

__all__ = ["NULL", "READERS", "integer_literal", "string_literal"]

NULL: Final = Literal(None, pa.null())
INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)
MAX_DECIMAL_DIGITS: Final = 38


def integer_literal(value: int) -> Literal:
    """Return an integer constant."""
    return Literal(value, pa.int64())


def string_literal(value: str) -> Literal:
    """Return a string constant."""
    return Literal(value, pa.string())


def _read_literal(clause: Clause, node: exp.Literal) -> Expression:
    clause.source.allow_arguments(node, "this", "is_string")
    if node.is_string:
        return string_literal(node.this)
    return _parse_number(clause, node, node.this)


def _parse_number(clause: Clause, node: exp.Expr, number_text: str) -> Literal:
    try:
        value = Decimal(number_text)
    except ArithmeticError:
        raise clause.source.error(node, f"{number_text!r} is not a valid number") from None
    if "e" in number_text.lower():
        return Literal(float(number_text), pa.float64())
    if "." not in number_text:
        if clause.source.is_spark and int(value) in INT32:
            return Literal(int(value), pa.int32())
        if int(value) in INT64:
            return integer_literal(int(value))
        digits = len(number_text.lstrip("-"))
        if clause.source.is_spark and digits <= MAX_DECIMAL_DIGITS:
            return Literal(value, pa.decimal128(digits, 0))
        raise clause.source.error(
            node, f"integer {number_text} does not fit 64 bits; write it as a decimal, with .0"
        )
    parts = value.as_tuple()
    scale = -int(parts.exponent)
    # 0.05 is DECIMAL(2, 2) in Spark. In DuckDB the 0 before the dot is a digit: DECIMAL(3, 2).
    precision = max(len(parts.digits), scale if clause.source.is_spark else scale + 1)
    if precision > MAX_DECIMAL_DIGITS:
        return Literal(float(number_text), pa.float64())
    return Literal(value, pa.decimal128(precision, scale))


def _read_negation(clause: Clause, node: exp.Neg) -> Expression:
    """Read ``-x``; the sign of a number is part of the number, so that -2**63 fits 64 bits."""
    clause.source.allow_arguments(node, "this")
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _parse_number(clause, node, "-" + node.this.this)
    value = clause.read(node.this)
    negated = clause.call(node, "negate", value)
    if clause.source.is_spark and pa.types.is_integer(value.type) and negated.type != value.type:
        return clause.call(node, "cast", negated, type=value.type)
    return negated


def _read_boolean(clause: Clause, node: exp.Boolean) -> Expression:
    clause.source.allow_arguments(node, "this")
    return Literal(bool(node.this), pa.bool_())


def _read_null(clause: Clause, node: exp.Null) -> Expression:
    return NULL


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Boolean: _read_boolean,
    exp.Literal: _read_literal,
    exp.Neg: _read_negation,
    exp.Null: _read_null,
}
