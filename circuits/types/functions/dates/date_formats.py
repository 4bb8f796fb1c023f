"""Format timestamps as text, and parse them, with patterns of Java (Spark) or of C (DuckDB).

A pattern of either kind is converted to a list of fields
(`circuits.types.functions.dates.date_patterns`). One formatter and one parser use this list. Each
distinct value is formatted or parsed once, in Python. Years are from 1 to 9999. Names of months and
days are English. A time is first truncated to the finest field of the format: ``%Y-%m-%d`` formats
each day once, however many times of the day there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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

__all__ = ["FUNCTIONS", "finest_unit", "format_java", "format_seconds", "parse_java"]

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


_ZONE_EXPRESSION: Final = r"Z|(?:GMT|UTC|UT)?[+-]\d{1,2}(?::?\d{2})?(?::?\d{2})?|[A-Za-z][\w/+-]*"
_NAMES_PATTERN: Final = {
    "month_short": "|".join(name[:3] for name in MONTHS),
    "month_name": "|".join(MONTHS),
    "day_short": "|".join(name[:3] for name in DAYS),
    "day_name": "|".join(DAYS),
    "am_pm": "AM|PM",
    "era": "AD|BC",
    "era_name": "Anno Domini|Before Christ",
}


def _field_expression(field: FormatField, strict: bool, is_before_digits: bool) -> str:
    """Return a regular expression for the texts of a field, as a group with the field's name.

    Args:
        field: The field.
        strict: If True, as in Java, a text must have as many digits as the pattern says. If False,
            it may have fewer.
        is_before_digits: True if another field follows without a text between them.
    """
    name, width = field.name, field.width
    if field.is_literal:
        return re.escape(field.text)
    if name.startswith("zone") or name == "offset":
        return rf"(?P<zone>{_ZONE_EXPRESSION})"
    if name in _NAMES_PATTERN:
        expression = f"(?i:{_NAMES_PATTERN[name]})"
    elif name == "fraction":
        expression = rf"\d{{1,{width if strict else max(width, 9)}}}"
    elif name == "year2":
        expression = r"\d{2}"
    elif name == "year" and is_before_digits and width in (1, 4):
        # A year of one to four digits would take digits of the field that follows.
        expression = r"\d{4}"
    elif name == "year":
        expression = rf"[+-]?\d{{{width},{max(4, width)}}}" if strict else r"[+-]?\d{1,4}"
    else:
        max_digits = 3 if name == "day_of_year" else 2
        min_digits = min(width, max_digits) if strict and width > 1 else 1
        expression = rf"\d{{{min_digits},{max_digits}}}"
    return f"(?P<{name}>{expression})"


@lru_cache(maxsize=256)
def _parser_expression(fields: tuple[FormatField, ...], strict: bool) -> re.Pattern[str]:
    parts = []
    for index, field in enumerate(fields):
        is_before_digits = index + 1 < len(fields) and not fields[index + 1].is_literal
        part = _field_expression(field, strict, is_before_digits)
        parts.append(f"(?:{part})?" if field.optional else part)
    try:
        return re.compile("".join(parts))
    except re.error as error:
        raise ValueError(f"the date format has a field twice: {error}") from None


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
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"the zone {text!r} is neither an offset nor a region") from None


_MAX_OFFSET: Final = timedelta(hours=18)


def _parse_fields(
    fields: tuple[FormatField, ...], text: str, strict: bool, use_zone: bool = True
) -> datetime:
    """Parse a text by the rules of Spark, if ``strict``, or those of DuckDB.

    The rules differ in the numbers of digits, in the year of a format without one (1970 in Spark,
    1900 in DuckDB), and in the century of a year of two digits: 2000 to 2099 in Spark, 1969 to 2068
    in DuckDB. If ``use_zone`` is False, the zone in a text is ignored.
    """
    match = _parser_expression(fields, strict).fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not match the date format")
    texts = {name: value for name, value in match.groupdict().items() if value is not None}
    year = int(texts.get("year", 1970 if strict else 1900))
    if "year2" in texts:
        two_digits = int(texts["year2"])
        year = 2000 + two_digits if strict or two_digits < 69 else 1900 + two_digits
    month = int(texts.get("month", 1))
    for name in ("month_short", "month_name"):
        if name in texts:
            month = 1 + [month_name[:3].lower() for month_name in MONTHS].index(
                texts[name][:3].lower()
            )
    hour = int(texts.get("hour", 0))
    if "hour1_24" in texts:
        hour = int(texts["hour1_24"]) % 24
    for name in ("hour12", "hour0_11"):
        if name in texts:
            if int(texts[name]) > 12:
                raise ValueError(f"{texts[name]} is no hour of 12")
            hour = int(texts[name]) % 12 + 12 * (texts.get("am_pm", "AM").upper() == "PM")
    micros = int(f"{texts.get('fraction', '0'):0<6}"[:6])
    timestamp = datetime(
        year,
        month,
        int(texts.get("day", 1)),
        hour,
        int(texts.get("minute", 0)),
        int(texts.get("second", 0)),
        micros,
    )
    if "day_of_year" in texts:
        day = date(year, 1, 1) + timedelta(days=int(texts["day_of_year"]) - 1)
        if day.year != year:
            raise ValueError(f"{texts['day_of_year']} is no day of {year}")
        timestamp = timestamp.replace(month=day.month, day=day.day)
    if "zone" in texts:
        timestamp -= _zone_offset(texts["zone"], timestamp) if use_zone else timedelta()
    return timestamp


def _java_parser(*, lenient: bool, use_zone: bool = True) -> Callable[[str, str], datetime | None]:
    """Return a function that parses a text by a pattern of Java.

    Args:
        lenient: If True, the result for a text of another format is None; else it is an error.
        use_zone: If False, the zone in a text is ignored.
    """

    def parse(text: str, pattern: str) -> datetime | None:
        fields = java_format(pattern)
        try:
            return _parse_fields(fields, text, strict=True, use_zone=use_zone)
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
            return _parse_fields(fields, text.strip(), strict=False)
        except (ValueError, OverflowError):
            if lenient:
                return None
            raise

    return parse


def parse_java(text: str, pattern: str) -> datetime | None:
    """Return the timestamp in a text of a format of Java; None for another text."""
    return _java_parser(lenient=True)(text, pattern)


def format_java(timestamps: pa.Array, pattern: str) -> pa.Array:
    """Return timestamps without a zone as texts of a format of Java."""
    texts: pa.Array = _format_kernel(java_format)((timestamps, pa.scalar(pattern)), pa.string())
    return texts


_TIMESTAMP: Final = pa.timestamp("us")
_FORMAT_RULE: Final = Signature("mt", pa.string())
_PARSE_RULE: Final = Signature("tt", _TIMESTAMP)


def _parse_function(
    name: str, description: str, parser: Callable[[str, str], datetime | None]
) -> Function:
    return Function(name, description, _PARSE_RULE, per_distinct_row(parser))


# In a signature, m is a timestamp and t a text.
FUNCTIONS = (
    Function(
        "date_format",
        "a in the format b of Java: yyyy-MM-dd HH:mm:ss",
        _FORMAT_RULE,
        _format_kernel(_COMPILERS["date_format"]),
    ),
    _parse_function(
        "date_parse",
        "the timestamp in the text a of format b of Java",
        _java_parser(lenient=False),
    ),
    _parse_function(
        "try_date_parse",
        "as date_parse; NULL for another text",
        _java_parser(lenient=True),
    ),
    _parse_function(
        "date_parse_local",
        "as date_parse, without regard to the zone in the text",
        _java_parser(lenient=False, use_zone=False),
    ),
    Function(
        "strftime",
        "a in the format b of C: %Y-%m-%d %H:%M:%S",
        _FORMAT_RULE,
        _format_kernel(_COMPILERS["strftime"]),
    ),
    _parse_function(
        "strptime",
        "the timestamp in the text a of format b of C",
        _c_parser(lenient=False),
    ),
    _parse_function("try_strptime", "as strptime; NULL for another text", _c_parser(lenient=True)),
)
