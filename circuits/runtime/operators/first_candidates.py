"""First candidates: recursive min and max over rows that arrive for the first time, in bulk.

In the first step of a recursion nothing is deleted, and the iterations come in ascending order. So
the best value of a key so far is enough to find the improvements, and no history needs to be read::

    best_i[key]           = min {v : Z[key, v, j] > 0 for a j ≤ i}
    improved[key, v, i]   = [v = best_i[key]] [v ≠ best_{i-1}[key]]

`FirstCandidates` replaces the lookups of `RecursiveMinMaxOperator` while this holds. The state is
the same as that of the operator, so later steps can delete any candidate; it is built at the end of
the step (`circuits.runtime.operators.derivation_batches`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from circuits.runtime.operators.derivation_batches import DerivationBatches
from circuits.types.codecs.arrow_buffers import NULL
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.kernels.storage.sort import sort_half
from dbsp_wcoj.storage.least_values import LeastValues
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["CandidateOrder", "FirstCandidates"]

NO_WEIGHTS: Final = np.empty(0, np.int64)


class CandidateOrder:
    """The form in which candidates are stored: (key…, rank, iteration).

    The rank of a value is a number that ascends from the best value to the worst. For a minimum it
    is the code of the value. For a maximum the code is complemented, which reverses the order. NULL
    is the worst candidate or dropped.

    Args:
        arity: The number of columns, including the iteration.
        column: The position of the column of values.
        least: True for a minimum, False for a maximum.
        keeps_null: True if NULL is the worst candidate, False if it is dropped.
    """

    def __init__(self, arity: int, column: int, *, least: bool, keeps_null: bool) -> None:
        keys = [key for key in range(arity - 1) if key != column]
        self._column = column
        self._least = least
        self._keeps_null = keeps_null
        self._order = [*keys, column, arity - 1]
        self._is_identity = self._order == [*range(arity)]

    def candidates(self, rows: ZSet) -> tuple[Int64Array, Int64Array]:
        """Return candidates and their weights; these are the given arrays if they do not differ.

        The results are in the order of the rows, which may not be that of the candidates.
        """
        candidates, weights = rows.row_array, rows.weight_array
        if not self._is_identity:
            candidates = candidates[self._order]
        if not self._keeps_null and (candidates[-2] == NULL).any():
            present = np.flatnonzero(candidates[-2] != NULL)
            candidates, weights = candidates[:, present], weights[present]
        if not self._least or self._keeps_null:
            if candidates is rows.row_array:
                candidates = candidates.copy()
            if self._least:
                candidates[-2] -= 1  # NULL, the least code, wraps around
            else:
                np.invert(candidates[-2], out=candidates[-2])
        return candidates, weights

    def rows(self, candidates: Int64Array) -> Int64Array:
        """Return the rows of candidates, with their iterations or without, in the same order."""
        keys, values = self._order[:-2], candidates[len(self._order) - 2]
        rows = np.empty_like(candidates)
        rows[keys] = candidates[: len(keys)]
        if not self._least:
            values = ~values
        elif self._keeps_null:
            values = values + 1
        rows[self._column] = values
        rows[len(self._order) - 1 :] = candidates[len(self._order) - 1 :]
        return rows


class FirstCandidates:
    """The candidates of a step so far, for a recursive min or max whose trace is empty.

    Attributes:
        trace: The trace of the operator. It does not change.

    Args:
        trace: The trace of the operator.
        order: The form of its rows.
    """

    def __init__(self, trace: Trace, order: CandidateOrder) -> None:
        self.trace = trace
        self._order = order
        self._batches = DerivationBatches(trace)
        self._least = LeastValues(0)
        # For each iteration: the keys of the values that it has improved.
        self._improved: list[tuple[int, Int64Array]] = []
        # The delta that was accepted last, and its candidates.
        self._accepted: tuple[ZSet, Int64Array, Int64Array] | None = None

    def accepts(self, delta: ZSet) -> bool:
        """Return whether `add` may be called with this delta.

        The delta must consist of insertions at one iteration, later than all before it, of rows
        that fit in a key. Once a delta is not accepted, the caller stages `total` instead.
        """
        candidates, weights = self._order.candidates(delta)
        if len(weights):
            if not self._batches.is_next(candidates[-1], weights):
                return False
            layouts = self._batches.fit_layout(candidates[:-1])
            if layouts is None:
                return False
            self._translate(*layouts)
        self._accepted = delta, candidates, weights
        return True

    def add(self, delta: ZSet) -> ZSet:
        """Add the candidates of the delta accepted last; return those that improve their key."""
        assert self._accepted is not None and self._accepted[0] is delta
        _, candidates, weights = self._accepted
        self._accepted = None
        if not len(weights):
            return ZSet.empty(self.trace.arity)
        iteration = int(candidates[-1, 0])
        layout = self._batches.layout
        keys = layout.encode(candidates[:-1])
        if candidates is not delta.row_array:
            keys, weights = _sort_keys(keys, weights, layout.total_bits)
        improved = keys[self._least.lower(keys)]
        self._batches.append(iteration, keys, weights)
        self._improved.append((iteration, improved))
        return self._rows(improved, iteration)

    def total(self) -> TraceStep | None:
        """Return all candidates as a staged step of the trace; None if there are none."""
        return self._batches.build()[0] if self._batches else None

    def first_rows(self) -> ZSet:
        """Return the output so far: all improvements."""
        return self._all_improvements(0)

    def rows_fed_back(self) -> ZSet:
        """Return the improvements, each with the iteration that reads it: the next one."""
        return self._all_improvements(1)

    def best_rows(self) -> ZSet:
        """Return the best value of each key so far, without an iteration."""
        if not self._batches:
            return ZSet.empty(self.trace.arity - 1)
        rows = self._order.rows(self._batches.layout.decode(self._least.keys()))
        return consolidated_rows(rows, np.ones(rows.shape[1], np.int64))

    def _translate(self, old: KeyLayout, new: KeyLayout) -> None:
        if not self._batches:
            self._least = LeastValues(new.bits[-1])
        elif old != new:
            self._least = self._least.translated(old, new)
            self._improved = [(i, new.encode(old.decode(keys))) for i, keys in self._improved]

    def _all_improvements(self, offset: int) -> ZSet:
        """Return all improvements, with this number added to each iteration."""
        if not self._batches:
            return ZSet.empty(self.trace.arity)
        keys = np.concatenate([keys for _, keys in self._improved])
        iterations = np.repeat(
            [iteration + offset for iteration, _ in self._improved],
            [len(keys) for _, keys in self._improved],
        )
        return self._rows(keys, iterations)

    def _rows(self, keys: Int64Array, iterations: Int64Array | int) -> ZSet:
        candidates = np.empty((self.trace.arity, len(keys)), np.int64)
        candidates[:-1] = self._batches.layout.decode(keys)
        candidates[-1] = iterations
        return consolidated_rows(self._order.rows(candidates), np.ones(len(keys), np.int64))


def _sort_keys(
    keys: Int64Array, weights: Int64Array, key_bits: int
) -> tuple[Int64Array, Int64Array]:
    """Sort distinct keys with their positive weights."""
    weights = weights.copy() if (weights != 1).any() else NO_WEIGHTS
    scratch = np.empty((2, len(keys)), np.int64)
    sorted_keys, sorted_weights, _ = sort_half(keys.view(np.uint64), weights, scratch, key_bits)
    if not len(sorted_weights):
        sorted_weights = np.ones(len(keys), np.int64)
    return sorted_keys.view(np.int64), sorted_weights
