"""Row ranges: find the rank of a row in a trace, and read the rows between two positions.

The rank of a row is the weight of all rows before it. Runs store running sums of their weights, so
a rank costs one binary search and one subtraction per run, and needs no further state.
``RowRanges`` returns ranks and rows both without and with the delta of a staged step, in one pass.

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
    """The positions of keys among the rows of a trace.

    Attributes:
        positions: The number of rows before each key, by run, shape ``(runs, keys)``.
        old: The weight of all rows before each key, without the step.
        new: The same with the step.
    """

    positions: Int64Array
    old: Int64Array
    new: Int64Array

    def take(self, index: Int64Array) -> KeyPositions:
        """Return the positions of some of the keys."""
        return KeyPositions(self.positions[:, index], self.old[index], self.new[index])


class RangeRows(NamedTuple):
    """The rows of ranges, sorted by range and then by row.

    Attributes:
        ranges: The index of the range of each row, shape ``(n,)``.
        rows: The columns, shape ``(arity, n)``.
        old: The weight of each row without the step; may be 0.
        new: The weight of each row with the step; may be 0.
    """

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
        # The runs of the trace, and the addresses of these runs and of the run of the step.
        self._trace_runs = trace.arrange(order).spine.runs
        self._step = step  # keeps its run alive
        runs = [*self._trace_runs, *([] if step is None else [step.run(order)])]
        self._addresses: Int64Array = np.array([run.address for run in runs], np.int64)

    def seek(self, keys: Int64Array, *, after: bool | npt.NDArray[np.bool] = False) -> KeyPositions:
        """Return the positions of rows, or of prefixes of rows.

        Args:
            keys: The first columns of rows, shape ``(depth, n)``; depth 0 is before all rows, or
                with ``after`` after all rows.
            after: True for the positions after all rows that begin with the key, False for those
                before them; one truth value for all keys, or one for each.
        """
        depth, n = keys.shape
        is_after = np.array(np.broadcast_to(after, (n,)))  # a copy that kernels may write to
        if depth == 0:
            keys = np.where(is_after, np.int64(2**63 - 1), np.int64(-(2**63)))[np.newaxis]
        positions = np.empty((len(self._addresses), n), np.int64)
        weights = np.empty((len(self._addresses), n), np.int64)
        seek_rows(
            self._addresses,
            np.ascontiguousarray(keys),
            np.ascontiguousarray(is_after),
            self._arity,
            positions,
            weights,
        )
        old = weights[: len(self._trace_runs)].sum(axis=0)
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
        """Find for each key a position that is at least ``count`` rows away, towards a bound.

        The result is approximate: it may be further away than ``count`` rows, but never beyond the
        bound. So the rows between the key and the result contain the ``count`` nearest ones.

        Args:
            keys: The positions of keys.
            bound: A position for each key; all are before the keys, or all are after them.
            count: At least 1. The rows between the key and the result weigh at least this much,
                both without and with the step, unless the result is the bound. No row may have a
                negative weight.
            depth: The number of columns of a result; by default all. A result is the position
                before the rows that begin with these columns.
            after: True for the position after these rows instead.

        Complexity:
            O(runs log N) per key; a few times more where rows have been deleted.
        """
        positions, old, new = bound.positions.copy(), bound.old.copy(), bound.new.copy()
        if not self._trace_runs:
            return KeyPositions(positions, old, new)
        # For each key, walk along the run that has most rows between the key and its bound.
        distances = (keys.positions - bound.positions)[: len(self._trace_runs)]
        longest_run = np.argmax(abs(distances), axis=0)
        distance = np.take_along_axis(distances, longest_run[np.newaxis], axis=0)[0]
        direction = np.where(distance < 0, 1, -1)
        jump = count + 1
        pending = np.flatnonzero(abs(distance) > jump)
        while len(pending):
            runs = longest_run[pending]
            targets = keys.positions[runs, pending] + direction[pending] * jump
            rows = np.empty((self._arity, len(pending)), np.int64)
            for run in np.unique(runs):
                in_run = np.flatnonzero(runs == run)
                rows[:, in_run] = self._trace_runs[run].rows_at(targets[in_run])
            candidates = self.seek(rows[:depth], after=after)
            is_far_enough = (
                np.minimum(
                    abs(candidates.old - keys.old[pending]), abs(candidates.new - keys.new[pending])
                )
                >= count
            )
            finished = pending[is_far_enough]
            positions[:, finished] = candidates.positions[:, is_far_enough]
            old[finished], new[finished] = (
                candidates.old[is_far_enough],
                candidates.new[is_far_enough],
            )
            jump *= 4
            pending = pending[~is_far_enough]
            pending = pending[abs(distance[pending]) > jump]
        return KeyPositions(positions, old, new)

    def _read(self, starts: Int64Array, stops: Int64Array) -> RangeRows:
        size = int(np.maximum(stops - starts, 0).sum())
        ranges, weights, runs = np.empty((3, size), np.int64)
        rows = np.empty((self._arity, size), np.int64)
        read_ranges(
            self._addresses,
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
        # Equal rows of several runs are neighbours: add up the weights of each group of them.
        is_first = np.ones(size, np.bool)
        is_first[1:] = (ranges[1:] != ranges[:-1]) | np.any(rows[:, 1:] != rows[:, :-1], axis=0)
        first_rows = np.flatnonzero(is_first)
        old_parts = np.where(runs < len(self._trace_runs), weights, 0)
        old_weights = np.add.reduceat(old_parts, first_rows)
        new_weights = np.add.reduceat(weights, first_rows)
        nonzero = np.flatnonzero((old_weights != 0) | (new_weights != 0))
        first_rows = first_rows[nonzero]
        return RangeRows(
            ranges[first_rows], rows[:, first_rows], old_weights[nonzero], new_weights[nonzero]
        )
