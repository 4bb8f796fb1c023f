"""Dashboard: a run in the terminal, while it runs.

In a terminal one small table that is redrawn in place, a line for each view; elsewhere a line now
and then. Both show what the sink has measured, and cost it nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from circuits import Circuit
from streaming.cli.terminal.display import amount, duration, milliseconds, plain_table, plural
from streaming.sink.metrics import BatchMetrics
from streaming.sink.view_sink import Published
from streaming.ui.history import mode_of
from streaming.ui.row_texts import weights_of
from streaming.ui.view_counts import ViewCounts

__all__ = ["Dashboard"]

log = logging.getLogger(__name__)

EVERY: Final = 2.0  # seconds between two lines, where there is no terminal
LAST: Final = 60  # micro-batches that rate and latency are of


class Dashboard:
    """Shows a run; a context manager around it.

    Args:
        console: Where the table is redrawn.
        circuit: The views.
        is_live: Whether to redraw a table; else lines are logged.
    """

    def __init__(
        self,
        console: Console,
        circuit: Circuit,
        *,
        is_live: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._is_live, self._clock = console, is_live, clock
        self._tallies = {view: ViewCounts(circuit, view) for view in circuit.outputs}
        self._numbers: dict[str, list[float | None]] = {}
        self._changes: dict[str, tuple[int, int]] = {}
        self._last: deque[tuple[float, BatchMetrics]] = deque(maxlen=LAST)
        self._live: Live | None = None
        self._begun, self._told = clock(), float("-inf")
        self.batches = self.rows = 0

    def __enter__(self) -> Self:
        if self._is_live:
            self._live = Live(
                get_renderable=self.frame, console=self._console, refresh_per_second=5
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def take(self, published: Published, metrics: BatchMetrics) -> None:
        """Take in a micro-batch."""
        for view, table in published.outputs.items():
            mode = mode_of(table)
            found = self._tallies[view].take(
                table,
                weights_of(table),
                mode,
                batch_id=published.batch_id,
                replayed=metrics.replayed,
            )
            self._numbers[view] = list(found)
            if table.num_rows:
                self._changes[view] = (published.batch_id, table.num_rows)
        self._last.append((self._clock(), metrics))
        self.batches += 1
        self.rows += sum(metrics.rows_in.values())
        if not self._is_live and self._clock() - self._told > EVERY:
            self._told = self._clock()
            log.info("%s", self.line(), extra={"fields": self.fields()})

    def line(self) -> str:
        """The last micro-batch as a line."""
        if not self._last:
            return "no micro-batch so far"
        _, metrics = self._last[-1]
        rows = sum(metrics.rows_in.values())
        views = ", ".join(f"{view} {self._told_of(view)}" for view in self._numbers)
        bad = f"; {metrics.letters_total:,} bad rows" if metrics.letters_total else ""
        return (
            f"micro-batch {metrics.batch_id}: {plural(rows, 'row')} in "
            f"{milliseconds(metrics.seconds['all'])} ms; {views}{bad}"
        )

    def fields(self) -> dict[str, Any]:
        """The last micro-batch as keys and values."""
        _, metrics = self._last[-1]
        return {
            "event": "micro_batch",
            "batch_id": metrics.batch_id,
            "rows_in": dict(metrics.rows_in),
            "seconds": metrics.seconds["all"],
            "views": self.numbers(),
            "bad_rows": metrics.letters_total,
        }

    def tell_summary(self) -> None:
        """Log what the run came to."""
        fields = {
            "event": "summary",
            "micro_batches": self.batches,
            "rows": self.rows,
            "seconds": round(self._clock() - self._begun, 3),
        }
        log.info("%s.", self.summary(), extra={"fields": fields})

    def summary(self) -> str:
        """What the run came to."""
        spent = self._clock() - self._begun
        times = [metrics.seconds["all"] for _, metrics in self._last]
        pace = f", {milliseconds(median(times))} ms for the median one" if times else ""
        return (
            f"{plural(self.batches, 'micro-batch', 'es')} with {plural(self.rows, 'row')} in "
            f"{duration(spent)}{pace}"
        )

    def numbers(self) -> dict[str, dict[str, float | None]]:
        """The numbers of each view, by name; ``rows_since`` are those that came in this run."""
        return {
            view: {"rows_since": self._tallies[view].change}
            if self._tallies[view].is_partial
            else dict(zip(self._tallies[view].names, numbers, strict=True))
            for view, numbers in self._numbers.items()
        }

    def frame(self) -> RenderableType:
        """The table."""
        if not self._last:
            return Text("waiting for the first micro-batch ...", style="says")
        table = plain_table()
        table.add_column("view", style="name", no_wrap=True)
        table.add_column("now", justify="right")
        table.add_column("last change", style="says")
        for view in self._numbers:
            change = self._changes.get(view)
            said = (
                f"{plural(change[1], 'row')} in micro-batch {change[0]:,}" if change else "none yet"
            )
            table.add_row(view, self._told_of(view), said)
        return Group(table, Text(), self._pace())

    def _pace(self) -> Text:
        now, metrics = self._last[-1]
        then, _ = self._last[0]
        rows = sum(sum(one.rows_in.values()) for _, one in list(self._last)[1:])
        times = [one.seconds["all"] for _, one in self._last]
        parts = [f"micro-batch {metrics.batch_id:,}", f"{milliseconds(median(times))} ms each"]
        if now > then:
            parts.append(f"{amount(round(rows / (now - then)))} rows/s")
        parts.append(f"{plural(self.rows, 'row')} in {duration(self._clock() - self._begun)}")
        text = Text(" · ".join(parts), style="says")
        if metrics.letters_total:
            text.append(f" · {metrics.letters_total:,} bad rows", style="waits")
        return text

    def _told_of(self, view: str) -> str:
        tally = self._tallies[view]
        if tally.is_partial:  # how many there are is unknown
            return f"{tally.change:+,} {'row' if abs(tally.change) == 1 else 'rows'}"
        numbers = ["–" if n is None else amount(n) for n in self._numbers[view]]
        if not tally.is_single:
            row = "row" if numbers[0] == "1" else "rows"
            return f"{numbers[0]} {row}"
        if len(numbers) == 1:
            return numbers[0]
        return ", ".join(f"{name} {n}" for name, n in zip(tally.names, numbers, strict=True))
