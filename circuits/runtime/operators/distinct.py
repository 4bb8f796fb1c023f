"""Distinct and positive: what is left of a Z-set when weights are cut to a set's or a bag's.

::

    distinct(Z)[x]    = 1 if Z[x] > 0 else 0
    positive(Z)[x]    = max(Z[x], 0)
    Q^Δ(d)[x]         = Q(z⁻¹(I(d)) + d)[x] - Q(z⁻¹(I(d)))[x]       for the rows x of d only

An example stream, one row ``x``::

    input delta       +1   +1   -1   -2   +1   +1
    integrated         1    2    1   -1    0    1
    distinct          +1    0    0   -1    0   +1
    positive          +1   +1   -1   -1    0   +1

Not linear, so they keep the integrated input, one trace; a step looks up and updates the rows of
its delta and no others: O(|d| log N) time for N rows of state. A negative total is absence, as for
zero: a deletion that comes before its insertion is answered right once both are there.

EXCEPT ALL is ``positive(a - b)``; EXCEPT and INTERSECT are sums of distincts.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, proposition 4.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from circuits.runtime.operators.operator import Result, StepContext
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.zset import Int64Array, to_storable

__all__ = ["DistinctOperator", "to_bag", "to_set"]


Cut = Callable[[Int64Array], Int64Array]


class DistinctOperator:
    """Rows with their total weights cut by a function of the weight.

    Args:
        arity: The number of columns.
        cut: `to_set` or `to_bag`.

    >>> zset = ZSet.from_rows([(7,), (7,), (8,)], [1, 1, -1])
    >>> DistinctOperator(1, to_set).evaluate([zset]), DistinctOperator(1, to_bag).evaluate([zset])
    (ZSet({(7,): 1}), ZSet({(7,): 2}))
    """

    def __init__(self, arity: int, cut: Cut) -> None:
        self.trace = Trace(max(arity, 1))
        self.traces = (self.trace,)
        self._cut = cut

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Cut the weights of a Z-set."""
        (zset,) = inputs
        return _reweighted(zset, self._cut(zset.weights))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """How the cut weights of the delta's rows change.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta):
            return delta, None
        rows = to_storable(delta)
        staged = self.trace.prepare(rows)  # and so the sums below cannot wrap around
        old = self.trace.weights_of(rows)
        return _reweighted(delta, self._cut(old + delta.weights) - self._cut(old)), staged


def to_set(weights: Int64Array) -> Int64Array:
    """Weight 1 where it is positive, else 0: the cut of distinct."""
    return (weights > 0).astype(np.int64)


def to_bag(weights: Int64Array) -> Int64Array:
    """The weight where it is positive, else 0: the cut of positive."""
    return np.maximum(weights, 0)


def _reweighted(zset: ZSet, weights: Int64Array) -> ZSet:
    """The rows of ``zset`` with other weights; rows of weight zero are left out."""
    kept = np.flatnonzero(weights)
    return ZSet(np.ascontiguousarray(zset.rows[:, kept]), weights[kept])
