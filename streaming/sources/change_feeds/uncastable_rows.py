"""Uncastable rows: find the values of a column that no lossless cast can convert.

`circuits.types.safe_cast.cast_lossless` casts a whole column or raises an error. If it raises one,
`safe_cast` computes the mask of the values that cannot be cast, so that the caller can separate
them.

For most types the mask takes one or two comparisons of whole columns. For texts the distinct values
are checked; for lists, structs and maps the masks of their parts are combined. If the values other
than these still cannot be cast, the column is divided into halves, and so are the halves that
cannot be cast, down to single values: O(k log n) casts for k uncastable values of n.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits import SchemaError
from circuits.types.arrow_types import VARIANT, is_nested, part_types, value_type
from circuits.types.codecs.nested import list_parts
from circuits.types.codecs.variants import is_variant_text
from circuits.types.enum_type import EnumType
from circuits.types.functions.casting.text_parsing import MAX_VALUE_BYTES
from circuits.types.safe_cast import cast_lossless
from streaming.sources.change_feeds.physical_types import decode_physical, is_decimal_text

__all__ = ["safe_cast", "uncastable_rows"]

Mask = npt.NDArray[np.bool_]

_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# The significant digits of a decimal: no leading zeros, no trailing zeros of the fraction.
_DECIMAL_PATTERN: Final = r"^[+-]?0*(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*?)0*)?$"
_MAX_INT64: Final = 2**63 - 1


def safe_cast(column: pa.ChunkedArray, type: pa.DataType) -> tuple[pa.ChunkedArray, Mask]:
    """Cast a column, with NULL for values that do not fit; return also the mask of these values.

    Raises:
        SchemaError: The types do not allow a cast.

    >>> column, wrong = safe_cast(pa.chunked_array([[1, 300, None]]), pa.int8())
    >>> column.to_pylist(), wrong.tolist()
    ([1, None, None], [False, True, False])
    """
    size = len(column)
    if types.is_dictionary(column.type) and not types.is_dictionary(type):
        column = column.cast(column.type.value_type)
    wrong = np.zeros(size, np.bool_)
    if is_decimal_text(column.type, type) and type.scale >= 0:
        wrong = _uncastable_decimal_texts(column, type)
        column = _set_null(column, wrong)
    try:
        decoded = decode_physical(column, type)
    except pa.ArrowInvalid:
        wrong |= _outside_ticks(column, type)
        column = _set_null(column, wrong)
        decoded = decode_physical(column, type)
    cast, uncastable = _cast_with_mask(decoded, type)
    wrong |= uncastable
    reserved = _reserved_values(cast)
    if reserved.any():
        wrong |= reserved
        cast = _set_null(cast, reserved)
    return cast, wrong


def _cast_with_mask(column: pa.ChunkedArray, type: pa.DataType) -> tuple[pa.ChunkedArray, Mask]:
    """Cast a column as `safe_cast` does; the reserved values remain."""
    try:
        return cast_lossless(column, type), np.zeros(len(column), np.bool_)
    except SchemaError:
        cast_lossless(column.slice(0, 0), type)  # raises if the type itself cannot be cast
    if types.is_dictionary(column.type):
        column = column.cast(value_type(column.type))
    try:
        wrong = uncastable_rows(column, type)
        return _cast_others(column, wrong, type), wrong
    except (SchemaError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        wrong = _find_by_halves(column, type)
        return _cast_others(column, wrong, type), wrong


def _cast_others(column: pa.ChunkedArray, wrong: Mask, type: pa.DataType) -> pa.ChunkedArray:
    """Cast the values that are not in the mask; the others become NULL."""
    if not is_nested(column.type):
        return cast_lossless(_set_null(column, wrong), type)
    others = cast_lossless(column.filter(pa.array(~wrong)), type)
    return others.take(pa.array(np.cumsum(~wrong) - 1, mask=wrong))


def _find_by_halves(column: pa.ChunkedArray, type: pa.DataType) -> Mask:
    """Return the mask of the values whose cast fails; O(k log n) casts for k such values."""
    wrong = np.zeros(len(column), np.bool_)
    ranges = [(0, len(column))]
    while ranges:
        first, last = ranges.pop()
        try:
            cast_lossless(column.slice(first, last - first), type)
        except SchemaError:
            if last - first == 1:
                wrong[first] = True
                continue
            middle = (first + last) // 2
            ranges += [(first, middle), (middle, last)]
    return wrong


def uncastable_rows(column: pa.ChunkedArray, type: pa.DataType) -> Mask:
    """Return the mask of the values that a cast would change; the types allow a cast.

    The mask may lack values of types for which the check is the cast itself.
    """
    source, type = column.type, value_type(type)
    if is_nested(source):
        return _uncastable_nested(column, type)
    if type == VARIANT or isinstance(type, EnumType):
        return _uncastable_texts(column, type)
    if types.is_integer(source):
        return _to_mask(_uncastable_integers(column, type))
    if types.is_decimal(source):
        return _to_mask(_uncastable_decimals(column, type))
    if types.is_temporal(source):
        return _uncastable_times(column, type)
    if types.is_fixed_size_binary(type):
        lengths = pc.binary_length(column.cast(pa.large_binary()))
        return _to_mask(pc.not_equal(lengths, type.byte_width))
    return np.zeros(len(column), np.bool_)


def _uncastable_nested(column: pa.ChunkedArray, type: pa.DataType) -> Mask:
    """Return the mask of the lists, structs or maps with a part that cannot be cast."""
    wrong = np.zeros(len(column), np.bool_)
    first = 0
    for chunk in column.chunks:
        own = wrong[first : first + len(chunk)]
        first += len(chunk)
        if types.is_struct(type):
            names = [field.name for field in chunk.type]
            for name, part in zip(names, chunk.flatten(), strict=True):
                own |= _uncastable_parts(part, type.field(name).type)
            continue
        lengths, parts = list_parts(chunk)
        rows = np.repeat(np.arange(len(chunk)), lengths)
        for part, part_type in zip(parts, part_types(type), strict=True):
            own[rows[_uncastable_parts(part, part_type)]] = True
    return wrong


def _uncastable_parts(part: pa.Array, type: pa.DataType) -> Mask:
    return _cast_with_mask(pa.chunked_array([part]), type)[1]


def _uncastable_texts(column: pa.ChunkedArray, type: pa.DataType) -> Mask:
    """Return the mask of the texts that are no label of an ENUM, or no JSON."""
    texts = column.cast(pa.string())
    if isinstance(type, EnumType):
        is_label = pc.is_in(texts, value_set=pa.array([*type.labels, None], pa.string()))
        return ~_to_mask(is_label)
    encoded = texts.combine_chunks().dictionary_encode()
    is_wrong = [not is_variant_text(text) for text in encoded.dictionary.to_pylist()]
    return _to_mask(pa.array(is_wrong, pa.bool_()).take(encoded.indices))


def _uncastable_integers(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if types.is_decimal(type):
        maximum = 10 ** max(type.precision - type.scale, 0) - 1
        return _outside_range(column, maximum, maximum + 1)
    if types.is_floating(type):
        maximum = 2**24 if type == pa.float32() else 2**53
        return _outside_range(column, maximum, maximum + 1)
    if types.is_unsigned_integer(type):
        return _outside_range(column, 0, 2**type.bit_width)
    return _outside_range(column, 2 ** (type.bit_width - 1), 2 ** (type.bit_width - 1))


def _outside_ticks(column: pa.ChunkedArray, type: pa.DataType) -> Mask:
    """Return the mask of the decimals that `decode_physical` cannot convert to a type."""
    if type == pa.uint64():
        return _to_mask(_outside_range(column, 0, 2**64))
    limit = 2 ** (type.bit_width - 1)
    return _to_mask(_outside_range(column, limit, limit))


def _outside_range(column: pa.ChunkedArray, below: int, above: int) -> pa.ChunkedArray:
    """Return the mask of the numbers that are less than ``-below`` or at least ``above``."""
    if types.is_decimal(column.type):
        wide = column.cast(pa.decimal256(76, column.type.scale))
        low = pa.scalar(Decimal(-below), pa.decimal256(40, 0))
        high = pa.scalar(Decimal(above), pa.decimal256(40, 0))
        return pc.or_(pc.less(wide, low), pc.greater_equal(wide, high))
    bits, signed = column.type.bit_width, types.is_signed_integer(column.type)
    minimum, maximum = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    masks = [pa.chunked_array([np.zeros(len(column), np.bool_)])]
    if -below > minimum:
        masks.append(pc.less(column, pa.scalar(-below, column.type)))
    if above <= maximum:
        masks.append(pc.greater_equal(column, pa.scalar(above, column.type)))
    outside = masks[0]
    for mask in masks[1:]:
        outside = pc.or_(outside, mask)
    return outside


def _uncastable_decimals(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    scale = max(column.type.scale, type.scale)
    wide = column.cast(pa.decimal256(76, scale))
    truncated = wide.cast(pa.decimal256(76, type.scale), safe=False).cast(pa.decimal256(76, scale))
    wrong = pc.not_equal(wide, truncated)
    integer_digits = type.precision - type.scale
    if integer_digits + scale >= 76:  # no value has that many digits
        return wrong
    limit = pa.scalar(Decimal(10) ** integer_digits, pa.decimal256(76, scale))
    return pc.or_(wrong, pc.greater_equal(pc.abs(wide), limit))


def _uncastable_decimal_texts(column: pa.ChunkedArray, type: pa.DataType) -> Mask:
    """Return the mask of texts that are not a decimal of the type: invalid, too long or inexact."""
    long = pc.greater(pc.binary_length(column), MAX_VALUE_BYTES)
    short = pc.if_else(long, pa.scalar(None, column.type), column)
    parts = pc.extract_regex(short, pattern=_DECIMAL_PATTERN)
    whole_digits, fraction_digits = (
        pc.binary_length(pc.struct_field(parts, name)) for name in ("whole", "fraction")
    )
    fits = pc.and_(
        pc.less_equal(whole_digits, type.precision - type.scale),
        pc.less_equal(fraction_digits, type.scale),
    )
    fits = pc.and_(fits, pc.match_substring_regex(short, "[0-9]"))
    return _to_mask(column.is_valid()) & ~_to_mask(fits)


def _uncastable_times(column: pa.ChunkedArray, type: pa.DataType) -> Mask:
    """Return the mask of times that are not a whole number of the new unit, or that overflow it."""
    source, numbers = column.type, _time_units(column)
    has_days = types.is_date32(source) or types.is_date32(type)
    # How many units are in a day if one of the types counts days, else in a second.
    source_units = _units_per_day(source) if has_days else _UNITS_PER_SECOND[_unit(source)]
    target_units = _units_per_day(type) if has_days else _UNITS_PER_SECOND[_unit(type)]
    if target_units >= source_units:
        limit = _MAX_INT64 if type.bit_width == 64 else 2**31 - 1
        limit //= target_units // source_units
        wrong = (numbers > limit) | (numbers < -limit)
    else:
        factor = source_units // target_units
        wrong = numbers % factor != 0
        if type.bit_width == 32:
            wholes = numbers // factor
            wrong |= (wholes > 2**31 - 1) | (wholes < -(2**31) + 1)
    return np.asarray(wrong & ~_to_mask(column.is_null()), np.bool_)


def _unit(type: pa.DataType) -> str:
    return "ms" if types.is_date64(type) else str(type.unit)


def _units_per_day(type: pa.DataType) -> int:
    return 1 if types.is_date32(type) else 86_400 * _UNITS_PER_SECOND[_unit(type)]


def _time_units(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    narrow = column.type.bit_width == 32
    numbers = column.cast(pa.int32() if narrow else pa.int64()).cast(pa.int64())
    return np.asarray(pc.fill_null(numbers, 0).to_numpy())


def _reserved_values(column: pa.ChunkedArray) -> Mask:
    """Return the mask of the one value of a type that circuits reserve for NULL."""
    type = column.type
    if type == pa.uint64():
        return _to_mask(pc.equal(column, pa.scalar(2**64 - 1, type)))
    if type == pa.int64() or (types.is_temporal(type) and type.bit_width == 64):
        return _to_mask(pc.equal(column.cast(pa.int64()), pa.scalar(-(2**63), pa.int64())))
    return np.zeros(len(column), np.bool_)


def _to_mask(mask: pa.ChunkedArray | pa.Array) -> Mask:
    return np.asarray(
        pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        if isinstance(mask, pa.Array)
        else pc.fill_null(mask, False).to_numpy(),
        np.bool_,
    )


def _set_null(column: pa.ChunkedArray, wrong: Mask) -> pa.ChunkedArray:
    result = pc.if_else(pa.array(wrong), pa.scalar(None, column.type), column)
    return result if isinstance(result, pa.ChunkedArray) else pa.chunked_array([result])
