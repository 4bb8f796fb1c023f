"""Recursive min and max: per key the best value that a recursion has derived, at each iteration.

In a nested circuit, the last column of a row is the iteration: a row ``(key…, v, i)`` is a change
of the weight of the value ``v``, a candidate for the minimum, at iteration ``i``
(`circuits.runtime.operators.recursive_distinct`). The best value after iteration ``i`` is a running
minimum, the least of all candidates that have been inserted by then. The operator has two outputs:
the improvements, which are fed back, and the final best values, which are the result::

    best(Z)[key, i]        = min {v : Σ over j ≤ k of Z[key, v, j] > 0 for a k ≤ i}
    improved(Z)[key, v, i] = [v = best(Z)[key, i]] [v ≠ best(Z)[key, i - 1]]
    rmin(Z)[key, v]        = [v = best(Z)[key, ∞]]

An improvement is never taken back at a later iteration. In a monotone recursion
(`circuits.datalog.recursive_min_max`) this is not necessary: whatever is derived from a worse value
is either derived from the best value, too, or a worse candidate itself. Deleting the value that an
improvement replaces would double the candidates. An example stream of one key, as
{(value, iteration): weight} and, for the result, {value: weight}::

    delta           {(9, 1): +1, (4, 3): +1}    {(4, 3): -1, (6, 3): +1}
    improvements    {(9, 1): +1, (4, 3): +1}    {(4, 3): -1, (6, 3): +1}
    result          {4: +1}                     {4: -1, 6: +1}

State: all candidates, in one trace with the columns (key, value, iteration). So when the best value
is deleted, the next best one is in the state. A step reads the candidates of the keys of its delta,
best value first, until it has found one that is present at the first changed iteration before the
step, and one, perhaps another, after it: at later iterations the key has these or better ones.
Values are compared by their codes, which have the order of the values
(`circuits.runtime.operators.first_candidates.CandidateOrder`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from circuits.runtime.operators.aggregates.groups import changed_groups
from circuits.runtime.operators.first_candidates import CandidateOrder
from circuits.runtime.operators.first_derivations import first_positions_of_rows
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.recursive_distinct import history_overflow
from circuits.types.codecs.codec import Codec
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.kernels.values.running_best import change_improvements
from dbsp_wcoj.row_parts import RowPart
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup
from dbsp_wcoj.storage.trace import Staged, TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["BestChanges", "RecursiveMinMaxOperator"]


class BestChanges(NamedTuple):
    """The result of a step of a recursive min or max.

    Attributes:
        improvements: The change of the improvements.
        best: The change of the final best values; the rows have no iteration.
        staged: The change of the state.
    """

    improvements: ZSet
    best: ZSet
    staged: Staged | None


class RecursiveMinMaxOperator:
    """Outputs the values that improve the best value of their key, with their iterations.

    A step also adds the change of the final best values to `StepContext.best_changes`.

    Attributes:
        order: The form of the rows of the trace.
        coded_columns: The columns of the trace whose codes come from a dictionary.

    Args:
        arity: The number of columns, including the iteration.
        column: The position of the column of values.
        least: True for a minimum, False for a maximum.
        keeps_null: True if NULL is the worst candidate, False if it is ignored.
        key_codecs: By position, the codecs of the other columns whose codes need a dictionary.

    >>> recursive_min = RecursiveMinMaxOperator(3, 1, least=True)
    >>> recursive_min.evaluate([ZSet.from_rows([(7, 9, 1), (7, 4, 3), (7, 5, 3)])]).to_dict()
    {(7, 4, 3): 1, (7, 9, 1): 1}
    """

    def __init__(
        self,
        arity: int,
        column: int,
        *,
        least: bool,
        keeps_null: bool = False,
        key_codecs: Mapping[int, Codec] | None = None,
    ) -> None:
        self.trace = Trace(arity)
        self.traces = (self.trace,)
        self.order = CandidateOrder(arity, column, least=least, keeps_null=keeps_null)
        self.coded_columns = (self.order.by_position(key_codecs or {}),)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Compute the improvements of a Z-set, iteration by iteration."""
        (zset,) = inputs
        if not len(zset):
            return zset
        return self._change_of(zset, Trace(zset.arity)).improvements

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the improvements of the keys in the delta.

        Raises:
            WeightOverflowError: The total weight of a row, or the sum of the weights of a value up
                to an iteration, would leave int64.
        """
        (delta,) = deltas
        if not len(delta):
            return delta, None
        change = self.prepare_delta(delta)
        context.best_changes.setdefault(self.trace, []).append(change.best)
        return change.improvements, change.staged

    def prepare_delta(self, delta: ZSet) -> BestChanges:
        """Compute all changes for a delta that is not empty."""
        return self._change_of(delta, self.trace)

    def _change_of(self, delta: ZSet, trace: Trace) -> BestChanges:
        part = self.order.candidates(RowPart([*delta.row_array], delta.weight_array))
        if part is None:
            return BestChanges(ZSet.empty(delta.arity), ZSet.empty(delta.arity - 1), None)
        if self.order.keeps_order:  # at most rows are left out
            candidates = ZSet(np.stack(part.columns), part.weights)
        else:
            candidates = consolidated_rows(np.stack(part.columns), part.weights.copy())
        staged = trace.prepare(candidates)
        keys = changed_groups(candidates, range(delta.arity - 2))
        histories = _read_histories(trace, candidates, keys, staged)
        size = len(histories.prefix_index)
        positions, weights = np.empty((2, size), np.int64)
        best_positions, best_weights = np.empty((2, 2 * size), np.int64)
        count, best_count, is_overflow = change_improvements(
            *map(np.ascontiguousarray, histories), positions, weights, best_positions, best_weights
        )
        if is_overflow:
            raise history_overflow()
        improved, best = positions[:count], best_positions[:best_count]
        key_rows = keys[:, histories.prefix_index[improved]]
        best_key_rows = keys[:, histories.prefix_index[best]]
        return BestChanges(
            self._rows(key_rows, histories.rows[:, improved], weights[:count]),
            self._rows(best_key_rows, histories.rows[:1, best], best_weights[:best_count]),
            staged,
        )

    def _rows(self, keys: Int64Array, values: Int64Array, weights: Int64Array) -> ZSet:
        """Return candidates as rows, given their keys and the columns after them."""
        candidates = np.concatenate((keys, values))
        return consolidated_rows(self.order.rows(candidates), weights.copy())


def _read_histories(
    trace: Trace, candidates: ZSet, keys: Int64Array, staged: TraceStep
) -> PrefixRows:
    """Return the rows (value, iteration) of each key that can change the best value.

    Nothing changes before the first iteration of a key's delta. From this iteration on, no value is
    the best one that is greater than those that the key has at it, before the step or after it. So
    the rows are read in ascending order up to the greater one of these two values. In a recursion
    whose values keep improving, the last iteration therefore takes as long as the first.
    """
    key_columns = len(keys)
    rows = candidates.row_array
    first = first_positions_of_rows(rows[:key_columns]) if key_columns else np.zeros(1, np.int64)
    earliest = np.minimum.reduceat(rows[-1], first)  # the first iteration of each key's delta
    return prefix_lookup(trace, keys, signed=True, step=staged, times=earliest)
