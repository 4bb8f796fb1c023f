"""The text of a Datalog program, and errors that point into it.

Every node of the syntax tree has the offset at which it starts. `DatalogSource.error` makes a
`DatalogError` of a message and an offset: with line, column, excerpt and caret.
"""

from __future__ import annotations

from dataclasses import dataclass

from circuits.errors import DatalogError
from dbsp_wcoj.text_position import point_at

__all__ = ["DatalogSource"]


@dataclass(frozen=True, slots=True)
class DatalogSource:
    """The text of a program.

    >>> print(DatalogSource("p(x) :- q(y).").error("variable 'x' is unbound", 2))
    line 1, column 3: variable 'x' is unbound
      p(x) :- q(y).
        ^
    """

    text: str

    def error(self, message: str, offset: int) -> DatalogError:
        """Return an error at an offset: the message, the line of the text and a caret below it."""
        return DatalogError(*point_at(self.text, offset, message))
