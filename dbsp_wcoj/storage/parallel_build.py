"""Parallel build: write a large run in parts, at the same time.

The parts are ranges of the rows, which are sorted in the column order of the run::

    count     for each level, the nodes that begin with rows of the part
    levels    where a node of a part is in its level: after the nodes of the parts before
    index     entries of the directory, and sums of weights

Each line is a list of tasks, which workers share. The result is the same as that of one thread
(`dbsp_wcoj.kernels.storage.trie.build_run`).

Cost: as one build, except that each level is compared twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.trie import (
    count_nodes,
    open_index,
    open_levels,
    write_directory,
    write_levels,
    write_sums,
)
from dbsp_wcoj.storage.parallel_sort import split_rows
from dbsp_wcoj.workers import TASKS_PER_THREAD, current_workers, run_tasks

__all__ = ["MIN_DIVIDED_BUILD_ROWS", "build_in_parts", "sort_in_parts", "write_in_parts"]

Int64Array = npt.NDArray[np.int64]

#: The run of fewer rows is built by one thread.
MIN_DIVIDED_BUILD_ROWS: Final = 1 << 17
#: A part has about so many rows or more.
MIN_PART_ROWS: Final = 1 << 14


def sort_in_parts(
    rows: Int64Array, weights: Int64Array, order: Sequence[int]
) -> tuple[Int64Array, Int64Array] | None:
    """Sort the rows of a Z-set in another column order; None if one thread is to do it.

    Args:
        rows: Shape ``(arity, n)``, sorted and distinct.
        weights: Shape ``(n,)``.
        order: A permutation of the columns.

    Returns:
        The columns in this order, and the weights.
    """
    # The longest end of the order that is 0, 1, 2, …: the rows are sorted by these columns.
    sorted_columns = next(
        count
        for count in range(len(order), -1, -1)
        if [*order[len(order) - count :]] == [*range(count)]
    )
    parts = split_rows([rows[column] for column in order], weights, sorted_columns)
    if parts is None:
        return None
    result = parts.sort()
    assert result is not None  # the rows are distinct, so no weights are added up
    sorted_rows, sorted_weights = result
    return sorted_rows, weights if sorted_weights is None else sorted_weights


def build_in_parts(
    columns: Int64Array, weights: Int64Array, run: Int64Array
) -> tuple[int, int, int] | None:
    """Write the run of many rows; None without workers, and nothing is written.

    The arguments and the result are those of `write_in_parts`.
    """
    workers = current_workers()
    rows = columns.shape[1]
    if workers is None or rows < MIN_DIVIDED_BUILD_ROWS:
        return None
    parts = min(workers.threads * TASKS_PER_THREAD, rows // MIN_PART_ROWS)
    return write_in_parts(columns, weights, run, parts)


def write_in_parts(
    columns: Int64Array, weights: Int64Array, run: Int64Array, parts: int
) -> tuple[int, int, int]:
    """Write a run in parts, which workers share.

    Args:
        columns: Shape ``(arity, n)``, at least two columns; sorted and distinct rows.
        weights: Shape ``(n,)``, none 0.
        run: At least `dbsp_wcoj.kernels.storage.trie.run_words` long.
        parts: The number of parts, from 1 to n.

    Returns:
        The address of the run, the number of rows, and the greatest absolute weight.

    Complexity:
        O(rows * arity).
    """
    arity, rows = columns.shape
    ranges = list(pairwise([rows * part // parts for part in range(parts + 1)]))
    counts = np.zeros((parts, arity + 5), np.int64)
    run_tasks(
        [
            partial(count_nodes, columns, weights, first, end, counts[part])
            for part, (first, end) in enumerate(ranges)
        ]
    )
    nodes = counts[:, :arity].sum(axis=0)
    lowest, highest = int(counts[:, arity + 3].min()), int(counts[:, arity + 4].max())
    largest = int(counts[:, arity].max())
    position = open_levels(nodes, int(weights[0]), largest, lowest, highest, run)
    bases = np.zeros((parts, arity), np.int64)
    np.cumsum(counts[:-1, :arity], axis=0, out=bases[1:])
    run_tasks(
        [
            partial(write_levels, columns, first, end, bases[part], run)
            for part, (first, end) in enumerate(ranges)
        ]
    )
    has_sums = bool(counts[:, arity + 2].any())
    description: tuple[int, int, int] = open_index(run, position, has_sums)
    tasks = []
    if has_sums:
        totals = np.cumsum([0, *counts[:-1, arity + 1]], dtype=np.int64).tolist()  # modulo 2**64
        tasks += [
            partial(write_sums, weights, first, end, total, run)
            for (first, end), total in zip(ranges, totals, strict=True)
        ]
    if run[run_layout.DIRECTORY]:
        top = int(nodes[0])
        bounds = [top * part // parts for part in range(parts + 1)]
        tasks += [partial(write_directory, first, end, run) for first, end in pairwise(bounds)]
    run_tasks(tasks)
    return description
