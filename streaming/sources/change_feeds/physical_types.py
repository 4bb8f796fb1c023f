"""Carriers: the Spark type in which a column of an Arrow type travels to the circuit.

Inputs of circuits are Arrow schemas; what a feed decodes is a DataFrame. Most types are the same in
both worlds. The rest is carried by a Spark type that holds every value, and put down on the Arrow
side (`decoded`), where `circuits.types.safe_cast` checks ranges:

===============================  ===========================================
uint8, uint16, uint32            the next wider signed integer
uint64                           decimal(20, 0)
time, duration, timestamp("ns")  decimal(20, 0): the number of units
timestamp in s, ms               Spark's timestamp (us), with or without zone
decimal of more than 38 digits   string
decimal of negative scale        decimal(precision - scale, 0)
string, binary in any layout     string, binary
dictionary of T                  as T
===============================  ===========================================

Way not taken: Spark's TIME and interval types; the first is behind a setting in Spark 4.3, the
second prints other units than it was given. A float16 would be rounded on the way, so is refused.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types
from pyspark.sql import types as spark

from circuits.types.functions.text_parsing import read_text
from streaming.errors import FeedError

__all__ = ["DIGITS", "TICKS", "decoded", "has_ticks", "is_decimal_text", "physical_type"]

DIGITS: Final = 38  # of Spark's widest decimal
TICKS: Final = spark.DecimalType(20, 0)

_SAME: Final[dict[pa.DataType, spark.DataType]] = {
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): TICKS,
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.bool_(): spark.BooleanType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.string_view(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.binary_view(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.date64(): spark.DateType(),
    pa.null(): spark.NullType(),
}


def physical_type(type: pa.DataType) -> spark.DataType:
    """Return the Spark type that carries values of an Arrow type.

    Raises:
        FeedError: There is none.

    >>> physical_type(pa.uint32()), physical_type(pa.timestamp("ms", "UTC"))
    (LongType(), TimestampType())
    >>> physical_type(pa.time64("us"))
    DecimalType(20,0)
    """
    if types.is_dictionary(type):
        return physical_type(type.value_type)
    if type in _SAME:
        return _SAME[type]
    if has_ticks(type):
        return TICKS
    if types.is_timestamp(type):
        return spark.TimestampNTZType() if type.tz is None else spark.TimestampType()
    if types.is_fixed_size_binary(type):
        return spark.BinaryType()
    if types.is_decimal(type):
        digits = type.precision - min(type.scale, 0)
        if digits > DIGITS:
            return spark.StringType()
        return spark.DecimalType(digits, max(type.scale, 0))
    raise FeedError(
        f"a change feed cannot carry values of type {type} through Spark: declare another type "
        "of the input (float32 for float16, a text for what is nested), or cast in the view"
    )


def has_ticks(type: pa.DataType) -> bool:
    """Whether values of the type travel as a number of units of time."""
    return bool(
        types.is_time(type)
        or types.is_duration(type)
        or (types.is_timestamp(type) and type.unit == "ns")
    )


def is_decimal_text(given: pa.DataType, type: pa.DataType) -> bool:
    """Return whether values of the type are sent as strings, which no Spark decimal holds."""
    wide = types.is_decimal(type) and physical_type(type) == spark.StringType()
    return bool(wide and (types.is_string(given) or types.is_large_string(given)))


def decoded(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Put a carried column down as its own type; other columns are returned as they are.

    Raises:
        ArrowInvalid: A value is outside 64 bits.

    >>> from decimal import Decimal
    >>> carried = pa.chunked_array([pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0))])
    >>> decoded(carried, pa.uint64()).to_pylist()
    [18446744073709551615]
    """
    given = column.type
    if types.is_decimal(given) and (given.precision, given.scale) == (20, 0):
        if type == pa.uint64():
            return column.cast(type)
        if has_ticks(type):
            numbers = column.cast(pa.int64())
            if type.bit_width == 32:
                numbers = numbers.cast(pa.int32())
            return numbers.cast(type)
    if is_decimal_text(given, type):
        if type.scale < 0:
            return column.cast(type)
        chunks = [read_text(chunk, type) for chunk in column.chunks]
        return pa.chunked_array(chunks, type)
    return column
