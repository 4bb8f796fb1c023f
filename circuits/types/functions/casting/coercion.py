"""Implicit casts of arguments whose type is not the required one.

A literal adapts to the other arguments. A text literal is parsed as a date, a timestamp or a number
if another argument has that type. A number literal takes the type of a column if that preserves its
value (so ``price < 24`` compares the codes of the column, which is not cast). A column is cast only
to a type that can represent all its values. Text that cannot be parsed is an error here, before any
row is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow

from circuits.errors import EvaluationError, FunctionError
from circuits.plan.expressions import Call, Expression, Literal
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.casting.casts import cast_scalar
from circuits.types.functions.function import Arguments
from circuits.types.functions.type_rules import (
    check_variant_cast,
    common_type,
    is_binary,
    is_number,
    is_temporal,
    is_text,
)

__all__ = ["adapt", "cast_to", "constant", "unify"]

#: Microseconds; Python has no longer duration.
_MAX_DURATION: Final = timedelta.max // timedelta(microseconds=1)


def cast_to(expression: Expression, target: pa.DataType) -> Expression:
    """Return the expression cast to ``target``; a literal is converted immediately.

    The cast of a literal remains a call if Python cannot represent the value, for example a date in
    the year 20000.

    Raises:
        FunctionError: The type cannot represent the value of a literal.
    """
    if expression.type == target:
        return expression
    check_variant_cast(expression.type, target)
    if isinstance(expression, Literal):
        try:
            return constant(expression, target)
        except EvaluationError as error:
            raise FunctionError(str(error)) from error
        except (ValueError, OverflowError):  # as_py() raises these
            return Call("cast", (expression,), target)
    return Call("cast", (expression,), target)


def constant(literal: Literal, target: pa.DataType) -> Literal:
    """Return the literal in the type ``target``; EvaluationError if it cannot be cast."""
    if literal.value is None or literal.type == target:
        return Literal(literal.value, target)
    return Literal(cast_scalar(literal, target).as_py(), target)


def adapt(arguments: Sequence[Expression]) -> Arguments:
    """Return the arguments with each literal in the type of the others, if its value fits."""
    typed = [a for a in arguments if not arrow.is_null(a.type)]
    required_types = [a.type for a in typed if not isinstance(a, Literal)]
    if not required_types and any(is_text(a.type) for a in typed):
        # Only literals: text literals get the type of the others.
        required_types = [a.type for a in typed if not is_text(a.type)]
    if not required_types:
        return tuple(arguments)
    try:
        target = common_type(required_types)
    except FunctionError:
        return tuple(arguments)
    return tuple(_adapt_literal(a, target) if isinstance(a, Literal) else a for a in arguments)


def _adapt_literal(literal: Literal, target: pa.DataType) -> Expression:
    if literal.value is None or literal.type == target:
        return Literal(literal.value, target)
    if is_text(literal.type):
        return literal if is_binary(target) else cast_to(literal, target)
    if literal.type == INTERVAL:
        return _as_duration(literal) if arrow.is_duration(target) else literal
    types = literal.type, target
    loses_fraction = arrow.is_floating(literal.type) and not arrow.is_floating(target)
    are_numbers = all(map(is_number, types)) and not loses_fraction
    if not are_numbers and not all(map(is_temporal, types)):
        return literal
    if common_type(types) == target:
        return cast_to(literal, target)
    try:
        converted = constant(literal, target)
        converted_back = constant(converted, literal.type)
    except (EvaluationError, ValueError, OverflowError):
        return literal
    is_narrow_float = arrow.is_float32(target) or arrow.is_float16(target)
    if is_narrow_float and not arrow.is_floating(literal.type):
        return converted  # the decimal 0.1 is compared as the nearest value of the narrow type
    return converted if converted_back.value == literal.value else literal


def _as_duration(interval: Literal) -> Literal:
    """Return a literal without months as a duration, whose comparison reads the code."""
    months, days, nanoseconds = interval.value
    duration = days * 86_400 * 10**6 + nanoseconds // 1000
    if months or nanoseconds % 1000 or abs(duration) > _MAX_DURATION:
        return interval
    return Literal(timedelta(microseconds=duration), pa.duration("us"))


def unify(arguments: Sequence[Expression]) -> tuple[Arguments, pa.DataType]:
    """Return the arguments cast to their common type, and that type."""
    adapted = adapt(arguments)
    target = common_type(argument.type for argument in adapted)
    return tuple(cast_to(argument, target) for argument in adapted), target
