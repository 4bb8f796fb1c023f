"""Sweep: the codes of an interner from which strings were removed, and the copy of the others.

An interner keeps its strings at the positions 0, 1, 2, … (`dbsp_wcoj.kernels.values.intern`). As
long as no string has been removed, the code of a string is its position. Afterwards, the first
positions have *listed* codes, and the codes of all later positions are consecutive::

    codes        int64: the listed codes, ascending up to ``sorted_count``, and again after it
    directory    int64: entry e is the first position whose code is at least e << shift
    next_code    the code of position len(codes); position len(codes) + k has code next_code + k

The directory has an entry for every code below ``next_code``, so a code is found in O(1) expected
time if the codes are spread evenly, and in O(log n) in any case.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow
from dbsp_wcoj.kernels.values.bytes import copy_bytes, hash_bytes

__all__ = ["UNKNOWN", "copy_live", "hash_strings", "mark", "to_codes", "to_positions"]

#: The position of a code that was removed.
UNKNOWN = -2
# Copying this many bytes counts as one more unit of work; each string counts as one.
BYTES_PER_WORK = 64


@subroutine
def _lower_bound(codes, low, high, code):
    """Return the first position from ``low`` on whose code is at least ``code``; else ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low


@subroutine
def _find_position(code, codes, sorted_count, directory, shift, next_code):
    """Return the position of a code; `UNKNOWN` if it was removed; a negative code as it is."""
    if code < 0:
        return code
    if code >= next_code:
        return code - next_code + len(codes)
    entry = code >> shift
    position = _lower_bound(codes, directory[entry], directory[entry + 1], code)
    if position < sorted_count and codes[position] == code:
        return position
    position = _lower_bound(codes, sorted_count, len(codes), code)
    if position < len(codes) and codes[position] == code:
        return position
    return np.int64(UNKNOWN)


@kernel
def to_positions(input_codes, codes, sorted_count, directory, shift, next_code, positions):
    """Write the position of each code; return the index of the first unknown one, or -1."""
    codes, directory = borrow(codes), borrow(directory)
    first_unknown = np.int64(-1)
    for i in range(len(input_codes)):
        code = input_codes[i]
        position = _find_position(code, codes, sorted_count, directory, shift, next_code)
        positions[i] = position
        if position < 0 and position != code and first_unknown < 0:
            first_unknown = np.int64(i)
    return first_unknown


@kernel
def to_codes(positions, codes, next_code):
    """Replace positions by their codes; a negative position stands for itself."""
    listed = len(codes)
    for i in range(len(positions)):
        position = positions[i]
        if position >= listed:
            positions[i] = position - listed + next_code
        elif position >= 0:
            positions[i] = codes[position]


@kernel
def mark(input_codes, codes, sorted_count, directory, shift, next_code, marks, new_codes):
    """Set the marks of the positions of codes; skip removed and later codes.

    Args:
        input_codes: The codes to mark.
        codes: The listed codes, as above.
        sorted_count: As above.
        directory: As above.
        shift: As above.
        next_code: As above.
        marks: uint8 by position; 1 if marked.
        new_codes: Result: the codes that were not marked before, each once.

    Returns:
        The number of new codes.
    """
    codes, directory = borrow(codes), borrow(directory)
    count = 0
    for i in range(len(input_codes)):
        code = input_codes[i]
        position = _find_position(code, codes, sorted_count, directory, shift, next_code)
        if 0 <= position < len(marks) and marks[position] == 0:
            marks[position] = 1
            new_codes[count] = code
            count += 1
    return count


@kernel
def copy_live(codes, sorted_count, next_code, marks, cursors, work, source, target, size):
    """Append the marked strings to other arrays, in the order of their codes.

    Args:
        codes: The listed codes, as above.
        sorted_count: As above.
        next_code: As above.
        marks: uint8 by position; positions beyond it are marked.
        cursors: The next position of each of the three ascending sequences of codes; updated.
        work: The number of strings to examine; long strings count more.
        source: The bounds and the arena of the strings, and the number of strings.
        target: The bounds, the arena and the codes to append to.
        size: The number of strings in the target.

    Returns:
        The number of strings in the target, and the remaining work: -1 if there is no room in the
        target for the next string.
    """
    bounds, arena, end = source
    target_bounds, target_arena, target_codes = target
    from_address = np.int64(arena.ctypes.data)
    to_address = np.int64(target_arena.ctypes.data)
    listed = len(codes)
    while work > 0:
        if cursors[0] < sorted_count and (
            cursors[1] >= listed or codes[cursors[0]] < codes[cursors[1]]
        ):
            sequence = 0
        elif cursors[1] < listed:
            sequence = 1
        elif cursors[2] < end:
            sequence = 2
        else:
            break
        position = cursors[sequence]
        work -= 1
        if position >= len(marks) or marks[position] != 0:
            length = bounds[position + 1] - bounds[position]
            start = target_bounds[size]
            has_room = size < len(target_bounds) - 1 and start + length <= len(target_arena)
            if not has_room or size == len(target_codes):
                return size, np.int64(-1)
            copy_bytes(from_address + bounds[position], to_address + start, length)
            if position < listed:
                target_codes[size] = codes[position]
            else:
                target_codes[size] = position - listed + next_code
            size += 1
            target_bounds[size] = start + length
            work -= length // BYTES_PER_WORK
        cursors[sequence] += 1
    return size, max(work, np.int64(0))


@kernel
def hash_strings(positions, bounds, arena, hashes):
    """Write a hash of the string at each position; a negative position stands for itself."""
    address = np.int64(arena.ctypes.data)
    for i in range(len(positions)):
        position = positions[i]
        if position < 0:
            hashes[i] = position
        else:
            start = bounds[position]
            hashes[i] = hash_bytes(address + start, bounds[position + 1] - start)
