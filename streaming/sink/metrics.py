"""Metrics: rows, seconds by phase and state sizes of each micro-batch.

There is one `BatchMetrics` per micro-batch: in ``sink.metrics``, as a line of JSON in the state
directory (``metrics.jsonl``), and through `logging` at level INFO. Spark's own progress events
count the rows as well if the stream is observed (`streaming.observe`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.sink.progress import PHASES, Progress, Work
from streaming.sources.change_feeds.feed import RELATION

__all__ = ["OBSERVATION_NAME", "BatchMetrics", "Stopwatch", "observe"]

#: The name of the observed metrics in Spark's progress events.
OBSERVATION_NAME: Final = "dbsp_wcoj"
#: Seconds until the progress of a running micro-batch is logged. The interval then doubles.
SLOW_AFTER_S: Final = 5.0
MAX_LOG_INTERVAL_S: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchMetrics:
    """The metrics of one micro-batch.

    Attributes:
        batch_id: The micro-batch.
        replayed: True if the micro-batch was replayed, so that only its tables were published
            again.
        rows_in: Accepted rows of each relation.
        rows_out: Published rows of each view.
        dead_letters: Rows kept as dead letters, of this micro-batch.
        dead_letters_total: Rows kept as dead letters so far, of all micro-batches.
        seconds: Seconds of each phase: ``load`` (the state, if it is not loaded), ``read`` (Spark's
            work and the transfer to Python), ``decode`` (splitting into relations and checking
            rows), ``encode``, ``step`` and ``output`` (of the circuit), ``cells`` (of a distributed
            circuit, on the executors), ``write`` (state and deltas), ``merge`` (commit in memory),
            ``backfill`` (a part of new views), ``publish`` (targets), and ``all``.
        bytes_written: Bytes written to the state directory.
        arrangements: Rows and bytes on disk of each arrangement (a relation in one column order)
            and each dictionary (codes of strings), by its name as in `circuits.Circuit.explain`
            (`circuits.runtime.state_names`).
        missing_deletions: Of each input, the rows that were deleted more often than inserted; each
            of them cancels a later insert. Exact for materialized inputs, a lower bound for others
            that joins read; other inputs, inputs with keys, and distributed circuits are not
            counted (`circuits.CircuitStep.missing_deletions`).
        late_rows: Of each input with late rows, their number; they are dead letters as well.
        dead_letter_files_removed: Old files of dead letters that were removed after the commit.
        bytes_added: Bytes of the rows and values that the micro-batch adds to the state directory:
            ``bytes_written`` without the bytes of merges and manifests.
        dead_letter_bytes: Bytes of all files of dead letters after the commit.
        heap_bytes: With a memory limit, bytes of the state in memory after the commit; else 0.
        mapped_bytes: With a memory limit, bytes of the state that are memory maps of files; else 0.
        cell_steps: Of a distributed circuit, the steps of cells on executors; 0 if the driver has
            read the rows of the micro-batch.
        open_cell_steps: How many of these steps found the circuit of their cell in the memory of
            their worker, at its current version. The others loaded it.
    """

    batch_id: int
    replayed: bool
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    dead_letters: int
    dead_letters_total: int
    seconds: Mapping[str, float]
    bytes_written: int
    arrangements: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    missing_deletions: Mapping[str, int] = field(default_factory=dict)
    late_rows: Mapping[str, int] = field(default_factory=dict)
    dead_letter_files_removed: int = 0
    bytes_added: int = 0
    dead_letter_bytes: int = 0
    heap_bytes: int = 0
    mapped_bytes: int = 0
    cell_steps: int = 0
    open_cell_steps: int = 0

    def to_json(self) -> str:
        """Return the metrics as one line of JSON.

        >>> BatchMetrics(7, False, {"e": 3}, {"v": 1}, 0, 0, {"step": 0.25}, 100).to_json()[:49]
        '{"batch_id":7,"replayed":false,"rows_in":{"e":3},'
        """
        return json.dumps(asdict(self), separators=(",", ":"))


class Stopwatch:
    """Measures the phases of a micro-batch, and logs a slow micro-batch while it runs.

    Args:
        batch_id: The micro-batch.
        slow_after_s: Seconds before the first log line; the intervals then grow.
        on_phase: Called at the end of each phase, with its name and its seconds.
    """

    def __init__(
        self,
        batch_id: int,
        slow_after_s: float = SLOW_AFTER_S,
        *,
        on_phase: Callable[[str, float], object] | None = None,
    ) -> None:
        self._batch_id = batch_id
        self._on_phase = on_phase
        self._slow_after_s = slow_after_s
        self._seconds: dict[str, float] = {}
        self._start = time.perf_counter()
        self._work = Work("start", self._start)
        self._operator: tuple[str, str, tuple[str, ...]] | None = None
        self._done = threading.Event()
        self._logger_thread: threading.Thread | None = None

    def __enter__(self) -> Stopwatch:
        self._logger_thread = threading.Thread(
            target=self._log_progress, name="dbsp-wcoj-progress", daemon=True
        )
        self._logger_thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._logger_thread is not None:
            self._logger_thread.join()

    @contextmanager
    def phase(self, name: str, subject: str = "") -> Iterator[None]:
        """Measure a phase; ``subject`` says in the log what the phase works on."""
        start = time.perf_counter()
        self._work, self._operator = Work(name, start, subject), None
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds
            if self._on_phase is not None:
                self._on_phase(name, seconds)
            if log.isEnabledFor(logging.DEBUG):
                self._log_phase(name, subject, seconds)

    def _log_phase(self, name: str, subject: str, seconds: float) -> None:
        fields = {
            "event": "phase",
            "batch_id": self._batch_id,
            "phase": name,
            "subject": subject,
            "seconds": round(seconds, 6),
        }
        activity = PHASES.get(name, name)
        extra = {"fields": fields}
        log.debug("micro-batch %d: %s: %.3f s", self._batch_id, activity, seconds, extra=extra)

    def set_subject(self, text: str) -> None:
        """Record what the phase works on now."""
        self._work = replace(self._work, subject=text)

    def operator(self, name: str, kind: str, views: tuple[str, ...]) -> None:
        """Record the operator that a step evaluates; a callback of `circuits.Circuit.observe`."""
        self._operator = name, kind, views

    @property
    def progress(self) -> Progress:
        """The current activity. Any thread may read it."""
        work, operator, now = self._work, self._operator, time.perf_counter()
        subject = work.subject
        if operator is not None:
            name, kind, views = operator
            subject = f"operator {name} {kind}"
            if views:
                subject += f", of view {', '.join(views)}"
        return Progress(self._batch_id, work.phase, subject, now - work.start, now - self._start)

    def split_phase(self, name: str, parts: Mapping[str, float]) -> None:
        """Count some of the seconds of a phase as seconds of other phases."""
        for part, seconds in parts.items():
            if part != name:
                self._seconds[name] -= seconds
                self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds so far, by phase and in total."""
        total = time.perf_counter() - self._start
        return {
            name: round(seconds, 6) for name, seconds in {**self._seconds, "all": total}.items()
        }

    def _log_progress(self) -> None:
        pause = self._slow_after_s
        while not self._done.wait(pause):
            progress = self.progress
            log.info("%s", progress, extra={"fields": progress.fields()})
            pause = min(MAX_LOG_INTERVAL_S, progress.seconds)


def observe(frame: DataFrame, weight: str = "weight", relations: Collection[str] = ()) -> DataFrame:
    """Count the rows of each micro-batch in Spark's progress events.

    ``observedMetrics["dbsp_wcoj"]`` of a `StreamingQueryProgress` then has ``rows``,
    ``retractions``, and the rows of each relation, such as ``rows_orders``. Spark counts each of
    these rows once, however often it evaluates the micro-batch, so if a sink reads a micro-batch
    twice, ``numInputRows`` is larger than ``rows``.

    Args:
        frame: A streaming DataFrame.
        weight: The column of the weights; without it no row is a retraction.
        relations: Relations to count apart, by the column ``relation`` of a merged stream.
    """
    retractions = F.sum((F.col(weight) < 0).cast("long")) if weight in frame.columns else F.lit(0)
    rows_by_relation = [
        F.count(F.when(F.col(RELATION) == name, 1)).alias(f"rows_{name}") for name in relations
    ]
    return frame.observe(
        OBSERVATION_NAME,
        F.count(F.lit(1)).alias("rows"),
        retractions.alias("retractions"),
        *rows_by_relation,
    )
