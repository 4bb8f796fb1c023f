"""A physical term: one planned term bound to the data that it reads, ready for the join kernel.

A delta formula expands the change of a join into a sum of terms. A term is a join of factors; each
factor is a relation before or after the step (old or new), or its delta. A run is a sorted array of
rows. A relation is stored as a spine: a list of runs of growing size, as in an LSM tree. A delta is
one run.

A physical term is built once and used in every step. It stores only addresses of the data that
changes from step to step: the tables of the spines, which list their runs, and the array of the
addresses of the step's delta runs. It returns its result in chunks of at most `CHUNK_ROWS` rows,
because one inserted row can match millions.

An executor executes the term in parallel: each range of the values of one variable is a task with
its own buffers. All tasks have ended when a method returns or raises, because they read the runs of
the step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, wait
from contextlib import closing
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
from dbsp_wcoj.observer import OBSERVERS, Observer, current_observer
from dbsp_wcoj.planning.planner import TermPlan
from dbsp_wcoj.storage.run import ALL_VALUES, Ranges, Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import MAX_INT64, Int64Array, ZSet, consolidated_rows

__all__ = ["PhysicalTerm", "Source"]

# The input of a factor: (its spine or None, the slot of its delta or -1). A slot is an index of the
# array of delta addresses.
Source = tuple[Spine | None, int]
Result = TypeVar("Result")


class PhysicalTerm:
    """One term: a plan, the program compiled from it, and the sources of its factors.

    Attributes:
        plan: The order of the variables, and the column order of each factor.
        counters: The numbers of proposals and intersections since the term was built, one row per
            level (variable) of the plan.
        buffers: The memory that the join writes to.
        sources: Three arrays or lists: three words per factor (the address of the spine's table or
            0, 1 if the factor reads a delta, the slot of the delta); the delta addresses by slot;
            and the spines.
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
            sources: The source of each factor.
            deltas: The addresses of the step's delta runs, by slot. The owner of the array writes
                them before each execution.
            buffers: The memory that the join writes to. Several terms can share it, but only one of
                them may be executing at a time.
            driven_by: The factors that are deltas. The join may start from the rows of one of them.
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
        """The number of executions of the term."""
        return int(self._runs[0])

    @property
    def closing_factor(self) -> int | None:
        """The factor that binds both of the last two variables of a cycle, such as a triangle.

        None if the last two variables do not close a cycle.
        """
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

    def count_prefixes(self) -> list[list[int]]:
        """By factor, the number of prefixes of each length in the runs that the next step reads.

        A prefix that is in two runs counts twice. The length goes up to the number of columns that
        the join binds. Valid while the runs of the step exist.
        """
        views, deltas, spines = self.sources
        counts = []
        for index, (factor, spine) in enumerate(zip(self.plan.factors, spines, strict=True)):
            headers = [run.buffer for run in spine.runs] if spine is not None else []
            _, has_delta, slot = views[3 * index : 3 * index + 3].tolist()
            if has_delta and deltas[slot]:
                words = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * len(factor.order)
                header = (ctypes.c_int64 * words).from_address(int(deltas[slot]))
                headers.append(np.ctypeslib.as_array(header))
            entries = [
                run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
                for level in range(factor.depth)
            ]
            counts.append(
                [sum(int(h[entry + run_layout.LEVEL_NODES]) for h in headers) for entry in entries]
            )
        return counts

    def link(self) -> None:
        """Compile or load the kernels that the program calls, before the first execution."""
        if not self._is_linked:
            link(self._program)
            self._is_linked = True

    def pack_closing_run(self, run: Run) -> None:
        """Pack the lists of the run of `closing_factor` into bitmap words.

        This pays off in a join of whole relations (`dbsp_wcoj.kernels.join.packed_lists`).

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
        """The addresses of the program, the sources, the counters and the execution count."""
        program, sources, _ = self._arguments
        return program, sources, self._count, address_of(self._runs)

    def total(
        self,
        ranges: Ranges = ALL_VALUES,
        executor: Executor | None = None,
        budget: Budget | None = None,
    ) -> int:
        """Return the exact weight of the empty row, for a term with an empty head.

        Args:
            ranges: Disjoint inclusive ranges of the split variable, the variable whose values
                divide the join into parts.
            executor: Executes the ranges in parallel; the kernel does not hold the GIL.
            budget: Limits the time; the join checks it at intervals.

        Raises:
            WeightOverflowError: The weight, or a part of it, exceeds int64.
            LimitError: The join takes too long.
        """
        self._runs[0] += 1
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_term(self, resumed=False)
            try:
                return self._total_of_ranges(ranges, executor, budget)
            finally:
                observer.end_term()
        if executor is None and ranges is ALL_VALUES and budget is None:
            result = join(*self._whole())
            if result[0] != join_layout.PAUSED:
                return self._check_total(result)
            ((low, high),) = ALL_VALUES
            return self._total(low, high, self.buffers, self._count, budget, resumed=1)
        return self._total_of_ranges(ranges, executor, budget)

    def _total_of_ranges(
        self, ranges: Ranges, executor: Executor | None, budget: Budget | None
    ) -> int:
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
        ranges: Ranges = ALL_VALUES,
        executor: Executor | None = None,
        budget: Budget | None = None,
    ) -> Iterator[ZSet]:
        """Yield Z-sets of at most `CHUNK_ROWS` rows each, whose sum is the result.

        With an executor, all chunks of a range stay in memory until they are yielded.

        Raises:
            WeightOverflowError: A weight of the result exceeds int64.
            LimitError: The result is larger, or takes longer, than the budget allows.
        """
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            yield from self._observe_chunks(
                self._chunks_of_ranges(ranges, executor, budget), observer
            )
        elif executor is None and ranges is ALL_VALUES:
            self.link()
            self._runs[0] += 1
            ((low, high),) = ALL_VALUES
            yield from self._chunks(low, high, self.buffers, self._count, budget)
        else:
            yield from self._chunks_of_ranges(ranges, executor, budget)

    def _chunks_of_ranges(
        self, ranges: Ranges, executor: Executor | None, budget: Budget | None
    ) -> Generator[ZSet, None, None]:
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

    def _observe_chunks(
        self, chunks: Generator[ZSet, None, None], observer: Observer
    ) -> Iterator[ZSet]:
        """Yield the chunks; the computation of each is a piece of the term's execution."""
        resumed = False
        with closing(chunks):
            while True:
                observer.begin_term(self, resumed=resumed)
                try:
                    chunk = next(chunks, None)
                finally:
                    observer.end_term()
                if chunk is None:
                    return
                yield chunk
                resumed = True

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
        observer = current_observer() if OBSERVERS else None
        while True:
            if observer is not None:
                observer.begin_kernel(buffers.state)
            result = join(*self._arguments, low, high, resumed, *room)
            if observer is not None:
                observer.end_kernel()
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
        """Return the kernel arguments for a join over all values.

        They stay the same from step to step until the buffers grow, so they are cached.
        """
        addresses, arguments = self._call
        if addresses is not self.buffers.arguments:
            self.link()
            addresses = state, out, marks, sums = self.buffers.arguments
            ((low, high),) = ALL_VALUES
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
        observer = current_observer() if OBSERVERS else None
        while status in (join_layout.FULL, join_layout.PAUSED):
            if observer is not None:
                observer.begin_kernel(buffers.state)
            status, written, _ = join(*self._arguments, low, high, resumed, *room)
            if observer is not None:
                observer.end_kernel()
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
    """Yield the results of all ranges in order; when this ends, all tasks have ended."""
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
        f"a weight of the result of {plan.head} is beyond int64 ({MAX_INT64}); "
        f"nothing was changed: split the step or scale the weights"
    )
