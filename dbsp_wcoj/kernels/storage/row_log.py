"""Row log: rows in the order of their arrival, column by column, that are not sorted yet.

`dbsp_wcoj.storage.deferred_trace` adds them to a trace when somebody reads it. All arguments named
``log`` are addresses of the words below.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.memory import load, store

# log[...]
LOG_ROWS = 0  # number of rows
LOG_CAPACITY = 1  # rows for which there is room
LOG_BOUND = 2  # bound on the absolute weight of a row in the sum of the trace and the log
LOG_MEMORY = 3  # address of the columns and then the weights, LOG_CAPACITY words each
LOG_WORDS = 4

MAX_LOG_BOUND = (1 << 63) - 1


@subroutine
def can_append(log, rows, largest):
    """Return whether the log has room for rows of this largest absolute weight."""
    has_room = load(log, LOG_ROWS) + rows <= load(log, LOG_CAPACITY)
    return has_room and load(log, LOG_BOUND) <= MAX_LOG_BOUND - largest


@subroutine
def append_rows(log, columns, weights, largest):
    """Append rows; the caller has checked `can_append`."""
    arity, rows = columns.shape
    end = load(log, LOG_ROWS)
    capacity = load(log, LOG_CAPACITY)
    memory = load(log, LOG_MEMORY)
    for column in range(arity):
        start = end + column * capacity
        for i in range(rows):
            store(memory, start + i, columns[column, i])
    start = end + arity * capacity
    for i in range(rows):
        store(memory, start + i, weights[i])
    store(log, LOG_ROWS, end + rows)
    store(log, LOG_BOUND, load(log, LOG_BOUND) + np.int64(largest))
