"""Measures what the driver of a distributed sink receives, and the cost of its micro-batches.

Targets: the bytes that tasks send to the driver in one micro-batch, as Spark counts them and
without the manifests of the cells, are less than 64 kB for any number of rows. The CPU seconds of
a micro-batch of 100,000 rows in 8 cells are at most 1.3 times those of the embedded sink; each row
is sent to one cell. A micro-batch of one row takes at most 0.15 s longer than a job of Spark that
only passes rows through Python, with the same number of tasks.

The view joins edges with names, so rows with strings are decoded, exchanged and published. Both
sinks take turns. The deltas are compared by their sizes and sums.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from benchmarks.parts import PartsRun
from benchmarks.peers.usage import cpu_seconds_of
from benchmarks.result import Row
from benchmarks.scale.batches import STATUS_DELAY_S
from circuits import compile_sql
from streaming import ViewSink
from streaming.distributed.engine import read_newest_cells
from streaming.state.local_files import LocalFiles

CELLS = 8
NAMES = 1_000
MAX_DRIVER_BYTES = 64_000
MAX_CPU_RATIO = 1.3
#: The row count whose CPU seconds have a target.
CPU_ROWS = 100_000
MAX_FIXED_S = 0.15
SCHEMAS = {
    "e": pa.schema([("src", pa.int64()), ("dst", pa.int64())]),
    "p": pa.schema([("id", pa.int64()), ("name", pa.string())]),
}
VIEW = "SELECT e.src, p.id, p.name FROM e JOIN p ON e.dst = p.id"


@dataclass(frozen=True)
class DriverSizes:
    """The numbers of rows of the micro-batches, and how often each is measured."""

    rows: tuple[int, ...]
    repeats: int


def measure_driver(session: SparkSession, run: PartsRun, sizes: DriverSizes) -> list[Row]:
    """Return a row for each number of rows."""
    embedded = ViewSink(compile_sql(VIEW, SCHEMAS, name="v"), state_dir=run.folder / "embedded")
    place = run.folder / "cells"
    sink = ViewSink(
        compile_sql(VIEW, SCHEMAS, name="v"), state_dir=place, mode="distributed", cells=CELLS
    )
    sinks = {"embedded": embedded, "cells": sink}
    names = pa.table({"id": range(NAMES), "name": [f"name of {n}" for n in range(NAMES)]})
    rng = np.random.default_rng(run.seed)
    batch_id = 0

    def step(table: pa.Table) -> dict[str, tuple[float, float, int]]:
        """Return seconds, CPU seconds and bytes to the driver of both sinks."""
        nonlocal batch_id
        frame, measured = session.createDataFrame(table), {}
        for name, view_sink in sinks.items():
            last_stage = max((info.stageId() for info in _stages(session)), default=-1)
            cpu, start = cpu_seconds_of(os.getpid()), time.perf_counter()
            view_sink(frame, batch_id)
            seconds, cpu = time.perf_counter() - start, cpu_seconds_of(os.getpid()) - cpu
            time.sleep(STATUS_DELAY_S)
            received = sum(
                info.resultSize() for info in _stages(session) if info.stageId() > last_stage
            )
            measured[name] = seconds, cpu, received
        _compare(run, batch_id, embedded, sink)
        batch_id += 1
        return measured

    step(_tagged(p=names))
    step(_edges(rng, 1_000))
    one_row = [step(_edges(rng, 1))["cells"][0] for _ in range(sizes.repeats)]
    empty_job = [_run_empty_job(session) for _ in range(sizes.repeats)]
    fixed = statistics.median(one_row) - statistics.median(empty_job)
    table = []
    for rows in sizes.rows:
        steps = [step(_edges(rng, rows)) for _ in range(sizes.repeats)]
        seconds, cpu, received = (
            statistics.median(measured["cells"][k] for measured in steps) for k in range(3)
        )
        embedded_cpu = statistics.median(measured["embedded"][1] for measured in steps)
        cells = read_newest_cells(LocalFiles(place))
        assert cells is not None
        manifests = sum(map(len, cells.manifests.values()))
        ratio = cpu / embedded_cpu
        table.append(
            {
                "rows/batch": rows,
                "cells": CELLS,
                "driver kB": (received - manifests) / 1000,
                "manifests kB": manifests / 1000,
                "target kB": MAX_DRIVER_BYTES / 1000,
                "bytes met": received - manifests <= MAX_DRIVER_BYTES,
                "batch s": seconds,
                "cpu s": cpu,
                "embedded cpu s": embedded_cpu,
                "cpu ratio": ratio,
                "target ratio": MAX_CPU_RATIO if rows == CPU_ROWS else None,
                "ratio met": ratio <= MAX_CPU_RATIO if rows == CPU_ROWS else None,
                "fixed s": fixed,
                "target s": MAX_FIXED_S,
                "fixed met": fixed <= MAX_FIXED_S,
            }
        )
    for view_sink in sinks.values():
        view_sink.close()
    return table


def _stages(session: SparkSession) -> list[Any]:
    """Return Spark's records of all stages."""
    context = session.sparkContext
    store, jvm = context._jsc.sc().statusStore(), context._jvm
    assert jvm is not None and context._gateway is not None
    quantiles = context._gateway.new_array(jvm.double, 0)
    stages = store.stageList(None, False, False, quantiles, jvm.java.util.ArrayList())
    return [stages.apply(index) for index in range(stages.size())]


def _run_empty_job(session: SparkSession) -> float:
    """Return the seconds of a job that only passes rows through Python."""

    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    tasks = session.sparkContext.defaultParallelism
    frame: DataFrame = session.range(0, tasks, 1, tasks)
    start = time.perf_counter()
    frame.mapInArrow(identity, "id long").toArrow()
    return time.perf_counter() - start


def _edges(rng: np.random.Generator, rows: int) -> pa.Table:
    source = rng.integers(0, 1 << 40, rows)
    return _tagged(e=pa.table({"src": source, "dst": rng.integers(0, NAMES, rows)}))


def _tagged(**tables: pa.Table) -> pa.Table:
    """Return the rows of relations as one table with the column ``relation``."""
    parts = [
        table.append_column("relation", pa.array([name] * table.num_rows, pa.string()))
        for name, table in tables.items()
    ]
    empty = [schema.empty_table() for schema in SCHEMAS.values()]
    return pa.concat_tables([*empty, *parts], promote_options="permissive")


def _compare(run: PartsRun, batch_id: int, embedded: ViewSink, sink: ViewSink) -> None:
    """Compare the deltas of the sinks: the number of rows, and a sum over them."""
    for what, size in (("rows", pa.Table.__len__), ("sum", _sum_of)):
        truth = f"{what} of micro-batch {batch_id}"
        assert embedded.last is not None and sink.last is not None
        run.verdict.set_truth(truth, size(embedded.last.outputs["v"]))
        run.verdict.compare(f"{CELLS} cells", truth, size(sink.last.outputs["v"]))


def _sum_of(table: pa.Table) -> int:
    if not table.num_rows:
        return 0
    products = pc.multiply(table.column("src"), pc.add(table.column("id"), 1))
    lengths = pc.binary_length(table.column("name"))
    return int(pc.sum(pc.add(products, lengths)).as_py()) * 3 + int(pc.sum(table["weight"]).as_py())
