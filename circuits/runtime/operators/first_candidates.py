"""First candidates: recursive min and max over rows that arrive for the first time, in bulk.

In the first step of a recursion nothing is deleted, and the iterations come in ascending order. So
the best value of a key so far is enough to find the improvements, and no history needs to be read::

    best_i[key]           = min {v : Z[key, v, j] > 0 for a j ≤ i}
    improved[key, v, i]   = [v = best_i[key]] [v ≠ best_{i-1}[key]]

`FirstCandidates` replaces the lookups of `RecursiveMinMaxOperator` while this holds. The state is
the same as that of the operator, so later steps can delete any candidate; it is built when a later
step reads it (`circuits.runtime.operators.derivation_batches`, `dbsp_wcoj.storage.deferred_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from circuits.runtime.operators.derivation_batches import (
    DerivationBatches,
    PackedRows,
    sort_keys,
)
from circuits.types.codecs.arrow_buffers import NULL
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.row_parts import RowPart, RowParts
from dbsp_wcoj.storage.deferred_rows import DeferredRows
from dbsp_wcoj.storage.least_values import LeastValues
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["CandidateOrder", "FirstCandidates"]

T = TypeVar("T")


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

    def candidates(self, rows: RowPart) -> RowPart | None:
        """Return candidates, in the order of the rows; None if there are none.

        A column is that of the rows if it does not differ.
        """
        columns, weights = [rows.columns[k] for k in self._order], rows.weights
        if not self._keeps_null and (columns[-2] == NULL).any():
            present = np.flatnonzero(columns[-2] != NULL)
            if not len(present):
                return None
            columns = [column[present] for column in columns]
            weights = weights[present]
        if not self._least:
            columns[-2] = ~columns[-2]
        elif self._keeps_null:
            columns[-2] = columns[-2] - 1  # NULL, the least code, wraps around
        return RowPart(columns, weights)

    def by_position(self, values: Mapping[int, T]) -> dict[int, T]:
        """Return values of columns of the rows, by the positions of these columns in candidates."""
        return {self._order.index(column): value for column, value in values.items()}

    @property
    def keeps_order(self) -> bool:
        """True if the candidates of sorted rows are sorted."""
        return self._is_identity and self._least and not self._keeps_null

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
        self._layout = self._batches.layout
        self._least = LeastValues(0)
        # For each iteration: the keys of the values that it has improved.
        self._improved: list[tuple[int, Int64Array]] = []
        # The candidates of the delta that was accepted last, as keys; None if it has none.
        self._accepted: PackedRows | None = None

    def offer(self, delta: ZSet | RowParts) -> bool:
        """Keep a delta for `add`; return whether `add` may be called with it.

        The delta must consist of insertions at one iteration, later than all before it, of rows
        that fit in a key. Once a delta is not accepted, the caller stages `total` instead.
        """
        self._accepted = None
        rows = delta if isinstance(delta, RowParts) else RowParts.of(delta)
        candidates = [self._order.candidates(part) for part in rows.parts]
        parts = [part for part in candidates if part is not None]
        if not parts:
            return True
        is_sorted = rows.is_sorted and self._order.keeps_order
        self._accepted = self._batches.pack(parts, is_sorted=is_sorted)
        layout = self._batches.layout
        if layout != self._layout:
            self._least = self._least.translated(self._layout, layout)
            self._improved = [
                (iteration, layout.encode(self._layout.decode(keys)))
                for iteration, keys in self._improved
            ]
            self._layout = layout
        return self._accepted is not None

    def add(self, delta: ZSet | RowParts) -> ZSet:
        """Add the delta accepted last; return the candidates that improve their key."""
        packed, self._accepted = self._accepted, None
        if packed is None:  # all values are NULL
            return ZSet.empty(self.trace.arity)
        improved = packed.keys[self._least.lower(packed.keys)]
        self._batches.append(packed)
        self._improved.append((packed.iteration, improved))
        return self._rows(improved, packed.iteration)

    def total(self) -> TraceStep | None:
        """Return all candidates as a staged step of the trace; None if there are none.

        No more candidates may be added. They are sorted only when the step is read.
        """
        if not self._batches:
            return None
        rows = DeferredRows(self._batches.size, lambda: self._batches.build()[0])
        return TraceStep(self.trace, None, deferred=rows)

    def deferred_rows_fed_back(self) -> DeferredRows | None:
        """Return `rows_fed_back`, computed when they are read; None if there are none."""
        size = sum([len(keys) for _, keys in self._improved])
        return DeferredRows(size, self.rows_fed_back) if size else None

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
        rows = self._order.rows(self._layout.decode(self._least.keys()))
        return consolidated_rows(rows, np.ones(rows.shape[1], np.int64))

    def _all_improvements(self, offset: int) -> ZSet:
        """Return all improvements, with this number added to each iteration."""
        if not self._batches:
            return ZSet.empty(self.trace.arity)
        keys = np.concatenate([keys for _, keys in self._improved])
        # The iterations are sorted like weights. A value improves its key once, so no two keys are
        # equal, and nothing is added up. As weights they must not be 0.
        weights = np.repeat(
            [iteration + 1 for iteration, _ in self._improved],
            [len(keys) for _, keys in self._improved],
        )
        keys, weights = sort_keys(keys, weights)
        return self._rows(keys, weights + (offset - 1))

    def _rows(self, keys: Int64Array, iterations: Int64Array | int) -> ZSet:
        """Return the rows of ascending keys."""
        candidates = np.empty((self.trace.arity, len(keys)), np.int64)
        candidates[:-1] = self._layout.decode(keys)
        candidates[-1] = iterations
        weights = np.ones(len(keys), np.int64)
        if self._order.keeps_order:
            return ZSet(candidates, weights)
        return consolidated_rows(self._order.rows(candidates), weights)
