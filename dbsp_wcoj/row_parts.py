"""Row parts: rows in any order, as parts whose columns are not copied.

A projection of row parts copies no column, and a union of them copies no row. So the rows of a join
that only a recursive operator reads are stored once until it packs or sorts them. They may also
have a source, which computes them when they are read; a reader that understands the source need not
read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dbsp_wcoj.zset import Int64Array, ZSet, consolidated_rows

__all__ = ["RowPart", "RowParts", "RowSource"]


class RowPart(NamedTuple):
    """Some rows.

    Attributes:
        columns: The codes of each column.
        weights: The weights.
    """

    columns: Sequence[Int64Array]
    weights: Int64Array


class RowSource(Protocol):
    """Rows that are computed when they are read."""

    def compute_parts(self) -> Sequence[RowPart]:
        """Return the parts; none of them is empty."""

    def project(self, columns: Sequence[int]) -> tuple[RowSource, bool] | None:
        """Return the source of the rows with these columns, and whether they are sorted.

        None if they must be computed first.
        """


class RowParts:
    """Rows in any order; a row may occur more than once.

    Args:
        arity: The number of columns.
        parts: The parts, none of which is empty; or the source that computes them.
        is_sorted: True if the rows of all parts are sorted and distinct.

    Attributes:
        source: The source of the rows, as long as they are not computed.

    >>> rows = RowParts.of(ZSet.from_rows([(1, 5), (2, 4)]))
    >>> RowParts.union([rows, rows.project([1, 0])], 2).sorted()
    ZSet({(1, 5): 1, (2, 4): 1, (4, 2): 1, (5, 1): 1})
    """

    __slots__ = ("_parts", "arity", "is_sorted", "source")

    def __init__(
        self, arity: int, parts: Sequence[RowPart] | RowSource, *, is_sorted: bool = False
    ) -> None:
        self.arity = arity
        self.is_sorted = is_sorted
        self._parts: Sequence[RowPart] = ()
        self.source: RowSource | None = None
        if isinstance(parts, Sequence):
            self._parts = parts
        else:
            self.source = parts

    @property
    def parts(self) -> Sequence[RowPart]:
        """The parts; the first reader computes them."""
        if self.source is not None:
            self._parts = self.source.compute_parts()
            self.source = None
        return self._parts

    @staticmethod
    def of(rows: ZSet) -> RowParts:
        """Return the rows of a Z-set; its arrays are shared."""
        parts = [RowPart([*rows.row_array], rows.weight_array)] if len(rows) else []
        return RowParts(rows.arity, parts, is_sorted=True)

    @staticmethod
    def union(inputs: Sequence[RowParts], arity: int) -> RowParts:
        """Return the rows of all inputs."""
        if len(inputs) > 1:
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
