"""Monitor: totals of a sink since the process began, and whether it is healthy and ready.

The sink calls the monitor in the thread of the micro-batch, so these calls only add up numbers.
Sizes of the state are read when somebody asks for them, from the committed version of the circuit,
which any thread may read.

*Healthy* is for the supervisor that restarts a process (``/healthz``): no micro-batch has failed,
the query has not ended, and the last commit is not too old, if a maximum age is set. Only a stream
that always has rows can have one. The monitor knows that a query has ended if `QueryListener` or
the caller of `SinkMonitor.end` tells it. *Ready* is for clients that wait for a start
(``/readyz``): the query runs, and its state is loaded.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyarrow import types
from pyspark.sql.streaming.listener import StreamingQueryProgress

from circuits.types.functions.casting.time_units import PER_SECOND
from streaming.sink.metrics import OBSERVATION_NAME, BatchMetrics
from streaming.sink.observer import Published, SinkObserver
from streaming.sink.view_sink import ViewSink

__all__ = ["BUCKETS", "Check", "SinkMonitor", "Totals"]

#: The upper bounds of the histogram of micro-batches, in seconds.
BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)


@dataclass
class Totals:
    """The totals of a sink since the process began.

    Attributes:
        results: The number of micro-batches by result: "applied", "replayed", "failed".
        seconds: The seconds of the micro-batches by phase, without failed ones.
        all_seconds: The seconds of the micro-batches.
        buckets: The number of micro-batches by the index of their bucket in ``BUCKETS``; the last
            index is that of longer ones.
        rows_in: Accepted rows by input.
        rows_out: Published rows by view, insertions and deletions.
        late_rows: Late rows by input.
        missing_deletions: Deletions of rows that do not exist, by input.
        bytes_written: The bytes written to the state directory.
        bytes_added: Those of them that are new rows and values, not merged ones.
        cell_steps: The steps of cells, in micro-batches that executors read.
        open_cell_steps: Those of them whose worker had the circuit of the cell in memory, at its
            current version. The others loaded it.
        dead_letters: The rows that were kept as dead letters.
        dead_letter_files_removed: The old files of dead letters that were removed.
        last: The metrics of the last completed micro-batch.
        last_commit: The time of the last commit in seconds since 1970; None before the first one.
        spark_seconds: The seconds of Spark's micro-batches by part (`QueryListener`).
        spark_rows: The rows that Spark read, by source.
        observed: The sums of Spark's observed metrics (`streaming.observe`).
    """

    results: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    buckets: Counter[int] = field(default_factory=Counter)
    rows_in: Counter[str] = field(default_factory=Counter)
    rows_out: Counter[str] = field(default_factory=Counter)
    late_rows: Counter[str] = field(default_factory=Counter)
    missing_deletions: Counter[str] = field(default_factory=Counter)
    spark_seconds: Counter[str] = field(default_factory=Counter)
    spark_rows: Counter[str] = field(default_factory=Counter)
    observed: Counter[str] = field(default_factory=Counter)
    all_seconds: float = 0.0
    bytes_written: int = 0
    bytes_added: int = 0
    cell_steps: int = 0
    open_cell_steps: int = 0
    dead_letters: int = 0
    dead_letter_files_removed: int = 0
    last: BatchMetrics | None = None
    last_commit: float | None = None

    def add(self, metrics: BatchMetrics) -> None:
        """Add a completed micro-batch."""
        self.last = metrics
        self.results["replayed" if metrics.replayed else "applied"] += 1
        seconds = dict(metrics.seconds)
        duration = seconds.pop("all")
        self.all_seconds += duration
        self.buckets[bisect_left(BUCKETS, duration)] += 1
        _add(self.seconds, seconds)
        if metrics.replayed:
            return  # its rows have been counted before, perhaps by another process
        self.rows_in.update(metrics.rows_in)
        self.rows_out.update(metrics.rows_out)
        self.late_rows.update(metrics.late_rows)
        self.missing_deletions.update(metrics.missing_deletions)
        self.bytes_written += metrics.bytes_written
        self.bytes_added += metrics.bytes_added
        self.cell_steps += metrics.cell_steps
        self.open_cell_steps += metrics.open_cell_steps
        self.dead_letters += metrics.dead_letters
        self.dead_letter_files_removed += metrics.dead_letter_files_removed

    def add_spark_progress(self, progress: StreamingQueryProgress) -> None:
        """Add a progress event of Spark, which describes one micro-batch."""
        _add(self.spark_seconds, {part: ms / 1000 for part, ms in progress.durationMs.items()})
        for source in progress.sources:
            self.spark_rows[source.description] += source.numInputRows
        observed = progress.observedMetrics.get(OBSERVATION_NAME)
        if observed is not None:
            self.observed.update({key: n or 0 for key, n in observed.asDict().items()})

    def copy(self) -> Totals:
        """Return a copy, which does not change any more."""
        counters: dict[str, Any] = {
            name: Counter(value) for name, value in vars(self).items() if isinstance(value, Counter)
        }
        return replace(self, **counters)


@dataclass(frozen=True)
class Check:
    """The result of a check of health or readiness.

    Attributes:
        ok: True if the check passed.
        reason: The state of the sink in one line.
    """

    ok: bool
    reason: str


class SinkMonitor(SinkObserver):
    """Observes a sink, from its next micro-batch on.

    Args:
        sink: A sink in this process.
        max_commit_age: Seconds after the last commit, or the start, after which the sink is not
            healthy; None for a stream that may have no rows for a long time.
        clock: Returns the time in seconds since 1970.
    """

    def __init__(
        self,
        sink: ViewSink,
        *,
        max_commit_age: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.sink = sink
        self._max_commit_age = max_commit_age
        self.clock = clock
        self._lock = Lock()
        # All series exist from the start, so that a rate has a value before the first row.
        self._totals = Totals(
            rows_in=Counter(dict.fromkeys(sink.circuit.inputs, 0)),
            rows_out=Counter({output.view: 0 for output in sink.outputs}),
        )
        self._start = clock()
        self._is_loaded = False  # a micro-batch has completed since the start or the last failure
        self._failure = ""
        self._end: str | None = None
        sink.add_observer(self)

    @property
    def totals(self) -> Totals:
        """A copy of the totals so far; any thread may read it."""
        with self._lock:
            return self._totals.copy()

    def batch_started(self, batch_id: int) -> None:
        """Forget a failure, because the query runs again."""
        with self._lock:
            self._failure, self._end = "", None

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """Add a micro-batch to the totals."""
        with self._lock:
            self._totals.add(metrics)
            if not metrics.replayed:
                self._totals.last_commit = self.clock()
            self._is_loaded = True

    def batch_failed(self, batch_id: int, error: BaseException) -> None:
        """Count a failed micro-batch, and keep the reason."""
        with self._lock:
            self._totals.results["failed"] += 1
            self._is_loaded = False
            # Not the message, which may show a value of a row.
            self._failure = f"micro-batch {batch_id} failed: {type(error).__name__}; see the log"

    def spark_progressed(self, progress: StreamingQueryProgress) -> None:
        """Add a progress event of Spark; `QueryListener` calls this."""
        with self._lock:
            self._totals.add_spark_progress(progress)

    def stop(self) -> None:
        """Observe the sink no longer; the totals stay as they are."""
        self.sink.remove_observer(self)

    def end(self, reason: str = "the query has ended") -> None:
        """Record that the query has ended, so that the sink is neither healthy nor ready."""
        with self._lock:
            self._end = reason

    def readiness(self) -> Check:
        """Check that the query runs and its state is loaded."""
        with self._lock:
            failure, end, is_loaded = self._failure, self._end, self._is_loaded
        progress = self.sink.progress
        if failure or end is not None:
            return Check(False, failure or str(end))
        if not is_loaded and progress is not None and progress.phase in ("start", "load"):
            return Check(False, f"loading the state for {progress.seconds:.0f} s")
        return Check(True, "waiting for rows" if progress is None else str(progress))

    def health(self) -> Check:
        """Check that no micro-batch has failed, the query runs, and the last commit is recent."""
        with self._lock:
            failure, end = self._failure, self._end
            last_commit = self._totals.last_commit
        if failure or end is not None:
            return Check(False, failure or str(end))
        age = self.clock() - (self._start if last_commit is None else last_commit)
        event = "start" if last_commit is None else "last commit"
        if self._max_commit_age is not None and age > self._max_commit_age:
            progress = self.sink.progress
            activity = "no micro-batch runs" if progress is None else str(progress)
            limit = f"the maximum is {self._max_commit_age:g} s"
            return Check(False, f"the {event} was {age:.0f} s ago, and {limit}; {activity}")
        return Check(True, f"the {event} was {age:.0f} s ago")

    def watermark_times(self) -> Mapping[str, float]:
        """Return the watermark of each input with a time, in seconds since 1970.

        An input whose event time is an integer is left out, because its unit is unknown.
        """
        times = {}
        for name, watermark in self.sink.circuit.watermarks.items():
            seconds = seconds_of(watermark)
            if seconds is not None:
                times[name] = seconds
        return times


def _add(counter: Counter[str], values: Mapping[str, float]) -> None:
    """Add numbers that may be floats to a counter."""
    for key, value in values.items():
        counter[key] += value  # type: ignore[assignment]


def seconds_of(time: pa.Scalar) -> float | None:
    """Return a date or a timestamp as seconds since 1970; None for another type.

    >>> seconds_of(pa.scalar(2, pa.date32())), seconds_of(pa.scalar(1500, pa.timestamp("ms")))
    (172800.0, 1.5)
    >>> seconds_of(pa.scalar(7))
    """
    if not (types.is_timestamp(time.type) or types.is_date(time.type)):
        return None
    if types.is_date(time.type):
        time = time.cast(pa.timestamp("s"))
    return float(time.value / PER_SECOND[time.type.unit])
