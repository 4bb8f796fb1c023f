"""Unnest: one row per element of a list or map; the plan node of UNNEST, explode and posexplode.

::

    unnest(Z)[x, e, i]  =  Σ over lists l with element e at position i of Z[x, l]

It is linear: a row maps to its elements, independently of the other rows. The list is the last
column of the input, and its elements (for a map: keys and values) replace it. So the columns before
it stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from circuits.plan.bounds import bounds_of_first
from circuits.plan.columns import Field, Fields
from circuits.plan.frontier import ColumnBounds
from circuits.plan.node import UnaryNode
from circuits.types.arrow_types import part_types
from dbsp_wcoj.cached_property import cached_property

__all__ = ["Unnest"]


@dataclass(frozen=True)
class Unnest(UnaryNode):
    """The rows of the input, once per element of the list or map in its last column.

    Attributes:
        names: The names of the new columns: the element, or key and value; then the position.
        first_position: The position of the first element, 0 or 1; None for no column of positions.
        outer: True if a row without elements stays, with NULL for the element and its position.
    """

    names: tuple[str, ...]
    first_position: int | None = None
    outer: bool = False

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        *other_fields, list_field = self.input.fields
        types = part_types(list_field.type)
        if self.first_position is not None:
            types.append(pa.int64())
        return (
            *other_fields,
            *(
                Field(name, type, json_kind=list_field.json_kind)
                for name, type in zip(self.names, types, strict=True)
            ),
        )

    def key(self) -> tuple[object, ...]:
        return self.first_position, self.outer

    def label(self) -> str:
        kind = "outer unnest" if self.outer else "unnest"
        position = (
            "" if self.first_position is None else f" with position from {self.first_position}"
        )
        return f"{kind} {self.input.fields[-1].name}{position}"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return bounds_of_first(inputs[0], len(self.input.fields) - 1)

    def _may_be_null(self, column: int) -> bool:
        list_column = len(self.input.fields) - 1
        if column < list_column:
            return self.input.is_nullable(column)
        is_position = self.first_position is not None and column == len(self.fields) - 1
        return self.outer or not is_position
