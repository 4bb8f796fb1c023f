"""A spine: the storage of one arrangement, a logarithmic number of runs of growing size.

Each step appends its delta as a run. Two neighbouring runs are merged when the newer is not much
smaller than the older (`GROWTH`), so sizes grow geometrically and a trace of n rows has
O(log n / log GROWTH) runs when it is at rest. A merge gets fuel in proportion to the rows of the
step, enough to be done before the next one of its size is due, and a little on every step; so no
step pays for the rewrite of a large run. Small merges are done at once.

Cost: amortised O(GROWTH log n / log GROWTH) row copies per row, at most
O(GROWTH (rows of the step) + `IDLE_FUEL`) per open merge and step.

Source: the fueled spine of differential dataflow (McSherry, Lattuada, Schwarzkopf, Roscoe, "Shared
Arrangements", PVLDB 13(10), 2020, section 4.2). The way not taken: merging pairs of equal size
only. It writes less, but a lookup would visit three times as many runs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj.run import Merge, Run
from dbsp_wcoj.zset import Int64Array

__all__ = ["Spine"]

GROWTH: Final = 8
SMALL: Final = 256
FUEL_PER_ROW: Final = 3 * (GROWTH + 1)
IDLE_FUEL: Final = 512
AT_ONCE: Final = 8192
MOST_RUNS: Final = 255


class Spine:
    """The runs of one arrangement, oldest first, and the merges under way between neighbours.

    ``table`` holds the number of runs and their addresses for the kernels; its own address never
    changes.
    """

    __slots__ = ("_merges", "_runs", "table", "table_address")

    def __init__(self) -> None:
        """An empty spine."""
        self._runs: list[Run] = []
        self._merges: list[Merge] = []
        self.table: Int64Array = np.zeros(1 + MOST_RUNS, np.int64)
        self.table_address: int = self.table.__array_interface__["data"][0]

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

    @property
    def weight_bound(self) -> int:
        """No row of the trace, nor of any sum of its runs, has a larger absolute weight."""
        return sum(run.max_abs_weight for run in self._runs)

    def append(self, run: Run) -> None:
        """Add the run of a step, then merge as much as the step owes.

        Args:
            run: At least one row; weights such that no sum of runs overflows.
        """
        self._runs.append(run)
        fuel = FUEL_PER_ROW * run.rows + IDLE_FUEL
        for merge in self._merges[:]:
            self._advance(merge, fuel)
        self._open_merges(fuel)
        self._refresh()

    def compact(self) -> None:
        """Merge everything into one run, or none if all rows cancel."""
        for merge in self._merges[:]:
            self._advance(merge, 1 << 62)
        while len(self._runs) > 1:
            merge = Merge(self._runs[-2], self._runs[-1])
            self._merges.append(merge)
            self._advance(merge, 1 << 62)
        self._refresh()

    def _open_merges(self, fuel: int) -> None:
        """Merge neighbours until sizes fall by `GROWTH`, newest first."""
        runs = self._runs
        busy = {id(run) for merge in self._merges for run in (merge.older, merge.newer)}
        i = len(runs) - 1
        while i > 0:
            if i < len(runs) and id(runs[i]) not in busy and id(runs[i - 1]) not in busy:
                older, newer = runs[i - 1].rows, runs[i].rows
                if newer * GROWTH >= older or newer + older <= SMALL:
                    merge = Merge(runs[i - 1], runs[i])
                    self._merges.append(merge)
                    self._advance(merge, max(fuel, AT_ONCE))
                    if merge in self._merges:
                        busy |= {id(merge.older), id(merge.newer)}
                    elif i < len(runs):
                        # The merged run may now be due with the next newer one too.
                        i = min(i + 1, len(runs))
            i -= 1
        if len(runs) > MOST_RUNS:
            self.compact()

    def _advance(self, merge: Merge, fuel: int) -> None:
        merged = merge.work(fuel)
        if merged is None:
            return
        self._merges.remove(merge)
        position = self._runs.index(merge.older)
        self._runs[position : position + 2] = [merged] if merged.rows else []

    def _refresh(self) -> None:
        self.table[0] = len(self._runs)
        for index, run in enumerate(self._runs):
            self.table[1 + index] = run.address

    def _check(self) -> None:
        """Assert that the table mirrors the runs and that merges join neighbours."""
        assert self.table[0] == len(self._runs)
        assert [int(a) for a in self.table[1 : 1 + len(self._runs)]] == [
            run.address for run in self._runs
        ]
        for merge in self._merges:
            position = self._runs.index(merge.older)
            assert self._runs[position + 1] is merge.newer
