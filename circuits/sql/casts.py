"""CAST, TRY_CAST and ``::``, with the rules of DuckDB or, in dialect spark, of Spark 4.

Spark differs from DuckDB in three rules: a cast to an integer cuts off the fraction, a string with
a fraction or an exponent is not an integer, and a float is formatted differently as a string.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import EvaluationError
from circuits.plan.expressions import Call, Expression, Literal
from circuits.runtime.evaluation import evaluate
from circuits.sql.clause import Clause, Reader
from circuits.sql.types import arrow_type

__all__ = ["READERS", "refuse_spark_float_as_text"]


def _read_cast(clause: Clause, node: exp.Cast) -> Expression:
    """Read a cast; a lenient one (TRY_CAST) returns NULL where another raises an error.

    In dialect spark, sqlglot parses CAST as a TryCast, too, and ``safe`` tells them apart.
    """
    source = clause.source
    is_lenient = isinstance(node, exp.TryCast)
    if is_lenient and source.is_spark:
        is_lenient = bool(node.args.get("safe"))
    source.allow_arguments(node, "this", "to", *(("safe",) if is_lenient else ()))
    target = arrow_type(source, node.to)
    value = clause.read(node.this)
    if source.is_spark:
        value = _apply_spark_rules(clause, node, value, target)
        if is_lenient and _is_invalid_spark_integer(value, target):
            return Literal(None, target)
    cast = clause.call(node, "try_cast" if is_lenient else "cast", value, type=target)
    invalid_literal = source.error(
        node, f"{value} is not a valid {target}; correct it, or use TRY_CAST"
    )
    if source.is_spark and _is_invalid_spark_integer(value, target):
        raise invalid_literal
    if isinstance(value, Literal) and isinstance(cast, Call):
        # The cast of a literal is folded to a literal, unless its value has no Python equivalent
        # (a date in the year 20000) or its evaluation fails. The latter is an error now.
        try:
            evaluate(cast, (), 1)
        except EvaluationError:
            raise invalid_literal from None
    return cast


def _apply_spark_rules(
    clause: Clause, node: exp.Expr, value: Expression, target: pa.DataType
) -> Expression:
    """Return the value to cast, so that the result is that of Spark."""
    is_fractional = pa.types.is_floating(value.type) or pa.types.is_decimal(value.type)
    if pa.types.is_integer(target) and is_fractional:
        return clause.call(node, "trunc", value)
    if pa.types.is_string(target):
        refuse_spark_float_as_text(clause, node, value)
    return value


def _is_invalid_spark_integer(value: Expression, target: pa.DataType) -> bool:
    """Return whether Spark refuses to cast a string literal to an integer: ``'1.5'``, ``'1e3'``."""
    text = value.value if isinstance(value, Literal) else None
    if not isinstance(text, str) or not pa.types.is_integer(target):
        return False
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is None


def refuse_spark_float_as_text(clause: Clause, node: exp.Expr, value: Expression) -> None:
    """Raise an error for a float as a string, which Spark formats as ``1.0E10`` or ``NaN``."""
    if clause.source.is_spark and pa.types.is_floating(value.type):
        raise clause.source.unsupported(
            node, "a float as text in dialect spark", "cast it to a decimal first, or round it"
        )


READERS: Final[dict[type[exp.Expr], Reader]] = {exp.Cast: _read_cast, exp.TryCast: _read_cast}
