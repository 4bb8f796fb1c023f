"""Format timestamps as text, with patterns of Java (Spark) or of C (DuckDB).

A pattern of either kind is converted to a list of fields
(`circuits.types.functions.dates.date_patterns`), which one formatter uses. Each distinct value is
formatted once, in Python. Years are from 1 to 9999. Names of months and days are English. A time is
first truncated to the finest field of the format: ``%Y-%m-%d`` formats each day once, however many
times of the day there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import pyarrow as pa

from circuits.types.functions.casting.all_years import floor_temporal
from circuits.types.functions.dates.date_patterns import (
    DAYS,
    MONTHS,
    FormatField,
    c_format,
    java_format,
)
from circuits.types.functions.function import Function, Kernel, Values
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS", "finest_unit", "format_java", "format_seconds"]

#: The functions that format a timestamp, and how each reads its pattern.
_COMPILERS: Final[dict[str, Callable[[str], tuple[FormatField, ...]]]] = {
    "date_format": java_format,
    "strftime": c_format,
}

_EPOCH: Final = datetime(1970, 1, 1)


def _pad_number(value: int, field: FormatField) -> str:
    return f"{value:0{max(field.width, 1)}d}"


_NUMBER_OF_FIELD: Final[dict[str, Callable[[datetime], int]]] = {
    "year": lambda timestamp: timestamp.year,
    "year2": lambda timestamp: timestamp.year % 100,
    "month": lambda timestamp: timestamp.month,
    "day": lambda timestamp: timestamp.day,
    "day_of_year": lambda timestamp: timestamp.timetuple().tm_yday,
    "day_of_week": lambda timestamp: timestamp.isoweekday() % 7,
    "iso_day_of_week": lambda timestamp: timestamp.isoweekday(),
    "iso_year": lambda timestamp: timestamp.isocalendar()[0],
    "iso_week": lambda timestamp: timestamp.isocalendar()[1],
    "hour": lambda timestamp: timestamp.hour,
    "hour12": lambda timestamp: timestamp.hour % 12 or 12,
    "hour0_11": lambda timestamp: timestamp.hour % 12,
    "hour1_24": lambda timestamp: timestamp.hour or 24,
    "minute": lambda timestamp: timestamp.minute,
    "second": lambda timestamp: timestamp.second,
    "day_of_aligned_week": lambda timestamp: (timestamp.day - 1) % 7 + 1,
    "week_from_sunday": lambda timestamp: int(timestamp.strftime("%U")),
    "week_from_monday": lambda timestamp: int(timestamp.strftime("%W")),
}


def _format_field(timestamp: datetime, field: FormatField) -> str:
    name = field.name
    if field.is_literal:
        return field.text
    if name in _NUMBER_OF_FIELD:
        return _pad_number(_NUMBER_OF_FIELD[name](timestamp), field)
    match name:
        case "month_short":
            return MONTHS[timestamp.month - 1][:3]
        case "month_name":
            return MONTHS[timestamp.month - 1]
        case "day_short":
            return DAYS[timestamp.weekday()][:3]
        case "day_name":
            return DAYS[timestamp.weekday()]
        case "am_pm":
            return "AM" if timestamp.hour < 12 else "PM"
        case "fraction":
            return f"{timestamp.microsecond:06d}000"[: field.width]
        case "quarter":
            number = (timestamp.month + 2) // 3
            return str(number) if field.width == 1 else _quarter_text(number, field.width)
        case "era":
            return "AD"
        case "era_name":
            return "Anno Domini"
        case "offset":
            return "+00"
        case "zone_name":
            return ""
        case _:
            return _utc_text(name, field.width)


def _quarter_text(number: int, width: int) -> str:
    ordinal = ("1st", "2nd", "3rd", "4th")[number - 1]
    return {2: f"0{number}", 3: f"Q{number}", 4: f"{ordinal} quarter"}[min(width, 4)]


def _utc_text(name: str, width: int) -> str:
    """Return UTC as Java writes it for the letter at the end of the name, such as ``zoneX``."""
    match name[-1]:
        case "X":
            return "Z"
        case "x":
            return ("+00", "+0000", "+00:00", "+0000", "+00:00")[min(width, 5) - 1]
        case "Z":
            return {4: "GMT", 5: "Z"}.get(width, "+0000")
        case "V":
            return "Etc/UTC"
        case "O":
            return "GMT"
        case _:
            return "UTC" if width < 4 else "Coordinated Universal Time"


def _write(timestamp: datetime, fields: tuple[FormatField, ...]) -> str:
    return "".join(_format_field(timestamp, field) for field in fields)


def _format_kernel(compile_format: Callable[[str], tuple[FormatField, ...]]) -> Kernel:
    def write(timestamp: datetime, pattern: str) -> str:
        return _write(timestamp, compile_format(pattern))

    format_distinct = per_distinct_row(write)

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        values, pattern = arguments
        if isinstance(values, pa.Array) and isinstance(pattern, pa.Scalar) and pattern.is_valid:
            # A wrong pattern is an error only if there is a row: then `write` raises it.
            with suppress(ValueError):
                values = _truncate(values, compile_format(pattern.as_py()))
        return format_distinct((values, pattern), result_type)

    return kernel


# The unit that a timestamp can be truncated to without a change of the field; "day" for all fields
# that are not listed. _UNITS begins with the coarsest.
_UNITS: Final = ("day", "hour", "minute", "second", "microsecond")
_FIELD_UNITS: Final = {
    **dict.fromkeys(("hour", "hour12", "hour0_11", "hour1_24", "am_pm"), "hour"),
    **{"minute": "minute", "second": "second", "fraction": "microsecond"},
}


def finest_unit(function: str, pattern: str) -> str:
    """Return the unit of time in which a format has one text: ``day`` down to ``microsecond``.

    Args:
        function: ``date_format`` or ``strftime``.
        pattern: The format.

    Raises:
        ValueError: The pattern is wrong.

    >>> finest_unit("strftime", "%Y-%m-%d"), finest_unit("date_format", "HH:mm")
    ('day', 'minute')
    """
    return _finest_unit(_COMPILERS[function](pattern))


@lru_cache(maxsize=4096)
def format_seconds(function: str, pattern: str, seconds: int) -> str:
    """Return the text of the time that is some seconds after the start of 1970.

    The arguments ``function`` and ``pattern`` are those of `finest_unit`.

    Raises:
        ValueError: The pattern is wrong.
        OverflowError: The year is not from 1 to 9999.

    >>> format_seconds("strftime", "%Y-%m-%d", 86_400)
    '1970-01-02'
    """
    return _write(_EPOCH + timedelta(seconds=seconds), _COMPILERS[function](pattern))


def _finest_unit(fields: tuple[FormatField, ...]) -> str:
    return max((_FIELD_UNITS.get(field.name, "day") for field in fields), key=_UNITS.index)


def _truncate(values: pa.Array, fields: tuple[FormatField, ...]) -> pa.Array:
    """Return the times without the parts that none of the fields shows."""
    unit = _finest_unit(fields)
    return values if unit == _UNITS[-1] else floor_temporal(values, unit)


def format_java(timestamps: pa.Array, pattern: str) -> pa.Array:
    """Return timestamps without a zone as texts of a format of Java."""
    texts: pa.Array = _format_kernel(java_format)((timestamps, pa.scalar(pattern)), pa.string())
    return texts


_FORMAT_RULE: Final = Signature("mt", pa.string())


# In a signature, m is a timestamp and t a text.
FUNCTIONS = (
    Function(
        "date_format",
        "a in the format b of Java: yyyy-MM-dd HH:mm:ss",
        _FORMAT_RULE,
        _format_kernel(_COMPILERS["date_format"]),
    ),
    Function(
        "strftime",
        "a in the format b of C: %Y-%m-%d %H:%M:%S",
        _FORMAT_RULE,
        _format_kernel(_COMPILERS["strftime"]),
    ),
)
