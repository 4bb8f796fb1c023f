"""An arena: one buffer for the runs of many small steps, so that a small step allocates no memory.

A run is an immutable sorted piece of a relation; a spine is the list of runs in one column order,
and its tail is the newest run, to which small steps are added (`dbsp_wcoj.storage.spine`). The
buffer of an arena contains the runs of the small deltas of one relation, in all column orders, and
the tails. When the buffer is full, the arena continues in a new one. A run keeps its buffer alive,
so a buffer is freed when later steps have merged its last run into a larger one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dbsp_wcoj.kernel_loading import load_kernel
from dbsp_wcoj.kernels.storage import arena as arena_kernels
from dbsp_wcoj.kernels.storage.arena import (
    ADDED,
    MUST_SETTLE,
    NOT_ADDED,
    add_small_runs,
    build_small_runs,
)
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS
from dbsp_wcoj.kernels.storage.trie import run_words
from dbsp_wcoj.observer import BUILD_RUNS, MERGE, OBSERVERS, current_observer
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["MAX_INSERTION_ROWS", "Arena"]

# Each buffer of a relation is twice as large as the one before it, between these sizes. To begin a
# buffer takes longer than a small step, so steps cost less with larger ones; one of the largest
# size, 512 KB, fits in the cache of a core.
MIN_BUFFER_WORDS: Final = 1 << 14
MAX_BUFFER_WORDS: Final = 1 << 16
# A buffer has room for about this many steps of more than `MAX_INSERTION_ROWS` rows.
LARGE_STEPS_PER_BUFFER: Final = 4
# Tails become ordinary runs when deletions follow at least so many steps of insertions, or
# insertions as many of deletions.
MIN_STEPS_OF_ONE_SIGN: Final = 16

ColumnOrder = tuple[int, ...]


class Arena:
    """The memory of the small deltas of one relation.

    Attributes:
        address: The address of the words that describe the arena to the kernels.
        orders: The column orders, in the order of those words.
        is_deleting: Whether the first row of the last small step was deleted.
    """

    __slots__ = (
        "_buffer",
        "_buffer_address",
        "_first_step",
        "_spines",
        "_words",
        "address",
        "is_deleting",
        "orders",
    )

    def __init__(self, spines: Mapping[ColumnOrder, Spine]) -> None:
        """Create an arena without a buffer.

        Args:
            spines: At least one spine, by column order.
        """
        self.orders = tuple(spines)
        self._spines = tuple(spines.values())
        # The layout is that of `dbsp_wcoj.kernels.storage.arena`; there is no buffer yet.
        words = [0, 0, 0, len(self.orders[0]), len(self.orders)]
        for order, spine in spines.items():
            words += [spine.table_address, 0, *order]
        # The kernels read the array by its address; this reference keeps it alive.
        self._words: Int64Array = np.array(words, np.int64)
        self.address: int = self._words.__array_interface__["data"][0]
        self._buffer: Int64Array = np.empty(0, np.int64)
        self._buffer_address = 0
        self.is_deleting = False
        # The number of the step with which `is_deleting` changed last.
        self._first_step = 0

    def change_sign(self, step: int, *, is_deleting: bool) -> None:
        """Note that the first row of a small step is deleted, or inserted, as in later steps.

        Only steps that are one kernel call (`dbsp_wcoj.execution.small_steps`) tell the arena. If
        at least `MIN_STEPS_OF_ONE_SIGN` steps have passed since the last change, the tails
        become ordinary runs, so that each run has one weight (`dbsp_wcoj.storage.spine`).

        Args:
            step: The number of the step that follows.
            is_deleting: Whether the steps delete rows.
        """
        self.is_deleting = is_deleting
        steps, self._first_step = step - self._first_step, step
        if steps >= MIN_STEPS_OF_ONE_SIGN:
            for spine in self._spines:
                spine.close_tail()

    def build_runs(self, delta: ZSet) -> tuple[dict[ColumnOrder, Run], int]:
        """Build the run of a delta in each column order.

        Args:
            delta: From 1 to `MAX_INSERTION_ROWS` rows.

        Returns:
            The runs, and the largest weight bound of the spines.

        Complexity:
            O(orders · rows²): an insertion sort.
        """
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(BUILD_RUNS)
        columns, weights = delta.row_array, delta.weight_array
        rows = len(weights)
        if not add_small_runs.overloads and self.tail_rows:
            # `add` calls it in a commit, where an interrupt would leave the commit unfinished.
            load_kernel(add_small_runs, self.address, self.address, rows)
        runs: dict[ColumnOrder, Run] = {}
        try:
            first, words, largest, bound = build_small_runs(self.address, columns, weights)
            if not words:
                self.start_buffer(rows)
                first, words, largest, bound = build_small_runs(self.address, columns, weights)
            for order in self.orders:
                buffer = self._buffer[first : first + words]
                runs[order] = Run(buffer, self._buffer_address + 8 * first, rows, largest)
                first += words
        finally:
            if observer is not None:
                observer.end_phase(rows * len(runs))
        return runs, bound

    def add(self, runs: Mapping[ColumnOrder, Run]) -> bool:
        """Add runs of `build_runs` to the tails of their spines, if there is room in the buffer.

        The spines then do merge work, if it is due (`dbsp_wcoj.storage.spine.Spine.settle`).

        Returns:
            False, without a change, if the runs are in an earlier buffer or the current buffer has
            no room for the tails.
        """
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(MERGE)
        status, rows = NOT_ADDED, 0
        try:
            if self._spines[0].tail_rows or self.tail_rows:
                run = runs[self.orders[0]]
                status = add_small_runs(self.address, run.address, run.rows)
            else:  # without the kernel, whose compilation takes half a minute
                status = self._start_tails(runs)
            if observer is not None and status != NOT_ADDED:
                rows = self.tail_rows
            if status == MUST_SETTLE:
                self.settle()
        finally:
            if observer is not None:
                observer.end_phase(rows)
        return bool(status != NOT_ADDED)

    def _start_tails(self, runs: Mapping[ColumnOrder, Run]) -> int:
        """Add runs to spines without a tail; return the status of `add_small_runs`."""
        offset = runs[self.orders[0]].address - self._buffer_address
        if not 0 <= offset < self._buffer.nbytes:
            return NOT_ADDED
        spines = zip(self.orders, self._spines, strict=True)
        must_settle = [spine.start_tail(runs[order]) for order, spine in spines]
        return MUST_SETTLE if any(must_settle) else ADDED

    @property
    def tail_rows(self) -> int:
        """The number of rows of all tails."""
        return sum([spine.tail_rows for spine in self._spines])

    def settle(self) -> None:
        """Let the spines do the merge work that is due, and make full tails ordinary runs."""
        for spine in self._spines:
            spine.settle()

    def start_buffer(self, rows: int) -> None:
        """Continue in an empty buffer that is large enough for a step of ``rows`` rows."""
        words = self._step_words(rows)
        if rows > MAX_INSERTION_ROWS:
            words *= LARGE_STEPS_PER_BUFFER
        usual_words = min(max(2 * len(self._buffer), MIN_BUFFER_WORDS), MAX_BUFFER_WORDS)
        # Zeros, because runs are written to files: unused words of a header are 0.
        buffer = np.zeros(max(usual_words, words), np.int64)
        # After an interrupt, some spines have the new buffer and others not. No run fits in the old
        # one from here on, so the next small step calls this again.
        self._words[arena_kernels.MEMORY_WORDS] = 0
        self._buffer = buffer
        self._buffer_address = self._buffer.__array_interface__["data"][0]
        for spine in self._spines:
            spine.write_tails_to(self._buffer)
        arena = self._words
        arena[arena_kernels.MEMORY] = self._buffer_address
        arena[arena_kernels.MEMORY_WORDS] = len(self._buffer)
        arena[arena_kernels.FREE] = 0

    def _step_words(self, rows: int) -> int:
        """An upper bound of the words that the runs and the tails of a step take."""
        arity = len(self.orders[0])
        tails = [run_words(arity, spine.tail_rows + rows) for spine in self._spines]
        return len(self.orders) * run_words(arity, rows) + sum(tails)
