"""SingleRow: groups of at most one row each, as a scalar subquery needs them.

The rows pass unchanged. A step in which a group gets a second row fails, and its error names the
group. A row of weight 2 counts as two rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from circuits.plan.frontier import ColumnBounds
from circuits.plan.node import UnaryNode

__all__ = ["SingleRow"]


@dataclass(frozen=True)
class SingleRow(UnaryNode):
    """The rows of the input; an error if several have the same values in the first columns.

    Attributes:
        key_count: The number of columns, from the first, that are the key of a group.
        names: The names of these columns, for the error.
    """

    key_count: int
    names: tuple[str, ...] = ()

    state_unit: ClassVar[str] = "groups"

    def key(self) -> tuple[object, ...]:
        return self.key_count, self.names

    def label(self) -> str:
        names = ", ".join(self.names)
        return "at most one row" + (f" per {names}" if names else "")

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return inputs[0]

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return self.input.with_implied_bounds(bounds)

    @property
    def partitioning(self) -> tuple[int, ...]:
        return tuple(range(self.key_count))

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)
