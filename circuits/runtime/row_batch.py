"""Row batch: the rows of a Z-set as typed columns, decoded when an expression needs the values.

A Z-set stores int64 codes of values. An expression that only compares or copies a column works on
the codes. Other expressions read the values as Arrow arrays. Each column is decoded at most once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from circuits.plan.expressions import Expression
from circuits.types.codecs.codec import Codec, Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array

__all__ = ["RowBatch", "keeps_codes"]


class RowBatch(Mapping[int, pa.Array]):
    """The columns of a Z-set: ``codes(i)`` are the codes of column i, ``batch[i]`` its values.

    Args:
        zset: The rows.
        columns: One codec per column.
        codecs: The codecs of all types, because an expression can have a type that no column has.
        names: The names of the columns, for errors.

    Attributes:
        truths: The truth of the predicates that have been computed for these rows so far
            (`circuits.runtime.predicates.Truth`).
    """

    __slots__ = ("_values", "codecs", "columns", "names", "truths", "zset")

    def __init__(
        self, zset: ZSet, columns: Sequence[Codec], codecs: Codecs, names: Sequence[str]
    ) -> None:
        self.zset = zset
        self.columns = columns
        self.codecs = codecs
        self.names = names
        self._values: dict[int, pa.Array] = {}
        self.truths: dict[Expression, Any] = {}

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
