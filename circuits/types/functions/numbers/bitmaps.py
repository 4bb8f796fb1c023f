"""Bitmaps of Spark: the numbers of a bucket of 32,768 as the bits of 4,096 bytes.

Number n > 0 has the bucket ``1 + (n - 1) / 32768`` and the position ``(n - 1) % 32768`` in it. Bit
p of a bitmap is bit ``p % 8`` of byte ``p / 8``. A bitmap that is shorter or longer than 4,096
bytes is filled with zeros or cut. A number n <= 0 has the bucket ``n / 32768``, rounded towards
zero, and the position ``-n % 32768``.

An aggregate of SQL, such as ``bitmap_or_agg``, collects the bitmaps of a group in a list and calls
a function of this list, such as ``bitmap_or``. It runs once per group that changes, in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    Rule,
    TypedArguments,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row
from circuits.types.functions.type_rules import is_binary

__all__ = ["FUNCTIONS"]

_BITS: Final = 32_768
_BYTES: Final = _BITS // 8


def _position(values: pa.Array) -> pa.Array:
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    positions = np.where(numbers > 0, numbers - 1, -numbers) % _BITS
    return pc.if_else(values.is_valid(), pa.array(positions), None)


def _bucket(values: pa.Array) -> pa.Array:
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    buckets = np.where(numbers > 0, 1 + (numbers - 1) // _BITS, -(-numbers // _BITS))
    return pc.if_else(values.is_valid(), pa.array(buckets), None)


def _count(bitmap: bytes) -> int:
    return int.from_bytes(bitmap, "big").bit_count()


def _bitmap_of_positions(positions: list[int]) -> bytes:
    bits = np.zeros(_BITS, np.uint8)
    if any(not 0 <= position < _BITS for position in positions):
        raise ValueError(f"the position of a bitmap is from 0 to {_BITS - 1}")
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _bytes_of_bitmap(bitmap: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return 4,096 bytes: the bitmap, filled with zeros or cut."""
    return np.frombuffer(bitmap[:_BYTES].ljust(_BYTES, b"\0"), np.uint8)


def _or(bitmaps: Sequence[bytes]) -> bytes:
    zeros = np.zeros(_BYTES, np.uint8)
    return reduce(np.bitwise_or, map(_bytes_of_bitmap, bitmaps), zeros).tobytes()


def _and(bitmaps: Sequence[bytes]) -> bytes:
    ones = np.full(_BYTES, 255, np.uint8)
    return reduce(np.bitwise_and, map(_bytes_of_bitmap, bitmaps), ones).tobytes()


def _per_list(function: Callable[[Any], bytes]) -> Kernel:
    """Return a kernel that calls a function for each list; NULL for a list that is NULL."""

    def kernel(values: pa.Array) -> pa.Array:
        results = [None if parts is None else function(parts) for parts in values.to_pylist()]
        return pa.array(results, pa.binary())

    return column_kernel(kernel)


def _list_rule(*, of_bytes: bool) -> Rule:
    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 1, 1)
        (values,) = arguments
        if not is_list(values.type):
            raise argument_error(name, arguments, "it takes a list")
        element = values.type.value_type
        fits = is_binary(element) if of_bytes else pa.types.is_integer(element)
        if not fits and not pa.types.is_null(element):
            kind = "bitmaps" if of_bytes else "integers"
            raise argument_error(name, arguments, f"it takes a list of {kind}")
        target = pa.list_(pa.binary() if of_bytes else pa.int64())
        return (cast_to(values, target),), pa.binary()

    return rule


def _bitmap_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not is_binary(arguments[0].type) and not pa.types.is_null(arguments[0].type):
        raise argument_error(name, arguments, "it takes bytes: cast it to binary")
    return (cast_to(arguments[0], pa.binary()),), pa.int64()


# In a signature, i is an integer.
FUNCTIONS = (
    Function(
        "bitmap_bit_position",
        "the bit of the number a in the bitmap of its bucket, from 0 to 32,767",
        Signature("i", pa.int64()),
        column_kernel(_position),
    ),
    Function(
        "bitmap_bucket_number",
        "the bucket of the number a: 1 for 1 to 32,768, 2 for the next 32,768 numbers",
        Signature("i", pa.int64()),
        column_kernel(_bucket),
    ),
    Function(
        "bitmap_count",
        "the number of bits of a that are 1",
        _bitmap_rule,
        per_distinct_row(_count),
    ),
    Function(
        "bitmap_of_positions",
        "the bitmap that has the positions in the list a",
        _list_rule(of_bytes=False),
        _per_list(_bitmap_of_positions),
    ),
    Function(
        "bitmap_or",
        "the bits that at least one bitmap of the list a has",
        _list_rule(of_bytes=True),
        _per_list(_or),
    ),
    Function(
        "bitmap_and",
        "the bits that all bitmaps of the list a have",
        _list_rule(of_bytes=True),
        _per_list(_and),
    ),
)
