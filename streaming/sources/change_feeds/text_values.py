"""Text values: convert the text of a cell of a JSON event to a column type; NULL if invalid.

A cell is the value of one column in an event: its text and its kind in JSON. The text of a number
of up to 38 digits is exactly as sent, because events are parsed into Spark's VARIANT, which reads
such numbers as decimals. (Spark's ``from_json`` would read every number as a double.)

Values are never rounded or adjusted: digits that would be lost, a date with a time of day, an
invalid hour, 300 as int8, or ``1E400`` as a float are errors of the event that name the column.
`Encoding` defines what the events leave open: the unit of times that are numbers, and the encoding
of decimals and binaries. A number with an exponent keeps at least 15 digits, because JSON readers
read it as a double; if a producer needs more, it writes decimals without exponent or as strings. A
number of more than 38 digits is not a valid decimal, and a number that was read as a double is not
a valid string. In a column of strings any other JSON value has one spelling: 1.10 is "1.1", and the
members of an object are sorted by name.

A text that is longer than any value of its type is not parsed (`max_text_bytes`): events are
untrusted, and a "number" of ten million digits would keep a task busy forever. The patterns match
in linear time.

===========================================  =======================================
numbers, and base64 of decimals              `MAX_NUMBER_BYTES`
dates, times, timestamps, durations          `MAX_TIME_BYTES`
booleans                                     `MAX_BOOLEAN_BYTES`
strings and binaries                         no limit but that of the event
===========================================  =======================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyarrow import types

from circuits.types.arrow_types import NUMBERS, Family, family_of, value_type
from streaming.errors import FeedError
from streaming.sources.change_feeds.physical_types import MAX_DECIMAL_DIGITS, physical_type
from streaming.sources.change_feeds.sql_expressions import literal, with_binding

__all__ = [
    "BINARIES",
    "MAX_BOOLEAN_BYTES",
    "MAX_NUMBER_BYTES",
    "MAX_TIME_BYTES",
    "NANOSECONDS",
    "NUMBER_PATTERN",
    "Encoding",
    "json_kind",
    "mark_rounded",
    "max_text_bytes",
    "needs_json_kind",
    "scalar_kind",
    "value_expression",
]

NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NANOSECONDS_PER_DAY: Final = 86_400 * 10**9
BINARIES: Final = {"base64": "base64", "hex": "hex", "utf8": "utf-8"}
DECIMALS: Final = ("text", "base64", "either")

#: Bytes of a text that is read as a number; Spark reads JSON numbers of up to 1000 digits.
MAX_NUMBER_BYTES: Final = 1000
#: Bytes of a text that is read as a date, a time, a timestamp or a duration.
MAX_TIME_BYTES: Final = 100
#: Bytes of a text that is read as a boolean.
MAX_BOOLEAN_BYTES: Final = 100
_MAX_BYTES: Final = {
    Family.BOOLEAN: MAX_BOOLEAN_BYTES,
    **dict.fromkeys(NUMBERS, MAX_NUMBER_BYTES),
    Family.DATE: MAX_TIME_BYTES,
    Family.TIME: MAX_TIME_BYTES,
    Family.TIMESTAMP: MAX_TIME_BYTES,
    Family.DURATION: MAX_TIME_BYTES,
}

NUMBER_PATTERN: Final = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
DATE_PATTERN: Final = r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}$"
#: An offset follows minutes or seconds; the day of a date is none.
ZONE_PATTERN: Final = (
    r"(Z|UTC|GMT|:\d{2}(\.\d*)? ?[+-]\d{1,2}(:?\d{2})?| ?[A-Za-z]+/[A-Za-z_/+-]+)$"
)
#: In it, the name FRACTION_DIGITS stands for a number (`_is_timestamp`).
TIMESTAMP_PATTERN: Final = (
    r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d{0,FRACTION_DIGITS}0*)?)?"
    r" ?(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)?)?$"
)
FRACTION_PATTERN: Final = r"^[+-]?\d*\.(\d*)"
EXPONENT_PATTERN: Final = r"[eE]([+-]?\d+)$"
WHOLE_PATTERN: Final = r"^[+-]?0*(\d*)"
LATIN1_PATTERN: Final = r"^[\x{00}-\x{FF}]*$"
FRACTION_DIGITS: Final = {"s": "0", "ms": "3", "us": "6", "ns": "6"}  # Spark reads no more than 6
CLOCK_PATTERN: Final = r"^([+-]?)(\d{1,4}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?$"


@dataclass(frozen=True)
class Encoding:
    """The encodings that the events do not define.

    Args:
        decimals: The encoding of a number that is a JSON string: "text", "base64" (of its unscaled
            bytes, as Kafka Connect does), or "either": a text that is valid in only one of these
            encodings is decoded, and a text that is valid in both ("1234") is refused.
        binary: The encoding of bytes: "base64", "hex", "latin1" or "utf8".
        time_unit: The unit of a number in a column of times: "s", "ms", "us" or "ns"; for all
            columns, or by name of the column. It does not apply to columns of dates.
        zone: The zone of a time without a zone, in a column of times with a zone.
        epoch_days: True if a number in a column of dates counts days since 1970.

    Raises:
        FeedError: The name of an encoding, unit or zone is unknown.
    """

    decimals: str = "text"
    binary: str = "base64"
    time_unit: str | Mapping[str, str] | None = None
    zone: str = "UTC"
    epoch_days: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        units = self.time_unit
        all_units: list[str] = []
        if isinstance(units, Mapping):
            all_units = list(units.values())
        elif units:
            all_units = [units]
        for name, known in [
            (self.decimals, DECIMALS),
            (self.binary, (*BINARIES, "latin1")),
            *((unit, tuple(NANOSECONDS)) for unit in all_units),
        ]:
            if name not in known:
                raise FeedError(f"unknown encoding {name!r}: it must be one of {', '.join(known)}")
        if not _is_zone(self.zone):
            raise FeedError(
                f"unknown zone {self.zone!r}: give the name of a zone such as 'Europe/Berlin', or "
                "an offset such as '+02:00'"
            )

    def unit(self, column: str) -> int | None:
        """Return the nanoseconds per unit of a number in this column; None if unknown."""
        units = self.time_unit
        unit = units.get(column) if isinstance(units, Mapping) else units
        return None if unit is None else NANOSECONDS[unit]


def _is_zone(zone: str) -> bool:
    """Return whether Spark may know a zone: by a name, an abbreviation or an offset."""
    if re.fullmatch(r"(?:UTC|GMT|UT)?[+-]\d{1,2}(?::?\d{2}){0,2}|[A-Z]{1,3}", zone):
        return True
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder, such as America
        return False
    return True


def needs_json_kind(type: pa.DataType) -> bool:
    """Return True if the value of a text depends on its kind in JSON."""
    return family_of(type) not in (
        Family.BOOLEAN,
        Family.INTEGER,
        Family.DECIMAL,
        Family.NULL,
    )


def max_text_bytes(type: pa.DataType) -> int | None:
    """Return the length limit in bytes of a text of this type; None for strings and binaries.

    >>> max_text_bytes(pa.int8()), max_text_bytes(pa.date32()), max_text_bytes(pa.string())
    (1000, 100, None)
    """
    return _MAX_BYTES.get(family_of(value_type(type)))


def json_kind(variant: str, text: str, type: pa.DataType) -> str:
    """Return the kind in JSON of a cell, if ``type`` needs it; ``text`` is the cell's text."""
    kind = scalar_kind(variant, text)
    if physical_type(type).typeName() != "string":
        return kind
    # Any kind is a valid string, except a number that was read as a double. Its text begins with a
    # digit or a sign, which sort up to '9', and contains a point. Only then the kind is computed.
    return f"CASE WHEN left({text}, 1) <= '9' AND contains({text}, '.') THEN {kind} END"


