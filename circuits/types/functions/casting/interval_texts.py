"""Intervals as text, in the formats of DuckDB: ``1 year 2 months 3 days 04:05:06.7``.

A text consists of numbers with units, a time of day, or both, in this order; ``ago`` at the end
inverts the sign. For a cast (`read_intervals`), a whole number alone is a number of seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from circuits.excerpt import excerpt
from circuits.types.codecs.intervals import INTERVAL, interval_array, interval_parts

__all__ = [
    "INTERVAL_UNITS",
    "SECOND",
    "Interval",
    "UnknownUnitError",
    "add_intervals",
    "cast_intervals",
    "format_interval",
    "parse_interval",
    "parse_postgres_interval",
    "parse_span",
    "read_intervals",
    "write_intervals",
]


class Interval(NamedTuple):
    """The parts of an interval."""

    months: int
    days: int
    microseconds: int


class UnknownUnitError(ValueError):
    """A word in the text of an interval is not a unit. The argument of the error is the word."""


SECOND: Final = 1_000_000  # microseconds
INTERVAL_UNITS: Final = {
    "millennium": Interval(12_000, 0, 0),
    "century": Interval(1_200, 0, 0),
    "decade": Interval(120, 0, 0),
    "year": Interval(12, 0, 0),
    "quarter": Interval(3, 0, 0),
    "month": Interval(1, 0, 0),
    "week": Interval(0, 7, 0),
    "day": Interval(0, 1, 0),
    "hour": Interval(0, 0, 3600 * SECOND),
    "minute": Interval(0, 0, 60 * SECOND),
    "second": Interval(0, 0, SECOND),
    "millisecond": Interval(0, 0, 1000),
    "microsecond": Interval(0, 0, 1),
}
_IRREGULAR_PLURALS: Final = {"centuries": "century", "millennia": "millennium"}
# The key "" is the abbreviation "s" of seconds: a final "s" is removed before the look-up.
_SHORT_UNITS: Final = {
    **{"y": "year", "yr": "year", "mon": "month", "w": "week", "d": "day"},
    **{"h": "hour", "hr": "hour", "m": "minute", "min": "minute", "": "second", "sec": "second"},
    **{"ms": "millisecond", "msec": "millisecond", "us": "microsecond", "usec": "microsecond"},
}
# Numbers with units, a time of day, or both: '@ 1 year -2.5 hours', '3 days 02:03:04.5 ago'.
_UNIT: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)")
_INTERVAL: Final = re.compile(
    r"@?\s*(?P<units>(?:[+-]?\d+(?:\.\d+)?\s*[a-zA-Z]+\s*)*?)"
    r"(?P<clock>[+-]?\d+:\d{1,2}(?::\d{1,2}(?:\.\d{1,6})?)?)?\s*(?P<ago>ago)?",
    re.ASCII,
)
_SECONDS: Final = re.compile(r"[+-]?\d{1,15}", re.ASCII)


def parse_interval(text: str) -> Interval | None:
    """Return the parts of an interval; None if the text is not one.

    Raises:
        UnknownUnitError: A word is no unit.

    >>> parse_interval("1 year 2 mons -3 days 01:30")
    Interval(months=14, days=-3, microseconds=5400000000)
    """
    text = text.strip()
    match = _INTERVAL.fullmatch(text)
    if match is None or not (match["units"] or match["clock"]):
        return None
    total = Interval(0, 0, 0)
    for count, word in _UNIT.findall(match["units"]):
        total = add_intervals(total, _multiply(INTERVAL_UNITS[_unit_name(word)], Fraction(count)))
    if match["clock"]:
        total = add_intervals(total, _read_clock(match["clock"]))
    return Interval(*(-part for part in total)) if match["ago"] else total


_YEARS_AND_MONTHS: Final = re.compile(r"([+-]?)(\d{1,9})-(\d{1,2})", re.ASCII)
_TIME: Final = re.compile(r"([+-]?)(\d{1,9}):(\d{0,2})(?::(\d{1,2}(?:\.\d+)?))?", re.ASCII)
_NUMBER: Final = r"[+-]?\d{1,18}(?:\.\d{1,18})?"
_ISO_INTERVAL: Final = re.compile(
    "P"
    + "".join(rf"(?:(?P<{unit}>{_NUMBER}){unit[0]})?" for unit in ("Year", "Month", "Week", "Day"))
    + "(?:T"
    + "".join(rf"(?:(?P<{unit}>{_NUMBER}){unit[0]})?" for unit in ("Hour", "Minute", "Second"))
    + ")?",
    re.ASCII,
)


def parse_postgres_interval(text: str) -> Interval | None:
    """Return an interval in one of the forms that PostgreSQL has in addition to `parse_interval`.

    They are those of the SQL standard, such as ``1-2 3 04:05:06`` (years and months, days, a time)
    and ``1.5`` (seconds), those of ISO 8601, such as ``P1Y2M3DT4H``, and numbers such as ``.5``.
    None if the text has another form.

    Raises:
        UnknownUnitError: A word is no unit.

    >>> parse_postgres_interval("-1-2 3 04:05")
    Interval(months=-14, days=3, microseconds=14700000000)
    >>> parse_postgres_interval("P1Y2M3DT4H")
    Interval(months=14, days=3, microseconds=14400000000)
    """
    match = _ISO_INTERVAL.fullmatch(text.strip())
    if match is not None:
        counts = {unit.lower(): Fraction(count) for unit, count in match.groupdict("0").items()}
        return _sum_units(counts) if any(match.groups()) else None
    total, forms = Interval(0, 0, 0), set()
    words = text.split()
    for number, word in enumerate(words):
        is_last = number == len(words) - 1
        if match := _YEARS_AND_MONTHS.fullmatch(word):
            form, sign = "months", -1 if match[1] == "-" else 1
            part = Interval(sign * (12 * int(match[2]) + int(match[3])), 0, 0)
            is_valid = int(match[3]) < 12
        elif match := _TIME.fullmatch(word):
            form, is_valid = "time", int(match[3] or 0) < 60
            part = _read_clock(f"{match[1]}{match[2]}:{match[3] or 0}:{match[4] or 0}")
        elif re.fullmatch(_NUMBER, word, re.ASCII):
            form = "time" if is_last else "days"  # a number at the end is one of seconds
            is_valid = is_last or ":" in words[number + 1]
            part = _sum_units({"second" if is_last else "day": Fraction(word)})
        else:
            with_zeros = re.sub(r"(?<![\d.])\.(?=\d)", "0.", text)
            return parse_interval(with_zeros) if with_zeros != text else None
        if not is_valid or form in forms:
            return None
        forms.add(form)
        total = add_intervals(total, part)
    return total if forms else None


def _sum_units(counts: Mapping[str, Fraction]) -> Interval:
    """Return the sum of numbers of units."""
    total = Interval(0, 0, 0)
    for unit, count in counts.items():
        total = add_intervals(total, _multiply(INTERVAL_UNITS[unit], count))
    return total


_SPAN_UNITS: Final = ("day", "hour", "minute", "second")


def parse_span(text: str, first: str, last: str, *, limits_hours: bool) -> Interval | None:
    """Parse the text of a literal such as ``INTERVAL '1-2' YEAR TO MONTH``.

    Args:
        text: The fields from ``first`` to ``last`` without a sign, as ``1-2`` (year to month) or
            ``3 04:05:06.7`` (day to second).
        first: The first field, in lower case.
        last: The last field; it may be the first one.
        limits_hours: If True, as in Spark, the hours after days are less than 24.

    Returns:
        The interval; None if the text does not have these fields, or if a field after the first
        one is out of its range, as in ``1 23:60`` (day to minute).

    >>> parse_span("1-2", "year", "month", limits_hours=True)
    Interval(months=14, days=0, microseconds=0)
    """
    if first == last and first != "second":
        unit = INTERVAL_UNITS.get(first)
        if unit is None or not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            return None
        return Interval(*(int(text) * part for part in unit))
    if (first, last) == ("year", "month"):
        match = re.fullmatch(r"(\d+)-(\d+)", text, re.ASCII)
        if match is None or int(match[2]) >= 12:
            return None
        return Interval(int(match[1]) * 12 + int(match[2]), 0, 0)
    if first not in _SPAN_UNITS or last not in _SPAN_UNITS[_SPAN_UNITS.index(first) :]:
        return None
    units = _SPAN_UNITS[_SPAN_UNITS.index(first) : _SPAN_UNITS.index(last) + 1]
    # For DAY TO SECOND: r"(\d+) (\d+):(\d+):(\d+(?:\.\d{1,9})?)".
    patterns = {"day": r"(\d+) ", "second": r"(\d+(?:\.\d{1,9})?)"}
    body = ":".join(patterns.get(name, r"(\d+)") for name in units).replace(" :", " ")
    parts = re.fullmatch(body, text, re.ASCII)
    if not parts:
        return None
    numbers = dict(zip(units, parts.groups(), strict=True))
    limits = {"hour": 24 if limits_hours else 10**18, "minute": 60, "second": 60}
    if any(Fraction(numbers[name]) >= limits[name] for name in units[1:]):
        return None  # the first field has no limit
    seconds, _, fraction = numbers.get("second", "0").partition(".")
    micros = int(seconds) * SECOND + int(f"{fraction:0<6}"[:6])
    micros += (int(numbers.get("hour", 0)) * 60 + int(numbers.get("minute", 0))) * 60 * SECOND
    return Interval(0, int(numbers.get("day", 0)), micros)


def add_intervals(left: Interval, right: Interval) -> Interval:
    """Return the sum of two intervals, which has the sum of each part."""
    return Interval(*(a + b for a, b in zip(left, right, strict=True)))


def _unit_name(word: str) -> str:
    """Return the unit that a word names; the word may be a plural or an abbreviation."""
    name = word.lower()
    for candidate in (name, name.removesuffix("s")):
        unit = _IRREGULAR_PLURALS.get(candidate, _SHORT_UNITS.get(candidate, candidate))
        if unit in INTERVAL_UNITS:
            return unit
    raise UnknownUnitError(word)


def _multiply(unit: Interval, count: Fraction) -> Interval:
    """Return a multiple of a unit, computed as in DuckDB.

    A fraction of a month becomes days, with 30 days for a month, and a fraction of a day becomes
    microseconds. A fraction of a year, or of another unit of several months, is truncated to whole
    months.
    """
    months, month_fraction = _split(count * unit.months)
    if unit.months > 1:
        month_fraction = Fraction(0)
    days, day_fraction = _split(count * unit.days + month_fraction * 30)
    micros = round(count * unit.microseconds + day_fraction * 86_400 * SECOND)
    return Interval(months, days, micros)


def _split(value: Fraction) -> tuple[int, Fraction]:
    """Return the whole part of a number, towards zero, and its fraction."""
    whole = int(value)
    return whole, value - whole


def _read_clock(text: str) -> Interval:
    """Read ``02:03`` or ``-02:03:04.5``."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, *seconds = text.lstrip("+-").split(":")
    total = int(hours) * 3600 + int(minutes) * 60 + Fraction(*seconds)
    return Interval(0, 0, sign * round(total * SECOND))


