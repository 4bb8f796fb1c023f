"""LIVE: the count maintained while edges come and go, by the engine and by each peer, checked.

Every system loads the same edges and then sees the same steps, of inserts, of deletes (what was
inserted, in another order) and of updates (half of a step's rows are deletes, half inserts), for
each batch size; so all phases start from the same state. Where a system takes no deletes its
phases insert ever new rows. A slow system takes fewer steps: rates are per row and the tables say
how many steps they rest on. After each phase the count is compared with an independent one.

The engine runs before and after the peers of a case, in a process of its own like theirs; its
figures are those of both runs together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.graph import Graph
from benchmarks.peers.job import Job
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.process import Ended, Message, run
from benchmarks.peers.systems import ENGINE, Edges, System
from benchmarks.peers.truth import truth
from benchmarks.result import Row
from benchmarks.verdict import Verdict

BARS = {"pathway": 100.0, "pydbsp": 1000.0, "spark-delta": 1000.0}
BAR_BATCH = 100
BAR_PATTERNS = ("triangles", "4-cliques")
STEPS = 2_000
CHANGES = ("insert", "delete", "update")


@dataclass(frozen=True)
class Stream:
    """A pattern over edges in their order of arrival, of which ``held`` are there at the start.

    Attributes:
        family: Patterns of one family grow: a peer that failed on one is not asked for the next.
        peers: Names of those who take part.
    """

    pattern: Pattern
    graph: Graph
    held: int
    batches: tuple[int, ...]
    peers: tuple[str, ...]
    family: str


@dataclass
class Live:
    """The settings of a run, and what it has learned about its peers.

    Attributes:
        peers: All that may take part, in order.
        threads: For each system.
        seconds: After so many no further step of a phase is begun.
        limit: Seconds beyond those that a phase may take before the system is stopped.
        loading: Seconds that a system may take to load.
        memory: Bytes for one system.
        again: The engine runs after the peers as well.
    """

    peers: Sequence[System]
    threads: int
    seconds: float
    limit: float
    loading: float
    memory: int
    verdict: Verdict
    progress: Callable[[str], None]
    again: bool = True
    _gone: dict[tuple[str, str], str] = field(default_factory=dict)

    def run(self, streams: Iterable[Stream]) -> list[Row]:
        rows: list[Row] = []
        for stream in streams:
            rows += self._stream(stream)
        return rows

    def _stream(self, stream: Stream) -> list[Row]:
        edges = np.stack([stream.graph.source, stream.graph.target])
        held, rest = edges[:, : stream.held], edges[:, stream.held :]
        self.progress(
            f"{stream.pattern.name} on {stream.graph.name}: {stream.held:,} edges held, "
            f"threads: {self.threads} ..."
        )
        rows: list[Row] = []
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.save(folder / "edges.npy", held)
            np.save(folder / "rest.npy", rest)
            first = self._maintain(stream, ENGINE, folder, held, rest)
            peers = [peer for peer in self.peers if peer.name in stream.peers]
            ended = [(peer, self._peer(stream, peer, folder, held, rest)) for peer in peers]
            engine = first.said("measured")
            if peers and self.again:
                second = self._maintain(stream, ENGINE, folder, held, rest)
                engine = [*engine, *second.said("measured")]
        together = _together(engine)
        rows += _rows(stream, ENGINE, self.threads, first, together, {})
        for peer, end in ended:
            measured = {} if isinstance(end, str) else _together(end.said("measured"))
            rows += _rows(stream, peer, self.threads, end, measured, together)
        return rows

    def _peer(
        self, stream: Stream, peer: System, folder: Path, held: Edges, rest: Edges
    ) -> Ended | str:
        """What came of it, or why it was not tried."""
        gone = self._gone.get((peer.name, stream.family))
        if gone:
            return f"not run: failed on {gone}"
        ended = self._maintain(stream, peer, folder, held, rest)
        if ended.failure and not ended.said("measured"):
            self._gone[peer.name, stream.family] = stream.pattern.name
        return ended

    def _maintain(
        self, stream: Stream, system: System, folder: Path, held: Edges, rest: Edges
    ) -> Ended:
        used = Path(tempfile.mkdtemp(dir=folder))
        for name in ("edges.npy", "rest.npy"):
            (used / name).symlink_to(folder / name)
        job = Job(
            folder=used,
            system=system.name,
            pattern=stream.pattern.name,
            kind="live",
            threads=self.threads,
            memory=self.memory,
            seconds=self.seconds,
            batches=stream.batches,
            changes=CHANGES if system.deletes else ("insert",),
            steps=STEPS,
        )
        ended = run(job, system, limit=self.seconds + self.limit, loading=self.loading)
        for one in ended.said("measured"):
            there = np.concatenate([held[:, one["gone"] :], rest[:, : one["added"]]], axis=1)
            name = (
                f"{'undirected ' if system.undirected else ''}{stream.pattern.name} of "
                f"{stream.graph.name}, {one['gone']} gone, {one['added']} added"
            )
            if name not in self.verdict.truths:
                found = truth(stream.pattern, there, undirected=system.undirected)
                self.verdict.truth(name, found)
            what = f"{system.name}, {one['change']} of {one['batch']}"
            self.verdict.compare(what, name, one["answer"])
        last = ended.said("measured")[-1:]
        told = f"{last[0]['rows'] / last[0]['wall']:,.0f} edges/s at the end" if last else ""
        self.progress(f"  {system.name}: {ended.failure or told}")
        return ended


@dataclass(frozen=True)
class _Phase:
    """All runs of one phase together."""

    steps: int
    rows: int
    wall: float
    cpu: float
    p50: float
    p99: float

    @staticmethod
    def of(messages: Sequence[Message]) -> _Phase:
        def total(name: str) -> float:
            return sum(one[name] for one in messages)

        runs = len(messages)
        return _Phase(
            int(total("steps")) // runs,
            int(total("rows")) // runs,
            total("wall") / runs,
            total("cpu") / runs,
            total("p50") / runs,
            max(one["p99"] for one in messages),
        )


def _together(messages: Sequence[Message]) -> dict[tuple[int, str], _Phase]:
    keys = dict.fromkeys((one["batch"], one["change"]) for one in messages)
    return {
        key: _Phase.of([one for one in messages if (one["batch"], one["change"]) == key])
        for key in keys
        if key[1] in CHANGES
    }


def _rows(
    stream: Stream,
    system: System,
    threads: int,
    end: Ended | str,
    measured: dict[tuple[int, str], _Phase],
    engine: dict[tuple[int, str], _Phase],
) -> list[Row]:
    """A row for each phase that was done, and one that says why there are no more."""
    failure = end if isinstance(end, str) else end.failure
    rows = [
        _row(stream, system, threads, key, phase, engine.get(key))
        for key, phase in measured.items()
    ]
    if failure:
        begun = None if isinstance(end, str) else (end.said("phase") or [None])[-1]
        if isinstance(begun, dict) and len(end.said("phase")) > len(end.said("measured")):  # type: ignore[union-attr]
            key = (begun["batch"], begun["change"])
        else:
            key = (stream.batches[0], "insert")
        rows.append(_row(stream, system, threads, key, None, None, failure))
    return rows


def _row(
    stream: Stream,
    system: System,
    threads: int,
    key: tuple[int, str],
    phase: _Phase | None,
    engine: _Phase | None,
    note: str | None = None,
) -> Row:
    batch, change = key
    faster = by_cpu = None
    if phase and engine:
        faster = engine.rows / engine.wall / (phase.rows / phase.wall)
        by_cpu = engine.rows / engine.cpu / (phase.rows / phase.cpu) if phase.cpu else None
    barred = batch == BAR_BATCH and stream.pattern.name in BAR_PATTERNS
    bar = BARS.get(system.name) if barred else None
    return {
        "graph": stream.graph.name,
        "edges held": stream.held,
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
        "times faster": faster,
        "by CPU": by_cpu,
        "bar": bar,
        "within": None if bar is None or faster is None else faster >= bar,
        "note": note,
    }
