"""Exact int64 arithmetic: every weight that leaves a kernel is right or flagged.

The processor's own overflow flag is read: a test after the fact would be undefined behaviour to the
compiler, which may assume that signed arithmetic does not wrap. No weight may be -2**63, so that
each weight has a negative.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_LOWEST = np.int64(-(2**63))


def _flagged(operation: str) -> Any:
    @intrinsic
    def checked(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pair = getattr(builder, operation)(args[0], args[1])
            value = builder.extract_value(pair, 0)
            flag = builder.extract_value(pair, 1)
            lowest = builder.icmp_signed("==", value, ir.Constant(ir.IntType(64), -(2**63)))
            flag = builder.zext(builder.or_(flag, lowest), ir.IntType(8))
            return cgutils.pack_array(builder, [value, builder.zext(flag, ir.IntType(64))])

        return types.UniTuple(types.int64, 2)(types.int64, types.int64), codegen

    return checked


_add = _flagged("sadd_with_overflow")
_multiply = _flagged("smul_with_overflow")


@njit(nogil=True, inline="always")
def add(x, y):
    """Return ``(x + y, overflowed)``."""
    total, flag = _add(x, y)
    return total, flag != 0


@njit(nogil=True, inline="always")
def multiply(x, y):
    """Return ``(x * y, overflowed)``."""
    product, flag = _multiply(x, y)
    return product, flag != 0


@njit(nogil=True, inline="always")
def fits(rows, x, y):
    """Return whether ``rows * x * y``, none negative, is surely below 2**62."""
    return float(rows) * float(x) * float(y) < 4.0e18
