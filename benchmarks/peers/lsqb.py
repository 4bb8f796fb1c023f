"""Measures LSQB: nine maintained counts over a social network; each step's answer is checked.

Every system loads the relations that a query reads, and counts once. Then it deletes 100 rows and
inserts 100 rows in turn (the rows of the delete before the last one), and counts after each step.
Relations that graph databases store as nodes (forums) do not change, because the databases would
have to delete the edges of the nodes as well. Some systems count from scratch after each change; a
column shows the time of that count alone. It is the smaller of two medians, one over the steps and
one over the unchanged tables, because Kùzu often chooses a slow plan after inserts.

Each system runs in a process of its own with one thread. The engine runs before and after the peers
of a query, so that a change of the machine's load affects both. The first steps are a warm-up. A
slow system takes fewer steps, and its ratio compares the engine's median of the same steps. The
answers are checked by DuckDB in this process after each step, and on the sample by the published
answers.

pydbsp is left out, because most queries have millions of intermediate rows, which are Python tuples
there. Pathway and delta SQL are left out for q7 (see `lsqb_joins`). Spark takes 20 s for a query,
so it runs only a few.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import lsqb
from benchmarks.peers.job import Job
from benchmarks.peers.lsqb_joins import JOINS
from benchmarks.peers.process import DriverRun, Message, run
from benchmarks.peers.systems import ENGINE, System
from benchmarks.recomputed import RecomputedQuery
from benchmarks.result import Row
from benchmarks.verdict import Verdict

WARM_UP_STEPS = 4
#: The messages of a driver that have an answer.
_ANSWERED = ("loaded", "recounted", "stepped")
#: The queries of peers that run only a few, because they are slow.
ONLY_QUERIES = {"spark-recompute": ("q3", "q6", "q9")}


@dataclass
class Lsqb:
    """The settings of a run.

    Attributes:
        peers: The peers in the order in which they run.
        threads: The number of threads of each system.
        rows: The rows of a step.
        deletes: The number of steps that delete; as many insert.
        seconds: The seconds after which no further step begins; two steps after the warm-up always
            run.
        limit: Seconds for one step.
        loading: Seconds for loading and the first count.
        memory: Bytes for one system.
        runs_engine_twice: True if the engine also runs after the peers.
        verdict: Collects the answers.
        progress: Prints a line of progress.
    """

    peers: Sequence[System]
    threads: int
    rows: int
    deletes: int
    seconds: float
    limit: float
    loading: float
    memory: int
    verdict: Verdict
    progress: Callable[[str], None]
    runs_engine_twice: bool = True

    def run(self, network: lsqb.Network, seed: int) -> list[Row]:
        """Measure all queries of the network; return their rows."""
        table: list[Row] = []
        for query in network.queries:
            self.progress(f"{query} on {network.name} ...")
            relations = lsqb.select_relations(network.relations, query)
            table += self._run_query(network, query, relations, seed)
        return table

    def _run_query(
        self, network: lsqb.Network, query: str, relations: lsqb.Relations, seed: int
    ) -> list[Row]:
        # Entities, whose names are one word, go last and so do not change.
        ordered = dict(sorted(relations.items(), key=lambda item: "_" not in item[0]))
        changing = {name: rows for name, rows in ordered.items() if "_" in name}
        row_numbers = lsqb.choose_rows(changing, self.rows, self.deletes, seed)
        self._set_truths(network, query, ordered, row_numbers)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.save(folder / "row_numbers.npy", row_numbers)
            for position, (relation, rows) in enumerate(ordered.items()):
                pq.write_table(rows, folder / f"{position:02}.{relation}.parquet")
            engine_runs = [self._run_system(query, ENGINE, folder)]
            peer_runs = [
                (peer, self._run_system(query, peer, folder))
                for peer in self.peers
                if query in ONLY_QUERIES.get(peer.name, network.queries)
            ]
            if self.peers and self.runs_engine_twice:
                engine_runs.append(self._run_system(query, ENGINE, folder))
        engine = [_steps(ended) for ended in engine_runs]
        runs = [(ENGINE, engine_runs[0]), *peer_runs]
        common: Row = {
            "network": network.name,
            "query": query,
            "rows loaded": sum(rows.num_rows for rows in relations.values()),
            "threads": self.threads,
            "rows/step": self.rows,
        }
        return [common | _row(system, ended, engine) for system, ended in runs]

    def _set_truths(
        self,
        network: lsqb.Network,
        query: str,
        relations: lsqb.Relations,
        row_numbers: NDArray[np.int64],
    ) -> None:
        """Compute the true count before the first and after each step."""
        tables = RecomputedQuery(relations, lsqb.views_of(query), threads=self.threads)
        text = lsqb.QUERIES[query]
        self.verdict.set_truth(_truth(query, 0), network.answers.get(query), tables.answer(text))
        steps = lsqb.alternate_changes(relations, row_numbers)
        for number, (weight, rows) in enumerate(steps, start=1):
            tables.change(rows, weight)
            self.verdict.set_truth(_truth(query, number), tables.answer(text))
        self.verdict.compare("DuckDB at the end", _truth(query, 0), tables.answer(text))

    def _run_system(self, query: str, system: System, folder: Path) -> DriverRun | str:
        """Run a system; return the run, or the reason why it was left out."""
        if not system.recounts and system is not ENGINE and query not in JOINS:
            return "not written: an outer join"
        job_folder = Path(tempfile.mkdtemp(dir=folder))
        for file in folder.glob("*.*"):
            (job_folder / file.name).symlink_to(file)
        job = Job(job_folder, system.name, query, "lsqb", self.threads, self.memory, self.seconds)
        ended = run(job, system, limit=self.limit, loading=self.loading)
        for event in _ANSWERED:
            for message in ended.messages_of(event):
                number = message["number"]
                subject = f"{system.name} after {number} steps"
                self.verdict.compare(subject, _truth(query, number), message["answer"])
        steps = _steps(ended)
        step_ms = f"{_median(steps, 'wall') * 1000:.3g} ms, {len(steps)} steps" if steps else ""
        messages = ended.messages_of("loaded")
        loaded = "".join(f"loaded in {message['wall']:.3g} s, " for message in messages)
        self.progress(f"  {system.name}: {loaded}{ended.failure or step_ms}")
        return ended


def _truth(query: str, number: int) -> str:
    return f"{query} after {number} steps"


def _steps(ended: DriverRun | str) -> list[Message]:
    """Return the steps after the warm-up."""
    steps = [] if isinstance(ended, str) else ended.messages_of("stepped")
    return [step for step in steps if step["number"] > WARM_UP_STEPS]


def _median(steps: Sequence[Message], name: str) -> float:
    return statistics.median(step[name] for step in steps)


def _row(system: System, ended: DriverRun | str, engine: Sequence[Sequence[Message]]) -> Row:
    """Return one row; if a system was stopped in a step, its ratios are lower bounds."""
    note = ended if isinstance(ended, str) else ended.failure
    loaded = [] if isinstance(ended, str) else ended.messages_of("loaded")
    is_engine = system is ENGINE
    steps = (
        [step for steps_of_run in engine for step in steps_of_run] if is_engine else _steps(ended)
    )
    max_steps = len(steps) if steps and not is_engine else None
    engine_steps = [step for steps_of_run in engine for step in steps_of_run[:max_steps]]
    step_s = _median(steps, "wall") if steps else None
    min_step_s = step_s  # a lower bound if the system was stopped in its first step
    if (
        step_s is None
        and isinstance(ended, DriverRun)
        and loaded
        and str(note).startswith("stopped")
    ):
        min_step_s = ended.cost_since_message.wall
    engine_s = _median(engine_steps, "wall") if engine_steps and not is_engine else None
    counts = [] if isinstance(ended, str) else [ended.messages_of("recounted"), steps]
    recount = min(
        (_median(messages, "count") for messages in counts if messages and system.recounts),
        default=None,
    )
    return {
        "system": system.name,
        "method": system.method,
        "load s": loaded[0]["wall"] if loaded else None,
        "count": loaded[0]["answer"] if loaded else None,
        "steps": len(steps) or None,
        "step ms": step_s * 1000 if step_s else None,
        "largest ms": max(step["wall"] for step in steps) * 1000 if steps else None,
        "recount ms": recount * 1000 if recount else None,
        "times faster": min_step_s / engine_s if min_step_s and engine_s else None,
        "times faster than the recount": recount / engine_s if recount and engine_s else None,
        "note": note,
    }
