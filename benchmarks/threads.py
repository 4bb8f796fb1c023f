"""THREADS: how much of a step several threads can share.

    python -m benchmarks.threads [--case triangles] [--scale 0.2] [--wall] [--json FILE]

Each case is a circuit, a load and some steps of 10,000 rows. Three tables:

- *Work and span*: one thread is enough for this table. It runs all tasks of a step, which is
  divided as for 64 threads, one after the other. The work is the CPU time of the step. The span is
  the time of its longest chain of tasks that wait for each other. Threads that never wait while
  there is a task take at most span + (work - span) / threads, Brent's bound [1]; the speed-up is
  that of this bound. It leaves out that Python code of several threads does not run at the same
  time.
- *Shares* counts the candidates (proposals and intersections) of the parts of all joins of the last
  step, and deals them to 2 to 64 threads (`dbsp_wcoj.workers.count_shares`). It is the largest
  share; 1 is an even one.
- *Wall time*, with ``--wall``: each repetition runs all steps with one thread, then with two. Each
  step counts with its least time, and the table has the median of the steps. It needs two idle
  cores. Two cores share caches and memory, so they are not twice as fast as one.

The deltas and the states of a step that is divided, and of two threads, are compared with those of
one thread. The exit status is 1 if they differ; a missed target does not change it.

References:
    [1] Brent. The Parallel Evaluation of General Arithmetic Expressions. JACM 21(2), 1974.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Annotated, Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import typer

from benchmarks import lsqb, nexmark
from benchmarks.nexmark_events import micro_batches
from benchmarks.result import Result, Row, terminal
from benchmarks.shared_data import SHARED
from benchmarks.tpch.data import program, read_tables, relations_of, schemas_of, write_files
from benchmarks.tpch.queries import QUERIES
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_sql
from dbsp_wcoj import warm_up
from dbsp_wcoj.workers import Job, Workers, count_shares, working_with

CLAIM: Final = "THREADS: two threads take a large step at least 1.7 times as fast as one"
TARGET: Final = 1.7
THREADS: Final = (2, 4, 8, 16, 32, 64)
STEP_ROWS: Final = 10_000
STEPS: Final = 5
EDGES: Final = 1_000_000
SAMPLE_NETWORK: Final = SHARED / "data" / "lsqb" / "ldbc-snb-sample"
TRIANGLES: Final = """SELECT {} FROM e x JOIN e y ON y.src = x.dst
    JOIN e z ON z.src = x.src AND z.dst = y.dst {}"""

Delta = dict[str, pa.Table]


@dataclass
class _Frame:
    """The task that runs: its job, when it became ready, and its span so far."""

    resumed: float
    span: float = 0.0
    job: Job | None = None
    ready: float = 0.0


class SerialWorkers(Workers):
    """Workers that run all tasks in the calling thread, and measure work and span.

    Attributes:
        candidates: The candidates of each part of a join.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(ThreadPoolExecutor(1), threads)  # the executor is never used
        self.candidates: list[int] = []
        self._frames = [_Frame(time.thread_time())]

    def measure(self, step: Callable[[], Any]) -> tuple[float, float]:
        """Return the seconds of work, and of span, of a function that runs tasks."""
        begin = time.thread_time()
        self._frames = [_Frame(begin)]
        step()
        self._pause()
        return time.thread_time() - begin, self._frames[0].span

    def add(self, job: Job, task: Callable[[], Any]) -> None:
        """Keep a task; one that a task of its job adds is ready at this point of its span."""
        frame = self._frames[-1]
        ready = 0.0
        if frame.job is job:
            self._pause()
            ready = frame.ready + frame.span
        number = job.added
        job.unclaimed.append((job, number, lambda: (ready, task)))  # type: ignore[arg-type]
        job.added += 1

    def _finish(self, job: Job) -> list[Any]:
        """Run the tasks of a job, and return their results."""
        self._pause()
        span = 0.0
        while job.unclaimed:
            _, number, entry = job.unclaimed.popleft()
            ready, task = entry()
            self._frames.append(_Frame(time.thread_time(), job=job, ready=ready))
            try:
                result = job.results[number] = task()
                self._pause()
            finally:
                frame = self._frames.pop()
            span = max(span, ready + frame.span)
            # A part of a join returns its result and its counters, one row per level.
            counters = result[1] if isinstance(result, tuple) and len(result) == 2 else None
            if isinstance(counters, np.ndarray) and counters.ndim == 2:
                self.candidates.append(int(counters.sum()))
        self._frames[-1].resumed = time.thread_time()
        self._frames[-1].span += span
        return [job.results[number] for number in range(job.added)]

    def _pause(self) -> None:
        now, frame = time.thread_time(), self._frames[-1]
        frame.span += now - frame.resumed
        frame.resumed = now


