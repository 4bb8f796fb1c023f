"""Compiled sums: the linear aggregates that one kernel call computes for all groups of a step.

`dbsp_wcoj.kernels.values.linear_aggregate` computes counts, and sums and means of integers,
decimals and doubles. `CompiledSums` describes the calls of a node to it. Its methods return None
if the kernel cannot compute all calls, or cannot for these values, for example infinity;
`circuits.runtime.operators.aggregates.linear_aggregate` then computes them in general form. Both
add the same digits to the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from circuits.runtime.operators.aggregates.amounts_by_group import RowGroups
from circuits.runtime.operators.aggregates.exact_sum import (
    MAX_DIGITS,
    ExactSum,
    is_wide_decimal,
    unit_exponent,
)
from circuits.runtime.operators.aggregates.sum_encoder import SumEncoder
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.decimals import INLINE, SHIFT, WideDecimals
from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.values import linear_aggregate as kernels
from dbsp_wcoj.storage.group_lookup import GroupSlots
from dbsp_wcoj.zset import MAX_INT64, Int64Array, sort_scratch

__all__ = ["CompiledSums", "Quantity", "ResultCall"]

#: More rows are grouped only by a hash table, and if there are few groups (`RowGroups`).
MAX_SORTED_ROWS: Final = 1 << 13
# Two numbers of at most this magnitude have a difference within int64.
MAX_SUMMAND: Final = MAX_INT64 // 2
_NO_GROUPS: Final = np.empty(0, np.int64)


class Quantity(NamedTuple):
    """A quantity to add up by group.

    Attributes:
        column: The column; 0 if all rows are counted.
        slot: The first slot.
        exact: The numbers to add; None to count rows.
        counts_nulls: True to count the rows in which the column is NULL.
    """

    column: int
    slot: int
    exact: ExactSum | None = None
    counts_nulls: bool = False

    @property
    def kind(self) -> int | None:
        """The kind for the kernel; None if it has none for the numbers."""
        if self.exact is None:
            return kernels.NULLS if self.counts_nulls else kernels.ROWS
        if self.exact.has_one_word:
            return kernels.INTEGERS
        if is_wide_decimal(self.exact.type):
            return kernels.WIDE_DECIMALS
        return kernels.DOUBLES if pa.types.is_float64(self.exact.type) else None


class ResultCall(NamedTuple):
    """The result of an aggregate function.

    Attributes:
        count_slot: The slot from which the count of the argument is computed; -1 for count(*).
        is_distinct: True if this slot has the number of values, False if that of NULLs.
        sum_slot: The first slot of the sum.
        encoder: Encodes the sum or mean; None for a count.
    """

    count_slot: int
    is_distinct: bool
    sum_slot: int = 0
    encoder: SumEncoder | None = None

    def words(self) -> list[int] | None:
        """The call for the kernel; None if it cannot compute it."""
        words = [kernels.COUNT, self.count_slot, int(self.is_distinct), self.sum_slot, 0, 0, 0]
        encoder = self.encoder
        if encoder is None:
            return words
        type_ = encoder.codec.type
        if pa.types.is_float64(type_):
            words[kernels.KIND] = kernels.MEAN if encoder.is_mean else kernels.DOUBLE
            words[kernels.SCALE] = encoder.exact.scale
            words[kernels.UNIT_EXPONENT] = unit_exponent(encoder.exact)
        elif isinstance(encoder.codec.coding, WideDecimals):
            words[kernels.KIND] = kernels.WIDE_DECIMAL
        elif pa.types.is_signed_integer(type_) or pa.types.is_decimal(type_):
            words[kernels.KIND] = kernels.INTEGER
            words[kernels.MAX_MAGNITUDE] = min(encoder.bound - 1, MAX_INT64)
        else:
            return None
        return words


class CompiledSums:
    """The linear aggregates of a node, for the kernel.

    Args:
        keys: The columns that identify a group.
        quantities: The quantities in the order of their slots; None if there are others.
        calls: The results; None if there are others.
    """

    def __init__(
        self,
        keys: Sequence[int],
        quantities: Sequence[Quantity] | None,
        calls: Sequence[ResultCall] | None,
    ) -> None:
        self._keys = np.array(keys, np.int64)
        self._quantities: Int64Array | None = None
        if quantities is not None:
            rows = [(quantity.kind, quantity.column, quantity.slot) for quantity in quantities]
            if all(kind is not None for kind, _, _ in rows):
                self._quantities = np.array(rows, np.int64)
        self._calls: Int64Array | None = None
        if calls is not None:
            calls_words = [words for call in calls if (words := call.words()) is not None]
            if len(calls_words) == len(calls):
                self._calls = np.array(calls_words, np.int64).reshape(-1, kernels.CALL_WORDS)

    def partial_rows(
        self, rows: Int64Array, weights: Int64Array, groups: RowGroups | None
    ) -> ZSet | None:
        """Return the partial aggregate of rows (`LinearAggregate.partial_rows`).

        Args:
            rows: The columns of the rows, in any order.
            weights: The weights.
            groups: The groups of the rows, if they are known.

        Complexity:
            O(n) for known groups, plus the time to sort the keys of the groups; else that to sort
            the keys of the rows.
        """
        n = len(weights)
        if self._quantities is None or not n or not len(rows):
            return None
        if groups is None and n > MAX_SORTED_ROWS:
            return None
        if not weights.flags.writeable:  # kernels are compiled for arrays that are writeable
            weights = weights.copy()
        if not rows.flags.writeable:
            rows = rows.copy()
        group_of, first_rows = (_NO_GROUPS, _NO_GROUPS) if groups is None else groups
        status, slot_rows, amounts = kernels.sum_quantities(
            np.ascontiguousarray(rows),
            np.ascontiguousarray(weights),
            self._keys,
            group_of,
            first_rows,
            self._quantities,
            SHIFT,
            INLINE,
            sort_scratch(n if groups is None else len(first_rows)),
        )
        return ZSet(slot_rows, amounts) if status == kernels.OK else None

    def results(
        self, n: int, state: GroupSlots, *, always_exists: bool
    ) -> tuple[BoolArray, Int64Array] | None:
        """Return the results of n groups (`LinearAggregate.results`).

        Complexity:
            O(calls * slots of the groups).
        """
        if self._calls is None:
            return None
        weights = state.weights
        # The kernel subtracts counts of NULL without a check.
        if len(weights) and (weights.max() > MAX_SUMMAND or weights.min() < -MAX_SUMMAND):
            return None
        status, exists, codes = kernels.compute_results(
            *state, n, self._calls, always_exists, MAX_DIGITS, SHIFT, INLINE
        )
        return (exists, codes) if status == kernels.OK else None
