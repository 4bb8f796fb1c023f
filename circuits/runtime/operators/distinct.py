"""Distinct and positive: the set and the bag of the rows of positive weight in a Z-set.

::

    distinct(Z)[x]    = 1 if Z[x] > 0 else 0
    positive(Z)[x]    = max(Z[x], 0)
    Q^Δ(d)[x]         = Q(z⁻¹(I(d)) + d)[x] - Q(z⁻¹(I(d)))[x]       for the rows x of d only

An example stream, one row ``x``::

    input delta       +1   +1   -1   -2   +1   +1
    integrated         1    2    1   -1    0    1
    distinct          +1    0    0   -1    0   +1
    positive          +1   +1   -1   -1    0   +1

Neither is linear. State: the integrated input, one trace. A step looks up and updates only the rows
of its delta, in O(|d| log N) time for N rows of state. A row of negative total weight is absent,
like a row of weight zero. So a deletion may precede its insertion: the result is correct once both
have been processed.

EXCEPT ALL is ``positive(a - b)``, and INTERSECT ALL is ``a - positive(a - b)``. For EXCEPT and
INTERSECT, ``a`` and ``b`` are replaced by ``distinct(a)`` and ``distinct(b)``.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, proposition 4.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from circuits.runtime.operators.operator import Result, StepContext
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.zset import Int64Array, to_storable

__all__ = ["DistinctOperator", "one_if_positive", "positive_part"]


WeightFunction = Callable[[Int64Array], Int64Array]


class DistinctOperator:
    """Applies a function to the total weight of each row.

    Args:
        arity: The number of columns.
        reweight: `one_if_positive` or `positive_part`.

    >>> zset = ZSet.from_rows([(7,), (7,), (8,)], [1, 1, -1])
    >>> DistinctOperator(1, one_if_positive).evaluate([zset])
    ZSet({(7,): 1})
    >>> DistinctOperator(1, positive_part).evaluate([zset])
    ZSet({(7,): 2})
    """

    # The trace has the columns of the rows, so old rows can be dropped (see `Operator`).
    traces_begin_with_partitioning: ClassVar[bool] = True

    def __init__(self, arity: int, reweight: WeightFunction) -> None:
        # A row without columns is stored with one column of zeros (`to_storable`).
        self.trace = Trace(max(arity, 1))
        self.traces = (self.trace,)
        self._reweight = reweight

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Apply the function to the weights of a Z-set."""
        (zset,) = inputs
        return _with_weights(zset, self._reweight(zset.weights))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the output weights of the delta's rows.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta):
            return delta, None
        rows = to_storable(delta)
        staged = self.trace.prepare(rows)  # raises on overflow, so the sums below cannot wrap
        staged.lookups = len(rows)
        old = self.trace.weights_of(rows)
        change = self._reweight(old + delta.weight_array) - self._reweight(old)
        return _with_weights(delta, change), staged


def one_if_positive(weights: Int64Array) -> Int64Array:
    """Return 1 for a positive weight, else 0: the weight function of distinct."""
    return (weights > 0).astype(np.int64)


def positive_part(weights: Int64Array) -> Int64Array:
    """Return the weight if it is positive, else 0: the weight function of positive."""
    return np.maximum(weights, 0)


def _with_weights(zset: ZSet, weights: Int64Array) -> ZSet:
    """Return the rows of ``zset`` with new weights, without the rows of weight zero."""
    (nonzero,) = weights.nonzero()
    if len(nonzero) == len(weights):
        return ZSet(zset.row_array, weights)
    return ZSet(np.ascontiguousarray(zset.row_array[:, nonzero]), weights[nonzero])
