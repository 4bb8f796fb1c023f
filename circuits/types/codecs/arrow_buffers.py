"""Arrow buffers: convert Arrow arrays to numpy arrays and back, without a copy where possible.

Slices and arrays without a buffer are supported. Where the Arrow value is NULL, the numpy value is
undefined: Arrow leaves any bytes there. The conversion to Arrow returns exactly the requested type.
This module does not encode values; it defines only the code of NULL.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.errors import SchemaError
from circuits.types.arrow_types import Family, family_of

__all__ = [
    "GREATEST_KEY",
    "LEAST_KEY",
    "NULL",
    "VIEW_TYPES",
    "BoolArray",
    "Bytes",
    "Int64Array",
    "array_of",
    "bitmap_of",
    "bits_of",
    "check_dictionary_codes",
    "expand_encoding",
    "missing_code_error",
    "numbers_of",
    "strings_array",
    "strings_of",
    "valid_of",
]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

#: The code of NULL in every column.
NULL: Final = -(2**63)
#: The range of the sort keys of values. The two int64 outside of it are for NULL: first and last.
LEAST_KEY: Final = NULL + 1
GREATEST_KEY: Final = -NULL - 2

#: The types whose arrays refer to strings in several buffers.
VIEW_TYPES: Final = (pa.string_view(), pa.binary_view())

_INT32_MAX: Final = 2**31 - 1


def expand_encoding(array: pa.Array) -> pa.Array:
    """Return the array without dictionary encoding and without views into several buffers."""
    if isinstance(array, pa.DictionaryArray):
        # Arrow cannot take rows of view arrays, so the dictionary is converted first.
        values = expand_encoding(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    if array.type == pa.string_view():
        return array.cast(pa.large_string())
    if array.type == pa.binary_view():
        return array.cast(pa.large_binary())
    return array


def valid_of(array: pa.Array) -> BoolArray | None:
    """Return a mask of the values that are not NULL; None if no value is NULL."""
    if array.null_count == 0:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:  # the null type
        return np.zeros(len(array), np.bool_)
    return _bits(bitmap, array.offset, len(array))


def bits_of(array: pa.BooleanArray) -> BoolArray:
    """Return the values of a boolean array."""
    return _bits(array.buffers()[1], array.offset, len(array))


def numbers_of(array: pa.Array, dtype: np.dtype[Any], width: int = 1) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array: ``width`` words of type ``dtype`` per value.

    The shape is ``(n,)`` for one word, else ``(n, width)``.
    """
    shape = len(array) if width == 1 else (len(array), width)
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.empty(shape, dtype)
    start = array.offset * width * dtype.itemsize
    return np.frombuffer(buffer, dtype, len(array) * width, start).reshape(shape)


def strings_of(array: pa.Array) -> tuple[Int64Array, Bytes]:
    """Return the offsets and the bytes of a string or binary array that is not a view."""
    _, offsets_or_data, *data = array.buffers()
    rows = len(array)
    if not data:  # fixed_size_binary has no offsets
        width = array.type.byte_width
        ends = np.arange(array.offset, array.offset + rows + 1) * width
        return ends, _bytes_of(offsets_or_data)
    if offsets_or_data is None or not rows:
        return np.zeros(rows + 1, np.int64), _bytes_of(None)
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    offsets = np.frombuffer(offsets_or_data, dtype, rows + 1, array.offset * dtype.itemsize)
    return offsets.astype(np.int64, copy=False), _bytes_of(data[0])


def array_of(type: pa.DataType, values: npt.NDArray[Any], valid: BoolArray | None) -> pa.Array:
    """Return a fixed-width array of numbers or booleans; it may share memory with ``values``."""
    rows = len(values)
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    buffers = [bitmap_of(valid), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(type, rows, buffers)


def strings_array(
    type: pa.DataType, offsets: Int64Array, data: Bytes, valid: BoolArray | None
) -> pa.Array:
    """Return an array of any string or binary type.

    Args:
        type: The type of the array.
        offsets: The start of each string in ``data``, and the end of the last one.
        data: The bytes of the strings; a string that is not valid has none.
        valid: A mask of the strings that are not NULL; None if no string is NULL.

    Raises:
        SchemaError: There are more bytes than the type can hold, or a string does not have the
            fixed width.
    """
    rows = len(offsets) - 1
    if pa.types.is_fixed_size_binary(type):
        return array_of(type, _fixed_width_bytes(type, offsets, data, valid), valid)
    is_text = family_of(type) is Family.STRING
    # The type of the array before it is cast, if necessary, to ``type``.
    layout = pa.large_string() if is_text else pa.large_binary()
    layout_offsets: npt.NDArray[Any] = offsets
    if type == pa.string() or type == pa.binary():
        if offsets[-1] > _INT32_MAX:
            raise SchemaError(
                f"{offsets[-1]} bytes in {rows} values are more than {type} holds ({_INT32_MAX}): "
                f"declare the column as {layout}"
            )
        layout, layout_offsets = type, offsets.astype(np.int32)
    buffers = [bitmap_of(valid), pa.py_buffer(layout_offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(layout, rows, buffers)
    return array if layout == type else array.cast(type)


def missing_code_error(value: object, type: pa.DataType, fix: str) -> SchemaError:
    """Return the error for the value of a 64-bit type whose code would be the code of NULL."""
    return SchemaError(
        f"value {value} of type {type} cannot be encoded, because its code is the code of NULL: "
        f"{fix}"
    )


def check_dictionary_codes(
    codes: Int64Array, valid: BoolArray | None, size: int, type: pa.DataType
) -> None:
    """Raise SchemaError if a valid code is -1, which no value of a dictionary has.

    Args:
        codes: The codes to decode.
        valid: A mask of the codes that are not NULL; None if no code is NULL.
        size: The number of values of the dictionary.
        type: The type of the column, for the message.
    """
    is_unknown = codes < 0 if valid is None else (codes < 0) & valid
    if is_unknown.any():
        raise SchemaError(
            f"code {codes[is_unknown][0]} is outside [0, {size - 1}] of {type}: "
            "decode with the codec that encoded"
        )


def _fixed_width_bytes(
    type: pa.DataType, offsets: Int64Array, data: Bytes, valid: BoolArray | None
) -> npt.NDArray[Any]:
    width = type.byte_width
    lengths = np.diff(offsets) if valid is None else np.diff(offsets)[valid]
    if (lengths != width).any():
        other_length = lengths[lengths != width][0]
        raise SchemaError(
            f"a value of {other_length} bytes is not of type {type}: declare it as binary"
        )
    values = np.zeros((len(offsets) - 1, width), np.uint8)
    values[slice(None) if valid is None else valid] = data.reshape(len(lengths), width)
    return values


def _bits(buffer: pa.Buffer | None, offset: int, rows: int) -> BoolArray:
    first_byte, first_bit = divmod(offset, 8)
    packed = _bytes_of(buffer)[first_byte : (offset + rows + 7) // 8]
    bits = np.unpackbits(packed, bitorder="little", count=first_bit + rows)
    return bits[first_bit:].view(np.bool_)


def bitmap_of(valid: BoolArray | None) -> pa.Buffer | None:
    """Return a mask as Arrow's bitmap of the values that are not NULL."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _bytes_of(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
