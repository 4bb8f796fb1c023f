"""First derivations: recursive distinct over rows that arrive for the first time, in bulk.

In the first step of a recursion nothing is deleted, and the iterations come in ascending order. So
a row is new exactly if no earlier iteration has derived it, and no history needs to be read::

    new_i   = {x : Z[x, i] > 0} - known         known := known + new_i
    state   = Σ_i Z[., i]                       sorted once, at the end of the step

`FirstDerivations` replaces the lookups of `RecursiveSetOperator` while this holds. Rows are packed
into keys (`dbsp_wcoj.storage.row_keys`), so a derivation takes 16 bytes until the end of the step.
The state is the same as that of the operator, so later steps can delete any row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.row_keys import MAX_KEY_BITS, KeyLayout, RowKeySet
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["FirstDerivations", "first_positions_of_rows"]

# With less than this per iteration, the derivations of a row in all iterations fit in int64.
MAX_WEIGHT: Final = 1 << 31
# Derivations are sorted in ranges of about this many rows.
SORTED_ROWS: Final = 1 << 17
# At most about this many slices of iterations are sorted in all ranges.
MAX_SLICES: Final = 1 << 16


class FirstDerivations:
    """The derivations of a step so far, for a recursive distinct whose trace is empty.

    Attributes:
        trace: The trace of the operator. It does not change.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._layout: KeyLayout | None = None
        self._known = RowKeySet()
        # The derivations: the iteration, the keys of the rows and their weights.
        self._derivations: list[tuple[int, Int64Array, Int64Array]] = []
        self._zset: ZSet | None = None

    def accepts(self, delta: ZSet) -> bool:
        """Return whether `add` may be called with this delta.

        The delta must consist of insertions at one iteration, later than all before it, of rows
        that fit in a key. Once a delta is not accepted, the caller stages `total` instead.
        """
        iterations = delta.row_array[-1]
        iteration = int(iterations[0])
        if self._derivations and iteration <= self._derivations[-1][0]:
            return False
        weights = delta.weight_array
        if weights.min() < 1 or weights.max() > MAX_WEIGHT or (iterations != iteration).any():
            return False
        return self._fit_layout(delta.row_array[:-1])

    def add(self, delta: ZSet) -> ZSet:
        """Add derivations; return the rows that no earlier iteration has derived."""
        assert self._layout is not None
        rows = delta.row_array
        keys = self._layout.encode(rows[:-1])
        is_new = self._known.add_absent(keys)
        self._derivations.append((int(rows[-1, 0]), keys, delta.weight_array))
        self._zset = None
        if not is_new.all():
            rows = rows[:, is_new]
        return ZSet(rows, np.ones(rows.shape[1], np.int64))

    def total(self) -> TraceStep | None:
        """Return all derivations as a staged step of the trace; None if there are none."""
        if not self._derivations:
            return None
        return self.trace.prepare(self._sorted())

    def first_rows(self) -> ZSet:
        """Return the output so far: each row with the iteration of its first derivation."""
        if not self._derivations:
            return ZSet.empty(self.trace.arity)
        rows = self._sorted().row_array
        rows = rows[:, first_positions_of_rows(rows[:-1])]
        return ZSet(rows, np.ones(rows.shape[1], np.int64))

    def _sorted(self) -> ZSet:
        """Return all derivations; later calls return the same object until `add`."""
        if self._zset is None:
            self._zset = self._sort()
        return self._zset

    def _sort(self) -> ZSet:
        layout = self._layout
        assert layout is not None
        first, last = self._derivations[0][0], self._derivations[-1][0]
        bits = (last - first).bit_length()
        with_iteration = KeyLayout((*layout.lowest, first), (*layout.bits, bits))
        if with_iteration.total_bits > MAX_KEY_BITS:
            parts = [
                np.concatenate((layout.decode(keys), np.full((1, len(keys)), i)))
                for i, keys, _ in self._derivations
            ]
            weights = np.concatenate([weights for _, _, weights in self._derivations])
            return consolidated_rows(np.concatenate(parts, axis=1), weights)
        # No two derivations have the same row and iteration, so nothing is added up.
        size = sum([len(keys) for _, keys, _ in self._derivations])
        rows: Int64Array = np.empty((len(with_iteration.bits), size), np.int64)
        weights = np.empty(size, np.int64)
        begin = 0
        for slices in self._key_ranges(size):
            keys = [
                (keys[part] << bits) + (i - first)
                for (i, keys, _), part in zip(self._derivations, slices, strict=True)
            ]
            range_weights = [
                weights[part]
                for (_, _, weights), part in zip(self._derivations, slices, strict=True)
            ]
            packed = consolidated_rows(
                np.concatenate(keys)[np.newaxis], np.concatenate(range_weights)
            )
            end = begin + len(packed)
            rows[:, begin:end] = with_iteration.decode(packed.row_array[0])
            weights[begin:end] = packed.weight_array
            begin = end
        return ZSet(rows, weights)

    def _key_ranges(self, size: int) -> Iterator[list[slice]]:
        """Yield the slices of the derivations of each iteration, for ascending ranges of keys.

        A sort of a range of about `SORTED_ROWS` derivations stays in the cache.
        """
        largest = max([keys for _, keys, _ in self._derivations], key=len)
        parts = min(size // SORTED_ROWS, MAX_SLICES // len(self._derivations)) + 1
        pivots = largest[np.linspace(0, len(largest), parts + 1).astype(np.int64)[1:-1]]
        bounds = np.empty((len(self._derivations), parts + 1), np.int64)
        for position, (_, keys, _) in enumerate(self._derivations):
            bounds[position, 0], bounds[position, -1] = 0, len(keys)
            bounds[position, 1:-1] = np.searchsorted(keys, pivots)
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
        if old is not None:
            self._known.translate(old, new)
            self._derivations = [
                (i, new.encode(old.decode(keys)), weights) for i, keys, weights in self._derivations
            ]
        self._layout = new
        return True


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
