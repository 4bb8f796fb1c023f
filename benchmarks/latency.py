"""Measures the largest step of a sink, which may have to merge old rows.

Claim: after ten loads of a million rows each, the largest of 5,000 steps of 100 rows takes at most
3 times the CPU time of their median, with and without a state directory; and the largest load at
most 3 times that of the median load.

Input: random edges ``e(src, dst)``, four for each node. The view counts triangles, so the sink
keeps two arrangements of ``e``. In the steps, half of the rows are new edges, and half delete edges
of the loads. The sink gets the rows as tables, without Spark.

CPU time is that of the step: all threads of the process except those that merge and remove files in
the background (`streaming.state.compaction`), for which no step waits. Their CPU time during the
steps has a column of its own. Wall time includes the disk, and other processes of the machine.

A virtual machine that pauses, or other processes, make any step of one run slow. So all steps run
three times, with the same rows; the time of a step is the median of its three times. A step that
has much work to do is slow in all of them. The largest of all times has a column of its own.

At the end the sum of the deltas is compared with an independent count. The exit status is 1 if it
differs; a missed target does not change it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import typer

import dbsp_wcoj
from benchmarks.counter import count
from benchmarks.result import Result, Row, terminal
from benchmarks.sink.graph import (
    Integers,
    changes_table,
    count_change,
    micro_batch_of,
    triangles_circuit,
)
from benchmarks.verdict import Verdict
from streaming import ViewSink
from streaming.state import compaction

CLAIM = (
    "After ten loads of a million rows, the largest of 5,000 steps of 100 rows takes at most 3 "
    "times the CPU time of their median, and so does the largest load, with and without a state "
    "directory"
)
LARGEST, SERIES = "The largest step against the median", "The largest of 100 steps"
TARGET: Final = 3.0
STATES: Final = ("in memory", "in a directory")
DEGREE: Final = 4  # edges of a node
SAMPLES: Final = 50  # rows of the table of small steps


@dataclass(frozen=True)
class Sizes:
    """The sizes of one run."""

    loads: int = 10
    load_rows: int = 1_000_000
    steps: int = 5_000
    step_rows: int = 100


class BackgroundClock:
    """CPU seconds of the background threads: those that merge files, and that remove them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished = 0.0
        self._running: set[int] = set()  # the clocks of the running threads

    def start_thread(self, function: Callable[[], None]) -> threading.Thread:
        """Do what `compaction.start_thread` does, and count the CPU time of the thread."""

        def run() -> None:
            clock = time.pthread_getcpuclockid(threading.get_ident())
            with self._lock:
                self._running.add(clock)
            try:
                function()
            finally:
                with self._lock:
                    self._running.remove(clock)
                    self._finished += time.thread_time()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def read(self) -> float:
        """Return the seconds so far."""
        with self._lock:
            return self._finished + sum(map(time.clock_gettime, self._running))


@dataclass
class StepTimes:
    """The seconds of the steps of one size, in each run."""

    cpu: list[list[float]] = field(default_factory=list)
    wall: list[list[float]] = field(default_factory=list)
    background: list[list[float]] = field(default_factory=list)

    def begin_run(self) -> None:
        """Let later times belong to a new run."""
        for runs in (self.cpu, self.wall, self.background):
            runs.append([])


