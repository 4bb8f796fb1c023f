"""Find the nearest row before or after a given row, among the rows with the same prefix.

The prefix is all columns but the last one. The runs of an arrangement are read together: a row
exists if the sum of its weights in all runs is not zero.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.memory import borrow, load_value
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.row_ranges import weight_before
from dbsp_wcoj.kernels.storage.run_layout import LEVEL_HEADER_WORDS, LEVEL_HEADERS
from dbsp_wcoj.kernels.storage.search import find_children, seek
from dbsp_wcoj.kernels.values.arithmetic import wrapping_subtract


@kernel
def find_nearest(runs, keys, arity, backwards, inclusive, values, exists):
    """Find for each row the nearest row with the same prefix whose total weight is not zero.

    Args:
        runs: Addresses of runs of one column order, shape ``(runs,)``.
        keys: Rows, shape ``(arity, n)``.
        arity: Columns of the runs; all but the last one are the prefix.
        backwards: True to find the greatest value below that of the key, False for the least above.
        inclusive: True to accept a row with the same value as the key.
        values: Result, shape ``(n,)``: the last column of the nearest row; 0 if there is none.
        exists: Result, shape ``(n,)``: True if there is such a row.

    Returns:
        The number of leaves that were read.
    """
    n = keys.shape[1]
    prefixes = borrow(keys)[: arity - 1]
    count = runs.shape[0]
    entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * (arity - 1)
    # For each run: the next leaf to read, and the leaf at which its rows of the prefix end.
    cursors = np.empty(count, np.int64)
    limits = np.empty(count, np.int64)
    leaves_read = 0
    for i in range(n):
        target = keys[arity - 1, i]
        for r in range(count):
            run = runs[r]
            first, last = find_children(run, prefixes, i)
            if first >= last:
                cursors[r] = 0
                limits[r] = 0
                continue
            leaves = values_of(run, entry)
            # Most keys are after the last value of their prefix, so this is tested first.
            is_after_last = load_value(leaves, last - 1) < target
            position = last if is_after_last else seek(leaves, first, last, target)
            # The target itself is read if inclusive. Backwards, reading starts before the position.
            if (
                inclusive == backwards
                and position < last
                and load_value(leaves, position) == target
            ):
                position += 1
            cursors[r] = position - 1 if backwards else position
            limits[r] = first - 1 if backwards else last
        exists[i] = False
        values[i] = 0
        while True:
            best = np.int64(0)
            has_best = False
            for r in range(count):
                if cursors[r] == limits[r]:
                    continue
                run = runs[r]
                leaves = values_of(run, entry)
                value = load_value(leaves, cursors[r])
                if not has_best or (value > best if backwards else value < best):
                    best = value
                    has_best = True
            if not has_best:
                break
            weight = np.int64(0)
            for r in range(count):
                if cursors[r] == limits[r]:
                    continue
                run = runs[r]
                leaves = values_of(run, entry)
                leaf = cursors[r]
                if load_value(leaves, leaf) == best:
                    run_weight = wrapping_subtract(
                        weight_before(run, leaf + 1), weight_before(run, leaf)
                    )
                    weight += run_weight
                    cursors[r] += -1 if backwards else 1
                    leaves_read += 1
            if weight != 0:
                exists[i] = True
                values[i] = best
                break
    return leaves_read
