"""Passes a stream of edges to a maintained count, and times each step.

The time of a step includes everything that a user pays for: the `ZSet` of two columns and weights,
`DeltaQuery.step`, and the number. The preparation of the arrays of the whole stream is not timed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost import Clock, Cost, median
from benchmarks.engine import count_of
from benchmarks.graph import Graph
from dbsp_wcoj import DeltaQuery, ZSet


@dataclass(frozen=True, eq=False)
class Phase:
    """Steps of one kind.

    Attributes:
        rows: The number of edges in all steps.
        steps: The number of steps.
        change: The change of the count.
        candidates: The values that the joins proposed; of several repetitions, the mean.
        cost: The cost of all steps; of several repetitions, the median.
        step_seconds: The wall seconds of each step, of all repetitions.
    """

    rows: int
    steps: int
    change: int
    candidates: int
    cost: Cost
    step_seconds: NDArray[np.float64]

    @property
    def cpu_rate(self) -> float:
        """Edges per second of CPU time."""
        return self.rows / self.cost.cpu

    @property
    def nanoseconds_per_candidate(self) -> float | None:
        """CPU nanoseconds per candidate, all costs of a step included; None without candidates."""
        return 1e9 * self.cost.cpu / self.candidates if self.candidates else None

    def quantile(self, share: float) -> float:
        """Return a quantile of the wall milliseconds of a step; for 1, the largest."""
        return float(np.quantile(self.step_seconds, share, method="higher")) * 1000


def insert(view: DeltaQuery, edges: Graph, batch: int) -> Phase:
    """Insert the edges in their order, ``batch`` in a step."""
    return _run(view, edges, batch, 1)


def delete(view: DeltaQuery, edges: Graph, batch: int) -> Phase:
    """Delete the edges in their order, ``batch`` in a step."""
    return _run(view, edges, batch, -1)


def combine(repetitions: Sequence[Phase]) -> Phase:
    """Return one phase for repetitions of it, all from the same state."""
    first = repetitions[0]
    return Phase(
        first.rows,
        first.steps,
        first.change,
        round(statistics.mean(phase.candidates for phase in repetitions)),
        median([phase.cost for phase in repetitions]),
        np.concatenate([phase.step_seconds for phase in repetitions]),
    )


def _run(view: DeltaQuery, edges: Graph, batch: int, sign: int) -> Phase:
    source, target = edges.source, edges.target
    weights = np.full(min(batch, edges.edges), sign, np.int64)
    seconds = np.empty(-(-edges.edges // batch))
    change = 0
    candidates = -view.stats.proposals
    gc.collect()
    clock = Clock()
    for step in range(len(seconds)):
        start = time.perf_counter()
        rows = slice(step * batch, (step + 1) * batch)
        columns = [source[rows], target[rows]]
        delta = view.step({"e": ZSet.from_columns(columns, weights[: len(columns[0])])})
        change += count_of(delta)
        seconds[step] = time.perf_counter() - start
    cost = clock.read()
    candidates += view.stats.proposals
    return Phase(edges.edges, len(seconds), change, candidates, cost, seconds)
