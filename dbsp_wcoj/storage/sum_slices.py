"""Sum of runs in slices: the rows of an arrangement without those that cancel each other.

The rows of the runs are read in their order, a slice at a time, and the weights of equal rows are
added. A slice ends at the least of the rows that are `rows_per_run` further in each run, so a run
has at most this many rows in it, and all equal rows are in one slice::

    run 1    (1, 5) (1, 6) | (4, 5) ...      rows_per_run = 2: the slice ends with (1, 6)
    run 2    (1, 6)        | (2, 3) (4, 5)

Cost: O(rows log rows_per_run) in all, and the memory of one slice.
Alternative considered: merging the runs. Their sum may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import ZSet, consolidated_rows

__all__ = ["sum_slices"]


def sum_slices(runs: Sequence[Run], rows_per_run: int) -> Iterator[tuple[ZSet, int]]:
    """Yield the rows of the sum of runs of one column order, a slice at a time.

    Args:
        runs: Runs of the same column order; none may change until the last slice.
        rows_per_run: The maximum number of rows of each run in a slice, at least 1.

    Yields:
        Rows, with columns in the order of the runs, and how many rows of the runs were added up.

    >>> one, two = (Run.of(ZSet.from_rows(rows, weights), np.arange(2)) for rows, weights in
    ...     [([(1, 5), (1, 6)], [1, 1]), ([(1, 6), (2, 3)], [-1, 1])])
    >>> [rows.to_dict() for rows, _ in sum_slices([one, two], 2)]
    [{(1, 5): 1}, {(2, 3): 1}]
    """
    starts = [0] * len(runs)
    while True:
        open_runs = [(index, run) for index, run in enumerate(runs) if starts[index] < run.rows]
        if not open_runs:
            return
        last = min(
            tuple(run.rows_at(np.array([min(starts[index] + rows_per_run, run.rows) - 1]))[:, 0])
            for index, run in open_runs
        )
        pieces = []
        for index, run in open_runs:
            end = run.count_up_to(last)
            pieces.append(run.read_rows(starts[index], end))
            starts[index] = end
        columns = np.concatenate([columns for columns, _ in pieces], axis=1)
        weights = np.concatenate([weights for _, weights in pieces])
        yield consolidated_rows(columns, weights), len(weights)
