"""Hashes: MD5, SHA, CRC-32 once per distinct value; Spark's Murmur3 and xxHash64 as kernels.

``murmur3`` and ``xxhash64`` combine their arguments from left to right: the hash of an argument is
the seed of the next, and a NULL leaves the seed as it is [1]. Integers up to 32 bits, booleans and
dates are hashed as an int of 32 bits, larger ones, timestamps, and decimals of up to 18 digits as
64 bits, floats by their bits, text and bytes by bytes.

References:
    [1] Apache Spark, sql/catalyst/expressions/hash.scala; Murmur3_x86_32; XXH64.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.argument_rows import fill_rows, unscaled_digits
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.signatures import Signature, per_distinct_row, row_count
from circuits.types.functions.type_rules import is_binary, is_text

__all__ = ["FUNCTIONS"]

Array = np.ndarray[Any, Any]


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _sha2(value: str | bytes, bits: int) -> str | None:
    names = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}
    return hashlib.new(names[bits], _bytes(value)).hexdigest() if bits in names else None


def _md5(value: str | bytes) -> str:
    return hashlib.md5(_bytes(value), usedforsecurity=False).hexdigest()


def _sha1(value: str | bytes) -> str:
    return hashlib.sha1(_bytes(value), usedforsecurity=False).hexdigest()


@numba.njit(cache=True, nogil=True)
def _mix_k1(k1: np.uint32) -> np.uint32:
    k1 = np.uint32(k1 * np.uint32(0xCC9E2D51))
    k1 = np.uint32((k1 << np.uint32(15)) | (k1 >> np.uint32(17)))
    return np.uint32(k1 * np.uint32(0x1B873593))


@numba.njit(cache=True, nogil=True)
def _mix_h1(h1: np.uint32, k1: np.uint32) -> np.uint32:
    h1 = np.uint32(h1 ^ k1)
    h1 = np.uint32((h1 << np.uint32(13)) | (h1 >> np.uint32(19)))
    return np.uint32(h1 * np.uint32(5) + np.uint32(0xE6546B64))


@numba.njit(cache=True, nogil=True)
def _finish(h1: np.uint32, length: np.uint32) -> np.uint32:
    h1 = np.uint32(h1 ^ length)
    h1 = np.uint32(h1 ^ (h1 >> np.uint32(16)))
    h1 = np.uint32(h1 * np.uint32(0x85EBCA6B))
    h1 = np.uint32(h1 ^ (h1 >> np.uint32(13)))
    h1 = np.uint32(h1 * np.uint32(0xC2B2AE35))
    return np.uint32(h1 ^ (h1 >> np.uint32(16)))


@numba.njit(cache=True, nogil=True)
def _murmur3_numbers(values: Array, wide: bool, valid: Array, seeds: Array) -> None:
    """Replace the seeds by the hashes of the values, for rows that are valid."""
    for row in range(len(values)):
        if not valid[row]:
            continue
        bits = values[row]
        h1 = _mix_h1(seeds[row], _mix_k1(np.uint32(bits & np.uint64(0xFFFFFFFF))))
        if wide:
            h1 = _mix_h1(h1, _mix_k1(np.uint32(bits >> np.uint64(32))))
        seeds[row] = _finish(h1, np.uint32(8 if wide else 4))


@numba.njit(cache=True, nogil=True)
def _murmur3_bytes(data: Array, offsets: Array, valid: Array, seeds: Array) -> None:
    """As `_murmur3_numbers` for byte strings; trailing bytes are hashed as signed ints, one each."""
    for row in range(len(seeds)):
        if not valid[row]:
            continue
        start, stop = offsets[row], offsets[row + 1]
        length = stop - start
        aligned = start + length - length % 4
        h1 = seeds[row]
        for at in range(start, aligned, 4):
            word = (
                np.uint32(data[at])
                | np.uint32(data[at + 1]) << np.uint32(8)
                | np.uint32(data[at + 2]) << np.uint32(16)
                | np.uint32(data[at + 3]) << np.uint32(24)
            )
            h1 = _mix_h1(h1, _mix_k1(np.uint32(word)))
        for at in range(aligned, stop):
            h1 = _mix_h1(h1, _mix_k1(np.uint32(np.int32(np.int8(data[at])))))
        seeds[row] = _finish(h1, np.uint32(length))


_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@numba.njit(cache=True, nogil=True)
def _rotate(value: np.uint64, distance: int) -> np.uint64:
    return np.uint64((value << np.uint64(distance)) | (value >> np.uint64(64 - distance)))


@numba.njit(cache=True, nogil=True)
def _avalanche(value: np.uint64) -> np.uint64:
    value = np.uint64((value ^ (value >> np.uint64(33))) * _P2)
    value = np.uint64((value ^ (value >> np.uint64(29))) * _P3)
    return np.uint64(value ^ (value >> np.uint64(32)))


@numba.njit(cache=True, nogil=True)
def _word(data: Array, at: int, size: int) -> np.uint64:
    found = np.uint64(0)
    for index in range(size):
        found |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return found


@numba.njit(cache=True, nogil=True)
def _xxhash64_numbers(values: Array, wide: bool, valid: Array, seeds: Array) -> None:
    for row in range(len(values)):
        if not valid[row]:
            continue
        bits = values[row]
        if wide:
            found = np.uint64(seeds[row] + _P5 + np.uint64(8))
            found ^= np.uint64(_rotate(np.uint64(bits * _P2), 31) * _P1)
            found = np.uint64(_rotate(found, 27) * _P1 + _P4)
        else:
            found = np.uint64(seeds[row] + _P5 + np.uint64(4))
            found ^= np.uint64((bits & np.uint64(0xFFFFFFFF)) * _P1)
            found = np.uint64(_rotate(found, 23) * _P2 + _P3)
        seeds[row] = _avalanche(found)


@numba.njit(cache=True, nogil=True)
def _xxhash64_bytes(data: Array, offsets: Array, valid: Array, seeds: Array) -> None:
    for row in range(len(seeds)):
        if not valid[row]:
            continue
        at, stop = offsets[row], offsets[row + 1]
        length, seed = stop - at, seeds[row]
        if length >= 32:
            v1 = np.uint64(seed + _P1 + _P2)
            v2 = np.uint64(seed + _P2)
            v3 = seed
            v4 = np.uint64(seed - _P1)
            while at <= stop - 32:
                v1 = np.uint64(_rotate(np.uint64(v1 + _word(data, at, 8) * _P2), 31) * _P1)
                v2 = np.uint64(_rotate(np.uint64(v2 + _word(data, at + 8, 8) * _P2), 31) * _P1)
                v3 = np.uint64(_rotate(np.uint64(v3 + _word(data, at + 16, 8) * _P2), 31) * _P1)
                v4 = np.uint64(_rotate(np.uint64(v4 + _word(data, at + 24, 8) * _P2), 31) * _P1)
                at += 32
            found = np.uint64(_rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18))
            for lane in (v1, v2, v3, v4):
                found ^= np.uint64(_rotate(np.uint64(lane * _P2), 31) * _P1)
                found = np.uint64(found * _P1 + _P4)
        else:
            found = np.uint64(seed + _P5)
        found = np.uint64(found + np.uint64(length))
        while at <= stop - 8:
            found ^= np.uint64(_rotate(np.uint64(_word(data, at, 8) * _P2), 31) * _P1)
            found = np.uint64(_rotate(found, 27) * _P1 + _P4)
            at += 8
        if at <= stop - 4:
            found ^= np.uint64(_word(data, at, 4) * _P1)
            found = np.uint64(_rotate(found, 23) * _P2 + _P3)
            at += 4
        while at < stop:
            found ^= np.uint64(np.uint64(data[at]) * _P5)
            found = np.uint64(_rotate(found, 11) * _P1)
            at += 1
        seeds[row] = _avalanche(found)


def _hash_column(values: pa.Array, seeds: Array) -> None:
    """Replace the seed of each row by the hash of its value; a NULL keeps the seed."""
    narrow_hash = seeds.dtype == np.uint32
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    of = values.type
    if is_text(of) or is_binary(of):
        data = pc.fill_null(pc.cast(values, pa.large_binary()), b"")
        offsets = np.frombuffer(data.buffers()[1], np.int64)[data.offset :][: len(data) + 1]
        content = data.buffers()[2]
        characters = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
        (_murmur3_bytes if narrow_hash else _xxhash64_bytes)(characters, offsets, valid, seeds)
        return
    wide = True
    if arrow.is_floating(of):
        numbers = pc.add(pc.fill_null(values, 0.0), 0.0)  # -0.0 is 0.0
        wide = not arrow.is_float32(of)
        bits = numbers.to_numpy(zero_copy_only=False).copy()
        bits[np.isnan(bits)] = np.nan
        bits = bits.view(np.int64 if wide else np.int32)
    elif arrow.is_decimal(of):
        bits = pc.cast(pc.fill_null(unscaled_digits(values), 0), pa.int64()).to_numpy()
    else:
        if (
            arrow.is_boolean(of)
            or (arrow.is_integer(of) and of.bit_width < 64)
            or arrow.is_date(of)
        ):
            wide = False
            values = pc.cast(values, pa.int32())
        bits = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy(zero_copy_only=False)
    unsigned = bits.astype(np.int64).view(np.uint64)
    (_murmur3_numbers if narrow_hash else _xxhash64_numbers)(unsigned, wide, valid, seeds)


def _hash_rule(name: str, arguments: Arguments, of: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, None)
    for argument in arguments:
        if arrow.is_decimal(argument.type) and argument.type.precision > 18:
            raise argument_error(
                name, arguments, "a decimal has at most 18 digits; cast it to text"
            )
        if arrow.is_nested(argument.type) or arrow.is_time(argument.type):
            raise argument_error(name, arguments, "it takes numbers, text, bytes, dates")
    return arguments, pa.int32() if name == "murmur3" else pa.int64()


def _hash_kernel(arguments: Sequence[Values], of: pa.DataType) -> Values:
    rows = row_count(arguments)
    seeds = np.full(rows, 42, np.uint32 if of == pa.int32() else np.uint64)
    for values in arguments:
        if not arrow.is_null(values.type):
            _hash_column(fill_rows(values, rows), seeds)
    return pa.array(seeds.view(np.int32 if of == pa.int32() else np.int64))


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
        per_distinct_row(lambda value: zlib.crc32(_bytes(value))),
    ),
    Function(
        "murmur3", "Spark's hash(): Murmur3 of 32 bits of all arguments", _hash_rule, _hash_kernel
    ),
    Function(
        "xxhash64", "Spark's xxhash64(): of 64 bits of all arguments", _hash_rule, _hash_kernel
    ),
)
