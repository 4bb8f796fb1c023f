"""Columns of plans: their names and types, aggregates over them, and orders by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

__all__ = ["AggregateCall", "AggregateFunction", "Field", "Fields", "Order"]


@dataclass(frozen=True)
class Field:
    """The name and the type of a column; ``nullable`` False means that it contains no NULL."""

    name: str
    type: pa.DataType
    nullable: bool = True


Fields = tuple[Field, ...]


AggregateFunction = Literal["count", "sum", "avg", "min", "max"]


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate of column ``argument`` of the input; ``None`` is ``count(*)``.

    Aggregates ignore NULL. Without any value ``count`` is 0 and the others are NULL. ``type`` is
    the type of the result (`circuits.types.functions.aggregate_type`).
    """

    function: AggregateFunction
    argument: int | None
    type: pa.DataType
    name: str
    distinct: bool = False

    def key(self) -> tuple[object, ...]:
        """Everything but the name of the result."""
        return self.function, self.argument, self.distinct, self.type

    def label(self, fields: Fields) -> str:
        """The call with the name of the column.

        >>> call = AggregateCall("sum", 0, pa.int64(), "total", distinct=True)
        >>> call.label((Field("price", pa.int64()),))
        'sum(distinct price)'
        """
        argument = "*" if self.argument is None else fields[self.argument].name
        return f"{self.function}({'distinct ' if self.distinct else ''}{argument})"


@dataclass(frozen=True)
class Order:
    """A column to order by."""

    column: int
    descending: bool = False
    nulls_first: bool = False

    def label(self, fields: Fields) -> str:
        """The order with the name of the column.

        >>> Order(0, descending=True).label((Field("price", pa.int64()),))
        'price desc'
        """
        direction = " desc" if self.descending else ""
        return f"{fields[self.column].name}{direction}{' nulls first' if self.nulls_first else ''}"
