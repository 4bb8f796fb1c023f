"""Range scan: the rows of a trace that have a column in a range.

A trace stores its rows as runs, which are tries: level k has the values of column k in the run's
column order (`dbsp_wcoj.storage.run`). A run is sorted by its first column, so a range of this
column is a slice of level 0, and the rows with these values are a slice of every other level. Two
binary searches find the slice of level 0, and only the slices are read. Retention expires rows with
it: it reads the rows between the old and the new bound of a column, and no other rows.

Cost: O(runs log N) to find the slices, and O(1) for each column of each row in them. These include
rows that were deleted, until a merge of runs removes them. Alternatives considered: a queue of rows
by time beside the trace. It would be a second copy of the rows, to be stored and restored.
"""

from __future__ import annotations

import numpy as np

from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.storage.run import Int32Array, Run
from dbsp_wcoj.storage.trace import ColumnOrder, Trace
from dbsp_wcoj.zset import Int64Array, ZSet, consolidated_rows

__all__ = ["count_range", "range_scan"]


def range_scan(trace: Trace, order: ColumnOrder, low: int, high: int) -> ZSet:
    """The rows with ``low <= value <= high`` in the first column of the order.

    Args:
        trace: The trace; it is arranged in the order, unless it already is.
        order: A permutation of the columns.
        low: The least value.
        high: The greatest value.

    Returns:
        The rows, their columns in the trace's own order.

    Complexity:
        O(runs log N), and O(columns) per row of the range in any run.

    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(1, 30), (2, 10), (3, 20)]))
    >>> range_scan(trace, (1, 0), 10, 20)
    ZSet({(2, 10): 1, (3, 20): 1})
    """
    slices = [_slice(run, low, high) for run in trace.arrange(order).spine.runs]
    slices = [(columns, weights) for columns, weights in slices if len(weights)]
    if not slices or low > high:
        return ZSet.empty(trace.arity)
    columns = np.concatenate([columns for columns, _ in slices], axis=1)
    rows = np.empty_like(columns)
    rows[list(order)] = columns
    return consolidated_rows(rows, np.concatenate([weights for _, weights in slices]))


def count_range(trace: Trace, order: ColumnOrder, low: int, high: int) -> int:
    """Return the number of rows that `range_scan` reads, which include deleted rows.

    The arguments are those of `range_scan`.

    Complexity:
        O(runs log N + runs * columns).

    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(1, 30), (2, 10), (3, 20)]))
    >>> count_range(trace, (1, 0), 10, 20)
    2
    """
    if low > high:
        return 0
    count = 0
    for run in trace.arrange(order).spine.runs:
        buffer = run.buffer
        first, last = _first_level_range(buffer, low, high)
        for level in range(int(buffer[ARITY]) - 1 if first < last else 0):
            entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
            start = int(buffer[entry + LEVEL_OFFSETS])
            first, last = int(buffer[start + first]), int(buffer[start + last])
        count += max(last - first, 0)
    return count


def _slice(run: Run, low: int, high: int) -> tuple[Int64Array, Int64Array]:
    """The rows of a run in the range: columns in the run's own order, and weights.

    Args:
        run: The run.
        low: The least value of the first column.
        high: The greatest value.
    """
    buffer, arity = run.buffer, run.arity
    first, last = _first_level_range(buffer, low, high)
    if first >= last:
        return np.empty((arity, 0), np.int64), np.empty(0, np.int64)
    # By level, the values in the range, and where their children begin among those in the range.
    values: list[Int64Array | Int32Array] = []
    offsets: list[Int64Array] = []
    for level in range(arity):
        entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        values.append(run.level_values(level)[first:last])
        if level < arity - 1:
            start = int(buffer[entry + LEVEL_OFFSETS])
            child_offsets = buffer[start + first : start + last + 1]
            first, last = int(child_offsets[0]), int(child_offsets[-1])
            offsets.append(child_offsets - first)
    columns = np.empty((arity, last - first), np.int64)
    columns[-1] = values[-1]
    # From the last level up, first_rows[i] is the first row of node i of the level.
    first_rows = np.arange(last - first + 1)
    for level in range(arity - 2, -1, -1):
        first_rows = first_rows[offsets[level]]
        columns[level] = np.repeat(values[level], np.diff(first_rows))
    start = int(buffer[WEIGHT_SUMS])
    if start:
        return columns, np.diff(buffer[start + first : start + last + 1])
    return columns, np.full(last - first, buffer[UNIFORM_WEIGHT])


def _first_level_range(buffer: Int64Array, low: int, high: int) -> tuple[int, int]:
    """Return where the nodes of the first level with a value in the range begin and end."""
    nodes = int(buffer[LEVEL_HEADERS + LEVEL_NODES])
    start = int(buffer[LEVEL_HEADERS + LEVEL_VALUES])
    first_values = buffer[start : start + nodes]
    first = int(np.searchsorted(first_values, low, side="left"))
    return first, int(np.searchsorted(first_values, high, side="right"))
