"""SourceTable: the interface of the tables that a pipeline reads.

A position says which rows of a table the state has. It is a map of items, because a folder has one
item for each file; a Delta table has one item, its version, and an Iceberg table also its columns::

    {"": "5f0c…:17"}                                    a Delta table: id and version
    {"": "5f0c…:8127…", "nr": "1"}                      an Iceberg table: id, snapshot; columns
    {"a.parquet": "2048:17…", "b.parquet": "512:18…"}   a folder: size and time of each file

Law: the rows at position p, and the changes from p to q, add up to the rows at position q.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from circuits.schema import WEIGHT
from streaming.database.positions import Position

__all__ = ["KeptRows", "Position", "SourceTable", "TableChanges", "with_weight"]

#: Returns the rows that the state has of some items, with ``weight``.
KeptRows: TypeAlias = Callable[[Collection[str]], pa.Table]


@dataclass(frozen=True)
class TableChanges:
    """The changes of a table since a position.

    Attributes:
        rows: The changed rows with ``weight``; an update is two rows. Not consolidated.
        position: The position after the changes.
        method: How they were found, for people: "change data feed".
    """

    rows: pa.Table
    position: Position
    method: str


class SourceTable(Protocol):
    """A table that a pipeline reads."""

    @property
    def item_column(self) -> str | None:
        """The column of the rows that names their item; None if the state keeps no items."""
        ...

    @property
    def description(self) -> str:
        """The table, for messages."""
        ...

    def schema(self) -> pa.Schema:
        """Return the columns, without that of the items.

        Raises:
            SourceTableError: The table does not exist, or cannot be read.
        """
        ...

    def changes(self, position: Position, kept_rows: KeptRows) -> TableChanges | None:
        """Return what has changed since a position; None if nothing has.

        Args:
            position: The last position; empty before the first refresh.
            kept_rows: Returns rows of the state, for a table with `item_column`.

        Raises:
            SourceTableError: The changes cannot be determined, or the table cannot be read.
        """
        ...

    def rows_at(self, position: Position) -> pa.Table:
        """Return the rows at an earlier position.

        Raises:
            SourceTableError: The rows are no longer there.
        """
        ...


def with_weight(table: pa.Table, weight: int) -> pa.Table:
    """Return a table whose rows all have one weight."""
    return table.append_column(WEIGHT, pa.array(np.full(table.num_rows, weight, np.int64)))
