"""The text of a program, and the errors that point into it.

Everything that is read from a text keeps the offset it starts at; a fault is that offset and a
sentence, and becomes a `DatalogError` with line, column, excerpt and caret here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from circuits.errors import DatalogError

__all__ = ["DatalogSource"]

EXCERPT_WIDTH: Final = 72


@dataclass(frozen=True, slots=True)
class DatalogSource:
    """A text in which places are offsets.

    >>> print(DatalogSource("p(x) :- q(y).").error("variable 'x' is unbound", 2))
    line 1, column 3: variable 'x' is unbound
      p(x) :- q(y).
        ^
    """

    text: str

    def error(self, message: str, at: int) -> DatalogError:
        """The error at offset ``at``: the message, then the line of the text and a caret.

        A long line is cut to a window around the fault; tabs before it are kept.
        """
        at = min(max(at, 0), len(self.text))
        start = self.text.rfind("\n", 0, at) + 1
        line, column = self.text.count("\n", 0, at) + 1, at - start + 1
        cut = max(0, at - start - EXCERPT_WIDTH // 2)
        excerpt = self.text[start:].partition("\n")[0][cut : cut + EXCERPT_WIDTH]
        caret = "".join("\t" if c == "\t" else " " for c in excerpt[: at - start - cut]) + "^"
        full = f"line {line}, column {column}: {message}\n  {excerpt}\n  {caret}"
        return DatalogError(full, line, column)
