r"""Regular expressions that Arrow's functions cannot evaluate, matched without exponential time.

``Pattern`` finds matches with Python's ``re``, which has look-around and back references, but
backtracks: ``(a+)+$`` takes 2^n steps for n letters, and ``\s+$`` takes n^2. Nothing can interrupt
it. Therefore:

- If a repetition contains another repetition or an alternative, or if the text is longer than
  `circuits.types.functions.texts.backtracking` allows for the pattern, RE2 finds the matches, in
  linear time.
- If RE2 does not accept such a pattern, it is an error of the row.

Both find the same matches: ``\d``, ``\w``, ``\s`` and ``\b`` are about ASCII characters only, as in
RE2 and in Java.

Arrow has no function that returns the matches of RE2. Therefore a replacement puts marks around
each match, and the result is split at the marks (`Pattern.find_all`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.texts.backtracking import count_choices

__all__ = ["Match", "Pattern", "compile_pattern", "is_re2"]

_MAX_GROUPS: Final = 9  # in a replacement of RE2
_MARKS: Final = range(0xE000, 0xF900)  # characters of private use
_QUANTIFIER: Final = re.compile(r"[*+?]|\{\d*,?\d*\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]?", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
# The characters of the escapes of RE2, as parts of a class.
_ASCII_CLASSES: Final = {
    "d": r"0-9",
    "D": r"\x00-\x2f\x3a-\U0010ffff",
    "s": r"\t\n\f\r ",
    "S": r"\x00-\x08\x0b\x0e-\x1f\x21-\U0010ffff",
    "w": r"0-9A-Za-z_",
    "W": r"\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\U0010ffff",
}
_WORD: Final = "(?-i:[0-9A-Za-z_])"
_BOUNDARIES: Final = {
    "b": f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "B": f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
}
_ONCE: Final = re.compile(r"\?|\{(0|1|0?,1|1,1)\}")


@dataclass(frozen=True)
class Match:
    """One match: where it is, and the texts of the whole match and of its groups."""

    start: int
    end: int
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """A regular expression; `compile_pattern` returns it.

    Attributes:
        text: The pattern.
        compiled: The same, compiled by Python.
        is_re2: True if RE2 accepts the pattern.
        is_nested: True if a repetition contains another repetition or an alternative; also if the
            pattern has comments.
        max_characters: The length of the longest text that Python searches with the pattern.
    """

    text: str
    compiled: re.Pattern[str]
    is_re2: bool
    is_nested: bool
    max_characters: int

    @property
    def group_count(self) -> int:
        """The number of groups in the pattern."""
        return self.compiled.groups

    def find_all(self, text: str) -> Iterator[Match]:
        """Return all matches in a text, from left to right.

        Raises:
            ArrowInvalid: The search could take too long.
        """
        if self._is_backtracked(text):
            for match in self.compiled.finditer(text):
                groups = (match[0], *(group or "" for group in match.groups()))
                yield Match(match.start(), match.end(), groups)
        else:
            yield from self._find_linear(text, None)

    def find(self, text: str) -> Match | None:
        """Return the first match in a text; the errors are those of `find_all`."""
        if self._is_backtracked(text):
            return next(self.find_all(text), None)
        return next(self._find_linear(text, 1), None)

    def matches_whole(self, text: str) -> bool:
        """Return True if the whole text is a match, for patterns that RE2 does not accept.

        The errors are those of `find_all`.
        """
        self._require_backtracking(text)
        return self.compiled.fullmatch(text) is not None

    def replace(self, text: str, template: str, count: int) -> str:
        """Return the text with the first ``count`` matches replaced, all if it is 0.

        It is for patterns that RE2 does not accept. The template is one of `re.sub`, and the errors
        are those of `find_all`.
        """
        self._require_backtracking(text)
        try:
            return self.compiled.sub(template, text, count=count)
        except re.error as error:
            raise pa.ArrowInvalid(f"{template!r} is no replacement: {error}") from error

    def _is_backtracked(self, text: str) -> bool:
        """Return True if Python's ``re`` searches the text, False if RE2 does.

        Raises:
            ArrowInvalid: Neither can do it in time.
        """
        if not self.is_re2:
            self._require_backtracking(text)
        return self._can_backtrack(text)

    def _require_backtracking(self, text: str) -> None:
        """Raise ArrowInvalid if Python's ``re`` could take too long for the text."""
        if not self._can_backtrack(text):
            raise self._error(text)

    def _can_backtrack(self, text: str) -> bool:
        return not self.is_nested and len(text) <= self.max_characters

    def _error(self, text: str) -> pa.ArrowInvalid:
        if self.is_nested:
            return pa.ArrowInvalid(
                f"the pattern {self.text!r} could take exponential time, because a repetition "
                "contains another repetition or an alternative; write it without look-around and "
                "back references, or without the outer repetition"
            )
        return pa.ArrowInvalid(
            f"a text of {len(text):,} characters is too long for the pattern {self.text!r} with "
            f"look-around or back references; the maximum is {self.max_characters:,}, because more "
            "could take minutes; use fewer repetitions that can match the same characters"
        )

    def _find_linear(self, text: str, limit: int | None) -> Iterator[Match]:
        """Return the first ``limit`` matches of RE2, all if it is None."""
        groups = self.group_count
        if groups > _MAX_GROUPS:
            raise pa.ArrowInvalid(
                f"the pattern {self.text!r} has {groups} groups, and the maximum is {_MAX_GROUPS} "
                "if a repetition contains another one, or if a text is long"
            )
        mark = next((mark for mark in map(chr, _MARKS) if mark not in text), None)
        if mark is None:
            raise pa.ArrowInvalid("the text contains every character of private use")
        # A match becomes: mark, the match, mark, group 1, mark, group 2, ..., mark.
        template = mark + mark.join(f"\\{group}" for group in range(groups + 1)) + mark
        marked = pc.replace_substring_regex(
            pa.array([text], pa.large_string()), self.text, template, max_replacements=limit
        )
        # For each match: the text since the previous match, the match, its groups.
        parts = marked[0].as_py().split(mark)
        end = 0
        for index in range(0, len(parts) - 1, groups + 2):
            start = end + len(parts[index])
            texts = tuple(parts[index + 1 : index + groups + 2])
            end = start + len(texts[0])
            yield Match(start, end, texts)


