"""The profiler: measures where the time of steps goes, only while it is active.

The engine has no clocks. Inside ``with Profiler(clock)`` the functions that are phases of a step
(`HOOKS`) are replaced by ones that measure the call, and restored afterwards. A phase gets its own
time without that of inner phases, so the sum of the phases is at most the whole. Only the thread
that entered is measured: work that it hands to an executor counts as its waiting time.

The time by level of a join is sampled: one thread of an executor reads the level of the running
join three thousand times a second (`dbsp_wcoj.kernels.join.progress_board`), and the time of a term
is divided in proportion. The sampler sees joins that run in the profiled thread; for parts of a
term that run elsewhere the levels have candidates and no times. Levels that are summed together,
usually the innermost two, count as the first of them.

Cost: about a microsecond for each call of a hooked function, about ten calls per step; nothing
afterwards. Alternatives considered: clocks in the engine behind a flag. Every step would pay for
the test, and the code of the phases would be spread over the engine.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import numpy as np

from dbsp_wcoj import delta_query, zset
from dbsp_wcoj.execution import physical_term as product
from dbsp_wcoj.execution.bound_terms import BoundTerms
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.execution.plan_cache import PlanCache
from dbsp_wcoj.execution.small_steps import SmallSteps
from dbsp_wcoj.kernels.join import progress_board as board_words
from dbsp_wcoj.kernels.join.progress_board import watch_levels
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.storage.arena import Arena
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import Int64Array

__all__ = ["COLLECT", "HOOKS", "JOIN", "MERGE", "PLAN", "Hook", "Phase", "Profiler", "TermProfile"]

JOIN: Final = "join"
COLLECT: Final = "collect"
MERGE: Final = "merge"
PLAN: Final = "plan"
SORT: Final = "sort"

# The sizes of the factors are recorded for this many runs of a term.
MAX_SIZED_RUNS: Final = 16
MAX_TERMS: Final = 1024
MAX_LEVELS: Final = 64

Rows = Callable[[tuple[Any, ...], Any], int]


@dataclass(slots=True)
class Phase:
    """The cost of a phase: its own seconds, its calls, and its input rows."""

    seconds: float = 0.0
    calls: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that is a phase.

    Attributes:
        owner: The module or class that defines it.
        name: Its name there.
        phase: The phase, unless ``within`` names another one.
        rows: Computes the rows of a call from its arguments and result.
        within: Pairs (outer phase, phase): inside this outer phase a call counts for that phase.
    """

    owner: Any
    name: str
    phase: str
    rows: Rows | None = None
    within: tuple[tuple[str, str], ...] = ()


def _no_rows(arguments: tuple[Any, ...], result: Any) -> int:
    return 0


def _merged_rows(merge: Merge, *_: Any) -> int:
    """The rows of a merge; an open merge counts when it is complete."""
    return merge.older.rows + merge.newer.rows


HOOKS: Final = (
    Hook(
        zset,
        "consolidate",
        SORT,
        lambda arguments, _: arguments[0].shape[1],
        within=((JOIN, COLLECT), (COLLECT, COLLECT)),
    ),
    Hook(delta_query, "accumulate", COLLECT),
    Hook(Run, "of", "build runs", lambda arguments, _: len(arguments[0])),
    Hook(Arena, "build_runs", "build runs", lambda _, runs: sum(run.rows for run in runs.values())),
    Hook(PlanCache, "bind_step", PLAN),
    Hook(Arena, "add", MERGE, lambda arena, done: arena[0].tail_rows if done else 0),
    Hook(Spine, "append", MERGE),
    Hook(Run, "merged", MERGE, lambda runs, _: runs[0].rows + runs[1].rows),
    Hook(Merge, "work", MERGE, lambda merge, done: _merged_rows(*merge) if done else 0),
)


@dataclass(slots=True)
class TermProfile:
    """The cost of one term.

    Attributes:
        physical: The bound plan.
        row: The row of the samples that counts its levels.
        before: The counters before its first profiled run.
        nodes: By factor and bound depth, the maximum number of prefixes to read in the first
            `MAX_SIZED_RUNS` runs.
        seconds: The time of the join.
        calls: The number of runs of the term.
    """

    physical: PhysicalTerm
    row: int
    before: Int64Array
    nodes: list[list[int]]
    seconds: float = 0.0
    calls: int = 0

    @property
    def counters(self) -> Int64Array:
        """Proposals and intersections by level, since its first profiled run."""
        return self.physical.counters - self.before


