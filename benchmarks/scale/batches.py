"""Measures micro-batches of a distributed sink against the embedded sink, on the same cores.

The cells share the cores that the embedded engine has alone, so the figures show the overhead of
cells: Spark's jobs, and rows that are sent and kept several times. Spark counts the shuffled bytes;
the load of the cells is read from their manifests. Each sink loads most of a graph in
its first micro-batch, gets a few micro-batches that are not timed, and then some with new edges and
some without rows. Sinks take turns, so that other work on the machine affects all of them alike.
After each micro-batch all sinks must have the same count; the last count is checked independently.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.graph import Graph
from benchmarks.parts import PartsRun
from benchmarks.result import Row
from benchmarks.scale.cells import Pattern
from benchmarks.scale.speed import COUNTERS
from benchmarks.sink.graph import changes_table, count_change
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_sql
from circuits.runtime.incrementalize import incrementalize
from streaming import ViewSink
from streaming.distributed.engine import read_newest_cells
from streaming.distributed.planning.load_balance import count_loads
from streaming.distributed.planning.stages import Stage, cut_stages
from streaming.state.local_files import LocalFiles

IDLE_TARGET_S = 0.4  # for a micro-batch without rows, with `IDLE_TARGET_CELLS` cells
IDLE_TARGET_CELLS = 2
STATUS_DELAY_S = 0.5  # until Spark's counters are up to date
SCHEMA = pa.schema([pa.field("src", pa.int64(), False), pa.field("dst", pa.int64(), False)])


@dataclass(frozen=True)
class BatchSizes:
    """The rows of a micro-batch, and how many are timed after how many that are not."""

    rows: int
    timed: int
    warm_up: int


@dataclass(frozen=True)
class Shuffled:
    """Shuffled bytes, as Spark counts them, and the id of Spark's last stage."""

    bytes: int
    last_stage: int

    @staticmethod
    def since(session: SparkSession, stage: int) -> Shuffled:
        """Add up the stages of Spark with a larger id than ``stage``; bytes are compressed."""
        context = session.sparkContext
        store, jvm = context._jsc.sc().statusStore(), context._jvm
        assert jvm is not None and context._gateway is not None
        time.sleep(STATUS_DELAY_S)
        quantiles = context._gateway.new_array(jvm.double, 0)
        all_stages = store.stageList(None, False, False, quantiles, jvm.java.util.ArrayList())
        stages = [all_stages.apply(index) for index in range(all_stages.size())]
        stages = [info for info in stages if info.stageId() > stage]
        size = sum(info.shuffleWriteBytes() for info in stages)
        return Shuffled(size, max((info.stageId() for info in stages), default=stage))


@dataclass
class MeasuredSink:
    """A sink and its measurements.

    Attributes:
        cells: The number of cells; None for the embedded sink.
        folder: The state directory.
        view_sink: The sink.
        count: The count of the pattern, which is the sum of the deltas.
        batch: The id of the next micro-batch.
        load_s: The seconds of the first micro-batch.
        shuffled: The shuffled bytes of the first micro-batch.
        batch_s, one_row_s, idle_s: The seconds of micro-batches with all rows, one row and none.
    """

    cells: int | None
    folder: Path
    view_sink: ViewSink
    count: int = 0
    batch: int = 0
    load_s: float = 0.0
    shuffled: Shuffled | None = None
    batch_s: list[float] = field(default_factory=list)
    one_row_s: list[float] = field(default_factory=list)
    idle_s: list[float] = field(default_factory=list)

    def step(self, session: SparkSession, table: pa.Table) -> float:
        """Pass a micro-batch to the sink; return the seconds that it took."""
        frame = session.createDataFrame(table)
        start = time.perf_counter()
        self.view_sink(frame, self.batch)
        seconds = time.perf_counter() - start
        self.batch += 1
        assert self.view_sink.last is not None
        self.count += count_change(self.view_sink.last.outputs["n"])
        return seconds


def measure_batches(
    session: SparkSession,
    run: PartsRun,
    pattern: Pattern,
    graph: Graph,
    cells: tuple[int, ...],
    sizes: BatchSizes,
) -> list[Row]:
    """Return a row for the embedded sink and one for each number of cells.

    Args:
        session: The Spark session.
        run: The folder for the state directories, the seed of the order of edges, the verdict.
        pattern: The pattern that the view counts.
        graph: The edges.
        cells: The numbers of cells.
        sizes: Rows and numbers of micro-batches.
    """
    shuffled_graph = graph.shuffled(run.seed)
    streamed = sizes.rows * (sizes.timed + sizes.warm_up) + sizes.timed
    loaded = shuffled_graph.take(slice(streamed, None))
    truth = f"{pattern.name} of {graph.name}"
    run.verdict.set_truth(truth, COUNTERS[pattern.name](graph.source, graph.target))
    sinks = [
        _open_sink(pattern, run.folder / f"{pattern.name}-{graph.name}-{max_cells}", max_cells)
        for max_cells in (None, *cells)
    ]
    _load(session, sinks, loaded)
    position = 0
    for number in range(sizes.warm_up + sizes.timed):
        edges = shuffled_graph.take(slice(position, position + sizes.rows))
        position += sizes.rows
        for sink in sinks:
            seconds = sink.step(session, changes_table(edges.source, edges.target))
            if number >= sizes.warm_up:
                sink.batch_s.append(seconds)
        _compare_counts(run.verdict, f"{truth} by the embedded sink, micro-batch {number}", sinks)
    for _ in range(sizes.timed):
        edge, position = shuffled_graph.take(slice(position, position + 1)), position + 1
        for sink in sinks:
            sink.one_row_s.append(sink.step(session, changes_table(edge.source, edge.target)))
            sink.idle_s.append(sink.step(session, changes_table(edge.source[:0], edge.target[:0])))
    stages = _stages(build_circuit(pattern))
    table = []
    for sink in sinks:
        sink.view_sink.close()
        name = "embedded" if sink.cells is None else f"{sink.cells} cells"
        run.verdict.compare(name, truth, sink.count)
        row = _row(pattern, graph, sink, sinks[0], sizes.rows, stages)
        table.append(row | _shuffled_by_row(sink, loaded.edges))
    return table


