"""Scan: validate JSON objects and record where their members are.

The kernel reads each object once, from left to right, and checks the whole grammar. A *context* is
a set of member names that the caller wants, such as those of the object ``source``. For each name
it has an action:

==========  =====================================================================================
SCALAR      record kind and position of the value in a slot of the object
ENTER       the same, and if the value is an object, scan its members with another context
ROW         the same, and if the value is an object, record its members as a row of cells
ROW_ARRAY   the same for an array whose elements are all objects, with one row for each element
==========  =====================================================================================

The members of a row belong to one context, in which each name has a column. A record is a triple
of kind, start and end; start and end are offsets into the bytes, without the quotes of a string.

An object is refused if it is not valid JSON in UTF-8, repeats a member at any level, or has
something rare: an escape in a name, a name of more than `MAX_NAME_BYTES` bytes, more than
`MAX_UNKNOWN` other members in one object, `MAX_DEPTH` levels, a number of more than 38 digits, or
minus zero. Names that the caller does not want are compared by a hash of 64 bits, so two different
names of equal hash refuse an object, too.

Names usually have the same order in all objects. The kernel first compares a name with the one that
followed the previous name before, and searches the context only if they differ.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, kernel, subroutine
from dbsp_wcoj.kernels.values.bytes import (
    are_equal,
    hash_bytes,
    read_byte,
    read_word,
    write_byte,
)

__all__ = [
    "ARRAY",
    "DECIMAL",
    "DOUBLE",
    "ENTER",
    "ESCAPED",
    "FALSE",
    "INTEGER",
    "MAX_NAME_BYTES",
    "MISSING",
    "NULL",
    "OBJECT",
    "ROW",
    "ROW_ARRAY",
    "SCALAR",
    "STRING",
    "TRUE",
    "hash_names",
    "scan_objects",
]

# Kinds of values.
MISSING, NULL, FALSE, TRUE, INTEGER, DECIMAL, DOUBLE, STRING, ESCAPED, OBJECT, ARRAY = range(11)
# Actions of members.
SCALAR, ENTER, ROW, ROW_ARRAY = range(4)
# Columns of the table of members.
SLOT, ACTION, ARGUMENT, NEXT = range(4)

MAX_DEPTH = 64
MAX_UNKNOWN = 64
MAX_NAME_BYTES = 1000
MAX_INTEGER_DIGITS = 19
MAX_DIGITS = 38
NO_CONTEXT = -1
# Where the end of an object or array is recorded.
NOWHERE, IN_SLOT, IN_CELL = range(3)

_ONES = 0x0101010101010101
_HIGH = -0x7F7F7F7F7F7F7F80  # 0x8080808080808080 as int64
_QUOTES = 0x2222222222222222
_BACKSLASHES = 0x5C5C5C5C5C5C5C5C
_BLANKS = 0x2020202020202020


@inline_subroutine
def _is_blank(byte):
    return byte == 32 or byte == 10 or byte == 13 or byte == 9


@subroutine
def _skip_utf8(address, position, end):
    """Return the position after the character of several bytes at a position; -1 if invalid."""
    first = read_byte(address + position)
    if first < 0xC2 or first > 0xF4:
        return np.int64(-1)
    length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if position + length > end:
        return np.int64(-1)
    second = read_byte(address + position + 1)
    low, high = 0x80, 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return np.int64(-1)
    for i in range(2, length):
        if read_byte(address + position + i) & 0xC0 != 0x80:
            return np.int64(-1)
    return np.int64(position + length)


@subroutine
def _hex_digits(address, position, end):
    """Return the number of the four hexadecimal digits at a position; -1 if there are none."""
    if position + 4 > end:
        return np.int64(-1)
    number = np.int64(0)
    for i in range(4):
        byte = read_byte(address + position + i)
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 65 <= byte <= 70:
            digit = byte - 55
        elif 97 <= byte <= 102:
            digit = byte - 87
        else:
            return np.int64(-1)
        number = number * 16 + digit
    return number


@subroutine
def _skip_escape(address, position, end):
    """Return the position after the escape at a backslash; -1 if invalid or half a surrogate."""
    if position + 1 >= end:
        return np.int64(-1)
    byte = read_byte(address + position + 1)
    if byte != 117:  # u
        known = byte == 34 or byte == 92 or byte == 47 or byte == 98
        known = known or byte == 102 or byte == 110 or byte == 114 or byte == 116
        return np.int64(position + 2) if known else np.int64(-1)
    unit = _hex_digits(address, position + 2, end)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return np.int64(-1)
    if unit < 0xD800 or unit > 0xDBFF:
        return np.int64(position + 6)
    if position + 8 > end or read_byte(address + position + 6) != 92:
        return np.int64(-1)
    if read_byte(address + position + 7) != 117:
        return np.int64(-1)
    low = _hex_digits(address, position + 8, end)
    return np.int64(position + 12) if 0xDC00 <= low <= 0xDFFF else np.int64(-1)


@subroutine
def _skip_string(address, position, end):
    """Return the position of the closing quote, and whether there are escapes and other bytes.

    ``position`` is after the opening quote. The second result is 1 for an escape, plus 2 for a
    character that is not ASCII.
    """
    flags = np.int64(0)
    while position < end:
        if position + 8 <= end:
            word = read_word(address + position)
            quotes = word ^ _QUOTES
            slashes = word ^ _BACKSLASHES
            found = (quotes - _ONES) & ~quotes
            found |= (slashes - _ONES) & ~slashes
            found |= (word - _BLANKS) & ~word
            found |= word
            if found & _HIGH == 0:
                position += 8
                continue
        byte = read_byte(address + position)
        if byte == 34:
            return np.int64(position), flags
        if byte == 92:
            flags |= 1
            position = _skip_escape(address, position, end)
            if position < 0:
                return np.int64(-1), flags
        elif byte >= 0x80:
            flags |= 2
            position = _skip_utf8(address, position, end)
            if position < 0:
                return np.int64(-1), flags
        elif byte < 32:
            return np.int64(-1), flags
        else:
            position += 1
    return np.int64(-1), flags


@subroutine
def _skip_number(address, position, end):
    """Return the position after a number, and its kind; -1 if it is invalid, long or minus zero."""
    is_negative = read_byte(address + position) == 45
    if is_negative:
        position += 1
    start = position
    is_zero = True
    while position < end:
        byte = read_byte(address + position)
        if byte < 48 or byte > 57:
            break
        is_zero = is_zero and byte == 48
        position += 1
    digits = position - start
    if digits == 0 or (digits > 1 and read_byte(address + start) == 48):
        return np.int64(-1), np.int64(0)
    kind = INTEGER if digits <= MAX_INTEGER_DIGITS else DECIMAL
    if position < end and read_byte(address + position) == 46:
        position += 1
        fraction = position
        while position < end:
            byte = read_byte(address + position)
            if byte < 48 or byte > 57:
                break
            is_zero = is_zero and byte == 48
            position += 1
        if position == fraction:
            return np.int64(-1), np.int64(0)
        digits += position - fraction
        kind = DECIMAL
    if position < end and read_byte(address + position) | 32 == 101:
        position += 1
        if position < end:
            byte = read_byte(address + position)
            if byte == 43 or byte == 45:
                position += 1
        exponent = position
        while position < end:
            byte = read_byte(address + position)
            if byte < 48 or byte > 57:
                break
            position += 1
        if position == exponent or position - exponent > 3:
            return np.int64(-1), np.int64(0)
        kind = DOUBLE
    if digits > MAX_DIGITS or (is_negative and is_zero):
        return np.int64(-1), np.int64(0)
    return np.int64(position), np.int64(kind)


@subroutine
def _is_literal(address, position, end, word, length):
    """Return whether the bytes at a position are a literal, given as a little-endian number."""
    if position + length > end:
        return False
    for i in range(length):  # noqa: SIM110 - numba has no all()
        if read_byte(address + position + i) != (word >> (8 * i)) & 255:
            return False
    return True


@subroutine
def _skip_word(address, position, end):
    """Return the position after null, true or false, and the kind; -1 for anything else."""
    byte = read_byte(address + position)
    if byte == 110 and _is_literal(address, position, end, 0x6C6C756E, 4):
        return np.int64(position + 4), np.int64(NULL)
    if byte == 116 and _is_literal(address, position, end, 0x65757274, 4):
        return np.int64(position + 4), np.int64(TRUE)
    if byte == 102 and _is_literal(address, position, end, 0x65736C6166, 5):
        return np.int64(position + 5), np.int64(FALSE)
    return np.int64(-1), np.int64(0)


@subroutine
def _hash_lower(address, length, scratch):
    """Return the hash of a name with its ASCII letters in lower case."""
    for i in range(length):
        byte = read_byte(address + i)
        write_byte(scratch + i, byte + 32 if 65 <= byte <= 90 else byte)
    return hash_bytes(scratch, length)


@kernel
def hash_names(names, ends, hashes):
    """Write the hash of each of some names, which follow one another in ``names``."""
    address = names.ctypes.data
    start = np.int64(0)
    for i in range(len(ends)):
        hashes[i] = hash_bytes(address + start, ends[i] - start)
        start = ends[i]


@subroutine
def _find_member(names, ends, hashes, first, last, guess, name, length, hash):
    """Return the member of a name in a context; -1 if the context does not have it."""
    if guess >= 0:
        start = ends[guess - 1] if guess > 0 else 0
        if ends[guess] - start == length and are_equal(names + start, name, length):
            return np.int64(guess)
    if hash == 0:
        return np.int64(-2)  # the hash is needed
    for i in range(first, last):
        if hashes[i] == hash:
            start = ends[i - 1] if i > 0 else 0
            if ends[i] - start == length and are_equal(names + start, name, length):
                return np.int64(i)
    return np.int64(-1)


@kernel
def scan_objects(
    address,
    offsets,
    first_object,
    name_bytes,
    name_ends,
    name_hashes,
    lower_hashes,
    members,
    contexts,
    guesses,
    row_context,
    root_role,
    scratch_bytes,
    slots,
    rows,
    cells,
    accepted,
):
    """Scan the objects from ``first_object`` on, until there is no room for further rows.

    Args:
        address: The address of the bytes.
        offsets: The start of each object, and the end of the last one.
        first_object: The first object to scan.
        name_bytes: The names of all members of all contexts.
        name_ends: The end of each name.
        name_hashes: The hash of each name.
        lower_hashes: The hashes of the names of the row context in lower case.
        members: For each name, its slot or column, its action, the argument of the action (the
            context to enter, or the role of the row), and the member that usually follows.
        contexts: The first and last member of each context.
        guesses: The member that usually is the first of each context.
        row_context: The context of rows.
        root_role: The role of the whole object if it is itself a row, else -1.
        scratch_bytes: `MAX_NAME_BYTES` bytes.
        slots: The result for slots: [object, slot, (kind, start, end)].
        rows: The result for rows: object, role, whether another name differs from a column in case
            only, and the number of columns.
        cells: The result for cells: [row, column, (kind, start, end)].
        accepted: The result: whether each object is accepted.

    Returns:
        The number of objects that are scanned, also before ``first_object``, and of rows.
    """
    names = name_bytes.ctypes.data
    scratch = scratch_bytes.ctypes.data
    column_count = cells.shape[1]
    slot_count = slots.shape[1]
    # For each open object or array: its context, the previous member, the first of its hashes, its
    # row, where its end is recorded, and the role of its elements (-1: not an array of rows).
    context = np.empty(MAX_DEPTH, np.int64)
    expected = np.empty(MAX_DEPTH, np.int64)
    previous = np.empty(MAX_DEPTH, np.int64)
    hash_start = np.empty(MAX_DEPTH, np.int64)
    own_row = np.empty(MAX_DEPTH, np.int64)
    record = np.empty((MAX_DEPTH, 3), np.int64)
    role_of_elements = np.empty(MAX_DEPTH, np.int64)
    is_object = np.empty(MAX_DEPTH, np.bool_)
    hashes = np.empty(MAX_DEPTH * MAX_UNKNOWN, np.int64)
    row_count = 0
    object_count = len(offsets) - 1
    number = first_object
    while number < object_count:
        position = np.int64(offsets[number])
        end = np.int64(offsets[number + 1])
        first_row = row_count
        for slot in range(slot_count):
            slots[number, slot, 0] = MISSING
        depth = -1
        hash_count = 0
        is_valid = False
        # What the next value is recorded as.
        target = NOWHERE
        target_row = np.int64(0)
        target_slot = np.int64(0)
        enter = np.int64(NO_CONTEXT if root_role >= 0 else 0)
        role = np.int64(root_role)
        array_role = np.int64(-1)
        while True:
            # A value.
            while position < end and _is_blank(read_byte(address + position)):
                position += 1
            if position >= end:
                break
            byte = read_byte(address + position)
            kind = np.int64(MISSING)
            start = position
            stop = position
            if byte == 34:
                start = position + 1
                stop, flags = _skip_string(address, start, end)
                if stop < 0:
                    break
                kind = np.int64(ESCAPED if flags & 1 else STRING)
                position = stop + 1
            elif byte == 123 or byte == 91:
                kind = np.int64(OBJECT if byte == 123 else ARRAY)
                position += 1
            elif byte == 45 or 48 <= byte <= 57:
                position, kind = _skip_number(address, position, end)
                stop = position
            else:
                position, kind = _skip_word(address, position, end)
                stop = position
            if position < 0 or (depth < 0 and kind != OBJECT):
                break
            if target == IN_SLOT:
                slots[number, target_slot, 0] = kind
                slots[number, target_slot, 1] = start
                slots[number, target_slot, 2] = stop
            elif target == IN_CELL:
                cells[target_row, target_slot, 0] = kind
                cells[target_row, target_slot, 1] = start
                cells[target_row, target_slot, 2] = stop
            if depth >= 0 and role_of_elements[depth] >= 0 and kind != OBJECT:
                break  # an element that is not a row
            is_open = bool(kind >= OBJECT)
            if is_open:
                depth += 1
                if depth >= MAX_DEPTH:
                    break
                record[depth, 0] = target
                record[depth, 1] = target_row
                record[depth, 2] = target_slot
                is_object[depth] = kind == OBJECT
                role_of_elements[depth] = array_role if kind == ARRAY else -1
                hash_start[depth] = hash_count
                own_row[depth] = -1
                context[depth] = enter if kind == OBJECT else NO_CONTEXT
                if kind == OBJECT and role >= 0:
                    if row_count >= len(rows):
                        # No room. Scan this object again in the next call.
                        if first_row == 0:
                            break  # it alone has too many rows
                        return number, first_row
                    rows[row_count, 0] = number
                    rows[row_count, 1] = role
                    rows[row_count, 2] = 0
                    rows[row_count, 3] = 0
                    for column in range(column_count):
                        cells[row_count, column, 0] = MISSING
                    own_row[depth] = row_count
                    context[depth] = row_context
                    row_count += 1
                previous[depth] = -1
                expected[depth] = guesses[context[depth]] if context[depth] >= 0 else -1
                while position < end and _is_blank(read_byte(address + position)):
                    position += 1
                if position >= end:
                    break
                closing = 125 if kind == OBJECT else 93
                if read_byte(address + position) == closing:
                    is_open = False
                    position += 1
                    if record[depth, 0] == IN_SLOT:
                        slots[number, record[depth, 2], 2] = position
                    elif record[depth, 0] == IN_CELL:
                        cells[record[depth, 1], record[depth, 2], 2] = position
                    depth -= 1
            # After a value: a comma, or the end of objects and arrays.
            is_wrong = False
            while not is_open and depth >= 0:
                while position < end and _is_blank(read_byte(address + position)):
                    position += 1
                if position >= end:
                    is_wrong = True
                    break
                byte = read_byte(address + position)
                position += 1
                if byte == 44:
                    break
                if byte != (125 if is_object[depth] else 93):
                    is_wrong = True
                    break
                for i in range(hash_start[depth], hash_count):
                    for j in range(hash_start[depth], i):
                        is_wrong = is_wrong or hashes[i] == hashes[j]
                if is_wrong:
                    break
                hash_count = hash_start[depth]
                if record[depth, 0] == IN_SLOT:
                    slots[number, record[depth, 2], 2] = position
                elif record[depth, 0] == IN_CELL:
                    cells[record[depth, 1], record[depth, 2], 2] = position
                depth -= 1
            if is_wrong:
                break
            if depth < 0:
                while position < end and _is_blank(read_byte(address + position)):
                    position += 1
                is_valid = position == end
                break
            # What the next value is, and its name in an object.
            target = NOWHERE
            enter = np.int64(NO_CONTEXT)
            role = np.int64(-1)
            array_role = np.int64(-1)
            if not is_object[depth]:
                role = role_of_elements[depth]
                continue
            while position < end and _is_blank(read_byte(address + position)):
                position += 1
            if position >= end or read_byte(address + position) != 34:
                break
            position += 1
            name_end, flags = _skip_string(address, position, end)
            length = name_end - position
            if name_end < 0 or flags & 1 or length > MAX_NAME_BYTES:
                break
            own = context[depth]
            member = np.int64(-1)
            hash = np.int64(0)
            if own >= 0:
                member = _find_member(
                    names, name_ends, name_hashes, contexts[own, 0], contexts[own, 1],
                    expected[depth], address + position, length, np.int64(0),
                )  # fmt: skip
            if member < 0:
                hash = hash_bytes(address + position, length)
                if hash == 0:
                    break
                if own >= 0:
                    member = _find_member(
                        names, name_ends, name_hashes, contexts[own, 0], contexts[own, 1],
                        np.int64(-1), address + position, length, hash,
                    )  # fmt: skip
            if member < 0:
                if hash_count - hash_start[depth] >= MAX_UNKNOWN:
                    break
                hashes[hash_count] = hash
                hash_count += 1
                if own_row[depth] >= 0:
                    if flags & 2:
                        rows[own_row[depth], 2] = 1
                    else:
                        lower = _hash_lower(address + position, length, scratch)
                        for i in range(len(lower_hashes)):
                            if lower_hashes[i] == lower:
                                rows[own_row[depth], 2] = 1
            else:
                if previous[depth] >= 0:
                    members[previous[depth], NEXT] = member
                else:
                    guesses[own] = member
                previous[depth] = member
                expected[depth] = members[member, NEXT]
                target_slot = members[member, SLOT]
                if own_row[depth] >= 0:
                    target = IN_CELL
                    target_row = own_row[depth]
                    if cells[target_row, target_slot, 0] != MISSING:
                        break  # a repeated name
                    rows[target_row, 3] += 1
                else:
                    target = IN_SLOT
                    if slots[number, target_slot, 0] != MISSING:
                        break
                    action = members[member, ACTION]
                    if action == ENTER:
                        enter = members[member, ARGUMENT]
                    elif action == ROW:
                        role = members[member, ARGUMENT]
                    elif action == ROW_ARRAY:
                        array_role = members[member, ARGUMENT]
            position = name_end + 1
            while position < end and _is_blank(read_byte(address + position)):
                position += 1
            if position >= end or read_byte(address + position) != 58:
                break
            position += 1
        accepted[number] = is_valid
        if not is_valid:
            row_count = first_row
        number += 1
    return number, row_count
