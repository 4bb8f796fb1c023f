"""Values: convert the cells of JSON rows to numbers, times and bytes.

A cell is a triple of kind, start and end (`dbsp_wcoj.kernels.json.scan`). The value of column ``c``
in the result's row ``i`` is the cell of row ``tops[i]``; if that row lacks the member, it is the
cell of row ``bases[i]``. A negative number means that there is no such row.

Each kernel writes the values, whether each is not NULL, and adds to ``refused`` the rows whose cell
it does not accept. The accepted texts are the plain ones, in which a careful reader of any system
sees the same value; the caller treats the others another way.
"""

# ruff: noqa: SIM102, SIM109 - a kernel tests one condition at a time

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, kernel, subroutine
from dbsp_wcoj.kernels.json.scan import (
    DECIMAL,
    DOUBLE,
    ESCAPED,
    FALSE,
    INTEGER,
    MISSING,
    NULL,
    STRING,
    TRUE,
)
from dbsp_wcoj.kernels.values.bytes import are_equal, copy_bytes, read_byte, write_byte

__all__ = [
    "AS_BASE64",
    "AS_EITHER",
    "AS_TEXT",
    "REFUSED",
    "compare_cells",
    "copy_texts",
    "decode_base64",
    "decode_hex",
    "decode_latin1",
    "group_texts",
    "measure_texts",
    "read_booleans",
    "read_decimals",
    "read_floats",
    "read_integers",
    "read_times",
]

#: How a number in a string is encoded: digits, the base64 of its bytes, either, or not accepted.
AS_TEXT, AS_BASE64, AS_EITHER, REFUSED = range(4)

MAX_EXACT_DIGITS = 15  # of a float64 whose digits and power of ten are both exact
POWERS = 10.0 ** np.arange(23)
LONG_DIGITS = 18  # digits of a number that always fits int64
MAX_INT64 = 2**63 - 1


@inline_subroutine
def _cell_row(cells, column, tops, bases, i):
    """Return the row that has the cell of the result's row ``i``; -1 if no row has it."""
    top = tops[i]
    if top >= 0 and cells[top, column, 0] != MISSING:
        return top
    base = bases[i]
    if base >= 0 and cells[base, column, 0] != MISSING:
        return base
    return np.int64(-1)


@kernel
def read_booleans(address, cells, column, tops, bases, values, is_valid, refused):
    """Read true, false, 0 and 1, also in strings."""
    for i in range(len(tops)):
        row = _cell_row(cells, column, tops, bases, i)
        values[i] = False
        is_valid[i] = False
        if row < 0 or cells[row, column, 0] == NULL:
            continue
        kind = cells[row, column, 0]
        start = np.int64(cells[row, column, 1])
        length = cells[row, column, 2] - start
        is_valid[i] = True
        if kind == TRUE:
            values[i] = True
        elif kind == FALSE:
            pass
        elif (kind == INTEGER or kind == STRING) and length == 1:
            byte = read_byte(address + start)
            values[i] = byte == 49
            refused[i] = refused[i] or (byte != 48 and byte != 49)
        elif kind == STRING and length == 4:  # "true"
            values[i] = True
            refused[i] = refused[i] or not (
                read_byte(address + start) == 116
                and read_byte(address + start + 1) == 114
                and read_byte(address + start + 2) == 117
                and read_byte(address + start + 3) == 101
            )
        elif kind == STRING and length == 5:  # "false"
            refused[i] = refused[i] or not (
                read_byte(address + start) == 102
                and read_byte(address + start + 1) == 97
                and read_byte(address + start + 2) == 108
                and read_byte(address + start + 3) == 115
                and read_byte(address + start + 4) == 101
            )
        else:
            refused[i] = True


@subroutine
def _read_digits(address, length):
    """Return a number of up to 19 digits and whether it is one that fits int64."""
    position = np.int64(0)
    is_negative = length > 0 and read_byte(address) == 45
    if is_negative:
        position += 1
    digits = length - position
    if digits == 0 or digits > LONG_DIGITS + 1:
        return np.int64(0), False
    number = np.int64(0)
    for i in range(position, length):
        digit = read_byte(address + i) - 48
        if digit < 0 or digit > 9:
            return np.int64(0), False
        if i - position == LONG_DIGITS:
            if number > MAX_INT64 // 10 or (number == MAX_INT64 // 10 and digit > 7):
                return np.int64(0), False
        number = number * 10 + digit
    return (-number if is_negative else number), True


