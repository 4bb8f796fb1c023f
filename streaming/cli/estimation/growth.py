"""Growth: a power law through measurements at several sizes.

::

    y = a xᵇ        b = 0: y stays as it is; 1: in proportion to the rows; 2: to their square

``b`` is the slope of the regression line of log y on log x. The estimate begins at the last
measurement, which it does not change: ``y_last · (x / x_last)ᵇ``. Noise in b matters more the
further one extrapolates, so a slope near 0 or 1 is taken as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import mean
from typing import Final

__all__ = ["exact_slope_of", "extrapolate", "slope_of"]

MAX_SLOPE: Final = 3.0
#: A slope this close to 0 or 1 is taken as 0 or 1.
TOLERANCE: Final = 0.06


def slope_of(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the exponent of a power law; sizes or values of 0 are left out.

    >>> slope_of([1, 2, 4], [3, 12, 48]), slope_of([1, 2, 4], [7, 7, 7.1])
    (2.0, 0.0)
    """
    slope = exact_slope_of(sizes, values)
    for whole in (0.0, 1.0):
        if abs(slope - whole) < TOLERANCE:
            return whole
    return min(MAX_SLOPE, max(0.0, round(slope, 9)))


def exact_slope_of(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope as `slope_of`, but not rounded to 0 or 1.

    >>> round(exact_slope_of([1, 2, 4], [100, 196, 384]), 2)
    0.97
    """
    points = [(log(x), log(y)) for x, y in zip(sizes, values, strict=True) if x > 0 and y > 0]
    if len(points) < 2:
        return 1.0
    center_x, center_y = mean(x for x, _ in points), mean(y for _, y in points)
    variance = sum((x - center_x) ** 2 for x, _ in points)
    if not variance:
        return 1.0
    return sum((x - center_x) * (y - center_y) for x, y in points) / variance


def extrapolate(sizes: Sequence[float], values: Sequence[float], size: float) -> float:
    """Return the value at another size.

    Args:
        sizes: The sizes of the measurements, ascending.
        values: The measured values.
        size: The size to estimate the value for.

    >>> extrapolate([1, 2, 4], [3, 12, 48], 8)
    192.0
    """
    return values[-1] * float((size / sizes[-1]) ** slope_of(sizes, values))
