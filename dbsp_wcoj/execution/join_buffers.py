"""Join buffers: the memory that a running join writes to, shared by all terms of a query.

A join needs memory for its state (above all the cursors, its position in each run), for one chunk
of output rows, for a bitmap that marks the values of a list, and for memoized sums. All of it is
reserved at the size of the largest term; the operating system provides pages only where it is used.
One set of buffers serves one join at a time; each parallel task of a join has its own set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.kernels.storage.spine import MAX_RUNS
from dbsp_wcoj.zset import Int64Array

__all__ = ["CHUNK_ROWS", "JoinBuffers", "address_of"]

# The most rows that a join returns at a time.
CHUNK_ROWS: Final = 1 << 16


class JoinBuffers:
    """The buffers of one running join, large enough for each program passed to `reserve`.

    Attributes:
        arguments: The addresses that the kernel is called with: state, output rows, bitmap buffer
            and memoized sums.
    """

    __slots__ = (
        "_bitmap_buffer",
        "_memo",
        "_out",
        "_packed",
        "_programs",
        "_spare",
        "_state",
        "arguments",
    )

    def __init__(self) -> None:
        """Create empty buffers."""
        self._state: Int64Array = np.empty(0, np.int64)
        self._out: Int64Array = np.empty(1, np.int64)
        self._bitmap_buffer: Int64Array = np.zeros(join_layout.BITMAP_BUFFER_WORDS, np.int64)
        # The memoized sums; empty until a program memoizes.
        self._memo: Int64Array = np.zeros(0, np.int64)
        # The run passed to `set_packed_run`; the reference keeps it alive for the kernel.
        self._packed: Int64Array | None = None
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
            self._memo = np.zeros(join_layout.MEMO_WORDS, np.int64)
        self.arguments = (
            address_of(self._state),
            address_of(self._out),
            address_of(self._bitmap_buffer),
            address_of(self._memo) if len(self._memo) else 0,
        )

    def set_packed_run(self, packed: Int64Array | None) -> None:
        """Let the kernel read a run of packed lists (`dbsp_wcoj.kernels.join.packed_lists`).

        Call this while no join is running. Later joins must not read another run at the address of
        the packed one, so pass None before that run is freed.
        """
        self._packed = packed
        self._bitmap_buffer[join_layout.PACKED_RUN] = 0 if packed is None else address_of(packed)

    @contextmanager
    def borrow(self, program: Int64Array) -> Iterator[JoinBuffers]:
        """Lend separate buffers, large enough for a program, to one parallel task at a time."""
        try:
            buffers = self._spare.pop()
        except IndexError:
            buffers = JoinBuffers()
        buffers.set_packed_run(self._packed)
        buffers.reserve(program)
        try:
            yield buffers
        finally:
            buffers.set_packed_run(None)
            self._spare.append(buffers)

    def output(self, head: int, rows: int) -> tuple[Int64Array, Int64Array]:
        """Return copies of the rows, shape ``(head, rows)``, and weights, shape ``(rows,)``."""
        out = self._out[: (head + 1) * CHUNK_ROWS].reshape(head + 1, CHUNK_ROWS)
        return out[:-1, :rows].copy(), out[-1, :rows].copy()


def address_of(array: Int64Array) -> int:
    """Return the address of an array's first word; the caller keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