@kernel
def read_integers(
    address, cells, column, tops, bases, encoding, low, high, values, is_valid, refused
):
    """Read integers from ``low`` to ``high``; ``encoding`` is that of a number in a string."""
    for i in range(len(tops)):
        row = _cell_row(cells, column, tops, bases, i)
        values[i] = 0
        is_valid[i] = False
        if row < 0 or cells[row, column, 0] == NULL:
            continue
        kind = cells[row, column, 0]
        start = np.int64(cells[row, column, 1])
        length = np.int64(cells[row, column, 2]) - start
        is_valid[i] = True
        if kind != INTEGER and (kind != STRING or encoding == AS_BASE64 or encoding == REFUSED):
            refused[i] = True
            continue
        number, is_number = _read_digits(address + start, length)
        if kind == STRING and encoding == AS_EITHER and number >= 0 and length % 4 == 0:
            is_number = False  # also the base64 of another number
        if is_number and low <= number <= high:
            values[i] = number
        else:
            refused[i] = True


@inline_subroutine
def _sextet(byte):
    """Return the six bits of a character of base64; -1 for any other."""
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if 48 <= byte <= 57:
        return byte + 4
    if byte == 43:
        return np.int64(62)
    if byte == 47:
        return np.int64(63)
    return np.int64(-1)


@subroutine
def _write_base64(address, length, target):
    """Decode base64 with padding; return the number of bytes, -1 if it is invalid."""
    if length % 4 != 0:
        return np.int64(-1)
    padding = np.int64(0)
    while padding < 2 and padding < length and read_byte(address + length - 1 - padding) == 61:
        padding += 1
    written = np.int64(0)
    for i in range(0, length, 4):
        word = np.int64(0)
        used = 4 - padding if i + 4 == length else 4
        for j in range(4):
            bits = _sextet(read_byte(address + i + j)) if j < used else np.int64(0)
            if bits < 0:
                return np.int64(-1)
            word = (word << 6) | bits
        if used < 4 and word & ((1 << (8 * (4 - used))) - 1) != 0:
            return np.int64(-1)  # bits after the last byte
        for j in range(used - 1):
            write_byte(target + written, (word >> (16 - 8 * j)) & 255)
            written += 1
    return written


@subroutine
def _low_product(low):
    """Return ten times an unsigned number of 64 bits: the low word, and the carry."""
    a = (low & np.uint64(0xFFFFFFFF)) * np.uint64(10)
    b = (low >> np.uint64(32)) * np.uint64(10) + (a >> np.uint64(32))
    return (b << np.uint64(32)) | (a & np.uint64(0xFFFFFFFF)), b >> np.uint64(32)


@subroutine
def _read_decimal(address, length, precision, scale, words, i):
    """Write the unscaled integer of a decimal number; return whether it is exact and fits."""
    position = np.int64(0)
    is_negative = length > 0 and read_byte(address) == 45
    if is_negative:
        position += 1
    whole = np.int64(0)  # digits before the point, without leading zeros
    fraction = np.int64(-1)  # digits after the point; -1 before it
    zeros = np.int64(0)  # at the end of the fraction, not yet written
    digits = np.int64(0)
    low = np.uint64(0)
    high = np.uint64(0)
    while position < length:
        byte = read_byte(address + position)
        position += 1
        if byte == 46 and fraction < 0:
            if digits == 0:
                return False
            fraction = np.int64(0)
            continue
        digit = byte - 48
        if digit < 0 or digit > 9:
            return False
        digits += 1
        pending = np.int64(1)
        if fraction >= 0:
            if digit == 0:
                zeros += 1
                continue
            pending += zeros
            fraction += pending
            zeros = np.int64(0)
            if fraction > scale:
                return False
        else:
            if whole > 0 or digit > 0:
                whole += 1
            if whole > precision - scale:
                return False
        for _ in range(pending):
            low, carry = _low_product(low)
            high = high * np.uint64(10) + carry
        low += np.uint64(digit)
        if low < np.uint64(digit):
            high += np.uint64(1)
    if digits == 0 or (fraction == 0 and zeros == 0):
        return False
    for _ in range(scale - max(fraction, 0)):
        low, carry = _low_product(low)
        high = high * np.uint64(10) + carry
    if is_negative:
        low = ~low + np.uint64(1)
        high = ~high + (np.uint64(1) if low == np.uint64(0) else np.uint64(0))
    words[i, 0] = np.int64(low)
    words[i, 1] = np.int64(high)
    return True


