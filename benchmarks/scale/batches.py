"""Measures micro-batches of a distributed sink against the embedded sink, on the same cores.

The cells share the cores that the embedded engine has alone, so the figures show the overhead of
cells: Spark's jobs, and rows that are sent and kept several times. Spark counts the shuffled rows
and bytes; the load of the cells is read from their manifests. Each sink loads most of a graph in
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
class Shuffled:
    """Shuffled rows and bytes, as Spark counts them, and the id of the last stage."""

    rows: int
    bytes: int
    last: int

    @staticmethod
    def since(session: SparkSession, stage: int) -> Shuffled:
        """Add up the stages with a larger id than ``stage``; bytes are compressed."""
        context = session.sparkContext
        store, jvm = context._jsc.sc().statusStore(), context._jvm
        assert jvm is not None and context._gateway is not None
        time.sleep(STATUS_DELAY_S)
        quantiles = context._gateway.new_array(jvm.double, 0)
        all_stages = store.stageList(None, False, False, quantiles, jvm.java.util.ArrayList())
        stages = [all_stages.apply(index) for index in range(all_stages.size())]
        stages = [info for info in stages if info.stageId() > stage]
        rows = sum(info.shuffleWriteRecords() for info in stages)
        size = sum(info.shuffleWriteBytes() for info in stages)
        return Shuffled(rows, size, max((info.stageId() for info in stages), default=stage))


@dataclass
class MeasuredSink:
    """A sink and its measurements.

    Attributes:
        cells: The number of cells; None for the embedded sink.
        folder: The state directory.
        sink: The sink.
        count: The sum of its deltas.
        batch: The id of the next micro-batch.
        load_s: The seconds of the first micro-batch.
        shuffled: The shuffled rows and bytes of the first micro-batch.
        batch_s, one_row_s, idle_s: The seconds of micro-batches with all rows, one row and none.
    """

    cells: int | None
    folder: Path
    sink: ViewSink
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
        self.sink(frame, self.batch)
        seconds = time.perf_counter() - start
        self.batch += 1
        assert self.sink.last is not None
        self.count += count_change(self.sink.last.outputs["n"])
        return seconds


def micro_batches(
    session: SparkSession,
    folder: Path,
    pattern: Pattern,
    graph: Graph,
    cells: tuple[int, ...],
    *,
    rows: int,
    rounds: int,
    warm: int,
    seed: int,
    verdict: Verdict,
) -> list[Row]:
    """Return a row for the embedded sink and one for each number of cells.

    Args:
        session: The Spark session.
        folder: The folder for the state directories.
        pattern: The pattern that the view counts.
        graph: The edges.
        cells: The numbers of cells.
        rows: New edges in a micro-batch.
        rounds: Number of timed micro-batches.
        warm: Number of micro-batches before them that are not timed.
        seed: The seed of the order of edges.
        verdict: Compares counts.
    """
    shuffled_graph = graph.shuffled(seed)
    streamed = rows * (rounds + warm) + rounds
    loaded = shuffled_graph.take(slice(streamed, None))
    truth = f"{pattern.name} of {graph.name}"
    verdict.set_truth(truth, COUNTERS[pattern.name](graph.source, graph.target))
    turns = []
    for max_cells in (None, *cells):
        state = folder / f"{pattern.name}-{graph.name}-{max_cells}"
        if max_cells is None:
            sink = ViewSink(circuit_of(pattern), state_dir=state)
        else:
            sink = ViewSink(
                circuit_of(pattern), state_dir=state, mode="distributed", cells=max_cells
            )
        turns.append(MeasuredSink(max_cells, state, sink))
    last = Shuffled.since(session, -1).last
    for turn in turns:
        turn.load_s = turn.step(session, changes_table(loaded.source, loaded.target))
        turn.shuffled = Shuffled.since(session, last)
        last = turn.shuffled.last
    position = 0
    for number in range(warm + rounds):
        edges = shuffled_graph.take(slice(position, position + rows))
        position += rows
        for turn in turns:
            seconds = turn.step(session, changes_table(edges.source, edges.target))
            if number >= warm:
                turn.batch_s.append(seconds)
        _compare(verdict, f"{truth} by the embedded sink, micro-batch {number}", turns)
    for _ in range(rounds):
        edge, position = shuffled_graph.take(slice(position, position + 1)), position + 1
        for turn in turns:
            turn.one_row_s.append(turn.step(session, changes_table(edge.source, edge.target)))
            turn.idle_s.append(turn.step(session, changes_table(edge.source[:0], edge.target[:0])))
    stages = _stages(circuit_of(pattern))
    table = []
    for turn in turns:
        turn.sink.close()
        name = "embedded" if turn.cells is None else f"{turn.cells} cells"
        verdict.compare(name, truth, turn.count)
        row = _row(pattern, graph, turn, turns[0], rows, stages)
        table.append(row | _sent(turn, loaded.edges))
    return table


def _compare(verdict: Verdict, truth: str, turns: list[MeasuredSink]) -> None:
    """Compare the counts of the distributed sinks with that of the embedded one."""
    embedded, *others = turns
    verdict.set_truth(truth, embedded.count)
    for turn in others:
        verdict.compare(f"{turn.cells} cells", truth, turn.count)


def circuit_of(pattern: Pattern) -> Circuit:
    """Return the circuit of a view ``n`` that counts the pattern in ``e(src, dst)``."""
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
    turn: MeasuredSink,
    embedded: MeasuredSink,
    rows: int,
    stages: tuple[Stage, ...],
) -> Row:
    seconds, idle = statistics.median(turn.batch_s), statistics.median(turn.idle_s)
    target = IDLE_TARGET_S if turn.cells == IDLE_TARGET_CELLS else None
    return {
        "query": pattern.name,
        "graph": graph.name,
        "cells": turn.cells,
        "stages": None if turn.cells is None else len(stages),
        "max/mean": _load_ratio(turn, stages),
        "rows/batch": rows,
        "load s": turn.load_s,
        "batch s": seconds,
        "by embedded": seconds / statistics.median(embedded.batch_s),
        "one row s": statistics.median(turn.one_row_s),
        "idle s": idle,
        "target s": target,
        "met": None if target is None else idle <= target,
    }


def _sent(turn: MeasuredSink, rows: int) -> Row:
    """Return the shuffled copies and bytes of a row of the load."""
    if turn.shuffled is None or not turn.shuffled.rows:
        return {"copies by Spark": None, "bytes by Spark": None}
    return {
        "copies by Spark": turn.shuffled.rows / rows,
        "bytes by Spark": turn.shuffled.bytes / rows,
    }


def _load_ratio(turn: MeasuredSink, stages: tuple[Stage, ...]) -> float | None:
    """Return the rows of the fullest cell of the join, divided by the mean."""
    cells = read_newest_cells(LocalFiles(turn.folder))
    if cells is None:
        return None
    (join,) = (stage for stage in stages if stage.atoms)
    loads = count_loads(join, cells.stage_manifests(join.number))
    return max(loads) * len(loads) / sum(loads)


def _stages(circuit: Circuit) -> tuple[Stage, ...]:
    fields = {name: schema.fields for name, schema in circuit.inputs.items()}
    return cut_stages(incrementalize(circuit.plans, fields)).stages
