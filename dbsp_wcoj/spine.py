"""A spine: the storage of one arrangement, a logarithmic number of runs of growing size.

Each step appends its delta as a run. Two neighbouring runs are merged when the newer is not much
smaller than the older (`GROWTH`), so sizes grow geometrically and a trace of n rows has
O(log n / log GROWTH) runs when it is at rest. A merge gets fuel in proportion to the rows of the
step, enough to be done before the next one of its size is due, and a little on every step; so no
step pays for the rewrite of a large run. Small merges are done at once. The runs of steps of a few
rows are collected first: up to `TINY_RUNS` stand at the end as they came, then one call merges all,
and the other merging that these steps owe is done with it.

A spine can also be given runs of any sizes (`Spine.load`), as they were stored. Nothing is merged
then; later steps do it, each opening one merge of large runs at most, until the sizes are as above.

Cost: amortised O(GROWTH log n / log GROWTH) row copies per row, at most
O(GROWTH (rows of the step) + `IDLE_FUEL` `TINY_RUNS`) per open merge and step.

Source: the fueled spine of differential dataflow (McSherry, Lattuada, Schwarzkopf, Roscoe, "Shared
Arrangements", PVLDB 13(10), 2020, section 4.2). The way not taken: merging pairs of equal size
only. It writes less, but a lookup would visit three times as many runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dbsp_wcoj.run import Merge, Run
from dbsp_wcoj.zset import Int64Array

__all__ = ["Spine"]

GROWTH: Final = 8
SMALL: Final = 256
# Runs of so few rows are collected, and merged by one call when there are so many of them.
TINY: Final = 16
TINY_RUNS: Final = 16
FUEL_PER_ROW: Final = 3 * (GROWTH + 1)
IDLE_FUEL: Final = 512
AT_ONCE: Final = 8192
MOST_RUNS: Final = 255
# Of more runs than that the newest are merged when they are loaded.
MOST_LOADED: Final = 128


class Spine:
    """The runs of one arrangement, oldest first, and the merges under way between neighbours.

    ``table`` holds the number of runs and their addresses for the kernels; its own address never
    changes.
    """

    __slots__ = (
        "_merges",
        "_owed",
        "_runs",
        "_tiny",
        "_unsettled",
        "table",
        "table_address",
        "weight_bound",
    )

    def __init__(self) -> None:
        """An empty spine."""
        self._runs: list[Run] = []
        self._merges: list[Merge] = []
        # Rows of merging that steps have not done yet.
        self._owed = 0
        # How many of the newest runs are tiny and wait to be merged together.
        self._tiny = 0
        # Whether runs far from the newest may be due, as they were loaded so.
        self._unsettled = False
        self.table: Int64Array = np.zeros(2 + MOST_RUNS, np.int64)
        self.table_address: int = self.table.__array_interface__["data"][0]
        # No row of the trace, nor of any sum of its runs, has a larger absolute weight.
        self.weight_bound = 0

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, oldest first; their sum is the trace."""
        return tuple(self._runs)

    @property
    def is_empty(self) -> bool:
        """Whether there is no run. A spine whose rows cancel may still hold runs."""
        return not self._runs

    @property
    def rows(self) -> int:
        """Rows in all runs together."""
        return sum(run.rows for run in self._runs)

    @property
    def nbytes(self) -> int:
        """Bytes in use by the runs, merges under way not counted."""
        return sum(run.nbytes for run in self._runs)

    def load(self, runs: Sequence[Run]) -> None:
        """Put runs in place of what there is, oldest first; the spine keeps its identity.

        Args:
            runs: Weights such that no sum of runs overflows; those without rows are left out.

        Complexity:
            O(runs); of more than `MOST_LOADED` the newest are merged.
        """
        kept = [run for run in runs if run.rows]
        if len(kept) > MOST_LOADED:
            merged = Run.sum_of(kept[MOST_LOADED - 1 :])
            kept[MOST_LOADED - 1 :] = [merged] if merged.rows else []
        self._runs = kept
        self._merges.clear()
        self._owed = 0
        self._tiny = 0
        while self._tiny < len(kept) and kept[-1 - self._tiny].rows <= TINY:
            self._tiny += 1
        self._unsettled = True
        self._refresh(0)

    def append(self, run: Run) -> None:
        """Add the run of a step, then merge as much as the step owes.

        Args:
            run: At least one row; weights such that no sum of runs overflows.
        """
        runs = self._runs
        runs.append(run)
        self._owed += FUEL_PER_ROW * run.rows + IDLE_FUEL
        first = len(runs) - 1
        if run.rows <= TINY:
            self._tiny += 1
            if self._tiny < TINY_RUNS and first < MOST_RUNS:
                table = self.table
                table[first + 1] = run.address
                table[0] = first + 1
                self.weight_bound += run.max_abs_weight
                return
            self._refresh(first)
            first = len(runs) - self._tiny
            merged = Run.merged_tail(runs, self.table, first)
            runs[first:] = [merged] if merged.rows else []
        self._settle(first)

    def _settle(self, changed: int) -> None:
        """Do the merging that is owed; the runs from position ``changed`` on are new."""
        fuel, self._owed = self._owed, 0
        self._tiny = 0
        merging = bool(self._merges) or self._unsettled
        if merging:
            changed = 0
            for merge in self._merges[:]:
                self._advance(merge, fuel)
        changed = min(changed, self._merge_due(len(self._runs) - 1, fuel, everywhere=merging))
        if len(self._runs) > MOST_RUNS:
            self.compact()
        else:
            self._refresh(changed)

    def _merge_due(self, position: int, fuel: int, *, everywhere: bool) -> int:
        """Merge neighbours from ``position`` back; return the first position that changed.

        Usually only the newest runs are due; a merge that has ended may have made others so.
        """
        changed = position
        opened = len(self._merges)
        unsettled, self._unsettled = self._unsettled, False
        while position > 0:
            if self._is_due(position):
                if unsettled and len(self._merges) > opened:
                    self._unsettled = True
                    break
                self._merge(position, max(fuel, AT_ONCE))
                changed = min(changed, position - 1)
            elif not everywhere:
                break
            position = min(position, len(self._runs)) - 1
        return max(changed, 0)

    def compact(self) -> None:
        """Merge everything into one run, or none if all rows cancel."""
        self._merges.clear()
        self._owed = 0
        self._tiny = 0
        while len(self._runs) > 1:
            merged = Run.merged(self._runs[-2], self._runs[-1])
            self._runs[-2:] = [merged] if merged.rows else []
        self._refresh(0)

    def _is_due(self, position: int) -> bool:
        """Whether the run at ``position`` is to be merged with the one before it."""
        older, newer = self._runs[position - 1], self._runs[position]
        if newer.rows * GROWTH < older.rows and newer.rows + older.rows > SMALL:
            return False
        return not self._merges or not any(
            run is merge.older or run is merge.newer
            for merge in self._merges
            for run in (older, newer)
        )

    def _merge(self, position: int, fuel: int) -> None:
        """Merge the run at ``position`` with the one before it, at once if the fuel is enough."""
        older, newer = self._runs[position - 1], self._runs[position]
        if older.rows + newer.rows <= fuel:
            merged = Run.merged(older, newer)
            self._runs[position - 1 : position + 1] = [merged] if merged.rows else []
            return
        merge = Merge(older, newer)
        self._merges.append(merge)
        self._advance(merge, fuel)

    def _advance(self, merge: Merge, fuel: int) -> None:
        merged = merge.work(fuel)
        if merged is None:
            return
        self._merges.remove(merge)
        position = self._runs.index(merge.older)
        self._runs[position : position + 2] = [merged] if merged.rows else []

    def _refresh(self, changed: int) -> None:
        """Write the addresses of the runs from position ``changed`` on to the table."""
        runs = self._runs
        table = self.table
        table[0] = len(runs)
        for index in range(changed, len(runs)):
            table[1 + index] = runs[index].address
        self.weight_bound = sum([run.max_abs_weight for run in runs])

    def _check(self) -> None:
        """Assert that the table mirrors the runs and that merges join neighbours."""
        assert self.table[0] == len(self._runs)
        assert [int(a) for a in self.table[1 : 1 + len(self._runs)]] == [
            run.address for run in self._runs
        ]
        for merge in self._merges:
            position = self._runs.index(merge.older)
            assert self._runs[position + 1] is merge.newer
