"""Table check: whether an existing table of a database can receive the rows of a view.

The check runs before a query starts, so that a table with other columns is an error at once and not
after the first micro-batch. Types are compared by family only, because databases convert many of
them. Text columns are not compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["TableShape", "describe_mismatch"]

_FAMILIES: Final = {
    # "int", but not as a part of "point" or "interval".
    "number": r"(?<!po)int(?!erval)|serial|numeric|decimal|real|double|float|money",
    "boolean": "bool",
    "bytes": "bytea|blob|binary",
    "time": "date|time|interval",
}


@dataclass(frozen=True)
class TableShape:
    """The columns and constraints of a table.

    Attributes:
        types: The type of each column, by the database's name of the type.
        required: Columns that reject NULL and have no default.
        unique: The columns of each unique constraint.
    """

    types: Mapping[str, str]
    required: frozenset[str]
    unique: tuple[frozenset[str], ...]


def describe_mismatch(
    shape: TableShape, columns: Mapping[str, str], keys: Sequence[str] = ()
) -> str | None:
    """Return why rows of these columns cannot be written to a table; None if they can.

    Args:
        shape: The table.
        columns: The columns of the rows, with the types that a new table would have.
        keys: The key columns of an upsert.

    >>> shape = TableShape({"nr": "bigint", "at": "date"}, frozenset({"at"}), ())
    >>> describe_mismatch(shape, {"nr": "BIGINT", "item": "TEXT"})
    "it lacks the column 'item'; its columns are nr, at"
    >>> describe_mismatch(shape, {"nr": "BIGINT"})
    "its column 'at' needs a value (NOT NULL without default), and the view has none"
    >>> describe_mismatch(shape, {"nr": "BIGINT", "at": "BIGINT"})
    "its column 'at' is date, and the view has BIGINT"
    >>> describe_mismatch(shape, {"nr": "BIGINT", "at": "DATE"}, ["nr"])
    'it has no unique constraint on (nr), by which rows are replaced'
    """
    for name in columns:
        if name not in shape.types:
            return f"it lacks the column {name!r}; its columns are {', '.join(shape.types)}"
    missing = sorted(shape.required - set(columns))
    if missing:
        return (
            f"its column {missing[0]!r} needs a value (NOT NULL without default), and the view has "
            "none"
        )
    for name, type_ in columns.items():
        table_family, view_family = _family(shape.types[name]), _family(type_)
        if None not in (table_family, view_family) and table_family != view_family:
            return f"its column {name!r} is {shape.types[name]}, and the view has {type_}"
    if keys and frozenset(keys) not in shape.unique:
        return f"it has no unique constraint on ({', '.join(keys)}), by which rows are replaced"
    return None


def _family(type_: str) -> str | None:
    """Return the family of a type by its name in the database; None if unknown, as for text."""
    for family, pattern in _FAMILIES.items():
        if re.search(pattern, type_.lower()):
            return family
    return None
