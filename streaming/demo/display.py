"""Show the counts while the stream runs.

On a terminal a table is redrawn in place, with the leading nodes and a progress bar; elsewhere
about twenty lines are printed. Both read the `History` of a run and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streaming.cli.terminal.live_table import LiveTable
from streaming.demo.run import History

__all__ = ["Display", "format_time"]

#: Times from this number on are seconds since 1970; smaller ones only order the changes.
MIN_EPOCH_S: Final = 100_000_000
#: The number of lines that are printed without a terminal.
MAX_LINES: Final = 20

ROWS: Final = (
    ("links", "links, by weight"),
    ("edges", "pairs, distinct"),
    ("triangles", "directed triangles, distinct"),
    ("weighted", "directed triangles, by weight"),
    ("cycles", "3-cycles, distinct"),
    ("undirected", "undirected triangles, distinct"),
)
LEADERS: Final = (("corners", "in most directed triangles"), ("cycle_corners", "in most 3-cycles"))


def format_time(time: int) -> str:
    """Format a time of the stream: seconds since 1970 as a date, other numbers unchanged.

    >>> format_time(1082040961), format_time(42)
    ('2004-04-15 14:56', '42')
    """
    if time < MIN_EPOCH_S:
        return str(time)
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")


class Display(LiveTable):
    """Shows a history; a context manager around the run.

    Args:
        console: The terminal.
        history: The history to show.
        names: The names of nodes; a node without one is shown by its number.
    """

    def __init__(self, console: Console, history: History, names: Mapping[int, str]) -> None:
        super().__init__(console, is_live=console.is_terminal)
        self.history, self.names = history, names

    def update(self) -> None:
        """Print a line for the last micro-batch of the history, if one is due."""
        if self.is_live:
            return
        done, total = len(self.history.counts), len(self.history.cuts)
        if done == total or done * MAX_LINES // total > (done - 1) * MAX_LINES // total:
            self.console.print(self._line(), highlight=False, soft_wrap=True)

    def summary(self) -> str:
        """Return the peak of the directed triangles, and the leading nodes at that time."""
        history = self.history
        if not history.counts:
            return "nothing was replayed"
        value, batch = history.peak["triangles"]
        lines = [f"Most directed triangles: {value:,}, {self._time(batch)}."]
        for view, label in LEADERS:
            leading_nodes = [
                f"{self._name(node)} ({count:,})" for node, count in history.busiest[view]
            ]
            lines.append(f"Then {label}: {', '.join(leading_nodes) or 'none'}.")
        return "\n".join(lines)

    def _time(self, batch: int) -> str:
        return format_time(int(self.history.stream.time[self.history.cuts[batch] - 1]))

    def _line(self) -> str:
        history = self.history
        counts = history.counts[-1]
        fraction = history.position / len(history.stream)
        leaders = history.views.top("corners", 1)
        leader_text = f"; most: {self._name(leaders[0][0])} in {leaders[0][1]:,}" if leaders else ""
        return (
            f"{fraction:4.0%}  {self._time(len(history.counts) - 1)}"
            f"  links {counts.links:,}, pairs {counts.edges:,}, triangles {counts.triangles:,}"
            f" (weighted {counts.weighted:,}, undirected {counts.undirected:,})"
            f", 3-cycles {counts.cycles:,}{leader_text}"
        )

    def frame(self) -> RenderableType:
        history = self.history
        completed = len(history.counts)
        if not completed:
            return Text(
                "waiting for the first micro-batch; a first run compiles the join kernel ..."
            )
        table = Table(title=f"{self._time(completed - 1)}", title_justify="left", expand=False)
        table.add_column("live", no_wrap=True)
        table.add_column("now", justify="right", no_wrap=True)
        table.add_column("peak", justify="right", no_wrap=True)
        table.add_column("peak at", no_wrap=True)
        for name, label in ROWS:
            value, batch = history.peak[name]
            current = getattr(history.counts[-1], name)
            table.add_row(label, f"{current:,}", f"{value:,}", self._time(batch))
        bar = ProgressBar(total=len(history.cuts), completed=completed, width=40)
        text = Text(
            f"{history.position:,} of {len(history.stream):,} changes, micro-batch {completed} of "
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
