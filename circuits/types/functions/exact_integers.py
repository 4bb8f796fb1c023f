"""Arithmetic of int64 arrays that never wraps around: checked, or by magnitude.

numpy computes with int64 modulo 2**64, without an error. A kernel whose arguments may be any int64
uses these functions instead. A sum, difference or product beyond 64 bits raises `ArrowInvalid`,
which the evaluator makes an error of the row. The distance of two int64 may need 65 bits with its
sign, so `distance` returns its magnitude, which a uint64 always holds.

Cost: one or two passes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["add", "distance", "magnitude", "multiply", "subtract"]

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]


def add(left: Int64s, right: Int64s) -> Int64s:
    """Return the sums; ArrowInvalid if one does not fit 64 bits."""
    return np.asarray(pc.add_checked(pa.array(left), pa.array(right)).to_numpy())


def subtract(left: Int64s, right: Int64s) -> Int64s:
    """Return the differences; ArrowInvalid if one does not fit 64 bits."""
    return np.asarray(pc.subtract_checked(pa.array(left), pa.array(right)).to_numpy())


def multiply(left: Int64s, right: int) -> Int64s:
    """Return the products with a constant; ArrowInvalid if one does not fit 64 bits."""
    return np.asarray(pc.multiply_checked(pa.array(left), right).to_numpy())


def magnitude(numbers: Int64s) -> UInt64s:
    """Return the absolute values, also that of -2**63.

    >>> magnitude(np.array([3, -2, -(2**63)])).tolist()
    [3, 2, 9223372036854775808]
    """
    bits = numbers.view(np.uint64)
    return np.where(numbers < 0, ~bits + np.uint64(1), bits)


def distance(numbers: Int64s, others: Int64s) -> UInt64s:
    """Return the absolute values of the differences.

    >>> distance(np.array([2**63 - 1, 5]), np.array([-(2**63), 7])).tolist()
    [18446744073709551615, 2]
    """
    low, high = np.minimum(numbers, others), np.maximum(numbers, others)
    # Modulo 2**64, which the distance is less than.
    return high.view(np.uint64) - low.view(np.uint64)
