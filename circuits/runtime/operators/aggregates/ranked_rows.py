"""Ranked rows: the state of percentiles, an ordered multiset that finds a row by its rank.

The multiset has the rows of positive weight in the order of a trace::

    counted(Z)[row]      = max(Z[row], 0), or with ``distinct`` 1 if Z[row] > 0 else 0
    corrections(Z)[row]  = counted(Z)[row] - Z[row]

State: the rows, and their corrections. The sum of both traces is the multiset, and ranks are
searched in their runs together (`dbsp_wcoj.storage.rank_search`). There is a correction only for a
row of negative weight, or with ``distinct`` of a weight other than 1.

Cost: O(log N) per changed row and run to update; O(log N) searches per run and rank. Nothing reads
a whole group.
"""

from __future__ import annotations

import numpy as np

from circuits.runtime.operators.distinct import one_if_positive, positive_part
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.rank_search import RankSearch
from dbsp_wcoj.storage.trace import Staged
from dbsp_wcoj.zset import Int64Array

__all__ = ["RankedRows"]


class RankedRows:
    """Rows of groups, ordered within each group.

    Args:
        arity: The number of columns; the first ones identify the group.
        distinct: True to count each row once.

    >>> multiset = RankedRows(2, distinct=False)
    >>> old, new, staged = multiset.prepare(ZSet.from_rows([(7, 3), (7, 5)], [2, 1]))
    >>> old.sizes(np.array([[7]])).tolist(), new.sizes(np.array([[7]])).tolist()
    ([0], [3])
    >>> new.find(np.array([[7]]), np.array([1])).tolist()
    [[7], [3]]
    """

    def __init__(self, arity: int, *, distinct: bool) -> None:
        self.rows = Trace(arity)
        self.corrections = Trace(arity)
        self._distinct = distinct

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the state."""
        return self.rows, self.corrections

    def prepare(self, delta: ZSet) -> tuple[RankSearch, RankSearch, list[Staged]]:
        """Stage a delta; return the multisets without and with it, and the staged changes.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        old = RankSearch(self.traces)
        if not len(delta):
            return old, old, []
        staged = [self.rows.prepare(delta)]
        correction_delta = self._correction_delta(delta)
        if correction_delta is not None:
            staged.append(self.corrections.prepare(correction_delta))
        return old, RankSearch(self.traces, staged), list(staged)

    def _correction_delta(self, delta: ZSet) -> ZSet | None:
        """Return the change of the corrections; None if nothing changes."""
        weights = delta.weight_array
        if not self._distinct and self.corrections.is_empty and (weights > 0).all():
            return None  # no row has a negative weight, before or after the step
        old = self.rows.weights_of(delta)
        change = self._corrections_of(old + weights) - self._corrections_of(old)
        changed = np.flatnonzero(change)
        if not len(changed):
            return None
        return ZSet(np.ascontiguousarray(delta.row_array[:, changed]), change[changed])

    def _corrections_of(self, weights: Int64Array) -> Int64Array:
        counted = one_if_positive(weights) if self._distinct else positive_part(weights)
        return counted - weights
