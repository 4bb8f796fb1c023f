"""Safe casts: cast a column of a table to the declared type, without changing any value.

Arrow's own safe casts also parse texts as numbers, round float64 to float32, and treat a local time
as one in UTC. Here a type is cast only within its family or to a wider family. Where the types
alone do not show that all values fit, the values are checked:

=====================  =======================================================================
from                   to
=====================  =======================================================================
integer                any integer, decimal, float32 or float64, if all values fit
float                  a float that is at least as wide
decimal                any decimal, if all values fit
string, binary         the same in another layout; a string also VARIANT, if it is JSON,
                       and an ENUM, if it is one of the labels
date, time, duration   another unit, if all values fit; a date also a timestamp without zone
timestamp              another unit, if all values fit; another zone, if both types have one
dictionary of T        the types to which T is cast
list, struct, map      the same kind, if the parts are cast; a struct also gets more fields, as NULL
null                   anything
=====================  =======================================================================
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.errors import SchemaError
from circuits.types.arrow_types import (
    NUMBERS,
    VARIANT,
    Family,
    family_of,
    is_nested,
    part_types,
    type_name,
    value_type,
)
from circuits.types.codecs.arrow_buffers import expand_encoding
from circuits.types.codecs.enums import check_labels
from circuits.types.codecs.nested import list_array, list_parts, struct_array
from circuits.types.codecs.variants import canonical_texts
from circuits.types.enum_type import EnumType

__all__ = ["cast_lossless"]

# The families to which each family is cast; the width, unit and zone can still exclude a type.
_TARGETS: Final[dict[Family, frozenset[Family]]] = {
    Family.INTEGER: NUMBERS,
    Family.DATE: frozenset({Family.DATE, Family.TIMESTAMP}),
    Family.STRING: frozenset({Family.STRING, Family.VARIANT, Family.ENUM}),
    **{
        family: frozenset({family})
        for family in (
            Family.FLOAT,
            Family.DECIMAL,
            Family.BINARY,
            Family.TIME,
            Family.TIMESTAMP,
            Family.DURATION,
            Family.INTERVAL,
        )
    },
}


def cast_lossless(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Return the column as ``type``.

    Raises:
        SchemaError: The cast is not in the table above, or a value does not fit.

    Complexity:
        O(n); nothing when the types are equal.

    >>> cast_lossless(pa.chunked_array([[1, 2]]), pa.int8()).type
    DataType(int8)
    >>> cast_lossless(pa.chunked_array([["1"]]), pa.int8())
    Traceback (most recent call last):
    circuits.errors.SchemaError: the type is string, declared is int8, and a cast may change \
values: cast it yourself, or declare string
    """
    source = column.type
    if source == type:
        return column
    if not _is_allowed(value_type(source), value_type(type)):
        raise SchemaError(
            f"the type is {source}, declared is {type_name(type)}, and a cast may change values: "
            f"cast it yourself, or declare {source}"
        )
    try:
        return _cast(column, type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as error:
        raise SchemaError(
            f"the type is {source}, declared is {type_name(type)}, and not every value fits: "
            f"{error}; declare {source}, or filter these rows out"
        ) from error


def _is_allowed(source: pa.DataType, target: pa.DataType) -> bool:
    source_family, target_family = family_of(source), family_of(target)
    if source == target or source_family is Family.NULL:
        return True
    if source_family is Family.NESTED and target_family is Family.NESTED:
        return _is_same_kind(source, target)
    if target_family not in _TARGETS.get(source_family, ()):
        return False
    if target_family is Family.FLOAT:
        if source_family is Family.INTEGER:
            # Arrow checks the integers in a cast to float32 or float64, but not to float16.
            return bool(target != pa.float16())
        return bool(source.bit_width <= target.bit_width)
    if target_family is Family.TIMESTAMP:
        source_zone = source.tz if source_family is Family.TIMESTAMP else None  # a date has none
        return (source_zone is None) == (target.tz is None)
    return True


def _cast(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Apply Arrow's safe cast, in several steps if Arrow has no direct cast."""
    target = value_type(type)
    if is_nested(target) and is_nested(column.type):
        return pa.chunked_array([_cast_parts(chunk, target) for chunk in column.chunks], target)
    if types.is_dictionary(column.type):
        pieces = [expand_encoding(chunk) for chunk in column.chunks]
        column = pa.chunked_array(pieces or [pa.array([], value_type(column.type))])
    if types.is_integer(column.type) and types.is_decimal(target):
        # Arrow casts an integer type only to a decimal that fits all its values. The last cast
        # checks the values themselves.
        column = column.cast(pa.decimal256(76, max(target.scale, 0)))
    if target == VARIANT and column.type != VARIANT:
        texts = [canonical_texts(chunk.cast(pa.string())) for chunk in column.chunks]
        column = pa.chunked_array(texts, pa.string())
    if isinstance(target, EnumType) and column.type != target:
        checked = [check_labels(chunk.cast(pa.string()), target) for chunk in column.chunks]
        column = pa.chunked_array(checked, pa.string())
    if types.is_fixed_size_binary(target) and target != column.type:
        column = _check_width(column, target)
    column = column.cast(target)
    return column if target == type else pc.dictionary_encode(column).cast(type)


def _is_same_kind(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if both are structs, maps or lists, and the parts of one can be cast."""
    if types.is_struct(source) or types.is_struct(target):
        if not (types.is_struct(source) and types.is_struct(target)):
            return False
        return all(
            target.get_field_index(field.name) >= 0
            and _is_allowed(value_type(field.type), value_type(target.field(field.name).type))
            for field in source
        )
    if types.is_map(source) != types.is_map(target):
        return False
    pairs = zip(part_types(source), part_types(target), strict=True)
    return all(_is_allowed(value_type(part), value_type(other)) for part, other in pairs)


def _cast_parts(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast the parts of nested values; fields of a struct are found by name."""
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    if types.is_struct(target):
        columns = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        missing = pa.nulls(len(array))
        parts = [_cast_part(columns.get(field.name, missing), field.type) for field in target]
        return struct_array(target, parts, valid, len(array))
    lengths, parts_of_source = list_parts(array)
    pairs = zip(parts_of_source, part_types(target), strict=True)
    return list_array(target, lengths, [_cast_part(*pair) for pair in pairs], valid)


def _cast_part(array: pa.Array, type: pa.DataType) -> pa.Array:
    chunks = cast_lossless(pa.chunked_array([array]), type).chunks
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, type)  # of empty lists only


def _check_width(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    column = column.cast(pa.large_binary())
    lengths = pc.binary_length(column)
    if pc.any(pc.not_equal(lengths, type.byte_width)).as_py():
        raise pa.ArrowInvalid(f"a value has from {pc.min(lengths)} to {pc.max(lengths)} bytes")
    return column
