"""Totals: exact sums as codes of the type that an aggregate's result has.

A total that its type cannot hold is an error, not a wrapped number; a total without values is NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from circuits.errors import EvaluationError, SchemaError
from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.exact_sum import Digits, ExactSum, wide_decimal
from circuits.types.codecs.arrow_buffers import BoolArray, array_of
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj.values.bitcast import codes_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["SumEncoder"]


class SumEncoder:
    """The results of one ``sum`` or ``avg``.

    Args:
        call: The aggregate.
        exact: The digits of its argument's sums.
        codec: The codec of the result.

    Raises:
        SchemaError: No sum has the result's type.
    """

    def __init__(self, call: AggregateCall, exact: ExactSum, codec: Codec) -> None:
        self.call = call
        self._exact = exact
        self._codec = codec
        type_ = codec.type
        self._floating = bool(pa.types.is_floating(type_))
        self._words = type_.bit_width // 64 if wide_decimal(type_) else 1
        if self._floating:
            return
        scale = type_.scale if pa.types.is_decimal(type_) else 0
        if exact.floating or call.function == "avg" or scale != exact.scale:
            raise SchemaError(
                f"{call.function} of {exact.type} cannot be {type_}: ask for "
                f"{'double' if exact.floating or call.function == 'avg' else 'its own scale'}"
            )
        # The totals lie strictly between the bound and its negative.
        if pa.types.is_decimal(type_):
            self._bound = 10 ** int(type_.precision)
        else:
            bits = type_.bit_width if pa.types.is_signed_integer(type_) else 64
            self._bound = 2 ** (bits - 1)

    def codes(self, sums: Digits, counts: Int64Array, present: BoolArray) -> Int64Array:
        """The code of each total.

        Args:
            sums: The sums.
            counts: How many values each one has.
            present: Which ones are asked for and have values; the others are NULL.

        Raises:
            EvaluationError: A total that is asked for is beyond its type.
        """
        n = len(counts)
        if self._floating:
            divisors = np.ones(n, np.int64)
            if self.call.function == "avg":
                divisors = np.where(present, counts, divisors)
            dtype = np.dtype(f"f{self._codec.type.bit_width // 8}")
            values = self._exact.floats(sums, divisors).astype(dtype, copy=False)
            return np.where(present, codes_of(values), NULL)
        words, fits = self._exact.integers(sums, n, self._words)
        within = fits & _below(words, self._bound) & ~_below(words, -self._bound + 1)
        if not within[present].all():
            raise self._beyond(sums, int(np.flatnonzero(present & ~within)[0]))
        if self._words == 1:
            return np.where(present, words[0], NULL)
        return self._codec.encode(array_of(self._codec.type, words.T, present))

    def _beyond(self, sums: Digits, place: int) -> EvaluationError:
        mine = sums.places == place
        digits = zip(sums.digits[mine].tolist(), sums.amounts[mine].tolist(), strict=True)
        total = sum(amount << (32 * digit) for digit, amount in digits)
        shown = f"{total}e-{self._exact.scale}" if self._exact.scale else str(total)
        return EvaluationError(
            f"{self.call.function}(#{self.call.argument}) as {self.call.name!r} is {shown} for "
            f"some group, beyond {self._codec.type}; cast the argument to a decimal of scale 0, or "
            f"to double"
        )


def _below(words: Int64Array, bound: int) -> BoolArray:
    """Whether each integer is less than ``bound``, which fits in as many words."""
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