@dataclass
class Profiler:
    """Phases and terms of the steps inside a ``with``; see the module.

    Args:
        clock: Returns a time in seconds.
        executor: Provides one thread for the sampling of levels; without it there is no sampling.
        hooks: The phases.

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
    hooks: Sequence[Hook] = HOOKS
    phases: dict[str, Phase] = field(default_factory=dict)
    terms: dict[int, TermProfile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stack: list[Phase] = []
        self._names: list[str] = []
        self._mark = 0.0
        self._thread = 0
        self._originals: list[tuple[Any, str, Any]] = []
        self._board: Int64Array = np.zeros(board_words.BOARD_WORDS, np.int64)
        self._samples: Int64Array = np.zeros((MAX_TERMS, MAX_LEVELS), np.int64)
        self._sampler: Future[Any] | None = None
        self._running: TermProfile | None = None
        # Join states that the sampling thread may still read.
        self._live_states: list[Any] = []

    def __enter__(self) -> Profiler:
        self._thread = threading.get_ident()
        for hook in self.hooks:
            self._replace(hook.owner, hook.name, functools.partial(self._wrapped, hook))
        self._replace(PhysicalTerm, "total", self._total)
        self._replace(PhysicalTerm, "chunks", self._chunks)
        self._replace(product, "join", self._kernel)
        self._replace(BoundTerms, "total", self._one_by_one)
        self._replace(SmallSteps, "step", self._one_by_one)
        if self.executor is not None:
            self._board[board_words.STOP] = 1
            watch_levels(self._board, self._samples)  # compiles on the first call
            self._board[board_words.STOP] = 0
            self._sampler = self.executor.submit(watch_levels, self._board, self._samples)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._board[board_words.STATE] = 0
        self._board[board_words.STOP] = 1
        if self._sampler is not None:
            self._sampler.result()
        while self._originals:
            setattr(*self._originals.pop())
        self._stack.clear()
        self._names.clear()

    def seconds_by_level(self, term: TermProfile) -> list[float] | None:
        """The term's time by level; None if no sample saw it run."""
        levels = len(term.physical.plan.order)
        seen = self._samples[term.row, :levels].tolist()
        total = sum(seen)
        return [term.seconds * count / total for count in seen] if total else None

    def _replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        original = vars(owner)[name]
        self._originals.append((owner, name, original))
        if isinstance(original, staticmethod):
            setattr(owner, name, staticmethod(wrap(original.__func__)))
        else:
            setattr(owner, name, wrap(original))

    def _begin(self, name: str) -> Phase:
        now = self.clock()
        if self._stack:
            self._stack[-1].seconds += now - self._mark
        phase = self.phases.get(name)
        if phase is None:
            phase = self.phases[name] = Phase()
        self._stack.append(phase)
        self._names.append(name)
        self._mark = now
        return phase

    def _end(self) -> None:
        now = self.clock()
        self._stack.pop().seconds += now - self._mark
        self._names.pop()
        self._mark = now

    def _wrapped(self, hook: Hook, original: Callable[..., Any]) -> Callable[..., Any]:
        within = dict(hook.within)
        rows = hook.rows or _no_rows

        @functools.wraps(original)
        def timed(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(*arguments, **options)
            outer = self._names[-1] if self._names else ""
            phase = self._begin(within.get(outer, hook.phase))
            try:
                result = original(*arguments, **options)
            finally:
                self._end()
            # A phase inside the same phase, such as a small merge inside an append, is not a call.
            phase.calls += outer != hook.phase
            phase.rows += rows(arguments, result)
            return result

        return timed

    def _one_by_one(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Replace a call for all terms by None, so that the terms run one by one."""

        @functools.wraps(original)
        def declined(*arguments: Any) -> Any:
            return original(*arguments) if threading.get_ident() != self._thread else None

        return declined

    def _total(self, original: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(original)
        def timed(term: PhysicalTerm, *arguments: Any, **options: Any) -> int:
            if threading.get_ident() != self._thread:
                return original(term, *arguments, **options)
            self._enter_term(term)
            try:
                return original(term, *arguments, **options)
            finally:
                self._leave_term()

        return timed

    def _chunks(self, original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        @functools.wraps(original)
        def timed(term: PhysicalTerm, *arguments: Any, **options: Any) -> Iterator[Any]:
            chunks = original(term, *arguments, **options)
            if threading.get_ident() != self._thread:
                yield from chunks
                return
            first = True
            while True:
                self._enter_term(term, again=not first)
                first = False
                try:
                    chunk = next(chunks, None)
                finally:
                    self._leave_term()
                if chunk is None:
                    return
                yield chunk

        return timed

    def _kernel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        state = 6  # the position of the state's address in the kernel's arguments

        @functools.wraps(original)
        def watched(*arguments: Any) -> Any:
            running = self._running
            if running is None or threading.get_ident() != self._thread:
                return original(*arguments)
            board = self._board
            board[board_words.ROW] = running.row
            board[board_words.STATE] = arguments[state]
            try:
                return original(*arguments)
            finally:
                board[board_words.STATE] = 0

        return watched

    def _enter_term(self, term: PhysicalTerm, *, again: bool = False) -> None:
        found = self.terms.get(id(term))
        if found is None:
            row = min(len(self.terms) + 1, MAX_TERMS - 1)
            found = TermProfile(term, row, term.counters.copy(), _nodes(term))
            self.terms[id(term)] = found
            self._live_states.append(term.buffers.state)
        elif found.calls < MAX_SIZED_RUNS and not again:
            both = zip(found.nodes, _nodes(term), strict=True)
            found.nodes = [list(map(max, *sizes)) if sizes[0] else [] for sizes in both]
        phase = self._begin(JOIN)
        phase.calls += not again
        found.calls += not again
        self._running = found
        self._term_before = phase.seconds

    def _leave_term(self) -> None:
        assert self._running is not None
        self._end()
        self._running.seconds += self.phases[JOIN].seconds - self._term_before
        self._running = None


def _nodes(term: PhysicalTerm) -> list[list[int]]:
    """By factor, the current number of prefixes of each length, summed over its runs."""
    views, deltas, spines = term.sources
    found = []
    for factor, spine in enumerate(spines):
        headers = [run.buffer for run in spine.runs] if spine is not None else []
        _, with_delta, place = views[3 * factor : 3 * factor + 3].tolist()
        if with_delta and deltas[place]:
            size = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * len(
                term.plan.factors[factor].order
            )
            words = (ctypes.c_int64 * size).from_address(int(deltas[place]))
            headers.append(np.ctypeslib.as_array(words))
        first, words_per = (
            run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES,
            run_layout.LEVEL_HEADER_WORDS,
        )
        depths = range(term.plan.factors[factor].depth)
        found.append([sum(int(h[first + words_per * depth]) for h in headers) for depth in depths])
    return found
