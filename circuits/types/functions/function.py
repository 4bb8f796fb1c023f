"""The class `Function`: a function of expressions, with its name, its type rule and its kernel.

The *type rule* gets the name of the function and the arguments. They are expressions, not types: a
rule may change the type of a literal, but not that of a column. The last parameter is the target
type of a cast, None for all other functions. The rule returns the arguments with the casts that the
kernel needs, and the type of the result.

The *kernel* computes the results of all rows. It gets one Arrow array or scalar per argument, at
least one of them an array, and the type of the result. Their types are those that
`circuits.types.functions.type_rules.kernel_type` returns. The result of a row depends on no other
row, so a failing row can be found by bisection.

A function without a kernel does not evaluate all its arguments for all rows (case, coalesce); the
evaluator handles it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from circuits.errors import FunctionError
from circuits.plan.expressions import Expression
from circuits.types.arrow_types import type_name

__all__ = [
    "Arguments",
    "Function",
    "Kernel",
    "Rule",
    "TypedArguments",
    "Values",
    "argument_error",
    "require",
]

Values: TypeAlias = pa.Array | pa.Scalar
Arguments = tuple[Expression, ...]
TypedArguments = tuple[Arguments, pa.DataType]
Rule = Callable[[str, Arguments, pa.DataType | None], TypedArguments]
Kernel = Callable[[Sequence[Values], pa.DataType], Values]


@dataclass(frozen=True)
class Function:
    """One function: its name, a description, its type rule and its kernel.

    In the description, a, b, c, … are the arguments.
    """

    name: str
    description: str
    rule: Rule
    kernel: Kernel | None = None


def argument_error(name: str, arguments: Sequence[Expression], fix: str) -> FunctionError:
    """Return the error for arguments that a function does not accept.

    Args:
        name: The name of the function.
        arguments: The arguments.
        fix: The arguments that it accepts, or how to fix the call.
    """
    types = ", ".join(type_name(argument.type) for argument in arguments)
    return FunctionError(f"{name}({types}) does not exist: {fix}")


def require(
    name: str, arguments: Sequence[Expression], min_count: int, max_count: int | None
) -> None:
    """Raise FunctionError unless there are ``min_count`` to ``max_count`` arguments."""
    count = len(arguments)
    if min_count <= count and (max_count is None or count <= max_count):
        return
    if max_count is None:
        bound = f"{min_count} or more"
    else:
        bound = f"{min_count}" if min_count == max_count else f"{min_count} to {max_count}"
    raise argument_error(name, arguments, f"it takes {bound} arguments, not {count}")
