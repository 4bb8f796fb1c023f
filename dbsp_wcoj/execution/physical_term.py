"""Physical term: one term of a delta formula, compiled, and bound to the data that it reads.

A delta formula computes the change of a join as a sum of terms, for example for two relations::

    delta of R ⋈ S   =   (delta of R) ⋈ (old S)  +  (new R) ⋈ (delta of S)

Each term is a join of factors. A factor is an atom of the query with one version of its relation:
old (before the step), new (after it), or its delta. A delta is one run: a sorted array of rows. A
relation is stored as a spine: a list of runs of growing size, as in an LSM tree.

A physical term is built once and executed in every step. The runs change from step to step, so it
contains no runs. It contains the addresses of two kinds of tables, which list the current runs: one
table per spine, and one array with the delta runs of the step.

The result is one weight (`PhysicalTerm.total`) or rows (`PhysicalTerm.chunks`). Rows are returned
in chunks of at most `CHUNK_ROWS`, because one inserted row can match millions.

A term can be divided into parts (`TermPart`), by the rows of its delta or by the values of one
variable. Each part is a task with its own buffers, so workers run several at once
(`dbsp_wcoj.workers`). All tasks have ended when a function returns or raises an error, because they
read the runs of the step.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from dbsp_wcoj.errors import WeightOverflowError
from dbsp_wcoj.execution.join_buffers import CHUNK_ROWS, JoinBuffers, PreparedLists, address_of
from dbsp_wcoj.execution.list_packing import clique_lists, prepare_lists
from dbsp_wcoj.execution.program_compiler import compile_program, link
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.kernels.join.join import join
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.observer import OBSERVERS, Observer, current_observer
from dbsp_wcoj.planning.planner import FactorPlan, TermPlan
from dbsp_wcoj.storage.run import ALL_VALUES, Ranges, Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import build_run
from dbsp_wcoj.workers import check_stopped, run_tasks
from dbsp_wcoj.zset import MAX_INT64, Int64Array, ZSet, accumulate, consolidated_rows

__all__ = ["PhysicalTerm", "RowBlocks", "Source", "TermPart", "rows_of_parts", "total_of_parts"]


class Source(NamedTuple):
    """The data that a factor reads: a spine, a delta, or both (the new version of a relation).

    Attributes:
        spine: The relation before the step; None if the factor is a delta.
        delta_slot: The index of the delta in the array of delta addresses; -1 if the factor is the
            relation before the step.
    """

    spine: Spine | None
    delta_slot: int


Result = TypeVar("Result")  # of a part


class PhysicalTerm:
    """One term: a plan, the program compiled from it, and the sources of its factors.

    Attributes:
        plan: The order in which the variables are bound, and the column order of each factor.
        counters: The numbers of proposals and of intersections since the term was built, one row
            per level. Level i binds variable i of the plan.
        buffers: The memory that the join writes to.
    """

    __slots__ = (
        "_arguments",
        "_counters_address",
        "_execution_count",
        "_full_arguments",
        "_is_linked",
        "_program",
        "_referenced",
        "_times",
        "buffers",
        "counters",
        "plan",
    )

    def __init__(
        self,
        plan: TermPlan,
        sources: Sequence[Source],
        delta_addresses: Int64Array,
        buffers: JoinBuffers,
        *,
        delta_factors: Sequence[int] = (),
        times: int = 1,
    ) -> None:
        """Compile a plan and bind it to its sources.

        Args:
            plan: The plan.
            sources: The source of each factor.
            delta_addresses: The addresses of the step's delta runs, by slot. The owner of the array
                writes them before each execution.
            buffers: The memory that the join writes to. Several terms can share it, but only one of
                them may be executing at a time.
            delta_factors: The factors that are deltas. The join may start from the rows of one of
                them.
            times: The number by which all weights of the result are multiplied.
        """
        self.plan = plan
        spines = [source.spine for source in sources]
        # To multiply by a number, join with a factor of this weight that binds no variable.
        self._times = None if times == 1 else _spine_of_weight(times)
        if self._times is not None:
            plan = replace(plan, factors=(*plan.factors, FactorPlan(("#times",), (0,), depth=0)))
            sources = [*sources, Source(self._times, delta_slot=-1)]
        self.counters: Int64Array = _zero_counters(plan)
        self._execution_count: Int64Array = np.zeros(1, np.int64)
        self._program = compile_program(plan, delta_factors)
        self._is_linked = False
        source_table = _source_table(sources)
        # The kernel reads these objects by their addresses; this reference keeps them alive.
        self._referenced: tuple[Int64Array, Int64Array, list[Spine | None], Run | None] = (
            source_table,
            delta_addresses,
            spines,
            None,  # the run of `read_driver_from`
        )
        self._arguments = (
            address_of(self._program),
            address_of(source_table),
            address_of(delta_addresses),
        )
        self._counters_address = address_of(self.counters)
        # The cache of `_arguments_of_full_join`: the addresses of the buffers, and the arguments.
        self._full_arguments: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self.buffers = buffers
        buffers.reserve(self._program)

    @property
    def execution_count(self) -> int:
        """The number of executions of the term."""
        return int(self._execution_count[0])

    @property
    def cycle_factors(self) -> tuple[int, int | None] | None:
        """The factors with the last variable, if the last two variables close a cycle or clique.

        The first of them contains both variables. In the triangle R(a, b), S(b, c), T(a, c), bound
        in the order a, b, c, they are S and T. In a clique, the second one is None.
        """
        program = self._program
        level = int(program[join_layout.LEVELS]) - 2
        if level < 0:
            return None
        # The program has one block for each level, and lists where the blocks start.
        starts = int(program[join_layout.BLOCKS]) + level
        block, last_block = (int(start) for start in program[starts : starts + 2])
        kind = program[block + join_layout.SUM_KIND]
        if kind not in (join_layout.SUM_CYCLE, join_layout.SUM_CLIQUE):
            return None
        factors, last_factors = self._factors(block), self._factors(last_block)
        (closing,) = factors & last_factors
        if kind == join_layout.SUM_CLIQUE:
            return closing, None
        (fixed,) = last_factors - factors
        return closing, fixed

    def count_prefixes(self) -> list[list[int]]:
        """Count, for each factor, the prefixes of each length in the runs that the next step reads.

        A prefix that is in two runs counts twice. The greatest length is the number of columns that
        the join binds. Call this only while the runs of the step exist.
        """
        source_table, deltas, spines, _ = self._referenced
        counts = []
        for index, (factor, spine) in enumerate(zip(self.plan.factors, spines, strict=True)):
            # The words of each run, at least those of its header.
            runs = [run.buffer for run in spine.runs] if spine is not None else []
            _, has_delta, slot = source_table[3 * index : 3 * index + 3].tolist()
            if has_delta and deltas[slot]:
                header_words = _level_header(len(factor.order))
                header = (ctypes.c_int64 * header_words).from_address(int(deltas[slot]))
                runs.append(np.ctypeslib.as_array(header))
            # A level of a run has one node for each prefix.
            positions = [
                _level_header(level) + run_layout.LEVEL_NODES for level in range(factor.depth)
            ]
            counts.append([sum(int(run[position]) for run in runs) for position in positions])
        return counts

    @property
    def driver(self) -> int | None:
        """The delta factor from whose rows the join starts; None if there is none."""
        program = self._program
        if not program[join_layout.DRIVER_LEVELS]:
            return None
        return int(program[join_layout.DRIVER])

    @property
    def spines(self) -> list[Spine]:
        """The relations that the term reads."""
        return [spine for spine in self._referenced[2] if spine is not None]

    def with_driver(self, run: Run) -> PhysicalTerm:
        """Return the term with a part of its delta in place of its `driver`.

        All other factors still read the whole delta. The terms share their counters and buffers.

        Args:
            run: The rows, in the column order of the driver.
        """
        term = copy.copy(self)
        term.read_driver_from(run)
        return term

    def read_driver_from(self, run: Run) -> None:
        """Read these rows in place of the delta that is the `driver`."""
        driver = self.driver
        assert driver is not None
        source_table, deltas, spines, _ = self._referenced
        sources = source_table.copy()
        sources[3 * driver + 2] = len(deltas)
        addresses = np.empty(len(deltas) + 1, np.int64)
        addresses[:-1], addresses[-1] = deltas, run.address
        self._referenced = (sources, addresses, spines, run)
        self._arguments = (self._arguments[0], address_of(sources), address_of(addresses))
        self._full_arguments = ((), ())

    def copy_sources(self) -> Int64Array:
        """Return a copy of the sources that the factors are read from, for `restore_sources`."""
        return self._referenced[0].copy()

    def read_tables(self, tables: Mapping[int, tuple[Int64Array, bool]]) -> None:
        """Read some factors from other tables of runs, until `restore_sources`.

        Args:
            tables: For each such factor, a table like `Spine.table`, which the caller keeps alive,
                and whether the factor also reads its delta.
        """
        source_table = self._referenced[0]
        for factor, (table, reads_delta) in tables.items():
            source_table[3 * factor : 3 * factor + 2] = address_of(table), reads_delta

    def restore_sources(self, sources: Int64Array) -> None:
        """Read the sources again that `copy_sources` has returned."""
        self._referenced[0][:] = sources

    def link(self) -> None:
        """Compile or load the kernels that the program calls, before the first execution."""
        if not self._is_linked:
            link(self._program)
            self._is_linked = True

    def prepare_cycle(self, closing: Run, fixed: Run | None) -> PreparedLists | None:
        """Prepare the lists of the runs of `cycle_factors`, if it pays off.

        It can pay off in a join of whole relations (`dbsp_wcoj.execution.list_packing`).

        Returns:
            The lists, for `JoinBuffers.set_lists`.

        Complexity:
            O(rows).
        """
        factors = self.cycle_factors
        is_clique = factors is not None and factors[1] is None
        return clique_lists(closing) if is_clique else prepare_lists(closing, fixed)

    def _factors(self, block: int) -> set[int]:
        """Return the factors that contain the variable of a level, given by its program block."""
        count = int(self._program[block + join_layout.PARTICIPANTS])
        start = block + join_layout.PARTICIPANTS + 1
        stop = start + join_layout.PARTICIPANT_WORDS * count
        # The first word of each participant is its factor.
        return set(self._program[start : stop : join_layout.PARTICIPANT_WORDS].tolist())

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        """The addresses of the program, the source table, the counters and the execution count."""
        program, source_table, _ = self._arguments
        return program, source_table, self._counters_address, address_of(self._execution_count)

    def total(self, ranges: Ranges = ALL_VALUES, budget: Budget | None = None) -> int:
        """Return the exact weight of the empty row, for a term with an empty head.

        Args:
            ranges: Disjoint inclusive ranges of the values of the split variable, the variable by
                which the plan divides the join into parts.
            budget: Limits the time; the join checks it at intervals.

        Raises:
            WeightOverflowError: The weight, or a part of it, exceeds int64.
            LimitError: The join takes longer than the budget allows.
        """
        self._execution_count[0] += 1
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_term(self, resumed=False)
            try:
                return self._total_of_ranges(ranges, budget)
            finally:
                observer.end_term()
        if ranges is ALL_VALUES and budget is None:
            result = join(*self._arguments_of_full_join())
            if result[0] != join_layout.PAUSED:
                return self._check_total(result, self.buffers)
            ((low, high),) = ALL_VALUES
            return self._range_total(
                low, high, self.buffers, self._counters_address, budget, is_resumed=1
            )
        return self._total_of_ranges(ranges, budget)

    def _total_of_ranges(self, ranges: Ranges, budget: Budget | None) -> int:
        self.link()
        total = 0
        for low, high in ranges:
            total += self._range_total(low, high, self.buffers, self._counters_address, budget)
        return total

    def chunks(self, ranges: Ranges = ALL_VALUES, budget: Budget | None = None) -> Iterator[ZSet]:
        """Yield Z-sets of at most `CHUNK_ROWS` rows each, whose sum is the result.

        Raises:
            WeightOverflowError: A weight of the result exceeds int64.
            LimitError: The result is larger, or takes longer, than the budget allows.
        """
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            yield from self._observe_chunks(self._chunks_of_ranges(ranges, budget), observer)
        elif ranges is ALL_VALUES:
            self._execution_count[0] += 1
            status, written, _ = join(*self._arguments_of_full_join())
            if status == join_layout.OVERFLOW:
                raise _overflow_error(self.plan)
            head = len(self.plan.head)
            if budget is not None:
                budget.add_rows(written, head)
            if written:
                yield consolidated_rows(*self.buffers.output(head, written))
            if status in (join_layout.FULL, join_layout.PAUSED):
                ((low, high),) = ALL_VALUES
                yield from self._range_chunks(
                    low, high, self.buffers, self._counters_address, budget, is_resumed=1
                )
        else:
            yield from self._chunks_of_ranges(ranges, budget)

    def _chunks_of_ranges(
        self, ranges: Ranges, budget: Budget | None
    ) -> Generator[ZSet, None, None]:
        self.link()
        self._execution_count[0] += 1
        for low, high in ranges:
            yield from self._range_chunks(low, high, self.buffers, self._counters_address, budget)

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

    def _range_total(
        self,
        low: int,
        high: int,
        buffers: JoinBuffers,
        counters_address: int,
        budget: Budget | None,
        *,
        is_resumed: int = 0,
    ) -> int:
        """Return the total of one range; check the time whenever the kernel pauses."""
        memory = _memory_arguments(buffers, counters_address)
        observer = current_observer() if OBSERVERS else None
        if not is_resumed:
            buffers.drop_deferred()
        while True:
            if observer is not None:
                observer.begin_kernel(buffers.state)
            result = join(*self._arguments, low, high, is_resumed, *memory)
            if observer is not None:
                observer.end_kernel()
            if result[0] != join_layout.PAUSED:
                return self._check_total(result, buffers)
            check_stopped()
            if budget is not None:
                budget.check_time()
            is_resumed = 1

    def _check_total(self, result: tuple[int, int, int], buffers: JoinBuffers) -> int:
        """Return the total of a join that is done, with the sum of its deferred intersections."""
        status, _, total = result
        if status == join_layout.OVERFLOW:
            raise _overflow_error(self.plan)
        deferred_sum = buffers.take_deferred_sum()
        total += deferred_sum
        if deferred_sum == OVERFLOWED or abs(total) > MAX_INT64:
            raise _overflow_error(self.plan)
        return total

    def _arguments_of_full_join(self) -> tuple[int, ...]:
        """Return the kernel arguments for a join over all values.

        They stay the same from step to step until the buffers grow, so they are cached.
        """
        buffer_addresses, arguments = self._full_arguments
        if buffer_addresses is not self.buffers.arguments:
            self.link()
            ((low, high),) = ALL_VALUES
            memory = _memory_arguments(self.buffers, self._counters_address)
            arguments = (*self._arguments, low, high, 0, *memory)
            self._full_arguments = (self.buffers.arguments, arguments)
        return arguments

    def _range_chunks(
        self,
        low: int,
        high: int,
        buffers: JoinBuffers,
        counters_address: int,
        budget: Budget | None,
        *,
        is_resumed: int = 0,
    ) -> Iterator[ZSet]:
        """Yield the rows of one range, one Z-set for each time that the output buffer is full."""
        memory = _memory_arguments(buffers, counters_address)
        status = join_layout.FULL
        observer = current_observer() if OBSERVERS else None
        while status in (join_layout.FULL, join_layout.PAUSED):
            if observer is not None:
                observer.begin_kernel(buffers.state)
            status, written, _ = join(*self._arguments, low, high, is_resumed, *memory)
            if observer is not None:
                observer.end_kernel()
            if status == join_layout.OVERFLOW:
                raise _overflow_error(self.plan)
            if budget is not None:
                budget.add_rows(written, len(self.plan.head))
            if written:
                yield consolidated_rows(*buffers.output(len(self.plan.head), written))
            check_stopped()
            is_resumed = 1

    def count_execution(self) -> None:
        """Count an execution whose parts run with `total_of_parts` or `rows_of_parts`."""
        self._execution_count[0] += 1

    def part_total(self, budget: Budget | None, low: int, high: int) -> tuple[int, Int64Array]:
        """Return the total of a range, and its counters; several threads may call this at once."""
        counters = _zero_counters(self.plan)
        with self.buffers.borrow(self._program) as buffers:
            return self._range_total(low, high, buffers, address_of(counters), budget), counters

    def part_rows(self, budget: Budget | None, low: int, high: int) -> tuple[ZSet, Int64Array]:
        """Return the rows of a range, and its counters; several threads may call this at once."""
        counters = _zero_counters(self.plan)
        with self.buffers.borrow(self._program) as buffers:
            chunks = self._range_chunks(low, high, buffers, address_of(counters), budget)
            return accumulate(chunks, len(self.plan.head)), counters


class RowBlocks(NamedTuple):
    """Every so many-th block of the rows of a delta.

    Attributes:
        rows: All rows, in the column order of the run.
        block_rows: The number of rows of a block.
        first: The number of the first block of this part, from 0.
        stride: The distance to its next block.
    """

    rows: ZSet
    block_rows: int
    first: int
    stride: int

    def take(self) -> ZSet:
        """Return the rows of this part; O(their number)."""
        starts = np.arange(self.first, -(-len(self.rows) // self.block_rows), self.stride)
        positions = np.add.outer(starts * self.block_rows, np.arange(self.block_rows)).ravel()
        positions = positions[: np.searchsorted(positions, len(self.rows))]
        columns = self.rows.row_array.take(positions, axis=1)
        return ZSet(columns, self.rows.weight_array.take(positions))


class TermPart(NamedTuple):
    """A part of a term: some rows of its delta, or a range of the values of the split variable.

    Attributes:
        term: The term; all parts of a term share its counters.
        low: The least value.
        high: The greatest value.
        rows: The rows of the delta that is the term's `driver`; None for all rows.
    """

    term: PhysicalTerm
    low: int
    high: int
    rows: RowBlocks | None = None

    def bind(self) -> PhysicalTerm:
        """Return the term, which reads only the rows of this part."""
        if self.rows is None:
            return self.term
        rows = self.rows.take()
        return self.term.with_driver(build_run(rows, tuple(range(rows.arity))))


def total_of_parts(parts: Sequence[TermPart], budget: Budget | None) -> int:
    """Return the sum of the totals of some parts of terms, computed by all workers.

    Raises:
        WeightOverflowError, LimitError: As `PhysicalTerm.total`.
    """
    tasks = [partial(_total_of_part, part, budget) for part in parts]
    return sum([total for total, _ in _run_parts(parts, tasks)])


def rows_of_parts(parts: Sequence[TermPart], budget: Budget | None) -> list[ZSet]:
    """Return the rows of each part of some terms, computed by all workers.

    Raises:
        WeightOverflowError, LimitError: As `PhysicalTerm.chunks`.
    """
    tasks = [partial(_rows_of_part, part, budget) for part in parts]
    return [rows for rows, _ in _run_parts(parts, tasks)]


def _run_parts(
    parts: Sequence[TermPart], tasks: Sequence[Callable[[], tuple[Result, Int64Array]]]
) -> list[tuple[Result, Int64Array]]:
    """Run the tasks of parts, and add their counters to those of the terms."""
    for term in {id(part.term.counters): part.term for part in parts}.values():
        term.link()
        term.count_execution()
    results = run_tasks(tasks)
    for part, (_, counters) in zip(parts, results, strict=True):
        part.term.counters += counters
    return results


def _total_of_part(part: TermPart, budget: Budget | None) -> tuple[int, Int64Array]:
    return part.bind().part_total(budget, part.low, part.high)


def _rows_of_part(part: TermPart, budget: Budget | None) -> tuple[ZSet, Int64Array]:
    return part.bind().part_rows(budget, part.low, part.high)


def _level_header(level: int) -> int:
    """Return the position of a level's entry in the header of a run."""
    return run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level