@lru_cache(maxsize=1024)
def is_re2(pattern: str) -> bool:
    """Return True if RE2 accepts a pattern."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """Return a compiled pattern; ArrowInvalid if it is not a regular expression of Python.

    >>> [match.groups for match in compile_pattern("(a+)+b").find_all("aab, b, ab")]
    [('aab', 'aa'), ('ab', 'a')]
    >>> compile_pattern("(a+)+$").find("a" * 1000 + "!")
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise pa.ArrowInvalid(f"{pattern!r} is no regular expression: {error}") from error
    has_comments = compiled.flags & re.VERBOSE or "(?#" in pattern
    is_nested = bool(has_comments) or _has_nested_repetition(pattern)
    limit = 0 if is_nested else count_choices(pattern, compiled.flags).max_characters
    if not has_comments:
        compiled = re.compile(_with_ascii_classes(pattern))
    return Pattern(pattern, compiled, is_re2(pattern), is_nested, limit)


def _with_ascii_classes(pattern: str) -> str:
    r"""Return a valid pattern without comments with the escapes of RE2, which are about ASCII.

    >>> print(_with_ascii_classes(r"\d+[\w.]\\d"))
    (?-i:[0-9])+[0-9A-Za-z_.]\\d
    """
    parts = []
    index = 0
    while index < len(pattern):
        end = index + 1
        part = pattern[index]
        if part == "[":
            end = _CLASS.match(pattern, index).end()  # type: ignore[union-attr]
            part = _ESCAPE.sub(
                lambda escape: _ASCII_CLASSES.get(escape[1], escape[0]), pattern[index:end]
            )
        elif part == "\\":
            end = index + 2
            letter = pattern[index + 1]
            if letter in _ASCII_CLASSES:
                part = f"(?-i:[{_ASCII_CLASSES[letter]}])"
            else:
                part = _BOUNDARIES.get(letter, pattern[index:end])
        parts.append(part)
        index = end
    return "".join(parts)


def _has_nested_repetition(pattern: str) -> bool:
    r"""Return True if a repeated group contains a repetition or an alternative.

    Atomic groups and possessive repetitions are read as others. So the result may be True for a
    pattern that takes linear time, and it is False only for patterns of polynomial time.

    >>> [_has_nested_repetition(p) for p in ("(a+)+", "(a|b)*", "((ab){2})+", r"([\]]?)*")]
    [True, True, True, True]
    >>> [_has_nested_repetition(p) for p in (r"(\(a+\))?[(a+)+]*", "(ab)*(a+){1}", "[]a+)]*")]
    [False, False, False]
    """
    has_choice = [False]  # for each open group: True if it contains a repetition or an alternative
    index = 0
    while index < len(pattern):
        character = pattern[index]
        closed_has_choice = False  # of the group that ends here
        if character == "\\":
            index += 2
        elif character == "[":
            index = _CLASS.match(pattern, index).end()  # type: ignore[union-attr]
        else:
            index += 1
        if character == "(":
            has_choice.append(False)
            index += pattern[index : index + 1] == "?"
            continue
        if character == "|":
            has_choice[-1] = True
            continue
        if character == ")" and len(has_choice) > 1:
            closed_has_choice = has_choice.pop()
        quantifier = _QUANTIFIER.match(pattern, index)
        if quantifier:
            index = quantifier.end()
            if closed_has_choice and not _ONCE.fullmatch(quantifier[0]):
                return True
            # A lazy or possessive repetition ends with a second character.
            index += pattern[index : index + 1] in ("?", "+")
            has_choice[-1] = True
        has_choice[-1] |= closed_has_choice
    return False
