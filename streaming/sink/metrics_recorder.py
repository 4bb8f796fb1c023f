"""Metrics recorder: the metrics of the micro-batches of a sink, in memory, on disk and in the log.

The metrics of a micro-batch are made when it is published. The last `MAX_METRICS_KEPT` stay in
memory. A warning that rows are deleted more often than inserted is logged once for each input.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from circuits.runtime.state_names import StateNames
from streaming.engine.engine import CellCounts
from streaming.errors import StateError
from streaming.sink.metrics import BatchMetrics, Stopwatch
from streaming.state.mapped.memory_limit import MemoryUse
from streaming.state.memory_store import InMemoryStore
from streaming.state.segment import split_part_name
from streaming.state.store import Store
from streaming.state.version_summary import VersionSummary

__all__ = ["BatchResult", "MetricsRecorder"]

MAX_METRICS_KEPT: Final = 1000  # micro-batches in `ViewSink.metrics`
MISSING_DELETIONS_WARNING: Final = (
    "input %r: micro-batch %d deletes %d rows more often than they were inserted; they are kept "
    "with a negative weight, so a later insert of the same row has no effect; "
    "InputOptions(strict=True) rejects such rows instead; this warning is logged once, and the "
    "metrics count the rows (missing_deletions)"
)

#: Jobs select these lines by the name of the sink's logger.
log = logging.getLogger("streaming.sink.view_sink")


@dataclass(frozen=True)
class BatchResult:
    """An applied or replayed micro-batch.

    Attributes:
        summary: Its version.
        rows_in: The number of rows of each relation.
        is_replay: True if it was committed before, so that it is only published again.
        dead_letters: The number of its dead letters; 0 for a replay.
        missing_deletions: Of each input, the rows that were deleted more often than inserted.
        late_rows: Of each input with late rows, their number.
        cell_counts: The steps of cells; none for a replay.
    """

    summary: VersionSummary
    rows_in: Mapping[str, int]
    is_replay: bool = False
    dead_letters: int = 0
    missing_deletions: Mapping[str, int] = field(default_factory=dict)
    late_rows: Mapping[str, int] = field(default_factory=dict)
    cell_counts: CellCounts = field(default_factory=CellCounts)


class MetricsRecorder:
    """The metrics of the micro-batches that a sink has applied in this process.

    Args:
        versions: The versions of the state, which the sink has written to.
        state_names: The names of the parts of the state.

    Attributes:
        state_names: The names; assign others when the views change.
    """

    def __init__(self, versions: Store | InMemoryStore, state_names: StateNames) -> None:
        self.state_names = state_names
        self._versions = versions
        self._metrics: deque[BatchMetrics] = deque(maxlen=MAX_METRICS_KEPT)
        self._missing_deletions_logged: set[str] = set()  # names of inputs

    @property
    def metrics(self) -> tuple[BatchMetrics, ...]:
        """The metrics of the last micro-batches, oldest first."""
        return tuple(self._metrics)

    @property
    def last(self) -> BatchMetrics:
        """The metrics of the last micro-batch; there must be one."""
        return self._metrics[-1]

    def record(self, result: BatchResult, watch: Stopwatch) -> None:
        """Keep the metrics of a micro-batch, write them to the directory and the log.

        A file system that fails costs a warning, not the micro-batch, which is committed.
        """
        summary, batch_id = result.summary, result.summary.batch_id
        memory = self._versions.memory or MemoryUse(0, 0, 0)
        metrics = BatchMetrics(
            batch_id=batch_id,
            replayed=result.is_replay,
            rows_in=dict(result.rows_in),
            rows_out=summary.outputs.rows,
            dead_letters=result.dead_letters,
            dead_letters_total=summary.dead_letters,
            dead_letter_files_removed=(
                0 if result.is_replay else self._versions.dead_letter_files_removed
            ),
            seconds=watch.seconds,
            bytes_written=0 if result.is_replay else self._versions.bytes_written,
            bytes_added=0 if result.is_replay else self._versions.bytes_added,
            dead_letter_bytes=self._versions.dead_letter_bytes,
            arrangements={
                self.state_names.name(*split_part_name(name)): size
                for name, size in summary.sizes.items()
            },
            missing_deletions=dict(result.missing_deletions),
            late_rows=dict(result.late_rows),
            heap_bytes=memory.heap_bytes,
            mapped_bytes=memory.mapped_bytes,
            cell_steps=result.cell_counts.steps,
            open_cell_steps=result.cell_counts.open,
        )
        self._metrics.append(metrics)
        for name, rows in result.missing_deletions.items():
            if rows and name not in self._missing_deletions_logged:
                self._missing_deletions_logged.add(name)
                log.warning(MISSING_DELETIONS_WARNING, name, batch_id, rows)
        if result.dead_letters:
            log.warning(
                "micro-batch %d: rows that were not accepted: %d; they are %s",
                batch_id,
                result.dead_letters,
                self._versions.describe_dead_letters(),
            )
        line = metrics.to_json()
        if log.isEnabledFor(logging.INFO):
            fields = {"event": "metrics", "metrics": asdict(metrics)}
            log.info("%s", line, extra={"fields": fields})
        try:
            self._versions.append_metrics(f"{line}\n")
        except (OSError, StateError) as error:
            log.warning("the metrics of micro-batch %d were not written: %s", batch_id, error)
