"""Codes of strings and binaries, from two dictionaries per circuit.

All string types share one dictionary and all binary types the other, so columns of ``string`` and
``large_string`` join by code. Codes are assigned by first appearance, so they do not have the order
of the values. Sort keys are the first 24 bytes; where strings agree in these, ORDER BY compares the
whole strings (`circuits.runtime.operators.top_k`). UTF-8 has the same order by bytes as by code
points.

Cost: one hash per value to encode, one copy of its bytes to decode. Both work directly between the
buffers of Arrow and the dictionary.
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

WORD_BYTES: Final = 8
KEY_BYTES: Final = 3 * WORD_BYTES


@dataclass(frozen=True)
class Strings:
    """The coding of a string or binary type; ``space`` is the name of the dictionary."""

    type: pa.DataType
    dictionary: Interner
    space: Hashable
    exact: bool = False
    ordered: bool = False

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return codes; -1 if not valid, or if not in the dictionary and not adding."""
        code = self.dictionary.intern if adding else self.dictionary.find
        return code(*strings_of(array), valid)

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the strings of codes.

        Raises:
            SchemaError: The strings do not fit the type, or a code is not in the dictionary.
        """
        unknown = codes < 0 if valid is None else (codes < 0) & valid
        if unknown.any():
            size = len(self.dictionary)
            raise SchemaError(
                f"code {codes[unknown][0]} is outside [0, {size - 1}] of {self.type}: "
                "decode with the codec that encoded"
            )
        return strings_array(self.type, *self.dictionary.gather(codes), valid)

    def keys(self, codes: Int64Array) -> list[Int64Array]:
        """Return columns in the order of the first bytes.

        The first column never has an extreme of int64.
        """
        starts = range(0, KEY_BYTES, WORD_BYTES)
        first, *rest = (self.dictionary.prefixes(codes, start) for start in starts)
        least, greatest = NULL + 1, -NULL - 2
        # Clipping makes different first words equal. Such rows must have equal keys, so their other
        # words are zero.
        merged = (first <= least) | (first >= greatest)
        return [np.clip(first, least, greatest), *(np.where(merged, 0, key) for key in rest)]
