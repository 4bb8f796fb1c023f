"""Split iterations: group rows by iteration, and add 1 to it: the next iteration reads them.

The last column of a row is its iteration. One array receives the rows of all iterations. Those of
an iteration are one slice of it, in which they are an array as those of any Z-set.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel


@kernel
def split_and_delay(rows, weights, order):
    """Return the rows of each iteration, with 1 added to the iteration.

    Args:
        rows: int64, shape ``(columns, n)``; the last column is the iteration, below ``2**63 - 1``.
        weights: int64, shape ``(n,)``.
        order: int64, the positions of the rows, by ascending iteration.

    Returns:
        ``(ends, blocks, ordered_weights)``: the number of rows up to and including each iteration;
        the rows of each iteration, as the array of shape ``(columns, size)`` that begins at
        ``columns`` times the previous end; and the weights, in the given order.
    """
    columns, count = rows.shape
    ends = np.empty(count, np.int64)
    blocks = np.empty(columns * count, np.int64)
    ordered_weights = np.empty(count, np.int64)
    iterations = 0
    for k in range(count):
        if k == 0 or rows[columns - 1, order[k]] != rows[columns - 1, order[k - 1]]:
            iterations += 1
        ends[iterations - 1] = k + 1
        ordered_weights[k] = weights[order[k]]
    begin = 0
    for iteration in range(iterations):
        end = ends[iteration]
        place = columns * begin
        for column in range(columns):
            delay = 1 if column == columns - 1 else 0
            for k in range(begin, end):
                blocks[place] = rows[column, order[k]] + delay
                place += 1
        begin = end
    return ends[:iterations], blocks, ordered_weights
