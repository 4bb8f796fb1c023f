"""Searches in texts, parts of texts, single characters, accents, and lengths in bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Function
from circuits.types.functions.length_limits import MAX_STRING_BYTES, check_lengths
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row

__all__ = ["FUNCTIONS"]

_TEXT, _INT = pa.string(), pa.int64()


def _locate(needle: str, text: str, start: int) -> int:
    if start < 1:
        return 0
    return text.find(needle, start - 1) + 1


def _find_in_set(word: str, words: str) -> int:
    parts = words.split(",")
    return parts.index(word) + 1 if word in parts and "," not in word else 0


def _substring_index(text: str, separator: str, count: int) -> str:
    if not separator or not count:
        return ""
    if count > 0:
        # As in Spark, a search starts one character after the previous hit, so hits may overlap.
        position = -1
        for _ in range(count):
            position = text.find(separator, position + 1)
            if position < 0:
                return text
        return text[:position]
    # From the right, hits may overlap, too: each begins before the previous one. The first search
    # begins at the end.
    position = len(text) - len(separator) + 1
    for _ in range(-count):
        position = text.rfind(separator, 0, position - 1 + len(separator)) if position > 0 else -1
        if position < 0:
            return text
    return text[position + len(separator) :]


def _code_point(text: str) -> int:
    return ord(text[0]) if text else 0


def _character(code: int) -> str:
    if code < 0:
        return ""
    return chr(code % 256)


def _unicode_character(code: int) -> str:
    return chr(code)


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for index, character in enumerate(old):
        table.setdefault(ord(character), new[index] if index < len(new) else None)
    return text.translate(table)


def _overlay(text: str, new: str, start: int, length: int = -1) -> str:
    length = len(new) if length < 0 else length
    head = text[: max(start - 1, 0)] if start > 0 else ""
    return head + new + text[max(start - 1 + length, 0) :]


def _byte_count(values: pa.Array) -> pa.Array:
    return pc.cast(pc.binary_length(values), _INT)


def _bit_count(values: pa.Array) -> pa.Array:
    return pc.multiply(_byte_count(values), 8)


def _space(counts: pa.Array) -> pa.Array:
    non_negative_counts = np.maximum(pc.fill_null(counts, 0).to_numpy(zero_copy_only=False), 0)
    check_lengths(np.minimum(non_negative_counts, MAX_STRING_BYTES + 1))
    return pc.if_else(
        pc.is_valid(counts),
        pc.binary_repeat(pa.repeat(pa.scalar(" "), len(counts)), pa.array(non_negative_counts)),
        None,
    )


def _strip_accents(values: pa.Array) -> pa.Array:
    """Decompose characters, and remove the combining marks."""
    decomposed = pc.utf8_normalize(values, form="NFD")
    return pc.replace_substring_regex(decomposed, r"\p{Mn}", "")


def _normalize(values: pa.Array) -> pa.Array:
    return pc.utf8_normalize(values, form="NFC")


def _escape_pattern(values: pa.Array) -> pa.Array:
    r"""Put a backslash before each ASCII character except letters, digits and ``_``.

    The character 0 becomes ``\x00``.
    """
    escaped = pc.replace_substring_regex(values, r"([^\x{0}0-9A-Za-z_\x{80}-\x{10FFFF}])", r"\\\1")
    return pc.replace_substring(escaped, "\x00", r"\x00")


def _split_part_checked(text: str, separator: str, index: int) -> str:
    if index == 0:
        raise ValueError("part 0 does not exist; parts count from 1, or from -1 at the end")
    parts = text.split(separator) if separator else [text]
    position = index - 1 if index > 0 else len(parts) + index
    return parts[position] if 0 <= position < len(parts) else ""


# In a signature, i is an integer, t a text and y a text or bytes; parameters after | are optional.
FUNCTIONS = (
    Function(
        "strip_accents",
        "the text a without accents",
        Signature("t", _TEXT),
        column_kernel(_strip_accents),
    ),
    Function(
        "normalize_nfc",
        "the text a in the normal form NFC of Unicode",
        Signature("t", _TEXT),
        column_kernel(_normalize),
    ),
    Function(
        "regexp_escape",
        "the text a as a regular expression that matches just this text",
        Signature("t", _TEXT),
        column_kernel(_escape_pattern),
    ),
    Function(
        "locate",
        "where b contains a, from position c on; 0 if nowhere",
        Signature("tti", _INT),
        per_distinct_row(_locate),
    ),
    Function(
        "find_in_set",
        "the position of a in the comma-separated list b; 0 if it is not in it",
        Signature("tt", _INT),
        per_distinct_row(_find_in_set),
    ),
    Function(
        "substring_index",
        "the part of a before occurrence c of b; if c < 0, the part after it, counted from the end",
        Signature("tti", _TEXT),
        per_distinct_row(_substring_index),
    ),
    Function(
        "code_point",
        "the code point of the first character; 0 for the empty text",
        Signature("t", _INT),
        per_distinct_row(_code_point),
    ),
    Function(
        "latin_character",
        "the character with code a modulo 256; empty if a is negative",
        Signature("i", _TEXT),
        per_distinct_row(_character),
    ),
    Function(
        "unicode_character",
        "the character with code point a",
        Signature("i", _TEXT),
        per_distinct_row(_unicode_character),
    ),
    Function(
        "translate",
        "a with each character of b replaced by the one of c at its position",
        Signature("ttt", _TEXT),
        per_distinct_row(_translate),
    ),
    Function(
        "overlay",
        "a, in which b replaces d characters from position c on",
        Signature("tti|i", _TEXT),
        per_distinct_row(_overlay),
    ),
    Function(
        "octet_length", "the number of bytes", Signature("y", _INT), column_kernel(_byte_count)
    ),
    Function("bit_length", "the number of bits", Signature("y", _INT), column_kernel(_bit_count)),
    Function("space", "a text of spaces, a of them", Signature("i", _TEXT), column_kernel(_space)),
    Function(
        "split_part_checked",
        "as split_part; part 0 is an error",
        Signature("tti", _TEXT),
        per_distinct_row(_split_part_checked),
    ),
)