def main(
    loads: int = Sizes.loads,
    load_rows: int = Sizes.load_rows,
    steps: int = Sizes.steps,
    step_rows: int = Sizes.step_rows,
    state: Annotated[list[str], typer.Option(help="Where the state is.")] = list(STATES),  # noqa: B006
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder on the disk to measure; a temporary folder by default."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often all steps run.", min=1)] = 3,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Measure; exit status 1 if an answer is wrong."""
    if unknown := set(state) - set(STATES):
        raise typer.BadParameter(f"no places: {sorted(unknown)}; places: {list(STATES)}")
    dbsp_wcoj.warm_up()
    result, verdict = Result("latency", CLAIM, {LARGEST: [], SERIES: []}), Verdict()
    sizes = Sizes(loads, load_rows, steps, step_rows)
    for place in state:
        terminal().print(f"{place} ...")
        measure(result, verdict, place, folder, sizes, seed, repeats)
    verdict.close(result, json)


def measure(
    result: Result,
    verdict: Verdict,
    place: str,
    folder: Path | None,
    sizes: Sizes,
    seed: int,
    repeats: int,
) -> None:
    """Run all steps with the state in one place, and add the rows of the result."""
    times = {sizes.load_rows: StepTimes(), sizes.step_rows: StepTimes()}
    edges = Edges(sizes, seed)
    case = f"triangles {place}"
    verdict.set_truth(case, count(*edges.live()))
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="dbsp-wcoj-latency-", dir=folder) as directory:
            state_dir = Path(directory) / "state" if place == STATES[1] else None
            total = _run(edges, state_dir, times)
        verdict.compare("the sum of the deltas", case, total)
    for size, step_times in times.items():
        result.tables[LARGEST].append(_largest_row(place, size, step_times))
    result.tables[SERIES] += _series(place, times[sizes.step_rows])


def _run(edges: Edges, state_dir: Path | None, times: dict[int, StepTimes]) -> int:
    """Run all steps once, note their times by their rows, and return the sum of the deltas."""
    clock = BackgroundClock()
    total = 0
    for step_times in times.values():
        step_times.begin_run()
    with patch.object(compaction, "start_thread", clock.start_thread):
        sink = ViewSink(triangles_circuit(), state_dir=state_dir)
        for number, table in enumerate(edges.tables()):
            rows = times[table.num_rows]
            wall, cpu, background = time.perf_counter(), time.process_time(), clock.read()
            sink(micro_batch_of(table), number)
            background = clock.read() - background
            rows.background[-1].append(background)
            rows.cpu[-1].append(time.process_time() - cpu - background)
            rows.wall[-1].append(time.perf_counter() - wall)
            assert sink.last is not None
            total += count_change(sink.last.outputs["triangles"])
        sink.close()
    return total


class Edges:
    """Random edges, without duplicates and loops: those of the loads, then those of the steps."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._sizes = sizes
        loaded = sizes.loads * sizes.load_rows
        self._half = sizes.step_rows // 2
        rows = loaded + sizes.steps * (sizes.step_rows - self._half)
        nodes = max(rows // DEGREE, 20)
        # More codes of edges than are needed, because duplicates and loops are dropped.
        codes = np.unique(random.integers(0, nodes * nodes, rows + rows // 4 + 100))
        codes = random.permutation(codes[codes // nodes != codes % nodes])[:rows]
        assert len(codes) == rows
        self._source, self._target = codes // nodes, codes % nodes
        self._deleted = random.permutation(loaded)[: sizes.steps * self._half]

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of each step."""
        sizes, half = self._sizes, self._half
        for first in range(0, sizes.loads * sizes.load_rows, sizes.load_rows):
            numbers = np.arange(first, first + sizes.load_rows)
            yield changes_table(self._source[numbers], self._target[numbers])
        first = sizes.loads * sizes.load_rows
        inserts = sizes.step_rows - half
        weights = np.repeat([1, -1], [inserts, half])
        for step in range(sizes.steps):
            inserted = np.arange(first + step * inserts, first + (step + 1) * inserts)
            numbers = np.concatenate([inserted, self._deleted[step * half : (step + 1) * half]])
            yield changes_table(self._source[numbers], self._target[numbers], weights)

    def live(self) -> tuple[Integers, Integers]:
        """Return the edges that exist after all steps."""
        is_live = np.ones(len(self._source), np.bool_)
        is_live[self._deleted] = False
        return self._source[is_live], self._target[is_live]


def _largest_row(place: str, rows: int, times: StepTimes) -> Row:
    cpu, wall = (1e3 * np.median(runs, axis=0) for runs in (times.cpu, times.wall))
    median = float(np.median(cpu))
    ratio = float(cpu.max()) / median
    return {
        "state": place,
        "rows/step": rows,
        "steps": len(cpu),
        "median CPU ms": median,
        "p99 CPU ms": float(np.percentile(cpu, 99)),
        "max CPU ms": float(cpu.max()),
        "max/median": ratio,
        "target": TARGET,
        "met": ratio <= TARGET,
        "max CPU ms of any run": 1e3 * float(np.max(times.cpu)),
        "median ms": float(np.median(wall)),
        "p99 ms": float(np.percentile(wall, 99)),
        "max ms": float(wall.max()),
        "background CPU s": float(np.sum(times.background)) / len(times.background),
    }


def _series(place: str, times: StepTimes) -> list[Row]:
    """Return the largest of each group of consecutive steps, and the median of all."""
    cpu = 1e3 * np.median(times.cpu, axis=0)
    size = -(-len(cpu) // SAMPLES)
    return [
        {
            "state": place,
            "steps": min(first + size, len(cpu)),
            "max CPU ms": float(cpu[first : first + size].max()),
            "median CPU ms": float(np.median(cpu)),
        }
        for first in range(0, len(cpu), size)
    ]


if __name__ == "__main__":
    typer.run(main)
