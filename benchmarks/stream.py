"""Passes a stream of edges to a maintained count, and times each step.

The time of a step includes everything that a user pays for: the `ZSet` of two columns and weights,
`DeltaQuery.step`, and the number. The preparation of the arrays of the whole stream is not timed.
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
    """Steps of one kind.

    Attributes:
        rows: The number of edges in all steps.
        change: The change of the count.
        cost: The cost of all steps.
        step_seconds: The wall seconds of each step.
    """

    rows: int
    change: int
    cost: Cost
    step_seconds: NDArray[np.float64]

    @property
    def rate(self) -> float:
        """Edges per second of wall time."""
        return self.rows / self.cost.wall

    @property
    def cpu_rate(self) -> float:
        """Edges per second of CPU time."""
        return self.rows / self.cost.cpu

    def quantile(self, share: float) -> float:
        """Return a quantile of the wall milliseconds of a step; for 1, the largest."""
        return float(np.quantile(self.step_seconds, share, method="higher")) * 1000


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
        start = time.perf_counter()
        rows = slice(step * batch, (step + 1) * batch)
        columns = [source[rows], target[rows]]
        delta = view.step({"e": ZSet.from_columns(columns, weights[: len(columns[0])])})
        change += count_of(delta)
        seconds[step] = time.perf_counter() - start
    return Phase(edges.edges, change, clock.read(), seconds)
