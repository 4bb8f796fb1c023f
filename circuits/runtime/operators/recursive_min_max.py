"""Recursive min and max: per key the best value that a recursion has derived, at each iteration.

In a nested circuit, the last column of a row is the iteration: a row ``(key…, v, i)`` is a change
of the weight of the value ``v``, a candidate for the minimum, at iteration ``i``
(`circuits.runtime.operators.recursive_distinct`). The output has the least of the candidates that
are present after iteration ``i``::

    best(Z)[key, i]    = min {v : Σ over j ≤ i of Z[key, v, j] > 0}
    rmin(Z)[key, v, i] = [v = best(Z)[key, i]] - [v = best(Z)[key, i - 1]]

In a monotone recursion (`circuits.datalog.recursive_min_max`) the best value never gets worse from
one iteration to the next: a candidate is deleted only after a better one has been inserted. So the
best value after iteration ``i`` is a running minimum, the least of all candidates inserted by then.
An example stream of one key, as {(value, iteration): weight}::

    delta           {(9, 1): +1, (4, 3): +1}                {(4, 3): -1, (6, 3): +1}
    output          {(9, 1): +1, (9, 3): -1, (4, 3): +1}    {(4, 3): -1, (6, 3): +1}

State: all candidates, in one trace with the columns (key, value, iteration). So when the best value
is deleted, the next best one is in the state. A step reads the candidates of the keys of its delta.
Values are compared by their codes, which have the order of the values. For a maximum the codes are
complemented, which reverses their order. NULL is the worst candidate, or ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from circuits.runtime.operators.aggregates.groups import changed_groups
from circuits.runtime.operators.first_derivations import first_positions_of_rows
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.recursive_distinct import (
    change_mask,
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
    """Outputs the best value per key, with a change at each iteration in which it improves.

    Args:
        arity: The number of columns, including the iteration.
        column: The position of the column of values.
        least: True for a minimum, False for a maximum.
        keeps_null: True if NULL is the worst candidate, False if it is ignored.

    >>> recursive_min = RecursiveMinMaxOperator(3, 1, least=True)
    >>> recursive_min.evaluate([ZSet.from_rows([(7, 9, 1), (7, 4, 3), (7, 5, 3)])]).to_dict()
    {(7, 4, 3): 1, (7, 9, 1): 1, (7, 9, 3): -1}
    """

    def __init__(self, arity: int, column: int, *, least: bool, keeps_null: bool = False) -> None:
        self.trace = Trace(arity)
        self.traces = (self.trace,)
        self._column = column
        self._least = least
        self._keeps_null = keeps_null
        keys = [key for key in range(arity - 1) if key != column]
        self._order = [*keys, column, arity - 1]

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Compute the best values of a Z-set, iteration by iteration."""
        (zset,) = inputs
        operator = RecursiveMinMaxOperator(
            zset.arity, self._column, least=self._least, keeps_null=self._keeps_null
        )
        return operator.prepare_delta(zset)[0] if len(zset) else zset

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the best values of the keys in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        return self.prepare_delta(delta) if len(delta) else (delta, None)

    def prepare_delta(self, delta: ZSet) -> Result:
        """As `prepare`, for a delta that is not empty."""
        rows, weights = delta.row_array[self._order], delta.weight_array
        if not self._keeps_null:
            present = np.flatnonzero(rows[-2] != NULL)
            if len(present) < len(weights):
                rows, weights = rows[:, present], weights[present]
        rows[-2] = self._ascending(rows[-2])
        candidates = consolidated_rows(rows, weights.copy())
        if not len(candidates):
            return ZSet.empty(delta.arity), None
        staged = self.trace.prepare(candidates)
        keys = changed_groups(candidates, range(len(rows) - 2))
        histories = self._read_histories(candidates, keys, staged)
        key_indices, history_rows = histories.prefix_index, histories.rows
        is_start = change_mask(key_indices) | change_mask(history_rows[0])
        best_parts = []
        weight_parts = []
        for weights, sign in ((histories.new, 1), (histories.old, -1)):
            is_present = running_sums(weights, is_start) > 0
            inserted = np.flatnonzero(presence_changes(is_present, is_start) > 0)
            changes, change_weights = best_value_changes(
                key_indices[inserted], *history_rows[:, inserted]
            )
            best_parts.append(changes)
            weight_parts.append(sign * change_weights)
        best = np.concatenate(best_parts, axis=1)
        out: Int64Array = np.empty((len(rows), best.shape[1]), np.int64)
        out[self._order[:-2]] = keys[:, best[0]]
        out[self._column] = self._from_ascending(best[1])
        out[-1] = best[2]
        return consolidated_rows(out, np.concatenate(weight_parts)), staged

    def _ascending(self, codes: Int64Array) -> Int64Array:
        """Return numbers that ascend from the best value to the worst; NULL is the worst."""
        if not self._least:
            return ~codes
        return codes - 1 if self._keeps_null else codes  # NULL, the least code, wraps around

    def _from_ascending(self, numbers: Int64Array) -> Int64Array:
        if not self._least:
            return ~numbers
        return numbers + 1 if self._keeps_null else numbers

    def _read_histories(self, candidates: ZSet, keys: Int64Array, staged: TraceStep) -> PrefixRows:
        """Return the rows (value, iteration) of each key that can change the best value.

        A key is *settled* if its least value was inserted at an earlier iteration than all rows of
        its delta. So when the delta starts to change the key, greater values play no role any more.
        Of a settled key only the least value and the delta's smaller values are read. In a
        recursion whose values keep improving, the last iteration therefore takes as long as the
        first. Of other keys, all values are read.
        """
        key_columns = len(keys)
        rows = candidates.row_array
        first = (
            first_positions_of_rows(rows[:key_columns]) if key_columns else np.zeros(1, np.int64)
        )
        key_count = len(first)
        key_indices = np.repeat(np.arange(key_count), np.diff([*first, len(candidates)]))
        earliest = np.minimum.reduceat(rows[-1], first)  # the first iteration of each key's delta
        least_rows = prefix_lookup(self.trace, keys, limit=1)  # (value, iteration)
        is_settled = least_rows.rows[1] < earliest[least_rows.prefix_index]
        settled_keys = least_rows.prefix_index[is_settled]
        least = np.full(key_count, MIN_INT64)
        least[settled_keys] = least_rows.rows[0, is_settled]
        smaller = np.flatnonzero(rows[-2] < least[key_indices])
        # For settled keys: the values to read, and the index of the key of each.
        value_keys = np.concatenate((key_indices[smaller], settled_keys))
        values = np.concatenate((rows[-2, smaller], least[settled_keys]))
        order = np.lexsort((values, value_keys))
        value_keys, values = value_keys[order], values[order]
        distinct = np.flatnonzero(change_mask(value_keys) | change_mask(values))
        value_keys, values = value_keys[distinct], values[distinct]
        prefixes = np.concatenate((keys[:, value_keys], values[np.newaxis]))
        settled = prefix_lookup(self.trace, prefixes, signed=True, step=staged)
        # The history of each least value must begin with an insertion. If one begins with a
        # deletion, at an earlier iteration than its insertion, read all values of all keys.
        old_rows = np.flatnonzero(settled.old)
        first_rows = old_rows[change_mask(settled.prefix_index[old_rows])]
        is_least = (
            values[settled.prefix_index[first_rows]]
            == least[value_keys[settled.prefix_index[first_rows]]]
        )
        first_rows = first_rows[is_least]
        if (settled.old[first_rows] < 0).any() or not len(settled_keys):
            return prefix_lookup(self.trace, keys, signed=True, step=staged)
        other_keys = np.delete(np.arange(key_count), settled_keys)
        others = prefix_lookup(self.trace, keys[:, other_keys], signed=True, step=staged)
        settled_rows = np.stack((values[settled.prefix_index], settled.rows[0]))
        return PrefixRows(
            np.concatenate((value_keys[settled.prefix_index], other_keys[others.prefix_index])),
            np.concatenate((settled_rows, others.rows), axis=1),
            np.concatenate((settled.old, others.old)),
            np.concatenate((settled.new, others.new)),
        )


