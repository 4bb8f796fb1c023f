"""Bytes: hash, compare and copy byte strings in raw memory, eight bytes at a time.

A string is an address and a length. Words are read only inside the string: a string of eight bytes
or more ends with a word that overlaps the previous one, so there is no loop over single bytes and
no read beyond a buffer. Bit patterns are int64 throughout, because numba converts int64 combined
with uint64 to float.

`hash_bytes` follows wyhash (Wang Yi, "wyhash", final version 4, public domain): the 128-bit product
of two words, folded. It also XORs the factors into the result (`mix`), so that no chosen word can
cancel the other one. It has no secret: chosen collisions make look-ups slow, never wrong.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dbsp_wcoj.kernels.compilation import subroutine

__all__ = ["are_equal", "copy_bytes", "hash_bytes", "read_big_endian", "read_word", "write_word"]

_WORD = ir.IntType(64)

# Odd numbers with 32 of 64 bits set, from wyhash, as int64.
_FIRST = 0xA0761D6478BD642F - (1 << 64)
_SECOND = 0xE7037ED1A0B428DB - (1 << 64)


def _reader(bits: int) -> Any:
    pointee = ir.IntType(bits)

    def read(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], pointee.as_pointer())
            value = builder.load(pointer, align=1)
            return value if bits == 64 else builder.zext(value, _WORD)

        return types.int64(types.int64), codegen

    return intrinsic(read)


def _writer(bits: int) -> Any:
    pointee = ir.IntType(bits)

    def write(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], pointee.as_pointer())
            value = args[1] if bits == 64 else builder.trunc(args[1], pointee)
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.none(types.int64, types.int64), codegen

    return intrinsic(write)


read_word, write_word = _reader(64), _writer(64)
read_half, write_half = _reader(32), _writer(32)
read_byte, write_byte = _reader(8), _writer(8)


@intrinsic  # type: ignore[untyped-decorator]
def mix(typingctx: Any, a: Any, b: Any) -> Any:
    """Return ``low ^ high ^ a ^ b``; low and high are the halves of the 128-bit product a * b."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        low = builder.trunc(product, _WORD)
        high = builder.trunc(builder.lshr(product, wide(64)), _WORD)
        return builder.xor(builder.xor(low, high), builder.xor(args[0], args[1]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def reversed_bytes(typingctx: Any, value: Any) -> Any:
    """Return a word with its bytes in the opposite order."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.int64(types.int64), codegen


@subroutine
def hash_bytes(address, length):
    """Return a hash of 64 well-mixed bits."""
    state = np.int64(_SECOND)
    remaining = length
    while remaining > 16:
        state = mix(read_word(address) ^ _FIRST, read_word(address + 8) ^ state)
        address += 16
        remaining -= 16
    if remaining >= 8:
        a = read_word(address)
        b = read_word(address + remaining - 8)
    elif remaining >= 4:
        a = read_half(address)
        b = read_half(address + remaining - 4)
    elif remaining > 0:
        a = (
            (read_byte(address) << 16)
            | (read_byte(address + (remaining >> 1)) << 8)
            | read_byte(address + remaining - 1)
        )
        b = np.int64(0)
    else:
        a = np.int64(0)
        b = np.int64(0)
    return mix(_FIRST ^ length, mix(a ^ _FIRST, b ^ state))


@subroutine
def are_equal(x, y, length):
    """Return whether two strings of the same length are equal."""
    if length >= 8:
        last = length - 8
        for i in range(0, last, 8):
            if read_word(x + i) != read_word(y + i):
                return False
        return read_word(x + last) == read_word(y + last)
    if length >= 4:
        last = length - 4
        return read_half(x) == read_half(y) and read_half(x + last) == read_half(y + last)
    for i in range(length):  # noqa: SIM110 - numba has no all()
        if read_byte(x + i) != read_byte(y + i):
            return False
    return True


@subroutine
def copy_bytes(source, target, length):
    """Copy a string; source and target do not overlap."""
    if length >= 8:
        last = length - 8
        for i in range(0, last, 8):
            write_word(target + i, read_word(source + i))
        write_word(target + last, read_word(source + last))
    elif length >= 4:
        last = length - 4
        write_half(target, read_half(source))
        write_half(target + last, read_half(source + last))
    else:
        for i in range(length):
            write_byte(target + i, read_byte(source + i))


@subroutine
def read_big_endian(address, length):
    """Return the first eight bytes, padded with zeros, as a big-endian unsigned number."""
    if length >= 8:
        return reversed_bytes(read_word(address))
    number = np.int64(0)
    for i in range(length):
        number |= read_byte(address + i) << (56 - 8 * i)
    return number
