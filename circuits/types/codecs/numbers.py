"""Codes of the types of up to 64 bits: the number itself, so codes have the order of values.

::

    int8..int64, uint8..uint32, bool         the number
    uint64                                   the number - (2**63 - 1)
    date, time, timestamp, duration          the number of units
    float16, float32, float64                order-preserving bits: dbsp_wcoj.values.bitcast
    null                                     no values

-2**63 is the code of NULL. So one value of a type with 2**64 values has no code, and raises an
error: the least int64, timestamp or duration, the greatest uint64. All floats have a code, because
all NaN share one.

Cost: one or two passes in C; int64 and times without NULL are not copied.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.errors import SchemaError
from circuits.types.arrow_types import Family, type_row
from circuits.types.codecs.arrow_buffers import (
    NULL,
    BoolArray,
    Int64Array,
    array_of,
    bits_of,
    missing_code_error,
    numbers_of,
)
from dbsp_wcoj.values.bitcast import codes_of, values_of

__all__ = ["Nulls", "Numbers", "number_coding"]


@dataclass(frozen=True)
class Numbers:
    """The coding of a type whose values are of ``dtype`` in numpy.

    `circuits.types.codecs.codec` explains ``code_space`` and ``ordered``. The argument ``adding``
    of `encode` has no effect, because numbers need no dictionary.
    """

    type: pa.DataType
    dtype: np.dtype[Any]
    code_space: Hashable
    ordered: bool = True

    @property
    def _is_uint64(self) -> bool:
        # A comparison with the class np.uint64 takes several times as long.
        return self.dtype.kind == "u" and self.dtype.itemsize == 8

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes of the values; the code of a value that is not valid is undefined."""
        codes = codes_of(self._values(array))
        if self._is_uint64:
            codes = codes + 1  # 2**64 - 1 wraps around to NULL, an error below
        if self.dtype.itemsize == 8:
            # NULL is the least code.
            if valid is None:
                has_clash = bool(len(codes)) and codes.min() == NULL
            else:
                has_clash = ((codes == NULL) & valid).any()
            if has_clash:
                value = 2**64 - 1 if self._is_uint64 else NULL
                is_integer = pa.types.is_integer(self.type)
                advice = "declare decimal128(20, 0), or drop the row"
                raise missing_code_error(value, self.type, advice if is_integer else "drop the row")
        return codes

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the values of codes.

        Raises:
            SchemaError: A code is not a code of this type.
        """
        codes = codes if valid is None else np.where(valid, codes, 0)
        if self._is_uint64:
            codes = codes - 1
        elif self.dtype.itemsize < 8:
            self._check_range(codes)
        return array_of(self.type, values_of(codes, self.dtype), valid)

    def _values(self, array: pa.Array) -> npt.NDArray[Any]:
        return bits_of(array) if self.dtype.kind == "b" else numbers_of(array, self.dtype)

    def _check_range(self, codes: Int64Array) -> None:
        if self.dtype.kind == "b":
            lowest, highest = 0, 1
        else:
            integers = self.dtype if self.dtype.kind in "iu" else f"i{self.dtype.itemsize}"
            lowest, highest = int(np.iinfo(integers).min), int(np.iinfo(integers).max)
        if len(codes) and not (lowest <= codes.min() and codes.max() <= highest):
            wrong = codes[(codes < lowest) | (codes > highest)][0]
            raise SchemaError(
                f"code {wrong} is outside [{lowest}, {highest}] of {self.type}: "
                "decode with the codec that encoded"
            )


@dataclass(frozen=True)
class Nulls:
    """The coding of the null type."""

    type: pa.DataType
    code_space: Hashable = "null"
    ordered: bool = True

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the code of NULL for each value."""
        return np.full(len(array), NULL, np.int64)

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return a NULL for each code.

        Raises:
            SchemaError: A code is not that of NULL.
        """
        if len(codes) and (valid is None or valid.any()):
            wrong = codes[codes != NULL][0]
            raise SchemaError(f"code {wrong} is not NULL: decode with the codec that encoded")
        return pa.nulls(len(codes))


def number_coding(type: pa.DataType) -> Numbers | Nulls | None:
    """Return the coding of a type of up to 64 bits; None for decimals and other types."""
    row = type_row(type)
    match row.family:
        case Family.NULL:
            return Nulls(type)
        case Family.BOOLEAN:
            code_space: Hashable = "bool"
        case Family.INTEGER:
            code_space = "uint64" if type == pa.uint64() else "integer"
        case Family.FLOAT:
            code_space = ("float", type.bit_width)
        case Family.DATE:
            code_space = str(type)
        case Family.TIMESTAMP:
            code_space = ("timestamp", type.unit, type.tz is None)
        case Family.TIME | Family.DURATION:
            code_space = (row.family.value, type.unit)
        case _:
            return None
    return Numbers(type, np.dtype(row.dtype), code_space)
