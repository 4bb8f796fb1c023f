"""Messages that point into a text: line, column, and an excerpt with a caret below the fault.

All parsers of the project (queries, Datalog, SQL) report faults in this form.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_EXCERPT_WIDTH", "point_at"]

#: Characters of a line that a message shows.
MAX_EXCERPT_WIDTH: Final = 72


def point_at(text: str, offset: int, message: str) -> tuple[str, int, int]:
    """Return a message that shows a place of a text, with the line and the column of the place.

    Args:
        text: The whole text.
        offset: The place; an offset outside the text means its nearest end.
        message: The fault.

    Returns:
        The complete message, the line and the column, both from 1. The excerpt is the line of the
        place. A long line is cut to a window around the place. Tabs before the place are kept, so
        that the caret stands below it.

    >>> message, line, column = point_at("p(x) :- q(y).", 2, "variable 'x' is unbound")
    >>> line, column
    (1, 3)
    >>> print(message)
    line 1, column 3: variable 'x' is unbound
      p(x) :- q(y).
        ^
    """
    offset = min(max(offset, 0), len(text))
    start = text.rfind("\n", 0, offset) + 1
    line, column = text.count("\n", 0, offset) + 1, offset - start + 1
    cut = max(0, offset - start - MAX_EXCERPT_WIDTH // 2)
    excerpt = text[start:].partition("\n")[0][cut : cut + MAX_EXCERPT_WIDTH]
    before = excerpt[: offset - start - cut]
    caret = "".join("\t" if character == "\t" else " " for character in before) + "^"
    return f"line {line}, column {column}: {message}\n  {excerpt}\n  {caret}", line, column
