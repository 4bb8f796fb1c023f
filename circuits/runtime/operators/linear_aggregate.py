"""Linear aggregates: count, sum and avg as the weights of one Z-set per aggregate node.

::

    spread(Z)[key, slot] = Σ over the rows x of the key of Z[x] · number of the slot for x

    slot                 number                         from which come
    0                    1                              count(*), whether the group exists
    nulls of x           1 where x is NULL              count(x) = count(*) - nulls of x
    distinct x           1 per different value          count(distinct x)
    digit d of x         digit d of x                   sum(x), avg(x) = sum(x) / count(x)

An example: sum(x) of the group 7 with the stream of x ``+3  +5  -3``, slots 0 and 256 (digit 0)::

    delta of the state   {(7,0): 1, (7,256): 3}  {(7,0): 1, (7,256): 5}  {(7,0): -1, (7,256): -3}

``spread`` is a homomorphism of groups, so the state of a group is the sum of what its rows spread
to: a trace, with a few rows per group however many rows the group has. Rows of zero are not there,
so a column without NULLs has no slot for them. ``distinct`` columns come as deltas of their sets.

Cost: O(slots) per row of the delta, O(slots log N) per touched group and run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.exact_sum import DIGITS, Digits, ExactSum
from circuits.runtime.operators.final_aggregate import SumEncoder
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import Trace, WeightOverflowError, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.trace import Staged
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["LinearAggregate"]

Source = tuple[int, bool]


class LinearAggregate:
    """The state and the results of all linear aggregates of one node.

    Args:
        codecs: Those of the input's columns.
        keys: The columns that make a group.
        calls: The linear aggregates, each with the codec of its result.
    """

    def __init__(
        self,
        codecs: Sequence[Codec],
        keys: Sequence[int],
        calls: Sequence[tuple[AggregateCall, Codec]],
    ) -> None:
        self.keys = list(keys)
        self.calls = tuple(call for call, _ in calls)
        self.trace = Trace(len(self.keys) + 1)
        # Slots of what is counted, and of the sums, by column and whether it is its set.
        self._counts: dict[Source, int] = {}
        self._sums: dict[Source, tuple[int, ExactSum]] = {}
        self._totals: list[SumEncoder | None] = []
        slot = 0
        for call, codec in calls:
            totals = None
            if call.argument is not None:
                source = (call.argument, call.distinct)
                if source not in self._counts:
                    slot += DIGITS
                    self._counts[source] = slot
                if call.function != "count":
                    if source not in self._sums:
                        slot += DIGITS
                        self._sums[source] = (slot, ExactSum(codecs[call.argument]))
                    totals = SumEncoder(call, self._sums[source][1], codec)
            self._totals.append(totals)

    @property
    def distinct(self) -> tuple[int, ...]:
        """The columns whose sets are needed."""
        return tuple(column for column, distinct in self._counts if distinct)

    def spread(self, zset: ZSet, sets: Mapping[int, ZSet]) -> ZSet:
        """The rows (keys, slot) that these rows add up to.

        Args:
            zset: Rows of the input, or their delta.
            sets: For each `distinct` column the set of the rows (keys, value), or its delta.

        Raises:
            WeightOverflowError: A weight would leave int64.
        """
        rows, weights = zset.row_array, zset.weight_array
        keys = rows[self.keys]
        pieces = [(keys, np.zeros(len(weights), np.int64), weights)]
        for (column, distinct), slot in self._counts.items():
            if distinct:
                counted = sets[column]
                keys_of, amounts = counted.row_array[:-1], counted.weight_array
            else:
                nulls = np.flatnonzero(rows[column] == NULL)
                keys_of, amounts = keys[:, nulls], weights[nulls]
            pieces.append((keys_of, np.full(len(amounts), slot), amounts))
        for (column, distinct), (slot, exact) in self._sums.items():
            if distinct:
                counted = sets[column]
                keys_of, codes, factors = (
                    counted.row_array[:-1],
                    counted.row_array[-1],
                    counted.weight_array,
                )
            else:
                keys_of, codes, factors = keys, rows[column], weights
                there = np.flatnonzero(codes != NULL)
                if len(there) < len(codes):
                    keys_of, codes, factors = keys[:, there], codes[there], weights[there]
            digits = exact.split(codes, factors)
            pieces.append((keys_of[:, digits.places], slot + digits.digits, digits.amounts))
        size = sum(len(amounts) for _, _, amounts in pieces)
        spread, totals = np.empty((len(self.keys) + 1, size), np.int64), np.empty(size, np.int64)
        start = 0
        for keys_of, slots, amounts in pieces:
            end = start + len(amounts)
            spread[:-1, start:end] = keys_of
            spread[-1, start:end] = slots
            totals[start:end] = amounts
            start = end
        try:
            return consolidated_rows(spread, totals)
        except WeightOverflowError as error:
            raise self._overflow(error) from None

    def results(self, n: int, sums: Digits, *, always: bool) -> tuple[BoolArray, list[Int64Array]]:
        """Which groups exist, and the codes of each call's results.

        Args:
            n: How many groups.
            sums: The state of the groups: which group, slot, weight.
            always: Whether a group without rows exists.

        Raises:
            EvaluationError: A sum of a group that exists is beyond its type.
        """
        rows = _count(sums, 0, n)
        exists = np.ones(n, np.bool) if always else rows > 0
        counts = {}
        for (column, distinct), slot in self._counts.items():
            count = _count(sums, slot, n)
            counts[column, distinct] = count if distinct else rows - count
        columns = []
        for call, totals in zip(self.calls, self._totals, strict=True):
            count = rows if call.argument is None else counts[call.argument, call.distinct]
            if totals is None or call.argument is None:
                columns.append(count)
                continue
            slot = self._sums[call.argument, call.distinct][0]
            mine = np.flatnonzero((sums.digits >= slot) & (sums.digits < slot + DIGITS))
            digits = Digits(sums.places[mine], sums.digits[mine] - slot, sums.amounts[mine])
            columns.append(totals.codes(digits, count, exists & (count != 0)))
        return exists, columns

    def read(self, prefixes: Int64Array, delta: ZSet, staged: list[Staged]) -> Digits:
        """The old, then the new state of the groups of ``prefixes``.

        Args:
            prefixes: Keys, of shape ``(keys, groups)``.
            delta: Rows (keys, slot), as `spread` gives them, of these groups.
            staged: Takes what commits the delta.

        Raises:
            WeightOverflowError: A weight would leave int64.
        """
        step = None
        if len(delta):
            try:
                step = self.trace.prepare(delta)
            except WeightOverflowError as error:
                raise self._overflow(error) from None
            staged.append(step)
        found = prefix_lookup(self.trace, prefixes, signed=True, step=step)
        slots = found.rows[0]
        return Digits(
            np.concatenate((found.places, found.places + prefixes.shape[1])),
            np.concatenate((slots, slots)),
            np.concatenate((found.old, found.new)),
        )

    def _overflow(self, error: WeightOverflowError) -> WeightOverflowError:
        """The error of a weight of the state, in terms of the aggregates."""
        names = ", ".join(
            f"{call.function}({'*' if call.argument is None else f'#{call.argument}'})"
            for call in self.calls
        )
        return WeightOverflowError(
            f"a count or sum behind {names or 'count(*)'} leaves int64: {error}; nothing was "
            f"changed: scale the weights"
        )


def _count(sums: Digits, slot: int, n: int) -> Int64Array:
    count = np.zeros(n, np.int64)
    mine = sums.digits == slot
    count[sums.places[mine]] = sums.amounts[mine]
    return count
