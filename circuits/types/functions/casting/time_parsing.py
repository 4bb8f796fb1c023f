r"""Parse columns of text as dates, timestamps and times, in the formats that DuckDB accepts.

::

    date       blanks [-]Y+ sep M[M] sep D[D] [" (BC)"]      sep: one of - / \ and a blank
    clock      H+:[M[M][:[S[S][.digits]]]]                    24:00 is the midnight after the day
    zone       [blank] Z | [blank] +HH[:MM[:SS]] | blank UTC  the signs + and -, also GMT
    time       blanks clock [blanks zone] blanks              only blanks clock if it has no seconds
    timestamp  date [("T" | blank) blanks clock [zone] blanks]
    special    [-]infinity, [-]inf, epoch                     in upper or lower case

A timestamp in seconds or milliseconds is cut off after microseconds, and then rounded to its unit.
Of all other results, fractional digits beyond the unit are cut off. DuckDB does the same.

A text that is only a date may have blanks at its end if the result is a date; as a timestamp or a
time, it is an error, as in DuckDB. The offset of a text shifts the result if the target type has a
time zone, and is ignored if it has none. A text with a date and a time can be parsed as a date; its
time must be valid and is then ignored.

Deviations from DuckDB: the name of a zone other than UTC and GMT is an error (DuckDB accepts any
word there, even ``PM``, and ignores it if the target type has no zone); a time followed by other
words is an error; 24:00 is not accepted as a TIME, since Arrow's time types cannot represent it; a
blank before Z or an offset is accepted for every type (DuckDB: not for TIMESTAMP WITH TIME ZONE).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.casting.all_years import assume_timezone
from circuits.types.functions.casting.time_units import (
    DAY_US,
    INFINITE,
    INFINITE_DAY,
    MAX_TIMESTAMP_DAY,
    PER_SECOND,
    from_ticks,
    to_unit,
)

__all__ = ["read_date", "read_time", "read_timestamp"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BLANK: Final = r"[ \t\n\v\f\r]"
_TIME: Final = (
    r"(?P<hour>\d{1,9}):"
    r"(?:(?P<minute>\d{1,2})(?::(?:(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?)?"
)
_ZONE: Final = (
    rf"(?P<zone>{_BLANK}?Z|{_BLANK}(?i:utc|gmt)|{_BLANK}?(?P<zone_sign>[+-])(?P<hours>\d{{2}})"
    r"(?::?(?P<minutes>\d{2})(?::?(?P<seconds>\d{2}))?)?)?"
)
_DATE: Final = (
    rf"^{_BLANK}*(?P<sign>-?)(?P<year>\d{{1,9}})(?P<sep>[ /\\-])(?P<month>\d{{1,2}})"
    r"(?P<sep2>[ /\\-])(?P<day>\d{1,2})"
    rf"(?P<bc>{_BLANK}\((?i:bc)\))?"
)
_TIMESTAMP: Final = (
    rf"{_DATE}(?P<time>(?:T|{_BLANK}){_BLANK}*{_TIME}{_ZONE}{_BLANK}*)?(?P<end>{_BLANK}*)$"
)
_TIME_OF_DAY: Final = rf"^{_BLANK}*{_TIME}(?P<after_time>{_BLANK}*{_ZONE}{_BLANK}*)$"
_SPECIAL: Final = rf"(?i)^{_BLANK}*(?P<sign>-?)(?P<name>infinity|inf|epoch){_BLANK}*$"
_ISO_DATE: Final = r"^\d{4}-\d\d-\d\d$"
_ISO_TIMESTAMP: Final = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?$"


def read_date(values: pa.Array, *, lenient: bool = False) -> pa.Array:
    """Parse text as date32; a text that is not a date is NULL if ``lenient``, else ArrowInvalid."""
    parsed = _parse_iso(values, _ISO_DATE, pa.date32())
    if parsed is not None:
        return parsed
    parts = _Parts(values, _TIMESTAMP)
    days, is_valid = _days(parts)
    _, _, is_valid_time = _time_of_day(parts)
    is_special, special_ticks = _special(values)
    is_valid &= is_valid_time | ~parts.has("time")
    is_valid &= (days > -INFINITE_DAY) & (days < INFINITE_DAY)
    days = np.where(is_special, np.clip(special_ticks, -INFINITE_DAY, INFINITE_DAY), days)
    is_valid |= is_special
    valid = _check(values, is_valid, "date32", lenient)
    array = pa.array(np.where(is_valid, days, 0).astype(np.int32), pa.int32())
    return _with_nulls(array, valid).view(pa.date32())


def read_timestamp(values: pa.Array, target: pa.DataType, *, lenient: bool = False) -> pa.Array:
    """Parse text as timestamps; a text without an offset is local time in the zone of ``target``.

    A text that is not a timestamp, or is outside the range of 64 bits, is NULL if ``lenient``, else
    ArrowInvalid.
    """
    if target.unit != "ns" and target.tz is None:
        parsed = _parse_iso(values, _ISO_TIMESTAMP, target)
        if parsed is not None:
            return parsed
    parts = _Parts(values, _TIMESTAMP)
    ticks_us, nanos, is_valid = _date_and_time(parts)
    is_special, special_ticks = _special(values)
    is_local = np.zeros(len(values), np.bool_)  # in the local time of a zone other than UTC
    if target.tz is not None:
        offset, has_offset = _offset(parts)
        shifted = ticks_us - offset
        # The difference must not wrap around: a negative offset makes the ticks greater.
        is_valid &= ~has_offset | ((shifted > ticks_us) == (offset < 0)) | (offset == 0)
        is_valid &= np.abs(shifted) < INFINITE
        ticks_us = shifted
        if target.tz != "UTC":
            # A text with Z or UTC has a zone, but no offset: its ticks are those of UTC.
            is_local = ~has_offset & ~parts.has("zone") & ~is_special
    ticks, fits = to_unit(ticks_us, "us", target.unit)
    if target.unit == "ns":
        ticks = ticks + np.where(fits, nanos, 0)
        fits &= (ticks > -INFINITE) & (ticks < INFINITE)
    ticks = np.where(is_special, special_ticks, ticks)
    valid = _check(values, (is_valid & fits) | is_special, str(target), lenient)
    array = _with_nulls(pa.array(ticks, pa.int64()), valid)
    if not is_local.any():
        return array.view(target)
    naive = pc.if_else(pa.array(is_local), array, None).view(pa.timestamp(target.unit))
    localized = assume_timezone(naive, target.tz).view(pa.int64())
    return pc.if_else(pa.array(is_local), localized, array).view(target)


def read_time(values: pa.Array, target: pa.DataType, *, lenient: bool = False) -> pa.Array:
    """Parse text as times of day; a text that is a timestamp is parsed as its time of day.

    A text that is neither a time nor a timestamp is NULL if ``lenient``, else ArrowInvalid.
    """
    parts = _Parts(values, _TIME_OF_DAY)
    micros, nanos, is_valid = _time_of_day(parts)
    is_valid &= parts.has("second") | ~parts.has("after_time")
    timestamp_parts = _Parts(values, _TIMESTAMP)
    has_date = timestamp_parts.is_match & ~parts.is_match
    if has_date.any():
        ticks_us, timestamp_nanos, is_timestamp = _date_and_time(timestamp_parts)
        micros = np.where(has_date, ticks_us % DAY_US, micros)
        nanos = np.where(has_date, timestamp_nanos, nanos)
        is_valid |= has_date & is_timestamp
    is_valid &= micros < DAY_US
    valid = _check(values, is_valid, str(target), lenient)
    valid_micros = np.where(is_valid, micros, 0)
    ticks = (
        valid_micros * 1000 + nanos
        if target.unit == "ns"
        else valid_micros // (10**6 // PER_SECOND[target.unit])
    )
    return from_ticks(ticks, target, nulls_of=pa.array(valid, mask=~valid))


def _parse_iso(values: pa.Array, pattern: str, target: pa.DataType) -> pa.Array | None:
    """Parse a column by Arrow's parser if all its texts match ``pattern``; None if it cannot."""
    well_formed = pc.fill_null(pc.match_substring_regex(values, pattern), True)
    if not pc.all(well_formed, min_count=0).as_py():
        return None
    try:
        return pc.cast(values, target)
    except pa.ArrowInvalid:  # a 30th of February, or digits beyond the unit
        return None


