"""Build a run part by part, from rows whose columns except the last are packed into one key.

No array of all rows is needed: each call of `append_keys` appends sorted rows to the levels of the
trie. The caller reserves the maximum size of each section of the run, so there may be unused words
between sections. `dbsp_wcoj.storage.row_keys` packs the keys.
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

# The words of the state between two calls: the last key, and the sum of all weights so far.
LAST_KEY = 0
TOTAL = 1
STATE_WORDS = 2


@kernel
def sort_dense_keys(keys, weights, ends, last_values, positions, out):
    """Sort rows by their keys; a stable counting sort in O(rows + greatest key).

    Args:
        keys: int64, not negative.
        weights: int64, the weight of each row.
        ends: int64, ascending: the end of each group of rows with one value in the last column.
        last_values: int64, the value of the last column in each group.
        positions: int64, zero, at least 2 entries more than the greatest key; overwritten.
        out: int64, shape ``(3, n)``; receives the sorted keys, last values and weights.
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
def append_keys(
    run, state, rows, offset, lowest, shifts, masks, first_rows, first, last_column_offset
):
    """Append rows to a run; they follow all rows so far in the order of the run.

    Args:
        run: int64; the header has the start of each section, and the numbers of nodes and rows.
        state: int64, `STATE_WORDS` words, zero before the first call.
        rows: int64, shape ``(3, n)``: keys, last values and weights, sorted. The weights are
            positive, and all 1 if the run has no section for their sums.
        offset: Added to each key of ``rows``.
        lowest: int64, the lowest value of each column of a key.
        shifts: int64, the position of the lowest bit of each column in a key.
        masks: int64, for each column, the mask of its bits after the shift.
        first_rows: int64, shape ``(arity, m)``; receives the first row of each key, unless ``m`` is
            0.
        first: The number of keys so far.
        last_column_offset: Added to the last value of each row in ``first_rows``.

    Returns:
        The new number of keys.
    """
    columns = run[ARITY] - 1
    has_first_rows = first_rows.shape[1] > 0
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
                if has_first_rows:
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
            if has_first_rows:
                first_rows[columns, first] = rows[1, i] + last_column_offset
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
    """Complete a run after its last row is appended.

    Args:
        run: The run; at least one row.
        state: The state of `append_keys`.
        directory: The word at which the directory starts, if there are enough nodes for one.

    Returns:
        ``(address, rows, largest absolute weight)``.
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
