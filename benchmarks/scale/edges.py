"""Measures the memory of a driver and two executors that keep a large random graph as triangles.

Target: two workers of 8 GB each keep 100,000,000 edges of an RMAT graph, generated on the
executors, and count their triangles, with a driver of less than 2 GB. Smaller numbers of edges show
how the memory grows. With 2 cells, the files of all cells have 8 copies of an edge (4 in the cells,
in 2 column orders), with its weight, because some edges are generated several times. With 8 cells
there are 12 copies.

The executors are processes of their own (Spark's ``local-cluster``) with one core each. Each
micro-batch generates its edges in the tasks that decode them, so the driver receives no edge. The
number of triangles is compared with that of an embedded circuit up to `MAX_CHECKED_EDGES`; an edge
that was generated several times counts as often.

Memory is measured while the micro-batches run: the proportional set size, in which pages that
several processes share count once. Memory of the processes is what they have allocated; mapped
pages are those of the files of the state, which the system reclaims if it needs the memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import getpid
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.parts import PartsRun
from benchmarks.peers.usage import descendants
from benchmarks.result import Row
from benchmarks.rmat import SKEWED, sample_edges
from circuits import compile_sql
from streaming import ViewSink, start_session

ROOT = Path(__file__).parents[2]
WORKERS = 2
MAX_WORKER_BYTES = 8_000_000_000
MAX_DRIVER_BYTES = 2_000_000_000
MAX_CHECKED_EDGES = 10_000_000
#: The samples that a task draws at once.
SAMPLES = 1 << 18
#: The nodes of the graph are a power of two, with about so many edges each.
EDGES_PER_NODE = 8
#: The time between two measurements of the memory.
INTERVAL_S = 0.5
SCHEMA = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
VIEW = """SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
    JOIN e z ON z.src = x.src AND z.dst = y.dst"""
EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class EdgeSizes:
    """The size of the graph.

    Attributes:
        edges: The number of samples; loops are left out.
        rows: The samples of a micro-batch.
        cells: The maximum number of cells.
    """

    edges: int
    rows: int
    cells: int

    @property
    def scale(self) -> int:
        """The binary logarithm of the number of nodes."""
        return max((self.edges // EDGES_PER_NODE).bit_length(), 4)


@dataclass(frozen=True)
class Generator:
    """Generates the edges of a micro-batch in tasks: a function for ``mapInArrow``.

    Attributes:
        seed: The seed.
        batch_id: The micro-batch.
        samples: The samples of a task.
        scale: `EdgeSizes.scale`.
    """

    seed: int
    batch_id: int
    samples: int
    scale: int

    def tables_of(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the edges of one task."""
        rng = np.random.default_rng([self.seed, self.batch_id, task])
        for start in range(0, self.samples, SAMPLES):
            count = min(SAMPLES, self.samples - start)
            keys = sample_edges(rng, self.scale, count, SKEWED)
            source, target = keys >> self.scale, keys & ((1 << self.scale) - 1)
            keep = source != target
            columns = [pa.array(source[keep]), pa.array(target[keep])]
            yield pa.record_batch(columns, schema=SCHEMA)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the edges of the tasks whose numbers are in the batches."""
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from self.tables_of(task)


@dataclass
class MemoryPeaks:
    """The largest memory of the driver and of one executor, in bytes.

    Attributes:
        driver: Of this process and its JVM.
        worker: Of the JVM and the Python processes of an executor, without mapped pages.
        mapped: The same with the mapped pages of the files of the state.
    """

    driver: int = 0
    worker: int = 0
    mapped: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure in the context."""
        thread = threading.Thread(target=self._measure_until_end)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def _measure_until_end(self) -> None:
        while not self._ends.wait(INTERVAL_S):
            processes = [getpid(), *descendants(getpid())]
            executors = [pid for pid in processes if EXECUTOR in _command(pid)]
            members = {pid: [pid, *descendants(pid)] for pid in executors}
            of_executors = {pid for pids in members.values() for pid in pids}
            own = [pid for pid in processes if pid not in of_executors]
            self.driver = max(self.driver, sum(_memory(pid)[0] for pid in own))
            for pids in members.values():
                allocated, total = map(sum, zip(*map(_memory, pids), strict=True))
                self.worker = max(self.worker, allocated)
                self.mapped = max(self.mapped, total)


