"""The stack: what a running join writes to, shared by all terms of a view.

A join needs room for its cursors, for one chunk of output rows, and a bitmap for marked lists. All
of it is reserved at the size of the largest term and only touched where it is used. A stack serves
one join at a time; parts that run at the same time have a stack each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from dbsp_wcoj.kernels.join import program as words
from dbsp_wcoj.kernels.storage.spine import MOST_RUNS
from dbsp_wcoj.zset import Int64Array

__all__ = ["CHUNK", "JoinBuffers", "address_of"]

# Rows that leave a join at a time.
CHUNK: Final = 1 << 16


class JoinBuffers:
    """Room for one running join of any program that has been announced by `fit`."""

    __slots__ = ("_marks", "_out", "_packed", "_spare", "_state", "_sums", "arguments")

    def __init__(self) -> None:
        """Room for nothing yet."""
        self._state: Int64Array = np.empty(0, np.int64)
        self._out: Int64Array = np.empty(1, np.int64)
        self._marks: Int64Array = np.zeros(words.MARKS_WORDS, np.int64)
        self._sums: Int64Array = np.zeros(0, np.int64)
        # A packed run, kept because the kernel reads it.
        self._packed: Int64Array | None = None
        # Stacks of parts that ran at the same time, for the next ones.
        self._spare: list[JoinBuffers] = []
        # What the kernel is given: addresses of cursors, output, bitmap and remembered sums.
        self.arguments: tuple[int, int, int, int] = (0, 0, 0, 0)

    def fit(self, program: Int64Array) -> None:
        """Make room for a program."""
        atoms, levels = int(program[words.ATOMS]), int(program[words.LEVELS])
        slots = atoms * (MOST_RUNS + 1)
        size = words.state_words(atoms, levels, slots, int(program[words.DEPTHS]))
        if size > len(self._state):
            self._state = np.empty(size, np.int64)
        head = int(program[words.HEAD_SIZE])
        if head and (head + 1) * CHUNK > len(self._out):
            self._out = np.empty((head + 1) * CHUNK, np.int64)
        starts = int(program[words.BLOCKS])
        blocks = program[starts : starts + levels]
        if not len(self._sums) and (program[blocks + words.SEPARATOR] >= 0).any():
            self._sums = np.zeros(words.SUMS_WORDS, np.int64)
        sums = address_of(self._sums) if len(self._sums) else 0
        parts = address_of(self._state), address_of(self._out), address_of(self._marks)
        self.arguments = (*parts, sums)

    def pack(self, packed: Int64Array) -> None:
        """Give the kernel a run of `dbsp_wcoj.kernels.join.packed_lists`, before any part runs."""
        self._packed = packed
        self._marks[words.PACKED] = address_of(packed)

    @contextmanager
    def another(self, program: Int64Array) -> Iterator[JoinBuffers]:
        """A stack for a part that runs beside others, with room for a program; one at a time."""
        try:
            stack = self._spare.pop()
        except IndexError:
            stack = JoinBuffers()
            if self._packed is not None:
                stack.pack(self._packed)
        stack.fit(program)
        yield stack
        # Not after an error: a join that did not end may have left marks.
        self._spare.append(stack)

    def output(self, head: int, rows: int) -> tuple[Int64Array, Int64Array]:
        """Copies of the rows, shape ``(head, rows)``, and of the weights, shape ``(rows,)``."""
        out = self._out[: (head + 1) * CHUNK].reshape(head + 1, CHUNK)
        return out[:-1, :rows].copy(), out[-1, :rows].copy()


def address_of(array: Int64Array) -> int:
    """The address of an array's first word; the array has to be kept for as long as it is used."""
    address: int = array.__array_interface__["data"][0]
    return address
