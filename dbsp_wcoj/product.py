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

__all__ = ["Product", "Source", "accumulate"]

CHUNK: Final = 1 << 16
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1

# (the spine to read or None, the index of the delta to read or -1)
Source = tuple[Spine | None, int]


class Product:
    """One term: a plan, its program, and the sources of its factors.

    ``joins`` counts binary joins, factors less one; ``counters`` holds proposals and
    intersections since the product was built.
    """

    __slots__ = ("_deltas", "_keep", "_out", "_program", "_sources", "_state", "counters", "plan", "runs")

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
        self._deltas = deltas
        self._keep = [spine for spine, _ in sources]
        flat: list[int] = []
        for spine, delta in sources:
            flat += [spine.table_address if spine is not None else 0, int(delta >= 0), delta]
        self._sources = np.array(flat, np.int64)
        self._state = self._new_state()
        self._out: Int64Array | None = None

    def _new_state(self) -> Int64Array:
        depths = int(self._program[words.DEPTHS])
        slots = len(self.plan.factors) * (MOST_RUNS + 1)
        return np.empty(
            words.state_words(len(self.plan.factors), len(self.plan.order), slots, depths),
            np.int64,
        )

    def _new_out(self) -> Int64Array:
        return np.empty((len(self.plan.head) + 1, CHUNK if self.plan.head else 1), np.int64)

    def total(self, ranges: Iterable[tuple[int, int]], executor: Executor | None = None) -> int:
        """The weight of the empty row, for an empty head; exact.

        Args:
            ranges: Disjoint inclusive ranges of the split variable that cover what is asked for.
            executor: Runs the ranges at once when given; the kernel does not hold the GIL.
        """
        self.runs += 1
        if executor is None:
            return sum(self._total(low, high, self._state, self.counters) for low, high in ranges)
        results = executor.map(lambda bounds: self._total_apart(*bounds), ranges)
        total = 0
        for part, counters in results:
            total += part
            self.counters += counters
        return total

    def _total_apart(self, low: int, high: int) -> tuple[int, Int64Array]:
        counters = np.zeros(2, np.int64)
        return self._total(low, high, self._new_state(), counters), counters

    def _total(self, low: int, high: int, state: Int64Array, counters: Int64Array) -> int:
        if self._out is None:
            self._out = self._new_out()
        state[words.RESUMED] = 0
        status = join(
            self._program, self._sources, self._deltas, low, high, state, self._out, counters
        )
        if status == words.OVERFLOW:
            raise _overflow(self.plan)
        return int(state[words.TOTAL])

    def chunks(
        self, ranges: Iterable[tuple[int, int]], executor: Executor | None = None
    ) -> Iterator[ZSet]:
        """The result as Z-sets of at most `CHUNK` rows each, whose sum it is."""
        self.runs += 1
        if executor is None:
            out = self._out = self._out if self._out is not None else self._new_out()
            for low, high in ranges:
                yield from self._chunks(low, high, self._state, out, self.counters)
            return
        for pieces, counters in executor.map(lambda bounds: self._chunks_apart(*bounds), ranges):
            self.counters += counters
            yield from pieces

    def _chunks_apart(self, low: int, high: int) -> tuple[list[ZSet], Int64Array]:
        counters = np.zeros(2, np.int64)
        chunks = self._chunks(low, high, self._new_state(), self._new_out(), counters)
        return list(chunks), counters

    def _chunks(
        self, low: int, high: int, state: Int64Array, out: Int64Array, counters: Int64Array
    ) -> Iterator[ZSet]:
        state[words.RESUMED] = 0
        status = words.FULL
        while status == words.FULL:
            status = join(
                self._program, self._sources, self._deltas, low, high, state, out, counters
            )
            if status == words.OVERFLOW:
                raise _overflow(self.plan)
            written = int(state[words.WRITTEN])
            if written:
                yield consolidated_rows(out[:-1, :written].copy(), out[-1, :written].copy())
            state[words.WRITTEN] = 0


def whole_range() -> list[tuple[int, int]]:
    """The one range that covers all values."""
    return [(_LOWEST, _HIGHEST)]


def value_ranges(run: Run, parts: int) -> list[tuple[int, int]]:
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
