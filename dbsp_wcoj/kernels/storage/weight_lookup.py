"""Weight lookup: the weights of given rows in a trace, the sum of its runs.

    weight(row) = Σ over the runs of run[row]

Cost: O(log rows) per row and run.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.memory import load, load_value
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import add, wrapping_subtract


@kernel
def look_up_weights(columns, order, table):
    """Return the weight of each row, 0 if the row is absent.

    Args:
        columns: The rows, int64, shape ``(arity, n)``.
        order: Column order of the runs, shape ``(arity,)``.
        table: Number of runs, then their addresses.

    Returns:
        int64, shape ``(n,)``.
    """
    arity, rows = columns.shape
    weights = np.zeros(rows, np.int64)
    for index in range(table[0]):
        run = table[1 + index]
        for i in range(rows):
            # The nodes of a level that extend the row's earlier columns: [first, last).
            first = np.int64(0)
            last = load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES)
            for level in range(arity):
                entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
                # Offsets and sums, below, are words of the run.
                values = values_of(run, entry)
                value = columns[order[level], i]
                if level == 0:
                    first = root_seek(run, first, last, value)
                else:
                    first = seek(values, first, last, value)
                if first >= last or load_value(values, first) != value:
                    first = np.int64(-1)
                    break
                if level < arity - 1:
                    offsets = load(run, entry + run_layout.LEVEL_OFFSETS)
                    last = load(run, offsets + first + 1)
                    first = load(run, offsets + first)
            if first >= 0:
                weight = load(run, run_layout.UNIFORM_WEIGHT)
                sums = load(run, run_layout.WEIGHT_SUMS)
                if sums != 0:
                    # Running sums may wrap around; the difference of two is still exact.
                    weight = wrapping_subtract(load(run, sums + first + 1), load(run, sums + first))
                weights[i] = add(weights[i], weight)
    return weights
