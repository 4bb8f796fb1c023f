"""First derivations: recursive distinct over rows that arrive for the first time, in bulk.

In the first step of a recursion nothing is deleted, and the iterations come in ascending order. So
a row is new exactly if no earlier iteration has derived it, and no history needs to be read::

    new_i   = {x : Z[x, i] > 0} - known         known := known + new_i

`FirstDerivations` replaces the lookups of `RecursiveSetOperator` while this holds. The state is the
same as that of the operator, so later steps can delete any row; it is built at the end of the step
(`circuits.runtime.operators.derivation_batches`).
"""

from __future__ import annotations

import numpy as np

from circuits.runtime.operators.derivation_batches import DerivationBatches, PackedRows
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.row_parts import RowParts
from dbsp_wcoj.storage.row_keys import RowKeySet
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["FirstDerivations", "first_positions_of_rows"]


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
        # The results of `_build`, until more derivations are added.
        self._built: tuple[TraceStep, ZSet] | None = None

    def accepts(self, delta: ZSet | RowParts) -> bool:
        """Return whether `add` may be called with this delta.

        The delta must consist of insertions at one iteration, later than all before it, of rows
        that fit in a key. Once a delta is not accepted, the caller stages `total` instead.
        """
        rows = delta if isinstance(delta, RowParts) else RowParts.of(delta)
        self._accepted = self._batches.pack(rows.parts, is_sorted=rows.is_sorted)
        layout = self._batches.layout
        if layout != self._layout:
            self._known = self._known.translated(self._layout, layout)
            self._layout = layout
        return self._accepted is not None

    def add(self, delta: ZSet | RowParts) -> ZSet:
        """Add the delta accepted last; return the rows that no earlier iteration has derived."""
        packed, self._accepted = self._accepted, None
        assert packed is not None
        is_new = self._known.add_absent(packed.keys)
        self._batches.append(packed)
        self._built = None
        if is_new.all() and isinstance(delta, ZSet):
            return ZSet(delta.row_array, np.ones(len(delta), np.int64))
        keys = packed.keys[is_new]
        rows = np.empty((self.trace.arity, len(keys)), np.int64)
        rows[:-1] = self._layout.decode(keys)
        rows[-1] = packed.iteration
        return ZSet(rows, np.ones(len(keys), np.int64))

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
            step, first_rows = self._batches.build(len(self._known))
            self._built = step, ZSet(first_rows, np.ones(len(self._known), np.int64))
        return self._built


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
