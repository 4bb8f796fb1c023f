"""Columns of plans: their names and types, aggregates over them, and orders by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "JSON_KIND",
    "LINEAR_FUNCTIONS",
    "AggregateCall",
    "Field",
    "Fields",
    "Order",
    "join_names",
    "label_keys",
    "number_repeated",
    "with_unique_names",
]

#: Aggregates whose results follow from sums of weights of rows
#: (`circuits.runtime.operators.aggregates.linear_aggregate`).
LINEAR_FUNCTIONS: Final = frozenset(
    ("count", "sum", "avg", "comoment", "moment", "bit_and", "bit_or", "bit_xor")
)


#: The key of the metadata of a column of JSON in the Arrow schema of a declared table.
JSON_KIND: Final = b"dbsp_wcoj.json"


@dataclass(frozen=True)
class Field:
    """The name and the type of a column; ``nullable`` False means that it contains no NULL.

    ``json_kind`` says which texts in it are JSON, as in `circuits.plan.json_values`; it is empty
    if none is. It follows from the rest of a plan, so it is not part of the identity of a field.
    """

    name: str
    type: pa.DataType
    nullable: bool = True
    json_kind: str = field(default="", compare=False, repr=False)


Fields = tuple[Field, ...]


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


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate of column ``argument`` of the input; ``None`` is ``count(*)``.

    Aggregates ignore NULL. Without any value ``count`` is 0 and the others are NULL.

    Attributes:
        function: The name; `aggregate_type` in `circuits.types.functions.type_rules` lists them.
        argument: The first argument.
        type: The type of the result (`circuits.types.functions.aggregate_type`).
        name: The name of the result.
        distinct: True to read each value, or each combination of the arguments, once.
        others: The further arguments.
        order: The order of the rows of a group, for functions that depend on it.
        options: Constants: a fraction, a separator.
    """

    function: str
    argument: int | None
    type: pa.DataType
    name: str
    distinct: bool = False
    others: tuple[int, ...] = ()
    order: tuple[Order, ...] = ()
    options: tuple[Any, ...] = ()

    @property
    def arguments(self) -> tuple[int, ...]:
        """All arguments; none for ``count(*)``."""
        return () if self.argument is None else (self.argument, *self.others)

    def key(self) -> tuple[object, ...]:
        """Everything but the name of the result."""
        base = (self.function, self.argument, self.distinct, self.type)
        if not (self.others or self.order or self.options):
            return base
        order = tuple((part.column, part.descending, part.nulls_first) for part in self.order)
        return *base, self.others, order, self.options

    def named_by_text(self, fields: Fields) -> AggregateCall:
        """Return the call with its text over these columns as the name of its result."""
        return replace(self, name=self.label(fields))

    def label(self, fields: Fields) -> str:
        """The call with the names of the columns.

        >>> call = AggregateCall("sum", 0, pa.int64(), "total", distinct=True)
        >>> call.label((Field("price", pa.int64()),))
        'sum(distinct price)'
        """
        arguments = [fields[argument].name for argument in self.arguments] or ["*"]
        arguments += [repr(option) for option in self.options]
        order = ", ".join(part.label(fields) for part in self.order)
        return (
            f"{self.function}({'distinct ' if self.distinct else ''}{', '.join(arguments)}"
            f"{f' order by {order}' if order else ''})"
        )


def number_repeated(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names, with a number added to each that repeats an earlier one.

    >>> number_repeated(["price", "nr", "price"])
    ('price', 'nr', 'price_2')
    """
    used: dict[str, None] = {}
    for name in names:
        unique, number = name, 2
        while unique in used:
            unique, number = f"{name}_{number}", number + 1
        used[unique] = None
    return tuple(used)


def with_unique_names(fields: Sequence[Field]) -> Fields:
    """Return the columns, renamed so that no two have one name."""
    names = number_repeated(field.name for field in fields)
    return tuple(replace(field, name=name) for field, name in zip(fields, names, strict=True))


def join_names(fields: Sequence[Field]) -> str:
    """Return the names of columns, for labels of nodes."""
    return ", ".join(field.name for field in fields)


def label_keys(keys: Sequence[Field]) -> str:
    """Return the end of the label of a node with these keys, which is empty without keys."""
    return f" by {join_names(keys)}" if keys else ""
