"""Sum of sorted runs, a slice at a time: the weights of equal rows are added.

A row whose weights add up to 0 is not in the sum. A slice is a range of rows in the order of the
runs. Each slice ends as follows: take the next `rows_per_run` rows of each run; the slice ends with
the smallest of the last rows of these. So a slice contains at most `rows_per_run` rows of each run,
and equal rows of different runs are in the same slice::

    run 1    (1, 5) (1, 6) | (4, 5) ...      rows_per_run = 2: the candidates are (1, 6) and (2, 3),
    run 2    (1, 6)        | (2, 3) (4, 5)   and the slice ends with (1, 6)

Cost: the rows of each slice are sorted, O(rows log(rows of a slice)) in all, and each slice
searches its end in each run. The memory is that of one slice, up to `rows_per_run` rows per run.
Alternative considered: merging the runs. Their sum may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import ZSet, consolidated_rows

__all__ = ["sum_slices"]


def sum_slices(runs: Sequence[Run], rows_per_run: int) -> Iterator[tuple[ZSet, int]]:
    """Yield the sum of runs, a slice at a time.

    Args:
        runs: Runs of the same column order. They must not change until the last slice.
        rows_per_run: The maximum number of rows of each run in a slice, at least 1.

    Yields:
        For each slice: its rows, consolidated, with the columns in the order of the runs; and the
        number of rows of the runs that they are the sum of. A slice may have no rows.

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
        parts = []
        for index, run in open_runs:
            end = run.count_up_to(last)
            parts.append(run.read_rows(starts[index], end))
            starts[index] = end
        columns = np.concatenate([columns for columns, _ in parts], axis=1)
        weights = np.concatenate([weights for _, weights in parts])
        yield consolidated_rows(columns, weights), len(weights)
