"""Special functions of floats: gamma, the next even number, the next float, sign bit, is NaN.

As in DuckDB, ``gamma`` of 0 is infinite and of a negative whole number NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Function
from circuits.types.functions.numbers.trigonometry import float_function
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row

__all__ = ["FUNCTIONS"]

_FLOAT = pa.float64()


def _even(values: Any) -> Any:
    """Round away from zero to the next even whole number."""
    whole = np.ceil(np.abs(values))
    return np.copysign(np.where(np.mod(whole, 2) == 1, whole + 1, whole), values)


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


# In a signature, f is a float.
FUNCTIONS = (
    Function(
        "even",
        "the next even whole number away from zero",
        Signature("f", _FLOAT),
        column_kernel(float_function(_even)),
    ),
    Function(
        "next_after",
        "the float64 next to a in the direction of b",
        Signature("ff", _FLOAT),
        column_kernel(float_function(np.nextafter)),
    ),
    Function(
        "sign_bit",
        "true if a is negative, also for -0.0",
        Signature("f", pa.bool_()),
        column_kernel(float_function(np.signbit)),
    ),
    Function("gamma", "the gamma function", Signature("f", _FLOAT), per_distinct_row(_gamma)),
    Function(
        "log_gamma",
        "the logarithm of the absolute value of the gamma function",
        Signature("f", _FLOAT),
        per_distinct_row(_log_gamma),
    ),
    Function("is_nan", "true if a is NaN", Signature("f", pa.bool_()), column_kernel(pc.is_nan)),
    Function(
        "is_finite",
        "true if a is neither infinite nor NaN",
        Signature("f", pa.bool_()),
        column_kernel(pc.is_finite),
    ),
    Function(
        "is_inf", "true if a is infinite", Signature("f", pa.bool_()), column_kernel(pc.is_inf)
    ),
)