@subroutine
def _looks_like_number(address, length):
    """Return whether a text has only the characters of numbers."""
    for i in range(length):
        byte = read_byte(address + i)
        is_number = 48 <= byte <= 57 or byte == 43 or byte == 45 or byte == 46
        if not is_number and byte | 32 != 101:
            return False
    return True


@subroutine
def _read_unscaled(address, length, scratch, words, i):
    """Write the integer whose bytes are in base64; return whether it is one of 128 bits."""
    if length == 0 or length > 24:
        return False
    size = _write_base64(address, length, scratch)
    if size < 1 or size > 16:
        return False
    is_negative = read_byte(scratch) >= 128
    low = ~np.uint64(0) if is_negative else np.uint64(0)
    high = low
    for j in range(size):
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(read_byte(scratch + j))
    words[i, 0] = np.int64(low)
    words[i, 1] = np.int64(high)
    return True


@kernel
def read_decimals(
    address,
    cells,
    column,
    tops,
    bases,
    encoding,
    precision,
    scale,
    limits,
    scratch_bytes,
    words,
    is_valid,
    refused,
):
    """Read decimals as integers of 128 bits, in units of ``10**-scale``.

    A number in base64 has this scale. It is refused if it is not less than the limit of the
    precision, the words of ``limits``. ``scratch_bytes`` has room for 24 bytes.
    """
    scratch = scratch_bytes.ctypes.data
    for i in range(len(tops)):
        row = _cell_row(cells, column, tops, bases, i)
        words[i, 0] = 0
        words[i, 1] = 0
        is_valid[i] = False
        if row < 0 or cells[row, column, 0] == NULL:
            continue
        kind = cells[row, column, 0]
        start = np.int64(cells[row, column, 1])
        length = np.int64(cells[row, column, 2]) - start
        is_valid[i] = True
        is_text = kind == STRING and encoding != REFUSED
        if kind != INTEGER and kind != DECIMAL and not is_text:
            refused[i] = True
            continue
        is_bytes = kind == STRING and encoding == AS_BASE64
        if kind == STRING and encoding == AS_EITHER:
            is_bytes = not _looks_like_number(address + start, length)
            if not is_bytes and length % 4 == 0:
                first = read_byte(address + start)
                is_plain = first == 45
                for j in range(length):
                    is_plain = is_plain or read_byte(address + start + j) == 46
                if not is_plain:
                    refused[i] = True
                    continue
        if is_bytes:
            is_number = _read_unscaled(address + start, length, scratch, words, i)
            if is_number:
                low = np.uint64(words[i, 0])
                high = np.uint64(words[i, 1])
                if words[i, 1] < 0:
                    low = ~low + np.uint64(1)
                    high = ~high + (np.uint64(1) if low == np.uint64(0) else np.uint64(0))
                most = np.uint64(limits[1])
                least = np.uint64(limits[0])
                is_number = high < most or (high == most and low < least)
        else:
            is_number = _read_decimal(address + start, length, precision, scale, words, i)
        if not is_number:
            refused[i] = True


