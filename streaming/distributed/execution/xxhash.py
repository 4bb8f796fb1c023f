"""Hash Arrow columns with xxHash64, exactly as Spark's expression ``xxhash64`` does.

::

    h = 42;  h = hash(value of the first column, h);  h = hash(value of the second column, h); …

So the driver and the tools can assign rows to cells as the executors do, and identify heavy values
by their hashes, without a Spark job. Numpy hashes all values of a column at once. Strings and
binaries are sorted from the longest to the shortest, so the values that have a word at some
position are always a prefix of the array. If all rows have the same h before a column of strings,
each distinct string is hashed once. NULL does not change h. The algorithm is XXH64 by Yann Collet;
Spark's implementation is ``org.apache.spark.sql.catalyst.expressions.XXH64``, which has a shorter
form for values of 4 and 8 bytes.

>>> import pyarrow as pa
>>> xxhash64([pa.array([7, None])])[1], xxhash64([pa.array(["a"])]).dtype
(np.int64(42), dtype('int64'))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.arrow_types import Family, family_of
from streaming.errors import StreamingError

__all__ = ["xxhash64"]

Hashes = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

SEED: Final = 42  # that of Spark
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_64_BITS: Final = (1 << 64) - 1
#: XXH64 reads 32 bytes at a time, a stripe: 8 bytes for each of its four lanes.
STRIPE_BYTES: Final = 32


def xxhash64(columns: Sequence[pa.Array | pa.ChunkedArray], *literals: int) -> Hashes:
    """Return the hash of each row.

    Args:
        columns: At least one column; all have the same length.
        literals: 32-bit integers that are hashed after the values of each row.

    Raises:
        StreamingError: The type of a column is not supported.

    Complexity:
        O(rows + bytes) time, in O(longest string) calls of numpy.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        hashed = _hash_column(array, hashes)
        if array.null_count:
            hashed = np.where(array.is_null().to_numpy(zero_copy_only=False), hashes, hashed)
        hashes = hashed
    for literal in literals:
        hashes = _hash_4_bytes(np.array([literal & 0xFFFFFFFF], np.uint64), hashes)
    return hashes.view(np.int64)


def _hash_column(column: pa.Array, seeds: Words) -> Words:
    type = column.type
    match family_of(type):
        case Family.DICTIONARY:
            return _hash_column(column.dictionary_decode(), seeds)
        case Family.NULL:
            return seeds
        case Family.BOOLEAN:
            return _hash_4_bytes(
                _to_numpy(column.cast(pa.int32()), np.int32).view(np.uint32).astype(np.uint64),
                seeds,
            )
        case Family.DATE:
            return _hash_int32(column.cast(pa.date32()).cast(pa.int32()), seeds)
        case Family.INTEGER:
            return _hash_int64(column.cast(pa.int64()), seeds)
        case Family.FLOAT:
            floats = _to_numpy(column.cast(pa.float64()), np.float64)
            canonical = np.where(np.isnan(floats), np.nan, floats + 0.0)  # one NaN, one zero
            return _hash_8_bytes(canonical.view(np.uint64), seeds)
        case Family.TIMESTAMP:
            micros = column.cast(pa.timestamp("us", type.tz))
            return _hash_int64(micros.view(pa.int64()), seeds)
        case Family.TIME:
            return _hash_int64(column.cast(pa.time64("ns")).view(pa.int64()), seeds)
        case Family.DURATION:
            return _hash_int64(column.cast(pa.duration("us")).view(pa.int64()), seeds)
        case Family.DECIMAL if type.precision <= 38:  # Spark has no wider decimals
            unscaled = _decimal_bytes(column)
            if type.precision <= 18:
                return _hash_8_bytes(
                    np.ascontiguousarray(unscaled.view("<u8")[:, 0], np.uint64), seeds
                )
            return _hash_bytes(*_java_bytes(unscaled), seeds)
        case Family.STRING | Family.BINARY if type != pa.binary_view():
            return _hash_strings(column, seeds)
    raise StreamingError(
        f"values of type {type} cannot be hashed like in Spark: cast the column to another type"
    )


def _hash_int32(column: pa.Array, seeds: Words) -> Words:
    return _hash_4_bytes(_to_numpy(column, np.int32).view(np.uint32).astype(np.uint64), seeds)


def _hash_int64(column: pa.Array, seeds: Words) -> Words:
    return _hash_8_bytes(_to_numpy(column, np.int64).view(np.uint64), seeds)


def _to_numpy(column: pa.Array, dtype: type[np.generic]) -> Any:
    filled = pc.fill_null(column, 0) if column.null_count else column
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), dtype)


def _decimal_bytes(column: pa.Array) -> Bytes:
    """Return the unscaled values of decimals: 16 bytes in each row, lowest first; 0 for NULL."""
    wide = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    unscaled = np.frombuffer(wide.buffers()[1], np.uint8).reshape(-1, 16)
    unscaled = unscaled[wide.offset : wide.offset + len(wide)].copy()
    if wide.null_count:
        unscaled[wide.is_null().to_numpy(zero_copy_only=False)] = 0
    return unscaled


