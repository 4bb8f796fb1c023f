"""Derivation batches: what the iterations of a recursion's first step have derived, in bulk.

A recursive distinct, minimum or maximum stores the rows that it receives, with their iterations and
weights. In the first step its trace is empty, and its input has only insertions, of one later
iteration after the other. So nothing needs to be sorted before the end of the step: each iteration
appends a batch, and the run of the trace is built once, in ranges::

    state = Σ_i Z[., i]

Rows are packed into keys (`dbsp_wcoj.storage.row_keys`). Until the end of the step a derivation
takes 4 bytes, or 8 if a key has more than 32 bits, and up to 8 for a weight if not all are 1. The
run is built from the keys, a range of them at a time (`dbsp_wcoj.storage.key_runs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj import Trace
from dbsp_wcoj.storage.key_runs import KeyRunBuilder
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["DerivationBatches"]

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

    def translated(self, old: KeyLayout, new: KeyLayout) -> _Batch:
        """Return the batch with the keys of another layout for the same rows."""
        keys = new.encode(old.decode(self.keys.astype(np.int64)))
        return _Batch(self.iteration, _narrow_keys(keys, new.total_bits), self.weights)

    def part(self, rows: slice) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
        """Return some keys and their weights."""
        return self.keys[rows], None if self.weights is None else self.weights[rows]


class DerivationBatches:
    """The derivations of the iterations so far, of which the last column is the iteration.

    Args:
        trace: The trace of the operator, in the column order of the rows. It is empty, and does not
            change.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._layout: KeyLayout | None = None
        self._batches: list[_Batch] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def layout(self) -> KeyLayout:
        """The layout of the keys, once `fit_layout` has returned True."""
        assert self._layout is not None
        return self._layout

    def is_next(self, iterations: Int64Array, weights: Int64Array) -> bool:
        """Return whether rows are insertions at one iteration, later than all before."""
        iteration = int(iterations[0])
        if self._batches and iteration <= self._batches[-1].iteration:
            return False
        if weights.min() < 1 or weights.max() > MAX_WEIGHT:
            return False
        return not (iterations != iteration).any()

    def fit_layout(self, columns: Int64Array) -> tuple[KeyLayout, KeyLayout] | None:
        """Change the layout if rows do not fit.

        Args:
            columns: The columns of the rows, without their iteration.

        Returns:
            The layouts before and after, which may be equal. None if no layout fits all rows.
        """
        old = self._layout
        if old is not None and old.fits(columns):
            return old, old
        new = KeyLayout.covering(columns, old)
        if new is None:
            return None
        if old is not None:
            self._batches = [batch.translated(old, new) for batch in self._batches]
        self._layout = new
        return old or new, new

    def append(self, iteration: int, keys: Int64Array, weights: Int64Array) -> None:
        """Append the derivations of an iteration: keys, strictly ascending, and their weights."""
        self._batches.append(_Batch.of(iteration, keys, weights, self.layout.total_bits))

    def build(self, rows: int | None = None) -> tuple[TraceStep, Int64Array]:
        """Return all derivations as a staged step of the trace, and the first ones.

        Args:
            rows: The number of distinct rows, not counting their iterations; None if it is unknown.

        Returns:
            The step; and for each row the iteration that reads its first derivation, the one after
            it, as an array of rows; empty if ``rows`` is None.
        """
        size = sum([len(batch.keys) for batch in self._batches])
        # No two derivations have the same row and iteration, so nothing is added up.
        builder = KeyRunBuilder(
            self.layout,
            rows=size,
            keys=size if rows is None else rows,
            has_weights=any(batch.weights is not None for batch in self._batches),
            collects_first_rows=rows is not None,
            last_column_offset=1,
        )
        iterations = [batch.iteration for batch in self._batches]
        for slices in self._key_ranges(size):
            parts = [batch.part(rows) for batch, rows in zip(self._batches, slices, strict=True)]
            builder.append([keys for keys, _ in parts], iterations, [w for _, w in parts])
        order = tuple(range(self._trace.arity))
        step = TraceStep(self._trace, None, {order: builder.finish()})
        return self._trace.check_step(step), builder.first_rows

    def _key_ranges(self, size: int) -> Iterator[list[slice]]:
        """Yield the slices of the derivations of each iteration, for ascending ranges of keys.

        A sort of a range of about `SORTED_ROWS` derivations stays in the cache.
        """
        largest = max([batch.keys for batch in self._batches], key=len)
        parts = min(size // SORTED_ROWS, MAX_SLICES // len(self._batches)) + 1
        pivots = largest[np.linspace(0, len(largest), parts + 1).astype(np.int64)[1:-1]]
        bounds = np.empty((len(self._batches), parts + 1), np.int64)
        for position, batch in enumerate(self._batches):
            bounds[position, 0], bounds[position, -1] = 0, len(batch.keys)
            bounds[position, 1:-1] = np.searchsorted(batch.keys, pivots)
        for part in range(parts):
            yield [slice(*ends) for ends in bounds[:, part : part + 2].tolist()]


def _narrow_keys(keys: Int64Array, key_bits: int) -> npt.NDArray[Any]:
    return keys.astype(np.uint32) if key_bits <= NARROW_KEY_BITS else keys
