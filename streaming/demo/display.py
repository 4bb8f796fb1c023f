"""Display: the counts while the stream runs.

In a terminal a table that is redrawn in place, with the leading nodes and a progress bar; elsewhere
about twenty plain lines. Both show what a run's ``History`` holds and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streaming.demo.run import History

__all__ = ["Display", "clock"]

EPOCH_MINIMUM: Final = 100_000_000  # smaller numbers are no seconds since 1970 of our time
PLAIN_LINES: Final = 20

ROWS: Final = (
    ("links", "links, by weight"),
    ("edges", "pairs, distinct"),
    ("triangles", "directed triangles, distinct"),
    ("weighted", "directed triangles, by weight"),
    ("cycles", "3-cycles, distinct"),
    ("simple", "undirected triangles, distinct"),
)
LEADERS: Final = (("corners", "in most directed triangles"), ("turning", "in most 3-cycles"))


def clock(time: int) -> str:
    """A time of the stream as text: seconds since 1970 as a date, other numbers as they are.

    >>> clock(1082040961), clock(42)
    ('2004-04-15 14:56', '42')
    """
    if time < EPOCH_MINIMUM:
        return str(time)
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")


@dataclass
class Display:
    """Shows a history; a context manager around the run.

    Attributes:
        console: Where to write.
        history: What to show.
        names: A name for each node; its number where there is none.
    """

    console: Console
    history: History
    names: Mapping[int, str]
    _live: Live | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._frame, console=self.console, refresh_per_second=8
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

    def update(self) -> None:
        """Tell of a micro-batch that was added to the history."""
        if self._live is not None:
            return  # redrawn by its own clock
        done, total = len(self.history.counts), len(self.history.cuts)
        if done == total or done * PLAIN_LINES // total > (done - 1) * PLAIN_LINES // total:
            self.console.print(self._line(), highlight=False, soft_wrap=True)

    def summary(self) -> str:
        """The peak of the directed triangles, and who led then."""
        history = self.history
        if not history.counts:
            return "nothing was replayed"
        value, at = history.peak["triangles"]
        lines = [f"Most directed triangles: {value:,}, {self._time(at)}."]
        for view, label in LEADERS:
            best = [f"{self._name(node)} ({count:,})" for node, count in history.busiest[view]]
            lines.append(f"Then {label}: {', '.join(best) or 'none'}.")
        return "\n".join(lines)

    def _time(self, batch: int) -> str:
        return clock(int(self.history.stream.time[self.history.cuts[batch] - 1]))

    def _line(self) -> str:
        history = self.history
        now = history.counts[-1]
        share = history.position / len(history.stream)
        leaders = history.totals.top("corners", 1)
        most = f"; most: {self._name(leaders[0][0])} in {leaders[0][1]:,}" if leaders else ""
        return (
            f"{share:4.0%}  {self._time(len(history.counts) - 1)}"
            f"  links {now.links:,}, pairs {now.edges:,}, triangles {now.triangles:,}"
            f" (weighted {now.weighted:,}, undirected {now.simple:,})"
            f", 3-cycles {now.cycles:,}{most}"
        )

    def _frame(self) -> RenderableType:
        history = self.history
        done = len(history.counts)
        if not done:
            return Text(
                "waiting for the first micro-batch; a first run compiles the join kernel ..."
            )
        table = Table(title=f"{self._time(done - 1)}", title_justify="left", expand=False)
        table.add_column("live", no_wrap=True)
        table.add_column("now", justify="right", no_wrap=True)
        table.add_column("peak", justify="right", no_wrap=True)
        table.add_column("peak at", no_wrap=True)
        for name, label in ROWS:
            value, at = history.peak[name]
            now = getattr(history.counts[-1], name)
            table.add_row(label, f"{now:,}", f"{value:,}", self._time(at))
        bar = ProgressBar(total=len(history.cuts), completed=done, width=40)
        text = Text(
            f"{history.position:,} of {len(history.stream):,} changes, micro-batch {done} of "
            f"{len(history.cuts)}; {history.checks.total} comparisons, "
            f"{len(history.checks.differences)} differ"
        )
        return Group(table, self._leaders(), text, bar)

    def _leaders(self) -> RenderableType:
        leaders = self.history.leaders()
        tables = []
        for view, label in LEADERS:
            table = Table(title=label, title_justify="left", show_header=False, min_width=30)
            table.add_column(no_wrap=True, overflow="ellipsis", max_width=60)
            table.add_column(justify="right")
            for node, count in leaders[view]:
                table.add_row(self._name(node), f"{count:,}")
            if not leaders[view]:
                table.add_row("nobody", "")
            tables.append(table)
        return Columns(tables)

    def _name(self, node: int) -> str:
        return self.names.get(node, str(node))
