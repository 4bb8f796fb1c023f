"""Special functions of floats: gamma, the next even number, the next float, the sign bit.

As in DuckDB, ``gamma`` of 0 is infinite and of a negative whole number NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row

__all__ = ["FUNCTIONS"]

_FLOAT = pa.float64()


def _by_numpy(function: Any, result: pa.DataType = _FLOAT) -> Any:
    """Return a kernel of a function of numpy arrays of floats; NULL gives NULL."""

    def apply(*columns: pa.Array) -> pa.Array:
        is_null = np.zeros(len(columns[0]), np.bool_)
        arrays = []
        for column in columns:
            is_null |= column.is_null().to_numpy(zero_copy_only=False)
            arrays.append(column.to_numpy(zero_copy_only=False))
        with np.errstate(all="ignore"):
            return pa.array(function(*arrays), result, mask=is_null)

    return column_kernel(apply)


def _even(values: Any) -> Any:
    """Round away from zero to the next even whole number."""
    return np.copysign(np.ceil(np.abs(values) / 2) * 2, values)


def _gamma(value: float) -> float:
    if value == 0:
        return math.copysign(math.inf, value)
    try:
        return math.gamma(value)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _log_gamma(value: float) -> float:
    try:
        return math.lgamma(value)
    except (OverflowError, ValueError):
        return math.inf


FUNCTIONS = (
    Function(
        "even",
        "the next even whole number away from zero",
        Signature("f", _FLOAT),
        _by_numpy(_even),
    ),
    Function(
        "next_after",
        "the float64 next to a in the direction of b",
        Signature("ff", _FLOAT),
        _by_numpy(np.nextafter),
    ),
    Function(
        "sign_bit",
        "true if a is negative, also for -0.0",
        Signature("f", pa.bool_()),
        _by_numpy(np.signbit, pa.bool_()),
    ),
    Function("gamma", "the gamma function", Signature("f", _FLOAT), per_distinct_row(_gamma)),
    Function(
        "log_gamma",
        "the logarithm of the absolute value of the gamma function",
        Signature("f", _FLOAT),
        per_distinct_row(_log_gamma),
    ),
)
