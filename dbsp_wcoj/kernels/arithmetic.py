"""Exact int64 arithmetic: every weight that leaves a kernel is right or flagged."""

import numpy as np
from numba import njit

_HALF = np.int64(1) << 31
_LOWEST = np.int64(-(2**63))


@njit(nogil=True, inline="always")
def add(x, y):
    """Return ``(x + y, overflowed)``. No weight may be -2**63, so that each has a negative."""
    total = x + y
    return total, (((x ^ total) & (y ^ total)) < 0) | (total == _LOWEST)


@njit(nogil=True, inline="always")
def multiply(x, y):
    """Return ``(x * y, overflowed)``."""
    if -_HALF < x < _HALF and -_HALF < y < _HALF:
        return x * y, False
    if x == 0 or y == 0:
        return np.int64(0), False
    if x == _LOWEST or y == _LOWEST:
        return np.int64(0), True
    product = x * y
    return product, product == _LOWEST or product // y != x


@njit(nogil=True, inline="always")
def fits(rows, x, y):
    """Return whether ``rows * x * y``, none negative, is surely below 2**62."""
    return float(rows) * float(x) * float(y) < 4.0e18
