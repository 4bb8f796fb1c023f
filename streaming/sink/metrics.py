"""Metrics: what a micro-batch brought, what it gave and where its time went.

One value per micro-batch: in ``sink.metrics``, as a line of JSON in the state directory
(``metrics.jsonl``), and through `logging` at level INFO. Spark's own progress events show them too
if the stream is observed (`streaming.observe`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.sink.progress import PHASES, Progress, Work

__all__ = ["OBSERVATION_NAME", "BatchMetrics", "Stopwatch", "observe"]

#: The name of the observed metrics in Spark's progress events.
OBSERVATION_NAME: Final = "dbsp_wcoj"
#: Seconds after which a micro-batch that is not done is logged; again after twice as many, ...
SLOW_AFTER_S: Final = 5.0
#: ... but at least this often.
MAX_LOG_INTERVAL_S: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchMetrics:
    """One micro-batch.

    Attributes:
        batch_id: The micro-batch.
        replayed: Whether it came again and only its deltas were given out again.
        rows_in: Rows taken of each relation.
        rows_out: Rows given out for each view.
        dead_letters: Rows kept as dead letters, of this micro-batch.
        dead_letters_total: Rows kept as dead letters so far, of all micro-batches.
        seconds: Time spent in each phase: ``load`` (the state, where it is not loaded), ``read``
            (Spark's work and the way to Python), ``decode`` (taking the micro-batch apart and
            looking for bad rows), ``encode``, ``step`` and ``output`` (of the circuit), ``cells``
            (of a distributed one, on the executors), ``write`` (state and deltas), ``merge``
            (making the step the state), ``publish`` (targets), and in ``all``.
        bytes_written: Bytes written to the state directory.
        arrangements: Rows and bytes of the durable state of each arrangement and table.
        missing_deletions: Of each input, the rows that were deleted more often than they were
            there, each of which swallows a later insert. Exact for inputs that are materialized, a
            lower bound for others that joins read; the rest, inputs with keys, and distributed
            circuits are not counted (`circuits.CircuitStep.missing_deletions`).
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

    def to_json(self) -> str:
        """One line.

        >>> BatchMetrics(7, False, {"e": 3}, {"v": 1}, 0, 0, {"step": 0.25}, 100).to_json()[:49]
        '{"batch_id":7,"replayed":false,"rows_in":{"e":3},'
        """
        return json.dumps(asdict(self), separators=(",", ":"))


class Stopwatch:
    """The seconds of the phases of a micro-batch; one that takes long is logged while it does.

    Args:
        batch_id: The micro-batch.
        slow: Seconds after which it is logged first; then after growing pauses.
    """

    def __init__(self, batch_id: int, slow: float = SLOW_AFTER_S) -> None:
        self._batch_id = batch_id
        self._slow = slow
        self._seconds: dict[str, float] = {}
        self._start = time.perf_counter()
        self._work = Work("start", self._start)
        self._operator: tuple[str, str, tuple[str, ...]] | None = None
        self._done = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Stopwatch:
        self._watcher = threading.Thread(target=self._watch, name="dbsp-wcoj-progress", daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._watcher is not None:
            self._watcher.join()

    @contextmanager
    def phase(self, name: str, what: str = "") -> Iterator[None]:
        """Measure a phase; ``what`` is what it works on, for the log."""
        start = time.perf_counter()
        self._work, self._operator = Work(name, start, what), None
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
            if log.isEnabledFor(logging.DEBUG):
                self._tell_phase(name, what, spent)

    def _tell_phase(self, name: str, what: str, spent: float) -> None:
        fields = {
            "event": "phase",
            "batch_id": self._batch_id,
            "phase": name,
            "subject": what,
            "seconds": round(spent, 6),
        }
        log.debug(
            *("micro-batch %d: %s: %.3f s", self._batch_id, PHASES.get(name, name), spent),
            extra={"fields": fields},
        )

    def subject(self, text: str) -> None:
        """Note what the phase works on now."""
        self._work = replace(self._work, subject=text)

    def operator(self, name: str, kind: str, views: tuple[str, ...]) -> None:
        """Note the operator that a step evaluates now, as `circuits.Circuit.observe` tells it."""
        self._operator = name, kind, views

    @property
    def progress(self) -> Progress:
        """The current activity; any thread may read it."""
        work, operator, now = self._work, self._operator, time.perf_counter()
        subject = work.subject
        if operator is not None:
            name, kind, views = operator
            of = f", of view {', '.join(views)}" if views else ""
            subject = f"operator {name} {kind}{of}"
        return Progress(self._batch_id, work.phase, subject, now - work.begun, now - self._start)

    def split(self, name: str, parts: Mapping[str, float]) -> None:
        """Count some of the seconds of a phase as those of others."""
        for part, spent in parts.items():
            if part != name:
                self._seconds[name] -= spent
                self._seconds[part] = self._seconds.get(part, 0.0) + spent

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds so far, by phase and in all."""
        total = time.perf_counter() - self._start
        return {name: round(spent, 6) for name, spent in (*self._seconds.items(), ("all", total))}

    def _watch(self) -> None:
        pause = self._slow
        while not self._done.wait(pause):
            progress = self.progress
            log.info("%s", progress, extra={"fields": progress.fields()})
            pause = min(MAX_LOG_INTERVAL_S, progress.seconds)


def observe(frame: DataFrame, weight: str = "weight") -> DataFrame:
    """Have Spark count the rows of each micro-batch, for its progress events.

    ``observedMetrics["dbsp_wcoj"]`` of a `StreamingQueryProgress` then has ``rows`` and
    ``retractions``. They are counted once however often a micro-batch is evaluated, so a sink
    that reads it twice shows in ``numInputRows``.

    Args:
        frame: A streaming DataFrame.
        weight: The column of the weights; without it no row is a retraction.
    """
    retractions = F.sum((F.col(weight) < 0).cast("long")) if weight in frame.columns else F.lit(0)
    return frame.observe(
        OBSERVATION_NAME, F.count(F.lit(1)).alias("rows"), retractions.alias("retractions")
    )
