"""Convert Arrow types to the types of files and Spark, without changing a value.

::

    Arrow                                    Delta Lake and Spark            Parquet
    int8..int64, bool, float32, float64      the same                        the same
    uint8, uint16, uint32                    int16, int32, int64             the same
    uint64                                   decimal(20, 0)                  the same
    float16                                  float32                         the same
    decimals up to 38 digits                 decimal(p, s)                   the same
    wider decimals                           decimal(38, s), if they fit     up to 76 digits
    decimals with a negative scale           decimal(p - s, 0)               the same
    date64                                   date                            the same
    timestamp without and with zone          microseconds; the zone is UTC   seconds become ms
    time                                     text, 12:34:56.000001           the same
    duration                                 int64, the number of its units  the same
    strings, binaries, in all layouts        string, binary                  the same
    dictionary of T                          as T                            T
    null                                     string                          the same

A cast that would change a value (nanoseconds, 39 digits, a time out of the range of the new type)
raises an error with the column's name, before anything is written.

Cost: one pass over the columns whose type changes.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types

from circuits.types.arrow_types import type_row, value_type
from circuits.types.codecs.arrow_buffers import expand_encoding
from circuits.types.functions.casting.interval_texts import cast_intervals
from streaming.errors import TargetError
from streaming.state.parquet import stored_type

__all__ = ["convert_columns", "lake_type", "parquet_type", "plain_type"]


def convert_columns(
    table: pa.Table, type_of: Callable[[pa.DataType], pa.DataType], *, subject: str
) -> pa.Table:
    """Cast the columns of a table to other types.

    Args:
        table: Any table.
        type_of: Returns the new type of a type.
        subject: The name of the table in error messages.

    Raises:
        TargetError: The new type of a column does not contain one of its values.

    >>> convert_columns(pa.table({"a": pa.array([1], pa.uint8())}), lake_type, subject="x").schema
    a: int16
    >>> nanoseconds = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    >>> convert_columns(nanoseconds, lake_type, subject="table x")
    Traceback (most recent call last):
    streaming.errors.TargetError: table x: column 't' of type timestamp[ns] holds values that \
timestamp[us] does not: Casting from timestamp[ns] to timestamp[us] would lose data: 1; cast it \
in the view
    """
    for i, field in enumerate(table.schema):
        type_ = type_of(field.type)
        if type_ == field.type:
            continue
        try:
            chunks = [
                cast_intervals(expand_encoding(chunk), type_) for chunk in table.column(i).chunks
            ]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TargetError(
                f"{subject}: column {field.name!r} of type {field.type} holds values that {type_} "
                f"does not: {error}; cast it in the view"
            ) from error
        column = pa.chunked_array(chunks, type_)
        table = table.set_column(i, pa.field(field.name, type_, field.nullable), column)
    return table


def lake_type(type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a Delta Lake or Spark column that contains all values of a type."""
    return type_row(type_).lake_type(type_)


def parquet_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of a Parquet column that contains all values of a type."""
    type_ = plain_type(type_)
    if types.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms", type_.tz)
    return stored_type(type_)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type without dictionaries and views; Arrow cannot take or filter rows of views."""
    type_ = value_type(type_)
    if type_ == pa.string_view():
        return pa.string()
    return pa.binary() if type_ == pa.binary_view() else type_
