"""A physical term: one planned term bound to the runs that it reads, ready for the join kernel.

A physical term is built once per term and kept. Everything that changes from step to step is data
whose address it holds: the tables of the spines (old), and the addresses of the step's delta runs.
It returns its result in chunks of at most `CHUNK_ROWS` rows, because one inserted row can match
millions.

With an executor, the ranges of a term run in parallel, each with its own buffers. All of them have
ended when a method returns or raises, because they read the step's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, wait
from functools import partial
from typing import TypeVar

import numpy as np

from dbsp_wcoj.errors import WeightOverflowError
from dbsp_wcoj.execution.join_buffers import CHUNK_ROWS, JoinBuffers, address_of
from dbsp_wcoj.execution.program_compiler import compile_program, link
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.kernels.join.join import join
from dbsp_wcoj.kernels.join.packed_lists import pack_run, packed_words
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.planning.planner import TermPlan
from dbsp_wcoj.storage.run import WHOLE, Ranges, Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import LIMIT, Int64Array, ZSet, consolidated_rows

__all__ = ["PhysicalTerm", "Source"]

# (the spine to read or None, the slot of the delta to read or -1)
Source = tuple[Spine | None, int]
Result = TypeVar("Result")


class PhysicalTerm:
    """One term: a plan, its program, and the sources of its factors.

    Attributes:
        plan: The plan.
        counters: Proposals and intersections since it was built, one row per level of the plan.
        buffers: The memory that the join writes to.
        sources: Three words per factor (the address of the spine's table or 0, whether it reads a
            delta, the delta's slot), the delta addresses by slot, and the spines.
    """

    __slots__ = (
        "_arguments",
        "_call",
        "_count",
        "_is_linked",
        "_program",
        "_runs",
        "buffers",
        "counters",
        "plan",
        "sources",
    )

    def __init__(
        self,
        plan: TermPlan,
        sources: Sequence[Source],
        deltas: Int64Array,
        buffers: JoinBuffers,
        *,
        driven_by: Sequence[int] = (),
    ) -> None:
        """Bind a plan.

        Args:
            plan: The plan.
            sources: One per factor.
            deltas: Addresses of the step's delta runs, written by the owner before each run.
            buffers: The memory that the join writes to; one of the terms that share it runs at a
                time.
            driven_by: Factors that are deltas; the rows of one of them may drive the join.
        """
        self.plan = plan
        self.counters: Int64Array = _zero_counters(plan)
        self._runs: Int64Array = np.zeros(1, np.int64)
        self._program = compile_program(plan, driven_by)
        self._is_linked = False
        flat: list[int] = []
        for spine, delta in sources:
            flat += [spine.table_address if spine is not None else 0, int(delta >= 0), delta]
        views = np.array(flat, np.int64)
        # The kernel reads these objects by their addresses; this reference keeps them alive.
        self.sources = (views, deltas, [spine for spine, _ in sources])
        self._arguments = (address_of(self._program), address_of(views), address_of(deltas))
        self._count = address_of(self.counters)
        # The addresses of the buffers, and the kernel call that uses them.
        self._call: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self.buffers = buffers
        buffers.reserve(self._program)

    @property
    def run_count(self) -> int:
        """The number of times that the term has run."""
        return int(self._runs[0])

    @property
    def closing_factor(self) -> int | None:
        """The factor that binds the last two variables if they close a cycle; else None."""
        program = self._program
        level = int(program[join_layout.LEVELS]) - 2
        if level < 0:
            return None
        starts = int(program[join_layout.BLOCKS]) + level
        block, inner = (int(start) for start in program[starts : starts + 2])
        if program[block + join_layout.SUM_KIND] != join_layout.SUM_CYCLE:
            return None
        (moving,) = self._factors(block) & self._factors(inner)
        return moving

    def link(self) -> None:
        """Compile or load the kernels that the program calls, before it runs for the first time."""
        if not self._is_linked:
            link(self._program)
            self._is_linked = True

    def pack_closing_run(self, run: Run) -> None:
        """Pack the run of `closing_factor`, which pays off in a join of whole relations.

        Complexity:
            O(rows).
        """
        nodes = int(run.buffer[run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES])
        packed = np.empty(packed_words(nodes, run.rows), np.int64)
        if pack_run(run.address, address_of(packed)):
            self.buffers.set_packed_run(packed)

    def _factors(self, block: int) -> set[int]:
        first = block + join_layout.PARTICIPANTS + 1
        last = first + join_layout.PARTICIPANT_WORDS * int(self._program[first - 1])
        return set(self._program[first : last : join_layout.PARTICIPANT_WORDS].tolist())

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        """The addresses of its program, its sources, its counters and its run count."""
        program, sources, _ = self._arguments
        return program, sources, self._count, address_of(self._runs)

    def total(
        self,
        ranges: Ranges = WHOLE,
        executor: Executor | None = None,
        budget: Budget | None = None,
    ) -> int:
        """The weight of the empty row, for an empty head; exact.

        Args:
            ranges: Disjoint inclusive ranges of the split variable that cover the request.
            executor: Runs the ranges in parallel; the kernel does not hold the GIL.
            budget: Limits the time; the join checks it at intervals.

        Raises:
            WeightOverflowError: The weight, or a part of it, leaves int64.
            LimitError: The join takes too long.
        """
        self._runs[0] += 1
        if executor is None and ranges is WHOLE and budget is None:
            result = join(*self._whole())
            if result[0] != join_layout.PAUSED:
                return self._check_total(result)
            ((low, high),) = WHOLE
            return self._total(low, high, self.buffers, self._count, budget, resumed=1)
        self.link()
        total = 0
        if executor is None:
            for low, high in ranges:
                total += self._total(low, high, self.buffers, self._count, budget)
            return total
        function = partial(self._total_in_thread, budget)
        for part, counters in _run_parallel(executor, function, ranges):
            total += part
            self.counters += counters
        return total

    def chunks(
        self,
        ranges: Ranges = WHOLE,
        executor: Executor | None = None,
        budget: Budget | None = None,
    ) -> Iterator[ZSet]:
        """Yield Z-sets of at most `CHUNK_ROWS` rows each, whose sum is the result.

        With an executor, all chunks of a range stay in memory until they are yielded.

        Raises:
            WeightOverflowError: A weight of the result leaves int64.
            LimitError: The result is larger, or takes longer, than the budget allows.
        """
        self.link()
        self._runs[0] += 1
        if executor is None:
            for low, high in ranges:
                yield from self._chunks(low, high, self.buffers, self._count, budget)
            return
        function = partial(self._chunks_in_thread, budget)
        for pieces, counters in _run_parallel(executor, function, ranges):
            self.counters += counters
            yield from pieces

    def _total(
        self,
        low: int,
        high: int,
        buffers: JoinBuffers,
        counters: int,
        budget: Budget | None,
        *,
        resumed: int = 0,
    ) -> int:
        state, out, marks, sums = buffers.arguments
        room = (state, out, CHUNK_ROWS, marks, sums, counters, join_layout.MAX_WORK_PER_CALL)
        while True:
            result = join(*self._arguments, low, high, resumed, *room)
            if result[0] != join_layout.PAUSED:
                return self._check_total(result)
            if budget is not None:
                budget.check_time()
            resumed = 1

    def _check_total(self, result: tuple[int, int, int]) -> int:
        status, _, total = result
        if status == join_layout.OVERFLOW:
            raise _overflow_error(self.plan)
        return total

    def _whole(self) -> tuple[int, ...]:
        """The kernel arguments for all values, the same in every step until the buffers grow."""
        addresses, arguments = self._call
        if addresses is not self.buffers.arguments:
            self.link()
            addresses = state, out, marks, sums = self.buffers.arguments
            ((low, high),) = WHOLE
            room = (state, out, CHUNK_ROWS, marks, sums, self._count, join_layout.MAX_WORK_PER_CALL)
            arguments = (*self._arguments, low, high, 0, *room)
            self._call = (addresses, arguments)
        return arguments

    def _chunks(
        self, low: int, high: int, buffers: JoinBuffers, counters: int, budget: Budget | None
    ) -> Iterator[ZSet]:
        state, out, marks, sums = buffers.arguments
        room = (state, out, CHUNK_ROWS, marks, sums, counters, join_layout.MAX_WORK_PER_CALL)
        resumed, status = 0, join_layout.FULL
        while status in (join_layout.FULL, join_layout.PAUSED):
            status, written, _ = join(*self._arguments, low, high, resumed, *room)
            if status == join_layout.OVERFLOW:
                raise _overflow_error(self.plan)
            if budget is not None:
                budget.add_rows(written, len(self.plan.head))
            if written:
                yield consolidated_rows(*buffers.output(len(self.plan.head), written))
            resumed = 1

    def _total_in_thread(
        self, budget: Budget | None, bounds: tuple[int, int]
    ) -> tuple[int, Int64Array]:
        counters = _zero_counters(self.plan)
        with self.buffers.borrow(self._program) as buffers:
            return self._total(*bounds, buffers, address_of(counters), budget), counters

    def _chunks_in_thread(
        self, budget: Budget | None, bounds: tuple[int, int]
    ) -> tuple[list[ZSet], Int64Array]:
        counters = _zero_counters(self.plan)
        with self.buffers.borrow(self._program) as buffers:
            return list(self._chunks(*bounds, buffers, address_of(counters), budget)), counters


def _zero_counters(plan: TermPlan) -> Int64Array:
    return np.zeros((max(len(plan.order), 1), join_layout.COUNTER_WORDS), np.int64)


def _run_parallel(
    executor: Executor, function: Callable[[tuple[int, int]], Result], ranges: Ranges
) -> Iterator[Result]:
    """Yield the results of all ranges in order; none still runs when this ends."""
    futures = [executor.submit(function, bounds) for bounds in ranges]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


def _overflow_error(plan: TermPlan) -> WeightOverflowError:
    return WeightOverflowError(
        f"a weight of the result of {plan.head} is beyond int64 ({LIMIT}); "
        f"nothing was changed: split the step or scale the weights"
    )