@dataclass(frozen=True)
class Case:
    """A circuit by number of threads, and its steps; the first one is the load."""

    compile: Callable[[int], Circuit]
    steps: Sequence[Delta]


def triangles(select: str, group: str, power: float, seed: int) -> Case:
    """Return the triangles of a graph with hubs; the smaller ``power``, the larger they are."""
    rng = np.random.default_rng(seed)
    rows, nodes = EDGES + STEPS * STEP_ROWS, EDGES // 10
    source = (nodes * rng.power(power, rows)).astype(np.int64)
    edges = pa.table({"src": source, "dst": rng.integers(0, nodes, rows)})
    schema = pa.schema([field.with_nullable(False) for field in edges.schema])
    text = TRIANGLES.format(select, group)
    steps = [{"e": edges.slice(0, EDGES)}]
    steps += [{"e": edges.slice(EDGES + k * STEP_ROWS, STEP_ROWS)} for k in range(STEPS)]
    return Case(lambda threads: compile_sql(text, {"e": schema}, threads=threads), steps)


def tpch(numbers: Sequence[int], folder: Path, scale: float) -> Case:
    """Return some queries of TPC-H; a step has 10,000 lineitems and 2,500 orders."""
    tables = read_tables(write_files(folder, scale), relations_of(numbers))
    parts: list[Delta] = [dict(tables), *({} for _ in range(STEPS))]
    for name, rows in (("lineitem", STEP_ROWS), ("orders", STEP_ROWS // 4)):
        if name in tables:
            loaded = tables[name].num_rows - STEPS * rows
            parts[0][name] = tables[name].slice(0, loaded)
            for k, part in enumerate(parts[1:]):
                part[name] = tables[name].slice(loaded + k * rows, rows)
    text, schemas = program(list(numbers)), schemas_of(list(numbers))
    return Case(lambda threads: compile_sql(text, schemas, threads=threads), parts)


def lsqb_views(seed: int) -> Case:
    """Return all queries of LSQB on its sample network; without it, some on a generated one."""
    network = lsqb.load_network(SAMPLE_NETWORK, people=20_000, seed=seed)
    relations = lsqb.select_relations(network.relations, *network.queries)
    changed = lsqb.choose_rows(relations, STEP_ROWS, STEPS, seed)
    loaded = np.setdiff1d(np.arange(sum(t.num_rows for t in relations.values())), changed)
    steps = [lsqb.take_rows(relations, numbers) for numbers in (loaded, *changed)]
    text = lsqb.view_statements(*network.queries)
    schemas = {name: table.schema for name, table in relations.items()}
    return Case(
        lambda threads: compile_sql(text, schemas, outputs=list(network.queries), threads=threads),
        steps,
    )


def nexmark_query(query: str, seed: int) -> Case:
    """Return a query of Nexmark, in micro-batches of 10,000 events."""
    text = nexmark.sql_program(query)
    inputs = nexmark.read_inputs(compile_sql(text))
    batches = micro_batches(STEP_ROWS * (STEPS + 1), STEP_ROWS, seed=seed)
    steps = [{n: rows for n, rows in batch.items() if n in inputs} for batch in batches]
    return Case(lambda threads: compile_sql(text, threads=threads), steps)


def cases(folder: Path, scale: float, seed: int) -> dict[str, Callable[[], Case]]:
    """Return the cases by name."""
    return {
        "triangles": lambda: triangles("count(*) AS n", "", 0.5, seed),
        "triangles, large hubs": lambda: triangles("count(*) AS n", "", 0.2, seed),
        "triangles by node": lambda: triangles("x.src, count(*) AS n", "GROUP BY x.src", 0.5, seed),
        "tpch 1": lambda: tpch([1], folder, scale),
        "tpch 3": lambda: tpch([3], folder, scale),
        "tpch 9": lambda: tpch([9], folder, scale),
        "tpch, 22 views": lambda: tpch(list(QUERIES), folder, scale),
        "lsqb, all views": lambda: lsqb_views(seed),
        "nexmark q4": lambda: nexmark_query("q4", seed),
        "nexmark q9": lambda: nexmark_query("q9", seed),
        "nexmark q15": lambda: nexmark_query("q15", seed),
    }


@contextmanager
def measured(circuit: Circuit, workers: SerialWorkers) -> Iterator[None]:
    """Let a circuit use workers that measure."""
    with patch.object(circuit, "_workers", workers):
        yield


def work_rows(name: str, case: Case, verdict: Verdict) -> tuple[list[Row], list[Row]]:
    """Return the rows of a case in the tables of work and of shares."""
    alone, shared = case.compile(1), case.compile(2)
    expected = f"{name}: as with one thread"
    verdict.set_truth(expected, True)
    kinds: dict[str, list[tuple[float, float]]] = {"load": [], "step": []}
    shares: list[Row] = []
    for number, step in enumerate(case.steps):
        kind = "step" if number else "load"
        workers = SerialWorkers(THREADS[-1])
        deltas: list[Delta] = []
        with measured(shared, workers):
            kinds[kind].append(
                workers.measure(lambda step=step, deltas=deltas: deltas.append(shared.step(step)))  # type: ignore[misc]
            )
        verdict.compare("the deltas of divided work", expected, deltas == [alone.step(step)])
    verdict.compare("the state of divided work", expected, has_equal_states(alone, shared))
    if workers.candidates:
        row: Row = {"case": name, "candidates": sum(workers.candidates)}
        for threads in THREADS:
            largest = max(count_shares(workers.candidates, threads))
            row[f"{threads} threads"] = largest * threads / sum(workers.candidates)
        shares.append(row)
    rows: list[Row] = []
    for kind, times in kinds.items():
        work, span = (median(column) for column in zip(*times, strict=True))
        row = {"case": name, "step": kind, "work ms": 1e3 * work, "span ms": 1e3 * span}
        for threads in THREADS:
            row[f"{threads} threads"] = work / (span + (work - span) / threads)
        rows.append(row)
    return rows, shares


def has_equal_states(one: Circuit, other: Circuit) -> bool:
    """Return whether all traces of two circuits have the same rows, codes and weights."""
    left, right = one.snapshot().traces, other.snapshot().traces
    return left.keys() == right.keys() and all(
        np.array_equal(a, b) for name in left for a, b in zip(left[name], right[name], strict=True)
    )


def wall_row(name: str, case: Case, repetitions: int, verdict: Verdict) -> Row:
    """Return the least times of the load and of the steps, by one and by two threads."""
    best: dict[int, list[float]] = {}
    expected = f"{name}: as with one thread"
    for _ in range(repetitions):
        circuits = {threads: case.compile(threads) for threads in (1, 2)}
        for threads, circuit in circuits.items():
            seconds = step_seconds(circuit, case.steps)
            best[threads] = list(map(min, seconds, best.get(threads, seconds)))
        verdict.compare("the state of two threads", expected, has_equal_states(*circuits.values()))
    row: Row = {"case": name}
    for kind, part in (("load", slice(0, 1)), ("step", slice(1, None))):
        one, two = (1e3 * median(best[threads][part]) for threads in (1, 2))
        row |= {f"{kind} ms": one, f"{kind} ms, 2 threads": two, f"{kind} times faster": one / two}
    return row | {"target": TARGET, "met": float(row["step times faster"] or 0) >= TARGET}  # type: ignore[arg-type]


def step_seconds(circuit: Circuit, steps: Sequence[Delta]) -> list[float]:
    """Return the seconds of each step of a circuit."""
    seconds = []
    for step in steps:
        start = time.perf_counter()
        circuit.step(step)
        seconds.append(time.perf_counter() - start)
    return seconds


def main(
    case: Annotated[list[str] | None, typer.Option(help="The cases; by default all.")] = None,
    scale: Annotated[float, typer.Option(help="The scale of TPC-H.")] = 0.2,
    wall: Annotated[bool, typer.Option(help="Measure wall time as well.")] = False,
    repetitions: Annotated[int, typer.Option(help="Repetitions of wall time.")] = 3,
    seed: Annotated[int, typer.Option(help="The seed of the generated rows.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure work, span and shares; exit status 1 if two threads have another result."""
    result, verdict = Result("threads", CLAIM, {}), Verdict()
    warm_up()
    tables: dict[str, list[Row]] = {"Work and span": [], "Shares": [], "Wall time": []}
    available = cases(Path(gettempdir()) / "dbsp-wcoj-tpch", scale, seed)
    if unknown := set(case or ()) - available.keys():
        raise typer.BadParameter(f"no cases: {sorted(unknown)}; cases: {sorted(available)}")
    for name in case or available:
        terminal().print(f"{name} ...")
        made = available[name]()
        with working_with(None):
            rows, shares = work_rows(name, made, verdict)
        tables["Work and span"] += rows
        tables["Shares"] += shares
        if wall:
            tables["Wall time"].append(wall_row(name, made, repetitions, verdict))
    result.tables.update({name: rows for name, rows in tables.items() if rows})
    verdict.close(result, json)


if __name__ == "__main__":
    typer.run(main)
