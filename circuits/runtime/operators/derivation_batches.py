"""Derivation batches: what the iterations of a recursion's first step have derived, in bulk.

A recursive distinct, minimum or maximum stores the rows that it receives, with their iterations and
weights. In the first step its trace is empty, and its input has only insertions, of one later
iteration after the other. So each iteration appends a batch, and the run of the trace is built once
when a later step needs it, in ranges::

    state = Σ_i Z[., i]

Rows are packed into keys (`dbsp_wcoj.storage.row_keys`), so a batch of rows in any order is sorted
as keys. Until the run is built a derivation takes 4 bytes, or 8 if a key has more than 32 bits,
and up to 8 for a weight if not all are 1. The run is built from the keys, a range of them at a time
(`dbsp_wcoj.storage.key_runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj import Trace
from dbsp_wcoj.kernels.storage.sort import OVERFLOW, sort_part
from dbsp_wcoj.row_parts import RowPart
from dbsp_wcoj.storage.key_runs import KeyRunBuilder
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import Int64Array

__all__ = ["DerivationBatches", "PackedRows", "narrow_weights", "sort_keys"]

NO_WEIGHTS: Final = np.empty(0, np.int64)
# With less than this per iteration, the derivations of a row in all iterations fit in int64.
MAX_WEIGHT: Final = 1 << 31
# Derivations are sorted in ranges of about this many rows.
SORTED_ROWS: Final = 1 << 15
# At most about this many slices of iterations are sorted in all ranges.
MAX_SLICES: Final = 1 << 16
# Keys of at most this many bits are stored as uint32.
NARROW_KEY_BITS: Final = 32


class _Batch(NamedTuple):
    """The derivations of one iteration.

    Attributes:
        iteration: The iteration.
        keys: The keys, ascending over all chunks; at least one chunk.
        weights: The weights of each chunk; None if all are 1.
        is_sorted: False if the keys, which are distinct, are in any order.
    """

    iteration: int
    keys: Sequence[npt.NDArray[Any]]
    weights: Sequence[npt.NDArray[Any]] | None
    is_sorted: bool = True

    @staticmethod
    def of(iteration: int, keys: Int64Array, weights: Int64Array, key_bits: int) -> _Batch:
        """Store keys and weights in the narrowest types."""
        narrow = None if int(weights.max()) == 1 else [narrow_weights(weights)]
        return _Batch(iteration, [_narrow_keys(keys, key_bits)], narrow)

    def translated(self, old: KeyLayout, new: KeyLayout) -> _Batch:
        """Return the batch with the keys of another layout for the same rows."""
        keys = [new.encode(old.decode(chunk.astype(np.int64))) for chunk in self.keys]
        narrow = [_narrow_keys(chunk, new.total_bits) for chunk in keys]
        return _Batch(self.iteration, narrow, self.weights, self.is_sorted)

    def joined(self) -> _Batch:
        """Return the batch with one chunk, sorted."""
        if not self.is_sorted:
            order = np.argsort(self.keys[0], kind="stable")
            sorted_weights = None if self.weights is None else [self.weights[0][order]]
            return _Batch(self.iteration, [self.keys[0][order]], sorted_weights)
        if len(self.keys) == 1:
            return self
        weights = None if self.weights is None else [np.concatenate(self.weights)]
        return _Batch(self.iteration, [np.concatenate(self.keys)], weights)

    @property
    def size(self) -> int:
        """The number of derivations."""
        return sum(map(len, self.keys))

    def part(self, rows: slice) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
        """Return some keys of a batch with one chunk, and their weights."""
        return self.keys[0][rows], None if self.weights is None else self.weights[0][rows]


class PackedRows(NamedTuple):
    """The derivations of an iteration, as keys.

    Attributes:
        iteration: The iteration.
        keys: The keys, strictly ascending.
        weights: The weight of each key, positive.
    """

    iteration: int
    keys: Int64Array
    weights: Int64Array


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
        """The layout of the keys; rows without columns at first."""
        return self._layout or KeyLayout((), ())

    def pack(self, parts: Sequence[RowPart], *, is_sorted: bool) -> PackedRows | None:
        """Pack the rows of an iteration into keys, for `append`.

        The layout may change; keys outside of this object must then be translated.

        Args:
            parts: The rows, at least one; the last column is the iteration.
            is_sorted: True if the rows of all parts are sorted and distinct.

        Returns:
            None if they are not insertions at one iteration, later than all before; or if they do
            not fit in a key, or a weight is too large.
        """
        iteration = int(parts[0].columns[-1][0])
        if not self.is_later(iteration):
            return None
        if any(weights.min() < 1 for _, weights in parts):
            return None
        if any((columns[-1] != iteration).any() for columns, _ in parts):
            return None
        extremes = np.empty((self._trace.arity - 1, 2 * len(parts)), np.int64)
        for k in range(len(extremes)):
            extremes[k, ::2] = [part.columns[k].min() for part in parts]
            extremes[k, 1::2] = [part.columns[k].max() for part in parts]
        if not self.fit_layout(extremes):
            return None
        keys = np.empty(sum([len(weights) for _, weights in parts]), np.int64)
        begin = 0
        for columns, weights in parts:
            end = begin + len(weights)
            self.layout.encode_columns(columns[:-1], keys[begin:end])
            begin = end
        if is_sorted:
            weights = parts[0].weights if len(parts) == 1 else np.concatenate([w for _, w in parts])
        else:
            are_ones = all(int(weights.max()) == 1 for _, weights in parts)
            payload = NO_WEIGHTS if are_ones else np.concatenate([w for _, w in parts])
            bits = self.layout.total_bits
            try:
                sorted_keys, weights = sort_keys(keys, payload)
            except OverflowError:
                return None
            # Narrow keys are copied by `append`. Others must not be a part of a larger array, which
            # their batch would keep.
            is_whole = len(sorted_keys) == len(keys) and np.may_share_memory(sorted_keys, keys)
            keys = sorted_keys if is_whole or bits <= NARROW_KEY_BITS else sorted_keys.copy()
            if not len(weights):
                weights = np.ones(len(keys), np.int64)
        if weights.max() > MAX_WEIGHT:
            return None
        return PackedRows(iteration, keys, weights)

    def append(self, rows: PackedRows) -> None:
        """Append the rows that `pack` has returned last."""
        bits = self.layout.total_bits
        self._batches.append(_Batch.of(rows.iteration, rows.keys, rows.weights, bits))

    def append_chunks(
        self,
        iteration: int,
        keys: Sequence[npt.NDArray[np.uint32]],
        weights: Sequence[npt.NDArray[Any]],
    ) -> None:
        """Append the derivations of an iteration, later than all before, in the present layout.

        Args:
            iteration: The iteration.
            keys: The keys, strictly ascending over all chunks, of which there is at least one.
            weights: Their weights, positive, as `narrow_weights` returns them.
        """
        are_ones = all(int(chunk.max()) == 1 for chunk in weights)
        self._batches.append(_Batch(iteration, keys, None if are_ones else weights))

    def append_keys(
        self, iteration: int, keys: npt.NDArray[np.uint32], weights: Int64Array, greatest: int
    ) -> None:
        """Append the derivations of an iteration as `append_chunks`, given the greatest weight."""
        self._batches.append(
            _Batch(iteration, [keys], [narrow_weights(weights)] if greatest > 1 else None)
        )

    def append_unsorted(
        self, iteration: int, keys: npt.NDArray[np.uint32], weights: npt.NDArray[np.uint32]
    ) -> None:
        """Append the derivations of an iteration as distinct keys in any order; at least one.

        They are sorted when the run is built.
        """
        narrow = [narrow_weights(weights)] if int(weights.max()) > 1 else None
        self._batches.append(_Batch(iteration, [keys], narrow, is_sorted=False))

    @property
    def last_iteration(self) -> int:
        """The last iteration whose derivations are known; there is one."""
        return self._batches[-1].iteration

    def is_later(self, iteration: int) -> bool:
        """Return whether an iteration is later than all whose derivations are known."""
        return not self._batches or iteration > self.last_iteration

    @property
    def size(self) -> int:
        """The number of derivations; a row counts once per iteration that derives it."""
        return sum([batch.size for batch in self._batches])

    def build(self, rows: int | None = None) -> tuple[Run, Int64Array]:
        """Return all derivations as a run, in the column order of the rows, and the first ones.

        Args:
            rows: The number of distinct rows, not counting their iterations; None if it is unknown.

        Returns:
            The run; and for each row the iteration that reads its first derivation, the one after
            it, as an array of rows; empty if ``rows`` is None.
        """
        for position, batch in enumerate(self._batches):
            self._batches[position] = batch.joined()
        size = self.size
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
        return builder.finish(), builder.first_rows

    def _key_ranges(self, size: int) -> Iterator[list[slice]]:
        """Yield the slices of the derivations of each iteration, for ascending ranges of keys.

        A sort of a range of about `SORTED_ROWS` derivations stays in the cache.
        """
        largest = max([batch.keys[0] for batch in self._batches], key=len)
        parts = min(size // SORTED_ROWS, MAX_SLICES // len(self._batches)) + 1
        pivots = largest[np.linspace(0, len(largest), parts + 1).astype(np.int64)[1:-1]]
        bounds = np.empty((len(self._batches), parts + 1), np.int64)
        for position, batch in enumerate(self._batches):
            bounds[position, 0], bounds[position, -1] = 0, batch.size
            bounds[position, 1:-1] = np.searchsorted(batch.keys[0], pivots)
        for part in range(parts):
            yield [slice(*ends) for ends in bounds[:, part : part + 2].tolist()]

    def fit_layout(self, extremes: Int64Array) -> bool:
        """Change the layout if rows do not fit; return False if no layout fits all rows.

        Args:
            extremes: Values of each column but the last, among them the lowest and the highest.
        """
        old = self._layout
        if old is not None and old.fits(extremes):
            return True
        new = KeyLayout.covering(extremes, old)
        if new is None:
            return False
        if old is not None:
            self._batches = [batch.translated(old, new) for batch in self._batches]
        self._layout = new
        return True


def sort_keys(keys: Int64Array, weights: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Sort keys that are not negative, and add the weights of equal keys.

    Args:
        keys: The keys, at least one; overwritten.
        weights: The weights, overwritten; empty if each is 1.

    Returns:
        Keys and weights; no weights if each is 1.

    Raises:
        OverflowError: The weight of a key leaves int64.
    """
    scratch = np.empty((2, len(keys)), np.int64)
    sorted_keys, weights, status = sort_part(keys.view(np.uint64), weights, scratch, 0)
    if status == OVERFLOW:
        raise OverflowError("the weights of a key add up to more than int64 holds")
    return sorted_keys.view(np.int64), weights


def narrow_weights(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of positive weights in the narrowest unsigned type.

    >>> narrow_weights(np.array([1, 300])).dtype
    dtype('uint16')
    """
    return weights.astype(np.min_scalar_type(int(weights.max())))


def _narrow_keys(keys: Int64Array, key_bits: int) -> npt.NDArray[Any]:
    return keys.astype(np.uint32) if key_bits <= NARROW_KEY_BITS else keys
