"""Intern: the hash table of an `Interner`, from byte strings to codes, and codes back to bytes.

Codes are 0, 1, 2, … in the order in which strings were added. The table is three arrays:

::

    arena    uint8: the bytes of all strings, in the order of their codes
    bounds   int64: code c has the bytes arena[bounds[c] : bounds[c + 1]]
    slots    int64: a power of two of words: 0 if free, else (upper bits of the hash) | (code + 1)
             linear probing from the lower bits of the hash; the upper bits save comparisons

Strings are processed in blocks, each in stages: hash and prefetch the slot, read the slot and
prefetch the bounds, read the bounds and prefetch the bytes, compare. So a table that is larger than
the caches costs about one miss per string instead of three in a row.

The effect of `intern` depends only on the strings in the table and their codes. Growing the table
inserts them again in code order. `remove_latest` removes the latest strings in reverse order, which
under linear probing restores the table as it was before them.

`find` may run while another thread adds strings to the same slots or removes them again. Linear
probing places a string after older strings only, so changes to newer strings do not affect how an
older string is found. `find` reads each slot once and skips the codes of newer strings.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, prefetch
from dbsp_wcoj.kernels.values.bytes import (
    are_equal,
    copy_bytes,
    hash_bytes,
    read_big_endian,
    read_word,
)

__all__ = [
    "CODE_MASK",
    "find",
    "gather",
    "gather_words",
    "intern",
    "order_keys",
    "rebuild_slots",
    "remove_latest",
    "write_offsets",
]

BLOCK_STRINGS = 32
#: The lower bits of a slot, which hold the code plus one.
CODE_MASK = (1 << 40) - 1


@subroutine
def _address(array):
    return np.int64(array.ctypes.data)


@subroutine
def _find_slot(hash_code, string, length, slots, bounds, arena):
    """Return the slot of a string, or the free slot for it; ``string``, ``arena`` are addresses."""
    slot_mask = len(slots) - 1
    tag = hash_code & ~CODE_MASK
    slot = hash_code & slot_mask
    while slots[slot] != 0:
        if slots[slot] & ~CODE_MASK == tag:
            code = (slots[slot] & CODE_MASK) - 1
            start = bounds[code]
            if bounds[code + 1] - start == length and are_equal(arena + start, string, length):
                break
        slot = (slot + 1) & slot_mask
    return slot


@inline_subroutine
def _hash_block(offsets, data, valid, first, stop, slots, slot_mask, hashes):
    """Hash the strings of a block and prefetch their slots; stage one of `intern` and `find`."""
    has_valid_mask = len(valid) > 0
    for i in range(first, stop):
        if has_valid_mask and not valid[i]:
            continue
        start = read_word(offsets + 8 * i)
        hash_code = hash_bytes(data + start, read_word(offsets + 8 * i + 8) - start)
        hashes[i - first] = hash_code
        prefetch(slots, hash_code & slot_mask)


@kernel
def intern(strings, valid, first, slots, bounds, arena, size, codes):
    """Write the codes of the strings from ``first`` on, and add new strings.

    Args:
        strings: Address of int64 offsets and address of the bytes that they delimit.
        valid: bool per string; if False, its code is -1. If empty, all strings are valid.
        first: Index of the first string to process.
        slots: Hash table, as above.
        bounds: Offsets by code, with room for more.
        arena: Bytes, with room for more.
        size: The number of strings in the table.
        codes: Result: int64 per string.

    Returns:
        The index of the first string without room, or the number of strings; and the new size.
    """
    offsets, string_data = strings
    slots, bounds, codes = borrow(slots), borrow(bounds), borrow(codes)
    arena_address = _address(arena)
    slots_address, bounds_address = _address(slots), _address(bounds)
    slot_mask = len(slots) - 1
    hashes = np.empty(BLOCK_STRINGS, np.int64)
    count = len(codes)
    has_valid_mask = len(valid) > 0
    while first < count:
        stop = min(first + BLOCK_STRINGS, count)
        _hash_block(offsets, string_data, valid, first, stop, slots_address, slot_mask, hashes)
        for i in range(first, stop):
            if has_valid_mask and not valid[i]:
                continue
            code = slots[hashes[i - first] & slot_mask] & CODE_MASK
            prefetch(bounds_address, max(code - 1, 0))
        for i in range(first, stop):
            if has_valid_mask and not valid[i]:
                continue
            code = slots[hashes[i - first] & slot_mask] & CODE_MASK
            prefetch(arena_address + bounds[max(code - 1, 0)], 0)
        for i in range(first, stop):
            if has_valid_mask and not valid[i]:
                codes[i] = -1
                continue
            start = read_word(offsets + 8 * i)
            length = read_word(offsets + 8 * i + 8) - start
            hash_code = hashes[i - first]
            slot = _find_slot(hash_code, string_data + start, length, slots, bounds, arena_address)
            code = (slots[slot] & CODE_MASK) - 1
            if code < 0:
                end = bounds[size] + length
                if size == len(bounds) - 1 or 2 * size >= len(slots) or end > len(arena):
                    return i, size
                code = size
                copy_bytes(string_data + start, arena_address + bounds[size], length)
                size += 1
                bounds[size] = end
                slots[slot] = (hash_code & ~CODE_MASK) | size
            codes[i] = code
        first = stop
    return count, size


@subroutine
def _find_code(hash_code, string, length, slots, bounds, arena, size):
    """Return the code of a string if it is among the first ``size``, else -1."""
    slot_mask = len(slots) - 1
    tag = hash_code & ~CODE_MASK
    slot = hash_code & slot_mask
    while True:
        entry = slots[slot]
        if entry == 0:
            return np.int64(-1)
        code = (entry & CODE_MASK) - 1
        if code < size and entry & ~CODE_MASK == tag:
            start = bounds[code]
            if bounds[code + 1] - start == length and are_equal(arena + start, string, length):
                return code
        slot = (slot + 1) & slot_mask


@kernel
def find(strings, valid, slots, bounds, arena, size, codes):
    """Write the codes of strings, -1 for those that are not among the first ``size`` of the table.

    Args:
        strings: Address of int64 offsets and address of the bytes that they delimit.
        valid: bool per string; if False, its code is -1. If empty, all strings are valid.
        slots: Hash table, as above; it may contain newer strings.
        bounds: Offsets by code, for the first ``size`` at least.
        arena: Bytes, of the first ``size`` at least.
        size: Number of strings that count; newer ones are ignored.
        codes: Result: int64 per string.
    """
    offsets, string_data = strings
    slots, bounds, codes = borrow(slots), borrow(bounds), borrow(codes)
    arena_address = _address(arena)
    slots_address = _address(slots)
    slot_mask = len(slots) - 1
    hashes = np.empty(BLOCK_STRINGS, np.int64)
    count = len(codes)
    has_valid_mask = len(valid) > 0
    for first in range(0, count, BLOCK_STRINGS):
        stop = min(first + BLOCK_STRINGS, count)
        _hash_block(offsets, string_data, valid, first, stop, slots_address, slot_mask, hashes)
        for i in range(first, stop):
            if has_valid_mask and not valid[i]:
                codes[i] = -1
                continue
            start = read_word(offsets + 8 * i)
            length = read_word(offsets + 8 * i + 8) - start
            hash_code = hashes[i - first]
            codes[i] = _find_code(
                hash_code, string_data + start, length, slots, bounds, arena_address, size
            )


@kernel
def rebuild_slots(slots, bounds, arena, begin, end):
    """Insert the strings of the codes from ``begin`` to ``end - 1`` into slots.

    Before, the slots have exactly the strings of the codes below ``begin``.
    """
    arena_address = _address(arena)
    slots_address = _address(slots)
    slot_mask = len(slots) - 1
    hashes = np.empty(BLOCK_STRINGS, np.int64)
    for first in range(begin, end, BLOCK_STRINGS):
        stop = min(first + BLOCK_STRINGS, end)
        for code in range(first, stop):
            hash_code = hash_bytes(arena_address + bounds[code], bounds[code + 1] - bounds[code])
            hashes[code - first] = hash_code
            prefetch(slots_address, hash_code & slot_mask)
        for code in range(first, stop):
            hash_code = hashes[code - first]
            slot = hash_code & slot_mask
            while slots[slot] != 0:
                slot = (slot + 1) & slot_mask
            slots[slot] = (hash_code & ~CODE_MASK) | (code + 1)


@kernel
def remove_latest(slots, bounds, arena, size, new_size):
    """Free the slots of the codes from ``new_size`` to ``size - 1``."""
    arena_address = _address(arena)
    slot_mask = len(slots) - 1
    for code in range(size - 1, new_size - 1, -1):
        slot = hash_bytes(arena_address + bounds[code], bounds[code + 1] - bounds[code]) & slot_mask
        while slots[slot] & CODE_MASK != code + 1:
            slot = (slot + 1) & slot_mask
        slots[slot] = 0


@kernel
def write_offsets(codes, bounds, offsets):
    """Write the offsets of the concatenated strings of the codes; a negative code is empty."""
    end = np.int64(0)
    offsets[0] = 0
    for i in range(len(codes)):
        code = codes[i]
        if code >= 0:
            end += bounds[code + 1] - bounds[code]
        offsets[i + 1] = end


@kernel
def gather(codes, bounds, arena, offsets, data):
    """Write the bytes of the strings of the codes to their ``offsets`` in ``data``."""
    source, target = _address(arena), _address(data)
    bounds_address = _address(bounds)
    rows = len(codes)
    for i in range(rows):
        if i + 2 * BLOCK_STRINGS < rows:
            prefetch(bounds_address, max(codes[i + 2 * BLOCK_STRINGS], 0))
        if i + BLOCK_STRINGS < rows:
            prefetch(source + bounds[max(codes[i + BLOCK_STRINGS], 0)], 0)
        if codes[i] >= 0:
            copy_bytes(source + bounds[codes[i]], target + offsets[i], offsets[i + 1] - offsets[i])


@kernel
def order_keys(codes, bounds, arena, start, keys):
    """Write a key per code that sorts like the string's eight bytes from ``start`` on.

    The key of a negative code is 0.
    """
    source = _address(arena)
    for i in range(len(codes)):
        code = codes[i]
        keys[i] = 0
        if code >= 0:
            first, end = bounds[code] + start, bounds[code + 1]
            number = read_big_endian(source + first, end - first) if first < end else np.int64(0)
            keys[i] = number ^ np.int64(-(2**63))


@kernel
def gather_words(codes, arena, columns):
    """Write the words of the rows of the codes, as columns; a negative code stands for itself."""
    source = _address(arena)
    width, rows = columns.shape
    for i in range(rows):
        if i + BLOCK_STRINGS < rows:
            prefetch(source, max(codes[i + BLOCK_STRINGS], 0) * width)
        for k in range(width):
            if codes[i] >= 0:
                columns[k, i] = read_word(source + 8 * (codes[i] * width + k))
            else:
                columns[k, i] = codes[i]
