"""Settle, of a minimum or maximum: per key the best value that a recursion has derived so far.

Rows are ``(key…, v, i)``: what changes of candidate ``v`` at iteration ``i``, as in
`circuits.runtime.operators.recursive_distinct`; of those that are there after iteration ``i`` the
least stays::

    best(Z)[key, i]      = min {v : Σ over j ≤ i of Z[key, v, j] > 0}
    settle(Z)[key, v, i] = [v = best(Z)[key, i]] - [v = best(Z)[key, i - 1]]

In a monotone recursion (`circuits.datalog.recursive_min_max`) the best value never gets worse from
one iteration to the next: a candidate goes only when a better one has come. So the best after
iteration ``i`` is the least of all that have come by then, a running minimum. An example stream of
one key::

    delta           {(9, 1): +1, (4, 3): +1}                {(4, 3): -1, (6, 3): +1}
    settle          {(9, 1): +1, (9, 3): -1, (4, 3): +1}    {(4, 3): -1, (6, 3): +1}

State: all candidates, one trace by key, value and iteration; so the next best is known when the
best is deleted. A step reads the candidates of the keys of its delta. Values are compared by their
codes, which order as values do; for a maximum they are turned round. NULL is no candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from circuits.runtime.operators.groups import touched
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.recursive_distinct import (
    appearing,
    changes_of,
    first_of_equal,
    running,
)
from circuits.types.codecs.arrow_buffers import NULL
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["RecursiveMinMaxOperator"]

LOWEST: Final = -(2**63)


class RecursiveMinMaxOperator:
    """Per key the best value, from the iterations on in which it gets better.

    Args:
        arity: The number of columns, the iteration among them.
        column: That of the values.
        least: Whether the least is the best.

    >>> settle = RecursiveMinMaxOperator(3, 1, least=True)
    >>> settle.evaluate([ZSet.from_rows([(7, 9, 1), (7, 4, 3), (7, 5, 3)])]).to_dict()
    {(7, 4, 3): 1, (7, 9, 1): 1, (7, 9, 3): -1}
    """

    def __init__(self, arity: int, column: int, *, least: bool) -> None:
        self.trace = Trace(arity)
        self.traces = (self.trace,)
        self._column = column
        self._least = least
        others = [place for place in range(arity - 1) if place != column]
        self._order = [*others, column, arity - 1]

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The best values of a Z-set, iteration by iteration."""
        (zset,) = inputs
        fresh = RecursiveMinMaxOperator(zset.arity, self._column, least=self._least)
        return fresh._prepared(zset)[0] if len(zset) else zset

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """How the best values of the delta's keys change.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        return self._prepared(delta) if len(delta) else (delta, None)

    def _prepared(self, delta: ZSet) -> Result:
        rows, weights = delta.row_array[self._order], delta.weight_array
        there = np.flatnonzero(rows[-2] != NULL)
        if len(there) < len(weights):
            rows, weights = rows[:, there], weights[there]
        if not self._least:
            rows[-2] = ~rows[-2]
        candidates = consolidated_rows(rows, weights.copy())
        if not len(candidates):
            return ZSet.empty(delta.arity), None
        staged = self.trace.prepare(candidates)
        keys = touched(candidates, range(len(rows) - 2))
        found = self._histories(candidates, keys, staged)
        starts = changes_of(found.places) | changes_of(found.rows[0])
        pieces = []
        for side, sign in ((found.new, 1), (found.old, -1)):
            come = np.flatnonzero(appearing(running(side, starts) > 0, starts) > 0)
            best, changes = bests(found.places[come], *found.rows[:, come])
            pieces.append((best, sign * changes))
        best = np.concatenate([rows for rows, _ in pieces], axis=1)
        out: Int64Array = np.empty((len(rows), best.shape[1]), np.int64)
        out[self._order[:-2]] = keys[:, best[0]]
        out[self._column] = best[1] if self._least else ~best[1]
        out[-1] = best[2]
        return consolidated_rows(out, np.concatenate([w for _, w in pieces])), staged

    def _histories(self, candidates: ZSet, keys: Int64Array, staged: TraceStep) -> PrefixRows:
        """The rows (value, iteration) of each key that can change what is best.

        Where the least value came before all iterations of the delta, values above it change
        nothing from there on, and nothing changes before: only it and the delta's values below it
        are read. So a recursion whose values get better for ever takes as long for its last
        iteration as for its first.
        """
        n = len(keys)
        rows = candidates.row_array
        first = first_of_equal(rows[:n]) if n else np.zeros(1, np.int64)
        places = np.repeat(np.arange(len(first)), np.diff([*first, len(candidates)]))
        earliest = np.minimum.reduceat(rows[-1], first)
        known = prefix_lookup(self.trace, keys, limit=1)
        settled = known.rows[1] < earliest[known.places]
        least = np.full(len(first), LOWEST)
        least[known.places[settled]] = known.rows[0, settled]
        others = np.ones(len(first), np.bool_)
        others[known.places[settled]] = False
        below = np.flatnonzero(rows[-2] < least[places])
        best = np.flatnonzero(~others)
        owners = np.concatenate((places[below], best))
        values = np.concatenate((rows[-2, below], least[best]))
        order = np.lexsort((values, owners))
        owners, values = owners[order], values[order]
        distinct = np.flatnonzero(changes_of(owners) | changes_of(values))
        owners, values = owners[distinct], values[distinct]
        prefixes = np.concatenate((keys[:, owners], values[np.newaxis]))
        found = prefix_lookup(self.trace, prefixes, signed=True, step=staged)
        # A value that was taken away before it came has no iteration at which it is best.
        came = np.flatnonzero(found.old)
        came = came[changes_of(found.places[came])]
        came = came[values[found.places[came]] == least[owners[found.places[came]]]]
        if (found.old[came] < 0).any() or not len(best):
            return prefix_lookup(self.trace, keys, signed=True, step=staged)
        rest = np.flatnonzero(others)
        whole = prefix_lookup(self.trace, keys[:, rest], signed=True, step=staged)
        return PrefixRows(
            np.concatenate((owners[found.places], rest[whole.places])),
            np.concatenate((np.stack((values[found.places], found.rows[0])), whole.rows), axis=1),
            np.concatenate((found.old, whole.old)),
            np.concatenate((found.new, whole.new)),
        )


def bests(
    places: Int64Array, values: Int64Array, iterations: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """What changes of the least value of each place, as (place, value, iteration) and weights.

    Args:
        places: Ascending.
        values: What comes at a place.
        iterations: And when.

    >>> rows, weights = bests(np.array([0, 0, 0]), np.array([4, 5, 9]), np.array([3, 3, 1]))
    >>> rows.T.tolist(), weights.tolist()
    ([[0, 9, 1], [0, 4, 3], [0, 9, 3]], [1, 1, -1])
    """
    order = np.lexsort((values, iterations, places))
    places, values, iterations = places[order], values[order], iterations[order]
    ranks = np.unique(values, return_inverse=True)[1].reshape(-1)
    # Ranks of later places are all less than those of earlier ones, so the minimum begins anew.
    least = np.minimum.accumulate(ranks - places * len(ranks))
    better = np.flatnonzero(changes_of(least))
    places, values, iterations = places[better], values[better], iterations[better]
    after = np.flatnonzero(~changes_of(places))
    came = np.stack((places, values, iterations))
    went = np.stack((places[after], values[after - 1], iterations[after]))
    weights = np.repeat([1, -1], [len(better), len(after)])
    return np.concatenate((came, went), axis=1), weights
