"""Murmur3 of 32 bits and xxHash64 over columns, as Spark computes them.

Each kernel replaces the seeds by the hashes of the values of valid rows. The bytes after the last
whole word are hashed as signed ints, one by one, in Spark's Murmur3.

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
def murmur3_numbers(values, wide, valid, seeds):
    """Replace the seeds by the hashes of the values, for rows that are valid."""
    for row in range(len(values)):
        if not valid[row]:
            continue
        bits = values[row]
        h1 = _mix_h1(seeds[row], _mix_k1(np.uint32(bits & np.uint64(0xFFFFFFFF))))
        if wide:
            h1 = _mix_h1(h1, _mix_k1(np.uint32(bits >> np.uint64(32))))
        seeds[row] = _finish(h1, np.uint32(8 if wide else 4))


@kernel
def murmur3_bytes(data, offsets, valid, seeds):
    """As `murmur3_numbers`, for bytes; the last bytes are hashed as signed ints, one by one."""
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


@inline_subroutine
def _rotate(value, distance):
    return np.uint64((value << np.uint64(distance)) | (value >> np.uint64(64 - distance)))


@inline_subroutine
def _avalanche(value):
    value = np.uint64((value ^ (value >> np.uint64(33))) * _P2)
    value = np.uint64((value ^ (value >> np.uint64(29))) * _P3)
    return np.uint64(value ^ (value >> np.uint64(32)))


@inline_subroutine
def _word(data, at, size):
    found = np.uint64(0)
    for index in range(size):
        found |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return found


@kernel
def xxhash64_numbers(values, wide, valid, seeds):
    """As `murmur3_numbers`, with xxHash64; the values are 64-bit words."""
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


@kernel
def xxhash64_bytes(data, offsets, valid, seeds):
    """As `murmur3_bytes`, with xxHash64."""
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
