"""Sum encoder: exact sums as codes of the result type of ``sum`` or ``avg``.

A sum is given as digits in base 2**32 (`exact_sum`). A sum that does not fit the type raises an
error and never wraps. A sum of no values is NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from circuits.errors import EvaluationError, SchemaError
from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.aggregates.exact_sum import Digits, ExactSum, is_wide_decimal
from circuits.types.codecs.arrow_buffers import BoolArray, array_of
from circuits.types.codecs.codec import NULL, Codec
from circuits.types.codecs.decimals import WideDecimals
from dbsp_wcoj.values.bitcast import codes_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["SumEncoder"]


class SumEncoder:
    """Encodes the results of one ``sum`` or ``avg``.

    Args:
        call: The aggregate.
        exact: Converts the digits of a sum to a number of the argument's type.
        codec: The codec of the result.

    Raises:
        SchemaError: A sum of the argument cannot have the type of the result.

    Attributes:
        bound: Valid results that are not floats lie strictly between this and its negative.
    """

    def __init__(self, call: AggregateCall, exact: ExactSum, codec: Codec) -> None:
        self.call = call
        self.exact = exact
        self.codec = codec
        type_ = codec.type
        self._result_is_floating = bool(pa.types.is_floating(type_))
        self._words = type_.bit_width // 64 if is_wide_decimal(type_) else 1
        self.bound = 0
        if self._result_is_floating:
            return
        scale = type_.scale if pa.types.is_decimal(type_) else 0
        if exact.is_floating or call.function == "avg" or scale != exact.scale:
            supported = "double" if exact.is_floating or call.function == "avg" else "its own scale"
            raise SchemaError(
                f"{call.function} of {exact.type} cannot have the type {type_}: ask for {supported}"
            )
        if pa.types.is_decimal(type_):
            self.bound = 10 ** int(type_.precision)
        else:
            self.bound = 2 ** (type_.bit_width - 1)

    @property
    def is_mean(self) -> bool:
        """True if the sum is divided by the count."""
        return self.call.function == "avg"

    def codes(self, sums: Digits, counts: Int64Array, present: BoolArray) -> Int64Array:
        """Return the code of each result.

        Args:
            sums: The digits of the sums.
            counts: The number of values of each sum.
            present: A mask of the sums of groups that exist and have a value; the other results are
                NULL.

        Raises:
            EvaluationError: One of these sums does not fit the type.
        """
        n = len(counts)
        if self._result_is_floating:
            divisors = np.ones(n, np.int64)
            if self.is_mean:
                divisors = np.where(present, counts, divisors)
            dtype = np.dtype(f"f{self.codec.type.bit_width // 8}")
            values = self.exact.floats(sums, divisors).astype(dtype, copy=False)
            return np.where(present, codes_of(values), NULL)
        words, fits = self.exact.integers(sums, n, self._words)
        if isinstance(self.codec.coding, WideDecimals) and fits.all():
            inline = self.codec.coding.inline_codes(words)  # these are in range: 2**61 < 10**19
            if inline is not None:
                return np.where(present, inline, NULL)
        in_range = fits & _is_below(words, self.bound) & ~_is_below(words, -self.bound + 1)
        if not in_range[present].all():
            raise self._range_error(sums, int(np.flatnonzero(present & ~in_range)[0]))
        if self._words == 1:
            return np.where(present, words[0], NULL)
        return self.codec.encode(array_of(self.codec.type, words.T, present))

    def _range_error(self, sums: Digits, index: int) -> EvaluationError:
        """Build the error of the sum with this index, with its exact value."""
        own_rows = sums.sum_indices == index
        digits = zip(
            sums.positions[own_rows].tolist(), sums.amounts[own_rows].tolist(), strict=True
        )
        total = sum(amount << (32 * position) for position, amount in digits)
        shown = f"{total}e-{self.exact.scale}" if self.exact.scale else str(total)
        return EvaluationError(
            f"{self.call.name} is {shown} for some group, beyond {self.codec.type}; cast "
            "the argument to a decimal of scale 0, or to double"
        )


def _is_below(words: Int64Array, bound: int) -> BoolArray:
    """Return a mask of the integers less than ``bound``.

    Args:
        words: Integers of shape ``(words, n)``, least significant word first.
        bound: An integer that fits in as many words, or 2**63 with one word.
    """
    if len(words) == 1 and bound > 2**63 - 1:
        return np.ones(words.shape[1], np.bool)
    result: BoolArray | None = None
    for position, column in enumerate(words):
        limit = (bound >> (64 * position)) & (2**64 - 1)
        if position == len(words) - 1:
            limit = bound >> (64 * position)
            less, equal = column < limit, column == limit
        else:
            unsigned = column.view(np.uint64)
            less, equal = unsigned < np.uint64(limit), unsigned == np.uint64(limit)
        result = less if result is None else less | (equal & result)
    assert result is not None
    return result
