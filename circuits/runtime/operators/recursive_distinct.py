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

from circuits.runtime.operators.aggregates.groups import changed_groups
from circuits.runtime.operators.operator import Result, StepContext
from dbsp_wcoj import Trace, WeightOverflowError, ZSet
from dbsp_wcoj.kernels.values.presence_changes import change_presence
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.zset import MAX_INT64

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
        rows = changed_groups(delta, range(delta.arity - 1))
        histories = prefix_lookup(self.trace, rows, signed=True, step=staged)
        changed_rows, weights, is_overflow = change_presence(
            rows, histories.prefix_index, histories.rows[0], histories.old, histories.new
        )
        if is_overflow:
            raise history_overflow()
        return ZSet(changed_rows, weights), staged


def history_overflow() -> WeightOverflowError:
    """Return the error of a row whose weights up to an iteration add up to too much."""
    return WeightOverflowError(
        f"the weights of a row in a recursion add up to more than int64 holds ({MAX_INT64})"
        "; give smaller weights, or read distinct rows in it"
    )


class RecursiveBagOperator:
    """Outputs its input, for UNION ALL: the weight of a row is the number of its derivations."""

    traces = ()

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Return the rows unchanged."""
        return inputs[0]

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return the delta unchanged."""
        return deltas[0], None
