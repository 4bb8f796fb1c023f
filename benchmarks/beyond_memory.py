"""Measures a sink whose state is larger than its memory limit, against the same sink in memory.

Claim: with a memory limit of about a quarter of the state, the median step of 1,000 rows takes at
most 3 times the time of the one in memory, the process stays within its limit, and a restart opens
the state in less than 2 seconds. The memory that counts is what the process has more than before
the first row: its private memory has at most the limit and 256 bytes for each row of a batch of the
load (the delta of the batch), and so has its resident memory, pages of maps included. The largest
values are those that a thread has read a hundred times a second, and the system's own record.

Input: random edges ``e(src, dst)``, four for each node. The view counts triangles, so the sink
keeps two arrangements of ``e``. The rows are loaded in batches, then come the steps: half of the
rows are new edges, half delete edges of the load. Each run has a process of its own.

The process with the limit runs under ``RLIMIT_DATA``, the limit of the operating system for private
writable memory, which counts memory that is reserved, too: what the process has before the first
row, the memory limit, 256 MB, and 256 bytes for each row of a batch. Maps of files are no such
memory. So an engine that kept the state in memory would end with a `MemoryError`. ``RLIMIT_AS``
would count maps of files, whether or not they are resident. Released pages of maps may stay in the
cache of the system, so a machine with much memory reads few pages from the disk.

The time of a step is given twice: as seconds on the clock, and as CPU seconds of all threads of the
process. On a machine that does other work, only the CPU seconds of the two runs can be compared;
they leave out the time of waiting for the disk.

Both runs must count the same triangles. With ``--rows-in-memory``, these two have fewer rows, and a
third run with a limit has all rows: its steps are compared with those of the smaller state in
memory.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import typer

import dbsp_wcoj
from benchmarks.cost import Clock, Cost
from benchmarks.result import Result, Row
from benchmarks.sink.graph import (
    Integers,
    changes_table,
    count_change,
    micro_batch_of,
    triangles_circuit,
)
from benchmarks.sink.page_cache import drop_from_page_cache
from benchmarks.verdict import Verdict
from streaming import ViewSink

CLAIM: Final = (
    "With memory for a quarter of the state, the median step of 1,000 rows takes at most 3 times "
    "the time of the one in memory, and a restart opens the state in less than 2 seconds"
)
RUNS, STEPS = "State larger than memory", "Steps"
TARGET_TIMES: Final = 3.0
TARGET_RESTART_S: Final = 2.0
DEGREE: Final = 4  # edges of a node
WARM_UP_STEPS: Final = 20  # steps before the median is taken
# Memory beyond the limit: for reserved memory that is not used, and for each row of a batch.
HARD_LIMIT_BYTES: Final = 256 << 20
BATCH_BYTES_PER_ROW: Final = 256
SAMPLE_INTERVAL_S: Final = 0.01
SAMPLES: Final = 50  # rows of the table of steps
TARGET_COLUMNS: Final = (
    "times",
    "step met",
    "CPU times",
    "step CPU met",
    "restart met",
    "memory met",
)

Mode = Literal["in memory", "with a memory limit"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of one run.

    Attributes:
        rows: The rows of the load.
        load_rows: The rows of each batch of the load.
        steps: The number of steps after the load.
        step_rows: The rows of a step.
    """

    rows: int
    load_rows: int
    steps: int
    step_rows: int


@dataclass(frozen=True)
class Memory:
    """Bytes of this process, as the system counts them.

    Attributes:
        private: Resident pages that are not pages of files.
        resident: All resident pages.
        peak_resident: The largest number of resident pages so far.
    """

    private: int
    resident: int
    peak_resident: int

    @staticmethod
    def now() -> Memory:
        """Read the memory of this process."""
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = {
            name: int(value.split()[0])
            for name, _, value in (line.partition(":") for line in lines)
            if name in ("RssAnon", "VmRSS", "VmHWM")
        }
        bytes_ = {name: 1024 * value for name, value in kilobytes.items()}
        return Memory(bytes_["RssAnon"], bytes_["VmRSS"], bytes_["VmHWM"])


