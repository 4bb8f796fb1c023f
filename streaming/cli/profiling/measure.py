"""Run the same steps three times: as a warm-up, without the profiler, and with it.

The plain times, those without the profiler, are the cost of a step. The profiled times show its
parts, and are longer by the overhead of the profiler; the result has both. A level of a join is one
of its variables. The time of a level is sampled: a thread notes from time to time which level runs.
Therefore the profiled steps are repeated for at least `MIN_PROFILE_S`. With a state directory, each
step is written as in the sink: deltas, segments and a manifest, with their syncs. Spark's own part
of a micro-batch is not measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Final

import numpy as np

from circuits import Circuit
from circuits.runtime.state_names import StateNames
from dbsp_wcoj import warm_up
from dbsp_wcoj.execution.profiler import Profiler
from dbsp_wcoj.planning.level_profile import LevelProfile, level_profiles
from streaming.cli.profiling.rows import Stream
from streaming.state.store import Store

__all__ = ["ArrangementProfile", "Part", "Profile", "TermTimes", "measure"]

#: The least duration of the profiled steps.
MIN_PROFILE_S: Final = 1.0
MAX_PASSES: Final = 50


@dataclass(frozen=True)
class Part:
    """A phase of the steps, or their remaining time.

    Attributes:
        phase: The name of the phase or operator; ``other`` for the remaining time.
        ms: The mean milliseconds per step.
        share: The fraction of the time of the steps.
        calls: The mean number of calls per step.
        rows: The mean number of rows per step.
    """

    phase: str
    ms: float
    share: float
    calls: float
    rows: float


@dataclass(frozen=True)
class TermTimes:
    """A term of a join.

    Attributes:
        join: The name of the join; empty if the term is no longer in the plan.
        term: The term as text.
        runs: How often the term runs in a step, on average.
        ms: The mean milliseconds per step.
        levels: The levels of the term, with the counts of one run.
    """

    join: str
    term: str
    runs: float
    ms: float
    levels: list[LevelProfile]


@dataclass(frozen=True)
class ArrangementProfile:
    """An arrangement after the last step; ``runs`` counts its sorted runs."""

    name: str
    columns: int
    rows: int
    runs: int
    bytes: int


@dataclass(frozen=True)
class Profile:
    """The results of a measurement; times are in milliseconds.

    Attributes:
        loaded: The rows of the initial load.
        load_ms: The time of the load.
        batch: The mean number of rows of a step.
        steps: The number of steps.
        median_ms: The median time of a step without the profiler.
        mean_ms: The mean of these times.
        p99_ms: The 99th percentile of these times.
        profiled_ms: The mean time of a step with the profiler.
        rows_out: The mean number of changed rows of all views per step.
        parts: The phases of a step.
        queries: The query of each join.
        terms: The terms of the joins.
        state: The arrangements after the last step.
        written: The mean number of bytes written per step; None if nothing is written.
    """

    loaded: int
    load_ms: float
    batch: float
    steps: int
    median_ms: float
    mean_ms: float
    p99_ms: float
    profiled_ms: float
    rows_out: float
    parts: list[Part]
    queries: dict[str, str]
    terms: list[TermTimes]
    state: list[ArrangementProfile]
    written: float | None


class _Steps:
    """Runs steps of a circuit, and writes them to a store if there is one."""

    def __init__(self, circuit: Circuit, store: Store | None) -> None:
        self.circuit, self.store = circuit, store
        self.batch_id = 0
        self.rows_out = 0
        self.written = 0

    def __call__(self, tables: dict[str, Any]) -> float:
        """Run a step; return its seconds."""
        start = perf_counter()
        store = self.store
        if store is not None:
            store.find(self.batch_id, None)
        step = self.circuit.prepare(tables, now=datetime.now(UTC))
        if store is not None:
            outputs, digests = step.outputs, step.digests
            store.write(self.batch_id, None, step, outputs=outputs, digests=digests)
            self.written += store.bytes_written
        step.commit()
        if store is not None:
            store.confirm_commit()
        seconds = perf_counter() - start
        self.batch_id += 1
        self.rows_out += sum(table.num_rows for table in step.outputs.values())
        return seconds


def measure(
    circuit: Circuit,
    stream: Stream,
    *,
    store: Store | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Profile:
    """Run the steps of a stream through a circuit that has no state yet.

    Args:
        circuit: The views.
        stream: The initial load, and the steps.
        store: Receives each step; None to write nothing.
        report: Receives lines of progress.
    """
    report("compiling, once on a machine ...")
    warm_up()
    run_step = _Steps(circuit, store)
    report(f"loading {stream.rows:,} rows ...")
    load_s = run_step(stream.load)
    report(f"{len(stream.steps)} steps as a warm-up ...")
    for tables in stream.steps:
        run_step(tables)
    report(f"{len(stream.steps)} steps ...")
    plain = [run_step(tables) for tables in stream.steps]
    report(f"{len(stream.steps)} steps, profiled, for at least a second ...")
    run_step.rows_out = run_step.written = 0
    # An observed thread works alone, so the profile is that of one thread.
    with ThreadPoolExecutor(1) as executor, Profiler(perf_counter, executor) as profiler:
        profiled = [run_step(tables) for tables in stream.steps]
        while sum(profiled) < MIN_PROFILE_S and len(profiled) < MAX_PASSES * len(stream.steps):
            profiled += [run_step(tables) for tables in stream.steps]
    steps = len(profiled)
    return Profile(
        loaded=stream.rows,
        load_ms=1000 * load_s,
        batch=stream.batch,
        steps=len(stream.steps),
        median_ms=1000 * statistics.median(plain),
        mean_ms=1000 * statistics.fmean(plain),
        p99_ms=1000 * float(np.quantile(plain, 0.99, method="higher")),
        profiled_ms=1000 * statistics.fmean(profiled),
        rows_out=run_step.rows_out / steps,
        parts=_parts(profiler, sum(profiled), steps),
        queries={name: str(view.query) for name, view in circuit.graph.joins.items()},
        terms=_terms(circuit, profiler, steps),
        state=_state(circuit),
        written=None if store is None else run_step.written / steps,
    )


def _parts(profiler: Profiler, total: float, steps: int) -> list[Part]:
    """Return the phases in the order of their first call, and the remaining time."""
    parts = [
        Part(
            name,
            1000 * phase.seconds / steps,
            phase.seconds / total,
            phase.calls / steps,
            phase.rows / steps,
        )
        for name, phase in profiler.phases.items()
        if phase.calls or phase.seconds
    ]
    remaining = total - sum(phase.seconds for phase in profiler.phases.values())
    return [*parts, Part("other", 1000 * remaining / steps, remaining / total, 0.0, 0.0)]


def _terms(circuit: Circuit, profiler: Profiler, steps: int) -> list[TermTimes]:
    """Return the terms that ran; a term that was replaced by a new plan has no name."""
    names_by_term = {
        id(bound.physical): (name, str(bound.term))
        for name, view in circuit.graph.joins.items()
        for bound in view.terms
    }
    terms = []
    for key, term in profiler.terms.items():
        name, text = names_by_term.get(key, ("", "replaced by a new plan"))
        levels = level_profiles(profiler, term)
        terms.append(TermTimes(name, text, term.calls / steps, 1000 * term.seconds / steps, levels))
    return terms


def _state(circuit: Circuit) -> list[ArrangementProfile]:
    arrangements = []
    names = StateNames(circuit.graph)
    for stored_name, trace in circuit.graph.traces.items():
        for arrangement in trace.arrangements:
            spine = arrangement.spine
            name = names.name(stored_name, arrangement.order)
            runs = len(spine.runs)
            arrangements.append(
                ArrangementProfile(name, trace.arity, spine.rows, runs, spine.nbytes)
            )
    return arrangements
