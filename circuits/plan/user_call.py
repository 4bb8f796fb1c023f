"""UserCall: the rows of the input with one more column, the result of a user-defined function.

::

    call(Z)[x, f(x)]  =  Z[x]

The result of a row is computed when the row is inserted, and remembered as long as the row exists.
Rows with equal arguments have equal results while they exist together. The node maps each row by
itself, but it is not marked as linear, because its operator has state: the rows with their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from circuits.plan.columns import Field, Fields
from circuits.plan.frontier import ColumnBounds
from circuits.plan.node import UnaryNode
from circuits.user_functions import UserFunction
from dbsp_wcoj.cached_property import cached_property

__all__ = ["UserCall"]


@dataclass(frozen=True)
class UserCall(UnaryNode):
    """The rows of the input, and the result of a function as the last column.

    Attributes:
        name: The name of the function.
        function: The function.
        arguments: The columns that it is called with.
        view: The view that calls it, for errors.
    """

    name: str
    function: UserFunction
    arguments: tuple[int, ...]
    view: str

    @cached_property
    def fields(self) -> Fields:
        return (*self.input.fields, Field(self.name, self.function.returns))

    def key(self) -> tuple[object, ...]:
        return self.name, self.function.signature, self.arguments

    def label(self) -> str:
        names = ", ".join(self.input.fields[column].name for column in self.arguments)
        return f"call user-defined function {self.name}({names})"

    @property
    def partitioning(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.arguments))

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return inputs[0]

    def _may_be_null(self, column: int) -> bool:
        return column == len(self.input.fields) or self.input.is_nullable(column)
