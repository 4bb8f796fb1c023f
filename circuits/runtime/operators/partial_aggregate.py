"""Partial and final aggregate: an aggregate in two parts, one before and one after a join.

::

    partial(Z)[k, slot]  = Σ over the rows (k, x) of Z of Z[k, x] · number of the slot for x
    final(S)             = {(key, results from the slots of key): 1 for each key that exists}

    final(partial(A ⋈ B ⋈ …))  =  final(partial(A) ⋈ B ⋈ …)        for the columns x of A

``partial`` is linear (`circuits.runtime.operators.linear_aggregate`) and a join multiplies weights.
So a sum over a join can be computed from the join of the partial aggregate. The summed number is
the weight of a row. The join reads one small column ``slot`` instead of x, and does not enumerate
the values of x for a key. An example stream for sum(x) over rows (k, x) of A, joined with two rows
of B for k = 7, with the slots 0 and 256 as in that module::

    delta of A        {(7,3): +1}                    {(7,3): -1, (7,5): +1}
    partial           {(7,0): +1, (7,256): +3}       {(7,256): +2}
    joined            {(7,0): +2, (7,256): +6}       {(7,256): +4}
    final             {(7,6): +1}                    {(7,6): -1, (7,10): +1}
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import FinalAggregate, PartialAggregate
from circuits.runtime.operators.exact_sum import Digits
from circuits.runtime.operators.groups import changed_groups, changed_rows, group_rows
from circuits.runtime.operators.linear_aggregate import LinearAggregate
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.codec import Codecs, dictionary_columns
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import Staged, StagedGroup
from dbsp_wcoj.zset import consolidated_rows

__all__ = ["FinalAggregateOperator", "PartialAggregateOperator"]


class PartialAggregateOperator:
    """Rows of slots, whose weights are the numbers to add, instead of rows of values."""

    def __init__(self, plan: PartialAggregate, codecs: Codecs) -> None:
        self._linear = _linear_aggregate(plan, range(plan.kept), codecs)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The partial aggregate of a Z-set."""
        return self._linear.partial_rows(inputs[0], {})

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The partial aggregate of a delta."""
        return self.evaluate(deltas), None


class FinalAggregateOperator:
    """The results per key, computed from partial aggregates."""

    def __init__(self, plan: FinalAggregate, codecs: Codecs) -> None:
        self._keys = tuple(range(plan.keys))
        self._linear = _linear_aggregate(plan.partial, self._keys, codecs)
        self._arity = len(plan.fields)
        self.traces = (self._linear.trace,)
        self.coded = (dictionary_columns([codecs.codec(f.type) for f in plan.fields[: plan.keys]]),)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The rows of all groups."""
        (zset,) = inputs
        groups, (places,) = group_rows([zset], len(self._keys))
        n = groups.shape[1]
        digits = Digits(places, zset.row_array[-1], zset.weight_array)
        exists, columns = self._linear.results(n, digits, always=not self._keys)
        rows = np.concatenate((groups, np.array(columns, np.int64).reshape(len(columns), n)))[
            :, exists
        ]
        return consolidated_rows(rows, np.ones(rows.shape[1], np.int64))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The change of the rows of the groups in the delta.

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
        digits = self._linear.read(groups, delta, staged)
        n = groups.shape[1]
        exists, columns = self._linear.results(2 * n, digits, always=not self._keys)
        results = np.array(columns, np.int64).reshape(len(columns), 2 * n)
        return changed_rows(groups, exists, results, initial=initial), StagedGroup(staged)


def _linear_aggregate(
    plan: PartialAggregate, keys: Sequence[int], codecs: Codecs
) -> LinearAggregate:
    inputs = [codecs.codec(field.type) for field in plan.input.fields]
    return LinearAggregate(inputs, keys, [(c, codecs.codec(c.type)) for c in plan.aggregates])
