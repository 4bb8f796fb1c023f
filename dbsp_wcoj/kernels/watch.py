"""Watching a running join from another thread: how often it was seen at each level.

The join keeps its level in its state (`dbsp_wcoj.kernels.program.LEVEL`) and holds no GIL, so a
thread that reads the word every microsecond or so sees where the time goes, also in joins of a few
microseconds, which a sampler in Python would miss or see at their beginning only.
"""

import numpy as np

from dbsp_wcoj.kernels.compiled import compiled
from dbsp_wcoj.kernels.memory import load
from dbsp_wcoj.kernels.program import LEVEL

# board[...]
STATE = 0  # address of the running join's state, or 0
ROW = 1  # the row of ``seen`` that is its
STOP = 2
BOARD_WORDS = 3

# Multiplications between two looks: more looks would take the join's cache line away too often.
PAUSE = 1000


@compiled
def watch_levels(board, seen):
    """Count in ``seen[row, level]`` until ``board[STOP]`` is set; row 0 counts that nothing ran.

    Returns:
        A number without meaning, which keeps the pauses from being optimised away.
    """
    noise = np.int64(1)
    while board[STOP] == 0:
        state = board[STATE]
        row = np.int64(0)
        level = np.int64(0)
        if state != 0:
            row = board[ROW]
            level = min(max(load(state, LEVEL), np.int64(0)), np.int64(seen.shape[1] - 1))
        # A store in every round: the board has to be read anew after it.
        seen[row, level] += 1
        for _ in range(PAUSE):
            noise = noise * 6364136223846793005 + 1442695040888963407
    return noise
