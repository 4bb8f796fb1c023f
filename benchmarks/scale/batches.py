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

IDLE_TARGET = 0.4
IDLE_TARGET_CELLS = 2  # cells
STATUS_DELAY_S = 0.5  # seconds until Spark's counters are up to date
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
        found = store.stageList(None, False, False, quantiles, jvm.java.util.ArrayList())
        stages = [found.apply(place) for place in range(found.size())]
        stages = [one for one in stages if one.stageId() > stage]
        rows = sum(one.shuffleWriteRecords() for one in stages)
        size = sum(one.shuffleWriteBytes() for one in stages)
        return Shuffled(rows, size, max((one.stageId() for one in stages), default=stage))


@dataclass
class Turn:
    """A sink, the sum of its deltas, and the seconds of its micro-batches."""

    cells: int | None
    place: Path
    sink: ViewSink
    found: int = 0
    batch: int = 0
    load: float = 0.0
    shuffled: Shuffled | None = None
    full: list[float] = field(default_factory=list)
    one: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)

    def step(self, session: SparkSession, table: pa.Table) -> float:
        """Pass a micro-batch to the sink; return the seconds that it took."""
        frame = session.createDataFrame(table)
        begun = time.perf_counter()
        self.sink(frame, self.batch)
        spent = time.perf_counter() - begun
        self.batch += 1
        assert self.sink.last is not None
        self.found += count_change(self.sink.last.outputs["n"])
        return spent


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
    """A row for the embedded sink and one for each number of cells.

    Args:
        session: Spark's.
        folder: For the states.
        pattern: The view counts it.
        graph: The edges.
        cells: Numbers of cells.
        rows: New edges in a micro-batch.
        rounds: Number of timed micro-batches.
        warm: Number of micro-batches before them that are not timed.
        seed: Of the order of edges.
        verdict: Compares counts.
    """
    mixed = graph.shuffled(seed)
    new = rows * (rounds + warm) + rounds
    kept = mixed.take(slice(new, None))
    truth = f"{pattern.name} of {graph.name}"
    verdict.set_truth(truth, COUNTERS[pattern.name](graph.source, graph.target))
    turns = []
    for most in (None, *cells):
        place = folder / f"{pattern.name}-{graph.name}-{most}"
        if most is None:
            sink = ViewSink(circuit_of(pattern), state_dir=place)
        else:
            sink = ViewSink(circuit_of(pattern), state_dir=place, mode="distributed", cells=most)
        turns.append(Turn(most, place, sink))
    last = Shuffled.since(session, -1).last
    for turn in turns:
        turn.load = turn.step(session, changes_table(kept.source, kept.target))
        turn.shuffled = Shuffled.since(session, last)
        last = turn.shuffled.last
    at = 0
    for number in range(warm + rounds):
        edges = mixed.take(slice(at, at + rows))
        at += rows
        for turn in turns:
            seconds = turn.step(session, changes_table(edges.source, edges.target))
            if number >= warm:
                turn.full.append(seconds)
        _compare(verdict, f"{truth} by the embedded sink, micro-batch {number}", turns)
    for _ in range(rounds):
        edge, at = mixed.take(slice(at, at + 1)), at + 1
        for turn in turns:
            turn.one.append(turn.step(session, changes_table(edge.source, edge.target)))
            turn.idle.append(turn.step(session, changes_table(edge.source[:0], edge.target[:0])))
    stages = _stages(circuit_of(pattern))
    found = []
    for turn in turns:
        turn.sink.close()
        what = "embedded" if turn.cells is None else f"{turn.cells} cells"
        verdict.compare(what, truth, turn.found)
        row = _row(pattern, graph, turn, turns[0], rows, stages)
        found.append(row | _sent(turn, kept.edges))
    return found


def _compare(verdict: Verdict, truth: str, turns: list[Turn]) -> None:
    """Compare the counts of the distributed sinks with that of the embedded one."""
    embedded, *others = turns
    verdict.set_truth(truth, embedded.found)
    for turn in others:
        verdict.compare(f"{turn.cells} cells", truth, turn.found)


def circuit_of(pattern: Pattern) -> Circuit:
    """The view ``n``, the number of the pattern's places in ``e(src, dst)``."""
    columns = [("src", "dst")[place] for place in (0, 1)]
    seen: dict[str, str] = {}
    text = ""
    for edge in pattern.edges:
        conditions = [
            f"{edge}.{column} = {seen[node]}"
            for node, column in zip(edge, columns, strict=True)
            if node in seen
        ]
        text += f" JOIN e {edge} ON {' AND '.join(conditions)}" if text else f"e {edge}"
        for node, column in zip(edge, columns, strict=True):
            seen.setdefault(node, f"{edge}.{column}")
    return compile_sql(f"SELECT count(*) AS n FROM {text}", {"e": SCHEMA}, name="n")


def _row(
    pattern: Pattern,
    graph: Graph,
    turn: Turn,
    embedded: Turn,
    rows: int,
    stages: tuple[Stage, ...],
) -> Row:
    seconds, idle = statistics.median(turn.full), statistics.median(turn.idle)
    target = IDLE_TARGET if turn.cells == IDLE_TARGET_CELLS else None
    return {
        "query": pattern.name,
        "graph": graph.name,
        "cells": turn.cells,
        "stages": None if turn.cells is None else len(stages),
        "max/mean": _uneven(turn, stages),
        "rows/batch": rows,
        "load s": turn.load,
        "batch s": seconds,
        "by embedded": seconds / statistics.median(embedded.full),
        "one row s": statistics.median(turn.one),
        "idle s": idle,
        "target s": target,
        "met": None if target is None else idle <= target,
    }


def _sent(turn: Turn, rows: int) -> Row:
    """Return the shuffled copies and bytes of a row of the load."""
    if turn.shuffled is None or not turn.shuffled.rows:
        return {"copies by Spark": None, "bytes by Spark": None}
    return {
        "copies by Spark": turn.shuffled.rows / rows,
        "bytes by Spark": turn.shuffled.bytes / rows,
    }


def _uneven(turn: Turn, stages: tuple[Stage, ...]) -> float | None:
    """Return the rows of the fullest cell of the join, divided by the mean."""
    cells = read_newest_cells(LocalFiles(turn.place))
    if cells is None:
        return None
    (join,) = (stage for stage in stages if stage.atoms)
    loads = count_loads(join, cells.stage_manifests(join.number))
    return max(loads) * len(loads) / sum(loads)


def _stages(circuit: Circuit) -> tuple[Stage, ...]:
    fields = {name: schema.fields for name, schema in circuit.inputs.items()}
    return cut_stages(incrementalize(circuit.plans, fields)).stages
