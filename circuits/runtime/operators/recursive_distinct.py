"""Settle: what is kept of the rows that a recursion derives, per row and over its iterations.

Rows are ``(x…, i)``: what changes of ``x`` at iteration ``i``
(`circuits.plan.rewrite.iterated_rows`). With ``C[x, i] = Σ over j ≤ i of Z[x, j]``, the weight of
``x`` after iteration ``i``::

    settle(Z)[x, i]   = cut(C[x, i]) - cut(C[x, i - 1])       cut(w) = 1 if w > 0 else 0
    settle^Δ(d)       = settle(z⁻¹(I(d)) + d) - settle(z⁻¹(I(d)))        at the rows x of d only

It is distinct, differentiated by the iteration and lifted over the steps. An example stream of one
row ``x``, derived at iterations 2 and 5, of which the first derivation goes again::

    delta           {2: +1, 5: +1}    {2: -1}
    settle          {2: +1}           {2: -1, 5: +1}

State: the integrated input, one trace in which the history of a row, most often a few iterations,
stands together. A step reads the histories of the rows of its delta and no others: O(log N) for
each, and their lengths. Deltas may come in any order of iterations; all rows that come out are of
iterations that come in, or later ones.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 4.2 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.arrow_buffers import BoolArray
from dbsp_wcoj import Trace, WeightOverflowError, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.zset import LIMIT, Int64Array

__all__ = ["RecursiveBagOperator", "RecursiveSetOperator"]


class RecursiveSetOperator:
    """Each row once, from the iteration on in which it is first derived.

    Args:
        arity: The number of columns, the iteration among them.

    >>> settle = RecursiveSetOperator(2)
    >>> settle.evaluate([ZSet.from_rows([(7, 2), (7, 5), (8, 1)], [1, 1, 3])]).to_dict()
    {(7, 2): 1, (8, 1): 1}
    """

    def __init__(self, arity: int) -> None:
        self.trace = Trace(arity)
        self.traces = (self.trace,)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The first iteration of each row."""
        (zset,) = inputs
        return RecursiveSetOperator(zset.arity)._prepared(zset)[0] if len(zset) else zset

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """How the histories of the delta's rows change.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        return self._prepared(delta) if len(delta) else (delta, None)

    def _prepared(self, delta: ZSet) -> Result:
        staged = self.trace.prepare(delta)
        given = delta.row_array
        if len(given) == 1:
            rows: Int64Array = np.empty((0, 1), np.int64)
        else:
            rows = given[:-1]
            rows = rows[:, first_of_equal(rows)]
        found = prefix_lookup(self.trace, rows, signed=True, step=staged)
        places = found.places
        n = len(places)
        starts = changes_of(places)
        old, new = running(found.old, starts), running(found.new, starts)
        largest = staged.run(self.trace.orders[0]).max_abs_weight
        bound = self.trace.arrangements[0].spine.weight_bound + largest
        if n * bound > LIMIT // 2:
            check_sums(found.old, starts)
            check_sums(found.new, starts)
        change = appearing(new > 0, starts) - appearing(old > 0, starts)
        kept = np.flatnonzero(change)
        out = np.empty((len(given), len(kept)), np.int64)
        out[:-1] = rows[:, places[kept]]
        out[-1] = found.rows[0, kept]
        return ZSet(out, change[kept]), staged


class RecursiveBagOperator:
    """All rows, as often as they are derived."""

    traces = ()

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The rows."""
        return inputs[0]

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The delta."""
        return deltas[0], None


def first_of_equal(rows: Int64Array) -> Int64Array:
    """The positions at which sorted rows change, the first among them.

    >>> first_of_equal(np.array([[1, 1, 1, 2], [5, 5, 6, 6]])).tolist()
    [0, 2, 3]
    """
    if rows.shape[1] == 1:
        return np.zeros(1, np.int64)
    changes = rows[0, 1:] != rows[0, :-1]
    for column in rows[1:]:
        changes |= column[1:] != column[:-1]
    return np.concatenate(([0], np.flatnonzero(changes) + 1))


def changes_of(column: Int64Array) -> BoolArray:
    """Where a column differs from the row before; the first row does.

    >>> changes_of(np.array([4, 4, 5, 4])).tolist()
    [True, False, True, True]
    """
    changes = np.empty(len(column), np.bool_)
    changes[:1] = True
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes


def running(weights: Int64Array, starts: BoolArray) -> Int64Array:
    """The sums so far of weights, anew from each start.

    >>> running(np.array([1, 2, 5, -1]), np.array([True, False, True, False])).tolist()
    [1, 3, 5, 4]
    """
    sums = np.cumsum(weights)
    first = np.flatnonzero(starts)
    before = sums[first] - weights[first]
    since: Int64Array = sums - before[np.cumsum(starts) - 1]
    return since


def check_sums(weights: Int64Array, starts: BoolArray) -> None:
    """Refuse weights of which some from a start on add up to more than int64 holds.

    Raises:
        WeightOverflowError: They may.
    """
    sums = np.add.reduceat(np.abs(weights.astype(np.float64)), np.flatnonzero(starts))
    if sums.max(initial=0.0) >= 2.0**62:
        raise WeightOverflowError(
            f"the weights of a row in a recursion add up to about {sums.max():.3g}, too close to "
            f"what int64 holds ({LIMIT}); scale the weights"
        )


def appearing(there: BoolArray, starts: BoolArray) -> Int64Array:
    """1 where something begins to be there, -1 where it ends; before a start it is not there."""
    now = there.astype(np.int64)
    before = np.empty_like(now)
    before[:1] = 0
    before[1:] = now[:-1]
    before[starts] = 0
    return now - before
