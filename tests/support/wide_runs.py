"""Runs as earlier versions wrote them: the values of every level are words."""

from __future__ import annotations

import numpy as np

from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.storage.run import Run


def widen(run: Run) -> Run:
    """Return a run with the same rows whose last values are words, as before format 8."""
    if not run.is_narrow:
        return run
    words = run.to_words()
    header_words = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * run.arity
    leaves = header_words - run_layout.LEVEL_HEADER_WORDS + run_layout.LEVEL_VALUES
    start = int(words[leaves]) - run_layout.NARROW
    end = start + (run.rows + 1) // 2
    values = words[start:end].view(np.int32)[: run.rows].astype(np.int64)
    wide = np.concatenate([words[:start], values, words[end:]])
    wide[leaves] = start
    levels = range(run_layout.LEVEL_HEADERS, leaves, run_layout.LEVEL_HEADER_WORDS)
    offsets = [entry + run_layout.LEVEL_OFFSETS for entry in levels][: run.arity - 1]
    for pointer in (run_layout.DIRECTORY, run_layout.WEIGHT_SUMS, *offsets):
        if wide[pointer] >= end:
            wide[pointer] += run.rows - (end - start)
    return Run.from_words(wide)
