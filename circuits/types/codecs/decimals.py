"""Codes of decimals: the unscaled integer where it is small, else a number from a dictionary.

The unscaled integer of 1.25 is 125. It is the code of a narrow decimal (up to 18 digits), so these
codes have the order of their values.

Wide decimals have 19 to 76 digits, in 128 or 256 bits; in SQL the sum of a narrow column is wide.
They are handled as four words of 64 bits, so that decimal128 and decimal256 of one scale have the
same codes. If the unscaled integer is from -2**61 to 2**61 - 1, the code is *inline*: this integer
plus a constant, which makes it greater than all codes of the dictionary. So a sum that changes with
every step adds nothing to the dictionary. All other values are in one dictionary per scale. The
sort keys of wide decimals are the words, the lower ones with the sign bit flipped, because they are
unsigned.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from circuits.errors import SchemaError
from circuits.types.codecs.arrow_buffers import NULL, BoolArray, Int64Array, array_of, numbers_of
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.values.interner import Interner

__all__ = ["MAX_NARROW_DIGITS", "WORDS", "NarrowDecimals", "WideDecimals"]

#: The maximum number of digits that an unscaled integer of 64 bits can always represent.
MAX_NARROW_DIGITS = 18
#: Words of 64 bits of a value in a dictionary.
WORDS = 4
# The inline code of an unscaled integer v with -INLINE <= v < INLINE is v + SHIFT, so it is at
# least 2**62. The codes of a dictionary are smaller.
INLINE = 2**61
SHIFT = 3 * 2**61


@dataclass(frozen=True)
class NarrowDecimals:
    """The coding of a decimal type of up to 18 digits."""

    type: pa.DataType
    ordered: bool = True

    @property
    def code_space(self) -> Hashable:
        return "decimal", self.type.scale

    @cached_property
    def _max_unscaled(self) -> int:
        return int(10**self.type.precision - 1)

    @cached_property
    def _layout(self) -> tuple[np.dtype[Any], int]:
        """The type of the words of a number in Arrow, and how many it has."""
        byte_count = self.type.bit_width // 8
        return np.dtype(f"i{min(byte_count, 8)}"), max(byte_count // 8, 1)

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the unscaled integers; the code of a value that is not valid is undefined.

        Raises:
            SchemaError: A value has more digits than its type allows.
        """
        dtype, word_count = self._layout
        words = numbers_of(array, dtype, word_count)
        codes = words.reshape(len(array), word_count)[:, 0].astype(np.int64, copy=False)
        is_too_long = (codes > self._max_unscaled) | (codes < -self._max_unscaled)
        if word_count > 1:  # the other words of a number of 64 bits repeat its sign
            is_too_long |= (words[:, 1:] != (codes >> 63)[:, np.newaxis]).any(axis=1)
        if valid is not None:
            is_too_long &= valid
        if is_too_long.any():
            raise SchemaError(
                f"value {array[int(is_too_long.argmax())]} has more digits than {self.type}: "
                "declare the precision that the values have"
            )
        return codes

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the decimals of unscaled integers.

        Raises:
            SchemaError: A code is not a code of this type.
        """
        unscaled = codes if valid is None else np.where(valid, codes, 0)
        limit = self._max_unscaled
        if len(unscaled) and (int(unscaled.max()) > limit or int(unscaled.min()) < -limit):
            first_invalid = unscaled[(unscaled > limit) | (unscaled < -limit)][0]
            raise SchemaError(
                f"code {first_invalid} is outside [{-limit}, {limit}] of {self.type}: "
                "decode with the codec that encoded"
            )
        byte_count = self.type.bit_width // 8
        if byte_count <= 8:
            return array_of(self.type, unscaled.astype(f"i{byte_count}", copy=False), valid)
        words = np.empty((len(unscaled), byte_count // 8), np.int64)
        words[:, 0] = unscaled
        words[:, 1:] = (unscaled >> 63)[:, np.newaxis]
        return array_of(self.type, words, valid)


@dataclass(frozen=True)
class WideDecimals:
    """The coding of a decimal type of more than 18 digits.

    Args:
        type: The type.
        dictionary: The dictionary of its scale.
        exact: True, because different values have different sort keys.
        ordered: False, because codes do not have the order of the values.
    """

    type: pa.DataType
    dictionary: Interner
    exact: bool = True
    ordered: bool = False

    @property
    def code_space(self) -> Hashable:
        return "wide decimal", self.type.scale

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes; see `circuits.types.codecs.strings.Strings.encode`."""
        rows = _rows_of_words(array)
        low_words = rows[:, 0]
        is_inline = (rows[:, 1:] == (low_words >> 63)[:, np.newaxis]).all(axis=1)
        is_inline &= (low_words >= -INLINE) & (low_words < INLINE)
        codes = low_words + SHIFT
        not_inline = np.flatnonzero(~is_inline)
        if len(not_inline):
            data = np.ascontiguousarray(rows[not_inline])
            offsets = np.arange(len(not_inline) + 1) * data.itemsize * WORDS
            look_up = self.dictionary.intern if adding else self.dictionary.find
            valid_not_inline = None if valid is None else valid[not_inline]
            codes[not_inline] = look_up(offsets, data.view(np.uint8).reshape(-1), valid_not_inline)
        return codes

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the decimals of codes.

        Raises:
            SchemaError: A value has more digits than the type, so it is from a wider column.
        """
        words = self._words(codes)
        if valid is not None:
            words[:, ~valid] = 0
        width = self.type.bit_width // 64
        if (words[width:] != words[width - 1] >> 63).any():
            raise SchemaError(
                f"a value does not fit {self.type}: decode with the codec that encoded"
            )
        return array_of(self.type, words[:width].T, valid)

    def keys(self, codes: Int64Array) -> list[Int64Array]:
        """Return the words of the values as sort keys, the most significant one first.

        No key of the first column is the least or the greatest int64, the keys of NULL.
        """
        words = self._words(codes)[: self.type.bit_width // 64]
        sign_bit = NULL
        return [words[-1], *(words[-2::-1] ^ sign_bit)]

    @staticmethod
    def inline_codes(words: Int64Array) -> Int64Array | None:
        """Return the codes of unscaled integers; None if some of them are not inline.

        Args:
            words: The integers, of shape ``(words, n)``, least significant word first.
        """
        low = words[0]
        is_inline = (low >= -INLINE) & (low < INLINE)
        is_inline &= (words[1:] == low >> 63).all(axis=0)
        return low + SHIFT if is_inline.all() else None

    @staticmethod
    def are_ordered(codes: Int64Array) -> bool:
        """Return whether codes have the order of their values: no value is in the dictionary."""
        return bool(((codes >= SHIFT - INLINE) | (codes == NULL)).all())

    def hashes(self, codes: Int64Array) -> Int64Array:
        """Return a hash of each value; the code of an inline one."""
        hashes = codes.copy()
        is_listed = codes < SHIFT - INLINE
        hashes[is_listed] = self.dictionary.hashes(codes[is_listed])
        return hashes

    def _words(self, codes: Int64Array) -> Int64Array:
        """Return the words of each value, of shape ``(4, n)``, the least significant first.

        For the code of NULL, each word is that code.
        """
        is_inline = codes >= SHIFT - INLINE
        if not is_inline.any():
            return self.dictionary.rows(codes)
        words = np.empty((WORDS, len(codes)), np.int64)
        words[0, is_inline] = codes[is_inline] - SHIFT
        words[1:, is_inline] = words[0, is_inline] >> 63
        if not is_inline.all():
            words[:, ~is_inline] = self.dictionary.rows(codes[~is_inline])
        return words


def _rows_of_words(array: pa.Array) -> Int64Array:
    """Return decimals of any width as contiguous rows of four words, least significant first."""
    width = array.type.bit_width // 64
    words = numbers_of(array, np.dtype(np.int64), width)
    rows = np.empty((len(array), WORDS), np.int64)
    rows[:, :width] = words
    rows[:, width:] = (words[:, -1] >> 63)[:, np.newaxis]
    return rows
