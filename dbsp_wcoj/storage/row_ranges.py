"""Row ranges: ranks of rows in a trace, and the rows around given rows.

Runs store running sums of their weights. So the weight of all rows before a key is one binary
search and one subtraction per run: a trace is an order-statistics index without further state.
``RowRanges`` reads the trace without and with the delta of a staged step in one pass.

Cost: O(log N) per key and run; O(1) per row and run that is read, and a sort of these rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage.row_ranges import read_ranges, seek_rows
from dbsp_wcoj.storage.trace import Trace, TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["KeyPositions", "RangeRows", "RowRanges"]


class KeyPositions(NamedTuple):
    """Keys in the order of a trace.

    Attributes:
        positions: The number of rows before each key, by run, shape ``(runs, keys)``.
        old: The weight of all rows before each key, without the step.
        new: The same with the step.
    """

    positions: Int64Array
    old: Int64Array
    new: Int64Array


class RangeRows(NamedTuple):
    """The rows of ranges, sorted by range and row; old and new weights, either may be 0."""

    ranges: Int64Array
    rows: Int64Array
    old: Int64Array
    new: Int64Array


class RowRanges:
    """A trace in its own column order, without and with a staged step.

    Args:
        trace: The rows.
        step: A staged step of the trace, or None.

    >>> from dbsp_wcoj import ZSet
    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(7, 3), (7, 4), (7, 9), (8, 1)], [1, 2, 1, 1]))
    >>> rows = RowRanges(trace, trace.prepare(ZSet.from_rows([(7, 3)], [-1])))
    >>> before = rows.seek(np.array([[7, 8], [9, 1]]))
    >>> before.old.tolist(), before.new.tolist()
    ([3, 4], [2, 3])
    >>> rows.read(rows.seek(np.array([[7]])), rows.seek(np.array([[7]]), after=True)).rows.tolist()
    [[7, 7, 7], [3, 4, 9]]
    """

    def __init__(self, trace: Trace, step: TraceStep | None = None) -> None:
        order = tuple(range(trace.arity))
        self._arity = trace.arity
        self._spine = trace.arrange(order).spine.runs
        self._spine_runs = len(self._spine)
        self._step = step  # keeps its run alive
        steps = [] if step is None else [step.run(order)]
        self._runs: Int64Array = np.array([run.address for run in (*self._spine, *steps)], np.int64)

    def seek(self, keys: Int64Array, *, after: bool | npt.NDArray[np.bool] = False) -> KeyPositions:
        """Return the positions of rows, or of prefixes of rows.

        Args:
            keys: The first columns of rows, shape ``(depth, n)``; depth 0 is before all rows, or
                with ``after`` behind them.
            after: True for positions behind all rows that begin with the key; one for all keys, or
                one for each.
        """
        depth, n = keys.shape
        is_after = np.array(np.broadcast_to(after, (n,)))  # a copy that kernels may write to
        if depth == 0:
            keys = np.where(is_after, np.int64(2**63 - 1), np.int64(-(2**63)))[np.newaxis]
        positions = np.empty((len(self._runs), n), np.int64)
        weights = np.empty((len(self._runs), n), np.int64)
        seek_rows(
            self._runs,
            np.ascontiguousarray(keys),
            np.ascontiguousarray(is_after),
            self._arity,
            positions,
            weights,
        )
        old = weights[: self._spine_runs].sum(axis=0)
        return KeyPositions(positions, old, weights.sum(axis=0))

    def read(self, start: KeyPositions, stop: KeyPositions) -> RangeRows:
        """Return the rows from each ``start`` to before the ``stop`` of the same index."""
        return self._read(start.positions, stop.positions)

    def neighbour(
        self,
        keys: KeyPositions,
        bound: KeyPositions,
        count: int,
        *,
        depth: int | None = None,
        after: bool = False,
    ) -> KeyPositions:
        """Return for each key the position of a row at least ``count`` rows away, towards a bound.

        Args:
            keys: The positions of keys.
            bound: Positions that are all before, or all behind, those of the keys.
            count: At least 1. Both the rows without and the rows with the step between the key and
                the result weigh at least this much, unless the result is the bound. No row may have
                a negative weight.
            depth: Return positions before the rows that are equal in this many columns; by default
                in all.
            after: Return positions behind these rows.

        Complexity:
            O(runs log N) per key; a few times that where rows have been deleted.
        """
        positions, old, new = bound.positions.copy(), bound.old.copy(), bound.new.copy()
        if not self._spine_runs:
            return KeyPositions(positions, old, new)
        # Walk along the run that has most rows between key and bound.
        distances = (keys.positions - bound.positions)[: self._spine_runs]
        longest = np.argmax(abs(distances), axis=0)
        distance = np.take_along_axis(distances, longest[np.newaxis], axis=0)[0]
        sign = np.where(distance < 0, 1, -1)
        step = count + 1
        pending = np.flatnonzero(abs(distance) > step)
        while len(pending):
            runs = longest[pending]
            target = keys.positions[runs, pending] + sign[pending] * step
            row = np.empty((self._arity, len(pending)), np.int64)
            for run in np.unique(runs):
                own = np.flatnonzero(runs == run)
                row[:, own] = self._spine[run].rows_at(target[own])
            there = self.seek(row[:depth], after=after)
            enough = (
                np.minimum(abs(there.old - keys.old[pending]), abs(there.new - keys.new[pending]))
                >= count
            )
            done = pending[enough]
            positions[:, done] = there.positions[:, enough]
            old[done], new[done] = there.old[enough], there.new[enough]
            step *= 4
            pending = pending[~enough]
            pending = pending[abs(distance[pending]) > step]
        return KeyPositions(positions, old, new)

    def _read(self, starts: Int64Array, stops: Int64Array) -> RangeRows:
        size = int(np.maximum(stops - starts, 0).sum())
        ranges, weights, runs = np.empty((3, size), np.int64)
        rows = np.empty((self._arity, size), np.int64)
        read_ranges(
            self._runs,
            np.ascontiguousarray(starts),
            np.ascontiguousarray(stops),
            ranges,
            rows,
            weights,
            runs,
        )
        order = np.lexsort((*rows[::-1], ranges))
        rows, ranges, weights, runs = rows[:, order], ranges[order], weights[order], runs[order]
        if not size:
            return RangeRows(ranges, rows, weights, weights)
        begins = np.ones(size, np.bool)
        begins[1:] = (ranges[1:] != ranges[:-1]) | np.any(rows[:, 1:] != rows[:, :-1], axis=0)
        first = np.flatnonzero(begins)
        old = np.add.reduceat(np.where(runs < self._spine_runs, weights, 0), first)
        new = np.add.reduceat(weights, first)
        kept = np.flatnonzero((old != 0) | (new != 0))
        first = first[kept]
        return RangeRows(ranges[first], rows[:, first], old[kept], new[kept])
