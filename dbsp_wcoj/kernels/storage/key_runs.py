"""Build a run from rows that are packed into keys (`dbsp_wcoj.storage.row_keys`), part by part.

A run of many rows is built without arrays of all rows: each call of `append_keys` appends sorted
rows to the levels of the trie. The sections of the run are as large as they may become, so there
may be unused words between them.
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
def append_keys(run, state, keys, weights, lowest, shifts, masks, first_rows, first):
    """Append rows, which follow all rows so far, to a run.

    Args:
        run: int64; the header has the start of each section, and the numbers of nodes and rows.
        state: int64, `STATE_WORDS` words.
        keys: int64, strictly ascending.
        weights: int64, one per key, positive; all 1 if the run has no section for their sums.
        lowest: int64, the lowest value of each column.
        shifts: int64, the position of the lowest bit of each column in a key.
        masks: int64, a mask of as many bits as each column has.
        first_rows: int64, shape ``(arity, m)``. Of the rows that differ only in the last column,
            the first one is written here.
        first: The number of rows there so far.

    Returns:
        The number of rows in ``first_rows``.
    """
    arity = run[ARITY]
    row = run[ROWS]
    sums = run[WEIGHT_SUMS]
    last = state[LAST_KEY]
    total = state[TOTAL]
    largest = run[MAX_ABS_WEIGHT]
    for i in range(keys.shape[0]):
        key = keys[i]
        level = 0
        if row > 0:
            change = key ^ last
            while (change >> shifts[level]) == 0:
                level += 1
        if level < arity - 1 or row == 0:
            for k in range(arity):
                first_rows[k, first] = ((key >> shifts[k]) & masks[k]) + lowest[k]
            first += 1
        for k in range(level, arity):
            header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * k
            node = run[header + LEVEL_NODES]
            run[run[header + LEVEL_VALUES] + node] = ((key >> shifts[k]) & masks[k]) + lowest[k]
            if k < arity - 1:
                child = run[header + LEVEL_HEADER_WORDS + LEVEL_NODES]
                run[run[header + LEVEL_OFFSETS] + node] = child
            run[header + LEVEL_NODES] = node + 1
        if sums > 0:
            run[sums + row] = total
            total += weights[i]
            largest = max(largest, weights[i])
        last = key
        row += 1
    run[ROWS] = row
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
