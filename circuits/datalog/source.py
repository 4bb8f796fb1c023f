"""The text of a Datalog program, and errors that point into it.

Every node of the syntax tree keeps the offset that it starts at. A fault is an offset and a
message; `DatalogSource.error` makes a `DatalogError` of it, with line, column, excerpt and caret.
"""

from __future__ import annotations

from dataclasses import dataclass

from circuits.errors import DatalogError
from dbsp_wcoj.text_position import point_at

__all__ = ["DatalogSource"]


@dataclass(frozen=True, slots=True)
class DatalogSource:
    """A text in which places are offsets.

    >>> print(DatalogSource("p(x) :- q(y).").error("variable 'x' is unbound", 2))
    line 1, column 3: variable 'x' is unbound
      p(x) :- q(y).
        ^
    """

    text: str

    def error(self, message: str, offset: int) -> DatalogError:
        """Return the error at an offset: the message, then the line of the text and a caret."""
        return DatalogError(*point_at(self.text, offset, message))