def _open_sink(pattern: Pattern, folder: Path, max_cells: int | None) -> MeasuredSink:
    """Open a distributed sink, or without ``max_cells`` an embedded one."""
    circuit = build_circuit(pattern)
    if max_cells is None:
        view_sink = ViewSink(circuit, state_dir=folder)
    else:
        view_sink = ViewSink(circuit, state_dir=folder, mode="distributed", cells=max_cells)
    return MeasuredSink(max_cells, folder, view_sink)


def _load(session: SparkSession, sinks: list[MeasuredSink], edges: Graph) -> None:
    """Pass all edges to each sink in one micro-batch, and record what it shuffled."""
    last_stage = Shuffled.since(session, -1).last_stage
    for sink in sinks:
        sink.load_s = sink.step(session, changes_table(edges.source, edges.target))
        sink.shuffled = Shuffled.since(session, last_stage)
        last_stage = sink.shuffled.last_stage


def _compare_counts(verdict: Verdict, truth: str, sinks: list[MeasuredSink]) -> None:
    """Compare the counts of the distributed sinks with that of the embedded one."""
    embedded, *distributed = sinks
    verdict.set_truth(truth, embedded.count)
    for sink in distributed:
        verdict.compare(f"{sink.cells} cells", truth, sink.count)


def build_circuit(pattern: Pattern) -> Circuit:
    """Compile the circuit of a view ``n`` that counts the pattern in ``e(src, dst)``."""
    columns = ("src", "dst")
    column_of: dict[str, str] = {}
    text = ""
    for edge in pattern.edges:
        conditions = [
            f"{edge}.{column} = {column_of[node]}"
            for node, column in zip(edge, columns, strict=True)
            if node in column_of
        ]
        text += f" JOIN e {edge} ON {' AND '.join(conditions)}" if text else f"e {edge}"
        for node, column in zip(edge, columns, strict=True):
            column_of.setdefault(node, f"{edge}.{column}")
    return compile_sql(f"SELECT count(*) AS n FROM {text}", {"e": SCHEMA}, name="n")


def _row(
    pattern: Pattern,
    graph: Graph,
    sink: MeasuredSink,
    embedded: MeasuredSink,
    rows: int,
    stages: tuple[Stage, ...],
) -> Row:
    seconds, idle = statistics.median(sink.batch_s), statistics.median(sink.idle_s)
    target = IDLE_TARGET_S if sink.cells == IDLE_TARGET_CELLS else None
    return {
        "query": pattern.name,
        "graph": graph.name,
        "cells": sink.cells,
        "stages": None if sink.cells is None else len(stages),
        "max/mean": _load_ratio(sink, stages),
        "rows/batch": rows,
        "load s": sink.load_s,
        "batch s": seconds,
        "times embedded": seconds / statistics.median(embedded.batch_s),
        "one row s": statistics.median(sink.one_row_s),
        "idle s": idle,
        "target s": target,
        "met": None if target is None else idle <= target,
    }


def _shuffled_by_row(sink: MeasuredSink, rows: int) -> Row:
    """Return the bytes that Spark shuffled for each row of the load."""
    if sink.shuffled is None or not sink.shuffled.bytes:
        return {"bytes by Spark": None}
    return {"bytes by Spark": sink.shuffled.bytes / rows}


def _load_ratio(sink: MeasuredSink, stages: tuple[Stage, ...]) -> float | None:
    """Return the rows of the fullest cell of the join divided by the mean, if there are cells."""
    cells = read_newest_cells(LocalFiles(sink.folder))
    if cells is None:
        return None
    (join,) = (stage for stage in stages if stage.atoms)
    loads = count_loads(join, cells.stage_manifests(join.number))
    return max(loads) * len(loads) / sum(loads)


def _stages(circuit: Circuit) -> tuple[Stage, ...]:
    fields = {name: schema.fields for name, schema in circuit.inputs.items()}
    return cut_stages(incrementalize(circuit.plans, fields)).stages
