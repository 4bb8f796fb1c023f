"""The progress of a run: one line for each view, with its rows and its last change.

On a terminal the dashboard redraws a small table in place; elsewhere it logs a line for each
micro-batch. It shows the metrics of the sink, and adds no cost to a micro-batch.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from circuits import Circuit
from streaming.cli.terminal.display import amount, duration, milliseconds, plain_table, plural
from streaming.cli.terminal.live_table import LiveTable
from streaming.sink.metrics import BatchMetrics
from streaming.sink.observer import Published, SinkObserver
from streaming.ui.history import output_mode_of
from streaming.ui.row_texts import weights_of
from streaming.ui.view_counts import ViewCounts

__all__ = ["Dashboard"]

log = logging.getLogger(__name__)

#: Rate and latency are those of this many micro-batches.
MAX_RECENT_BATCHES: Final = 60


class Dashboard(LiveTable, SinkObserver):
    """Shows a run.

    Args:
        console: The terminal.
        circuit: The views.
        is_live: True to redraw a table; otherwise lines are logged.
        clock: Returns the current time in seconds.

    Attributes:
        batches: The number of micro-batches so far.
        rows: The number of input rows so far.
    """

    def __init__(
        self,
        console: Console,
        circuit: Circuit,
        *,
        is_live: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, is_live=is_live)
        self._clock = clock
        self._counts = {view: ViewCounts(circuit, view) for view in circuit.outputs}
        # For each view, its row count, or the values of its only row (`ViewCounts.names`).
        self._numbers: dict[str, list[float | None]] = {}
        # For each view, the micro-batch of its last change, and the number of changed rows.
        self._changes: dict[str, tuple[int, int]] = {}
        self._recent: deque[tuple[float, BatchMetrics]] = deque(maxlen=MAX_RECENT_BATCHES)
        self._begin_time = clock()
        self.batches = self.rows = 0

    def views_changed(self, circuit: Circuit) -> None:
        """Show other views."""
        self._counts = {
            view: self._counts.get(view) or ViewCounts(circuit, view) for view in circuit.outputs
        }
        self._numbers = {v: numbers for v, numbers in self._numbers.items() if v in self._counts}

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """Add a micro-batch."""
        for view, table in published.outputs.items():
            if view not in self._counts:  # a slice of a new view
                continue
            mode = output_mode_of(table)
            numbers = self._counts[view].update(
                table,
                weights_of(table),
                mode,
                batch_id=published.batch_id,
                replayed=metrics.replayed,
            )
            self._numbers[view] = list(numbers)
            if table.num_rows:
                self._changes[view] = (published.batch_id, table.num_rows)
        self._recent.append((self._clock(), metrics))
        self.batches += 1
        self.rows += sum(metrics.rows_in.values())
        if not self.is_live:
            log.info("%s", self.line(), extra={"fields": self.fields()})

    def line(self) -> str:
        """Return the last micro-batch as a line."""
        if not self._recent:
            return "no micro-batch so far"
        _, metrics = self._recent[-1]
        rows = sum(metrics.rows_in.values())
        views = ", ".join(f"{view} {self._current(view)}" for view in self._numbers)
        total = metrics.dead_letters_total
        bad = f"; {plural(total, 'bad row')} so far" if total else ""
        return (
            f"micro-batch {metrics.batch_id}: {plural(rows, 'row')} in "
            f"{milliseconds(metrics.seconds['all'])} ms; {views}{bad}"
        )

    def fields(self) -> dict[str, Any]:
        """Return the last micro-batch as keys and values, for a log in JSON."""
        _, metrics = self._recent[-1]
        return {
            "event": "micro_batch",
            "batch_id": metrics.batch_id,
            "replayed": metrics.replayed,
            "rows_in": dict(metrics.rows_in),
            "rows_out": dict(metrics.rows_out),
            "seconds": metrics.seconds["all"],
            "phases": {name: s for name, s in metrics.seconds.items() if name != "all"},
            "bytes_written": metrics.bytes_written,
            "views": self.numbers(),
            "bad_rows": metrics.dead_letters_total,
        }

    def log_summary(self) -> None:
        """Log the totals of the run."""
        fields = {
            "event": "summary",
            "micro_batches": self.batches,
            "rows": self.rows,
            "seconds": round(self._clock() - self._begin_time, 3),
        }
        log.info("%s.", self.summary(), extra={"fields": fields})

    def summary(self) -> str:
        """Return the totals of the run as a sentence."""
        seconds = self._clock() - self._begin_time
        times = [metrics.seconds["all"] for _, metrics in self._recent]
        pace = f", {milliseconds(median(times))} ms for the median one" if times else ""
        return (
            f"{plural(self.batches, 'micro-batch', 'es')} with {plural(self.rows, 'row')} in "
            f"{duration(seconds)}{pace}"
        )

    def numbers(self) -> dict[str, dict[str, float | None]]:
        """Return the current numbers of each view by name.

        If the rows of a view at the start are unknown, its only number is ``rows_since``: the rows
        that were added since the start.
        """
        numbers_of_views: dict[str, dict[str, float | None]] = {}
        for view, numbers in self._numbers.items():
            counts = self._counts[view]
            if counts.is_partial:
                numbers_of_views[view] = {"rows_since": counts.change}
            else:
                numbers_of_views[view] = dict(zip(counts.names, numbers, strict=True))
        return numbers_of_views

    def frame(self) -> RenderableType:
        """Return the table."""
        if not self._recent:
            return Text("waiting for the first micro-batch ...", style="note")
        table = plain_table()
        table.add_column("view", style="name", no_wrap=True)
        table.add_column("now", justify="right")
        table.add_column("last change", style="note")
        for view in self._numbers:
            change = self._changes.get(view)
            text = (
                f"{plural(change[1], 'row')} in micro-batch {change[0]:,}" if change else "none yet"
            )
            table.add_row(view, self._current(view), text)
        return Group(table, Text(), self._pace())

    def _pace(self) -> Text:
        """Return latency, rate and totals as text."""
        last_time, metrics = self._recent[-1]
        first_time, _ = self._recent[0]
        # The rows between the ends of the first and the last recent micro-batch.
        rows = sum(sum(entry.rows_in.values()) for _, entry in list(self._recent)[1:])
        times = [entry.seconds["all"] for _, entry in self._recent]
        parts = [f"micro-batch {metrics.batch_id:,}", f"{milliseconds(median(times))} ms each"]
        if last_time > first_time:
            parts.append(f"{amount(round(rows / (last_time - first_time)))} rows/s")
        seconds = self._clock() - self._begin_time
        parts.append(f"{plural(self.rows, 'row')} in {duration(seconds)}")
        text = Text(" · ".join(parts), style="note")
        if metrics.dead_letters_total:
            bad = plural(metrics.dead_letters_total, "bad row")
            text.append(f" · {bad} so far", style="warning")
        return text

    def _current(self, view: str) -> str:
        """Return the current numbers of a view as text."""
        counts = self._counts[view]
        if counts.is_partial:  # the number of rows is unknown
            rows = "row" if abs(counts.change) == 1 else "rows"
            return f"{counts.change:+,} {rows} since the start"
        numbers = ["–" if n is None else amount(n) for n in self._numbers[view]]
        if not counts.is_single:
            row = "row" if numbers[0] == "1" else "rows"
            return f"{numbers[0]} {row}"
        if len(numbers) == 1:
            return numbers[0]
        return ", ".join(f"{name} {n}" for name, n in zip(counts.names, numbers, strict=True))
