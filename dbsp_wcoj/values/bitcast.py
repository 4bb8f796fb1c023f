"""Order-preserving bit-casts: numpy values of up to 64 bits to int64 codes, and back.

Joins work on int64 codes. A code of this module depends on nothing but the value, so no dictionary
is needed, and codes compare as their values do:

::

    int8..int64, uint8..uint32, bool   the number itself
    uint64                             the bits with the sign bit flipped: 0 is the least code
    datetime64, timedelta64            the count of units since the epoch, or of the duration
    float16, float32, float64          the bits; below zero, all but the sign bit are flipped

Floats are ordered as ``-inf < … < 0.0 < … < inf < NaN``. Before the bits are read, -0.0 becomes 0.0
and every NaN the same NaN. So equal values have equal codes; as in Spark, NaN equals NaN and is the
largest value.

Equal integers have equal codes in all signed types and in the unsigned ones of up to 32 bits, so an
int32 column can be joined with an int64 column. This does not hold for uint64, for floats of
different width, and for times of different unit: cast one of the columns first.

Cost: one pass; none for int64, datetime64 and timedelta64, where the result shares the memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["codes_of", "values_of"]

_SIGN: Final = -(2**63)


def codes_of(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the codes of an array of a dtype of the table above; they may share its memory.

    The array must have the byte order of the machine.

    >>> codes_of(np.array([-1.5, -0.0, 0.0, np.inf, np.nan])).argsort().tolist()
    [0, 1, 2, 3, 4]
    >>> codes_of(np.array([0, 2**64 - 1], np.uint64)).tolist()
    [-9223372036854775808, 9223372036854775807]
    """
    kind = values.dtype.kind
    if kind in "mM":
        return values.view(np.int64)
    if kind == "f":
        with np.errstate(invalid="ignore"):  # a signalling NaN
            canonical = values + values.dtype.type(0)  # -0.0 + 0.0 is 0.0
        canonical[np.isnan(canonical)] = np.nan
        return _flip_bits(canonical.view(f"i{values.itemsize}")).astype(np.int64, copy=False)
    if values.dtype == np.uint64:
        return values.view(np.int64) ^ _SIGN
    return values.astype(np.int64, copy=False)


def values_of(codes: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values of codes of `codes_of` for ``dtype``; it may share their memory.

    >>> values_of(codes_of(np.array([-1.5, -0.0])), np.dtype("float64")).tolist()
    [-1.5, 0.0]
    """
    if dtype.kind in "mM":
        return codes.view(dtype)
    if dtype.kind == "f":
        return _flip_bits(codes.astype(f"i{dtype.itemsize}")).view(dtype)
    if dtype == np.uint64:
        return (codes ^ _SIGN).view(np.uint64)
    return codes.astype(dtype, copy=False)


def _flip_bits(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Flip all bits but the sign of negative integers; its own inverse."""
    sign_bit = 8 * bits.itemsize - 1
    flipped: npt.NDArray[Any] = bits ^ ((bits >> sign_bit) & ((1 << sign_bit) - 1))
    return flipped