@kernel
def read_floats(
    address, cells, column, tops, bases, with_exponents, values, is_valid, is_long, refused
):
    """Read numbers of few digits exactly; the texts of those in ``is_long`` need a parser."""
    for i in range(len(tops)):
        row = _cell_row(cells, column, tops, bases, i)
        values[i] = 0.0
        is_valid[i] = False
        is_long[i] = False
        if row < 0 or cells[row, column, 0] == NULL:
            continue
        kind = cells[row, column, 0]
        start = np.int64(cells[row, column, 1])
        length = np.int64(cells[row, column, 2]) - start
        is_valid[i] = True
        if kind == DOUBLE and with_exponents:
            is_long[i] = True
            continue
        if kind != INTEGER and kind != DECIMAL and kind != STRING:
            refused[i] = True
            continue
        position = np.int64(0)
        is_negative = length > 0 and read_byte(address + start) == 45
        if is_negative:
            position += 1
        number = np.int64(0)
        digits = np.int64(0)
        point = np.int64(-1)
        is_number = True
        first = position
        while position < length:
            byte = read_byte(address + start + position)
            if byte == 46 and point < 0 and position > first:
                point = position
            elif 48 <= byte <= 57:
                if digits > 0 or byte > 48:
                    digits += 1
                if digits <= MAX_EXACT_DIGITS:
                    number = number * 10 + (byte - 48)
            else:
                is_number = False
                break
            position += 1
        is_whole = length > first and point != length - 1
        if not is_number or not is_whole or (is_negative and number == 0):
            refused[i] = True
            continue
        power = length - 1 - point if point >= 0 else np.int64(0)
        if digits > MAX_EXACT_DIGITS or power > 22:
            is_long[i] = True
            continue
        value = np.float64(number) / POWERS[power]
        values[i] = -value if is_negative else value


@inline_subroutine
def _two_digits(address):
    """Return the number of two digits; a negative number if they are none."""
    a = read_byte(address) - 48
    b = read_byte(address + 1) - 48
    if a < 0 or a > 9 or b < 0 or b > 9:
        return np.int64(-1)
    return a * 10 + b


@subroutine
def _read_day(address):
    """Return the day since 1970 of a date of the form YYYY-MM-DD, and whether it is valid."""
    century = _two_digits(address)
    years = _two_digits(address + 2)
    month = _two_digits(address + 5)
    day = _two_digits(address + 8)
    if read_byte(address + 4) != 45 or read_byte(address + 7) != 45:
        return np.int64(0), False
    if century < 0 or years < 0 or month < 1 or month > 12 or day < 1:
        return np.int64(0), False
    year = century * 100 + years
    if year < 1:
        return np.int64(0), False
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = 31
    if month == 2:
        length = 29 if is_leap else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        length = 30
    if day > length:
        return np.int64(0), False
    # Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil.
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return np.int64(era * 146097 + day_of_era - 719468), True


@subroutine
def _read_clock(address, length, max_fraction):
    """Return the nanoseconds of HH:MM:SS[.fraction], its length, and whether it is valid."""
    if length < 8 or read_byte(address + 2) != 58 or read_byte(address + 5) != 58:
        return np.int64(0), np.int64(0), False
    hour = _two_digits(address)
    minute = _two_digits(address + 3)
    second = _two_digits(address + 6)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return np.int64(0), np.int64(0), False
    nanoseconds = np.int64(((hour * 60 + minute) * 60 + second) * 1_000_000_000)
    position = np.int64(8)
    if length > 8 and read_byte(address + 8) == 46:
        position += 1
        unit = np.int64(100_000_000)
        digits = np.int64(0)
        while position < length and digits < max_fraction:
            digit = read_byte(address + position) - 48
            if digit < 0 or digit > 9:
                break
            nanoseconds += digit * unit
            unit //= 10
            digits += 1
            position += 1
        if digits == 0:
            return np.int64(0), np.int64(0), False
    return nanoseconds, position, True


@subroutine
def _read_zone(address, length):
    """Return the seconds of Z, +HH:MM or nothing, and whether it is valid."""
    if length == 0:
        return np.int64(0), True
    if length == 1:
        return np.int64(0), read_byte(address) == 90
    sign = read_byte(address)
    if length != 6 or (sign != 43 and sign != 45) or read_byte(address + 3) != 58:
        return np.int64(0), False
    hour = _two_digits(address + 1)
    minute = _two_digits(address + 4)
    if hour < 0 or hour > 17 or minute < 0 or minute > 59:
        return np.int64(0), False
    seconds = (hour * 60 + minute) * 60
    return np.int64(-seconds if sign == 45 else seconds), True


