"""Codes of strings and binaries: from one table of texts, and one of binaries, per circuit.

All string types share the first table and all binary types the second, so columns of ``string``
and ``large_string`` join by code. Codes go by first appearance, so they do not order as the values;
sort keys are the first eight bytes. UTF-8 orders by bytes as by code points.

Cost: one hash per value to encode, one copy of its bytes to decode, both straight between Arrow's
buffers and the table.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from circuits.codec_buffers import NULL, BoolArray, Int64Array, strings_array, strings_of
from circuits.errors import SchemaError
from dbsp_wcoj.interner import Interner

__all__ = ["Strings"]


@dataclass(frozen=True)
class Strings:
    """The coding of a string or binary type; ``space`` names the table."""

    type: pa.DataType
    table: Interner
    space: Hashable
    exact: bool = False
    ordered: bool = False

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Codes from the table; -1 where not valid, or not there and not adding."""
        code = self.table.intern if adding else self.table.find
        return code(*strings_of(array), valid)

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """The strings of codes.

        Raises:
            SchemaError: The strings do not fit the type, or a code that is none.
        """
        strange = codes < 0 if valid is None else (codes < 0) & valid
        if strange.any():
            raise SchemaError(
                f"code {codes[strange][0]} is outside [0, {len(self.table) - 1}] of {self.type}: "
                "decode with the codec that encoded"
            )
        return strings_array(self.type, *self.table.gather(codes), valid)

    def keys(self, codes: Int64Array) -> list[Int64Array]:
        """One column that orders as the first eight bytes do, never at an end of int64."""
        return [np.clip(self.table.prefixes(codes), NULL + 1, -NULL - 2)]
