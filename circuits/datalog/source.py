"""The text of a Datalog program, errors that point into it, and the functions that it can call.

Every node of the syntax tree has the offset at which it starts. `DatalogSource.error` makes a
`DatalogError` of a message and an offset: with line, column, excerpt and caret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from circuits.errors import DatalogError
from circuits.user_functions import UserFunction
from dbsp_wcoj.text_position import point_at

__all__ = ["DatalogSource"]


@dataclass(frozen=True, slots=True)
class DatalogSource:
    """The text of a program.

    Attributes:
        text: The text.
        functions: The user-defined functions by lower-case name.

    >>> print(DatalogSource("p(x) :- q(y).").error("variable 'x' is unbound", 2))
    line 1, column 3: variable 'x' is unbound
      p(x) :- q(y).
        ^
    """

    text: str
    functions: Mapping[str, UserFunction] = field(default_factory=dict, compare=False)

    def error(self, message: str, offset: int) -> DatalogError:
        """Return an error at an offset: the message, the line of the text and a caret below it."""
        return DatalogError(*point_at(self.text, offset, message))
