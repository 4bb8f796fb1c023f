"""Replay a change stream through Spark into the views, and keep the history of their counts.

The file source gives one file to each micro-batch (``maxFilesPerTrigger``), and the query ends when
all files are read. After each micro-batch the deltas are added to the current views, the counts
are checked, and the observer is called, all in the thread of Spark's callback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit
from streaming.cli.streaming_query import run_query
from streaming.demo.checks import Checks
from streaming.demo.events import ChangeStream, Integers
from streaming.demo.replay import read_files, write_files
from streaming.demo.triangles import CurrentViews, GraphCounts
from streaming.errors import FailedError, StreamingError
from streaming.sink.observer import SinkObserver
from streaming.sink.view_sink import ViewSink

__all__ = ["History", "run"]

MAX_LEADERS: Final = 5


@dataclass
class History:
    """The counts after each micro-batch.

    Attributes:
        stream: The changes that are replayed.
        cuts: The number of changes that have been applied after each micro-batch.
        checks: The comparisons of the counts.
        views: The current views.
        counts: The counts of the graph after each micro-batch so far.
        peak: The highest value of each count, and the number of the micro-batch that had it first.
        busiest: The leading nodes of each view when the graph had the most directed triangles.
        seconds: Wall time of each micro-batch since the one before, the first from the start.
    """

    stream: ChangeStream
    cuts: Integers
    checks: Checks
    views: CurrentViews = field(default_factory=CurrentViews)
    counts: list[GraphCounts] = field(default_factory=list)
    peak: dict[str, tuple[int, int]] = field(default_factory=dict)
    busiest: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    @property
    def position(self) -> int:
        """The number of changes applied so far."""
        return int(self.cuts[len(self.counts) - 1]) if self.counts else 0

    def add(self, outputs: Mapping[str, pa.Table]) -> None:
        """Add the deltas of the next micro-batch."""
        self.views.add(outputs)
        counts = self.views.counts
        for name in (count.name for count in fields(counts)):
            value = getattr(counts, name)
            if name not in self.peak or value > self.peak[name][0]:
                self.peak[name] = (value, len(self.counts))
                if name == "triangles":
                    self.busiest = self.leaders()
        self.counts.append(counts)
        self.checks.compare(self.position, self.views)

    def leaders(self) -> dict[str, list[tuple[int, int]]]:
        """The nodes with the highest current counts."""
        return {view: self.views.top(view, MAX_LEADERS) for view in ("corners", "cycle_corners")}


def run(
    session: SparkSession,
    history: History,
    *,
    circuit: Circuit,
    directory: Path,
    observe: Callable[[], None] = lambda: None,
    observers: Sequence[SinkObserver] = (),
) -> None:
    """Replay the stream of ``history``, which grows with each micro-batch.

    Args:
        session: The Spark session.
        history: The stream, its cuts and checks; each micro-batch adds to it.
        circuit: The views, empty.
        directory: Receives the files of the stream and the checkpoint; created if necessary.
        observe: Called after each micro-batch.
        observers: Observers of the sink, such as a live page.

    Raises:
        StreamingError: The query failed.
        KeyboardInterrupt: A signal ended the query.
    """
    write_files(history.stream, history.cuts, directory / "changes")
    last = time.perf_counter()

    sink = ViewSink(circuit, observers=observers)

    def process_batch(df: DataFrame, batch_id: int) -> None:
        nonlocal last
        sink(df, batch_id)
        if sink.last is None or batch_id < len(history.counts):
            return  # a replayed micro-batch, which is in the history already
        history.add(sink.last.outputs)
        now = time.perf_counter()
        history.seconds.append(now - last)
        last = now
        observe()

    try:
        has_ended = run_query(
            read_files(session, directory / "changes"),
            process_batch,
            checkpoint=directory / "checkpoint",
            name="triangles",
            once=True,
        )
    except FailedError as error:
        raise StreamingError(
            f"the stream stopped after {history.position:,} changes: {error}"
        ) from error
    if not has_ended:
        raise KeyboardInterrupt
    if history.position != len(history.stream):
        raise StreamingError(
            f"the stream ended after {history.position:,} of {len(history.stream):,} changes: "
            f"look at the files in {directory}"
        )
