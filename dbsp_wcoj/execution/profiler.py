"""The profiler: an observer that measures the phases and terms of steps.

The engine has no clocks; the profiler has one. Inside ``with Profiler(clock)`` it is the observer
(`dbsp_wcoj.observer`) of the thread that entered. A phase gets its own time without that of inner
phases, so the sum of the phases is at most the whole. Work that the thread hands to an executor
counts as its waiting time.

The time by level of a join is sampled: one thread of an executor reads the level of the running
join three thousand times a second (`dbsp_wcoj.kernels.join.progress_board`), and the time of a term
is divided in proportion. The sampler sees only joins that run in the profiled thread: the parts of
a term that run in other threads are counted, but not timed by level. Levels that are summed
together, usually the innermost two, count as the first of them.

Cost: about a microsecond for each phase, about ten phases per step. Steps that one kernel call
would compute as a whole run term by term while they are observed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import numpy as np

from dbsp_wcoj.execution.join_buffers import address_of
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.kernels.join import progress_board
from dbsp_wcoj.kernels.join.progress_board import watch_levels
from dbsp_wcoj.observer import COLLECT, JOIN, SORT, observing
from dbsp_wcoj.zset import Int64Array

__all__ = ["Phase", "Profiler", "TermProfile"]

# The prefixes of the factors are counted in the first executions of a term, at most this many.
MAX_COUNTED_EXECUTIONS: Final = 16
MAX_TERMS: Final = 1024
MAX_LEVELS: Final = 64

# Sorting inside a join or inside `COLLECT` sorts the chunks of a join, so its time is added to the
# phase `COLLECT`. The keys are (outer phase, phase).
_COUNTED_AS: Final = {(JOIN, SORT): COLLECT, (COLLECT, SORT): COLLECT}


@dataclass(slots=True)
class Phase:
    """The cost of a phase: its own seconds, its calls, and its input rows."""

    seconds: float = 0.0
    calls: int = 0
    rows: int = 0


@dataclass(slots=True)
class TermProfile:
    """The cost of one term.

    Attributes:
        physical: The bound plan.
        sample_row: Its row in the array of samples, which has a count for each level.
        earlier_counters: The counters before its first profiled execution.
        prefix_counts: For each factor the number of prefixes of each length that it read: the
            largest number in the first `MAX_COUNTED_EXECUTIONS` executions.
        seconds: The time of the join.
        calls: The number of executions of the term.
    """

    physical: PhysicalTerm
    sample_row: int
    earlier_counters: Int64Array
    prefix_counts: list[list[int]]
    seconds: float = 0.0
    calls: int = 0

    @property
    def counters(self) -> Int64Array:
        """Proposals and intersections by level, since the first profiled execution."""
        return self.physical.counters - self.earlier_counters


@dataclass
class Profiler:
    """Measures the steps inside a ``with``, in the thread that entered it; see the module.

    Args:
        clock: Returns a time in seconds.
        executor: Provides one thread for the sampling of levels; without it there is no sampling.

    Attributes:
        phases: The cost of each phase, by name.
        terms: The cost of each term that was executed, by the ``id`` of its `PhysicalTerm`.

    >>> from time import perf_counter
    >>> from dbsp_wcoj import DeltaQuery, ZSet
    >>> view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)")
    >>> with Profiler(perf_counter) as profiler:
    ...     delta = view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])})
    >>> profiler.phases["build runs"].rows
    6
    """

    clock: Callable[[], float]
    executor: Executor | None = None
    phases: dict[str, Phase] = field(default_factory=dict)
    terms: dict[int, TermProfile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scope = ExitStack()
        # The phases that have begun, outermost first: the reported name, and the phase that counts.
        self._open: list[tuple[str, Phase]] = []
        # When the innermost open phase began, or when the phase inside it ended.
        self._resumed_at = 0.0
        self._board: Int64Array = np.zeros(progress_board.BOARD_WORDS, np.int64)
        self._samples: Int64Array = np.zeros((MAX_TERMS, MAX_LEVELS), np.int64)
        self._sampler: Future[Any] | None = None
        self._term: TermProfile | None = None
        self._join_seconds_before = 0.0
        # Join states that the sampling thread may still read, by address.
        self._live_states: dict[int, Int64Array] = {}

    def __enter__(self) -> Profiler:
        if self.executor is not None:
            self._board[progress_board.STOP] = 1
            watch_levels(self._board, self._samples)  # compiles on the first call
            self._board[progress_board.STOP] = 0
            self._sampler = self.executor.submit(watch_levels, self._board, self._samples)
        self._scope.enter_context(observing(self))
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scope.close()
        self._board[progress_board.STATE] = 0
        self._board[progress_board.STOP] = 1
        if self._sampler is not None:
            self._sampler.result()
            self._sampler = None
        self._live_states.clear()

    def seconds_by_level(self, term: TermProfile) -> list[float] | None:
        """Return the time of a term by level; None if no sample was taken while it ran."""
        levels = len(term.physical.plan.order)
        samples = self._samples[term.sample_row, :levels].tolist()
        total = sum(samples)
        return [term.seconds * count / total for count in samples] if total else None

    def begin_phase(self, phase: str) -> None:
        """Start the time of a phase, and stop that of the phase around it."""
        outer = self._open[-1][0] if self._open else ""
        # A phase inside the same phase, such as a small merge inside an append, is not a call.
        self._start(phase, _COUNTED_AS.get((outer, phase), phase)).calls += outer != phase

    def end_phase(self, rows: int) -> None:
        """Stop the time of the innermost phase, and continue that of the phase around it."""
        self._stop().rows += rows

    def begin_term(self, term: object, *, resumed: bool) -> None:
        """Start the time of a term and of the phase `JOIN`; count the prefixes of the factors."""
        assert isinstance(term, PhysicalTerm)
        profile = self.terms.get(id(term))
        if profile is None:
            # Row 0 is for the time between joins; terms beyond `MAX_TERMS` share the last row.
            sample_row = min(len(self.terms) + 1, MAX_TERMS - 1)
            profile = TermProfile(term, sample_row, term.counters.copy(), term.count_prefixes())
            self.terms[id(term)] = profile
        elif profile.calls < MAX_COUNTED_EXECUTIONS and not resumed:
            profile.prefix_counts = [
                list(map(max, largest, current))
                for largest, current in zip(
                    profile.prefix_counts, term.count_prefixes(), strict=True
                )
            ]
        phase = self._start(JOIN, JOIN)
        phase.calls += not resumed
        profile.calls += not resumed
        self._term = profile
        self._join_seconds_before = phase.seconds

    def end_term(self) -> None:
        """Stop the time of the term."""
        self.end_kernel()
        seconds = self._stop().seconds
        if self._term is not None:
            self._term.seconds += seconds - self._join_seconds_before
            self._term = None

    def begin_kernel(self, state: Int64Array) -> None:
        """Let the sampler read the level of the join."""
        if self._term is not None:
            address = address_of(state)
            self._live_states[address] = state
            self._board[progress_board.ROW] = self._term.sample_row
            self._board[progress_board.STATE] = address

    def end_kernel(self) -> None:
        """Stop the sampler from reading the state of the join."""
        self._board[progress_board.STATE] = 0

    def _start(self, name: str, counted_as: str) -> Phase:
        now = self.clock()
        if self._open:
            self._open[-1][1].seconds += now - self._resumed_at
        phase = self.phases.get(counted_as)
        if phase is None:
            phase = self.phases[counted_as] = Phase()
        self._open.append((name, phase))
        self._resumed_at = now
        return phase

    def _stop(self) -> Phase:
        now = self.clock()
        _, phase = self._open.pop()
        phase.seconds += now - self._resumed_at
        self._resumed_at = now
        return phase
