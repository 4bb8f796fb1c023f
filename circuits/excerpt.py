"""Excerpts: shorten a value for an error message, to at most a few hundred characters.

Error messages go into logs, dead letters and exceptions, so they must not contain a value of 10 MB.

Cost: O(excerpt) for strings and bytes, however long they are; for other values, their ``repr``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_EXCERPT_CHARACTERS", "MAX_MESSAGE_CHARACTERS", "excerpt", "shorten"]

#: How many characters of a value an error message shows.
MAX_EXCERPT_CHARACTERS: Final = 200
#: How many characters of another library's error message are kept; it may contain a value.
MAX_MESSAGE_CHARACTERS: Final = 500


def excerpt(value: object, limit: int = MAX_EXCERPT_CHARACTERS) -> str:
    """Return the ``repr`` of a value; if it is too long, its beginning.

    For strings and bytes, the length of the value follows the beginning.

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


def shorten(text: str, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """Return a text as it is; if it is longer than ``limit``, its beginning and its length.

    >>> shorten("no 1", 4), shorten("no 1111", 4)
    ('no 1', 'no 1… (7 characters)')
    """
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