@kernel
def read_times(
    address, cells, column, tops, bases, form, unit, tick, with_zone, values, is_valid, refused
):
    """Read days, times of day or timestamps, as a number of ticks.

    - ``form`` is 0 for a date in days, 1 for a timestamp, 2 for a time of day, 3 for a duration;
    - ``unit`` is the nanoseconds (for a date, days) per unit of a number; 0 refuses numbers;
    - ``tick`` is the nanoseconds per tick (for a date, 1);
    - ``with_zone`` is 0 if a text has no zone, 1 if it must have one, 2 if a missing one is UTC.
    """
    for i in range(len(tops)):
        row = _cell_row(cells, column, tops, bases, i)
        values[i] = 0
        is_valid[i] = False
        if row < 0 or cells[row, column, 0] == NULL:
            continue
        kind = cells[row, column, 0]
        start = address + np.int64(cells[row, column, 1])
        length = np.int64(cells[row, column, 2]) - np.int64(cells[row, column, 1])
        is_valid[i] = True
        is_time = False
        ticks = np.int64(0)
        if kind == INTEGER and unit > 0:
            number, is_time = _read_digits(start, length)
            if unit >= tick:
                factor = unit // tick
                is_time = is_time and abs(number) < MAX_INT64 // 2 // factor
                ticks = number * factor if is_time else np.int64(0)
            else:
                ticks = number // (tick // unit)
                is_time = is_time and bool(ticks * (tick // unit) == number)
            if form == 0:
                is_time = is_time and bool(abs(ticks) < 2_000_000)
            elif form == 1:  # up to the year 9000
                is_time = is_time and bool(abs(ticks) // (1_000_000_000 // tick) < 220_000_000_000)
            elif form == 2:
                is_time = is_time and 0 <= ticks < 86_400 * (1_000_000_000 // tick)
        elif kind == STRING and form == 0:
            if length == 10:
                ticks, is_time = _read_day(start)
        elif kind == STRING and form >= 2:
            nanoseconds, size, is_time = _read_clock(start, length, 9)
            ticks = nanoseconds // tick
            is_time = is_time and size == length and ticks * tick == nanoseconds
        elif kind == STRING and length >= 10:
            day, is_time = _read_day(start)
            # The range of nanoseconds is from 1677 to 2262.
            is_time = is_time and (tick > 1 or abs(day) < 100_000)
            nanoseconds = np.int64(0)
            size = np.int64(10)
            if is_time and length > 10:
                separator = read_byte(start + 10)
                nanoseconds, size, is_time = _read_clock(start + 11, length - 11, 6)
                size += 11
                is_time = is_time and (separator == 84 or separator == 32)
            if is_time:
                seconds, is_time = _read_zone(start + size, length - size)
                has_zone = length > size
                if (has_zone and with_zone == 0) or (not has_zone and with_zone == 1):
                    is_time = False
                if has_zone and size == 10:
                    is_time = False
                fraction = nanoseconds // tick
                is_time = is_time and fraction * tick == nanoseconds
                ticks = (day * 86_400 - seconds) * (1_000_000_000 // tick) + fraction
        if is_time:
            values[i] = ticks
        else:
            refused[i] = True


@kernel
def measure_texts(
    address, cells, column, tops, bases, form, hidden, hidden_ends, ends, is_valid, refused
):
    """Measure the texts of cells; return whether a text has escapes.

    Strings are accepted in the form 0; in the form 1 also other values that are their own texts,
    and in the form 2 also numbers with an exponent. A string of the texts ``hidden`` is refused.
    ``ends`` gets the end of each text in the copy of all texts.
    """
    hidden_address = hidden.ctypes.data
    end = np.int64(0)
    has_escapes = False
    ends[0] = 0
    for i in range(len(tops)):
        row = _cell_row(cells, column, tops, bases, i)
        is_valid[i] = False
        if row >= 0 and cells[row, column, 0] != NULL:
            kind = cells[row, column, 0]
            start = np.int64(cells[row, column, 1])
            length = np.int64(cells[row, column, 2]) - start
            is_valid[i] = True
            if kind == STRING or kind == ESCAPED:
                has_escapes = has_escapes or kind == ESCAPED
                first = np.int64(0)
                for j in range(len(hidden_ends)):
                    if hidden_ends[j] - first == length:
                        if are_equal(hidden_address + first, address + start, length):
                            refused[i] = True
                    first = hidden_ends[j]
                end += length
            elif form == 0:
                refused[i] = True
            elif (
                kind == INTEGER
                or kind == TRUE
                or kind == FALSE
                or (
                    kind == DECIMAL and (form == 2 or read_byte(address + start + length - 1) != 48)
                )
                or (kind == DOUBLE and form == 2)
            ):
                end += length
            else:
                refused[i] = True
        ends[i + 1] = end
    return has_escapes


@subroutine
def _hex_digit(address):
    byte = read_byte(address)
    return byte - 48 if byte <= 57 else (byte | 32) - 87


@subroutine
def _unit(address):
    """Return the UTF-16 code unit of the escape at a backslash."""
    number = np.int64(0)
    for i in range(2, 6):
        number = number * 16 + _hex_digit(address + i)
    return number


@subroutine
def _write_utf8(target, character):
    """Write a character; return the number of its bytes."""
    if character < 0x80:
        write_byte(target, character)
        return np.int64(1)
    if character < 0x800:
        write_byte(target, 0xC0 | (character >> 6))
        write_byte(target + 1, 0x80 | (character & 63))
        return np.int64(2)
    if character < 0x10000:
        write_byte(target, 0xE0 | (character >> 12))
        write_byte(target + 1, 0x80 | ((character >> 6) & 63))
        write_byte(target + 2, 0x80 | (character & 63))
        return np.int64(3)
    write_byte(target, 0xF0 | (character >> 18))
    write_byte(target + 1, 0x80 | ((character >> 12) & 63))
    write_byte(target + 2, 0x80 | ((character >> 6) & 63))
    write_byte(target + 3, 0x80 | (character & 63))
    return np.int64(4)


@subroutine
def _unescape(source, length, target):
    """Copy a string and replace its escapes; return the number of bytes that are written."""
    position = np.int64(0)
    written = np.int64(0)
    while position < length:
        byte = read_byte(source + position)
        if byte != 92:
            write_byte(target + written, byte)
            position += 1
            written += 1
            continue
        letter = read_byte(source + position + 1)
        if letter == 117:
            character = _unit(source + position)
            position += 6
            if 0xD800 <= character <= 0xDBFF:
                low = _unit(source + position)
                character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00)
                position += 6
            written += _write_utf8(target + written, character)
            continue
        if letter == 98:
            letter = np.int64(8)
        elif letter == 102:
            letter = np.int64(12)
        elif letter == 110:
            letter = np.int64(10)
        elif letter == 114:
            letter = np.int64(13)
        elif letter == 116:
            letter = np.int64(9)
        write_byte(target + written, letter)
        position += 2
        written += 1
    return written


@kernel
def copy_texts(address, cells, column, tops, bases, is_valid, refused, ends, target):
    """Copy the texts of `measure_texts` without their escapes; ``ends`` becomes exact."""
    target_address = target.ctypes.data
    end = np.int64(0)
    for i in range(len(tops)):
        if is_valid[i] and not refused[i]:
            row = _cell_row(cells, column, tops, bases, i)
            start = np.int64(cells[row, column, 1])
            length = np.int64(cells[row, column, 2]) - start
            if cells[row, column, 0] == ESCAPED:
                length = _unescape(address + start, length, target_address + end)
            else:
                copy_bytes(address + start, target_address + end, length)
            end += length
        ends[i + 1] = end
    return end


@kernel
def decode_base64(texts, ends, is_valid, decoded, decoded_ends, refused):
    """Decode base64; a text that is not padded base64 is refused. Return the number of bytes."""
    address = texts.ctypes.data
    target = decoded.ctypes.data
    end = np.int64(0)
    for i in range(len(is_valid)):
        if is_valid[i] and not refused[i]:
            start = np.int64(ends[i])
            size = _write_base64(address + start, np.int64(ends[i + 1]) - start, target + end)
            if size < 0:
                refused[i] = True
            else:
                end += size
        decoded_ends[i + 1] = end
    return end


@kernel
def decode_hex(texts, ends, is_valid, decoded, decoded_ends, refused):
    """Decode pairs of hexadecimal digits; return the number of bytes."""
    address = texts.ctypes.data
    end = np.int64(0)
    for i in range(len(is_valid)):
        if is_valid[i] and not refused[i]:
            first = end
            length = np.int64(ends[i + 1]) - np.int64(ends[i])
            for j in range(0, length - 1, 2):
                high = _hex_value(read_byte(address + np.int64(ends[i]) + j))
                low = _hex_value(read_byte(address + np.int64(ends[i]) + j + 1))
                refused[i] = refused[i] or high < 0 or low < 0
                decoded[end] = (high * 16 + low) & 255
                end += 1
            if length % 2 != 0 or refused[i]:
                refused[i] = True
                end = first
        decoded_ends[i + 1] = end
    return end


@inline_subroutine
def _hex_value(byte):
    """Return the value of a hexadecimal digit; -1 for any other character."""
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte | 32 <= 102:
        return (byte | 32) - 87
    return np.int64(-1)


@kernel
def decode_latin1(texts, ends, is_valid, decoded, decoded_ends, refused):
    """Encode the characters up to U+00FF as one byte each; return the number of bytes."""
    address = texts.ctypes.data
    end = np.int64(0)
    for i in range(len(is_valid)):
        if is_valid[i] and not refused[i]:
            first = end
            position = np.int64(ends[i])
            while position < ends[i + 1]:
                byte = read_byte(address + position)
                position += 1
                if byte >= 0x80:
                    if byte != 0xC2 and byte != 0xC3:
                        refused[i] = True
                        end = first
                        break
                    byte = ((byte & 3) << 6) | (read_byte(address + position) & 63)
                    position += 1
                decoded[end] = byte
                end += 1
        decoded_ends[i + 1] = end
    return end


@kernel
def compare_cells(address, cells, columns, tops, bases, others, differs, refused):
    """Find the rows whose cells differ from those of ``others`` in one of the columns.

    Only integers and strings without escapes are compared; other values that differ are refused.
    """
    for i in range(len(tops)):
        differs[i] = False
        for column in columns:
            row = _cell_row(cells, column, tops, bases, i)
            other = others[i]
            own_kind = cells[row, column, 0] if row >= 0 else MISSING
            other_kind = cells[other, column, 0] if other >= 0 else MISSING
            if own_kind <= NULL and other_kind <= NULL:
                continue
            start = np.int64(cells[row, column, 1])
            other_start = np.int64(cells[other, column, 1])
            length = np.int64(cells[row, column, 2]) - start
            other_length = np.int64(cells[other, column, 2]) - other_start
            if own_kind == other_kind and length == other_length:
                if are_equal(address + start, address + other_start, length):
                    continue
            differs[i] = True
            is_plain = own_kind == other_kind and (own_kind == INTEGER or own_kind == STRING)
            refused[i] = refused[i] or not is_plain


@kernel
def group_texts(address, slots, chosen, is_chosen, firsts, groups):
    """Group objects by the texts of some slots; return the number of groups.

    Args:
        address: The address of the objects.
        slots: The slots, [object, slot, (kind, start, end)].
        chosen: The slots to group by.
        is_chosen: The objects to group.
        firsts: The result: the first object of each group.
        groups: The result: the group of each object; -1 if it is not chosen, or if there are more
            groups than ``firsts`` has room for.
    """
    count = 0
    last = 0
    for number in range(len(groups)):
        groups[number] = -1
        if not is_chosen[number]:
            continue
        for step in range(count + 1):
            group = (last + step) % (count + 1)
            if group == count:
                continue
            is_same = True
            for slot in chosen:
                other = slots[firsts[group], slot]
                own = slots[number, slot]
                if own[0] <= NULL and other[0] <= NULL:
                    continue
                length = np.int64(own[2] - own[1])
                if own[0] != other[0] or length != other[2] - other[1]:
                    is_same = False
                    break
                if not are_equal(address + np.int64(own[1]), address + np.int64(other[1]), length):
                    is_same = False
                    break
            if is_same:
                groups[number] = group
                last = group
                break
        if groups[number] < 0 and count < len(firsts):
            firsts[count] = number
            groups[number] = count
            last = count
            count += 1
    return count