class _Parts:
    """The named groups of a pattern in each text; NULL and texts that do not match have none."""

    def __init__(self, values: pa.Array, pattern: str) -> None:
        # RE2 accepts Python's syntax for named groups, and (?i:...).
        self._struct = pc.extract_regex(values, pattern=pattern)
        self.is_match: Bools = _mask(pc.is_valid(self._struct))
        self._valid = pa.array(self.is_match)

    def text(self, name: str) -> npt.NDArray[Any]:
        """Return one group of each text, empty if the text does not have it."""
        part = pc.if_else(self._valid, pc.struct_field(self._struct, name), "")
        return np.asarray(pc.fill_null(part, "").to_numpy(zero_copy_only=False), dtype=object)

    def has(self, name: str) -> Bools:
        """Return a mask of the texts in which a group is not empty."""
        part = pc.if_else(self._valid, pc.struct_field(self._struct, name), "")
        return _mask(pc.greater(pc.binary_length(pc.fill_null(part, "")), 0))

    def number(self, name: str) -> Int64s:
        """Return one group of digits of each text as a number, 0 if the text does not have it."""
        part = pc.if_else(self._valid, pc.struct_field(self._struct, name), "")
        part = pc.fill_null(part, "")
        digits = pc.if_else(pc.equal(part, ""), "0", part)
        return np.asarray(pc.cast(digits, pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _days(parts: _Parts) -> tuple[Int64s, Bools]:
    """Return days since 1970, and a mask of the texts whose date exists."""
    year, month, day = (parts.number(name) for name in ("year", "month", "day"))
    is_negative, is_before_christ = parts.has("sign"), parts.has("bc")
    is_valid = parts.is_match & (parts.text("sep") == parts.text("sep2"))
    is_valid &= ~is_before_christ | (~is_negative & (year > 0))
    year = np.where(is_negative, -year, np.where(is_before_christ, 1 - year, year))
    is_valid &= (month >= 1) & (month <= 12) & (day >= 1)
    is_valid &= np.abs(year) < 6_000_000  # INFINITE_DAY is in the year 5,881,580
    months = np.where(is_valid, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]")
    days = first + np.where(is_valid, day - 1, 0)
    is_valid &= days.astype("datetime64[M]").astype(np.int64) == months
    return days.astype(np.int64), is_valid


def _time_of_day(parts: _Parts) -> tuple[Int64s, Int64s, Bools]:
    """Return microseconds since midnight, remaining nanoseconds, and a mask of valid times."""
    hour, minute, second = (parts.number(name) for name in ("hour", "minute", "second"))
    fractions = parts.text("fraction")
    digits_of_nanos = pa.array([digits[:9].ljust(9, "0") for digits in fractions], pa.string())
    nanos = np.asarray(pc.cast(digits_of_nanos, pa.int64()).to_numpy(), np.int64)
    is_valid = parts.is_match & (minute < 60) & (second < 60) & (hour <= 24)
    is_valid &= (hour < 24) | ((minute == 0) & (second == 0) & (nanos == 0))
    hour = np.where(is_valid, hour, 0)
    micros = ((hour * 60 + minute) * 60 + second) * 10**6 + nanos // 1000
    return micros, nanos % 1000, is_valid


def _date_and_time(parts: _Parts) -> tuple[Int64s, Int64s, Bools]:
    """Return microseconds since 1970, remaining nanoseconds, and a mask of valid timestamps."""
    days, is_valid = _days(parts)
    micros, nanos, is_valid_time = _time_of_day(parts)
    has_time = parts.has("time")
    # A date without a time is a timestamp only if no blanks follow it.
    is_valid &= np.where(has_time, is_valid_time, parts.text("end") == "")
    is_valid &= (days >= -MAX_TIMESTAMP_DAY) & (days <= MAX_TIMESTAMP_DAY)
    midnight = np.where(is_valid, days, 0) * DAY_US
    micros = np.where(is_valid & has_time, micros, 0)
    is_valid &= micros < INFINITE - np.maximum(midnight, 0)  # their sum fits in int64
    return midnight + np.where(is_valid, micros, 0), np.where(has_time, nanos, 0), is_valid


def _offset(parts: _Parts) -> tuple[Int64s, Bools]:
    """Return UTC offsets in microseconds, and a mask of the texts that have an offset."""
    hours, minutes, seconds = (parts.number(n) for n in ("hours", "minutes", "seconds"))
    offset = ((hours * 60 + minutes) * 60 + seconds) * 10**6
    sign = parts.text("zone_sign")
    return np.where(sign == "-", -offset, offset), sign != ""


def _special(values: pa.Array) -> tuple[Bools, Int64s]:
    """Return a mask of the texts that are special values (``inf``, ``epoch``), and their ticks."""
    parts = _Parts(values, _SPECIAL)
    if not parts.is_match.any():
        return parts.is_match, np.zeros(len(values), np.int64)
    names = np.array([name.lower() for name in parts.text("name")], dtype=object)
    infinite = np.where(parts.has("sign"), -INFINITE, INFINITE)
    return parts.is_match, np.where(names == "epoch", 0, infinite)


def _with_nulls(array: pa.Array, valid: Bools) -> pa.Array:
    return array if valid.all() else pc.if_else(pa.array(valid), array, None)


def _check(values: pa.Array, is_valid: Bools, type_name: str, lenient: bool) -> Bools:
    """Return a mask of the valid values; ArrowInvalid if a text is invalid, unless ``lenient``."""
    is_wrong = ~is_valid & _mask(pc.is_valid(values))
    if is_wrong.any() and not lenient:
        raise pa.ArrowInvalid(
            f"{values[int(is_wrong.argmax())].as_py()!r} cannot be parsed as {type_name}"
        )
    return is_valid & _mask(pc.is_valid(values))


def _mask(array: pa.Array) -> Bools:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
