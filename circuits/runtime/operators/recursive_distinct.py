"""Recursive distinct: the set of the rows that a recursion has derived, after each iteration.

In a nested circuit, the last column of a row is the iteration: a row ``(x…, i)`` is a change of the
weight of ``x`` at iteration ``i`` (`circuits.plan.rewrite.iterated_rows`). Let
``C[x, i] = Σ over j ≤ i of Z[x, j]`` be the weight of ``x`` after iteration ``i``::

    rdistinct(Z)[x, i]   = set(C[x, i]) - set(C[x, i - 1])        set(w) = 1 if w > 0 else 0
    rdistinct^Δ(d)       = rdistinct(z⁻¹(I(d)) + d) - rdistinct(z⁻¹(I(d)))   for rows x of d only

This is distinct, differentiated by the iteration; each step computes its change. An example stream
of one row ``x``, as {iteration: weight}. The first step derives it at iterations 2 and 5. The
second step deletes the first derivation::

    delta           {2: +1, 5: +1}    {2: -1}
    output          {2: +1}           {2: -1, 5: +1}

State: the integrated input, one trace. The history of a row, usually a few iterations, is
contiguous in it. A step reads only the histories of the rows of its delta, in O(log N) plus the
length of each. A delta may have iterations in any order. A change of a row at iteration ``i``
changes the output at ``i``, or at a later iteration in the history of the row.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 4.2 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.runtime.operators.first_derivations import first_positions_of_rows
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.arrow_buffers import BoolArray
from dbsp_wcoj import Trace, WeightOverflowError, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.zset import MAX_INT64, Int64Array

__all__ = ["RecursiveBagOperator", "RecursiveSetOperator"]


class RecursiveSetOperator:
    """Outputs each row with weight 1 at the iteration of its first derivation.

    Args:
        arity: The number of columns, including the iteration.

    >>> recursive_set = RecursiveSetOperator(2)
    >>> recursive_set.evaluate([ZSet.from_rows([(7, 2), (7, 5), (8, 1)], [1, 1, 3])]).to_dict()
    {(7, 2): 1, (8, 1): 1}
    """

    def __init__(self, arity: int) -> None:
        self.trace = Trace(arity)
        self.traces = (self.trace,)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Return each row at the iteration of its first derivation."""
        (zset,) = inputs
        return RecursiveSetOperator(zset.arity).prepare_delta(zset)[0] if len(zset) else zset

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the output for the rows in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        return self.prepare_delta(delta) if len(delta) else (delta, None)

    def prepare_delta(self, delta: ZSet) -> Result:
        """As `prepare`, for a delta that is not empty."""
        staged = self.trace.prepare(delta)
        delta_columns = delta.row_array  # the last one is the iteration
        if len(delta_columns) == 1:
            rows: Int64Array = np.empty((0, 1), np.int64)
        else:
            rows = delta_columns[:-1]
            rows = rows[:, first_positions_of_rows(rows)]
        histories = prefix_lookup(self.trace, rows, signed=True, step=staged)
        row_indices = histories.prefix_index
        is_start = change_mask(row_indices)
        old, new = running_sums(histories.old, is_start), running_sums(histories.new, is_start)
        # Running sums wrap around silently. Check them if the sum of all weights may be too large.
        max_delta_weight = staged.run(self.trace.orders[0]).max_abs_weight
        max_weight = self.trace.arrangements[0].spine.weight_bound + max_delta_weight
        if len(row_indices) * max_weight > MAX_INT64 // 2:
            check_sums(histories.old, is_start)
            check_sums(histories.new, is_start)
        change = presence_changes(new > 0, is_start) - presence_changes(old > 0, is_start)
        nonzero = np.flatnonzero(change)
        output = np.empty((len(delta_columns), len(nonzero)), np.int64)
        output[:-1] = rows[:, row_indices[nonzero]]
        output[-1] = histories.rows[0, nonzero]  # the iterations
        return ZSet(output, change[nonzero]), staged


class RecursiveBagOperator:
    """Outputs its input, for UNION ALL: the weight of a row is the number of its derivations."""

    traces = ()

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Return the rows unchanged."""
        return inputs[0]

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return the delta unchanged."""
        return deltas[0], None


def change_mask(column: Int64Array) -> BoolArray:
    """Return a mask of the positions at which a column changes, including the first position.

    >>> change_mask(np.array([4, 4, 5, 4])).tolist()
    [True, False, True, True]
    """
    changes = np.empty(len(column), np.bool_)
    changes[:1] = True
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes


def running_sums(weights: Int64Array, is_start: BoolArray) -> Int64Array:
    """Return the running sums of weights; they restart where ``is_start`` is True.

    >>> running_sums(np.array([1, 2, 5, -1]), np.array([True, False, True, False])).tolist()
    [1, 3, 5, 4]
    """
    sums = np.cumsum(weights)
    first = np.flatnonzero(is_start)
    before = sums[first] - weights[first]
    result: Int64Array = sums - before[np.cumsum(is_start) - 1]
    return result


def check_sums(weights: Int64Array, is_start: BoolArray) -> None:
    """Raise an error if the running sums of weights (`running_sums`) may overflow int64.

    Raises:
        WeightOverflowError: The sum of the absolute weights after some start reaches 2**62.
    """
    sums = np.add.reduceat(np.abs(weights.astype(np.float64)), np.flatnonzero(is_start))
    if sums.max(initial=0.0) >= 2.0**62:
        raise WeightOverflowError(
            f"the weights of a row in a recursion add up to about {sums.max():.3g}, too close to "
            f"what int64 holds ({MAX_INT64}); give smaller weights, or read distinct rows in it"
        )


def presence_changes(present: BoolArray, is_start: BoolArray) -> Int64Array:
    """Return 1 where ``present`` becomes true and -1 where it becomes false.

    Where ``is_start`` is True, the value before it counts as false.
    """
    current = present.astype(np.int64)
    previous = np.empty_like(current)
    previous[:1] = 0
    previous[1:] = current[:-1]
    previous[is_start] = 0
    return current - previous
