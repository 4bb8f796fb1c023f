"""Bit counts: bit_and, bit_or and bit_xor as linear aggregates.

::

    counts(Z)[b] = Σ over the rows x of Z[x] where bit b of x is set

    bit_or       the bits with a count above 0
    bit_and      the bits whose count is the number of values
    bit_xor      the bits with an odd count

The counts are stored like the digits of a sum (`exact_sum`): bit b is the position b.

Cost: up to 64 rows of state per group, and O(bits set) per row of the delta.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from circuits.runtime.operators.aggregates.exact_sum import Digits
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj.zset import Int64Array

__all__ = ["BitCounts"]

_BITS = 64


class BitCounts:
    """The bits of the numbers of one codec.

    Args:
        codec: The codec of a type of integers.
        function: ``bit_and``, ``bit_or`` or ``bit_xor``.

    >>> from circuits.types.codecs.codec import Codecs
    >>> bits = BitCounts(Codecs().codec(pa.int64()), "bit_xor")
    >>> digits = bits.split(np.array([[5, 6]]), np.array([1, 1]))
    >>> digits.positions.tolist(), digits.amounts.tolist()
    ([0, 1, 2, 2], [1, 1, 1, 1])
    >>> sums = Digits(np.array([0, 0, 0]), np.array([0, 1, 2]), np.array([1, 1, 2]))
    >>> bits.codes(sums, np.array([2]), np.array([True])).tolist()
    [3]
    """

    def __init__(self, codec: Codec, function: str) -> None:
        self._function = function
        # A code of uint64 is the number minus 2**63 - 1, see `circuits.types.codecs.numbers`.
        type_ = codec.type.value_type if pa.types.is_dictionary(codec.type) else codec.type
        self._offset = np.int64(2**63 - 1) if type_ == pa.uint64() else np.int64(0)

    def split(self, codes: Int64Array, weights: Int64Array) -> Digits:
        """Return the bits that are set in each number, with its weight.

        Args:
            codes: The codes of the numbers, shape ``(1, n)``: a call has one argument.
            weights: The weight of each number.
        """
        with np.errstate(over="ignore"):
            words = codes[0] + self._offset
        rows = [np.flatnonzero((words >> np.int64(bit)) & np.int64(1)) for bit in range(_BITS)]
        indices = np.concatenate(rows)
        bits = np.repeat(np.arange(_BITS), [len(rows_with_bit) for rows_with_bit in rows])
        return Digits(indices, bits, weights[indices])

    def codes(self, sums: Digits, counts: Int64Array, present: BoolArray) -> Int64Array:
        """Return the code of the result of each group; NULL where it is not present."""
        amounts = sums.amounts
        if self._function == "bit_or":
            is_set = amounts > 0
        elif self._function == "bit_and":
            is_set = amounts == counts[sums.sum_indices]
        else:
            is_set = (amounts & 1) != 0
        words = np.zeros(len(counts), np.int64)
        np.bitwise_or.at(
            words, sums.sum_indices[is_set], np.int64(1) << sums.positions[is_set].astype(np.int64)
        )
        with np.errstate(over="ignore"):
            return np.where(present, words - self._offset, NULL)
