"""A run: one immutable sorted piece of a trace, a weighted trie in a single int64 buffer.

The buffer's layout is in `dbsp_wcoj.kernels.layout`. Kernels get a run by its address, so a `Run`
keeps its buffer alive for as long as it may be read. Memory per row of a binary relation with
weights of 1: 8 bytes for the leaf, and for each distinct first column 16 bytes plus at most 16 of
directory. Merging is `Merge`: two runs become one, a bounded piece at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from dbsp_wcoj.kernels import layout
from dbsp_wcoj.kernels.merge import merge_open, merge_runs, merge_tail, merge_work
from dbsp_wcoj.kernels.trie import read_run, run_of, run_words
from dbsp_wcoj.zset import Int64Array, ZSet, sort_scratch

__all__ = ["WHOLE", "Merge", "Ranges", "Run", "value_ranges"]

UNBOUNDED: Final = 2**62

# Disjoint inclusive ranges of the values of one variable.
Ranges = Sequence[tuple[int, int]]
WHOLE: Final[Ranges] = ((-(2**63), 2**63 - 1),)


class Run:
    """A weighted trie over one column order; never changed after it is built."""

    __slots__ = ("address", "buffer", "max_abs_weight", "rows")

    def __init__(self, buffer: Int64Array, address: int, rows: int, max_abs_weight: int) -> None:
        """Take a finished buffer and what its header says."""
        self.buffer = buffer
        self.address = address
        self.rows = rows
        self.max_abs_weight = max_abs_weight

    @staticmethod
    def of(zset: ZSet, order: Int64Array) -> Run:
        """The run of a non-empty Z-set in a column order.

        Args:
            zset: At least one column and one row.
            order: A permutation of the columns.

        Complexity:
            O(n) for each byte of the columns whose order changes.
        """
        rows = zset._rows
        buffer = np.empty(run_words(len(rows), len(zset)), np.int64)
        scratch = sort_scratch(len(zset), len(rows))
        return Run(buffer, *run_of(rows, zset._weights, order, buffer, scratch))

    @staticmethod
    def merged(older: Run, newer: Run) -> Run:
        """The sum of two runs of one column order, at once; it may have no rows.

        Complexity:
            O(rows).
        """
        buffer = _room(older, newer)
        return Run(buffer, *merge_runs(older.buffer, newer.buffer, buffer))

    @staticmethod
    def merged_tail(runs: Sequence[Run], table: Int64Array, first: int) -> Run:
        """The sum of the runs from position ``first`` on, at once; it may have no rows.

        Args:
            runs: All runs of a spine.
            table: Their number and addresses.
            first: Position of the first run; at least one more follows.

        Complexity:
            O(runs * rows).
        """
        rows = sum([run.rows for run in runs[first:]])
        buffer = np.empty(run_words(int(runs[first].buffer[layout.ARITY]), rows), np.int64)
        return Run(buffer, *merge_tail(table, first, len(buffer), buffer))

    @property
    def nbytes(self) -> int:
        """Bytes in use; a buffer reserves more than it turns out to need, untouched."""
        arity = int(self.buffer[layout.ARITY])
        words = layout.LEVELS + layout.LEVEL_WORDS * arity
        for level in range(arity):
            nodes = int(self.buffer[layout.LEVELS + layout.LEVEL_WORDS * level])
            words += nodes + (nodes + 1 if level < arity - 1 else 0)
        words += int(self.buffer[layout.DIRECTORY_SIZE])
        if self.buffer[layout.WEIGHTS]:
            words += self.rows + 1
        return 8 * words

    def read(self) -> tuple[Int64Array, Int64Array]:
        """``(columns, weights)`` in the run's own column order."""
        columns, weights = read_run(self.buffer)
        return columns, weights


class Merge:
    """Two runs on their way to become one; both stay readable until it is done."""

    __slots__ = ("_out", "_state", "newer", "older")

    def __init__(self, older: Run, newer: Run) -> None:
        """Open a merge of two runs of one column order."""
        self.older = older
        self.newer = newer
        self._out = _room(older, newer)
        self._state = merge_open(older.buffer, newer.buffer, self._out)

    def work(self, fuel: int = UNBOUNDED) -> Run | None:
        """Do about ``fuel`` rows of work; return the merged run once it is complete."""
        done = merge_work(self.older.buffer, self.newer.buffer, self._out, self._state, fuel)
        if not done:
            return None
        out = self._out
        address = int(out.__array_interface__["data"][0])
        return Run(out, address, int(out[layout.ROWS]), int(out[layout.MAX_ABS_WEIGHT]))


def _room(older: Run, newer: Run) -> Int64Array:
    """A buffer that holds the merge of two runs, whatever it comes to."""
    arity = int(older.buffer[layout.ARITY])
    buffer: Int64Array = np.empty(run_words(arity, older.rows + newer.rows), np.int64)
    return buffer


def value_ranges(run: Run, parts: int) -> Ranges:
    """Cut all values into ranges that hold about the same number of the run's rows.

    Cuts fall between values of the run's first column, so one value is never divided.
    """
    buffer = run.buffer
    nodes = int(buffer[layout.LEVELS + layout.LEVEL_SIZE])
    first = int(buffer[layout.LEVELS + layout.LEVEL_VALUES])
    values = buffer[first : first + nodes]
    rows = np.arange(nodes + 1)
    for level in range(int(buffer[layout.ARITY]) - 1):
        entry = layout.LEVELS + layout.LEVEL_WORDS * level
        offsets = int(buffer[entry + layout.LEVEL_OFFSETS])
        size = int(buffer[entry + layout.LEVEL_SIZE])
        starts = buffer[offsets : offsets + size + 1]
        rows = starts if level == 0 else starts[rows]
    wanted = np.linspace(0, run.rows, parts + 1)[1:-1]
    cuts = np.unique(np.searchsorted(rows[:-1], wanted, side="left"))
    lows = [int(values[cut]) for cut in cuts if 0 < cut < nodes]
    (lowest, highest) = WHOLE[0]
    bounds = [lowest, *lows, highest + 1]
    return [(low, high - 1) for low, high in pairwise(bounds)]
