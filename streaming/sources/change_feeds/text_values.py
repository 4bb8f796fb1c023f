"""Texts: the value of a cell of a JSON event as a column type, NULL where it is none.

A cell is what an event holds for one column: a text, exactly as it was sent for numbers of up to 38
digits (events are parsed into Spark's VARIANT, which reads such numbers as decimals; texts of
``from_json`` went through a double, whatever its settings), and its kind in JSON.

Values are never rounded or adjusted: digits that would be lost, a date with a time of day, an
invalid hour, 300 as int8, or ``1E400`` as a float are errors of the event that name the column.
`Encoding` defines the open points: the unit of numbers of time, the encoding of decimals and
binaries. A number with an exponent keeps at least 15 digits, because JSON readers read it as a
double; a producer that needs more writes decimals without exponent, or as strings. A number of more
than 38 digits is not a value of a decimal, and one that was read as a double is not a value of a
text. In a column of texts other JSON has one spelling: 1.10 is "1.1", and the members of an object
are sorted by name.

A text that is longer than any value of its type is not parsed (`max_text_bytes`): events are
untrusted, and a "number" of ten million digits would keep a task busy forever. The patterns take
time in proportion to the text.

===========================================  =======================================
numbers, and base64 of decimals              `MAX_NUMBER_BYTES`
dates, times, timestamps, durations          `MAX_TIME_BYTES`
booleans                                     `MAX_BOOLEAN_BYTES`
texts and binaries                           as long as an event can be
===========================================  =======================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyarrow import types

from circuits.types.arrow_types import NUMBERS, Family, family_of, value_type
from streaming.errors import FeedError
from streaming.sources.change_feeds.physical_types import DIGITS, physical_type
from streaming.sources.change_feeds.sql_expressions import literal, with_binding

__all__ = [
    "BINARIES",
    "MAX_BOOLEAN_BYTES",
    "MAX_NUMBER_BYTES",
    "MAX_TIME_BYTES",
    "NANOSECONDS",
    "NUMBER",
    "Encoding",
    "json_kind",
    "mark_rounded",
    "max_text_bytes",
    "needs_json_kind",
    "scalar_kind",
    "value_expression",
]

NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY: Final = 86_400 * 10**9
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

NUMBER: Final = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
DATE: Final = r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}$"
ZONE: Final = r"(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?| ?[A-Za-z]+/[A-Za-z_/+-]+)$"
MOMENT: Final = (
    r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d{0,PLACES}0*)?)?"
    r" ?(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)?)?$"
)
FRACTION: Final = r"^[+-]?\d*\.(\d*)"
EXPONENT: Final = r"[eE]([+-]?\d+)$"
WHOLE: Final = r"^[+-]?0*(\d*)"
LATIN: Final = r"^[\x{00}-\x{FF}]*$"
PLACES: Final = {"s": "0", "ms": "3", "us": "6", "ns": "6"}  # Spark reads no more than 6
CLOCK: Final = r"^([+-]?)(\d{1,4}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?$"


@dataclass(frozen=True)
class Encoding:
    """The encodings that the events do not define.

    Args:
        decimals: The encoding of a number that is a JSON string: "text", "base64" (of its unscaled
            bytes, as Kafka Connect does), or "either": what can be read in one of these ways only
            is read so, and what can be read in both ("1234") is refused.
        binary: How bytes are written: "base64", "hex", "latin1" or "utf8".
        time_unit: What a number counts in a column of times: "s", "ms", "us" or "ns"; for all
            columns, or by name of the column. Dates are days then.
        zone: The zone of a time that names none, in a column of times with a zone.
        epoch_days: Whether a number in a column of dates counts days since 1970.

    Raises:
        FeedError: A word that is none of these.
    """

    decimals: str = "text"
    binary: str = "base64"
    time_unit: str | Mapping[str, str] | None = None
    zone: str = "UTC"
    epoch_days: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        units = self.time_unit
        given = units.values() if isinstance(units, Mapping) else [units] if units else []
        for word, known in [
            (self.decimals, DECIMALS),
            (self.binary, (*BINARIES, "latin1")),
            *((unit, tuple(NANOSECONDS)) for unit in given),
        ]:
            if word not in known:
                raise FeedError(f"an encoding is one of {', '.join(known)}, not {word!r}")

    def unit(self, column: str) -> int | None:
        """Nanoseconds that one counts in this column; None when that is not known."""
        units = self.time_unit
        unit = units.get(column) if isinstance(units, Mapping) else units
        return None if unit is None else NANOSECONDS[unit]


def needs_json_kind(type: pa.DataType) -> bool:
    """Whether what a text means depends on its kind in JSON."""
    return family_of(type) not in (
        Family.BOOLEAN,
        Family.INTEGER,
        Family.DECIMAL,
        Family.NULL,
    )


def max_text_bytes(type: pa.DataType) -> int | None:
    """Bytes of the longest text that is read as a type; None for texts and binaries.

    >>> max_text_bytes(pa.int8()), max_text_bytes(pa.date32()), max_text_bytes(pa.string())
    (1000, 100, None)
    """
    return _MAX_BYTES.get(family_of(value_type(type)))


def json_kind(variant: str, text: str, type: pa.DataType) -> str:
    """Return the kind in JSON of a cell, whose text is known, as far as ``type`` needs it."""
    kind = scalar_kind(variant, text)
    if physical_type(type).typeName() != "string":
        return kind
    # A text is what it is; only numbers that went through a double are told apart.
    return f"CASE WHEN left({text}, 1) <= '9' AND contains({text}, '.') THEN {kind} END"


def scalar_kind(variant: str, text: str) -> str:
    """Return the type in JSON of a VARIANT, NULL of an object or an array; its text is known.

    Spark describes an array by all members of all its objects, which takes the square of their
    number.
    """
    quoted_text = f"if(left(to_json({variant}), 1) = '\"', 'STRING', NULL)"
    nested = f"left({text}, 1) IN ('{{', '[')"
    return f"CASE WHEN {nested} THEN {quoted_text} ELSE schema_of_variant({variant}) END"


def mark_rounded(variant: str, text: str, has_long_number: str) -> str:
    """Return the text of a number; no number if it had more digits than are kept.

    Numbers of more than 38 digits are read as doubles, which are written with up to 17.

    Args:
        variant: The cell.
        text: Its text.
        has_long_number: Whether the event has so long a number anywhere.
    """
    cut = f"{has_long_number} AND {scalar_kind(variant, text)} = 'DOUBLE'"
    said = f"concat({text}, ', rounded from more than {DIGITS} digits,')"
    return f"if(length({text}) > 16 AND {cut}, {said}, {text})"


def value_expression(text: str, kind: str, unit: str, type: pa.DataType, encoding: Encoding) -> str:
    """Return the value of a cell as the carrier of ``type``.

    Args:
        text: Its text.
        kind: Its type in JSON, as `scalar_kind` says; asked for only if `needs_json_kind`.
        unit: Nanoseconds that a number of time counts, NULL when that is not known, and for days.
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
            return _integer(text, type)
        case Family.DECIMAL:
            return _decimal(text, type)
        case Family.FLOAT:
            return _float(text, kind, type)
        case Family.DATE:
            return _date(text, kind, unit, encoding)
        case Family.TIMESTAMP | Family.TIME | Family.DURATION:
            return _time(text, kind, unit, type, encoding)
        case Family.BINARY:
            return _binary(text, kind, encoding)
        case _:
            return f"if({kind} = 'DOUBLE', CAST(NULL AS STRING), {text})"


