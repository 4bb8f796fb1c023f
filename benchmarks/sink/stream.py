"""Measures live triangles of a real stream of messages, with and without Spark and durable state.

The stream is sx-mathoverflow in a window of 30 days: every message is an edge that is inserted, and
deleted 30 days later. The first micro-batch has most of the stream, so that the graph has its usual
size; it is not measured. Micro-batches of one size follow. The view of undirected triangles gets
them in three ways:

engine     the circuit alone, its state in memory
sink       the sink with its state on the local disk; it gets the rows as tables
Spark      the same sink at the end of a stream of files, one for each micro-batch

At the end the count must equal an independent count of the live edges and, if there is a file of
expected counts beside the stream, the expected count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.counter import count
from benchmarks.result import Row
from benchmarks.rmat import rmat
from benchmarks.sink.graph import Integers, changes_table, count_change, micro_batch_of
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_sql
from streaming import ViewSink
from streaming.demo.events import ChangeStream, read_events
from streaming.demo.oracle import read_oracle
from streaming.demo.replay import read_files, write_files

VIEWS = """
CREATE VIEW u AS
    SELECT src, dst FROM e WHERE src < dst
    UNION
    SELECT dst, src FROM e WHERE dst < src;
CREATE VIEW triangles AS
    SELECT count(*) AS n
    FROM u ab JOIN u bc ON bc.src = ab.dst JOIN u ac ON ac.src = ab.src AND ac.dst = bc.dst;
