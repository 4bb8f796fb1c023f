"""Dates and timestamps as integers: units, infinities, and casts between them.

A date is a number of days since 1970, a timestamp a number of ticks: seconds, milliseconds,
microseconds or nanoseconds. As in DuckDB, the greatest number of each type and its negative are
infinities, which remain infinite in every cast.

::

    date -> timestamp       midnight; ArrowInvalid outside the years -290308 to 294247
    timestamp -> date       the day that contains the timestamp, also before 1970
    to a finer unit         multiplied; ArrowInvalid if the result exceeds 64 bits
    to a coarser unit       rounded to the nearest, half away from 1970
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

__all__ = [
    "DAY_US",
    "INFINITE",
    "INFINITE_DAY",
    "MAX_TIMESTAMP_DAY",
    "PER_SECOND",
    "check_finite",
    "convert_unit",
    "from_ticks",
    "infinite_rows",
    "is_infinite",
    "ticks_of",
    "time_of_day",
    "to_unit",
]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

INFINITE: Final = 2**63 - 1  # the ticks of an infinite timestamp
INFINITE_DAY: Final = 2**31 - 1  # the day of an infinite date
DAY_US: Final = 86_400_000_000
MAX_TIMESTAMP_DAY: Final = 106_751_991  # the last day whose microseconds since 1970 fit 64 bits
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def ticks_of(values: pa.Array) -> Int64s:
    """Return dates or timestamps as integers, 0 for NULL."""
    integer_type = pa.int32() if values.type.bit_width == 32 else pa.int64()
    numbers = pc.fill_null(values.view(integer_type), 0)
    return np.asarray(numbers.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def from_ticks(ticks: Int64s, target: pa.DataType, nulls_of: pa.Array) -> pa.Array:
    """Return integers as values of a type of dates, times or integers.

    Args:
        ticks: The integers.
        target: The type.
        nulls_of: An array of the same length, whose NULLs become NULLs of the result.

    Raises:
        ArrowInvalid: An integer does not fit the width of the type.
    """
    integers = pa.array(ticks).cast(pa.int32() if target.bit_width == 32 else pa.int64())
    if nulls_of.null_count:
        integers = pc.if_else(pc.is_valid(nulls_of), integers, None)
    return integers.view(target)


def is_infinite(ticks: Int64s, data_type: pa.DataType) -> Bools:
    """Return a mask of the integers of a date or timestamp type that are infinities."""
    mask: Bools = np.abs(ticks) == (INFINITE_DAY if arrow.is_date32(data_type) else INFINITE)
    return mask


def infinite_rows(values: pa.Array) -> pa.Array | None:
    """Return a mask of the dates or timestamps that are infinities; None if there are none."""
    mask = is_infinite(ticks_of(values), values.type)
    return pa.array(mask) if mask.any() else None


def to_unit(ticks: Int64s, source: str, target: str) -> tuple[Int64s, Bools]:
    """Convert ticks to another unit; infinities are unchanged.

    Returns:
        The ticks, and a mask of those that fit 64 bits.
    """
    infinite = np.abs(ticks) == INFINITE
    source_per_second, target_per_second = PER_SECOND[source], PER_SECOND[target]
    if target_per_second >= source_per_second:
        factor = target_per_second // source_per_second
        fits = np.abs(ticks) <= (INFINITE - 1) // factor
        converted = np.where(fits, ticks, 0) * factor
    else:
        ratio = source_per_second // target_per_second
        fits = np.ones(len(ticks), np.bool_)
        quotient, remainder = np.abs(ticks) // ratio, np.abs(ticks) % ratio
        converted = np.sign(ticks) * (quotient + (2 * remainder >= ratio))
    return np.where(infinite, ticks, converted), fits | infinite


def convert_unit(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast dates or timestamps to another date or timestamp type; time zones are ignored.

    Raises:
        ArrowInvalid: The target cannot represent a value.
    """
    source = values.type
    ticks = ticks_of(values)
    infinite = is_infinite(ticks, source)
    if arrow.is_date(source):
        fits = infinite | (np.abs(ticks) <= MAX_TIMESTAMP_DAY)
        days = np.where(fits & ~infinite, ticks, 0)
        result, fits_unit = to_unit(days * DAY_US, "us", target.unit)
        fits &= fits_unit
        result = np.where(infinite, np.sign(ticks) * INFINITE, result)
    elif arrow.is_date(target):
        micros, fits = to_unit(ticks, source.unit, "us")
        result = np.where(infinite, np.sign(ticks) * INFINITE_DAY, micros // DAY_US)
    else:
        result, fits = to_unit(ticks, source.unit, target.unit)
    _check(values, fits, target)
    return from_ticks(result, target, values)


def time_of_day(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the time of day of timestamps; ArrowInvalid for an infinity, which has none."""
    source = values.type
    ticks = ticks_of(values)
    # From nanoseconds to nanoseconds nothing is lost; in all other cases, the time is first rounded
    # to microseconds.
    unit = "ns" if source.unit == target.unit == "ns" else "us"
    rounded_ticks, fits = to_unit(ticks, source.unit, unit)
    _check(values, fits & ~is_infinite(ticks, source), target)
    ticks_of_day = rounded_ticks % (86_400 * PER_SECOND[unit])
    target_per_second, unit_per_second = PER_SECOND[target.unit], PER_SECOND[unit]
    ticks_of_day = (
        ticks_of_day * (target_per_second // unit_per_second)
        if target_per_second >= unit_per_second
        else ticks_of_day // (unit_per_second // target_per_second)
    )
    return from_ticks(ticks_of_day, target, values)


def check_finite(ticks: pa.Array | pa.Scalar, data_type: pa.DataType) -> None:
    """Raise ArrowInvalid unless the ticks of timestamps are finite and in range."""
    least = 1 - INFINITE
    if data_type.unit == "us":
        least = -MAX_TIMESTAMP_DAY * DAY_US  # as in DuckDB, the first whole day
    if pc.any(pc.or_(pc.less(ticks, least), pc.equal(ticks, INFINITE))).as_py():
        raise pa.ArrowInvalid(f"the result is out of range of {data_type}")


def _check(values: pa.Array, fits: Bools, target: pa.DataType) -> None:
    """Raise ArrowInvalid unless all values fit, except those that are NULL."""
    wrong = ~fits
    if values.null_count:
        wrong &= np.asarray(pc.is_valid(values).to_numpy(zero_copy_only=False), np.bool_)
    if wrong.any():
        number = int(ticks_of(values)[int(wrong.argmax())])
        raise pa.ArrowInvalid(f"{values.type} {number} is out of range of {target}")
