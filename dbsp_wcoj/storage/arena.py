"""An arena: one buffer for the runs of many small steps, so that a step of one row reserves none.

It holds the runs of small deltas of one relation, in all of its column orders, and the tails of the
spines that they are added to. A run keeps the buffer that it lies in, so a buffer lives as long as
its last run. Tails soon become part of larger runs (`dbsp_wcoj.storage.spine`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dbsp_wcoj.kernels.storage import arena as layout
from dbsp_wcoj.kernels.storage.arena import add_runs_of_few, runs_of_few
from dbsp_wcoj.kernels.storage.sort import FEW
from dbsp_wcoj.kernels.storage.spine import MOST_TAIL_ROWS
from dbsp_wcoj.kernels.storage.trie import run_words
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["FEW", "Arena"]

ROOM_WORDS: Final = 1 << 14

ColumnOrder = tuple[int, ...]


class Arena:
    """Room for small deltas of one relation.

    Attributes:
        address: Of the words that kernels know the arena by.
        orders: The column orders, as the kernels number them.
    """

    __slots__ = ("_room", "_room_address", "_spines", "_words", "address", "orders")

    def __init__(self, spines: Mapping[ColumnOrder, Spine]) -> None:
        """Room for nothing yet.

        Args:
            spines: At least one, by its permutation of the columns.
        """
        self.orders = tuple(spines)
        self._spines = tuple(spines.values())
        words = [0, 0, 0, len(self.orders[0]), len(self.orders)]
        for order, spine in spines.items():
            words += [spine.table_address, 0, *order]
        # The kernels get its address: the array is kept because they read it.
        self._words: Int64Array = np.array(words, np.int64)
        self.address: int = self._words.__array_interface__["data"][0]
        self._room: Int64Array = np.empty(0, np.int64)
        self._room_address = 0

    def build_runs(self, delta: ZSet) -> dict[ColumnOrder, Run]:
        """The run of a non-empty Z-set of at most `FEW` rows in each order.

        Complexity:
            O(rows²) with the smallest of factors.
        """
        rows = len(delta._weights)
        if self._free + self._step_words(rows) > len(self._room):
            self.renew(rows)
        largest = runs_of_few(self.address, delta._rows, delta._weights)
        words = run_words(len(delta._rows), rows)
        end = self._free
        start = end - words * len(self.orders)
        runs = {}
        for order in self.orders:
            buffer = self._room[start : start + words]
            runs[order] = Run(buffer, self._room_address + 8 * start, rows, largest)
            start += words
        return runs

    def add(self, runs: Mapping[ColumnOrder, Run]) -> bool:
        """Add runs of `build_runs` to their spines, if the room that they lie in has some left.

        Returns:
            Whether it is done.
        """
        words = self._words
        rows = 0
        for index, order in enumerate(self.orders):
            run = runs[order]
            rows = run.rows
            words[self._entry(index) + layout.RUN] = run.address
            if not 0 <= run.address - self._room_address < 8 * self._free:
                return False
        if self._free + self._step_words(rows) > len(self._room):
            return False
        if add_runs_of_few(self.address):
            self.settle()
        return True

    @property
    def tail_rows(self) -> int:
        """Rows of all tails that are left."""
        return sum([spine.tail_rows for spine in self._spines])

    def settle(self) -> None:
        """Settle the spines whose tails are full."""
        for spine in self._spines:
            if spine.tail_rows > MOST_TAIL_ROWS:
                spine.settle()

    def renew(self, rows: int) -> None:
        """Go on in an empty buffer, with room for at least one step of so many rows."""
        # Zeros, because words of a header that mean nothing are 0: runs go to files.
        self._room = np.zeros(max(ROOM_WORDS, self._step_words(rows)), np.int64)
        self._room_address = self._room.__array_interface__["data"][0]
        for spine in self._spines:
            spine.write_tails_to(self._room)
        words = self._words
        words[layout.ROOM] = self._room_address
        words[layout.ROOM_WORDS] = len(self._room)
        words[layout.FREE] = 0

    @property
    def _free(self) -> int:
        return int(self._words[layout.FREE])

    def _entry(self, index: int) -> int:
        return layout.FIRST_ORDER + index * (layout.COLUMNS + len(self.orders[0]))

    def _step_words(self, rows: int) -> int:
        """The most words that the runs and the tails of a step take."""
        arity = len(self.orders[0])
        tails = [run_words(arity, spine.tail_rows + rows) for spine in self._spines]
        return len(self.orders) * run_words(arity, rows) + sum(tails)