def scalar_kind(variant: str, text: str) -> str:
    """Return the type in JSON of a VARIANT with this text; NULL for an object or an array.

    Spark describes an array by all members of all its objects, which takes time quadratic in their
    number.
    """
    # A text that looks like an object or an array is a string if its JSON begins with a quote.
    string_or_null = f"if(left(to_json({variant}), 1) = '\"', 'STRING', NULL)"
    looks_nested = f"left({text}, 1) IN ('{{', '[')"
    return f"CASE WHEN {looks_nested} THEN {string_or_null} ELSE schema_of_variant({variant}) END"


def mark_rounded(variant: str, text: str, has_long_number: str) -> str:
    """Return the text of a number; an invalid text with the reason if the number was rounded.

    Numbers of more than 38 digits are read as doubles, which are written with up to 17 digits.

    Args:
        variant: The cell.
        text: The text of the cell.
        has_long_number: The SQL condition that the event has a number of more than 38 digits.
    """
    is_rounded = f"{has_long_number} AND {scalar_kind(variant, text)} = 'DOUBLE'"
    reason = f"concat({text}, ', rounded from more than {MAX_DECIMAL_DIGITS} digits,')"
    return f"if(length({text}) > 16 AND {is_rounded}, {reason}, {text})"


def value_expression(text: str, kind: str, unit: str, type: pa.DataType, encoding: Encoding) -> str:
    """Return the value of a cell in the physical type of ``type`` (`physical_type`).

    Args:
        text: The text of the cell.
        kind: The result of `scalar_kind`; used only if `needs_json_kind`.
        unit: Nanoseconds per unit of a number of time; NULL if unknown, and for days.
        type: The type of the column.
        encoding: The encodings that the events do not define.
    """
    physical_type(type)  # raises an error for a type that Spark cannot carry
    type = value_type(type)
    match family_of(type):
        case Family.NULL:
            return "CAST(NULL AS VOID)"
        case Family.BOOLEAN:
            return (
                f"CASE WHEN {text} IN ('true', 'false', '0', '1') "
                f"THEN try_cast({text} AS BOOLEAN) END"
            )
        case Family.INTEGER:
            return _integer_value(text, type)
        case Family.DECIMAL:
            return _decimal_value(text, type)
        case Family.FLOAT:
            return _float_value(text, kind, type)
        case Family.DATE:
            return _date_value(text, kind, unit, encoding)
        case Family.TIMESTAMP | Family.TIME | Family.DURATION:
            return _time_value(text, kind, unit, type, encoding)
        case Family.BINARY:
            return _binary_value(text, kind, encoding)
        case _:
            return f"if({kind} = 'DOUBLE', CAST(NULL AS STRING), {text})"


