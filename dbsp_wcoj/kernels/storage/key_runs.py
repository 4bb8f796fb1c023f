"""Build a run from rows whose columns but the last one are packed into keys, part by part.

A run of many rows is built without arrays of all rows: each call of `append_keys` appends sorted
rows to the levels of the trie. The sections of the run are as large as they may become, so there
may be unused words between them. `dbsp_wcoj.storage.row_keys` packs the keys.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    DIRECTORY,
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    MAX_ABS_WEIGHT,
    ROWS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.trie import (
    describe_run,
    fill_directory,
    open_directory,
    share_offsets,
)

# The words of the state between two calls: the last key, and the sum of the weights.
LAST_KEY = 0
TOTAL = 1
STATE_WORDS = 2


@kernel
def sort_dense_keys(keys, weights, ends, last_values, positions, out):
    """Sort rows by their keys, which are dense; rows with equal keys stay in their order.

    Args:
        keys: int64, not negative.
        weights: int64, one per key.
        ends: int64, ascending: the end of each group of rows with one value in the last column.
        last_values: int64, the value of each group.
        positions: int64, zero, with more entries than the greatest key.
        out: int64, shape ``(3, n)``: the sorted keys, last values and weights.
    """
    for i in range(keys.shape[0]):
        positions[keys[i] + 1] += 1
    for key in range(1, positions.shape[0]):
        positions[key] += positions[key - 1]
    begin = np.int64(0)
    for group in range(ends.shape[0]):
        for i in range(begin, ends[group]):
            position = positions[keys[i]]
            positions[keys[i]] = position + 1
            out[0, position] = keys[i]
            out[1, position] = last_values[group]
            out[2, position] = weights[i]
        begin = ends[group]


@kernel
def append_keys(run, state, rows, offset, lowest, shifts, masks, first_rows, first, delay):
    """Append rows, which follow all rows so far, to a run.

    Args:
        run: int64; the header has the start of each section, and the numbers of nodes and rows.
        state: int64, `STATE_WORDS` words.
        rows: int64, shape ``(3, n)``: keys, last values and weights, sorted. The weights are
            positive, and all 1 if the run has no section for their sums.
        offset: Added to each key.
        lowest: int64, the lowest value of each column of a key.
        shifts: int64, the position of the lowest bit of each column in a key.
        masks: int64, a mask of as many bits as each column has.
        first_rows: int64, shape ``(arity, m)``. The first row of each key is written here.
        first: The number of rows there so far.
        delay: Added to the last value of first rows.

    Returns:
        The number of rows in ``first_rows``.
    """
    columns = run[ARITY] - 1
    leaves = run[LEVEL_HEADERS + LEVEL_HEADER_WORDS * columns + LEVEL_VALUES]
    row = run[ROWS]
    sums = run[WEIGHT_SUMS]
    last = state[LAST_KEY]
    total = state[TOTAL]
    largest = run[MAX_ABS_WEIGHT]
    for i in range(rows.shape[1]):
        key = rows[0, i] + offset
        if key != last or row == 0:
            level = 0
            if row > 0:
                change = key ^ last
                while (change >> shifts[level]) == 0:
                    level += 1
            last = key
            for k in range(columns):
                value = ((key >> shifts[k]) & masks[k]) + lowest[k]
                first_rows[k, first] = value
                if k >= level:
                    header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * k
                    node = run[header + LEVEL_NODES]
                    run[run[header + LEVEL_VALUES] + node] = value
                    child = row
                    if k < columns - 1:
                        child = run[header + LEVEL_HEADER_WORDS + LEVEL_NODES]
                    run[run[header + LEVEL_OFFSETS] + node] = child
                    run[header + LEVEL_NODES] = node + 1
            first_rows[columns, first] = rows[1, i] + delay
            first += 1
        run[leaves + row] = rows[1, i]
        if sums > 0:
            weight = rows[2, i]
            run[sums + row] = total
            total += weight
            largest = max(largest, weight)
        row += 1
    run[ROWS] = row
    run[LEVEL_HEADERS + LEVEL_HEADER_WORDS * columns + LEVEL_NODES] = row
    run[MAX_ABS_WEIGHT] = largest
    state[LAST_KEY] = last
    state[TOTAL] = total
    return first


@kernel
def finish_run(run, state, directory):
    """Complete a run whose rows are all appended, and describe it.

    Args:
        run: The run; at least one row.
        state: The state of `append_keys`.
        directory: Where the directory may start.
    """
    arity = run[ARITY]
    for k in range(arity - 1):
        header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * k
        end = run[header + LEVEL_OFFSETS] + run[header + LEVEL_NODES]
        run[end] = run[header + LEVEL_HEADER_WORDS + LEVEL_NODES]
    share_offsets(run)
    open_directory(run, directory)
    if run[DIRECTORY] > 0:
        fill_directory(run, np.int64(0), np.int64(1) << 62)
    run[UNIFORM_WEIGHT] = 1
    sums = run[WEIGHT_SUMS]
    if sums > 0:
        run[sums + run[ROWS]] = state[TOTAL]
        if run[MAX_ABS_WEIGHT] == 1:
            run[WEIGHT_SUMS] = 0
    return describe_run(run)
