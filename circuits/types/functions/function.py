"""A function of the expression language: its name, its rule of types, its kernel.

The rule looks at the arguments as expressions, because a literal adapts where a column does not; it
returns them with the casts that the kernel needs, and the type of the result. The kernel takes one
Arrow array or scalar per argument, at least one of them an array, of the `plain` form of the types
that the rule gave, and returns an array or scalar of the plain form of the result's type. It works
by whole columns and knows nothing of other rows, so a failure can be narrowed to a row by halving.

A function without kernel is one that does not evaluate all its arguments for all rows (case,
coalesce); the evaluator knows it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from circuits.errors import FunctionError
from circuits.plan.expressions import Expression

__all__ = ["Arguments", "Function", "Kernel", "Rule", "Typed", "Values", "refuse", "require"]

Values: TypeAlias = pa.Array | pa.Scalar
Arguments = tuple[Expression, ...]
Typed = tuple[Arguments, pa.DataType]
Rule = Callable[[str, Arguments, pa.DataType | None], Typed]
Kernel = Callable[[Sequence[Values], pa.DataType], Values]


@dataclass(frozen=True)
class Function:
    """One function: what it does in a sentence, ``rule`` and ``kernel`` as above."""

    name: str
    description: str
    rule: Rule
    kernel: Kernel | None = None


def refuse(name: str, arguments: Sequence[Expression], wanted: str) -> FunctionError:
    """The error for arguments that a function does not take; ``wanted`` is the way out."""
    given = ", ".join(str(argument.type) for argument in arguments)
    return FunctionError(f"{name}({given}) does not exist: {wanted}")


def require(name: str, arguments: Sequence[Expression], least: int, most: int | None) -> None:
    """Raise FunctionError unless the number of arguments is in the bounds."""
    count = len(arguments)
    if least <= count and (most is None or count <= most):
        return
    bound = f"{least}" if least == most else f"{least} or more" if most is None else None
    raise refuse(
        name, arguments, f"it takes {bound or f'{least} to {most}'} arguments, not {count}"
    )
