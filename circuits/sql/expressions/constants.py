"""Constant expressions: ``2 + 1`` where SQL needs a number that is known before the first row."""

from __future__ import annotations

from sqlglot import exp

from circuits.errors import EvaluationError
from circuits.plan.expressions import Call, Expression, Literal, columns_of
from circuits.runtime.evaluation import evaluate
from circuits.sql.binding.clause import Clause
from circuits.types.functions.registry import TABLE

__all__ = ["read_constant"]


def read_constant(clause: Clause, node: exp.Expr) -> Expression:
    """Read an expression; return a literal if it reads no columns.

    Calls of user-defined functions are no constants.

    Raises:
        SqlError: The constant has no value, because of an overflow, for example.
    """
    value = clause.read(node)
    if isinstance(value, Literal) or columns_of(value) or not _is_built_in(value):
        return value
    try:
        return Literal(evaluate(value, (), 1)[0].as_py(), value.type)
    except EvaluationError as error:
        raise clause.source.error(node, str(error)) from None


def _is_built_in(expression: Expression) -> bool:
    if not isinstance(expression, Call):
        return True
    return expression.function in TABLE and all(map(_is_built_in, expression.arguments))
