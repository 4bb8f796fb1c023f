"""Run: replay a change stream through Spark into the views, and keep what they showed.

The file source hands one file to each micro-batch (``maxFilesPerTrigger``), the trigger
``availableNow`` runs until all files are read. After each micro-batch the deltas are added to the
totals, checked, and shown to the observer, all in the thread that Spark calls back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit
from streaming.demo.checks import Checks
from streaming.demo.events import ChangeStream, Integers
from streaming.demo.replay import read_files, write_files
from streaming.demo.triangles import Counts, Totals
from streaming.errors import StreamingError
from streaming.sink.view_sink import ViewSink, Watcher

__all__ = ["History", "run"]

TOP: Final = 5


@dataclass
class History:
    """What the views showed after each micro-batch.

    Attributes:
        stream: The changes that are replayed.
        cuts: How many changes have been applied after each micro-batch.
        checks: What the totals are compared with.
        totals: The views now.
        counts: The totals after each micro-batch so far.
        peak: The highest value of each total, and the number of the micro-batch that had it first.
        busiest: The leading nodes of each view when the graph had most directed triangles.
        seconds: Wall time of each micro-batch since the one before, the first from the start.
    """

    stream: ChangeStream
    cuts: Integers
    checks: Checks
    totals: Totals = field(default_factory=Totals)
    counts: list[Counts] = field(default_factory=list)
    peak: dict[str, tuple[int, int]] = field(default_factory=dict)
    busiest: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    @property
    def position(self) -> int:
        """The number of changes applied so far."""
        return int(self.cuts[len(self.counts) - 1]) if self.counts else 0

    def add(self, outputs: Mapping[str, pa.Table]) -> None:
        """Take in the deltas of the next micro-batch."""
        self.totals.add(outputs)
        counts = self.totals.counts
        for name in (total.name for total in fields(counts)):
            value = getattr(counts, name)
            if name not in self.peak or value > self.peak[name][0]:
                self.peak[name] = (value, len(self.counts))
                if name == "triangles":
                    self.busiest = self.leaders()
        self.counts.append(counts)
        self.checks.after(self.position, self.totals)

    def leaders(self) -> dict[str, list[tuple[int, int]]]:
        """The nodes with the highest counts now."""
        return {view: self.totals.top(view, TOP) for view in ("corners", "turning")}


def run(
    session: SparkSession,
    history: History,
    *,
    circuit: Circuit,
    directory: Path,
    observe: Callable[[], None] = lambda: None,
    watcher: Watcher | None = None,
) -> None:
    """Replay the stream of ``history``, which grows with each micro-batch.

    Args:
        session: The Spark session.
        history: The stream, its cuts and checks; filled in as the stream goes on.
        circuit: The views, empty.
        directory: Takes the files of the stream and the checkpoint; made when not there.
        observe: Called after each micro-batch.
        watcher: For ``ViewSink.watch``, such as a live page.

    Raises:
        StreamingError: The query failed.
    """
    write_files(history.stream, history.cuts, directory / "changes")
    last = time.perf_counter()

    sink = ViewSink(circuit)
    if watcher is not None:
        sink.watch(watcher)

    def step(df: DataFrame, batch_id: int) -> None:
        nonlocal last
        sink(df, batch_id)
        if sink.last is None or batch_id < len(history.counts):
            return  # a replayed micro-batch, which is in the history already
        history.add(sink.last.outputs)
        now = time.perf_counter()
        history.seconds.append(now - last)
        last = now
        observe()

    failures: list[Exception] = []

    def noting(df: DataFrame, batch_id: int) -> None:
        try:
            step(df, batch_id)
        except Exception as error:
            failures.append(error)  # Spark would bury it in a page of plans
            raise

    query = (
        read_files(session, directory / "changes")
        .writeStream.foreachBatch(noting)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .queryName("triangles")
        .start()
    )
    stopped: list[StreamingQueryException] = []

    def wait() -> None:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            stopped.append(error)

    # Ctrl-C must find this thread outside of a call to Java, whose connection it would break.
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    try:
        while waiting.is_alive():
            waiting.join(0.1)
    finally:
        if query.isActive:
            query.stop()
    if stopped:
        cause = failures[-1] if failures else str(stopped[0]).partition("\n")[0]
        raise StreamingError(
            f"the stream stopped after {history.position:,} changes: {cause}"
        ) from stopped[0]
    if history.position != len(history.stream):
        raise StreamingError(
            f"the stream ended after {history.position:,} of {len(history.stream):,} changes: "
            f"look at the files in {directory}"
        )
