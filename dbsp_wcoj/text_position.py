"""Messages that point into a text: line, column, and an excerpt with a caret below the fault.

All parsers of the project (queries, Datalog, SQL) report faults in this form.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_EXCERPT_WIDTH", "point_at"]

#: Characters of a line that a message shows.
MAX_EXCERPT_WIDTH: Final = 72


def point_at(text: str, offset: int, message: str) -> tuple[str, int, int]:
    """Return a message that shows a position in a text, and its line and column.

    Args:
        text: The whole text.
        offset: The position; an offset outside the text means its nearest end.
        message: The fault.

    Returns:
        The complete message, the line and the column, both from 1. The message shows the line; of a
        long line only the part around the position. Tabs before the position are kept, so that the
        caret is below it.

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
    skipped = max(0, offset - start - MAX_EXCERPT_WIDTH // 2)
    excerpt = text[start:].partition("\n")[0][skipped : skipped + MAX_EXCERPT_WIDTH]
    text_before = excerpt[: offset - start - skipped]
    caret = "".join("\t" if character == "\t" else " " for character in text_before) + "^"
    return f"line {line}, column {column}: {message}\n  {excerpt}\n  {caret}", line, column
