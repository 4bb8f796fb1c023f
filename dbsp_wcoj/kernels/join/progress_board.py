"""Progress board: samples a running join from another thread, to estimate the time of each level.

The join keeps its level in its state (`dbsp_wcoj.kernels.join.join_layout.LEVEL`) and does not hold
the GIL. A sampler in Python would wait for the GIL, which the thread of the join releases when a
join begins, and so it would see only beginnings. This sampler runs without the GIL and sleeps
between samples. It takes about three thousand samples per second, for a hundredth of a processor;
without the sleep it would occupy a whole processor and the cache line that the join writes to.
"""

import numpy as np
from numba import types

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.join.join_layout import LEVEL
from dbsp_wcoj.kernels.memory import load

# board[...]
STATE = 0  # address of the running join's state, or 0
ROW = 1  # the row of ``samples`` for that join
STOP = 2
BOARD_WORDS = 3

SAMPLE_INTERVAL_US = 250  # the system adds about 50 microseconds

_sleep = types.ExternalFunction("usleep", types.int32(types.uint32))


@kernel
def watch_levels(board, samples):
    """Count samples in ``samples[row, level]`` until ``board[STOP]`` is set.

    Args:
        board: int64, shape ``(BOARD_WORDS,)``.
        samples: int64, shape ``(rows, levels)``. Row 0 counts the samples while no join is running.
    """
    while board[STOP] == 0:
        state = board[STATE]
        row = np.int64(0)
        level = np.int64(0)
        if state != 0:
            row = board[ROW]
            level = min(max(load(state, LEVEL), np.int64(0)), np.int64(samples.shape[1] - 1))
        samples[row, level] += 1
        _sleep(SAMPLE_INTERVAL_US)