def _float(text: str, kind: str, type: pa.DataType) -> str:
    spark = physical_type(type).simpleString()
    word = f"({kind} = 'STRING' AND {text} RLIKE '(?i)^[+-]?(inf|infinity|nan)$')"
    value = f"try_cast({text} AS {spark})"
    number = f"{text} RLIKE {literal(NUMBER)} AND abs({value}) < CAST('Infinity' AS {spark})"
    return f"CASE WHEN ({number}) OR {word} THEN {value} END"


def _date(text: str, kind: str, unit: str, encoding: Encoding) -> str:
    day = f"WHEN {text} RLIKE {literal(DATE)} THEN try_cast({text} AS DATE)"
    if not encoding.epoch_days:
        return f"CASE {day} END"
    days = f"date_from_unix_date(try_cast({text} AS INT))"
    return f"CASE {day} WHEN {kind} = 'BIGINT' AND {unit} IS NULL THEN {days} END"


def _integer(text: str, type: pa.DataType) -> str:
    value = f"try_cast({text} AS {physical_type(type).simpleString()})"
    if types.is_unsigned_integer(type):
        # The greatest uint64 has no code in a circuit, like the least int64.
        most = 2**type.bit_width - (2 if type.bit_width == 64 else 1)
        return f"CASE WHEN {value} BETWEEN 0 AND CAST('{most}' AS DECIMAL(20, 0)) THEN {value} END"
    if type.bit_width == 64:
        return f"nullif({value}, CAST('{-(2**63)}' AS BIGINT))"
    return value


def _decimal(text: str, type: pa.DataType) -> str:
    scale = max(type.scale, 0)
    fraction = f"regexp_extract({text}, {literal(FRACTION)}, 1)"
    significant = f"length(rtrim('0', {fraction}))"
    # To try a cast of what is no number costs an exception.
    exponent = f"try_cast(regexp_extract({text}, {literal(EXPONENT)}, 1) AS INT)"
    exponent = f"if({text} RLIKE '[eE]', {exponent}, 0)"
    exact = f"{significant} - {exponent} <= {scale}"
    fine = f"{text} RLIKE {literal(NUMBER)} AND {exact}"
    if type.precision - min(type.scale, 0) > DIGITS:
        whole = f"length(regexp_extract({text}, {literal(WHOLE)}, 1))"
        narrow = f"{whole} <= {type.precision - type.scale} AND NOT {text} RLIKE '[eE]'"
        return f"CASE WHEN {fine} AND {narrow} THEN {text} END"
    value = f"try_cast({text} AS {physical_type(type).simpleString()})"
    if type.scale < 0:
        fine += f" AND {value} % CAST('{10**-type.scale}' AS DECIMAL(38, 0)) = 0"
    return f"CASE WHEN {fine} THEN {value} END"


