"""A spine: the rows of a relation in one column order, as a short list of immutable sorted runs.

Each step appends its delta as a run. Two neighbouring runs are merged when the newer one is not
much smaller than the older one (`GROWTH_FACTOR`)::

    rows of the runs, oldest first      100,000   9,000   700            + a step of 50 rows
                                        100,000   9,000   700   50       50 * 8 < 700: no merge yet

So sizes grow geometrically, and a trace of n rows has O(log n / log GROWTH_FACTOR) runs when no
merge is open. A merge is done in small pieces, so no step has to rewrite a large run: each step
does merge work in proportion to its rows, its *fuel*. The fuel is enough to finish a merge before
the next one of its size starts. Small merges are done at once. The memory of large merges comes in
small pages, and is freed in slices as well or used by later merges
(`dbsp_wcoj.storage.small_pages`).

A small step does not append a run: kernels replace the newest run, the *tail*, by the sum of the
tail and the step. They write to the *table* of the spine, an array with the addresses of its runs
(`dbsp_wcoj.kernels.storage.spine`, `dbsp_wcoj.storage.arena`). When the tail is large enough, it
becomes an ordinary run. Open merges go on with the steps in between: the work is not put off until
then.

An overlay is a list of temporary runs after the others (`Spine.push_overlay`). Readers see them.
They are never merged with the other runs, and `Spine.pop_overlay` removes them.

A large step may have merged the newest runs and its delta for its joins. The spine then uses this
sum, even if it would not yet merge these runs itself (`dbsp_wcoj.storage.merged_runs`).

A spine can load stored runs of any size (`Spine.load`). Loading merges nothing up to
`MAX_LOADED_RUNS`. Later steps merge these runs, each step opens at most one merge of large runs,
until the sizes are as above.

After insertions, deletions form a run of weight -1 beside one of weight 1. Their sum would have two
weights, and such a run is read and merged more slowly. So the spine first merges the run of weight
1 with its older neighbour, if that has the same weight and the merge is small enough to be done at
once. Most deleted rows are then in one run, and cancel. For small steps, `Arena.change_sign` closes
the tail first.

A step says how many rows its lookups search for in the spine (`Spine.append`). If they are no more
than the rows of its delta, it merges later: runs of up to `MAX_LATE_MERGE_ROWS` rows, and those
without deletions, grow by factors of `MIN_GROWTH_FACTOR`. Such steps copy fewer rows, and their
lookups read some more runs: O(log n) in base 2. Deleted rows stay longer: up to about twice
`MAX_LATE_MERGE_ROWS` rows. Steps of the tail do not say how many rows they search for, and merge as
above.

Large runs that few lookups read are not worth a merge. If the lookups are few in comparison to the
rows that a step inserts (`ROWS_PER_LOOKUP`), the spine leaves the run unmerged. If it then has more
than `MAX_UNREAD_RUNS` runs, it merges neighbours of similar size, which copies each row about half
as often, or else the smallest neighbours. The first step that is small, has more lookups, or
deletes rows begins to merge the runs until the sizes are as above; deleted rows would otherwise
stay in memory.

A run may be a memory map of a file (`Run.is_mapped`). Steps do not merge it with others, because
the sum would be in memory again: whoever maps the files also merges them, and replaces the runs
(`Spine.load`). Only if there would be more than `MAX_RUNS` runs, or `MAX_LOADED_RUNS` after a load,
mapped runs are merged, too. For the same reason, `Spine.max_merge_rows` can exclude merges of large
runs in memory, which will be maps later. `Spine.compact` merges all runs. It is needed if sums of
some of the runs might leave int64, although the sum of all does not.

Cost: amortised O(GROWTH_FACTOR log n / log GROWTH_FACTOR) row copies per row. The fuel of a step of
k rows is 27 k + 512 rows, plus at most `MAX_TAIL_FUEL` rows if it follows steps of a tail. The step
copies at most so many rows in each open merge, and at most as many, or `MIN_FUEL_AT_ONCE`, in each
merge that it opens or does at once; `SPLICED_ROWS_PER_FUEL` times as many if a merge at once copies
ranges of rows (`Run.can_be_spliced`). Only a spine of `MAX_RUNS` runs is merged as a whole. Apart
from merges, a step reads all rows of the oldest run once if that has long lists that need bitmaps
(`Spine.build_list_bitmaps`).

Source: the fueled spine of differential dataflow (McSherry, Lattuada, Schwarzkopf, Roscoe, "Shared
Arrangements", PVLDB 13(10), 2020, section 4.2). Alternatives considered: merging only pairs of
equal size. It writes less, but a lookup would visit three times as many runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from dbsp_wcoj.kernels.storage import spine as spine_kernels
from dbsp_wcoj.kernels.storage.arena import MAX_SMALL_ROWS
from dbsp_wcoj.kernels.storage.list_bitmaps import NO_BITMAPS, NOT_BUILT
from dbsp_wcoj.kernels.storage.run_layout import MAX_ABS_WEIGHT
from dbsp_wcoj.kernels.storage.spine import GROWTH_FACTOR, MAX_RUNS, fuel_of
from dbsp_wcoj.observer import MERGE, OBSERVERS, current_observer
from dbsp_wcoj.storage.list_bitmaps import (
    build_list_bitmaps,
    build_no_bitmaps,
    may_have_long_lists,
)
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.storage.small_pages import SmallPages
from dbsp_wcoj.zset import MAX_INT64, Int64Array

__all__ = ["Spine", "SpineSnapshot", "SumOfNewest", "are_same", "snapshot_runs"]

# The runs, oldest first; and the tail as its buffer, address and number of rows, or None if there
# is no tail or it is among the runs.
SpineSnapshot = tuple[tuple[Run, ...], tuple[Int64Array, int, int] | None]

# `GROWTH_FACTOR` in a step that searches for no more rows than its delta has.
MIN_GROWTH_FACTOR: Final = 2
# Larger runs with deletions are merged by `GROWTH_FACTOR` in such a step as well: the deleted rows
# would use too much memory until they are merged.
MAX_LATE_MERGE_ROWS: Final = 1 << 18
# Two runs of at most this many rows together are always merged.
SMALL_MERGE_ROWS: Final = 256
# A new merge gets at least this much fuel.
MIN_FUEL_AT_ONCE: Final = 8192
# A merge at once that mostly copies ranges of rows copies so many rows for a row of fuel.
SPLICED_ROWS_PER_FUEL: Final = 4
# During the steps of a tail, merge work is done when this much fuel has come together; at most
# `MAX_TAIL_FUEL` is done.
MIN_FUEL_OF_TAIL: Final = 3072
MAX_TAIL_FUEL: Final = MIN_FUEL_OF_TAIL + fuel_of(MAX_SMALL_ROWS, 1)
# Bytes of merged runs that are freed, for each row of merge work.
RELEASED_BYTES_PER_FUEL: Final = 256
# A step leaves its run unmerged only if the run has at least this many rows.
MIN_UNREAD_ROWS: Final = 1 << 15
# A step leaves its run unmerged only if the run has at least this many rows for each row that the
# lookups of the step search for.
ROWS_PER_LOOKUP: Final = 8
# If a spine with unmerged runs has more runs than this, those of similar size are merged.
MAX_UNREAD_RUNS: Final = 8
# At most this many runs remain after a load: beyond it, the newest runs are merged.
MAX_LOADED_RUNS: Final = 128

# Held while the bitmaps of a run are built, which several spines may share.
_BUILD_LOCK: Final = Lock()


class SumOfNewest(NamedTuple):
    """The sum of the newest runs of a spine, oldest first, and the run of a step."""

    newest: tuple[Run, ...]
    merged: Run


def are_same(runs: Sequence[Run], others: Sequence[Run]) -> bool:
    """Return whether two sequences have the same objects."""
    return len(runs) == len(others) and all(map(is_, runs, others))


class Spine:
    """The runs of one arrangement, oldest first, and the open merges between neighbours.

    Attributes:
        table: The number of runs, their addresses and the state of the tail, for the kernels.
        table_address: The address of the table, which never changes.
        max_merge_rows: Two runs with more rows together are not merged, except by `compact`.
    """

    __slots__ = (
        "_counted_tail_fuel",
        "_has_few_lookups",
        "_has_unmerged_runs",
        "_list_bitmaps",
        "_merges",
        "_overlay",
        "_pending_fuel",
        "_runs",
        "_tail",
        "_tail_buffer",
        "_to_release",
        "_without_overlay",
        "max_merge_rows",
        "table",
        "table_address",
    )

    def __init__(self) -> None:
        """Create an empty spine."""
        self.max_merge_rows: int = MAX_INT64
        # The runs without the tail and the overlay.
        self._runs: list[Run] = []
        # The tail as of the last read, and the buffer that later tails are written to.
        self._tail: Run | None = None
        self._tail_buffer: Int64Array = np.empty(0, np.int64)
        self._merges: list[Merge] = []
        # The memory of merged runs, which later steps free once no reader has the runs.
        self._to_release: list[SmallPages] = []
        # True if the last step searched for no more rows than its delta had.
        self._has_few_lookups = False
        # Merge work, in rows, for steps since the last merge work.
        self._pending_fuel = 0
        # The fuel of the steps of the tail for which merge work is done or pending.
        self._counted_tail_fuel = 0
        # The runs of the overlay, and the run count and weight bound of the table without them.
        self._overlay: list[Run] = []
        self._without_overlay: tuple[int, int] | None = None
        # True if runs other than the newest may need a merge: loaded runs, and those of steps with
        # few lookups.
        self._has_unmerged_runs = False
        # The bitmaps of the oldest run, which the table points to.
        self._list_bitmaps: Int64Array | None = None
        self.table: Int64Array = np.zeros(spine_kernels.TABLE_WORDS, np.int64)
        self.table[spine_kernels.DUE_FUEL] = MAX_INT64
        self.table_address: int = self.table.__array_interface__["data"][0]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, oldest first, without the overlay; their sum is the trace."""
        tail = self._read_tail()
        return tuple(self._runs) if tail is None else (*self._runs, tail)

    @property
    def visible_runs(self) -> tuple[Run, ...]:
        """The runs and those of the overlay, as readers see them."""
        return (*self.runs, *self._overlay)

    def snapshot(self) -> SpineSnapshot:
        """The current runs, for a later `snapshot_runs`; later appends do not change them.

        Cheaper than `runs`, because it only points at the tail. The overlay is not included.
        """
        runs = tuple(self._runs)
        word = self.table.item
        rows = word(spine_kernels.TAIL_ROWS)
        if not rows:
            return runs, None
        address = word(spine_kernels.FIRST_RUN + len(runs))
        tail = self._tail
        if tail is not None and tail.address == address:
            return (*runs, tail), None
        return runs, (self._tail_buffer, address, rows)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no run. A spine may have runs although all of its rows cancel."""
        return not self.table[spine_kernels.RUN_COUNT]

    @property
    def rows(self) -> int:
        """Rows in all runs together."""
        return sum(run.rows for run in self.runs)

    @property
    def tail_rows(self) -> int:
        """Rows of the tail; 0 if there is none."""
        rows: int = self.table.item(spine_kernels.TAIL_ROWS)
        return rows

    @property
    def weight_bound(self) -> int:
        """An upper bound of the absolute weights in the trace and in any sum of its runs."""
        return int(self.table[spine_kernels.WEIGHT_BOUND])

    @property
    def nbytes(self) -> int:
        """Bytes in use by the runs and their bitmaps, without open merges."""
        return sum(run.nbytes + run.bitmap_bytes for run in self.runs)

    @property
    def heap_bytes(self) -> int:
        """Bytes in memory: runs, bitmaps, merged runs to be freed, and open merges; O(runs).

        The results of open merges are estimated by the runs that are merged.
        """
        merging = [run for merge in self._merges for run in (merge.older, merge.newer)]
        in_runs = sum([run.nbytes for run in (*self.runs, *merging) if not run.is_mapped])
        in_bitmaps = sum([run.bitmap_bytes for run in self.runs])
        return in_runs + in_bitmaps + sum([pages.nbytes for pages in self._to_release])

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the runs that are memory maps of files; O(runs)."""
        return sum([run.nbytes for run in self._runs if run.is_mapped])

    def write_tails_to(self, buffer: Int64Array) -> None:
        """Write later tails to this buffer; the current tail keeps its buffer."""
        self._read_tail()
        self._tail_buffer = buffer

    def load(self, runs: Sequence[Run]) -> None:
        """Replace all runs; drop the overlay, if there is one.

        Args:
            runs: The new runs, oldest first, with weights such that no sum of runs overflows. Runs
                without rows are dropped.

        Complexity:
            O(runs); for more than `MAX_LOADED_RUNS` also a merge of the newest.
        """
        loaded = [run for run in runs if run.rows]
        if len(loaded) > MAX_LOADED_RUNS:
            merged = Run.sum_of(loaded[MAX_LOADED_RUNS - 1 :])
            loaded[MAX_LOADED_RUNS - 1 :] = [merged] if merged.rows else []
        try:
            self._close_tail()
            self._overlay, self._without_overlay = [], None
            self._merges = []
            self._runs = loaded
            self._to_release.clear()  # no step may follow that would free the memory
            self._pending_fuel = 0
            self._has_unmerged_runs = True
            self._refresh(0)
        except BaseException:  # an interrupt: the table must not list runs that are freed
            self._refresh(0)
            raise

    def append(
        self, run: Run, lookups: int | None = None, offered: SumOfNewest | None = None
    ) -> None:
        """Add the run of a step, then do the merge work of the step. There must be no overlay.

        Args:
            run: At least one row, and weights such that no sum of runs overflows.
            lookups: About how many rows such a step searches for in the spine; None if unknown.
            offered: A sum of the newest runs and ``run``; it is used if these runs are still the
                newest and may be merged.
        """
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(MERGE)
        try:
            assert self._without_overlay is None
            first_new = len(self._runs)
            self._close_tail()
            first_new = min(first_new, self._append_or_replace(run, offered))
            self._pending_fuel += fuel_of(run.rows, 1)
            self._set_few_lookups(lookups is not None and lookups <= run.rows)
            is_unread = (
                lookups is not None
                and run.rows >= max(MIN_UNREAD_ROWS, ROWS_PER_LOOKUP * lookups)
                and run.has_equal_positive_weights
            )
            self._do_merge_work(first_new, is_unread=is_unread)
        except BaseException:  # an interrupt, or no memory
            self._refresh(0)
            raise
        finally:
            if observer is not None:
                observer.end_phase(0)

    def _append_or_replace(self, run: Run, offered: SumOfNewest | None) -> int:
        """Append a run, or replace the newest runs by an offered sum of these and the run.

        Returns:
            The first position that changed.
        """
        if offered is not None:
            first = len(self._runs) - len(offered.newest)
            if are_same(self._runs[first:], offered.newest) and self.may_merge(
                *offered.newest, run
            ):
                self._runs[first:] = [offered.merged] if offered.merged.rows else []
                self._release(*offered.newest)
                return first
        self._runs.append(run)
        return len(self._runs) - 1

    def start_tail(self, run: Run) -> bool:
        """Make the run of a step the tail; there is none yet.

        `dbsp_wcoj.kernels.storage.spine.add_to_tail` does the same, but compiling it takes half a
        minute, because it also merges. A program whose relations get one small step needs no merge.

        Args:
            run: At least one row, in the buffer of `write_tails_to`. As for the kernel, the spine
                has no overlay and fewer than `MAX_RUNS` runs, and no sum of runs overflows.

        Returns:
            Whether the spine must settle.
        """
        table, word = self.table, self.table.item
        count = word(spine_kernels.RUN_COUNT)
        rows = word(spine_kernels.ADDED_ROWS) + run.rows
        steps = word(spine_kernels.ADDED_STEPS) + 1
        table[spine_kernels.FIRST_RUN + count] = run.address
        table[spine_kernels.RUN_COUNT] = count + 1
        table[spine_kernels.TAIL_ROWS] = run.rows
        table[spine_kernels.WEIGHT_BOUND] += run.max_abs_weight
        table[spine_kernels.ADDED_ROWS] = rows
        table[spine_kernels.ADDED_STEPS] = steps
        is_due = fuel_of(rows, steps) >= word(spine_kernels.DUE_FUEL)
        return is_due or spine_kernels.is_tail_full(run.rows, rows, steps)

    def build_list_bitmaps(self, address: int) -> None:
        """Build the bitmaps of the oldest run's long lists, if it is the run at an address.

        Without memory for them, joins read the lists of this run as before.

        Args:
            address: The address of a run. If the run does not exist any more, another one may have
                its address.

        Complexity:
            O(rows of the run), once for each run.
        """
        oldest = self._runs[0] if self._runs else None
        if oldest is not None and oldest.address == address and may_have_long_lists(oldest):
            # Joins in other threads may read the bitmaps: they are never replaced.
            with _BUILD_LOCK:
                if oldest.list_bitmaps is None:
                    try:
                        oldest.list_bitmaps = build_list_bitmaps(oldest)
                    except MemoryError:
                        oldest.list_bitmaps = build_no_bitmaps()
            self._refresh_list_bitmaps()

    def _refresh_list_bitmaps(self) -> None:
        """Write the address of the oldest run's bitmaps to the table."""
        # An interrupt must not leave the address of an array that nothing refers to.
        self.table[spine_kernels.LIST_BITMAPS] = NO_BITMAPS
        oldest = self._runs[0] if self._runs else None
        self._list_bitmaps = bitmaps = None if oldest is None else oldest.list_bitmaps
        if bitmaps is not None:
            self.table[spine_kernels.LIST_BITMAPS] = bitmaps.__array_interface__["data"][0]
        elif oldest is not None and may_have_long_lists(oldest):
            self.table[spine_kernels.LIST_BITMAPS] = NOT_BUILT

    def settle(self) -> None:
        """Make a full tail an ordinary run, and do merge work for its steps if that is due."""
        word = self.table.item
        rows, steps = word(spine_kernels.ADDED_ROWS), word(spine_kernels.ADDED_STEPS)
        first_new = len(self._runs)
        if spine_kernels.is_tail_full(word(spine_kernels.TAIL_ROWS), rows, steps):
            self.close_tail()
        elif fuel_of(rows, steps) >= word(spine_kernels.DUE_FUEL):
            self._read_tail()  # a complete merge moves it in the table
            self._count_tail_fuel()
            self._do_merge_work(first_new)

    def close_tail(self) -> None:
        """Make the tail an ordinary run, if there is one, and do merge work for its steps."""
        first_new = len(self._runs)
        self._close_tail()
        self._set_few_lookups(False)
        self._do_merge_work(first_new)

    def _set_few_lookups(self, has_few_lookups: bool) -> None:
        """Note whether a step searches for no more rows than its delta has."""
        if self._has_few_lookups and not has_few_lookups:
            # Older neighbours may be within `GROWTH_FACTOR` of each other.
            self._has_unmerged_runs = True
        self._has_few_lookups = has_few_lookups

    def push_overlay(self, run: Run) -> None:
        """Let readers see a run after all others, until `pop_overlay`.

        Args:
            run: At least one row, and weights such that no sum of runs overflows.

        Complexity:
            Amortised O(log (number of pushed runs)) row copies per row.
        """
        table, overlay = self.table, self._overlay
        if self._without_overlay is None:
            if table[spine_kernels.RUN_COUNT] >= MAX_RUNS:
                self.compact()
            self._without_overlay = (
                int(table[spine_kernels.RUN_COUNT]),
                int(table[spine_kernels.WEIGHT_BOUND]),
            )
        first, weight_bound = self._without_overlay
        overlay.append(run)
        changed = len(overlay) - 1
        while len(overlay) > 1 and (
            overlay[-2].rows < 2 * overlay[-1].rows or first + len(overlay) > MAX_RUNS
        ):
            merged = Run.merged(overlay[-2], overlay[-1])
            overlay[-2:] = [merged] if merged.rows else []
            changed = min(changed, max(len(overlay) - 1, 0))
        table[spine_kernels.RUN_COUNT] = first + len(overlay)
        for index in range(changed, len(overlay)):
            table[spine_kernels.FIRST_RUN + first + index] = overlay[index].address
        table[spine_kernels.WEIGHT_BOUND] = min(
            weight_bound + sum([run.max_abs_weight for run in overlay]), MAX_INT64
        )

    def pop_overlay(self) -> list[Run]:
        """Remove the overlay, and return its runs, some of them merged."""
        overlay, self._overlay = self._overlay, []
        if self._without_overlay is not None:
            self.table[spine_kernels.RUN_COUNT], self.table[spine_kernels.WEIGHT_BOUND] = (
                self._without_overlay
            )
            self._without_overlay = None
        return overlay

    def _read_tail(self) -> Run | None:
        """Return the current tail, to which kernels may have added rows; None if there is none."""
        rows = self.tail_rows
        if not rows:
            self._tail = None
            return None
        address = int(self.table[spine_kernels.FIRST_RUN + len(self._runs)])
        # An equal address means that `_tail` is current: it keeps its buffer alive, so no other
        # run can be there.
        if self._tail is None or self._tail.address != address:
            self._tail = _tail_at(self._tail_buffer, address, rows)
        return self._tail

    def _close_tail(self) -> None:
        """Make the tail an ordinary run."""
        tail = self._read_tail()
        self._count_tail_fuel()
        self._counted_tail_fuel = 0
        # No interrupt arrives between these assignments, because they call nothing.
        if tail is not None:
            self._runs = [*self._runs, tail]
        self.table[spine_kernels.TAIL_ROWS] = 0
        self.table[spine_kernels.ADDED_ROWS : spine_kernels.ADDED_STEPS + 1] = 0
        self._tail = None

    def _count_tail_fuel(self) -> None:
        """Add the fuel of the steps that were added to the tail since the last call.

        It is at most `MAX_TAIL_FUEL`. There is more only if no merge was open; then no merge has
        waited for it, and it would only make this step slow.
        """
        word = self.table.item
        fuel = fuel_of(word(spine_kernels.ADDED_ROWS), word(spine_kernels.ADDED_STEPS))
        self._pending_fuel += min(fuel - self._counted_tail_fuel, MAX_TAIL_FUEL)
        self._counted_tail_fuel = fuel

    def _do_merge_work(self, first_changed: int, *, is_unread: bool = False) -> None:
        """Do the pending merge work; the runs from position ``first_changed`` on are new.

        With ``is_unread``, only open merges and those of too many runs are done. Without memory for
        a merge, its runs stay as they are, and later steps try again.
        """
        fuel, self._pending_fuel = self._pending_fuel, 0
        try:
            first_changed = self._merge_runs(first_changed, fuel, is_unread)
        except MemoryError:
            first_changed, self._has_unmerged_runs = 0, True
        except BaseException:  # an interrupt: some runs of the table may not exist any more
            self._has_unmerged_runs = True
            self._refresh(0)
            raise
        if len(self._runs) >= MAX_RUNS:  # one more may follow: a tail
            try:
                self.compact()
            except BaseException:
                self._refresh(0)
                raise
        else:
            self._refresh(first_changed)

    def _merge_runs(self, first_changed: int, fuel: int, is_unread: bool) -> int:
        """Work on open merges, and begin new ones; return the first position that has changed."""
        if self._to_release:
            count = RELEASED_BYTES_PER_FUEL * fuel
            self._to_release = [pages for pages in self._to_release if not pages.release(count)]
        merging = bool(self._merges) or self._has_unmerged_runs
        if merging:
            first_changed = 0
            for merge in self._merges[:]:
                self._advance(merge, fuel)
        if is_unread:
            self._has_unmerged_runs = True
            first_changed = min(first_changed, self._merge_similar(fuel))
        else:
            last = len(self._runs) - 1
            first_changed = min(
                first_changed, self._merge_neighbours(last, fuel, check_all=merging)
            )
        return first_changed

    def _merge_neighbours(self, position: int, fuel: int, *, check_all: bool) -> int:
        """Merge neighbours from ``position`` backwards; return the first position that changed.

        Usually only the newest runs need a merge, so the search ends at the first pair that needs
        none. With ``check_all`` it continues, because older runs have changed as well.
        """
        first_changed = position
        merges_before = len(self._merges)
        has_unmerged_runs, self._has_unmerged_runs = self._has_unmerged_runs, False
        while position > 0:
            if self._needs_merge(position):
                if has_unmerged_runs and len(self._merges) > merges_before:
                    # After these, a step opens one merge; the next step continues here.
                    self._has_unmerged_runs = True
                    break
                if self._is_older_merged_first(position, max(fuel, MIN_FUEL_AT_ONCE)):
                    position, check_all = position - 1, True
                    self._merge(position, max(fuel, MIN_FUEL_AT_ONCE))
                    first_changed = min(first_changed, position - 1)
                    continue
                self._merge(position, max(fuel, MIN_FUEL_AT_ONCE))
                first_changed = min(first_changed, position - 1)
            elif not check_all:
                break
            # Both runs are gone if all rows of their merge cancel.
            position = min(position, len(self._runs)) - 1
        return max(first_changed, 0)

    def _merge_similar(self, fuel: int) -> int:
        """Merge pairs of neighbours of similar size while there are too many unread runs.

        Returns:
            The first position that changed.
        """
        first_changed = position = len(self._runs) - 1
        while position > 0 and self._has_too_many_unread_runs:
            older, newer = self._runs[position - 1], self._runs[position]
            is_similar = older.rows < 2 * newer.rows and newer.rows < 2 * older.rows
            if is_similar and self._needs_merge(position):
                self._merge(position, max(fuel, MIN_FUEL_AT_ONCE))
                fuel -= older.rows + newer.rows
                position -= 1
                first_changed = position
            position -= 1
        # Neighbours of different sizes: one merge for each step keeps the number of runs.
        if self._has_too_many_unread_runs:
            candidates = [
                (self._runs[position - 1].rows + self._runs[position].rows, position)
                for position in range(1, len(self._runs))
                if self._may_merge(position)
            ]
            if candidates:
                _, position = min(candidates)
                self._merge(position, max(fuel, MIN_FUEL_AT_ONCE))
                first_changed = min(first_changed, position - 1)
        return first_changed

    @property
    def _has_too_many_unread_runs(self) -> bool:
        """Return whether more than `MAX_UNREAD_RUNS` runs remain when all open merges are done."""
        return len(self._runs) - len(self._merges) > MAX_UNREAD_RUNS

    def compact(self) -> None:
        """Merge all runs into one; no run remains if all rows cancel.

        Complexity:
            O(rows log runs).
        """
        self._close_tail()
        self._merges.clear()
        self._pending_fuel = 0
        self._to_release.clear()
        if len(self._runs) > 1:
            merged = Run.sum_of(self._runs)
            self._runs[:] = [merged] if merged.rows else []
        self._refresh(0)

    def _needs_merge(self, position: int) -> bool:
        """Return whether to start a merge of the run at ``position`` and the one before it."""
        older, newer = self._runs[position - 1], self._runs[position]
        is_late = self._has_few_lookups and (
            older.rows <= MAX_LATE_MERGE_ROWS
            or (older.has_equal_positive_weights and newer.has_equal_positive_weights)
        )
        growth_factor = MIN_GROWTH_FACTOR if is_late else GROWTH_FACTOR
        if newer.rows * growth_factor < older.rows and newer.rows + older.rows > SMALL_MERGE_ROWS:
            return False
        return self._may_merge(position)

    def _is_older_merged_first(self, position: int, fuel: int) -> bool:
        """Return whether to merge the two runs before ``position`` instead, at once.

        It is so if they have one weight, and the run at ``position`` has the opposite one, as when
        deletions follow insertions. Its sum with the run before it would have two weights.
        """
        if position < 2:
            return False
        oldest, older, newer = self._runs[position - 2 : position + 1]
        weight = newer.only_weight
        return (
            weight is not None
            and oldest.only_weight == older.only_weight == -weight
            and oldest.can_be_spliced(older)
            and oldest.rows + older.rows <= fuel * SPLICED_ROWS_PER_FUEL
            and older.rows + newer.rows > SMALL_MERGE_ROWS
            and self._may_merge(position - 1)
        )

    def _may_merge(self, position: int) -> bool:
        """Return whether the run at ``position`` and the one before it can be merged now."""
        return self.may_merge(*self._runs[position - 1 : position + 1])

    def may_merge(self, *runs: Run) -> bool:
        """Return whether the spine can merge these runs of it, or runs and a delta, now."""
        rows = 0
        for run in runs:
            if run.is_mapped:
                return False
            if any(run is merge.older or run is merge.newer for merge in self._merges):
                return False
            rows += run.rows
        return rows <= self.max_merge_rows

    def _merge(self, position: int, fuel: int) -> None:
        """Merge the run at ``position`` with the one before it; open a merge if fuel is short."""
        older, newer = self._runs[position - 1], self._runs[position]
        max_rows = fuel * SPLICED_ROWS_PER_FUEL if older.can_be_spliced(newer) else fuel
        if older.rows + newer.rows <= max_rows:
            merged = Run.merged(older, newer)
            self._runs[position - 1 : position + 1] = [merged] if merged.rows else []
            self._release(older, newer)
            return
        merge = Merge(older, newer)
        self._merges.append(merge)
        self._advance(merge, fuel)

    def _advance(self, merge: Merge, fuel: int) -> None:
        """Work on an open merge; if it is complete, replace its two runs."""
        merged = merge.work(fuel)
        if merged is None:
            return
        self._merges.remove(merge)
        self._release(merge.older, merge.newer)
        position = self._runs.index(merge.older)
        self._runs[position : position + 2] = [merged] if merged.rows else []

    def _release(self, *runs: Run) -> None:
        """Free the memory of merged runs with the next steps."""
        for run in runs:
            if run.pages is not None and run.pages.is_mapped:
                self._to_release.append(run.pages)

    def _refresh(self, first_changed: int) -> None:
        """Write the addresses of the runs from ``first_changed`` on to the table, with the tail.

        The tail is that of the last `_read_tail`.
        """
        runs = self._runs if self._tail is None else [*self._runs, self._tail]
        if len(runs) > MAX_RUNS:  # `compact` has failed, in a commit after which no step follows
            runs = runs[:MAX_RUNS]
        table = self.table
        table[spine_kernels.RUN_COUNT] = len(runs)
        has_work = bool(self._merges or self._to_release)
        table[spine_kernels.DUE_FUEL] = (
            self._counted_tail_fuel + MIN_FUEL_OF_TAIL if has_work else MAX_INT64
        )
        if not first_changed:  # the bitmaps in the table may not be those of the new oldest run
            table[spine_kernels.LIST_BITMAPS] = NO_BITMAPS
        for index in range(first_changed, len(runs)):
            table[spine_kernels.FIRST_RUN + index] = runs[index].address
        if not first_changed:
            self._refresh_list_bitmaps()
        table[spine_kernels.WEIGHT_BOUND] = min(
            sum([run.max_abs_weight for run in runs]), MAX_INT64
        )

    def _check(self) -> None:
        """Assert that the table lists the runs, and that each merge is of neighbours."""
        runs = self.visible_runs
        assert self.table[spine_kernels.RUN_COUNT] == len(runs)
        addresses = self.table[spine_kernels.FIRST_RUN :][: len(runs)].tolist()
        assert addresses == [run.address for run in runs]
        assert self.weight_bound == min(sum(run.max_abs_weight for run in runs), MAX_INT64)
        for merge in self._merges:
            position = self._runs.index(merge.older)
            assert self._runs[position + 1] is merge.newer
        word = self.table[spine_kernels.LIST_BITMAPS]
        self._refresh_list_bitmaps()
        assert self.table[spine_kernels.LIST_BITMAPS] == word


def snapshot_runs(snapshot: SpineSnapshot) -> tuple[Run, ...]:
    """The runs of a `Spine.snapshot`, oldest first; safe in any thread."""
    runs, tail = snapshot
    return runs if tail is None else (*runs, _tail_at(*tail))


def _tail_at(memory: Int64Array, address: int, rows: int) -> Run:
    """The run at an address in a buffer."""
    start = (address - int(memory.__array_interface__["data"][0])) // 8
    buffer = memory[start:]
    return Run(buffer, address, rows, int(buffer[MAX_ABS_WEIGHT]))
