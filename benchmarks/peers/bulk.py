"""Measures BULK: one count from scratch, by the engine and by each peer; all answers are checked.

The engine gets the edges in arrays, in random order, and its time includes sorting and indexing. A
peer gets them sorted, and its loading is not timed. The engine runs before and after the peers of
each case, so that a change of the machine's load affects both; the median counts. If a process
counts several times, its first count is left out, because a virtual machine provides memory slowly
at its first use.

If a peer fails or is stopped while it counts, its time is a lower bound. It does not run on the
next graphs with the same pattern, unless its plan is worst-case optimal, which has a target on
every graph. All peers but Kùzu run with the largest number of threads only. Systems without a
planner for such joins (DuckDB, the libraries) have a limit of time for each pattern. `plans`
compares worst-case-optimal plans with forced plans of binary joins, as the authors of Kùzu did.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.cost import Cost, median
from benchmarks.graph import Graph
from benchmarks.peers.job import Job
from benchmarks.peers.pattern import TRIANGLES, Pattern
from benchmarks.peers.process import DriverRun, Message, run
from benchmarks.peers.systems import ENGINE, KUZU, Edges, System
from benchmarks.peers.truth import count_rows
from benchmarks.result import Cell, Row
from benchmarks.verdict import Verdict

#: How many times faster than a worst-case-optimal (WCO) plan the engine has to be.
TARGET = 10.0
_WCO, _BINARY = "WCO plan", "binary joins"


@dataclass(frozen=True)
class Case:
    """A pattern on a graph.

    Attributes:
        published: The published count, if any.
        binary: True if forced plans of binary joins take part.
    """

    pattern: Pattern
    graph: Graph
    published: int | None = None
    binary: bool = True


@dataclass
class Bulk:
    """The settings of a run, the failures of its peers, and the time that they used.

    Attributes:
        peers: The peers in the order in which they run.
        threads: The numbers of threads to run with.
        limit: Seconds for one count.
        plan_limit: Seconds for one count by a forced plan of binary joins.
        allowance: Seconds that a system without a planner for such joins may use for a pattern.
        memory: Bytes for one system.
        verdict: Collects the answers.
        progress: Prints a line of progress.
        repeat: How often each process counts, unless that is long; the first count is left out.
        runs_engine_twice: True if the engine also runs after the peers.
    """

    peers: Sequence[System]
    threads: Sequence[int]
    limit: float
    plan_limit: float
    allowance: float
    memory: int
    verdict: Verdict
    progress: Callable[[str], None]
    repeat: int = 4
    runs_engine_twice: bool = True
    # By system and pattern: the graph on which the system failed, and the seconds that it used.
    _failed_on: dict[tuple[str, str], str] = field(default_factory=dict)
    _seconds_used: dict[tuple[str, str], float] = field(default_factory=dict)

    def run(self, cases: Iterable[Case]) -> list[Row]:
        """Measure all cases, given in order of size for each pattern; return their rows."""
        rows: list[Row] = []
        for case in cases:
            rows += self._run_case(case)
        return rows

    def _run_case(self, case: Case) -> list[Row]:
        edges = np.stack([case.graph.source, case.graph.target])
        self._set_truths(case, edges)
        rows: list[Row] = []
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "edges.npy"), edges)
            for threads in self.threads:
                self.progress(
                    f"{case.pattern.name} on {case.graph.name}: "
                    f"{case.graph.edges:,} edges, threads: {threads} ..."
                )
                rows += self._compare(case, threads, Path(folder))
        return rows

    def _compare(self, case: Case, threads: int, folder: Path) -> list[Row]:
        first = self._count(case, ENGINE, threads, folder)
        peer_runs: list[tuple[System, DriverRun | str]] = []
        for peer in self.peers:
            if peer.method == _BINARY and not case.binary:
                continue
            if peer is KUZU or threads == max(self.threads):
                peer_runs.append((peer, self._run_peer(case, peer, threads, folder)))
        counts = _counts_after_warm_up(first)
        if self.peers and self.runs_engine_twice:
            counts = counts + _counts_after_warm_up(self._count(case, ENGINE, threads, folder))
        engine = median([_cost(message) for message in counts]) if counts else None
        indexed = first.messages_of("indexed")
        index = min((message["wall"] for message in indexed), default=None)
        answer = counts[0]["answer"] if counts else None
        rows = [_row(case, ENGINE, threads, engine, answer=answer, index=index, note=first.failure)]
        return rows + [_peer_row(case, peer, threads, ended, engine) for peer, ended in peer_runs]

    def _run_peer(self, case: Case, peer: System, threads: int, folder: Path) -> DriverRun | str:
        """Return the run of a peer, or the reason why it was not run."""
        has_allowance = peer.method not in (_WCO, _BINARY)
        key = (peer.name, case.pattern.name)
        limit = self.plan_limit if peer.method == _BINARY else self.limit
        seconds_left = limit
        if has_allowance:
            seconds_left = self.allowance - self._seconds_used.get(key, 0.0)
        graph = self._failed_on.get(key)
        if graph and graph != case.graph.name and peer.method != _WCO:
            return f"not run: did not finish on {graph}"
        if seconds_left <= 1:
            return f"not run: its {self.allowance:.0f} s for this query are used up"
        ended = self._count(case, peer, threads, folder, min(seconds_left, limit))
        seconds = sum(message["wall"] for message in ended.messages_of("counted"))
        if ended.failure:
            seconds += ended.cost_since_message.wall
            self._failed_on[key] = case.graph.name
        self._seconds_used[key] = self._seconds_used.get(key, 0.0) + seconds
        return ended

    def _count(
        self, case: Case, system: System, threads: int, folder: Path, limit: float | None = None
    ) -> DriverRun:
        """Run a system, and compare its answers with the truth."""
        job_folder = Path(tempfile.mkdtemp(dir=folder))
        (job_folder / "edges.npy").symlink_to(folder / "edges.npy")
        job = Job(
            folder=job_folder,
            system=system.name,
            pattern=case.pattern.name,
            part="bulk",
            threads=threads,
            memory=self.memory,
            seconds=2.0,
            repeat=self.repeat,
        )
        ended = run(job, system, limit=limit or self.limit)
        name = _truth(case, system)
        for message in ended.messages_of("counted"):
            self.verdict.compare(f"{system.name}, {threads} threads", name, message["answer"])
        self.progress(f"  {system.name}: {_describe_run(ended)}")
        return ended

    def _set_truths(self, case: Case, edges: Edges) -> None:
        answer = count_rows(case.pattern, edges)
        self.verdict.set_truth(_truth(case, ENGINE), case.published, answer)
        for peer in self.peers:
            if peer.undirected and _truth(case, peer) not in self.verdict.truths:
                answer = count_rows(case.pattern, edges, undirected=True)
                self.verdict.set_truth(_truth(case, peer), answer)


def _truth(case: Case, system: System) -> str:
    prefix = "undirected " if system.undirected else ""
    return f"{prefix}{case.pattern.name} of {case.graph.name}"


def _cost(message: Message) -> Cost:
    return Cost(message["wall"], message["cpu"])


def _describe_run(ended: DriverRun) -> str:
    """Return the failure of a run, or else its fastest count."""
    counted = ended.messages_of("counted")
    fastest = f"{min(message['wall'] for message in counted):.3g} s" if counted else ""
    return ended.failure or fastest


def _peer_row(
    case: Case, peer: System, threads: int, ended: DriverRun | str, engine: Cost | None
) -> Row:
    if isinstance(ended, str):
        return _row(case, peer, threads, None, engine=engine, note=ended)
    counted = _counts_after_warm_up(ended)
    if counted:
        cost = median([_cost(message) for message in counted])
        answer = counted[0]["answer"]
        return _row(case, peer, threads, cost, engine=engine, answer=answer, note=ended.failure)
    if not ended.messages_of("count"):
        return _row(case, peer, threads, None, engine=engine, note=ended.failure)
    note = str(ended.failure)
    if not note.startswith("stopped"):
        note = f"stopped after {ended.cost_since_message.wall:.3g} s, {note}"
    return _row(case, peer, threads, ended.cost_since_message, engine=engine, note=note)


def _counts_after_warm_up(ended: DriverRun) -> list[Message]:
    """Return the counts of a process without the first one, if there are several."""
    counted = ended.messages_of("counted")
    return list(counted[1:] or counted)


def _row(
    case: Case,
    system: System,
    threads: int,
    cost: Cost | None,
    *,
    answer: int | None = None,
    index: float | None = None,
    engine: Cost | None = None,
    note: str | None = None,
) -> Row:
    """Return one row; if a peer was stopped, its ratios are lower bounds."""
    faster = cost.wall / engine.wall if cost and engine else None
    target = TARGET if system.method == _WCO else None
    met = None if target is None or faster is None else faster >= target
    if met is False and answer is None:
        met = None  # the peer was stopped before the target was reached
    return {
        "graph": case.graph.name,
        "edges": case.graph.edges,
        "query": case.pattern.name,
        "system": system.name,
        "method": system.method,
        "threads": threads,
        "seconds": cost.wall if cost else None,
        "of which index": index,
        "CPU seconds": cost.cpu if cost else None,
        "count": answer,
        "times faster": faster,
        "times faster, CPU": cost.cpu / engine.cpu if cost and engine else None,
        "target": target,
        "met": met,
        "note": note,
    }


def plans(rows: Sequence[Row]) -> list[Row]:
    """Compare the two kinds of plan in the systems that ran both.

    A binary plan that was stopped gives a lower bound; one that failed gives none.
    """
    seconds = {
        (row["graph"], row["query"], row["threads"], row["system"]): row["seconds"] for row in rows
    }
    table: list[Row] = []
    for row in rows:
        graph, query, threads, name = row["graph"], row["query"], row["threads"], row["system"]
        if row["method"] != _BINARY:
            continue
        wco = seconds.get((graph, query, threads, str(name).removesuffix("-binary")))
        engine = seconds.get((graph, query, threads, ENGINE.name))
        binary = row["seconds"]
        table.append(
            {
                "graph": graph,
                "query": query,
                "system": str(name).removesuffix("-binary"),
                "threads": threads,
                "WCO plan s": wco,
                "binary plan s": binary,
                "binary/WCO": _ratio(binary, wco),
                "WCO/engine": _ratio(wco, engine),
                "binary/engine": _ratio(binary, engine),
                "note": row["note"],
            }
        )
    return table


def _ratio(dividend: Cell, divisor: Cell) -> float | None:
    return float(dividend) / float(divisor) if dividend and divisor else None


def time_kuzu(graph: Graph, *, memory: int = 8 << 30) -> Cost:
    """Time Kùzu's count of triangles on one thread, median of three: the speed of this machine.

    Raises:
        RuntimeError: Kùzu failed; the message says why.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        np.save(path / "edges.npy", np.stack([graph.source, graph.target]))
        job = Job(path, "kuzu", TRIANGLES.name, "bulk", 1, memory, math.inf, repeat=3)
        ended = run(job, KUZU, limit=600.0)
    if ended.failure:
        raise RuntimeError(f"Kùzu {ended.failure}")
    return median([_cost(message) for message in ended.messages_of("counted")])