def _java_bytes(unscaled: Bytes) -> tuple[Bytes, Integers, Integers]:
    """Return the integers of `_decimal_bytes` in the form of Java's ``BigInteger.toByteArray``.

    The most significant byte is first, and there are only as many bytes as the value and its sign
    need. The result is like that of `_bytes_of`.
    """
    high_first = np.ascontiguousarray(unscaled[:, ::-1])
    sign = np.where(high_first[:, :1] < 128, 0, 255)
    # A byte is redundant if it and all bytes before it only repeat the sign, and the first bit of
    # the next byte is the sign, too.
    is_sign = high_first[:, :-1] == sign
    next_shows_sign = (high_first[:, 1:] < 128) == (sign == 0)
    redundant = np.logical_and.accumulate(is_sign & next_shows_sign, axis=1).sum(axis=1)
    return high_first.reshape(-1), 16 * np.arange(len(unscaled)) + redundant, 16 - redundant


def _hash_strings(column: pa.Array, seeds: Words) -> Words:
    """Hash strings or binaries; if all seeds are equal, hash each distinct value once."""
    if len(column) and (seeds == seeds[0]).all():
        encoded = column.dictionary_encode()
        values = encoded.dictionary
        hashes = _hash_bytes(*_bytes_of(values), np.full(len(values), seeds[0], np.uint64))
        codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        return hashes[codes] if len(hashes) else seeds
    return _hash_bytes(*_bytes_of(column), seeds)


def _bytes_of(column: pa.Array) -> tuple[Bytes, Integers, Integers]:
    """Return the bytes of all values, and the start and the length of each value in them."""
    large = column.cast(pa.large_binary())
    offsets = np.frombuffer(large.buffers()[1], np.int64)[large.offset :][: len(large) + 1]
    content = large.buffers()[2]
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return data, offsets[:-1], np.diff(offsets)


def _hash_4_bytes(value: Words, seeds: Words) -> Words:
    mixed = (seeds + np.uint64((_P5 + 4) & _64_BITS)) ^ (value * np.uint64(_P1))
    return _finalize(_rotate_left(mixed, 23) * np.uint64(_P2) + np.uint64(_P3))


def _hash_8_bytes(values: Words, seeds: Words) -> Words:
    rotated = _rotate_left(values * np.uint64(_P2), 31) * np.uint64(_P1)
    mixed = (seeds + np.uint64((_P5 + 8) & _64_BITS)) ^ rotated
    return _finalize(_rotate_left(mixed, 27) * np.uint64(_P1) + np.uint64(_P4))


def _rotate_left(values: Words, bits: int) -> Words:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _finalize(values: Words) -> Words:
    values = (values ^ (values >> np.uint64(33))) * np.uint64(_P2)
    values = (values ^ (values >> np.uint64(29))) * np.uint64(_P3)
    return values ^ (values >> np.uint64(32))


def _hash_bytes(data: Bytes, starts: Integers, lengths: Integers, seeds: Words) -> Words:
    """Return the hash of each byte range of ``data``."""
    order = np.argsort(-lengths, kind="stable")
    positions, negated_lengths, seeds = starts[order], -lengths[order], seeds[order]
    # words[i] is the number that the eight bytes from position i on represent.
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    words = np.ndarray((len(data) + 1,), "<u8", padded, 0, (1,))
    mixed = seeds + np.uint64(_P5)
    stripes = -negated_lengths // STRIPE_BYTES
    # The values of at least one stripe are a prefix, since the longest are first.
    long_count = int(np.searchsorted(negated_lengths, -STRIPE_BYTES, side="right"))
    if long_count:
        offsets = ((_P1 + _P2) & _64_BITS, _P2, 0, -_P1 & _64_BITS)
        lanes = [seeds[:long_count] + np.uint64(offset) for offset in offsets]
        for stripe in range(int(stripes[0])):
            min_bytes = STRIPE_BYTES * (stripe + 1)
            count = int(np.searchsorted(negated_lengths, -min_bytes, side="right"))
            for number, lane in enumerate(lanes):
                word = words[positions[:count] + (STRIPE_BYTES * stripe + 8 * number)]
                lane[:count] = _round(lane[:count], word)
        summed = np.zeros(long_count, np.uint64)
        for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
            summed += _rotate_left(lane, bits)
        for lane in lanes:
            summed = (summed ^ _round(np.uint64(0), lane)) * np.uint64(_P1) + np.uint64(_P4)
        mixed[:long_count] = summed
    mixed += (-negated_lengths).view(np.uint64)
    read_bytes = STRIPE_BYTES * stripes
    positions, remaining = positions + read_bytes, -negated_lengths - read_bytes
    for size in (8, 4, 1):
        while len(unfinished := np.flatnonzero(remaining >= size)):
            word = words[positions[unfinished]] & np.uint64((1 << 8 * size) - 1)
            mixed[unfinished] = _mix_tail(mixed[unfinished], word, size)
            positions[unfinished] += size
            remaining[unfinished] -= size
    hashes = np.empty(len(order), np.uint64)
    hashes[order] = _finalize(mixed)
    return hashes


def _mix_tail(hashes: Words, words: Words, size: int) -> Words:
    """Mix one word of the last, incomplete stripe into the hashes."""
    if size == 8:
        rotated = _rotate_left(hashes ^ _round(np.uint64(0), words), 27)
        return rotated * np.uint64(_P1) + np.uint64(_P4)
    if size == 4:
        rotated = _rotate_left(hashes ^ (words * np.uint64(_P1)), 23)
        return rotated * np.uint64(_P2) + np.uint64(_P3)
    return _rotate_left(hashes ^ (words * np.uint64(_P5)), 11) * np.uint64(_P1)


def _round(lanes: Words | np.uint64, words: Words) -> Words:
    return _rotate_left(lanes + words * np.uint64(_P2), 31) * np.uint64(_P1)
