"""Three-valued (Kleene) logic: and, or, not; and is_null and is_true, which are never NULL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Call, Expression
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)

__all__ = ["FUNCTIONS", "as_condition"]


def as_condition(name: str, arguments: Arguments, argument: Expression) -> Expression:
    """Return an argument as a condition; FunctionError if it is neither a bool nor NULL."""
    if arrow.is_null(argument.type):
        return cast_to(argument, pa.bool_())
    if not arrow.is_boolean(argument.type):
        raise argument_error(
            name, arguments, f"{argument.type} is no condition; compare it with a value"
        )
    return argument


def _connective_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, None)
    flat: list[Expression] = []
    for argument in arguments:
        is_same_call = isinstance(argument, Call) and argument.function == name  # a and (b and c)
        flat.extend(argument.arguments if is_same_call else [argument])  # type: ignore[union-attr]
    return tuple(as_condition(name, arguments, argument) for argument in flat), pa.bool_()


def _not_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    return (as_condition(name, arguments, arguments[0]),), pa.bool_()


def _is_null_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    return arguments, pa.bool_()


def _and(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return reduce(pc.and_kleene, arguments)


def _or(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return reduce(pc.or_kleene, arguments)


def _not(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.invert(arguments[0])


def _is_null(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.is_null(arguments[0])


def _is_true(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.fill_null(arguments[0], False)


FUNCTIONS = (
    Function("and", "false if one is false, else NULL if one is NULL", _connective_rule, _and),
    Function("or", "true if one is true, else NULL if one is NULL", _connective_rule, _or),
    Function("not", "the negation; NULL for NULL", _not_rule, _not),
    Function("is_null", "true for NULL, else false", _is_null_rule, _is_null),
    Function("is_true", "true for true, else false", _not_rule, _is_true),
)
