"""First derivations: recursive distinct over rows that arrive for the first time, in bulk.

In the first step of a recursion nothing is deleted, and the iterations come in ascending order. So
a row is new exactly if no earlier iteration has derived it, and no history needs to be read::

    new_i   = {x : Z[x, i] > 0} - known         known := known + new_i
    state   = Σ_i Z[., i]                       sorted once, at the end of the step

`FirstDerivations` replaces the lookups of `RecursiveSetOperator` while this holds. Rows are packed
into keys (`dbsp_wcoj.storage.row_keys`), so until the end of the step a derivation takes 4 bytes,
or 8 if a key has more than 32 bits, and up to 8 for a weight if not all are 1. The state is the
same as that of the operator, so later steps can delete any row. Its run is built from the keys, a
range of them at a time (`dbsp_wcoj.storage.key_runs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.key_runs import KeyRunBuilder
from dbsp_wcoj.storage.row_keys import KeyLayout, RowKeySet
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["FirstDerivations", "first_positions_of_rows"]

# With less than this per iteration, the derivations of a row in all iterations fit in int64.
MAX_WEIGHT: Final = 1 << 31
# Derivations are sorted in ranges of about this many rows.
SORTED_ROWS: Final = 1 << 15
# At most about this many slices of iterations are sorted in all ranges.
MAX_SLICES: Final = 1 << 16
# Keys of at most this many bits are stored as uint32.
NARROW_KEY_BITS: Final = 32


class _Batch(NamedTuple):
    """The derivations of one iteration: ascending keys, and weights, None if all are 1."""

    iteration: int
    keys: npt.NDArray[Any]
    weights: npt.NDArray[Any] | None

    @staticmethod
    def of(iteration: int, keys: Int64Array, weights: Int64Array, key_bits: int) -> _Batch:
        """Store keys and weights in the narrowest types."""
        largest = int(weights.max())
        return _Batch(
            iteration,
            _narrow_keys(keys, key_bits),
            None if largest == 1 else weights.astype(np.min_scalar_type(largest)),
        )

    def part(self, rows: slice) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
        """Return some keys and their weights."""
        return self.keys[rows], None if self.weights is None else self.weights[rows]


class FirstDerivations:
    """The derivations of a step so far, for a recursive distinct whose trace is empty.

    Attributes:
        trace: The trace of the operator. It does not change.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._layout: KeyLayout | None = None
        self._known = RowKeySet(0)
        self._batches: list[_Batch] = []
        # The results of `_build`, until more derivations are added.
        self._built: tuple[TraceStep, ZSet] | None = None

    def accepts(self, delta: ZSet) -> bool:
        """Return whether `add` may be called with this delta.

        The delta must consist of insertions at one iteration, later than all before it, of rows
        that fit in a key. Once a delta is not accepted, the caller stages `total` instead.
        """
        iterations = delta.row_array[-1]
        iteration = int(iterations[0])
        if self._batches and iteration <= self._batches[-1].iteration:
            return False
        weights = delta.weight_array
        if weights.min() < 1 or weights.max() > MAX_WEIGHT or (iterations != iteration).any():
            return False
        return self._fit_layout(delta.row_array[:-1])

    def add(self, delta: ZSet) -> ZSet:
        """Add derivations; return the rows that no earlier iteration has derived."""
        layout = self._layout
        assert layout is not None
        rows, weights = delta.row_array, delta.weight_array
        keys = layout.encode(rows[:-1])
        is_new = self._known.add_absent(keys)
        self._batches.append(_Batch.of(int(rows[-1, 0]), keys, weights, layout.total_bits))
        self._built = None
        if not is_new.all():
            rows = rows.take(np.flatnonzero(is_new), axis=1)
        return ZSet(rows, np.ones(rows.shape[1], np.int64))

    def total(self) -> TraceStep | None:
        """Return all derivations as a staged step of the trace; None if there are none."""
        return self._build()[0] if self._batches else None

    def first_rows(self) -> ZSet:
        """Return the output so far: each row with the iteration of its first derivation."""
        rows = self.rows_fed_back()
        first = rows.row_array.copy()
        first[-1] -= 1
        return ZSet(first, rows.weight_array)

    def rows_fed_back(self) -> ZSet:
        """Return the output so far, each row with the iteration that reads it: the next one."""
        return self._build()[1] if self._batches else ZSet.empty(self.trace.arity)

    def _build(self) -> tuple[TraceStep, ZSet]:
        """Return the results of `total` and `rows_fed_back`."""
        if self._built is None:
            self._built = self._sort()
        return self._built

    def _sort(self) -> tuple[TraceStep, ZSet]:
        layout = self._layout
        assert layout is not None
        # No two derivations have the same row and iteration, so nothing is added up.
        builder = KeyRunBuilder(
            layout,
            rows=sum([len(batch.keys) for batch in self._batches]),
            keys=len(self._known),
            has_weights=any(batch.weights is not None for batch in self._batches),
            last_column_offset=1,
        )
        iterations = [batch.iteration for batch in self._batches]
        for slices in self._key_ranges():
            parts = [batch.part(rows) for batch, rows in zip(self._batches, slices, strict=True)]
            builder.append([keys for keys, _ in parts], iterations, [w for _, w in parts])
        order = tuple(range(self.trace.arity))
        step = self.trace.check_step(TraceStep(self.trace, None, {order: builder.finish()}))
        return step, ZSet(builder.first_rows, np.ones(len(self._known), np.int64))

    def _key_ranges(self) -> Iterator[list[slice]]:
        """Yield the slices of the derivations of each iteration, for ascending ranges of keys.

        A sort of a range of about `SORTED_ROWS` derivations stays in the cache.
        """
        size = sum([len(batch.keys) for batch in self._batches])
        largest = max([batch.keys for batch in self._batches], key=len)
        parts = min(size // SORTED_ROWS, MAX_SLICES // len(self._batches)) + 1
        pivots = largest[np.linspace(0, len(largest), parts + 1).astype(np.int64)[1:-1]]
        bounds = np.empty((len(self._batches), parts + 1), np.int64)
        for position, batch in enumerate(self._batches):
            bounds[position, 0], bounds[position, -1] = 0, len(batch.keys)
            bounds[position, 1:-1] = np.searchsorted(batch.keys, pivots)
        for part in range(parts):
            yield [slice(*ends) for ends in bounds[:, part : part + 2].tolist()]

    def _fit_layout(self, rows: Int64Array) -> bool:
        """Change the layout if rows do not fit; return False if no layout fits all rows."""
        old = self._layout
        if old is not None and old.fits(rows):
            return True
        new = KeyLayout.covering(rows, old)
        if new is None:
            return False
        if old is None:
            self._known = RowKeySet(new.total_bits)
        else:
            self._known = self._known.translated(old, new)
            batches = []
            for batch in self._batches:
                keys = new.encode(old.decode(batch.keys.astype(np.int64)))
                keys = _narrow_keys(keys, new.total_bits)
                batches.append(_Batch(batch.iteration, keys, batch.weights))
            self._batches = batches
        self._layout = new
        return True


def _narrow_keys(keys: Int64Array, key_bits: int) -> npt.NDArray[Any]:
    return keys.astype(np.uint32) if key_bits <= NARROW_KEY_BITS else keys


def first_positions_of_rows(rows: Int64Array) -> Int64Array:
    """Return the positions at which sorted rows change, including the first position.

    Rows without columns are all equal.

    >>> first_positions_of_rows(np.array([[1, 1, 1, 2], [5, 5, 6, 6]])).tolist()
    [0, 2, 3]
    """
    if rows.shape[1] == 1 or not len(rows):
        return np.zeros(1, np.int64)
    changes = rows[0, 1:] != rows[0, :-1]
    for column in rows[1:]:
        changes |= column[1:] != column[:-1]
    return np.concatenate(([0], np.flatnonzero(changes) + 1))
