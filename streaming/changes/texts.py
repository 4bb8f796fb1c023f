"""Texts: the value of a cell of a JSON event as a column type, NULL where it is none.

A cell is what the event holds for one column: a text, exactly as it was sent for numbers of up to
38 digits (events are parsed into Spark's VARIANT, which reads such numbers as decimals; texts of
``from_json`` went through a double), and its kind in JSON, for a text may be a number in base64.

Nothing is bent to fit: digits that would be rounded away, a date with a time of day, an hour that
is none, 300 as int8, ``1E400`` as a float are no values of the type, and the event is refused by
its name. `Encoding` says what the producer leaves open: what numbers of time count, how decimals
and binaries are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyarrow import types
from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.changes.carriers import DIGITS, carrier, has_ticks
from streaming.changes.feed import let

__all__ = ["NANOSECONDS", "Cell", "Encoding", "value_of"]

NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY: Final = 86_400 * 10**9

NUMBER: Final = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DATE: Final = r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}$"
ZONE: Final = r"(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?| ?[A-Za-z]+/[A-Za-z_/+-]+)$"
MOMENT: Final = (
    r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d{1,6}0*)?)?"
    r" ?(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)?)?$"
)
TICKS_TEXT: Final = "decimal(20, 0)"
CLOCK: Final = r"^([+-]?)(\d{1,4}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?$"


@dataclass(frozen=True)
class Encoding:
    """What a producer of events leaves open.

    Args:
        decimals: How a number that is a JSON string is written: "text" or "base64" (of its unscaled
            bytes, as Kafka Connect does).
        binary: How bytes are written: "base64", "hex", "latin1" or "utf8".
        time_unit: What a number counts in a column of times: "s", "ms", "us" or "ns"; for all
            columns, or by name of the column. Dates are days then.
        zone: The zone of a time that names none, in a column of times with a zone.
    """

    decimals: str = "text"
    binary: str = "base64"
    time_unit: str | Mapping[str, str] | None = None
    zone: str = "UTC"
    epoch_days: bool = field(default=False, kw_only=True)

    def unit(self, column: str) -> str | None:
        """What a number counts in this column; None when that is not known."""
        if self.time_unit is None or isinstance(self.time_unit, str):
            return self.time_unit
        return self.time_unit.get(column)


@dataclass(frozen=True)
class Cell:
    """What an event holds for a column.

    Args:
        text: The text, NULL for null.
        kind: The type in JSON as ``schema_of_variant`` gives it.
        bytes: Whether a string holds bytes in base64; NULL when the event does not say.
        scale: Digits after the point of such a number; NULL when the event does not say.
        unit: Nanoseconds that one counts in a number of time; NULL when that is not known.
    """

    text: Column
    kind: Column
    bytes: Column
    scale: Column
    unit: Column


def value_of(cell: Cell, type: pa.DataType, encoding: Encoding) -> Column:
    """Return the value of a cell as the carrier of ``type``; NULL where it has none."""
    while types.is_dictionary(type):
        type = type.value_type
    spark = carrier(type)
    if types.is_null(type):
        return F.lit(None).cast(spark)
    if types.is_boolean(type):
        return F.when(cell.text.isin("true", "false", "0", "1"), cell.text.try_cast(spark))
    if types.is_integer(type):
        return _number(cell, 0, encoding, lambda text: _integer(text, type))
    if types.is_decimal(type):
        scale = max(type.scale, 0)
        return _number(cell, scale, encoding, lambda text: _decimal(text, type))
    if types.is_floating(type):
        return _floating(cell, type)
    if types.is_date(type):
        days = F.date_from_unix_date(cell.text.try_cast("int"))
        day = F.when(cell.text.rlike(DATE), cell.text.try_cast("date"))
        if not encoding.epoch_days:
            return day
        return F.when(cell.kind == "BIGINT", days).otherwise(day)
    if types.is_timestamp(type) or has_ticks(type):
        return _time(cell, type, encoding)
    if types.is_binary(type) or types.is_large_binary(type) or carrier(type).typeName() == "binary":
        return _binary(cell, encoding)
    return cell.text


def _number(cell: Cell, scale: int, encoding: Encoding, read: Callable[[Column], Column]) -> Column:
    """Read the text of a number, also of one that is its unscaled bytes."""
    binary = F.coalesce(cell.bytes, F.lit(encoding.decimals == "base64"))
    unscaled = _unscaled(cell.text, F.coalesce(cell.scale, F.lit(scale)))
    text = F.when((cell.kind == "STRING") & binary, unscaled).otherwise(cell.text)
    return let(text, read)


def _unscaled(text: Column, scale: Column) -> Column:
    """The decimal text of a number given as base64 of its two's complement and its scale."""
    return let(
        F.hex(F.try_to_binary(text, F.lit("base64"))),
        lambda given: F.when(
            (F.length(given) > 0) & (F.length(given) <= 32),
            let(
                F.substring(given, 1, 1).rlike("[89A-F]"),
                lambda negative: F.concat(
                    F.when(negative, "-").otherwise(""),
                    let(_magnitude(given, negative), lambda digits: _pointed(digits, scale)),
                ),
            ),
        ),
    )