def best_value_changes(
    key_indices: Int64Array, values: Int64Array, iterations: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the changes of the least value of each key, as (key, value, iteration) and weights.

    Args:
        key_indices: The key of each candidate, ascending.
        values: The values of the candidates.
        iterations: The iterations at which the candidates are inserted.

    >>> values, iterations = np.array([4, 5, 9]), np.array([3, 3, 1])
    >>> rows, weights = best_value_changes(np.array([0, 0, 0]), values, iterations)
    >>> rows.T.tolist(), weights.tolist()
    ([[0, 9, 1], [0, 4, 3], [0, 9, 3]], [1, 1, -1])
    """
    order = np.lexsort((values, iterations, key_indices))
    key_indices, values, iterations = key_indices[order], values[order], iterations[order]
    ranks = np.unique(values, return_inverse=True)[1].reshape(-1)
    # Shifted by its key, each rank is less than all ranks of earlier keys, so that the running
    # minimum restarts at each key.
    least = np.minimum.accumulate(ranks - key_indices * len(ranks))
    improved = np.flatnonzero(change_mask(least))
    key_indices, values, iterations = key_indices[improved], values[improved], iterations[improved]
    replaced = np.flatnonzero(~change_mask(key_indices))
    inserted = np.stack((key_indices, values, iterations))
    deleted = np.stack((key_indices[replaced], values[replaced - 1], iterations[replaced]))
    weights = np.repeat([1, -1], [len(improved), len(replaced)])
    return np.concatenate((inserted, deleted), axis=1), weights
