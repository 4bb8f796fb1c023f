"""History: the bounded memory of a live page about a running sink.

The sink calls ``batch_completed`` after each micro-batch, in its own thread, so this method must be
cheap. It reads the first few rows of each delta, adds up weights, and keeps no large table. The
data of the circuit (rows and bytes of arrangements, rows and time of operators) is sampled only now
and then: sampling takes at most the fraction ``MAX_SAMPLING_SHARE`` of the time. Everything else,
such as JSON, is computed in the threads of the readers.

The history keeps the last ``MAX_RECENT_BATCHES`` micro-batches in full, and at most
``MAX_TIMELINE_POINTS`` points of the timeline: the numbers of all views over the whole run. When
there are more points, every second one is dropped, so memory is bounded, and after a week the
timeline still shows the beginning of the run.
"""

from __future__ import annotations

import ast
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from circuits import Circuit
from streaming.sink.metrics import BatchMetrics
from streaming.sink.observer import Published, SinkObserver
from streaming.targets.output_mode import MODE_KEY
from streaming.ui.drawing import Drawing
from streaming.ui.matches import Matches
from streaming.ui.pattern import pattern_of
from streaming.ui.row_texts import Int64Array, Row, columns_of, rows_of, weights_of
from streaming.ui.state_summary import arrangements_of, arrangements_on_disk
from streaming.ui.view_counts import ViewCounts

__all__ = [
    "MAX_RECENT_BATCHES",
    "MAX_ROWS",
    "MAX_TIMELINE_POINTS",
    "History",
    "output_mode_of",
    "upsert_keys_of",
]

MAX_RECENT_BATCHES: Final = 120
MAX_TIMELINE_POINTS: Final = 512
MAX_ROWS: Final = 20
MAX_SAMPLING_SHARE: Final = 0.01
#: A table with at most this number of rows is kept, and formatted on request.
MAX_TABLE_ROWS: Final = 1000