def _magnitude(given: Column, negative: Column) -> Column:
    """The digits of the absolute value of a two's complement in hexadecimal."""
    filled = F.repeat(F.when(negative, "F").otherwise("0"), F.lit(32))
    wide = F.right(F.concat(filled, given), F.lit(32))
    # Of a negative number the complement, which is one less than its opposite.
    complement = F.translate(wide, "0123456789ABCDEF", "FEDCBA9876543210")

    def whole(hexadecimal: Column) -> Column:
        high, low = (
            F.conv(half, 16, 10).try_cast(TICKS_TEXT).cast("decimal(38, 0)")
            for half in (F.left(hexadecimal, F.lit(16)), F.right(hexadecimal, F.lit(16)))
        )
        shifted = F.try_multiply(high, F.lit(str(2**64)).cast(TICKS_TEXT))
        one = F.when(negative, F.lit(1)).otherwise(F.lit(0)).cast("decimal(38, 0)")
        return F.try_add(F.try_add(shifted, low), one).cast("string")

    return let(F.when(negative, complement).otherwise(wide), whole)


def _pointed(digits: Column, scale: Column) -> Column:
    """Digits with a point before the last ``scale`` of them."""
    padded = F.when(F.length(digits) > scale, digits).otherwise(
        F.lpad(digits, scale + 1, F.lit("0"))
    )
    return let(
        padded,
        lambda all: F.concat(
            F.left(all, F.length(all) - scale),
            F.when(scale > 0, F.concat(F.lit("."), F.right(all, scale))).otherwise(""),
        ),
    )


def _integer(text: Column, type: pa.DataType) -> Column:
    value = text.try_cast(carrier(type))
    if types.is_unsigned_integer(type):
        # The greatest uint64 has no code in a circuit, like the least int64.
        most = 2**type.bit_width - (2 if type.bit_width == 64 else 1)
        limit = F.lit(str(most)).cast(TICKS_TEXT)
        return let(value, lambda value: F.when((value >= 0) & (value <= limit), value))
    if type.bit_width == 64:
        least = F.lit(str(-(2**63))).cast("long")
        return let(value, lambda value: F.when(value > least, value))
    return value


def _decimal(text: Column, type: pa.DataType) -> Column:
    significant = F.length(F.regexp_extract(text, r"^[+-]?\d*\.?(\d*?)0*(?:[eE]|$)", 1))
    exponent = F.regexp_extract(text, r"[eE]([+-]?\d+)$", 1).try_cast("int")
    exact = significant - F.coalesce(exponent, F.lit(0)) <= max(type.scale, 0)
    fine = text.rlike(NUMBER) & exact
    if type.precision - min(type.scale, 0) > DIGITS:
        whole = F.length(F.regexp_extract(text, r"^[+-]?0*(\d*)", 1))
        narrow = (whole <= type.precision - type.scale) & exponent.isNull()
        return F.when(fine & narrow, text)
    value = text.try_cast(carrier(type))
    if type.scale < 0:
        fine = fine & (value % F.lit(str(10**-type.scale)).cast("decimal(38, 0)") == 0)
    return F.when(fine, value)


def _floating(cell: Cell, type: pa.DataType) -> Column:
    value = cell.text.try_cast(carrier(type))
    infinite = value.isin(float("inf"), float("-inf"))
    word = (cell.kind == "STRING") & cell.text.rlike(r"(?i)^[+-]?(inf|infinity|nan)$")
    return F.when(word | (cell.text.rlike(NUMBER) & ~infinite), value)


