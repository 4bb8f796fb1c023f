"""Exact int64 arithmetic: every weight that leaves a kernel is right or marked as too large.

No weight may be -2**63, so that each weight has a negative. That value stands for a weight that has
left int64: sums and products with it stay so, except that a row of weight zero is no row, whatever
it is joined with. So an overflow is an error only where its row would have been in the result.

The processor's own overflow flag is read: a test after the fact would be undefined behaviour to the
compiler, which may assume that signed arithmetic does not wrap.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

OVERFLOWED = np.int64(-(2**63))


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
    """Return ``x + y``, or `OVERFLOWED`."""
    total, flag = _add(x, y)
    return OVERFLOWED if flag != 0 or x == OVERFLOWED or y == OVERFLOWED else total


@njit(nogil=True, inline="always")
def multiply(x, y):
    """Return ``x * y``, or `OVERFLOWED`; zero times anything is zero."""
    product, flag = _multiply(x, y)
    return OVERFLOWED if flag != 0 else product


@njit(nogil=True, inline="always")
def difference(x, y):
    """Return ``x - y`` modulo 2**64, for running sums, which may wrap; `add` is for weights.

    Plain signed subtraction would let the compiler assume that it does not wrap.
    """
    return np.int64(np.uint64(x) - np.uint64(y))


@njit(nogil=True, inline="always")
def wrapping_add(x, y):
    """Return ``x + y`` modulo 2**64, the inverse of `difference`."""
    return np.int64(np.uint64(x) + np.uint64(y))


@njit(nogil=True, inline="always")
def fits(rows, x, y):
    """Return whether ``rows * x * y``, none negative, is surely below 2**62."""
    return float(rows) * float(x) * float(y) < 4.0e18
