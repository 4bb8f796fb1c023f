"""Halves of many rows in any order, to be sorted at the same time.

The rows are cut by a value of the first column, a median of some of them. Then the sorted halves
stand one after the other: nothing is merged, and the rows of equal values are in one half. It costs
one more copy of the rows. Not taken: cutting by position, whose halves would have to be merged,
which takes longer than the copy and has to be cut in its turn.

Halves of very different size are not worth it: where most rows have one first value, or where the
rows look sorted, which is found out in one pass, there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.sort import take_half

__all__ = ["Halves", "halves"]

Int64Array = npt.NDArray[np.int64]

# Fewer rows are sorted before another thread has begun.
LARGE = 1 << 18
# First values that the median is of.
SAMPLED = 1 << 10
# A half has at least one row in so many.
SMALLEST = 8


class Sorted(Protocol):
    """What sorting rows and their weights gives: a Z-set."""

    @property
    def rows(self) -> Int64Array:
        """Shape ``(arity, n)``."""

    @property
    def weights(self) -> Int64Array:
        """Shape ``(n,)``."""


Sort = Callable[[Int64Array, Int64Array], Sorted]


class Halves:
    """Rows that are cut in two; each half can be taken in a thread of its own."""

    __slots__ = ("_columns", "_pivot", "_sizes", "_weights")

    def __init__(self, columns: Sequence[Int64Array], weights: Int64Array, pivot: int) -> None:
        """Cut ``columns`` below the first value ``pivot``."""
        self._columns = columns
        self._weights = weights
        self._pivot = pivot
        below = int(np.count_nonzero(columns[0] < pivot))
        self._sizes = (below, len(columns[0]) - below)

    @property
    def smallest(self) -> int:
        """How many rows the smaller half has."""
        return min(self._sizes)

    def take(self, half: int) -> tuple[Int64Array, Int64Array]:
        """``(rows, weights)`` of half 0 or 1, shapes ``(arity, n)`` and ``(n,)``.

        Complexity:
            O(rows).
        """
        size, arity = self._sizes[half], len(self._columns)
        # A word more for what is written behind the last row.
        taken = np.empty(arity * size + 1, np.int64)
        weights = np.empty(size + 1, np.int64)
        key = self._columns[0]
        for place, column in enumerate(self._columns):
            take_half(key, column, self._pivot, half == 1, taken[place * size :])
        take_half(key, self._weights, self._pivot, half == 1, weights)
        return taken[:-1].reshape(arity, size), weights[:-1]

    def sorted(self, executor: Executor, sort: Sort) -> tuple[Int64Array, Int64Array]:
        """All rows and weights, each half sorted by ``sort``, one of them in the executor.

        Raises:
            Exception: What ``sort`` raises, when neither half is being sorted any more.
        """
        other = executor.submit(lambda: sort(*self.take(1)))
        try:
            first = sort(*self.take(0))
            second = other.result()
        finally:
            wait([other])
        return (
            np.concatenate((first.rows, second.rows), axis=1),
            np.concatenate((first.weights, second.weights)),
        )


def halves(columns: Sequence[Int64Array], weights: Int64Array) -> Halves | None:
    """The halves of rows, or None where sorting all at once is as good.

    Complexity:
        O(rows).
    """
    rows = len(weights)
    if rows < LARGE:
        return None
    columns = [np.ascontiguousarray(column) for column in columns]
    some = columns[0][:: rows // SAMPLED]
    if (some[1:] >= some[:-1]).all():
        return None
    found = Halves(columns, weights, int(np.partition(some, len(some) // 2)[len(some) // 2]))
    return found if found.smallest * SMALLEST >= rows else None
