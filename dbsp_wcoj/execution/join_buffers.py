"""Join buffers: the memory that a running join writes to, shared by all terms of a query.

A join needs memory for its state (above all the cursors, its position in each run), for one chunk
of output rows, for a bitmap that marks the values of a list, and for memoized sums. All of it is
reserved at the size of the largest term; the operating system provides pages only where it is used.
The bitmap and the memoized sums start as zeros. `np.zeros` clears memory that the process has used
before, which takes longer than many joins, so their pages come from the operating system.
One set of buffers serves one join at a time; each parallel task of a join has its own set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbsp_wcoj.kernels.join import induced_subgraph, join_layout, narrow_lists
from dbsp_wcoj.kernels.storage.spine import MAX_RUNS
from dbsp_wcoj.storage.small_pages import map_memory
from dbsp_wcoj.zset import Int64Array

__all__ = ["CHUNK_ROWS", "CliqueLists", "JoinBuffers", "NarrowLists", "PreparedLists", "address_of"]

# The most rows that a join returns at a time.
CHUNK_ROWS: Final = 1 << 16
# The most deferred intersections of narrow lists; each takes 32 bytes.
MAX_DEFERRED: Final = 1 << 20


class NarrowLists(NamedTuple):
    """The lists of two runs as numbers of 32 bits (`dbsp_wcoj.kernels.join.narrow_lists`).

    Attributes:
        run_address: The address of the run that closes the cycle.
        nodes: The number of nodes of its root.
        values: The values of its lists.
        fixed_run_address: The address of the run whose lists are intersected with them; it may be
            the same run.
        fixed_values: The values of its lists.
        lowest: The least value of both runs.
    """

    run_address: int
    nodes: int
    values: NDArray[np.int32]
    fixed_run_address: int
    fixed_values: NDArray[np.int32]
    lowest: int

    def to_words(self) -> Int64Array:
        """Return the array that describes the lists to the kernels; nothing is deferred."""
        capacity = min(len(self.values), MAX_DEFERRED)
        words = np.empty(narrow_lists.narrow_words(self.nodes, capacity), np.int64)
        words[narrow_lists.RUN] = self.run_address
        words[narrow_lists.VALUES] = address_of(self.values)
        words[narrow_lists.NODES] = self.nodes
        words[narrow_lists.FIXED_RUN] = self.fixed_run_address
        words[narrow_lists.FIXED_VALUES] = address_of(self.fixed_values)
        words[narrow_lists.CAPACITY] = capacity
        words[narrow_lists.LOWEST] = self.lowest
        words[narrow_lists.DEFERRED] = words[narrow_lists.DEFERRED_VALUES] = 0
        return words


class CliqueLists(NamedTuple):
    """The lists of a run whose induced subgraphs are used to count cliques.

    Attributes:
        run_address: The address of the run that closes the cliques.
        capacity: The maximum length of a list that induces a subgraph.
    """

    run_address: int
    capacity: int

    def to_words(self) -> Int64Array:
        """Return the state of the kernels (`dbsp_wcoj.kernels.join.induced_subgraph`).

        The operating system provides memory for the words that are used.
        """
        words = np.zeros(induced_subgraph.subgraph_words(self.capacity), np.int64)
        words[induced_subgraph.CLOSING_RUN] = self.run_address
        words[induced_subgraph.CAPACITY] = self.capacity
        return words


# Lists of a run in another form: packed (`dbsp_wcoj.kernels.join.packed_lists`), or one of these.
PreparedLists = Int64Array | NarrowLists | CliqueLists


class JoinBuffers:
    """The buffers of one running join, large enough for each program passed to `reserve`.

    Attributes:
        arguments: The addresses that the kernel is called with: state, output rows, bitmap buffer
            and memoized sums.
    """

    __slots__ = (
        "_bitmap_buffer",
        "_lists",
        "_memo",
        "_narrow_words",
        "_out",
        "_programs",
        "_spare",
        "_state",
        "_subgraph",
        "arguments",
    )

    def __init__(self) -> None:
        """Create empty buffers."""
        self._state: Int64Array = np.empty(0, np.int64)
        self._out: Int64Array = np.empty(1, np.int64)
        self._bitmap_buffer = _map_zeros(join_layout.BITMAP_BUFFER_WORDS)
        # The memoized sums; empty until a program memoizes.
        self._memo: Int64Array = np.zeros(0, np.int64)
        # The lists passed to `set_lists`; the reference keeps them alive for the kernel.
        self._lists: PreparedLists | None = None
        # The array that describes narrow lists to the kernels, with the deferred intersections.
        self._narrow_words: Int64Array | None = None
        # The state of induced subgraphs.
        self._subgraph: Int64Array | None = None
        # The programs that the buffers are large enough for, by ``id``.
        self._programs: dict[int, Int64Array] = {}
        # Buffers of earlier parallel tasks, for reuse.
        self._spare: list[JoinBuffers] = []
        self.arguments: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def state(self) -> Int64Array:
        """The state of the running join (`dbsp_wcoj.kernels.join.join_layout`)."""
        return self._state

    def reserve(self, program: Int64Array) -> None:
        """Grow the buffers to the size that a program needs."""
        if id(program) in self._programs:
            return
        self._programs[id(program)] = program
        atoms, levels = int(program[join_layout.ATOMS]), int(program[join_layout.LEVELS])
        max_runs = atoms * (MAX_RUNS + 1)  # each atom may read a spine and the run of a delta
        state_words = join_layout.state_words(
            atoms, levels, max_runs, int(program[join_layout.MAX_ATOM_DEPTH])
        )
        if state_words > len(self._state):
            self._state = np.empty(state_words, np.int64)
        head = int(program[join_layout.HEAD_SIZE])
        if head and (head + 1) * CHUNK_ROWS > len(self._out):
            self._out = np.empty((head + 1) * CHUNK_ROWS, np.int64)
        # The position in the program of each level's block.
        list_start = int(program[join_layout.BLOCKS])
        blocks = program[list_start : list_start + levels]
        memo_kinds = program[blocks + join_layout.MEMO_KIND]
        if not len(self._memo) and (memo_kinds == join_layout.MEMO_VALUE).any():
            self._memo = _map_zeros(join_layout.MEMO_WORDS)
        self.arguments = (
            address_of(self._state),
            address_of(self._out),
            address_of(self._bitmap_buffer),
            address_of(self._memo) if len(self._memo) else 0,
        )

    def forget_programs(self) -> None:
        """Free the programs of terms that are discarded; the buffers keep their sizes."""
        self._programs.clear()
        for buffers in self._spare:
            buffers.forget_programs()

    def set_lists(self, lists: PreparedLists | None) -> None:
        """Let the kernel read the lists of a run in another form.

        Call this while no join is running. Later joins must not read another run at the address of
        this one, so pass None before that run is freed.

        Args:
            lists: The lists; None for no other form. With narrow lists, the sum of a join is its
                total and `take_deferred_sum`.
        """
        self._lists = lists
        self._narrow_words = self._subgraph = None
        packed_address = narrow_address = subgraph_address = 0
        if isinstance(lists, NarrowLists):
            self._narrow_words = lists.to_words()
            narrow_address = address_of(self._narrow_words)
        elif isinstance(lists, CliqueLists):
            self._subgraph = lists.to_words()
            subgraph_address = address_of(self._subgraph)
        elif lists is not None:
            packed_address = address_of(lists)
        self._bitmap_buffer[join_layout.PACKED_RUN] = packed_address
        self._bitmap_buffer[join_layout.NARROW_LISTS] = narrow_address
        self._bitmap_buffer[join_layout.SUBGRAPH] = subgraph_address

    def take_run_without_bitmaps(self) -> int:
        """Return the address of a run that needs bitmaps of its long lists; 0 for none.

        Joins count how often they read a long list without a bitmap; this sets the count to 0.
        """
        word = self._bitmap_buffer.item
        if word(join_layout.LIST_MISSES) < join_layout.MAX_LIST_MISSES:
            return 0
        self._bitmap_buffer[join_layout.LIST_MISSES] = 0
        return int(word(join_layout.MISSED_RUN))

    def take_deferred_sum(self) -> int:
        """Compute the intersections that a join has deferred, and return their sum.

        Returns:
            The sum; `OVERFLOWED` if it exceeds int64.
        """
        words = self._narrow_words
        if words is None or not words[narrow_lists.DEFERRED]:
            return 0
        return int(narrow_lists.sum_deferred(address_of(words), address_of(self._bitmap_buffer)))

    def drop_deferred(self) -> None:
        """Forget the deferred intersections of a join that was not completed."""
        words = self._narrow_words
        if words is not None:
            words[narrow_lists.DEFERRED] = words[narrow_lists.DEFERRED_VALUES] = 0

    @contextmanager
    def borrow(self, program: Int64Array) -> Iterator[JoinBuffers]:
        """Lend separate buffers, large enough for a program, to one parallel task at a time."""
        try:
            buffers = self._spare.pop()
        except IndexError:
            buffers = JoinBuffers()
        buffers.set_lists(self._lists)
        buffers.reserve(program)
        try:
            yield buffers
        finally:
            buffers.set_lists(None)
            self._spare.append(buffers)

    def output(self, head: int, rows: int) -> tuple[Int64Array, Int64Array]:
        """Return copies of the rows, shape ``(head, rows)``, and weights, shape ``(rows,)``."""
        out = self._out[: (head + 1) * CHUNK_ROWS].reshape(head + 1, CHUNK_ROWS)
        return out[:-1, :rows].copy(), out[-1, :rows].copy()


def _map_zeros(words: int) -> Int64Array:
    """Return zeros in new pages, which take no memory before they are used; O(1)."""
    return np.frombuffer(map_memory(8 * words), np.int64)


def address_of(array: Int64Array | NDArray[np.int32]) -> int:
    """Return the address of an array's first word; the caller keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
