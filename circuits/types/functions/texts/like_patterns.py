"""LIKE, ILIKE and GLOB: texts that match patterns with wildcards.

In LIKE, ``%`` matches any text and ``_`` any character, unless they are escaped.

In SQL and DuckDB, a pattern has no escape character by default. Arrow's ``match_like`` always uses
the backslash as the escape character, so the pattern is rewritten. Patterns may be columns. Arrow
does not find one backslash in a prefix, a suffix or a part of a text, so a pattern that contains a
backslash as a character is matched as a regular expression.

In GLOB, ``*`` matches any text, ``?`` one byte, ``[ab-d]`` one of these bytes and ``[!a]`` any
other byte, as in DuckDB. A backslash escapes the next character. Characters of classes are ASCII.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import by_constants
from circuits.types.functions.function import Function, Kernel
from circuits.types.functions.texts.text_functions import text_rule

__all__ = ["FUNCTIONS", "glob_to_regex"]

# A part of a GLOB pattern: a class, an escaped character, or any other character. A class has
# ranges and characters. Characters that systems read differently, such as loose hyphens, are not
# supported.
_RANGE: Final = "[A-Za-z0-9]-[A-Za-z0-9]"
_GLOB_PART: Final = re.compile(
    rf"\[(?P<negation>!?)(?P<items>(?:{_RANGE}|[\x01-\x7f])+?)\]|\\(?P<escaped>.)|(?P<other>[^\[\\])",
    re.DOTALL,
)
_GLOB_ITEM: Final = re.compile(rf"{_RANGE}|[^\]\[!\\-]|(?<=.)!", re.DOTALL)
#: Up to this many texts are matched in Python. Arrow would compile the pattern for each step, which
#: takes longer.
FEW_TEXTS: Final = 8
_LIKE_WILDCARDS: Final = {"%": ".*", "_": "."}
_GLOB_WILDCARDS: Final = {"*": ".*", "?": "."}


@lru_cache(maxsize=1024)
def _rewrite_escapes(pattern: str, escape: str) -> str:
    r"""Return the pattern with the backslash as its escape character.

    >>> print(_rewrite_escapes("50$%\\_", "$"))
    50\%\\_
    """
    if len(escape) > 1:
        raise pa.ArrowInvalid(f"the escape is one character, not {escape!r}")
    rewritten, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise pa.ArrowInvalid(f"the pattern {pattern!r} ends with its escape {escape!r}")
            rewritten.append(f"\\{literal}" if literal in "%_\\" else literal)
        else:
            rewritten.append("\\\\" if character == "\\" else character)
    return "".join(rewritten)


def _like_to_regex(pattern: str) -> str:
    r"""Return the regular expression of a pattern of LIKE whose escape is the backslash.

    >>> print(_like_to_regex("a\\\\b%_"))
    (?s)\Aa\\b.*.\z
    """
    parts = [
        _LIKE_WILDCARDS.get(part[0]) or re.escape(part[0][-1])
        for part in re.finditer(r"\\.|.", pattern, re.DOTALL)
    ]
    return "(?s)\\A" + "".join(parts) + "\\z"


def _contains(text: str, parts: list[str]) -> bool:
    """Return whether a text is these parts with any text between them.

    >>> _contains("abcab", ["a", "c", "ab"]), _contains("ab", ["ab", "b"])
    (True, False)
    """
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    position = len(first) if text.startswith(first) else -1
    for part in middle:
        if position < 0:
            return False
        found = text.find(part, position)
        position = found + len(part) if found >= 0 else -1
    return 0 <= position <= len(text) - len(last) and text.endswith(last)


def _like(*, ignore_case: bool) -> Kernel:
    def like(values: pa.Array, pattern: str, escape: str = "") -> pa.Array:
        rewritten = _rewrite_escapes(pattern, escape)
        if "\\\\" in rewritten:
            regex = _like_to_regex(rewritten)
            return pc.match_substring_regex(values, regex, ignore_case=ignore_case)
        if len(values) <= FEW_TEXTS and not ignore_case and not {"_", "\\"} & set(rewritten):
            parts = rewritten.split("%")
            texts = values.to_pylist()
            return pa.array([None if t is None else _contains(t, parts) for t in texts], pa.bool_())
        return pc.match_like(values, rewritten, ignore_case=ignore_case)

    return by_constants(like)


def glob_to_regex(pattern: str) -> str:
    r"""Return the regular expression over bytes for a pattern of GLOB.

    Raises:
        ArrowInvalid: A class is empty or not closed, or it has a character that is not supported:
            one that is not ASCII, a bracket, a backslash or a loose hyphen.

    >>> print(glob_to_regex("a[!b-d^]?*\\*"))
    (?s)\Aa[^b-d\^]..*\*\z
    """
    parts = ["(?s)\\A"]
    index = 0
    while index < len(pattern):
        part = _GLOB_PART.match(pattern, index)
        if part is None:
            raise _glob_error(pattern)
        if part["items"] is not None:
            items = _convert_class(pattern, part["items"])
            parts.append(f"[{'^' * bool(part['negation'])}{items}]")
        elif part["escaped"] is not None:
            parts.append(re.escape(part["escaped"]))
        else:
            parts.append(_GLOB_WILDCARDS.get(part["other"], re.escape(part["other"])))
        index = part.end()
    return "".join(parts) + "\\z"


def _convert_class(pattern: str, items: str) -> str:
    """Return the items of a class of GLOB as those of a regular expression."""
    parts: list[str] = []
    index = 0
    while index < len(items):
        item = _GLOB_ITEM.match(items, index)
        if item is None or (len(item[0]) == 3 and item[0][0] > item[0][2]):
            raise _glob_error(pattern)
        parts.append(item[0] if len(item[0]) == 3 else re.escape(item[0]))
        index = item.end()
    return "".join(parts)


def _glob_error(pattern: str) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(
        f"{pattern!r} is no supported pattern of GLOB: a class has ASCII characters and ranges of "
        "letters or digits, as in [a-z_] or [!0-9], and a backslash is followed by a character"
    )


def _glob(values: pa.Array, pattern: str) -> pa.Array:
    # Of binary values, RE2 matches bytes.
    return pc.match_substring_regex(values.cast(pa.large_binary()), glob_to_regex(pattern))


_RULE = text_rule("ttt", 2, pa.bool_())  # three texts (t), of which the third is optional

FUNCTIONS = (
    Function(
        "like",
        "true if a matches the pattern b, with the escape character c",
        _RULE,
        _like(ignore_case=False),
    ),
    Function("ilike", "as like, ignoring case", _RULE, _like(ignore_case=True)),
    Function(
        "glob",
        "true if a matches the pattern b, with *, ?, [abc] and [!abc] as in file names",
        text_rule("tt", 2, pa.bool_()),
        by_constants(_glob),
    ),
)
