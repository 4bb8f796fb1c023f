"""The functions justify_hours, justify_days and justify_interval, as in PostgreSQL.

An interval has three parts: months, days and nanoseconds. These functions carry whole days from the
nanoseconds to the days, and whole months from the days to the months. A month has 30 days, a day 24
hours.

::

    justify_hours(27 hours)                   1 day 3 hours
    justify_days(35 days)                     1 month 5 days
    justify_interval(1 month -1 hour)         29 days 23 hours

If the two parts then have different signs, one more unit is carried, so that no sign differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.types.codecs.arrow_buffers import Int64Array, valid_of
from circuits.types.codecs.intervals import (
    DAYS_PER_MONTH,
    INTERVAL,
    NANOSECONDS_PER_DAY,
    interval_array,
    interval_parts,
)
from circuits.types.functions.dates.interval_values import interval_rule
from circuits.types.functions.function import Function
from circuits.types.functions.signatures import column_kernel

__all__ = ["FUNCTIONS"]

# Months, days and nanoseconds, an array of one element per interval for each.
Parts = tuple[Int64Array, Int64Array, Int64Array]


def _carry(large: Int64Array, small: Int64Array, size: int) -> tuple[Int64Array, Int64Array]:
    """Carry whole units from the small part to the large one.

    Args:
        large: The part in the larger unit.
        small: The part in the smaller unit.
        size: How many of the smaller unit are one of the larger unit.

    Returns:
        The large and the small part. The absolute value of the small part is less than ``size``.
    """
    carried = np.sign(small) * (np.abs(small) // size)
    return large + carried, small - carried * size


def _align(
    large: Int64Array, small: Int64Array, size: int, smallest: Int64Array | None = None
) -> tuple[Int64Array, Int64Array]:
    """Carry one unit from the large part to the small one where their signs differ.

    Where the small part is 0, the sign of ``smallest``, a part in a still smaller unit, decides.
    The other arguments are those of `_carry`.
    """
    sign = np.sign(small)
    if smallest is not None:
        sign = np.where(sign == 0, np.sign(smallest), sign)
    carried = np.where(np.sign(large) * sign < 0, np.sign(large), 0)
    return large - carried, small + carried * size


def _justify_hours(parts: Parts) -> Parts:
    months, days, nanoseconds = parts
    days, nanoseconds = _carry(days, nanoseconds, NANOSECONDS_PER_DAY)
    return (months, *_align(days, nanoseconds, NANOSECONDS_PER_DAY))


def _justify_days(parts: Parts) -> Parts:
    months, days, nanoseconds = parts
    months, days = _align(*_carry(months, days, DAYS_PER_MONTH), DAYS_PER_MONTH)
    return months, days, nanoseconds


def _justify_interval(parts: Parts) -> Parts:
    months, days, nanoseconds = parts
    days, nanoseconds = _carry(days, nanoseconds, NANOSECONDS_PER_DAY)
    months, days = _carry(months, days, DAYS_PER_MONTH)
    months, days = _align(months, days, DAYS_PER_MONTH, smallest=nanoseconds)
    return (months, *_align(days, nanoseconds, NANOSECONDS_PER_DAY))


def _function(name: str, description: str, justify: Callable[[Parts], Parts]) -> Function:
    def kernel(values: pa.Array) -> pa.Array:
        return interval_array(*justify(interval_parts(values)), valid_of(values))

    return Function(name, description, interval_rule(INTERVAL), column_kernel(kernel))


FUNCTIONS: Final = (
    _function("justify_hours", "an interval with 24 hours as a day", _justify_hours),
    _function("justify_days", "an interval with 30 days as a month", _justify_days),
    _function(
        "justify_interval",
        "an interval with 24 hours as a day, 30 days as a month, and parts of one sign",
        _justify_interval,
    ),
)
