"""Hashes: MD5, SHA, CRC-32 once per distinct value; Spark's Murmur3 and xxHash64 as kernels.

``murmur3`` and ``xxhash64`` combine their arguments from left to right: the hash of an argument is
the seed of the next one, and a NULL does not change the seed [1]. The first seed is 42, as in
Spark's ``hash()``. The hashed bits of a value are:

- 32 bits for a boolean, a date, and an integer of up to 32 bits;
- 64 bits for a larger integer, a timestamp, and a decimal of up to 18 digits;
- its own bits for a float, and its bytes for text and bytes;
- the elements of a list, or the fields of a struct, from left to right.

References:
    [1] Apache Spark, sql/catalyst/expressions/hash.scala; Murmur3_x86_32; XXH64.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.arrow_types import is_nested, part_types
from circuits.types.functions.argument_rows import fill_rows, row_count, unscaled_digits
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.texts.encodings import as_bytes
from circuits.types.functions.type_rules import is_binary, is_text
from dbsp_wcoj.kernels.values.spark_hashes import (
    murmur3_bytes,
    murmur3_numbers,
    xxhash64_bytes,
    xxhash64_numbers,
)

__all__ = ["FUNCTIONS"]

Array = np.ndarray[Any, Any]

_FIRST_SEED = 42


def _sha2(value: str | bytes, bits: int) -> str | None:
    names = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}
    return hashlib.new(names[bits], as_bytes(value)).hexdigest() if bits in names else None


def _md5(value: str | bytes) -> str:
    return hashlib.md5(as_bytes(value), usedforsecurity=False).hexdigest()


def _sha1(value: str | bytes) -> str:
    return hashlib.sha1(as_bytes(value), usedforsecurity=False).hexdigest()


def _hash_column(values: pa.Array, seeds: Array) -> None:
    """Replace the seed of each row by the hash of its value; a NULL keeps the seed."""
    is_murmur3 = seeds.dtype == np.uint32
    data_type = values.type
    if arrow.is_null(data_type):
        return
    if arrow.is_struct(data_type):
        for number in range(data_type.num_fields):
            _hash_column(pc.struct_field(values, number), seeds)
        return
    if is_list(data_type):
        _hash_elements(values, seeds)
        return
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if is_text(data_type) or is_binary(data_type):
        binaries = pc.fill_null(pc.cast(values, pa.large_binary()), b"")
        offsets = np.frombuffer(binaries.buffers()[1], np.int64)[binaries.offset :][
            : len(binaries) + 1
        ]
        buffer = binaries.buffers()[2]
        data = np.frombuffer(buffer, np.uint8) if buffer else np.zeros(0, np.uint8)
        (murmur3_bytes if is_murmur3 else xxhash64_bytes)(data, offsets, valid, seeds)
        return
    is_64_bit = True
    if arrow.is_floating(data_type):
        zero = pa.scalar(0.0, data_type)
        numbers = pc.add(pc.fill_null(values, zero), zero)  # -0.0 is 0.0
        is_64_bit = not arrow.is_float32(data_type)
        floats = numbers.to_numpy(zero_copy_only=False).copy()
        floats[np.isnan(floats)] = np.nan  # all NaNs get the same bits
        bits = floats.view(np.int64 if is_64_bit else np.int32)
    elif arrow.is_decimal(data_type):
        bits = pc.cast(pc.fill_null(unscaled_digits(values), 0), pa.int64()).to_numpy()
    else:
        if (
            arrow.is_boolean(data_type)
            or (arrow.is_integer(data_type) and data_type.bit_width < 64)
            or arrow.is_date(data_type)
        ):
            is_64_bit = False
            values = pc.cast(values, pa.int32())
        bits = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy(zero_copy_only=False)
    unsigned = bits.astype(np.int64).view(np.uint64)
    (murmur3_numbers if is_murmur3 else xxhash64_numbers)(unsigned, is_64_bit, valid, seeds)


def _hash_elements(lists: pa.Array, seeds: Array) -> None:
    """Replace the seed of each row by the hash of the elements of its list."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    for position in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > position)
        row_seeds = seeds[rows]
        _hash_column(pc.list_element(lists.take(pa.array(rows)), position), row_seeds)
        seeds[rows] = row_seeds


def _check_is_hashed(name: str, arguments: Arguments, data_type: pa.DataType) -> None:
    """Raise an error for a type whose values, or parts of them, have no hash."""
    if arrow.is_decimal(data_type) and data_type.precision > 18:
        raise argument_error(name, arguments, "a decimal has at most 18 digits; cast it to text")
    if arrow.is_map(data_type) or arrow.is_time(data_type):
        raise argument_error(
            name, arguments, "it takes numbers, text, bytes, dates, lists and structs of them"
        )
    if is_nested(data_type):
        for part in part_types(data_type):
            _check_is_hashed(name, arguments, part)


def _hash_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, None)
    for argument in arguments:
        _check_is_hashed(name, arguments, argument.type)
    return arguments, pa.int32() if name == "murmur3" else pa.int64()


def _hash_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    seeds = np.full(rows, _FIRST_SEED, np.uint32 if result_type == pa.int32() else np.uint64)
    for values in arguments:
        _hash_column(fill_rows(values, rows), seeds)
    return pa.array(seeds.view(np.int32 if result_type == pa.int32() else np.int64))


# In a signature, i is an integer and y a text or bytes.
FUNCTIONS = (
    Function(
        "md5", "the MD5 hash in hexadecimal", Signature("y", pa.string()), per_distinct_row(_md5)
    ),
    Function(
        "sha1",
        "the SHA-1 hash in hexadecimal",
        Signature("y", pa.string()),
        per_distinct_row(_sha1),
    ),
    Function(
        "sha2",
        "the SHA-2 hash of b bits (0, 224, 256, 384 or 512) in hexadecimal",
        Signature("yi", pa.string()),
        per_distinct_row(_sha2),
    ),
    Function(
        "crc32",
        "the CRC-32 checksum",
        Signature("y", pa.int64()),
        per_distinct_row(lambda value: zlib.crc32(as_bytes(value))),
    ),
    Function(
        "murmur3",
        "Spark's hash(): the Murmur3 hash (32 bits) of all arguments",
        _hash_rule,
        _hash_kernel,
    ),
    Function(
        "xxhash64",
        "Spark's xxhash64(): the XXH64 hash (64 bits) of all arguments",
        _hash_rule,
        _hash_kernel,
    ),
)
