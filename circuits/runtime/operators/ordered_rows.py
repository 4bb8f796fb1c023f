"""Ordered rows: the rows of groups in order, and the first rows before and after a step.

One trace (key columns, ordered columns) holds the rows. A second trace, the front, holds the first
row of positive weight of each group. The front does not affect results, but it saves work. If the
first rows of a group are deleted again and again, as in a sliding window, the deleted rows stay in
the trace's runs until a merge, up to an eighth of all rows. A read starts at the front and so skips
them. The front is maintained from the first deletion on, for the groups that have changed since
then. Other groups are read from their start.

::

    front(Z)    = {(key, first row of positive weight): 1}
    front^Δ(d)  = the new first rows, which a step reads anyway, minus the stored first rows

Cost: O(log N) per changed group and run, and O(runs) per row read.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup
from dbsp_wcoj.storage.trace import Staged
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["OrderedRows", "first_positions"]

_MIN_INT64: Final = -(2**63)


class OrderedRows:
    """Rows of groups, ordered within each group.

    Args:
        keys: The number of key columns, which identify the group.
        arity: The number of columns. The columns after the keys determine the order.
        limit: Rows are read until their weights add up to this number; None for all rows.
        decided: Rows equal to the last one in this many columns are read, too; None for no more.

    >>> least = OrderedRows(1, 2, limit=1)
    >>> found, steps = least.prepare(ZSet.from_rows([(7, 3), (7, 5)]), np.array([[7]]))
    >>> found.rows.tolist(), found.old.tolist(), found.new.tolist()
    ([[3]], [0], [1])
    """

    def __init__(
        self, keys: int, arity: int, *, limit: int | None, decided: int | None = None
    ) -> None:
        self.rows = Trace(arity)
        self.front = Trace(arity)
        self._keys = keys
        self._limit = limit
        self._decided = decided

    @property
    def traces(self) -> tuple[Trace, ...]:
        """All state."""
        return self.rows, self.front

    def prepare(self, delta: ZSet, groups: Int64Array) -> tuple[PrefixRows, list[Staged]]:
        """The first rows of some groups without and with a delta, and the staged changes.

        Args:
            delta: The change of the rows; it has rows of these groups only.
            groups: Keys, sorted, shape ``(keys, n)``.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        staged: list[Staged] = []
        step = None
        if len(delta):
            step = self.rows.prepare(delta)
            staged.append(step)
        known = None
        if not self.front.is_empty or (delta.weight_array < 0).any():
            known = prefix_lookup(self.front, groups, limit=1)
        found = prefix_lookup(
            self.rows,
            groups,
            limit=self._limit,
            decided=self._decided,
            step=step,
            starts=None if known is None else self._starts(known, groups.shape[1]),
        )
        if known is not None:
            front_delta = self._front_delta(known, found, groups)
            if len(front_delta):
                staged.append(self.front.prepare(front_delta))
        return found, staged

    def _starts(self, known: PrefixRows, groups: int) -> Int64Array:
        """The row from which to read each group: the stored first row, else the least row."""
        starts = np.full((self.rows.arity - self._keys, groups), _MIN_INT64)
        starts[:, known.places] = known.rows
        return starts

    def _front_delta(self, known: PrefixRows, found: PrefixRows, groups: Int64Array) -> ZSet:
        """The new first rows minus the stored first rows."""
        present = np.flatnonzero(found.new)
        present = present[first_positions(found.places[present])]
        places = np.concatenate((known.places, found.places[present]))
        rows = np.concatenate((known.rows, found.rows[:, present]), axis=1)
        weights = np.repeat([-1, 1], [len(known.places), len(present)])
        return consolidated_rows(np.concatenate((groups[:, places], rows)), weights)


def first_positions(places: Int64Array) -> Int64Array:
    """The positions at which ascending ``places`` change, including the first position.

    >>> first_positions(np.array([0, 0, 2, 5, 5])).tolist()
    [0, 2, 3]
    """
    if not len(places):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
