"""Kernels of Spark's hash functions over columns: Murmur3 with 32 bits, and xxHash64.

The hash of a row's value depends on a seed. Each kernel replaces the seed of each valid row by the
hash of its value, so the result for one column is the seed for the next. Spark's Murmur3 differs
from the original one: it hashes the bytes after the last whole word one by one, as signed ints.

References:
    Apache Spark, org.apache.spark.unsafe.hash.Murmur3_x86_32 and catalyst's XXH64.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, kernel

__all__ = ["murmur3_bytes", "murmur3_numbers", "xxhash64_bytes", "xxhash64_numbers"]


@inline_subroutine
def _mix_k1(k1):
    k1 = np.uint32(k1 * np.uint32(0xCC9E2D51))
    k1 = np.uint32((k1 << np.uint32(15)) | (k1 >> np.uint32(17)))
    return np.uint32(k1 * np.uint32(0x1B873593))


@inline_subroutine
def _mix_h1(h1, k1):
    h1 = np.uint32(h1 ^ k1)
    h1 = np.uint32((h1 << np.uint32(13)) | (h1 >> np.uint32(19)))
    return np.uint32(h1 * np.uint32(5) + np.uint32(0xE6546B64))


@inline_subroutine
def _finish(h1, length):
    h1 = np.uint32(h1 ^ length)
    h1 = np.uint32(h1 ^ (h1 >> np.uint32(16)))
    h1 = np.uint32(h1 * np.uint32(0x85EBCA6B))
    h1 = np.uint32(h1 ^ (h1 >> np.uint32(13)))
    h1 = np.uint32(h1 * np.uint32(0xC2B2AE35))
    return np.uint32(h1 ^ (h1 >> np.uint32(16)))


@kernel
def murmur3_numbers(values, is_64_bit, valid, seeds):
    """Replace the seeds of valid rows by the hashes of numbers.

    Args:
        values: The bits of the values, uint64 of shape ``(n,)``.
        is_64_bit: True to hash all 64 bits, False to hash the lower 32.
        valid: A mask of the rows that are not NULL, shape ``(n,)``.
        seeds: The seeds, replaced by the hashes, shape ``(n,)``.
    """
    for row in range(len(values)):
        if not valid[row]:
            continue
        bits = values[row]
        h1 = _mix_h1(seeds[row], _mix_k1(np.uint32(bits & np.uint64(0xFFFFFFFF))))
        if is_64_bit:
            h1 = _mix_h1(h1, _mix_k1(np.uint32(bits >> np.uint64(32))))
        seeds[row] = _finish(h1, np.uint32(8 if is_64_bit else 4))


@kernel
def murmur3_bytes(data, offsets, valid, seeds):
    """Like `murmur3_numbers`, for byte strings.

    Args:
        data: The bytes of all values, uint8.
        offsets: The bytes of value i are ``data[offsets[i]:offsets[i + 1]]``; shape ``(n + 1,)``.
        valid: A mask of the rows that are not NULL, shape ``(n,)``.
        seeds: The seeds, replaced by the hashes, shape ``(n,)``.
    """
    for row in range(len(seeds)):
        if not valid[row]:
            continue
        start, stop = offsets[row], offsets[row + 1]
        length = stop - start
        aligned = start + length - length % 4
        h1 = seeds[row]
        for position in range(start, aligned, 4):
            word = (
                np.uint32(data[position])
                | np.uint32(data[position + 1]) << np.uint32(8)
                | np.uint32(data[position + 2]) << np.uint32(16)
                | np.uint32(data[position + 3]) << np.uint32(24)
            )
            h1 = _mix_h1(h1, _mix_k1(np.uint32(word)))
        for position in range(aligned, stop):
            h1 = _mix_h1(h1, _mix_k1(np.uint32(np.int32(np.int8(data[position])))))
        seeds[row] = _finish(h1, np.uint32(length))


# The five primes of xxHash64.
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@inline_subroutine
def _rotate(value, distance):
    return np.uint64((value << np.uint64(distance)) | (value >> np.uint64(64 - distance)))


@inline_subroutine
def _avalanche(value):
    value = np.uint64((value ^ (value >> np.uint64(33))) * _P2)
    value = np.uint64((value ^ (value >> np.uint64(29))) * _P3)
    return np.uint64(value ^ (value >> np.uint64(32)))


@inline_subroutine
def _read_word(data, position, size):
    word = np.uint64(0)
    for index in range(size):
        word |= np.uint64(data[position + index]) << np.uint64(8 * index)
    return word


@kernel
def xxhash64_numbers(values, is_64_bit, valid, seeds):
    """Like `murmur3_numbers`, with xxHash64; the seeds are uint64."""
    for row in range(len(values)):
        if not valid[row]:
            continue
        bits = values[row]
        if is_64_bit:
            digest = np.uint64(seeds[row] + _P5 + np.uint64(8))
            digest ^= np.uint64(_rotate(np.uint64(bits * _P2), 31) * _P1)
            digest = np.uint64(_rotate(digest, 27) * _P1 + _P4)
        else:
            digest = np.uint64(seeds[row] + _P5 + np.uint64(4))
            digest ^= np.uint64((bits & np.uint64(0xFFFFFFFF)) * _P1)
            digest = np.uint64(_rotate(digest, 23) * _P2 + _P3)
        seeds[row] = _avalanche(digest)


@kernel
def xxhash64_bytes(data, offsets, valid, seeds):
    """Like `murmur3_bytes`, with xxHash64; the seeds are uint64."""
    for row in range(len(seeds)):
        if not valid[row]:
            continue
        position, stop = offsets[row], offsets[row + 1]
        length, seed = stop - position, seeds[row]
        if length >= 32:
            v1 = np.uint64(seed + _P1 + _P2)
            v2 = np.uint64(seed + _P2)
            v3 = seed
            v4 = np.uint64(seed - _P1)
            while position <= stop - 32:
                v1 = np.uint64(
                    _rotate(np.uint64(v1 + _read_word(data, position, 8) * _P2), 31) * _P1
                )
                v2 = np.uint64(
                    _rotate(np.uint64(v2 + _read_word(data, position + 8, 8) * _P2), 31) * _P1
                )
                v3 = np.uint64(
                    _rotate(np.uint64(v3 + _read_word(data, position + 16, 8) * _P2), 31) * _P1
                )
                v4 = np.uint64(
                    _rotate(np.uint64(v4 + _read_word(data, position + 24, 8) * _P2), 31) * _P1
                )
                position += 32
            digest = np.uint64(_rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18))
            for lane in (v1, v2, v3, v4):
                digest ^= np.uint64(_rotate(np.uint64(lane * _P2), 31) * _P1)
                digest = np.uint64(digest * _P1 + _P4)
        else:
            digest = np.uint64(seed + _P5)
        digest = np.uint64(digest + np.uint64(length))
        while position <= stop - 8:
            digest ^= np.uint64(_rotate(np.uint64(_read_word(data, position, 8) * _P2), 31) * _P1)
            digest = np.uint64(_rotate(digest, 27) * _P1 + _P4)
            position += 8
        if position <= stop - 4:
            digest ^= np.uint64(_read_word(data, position, 4) * _P1)
            digest = np.uint64(_rotate(digest, 23) * _P2 + _P3)
            position += 4
        while position < stop:
            digest ^= np.uint64(np.uint64(data[position]) * _P5)
            digest = np.uint64(_rotate(digest, 11) * _P1)
            position += 1
        seeds[row] = _avalanche(digest)
