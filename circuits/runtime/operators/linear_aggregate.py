"""Linear aggregates: count, sum and avg as the weights of one Z-set per aggregate node.

Each group has a few slots: integers that name the quantities to add up. A row of the Z-set is
(key, slot), and its weight is the quantity::

    partial(Z)[key, slot] = Σ over the rows x of the key of Z[x] · value of the slot for x

    slot                 value                          used for
    0                    1                              count(*), existence of the group
    nulls of x           1 where x is NULL              count(x) = count(*) - nulls of x
    distinct x           1 per distinct value           count(distinct x)
    digit d of x         digit d of x                   sum(x), avg(x) = sum(x) / count(x)

An example: sum(x) of the group 7 with the stream of x ``+3  +5  -3``, slots 0 and 256 (digit 0)::

    delta of the state   {(7,0): 1, (7,256): 3}  {(7,0): 1, (7,256): 5}  {(7,0): -1, (7,256): -3}

``partial`` is linear, so the state of a group is the sum of the partial aggregates of its rows. The
state is a trace with a few rows per group, regardless of the size of the group. The trace has no
rows of weight zero, so a column without NULLs has no row for its slot of NULLs. An aggregate with
``distinct`` reads the delta of the set of the column's values instead of the delta of the input.

Cost: O(slots) per row of the delta, O(slots log N) per changed group and run.
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

# The argument of an aggregate: its column, and True for an aggregate with ``distinct``.
Argument = tuple[int, bool]


class LinearAggregate:
    """The state and the results of all linear aggregates of one node.

    Args:
        codecs: The codecs of the input's columns.
        keys: The columns that identify a group.
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
        # The slot of the count of each argument, and the first slot of its sum.
        self._counts: dict[Argument, int] = {}
        self._sums: dict[Argument, tuple[int, ExactSum]] = {}
        self._encoders: list[SumEncoder | None] = []
        slot = 0
        for call, codec in calls:
            encoder = None
            if call.argument is not None:
                argument = (call.argument, call.distinct)
                if argument not in self._counts:
                    slot += DIGITS
                    self._counts[argument] = slot
                if call.function != "count":
                    if argument not in self._sums:
                        slot += DIGITS
                        self._sums[argument] = (slot, ExactSum(codecs[call.argument]))
                    encoder = SumEncoder(call, self._sums[argument][1], codec)
            self._encoders.append(encoder)

    @property
    def distinct_columns(self) -> tuple[int, ...]:
        """The columns that some call aggregates with ``distinct``."""
        return tuple(column for column, distinct in self._counts if distinct)

    def partial_rows(self, zset: ZSet, sets: Mapping[int, ZSet]) -> ZSet:
        """Compute the partial aggregate of some rows: rows (keys, slot).

        Args:
            zset: Rows of the input, or a delta of the input.
            sets: For each of `distinct_columns` the set of the rows (keys, value), or a delta of
                this set.

        Raises:
            WeightOverflowError: A weight would leave int64.
        """
        rows, weights = zset.row_array, zset.weight_array
        keys = rows[self.keys]
        parts = [(keys, np.zeros(len(weights), np.int64), weights)]
        for (column, distinct), slot in self._counts.items():
            if distinct:
                values = sets[column]
                part_keys, amounts = values.row_array[:-1], values.weight_array
            else:
                nulls = np.flatnonzero(rows[column] == NULL)
                part_keys, amounts = keys[:, nulls], weights[nulls]
            parts.append((part_keys, np.full(len(amounts), slot), amounts))
        for (column, distinct), (slot, exact) in self._sums.items():
            if distinct:
                values = sets[column]
                part_keys, codes = values.row_array[:-1], values.row_array[-1]
                factors = values.weight_array
            else:
                part_keys, codes, factors = keys, rows[column], weights
                present = np.flatnonzero(codes != NULL)
                if len(present) < len(codes):
                    part_keys, codes, factors = keys[:, present], codes[present], weights[present]
            digits = exact.split(codes, factors)
            parts.append((part_keys[:, digits.sum_indices], slot + digits.digits, digits.amounts))
        size = sum(len(amounts) for _, _, amounts in parts)
        slot_rows = np.empty((len(self.keys) + 1, size), np.int64)
        all_amounts = np.empty(size, np.int64)
        start = 0
        for part_keys, slots, amounts in parts:
            end = start + len(amounts)
            slot_rows[:-1, start:end] = part_keys
            slot_rows[-1, start:end] = slots
            all_amounts[start:end] = amounts
            start = end
        try:
            return consolidated_rows(slot_rows, all_amounts)
        except WeightOverflowError as error:
            raise self._overflow(error) from None

    def results(
        self, n: int, sums: Digits, *, always_exists: bool
    ) -> tuple[BoolArray, list[Int64Array]]:
        """Return a mask of the groups that exist, and the codes of each call's results.

        Args:
            n: The number of groups.
            sums: The state of the groups: index of the group, slot, weight.
            always_exists: True if a group without rows has a result row, too.

        Raises:
            EvaluationError: A sum of a group that exists does not fit its type.
        """
        rows = _count(sums, 0, n)
        exists = np.ones(n, np.bool) if always_exists else rows > 0
        counts = {}
        for (column, distinct), slot in self._counts.items():
            count = _count(sums, slot, n)
            counts[column, distinct] = count if distinct else rows - count
        columns = []
        for call, encoder in zip(self.calls, self._encoders, strict=True):
            count = rows if call.argument is None else counts[call.argument, call.distinct]
            if encoder is None or call.argument is None:
                columns.append(count)
                continue
            slot = self._sums[call.argument, call.distinct][0]
            own_rows = np.flatnonzero((sums.digits >= slot) & (sums.digits < slot + DIGITS))
            digits = Digits(
                sums.sum_indices[own_rows], sums.digits[own_rows] - slot, sums.amounts[own_rows]
            )
            columns.append(encoder.codes(digits, count, exists & (count != 0)))
        return exists, columns

    def read(self, prefixes: Int64Array, delta: ZSet, staged: list[Staged]) -> Digits:
        """Read the old state of the groups of ``prefixes``, followed by their new state.

        Args:
            prefixes: Keys of n groups, of shape ``(keys, n)``.
            delta: Rows (keys, slot) of these groups, returned by `partial_rows`.
            staged: The list to which the change of the state is appended.

        Returns:
            The slots of group i before the step as sum i, and after the step as sum n + i.

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
        state = prefix_lookup(self.trace, prefixes, signed=True, step=step)
        slots = state.rows[0]
        return Digits(
            np.concatenate((state.places, state.places + prefixes.shape[1])),
            np.concatenate((slots, slots)),
            np.concatenate((state.old, state.new)),
        )

    def _overflow(self, error: WeightOverflowError) -> WeightOverflowError:
        """The overflow error of a weight of the state, with the names of the aggregates."""
        names = ", ".join(
            f"{call.function}({'*' if call.argument is None else f'#{call.argument}'})"
            for call in self.calls
        )
        return WeightOverflowError(
            f"a count or sum behind {names or 'count(*)'} leaves int64: {error}; nothing was "
            f"changed: scale the weights"
        )


def _count(sums: Digits, slot: int, n: int) -> Int64Array:
    """Return the weight of a slot for each of n groups."""
    count = np.zeros(n, np.int64)
    own_rows = sums.digits == slot
    count[sums.sum_indices[own_rows]] = sums.amounts[own_rows]
    return count