@dataclass(frozen=True)
class LastChange:
    """The last published table of a view that was not empty.

    Attributes:
        batch: The micro-batch.
        mode: The output mode of the view.
        inserted: The sum of the positive weights.
        deleted: The sum of the negative weights, as a positive number.
        count: The number of rows of the table.
        rows: The table if it is small, to be formatted on request; else its first rows as texts.
    """

    batch: int
    mode: str
    inserted: int
    deleted: int
    count: int
    rows: pa.Table | list[tuple[int, Row]]

    @classmethod
    def of(cls, table: pa.Table, weights: Int64Array, batch_id: int, mode: str) -> LastChange:
        """Summarize a table."""
        inserted = int(weights[weights > 0].sum())
        deleted = inserted - int(weights.sum())
        rows = table if table.num_rows <= MAX_TABLE_ROWS else rows_of(table, MAX_ROWS)
        return cls(batch_id, mode, inserted, deleted, table.num_rows, rows)

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON values."""
        is_table = isinstance(self.rows, pa.Table)
        rows = rows_of(self.rows, MAX_ROWS) if is_table else self.rows
        return {
            "batch": self.batch,
            "mode": self.mode,
            "inserted": self.inserted,
            "deleted": self.deleted,
            "count": self.count,
            "rows": rows,
        }


class History(SinkObserver):
    """The data of a live page.

    Args:
        circuit: The views, before the first micro-batch.
        name: The title of the page.
        clock: Returns the time in seconds since 1970.
        timer: Returns seconds, to measure the cost of ``batch_completed``.
    """

    def __init__(
        self,
        circuit: Circuit,
        *,
        name: str,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._circuit = circuit
        self._clock, self._timer = clock, timer
        self._lock = Lock()
        self._drawing = Drawing.of(circuit)
        self._counts = {view: ViewCounts(circuit, view) for view in circuit.outputs}
        self._matches = _matches_of(circuit, circuit.outputs)
        # Views that were published before they were views of the circuit: in slices.
        self._early_views: set[str] = set()
        self._recent: deque[dict[str, Any]] = deque(maxlen=MAX_RECENT_BATCHES)
        self._timeline: list[dict[str, Any]] = []
        self._batches = 0
        self._stride = 1  # micro-batches for each point of the timeline
        self._last_changes: dict[str, LastChange] = {}
        self._state: list[dict[str, Any]] = []
        self._operators: list[tuple[int, float]] = []
        self._sample_time, self._sample_seconds = float("-inf"), 0.0
        self._status: dict[str, Any] = {"state": "waiting", "reason": ""}
        #: Increases with every change.
        self.version = 0
        #: Increases when the views change, so that a page needs a whole snapshot.
        self.views_version = 0
        #: The total duration of ``batch_completed`` in seconds.
        self.seconds_spent = 0.0

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """Add a micro-batch; its step is committed.

        Complexity:
            O(published rows) for their weights, in numpy; O(views · MAX_ROWS) for the rows on the
            page.
        """
        with self._measure_time():
            start, batch_id = self._timer(), published.batch_id
            values, last_changes = {}, {}
            for view, table in published.outputs.items():
                if view not in self._counts:
                    self._early_views.add(view)
                    continue
                mode = output_mode_of(table)
                weights = weights_of(table)
                counts = self._counts[view].update(
                    table, weights, mode, batch_id=batch_id, replayed=metrics.replayed
                )
                values[view] = list(counts)
                if table.num_rows:
                    last_changes[view] = LastChange.of(table, weights, batch_id, mode)
                    if view in self._matches:
                        with self._lock:  # readers see a change completely or not at all
                            self._matches[view].update(
                                table, weights, batch_id, mode=mode, keys=upsert_keys_of(table)
                            )
            is_sampled = start - self._sample_time > self._sample_seconds / MAX_SAMPLING_SHARE
            if is_sampled:
                state = arrangements_of(self._circuit) or arrangements_on_disk(metrics)
                operators = self._drawing.operator_totals(self._circuit)
                self._sample_time, self._sample_seconds = start, self._timer() - start
            entry = {
                "number": self._batches + 1,
                "id": batch_id,
                "time": round(self._clock(), 3),
                "replayed": metrics.replayed,
                "rows_in": dict(metrics.rows_in),
                "rows_out": dict(metrics.rows_out),
                "seconds": dict(metrics.seconds),
                "dead_letters": metrics.dead_letters,
                "dead_letters_total": metrics.dead_letters_total,
                "bytes_written": metrics.bytes_written,
                "heap_bytes": metrics.heap_bytes,
                "mapped_bytes": metrics.mapped_bytes,
                "values": values,
            }
            with self._lock:
                self._last_changes |= last_changes
                if is_sampled:
                    self._state, self._operators = state, operators
                self._recent.append(entry)
                self._add_point({key: entry[key] for key in ("number", "id", "time", "values")})
                self._status = {"state": "running", "reason": ""}
                self.version += 1

    def views_changed(self, circuit: Circuit) -> None:
        """Show other views from now on; views of the same name go on.

        Complexity:
            O(operators and views of the circuit).
        """
        with self._measure_time():
            drawing = Drawing.of(circuit)
            new_views = [view for view in circuit.outputs if view not in self._counts]
            counts = {view: self._counts.get(view) for view in circuit.outputs}
            new_matches = _matches_of(circuit, new_views)
            with self._lock:
                self._circuit, self._drawing = circuit, drawing
                self._counts = {
                    view: known or ViewCounts(circuit, view, is_new=view not in self._early_views)
                    for view, known in counts.items()
                }
                for known in self._counts.values():
                    known.continue_with(circuit)
                matches = {**self._matches, **new_matches}
                self._matches = {v: m for v, m in matches.items() if v in self._counts}
                self._last_changes = {
                    v: change for v, change in self._last_changes.items() if v in self._counts
                }
                self._early_views.clear()
                self._state, self._operators = [], []
                self._sample_time = float("-inf")
                self.version += 1
                self.views_version += 1

    def end(self, reason: str = "", *, failed: bool = False) -> None:
        """Record the end of the run and its reason; do not call it during a micro-batch."""
        with self._lock:
            if self._batches and self._circuit.graph.steps:  # the current values are an old sample
                self._state = arrangements_of(self._circuit)
                self._operators = self._drawing.operator_totals(self._circuit)
            self._status = {"state": "failed" if failed else "ended", "reason": reason}
            self.version += 1

    def snapshot(self) -> dict[str, Any]:
        """Return all data as JSON values, for the first event of a stream."""
        with self._lock:
            views = [
                {
                    "name": view,
                    "columns": columns_of(self._circuit.schema(view).arrow),
                    "numbers": counts.names,
                    "single_row": counts.is_single,
                    "pattern": self._pattern(view),
                }
                for view, counts in self._counts.items()
            ]
            return {
                "name": self.name,
                "inputs": list(self._circuit.inputs),
                "views": views,
                "circuit": self._drawing.picture,
                "timeline": list(self._timeline),
                "recent": list(self._recent),
                **self._current(),
            }

    def since(self, batches: int) -> dict[str, Any]:
        """Return the recent micro-batches after the first ``batches``, as JSON values."""
        with self._lock:
            recent = [entry for entry in self._recent if entry["number"] > batches]
            return {"recent": recent, **self._current()}

    def _current(self) -> dict[str, Any]:
        """Return the data that every event contains. The caller has the lock."""
        return {
            "version": self.version,
            "views_version": self.views_version,
            "batches": self._batches,
            "partial": [view for view, counts in self._counts.items() if counts.is_partial],
            "status": self._status,
            "newest": {view: change.to_json() for view, change in self._last_changes.items()},
            "matches": {view: matches.to_json() for view, matches in self._matches.items()},
            "state": self._state,
            "operators": self._operators,
            "on_executors": bool(self._batches) and not self._circuit.graph.steps,
        }

    def _pattern(self, view: str) -> dict[str, Any] | None:
        matches = self._matches.get(view)
        if matches is None:
            return None
        return {"nodes": matches.names, "edges": matches.pattern.edges}

    def _add_point(self, point: dict[str, Any]) -> None:
        """Add a point to the timeline; the last point is always that of the newest micro-batch."""
        if self._timeline and (self._batches - 1) % self._stride:
            self._timeline[-1] = point
        else:
            self._timeline.append(point)
        self._batches += 1
        if len(self._timeline) > MAX_TIMELINE_POINTS:
            self._timeline = self._timeline[::2]
            self._stride *= 2

    @contextmanager
    def _measure_time(self) -> Iterator[None]:
        start = self._timer()
        try:
            yield
        finally:
            self.seconds_spent += self._timer() - start


def _matches_of(circuit: Circuit, views: Iterable[str]) -> dict[str, Matches]:
    """Return the matches of the views that find a pattern in a graph."""
    matches = {}
    for view in views:
        pattern = pattern_of(circuit.graph, view)
        if pattern is not None:
            names = [field.name for field in circuit.schema(view).fields]
            matches[view] = Matches(pattern, names)
    return matches


def output_mode_of(table: pa.Table) -> str:
    """Return the output mode of a published table, from its metadata."""
    mode: str = (table.schema.metadata or {}).get(MODE_KEY, b"delta").decode()
    return mode.partition("(")[0]


def upsert_keys_of(table: pa.Table) -> tuple[str, ...]:
    """Return the key columns of a view that is published as upserts; otherwise none.

    >>> mode = {MODE_KEY: "upsert('a', 'b')"}
    >>> upsert_keys_of(pa.table({"a": [1]}).replace_schema_metadata(mode))
    ('a', 'b')
    """
    mode: str = (table.schema.metadata or {}).get(MODE_KEY, b"delta").decode()
    columns = mode.partition("(")[2].removesuffix(")")
    keys: tuple[str, ...] = ast.literal_eval(f"({columns},)") if columns else ()
    return keys
