"""Row parts: rows in any order, as parts whose columns are not copied.

A projection of row parts copies no column, and a union of them copies no row. So the rows of a join
that only a recursive operator reads are stored once until it packs or sorts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dbsp_wcoj.zset import Int64Array, ZSet, consolidated_rows

__all__ = ["RowPart", "RowParts"]


class RowPart(NamedTuple):
    """Some rows.

    Attributes:
        columns: The codes of each column.
        weights: The weights.
    """

    columns: Sequence[Int64Array]
    weights: Int64Array


class RowParts:
    """Rows in any order; a row may occur more than once.

    Args:
        arity: The number of columns.
        parts: The parts; none of them is empty.
        is_sorted: True if the rows of all parts are sorted and distinct.

    >>> rows = RowParts.of(ZSet.from_rows([(1, 5), (2, 4)]))
    >>> RowParts.union([rows, rows.project([1, 0])], 2).sorted()
    ZSet({(1, 5): 1, (2, 4): 1, (4, 2): 1, (5, 1): 1})
    """

    __slots__ = ("arity", "is_sorted", "parts")

    def __init__(self, arity: int, parts: Sequence[RowPart], *, is_sorted: bool = False) -> None:
        self.arity = arity
        self.parts = parts
        self.is_sorted = is_sorted

    @staticmethod
    def of(rows: ZSet) -> RowParts:
        """Return the rows of a Z-set; its arrays are shared."""
        parts = [RowPart([*rows.row_array], rows.weight_array)] if len(rows) else []
        return RowParts(rows.arity, parts, is_sorted=True)

    @staticmethod
    def union(inputs: Iterable[RowParts], arity: int) -> RowParts:
        """Return the rows of all inputs."""
        inputs = [rows for rows in inputs if rows.parts]
        if len(inputs) == 1:
            return inputs[0]
        return RowParts(arity, [part for rows in inputs for part in rows.parts])

    def __len__(self) -> int:
        return sum([len(part.weights) for part in self.parts])

    def project(self, columns: Sequence[int]) -> RowParts:
        """Return the rows with these columns."""
        parts = [RowPart([part.columns[k] for k in columns], part.weights) for part in self.parts]
        return RowParts(len(columns), parts)

    def sorted(self) -> ZSet:
        """Return the rows as a Z-set."""
        if not self.parts:
            return ZSet.empty(self.arity)
        size = len(self)
        rows: Int64Array = np.empty((self.arity, size), np.int64)
        weights: Int64Array = np.empty(size, np.int64)
        begin = 0
        for columns, part_weights in self.parts:
            end = begin + len(part_weights)
            for k, column in enumerate(columns):
                rows[k, begin:end] = column
            weights[begin:end] = part_weights
            begin = end
        return ZSet(rows, weights) if self.is_sorted else consolidated_rows(rows, weights)