def format_interval(months: int, days: int, microseconds: int) -> str:
    """Return the text of an interval.

    >>> format_interval(-25, 1, 90_500_000), format_interval(0, 0, 0)
    ('-2 years -1 month 1 day 00:01:30.5', '00:00:00')
    """
    sign = -1 if months < 0 else 1
    years, months = (sign * part for part in divmod(abs(months), 12))
    parts = [
        f"{count} {unit}{'' if abs(count) == 1 else 's'}"
        for count, unit in ((years, "year"), (months, "month"), (days, "day"))
        if count
    ]
    if microseconds or not parts:
        seconds, fraction = divmod(abs(microseconds), SECOND)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        clock += f".{fraction:06}".rstrip("0") if fraction else ""
        parts.append(f"-{clock}" if microseconds < 0 else clock)
    return " ".join(parts)


def cast_intervals(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast values to a type: between strings and intervals as this module says, others as Arrow.

    >>> months = pa.array([pa.MonthDayNano([3, 0, 0])])
    >>> cast_intervals(months, pa.string()).to_pylist()
    ['3 months']
    """
    if values.type == INTERVAL and target != INTERVAL:
        return write_intervals(values, target)
    if target == INTERVAL and values.type != INTERVAL:
        return read_intervals(values)
    return values.cast(target)


def write_intervals(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return intervals as text of type ``target``; Python formats each distinct value once."""
    encoded = values.dictionary_encode()
    months, days, nanoseconds = interval_parts(encoded.dictionary)
    micros = np.sign(nanoseconds) * (np.abs(nanoseconds) // 1000)
    rows = zip(months.tolist(), days.tolist(), micros.tolist(), strict=True)
    return pa.array([format_interval(*row) for row in rows], target).take(encoded.indices)


def read_intervals(values: pa.Array, *, lenient: bool = False) -> pa.Array:
    """Parse texts as intervals; Python parses each distinct text once.

    Args:
        values: The texts.
        lenient: If True, a text that is not an interval, or is out of range, becomes NULL.

    Raises:
        ArrowInvalid: A text is not an interval, or its parts are out of range.
    """
    encoded = values.dictionary_encode()
    parts = [_read_text(text, lenient) for text in encoded.dictionary.to_pylist()]
    return _array_of(parts).take(encoded.indices)


def _read_text(text: str, lenient: bool) -> Interval | None:
    text = text.strip()
    try:
        is_number = _SECONDS.fullmatch(text) is not None
        interval = Interval(0, 0, int(text) * SECOND) if is_number else parse_interval(text)
    except UnknownUnitError:
        interval = None
    if interval is not None:
        months, days, micros = interval
        if abs(micros) >= 2**63 // 1000 or max(abs(months), abs(days)) >= 2**31:
            interval = None
    if interval is None and not lenient:
        raise pa.ArrowInvalid(
            f"{excerpt(text)} cannot be parsed as an interval; write '1 year 2 months 3 days 04:05'"
        )
    return interval


def _array_of(intervals: Sequence[Interval | None]) -> pa.Array:
    if not intervals:
        return pa.nulls(0, INTERVAL)
    rows = np.array([interval or (0, 0, 0) for interval in intervals], np.int64)
    valid = np.array([interval is not None for interval in intervals])
    return interval_array(rows[:, 0], rows[:, 1], rows[:, 2] * 1000, valid)
