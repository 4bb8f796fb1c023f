"""Columns: what plans say of them; names and types, how they are aggregated and ordered by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

__all__ = ["AggregateCall", "AggregateFunction", "Field", "Fields", "Order"]


@dataclass(frozen=True)
class Field:
    """The name and the type of a column; ``nullable`` False promises that it has no NULL."""

    name: str
    type: pa.DataType
    nullable: bool = True


Fields = tuple[Field, ...]


AggregateFunction = Literal["count", "sum", "avg", "min", "max"]


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate of column ``argument`` of the input; ``None`` is ``count(*)``.

    NULLs are left out; without any value ``count`` is 0 and the others are NULL. ``type`` is the
    type of the result (`circuits.types.functions.aggregate_type`).
    """

    function: AggregateFunction
    argument: int | None
    type: pa.DataType
    name: str
    distinct: bool = False


@dataclass(frozen=True)
class Order:
    """A column to order by."""

    column: int
    descending: bool = False
    nulls_first: bool = False