def _float_value(text: str, kind: str, type: pa.DataType) -> str:
    spark_type = physical_type(type).simpleString()
    special = f"({kind} = 'STRING' AND {text} RLIKE '(?i)^[+-]?(inf|infinity|nan)$')"
    value = f"try_cast({text} AS {spark_type})"
    is_finite = f"abs({value}) < CAST('Infinity' AS {spark_type})"
    number = f"{text} RLIKE {literal(NUMBER_PATTERN)} AND {is_finite}"
    return f"CASE WHEN ({number}) OR {special} THEN {value} END"


def _date_value(text: str, kind: str, unit: str, encoding: Encoding) -> str:
    from_text = f"WHEN {text} RLIKE {literal(DATE_PATTERN)} THEN try_cast({text} AS DATE)"
    if not encoding.epoch_days:
        return f"CASE {from_text} END"
    days = f"date_from_unix_date(try_cast({text} AS INT))"
    return f"CASE {from_text} WHEN {kind} = 'BIGINT' AND {unit} IS NULL THEN {days} END"


def _integer_value(text: str, type: pa.DataType) -> str:
    value = f"try_cast({text} AS {physical_type(type).simpleString()})"
    if types.is_unsigned_integer(type):
        # Circuits reserve the greatest uint64 for NULL, and the least int64 of other types.
        maximum = 2**type.bit_width - (2 if type.bit_width == 64 else 1)
        return (
            f"CASE WHEN {value} BETWEEN 0 AND CAST('{maximum}' AS DECIMAL(20, 0)) THEN {value} END"
        )
    if type.bit_width == 64:
        return f"nullif({value}, CAST('{-(2**63)}' AS BIGINT))"
    return value


def _decimal_value(text: str, type: pa.DataType) -> str:
    scale = max(type.scale, 0)
    fraction = f"regexp_extract({text}, {literal(FRACTION_PATTERN)}, 1)"
    fraction_digits = f"length(rtrim('0', {fraction}))"
    # A try_cast of a text that is not a number costs an exception.
    exponent = f"try_cast(regexp_extract({text}, {literal(EXPONENT_PATTERN)}, 1) AS INT)"
    exponent = f"if({text} RLIKE '[eE]', {exponent}, 0)"
    is_exact = f"{fraction_digits} - {exponent} <= {scale}"
    is_valid = f"{text} RLIKE {literal(NUMBER_PATTERN)} AND {is_exact}"
    if type.precision - min(type.scale, 0) > MAX_DECIMAL_DIGITS:
        integer_digits = f"length(regexp_extract({text}, {literal(WHOLE_PATTERN)}, 1))"
        fits = f"{integer_digits} <= {type.precision - type.scale} AND NOT {text} RLIKE '[eE]'"
        return f"CASE WHEN {is_valid} AND {fits} THEN {text} END"
    value = f"try_cast({text} AS {physical_type(type).simpleString()})"
    if type.scale < 0:
        is_valid += f" AND {value} % CAST('{10**-type.scale}' AS DECIMAL(38, 0)) = 0"
    return f"CASE WHEN {is_valid} THEN {value} END"


def _binary_value(text: str, kind: str, encoding: Encoding) -> str:
    if encoding.binary == "latin1":
        fits = f"{kind} = 'STRING' AND {text} RLIKE {literal(LATIN1_PATTERN)}"
        return f"CASE WHEN {fits} THEN encode({text}, 'ISO-8859-1') END"
    format = BINARIES[encoding.binary]
    return f"CASE WHEN {kind} = 'STRING' THEN try_to_binary({text}, '{format}') END"


