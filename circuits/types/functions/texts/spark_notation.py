"""Texts of dates, timestamps and numbers as Spark reads them, rewritten for the parsers of casts.

The parsers (`circuits.types.functions.casting.time_parsing`,
`circuits.types.functions.casting.text_parsing`) read the notation of DuckDB. Spark also reads dates
without a day or month, an hour alone, a sign ``+``, control characters around a text, and zones
such as ``UTC+8`` and ``Europe/Paris``. It does not read ``infinity``, other separators than ``-``,
years of less than four digits, the hour 24, a zone after a clock without seconds, integers with a
fraction or an exponent, and numbers with underscores; such a text is changed into one that no
parser accepts.

Cost: one regular expression over the column finds the texts that need no change. The others run
over the remaining texts. The zone of a region is computed in Python, once per distinct text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import map_distinct
from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, column_kernel

__all__ = ["FUNCTIONS", "spark_date_texts", "spark_timestamp_texts"]

_TEXT: Final = pa.string()
_OUTER_BLANKS: Final = r"^[\x00-\x20]+|[\x00-\x20]+$"
_OUTER_CONTROLS: Final = r"^[\x00-\x20\x7f]+|[\x00-\x20\x7f]+$"
# The common notation of a date or timestamp, which needs no change.
_COMMON_DATE: Final = r"^\d{4}-\d\d-\d\d(?:[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?)?$"
_DATE_AND_TIME: Final = r"^(-?\d{4,7}-\d{1,2}-\d{1,2})[ T].*$"
_TIME_END: Final = r"(:\d{1,2}(?:\.\d*)?)"
_DATE_REPLACEMENTS: Final = (
    (_OUTER_CONTROLS, ""),
    (r"^\+(\d)", r"\1"),
    (r"^(\d{4})$", r"\1-01-01"),
    (r"^(\d{4}-\d{1,2})$", r"\1-01"),
    # An offset loses the name before it: 10:00 UTC+8 becomes 10:00+8.
    (_TIME_END + r" *(?:UTC|GMT|UT)([+-]\d)", r"\1\2"),
    # The hours of an offset get two digits: 10:00+8 becomes 10:00+08.
    (_TIME_END + r" *([+-])(\d)(:|$)", r"\1\20\3\4"),
    # Infinity, the epoch, years BC, years of less than four digits, and the separators / and \ are
    # no dates in Spark.
    (
        r"^(-?(?i:inf(?:inity)?|epoch)|-?\d{1,3}-.*|.*\((?i:bc)\).*|\d+[ /\\].*|[^T ]*[/\\].*)$",
        r"no date: \1",
    ),
)
# The notation of a clock, after these replacements; a date ignores its clock.
_CLOCK_REPLACEMENTS: Final = (
    (r"^([^T ]+[T ]\d{1,2})$", r"\1:00"),
    # One blank before a zone is enough.
    (_TIME_END + r" {2,}", r"\1 "),
    # The hour 24, no digits after a colon, or a zone after a clock without seconds: no timestamps
    # in Spark.
    (r"^([^T ]+[T ]24.*)$", r"no timestamp: \1"),
    (r"^([^T ]+[T ]\d{1,2}:(?:\d{1,2}:)?(?:[^\d].*)?)$", r"no timestamp: \1"),
    (r"^([^T ]+[T ]\d{1,2}:\d{1,2}[^\d:].*)$", r"no timestamp: \1"),
)
_COMMON_INTEGER: Final = r"^[+-]?\d+$"
_COMMON_BOOLEAN: Final = r"^[A-Za-z0-9]*$"
_COMMON_FLOAT: Final = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_SPECIAL_FLOAT: Final = r"^(?:[+-]?(?i:inf|infinity)|(?i:nan)|[+-]NaN)$"
_HEXADECIMAL_FLOAT: Final = (
    r"^[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+$"
)
_REGION: Final = r"[A-Za-z]+/[A-Za-z_/]+"


def _replace_region(text: str) -> str:
    """Replace the name of the region at the end of a time by its offset from UTC."""
    match = re.fullmatch(rf"(.*?\d) *({_REGION})", text)
    if match is None:
        return text
    try:
        timestamp = datetime.fromisoformat(match[1]).replace(tzinfo=ZoneInfo(match[2]))
    except (ValueError, ZoneInfoNotFoundError, OSError):  # OSError: America/Argentina is a folder
        return text
    return match[1] + f"{timestamp:%z}"


def _replace_uncommon(
    common: str, replace: Callable[[pa.Array], pa.Array]
) -> Callable[[pa.Array], pa.Array]:
    """Return a function that replaces the texts that do not match the pattern ``common``."""

    def apply(texts: pa.Array) -> pa.Array:
        texts = pc.cast(texts, _TEXT)
        is_other = pc.invert(pc.fill_null(pc.match_substring_regex(texts, common), True))
        if not pc.any(is_other).as_py():
            return texts
        return pc.replace_with_mask(texts, is_other, replace(texts.filter(is_other)))

    return apply


def _replace_dates(texts: pa.Array) -> pa.Array:
    """Leave out the part of a text after its date: Spark ignores it, whatever it is."""
    return _replace_patterns(texts, *_DATE_REPLACEMENTS, (_DATE_AND_TIME, r"\1"))


def _replace_timestamps(texts: pa.Array) -> pa.Array:
    texts = _replace_patterns(texts, *_DATE_REPLACEMENTS, *_CLOCK_REPLACEMENTS)
    has_region = pc.match_substring_regex(texts, f"{_REGION}$")
    if not pc.any(has_region).as_py():
        return texts
    with_offsets = map_distinct(texts.filter(has_region), _replace_region, _TEXT)
    return pc.replace_with_mask(texts, has_region, with_offsets)


def _replace_patterns(texts: pa.Array, *replacements: tuple[str, str]) -> pa.Array:
    for pattern, replacement in replacements:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts


def _replace_integers(texts: pa.Array) -> pa.Array:
    texts = _strip_controls(texts)
    is_integer = pc.match_substring_regex(texts, _COMMON_INTEGER)
    invalid = pc.binary_join_element_wise(texts, "(no integer)", " ")  # no cast accepts this
    return pc.if_else(is_integer, texts, invalid)


def _replace_floats(texts: pa.Array) -> pa.Array:
    texts = _strip_controls(texts)
    texts = pc.replace_substring_regex(texts, r"([0-9.])[dDfF]$", r"\1")  # as in 1.5d, not in inf
    is_hexadecimal = pc.match_substring_regex(texts, _HEXADECIMAL_FLOAT)
    if pc.any(is_hexadecimal).as_py():
        decimal_texts = map_distinct(texts.filter(is_hexadecimal), _decimal_text, _TEXT)
        texts = pc.replace_with_mask(texts, is_hexadecimal, decimal_texts)
    is_float = pc.match_substring_regex(texts, f"{_COMMON_FLOAT}|{_SPECIAL_FLOAT}")
    invalid = pc.binary_join_element_wise(texts, "(no number)", " ")  # no cast accepts this
    return pc.if_else(is_float, texts, invalid)


def _replace_decimals(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(texts, _OUTER_BLANKS, "")
    is_foreign = pc.invert(pc.string_is_ascii(texts))
    if pc.any(is_foreign).as_py():  # Java reads the digits of all scripts
        ascii_texts = map_distinct(texts.filter(is_foreign), _ascii_digits, _TEXT)
        texts = pc.replace_with_mask(texts, is_foreign, ascii_texts)
    is_decimal = pc.match_substring_regex(texts, _COMMON_FLOAT)
    invalid = pc.binary_join_element_wise(texts, "(no decimal)", " ")  # no cast accepts this
    return pc.if_else(is_decimal, texts, invalid)


def _ascii_digits(text: str) -> str:
    return "".join(str(unicodedata.decimal(letter, letter)) for letter in text)


def _decimal_text(hexadecimal: str) -> str:
    """Return a float such as ``0x1.8p3``, which is 12.0, in decimal notation."""
    try:
        return repr(float.fromhex(hexadecimal))
    except OverflowError:
        return "-inf" if hexadecimal.startswith("-") else "inf"


def _strip_controls(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, _OUTER_CONTROLS, "")


spark_date_texts: Final = _replace_uncommon(_COMMON_DATE, _replace_dates)
spark_timestamp_texts: Final = _replace_uncommon(_COMMON_DATE, _replace_timestamps)

# In a signature, t is a text.
FUNCTIONS = (
    Function(
        "spark_date_text",
        "the date a in a notation of Spark, rewritten as a cast to a date reads it",
        Signature("t", _TEXT),
        column_kernel(spark_date_texts),
    ),
    Function(
        "spark_timestamp_text",
        "the timestamp a in a notation of Spark, rewritten as a cast to a timestamp reads it",
        Signature("t", _TEXT),
        column_kernel(spark_timestamp_texts),
    ),
    Function(
        "spark_integer_text",
        "the text a of an integer, as Spark accepts it, rewritten for a cast to an integer",
        Signature("t", _TEXT),
        column_kernel(_replace_uncommon(_COMMON_INTEGER, _replace_integers)),
    ),
    Function(
        "spark_float_text",
        "the text a of a float, as Spark accepts it, rewritten for a cast to a float",
        Signature("t", _TEXT),
        column_kernel(_replace_uncommon(_COMMON_FLOAT, _replace_floats)),
    ),
    Function(
        "spark_decimal_text",
        "the text a of a decimal, as Spark accepts it, rewritten for a cast to a decimal",
        Signature("t", _TEXT),
        column_kernel(_replace_uncommon(_COMMON_FLOAT, _replace_decimals)),
    ),
    Function(
        "spark_boolean_text",
        "the text a of a boolean without blanks and control characters around it",
        Signature("t", _TEXT),
        column_kernel(_replace_uncommon(_COMMON_BOOLEAN, _strip_controls)),
    ),
)
