"""XxHash64 as Spark's expression ``xxhash64`` computes it, over Arrow columns.

::

    h = 42;  h = hash(value of the first column, h);  h = hash(value of the second column, h); …

Driver and tools place rows as executors do, and name heavy values by their hashes, without a job of
Spark's. Numbers, dates and times are hashed by numpy; bytes of texts and wide decimals one value at
a time, each different one once. NULL leaves h as it is. XXH64 by Yann Collet; Spark's reading of it
is ``org.apache.spark.sql.catalyst.expressions.XXH64``, which has a shorter form for 4 and 8 bytes.

>>> import pyarrow as pa
>>> xxhash64([pa.array([7, None])])[1], xxhash64([pa.array(["a"])]).dtype
(np.int64(42), dtype('int64'))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streaming.errors import StreamingError

__all__ = ["xxhash64"]

Hashes = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

SEED: Final = 42
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_ALL: Final = (1 << 64) - 1


def xxhash64(columns: Sequence[pa.Array | pa.ChunkedArray], *literals: int) -> Hashes:
    """The hashes of rows.

    Args:
        columns: At least one, of one length.
        literals: 32-bit integers that are hashed after each row's values.

    Raises:
        StreamingError: A column is of a type that is not hashed here.

    Complexity:
        O(rows), and O(bytes) in Python for the different values of texts.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        hashed = _column(whole, hashes)
        if whole.null_count:
            hashed = np.where(whole.is_null().to_numpy(zero_copy_only=False), hashes, hashed)
        hashes = hashed
    for literal in literals:
        hashes = _of_4(np.array([literal & 0xFFFFFFFF], np.uint64), hashes)
    return hashes.view(np.int64)


def _column(column: pa.Array, seeds: Words) -> Words:
    type = column.type
    if types.is_dictionary(type):
        return _column(column.dictionary_decode(), seeds)
    if types.is_null(type):
        return seeds
    if types.is_date64(type):
        return _column(column.cast(pa.date32()), seeds)
    if types.is_boolean(type) or types.is_date32(type):
        small = column.cast(pa.int32())
        return _of_4(_numbers(small, np.int32).view(np.uint32).astype(np.uint64), seeds)
    if types.is_integer(type):
        return _of_8(_numbers(column.cast(pa.int64()), np.int64).view(np.uint64), seeds)
    if types.is_floating(type):
        bits = _numbers(column.cast(pa.float64()), np.float64)
        plain = np.where(np.isnan(bits), np.nan, bits + 0.0)  # one NaN, one zero
        return _of_8(plain.view(np.uint64), seeds)
    if types.is_timestamp(type):
        micros = column.cast(pa.timestamp("us", type.tz)).view(pa.int64())
        return _of_8(_numbers(micros, np.int64).view(np.uint64), seeds)
    if types.is_time(type):
        nanos = column.cast(pa.time64("ns")).view(pa.int64())
        return _of_8(_numbers(nanos, np.int64).view(np.uint64), seeds)
    if types.is_duration(type):
        micros = column.cast(pa.duration("us")).view(pa.int64())
        return _of_8(_numbers(micros, np.int64).view(np.uint64), seeds)
    if types.is_decimal(type) and type.precision <= 18:
        unscaled = [_unscaled(value) for value in column.to_pylist()]
        return _of_8(np.array(unscaled, np.int64).view(np.uint64), seeds)
    if types.is_decimal(type):
        return _of_values(column, seeds, lambda value: _big(_unscaled(value)))
    if types.is_string(type) or types.is_large_string(type) or types.is_string_view(type):
        return _of_values(column, seeds, str.encode)
    if types.is_binary(type) or types.is_large_binary(type) or types.is_fixed_size_binary(type):
        return _of_values(column, seeds, bytes)
    raise StreamingError(f"values of type {type} have no hash here: cast the column")


def _numbers(column: pa.Array, dtype: type[np.generic]) -> Any:
    filled = pc.fill_null(column, 0) if column.null_count else column
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), dtype)


def _unscaled(value: Decimal | None) -> int:
    if value is None:
        return 0
    sign, digits, _ = value.as_tuple()
    found = int("".join(map(str, digits)))
    return -found if sign else found


def _big(number: int) -> bytes:
    """As Java's BigInteger gives its bytes."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _of_values(column: pa.Array, seeds: Words, bytes_of: Callable[[Any], bytes]) -> Words:
    """Values of bytes; each pair of value and seed once."""
    coded = column.dictionary_encode()
    values = [bytes_of(value) for value in coded.dictionary.to_pylist()]
    codes = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
    known: dict[tuple[int, int], int] = {}
    found = np.empty(len(codes), np.uint64)
    if values:
        for place, key in enumerate(zip(codes.tolist(), seeds.tolist(), strict=True)):
            if key not in known:
                known[key] = _of_bytes(values[key[0]], key[1])
            found[place] = known[key]
    return found


def _of_4(value: Words, seeds: Words) -> Words:
    mixed = (seeds + np.uint64((_P5 + 4) & _ALL)) ^ (value * np.uint64(_P1))
    return _finished(_turned(mixed, 23) * np.uint64(_P2) + np.uint64(_P3))


def _of_8(values: Words, seeds: Words) -> Words:
    turned = _turned(values * np.uint64(_P2), 31) * np.uint64(_P1)
    mixed = (seeds + np.uint64((_P5 + 8) & _ALL)) ^ turned
    return _finished(_turned(mixed, 27) * np.uint64(_P1) + np.uint64(_P4))


def _turned(values: Words, bits: int) -> Words:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _finished(values: Words) -> Words:
    values = (values ^ (values >> np.uint64(33))) * np.uint64(_P2)
    values = (values ^ (values >> np.uint64(29))) * np.uint64(_P3)
    return values ^ (values >> np.uint64(32))


def _of_bytes(data: bytes, seed: int) -> int:
    size, at = len(data), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= size:
            for lane in range(4):
                word = int.from_bytes(data[at : at + 8], "little")
                lanes[lane] = _round(lanes[lane] & _ALL, word)
                at += 8
        mixed = sum(_left(one, n) for one, n in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            mixed = ((mixed ^ _round(0, lane)) * _P1 + _P4) & _ALL
    else:
        mixed = (seed + _P5) & _ALL
    mixed = (mixed + size) & _ALL
    while at + 8 <= size:
        word = int.from_bytes(data[at : at + 8], "little")
        mixed = (_left(mixed ^ _round(0, word), 27) * _P1 + _P4) & _ALL
        at += 8
    if at + 4 <= size:
        word = int.from_bytes(data[at : at + 4], "little")
        mixed = (_left(mixed ^ (word * _P1 & _ALL), 23) * _P2 + _P3) & _ALL
        at += 4
    for byte in data[at:]:
        mixed = _left(mixed ^ (byte * _P5 & _ALL), 11) * _P1 & _ALL
    mixed = ((mixed ^ (mixed >> 33)) * _P2) & _ALL
    mixed = ((mixed ^ (mixed >> 29)) * _P3) & _ALL
    return mixed ^ (mixed >> 32)


def _round(lane: int, word: int) -> int:
    return _left((lane + word * _P2) & _ALL, 31) * _P1 & _ALL


def _left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _ALL