"""
SCHEMA = pa.schema([pa.field("src", pa.int64(), False), pa.field("dst", pa.int64(), False)])
END_SHARE = 0.6  # the measured micro-batches end after about this share of the stream


@dataclass(frozen=True)
class Events:
    """A stream, and the known numbers of triangles by the number of events so far."""

    name: str
    stream: ChangeStream
    known_counts: dict[int, int]


def read_stream(path: Path) -> Events:
    """Read the stream of a file ``<name>-window-events.parquet`` and the oracle beside it."""
    stream = read_events(path)
    oracle = path.with_name(path.name.replace("-events", "-oracle"))
    known_counts: dict[int, int] = {}
    if oracle.is_file():
        counts = read_oracle(oracle, stream)
        known_counts = dict(
            zip(counts.positions.tolist(), counts.expected["undirected"].tolist(), strict=True)
        )
    return Events(path.stem.removesuffix("-window-events"), stream, known_counts)


def generate_stream(edges: int, folder: Path, seed: int) -> Events:
    """Generate the edges of an RMAT graph; each is deleted a third of the stream later."""
    scale = max(5, int(edges / 8).bit_length())
    source, target = rmat(scale, edges, seed=seed)
    order = np.random.default_rng(seed).permutation(len(source))
    source, target = source[order], target[order]
    inserted_at = 2 * np.arange(len(source))
    deleted_at = inserted_at + 2 * (len(source) // 3) + 1
    by_time = np.argsort(np.concatenate([inserted_at, deleted_at]), kind="stable")
    table = pa.table(
        {
            "src": np.tile(source, 2)[by_time],
            "dst": np.tile(target, 2)[by_time],
            "ts": np.arange(len(by_time)),
            "op": np.repeat([1, -1], len(source))[by_time],
        }
    )
    path = folder / "generated.parquet"
    pq.write_table(table, path)
    return Events(f"{edges:,} generated edges", read_events(path), {})


def measure_stream(
    session: SparkSession,
    folder: Path,
    events: Events,
    *,
    size: int,
    max_batches: int,
    verdict: Verdict,
) -> Row:
    """Measure at most ``max_batches`` micro-batches of one size."""
    desired_end = int(END_SHARE * len(events.stream))
    end = min(
        (position for position in events.known_counts if position >= desired_end),
        default=desired_end,
    )
    batches = min(max_batches, (end - 1) // size)
    # The numbers of events after the first micro-batch, which is not measured, and each other one.
    cuts = np.arange(end - size * batches, end + 1, size)
    truth = f"triangles of {events.name} after {end:,} events"
    verdict.set_truth(
        truth, _count_live_triangles(events.stream, end), events.known_counts.get(end)
    )
    tables = [
        changes_table(*(column[begin:end_of_batch] for column in _columns(events.stream)))
        for begin, end_of_batch in pairwise([0, *cuts.tolist()])
    ]
    seconds: dict[str, Sequence[float]] = {}

    def record(way: str, change: int, clock_times: Sequence[float]) -> None:
        verdict.compare(f"{way}, {size:,} events in a micro-batch", truth, change)
        seconds[way] = np.diff(clock_times).tolist()

    record("engine", *_run_each(tables, _step_function(_circuit())))
    sink = ViewSink(_circuit(), state_dir=folder / f"{size}-sink")
    record(
        "sink",
        *_run_each(tables, lambda table, number: _pass_to(sink, micro_batch_of(table), number)),
    )
    sink.close()
    write_files(events.stream, cuts, folder / f"{size}-files")
    durable = ViewSink(_circuit(), state_dir=folder / f"{size}-state")
    record("Spark", *_through_spark(session, folder / f"{size}-files", durable))
    durable.close()
    phases = [metrics.seconds for metrics in durable.metrics][1:]
    return {
        "stream": events.name,
        "events/batch": size,
        "batches": batches,
        "triangles": verdict.truths[truth],
        **{f"{way} events/s": size * batches / sum(seconds[way]) for way in reversed(seconds)},
        **{f"{way} ms": statistics.median(seconds[way]) * 1000 for way in reversed(seconds)},
        "largest ms, with Spark": max(seconds["Spark"]) * 1000,
        **{
            f"{phase} ms, with Spark": statistics.median(batch[phase] for batch in phases) * 1000
            for phase in ("read", "step", "write")
        },
    }


def _circuit() -> Circuit:
    return compile_sql(VIEWS, {"e": SCHEMA}, outputs=["triangles"])


def _columns(events: ChangeStream) -> tuple[Integers, Integers, Integers]:
    return events.source, events.target, events.weight


def _run_each(
    tables: Sequence[pa.Table], run: Callable[[pa.Table, int], int]
) -> tuple[int, list[float]]:
    """Run all micro-batches; return the change of the count, and the clock after each of them."""
    total, clock_times = 0, []
    for number, table in enumerate(tables):
        total += run(table, number)
        clock_times.append(time.perf_counter())
    return total, clock_times


def _step_function(circuit: Circuit) -> Callable[[pa.Table, int], int]:
    return lambda table, _: count_change(circuit.step({"e": table})["triangles"])


def _pass_to(sink: ViewSink, df: Any, number: int) -> int:
    sink(df, number)
    assert sink.last is not None
    return count_change(sink.last.outputs["triangles"])


def _through_spark(session: SparkSession, files: Path, sink: ViewSink) -> tuple[int, list[float]]:
    """Stream the files to the sink; return the same as `_run_each`."""
    total, clock_times = 0, []

    def process_batch(df: DataFrame, batch_id: int) -> None:
        nonlocal total
        total += _pass_to(sink, df, batch_id)
        clock_times.append(time.perf_counter())

    query = (
        read_files(session, files)
        .writeStream.foreachBatch(process_batch)
        .option("checkpointLocation", f"{files}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return total, clock_times


def _count_live_triangles(events: ChangeStream, end: int) -> int:
    """Count the undirected triangles of the edges that are live after the first ``end`` events."""
    source, target, weight = (column[:end] for column in _columns(events))
    nodes = int(max(source.max(), target.max())) + 1
    edges, numbers = np.unique(source * nodes + target, return_inverse=True)
    live = edges[np.bincount(numbers, weights=weight) > 0]
    low, high = np.minimum(live // nodes, live % nodes), np.maximum(live // nodes, live % nodes)
    pairs = np.unique((low * nodes + high)[low < high])
    return count(pairs // nodes, pairs % nodes)
