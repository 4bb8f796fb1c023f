"""Parse texts as timestamps, with patterns of Java (Spark) or of C (DuckDB).

A pattern of either kind is converted to a list of fields
(`circuits.types.functions.dates.date_patterns`), and the list to a regular expression. Each
distinct text is parsed once, in Python. Years are from 1 to 9999. Names of months and days are
English.

The two kinds of patterns differ in the numbers of digits, in the defaults, and in what two fields
mean together:

=================== ================================== ===================================
                    Java                               C
=================== ================================== ===================================
digits of a field   of one letter: 1 or more; of       at most as many as its letter says
                    more: as many as its letters
                    (a fraction: at most so many)
no year             1970                               1900
a year of 2 digits  2000 to 2099                       1969 to 2068
12 o'clock, no AM   00:00                              12:00
two fields for      must agree: ``13 AM`` is an error  the last one counts; with AM or PM,
one number                                             an hour above 12 is an error
a day of a month,   must agree                         the day of the month counts
and one of a year
or a week
=================== ================================== ===================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from circuits.types.functions.dates.date_patterns import (
    DAYS,
    MONTHS,
    FormatField,
    c_format,
    java_format,
)
from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS", "parse_java"]

_ZONE_EXPRESSION: Final = r"Z|(?:GMT|UTC|UT)?[+-]\d{1,2}(?::?\d{2})?(?::?\d{2})?|[A-Za-z][\w/+-]*"
_NAMES: Final = {
    "month_short": [name[:3] for name in MONTHS],
    "month_name": list(MONTHS),
    "day_short": [name[:3] for name in DAYS],
    "day_name": list(DAYS),
    "am_pm": ["AM", "PM"],
    "era": ["BC", "AD"],
    "era_name": ["Before Christ", "Anno Domini"],
}
#: For a field of names: the field of numbers that it sets, and the number of its first name.
_NUMBERED_NAMES: Final = {
    "month_short": ("month", 1),
    "month_name": ("month", 1),
    "era_name": ("era", 0),
}
#: The least and the greatest number of a field; the number of the year has no limits here.
_RANGES: Final = {
    "month": (1, 12),
    "day": (1, 31),
    "day_of_year": (1, 366),
    "day_of_week": (0, 6),
    "iso_day_of_week": (1, 7),
    "week_from_sunday": (0, 53),
    "week_from_monday": (0, 53),
    "iso_week": (1, 53),
    "hour": (0, 23),
    "hour12": (1, 12),
    "hour0_11": (0, 11),
    "hour1_24": (1, 24),
    "minute": (0, 59),
    "second": (0, 59),
}
#: Spark formats these fields, and refuses them in a format to parse.
_NOT_PARSED_BY_SPARK: Final = {
    "quarter": "q or Q",
    "day_of_aligned_week": "F",
    "day_short": "E",
    "day_name": "EEEE",
}
#: The fields that say a day without a month.
_DAY_FIELDS: Final = (
    "week_from_sunday",
    "week_from_monday",
    "day_of_year",
    "iso_year",
    "iso_week",
)
_MAX_OFFSET: Final = timedelta(hours=18)


def _is_zone(field: FormatField) -> bool:
    return field.name.startswith("zone") or field.name == "offset"


def _field_expression(field: FormatField, is_java: bool, is_before_field: bool) -> str:
    """Return a regular expression for the texts of a field.

    Args:
        field: The field.
        is_java: The kind of the pattern; the module docstring says how many digits each has. A
            field of C leaves no digits to the next field.
        is_before_field: True if another field follows without a text between them.
    """
    name, width = field.name, field.width
    if _is_zone(field):
        return _ZONE_EXPRESSION
    if name in _NAMES:
        return f"(?i:{'|'.join(_NAMES[name])})"
    max_digits = len(str(_RANGES[name][1])) if name in _RANGES else max(width, 4)
    if name in ("fraction", "year2"):
        max_digits = width
    if not is_java:
        return rf"\d{{1,{max_digits}}}+"
    if name == "fraction":
        return rf"\d{{1,{width}}}"
    if name == "year2":
        return r"\d{2}"
    if name == "year" and is_before_field and width in (1, 4):
        # A year of one to four digits would take digits of the field that follows.
        return r"\d{4}"
    if name == "year":
        return rf"[+-]?\d{{{width},{max_digits}}}"
    return rf"\d{{{min(width, max_digits) if width > 1 else 1},{max_digits}}}"


@lru_cache(maxsize=256)
def _parser_expression(fields: tuple[FormatField, ...], is_java: bool) -> re.Pattern[str]:
    """Return a regular expression with a group for each field that is not literal."""
    parts = []
    for index, field in enumerate(fields):
        is_before_field = index + 1 < len(fields) and not fields[index + 1].is_literal
        if field.name == "section_start":
            parts.append("(?:")
        elif field.name == "section_end":
            parts.append(")?+")  # as in Java, a section that fits is not given up again
        elif field.is_literal and is_java:
            parts.append(re.escape(field.text))
        elif field.is_literal:
            parts.append(_BLANKS.sub(r"\\s+", re.escape(field.text)))
        else:
            parts.append(f"({_field_expression(field, is_java, is_before_field)})")
    body = "".join(parts)
    return re.compile(body if is_java else rf"\s*+{body}\s*", re.ASCII)


#: Blanks in a regular expression, as `re.escape` writes them.
_BLANKS: Final = re.compile(r"(?:\\?\s)+", re.ASCII)


def _match_fields(
    fields: tuple[FormatField, ...], text: str, is_java: bool
) -> Iterator[tuple[FormatField, str]]:
    """Yield each field that a text has, and its text; ValueError for a text of another format."""
    match = _parser_expression(fields, is_java).fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not match the date format")
    for field, part in zip(
        (field for field in fields if not field.is_literal), match.groups(), strict=True
    ):
        if part is not None:
            yield field, part


def _read_field(field: FormatField, text: str, first_year_of_two: int) -> tuple[str, int]:
    """Return the name and the number of a field; a fraction is truncated to microseconds.

    Args:
        field: The field, which is no zone.
        text: Its text.
        first_year_of_two: The first year that is written with two digits.
    """
    name = field.name
    if name in _NAMES:
        number_name, first = _NUMBERED_NAMES.get(name, (name, 0))
        names = [known.lower() for known in _NAMES[name]]
        return number_name, first + names.index(text.lower())
    if name == "fraction":
        return name, int(f"{text:0<6}"[:6])
    number = int(text)
    if name == "year2":
        return "year", first_year_of_two + (number - first_year_of_two) % 100
    if name in _RANGES:
        least, greatest = _RANGES[name]
        if not least <= number <= greatest:
            raise ValueError(f"{text} in the place of {name} is not from {least} to {greatest}")
    return name, number


def _zone_offset(text: str, local: datetime) -> timedelta:
    """Return the offset of a zone from UTC at a local time."""
    name = re.sub(r"^(?:GMT|UTC|UT)(?=[+-])", "", text)
    match = re.fullmatch(r"([+-])(\d{1,2}):?([0-5]\d)?:?([0-5]\d)?", name)
    if match:
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset > _MAX_OFFSET:
            raise ValueError(f"the offset {text!r} is longer than 18 hours")
        return -offset if match[1] == "-" else offset
    if name.upper() in ("Z", "UTC", "GMT", "UT", "ETC/UTC"):
        return timedelta()
    try:
        return local.replace(tzinfo=ZoneInfo(name)).utcoffset() or timedelta()
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder, such as America
        raise ValueError(f"the zone {text!r} is neither an offset nor a region") from None


# -- Java --------------------------------------------------------------------------------------


def _check_spark_fields(fields: tuple[FormatField, ...], pattern: str) -> None:
    for field in fields:
        if field.name in _NOT_PARSED_BY_SPARK:
            letter = _NOT_PARSED_BY_SPARK[field.name]
            raise ValueError(f"the letter {letter} in the date format {pattern!r} cannot be parsed")


def _parse_java(fields: tuple[FormatField, ...], text: str, use_zone: bool) -> datetime:
    """Parse a text by the rules of Java; if ``use_zone`` is False, its zone is ignored."""
    numbers: dict[str, int] = {}
    zone = None

    def require_number(name: str, number: int) -> None:
        if numbers.setdefault(name, number) != number:
            raise ValueError(f"{text!r} has two values of {name}: {numbers[name]} and {number}")

    for field, part in _match_fields(fields, text, is_java=True):
        if _is_zone(field):
            zone = part
            continue
        name, number = _read_field(field, part, 2000)
        if name in ("hour12", "hour0_11"):
            require_number("hour0_11", number % 12)
        elif name == "hour1_24":
            require_number("hour", number % 24)
        else:
            require_number(name, number)
    if not numbers.get("era", 1):
        raise ValueError(f"{text!r} is a year before 1")
    hour = numbers.get("hour")
    if hour is None:
        hour = numbers.get("hour0_11", 0) + 12 * numbers.get("am_pm", 0)
    require_number("am_pm", hour // 12)
    require_number("hour0_11", hour % 12)
    year = numbers.get("year", 1970)
    if "day_of_year" in numbers:
        day = _day_of_year(year, numbers["day_of_year"])
        if day.year != year:
            raise ValueError(f"{numbers['day_of_year']} is no day of {year}")
        require_number("month", day.month)
        require_number("day", day.day)
    timestamp = datetime(
        year,
        numbers.get("month", 1),
        numbers.get("day", 1),
        hour,
        numbers.get("minute", 0),
        numbers.get("second", 0),
        numbers.get("fraction", 0),
    )
    if zone is not None and use_zone:
        timestamp -= _zone_offset(zone, timestamp)
    return timestamp


def _day_of_year(year: int, number: int) -> date:
    return date(year, 1, 1) + timedelta(days=number - 1)


# -- C -----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _day_field(fields: tuple[FormatField, ...]) -> str:
    """Return which fields of a format of DuckDB say the day.

    Returns:
        ``day``, ``year`` or an empty text for the day of a month; ``iso_week``,
        ``week_from_sunday``, ``week_from_monday`` or ``day_of_year``.

    Raises:
        ValueError: The fields say two kinds of days, such as those of %Y and %V.
    """
    found = ""
    for name in (field.name for field in fields):
        if name in ("month", "day"):
            found = "day"
        elif name in ("year", "year2"):
            found = "year" if found in ("", "iso_week") else found
        elif name in _DAY_FIELDS and found != "day" and (name, found) != ("iso_year", "year"):
            kind = "iso_week" if name == "iso_year" else name
            allowed = ("", "iso_week") if kind == "iso_week" else ("", "year")
            if found not in allowed:
                raise ValueError(f"the date format has both {found} and {name}")
            found = kind
    return found


def _parse_c(fields: tuple[FormatField, ...], text: str) -> datetime:
    """Parse a text by the rules of DuckDB."""
    numbers: dict[str, int] = {}
    zone = None
    for field, part in _match_fields(fields, text, is_java=False):
        if _is_zone(field):
            zone = part
            continue
        name, number = _read_field(field, part, 1969)
        numbers["hour" if name == "hour12" else name] = number
    hour = numbers.get("hour", 0)
    if "am_pm" in numbers:
        if hour > 12:
            raise ValueError(f"{hour} is no hour of 12")
        hour = hour % 12 + 12 * numbers["am_pm"]
    clock = timedelta(
        hours=hour,
        minutes=numbers.get("minute", 0),
        seconds=numbers.get("second", 0),
        microseconds=numbers.get("fraction", 0),
    )
    timestamp = datetime.combine(_read_day(_day_field(fields), numbers), time()) + clock
    return timestamp if zone is None else timestamp - _zone_offset(zone, timestamp)


def _read_day(day_field: str, numbers: dict[str, int]) -> date:
    """Return the day of the numbers of a text, by the fields that `_day_field` names."""
    year = numbers.get("year", 1900)
    if day_field == "day_of_year":
        return _day_of_year(year, numbers["day_of_year"])
    if day_field == "iso_week":
        iso_year, week = numbers.get("iso_year", 1900), numbers.get("iso_week", 1)
        monday = date.fromisocalendar(iso_year, 1, 1) + timedelta(weeks=week - 1)
        return monday + timedelta(days=numbers.get("iso_day_of_week", 1) - 1)
    if day_field in ("week_from_sunday", "week_from_monday"):
        first_weekday = 0 if day_field == "week_from_sunday" else 1
        # Week 1 begins with the first such weekday of the year, and week 0 a week before it. As in
        # DuckDB, week 0 has all its days, also those in the year before, and %u has no effect.
        weekday = numbers.get("day_of_week", first_weekday)
        first_day = date(year, 1, 1)
        to_week_1 = (first_weekday - first_day.isoweekday()) % 7
        days = to_week_1 + 7 * (numbers[day_field] - 1) + (weekday - first_weekday) % 7
        return first_day + timedelta(days=days)
    return date(year, numbers.get("month", 1), numbers.get("day", 1))


# -- Functions ---------------------------------------------------------------------------------


def _java_parser(*, lenient: bool, use_zone: bool = True) -> Callable[[str, str], datetime | None]:
    """Return a function that parses a text by a pattern of Java.

    Args:
        lenient: If True, the result for a text of another format is None; else it is an error.
        use_zone: If False, the zone in a text is ignored.
    """

    def parse(text: str, pattern: str) -> datetime | None:
        fields = java_format(pattern)
        _check_spark_fields(fields, pattern)
        try:
            return _parse_java(fields, text, use_zone)
        except (ValueError, OverflowError):
            if lenient:
                return None
            raise

    return parse


def _c_parser(*, lenient: bool) -> Callable[[str, str], datetime | None]:
    """Return a function that parses a text by a pattern of C; see `_java_parser`."""

    def parse(text: str, pattern: str) -> datetime | None:
        fields = c_format(pattern)
        try:
            return _parse_c(fields, text)
        except (ValueError, OverflowError):
            if lenient:
                return None
            raise

    return parse


def parse_java(text: str, pattern: str) -> datetime | None:
    """Return the timestamp in a text of a format of Java; None for another text.

    Raises:
        ValueError: The pattern is not valid.
    """
    return _java_parser(lenient=True)(text, pattern)


def _function(
    name: str, description: str, parser: Callable[[str, str], datetime | None]
) -> Function:
    # In a signature, t is a text.
    return Function(
        name, description, Signature("tt", pa.timestamp("us")), per_distinct_row(parser)
    )


FUNCTIONS = (
    _function(
        "date_parse",
        "the timestamp in the text a of format b of Java",
        _java_parser(lenient=False),
    ),
    _function(
        "try_date_parse",
        "as date_parse; NULL for another text",
        _java_parser(lenient=True),
    ),
    _function(
        "date_parse_local",
        "as date_parse, without regard to the zone in the text",
        _java_parser(lenient=False, use_zone=False),
    ),
    _function(
        "strptime",
        "the timestamp in the text a of format b of C",
        _c_parser(lenient=False),
    ),
    _function("try_strptime", "as strptime; NULL for another text", _c_parser(lenient=True)),
)
