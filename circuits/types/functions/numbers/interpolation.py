"""Interpolation between two values, for the quantiles of rows and the medians of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from circuits.types.functions.exact_integers import distance

__all__ = ["Floats", "interpolate_floats", "interpolate_integers"]

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]


def interpolate_floats(low: Floats, high: Floats, share: Floats) -> Floats:
    """Return the values at a share, from 0 to 1, of the way from a low to a high value.

    The value is ``low * (1 - share) + high * share``, as in DuckDB; it does not overflow. Spark
    returns equal values unchanged, of which the last digit may differ here.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.where(share == 0, low, low * (1 - share) + high * share))


def interpolate_integers(
    low: Int64s, high: Int64s, share: Floats | float, data_type: pa.DataType
) -> Int64s:
    """Return the values at a share of the way from a low to a high value.

    Args:
        low: The values as integers, such as the microseconds of a time.
        high: Other values.
        share: A number from 0 to 1 for each pair, or for all.
        data_type: The type of the values. Times are rounded to the nearest integer, half away from
            zero; decimals and durations towards zero.
    """
    # The distance of two integers may exceed int64, so it is a uint64, and integers are added
    # modulo 2**64. The exact result is ``near``, or between it and ``far``, the next integer
    # towards the high one.
    part = distance(low, high).astype(np.float64) * share
    whole_part = np.trunc(part)
    remainder = part - whole_part
    direction = np.where(high < low, -1, 1)
    near = low + direction * whole_part.astype(np.uint64).view(np.int64)
    far = near + direction
    is_far_from_zero = (direction > 0) == (np.maximum(near, far) > 0)
    takes_far: NDArray[Any]
    if pa.types.is_timestamp(data_type) or pa.types.is_time(data_type):
        takes_far = (remainder > 0.5) | ((remainder == 0.5) & is_far_from_zero)
    else:
        takes_far = (remainder > 0) & ~is_far_from_zero
    return np.asarray(np.where(takes_far, far, near))
