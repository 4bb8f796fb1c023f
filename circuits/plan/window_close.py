"""WindowClose: the rows of a view that no later step changes, each once (EMIT ON WINDOW CLOSE).

A row is final when one of its columns is before the frontier of the column
(`circuits.plan.frontier`). For a count per window, that is when the watermark has passed the end of
the window. Before, the row is not emitted; afterwards it is never deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from circuits.plan.frontier import ColumnBounds
from circuits.plan.node import UnaryNode

__all__ = ["WindowClose", "closing_column"]


@dataclass(frozen=True)
class WindowClose(UnaryNode):
    """The rows of the input that are final after the step.

    Attributes:
        place: The position of EMIT ON WINDOW CLOSE in the text, for errors.
    """

    place: str = field(default="", compare=False)

    reads_watermarks: ClassVar[bool] = True

    def key(self) -> tuple[object, ...]:
        return ()

    def label(self) -> str:
        return "emit on window close"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        # All rows that later steps emit are at or after the frontier of this step.
        column = closing_column(inputs[0])
        return {} if column is None else {column: inputs[0][column]}

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)


def closing_column(bounds: ColumnBounds) -> int | None:
    """Return the column that decides when a row is final: the first that has a frontier."""
    return min(bounds, default=None)
