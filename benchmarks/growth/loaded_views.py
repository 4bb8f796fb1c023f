"""Loads views without evaluating them, and times steps that insert rows and delete them again.

The views share one `Relations`. Loading stages and commits rows and evaluates no view, because only
the later steps are measured, and a join of 10⁸ rows would take longer than all of them.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine import count_of
from benchmarks.growth.edges import Keys, columns
from dbsp_wcoj import DeltaQuery, Relations, ZSet

# Rows of a step that loads.
LOAD_ROWS: Final = 1 << 24


@dataclass(frozen=True, eq=False)
class Steps:
    """Timed steps that insert rows and delete them again.

    Attributes:
        rows: The number of changed rows.
        seconds: The wall time of each step.
        cpu: The CPU seconds of all steps.
        candidates: The number of proposals and intersections.
        change: The sum of all changes of the counts; 0 after everything is deleted.
        inserted_change: The sum of the changes while rows were inserted.
    """

    rows: int
    seconds: NDArray[np.float64]
    cpu: float
    candidates: int
    change: int
    inserted_change: int

    def quantile(self, share: float) -> float:
        """Return a quantile of the times of the steps, in milliseconds."""
        return float(np.quantile(self.seconds, share, method="higher")) * 1000

    @property
    def nanoseconds_per_candidate(self) -> float | None:
        """The CPU nanoseconds per candidate."""
        return 1e9 * self.cpu / self.candidates if self.candidates else None


class LoadedViews:
    """Views over one relation ``e`` of two columns; loading does not evaluate them.

    Args:
        queries: The views.
    """

    def __init__(self, queries: Sequence[str]) -> None:
        self.relations = Relations()
        self.views = [DeltaQuery(query, relations=self.relations) for query in queries]

    def load(self, keys: Keys) -> float:
        """Load rows into the state; return the seconds."""
        start_time = time.perf_counter()
        for start in range(0, len(keys), LOAD_ROWS):
            rows = ZSet.from_columns(columns(keys[start : start + LOAD_ROWS]))
            self.relations.stage({"e": rows}).commit()
        return time.perf_counter() - start_time

    def insert_and_delete(self, keys: Keys, batch: int, steps: int) -> Steps:
        """Insert and delete the first keys in steps of ``batch`` rows; time only a second pass."""
        streamed = keys[: batch * steps]
        self._run_pass(streamed, batch)
        gc.collect()
        earlier_candidates = self._candidates()
        start_cpu = time.process_time()
        seconds, change, inserted_change = self._run_pass(streamed, batch)
        cpu = time.process_time() - start_cpu
        candidates = self._candidates() - earlier_candidates
        return Steps(2 * len(streamed), np.array(seconds), cpu, candidates, change, inserted_change)

    @property
    def bytes(self) -> int:
        """The size of all runs."""
        spines = [a.spine for a in self.relations.traces["e"].arrangements]
        return sum(spine.nbytes for spine in spines)

    @property
    def arrangements(self) -> int:
        """The number of column orders that are kept."""
        return len(self.relations.traces["e"].arrangements)

    def _run_pass(self, keys: Keys, batch: int) -> tuple[list[float], int, int]:
        """Return the seconds of each step, the change of the counts, and that of the inserts."""
        seconds = []
        change = inserted_change = 0
        for sign in (1, -1):
            for start in range(0, len(keys), batch):
                rows = columns(keys[start : start + batch])
                weights = np.full(len(rows[0]), sign, np.int64)
                start_time = time.perf_counter()
                step = self.relations.stage({"e": ZSet.from_columns(rows, weights)})
                step_change = sum(count_of(view.evaluate(step)) for view in self.views)
                step.commit()
                seconds.append(time.perf_counter() - start_time)
                change += step_change
                inserted_change += step_change if sign > 0 else 0
        return seconds, change, inserted_change

    def _candidates(self) -> int:
        stats = [view.stats for view in self.views]
        return sum(view_stats.proposals + view_stats.intersections for view_stats in stats)


def peak_memory_gb() -> float:
    """Return the peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