class PeakMemory:
    """The largest memory of this process while a block runs.

    Attributes:
        base: The memory before the block.
        private: The largest private memory.
    """

    def __init__(self) -> None:
        self.base = Memory.now()
        self.private = self.base.private
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def resident(self) -> int:
        """The largest resident memory."""
        return Memory.now().peak_resident

    def __enter__(self) -> PeakMemory:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._must_stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._must_stop.wait(SAMPLE_INTERVAL_S):
            self.private = max(self.private, Memory.now().private)


@dataclass
class Run:
    """The measurements of one run.

    Attributes:
        load_s: Seconds of the whole load.
        max_load_s: Seconds of the slowest batch of the load.
        step_s: Seconds of each step, with its commit to the disk.
        step_cpu_s: CPU seconds of the process in each step.
        join_s: Seconds of the join in each step, a part of ``step_s``.
        batches: The number of batches of the load and steps.
        peak_private: The largest private memory, without that before the first row.
        peak_resident: The largest resident memory, without that before the first row.
        heap_bytes: Bytes of the state in memory at the end, as the sink reports them.
        mapped_bytes: Bytes of the state in maps at the end.
        disk_bytes: Bytes of the state directory.
        base: The memory before the first row.
        count: The number of triangles.
        restart_s: Seconds until a new process has opened the state.
        first_step_s: Seconds of its first step, with the opening.
    """

    load_s: float
    max_load_s: float
    step_s: list[float]
    step_cpu_s: list[float]
    join_s: list[float]
    batches: int
    peak_private: int
    peak_resident: int
    heap_bytes: int
    mapped_bytes: int
    disk_bytes: int
    base: Memory
    count: int
    restart_s: float = 0.0
    first_step_s: float = 0.0


