"""Ordered rows: the rows of groups in order, and which come first before and after a step.

One trace (key columns, ordered columns) holds the rows. A second one, the front, holds the first
row of positive weight of a group. It saves no answer but work: where the first rows of a group are
deleted again and again, as in a sliding window, the deleted ones stay in the trace's runs until
these are merged, up to an eighth of all rows; a read starts at the front, behind them. It is kept
from the first deletion on, for the groups that are touched since; others are read from their start.

::

    front(Z)    = {(key, first row of positive weight): 1}
    front^Δ(d)  = the new first rows, which a step reads anyway, less those that were known

Cost: O(log N) per touched group and run, and O(runs) per row read.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup
from dbsp_wcoj.storage.trace import Staged
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["OrderedRows", "first_of_each"]

_LEAST: Final = -(2**63)


class OrderedRows:
    """Rows in order below their keys.

    Args:
        keys: How many columns make the group.
        arity: How many columns there are; the rows are in the order of those after the keys.
        limit: Rows are read until their weights add up to so much; None for all.
        decided: And all that equal the last one in so many columns; None for no more.

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
        """The first rows of some groups without and with a delta, and what commits it.

        Args:
            delta: The change of the rows, of these groups only.
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
            moved = self._moved(known, found, groups)
            if len(moved):
                staged.append(self.front.prepare(moved))
        return found, staged

    def _starts(self, known: PrefixRows, groups: int) -> Int64Array:
        """Where to read groups from: what is known of the front, else the least row."""
        starts = np.full((self.rows.arity - self._keys, groups), _LEAST)
        starts[:, known.places] = known.rows
        return starts

    def _moved(self, known: PrefixRows, found: PrefixRows, groups: Int64Array) -> ZSet:
        """The new first rows less the known ones."""
        there = np.flatnonzero(found.new)
        there = there[first_of_each(found.places[there])]
        places = np.concatenate((known.places, found.places[there]))
        rows = np.concatenate((known.rows, found.rows[:, there]), axis=1)
        weights = np.repeat([-1, 1], [len(known.places), len(there)])
        return consolidated_rows(np.concatenate((groups[:, places], rows)), weights)


def first_of_each(places: Int64Array) -> Int64Array:
    """The positions at which ascending ``places`` change, the first position among them.

    >>> first_of_each(np.array([0, 0, 2, 5, 5])).tolist()
    [0, 2, 3]
    """
    if not len(places):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
