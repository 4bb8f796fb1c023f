"""Arithmetic: exact int64 sums and products; a result that does not fit is marked as overflowed.

The mark is the value -2**63, which is not a valid weight, because its negative does not fit in
int64. Sums and products with an overflowed weight are overflowed. The exception is a product with
zero, which is zero, because a row of weight zero does not exist. So an overflow is an error only if
its row would be in the result.

The code reads the overflow flag of the processor. A test after the operation would be undefined
behaviour for the compiler, which may assume that signed arithmetic does not wrap.

All functions are intrinsics: numba takes about ten milliseconds to inline a function at each of its
calls, and a tenth of a second to compile a function that is called.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

OVERFLOWED = np.int64(-(2**63))

_LOWEST = ir.Constant(ir.IntType(64), -(2**63))
_BINARY = types.int64(types.int64, types.int64)


def _is_lowest(builder: Any, value: Any) -> Any:
    return builder.icmp_signed("==", value, _LOWEST)


@intrinsic  # type: ignore[untyped-decorator]
def add(typingctx: Any, x: Any, y: Any) -> Any:
    """Return ``x + y``, or `OVERFLOWED`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.sadd_with_overflow(*args)
        total = builder.extract_value(pair, 0)
        beyond = builder.or_(builder.extract_value(pair, 1), _is_lowest(builder, args[0]))
        beyond = builder.or_(beyond, _is_lowest(builder, args[1]))
        return builder.select(beyond, _LOWEST, total)

    return _BINARY, codegen


@intrinsic  # type: ignore[untyped-decorator]
def multiply(typingctx: Any, x: Any, y: Any) -> Any:
    """Return ``x * y``, or `OVERFLOWED`; zero times anything is zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.smul_with_overflow(*args)
        return builder.select(
            builder.extract_value(pair, 1), _LOWEST, builder.extract_value(pair, 0)
        )

    return _BINARY, codegen


@intrinsic  # type: ignore[untyped-decorator]
def wrapping_subtract(typingctx: Any, x: Any, y: Any) -> Any:
    """Return ``x - y`` modulo 2**64: for running sums, which may wrap; `add` is for weights.

    Plain signed subtraction would let the compiler assume that it does not wrap.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sub(*args)

    return _BINARY, codegen


@intrinsic  # type: ignore[untyped-decorator]
def wrapping_add(typingctx: Any, x: Any, y: Any) -> Any:
    """Return ``x + y`` modulo 2**64, the inverse of `wrapping_subtract`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.add(*args)

    return _BINARY, codegen


@intrinsic  # type: ignore[untyped-decorator]
def is_product_safe(typingctx: Any, rows: Any, x: Any, y: Any) -> Any:
    """Return whether ``rows * x * y``, none negative, is certainly below 2**62."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product, *factors = (builder.sitofp(value, ir.DoubleType()) for value in args)
        for factor in factors:
            product = builder.fmul(product, factor)
        return builder.fcmp_ordered("<", product, ir.Constant(ir.DoubleType(), 4.0e18))

    return types.boolean(types.int64, types.int64, types.int64), codegen
