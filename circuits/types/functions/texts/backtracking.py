r"""The work of backtracking: how long a text may be, so that a search in it ends.

Python's ``re`` tries every combination of choices of a pattern until one matches. A combination is
a start in the text, an end for each repetition, and a branch for each alternative. No end is before
the start or before the end of an earlier repetition. So for a text of n characters and a pattern
with k repetitions there are about C(n + k + 1, k + 1) combinations (a binomial coefficient), times
the branches: ``(?<=x) +$`` has n²/2, ``\w+.*\w+$`` n⁴/24.

Some repetitions have only one possible end: all repeated characters must be read, because the
character that comes next in the pattern is different from all of them. They are not counted, so
``\d+-\d+-\d+`` has one counted repetition, the last. If repetitions that are not counted follow a
counted one, as in ``.*a+b``, they read up to n characters for each end of the counted one;
therefore they count as one repetition together. A back reference counts as one repetition for the
same reason. Look-around is never entered a second time; therefore only the look-around with the
most combinations counts.

A group with a maximum, such as ``(b|c|d){2,4}``, is counted as if it were read once, and a group
without a maximum as one repetition. This is too low if the repeated group contains a repetition or
an alternative; `circuits.types.functions.texts.patterns` never uses the counts of such patterns.
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
        branches: An upper bound of the combinations of all other choices: alternatives, and
            repetitions with a maximum.
    """

    repetitions: int
    branches: int

    def combinations(self, characters: int) -> int:
        """Return an upper bound of the combinations for a text of this length."""
        # Without a counted repetition, the others may read n characters from each start.
        repetitions = max(self.repetitions, 1)
        return comb(characters + repetitions + 1, repetitions + 1) * self.branches

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
    look_around_repetitions: int = 0
    look_around_branches: int = 1

    def close_into(self, outer: _Scope) -> None:
        """Add the choices of this group to those of the group that contains it."""
        repetitions = self.repetitions + self.look_around_repetitions
        branches = self.branches * self.look_around_branches
        if self.is_look_around:
            outer.look_around_repetitions = max(outer.look_around_repetitions, repetitions)
            outer.look_around_branches = max(outer.look_around_branches, branches)
        else:
            outer.repetitions += self.repetitions
            outer.branches *= self.branches
            outer.look_around_repetitions = max(
                outer.look_around_repetitions, self.look_around_repetitions
            )
            outer.look_around_branches = max(outer.look_around_branches, self.look_around_branches)


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
    uncounted_follows_counted = False
    while index < len(pattern):
        start, is_group_end = index, False
        if group := _GROUP.match(pattern, index):
            scopes.append(_Scope(_LOOK_AROUND.match(group[0]) is not None))
            index = group.end()
            continue
        if pattern[index] == "|":
            # An upper bound: later choices of this branch multiply those of all branches.
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
        if not is_group_end and knows_flags and _has_one_end(atom, pattern, index, flags):
            uncounted_follows_counted |= any(scope.repetitions for scope in scopes)
            continue
        span = _span(quantifier)
        if span is None:
            scopes[-1].repetitions += 1
        else:
            scopes[-1].branches *= span + 1
    while len(scopes) > 1:
        scopes.pop().close_into(scopes[-1])
    scope = scopes[0]
    repetitions = scope.repetitions + scope.look_around_repetitions + uncounted_follows_counted
    repetitions += _BACK_REFERENCE.search(pattern) is not None
    return Choices(repetitions, scope.branches * scope.look_around_branches)


def _span(quantifier: re.Match[str]) -> int | None:
    """Return the maximum minus the minimum of a quantifier: 2 for ``{2,4}``; None without limit."""
    whole, low, comma, high = quantifier.groups()
    if whole in ("*", "+") or (comma and not high):
        return None
    return 1 if whole == "?" else int(high or low or 0) - _minimum(quantifier)


def _minimum(quantifier: re.Match[str]) -> int:
    """Return the minimum of a quantifier."""
    return 1 if quantifier[1] == "+" else int(quantifier[2] or 0)


def _has_one_end(atom: str, pattern: str, index: int, flags: int) -> bool:
    """Return True if the repetition of an atom that ends before ``index`` has one possible end.

    This is so if the character that follows in the pattern never matches the atom.
    """
    while pattern[index : index + 1] == ")":
        index += 1
        if _QUANTIFIER.match(pattern, index):
            return False
    following = _CHARACTER.match(pattern, index)
    if following is None or not _CHARACTER.fullmatch(atom):
        return False
    quantifier = _QUANTIFIER.match(pattern, following.end())
    if quantifier and _minimum(quantifier) == 0:
        return False
    both = re.compile(f"(?={atom})(?:{following[0]})", flags & _FLAGS)
    return both.search(_ALL_CHARACTERS) is None
