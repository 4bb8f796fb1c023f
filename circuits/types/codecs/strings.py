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

from circuits.types.codecs.arrow_buffers import (
    GREATEST_KEY,
    LEAST_KEY,
    BoolArray,
    Int64Array,
    check_dictionary_codes,
    strings_array,
    strings_of,
)
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.values.parallel_intern import intern_in_slices
from dbsp_wcoj.workers import MIN_PARALLEL_ROWS

__all__ = ["WORD_BYTES", "Strings"]

WORD_BYTES: Final = 8
KEY_BYTES: Final = 3 * WORD_BYTES


@dataclass(frozen=True)
class Strings:
    """The coding of a string or binary type.

    Args:
        type: The type.
        dictionary: The dictionary of all such types.
        code_space: Names the dictionary; columns whose codes are comparable have the same one.
        exact: False, because different values may have equal sort keys.
        ordered: False, because codes do not have the order of the values.
    """

    type: pa.DataType
    dictionary: Interner
    code_space: Hashable
    exact: bool = False
    ordered: bool = False

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes of values.

        Args:
            array: The values.
            valid: A mask of the values that are not NULL; None if no value is NULL.
            adding: If True, new values are added to the dictionary.

        Returns:
            int64 codes. Without ``adding``, a value that is not in the dictionary gets -1. NULL
            gets -1, too, and `Codec` replaces it.
        """
        strings = strings_of(array)
        if adding and len(array) >= MIN_PARALLEL_ROWS:
            return intern_in_slices(self.dictionary, *strings, valid)
        look_up = self.dictionary.intern if adding else self.dictionary.find
        return look_up(*strings, valid)

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the strings of codes.

        Raises:
            SchemaError: The strings do not fit the type, or a code is not in the dictionary.
        """
        check_dictionary_codes(codes, valid, len(self.dictionary), self.type)
        strings = self.dictionary.gather(codes)
        if isinstance(self.type, pa.BaseExtensionType):
            stored = strings_array(self.type.storage_type, *strings, valid)
            return pa.ExtensionArray.from_storage(self.type, stored)
        return strings_array(self.type, *strings, valid)

    def keys(self, codes: Int64Array) -> list[Int64Array]:
        """Return three columns of sort keys, in the order of the first 24 bytes of the values.

        The first column never has the least or the greatest int64, which are the keys of NULL.
        """
        starts = range(0, KEY_BYTES, WORD_BYTES)
        first, *others = (self.dictionary.prefixes(codes, start) for start in starts)
        # Clipping can make the first keys of different strings equal. Then their other keys are set
        # to 0, because these would order the strings wrongly.
        is_clipped = (first <= LEAST_KEY) | (first >= GREATEST_KEY)
        clipped = np.clip(first, LEAST_KEY, GREATEST_KEY)
        return [clipped, *(np.where(is_clipped, 0, key) for key in others)]
