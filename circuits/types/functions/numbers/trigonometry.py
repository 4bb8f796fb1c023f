"""Trigonometric, hyperbolic and logarithmic functions of floats, computed by numpy.

Outside the domain the result is NaN, as IEEE 754 says and as Spark returns it; logarithms of zero
are -inf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, column_kernel

__all__ = ["FUNCTIONS"]


def float_function(
    function: Callable[..., Any], domain: Callable[..., Any] | None = None
) -> Callable[..., pa.Array]:
    """Convert a function of float64 arrays to a function of Arrow columns.

    Args:
        function: The function.
        domain: Returns a mask of the rows for which the function is defined; the result for the
            other rows is NULL. None if the function is defined for all rows.
    """

    def apply(*columns: pa.Array) -> pa.Array:
        valid = np.ones(len(columns[0]), np.bool_)
        arrays = []
        for column in columns:
            valid &= np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
            arrays.append(pc.fill_null(column, 1.0).to_numpy(zero_copy_only=False))
        with np.errstate(all="ignore"):
            results = np.asarray(function(*arrays), np.float64)
            if domain is not None:
                valid &= domain(*arrays)
        return pa.array(results, pa.float64(), mask=~valid, from_pandas=False)

    return apply


def _unary(name: str, description: str, function: Callable[..., Any]) -> Function:
    return Function(
        name, description, Signature("f", pa.float64()), column_kernel(float_function(function))
    )


def _is_positive_or_nan(*values: Any) -> Any:
    return np.logical_and.reduce([~(value <= 0) for value in values])


def _log(base: Any, value: Any) -> Any:
    return np.log(value) / np.log(base)


# In a signature, f is a float.
FUNCTIONS = (
    _unary("sin", "the sine of a, in radians", np.sin),
    _unary("cos", "the cosine of a, in radians", np.cos),
    _unary("tan", "the tangent of a, in radians", np.tan),
    _unary("cot", "the cotangent of a, in radians", lambda a: 1 / np.tan(a)),
    _unary("sec", "the secant of a, in radians", lambda a: 1 / np.cos(a)),
    _unary("csc", "the cosecant of a, in radians", lambda a: 1 / np.sin(a)),
    _unary("asin", "the arc sine", np.arcsin),
    _unary("acos", "the arc cosine", np.arccos),
    _unary("atan", "the arc tangent", np.arctan),
    _unary("sinh", "the hyperbolic sine", np.sinh),
    _unary("cosh", "the hyperbolic cosine", np.cosh),
    _unary("tanh", "the hyperbolic tangent", np.tanh),
    _unary("asinh", "the inverse hyperbolic sine", np.arcsinh),
    _unary("acosh", "the inverse hyperbolic cosine", np.arccosh),
    _unary("atanh", "the inverse hyperbolic tangent", np.arctanh),
    _unary("degrees", "radians as degrees", np.degrees),
    _unary("radians", "degrees as radians", np.radians),
    _unary("cbrt", "the cube root", np.cbrt),
    _unary("log2", "the logarithm to base 2", np.log2),
    _unary("log1p", "the natural logarithm of 1 + a", np.log1p),
    _unary("expm1", "e to the power of a, minus 1", np.expm1),
    _unary("rint", "the nearest whole number, half to even", np.rint),
    Function(
        "atan2",
        "the angle of the point (b, a), in radians",
        Signature("ff", pa.float64()),
        column_kernel(float_function(np.arctan2)),
    ),
    Function(
        "hypot",
        "the square root of a² + b²",
        Signature("ff", pa.float64()),
        column_kernel(float_function(np.hypot)),
    ),
    Function(
        "log",
        "the logarithm of b to base a",
        Signature("ff", pa.float64()),
        column_kernel(float_function(_log)),
    ),
    Function(
        "null_unless_positive",
        "a, NULL if it is not above zero: the domain of Spark's logarithms",
        Signature("f", pa.float64()),
        column_kernel(float_function(lambda a: a, _is_positive_or_nan)),
    ),
    Function(
        "null_unless_above_minus_one",
        "a, NULL if it is not above -1: the domain of Spark's log1p",
        Signature("f", pa.float64()),
        column_kernel(float_function(lambda a: a, lambda a: ~(a <= -1))),
    ),
)
