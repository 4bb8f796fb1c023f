"""A spine: the storage of one arrangement, a logarithmic number of runs of growing size.

Each step appends its delta as a run. Two neighbouring runs are merged when the newer is not much
smaller than the older (`GROWTH`), so sizes grow geometrically and a trace of n rows has
O(log n / log GROWTH) runs when it is at rest. A merge gets fuel in proportion to the rows of the
step, enough to be done before the next one of its size is due, and a little on every step; so no
step pays for the rewrite of a large run. Small merges are done at once.

Steps of a few rows are added to the newest run, the tail, by kernels that write to the table of
the spine (`dbsp_wcoj.kernels.storage.spine`, `dbsp_wcoj.storage.arena`), until it has so many rows
that it is a run like any other. Then the merging that these steps owe is done.

For a while runs can be laid on top of the others (`Spine.push_overlay`): readers see them, nothing
is merged with them, and lifting them leaves the spine as it was.

A spine can also be given runs of any sizes (`Spine.load`), as they were stored. Nothing is merged
then; later steps do it, each opening one merge of large runs at most, until the sizes are as above.

Cost: amortised O(GROWTH log n / log GROWTH) row copies per row, at most
O(GROWTH (rows of the step) + `IDLE_FUEL`) per open merge and step, the steps of a tail at once.

Source: the fueled spine of differential dataflow (McSherry, Lattuada, Schwarzkopf, Roscoe, "Shared
Arrangements", PVLDB 13(10), 2020, section 4.2). The way not taken: merging pairs of equal size
only. It writes less, but a lookup would visit three times as many runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dbsp_wcoj.kernels.storage import spine as words
from dbsp_wcoj.kernels.storage.run_layout import MAX_ABS_WEIGHT
from dbsp_wcoj.kernels.storage.spine import MOST_RUNS
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.zset import LIMIT, Int64Array

__all__ = ["Spine", "SpineSnapshot", "snapshot_runs"]

# Runs, oldest first, and the newest one by its buffer, address and rows if it is not among them.
SpineSnapshot = tuple[tuple[Run, ...], tuple[Int64Array, int, int] | None]

GROWTH: Final = 8
SMALL: Final = 256
FUEL_PER_ROW: Final = 3 * (GROWTH + 1)
IDLE_FUEL: Final = 512
AT_ONCE: Final = 8192
# Of more runs than that the newest are merged when they are loaded.
MOST_LOADED: Final = 128


class Spine:
    """The runs of one arrangement, oldest first, and the merges under way between neighbours.

    ``table`` holds the number of runs and their addresses for the kernels, and what they know of
    the tail; its own address never changes.
    """

    __slots__ = (
        "_merges",
        "_overlay",
        "_owed",
        "_rest",
        "_room",
        "_runs",
        "_tail",
        "_unsettled",
        "table",
        "table_address",
    )

    def __init__(self) -> None:
        """An empty spine."""
        # The runs without the tail.
        self._runs: list[Run] = []
        # The tail when it was last looked at, and what later ones are written to.
        self._tail: Run | None = None
        self._room: Int64Array = np.empty(0, np.int64)
        self._merges: list[Merge] = []
        # Rows of merging that steps have not done yet.
        self._owed = 0
        # Runs on top, and how many runs and which weight bound the table had without them.
        self._overlay: list[Run] = []
        self._rest: tuple[int, int] | None = None
        # Whether runs far from the newest may be due, as they were loaded so.
        self._unsettled = False
        self.table: Int64Array = np.zeros(words.TABLE_WORDS, np.int64)
        self.table_address: int = self.table.__array_interface__["data"][0]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, oldest first, without those laid on top; their sum is the trace."""
        tail = self._newest()
        return tuple(self._runs) if tail is None else (*self._runs, tail)

    def snapshot(self) -> SpineSnapshot:
        """The current runs, for a later `snapshot_runs`; later appends do not change them.

        Cheaper than `runs`, because it only points at the tail. The overlay is not included.
        """
        runs = tuple(self._runs)
        word = self.table.item
        rows = word(words.TAIL_ROWS)
        if not rows:
            return runs, None
        address = word(words.FIRST_RUN + len(runs))
        tail = self._tail
        if tail is not None and tail.address == address:
            return (*runs, tail), None
        return runs, (self._room, address, rows)

    @property
    def is_empty(self) -> bool:
        """Whether there is no run. A spine whose rows cancel may still hold runs."""
        return not self.table[words.COUNT]

    @property
    def rows(self) -> int:
        """Rows in all runs together."""
        return sum(run.rows for run in self.runs)

    @property
    def tail_rows(self) -> int:
        """Rows of the newest run if steps of a few rows are added to it, else 0."""
        return int(self.table[words.TAIL_ROWS])

    @property
    def weight_bound(self) -> int:
        """No row of the trace, nor of any sum of its runs, has a larger absolute weight."""
        return int(self.table[words.WEIGHT_BOUND])

    @property
    def nbytes(self) -> int:
        """Bytes in use by the runs, merges under way not counted."""
        return sum(run.nbytes for run in self.runs)

    def write_tails_to(self, room: Int64Array) -> None:
        """Let later tails lie in this buffer; the one that there is stays where it is."""
        self._newest()
        self._room = room

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
        self._close_tail()
        self._runs = kept
        self._merges.clear()
        self._owed = 0
        self._unsettled = True
        self._refresh(0)

    def append(self, run: Run) -> None:
        """Add the run of a step, then merge as much as the step owes.

        Args:
            run: At least one row; weights such that no sum of runs overflows.
        """
        first = len(self._runs)
        self._close_tail()
        self._runs.append(run)
        self._owed += FUEL_PER_ROW * run.rows + IDLE_FUEL
        self._settle(first)

    def settle(self) -> None:
        """Make the tail a run like any other, and merge as much as its steps owe."""
        first = len(self._runs)
        self._close_tail()
        self._settle(first)

    def push_overlay(self, run: Run) -> None:
        """Let readers see a run on top of all others until it is lifted.

        Args:
            run: At least one row; weights such that no sum of runs overflows.

        Complexity:
            Amortised O(log laid) row copies per row.
        """
        table, laid = self.table, self._overlay
        if self._rest is None:
            if table[words.COUNT] >= MOST_RUNS:
                self.compact()
            self._rest = (int(table[words.COUNT]), int(table[words.WEIGHT_BOUND]))
        first, bound = self._rest
        laid.append(run)
        changed = len(laid) - 1
        while len(laid) > 1 and (
            laid[-2].rows < 2 * laid[-1].rows or first + len(laid) > MOST_RUNS
        ):
            merged = Run.merged(laid[-2], laid[-1])
            laid[-2:] = [merged] if merged.rows else []
            changed = min(changed, max(len(laid) - 1, 0))
        table[words.COUNT] = first + len(laid)
        for index in range(changed, len(laid)):
            table[words.FIRST_RUN + first + index] = laid[index].address
        table[words.WEIGHT_BOUND] = min(bound + sum([run.max_abs_weight for run in laid]), LIMIT)

    def pop_overlay(self) -> list[Run]:
        """Take away the runs that were laid on top, and return what they have become."""
        laid, self._overlay = self._overlay, []
        if self._rest is not None:
            self.table[words.COUNT], self.table[words.WEIGHT_BOUND] = self._rest
            self._rest = None
        return laid

    def _newest(self) -> Run | None:
        """The tail, as kernels have left it."""
        rows = self.tail_rows
        if not rows:
            return None
        address = int(self.table[words.FIRST_RUN + len(self._runs)])
        # What was looked at keeps its buffer, so that no other run has its address.
        if self._tail is None or self._tail.address != address:
            self._tail = _tail_at(self._room, address, rows)
        return self._tail

    def _close_tail(self) -> None:
        """Make the tail a run like any other."""
        tail = self._newest()
        if tail is not None:
            self._runs.append(tail)
        table = self.table
        self._owed += FUEL_PER_ROW * int(table[words.UNSETTLED])
        self._owed += IDLE_FUEL * int(table[words.STEPS])
        table[words.TAIL_ROWS] = table[words.UNSETTLED] = table[words.STEPS] = 0
        self._tail = None

    def _settle(self, changed: int) -> None:
        """Do the merging that is owed; the runs from position ``changed`` on are new."""
        fuel, self._owed = self._owed, 0
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
        self._close_tail()
        self._merges.clear()
        self._owed = 0
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
        table[words.COUNT] = len(runs)
        for index in range(changed, len(runs)):
            table[words.FIRST_RUN + index] = runs[index].address
        table[words.WEIGHT_BOUND] = min(sum([run.max_abs_weight for run in runs]), LIMIT)

    def _check(self) -> None:
        """Assert that the table mirrors the runs and that merges join neighbours."""
        runs = (*self.runs, *self._overlay)
        assert self.table[words.COUNT] == len(runs)
        assert [int(a) for a in self.table[1 : 1 + len(runs)]] == [run.address for run in runs]
        assert self.weight_bound == min(sum(run.max_abs_weight for run in runs), LIMIT)
        for merge in self._merges:
            position = self._runs.index(merge.older)
            assert self._runs[position + 1] is merge.newer


def snapshot_runs(contents: SpineSnapshot) -> tuple[Run, ...]:
    """The runs that `Spine.snapshot` gave, oldest first; any thread may ask."""
    runs, tail = contents
    return runs if tail is None else (*runs, _tail_at(*tail))


def _tail_at(room: Int64Array, address: int, rows: int) -> Run:
    """The run at an address in a buffer."""
    start = (address - int(room.__array_interface__["data"][0])) // 8
    buffer = room[start:]
    return Run(buffer, address, rows, int(buffer[MAX_ABS_WEIGHT]))
