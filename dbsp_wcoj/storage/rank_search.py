"""Rank search: the row at a rank among the rows with the same prefix, in several traces together.

::

    size(p)       = Σ weights of the rows with prefix p
    find(p, r)    = the first row with prefix p such that the weights of the rows up to it exceed r

Runs store running sums of their weights, so the weight of all rows up to a row is one search per
run. `RankSearch` halves the rows that may be the result until none is left. This needs no further
state. The rows are sums over all traces; in these sums no weight is negative.

Cost: O(log N) searches per run and rank for N rows of the prefix; each is O(log N). Rows whose
weights add up to zero cost no more than others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbsp_wcoj.kernels.storage import spine as spine_kernels
from dbsp_wcoj.kernels.storage.rank_search import find_ranks
from dbsp_wcoj.kernels.storage.row_ranges import seek_rows
from dbsp_wcoj.storage.trace import Trace, TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["RankSearch"]


class RankSearch:
    """The sum of traces of one arity in their own column order, and of staged steps.

    It reads overlays, too, and is valid until one of the traces changes.

    Args:
        traces: At least one trace. No row may have a negative total weight.
        steps: Staged steps of these traces, to find rows as they are after them.

    Attributes:
        searches: The number of searches in a run so far.

    >>> from dbsp_wcoj import ZSet
    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(7, 3), (7, 4), (7, 9), (8, 1)], [1, 2, 1, 1]))
    >>> search = RankSearch([trace])
    >>> search.sizes(np.array([[7, 8]])).tolist()
    [4, 1]
    >>> search.find(np.array([[7, 7, 8]]), np.array([2, 3, 0])).tolist()
    [[7, 7, 8], [4, 9, 1]]
    """

    def __init__(self, traces: Sequence[Trace], steps: Sequence[TraceStep] = ()) -> None:
        self._arity = traces[0].arity
        order = tuple(range(self._arity))
        # The table of a spine lists the addresses of its runs, including those of an overlay. The
        # spines and steps keep the runs alive.
        self._traces, self._steps = traces, steps
        tables = [trace.arrange(order).spine.table for trace in traces]
        addresses = [
            table[spine_kernels.FIRST_RUN :][: table[spine_kernels.RUN_COUNT]] for table in tables
        ]
        addresses.append(np.array([step.run(order).address for step in steps], np.int64))
        self._runs: Int64Array = np.concatenate(addresses)
        self.searches = 0

    def sizes(self, keys: Int64Array) -> Int64Array:
        """Return the weight of all rows that begin with each key.

        Args:
            keys: The first columns of rows, shape ``(depth, n)``.
        """
        n = keys.shape[1]
        if not len(keys):  # all rows: those up to the greatest value of the first column
            keys = np.full((1, n), 2**63 - 1)
            return self._weights_up_to(keys, include_keys=True)
        return self._weights_up_to(keys, include_keys=True) - self._weights_up_to(
            keys, include_keys=False
        )

    def find(self, keys: Int64Array, ranks: Int64Array) -> Int64Array:
        """Return the row at a rank among the rows that begin with each key.

        Args:
            keys: The first columns of rows, but not all, shape ``(depth, n)``.
            ranks: At least 0 and less than the size of the key, shape ``(n,)``.

        Returns:
            Whole rows, shape ``(arity, n)``.
        """
        depth, n = keys.shape
        rows = np.zeros((self._arity - depth, n), np.int64)
        self.searches += find_ranks(
            self._runs,
            np.ascontiguousarray(keys),
            np.ascontiguousarray(ranks),
            self._arity,
            rows,
        )
        return np.concatenate((keys, rows))

    def _weights_up_to(self, keys: Int64Array, *, include_keys: bool) -> Int64Array:
        """Return the weight of all rows before each key, with or without the rows of the key."""
        n = keys.shape[1]
        positions, weights = np.empty((2, len(self._runs), n), np.int64)
        seek_rows(
            self._runs,
            np.ascontiguousarray(keys),
            np.full(n, include_keys),
            self._arity,
            positions,
            weights,
        )
        self.searches += weights.size
        total: Int64Array = weights.sum(axis=0)
        return total
