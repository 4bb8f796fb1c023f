"""Patterns of dates and times, of Java (Spark) or of C (DuckDB), as lists of fields.

::

    java_format("d.MM.")   day (1 digit or more), ".", month (2 digits), "."
    c_format("%-d.%m.")    the same

`circuits.types.functions.dates.date_formats` formats by these lists, and
`circuits.types.functions.dates.date_parsing` parses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

__all__ = ["DAYS", "MONTHS", "FormatField", "c_format", "java_format"]

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class FormatField:
    """A part of a format: a field of the timestamp, a literal text, or a bracket.

    Attributes:
        name: The name of the field, such as ``year``; ``literal`` for a literal text. A text to
            parse may lack the parts between ``section_start`` and the next ``section_end``.
        width: For a number, the least number of digits. For a zone or a quarter in a pattern of
            Java, how often its letter is repeated. Other fields do not use it.
        text: The literal text; empty for a field and for a bracket.
    """

    name: str
    width: int = 0
    text: str = ""

    @property
    def is_literal(self) -> bool:
        """True for a literal text, and for a bracket, which has an empty text."""
        return self.name in ("literal", "section_start", "section_end")


def _literal(text: str) -> FormatField:
    return FormatField("literal", text=text)


def _java_field(letter: str, count: int, pattern: str) -> FormatField:
    """Return the field of a letter that is repeated ``count`` times."""
    match letter:
        case "y" | "u":
            return FormatField("year2", 2) if count == 2 else FormatField("year", count)
        case "M" | "L":
            return FormatField(
                ("month", "month", "month_short", "month_name")[min(count, 4) - 1], count
            )
        case "E":
            return FormatField("day_name" if count == 4 else "day_short")
        case "S":
            return FormatField("fraction", count)
        case "X" | "x" | "Z" | "V" | "z" | "O":
            return FormatField(f"zone{letter}", count)
        case "G":
            return FormatField("era_name" if count == 4 else "era")
        case _ if letter in _FIELD_OF_JAVA_LETTER:
            return FormatField(_FIELD_OF_JAVA_LETTER[letter], count)
    raise ValueError(f"the letter {letter!r} in the date format {pattern!r} is not supported")


_FIELD_OF_JAVA_LETTER: Final = {
    "d": "day",
    "D": "day_of_year",
    "H": "hour",
    "h": "hour12",
    "K": "hour0_11",
    "k": "hour1_24",
    "m": "minute",
    "s": "second",
    "a": "am_pm",
    "q": "quarter",
    "Q": "quarter",
    "F": "day_of_aligned_week",
}


@lru_cache(maxsize=256)
def java_format(pattern: str) -> tuple[FormatField, ...]:
    """Return the fields of a pattern of Java's DateTimeFormatter.

    Raises:
        ValueError: The pattern is not valid, or has a letter that is not supported.
    """
    fields: list[FormatField] = []
    index = open_sections = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "'":
            end = pattern.find("'", index + 1)
            if end < 0:
                raise ValueError(f"the quote in the date format {pattern!r} is not closed")
            fields.append(_literal(pattern[index + 1 : end] or "'"))
            index = end + 1
        elif character in "[]":
            open_sections += 1 if character == "[" else -1
            if open_sections < 0:
                raise ValueError(f"the date format {pattern!r} has a ] without a [ before it")
            fields.append(FormatField("section_start" if character == "[" else "section_end"))
            index += 1
        elif character.isascii() and character.isalpha():
            end = index
            while end < len(pattern) and pattern[end] == character:
                end += 1
            fields.append(_java_field(character, end - index, pattern))
            index = end
        else:
            fields.append(_literal(character))
            index += 1
    # As in Java, a bracket that is not closed encloses the rest of the pattern.
    return (*fields, *[FormatField("section_end")] * open_sections)


_FIELD_OF_C_LETTER: Final = {
    "Y": FormatField("year", 4),
    "y": FormatField("year2", 2),
    "m": FormatField("month", 2),
    "-m": FormatField("month", 1),
    "b": FormatField("month_short"),
    "B": FormatField("month_name"),
    "d": FormatField("day", 2),
    "-d": FormatField("day", 1),
    "j": FormatField("day_of_year", 3),
    "-j": FormatField("day_of_year", 1),
    "a": FormatField("day_short"),
    "A": FormatField("day_name"),
    "w": FormatField("day_of_week"),
    "u": FormatField("iso_day_of_week"),
    "G": FormatField("iso_year", 4),
    "V": FormatField("iso_week", 2),
    "H": FormatField("hour", 2),
    "-H": FormatField("hour", 1),
    "I": FormatField("hour12", 2),
    "-I": FormatField("hour12", 1),
    "M": FormatField("minute", 2),
    "-M": FormatField("minute", 1),
    "S": FormatField("second", 2),
    "-S": FormatField("second", 1),
    "f": FormatField("fraction", 6),
    "g": FormatField("fraction", 3),
    "n": FormatField("fraction", 9),
    "p": FormatField("am_pm"),
    "z": FormatField("offset"),
    "Z": FormatField("zone_name"),
    "U": FormatField("week_from_sunday", 2),
    "W": FormatField("week_from_monday", 2),
    "%": _literal("%"),
}


@lru_cache(maxsize=256)
def c_format(pattern: str) -> tuple[FormatField, ...]:
    """Return the fields of a pattern of C's strftime.

    Raises:
        ValueError: The pattern has a field that is not supported.
    """
    pattern = re.sub(
        "%([cxX])",
        lambda match: {"c": "%Y-%m-%d %H:%M:%S", "x": "%Y-%m-%d", "X": "%H:%M:%S"}[match[1]],
        pattern,
    )
    fields = []
    for match in re.finditer(r"%(-?.)|([^%]+)|%", pattern, re.DOTALL):
        if match[2] is not None:
            fields.append(_literal(match[2]))
        elif match[1] in _FIELD_OF_C_LETTER:
            fields.append(_FIELD_OF_C_LETTER[match[1]])
        else:
            raise ValueError(f"{match[0]!r} in the date format {pattern!r} is not supported")
    return tuple(fields)
