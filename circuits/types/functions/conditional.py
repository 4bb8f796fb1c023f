"""Conditional functions: case, if, coalesce, nullif.

The arguments of ``case`` and ``coalesce`` are evaluated only for the rows that reach them, so
``case when b <> 0 then a // b end`` and a cast in a guarded branch do not fail. The evaluator does
this (`circuits.runtime.evaluation`), so these functions have no kernel. ``if`` and ``nullif`` are
rewritten as ``case``.
"""

from __future__ import annotations

import pyarrow as pa

from circuits.types.functions.casting.coercion import unify
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    argument_error,
    require,
)
from circuits.types.functions.logic import as_condition

__all__ = ["FUNCTIONS"]


def _case_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 3, None)
    if len(arguments) % 2 == 0:
        raise argument_error(
            name, arguments, "it takes pairs of condition and value, then the value for the rest"
        )
    conditions = [as_condition(name, arguments, argument) for argument in arguments[:-1:2]]
    values, target = unify((*arguments[1::2], arguments[-1]))
    pairs = zip(conditions, values[:-1], strict=True)
    return (*(part for pair in pairs for part in pair), values[-1]), target


def _coalesce_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, None)
    return unify(arguments)


FUNCTIONS = (
    Function(
        "case", "the value of the first condition that is true, else the last value", _case_rule
    ),
    Function("coalesce", "the first argument that is not NULL", _coalesce_rule),
)
