"""Recursive min and max: per key the best value that a recursion has derived so far.

A row ``(key…, v, i)`` is a change of the weight of candidate ``v`` at iteration ``i``, as in
`circuits.runtime.operators.recursive_distinct`. The output has the least of the candidates that are
present after iteration ``i``::

    best(Z)[key, i]    = min {v : Σ over j ≤ i of Z[key, v, j] > 0}
    rmin(Z)[key, v, i] = [v = best(Z)[key, i]] - [v = best(Z)[key, i - 1]]

In a monotone recursion (`circuits.datalog.recursive_min_max`) the best value never gets worse from
one iteration to the next: a candidate is deleted only after a better one has been inserted. So the
best value after iteration ``i`` is a running minimum, the least of all candidates inserted by then.
An example stream of one key::

    delta           {(9, 1): +1, (4, 3): +1}                {(4, 3): -1, (6, 3): +1}
    output          {(9, 1): +1, (9, 3): -1, (4, 3): +1}    {(4, 3): -1, (6, 3): +1}

State: all candidates, one trace by key, value and iteration. So the next best value is known when
the best one is deleted. A step reads the candidates of the keys of its delta. Values are compared
by their codes, which have the order of the values. For a maximum the codes are complemented, which
reverses their order. NULL is not a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from circuits.runtime.operators.groups import changed_groups
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.recursive_distinct import (
    change_mask,
    first_positions_of_rows,
    presence_changes,
    running_sums,
)
from circuits.types.codecs.arrow_buffers import NULL
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["RecursiveMinMaxOperator"]

MIN_INT64: Final = -(2**63)


class RecursiveMinMaxOperator:
    """The best value per key, with a change at each iteration in which it improves.

    Args:
        arity: The number of columns, including the iteration.
        column: The position of the column of values.
        least: True for a minimum, False for a maximum.

    >>> recursive_min = RecursiveMinMaxOperator(3, 1, least=True)
    >>> recursive_min.evaluate([ZSet.from_rows([(7, 9, 1), (7, 4, 3), (7, 5, 3)])]).to_dict()
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
        return fresh.prepare_delta(zset)[0] if len(zset) else zset

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The change of the best values of the delta's keys.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        return self.prepare_delta(delta) if len(delta) else (delta, None)

    def prepare_delta(self, delta: ZSet) -> Result:
        """As `prepare`, for a delta that is not empty."""
        rows, weights = delta.row_array[self._order], delta.weight_array
        present = np.flatnonzero(rows[-2] != NULL)
        if len(present) < len(weights):
            rows, weights = rows[:, present], weights[present]
        if not self._least:
            rows[-2] = ~rows[-2]
        candidates = consolidated_rows(rows, weights.copy())
        if not len(candidates):
            return ZSet.empty(delta.arity), None
        staged = self.trace.prepare(candidates)
        keys = changed_groups(candidates, range(len(rows) - 2))
        found = self._read_histories(candidates, keys, staged)
        starts = change_mask(found.places) | change_mask(found.rows[0])
        parts = []
        for side, sign in ((found.new, 1), (found.old, -1)):
            inserted = np.flatnonzero(presence_changes(running_sums(side, starts) > 0, starts) > 0)
            best, changes = best_value_changes(found.places[inserted], *found.rows[:, inserted])
            parts.append((best, sign * changes))
        best = np.concatenate([rows for rows, _ in parts], axis=1)
        out: Int64Array = np.empty((len(rows), best.shape[1]), np.int64)
        out[self._order[:-2]] = keys[:, best[0]]
        out[self._column] = best[1] if self._least else ~best[1]
        out[-1] = best[2]
        return consolidated_rows(out, np.concatenate([w for _, w in parts])), staged

    def _read_histories(self, candidates: ZSet, keys: Int64Array, staged: TraceStep) -> PrefixRows:
        """The rows (value, iteration) of each key that can change the best value.

        If the least value was inserted before all iterations of the delta, greater values change
        nothing from then on, and the delta changes nothing before. Then only the least value and
        the delta's values below it are read. So a recursion whose values keep improving takes as
        long for its last iteration as for its first.
        """
        n = len(keys)
        rows = candidates.row_array
        first = first_positions_of_rows(rows[:n]) if n else np.zeros(1, np.int64)
        places = np.repeat(np.arange(len(first)), np.diff([*first, len(candidates)]))
        earliest = np.minimum.reduceat(rows[-1], first)
        known = prefix_lookup(self.trace, keys, limit=1)
        unaffected = known.rows[1] < earliest[known.places]
        least = np.full(len(first), MIN_INT64)
        least[known.places[unaffected]] = known.rows[0, unaffected]
        others = np.ones(len(first), np.bool_)
        others[known.places[unaffected]] = False
        below = np.flatnonzero(rows[-2] < least[places])
        best = np.flatnonzero(~others)
        owners = np.concatenate((places[below], best))
        values = np.concatenate((rows[-2, below], least[best]))
        order = np.lexsort((values, owners))
        owners, values = owners[order], values[order]
        distinct = np.flatnonzero(change_mask(owners) | change_mask(values))
        owners, values = owners[distinct], values[distinct]
        prefixes = np.concatenate((keys[:, owners], values[np.newaxis]))
        found = prefix_lookup(self.trace, prefixes, signed=True, step=staged)
        # A value that was deleted before its insertion has no iteration at which it becomes best.
        first_rows = np.flatnonzero(found.old)
        first_rows = first_rows[change_mask(found.places[first_rows])]
        is_least = values[found.places[first_rows]] == least[owners[found.places[first_rows]]]
        first_rows = first_rows[is_least]
        if (found.old[first_rows] < 0).any() or not len(best):
            return prefix_lookup(self.trace, keys, signed=True, step=staged)
        rest = np.flatnonzero(others)
        whole = prefix_lookup(self.trace, keys[:, rest], signed=True, step=staged)
        return PrefixRows(
            np.concatenate((owners[found.places], rest[whole.places])),
            np.concatenate((np.stack((values[found.places], found.rows[0])), whole.rows), axis=1),
            np.concatenate((found.old, whole.old)),
            np.concatenate((found.new, whole.new)),
        )


def best_value_changes(
    places: Int64Array, values: Int64Array, iterations: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """The changes of the least value of each place, as (place, value, iteration) and weights.

    Args:
        places: The places of the candidates, ascending.
        values: The values of the candidates.
        iterations: The iterations at which the candidates are inserted.

    >>> values, iterations = np.array([4, 5, 9]), np.array([3, 3, 1])
    >>> rows, weights = best_value_changes(np.array([0, 0, 0]), values, iterations)
    >>> rows.T.tolist(), weights.tolist()
    ([[0, 9, 1], [0, 4, 3], [0, 9, 3]], [1, 1, -1])
    """
    order = np.lexsort((values, iterations, places))
    places, values, iterations = places[order], values[order], iterations[order]
    ranks = np.unique(values, return_inverse=True)[1].reshape(-1)
    # The ranks of each place are less than all ranks of earlier places, so the minimum restarts.
    least = np.minimum.accumulate(ranks - places * len(ranks))
    better = np.flatnonzero(change_mask(least))
    places, values, iterations = places[better], values[better], iterations[better]
    after = np.flatnonzero(~change_mask(places))
    inserted = np.stack((places, values, iterations))
    deleted = np.stack((places[after], values[after - 1], iterations[after]))
    weights = np.repeat([1, -1], [len(better), len(after)])
    return np.concatenate((inserted, deleted), axis=1), weights
