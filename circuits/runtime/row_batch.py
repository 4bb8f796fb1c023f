"""Row batch: the rows of a Z-set as typed columns, decoded when an expression needs the values.

A Z-set stores int64 codes of values. An expression that only compares or copies a column works on
the codes. Other expressions read the values as Arrow arrays. Each column is decoded at most once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from circuits.plan.expressions import Expression
from circuits.types.codecs.codec import Codec, Codecs
from dbsp_wcoj.zset import Int64Array

__all__ = ["RowBatch", "RowSlice", "Rows", "UnsortedRows", "keeps_codes"]


class Rows(Protocol):
    """Rows with weights: those of a Z-set, or of a `RowSlice`."""

    @property
    def row_array(self) -> Any:
        """The columns: index i is the array of the codes of column i."""

    @property
    def weight_array(self) -> Int64Array:
        """The weights, one per row."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class UnsortedRows:
    """Rows in any order, for operators that need no order; a row may occur more than once.

    Attributes:
        row_array: The codes, of shape ``(columns, rows)``.
        weight_array: The weights, one per row.
    """

    row_array: Int64Array
    weight_array: Int64Array

    def __len__(self) -> int:
        return len(self.weight_array)


class RowSlice:
    """Some rows of an input: in any order, and a row may occur more than once.

    A column is gathered when it is first read, so a filter copies no column that nobody reads.

    Args:
        columns: The codes of each column.
        weights: The weights.
        positions: The positions of the rows in these arrays; None for all.

    >>> rows = RowSlice([np.array([7, 8, 9])], np.array([1, 1, 2]), np.array([0, 2]))
    >>> rows.row_array[0].tolist(), rows.weight_array.tolist(), len(rows)
    ([7, 9], [1, 2], 2)
    """

    __slots__ = ("_all_weights", "_columns", "_gathered", "_positions", "weight_array")

    def __init__(
        self,
        columns: Sequence[Int64Array],
        weights: Int64Array,
        positions: Int64Array | None = None,
    ) -> None:
        self._columns = columns
        self._all_weights = weights
        self._positions = positions
        self._gathered: dict[int, Int64Array] = {}
        self.weight_array = weights if positions is None else weights[positions]

    @property
    def row_array(self) -> RowSlice:
        """This object, whose index i is the array of the codes of column i."""
        return self

    def __len__(self) -> int:
        return len(self.weight_array)

    def __getitem__(self, column: int) -> Int64Array:
        if self._positions is None:
            return self._columns[column]
        codes = self._gathered.get(column)
        if codes is None:
            codes = self._gathered[column] = self._columns[column][self._positions]
        return codes

    def select(self, positions: Int64Array) -> RowSlice:
        """Return the rows at some positions, in increasing order."""
        if len(positions) == len(self):
            return self
        if self._positions is not None:
            positions = self._positions[positions]
        return RowSlice(self._columns, self._all_weights, positions)

    def to_array(self) -> Int64Array:
        """Return a new array of all columns, of shape ``(columns, rows)``."""
        rows = np.empty((len(self._columns), len(self)), np.int64)
        for column in range(len(rows)):
            rows[column] = self[column]
        return rows


class RowBatch(Mapping[int, pa.Array]):
    """The columns of a Z-set: ``codes(i)`` are the codes of column i, ``batch[i]`` its values.

    Args:
        zset: The rows: a Z-set, or a slice of rows in any order.
        columns: One codec per column.
        codecs: The codecs of all types, because an expression can have a type that no column has.
        names: The names of the columns, for errors.

    Attributes:
        truths: The truth of the predicates that have been computed for these rows so far
            (`circuits.runtime.predicates.Truth`).
        true_masks: As `truths`, of predicates for which only the rows with TRUE were computed.
    """

    __slots__ = ("_values", "codecs", "columns", "names", "true_masks", "truths", "zset")

    def __init__(
        self, zset: Rows, columns: Sequence[Codec], codecs: Codecs, names: Sequence[str]
    ) -> None:
        self.zset = zset
        self.columns = columns
        self.codecs = codecs
        self.names = names
        self._values: dict[int, pa.Array] = {}
        self.truths: dict[Expression, Any] = {}
        self.true_masks: dict[Expression, Any] = {}

    @property
    def rows(self) -> int:
        return len(self.zset)

    def codes(self, column: int) -> Int64Array:
        """Return the codes of a column; do not write to the array."""
        codes: Int64Array = self.zset.row_array[column]
        return codes

    def __getitem__(self, column: int) -> pa.Array:
        values = self._values.get(column)
        if values is None:
            values = self._values[column] = self.columns[column].decode(self.codes(column))
        return values

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.columns)))

    def __len__(self) -> int:
        return len(self.columns)


def keeps_codes(source: pa.DataType, target: pa.DataType, codecs: Codecs) -> bool:
    """Return whether a cast between two types always succeeds and changes no code.

    >>> keeps_codes(pa.int32(), pa.int64(), Codecs()), keeps_codes(pa.int64(), pa.int32(), Codecs())
    (True, False)
    """
    if source == target:
        return True
    if codecs.codec(source).code_space != codecs.codec(target).code_space:
        return False
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        to_signed = pa.types.is_signed_integer(target) or not pa.types.is_signed_integer(source)
        return bool(to_signed and target.bit_width > source.bit_width)
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        return bool(source.precision <= target.precision)
    return _is_bytes(source) and _is_bytes(target)


def _is_bytes(type: pa.DataType) -> bool:
    """Return whether the values of a type are strings or byte strings."""
    return bool(
        pa.types.is_string(type)
        or pa.types.is_large_string(type)
        or pa.types.is_binary(type)
        or pa.types.is_large_binary(type)
    )