def _spine_of_weight(weight: int) -> Spine:
    """Return a spine of one row with this weight."""
    spine = Spine()
    spine.load([Run.of(ZSet.from_columns([[0]], [weight]), np.arange(1))])
    return spine


def _source_table(sources: Sequence[Source]) -> Int64Array:
    """Return the sources as the kernel reads them, three words per factor.

    The words are: the address of the spine's table of runs, or 0; 1 if the factor reads a delta,
    else 0; the slot of the delta.
    """
    words: list[int] = []
    for spine, delta_slot in sources:
        spine_address = 0 if spine is None else spine.table_address
        words += [spine_address, int(delta_slot >= 0), delta_slot]
    return np.array(words, np.int64)


def _memory_arguments(buffers: JoinBuffers, counters_address: int) -> tuple[int, ...]:
    """Return the kernel arguments after ``is_resumed``: memory to write to, and limits."""
    state, out, bitmap_buffer, memo = buffers.arguments
    return (
        state,
        out,
        CHUNK_ROWS,
        bitmap_buffer,
        memo,
        counters_address,
        join_layout.MAX_WORK_PER_CALL,
    )


def _zero_counters(plan: TermPlan) -> Int64Array:
    """Return counters of proposals and intersections, one row per level."""
    return np.zeros((max(len(plan.order), 1), join_layout.COUNTER_WORDS), np.int64)


def _overflow_error(plan: TermPlan) -> WeightOverflowError:
    return WeightOverflowError(
        f"a weight of the result of {plan.head} is beyond int64 ({MAX_INT64}); "
        f"nothing was changed: give smaller weights, join distinct rows, or keep a column in which "
        f"equal results differ"
    )