def _binary(cell: Cell, encoding: Encoding) -> Column:
    text = F.when(cell.kind == "STRING", cell.text)
    if encoding.binary == "latin1":
        fits = text.rlike(r"^[\x{00}-\x{FF}]*$")
        return F.when(fits, F.encode(F.when(fits, text), "ISO-8859-1"))
    formats = {"base64": "base64", "hex": "hex", "utf8": "utf-8"}
    return F.try_to_binary(text, F.lit(formats[encoding.binary]))


def _time(cell: Cell, type: pa.DataType, encoding: Encoding) -> Column:
    """A moment, a time of day or a duration, from a number, a date and time, or a clock."""
    numeric = (cell.kind == "BIGINT") & cell.unit.isNotNull()
    counted = cell.text.try_cast("decimal(19, 0)") * cell.unit.cast("decimal(10, 0)")
    if types.is_timestamp(type) and type.unit == "ns":
        zone = encoding.zone if type.tz is not None else None
        micros = F.unix_micros(_moment(cell.text, zone)).cast("decimal(19, 0)")
        return _ticks(F.when(numeric, counted).otherwise(micros * 1000), type)
    if types.is_timestamp(type):
        micros = _ticks(counted, pa.timestamp("us")).cast("long")
        if type.tz is not None:
            written = _moment(cell.text, encoding.zone)
            return F.when(numeric, F.timestamp_micros(micros)).otherwise(written)
        epoch = F.lit("1970-01-01").cast("timestamp_ntz")
        fine = cell.text.rlike(MOMENT) & ~_has_zone(cell.text)
        written = F.when(fine, cell.text.try_cast("timestamp_ntz"))
        return F.when(numeric, F.timestamp_add("MICROSECOND", micros, epoch)).otherwise(written)
    count = F.when(numeric, counted).otherwise(_clock(cell.text))
    if types.is_time(type):
        return let(count, lambda n: _ticks(F.when((n >= 0) & (n < DAY), n), type))
    return _ticks(count, type)


def _has_zone(text: Column) -> Column:
    return (F.length(text) > 10) & text.rlike(ZONE)


def _moment(text: Column, zone: str | None) -> Column:
    """A written date and time; without a ``zone`` for those that have none, a local time."""
    clock = F.when(F.length(text) > 10, text).otherwise(F.concat(text, F.lit(" 00:00:00")))
    complete = F.concat(clock, F.lit(f" {zone or 'UTC'}"))
    fine = text.rlike(MOMENT)
    if zone is None:
        return F.when(fine & ~_has_zone(text), complete.try_cast("timestamp"))
    zoned = F.when(_has_zone(text), text).otherwise(complete)
    return F.when(fine, zoned.try_cast("timestamp"))


def _clock(text: Column) -> Column:
    """Nanoseconds of ``[-]h:mm:ss[.f]``."""

    def part(group: int) -> Column:
        return F.regexp_extract(text, CLOCK, group)

    hours, minutes, seconds = (part(group).try_cast("long") for group in (2, 3, 4))
    fraction = F.rpad(part(5), 9, "0").try_cast("long")
    total = (hours * 3600 + minutes * 60 + seconds) * F.lit(10**9) + fraction
    signed = F.when(part(1) == "-", -total).otherwise(total)
    fine = text.rlike(CLOCK) & (minutes < 60) & (seconds < 60)
    return F.when(fine, signed).cast("decimal(30, 0)")


def _ticks(nanoseconds: Column, type: pa.DataType) -> Column:
    """Nanoseconds as a number of the type's units; NULL where some would be lost."""
    size = NANOSECONDS[type.unit]
    unit = F.lit(size).cast("decimal(10, 0)")
    # The least number of 64 bits has no code in a circuit.
    bound = F.lit(str(2 ** (type.bit_width - 1) * size)).cast("decimal(38, 0)")
    return let(
        nanoseconds.cast("decimal(30, 0)"),
        lambda exact: F.when(
            (exact % unit == 0) & (exact < bound) & (exact > -bound),
            F.when((exact < bound) & (exact > -bound), exact / unit).cast(TICKS_TEXT),
        ),
    )
