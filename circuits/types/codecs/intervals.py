"""Intervals of months, days and nanoseconds, and their codes.

An interval has three parts, because months and days have no fixed length: a date plus one month is
not the date plus 30 days. Comparisons count a month as 30 days and a day as 24 hours, as DuckDB
does. So ``1 month`` equals ``30 days`` in a comparison, although they are different values.

The dictionary of binaries gives each interval its code. There, an interval is a binary of 24
bytes::

    bytes   0 to  7   length in whole days, where each month counts 30 days
    bytes   8 to 15   nanoseconds that remain, less than a day
    bytes  16 to 19   months
    bytes  20 to 23   days

All four numbers are big-endian with the sign bit inverted, so the order of the binaries is the
order of the lengths. Intervals that are equal in a comparison have the same first 16 bytes
(`interval_keys`). Only equal values have the same 24 bytes.

Cost: one pass of numpy, and the cost of binaries (`circuits.types.codecs.strings`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.errors import SchemaError
from circuits.types.codecs.arrow_buffers import (
    BoolArray,
    Bytes,
    Int64Array,
    array_of,
    check_dictionary_codes,
    numbers_of,
    valid_of,
)
from circuits.types.codecs.strings import Strings

__all__ = [
    "DAYS_PER_MONTH",
    "INTERVAL",
    "NANOSECONDS_PER_DAY",
    "IntervalParts",
    "Intervals",
    "interval_array",
    "interval_bytes",
    "interval_keys",
    "interval_parts",
]

#: The type of intervals with months.
INTERVAL: Final = pa.month_day_nano_interval()
DAYS_PER_MONTH: Final = 30
NANOSECONDS_PER_DAY: Final = 86_400 * 10**9

# An interval in an array of Arrow, and in the dictionary.
_LAYOUT: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_CODED: Final = np.dtype(
    [("total_days", ">u8"), ("rest", ">u8"), ("months", ">u4"), ("days", ">u4")]
)
_KEY_BYTES: Final = 16
_SIGN_64: Final = np.uint64(1 << 63)
_SIGN_32: Final = np.uint32(1 << 31)
_INT32: Final = np.iinfo(np.int32)


class IntervalParts(NamedTuple):
    """The parts of intervals, each of shape ``(n,)``; zero for NULL."""

    months: Int64Array
    days: Int64Array
    nanoseconds: Int64Array


def interval_parts(array: pa.Array) -> IntervalParts:
    """Return the parts of intervals.

    >>> parts = interval_parts(pa.array([pa.MonthDayNano([1, 2, 3]), None], INTERVAL))
    >>> [part.tolist() for part in parts]
    [[1, 0], [2, 0], [3, 0]]
    """
    values = numbers_of(array, _LAYOUT)
    parts = [values[name].astype(np.int64) for name in IntervalParts._fields]
    valid = valid_of(array)
    if valid is not None:
        parts = [np.where(valid, part, 0) for part in parts]
    return IntervalParts(*parts)


def interval_array(
    months: Int64Array, days: Int64Array, nanoseconds: Int64Array, valid: BoolArray | None = None
) -> pa.Array:
    """Return intervals of these parts; an interval is NULL where ``valid`` is False.

    Raises:
        ArrowInvalid: A number of months or days does not fit 32 bits.

    >>> interval_array(np.array([1]), np.array([2]), np.array([3])).to_pylist()
    [MonthDayNano(months=1, days=2, nanoseconds=3)]
    """
    for part in (months, days):
        is_outside = (part < _INT32.min) | (part > _INT32.max)
        if is_outside.any():
            raise pa.ArrowInvalid(f"an interval has up to {_INT32.max:,} months and days")
    values = np.empty(len(months), _LAYOUT)
    values["months"], values["days"], values["nanoseconds"] = months, days, nanoseconds
    return array_of(INTERVAL, values, valid)


def interval_keys(array: pa.Array) -> pa.Array:
    """Return binaries that compare as the lengths of the intervals; a month has 30 days.

    >>> month, days = pa.MonthDayNano([1, 0, 0]), pa.MonthDayNano([0, 30, 0])
    >>> len(set(interval_keys(pa.array([month, days], INTERVAL)).to_pylist()))
    1
    """
    return _as_binaries(array, _KEY_BYTES)


def interval_bytes(array: pa.Array) -> pa.Array:
    """Return the binaries that represent intervals in the dictionary.

    They sort by the lengths of the intervals. The binaries of ``1 month`` and ``30 days`` differ.
    """
    return _as_binaries(array, _CODED.itemsize)


def _as_binaries(array: pa.Array, width: int) -> pa.Array:
    coded = _bytes_of_values(array).reshape(len(array), _CODED.itemsize)[:, :width]
    values = array_of(pa.binary(width), np.ascontiguousarray(coded), valid_of(array))
    return values.cast(pa.binary())


@dataclass(frozen=True)
class Intervals(Strings):
    """The coding of intervals: each is a binary of 24 bytes in the dictionary of binaries."""

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes of values; see `Strings.encode`.

        Raises:
            SchemaError: An interval has a fraction of a microsecond.
        """
        nanoseconds = interval_parts(array).nanoseconds
        if (nanoseconds % 1000).any():
            raise SchemaError(
                f"an interval of {nanoseconds[nanoseconds % 1000 != 0][0]} nanoseconds is not one "
                "of whole microseconds: round it"
            )
        look_up = self.dictionary.intern if adding else self.dictionary.find
        ends = np.arange(len(array) + 1, dtype=np.int64) * _CODED.itemsize
        return look_up(ends, _bytes_of_values(array), valid)

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the intervals of codes.

        Raises:
            SchemaError: A code is not in the dictionary.
        """
        check_dictionary_codes(codes, valid, len(self.dictionary), self.type)
        _, data = self.dictionary.gather(codes)
        present = data.view(_CODED)
        coded = np.zeros(len(codes), _CODED)
        coded[slice(None) if valid is None else valid] = present
        total_days = (coded["total_days"].astype(np.uint64) ^ _SIGN_64).view(np.int64)
        rest = (coded["rest"].astype(np.uint64) ^ _SIGN_64).view(np.int64)
        months, days = (
            (coded[name].astype(np.uint32) ^ _SIGN_32).view(np.int32).astype(np.int64)
            for name in ("months", "days")
        )
        whole_days = total_days - months * DAYS_PER_MONTH - days
        nanoseconds = whole_days * NANOSECONDS_PER_DAY + rest
        if valid is not None:
            months, days, nanoseconds = (
                np.where(valid, part, 0) for part in (months, days, nanoseconds)
            )
        return interval_array(months, days, nanoseconds, valid)


def _bytes_of_values(array: pa.Array) -> Bytes:
    """Return the bytes of intervals in the dictionary, of shape ``(24 * n,)``."""
    months, days, nanoseconds = interval_parts(array)
    whole_days, rest = np.divmod(nanoseconds, NANOSECONDS_PER_DAY)
    coded = np.empty(len(array), _CODED)
    coded["total_days"] = _flip(months * DAYS_PER_MONTH + days + whole_days, _SIGN_64)
    coded["rest"] = _flip(rest, _SIGN_64)
    coded["months"] = _flip(months.astype(np.int32), _SIGN_32)
    coded["days"] = _flip(days.astype(np.int32), _SIGN_32)
    return coded.view(np.uint8)


def _flip(numbers: npt.NDArray[Any], sign: np.unsignedinteger[Any]) -> npt.NDArray[Any]:
    """Return the bits of integers with the sign bit inverted."""
    return np.asarray(numbers.view(sign.dtype) ^ sign)
