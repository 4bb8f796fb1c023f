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

__all__ = ["contains_type", "convert_columns", "lake_type", "parquet_type", "plain_type"]


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


def contains_type(type_: pa.DataType, other: pa.DataType) -> bool:
    """Return True if a type of a table contains all values of a type of `lake_type`.

    Every type fits a text. The precision of a decimal includes its scale.
    """
    if types.is_nested(type_) or types.is_nested(other):
        return _has_equal_parts(type_, other)
    if type_ == other or _is_text(type_):
        return True
    if _is_bytes(type_) and _is_bytes(other):
        return True
    if types.is_timestamp(type_) and types.is_timestamp(other):
        # Both have microseconds, and a zone is UTC. A local time is not an instant.
        return (type_.tz is None) == (other.tz is None)
    if types.is_floating(type_):
        narrower = (pa.int8(), pa.int16(), pa.int32(), pa.float32())
        return type_ == pa.float64() and other in narrower
    digits, other_digits = _held_digits(type_), _digits_of(other)
    if digits is None or other_digits is None:
        return False
    return all(mine >= others for mine, others in zip(digits, other_digits, strict=True))


def _has_equal_parts(type_: pa.DataType, other: pa.DataType) -> bool:
    """Return True if two types are nested in the same way, and each part contains the other's."""
    if type_.num_fields != other.num_fields or types.is_struct(type_) != types.is_struct(other):
        return False
    if types.is_map(type_) != types.is_map(other):
        return False
    if types.is_map(type_):
        return contains_type(type_.key_type, other.key_type) and contains_type(
            type_.item_type, other.item_type
        )
    parts = [(type_.field(i), other.field(i)) for i in range(type_.num_fields)]
    return bool(parts) and all(
        contains_type(part.type, other_part.type)
        and (not types.is_struct(type_) or part.name == other_part.name)
        for part, other_part in parts
    )


def _held_digits(type_: pa.DataType) -> tuple[int, int] | None:
    """Return as `_digits_of`, with the number of digits of which a column holds every number."""
    digits = _digits_of(type_)
    if digits is None or not types.is_integer(type_):
        return digits
    return digits[0] - 1, 0


def _digits_of(type_: pa.DataType) -> tuple[int, int] | None:
    """Return how many digits a number has before and after the decimal point; None if no number."""
    if types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    if types.is_integer(type_):
        return {8: 3, 16: 5, 32: 10, 64: 19}[type_.bit_width], 0
    return None


def _is_text(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(type_: pa.DataType) -> bool:
    return types.is_fixed_size_binary(type_) or type_ in (
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    )
