r"""Functions of regular expressions: test, count, find, extract and replace matches.

RE2 evaluates a pattern through Arrow, in linear time. If RE2 does not accept the pattern, because
of look-around, possessive quantifiers or back references, Python's ``re`` evaluates it once per
distinct text (`circuits.types.functions.texts.patterns`). Patterns may be columns; the cost is one
pass per distinct pattern. Deviation from Java: ``\d``, ``\w`` and ``\s`` are ASCII in RE2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import by_constants, map_distinct
from circuits.types.functions.function import Function
from circuits.types.functions.length_limits import (
    MAX_STRING_BYTES,
    byte_lengths,
    check_lengths,
    upper_bound,
)
from circuits.types.functions.signatures import Signature
from circuits.types.functions.texts.patterns import compile_pattern, is_re2
from circuits.types.functions.texts.text_functions import text_rule

__all__ = ["FUNCTIONS"]

_MARK: Final = "\0"
_GROUP_REFERENCE: Final = re.compile(r"\\\d")
#: The number of references to groups in a replacement that are counted as empty texts when the
#: length of a result is checked; each further one is counted as a copy of the whole text.
MAX_REFERENCES: Final = 16
# The flags of Python and RE2 for the options of DuckDB: n and p are other names of m; c (case
# matters) is the default; g is read by the replacing functions; l has no effect on a pattern.
_FLAGS = {"i": "i", "s": "s", "m": "m", "n": "m", "p": "m", "c": "", "g": "", "l": ""}


def with_options(pattern: str, options: str) -> str:
    """Return the pattern with the options as flags; ArrowInvalid for an unknown option."""
    unknown = set(options) - set(_FLAGS)
    if unknown:
        raise pa.ArrowInvalid(f"unknown options {''.join(sorted(unknown))!r}; there are i, s, m, g")
    flags = "".join(sorted({_FLAGS[option] for option in options} - {""}))
    return f"(?{flags}){pattern}" if flags else pattern


def _matches(values: pa.Array, pattern: str, options: str = "") -> pa.Array:
    pattern = with_options(pattern, options)
    if is_re2(pattern):
        return pc.match_substring_regex(values, pattern)
    find = compile_pattern(pattern).find
    return map_distinct(values, lambda value: find(value) is not None, pa.bool_())


def _full_match(values: pa.Array, pattern: str, options: str = "") -> pa.Array:
    flagged = with_options(pattern, options)
    if is_re2(flagged):
        anchored = with_options(rf"\A(?:{pattern})\z", options)
        return pc.match_substring_regex(values, anchored)
    return map_distinct(values, compile_pattern(flagged).matches_whole, pa.bool_())


def _count(values: pa.Array, pattern: str, options: str = "") -> pa.Array:
    pattern = with_options(pattern, options)
    # Arrow does not count empty matches.
    if is_re2(pattern) and not _matches(pa.array([""]), pattern)[0].as_py():
        return pc.count_substring_regex(values, pattern)
    find_all = compile_pattern(pattern).find_all
    return map_distinct(values, lambda value: sum(1 for _ in find_all(value)), pa.int64())


def _position(values: pa.Array, pattern: str) -> pa.Array:
    find = compile_pattern(pattern).find

    def position(value: str) -> int:
        match = find(value)
        return match.start + 1 if match else 0

    return map_distinct(values, position, pa.int64())


def _name_groups(pattern: str) -> tuple[str, int]:
    """Name the groups of a pattern: Arrow returns named groups only.

    Returns:
        The pattern with the names ``g1``, ``g2``, … for its groups and ``g0`` for the whole; and
        the number of its groups.
    """
    parts: list[str] = []
    index, groups, in_class = 0, 0, False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            parts.append(pattern[index : index + 2])
            index += 2
            continue
        if character == "[" and not in_class:
            in_class = True
            if pattern[index + 1 : index + 2] in ("]", "^"):
                # A bracket right after [ or [^ does not end the class.
                start_length = 3 if pattern[index + 1 : index + 3] == "^]" else 2
                parts.append(pattern[index : index + start_length])
                index += start_length
                continue
        elif character == "]":
            in_class = False
        elif character == "(" and not in_class:
            group_start = re.match(r"\(\?P?<\w+>", pattern[index:])
            if pattern[index + 1 : index + 2] != "?" or group_start:
                groups += 1
                parts.append(f"(?P<g{groups}>")
                index += len(group_start[0]) if group_start else 1
                continue
        parts.append(character)
        index += 1
    return f"(?P<g0>{''.join(parts)})", groups


def _extract(values: pa.Array, pattern: str, group: int = 0, options: str = "") -> pa.Array:
    """Return a group of the first match; an empty text without a match, NULL for NULL."""
    flagged = with_options(pattern, options)
    if is_re2(flagged):
        named, groups = _name_groups(pattern)
        named = with_options(named, options)
        if not 0 <= group <= groups:
            raise pa.ArrowInvalid(f"{pattern!r} has {groups} groups, not {group}")
        if is_re2(named):
            parts = pc.extract_regex(values, named)
            texts = pc.fill_null(pc.struct_field(parts, f"g{group}"), "")
            return pc.if_else(pc.is_valid(values), pc.if_else(parts.is_valid(), texts, ""), None)
    compiled = compile_pattern(flagged)
    if not 0 <= group <= compiled.group_count:
        raise pa.ArrowInvalid(f"{pattern!r} has {compiled.group_count} groups, not {group}")

    def extract(value: str) -> str:
        match = compiled.find(value)
        return match.groups[group] if match else ""

    return map_distinct(values, extract, values.type)


def _substring(values: pa.Array, pattern: str) -> pa.Array:
    """Return the first match; NULL if there is none."""
    return pc.if_else(_matches(values, pattern), _extract(values, pattern, 0), None)


def _replacer(*, first_only: bool) -> Callable[..., pa.Array]:
    def replace(values: pa.Array, pattern: str, new: str, options: str = "") -> pa.Array:
        replaces_all = not first_only or "g" in options
        flagged = with_options(pattern, options)

        def replace_by(new: str) -> pa.Array:
            if is_re2(flagged):
                limit = None if replaces_all else 1
                return pc.replace_substring_regex(values, flagged, new, max_replacements=limit)
            compiled = compile_pattern(flagged)
            template = new.replace("\\0", "\\g<0>")
            count = 0 if replaces_all else 1
            return map_distinct(
                values, lambda value: compiled.replace(value, template, count), values.type
            )

        # Only if a replacement of every byte could be too long, the matches are counted.
        if upper_bound(values, len(values)) * len(new) > MAX_STRING_BYTES:
            _check_replacements(values, replace_by(_MARK), new)
        return replace_by(new)

    return replace


def _check_replacements(values: pa.Array, marked: pa.Array, new: str) -> None:
    """Check the lengths of replaced texts; ``marked`` has one mark in the place of each match."""
    counts = pc.subtract(pc.count_substring(marked, _MARK), pc.count_substring(values, _MARK))
    matches = np.asarray(pc.fill_null(counts, 0).to_numpy(), np.int64)
    literal_bytes = len(_GROUP_REFERENCE.sub("", new).encode())
    references = len(_GROUP_REFERENCE.findall(new))
    # The lengths of the groups are not known: see MAX_REFERENCES.
    surplus = max(references - MAX_REFERENCES, 0) * byte_lengths(values, len(values))
    check_lengths(matches * literal_bytes + surplus)


def _java_replacement(new: str) -> str:
    r"""Return a replacement of Java (``$1``, ``\$``) as one of RE2 (``\1``)."""
    parts: list[str] = []
    index = 0
    while index < len(new):
        character, following = new[index], new[index + 1 : index + 2]
        if character == "\\" and following:
            parts.append("\\\\" if following == "\\" else following)
            index += 2
        elif character == "$" and following.isdigit():
            parts.append("\\" + following)
            index += 2
        elif character in "\\$":
            raise pa.ArrowInvalid(f"{new!r} is no replacement: escape its {character}")
        else:
            parts.append(character)
            index += 1
    return "".join(parts)


def _replace_java(values: pa.Array, pattern: str, new: str, position: int = 1) -> pa.Array:
    replace = _replacer(first_only=False)
    if position <= 1:
        return replace(values, pattern, _java_replacement(new))
    head = pc.utf8_slice_codeunits(values, 0, position - 1)
    tail = pc.utf8_slice_codeunits(values, position - 1)
    replaced_tail = replace(tail, pattern, _java_replacement(new))
    return pc.binary_join_element_wise(head, replaced_tail, pa.scalar("", values.type))


def _similar_pattern(pattern: str, escape: str) -> str:
    """Return a pattern of SIMILAR TO as a regular expression."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, "")))
        elif character == "%":
            parts.append(".*")
        elif character == "_":
            parts.append(".")
        elif character in ".^$\\":
            parts.append("\\" + character)
        else:
            parts.append(character)
    return f"(?s){''.join(parts)}"


