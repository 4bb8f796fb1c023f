"""Excerpts: a value as an error message shows it, at most a few hundred characters long.

A message goes into logs, dead letters and exceptions, so a value of 10 MB must not be part of it.

Cost: O(excerpt), however long the value is.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_EXCERPT_CHARACTERS", "MAX_MESSAGE_CHARACTERS", "excerpt", "shortened"]

#: Characters of a value that a message shows.
MAX_EXCERPT_CHARACTERS: Final = 200
#: Characters that a message keeps of the message of another library, which may hold a value.
MAX_MESSAGE_CHARACTERS: Final = 500


def excerpt(value: object, limit: int = MAX_EXCERPT_CHARACTERS) -> str:
    """Return the ``repr`` of a value, or its beginning and its length where it is long.

    >>> excerpt("abc"), excerpt("abc" * 9, 4), excerpt([1] * 9, 4)
    ("'abc'", "'abca'… (27 characters)", '[1, …')
    """
    if isinstance(value, str | bytes) and len(value) > limit:
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{value[:limit]!r}… ({len(value)} {unit})"
    shown = repr(value)
    if isinstance(value, str | bytes) or len(shown) <= limit:
        return shown
    return f"{shown[:limit]}…"


def shortened(text: str, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """Return a text as it is, or its beginning and its length where it is long.

    >>> shortened("no 1", 4), shortened("no 1111", 4)
    ('no 1', 'no 1… (7 characters)')
    """
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