def _binary(text: str, kind: str, encoding: Encoding) -> str:
    if encoding.binary == "latin1":
        fits = f"{kind} = 'STRING' AND {text} RLIKE {literal(LATIN)}"
        return f"CASE WHEN {fits} THEN encode({text}, 'ISO-8859-1') END"
    format = BINARIES[encoding.binary]
    return f"CASE WHEN {kind} = 'STRING' THEN try_to_binary({text}, '{format}') END"


def _time(text: str, kind: str, unit: str, type: pa.DataType, encoding: Encoding) -> str:
    """A moment, a time of day or a duration, from a number, a date and time, or a clock."""
    numeric = f"{kind} = 'BIGINT' AND {unit} IS NOT NULL"
    count = f"try_cast({text} AS DECIMAL(19, 0)) * CAST({unit} AS DECIMAL(10, 0))"
    if types.is_timestamp(type) and type.unit == "ns":
        zone = encoding.zone if type.tz is not None else None
        micros = f"CAST(unix_micros({_moment(text, zone, type.unit)}) AS DECIMAL(19, 0)) * 1000"
        return _ticks(f"if({numeric}, {count}, {micros})", type)
    if types.is_timestamp(type):
        factor = NANOSECONDS[type.unit] // NANOSECONDS["us"]
        micros = f"try_cast({_ticks(count, type)} * {factor} AS BIGINT)"
        if type.tz is not None:
            written = _moment(text, encoding.zone, type.unit)
            return f"if({numeric}, timestamp_micros({micros}), {written})"
        local = f"timestampadd(MICROSECOND, {micros}, TIMESTAMP_NTZ'1970-01-01 00:00:00')"
        fine = f"{_is_moment(text, type.unit)} AND NOT {_has_zone(text)}"
        written = f"CASE WHEN {fine} THEN try_cast({text} AS TIMESTAMP_NTZ) END"
        return f"if({numeric}, {local}, {written})"
    given = f"if({numeric}, {count}, {_clock(text)})"
    if types.is_time(type):
        within = f"CASE WHEN time >= 0 AND time < {DAY} THEN time END"
        return _ticks(with_binding("time", given, within), type)
    return _ticks(given, type)


def _has_zone(text: str) -> str:
    return f"(length({text}) > 10 AND {text} RLIKE {literal(ZONE)})"


def _is_moment(text: str, unit: str) -> str:
    return f"{text} RLIKE {literal(MOMENT.replace('PLACES', PLACES[unit]))}"


def _moment(text: str, zone: str | None, unit: str) -> str:
    """A written date and time; without a ``zone`` for those that have none, a local time."""
    clock = f"if(length({text}) > 10, {text}, concat({text}, ' 00:00:00'))"
    complete = f"concat({clock}, {literal(' ' + (zone or 'UTC'))})"
    fine = _is_moment(text, unit)
    if zone is None:
        moment = f"try_cast({complete} AS TIMESTAMP)"
        return f"CASE WHEN {fine} AND NOT {_has_zone(text)} THEN {moment} END"
    moment = f"try_cast(if({_has_zone(text)}, {text}, {complete}) AS TIMESTAMP)"
    return f"CASE WHEN {fine} THEN {moment} END"


def _clock(text: str) -> str:
    """Nanoseconds of ``[-]h:mm:ss[.f]``."""

    def part(group: int) -> str:
        return f"regexp_extract({text}, {literal(CLOCK)}, {group})"

    hours, minutes, seconds = (f"try_cast({part(group)} AS BIGINT)" for group in (2, 3, 4))
    fraction = f"try_cast(rpad({part(5)}, 9, '0') AS BIGINT)"
    total = f"(({hours} * 60 + {minutes}) * 60 + {seconds}) * 1000000000L + {fraction}"
    signed = f"if({part(1)} = '-', -1L, 1L) * ({total})"
    fine = f"{text} RLIKE {literal(CLOCK)} AND {minutes} < 60 AND {seconds} < 60"
    return f"CAST(CASE WHEN {fine} THEN {signed} END AS DECIMAL(30, 0))"


def _ticks(nanoseconds: str, type: pa.DataType) -> str:
    """Nanoseconds as a number of the type's units; NULL where some would be lost."""
    size = NANOSECONDS[type.unit]
    # The least number of 64 bits has no code in a circuit.
    bound_ = f"CAST('{2 ** (type.bit_width - 1) * size}' AS DECIMAL(38, 0))"
    fits = f"exact % {size} = 0 AND exact < {bound_} AND exact > -{bound_}"
    ticks = f"CAST(exact / CAST({size} AS DECIMAL(10, 0)) AS DECIMAL(20, 0))"
    given = f"CAST({nanoseconds} AS DECIMAL(30, 0))"
    return with_binding("exact", given, f"CASE WHEN {fits} THEN {ticks} END")
