"""Distinct: the set of the rows whose weight is positive.

::

    distinct(Z)[x]    = 1 if Z[x] > 0 else 0
    distinct^Δ(d)[x]  = [I(d)[x] > 0] - [z⁻¹(I(d))[x] > 0]      for the rows x of d only

An example stream, one row ``x``::

    input delta       +1   +1   -1   -2   +1   +1
    integrated         1    2    1   -1    0    1
    output delta      +1    0    0   -1    0   +1

Not linear, so it keeps the integrated input, one trace; a step looks up and updates the rows of
its delta and no others: O(|d| log N) time for N rows of state. A negative total is absence, as for
zero: a deletion that comes before its insertion is answered right once both are there.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, proposition 4.7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from circuits.errors import StaleStepError
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.trace import TraceStep

__all__ = ["Distinct", "DistinctStep"]


class Distinct:
    """Incremental distinct over rows of one arity.

    Args:
        arity: The number of columns of every delta, at least 1.

    >>> distinct = Distinct(1)
    >>> distinct.step(ZSet.from_rows([(7,), (7,), (8,)])).to_dict()
    {(7,): 1, (8,): 1}
    >>> distinct.step(ZSet.from_rows([(7,)], [-1])).to_dict()
    {}
    >>> distinct.step(ZSet.from_rows([(7,)], [-1])).to_dict()
    {(7,): -1}
    """

    def __init__(self, arity: int) -> None:
        self.arity = arity
        self._trace = Trace(arity)
        self._version = 0

    def prepare(self, delta: ZSet) -> DistinctStep:
        """Compute the output delta and leave the state as it is until ``commit``.

        Raises:
            ArityError: The delta has another arity.
            WeightOverflowError: The total weight of a row would leave int64.
        """
        if len(delta) == 0 and delta.arity == self.arity:
            return DistinctStep(delta, (), self, self._version)
        staged = self._trace.prepare(delta)  # and so the sums below cannot wrap around
        old = self._trace.weights_of(delta)
        new = old + delta.weights
        change = (new > 0).astype(np.int64) - (old > 0).astype(np.int64)
        return DistinctStep(_reweighted(delta, change), (staged,), self, self._version)

    def step(self, delta: ZSet) -> ZSet:
        """Apply one delta and return the delta of the distinct rows."""
        prepared = self.prepare(delta)
        prepared.commit()
        return prepared.delta


@dataclass(frozen=True)
class DistinctStep:
    """A computed step: its output ``delta``, and ``commit`` to make it the state."""

    delta: ZSet
    staged: tuple[TraceStep, ...]
    operator: Distinct
    version: int

    def commit(self) -> None:
        """Make the step the state; at most once, and before any other step."""
        operator = self.operator
        if operator._version != self.version:
            raise StaleStepError(
                f"this step was prepared at version {self.version} and the operator is at "
                f"{operator._version}: prepare it again"
            )
        for step in self.staged:
            step.commit()
        operator._version += 1


def _reweighted(zset: ZSet, weights: npt.NDArray[np.int64]) -> ZSet:
    """The rows of ``zset`` with other weights; rows of weight zero are left out."""
    kept = np.flatnonzero(weights)
    return ZSet.from_columns([column[kept] for column in zset.columns], weights[kept])