def _time_value(text: str, kind: str, unit: str, type: pa.DataType, encoding: Encoding) -> str:
    """Return a timestamp, time of day or duration, from a number, a date with time, or h:mm:ss."""
    is_number = f"{kind} = 'BIGINT' AND {unit} IS NOT NULL"
    number_ns = f"try_cast({text} AS DECIMAL(19, 0)) * CAST({unit} AS DECIMAL(10, 0))"
    if types.is_timestamp(type) and type.unit == "ns":
        zone = encoding.zone if type.tz is not None else None
        text_ns = (
            f"CAST(unix_micros({_parse_timestamp(text, zone, type.unit)}) AS DECIMAL(19, 0)) * 1000"
        )
        return _to_ticks(f"if({is_number}, {number_ns}, {text_ns})", type)
    if types.is_timestamp(type):
        us_per_unit = NANOSECONDS[type.unit] // NANOSECONDS["us"]
        micros = f"try_cast({_to_ticks(number_ns, type)} * {us_per_unit} AS BIGINT)"
        if type.tz is not None:
            parsed = _parse_timestamp(text, encoding.zone, type.unit)
            return f"if({is_number}, timestamp_micros({micros}), {parsed})"
        local = f"timestampadd(MICROSECOND, {micros}, TIMESTAMP_NTZ'1970-01-01 00:00:00')"
        is_local = f"{_is_timestamp(text, type.unit)} AND NOT {_has_zone(text)}"
        parsed = f"CASE WHEN {is_local} THEN try_cast({text} AS TIMESTAMP_NTZ) END"
        return f"if({is_number}, {local}, {parsed})"
    nanoseconds = f"if({is_number}, {number_ns}, {_parse_clock(text)})"
    if types.is_time(type):
        time_of_day = f"CASE WHEN time >= 0 AND time < {NANOSECONDS_PER_DAY} THEN time END"
        return _to_ticks(with_binding("time", nanoseconds, time_of_day), type)
    return _to_ticks(nanoseconds, type)


def _has_zone(text: str) -> str:
    return f"(length({text}) > 10 AND {text} RLIKE {literal(ZONE_PATTERN)})"


def _is_timestamp(text: str, unit: str) -> str:
    pattern = TIMESTAMP_PATTERN.replace("FRACTION_DIGITS", FRACTION_DIGITS[unit])
    return f"{text} RLIKE {literal(pattern)}"


def _parse_timestamp(text: str, zone: str | None, unit: str) -> str:
    """Parse a date and time; ``zone`` applies to texts without a zone; None for local times."""
    with_time = f"if(contains({text}, ':'), {text}, concat({text}, ' 00:00:00'))"
    with_zone = f"concat({with_time}, {literal(' ' + (zone or 'UTC'))})"
    is_valid = _is_timestamp(text, unit)
    if zone is None:
        parsed = f"try_cast({with_zone} AS TIMESTAMP)"
        return f"CASE WHEN {is_valid} AND NOT {_has_zone(text)} THEN {parsed} END"
    parsed = f"try_cast(if({_has_zone(text)}, {text}, {with_zone}) AS TIMESTAMP)"
    return f"CASE WHEN {is_valid} THEN {parsed} END"


def _parse_clock(text: str) -> str:
    """Return the nanoseconds of ``[-]h:mm:ss[.f]``."""

    def part(group: int) -> str:
        return f"regexp_extract({text}, {literal(CLOCK_PATTERN)}, {group})"

    hours, minutes, seconds = (f"try_cast({part(group)} AS BIGINT)" for group in (2, 3, 4))
    fraction = f"try_cast(rpad({part(5)}, 9, '0') AS BIGINT)"
    total = f"(({hours} * 60 + {minutes}) * 60 + {seconds}) * 1000000000L + {fraction}"
    signed = f"if({part(1)} = '-', -1L, 1L) * ({total})"
    is_valid = f"{text} RLIKE {literal(CLOCK_PATTERN)} AND {minutes} < 60 AND {seconds} < 60"
    return f"CAST(CASE WHEN {is_valid} THEN {signed} END AS DECIMAL(30, 0))"


def _to_ticks(nanoseconds: str, type: pa.DataType) -> str:
    """Convert nanoseconds to a number of the type's units; NULL if that loses precision."""
    size = NANOSECONDS[type.unit]
    # Circuits reserve the least number of 64 bits for NULL.
    limit = f"CAST('{2 ** (type.bit_width - 1) * size}' AS DECIMAL(38, 0))"
    fits = f"exact % {size} = 0 AND exact < {limit} AND exact > -{limit}"
    ticks = f"CAST(exact / CAST({size} AS DECIMAL(10, 0)) AS DECIMAL(20, 0))"
    exact = f"CAST({nanoseconds} AS DECIMAL(30, 0))"
    return with_binding("exact", exact, f"CASE WHEN {fits} THEN {ticks} END")
