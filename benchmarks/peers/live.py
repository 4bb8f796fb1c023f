"""Measures LIVE: a count maintained under inserts, deletes and updates; all answers are checked.

Every system loads the same edges and then gets the same steps for each batch size: inserts, deletes
of the inserted edges in another order, and updates (half of a step's rows are deletes, half are
inserts). So all phases start from the same state. If a system accepts no deletes, each phase
inserts new rows. After each phase the count is compared with an independent one.

A slow system takes fewer steps, and early steps are cheaper, because there are fewer edges. So
after each peer the engine runs exactly the peer's steps, and the ratios compare these. If a phase
is short, its time is the median of five runs with new views. The engine's own rows are of all steps
that it completes in the time that each peer has. Each system runs in a process of its own.

If a peer is stopped while it deletes its inserts, its time is a lower bound, because its steps are
known. If it is stopped earlier, there is no ratio.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.graph import Graph
from benchmarks.peers.job import Job, PhaseSteps
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.process import DriverRun, Message, run
from benchmarks.peers.systems import ENGINE, Edges, System
from benchmarks.peers.truth import count_rows
from benchmarks.result import Row
from benchmarks.verdict import Verdict

TARGETS = {"pathway": 100.0, "pydbsp": 1000.0, "spark-delta": 1000.0}
TARGET_BATCH = 100
TARGET_PATTERNS = ("triangles", "4-cliques")
MAX_STEPS = 2_000
ENGINE_RUNS = 5  # of the engine on a peer's steps
CHANGES = ("insert", "delete", "update")


@dataclass(frozen=True)
class Stream:
    """A pattern over edges in their order of arrival.

    Attributes:
        pattern: The counted pattern.
        graph: The edges.
        loaded: The number of edges that are loaded first; the others are inserted.
        batches: The numbers of rows in a step.
        peers: Names of the peers that take part.
        family: If a peer fails on a pattern, it does not run the larger ones of the same family.
    """

    pattern: Pattern
    graph: Graph
    loaded: int
    batches: tuple[int, ...]
    peers: tuple[str, ...]
    family: str


@dataclass
class Live:
    """The settings of a run, and the failures of its peers.

    Attributes:
        peers: All peers that may take part, in order.
        threads: Number of threads of each system.
        seconds: The seconds after which no further step of a phase begins.
        limit: Seconds that a phase may take in addition to ``seconds``; then the system is stopped.
        loading: Seconds that a system may take to load.
        memory: Bytes for one system.
        verdict: Collects the answers.
        progress: Prints a line of progress.
    """

    peers: Sequence[System]
    threads: int
    seconds: float
    limit: float
    loading: float
    memory: int
    verdict: Verdict
    progress: Callable[[str], None]
    # By peer and family: the pattern on which the peer failed.
    _failed_on: dict[tuple[str, str], str] = field(default_factory=dict)

    def run(self, streams: Iterable[Stream]) -> list[Row]:
        """Measure all streams; return their rows."""
        rows: list[Row] = []
        for stream in streams:
            rows += self._run_stream(stream)
        return rows

    def _run_stream(self, stream: Stream) -> list[Row]:
        edges = np.stack([stream.graph.source, stream.graph.target])
        loaded, unloaded = edges[:, : stream.loaded], edges[:, stream.loaded :]
        self.progress(
            f"{stream.pattern.name} on {stream.graph.name}: {stream.loaded:,} edges loaded, "
            f"threads: {self.threads} ..."
        )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.save(folder / "edges.npy", loaded)
            np.save(folder / "unloaded.npy", unloaded)
            engine = self._maintain(
                stream, ENGINE, folder, loaded, unloaded, self._job(stream, ENGINE)
            )
            rows = _rows(stream, ENGINE, self.threads, engine, _phases(engine), {})
            for peer in self.peers:
                if peer.name in stream.peers:
                    rows += self._run_peer(stream, peer, folder, loaded, unloaded)
        return rows

    def _run_peer(
        self, stream: Stream, peer: System, folder: Path, loaded: Edges, unloaded: Edges
    ) -> list[Row]:
        """Return the rows of a peer, with the engine's time for the same steps.

        If the peer is not run, its only row says why.
        """
        failed_on = self._failed_on.get((peer.name, stream.family))
        if failed_on:
            note = f"not run: did not finish on {failed_on}"
            return [_row(stream, peer, self.threads, (stream.batches[0], "insert"), note=note)]
        job = self._job(stream, peer)
        ended = self._maintain(stream, peer, folder, loaded, unloaded, job)
        measured = _phases(ended)
        if ended.failure and not measured:
            self._failed_on[peer.name, stream.family] = stream.pattern.name
        engine_job = same_steps(job, ended.messages_of("measured"))
        if not engine_job.phases:
            return _rows(stream, peer, self.threads, ended, {}, {})
        engine = self._maintain(stream, ENGINE, folder, loaded, unloaded, engine_job)
        return _rows(stream, peer, self.threads, ended, measured, _phases(engine))

    def _job(self, stream: Stream, system: System) -> Job:
        changes = ("insert", "update") if system.deletes else ("insert",)
        return Job(
            folder=Path(),
            system=system.name,
            pattern=stream.pattern.name,
            part="live",
            threads=self.threads,
            memory=self.memory,
            seconds=self.seconds,
            phases=tuple(
                PhaseSteps(batch, change, MAX_STEPS)
                for batch in stream.batches
                for change in changes
                if batch > 1 or change == "insert"
            ),
            deletes=system.deletes,
        )

    def _maintain(
        self, stream: Stream, system: System, folder: Path, loaded: Edges, unloaded: Edges, job: Job
    ) -> DriverRun:
        job_folder = Path(tempfile.mkdtemp(dir=folder))
        for name in ("edges.npy", "unloaded.npy"):
            (job_folder / name).symlink_to(folder / name)
        job = replace(job, folder=job_folder)
        ended = run(job, system, limit=self.seconds + self.limit, loading=self.loading)
        for message in ended.messages_of("measured"):
            deleted, added = message["deleted"], message["added"]
            edges = np.concatenate([loaded[:, deleted:], unloaded[:, :added]], axis=1)
            name = (
                f"{'undirected ' if system.undirected else ''}{stream.pattern.name} of "
                f"{stream.graph.name}, {deleted} deleted, {added} added"
            )
            if name not in self.verdict.truths:
                count = count_rows(stream.pattern, edges, undirected=system.undirected)
                self.verdict.set_truth(name, count)
            subject = f"{system.name}, {message['change']} of {message['batch']}"
            self.verdict.compare(subject, name, message["answer"])
        last = ended.messages_of("measured")[-1:]
        last_rate = f"{last[0]['rows'] / last[0]['wall']:,.0f} edges/s at the end" if last else ""
        self.progress(f"  {system.name}: {ended.failure or last_rate}")
        return ended


def same_steps(job: Job, measured: Sequence[Message]) -> Job:
    """Return a job in which the engine runs exactly the steps of a peer, several times."""
    steps = tuple(
        PhaseSteps(message["batch"], message["change"], message["steps"])
        for message in measured
        if message["change"] in ("insert", "update")
    )
    return replace(job, system=ENGINE.name, phases=steps, seconds=math.inf, repeat=ENGINE_RUNS)


@dataclass(frozen=True)
class _Phase:
    """The number of steps and rows of a phase, and its times in seconds."""

    steps: int
    rows: int
    wall: float
    cpu: float
    p50: float
    p99: float

    @staticmethod
    def from_runs(messages: Sequence[Message]) -> _Phase:
        """Return the medians of several runs of the same steps."""

        def median(name: str) -> float:
            return statistics.median(message[name] for message in messages)

        return _Phase(
            messages[0]["steps"],
            messages[0]["rows"],
            median("wall"),
            median("cpu"),
            median("p50"),
            median("p99"),
        )


_Phases = dict[tuple[int, str], _Phase]


def _phases(ended: DriverRun) -> _Phases:
    """Return the medians of the runs of each phase, by batch size and change."""
    runs: dict[tuple[int, str], list[Message]] = {}
    for message in ended.messages_of("measured"):
        if message["change"] in CHANGES:
            runs.setdefault((message["batch"], message["change"]), []).append(message)
    return {key: _Phase.from_runs(messages) for key, messages in runs.items()}


def _rows(
    stream: Stream,
    system: System,
    threads: int,
    ended: DriverRun,
    measured: _Phases,
    engine: _Phases,
) -> list[Row]:
    """Return a row for each phase, and one that says why there are no more."""
    rows = [
        _row(stream, system, threads, key, phase, engine.get(key))
        for key, phase in measured.items()
    ]
    if ended.failure:
        started = ended.messages_of("phase")
        key = (stream.batches[0], "insert")
        if len(started) > len(ended.messages_of("measured")):  # the last phase did not end
            key = (started[-1]["batch"], started[-1]["change"])
        bound = None
        if key in engine and ended.failure.startswith("stopped"):  # while it deleted its inserts
            bound = replace(
                engine[key], wall=ended.cost_since_message.wall, cpu=ended.cost_since_message.cpu
            )
        row = _row(stream, system, threads, key, bound, engine.get(key), ended.failure)
        if bound and row["met"] is False:
            row["met"] = None  # it was stopped before the target was reached
        rows.append(row | dict.fromkeys(("edges/s", "edges/CPU s", "p50 ms", "p99 ms")))
    return rows


def _row(
    stream: Stream,
    system: System,
    threads: int,
    key: tuple[int, str],
    phase: _Phase | None = None,
    engine: _Phase | None = None,
    note: str | None = None,
) -> Row:
    batch, change = key
    has_target = batch == TARGET_BATCH and stream.pattern.name in TARGET_PATTERNS
    target = TARGETS.get(system.name) if has_target else None
    faster = phase.wall / engine.wall if phase and engine else None
    return {
        "graph": stream.graph.name,
        "edges held": stream.loaded,
        "query": stream.pattern.name,
        "system": system.name,
        "method": system.method,
        "threads": threads,
        "batch": batch,
        "change": change,
        "steps": phase.steps if phase else None,
        "edges/s": phase.rows / phase.wall if phase else None,
        "edges/CPU s": phase.rows / phase.cpu if phase and phase.cpu else None,
        "p50 ms": phase.p50 * 1000 if phase else None,
        "p99 ms": phase.p99 * 1000 if phase else None,
        "engine edges/s": engine.rows / engine.wall if engine else None,
        "times faster": faster,
        "times faster, CPU": phase.cpu / engine.cpu if phase and engine and engine.cpu else None,
        "target": target,
        "met": None if target is None or faster is None else faster >= target,
        "note": note,
    }
