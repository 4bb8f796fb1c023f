"""Casts that cannot change a value: how a table's column becomes one of the declared type.

Arrow's safe casts also read numbers from texts, round float64 to float32, and take a local time for
one in UTC. Here a type is cast within its family only, or to a wider one, and the values decide
where the type cannot:

=====================  =======================================================================
from                   to
=====================  =======================================================================
integer                any integer, decimal, float32 or float64, if all values fit
float                  a float that is at least as wide
decimal                any decimal, if all values fit
string, binary         the same in another layout
date, time, duration   another unit, if all values fit; a date also a timestamp without zone
timestamp              another unit, if all values fit; another zone, but not with for without
dictionary of T        what T goes to
null                   anything
=====================  =======================================================================
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.errors import SchemaError
from circuits.types.arrow_types import NUMBERS, Family, family_of, value_type
from circuits.types.codecs.arrow_buffers import plain

__all__ = ["lossless"]

# The families that a family is cast to; the width, unit and zone can still exclude a type.
_TARGETS: Final[dict[Family, frozenset[Family]]] = {
    Family.INTEGER: NUMBERS,
    Family.DATE: frozenset({Family.DATE, Family.TIMESTAMP}),
    **{
        family: frozenset({family})
        for family in (
            Family.FLOAT,
            Family.DECIMAL,
            Family.STRING,
            Family.BINARY,
            Family.TIME,
            Family.TIMESTAMP,
            Family.DURATION,
        )
    },
}


def lossless(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Return the column as ``type``.

    Raises:
        SchemaError: The types do not go together, or a value does not fit.

    Complexity:
        O(n); nothing when the types are equal.

    >>> lossless(pa.chunked_array([[1, 2]]), pa.int8()).type
    DataType(int8)
    >>> lossless(pa.chunked_array([["1"]]), pa.int8())
    Traceback (most recent call last):
    circuits.errors.SchemaError: the type is string, declared is int8, and a cast may change \
values: cast it yourself, or declare string
    """
    given = column.type
    if given == type:
        return column
    if not _is_allowed(value_type(given), value_type(type)):
        raise SchemaError(
            f"the type is {given}, declared is {type}, and a cast may change values: "
            f"cast it yourself, or declare {given}"
        )
    try:
        return _cast(column, type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as error:
        raise SchemaError(
            f"the type is {given}, declared is {type}, and not every value fits: {error}; "
            f"declare {given}, or filter these rows out"
        ) from error


def _is_allowed(given: pa.DataType, type: pa.DataType) -> bool:
    source, target = family_of(given), family_of(type)
    if given == type or source is Family.NULL:
        return True
    if target not in _TARGETS.get(source, ()):
        return False
    if target is Family.FLOAT:
        # Arrow does not check integers that become a float16.
        return bool(
            type != pa.float16() if source is Family.INTEGER else given.bit_width <= type.bit_width
        )
    if target is Family.TIMESTAMP:
        zone = given.tz if source is Family.TIMESTAMP else None
        return (zone is None) == (type.tz is None)
    return True


def _cast(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Arrow's safe cast, by way of types that it has casts for."""
    target = value_type(type)
    if types.is_dictionary(column.type):
        pieces = [plain(chunk) for chunk in column.chunks]
        column = pa.chunked_array(pieces or [pa.array([], value_type(column.type))])
    if types.is_integer(column.type) and types.is_decimal(target):
        # Arrow asks for room for all values of the type; whether these fit is decided next.
        column = column.cast(pa.decimal256(76, max(target.scale, 0)))
    if types.is_fixed_size_binary(target) and target != column.type:
        column = _of_width(column, target)
    column = column.cast(target)
    return column if target == type else pc.dictionary_encode(column).cast(type)


def _of_width(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    column = column.cast(pa.large_binary())
    lengths = pc.binary_length(column)
    if pc.any(pc.not_equal(lengths, type.byte_width)).as_py():
        raise pa.ArrowInvalid(f"a value has from {pc.min(lengths)} to {pc.max(lengths)} bytes")
    return column
