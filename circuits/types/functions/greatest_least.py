"""The functions ``greatest`` and ``least``. They ignore NULL, and NaN is the greatest number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.casting.coercion import unify
from circuits.types.functions.comparison import compare
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    require,
)

__all__ = ["FUNCTIONS"]


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, None)
    return unify(arguments)


def _kernel(order: str) -> Kernel:
    def select(left: Values, right: Values) -> Values:
        selects_left = pc.or_kleene(compare(order, left, right), pc.is_null(right))
        return pc.if_else(pc.fill_null(selects_left, False), left, right)

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        return reduce(select, arguments)

    return kernel


FUNCTIONS = (
    Function("greatest", "the greatest argument that is not NULL", _rule, _kernel("gt")),
    Function("least", "the least argument that is not NULL", _rule, _kernel("lt")),
)
