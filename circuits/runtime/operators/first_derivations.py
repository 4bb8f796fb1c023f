"""First derivations: recursive distinct over rows that arrive for the first time, in bulk.

In the first step of a recursion nothing is deleted, and the iterations come in ascending order. So
a row is new exactly if no earlier iteration has derived it, and no history needs to be read::

    new_i   = {x : Z[x, i] > 0} - known         known := known + new_i

`FirstDerivations` replaces the lookups of `RecursiveSetOperator` while this holds. The state is the
same as that of the operator, so later steps can delete any row; it is built when a later step
reads it (`circuits.runtime.operators.derivation_batches`, `dbsp_wcoj.storage.deferred_rows`).

A chain product gives its rows as keys, and compares them with the known rows in the same pass.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from circuits.runtime.operators.derivation_batches import (
    MAX_WEIGHT,
    NARROW_KEY_BITS,
    DerivationBatches,
    PackedRows,
    narrow_weights,
)
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.execution.chain_product import ChainProduct
from dbsp_wcoj.execution.list_loop import (
    MAX_KEY_BITS,
    MAX_KNOWN_KEYS,
    ListIterations,
    ListLoop,
)
from dbsp_wcoj.row_parts import RowParts
from dbsp_wcoj.storage.deferred_rows import DeferredRows
from dbsp_wcoj.storage.row_keys import KeyLayout, RowKeySet
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, unit_weights

__all__ = ["FirstDerivations", "first_positions_of_rows"]

# The keys of a product are added to a bitmap if there are at most this many possible keys. The
# system assigns no memory to the pages of the bitmap without keys.
MAX_PRODUCT_KEYS: Final = 1 << 27


class FirstDerivations:
    """The derivations of a step so far, for a recursive distinct whose trace is empty.

    Attributes:
        trace: The trace of the operator. It does not change.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._batches = DerivationBatches(trace)
        self._layout = self._batches.layout
        self._known = RowKeySet(0)
        # The delta that was accepted last, as keys.
        self._accepted: PackedRows | None = None
        # The result of `add` if `offer` has added the delta already.
        self._added: ZSet | None = None
        # The lowest value and the bits of each column in `_layout`, for kernels.
        self._layout_words: Int64Array | None = None
        # The results of `_build`, until more derivations are added.
        self._built: tuple[Run, ZSet] | None = None

    def offer(self, delta: ZSet | RowParts) -> bool:
        """Accept a delta, and return whether `add` returns its new rows.

        The delta must consist of insertions at one iteration, later than all before it, of rows
        that fit in a key. Once a delta is not accepted, the caller stages `total`, and the operator
        processes this delta and all later ones by its trace.
        """
        if isinstance(delta, ZSet):
            self._added = self._add_in_one_pass(delta)
            if self._added is not None:
                return True
        rows = delta if isinstance(delta, RowParts) else RowParts.of(delta)
        self._accepted = self._batches.pack(rows.parts, is_sorted=rows.is_sorted)
        self._translate_known()
        return self._accepted is not None

    def accepts_product(self, product: ChainProduct) -> bool:
        """Return whether `add_product` may be called with this product; see `offer`.

        Besides, its columns are those of the rows, and there is a bitmap of all possible keys. If
        not, its rows can still be a delta of `offer`.
        """
        if (
            product.head != (0, 1, 2)
            or not self._batches.is_later(int(product.tag[0]))
            or not product.has_positive_weights
            or product.weight_bound > MAX_WEIGHT
            or not self._batches.fit_layout(product.extremes)
        ):
            return False
        self._translate_known()
        if self._layout.total_bits > NARROW_KEY_BITS:
            return False
        return self._known.bitmap(MAX_PRODUCT_KEYS) is not None

    def add_product(self, product: ChainProduct) -> tuple[ZSet, int]:
        """Add the rows of a product that was accepted last.

        Returns:
            The rows that no earlier iteration has derived; and the number of rows of the product.

        Raises:
            LimitError: As `ChainProduct.derive_keys`.
        """
        known = self._known.bitmap(MAX_PRODUCT_KEYS)
        assert known is not None
        keys, weights, new_keys = [], [], []
        for chunk in product.derive_keys(self._layout, known):
            keys.append(chunk.keys.copy())
            weights.append(narrow_weights(chunk.weights))
            new_keys.append(chunk.new_keys.copy())
            self._known.count_added(len(chunk.new_keys))
        if not keys:
            return ZSet.empty(3), 0
        iteration = int(product.tag[0])
        self._batches.append_chunks(iteration, keys, weights)
        self._built = None
        rows: Int64Array = np.empty((3, sum(map(len, new_keys))), np.int64)
        end = 0
        for part in new_keys:
            begin, end = end, end + len(part)
            rows[:2, begin:end] = self._layout.decode_narrow(part)
        rows[2] = iteration
        return ZSet(rows, unit_weights(rows.shape[1])), sum(map(len, keys))

    def begin_loop(self, loop: ListLoop) -> KeyLayout | None:
        """Return a layout of keys for a loop; None if the loop cannot run with one.

        Some iteration must have derived rows before.
        """
        if not self._batches or len(self._known) > MAX_KNOWN_KEYS:
            return None
        layout = self._batches.layout
        extremes = loop.extremes(layout)
        fitting = layout if layout.fits(extremes) else KeyLayout.covering(extremes, layout)
        if fitting is None or fitting.total_bits > MAX_KEY_BITS:
            return None
        self._batches.fit_layout(extremes)
        self._translate_known()
        return self._layout

    @property
    def known_keys(self) -> Int64Array:
        """The keys of the output so far, in the layout of `begin_loop`."""
        return self._known.keys

    def append_iterations(self, iteration: int, iterations: ListIterations) -> None:
        """Append the derivations of a loop, given its first iteration."""
        begin = 0
        for number, end in enumerate(iterations.ends.tolist(), iteration):
            if begin < end:
                keys, weights = iterations.log[:, begin:end]
                self._batches.append_unsorted(number, keys.copy(), weights)
            begin = end
        self._known.add_new(iterations.added)
        self._built = None

    def add(self, delta: ZSet | RowParts) -> ZSet:
        """Return the rows of the delta accepted last that no earlier iteration has derived.

        The delta is added unless `offer` has done so.
        """
        added, self._added = self._added, None
        if added is not None:
            return added
        packed, self._accepted = self._accepted, None
        assert packed is not None
        is_new = self._known.add_absent(packed.keys)
        self._batches.append(packed)
        self._built = None
        if is_new.all() and isinstance(delta, ZSet):
            return ZSet(delta.row_array, unit_weights(len(delta)))
        keys = packed.keys[is_new]
        rows = np.empty((self.trace.arity, len(keys)), np.int64)
        rows[:-1] = self._layout.decode(keys)
        rows[-1] = packed.iteration
        return ZSet(rows, unit_weights(len(keys)))

    def _add_in_one_pass(self, delta: ZSet) -> ZSet | None:
        """Add a delta if its keys are narrow and the known ones a bitmap, in one kernel call."""
        if not self._batches or self._layout.total_bits > NARROW_KEY_BITS:
            return None
        if self._layout_words is None:
            self._layout_words = np.array([self._layout.lowest, self._layout.bits], np.int64)
        keys = np.empty(len(delta), np.uint32)
        added = self._known.add_rows(
            delta,
            self._layout_words,
            keys,
            after=self._batches.last_iteration,
            max_weight=MAX_WEIGHT,
        )
        if added is None:
            return None
        rows, greatest = added
        iteration = int(delta.row_array[-1, 0])
        self._batches.append_keys(iteration, keys, delta.weight_array, greatest)
        self._built = None
        return ZSet(rows, unit_weights(rows.shape[1]))

    def total(self) -> TraceStep | None:
        """Return all derivations as a staged step of the trace; None if there are none.

        No more derivations may be added. They are sorted only when the step is read.
        """
        if not self._batches:
            return None
        rows = DeferredRows(self._batches.size, lambda: self._build()[0])
        return TraceStep(self.trace, None, deferred=rows)

    def known_rows(self) -> ZSet:
        """Return the output so far, without iterations."""
        if not self._batches:
            return ZSet.empty(self.trace.arity - 1)
        rows = self._known.rows(self._layout)
        return ZSet(rows, unit_weights(rows.shape[1]))

    def first_rows(self) -> ZSet:
        """Return the output so far: each row with the iteration of its first derivation."""
        rows = self.rows_fed_back()
        first = rows.row_array.copy()
        first[-1] -= 1
        return ZSet(first, rows.weight_array)

    def rows_fed_back(self) -> ZSet:
        """Return the output so far, each row with the iteration that reads it: the next one."""
        return self._build()[1] if self._batches else ZSet.empty(self.trace.arity)

    def deferred_rows_fed_back(self) -> DeferredRows | None:
        """Return `rows_fed_back`, computed when they are read; None if there are none."""
        return DeferredRows(len(self._known), self.rows_fed_back) if self._batches else None

    def _build(self) -> tuple[Run, ZSet]:
        """Return the rows of `total` as a run, and the result of `rows_fed_back`."""
        if self._built is None:
            run, first_rows = self._batches.build(len(self._known))
            self._built = run, ZSet(first_rows, unit_weights(len(self._known)))
        return self._built

    def _translate_known(self) -> None:
        """Translate the known keys if the layout has changed."""
        layout = self._batches.layout
        if layout != self._layout:
            self._known = self._known.translated(self._layout, layout)
            self._layout, self._layout_words = layout, None


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
