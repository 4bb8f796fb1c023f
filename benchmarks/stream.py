"""Runs a stream of steps through a maintained count, and times each step.

The time of a step includes everything that a user pays for: two columns and weights -> `ZSet` ->
`DeltaQuery.step` -> the number. The preparation of the arrays of the whole stream is not timed.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost import Clock, Cost
from benchmarks.engine import count_of
from benchmarks.graph import Graph
from dbsp_wcoj import DeltaQuery, ZSet


@dataclass(frozen=True, eq=False)
class Phase:
    """The cost of ``rows`` edges through a view, the wall seconds by step, the count's change."""

    rows: int
    change: int
    cost: Cost
    steps: NDArray[np.float64]

    @property
    def rate(self) -> float:
        """Edges per second of wall time."""
        return self.rows / self.cost.wall

    @property
    def cpu_rate(self) -> float:
        """Edges per second of CPU time."""
        return self.rows / self.cost.cpu

    def quantile(self, share: float) -> float:
        """Return a quantile of the steps' wall milliseconds; the largest for 1."""
        return float(np.quantile(self.steps, share, method="higher")) * 1000


def insert(view: DeltaQuery, edges: Graph, batch: int) -> Phase:
    """Insert the edges in their order, ``batch`` in a step."""
    return _run(view, edges, batch, 1)


def delete(view: DeltaQuery, edges: Graph, batch: int) -> Phase:
    """Delete the edges in their order, ``batch`` in a step."""
    return _run(view, edges, batch, -1)


def _run(view: DeltaQuery, edges: Graph, batch: int, sign: int) -> Phase:
    source, target = edges.source, edges.target
    weights = np.full(min(batch, edges.edges), sign, np.int64)
    seconds = np.empty(-(-edges.edges // batch))
    change = 0
    gc.collect()
    clock = Clock()
    for step in range(len(seconds)):
        begun = time.perf_counter()
        rows = slice(step * batch, (step + 1) * batch)
        columns = [source[rows], target[rows]]
        delta = view.step({"e": ZSet.from_columns(columns, weights[: len(columns[0])])})
        change += count_of(delta)
        seconds[step] = time.perf_counter() - begun
    return Phase(edges.edges, change, clock.read(), seconds)
