"""Physical types: the Spark type that transports a column of an Arrow type to the circuit.

The inputs of a circuit are Arrow schemas, and a feed decodes to a DataFrame. Most types exist in
both. A column of any other type is transported as a Spark type that holds every value, and
`decode_physical` converts it back on the Arrow side, where `circuits.types.safe_cast` checks
ranges:

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

Alternatives considered: Spark's TIME and interval types. TIME is behind a setting in Spark 4.3, and
intervals print other units than their input has. A float16 is refused, because the transport would
round it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types
from pyspark.sql import types as spark

from circuits.types.arrow_types import Family, family_of, type_row, value_type
from circuits.types.functions.casting.text_parsing import read_text
from streaming.errors import FeedError

__all__ = [
    "MAX_DECIMAL_DIGITS",
    "TICKS_TYPE",
    "decode_physical",
    "has_ticks",
    "is_decimal_text",
    "physical_type",
]

MAX_DECIMAL_DIGITS: Final = 38  # the precision of Spark's widest decimal
#: The Spark type of a uint64, and of ticks: a time as a number of units of its Arrow type.
TICKS_TYPE: Final = spark.DecimalType(20, 0)

# The Spark types by Arrow's type ids. Any other type has the Spark type of its ``lake`` type, the
# type in Delta Lake that holds all of its values (`circuits.types.arrow_types`).
_SPARK_TYPES: Final[dict[int, spark.DataType]] = {
    pa.int8().id: spark.ByteType(),
    pa.int16().id: spark.ShortType(),
    pa.int32().id: spark.IntegerType(),
    pa.int64().id: spark.LongType(),
    pa.uint64().id: TICKS_TYPE,
    pa.float32().id: spark.FloatType(),
    pa.float64().id: spark.DoubleType(),
    pa.bool_().id: spark.BooleanType(),
    pa.string().id: spark.StringType(),
    pa.binary().id: spark.BinaryType(),
    pa.date32().id: spark.DateType(),
    pa.null().id: spark.NullType(),
}


def physical_type(type: pa.DataType) -> spark.DataType:
    """Return the Spark type that transports values of an Arrow type.

    Raises:
        FeedError: No Spark type can transport the values.

    >>> physical_type(pa.uint32()), physical_type(pa.timestamp("ms", "UTC"))
    (LongType(), TimestampType())
    >>> physical_type(pa.time64("us"))
    DecimalType(20,0)
    """
    type = value_type(type)
    family = family_of(type)
    if has_ticks(type):
        return TICKS_TYPE
    if family is Family.TIMESTAMP:
        return spark.TimestampNTZType() if type.tz is None else spark.TimestampType()
    if family is Family.DECIMAL:
        digits = type.precision - min(type.scale, 0)
        if digits > MAX_DECIMAL_DIGITS:
            return spark.StringType()
        return spark.DecimalType(digits, max(type.scale, 0))
    spark_type = _SPARK_TYPES.get(type.id) or _SPARK_TYPES.get(type_row(type).lake_type(type).id)
    if spark_type is not None and type != pa.float16() and family is not Family.INTERVAL:
        return spark_type
    raise FeedError(
        f"a change feed cannot carry values of type {type} through Spark: declare another type of "
        "the input (float32 for float16, a text for a nested type or an interval), or cast in the "
        "view"
    )


def has_ticks(type: pa.DataType) -> bool:
    """Return whether values of the type are transported as ticks (`TICKS_TYPE`)."""
    family = family_of(type)
    return family in (Family.TIME, Family.DURATION) or (
        family is Family.TIMESTAMP and type.unit == "ns"
    )


def is_decimal_text(transported: pa.DataType, type: pa.DataType) -> bool:
    """Return whether a column of strings has decimals of ``type``, which is too wide for Spark.

    Args:
        transported: The Arrow type of the column that Spark has transported.
        type: The type of the input's column.
    """
    wide = types.is_decimal(type) and physical_type(type) == spark.StringType()
    return bool(wide and (types.is_string(transported) or types.is_large_string(transported)))


def decode_physical(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Convert a transported column to its own type; other columns are returned unchanged.

    Raises:
        ArrowInvalid: A value is outside 64 bits.

    >>> from decimal import Decimal
    >>> column = pa.chunked_array([pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0))])
    >>> decode_physical(column, pa.uint64()).to_pylist()
    [18446744073709551615]
    """
    transported = column.type
    if types.is_decimal(transported) and (transported.precision, transported.scale) == (20, 0):
        if type == pa.uint64():
            return column.cast(type)
        if has_ticks(type):
            numbers = column.cast(pa.int64())
            if type.bit_width == 32:
                numbers = numbers.cast(pa.int32())
            return numbers.cast(type)
    if is_decimal_text(transported, type):
        if type.scale < 0:
            return column.cast(type)
        chunks = [read_text(chunk, type) for chunk in column.chunks]
        return pa.chunked_array(chunks, type)
    return column
