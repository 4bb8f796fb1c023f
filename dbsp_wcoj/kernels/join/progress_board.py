"""Watching a running join from another thread: how often it was seen at each level.

The join keeps its level in its state (`dbsp_wcoj.kernels.join.join_layout.LEVEL`) and holds no GIL. A
sampler in Python would wait for the GIL, which the join's thread lets go of when a join begins, and
so see beginnings only; this one sleeps and looks without it. It looks some three thousand times a
second, which takes a hundredth of a processor; looking without sleep would take all of one, and
the cache line that the join writes to.
"""

import numpy as np
from numba import types

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.join.join_layout import LEVEL
from dbsp_wcoj.kernels.memory import load

# board[...]
STATE = 0  # address of the running join's state, or 0
ROW = 1  # the row of ``seen`` that is its
STOP = 2
BOARD_WORDS = 3

SAMPLE_INTERVAL_US = 250  # microseconds, to which the system adds some fifty

_sleep = types.ExternalFunction("usleep", types.int32(types.uint32))


@kernel
def watch_levels(board, seen):
    """Count in ``seen[row, level]`` until ``board[STOP]`` is set; row 0 counts that nothing ran."""
    while board[STOP] == 0:
        state = board[STATE]
        row = np.int64(0)
        level = np.int64(0)
        if state != 0:
            row = board[ROW]
            level = min(max(load(state, LEVEL), np.int64(0)), np.int64(seen.shape[1] - 1))
        seen[row, level] += 1
        _sleep(SAMPLE_INTERVAL_US)
