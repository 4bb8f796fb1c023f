"""Functions that split a text into many parts: lists, maps and sentences, with Spark's results.

The patterns are regular expressions of Python's ``re``, whose syntax is near to Java's. A function
runs once per distinct combination of arguments.
"""

from __future__ import annotations

import re

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.texts.patterns import compile_pattern

__all__ = ["FUNCTIONS"]

_TEXTS = pa.list_(pa.string())
_SENTENCE_END = re.compile(r"(?<=[.!?])[\s\"')\]]*\s+|(?<=[。！？])")
_WORD = re.compile(r"\w+(?:['’\-.]\w+)*")


def _split(text: str, pattern: str, limit: int) -> list[str]:
    """Split as Java does: at most ``limit`` parts, if it is positive.

    A match that ends at the start of the text, or an empty match at its end, does not split it.
    """
    if limit == 1 or not text:
        return [text]
    parts: list[str] = []
    end = 0
    for match in compile_pattern(pattern).find_all(text):
        if match.end == 0 or (match.start == match.end == len(text)):
            continue
        if limit > 0 and len(parts) == limit - 1:
            break
        parts.append(text[end : match.start])
        end = match.end
    return [*parts, text[end:]]


def _to_map(text: str, entry_end: str, key_end: str) -> list[tuple[str, str | None]]:
    entries: dict[str, str | None] = {}
    for entry in _split(text, entry_end, -1):
        key, *value = _split(entry, key_end, 2)
        if key in entries:
            raise ValueError(f"the key {key!r} occurs twice")
        entries[key] = value[0] if value else None
    return list(entries.items())


def _extract_all(text: str, pattern: str, group: int) -> list[str]:
    compiled = compile_pattern(pattern)
    if not 0 <= group <= compiled.group_count:
        raise ValueError(f"group {group} of a pattern with {compiled.group_count} groups")
    return [match.groups[group] for match in compiled.find_all(text)]


def _sentences(text: str) -> list[list[str]]:
    words = [_WORD.findall(sentence) for sentence in _SENTENCE_END.split(text)]
    return [sentence for sentence in words if sentence]


# In a signature, i is an integer and t a text.
FUNCTIONS = (
    Function(
        "split_limit",
        "the parts of the text a between matches of the pattern b, up to c of them if c > 0",
        Signature("tti", _TEXTS),
        per_distinct_row(_split),
    ),
    Function(
        "text_to_map",
        "the map in the text a; the pattern b separates entries, c a key from its value",
        Signature("ttt", pa.map_(pa.string(), pa.string())),
        per_distinct_row(_to_map),
    ),
    Function(
        "regexp_extract_all",
        "group c of all matches of the pattern b in the text a",
        Signature("tti", _TEXTS),
        per_distinct_row(_extract_all),
    ),
    Function(
        "sentences",
        "the words of each sentence of the text a",
        Signature("t", pa.list_(_TEXTS)),
        per_distinct_row(_sentences),
    ),
)