def edges_of(numbers: Integers, rows: int) -> tuple[Integers, Integers]:
    """Return the ends of edges, by their numbers; an edge follows from its number by a hash."""
    nodes = max(rows // DEGREE, 20)

    def mix(seed: int) -> Integers:
        mixed = (numbers.astype(np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
        return (mixed % np.uint64(nodes)).astype(np.int64)

    return mix(1), mix(2**40)


def step_rows(step: int, sizes: Sizes) -> tuple[Integers, Integers]:
    """Return the numbers of the edges of a step, and their weights: new ones and deletions."""
    half = sizes.step_rows // 2
    new = sizes.rows + step * half + np.arange(half)
    random = np.random.default_rng(step)
    # Each step deletes from a part of its own, so that no edge is deleted twice.
    part = max(sizes.rows // (sizes.steps + 1), half)
    deleted = step * part + random.choice(part, half, replace=False)
    return np.concatenate([new, deleted]), np.repeat([1, -1], half)


def measure(folder: str, sizes: Sizes, limit: int | None) -> Run:
    """Load the rows and make the steps in this process.

    Args:
        folder: An empty folder, for the state.
        sizes: The number of rows and steps.
        limit: The memory limit in bytes; None for no limit.
    """
    dbsp_wcoj.warm_up()  # the code of all kernels, which is no memory of the state
    _run_small_sink()
    with PeakMemory() as peak:
        if limit is not None:
            _limit_private_memory(limit + HARD_LIMIT_BYTES + batch_bytes(sizes))
        sink = ViewSink(triangles_circuit(), state_dir=folder, memory_limit=limit)
        count = batch = 0

        def apply(numbers: Integers, weights: Integers | int) -> Cost:
            """Run a micro-batch; return its time."""
            nonlocal batch, count
            table = changes_table(*edges_of(numbers, sizes.rows), weights)
            clock = Clock()
            sink(micro_batch_of(table), batch)
            cost = clock.read()
            assert sink.last is not None
            batch, count = batch + 1, count + count_change(sink.last.outputs["triangles"])
            return cost

        loads = [
            apply(np.arange(first, min(first + sizes.load_rows, sizes.rows)), 1).wall
            for first in range(0, sizes.rows, sizes.load_rows)
        ]
        steps: list[Cost] = []
        join_s: list[float] = []
        for step in range(sizes.steps):
            steps.append(apply(*step_rows(step, sizes)))
            join_s.append(sink.metrics[-1].seconds["step"])
        metrics = sink.metrics[-1]
        sink.close()
    return Run(
        load_s=sum(loads),
        max_load_s=max(loads),
        step_s=[cost.wall for cost in steps],
        step_cpu_s=[cost.cpu for cost in steps],
        join_s=join_s,
        batches=batch,
        peak_private=peak.private - peak.base.private,
        peak_resident=peak.resident - peak.base.resident,
        base=peak.base,
        heap_bytes=metrics.heap_bytes,
        mapped_bytes=metrics.mapped_bytes,
        disk_bytes=sum(path.stat().st_size for path in (Path(folder) / "data").iterdir()),
        count=count,
    )


def batch_bytes(sizes: Sizes) -> int:
    """Return the memory that the delta of the largest batch may take beside the state."""
    return BATCH_BYTES_PER_ROW * max(sizes.load_rows, sizes.step_rows)


def restart(folder: str, sizes: Sizes, limit: int | None, batches: int) -> tuple[float, float]:
    """Open the state in this process; return the seconds, and those with a first step."""
    _run_small_sink()
    numbers, weights = step_rows(sizes.steps, sizes)
    frame = micro_batch_of(changes_table(*edges_of(numbers, sizes.rows), weights))
    clock = Clock()
    sink = ViewSink(triangles_circuit(), state_dir=folder, memory_limit=limit)
    sink(frame, batches)
    seconds = clock.read().wall
    load_s = sink.metrics[-1].seconds["load"]
    sink.close()
    return load_s, seconds


def _run_small_sink() -> None:
    """Load all modules, and the compiled kernels that small steps call."""
    sizes = Sizes(10_000, 5_000, 3, 100)
    with tempfile.TemporaryDirectory() as folder:
        sink = ViewSink(triangles_circuit(), state_dir=folder, memory_limit=1 << 12)
        load: tuple[Integers, Integers | int] = np.arange(sizes.rows), 1
        for batch, (numbers, weights) in enumerate(
            [load, *(step_rows(n, sizes) for n in range(3))]
        ):
            table = changes_table(*edges_of(numbers, sizes.rows), weights)
            sink(micro_batch_of(table), batch)
        sink.close()


def _limit_private_memory(more: int) -> None:
    """Let the system refuse private memory beyond the present one and this many bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (present,) = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData")]
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (present + more, hard))


def run(folder: Path, sizes: Sizes, limit: int | None) -> Run:
    """Measure one mode: the load and the steps in a process, the restart in another."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        measured = pool.apply(measure, (str(folder), sizes, limit))
    drop_from_page_cache(folder)
    with context.Pool(1) as pool:
        measured.restart_s, measured.first_step_s = pool.apply(
            restart, (str(folder), sizes, limit, measured.batches)
        )
    return measured


def row_of(mode: Mode, sizes: Sizes, limit: int | None, run: Run) -> Row:
    """Return the row of a run in the table of runs."""
    steps = run.step_s[WARM_UP_STEPS:] or run.step_s
    cpu_steps = run.step_cpu_s[WARM_UP_STEPS:] or run.step_cpu_s
    joins = run.join_s[WARM_UP_STEPS:] or run.join_s
    return {
        "mode": mode,
        "rows": sizes.rows,
        "limit MB": None if limit is None else limit / 1e6,
        "disk MB": run.disk_bytes / 1e6,
        "load s": run.load_s,
        "slowest load s": run.max_load_s,
        "median step ms": statistics.median(steps) * 1e3,
        "largest step ms": max(steps) * 1e3,
        "median step CPU ms": statistics.median(cpu_steps) * 1e3,
        "largest step CPU ms": max(cpu_steps) * 1e3,
        "median join ms": statistics.median(joins) * 1e3,
        "peak private MB": run.peak_private / 1e6,
        "peak resident MB": run.peak_resident / 1e6,
        "process MB": (run.base.resident + run.peak_resident) / 1e6,
        "mapped MB": run.mapped_bytes / 1e6,
        "restart s": run.restart_s,
        "with a first step s": run.first_step_s,
    }


def samples_of(mode: Mode, sizes: Sizes, run: Run) -> list[Row]:
    """Return rows of the table of steps: the median time of each part of the steps."""
    count = min(SAMPLES, len(run.step_s))
    parts = np.array_split(np.array(run.step_s), count)
    cpu_parts = np.array_split(np.array(run.step_cpu_s), count)
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [
        {
            "mode": f"{mode}, {sizes.rows:,} rows",
            "steps": end,
            "median ms": float(np.median(part)) * 1e3,
            "median CPU ms": float(np.median(cpu_part)) * 1e3,
        }
        for end, part, cpu_part in zip(ends, parts, cpu_parts, strict=True)
    ]


def main(
    rows: Annotated[int, typer.Option(help="The rows of the load.")] = 10_000_000,
    rows_in_memory: Annotated[
        int | None, typer.Option(help="The rows of the run in memory; by default as many.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="The memory limit in MB; by default a quarter of the state.")
    ] = None,
    load_rows: Annotated[int, typer.Option(help="The rows of a batch of the load.")] = 500_000,
    steps: Annotated[int, typer.Option(help="The number of steps.")] = 200,
    rows_in_step: Annotated[int, typer.Option(help="The rows of a step.")] = 1_000,
    folder: Annotated[
        Path | None, typer.Option(help="A folder on the disk to measure; by default a new one.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure both modes; exit status 1 if their counts differ."""
    verdict, result = Verdict(), Result("beyond_memory", CLAIM, {RUNS: [], STEPS: []})
    runs: list[tuple[Mode, Sizes, int | None, Run]] = []

    def add_run(mode: Mode, run_rows: int, limit: int | None) -> Run:
        sizes = Sizes(run_rows, load_rows, steps, rows_in_step)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            runs.append((mode, sizes, limit, run(Path(temporary) / "state", sizes, limit)))
        return runs[-1][-1]

    same_rows = rows_in_memory or rows
    in_memory = add_run("in memory", same_rows, None)
    quarter = in_memory.disk_bytes // 4
    is_largest = same_rows == rows
    given = None if limit is None else limit * 10**6
    limited = add_run("with a memory limit", same_rows, (is_largest and given) or quarter)
    verdict.set_truth("triangles", in_memory.count)
    verdict.compare("with a memory limit", "triangles", limited.count)
    if not is_largest:
        add_run("with a memory limit", rows, given or quarter * rows // same_rows)
    result.tables[RUNS] = [row_of(*measured) for measured in runs]
    result.tables[STEPS] = [
        row for mode, sizes, _, measured in runs for row in samples_of(mode, sizes, measured)
    ]
    _add_targets(result.tables[RUNS], [measured for *_, measured in runs], load_rows)
    verdict.close(result, json)


def _add_targets(rows: list[Row], runs: list[Run], load_rows: int) -> None:
    """Compare the runs with a limit with the targets, and with the first one, in memory."""
    first = rows[0]
    first |= dict.fromkeys(TARGET_COLUMNS)
    for row, run in zip(rows[1:], runs[1:], strict=True):
        times, cpu_times = (
            float(str(row[column])) / float(str(first[column]))
            for column in ("median step ms", "median step CPU ms")
        )
        max_bytes = float(str(row["limit MB"])) * 1e6 + BATCH_BYTES_PER_ROW * load_rows
        row |= {
            "times": times,
            "step met": times <= TARGET_TIMES,
            "CPU times": cpu_times,
            "step CPU met": cpu_times <= TARGET_TIMES,
            "restart met": float(str(row["restart s"])) < TARGET_RESTART_S,
            "memory met": max(run.peak_private, run.peak_resident) <= max_bytes,
        }


if __name__ == "__main__":
    typer.run(main)
