"""An arena: one buffer for the runs of many small steps, so that a step of one row reserves none.

A run keeps the buffer that it lies in, so an arena lives as long as its last run. Runs of a few
rows are soon merged into one of their own (`dbsp_wcoj.spine`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj.kernels.few import runs_of_few
from dbsp_wcoj.kernels.sort import FEW
from dbsp_wcoj.kernels.trie import run_words
from dbsp_wcoj.run import Run
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["FEW", "Arena"]

ARENA_WORDS: Final = 1 << 13

ColumnOrder = tuple[int, ...]


class Arena:
    """Room for the runs of small deltas of one relation, in all of its column orders."""

    __slots__ = ("_address", "_free", "_orders", "_permutations", "_room")

    def __init__(self, orders: tuple[ColumnOrder, ...]) -> None:
        """Room for nothing yet.

        Args:
            orders: At least one permutation of the columns.
        """
        self._orders = orders
        self._permutations: Int64Array = np.array(orders, np.int64)
        self._room: Int64Array = np.empty(0, np.int64)
        self._address = 0
        self._free = 0

    def runs_of(self, delta: ZSet) -> dict[ColumnOrder, Run]:
        """The run of a non-empty Z-set of at most `FEW` rows in each order.

        Complexity:
            O(rows²) with the smallest of factors.
        """
        rows = len(delta._weights)
        stride = run_words(len(delta._rows), rows)
        start = self._free
        end = start + stride * len(self._orders)
        if end > len(self._room):
            # Zeros, because words of a header that mean nothing are 0: runs go to files.
            self._room = np.zeros(max(ARENA_WORDS, end - start), np.int64)
            self._address = self._room.__array_interface__["data"][0]
            start, end = 0, end - start
        room = self._room
        largest = runs_of_few(delta._rows, delta._weights, self._permutations, room, start, stride)
        self._free = end
        runs = {}
        for order in self._orders:
            words = room[start : start + stride]
            runs[order] = Run(words, self._address + 8 * start, rows, largest)
            start += stride
        return runs
