"""Codes of strings and binaries: from one table of texts, and one of binaries, per circuit.

All string types share the first table and all binary types the second, so columns of ``string``
and ``large_string`` join by code. Codes go by first appearance, so they do not order as the values;
sort keys are the first 24 bytes: an order by texts that share more has to compare the texts of all
that do (`circuits.runtime.operators.top_k`). UTF-8 orders by bytes as by code points.

Cost: one hash per value to encode, one copy of its bytes to decode, both straight between Arrow's
buffers and the table.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.errors import SchemaError
from circuits.types.codecs.arrow_buffers import (
    NULL,
    BoolArray,
    Int64Array,
    strings_array,
    strings_of,
)
from dbsp_wcoj.values.interner import Interner

__all__ = ["Strings"]

WORD: Final = 8
KEY_BYTES: Final = 3 * WORD


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
        """Columns that order as the first bytes do; the first is never at an end of int64."""
        first, *rest = (self.table.prefixes(codes, start) for start in range(0, KEY_BYTES, WORD))
        least, greatest = NULL + 1, -NULL - 2
        # Different first words that become one must not be told apart by what follows.
        merged = (first <= least) | (first >= greatest)
        return [np.clip(first, least, greatest), *(np.where(merged, 0, key) for key in rest)]