def measure_edges(run: PartsRun, sizes: EdgeSizes) -> list[Row]:
    """Return one row for the whole graph."""
    settings = {
        "spark.master": f"local-cluster[{WORKERS},1,3072]",
        "spark.executor.memory": "2g",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
    }
    session = start_session(
        "benchmarks.scale", memory="1g", log=run.folder / "edges.log", settings=settings
    )
    session.sparkContext.setLogLevel("ERROR")
    place = run.folder / "edges"
    sink = ViewSink(
        compile_sql(VIEW, {"e": SCHEMA}, name="triangles"),
        state_dir=place,
        mode="distributed",
        cells=sizes.cells,
    )
    peaks, seconds, triangles = MemoryPeaks(), [], 0
    batches = -(-sizes.edges // sizes.rows)
    with peaks.measured():
        for batch_id in range(batches):
            start = time.perf_counter()
            sink(_frame_of(session, run.seed, batch_id, sizes), batch_id)
            seconds.append(time.perf_counter() - start)
            assert sink.last is not None
            triangles = _new_count(sink.last.outputs["triangles"], triangles)
            run.report(
                f"{(batch_id + 1) * sizes.rows:,} edges: {triangles:,} triangles, "
                f"{seconds[-1]:.1f} s, driver "
                f"{peaks.driver / 1e6:,.0f} MB, worker {peaks.worker / 1e6:,.0f} MB, with mapped "
                f"pages {peaks.mapped / 1e6:,.0f} MB"
            )
    state_bytes = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    sink.close()
    session.stop()
    if sizes.edges <= MAX_CHECKED_EDGES:
        truth = f"triangles of {sizes.edges} edges"
        run.verdict.set_truth(truth, _count_triangles(run.seed, batches, sizes))
        run.verdict.compare(f"{sizes.cells} cells", truth, triangles)
    return [
        {
            "edges": sizes.edges,
            "scale": sizes.scale,
            "rows/batch": sizes.rows,
            "cells": sizes.cells,
            "triangles": triangles,
            "seconds": sum(seconds),
            "edges/s": sizes.edges / sum(seconds),
            "state MB": state_bytes / 1e6,
            "driver MB": peaks.driver / 1e6,
            "target driver MB": MAX_DRIVER_BYTES / 1e6,
            "driver met": peaks.driver <= MAX_DRIVER_BYTES,
            "worker MB": peaks.worker / 1e6,
            "worker with mapped MB": peaks.mapped / 1e6,
            "target worker MB": MAX_WORKER_BYTES / 1e6,
            "worker met": peaks.worker <= MAX_WORKER_BYTES,
        }
    ]


def _frame_of(session: SparkSession, seed: int, batch_id: int, sizes: EdgeSizes) -> DataFrame:
    """Return the rows of a micro-batch, which the tasks generate when it is evaluated."""
    generator = Generator(seed, batch_id, sizes.rows // WORKERS, sizes.scale)
    return session.range(0, WORKERS, 1, WORKERS).mapInArrow(generator.run, "src long, dst long")


def _count_triangles(seed: int, batches: int, sizes: EdgeSizes) -> int:
    """Return the number of triangles of all edges, of an embedded circuit."""
    circuit = compile_sql(VIEW, {"e": SCHEMA}, name="triangles")
    triangles = 0
    for batch_id in range(batches):
        generator = Generator(seed, batch_id, sizes.rows // WORKERS, sizes.scale)
        parts = [part for task in range(WORKERS) for part in generator.tables_of(task)]
        outputs = circuit.step({"e": pa.Table.from_batches(parts)})
        triangles = _new_count(outputs["triangles"], triangles)
    return triangles


def _new_count(delta: pa.Table, before: int) -> int:
    """Return the count that a delta of the view inserts, or the one before."""
    return next((int(row["n"]) for row in delta.to_pylist() if row["weight"] > 0), before)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:  # it has just ended
        return ""


def _memory(pid: int) -> tuple[int, int]:
    """Return the bytes of a process: allocated ones, and all with mapped pages."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0, 0
    values = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return 1024 * values["Pss_Anon"], 1024 * values["Pss"]