def _similar(values: pa.Array, pattern: str, escape: str = "\\") -> pa.Array:
    return _full_match(values, _similar_pattern(pattern, escape))


_TEST_RULE = text_rule("ttt", 2, pa.bool_())  # three texts (t), of which the third is optional

# In a signature, i is an integer and t a text; parameters after | are optional.
FUNCTIONS = (
    Function(
        "regexp_matches",
        "true if a part of a matches the regular expression b, with options c",
        _TEST_RULE,
        by_constants(_matches),
    ),
    Function(
        "regexp_full_match",
        "true if all of a matches the regular expression b, with options c",
        _TEST_RULE,
        by_constants(_full_match),
    ),
    Function(
        "similar_to",
        "true if a matches the pattern b of SIMILAR TO, with the escape c",
        _TEST_RULE,
        by_constants(_similar),
    ),
    Function(
        "regexp_count",
        "how often the regular expression b matches in a, with options c",
        Signature("tt|t", pa.int64()),
        by_constants(_count),
    ),
    Function(
        "regexp_position",
        "where the regular expression b first matches in a, from 1; 0 if nowhere",
        Signature("tt", pa.int64()),
        by_constants(_position),
    ),
    Function(
        "regexp_extract",
        "group c (0 is all) of the first match of b in a, with options d; empty without a match",
        Signature("tt|it"),
        by_constants(_extract),
    ),
    Function(
        "regexp_substring",
        "the first match of b in a; NULL without a match",
        Signature("tt"),
        by_constants(_substring),
    ),
    Function(
        "regexp_replace",
        "a with the first match of b replaced by c (\\1 is a group); all with the option g in d",
        text_rule("tttt", 3),
        by_constants(_replacer(first_only=True)),
    ),
    Function(
        "regexp_replace_all",
        "a with all matches of b from position d on replaced by c ($1 is a group)",
        Signature("ttt|i"),
        by_constants(_replace_java),
    ),
)
