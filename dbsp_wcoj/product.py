"""A product: one planned term bound to the runs that it reads, ready to be run by the kernel.

A product is built once per term and kept. What changes from step to step is data that it holds the
address of: the tables of the spines (old), and the addresses of the step's delta runs. Its result
leaves in chunks of at most `CHUNK` rows, because one inserted row can match millions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Final

import numpy as np

from dbsp_wcoj.assembler import assemble
from dbsp_wcoj.errors import WeightOverflowError
from dbsp_wcoj.kernels import layout
from dbsp_wcoj.kernels import program as words
from dbsp_wcoj.kernels.join import join
from dbsp_wcoj.planner import TermPlan
from dbsp_wcoj.run import Run
from dbsp_wcoj.spine import MOST_RUNS, Spine
from dbsp_wcoj.zset import LIMIT, Int64Array, ZSet, consolidated_rows

__all__ = ["WHOLE", "Product", "Ranges", "Source", "accumulate", "value_ranges"]

CHUNK: Final = 1 << 16
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1

# (the spine to read or None, the place of the delta to read or -1)
Source = tuple[Spine | None, int]

# Disjoint inclusive ranges of the values of a term's split variable.
Ranges = Sequence[tuple[int, int]]
WHOLE: Final[Ranges] = ((_LOWEST, _HIGHEST),)


class Product:
    """One term: a plan, its program, and the sources of its factors.

    ``joins`` counts binary joins, factors less one; ``counters`` holds proposals and
    intersections since the product was built.
    """

    __slots__ = (
        "_arguments",
        "_deltas",
        "_program",
        "_sources",
        "_spines",
        "_stack",
        "counters",
        "plan",
        "runs",
    )

    def __init__(self, plan: TermPlan, sources: Sequence[Source], deltas: Int64Array) -> None:
        """Bind a plan.

        Args:
            plan: The plan.
            sources: One per factor.
            deltas: Addresses of the step's delta runs, written by the owner before each run.
        """
        self.plan = plan
        self.counters: Int64Array = np.zeros(2, np.int64)
        self.runs = 0
        self._program = assemble(plan)
        # The kernel gets addresses: these objects are kept because it reads them.
        self._deltas = deltas
        self._spines = [spine for spine, _ in sources]
        flat: list[int] = []
        for spine, delta in sources:
            flat += [spine.table_address if spine is not None else 0, int(delta >= 0), delta]
        self._sources = np.array(flat, np.int64)
        self._arguments = tuple(map(_address, (self._program, self._sources, deltas)))
        self._stack = _Stack(self._program, self.counters)

    def total(self, ranges: Ranges, executor: Executor | None = None) -> int:
        """The weight of the empty row, for an empty head; exact.

        Args:
            ranges: Disjoint inclusive ranges of the split variable that cover what is asked for.
            executor: Runs the ranges at once when given; the kernel does not hold the GIL.
        """
        self.runs += 1
        if executor is None:
            total = 0
            for low, high in ranges:
                total += self._total(low, high, self._stack)
            return total
        total = 0
        for part, counters in executor.map(self._total_apart, ranges):
            total += part
            self.counters += counters
        return total

    def _total_apart(self, bounds: tuple[int, int]) -> tuple[int, Int64Array]:
        counters = np.zeros(2, np.int64)
        return self._total(*bounds, _Stack(self._program, counters)), counters

    def _total(self, low: int, high: int, stack: _Stack) -> int:
        status, _, total = join(*self._arguments, low, high, 0, *stack.arguments)
        if status == words.OVERFLOW:
            raise _overflow(self.plan)
        return int(total)

    def chunks(self, ranges: Ranges, executor: Executor | None = None) -> Iterator[ZSet]:
        """The result as Z-sets of at most `CHUNK` rows each, whose sum it is."""
        self.runs += 1
        if executor is None:
            for low, high in ranges:
                yield from self._chunks(low, high, self._stack)
            return
        for pieces, counters in executor.map(self._chunks_apart, ranges):
            self.counters += counters
            yield from pieces

    def _chunks_apart(self, bounds: tuple[int, int]) -> tuple[list[ZSet], Int64Array]:
        counters = np.zeros(2, np.int64)
        return list(self._chunks(*bounds, _Stack(self._program, counters))), counters

    def _chunks(self, low: int, high: int, stack: _Stack) -> Iterator[ZSet]:
        out = stack.out
        resumed, status = 0, words.FULL
        while status == words.FULL:
            status, written, _ = join(*self._arguments, low, high, resumed, *stack.arguments)
            if status == words.OVERFLOW:
                raise _overflow(self.plan)
            if written:
                yield consolidated_rows(out[:-1, :written].copy(), out[-1, :written].copy())
            resumed = 1


class _Stack:
    """What one run of the kernel writes to: its stack, its output and its counters."""

    __slots__ = ("arguments", "counters", "marks", "out", "state")

    def __init__(self, program: Int64Array, counters: Int64Array) -> None:
        atoms, levels = int(program[words.ATOMS]), int(program[words.LEVELS])
        slots = atoms * (MOST_RUNS + 1)
        size = words.state_words(atoms, levels, slots, int(program[words.DEPTHS]))
        capacity = CHUNK if program[words.HEAD_SIZE] else 1
        self.state: Int64Array = np.empty(size, np.int64)
        self.out: Int64Array = np.empty((int(program[words.HEAD_SIZE]) + 1, capacity), np.int64)
        self.counters = counters
        # Pages that no join marks are never touched, so they take no memory.
        self.marks: Int64Array = np.zeros(words.MARK_WORDS, np.int64)
        self.arguments = (
            _address(self.state),
            _address(self.out),
            capacity,
            _address(self.marks),
            _address(counters),
        )


def _address(array: Int64Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def value_ranges(run: Run, parts: int) -> Ranges:
    """Cut all values into ranges that hold about the same number of the run's rows.

    Cuts fall between values of the run's first column, so one value is never divided.
    """
    buffer = run.buffer
    nodes = int(buffer[layout.LEVELS + layout.LEVEL_SIZE])
    first = int(buffer[layout.LEVELS + layout.LEVEL_VALUES])
    values = buffer[first : first + nodes]
    rows = np.arange(nodes + 1)
    for level in range(int(buffer[layout.ARITY]) - 1):
        entry = layout.LEVELS + layout.LEVEL_WORDS * level
        offsets = int(buffer[entry + layout.LEVEL_OFFSETS])
        size = int(buffer[entry + layout.LEVEL_SIZE])
        starts = buffer[offsets : offsets + size + 1]
        rows = starts if level == 0 else starts[rows]
    wanted = np.linspace(0, run.rows, parts + 1)[1:-1]
    cuts = np.unique(np.searchsorted(rows[:-1], wanted, side="left"))
    lows = [int(values[cut]) for cut in cuts if 0 < cut < nodes]
    bounds = [_LOWEST, *lows, _HIGHEST + 1]
    return [(low, high - 1) for low, high in pairwise(bounds)]


def accumulate(pieces: Iterable[ZSet], arity: int) -> ZSet:
    """Add up Z-sets, pairing those of like size: O(rows log pieces)."""
    stack: list[ZSet] = []
    for piece in pieces:
        stack.append(piece)
        while len(stack) > 1 and 2 * len(stack[-1]) >= len(stack[-2]):
            piece = stack.pop()
            stack[-1] = stack[-1] + piece
    while len(stack) > 1:
        piece = stack.pop()
        stack[-1] = stack[-1] + piece
    return stack[0] if stack else ZSet.empty(arity)


def _overflow(plan: TermPlan) -> WeightOverflowError:
    return WeightOverflowError(
        f"a weight of the result of {plan.head} is beyond int64 ({LIMIT}); "
        f"nothing was changed: split the step or scale the weights"
    )
