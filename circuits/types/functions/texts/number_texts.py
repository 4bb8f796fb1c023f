"""Numbers as texts: digits in a base, amounts of bytes, bars, and templates with ``{}``.

The results are those of DuckDB. Cost: one call of Python per distinct row of arguments.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.length_limits import MAX_STRING_BYTES
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS", "count_values"]

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BINARY_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL_UNITS: Final = ("kB", "MB", "GB", "TB", "PB", "EB")
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_MAX_WIDTH: Final = 1000


def _to_base(number: int, base: int, width: int = 0) -> str:
    if number < 0:
        raise ValueError(f"to_base() of the negative number {number}")
    if not 2 <= base <= 36:
        raise ValueError(f"base {base} is not between 2 and 36")
    if not 0 <= width <= 64:
        raise ValueError(f"a width of {width} digits is not between 0 and 64")
    digits: list[str] = []
    while number or not digits:
        number, digit = divmod(number, base)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).rjust(width, "0")


def _write_bytes(number: int, factor: int, units: tuple[str, ...]) -> str:
    """Return an amount with one digit after the point, cut off."""
    sign, amount = ("-", -number) if number < 0 else ("", number)
    if amount < factor:
        return f"{sign}{amount} {'byte' if amount == 1 else 'bytes'}"
    power = 1
    while power < len(units) and amount >= factor ** (power + 1):
        power += 1
    tenths = amount * 10 // factor**power
    return f"{sign}{tenths // 10}.{tenths % 10} {units[power - 1]}"


def _binary_bytes(number: int) -> str:
    return _write_bytes(number, 1024, _BINARY_UNITS)


def _decimal_bytes(number: int) -> str:
    return _write_bytes(number, 1000, _DECIMAL_UNITS)


def _bar(value: float, low: float, high: float, width: float = 80.0) -> str:
    """Return a bar of ``width`` characters, of which (value - low) / (high - low) are filled."""
    if not 1 <= width <= _MAX_WIDTH:
        raise ValueError(f"a bar of {width} characters; it has 1 to {_MAX_WIDTH}")
    if math.isnan(value) or math.isnan(low) or math.isnan(high) or value <= low:
        filled = 0.0
    elif value >= high:
        filled = width
    else:
        filled = width * (value - low) / (high - low)
    whole = int(filled)
    bar = "█" * whole
    if whole < int(width):
        bar += _EIGHTHS[int((filled - whole) * 8)]
    return bar.ljust(int(width))


# A field of a template, such as {}, {1} or {:>8.2f}; or a brace that stands for itself.
_FIELD: Final = re.compile(r"\{\{|\}\}|\{(\d*)(?::([^{}]*))?\}|[{}]")
# The options of a field: those of ``format()`` of Python, and ``t`` with a character by which
# thousands are separated, such as ``t.``.
_OPTIONS: Final = re.compile(
    r"(?:.?[<>^=])?[-+ ]?#?0?(?P<width>\d*)(?:[,_]|(?P<separator>t.))?(?:\.(?P<digits>\d+))?"
    r"[bdeEfFgGosxX]?"
)


def _format_value(value: Any, options: str) -> str:
    """Write a value as ``format()`` of DuckDB does."""
    match = _OPTIONS.fullmatch(options)
    if match is None:
        raise ValueError(f"unknown option {options!r} of a format")
    if max(int(match["width"] or 0), int(match["digits"] or 0)) > MAX_STRING_BYTES:
        raise ValueError(
            f"the format {options!r} makes a text of more than {MAX_STRING_BYTES:,} bytes"
        )
    if isinstance(value, bool) and not options:
        return "true" if value else "false"
    if match["separator"] is None:
        return format(value, options)
    start, end = match.span("separator")
    separated = format(value, f"{options[:start]},{options[end:]}")
    return separated.replace(",", match["separator"][1])


def count_values(template: str) -> int:
    """Return the number of values that the fields of a template need.

    Raises:
        ValueError: A field has unknown options, or a brace is not written twice.

    >>> count_values("{} {{}} {2:>5}")
    3
    """
    value_count, next_index = 0, 0
    for match in _FIELD.finditer(template):
        if match[0] in ("{{", "}}"):
            continue
        if match[0] in ("{", "}"):
            raise ValueError(f"{template!r} has a single brace; write it twice")
        if _OPTIONS.fullmatch(match[2] or "") is None:
            raise ValueError(f"unknown option {match[2]!r} of a format")
        index = int(match[1]) if match[1] else next_index
        next_index += not match[1]
        value_count = max(value_count, index + 1)
    return value_count


def _format_template(template: str, *values: Any) -> str:
    """Write values into the fields of a template."""
    parts: list[str] = []
    position, next_index = 0, 0
    for match in _FIELD.finditer(template):
        parts.append(template[position : match.start()])
        position = match.end()
        if match[0] in ("{{", "}}"):
            parts.append(match[0][0])
            continue
        if match[0] in ("{", "}"):
            raise ValueError(f"{template!r} has a single brace; write it twice")
        index = int(match[1]) if match[1] else next_index
        next_index += not match[1]
        if index >= len(values):
            raise ValueError(
                f"{template!r} has a field {index}, but there are {len(values)} values"
            )
        parts.append(_format_value(values[index], match[2] or ""))
    return "".join(parts) + template[position:]


# In a signature, f is a float, i an integer, t a text and v any value; parameters after | are
# optional, and * repeats the last one.
FUNCTIONS = (
    Function(
        "format_template",
        "the text a with the values b, c, ... in place of its fields {}",
        Signature("t|v*", pa.string()),
        per_distinct_row(_format_template),
    ),
    Function(
        "to_base",
        "the number a with digits of base b, at least c of them",
        Signature("ii|i", pa.string()),
        per_distinct_row(_to_base),
    ),
    Function(
        "format_bytes",
        "a number of bytes with a unit of powers of 1,024",
        Signature("i", pa.string()),
        per_distinct_row(_binary_bytes),
    ),
    Function(
        "format_decimal_bytes",
        "a number of bytes with a unit of powers of 1,000",
        Signature("i", pa.string()),
        per_distinct_row(_decimal_bytes),
    ),
    Function(
        "bar",
        "a bar of d characters (default 80), filled as far as a is on the way from b to c",
        Signature("fff|f", pa.string()),
        per_distinct_row(_bar),
    ),
)
