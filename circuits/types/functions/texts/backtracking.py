r"""The work of backtracking: how long a text may be, so that a search in it ends.

Python's ``re`` tries every combination of choices of a pattern until one matches. A combination is
a start in the text, an end for each repetition, and a branch for each alternative. Starts and ends
do not decrease from left to right. So for a text of n characters and a pattern with k repetitions
there are about C(n + k + 1, k + 1) combinations (a binomial coefficient), times the branches:
``(?<=x) +$`` has n²/2, ``\w+.*\w+$`` n⁴/24.

A repetition is not counted if it never gives back a character with success, because the next
character of the pattern never matches a repeated one. So ``\d+-\d+-\d+`` counts one repetition, the
last. If such repetitions follow a counted one, as in ``.*a+b``, they count as one together, because
they read up to n characters for each of its ends. So does a back reference. Look-around is never
entered a second time; therefore only the look-around with the most combinations counts.

The counts are for patterns without a repetition of a repetition or of an alternative.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import comb
from typing import Final

__all__ = ["MAX_BACKTRACKED_CHARACTERS", "MAX_COMBINATIONS", "Choices", "count_choices"]

#: Maximum length of a text that Python's ``re`` matches, for any pattern.
MAX_BACKTRACKED_CHARACTERS: Final = 10_000
#: Maximum number of combinations that a search may try, in about half a second.
MAX_COMBINATIONS: Final = 10**8

_GROUP: Final = re.compile(r"\((?:\?(?:P?<\w+>|P=\w+|<?[=!]|[a-zA-Z-]*:|>|[a-zA-Z]+(?=\))))?")
_LOOK_AROUND: Final = re.compile(r"\(\?<?[=!]")
_SCOPED_FLAGS: Final = re.compile(r"\(\?[a-zA-Z-]+:")
_BACK_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=")
# One character of the text: an escape, a class, or a character without a meaning of its own.
_CHARACTER: Final = re.compile(
    r"\\(?:x..|u.{4}|U.{8}|[^bBAZ0-9xuU])|\[\^?\]?(?:[^\]\\]|\\.)*\]|[^\\\[()|^$*+?]", re.DOTALL
)
_QUANTIFIER: Final = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})[?+]?")
_FLAGS: Final = re.IGNORECASE | re.DOTALL | re.ASCII
# Each character of the Basic Multilingual Plane.
_ALL_CHARACTERS: Final = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x10000))))


@dataclass(frozen=True)
class Choices:
    """The choices of a pattern.

    Attributes:
        repetitions: The repetitions without a maximum that may have to give back characters.
        branches: The product of the numbers of branches of all other choices.
    """

    repetitions: int
    branches: int

    def combinations(self, characters: int) -> int:
        """Return an upper bound of the combinations for a text of this length."""
        ends = max(self.repetitions, 1)
        return comb(characters + ends + 1, ends + 1) * self.branches

    @property
    def max_characters(self) -> int:
        """The length of the longest text with at most `MAX_COMBINATIONS` combinations.

        >>> [Choices(k, 1).max_characters for k in (1, 2, 3, 4)]
        [10000, 841, 218, 100]
        >>> Choices(1, 2**30).max_characters
        0
        """
        low, high = 0, MAX_BACKTRACKED_CHARACTERS
        while low < high:
            middle = (low + high + 1) // 2
            if self.combinations(middle) <= MAX_COMBINATIONS:
                low = middle
            else:
                high = middle - 1
        return low


@dataclass
class _Scope:
    """The choices of an open group, and the greatest of the look-arounds in it."""

    is_look_around: bool
    repetitions: int = 0
    branches: int = 1
    inner_repetitions: int = 0
    inner_branches: int = 1

    def close_into(self, outer: _Scope) -> None:
        """Add the choices of this group to those of the group that contains it."""
        repetitions = self.repetitions + self.inner_repetitions
        branches = self.branches * self.inner_branches
        if self.is_look_around:
            outer.inner_repetitions = max(outer.inner_repetitions, repetitions)
            outer.inner_branches = max(outer.inner_branches, branches)
        else:
            outer.repetitions += self.repetitions
            outer.branches *= self.branches
            outer.inner_repetitions = max(outer.inner_repetitions, self.inner_repetitions)
            outer.inner_branches = max(outer.inner_branches, self.inner_branches)


def count_choices(pattern: str, flags: int) -> Choices:
    r"""Return the choices of a pattern that ``re`` accepts.

    >>> count_choices(r"(?<!\d)(\d+)-(\d+)-(\d+)(?!\d)", 0)
    Choices(repetitions=1, branches=1)
    >>> count_choices(r"\w+.*\w+$", 0)
    Choices(repetitions=3, branches=1)
    >>> count_choices(r"(?=.*\d)(?=.*[a-z])a?(b|c|d){2,4}", 0)
    Choices(repetitions=1, branches=18)
    >>> count_choices(".*a+b", 0)
    Choices(repetitions=2, branches=1)
    >>> count_choices(r"\b(\w+)\s+\1\b", 0)
    Choices(repetitions=2, branches=1)
    """
    scopes = [_Scope(False)]
    knows_flags = _SCOPED_FLAGS.search(pattern) is None
    index = 0
    # True if a repetition that is not counted follows a counted one.
    has_repeated_reads = False
    while index < len(pattern):
        start, is_group_end = index, False
        if group := _GROUP.match(pattern, index):
            scopes.append(_Scope(_LOOK_AROUND.match(group[0]) is not None))
            index = group.end()
            continue
        if pattern[index] == "|":
            scopes[-1].branches += 1
            index += 1
            continue
        if pattern[index] == ")" and len(scopes) > 1:
            scopes.pop().close_into(scopes[-1])
            index, is_group_end = index + 1, True
        elif character := _CHARACTER.match(pattern, index):
            index = character.end()
        else:
            index += 2 if pattern[index] == "\\" else 1
        quantifier = _QUANTIFIER.match(pattern, index)
        if quantifier is None:
            continue
        atom = pattern[start:index]
        index = quantifier.end()
        if not is_group_end and knows_flags and _never_gives_back(atom, pattern, index, flags):
            has_repeated_reads |= any(scope.repetitions for scope in scopes)
            continue
        span = _span(quantifier)
        if span is None:
            scopes[-1].repetitions += 1
        else:
            scopes[-1].branches *= span + 1
    while len(scopes) > 1:
        scopes.pop().close_into(scopes[-1])
    scope = scopes[0]
    repetitions = scope.repetitions + scope.inner_repetitions + has_repeated_reads
    repetitions += _BACK_REFERENCE.search(pattern) is not None
    return Choices(repetitions, scope.branches * scope.inner_branches)


def _span(quantifier: re.Match[str]) -> int | None:
    """Return the maximum minus the minimum of a quantifier; None without a maximum."""
    whole, low, comma, high = quantifier.groups()
    if whole in ("*", "+") or (comma and not high):
        return None
    return 1 if whole == "?" else int(high or low or 0) - int(low or 0)


def _never_gives_back(atom: str, pattern: str, index: int, flags: int) -> bool:
    """Return True if the character that follows at ``index`` never matches the repeated atom."""
    while pattern[index : index + 1] == ")":
        index += 1
        if _QUANTIFIER.match(pattern, index):
            return False
    following = _CHARACTER.match(pattern, index)
    if following is None or not _CHARACTER.fullmatch(atom):
        return False
    quantifier = _QUANTIFIER.match(pattern, following.end())
    if quantifier and (
        quantifier[1] in ("*", "?") or int(quantifier[2] or quantifier[1] == "+") < 1
    ):
        return False
    both = re.compile(f"(?={atom})(?:{following[0]})", flags & _FLAGS)
    return both.search(_ALL_CHARACTERS) is None
