"""Partial and final aggregate: an aggregate in two parts, one before and one after a join.

::

    partial(Z)[k, slot]  = Σ over the rows (k, x) of Z of Z[k, x] · value of the slot for x
    final(S)             = {(key, results from the slots of key): 1 for each key that exists}

    final(partial(A ⋈ B ⋈ …))  =  final(partial(A) ⋈ B ⋈ …)        for the columns x of A

A slot is an integer that names a quantity to add up, such as the number of rows. The quantity
itself is the weight of the row (key, slot). The numbers of the slots are explained in
`circuits.runtime.operators.aggregates.linear_aggregate`. ``partial`` is linear and a join
multiplies weights, so a sum over a join can be computed from the join of the partial aggregate. The
join then reads one small column ``slot`` instead of x, and does not enumerate the values of x for a
key.

An example stream for sum(x) over rows (k, x) of A, joined with two rows of B for k = 7. Slot 0
counts the rows of a key, and slot 256 adds up x::

    delta of A        {(7,3): +1}                    {(7,3): -1, (7,5): +1}
    partial           {(7,0): +1, (7,256): +3}       {(7,256): +2}
    join              {(7,0): +2, (7,256): +6}       {(7,256): +4}
    final             {(7,6): +1}                    {(7,6): -1, (7,10): +1}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from circuits.plan.physical_nodes import FinalAggregate, PartialAggregate
from circuits.runtime.operators.aggregates.groups import changed_groups, changed_rows, group_rows
from circuits.runtime.operators.aggregates.linear_aggregate import LinearAggregate
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.row_batch import UnsortedRows
from circuits.types.codecs.codec import Codecs, dictionary_columns
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.group_lookup import GroupSlots
from dbsp_wcoj.storage.trace import Staged, StagedGroup
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["FinalAggregateOperator", "PartialAggregateOperator"]


class PartialAggregateOperator:
    """Rows (key, slot), whose weights are the quantities to add up, instead of rows of values.

    Attributes:
        is_sliceable: True: the partial aggregate of all rows is the sum over slices.
        sorts_whole_rows: False: it sorts quantities only.
        partial_arity: The number of columns of the partial aggregate.
    """

    is_sliceable: ClassVar[bool] = True
    sorts_whole_rows: ClassVar[bool] = False

    def __init__(self, plan: PartialAggregate, codecs: Codecs) -> None:
        keys = range(plan.kept_count)  # the first columns of the input
        self._linear = _linear_aggregate(plan, keys, codecs)
        self.partial_arity = len(keys) + 1

    def evaluate(self, inputs: Sequence[ZSet | UnsortedRows]) -> ZSet:
        """Compute the partial aggregate of a Z-set, or of rows in any order."""
        (zset,) = inputs
        return self._linear.partial_rows(zset.row_array, zset.weight_array, ())

    def partial_rows(self, rows: Int64Array, weights: Int64Array) -> ZSet:
        """Compute the partial aggregate of a slice of the rows, which may be in any order."""
        return self._linear.partial_rows(rows, weights, ())

    def prepare_partial(self, partial: ZSet, context: StepContext) -> Result:
        """Return the result of `prepare`, given the sum of `partial_rows` of all slices."""
        return partial, None

    def prepare(self, deltas: Sequence[ZSet | UnsortedRows], context: StepContext) -> Result:
        """Compute the partial aggregate of a delta, whose rows may be in any order."""
        return self.evaluate(deltas), None


class FinalAggregateOperator:
    """The results per key, computed from partial aggregates."""

    # The trace begins with the keys, so old groups can be dropped (see `Operator`).
    traces_begin_with_partitioning: ClassVar[bool] = True

    def __init__(self, plan: FinalAggregate, codecs: Codecs) -> None:
        self._keys = tuple(range(plan.key_count))
        self._linear = _linear_aggregate(plan.partial, self._keys, codecs)
        self._arity = len(plan.fields)
        self.traces = (self._linear.trace,)
        self.coded_columns = (
            dictionary_columns([codecs.codec(f.type) for f in plan.fields[: plan.key_count]]),
        )

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Compute the result rows of all groups."""
        (zset,) = inputs
        groups, (group_indices,) = group_rows([zset], len(self._keys))
        n = groups.shape[1]
        state = GroupSlots(group_indices, zset.row_array[-1], zset.weight_array)
        exists, columns = self._linear.results(n, state, always_exists=not self._keys)
        rows = np.concatenate((groups, columns))[:, exists]
        return consolidated_rows(rows, np.ones(rows.shape[1], np.int64))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the result rows of the groups in the delta.

        Without keys there is exactly one row, which the first step inserts.

        Raises:
            WeightOverflowError: A weight of the state would leave int64.
            EvaluationError: A sum does not fit the type of the result.
        """
        (delta,) = deltas
        initial = context.first and not self._keys
        if not len(delta) and not initial:
            return ZSet.empty(self._arity), None
        groups = changed_groups(delta, self._keys)
        staged: list[Staged] = []
        # The slots of the n groups before the step, then after it; `read` stages the change.
        state = self._linear.read(groups, delta, staged)
        n = groups.shape[1]
        exists, columns = self._linear.results(2 * n, state, always_exists=not self._keys)
        return changed_rows(groups, exists, columns, initial=initial), StagedGroup(staged)


def _linear_aggregate(
    plan: PartialAggregate, keys: Sequence[int], codecs: Codecs
) -> LinearAggregate:
    inputs = [codecs.codec(field.type) for field in plan.input.fields]
    return LinearAggregate(inputs, keys, [(c, codecs.codec(c.type)) for c in plan.aggregates])
